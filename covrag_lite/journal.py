"""The journal: a file with every text that a model wrote, so that a stopped run can resume.

Each line is a JSON object with a key and a text. The key is a hash of everything that the text
depends on: weights, settings, stage and prompt. Lines are only appended. If a process is killed
while it writes, the last line may be incomplete; it is removed when the journal is opened again.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path


def key_of(**depends_on: object) -> str:
    """Return the journal key of a text: a hash of everything that the text depends on."""
    told = json.dumps(depends_on, sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:24]


class Journal:
    """A dictionary from keys to texts, stored in a file.

    Example:
        >>> journal = Journal(Path("runs/mine/journal.jsonl"))
        >>> journal.add("answer", {key_of(prompt="Who wrote Emma?"): "Jane Austen"})
        >>> journal.texts[key_of(prompt="Who wrote Emma?")]
        'Jane Austen'
    """

    def __init__(self, path: Path):
        self.path = path
        self.texts: dict[str, str] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # wait until no other process is writing a line
            file.seek(0)
            *lines, torn = file.read().split(b"\n")
            if torn:
                file.truncate(file.tell() - len(torn))
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                self.texts.setdefault(record["key"], record["text"])
            except (ValueError, KeyError, TypeError):
                told = "this is not a journal line; delete the line, and its text is written again"
                raise ValueError(f"{path}, line {number}: {told}") from None

    def add(self, stage: str, texts: Mapping[str, str]) -> None:
        """Append the new texts; if the disk is full, restore the file and raise an error."""
        new = {key: text for key, text in texts.items() if key not in self.texts}
        records = [{"key": key, "stage": stage, "text": text} for key, text in new.items()]
        data = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
        with open(self.path, "ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            before = os.fstat(file.fileno()).st_size
            try:
                while data:  # a nearly full disk may accept only a part of the data
                    data = data[file.write(data) :]
                os.fsync(file.fileno())
            except OSError as error:
                file.truncate(before)
                sentence = f"{error.strerror}: free some disk space and run again"
                raise OSError(error.errno, sentence, str(self.path)) from error
        self.texts.update(new)
