"""Questions and passages from a folder: your own data.

The simplest folder contains documents (.txt, .md, .pdf) and `questions.csv` with the columns
`question` and `answer`; "|" separates several answers. Documents are split into pieces of at most
about a hundred words, at paragraphs and sentences if possible. The title of a piece is its file
name, with the page if the file has pages.

For more control there are JSONL files, plain or gzipped. `<set>.jsonl` contains the test questions
of a set, and `train_<set>.jsonl` the training questions. `validation_<set>.jsonl` is optional:
without it a tenth of the training questions is held out. Rows have `id, question, answers` and
optionally `gold_passage` (or `gold_passages`), `clean_question` and `kind`. `corpus.jsonl` contains
the passages, as rows of `id, title, text`. Any set may also be a .csv file.
"""

import csv
import gzip
import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from covrag_lite.config import Config, resolve
from covrag_lite.metrics import normalise
from covrag_lite.records import Passage, Question

ENDS = (".jsonl", ".jsonl.gz", ".csv")
PREFIX = {"test": "", "train": "train_", "validation": "validation_"}
DOCUMENTS = (".txt", ".md", ".pdf")
LONGEST = 700  # characters of a piece of a document: about a hundred words
HELD_OUT = 10  # one in ten training questions is for validation, if there is no file for it


def sets(config: Config, split: str) -> tuple[str, ...]:
    """Return the names of all sets with questions for this split, held-out ones included."""
    also = find_files(config, "train") if split == "validation" else {}
    return tuple(sorted(find_files(config, split) | also))


def questions(config: Config, split: str, dataset: str) -> list[Question]:
    """Load the questions of one set and split; validation questions are never trained on."""
    has_file = split == "test" or dataset in find_files(config, "validation")
    files = find_files(config, split if has_file else "train")
    if dataset not in files:
        there = ", ".join(sorted(files)) or "none"
        here = f"{config.data.data} has files of: {there}"
        raise FileNotFoundError(f"there is no {split} file of dataset {dataset!r}; {here}")
    rows = read_rows(files[dataset], ("id", "question", "answers"))
    made = to_questions(((f"{files[dataset]}, line {number}", row) for number, row in rows), dataset)
    return made if has_file else hold_out(made, split)


def hold_out(every: Sequence[Question], split: str) -> list[Question]:
    """Select the training questions of one split: a tenth, by hash, is held out for validation."""
    texts = sorted({normalise(one.question) for one in every}, key=hash_text)
    held_out = set(texts[: max(1, len(texts) // HELD_OUT)]) if len(texts) > 1 else set()
    return [one for one in every if (normalise(one.question) in held_out) == (split == "validation")]


def hash_text(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def passages(config: Config) -> list[Passage]:
    """Load the whole corpus."""
    folder = resolve(config.data.data)
    for path in (folder / "corpus.jsonl", folder / "corpus.jsonl.gz"):
        if path.exists():
            return read_passages(path)
    return read_documents(folder)


def read_passages(path: Path) -> list[Passage]:
    """Load the passages of a file; the title may be missing."""
    rows = read_rows(path, ("id", "text"))
    return [Passage(str(row["id"]), row.get("title") or "", row["text"]) for _, row in rows]


def find_files(config: Config, split: str) -> dict[str, Path]:
    """Return the files of a split by the names of their sets; an unzipped file takes precedence."""
    data, folder = config.data.data, resolve(config.data.data)
    if not folder.is_dir():
        known = "it must be 'world', 'hub' or a folder"
        raise FileNotFoundError(f"data is {data!r}, but {known}, and there is no folder {folder}")
    files = [file for end in reversed(ENDS) for file in sorted(folder.glob(f"{PREFIX[split]}*{end}"))]
    if split == "test":
        files = [file for file in files if not file.name.startswith(("train_", "validation_", "corpus"))]
    return {file.name.partition(".")[0].removeprefix(PREFIX[split]): file for file in files}


def to_questions(rows: Iterable[tuple[str, dict]], dataset: str) -> list[Question]:
    """Convert rows to questions; errors name the row, and exact duplicates are dropped."""
    made: dict[str, Question] = {}
    for place, row in rows:
        identity, asked, answers = str(row["id"]), row["question"], row["answers"]
        if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            raise ValueError(f"{place}: answers must be a list of strings, not {answers!r}")
        if not asked.strip():
            raise ValueError(f"{place}: the question is empty")
        gold = row.get("gold_passages") or ([row["gold_passage"]] if row.get("gold_passage") else [])
        rest = (tuple(map(str, gold)), row.get("clean_question", ""), row.get("kind", ""))
        first = made.setdefault(identity, Question(identity, dataset, asked, tuple(answers), *rest))
        if normalise(first.question) != normalise(asked):
            raise ValueError(f"{place}: the id {identity!r} is already used by another question")
    return list(made.values())


def read_rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict]]:
    """Yield the rows of a file with their line numbers; errors name the file and the line."""
    number = 0
    for number, row in (read_csv if path.suffix == ".csv" else read_jsonl)(path):
        missing = [name for name in needed if not isinstance(row, dict) or row.get(name) is None]
        if missing:
            raise ValueError(f"{path}, line {number}: missing {', '.join(missing)}")
        yield number, row
    if number == 0:
        raise ValueError(f"{path} is empty; it needs at least one row")


def read_jsonl(path: Path) -> Iterator[tuple[int, object]]:
    """Yield the non-blank lines of a file, plain or gzipped."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                if line.strip():
                    yield number, json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error})") from None


def read_csv(path: Path) -> Iterator[tuple[int, dict]]:
    """Yield the rows of a table of questions; without a column `id`, the line number is the id."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        missing = {"question", "answer"} - set(rows.fieldnames or ())
        if missing:
            columns = " and ".join(sorted(missing))
            raise ValueError(f"{path}, line 1: no column {columns}; separate columns by commas")
        for row in rows:
            answers = [part.strip() for part in (row["answer"] or "").split("|") if part.strip()]
            name, question = row.get("id") or f"{path.stem}-{rows.line_num}", (row["question"] or "").strip()
            yield rows.line_num, {"id": name, "question": question or None, "answers": answers or None}


def read_documents(folder: Path) -> list[Passage]:
    """Split all documents in the folder and its subfolders into passages, except README files."""
    made = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in DOCUMENTS or path.stem.lower() == "readme" or not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        pieces = [(where, piece) for where, text in read_parts(path) for piece in split(text, suffix=path.suffix)]
        made += [Passage(f"{name}#{n}", f"{name}{where}", piece) for n, (where, piece) in enumerate(pieces, 1)]
    if not made:
        ends = ", ".join(DOCUMENTS)
        has_none = f"{folder} has neither corpus.jsonl nor documents ({ends}) with text"
        raise FileNotFoundError(f"{has_none}; add some, or set corpus")
    return made


def split(text: str, longest: int = LONGEST, suffix: str = ".txt") -> list[str]:
    """Split a text into pieces of at most `longest` characters, each on one line."""
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

    splitter = (MarkdownSplitter if suffix.lower() == ".md" else TextSplitter)(longest)
    return [" ".join(piece.split()) for piece in splitter.chunks(text) if piece.strip()]


def read_parts(path: Path) -> list[tuple[str, str]]:
    """Read a document, page by page for a PDF; warn about PDF pages without text."""
    if path.suffix.lower() != ".pdf":
        try:
            return [("", path.read_bytes().decode("utf-8-sig"))]
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise ValueError(f"{path}, line {line}: not UTF-8; save the file in that encoding") from None
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        pages = [(f", page {number}", page.extract_text()) for number, page in enumerate(PdfReader(path).pages, 1)]
    except (PyPdfError, ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as PDF: {' '.join(str(error).split())}") from None
    empty = "".join(where for where, text in pages if not text.strip())
    if empty:
        cure = "scanned pages need text recognition (OCR) first"
        warnings.warn(f"{path}{empty}: no text; {cure}", stacklevel=2)
    return pages
