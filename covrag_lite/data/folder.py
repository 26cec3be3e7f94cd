"""Questions and passages from a folder: your own data.

The least is a folder of documents (.txt, .md, .pdf) and `questions.csv` with the columns `question` and `answer`, where
"|" stands between several answers. A document is split into pieces of at most about a hundred words, which end at
paragraphs and sentences where they can; a piece's title is its file, and its page where it has pages. Or JSONL files,
plain or gzipped, for more:

`<set>.jsonl` holds the test questions of a set, `train_<set>.jsonl` the questions to learn from, and, if you want to
choose them yourself, `validation_<set>.jsonl` those to validate on; without that file a tenth of the training questions
is held out. Rows have `id, question, answers` and optionally `gold_passage` (or `gold_passages`), `clean_question` and
`kind`. `corpus.jsonl` holds the passages, rows of `id, title, text`. Any set may be a .csv file.
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
LONGEST = 700  # characters of a document's piece: some hundred words
HELD_OUT = 10  # one in ten training questions is for validation, where no file names them


def sets(config: Config, split: str) -> tuple[str, ...]:
    """The sets that have a file for this split, or from whose training file some questions are held out, by name."""
    also = find_files(config, "train") if split == "validation" else {}
    return tuple(sorted(find_files(config, split) | also))


def questions(config: Config, split: str, dataset: str) -> list[Question]:
    """The questions of one set and split. What validates is never trained on, whatever files there are."""
    has_file = split == "test" or dataset in find_files(config, "validation")
    files = find_files(config, split if has_file else "train")
    if dataset not in files:
        there = ", ".join(sorted(files)) or "none"
        raise FileNotFoundError(f"no {split} file of dataset {dataset!r} in {config.data.data}, only of {there}")
    rows = read_rows(files[dataset], ("id", "question", "answers"))
    made = to_questions(((f"{files[dataset]}, line {number}", row) for number, row in rows), dataset)
    return made if has_file else hold_out(made, split)


def hold_out(every: Sequence[Question], split: str) -> list[Question]:
    """Of the training questions those that one split has: a tenth, by the hash, validates; the rest is learnt from."""
    texts = sorted({normalise(one.question) for one in every}, key=hash_text)
    held_out = set(texts[: max(1, len(texts) // HELD_OUT)]) if len(texts) > 1 else set()
    return [one for one in every if (normalise(one.question) in held_out) == (split == "validation")]


def hash_text(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def passages(config: Config) -> list[Passage]:
    """The whole corpus."""
    folder = resolve(config.data.data)
    for path in (folder / "corpus.jsonl", folder / "corpus.jsonl.gz"):
        if path.exists():
            return read_passages(path)
    return read_documents(folder)


def read_passages(path: Path) -> list[Passage]:
    """A file's passages; the title may be missing."""
    rows = read_rows(path, ("id", "text"))
    return [Passage(str(row["id"]), row.get("title") or "", row["text"]) for _, row in rows]


def find_files(config: Config, split: str) -> dict[str, Path]:
    """The files of a split by their sets' names; of one that stands twice the plain one."""
    data, folder = config.data.data, resolve(config.data.data)
    if not folder.is_dir():
        raise FileNotFoundError(f"data {data!r} is neither 'world' nor 'hub' nor a folder: there is no {folder}")
    files = [file for end in reversed(ENDS) for file in sorted(folder.glob(f"{PREFIX[split]}*{end}"))]
    if split == "test":
        files = [file for file in files if not file.name.startswith(("train_", "validation_", "corpus"))]
    return {file.name.partition(".")[0].removeprefix(PREFIX[split]): file for file in files}


def to_questions(rows: Iterable[tuple[str, dict]], dataset: str) -> list[Question]:
    """Rows as questions; what cannot be one is named by its place, what repeats an id and its text is left out."""
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
            raise ValueError(f"{place}: the id {identity!r} is another question's already")
    return list(made.values())


def read_rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict]]:
    """The file's rows with their line numbers; a broken one is named by file and line."""
    number = 0
    for number, row in (read_csv if path.suffix == ".csv" else read_jsonl)(path):
        missing = [name for name in needed if not isinstance(row, dict) or row.get(name) is None]
        if missing:
            raise ValueError(f"{path}, line {number}: has no {' and no '.join(missing)}")
        yield number, row
    if number == 0:
        raise ValueError(f"{path} is empty: it has no row")


def read_jsonl(path: Path) -> Iterator[tuple[int, object]]:
    """The lines of a file, plain or gzipped, that are not blank."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                if line.strip():
                    yield number, json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error})") from None


def read_csv(path: Path) -> Iterator[tuple[int, dict]]:
    """The rows of a table of questions and answers; without a column `id` a row's line is its name."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        missing = {"question", "answer"} - set(rows.fieldnames or ())
        if missing:
            raise ValueError(f"{path}, line 1: no column {' and '.join(sorted(missing))}; part columns by commas")
        for row in rows:
            answers = [part.strip() for part in (row["answer"] or "").split("|") if part.strip()]
            name, question = row.get("id") or f"{path.stem}-{rows.line_num}", (row["question"] or "").strip()
            yield rows.line_num, {"id": name, "question": question or None, "answers": answers or None}


def read_documents(folder: Path) -> list[Passage]:
    """Every document of the folder and its subfolders in pieces, but for a README that tells of the folder itself."""
    made = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in DOCUMENTS or path.stem.lower() == "readme" or not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        pieces = [(where, piece) for where, text in read_parts(path) for piece in split(text, suffix=path.suffix)]
        made += [Passage(f"{name}#{n}", f"{name}{where}", piece) for n, (where, piece) in enumerate(pieces, 1)]
    if not made:
        ends = ", ".join(DOCUMENTS)
        raise FileNotFoundError(f"{folder} has neither corpus.jsonl nor documents ({ends}) with text; name a corpus")
    return made


def split(text: str, longest: int = LONGEST, suffix: str = ".txt") -> list[str]:
    """A text in pieces of at most so many characters, on one line each."""
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

    splitter = (MarkdownSplitter if suffix.lower() == ".md" else TextSplitter)(longest)
    return [" ".join(piece.split()) for piece in splitter.chunks(text) if piece.strip()]


def read_parts(path: Path) -> list[tuple[str, str]]:
    """The texts of a document: the whole, or page by page with the page's number; PDF pages without any are told."""
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
        warnings.warn(f"{path}{empty}: no text; scanned pages need text recognition (OCR) first", stacklevel=2)
    return pages
