"""The journal: every text a model wrote, one JSON line each, so that no work is lost and none is done twice.

A line's key is a hash of everything the text depends on (weights, settings, stage, prompt). Lines are only ever added.
A process killed while writing leaves at most one torn line at the end, which the next opening cuts off.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path


def key_of(**depends_on) -> str:
    """A hash of everything a journaled text depends on."""
    return hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:24]


class Journal:
    """A dictionary from key to text that outlives its process."""

    def __init__(self, path: Path):
        self.path, self.texts = path, {}
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # a torn line is torn only if nobody is writing it
            file.seek(0)
            lines = file.read().split(b"\n")
            if lines[-1]:
                file.truncate(file.tell() - len(lines[-1]))
        for number, line in enumerate(lines[:-1], 1):
            try:
                record = json.loads(line)
                self.texts.setdefault(record["key"], record["text"])
            except (ValueError, KeyError, TypeError):
                raise ValueError(
                    f"{path}, line {number}: not a journal line; delete that line and its work is done again"
                ) from None

    def __contains__(self, key: str) -> bool:
        return key in self.texts

    def __getitem__(self, key: str) -> str:
        return self.texts[key]

    def add(self, stage: str, texts: Mapping[str, str]) -> None:
        """Append what is new in one write; when the disk refuses it, the file is as it was before."""
        new = {key: text for key, text in texts.items() if key not in self.texts}
        lines = "".join(
            json.dumps({"key": key, "stage": stage, "text": text}, ensure_ascii=False) + "\n"
            for key, text in new.items()
        )
        with open(self.path, "ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            before = os.fstat(file.fileno()).st_size
            try:
                data = lines.encode()
                while data:  # a nearly full disk takes a part first and refuses the rest
                    data = data[file.write(data) :]
                os.fsync(file.fileno())
            except OSError as error:
                file.truncate(before)
                raise OSError(
                    error.errno,
                    f"{self.path} could not be written ({error.strerror}); "
                    f"the {len(self.texts)} texts in it are whole: make room and run again to go on",
                ) from error
        self.texts.update(new)
