"""Files that are written and read whole: replaced atomically, and possibly compressed.

A file is either the old one or the complete new one: a full disk or a killed process loses nothing.
"""

import errno
import gzip
import json
import lzma
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

CURES = {
    errno.ENOSPC: "free some disk space and run again",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f) and run again",
    errno.EDQUOT: "free some disk space and run again",
    errno.EACCES: "make the folder writable, or choose another one",
    errno.EPERM: "make the folder writable, or choose another one",
    errno.EROFS: "make the folder writable, or choose another one",
}
RUST_ERROR = re.compile(r"\(os error (\d+)\)")  # of safetensors and tokenizers


class RecordDamaged(ValueError):
    """A recorded file that is incomplete or altered, so that it cannot be read."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the error of a full or read-only disk into one sentence that names `path`."""
    try:
        yield
    except Exception as error:
        number = find_errno(error)
        cure = CURES.get(number)
        if cure is None:
            raise
        sentence = f"{os.strerror(number)}, so this file was not written; {cure}"
        raise OSError(number, sentence, str(path)) from error


def describe_error(error: Exception) -> str:
    """Return the message of an error on one line; a file's error begins with its path."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def find_errno(error: Exception) -> int | None:
    """Return the system's number of an error; libraries in Rust only quote it in their message."""
    if isinstance(error, OSError):
        return error.errno
    quoted = RUST_ERROR.search(str(error))
    return int(quoted[1]) if quoted else None


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """Give a path in the same folder, whose file takes the place of `path` at the end.

    After an error the old file stays, and the temporary one is removed.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    with explained(path):
        try:
            yield unfinished
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file in the same folder; it takes the place of `path` at the end."""
    with replacing_path(path) as unfinished, open(unfinished, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def building_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder that gets the name `folder` at the end, unless that exists by then.

    After an error nothing of it is left.
    """
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    with explained(folder):
        try:
            unfinished.mkdir(parents=True)
            yield unfinished
            if not folder.exists():  # another process may have been faster
                unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


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


def write_gzip(path: Path, text: str) -> None:
    """Write a gzipped text file, or replace it; the same text always gives the same file."""
    write_bytes(path, gzip.compress(text.encode(), mtime=0))


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
