"""Files that are written and read whole: replaced atomically, and possibly compressed.

A file is either the old one or the complete new one: a full disk or a killed process loses nothing.
"""

import errno
import gzip
import json
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

CURES = {
    errno.ENOSPC: "free some disk space and run again",
    errno.EDQUOT: "free some disk space and run again",
    errno.EACCES: "make the folder writable, or choose another one",
    errno.EPERM: "make the folder writable, or choose another one",
    errno.EROFS: "make the folder writable, or choose another one",
}


class RecordDamaged(ValueError):
    """A recorded file that is incomplete or altered, so that it cannot be read."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file in the same folder; it takes the place of `path` at the end.

    After an error the old file stays, and the temporary one is removed.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            with open(unfinished, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        cure = CURES.get(error.errno)
        if cure is None:
            raise
        sentence = f"{error.strerror}, so this file was not written; {cure}"
        raise OSError(error.errno, sentence, str(path)) from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, or replace it."""
    with replacing(path) as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, or replace it."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: object) -> None:
    """Write a JSON file, or replace it."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict:
    """Read a JSON file."""
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise RecordDamaged(f"{path} is damaged: {error}; restore it or make it again") from None


def read_packed(path: Path) -> str:
    """Return the text of a file that is compressed with xz or gzip."""
    decompress = lzma.decompress if path.suffix == ".xz" else gzip.decompress
    try:
        return decompress(path.read_bytes()).decode()
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, UnicodeDecodeError) as error:
        raise RecordDamaged(f"{path} is damaged: {error}; restore it or make it again") from None


def read_rows(path: Path) -> list[dict]:
    """Return the rows of a compressed JSONL file.

    Lines end at "\\n" only, because a text may contain other characters that break lines.
    """
    rows = []
    for number, line in enumerate(read_packed(path).split("\n"), 1):
        if not line:
            continue
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            cure = "restore it or make it again"
            message = f"{path} is damaged: line {number} is not JSON ({error}); {cure}"
            raise RecordDamaged(message) from None
    return rows
