"""Rows of files: JSONL, plain or gzipped, and tables of questions (.csv).

Errors name the file and the line.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

ENDS = (".jsonl", ".jsonl.gz", ".csv")


def read_rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict]]:
    """Yield the rows of a file with their line numbers; `needed` are names that a row must have."""
    number = 0
    read = read_csv if path.suffix == ".csv" else read_jsonl
    for number, row in read(path):
        missing = [name for name in needed if not isinstance(row, dict) or row.get(name) is None]
        if missing:
            raise ValueError(f"{path}, line {number}: missing {', '.join(missing)}")
        yield number, row
    if number == 0:
        raise ValueError(f"{path} is empty; it needs at least one row")


def read_jsonl(path: Path) -> Iterator[tuple[int, dict]]:
    """Yield the non-blank lines of a file, plain or gzipped."""
    open_file = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with open_file(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}; copy or download it again") from None


def read_csv(path: Path) -> Iterator[tuple[int, dict]]:
    """Yield the rows of a table of questions; without a column `id`, the line number is the id."""
    rows = csv.DictReader(io.StringIO(decode(path), newline=""))
    try:
        missing = {"question", "answer"} - set(rows.fieldnames or ())
        if missing:
            columns = f"column{'s' * (len(missing) > 1)} {' and '.join(sorted(missing))}"
            raise ValueError(f"{path}, line 1: no {columns}; separate columns by commas")
        for row in rows:
            yield rows.line_num, to_question(row, f"{path.stem}-{rows.line_num}")
    except csv.Error as error:
        raise ValueError(f"{path}, line {rows.reader.line_num}: {error}") from None


def to_question(row: dict, identity: str) -> dict:
    """Return a row of a table in the form of a JSONL file; an empty value is None."""
    answers = []
    for answer in (row["answer"] or "").split("|"):
        if answer.strip():
            answers.append(answer.strip())
    question = (row["question"] or "").strip()
    return {
        "id": row.get("id") or identity,
        "question": question or None,
        "answers": answers or None,
    }


def decode(path: Path) -> str:
    """Return the text of a file in UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise not_utf8(path) from None


def not_utf8(path: Path) -> ValueError:
    """Return the error for a file in another encoding, with the first line that shows it."""
    open_file = gzip.open if path.suffix == ".gz" else open
    number = 0
    with open_file(path, "rb") as file:
        for line in file:
            number += 1
            try:
                line.decode()
            except UnicodeDecodeError:
                break
    return ValueError(f"{path}, line {number}: not UTF-8; save the file in that encoding")
