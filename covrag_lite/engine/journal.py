"""The journal: a file with every text that a model wrote, so that a stopped run can resume.

Each line is a JSON object with a key and a text. The key is a hash of everything that the text
depends on: weights, settings, stage and prompt. Lines are only appended. If a process is killed
while it writes, the last line may be incomplete; whoever opens or writes the journal next removes
it.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from covrag_lite.files import explained


def key_of(**depends_on: object) -> str:
    """Return the journal key of a text: a hash of everything that the text depends on."""
    canonical = json.dumps(depends_on, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:24]


def ends_with_whole_line(file: IO[bytes]) -> bool:
    """Return whether the last line of a file is complete, or the file is empty."""
    size = os.fstat(file.fileno()).st_size
    return size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"


def remove_incomplete_line(file: IO[bytes]) -> list[bytes]:
    """Cut an incomplete last line off a file, and return the complete lines."""
    file.seek(0)
    *lines, incomplete = file.read().split(b"\n")
    if incomplete:
        file.truncate(file.tell() - len(incomplete))
    return lines


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
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = self._read_lines()
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                self.texts.setdefault(record["key"], record["text"])
            except (ValueError, KeyError, TypeError):
                raise ValueError(
                    f"{path}, line {number}: this is not a journal line; "
                    "delete the line, and its text is written again"
                ) from None

    def _read_lines(self) -> list[bytes]:
        """Return the complete lines of the file, and remove an incomplete last one from it."""
        with open(self.path, "ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # wait until no other process is writing a line
            return remove_incomplete_line(file)

    def add(self, stage: str, texts: Mapping[str, str]) -> None:
        """Append the new texts; if the disk is full, restore the file and raise an error."""
        new = {key: text for key, text in texts.items() if key not in self.texts}
        lines = []
        for key, text in new.items():
            record = {"key": key, "stage": stage, "text": text}
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        self._append("".join(lines).encode())
        self.texts.update(new)

    def _append(self, data: bytes) -> None:
        """Append whole lines and wait until they are on the disk."""
        with open(self.path, "ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not ends_with_whole_line(file):  # of a process that was killed
                remove_incomplete_line(file)
            size_before = os.fstat(file.fileno()).st_size
            try:
                while data:  # a nearly full disk may accept only a part of the data
                    n_written = file.write(data)
                    data = data[n_written:]
                os.fsync(file.fileno())
            except OSError as error:
                file.truncate(size_before)
                message = f"{error.strerror}: free some disk space and run again"
                raise OSError(error.errno, message, str(self.path)) from error
