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


def key_of(**depends_on: object) -> str:
    """A hash of everything a journaled text depends on."""
    told = json.dumps(depends_on, sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:24]


class Journal:
    """A dictionary from key to text that outlives its process."""

    def __init__(self, path: Path):
        self.path = path
        self.texts: dict[str, str] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # a torn line is torn only if nobody is writing it
            file.seek(0)
            *lines, torn = file.read().split(b"\n")
            if torn:
                file.truncate(file.tell() - len(torn))
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                self.texts.setdefault(record["key"], record["text"])
            except (ValueError, KeyError, TypeError):
                told = "not a journal line; delete that line and its work is done again"
                raise ValueError(f"{path}, line {number}: {told}") from None

    def add(self, stage: str, texts: Mapping[str, str]) -> None:
        """Append what is new in one write; when the disk refuses it, the file is as it was before."""
        new = {key: text for key, text in texts.items() if key not in self.texts}
        records = [{"key": key, "stage": stage, "text": text} for key, text in new.items()]
        data = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
        with open(self.path, "ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            before = os.fstat(file.fileno()).st_size
            try:
                while data:  # a nearly full disk takes a part first and refuses the rest
                    data = data[file.write(data) :]
                os.fsync(file.fileno())
            except OSError as error:
                file.truncate(before)
                raise OSError(error.errno, f"{error.strerror}: make room and run again", str(self.path)) from error
        self.texts.update(new)
