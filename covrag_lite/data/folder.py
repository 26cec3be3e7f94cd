"""Questions and passages from a folder: your own data.

The simplest folder contains documents (.txt, .md, .html, .pdf) and `questions.csv` with the columns
`question` and `answer`; "|" separates several answers. Documents are split into pieces of at most
about a hundred words, at paragraphs and sentences if possible. The title of a piece is its file
name, with the page if the file has pages.

For more control there are JSONL files, plain or gzipped. `<set>.jsonl` contains the test questions
of a set, and `train_<set>.jsonl` the training questions. `validation_<set>.jsonl` is optional:
without it a tenth of the training questions is held out. Rows have `id, question, answers` and
optionally `gold_passage` (or `gold_passages`), `clean_question` and `kind`. `corpus.jsonl` contains
the passages, as rows of `id, title, text`. Any set may also be a .csv file.

A training set may have the form of WebGLM-QA: `train_<set>.jsonl` with rows of `question, answer,
references`, where the answer is long and cites its references as [1], [2] and so on.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from covrag_lite.config import Config, resolve
from covrag_lite.data import documents
from covrag_lite.data.missing import DataMissing
from covrag_lite.data.rows import ENDS, read_jsonl, read_rows
from covrag_lite.metrics import normalise
from covrag_lite.records import Passage, Question

PREFIX = {"test": "", "train": "train_", "validation": "validation_"}
NOT_TEST = ("train_", "validation_", "corpus")  # how other files than test sets begin
HELD_OUT = 10  # one in ten training questions is for validation, if there is no file for it


def sets(config: Config, split: str) -> tuple[str, ...]:
    """Return the names of all sets with questions for this split, held-out ones included."""
    names = set(find_files(config, split))
    if split == "validation":
        names.update(find_files(config, "train"))
    return tuple(sorted(names))


def questions(config: Config, split: str, dataset: str) -> list[Question]:
    """Load the questions of one set and split; validation questions are never trained on."""
    has_file = split == "test" or dataset in find_files(config, "validation")
    files = find_files(config, split if has_file else "train")
    if dataset not in files:
        names = ", ".join(sorted(files)) or "none"
        available = f"{config.data.data} has files of: {names}"
        raise DataMissing(f"there is no {split} file of dataset {dataset!r}; {available}")
    file = files[dataset]
    if split != "test" and is_cited(file):
        # Its answers are paragraphs about their own references: no retrieval and no accuracy.
        return [] if split == "validation" else to_questions(number_cited(file, dataset), dataset)
    rows = []
    for number, row in read_rows(file, ("id", "question", "answers")):
        rows.append((f"{file}, line {number}", row))
    loaded = to_questions(rows, dataset)
    return loaded if has_file else hold_out(loaded, split)


def read_cited(config: Config, dataset: str) -> Iterator[tuple[int, dict]] | None:
    """Return the numbered rows of a training set in the form of WebGLM-QA; None for other sets."""
    file = find_files(config, "train").get(dataset)
    if file is None or not is_cited(file):
        return None
    return read_rows(file, ("question", "answer", "references"))


def is_cited(file: Path) -> bool:
    """Return whether the questions of a file have references of their own, as in WebGLM-QA."""
    if file.suffix == ".csv":
        return False
    _, first = next(read_jsonl(file), (0, {}))
    return isinstance(first, dict) and "references" in first


def number_cited(file: Path, dataset: str) -> Iterator[tuple[str, dict]]:
    """Yield the rows of such a file as those of other sets; the line's number is the id."""
    for number, row in read_rows(file, ("question", "answer", "references")):
        as_question = {"id": f"{dataset}-{number}", "answers": [row["answer"]]}
        yield f"{file}, line {number}", row | as_question


def hold_out(every: Sequence[Question], split: str) -> list[Question]:
    """Select the training questions of one split: a tenth, by hash, is held out for validation."""
    texts = sorted({normalise(question.question) for question in every}, key=hash_text)
    n_held_out = max(1, len(texts) // HELD_OUT) if len(texts) > 1 else 0
    held_out = set(texts[:n_held_out])
    wants_held_out = split == "validation"
    selected = []
    for question in every:
        if (normalise(question.question) in held_out) == wants_held_out:
            selected.append(question)
    return selected


def hash_text(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def passages(config: Config) -> list[Passage]:
    """Load the whole corpus: corpus.jsonl, or else the documents of the folder."""
    folder = resolve(config.data.data)
    for path in (folder / "corpus.jsonl", folder / "corpus.jsonl.gz"):
        if path.exists():
            return read_passages(path)
    loaded = documents.read_documents(folder)
    if not loaded:
        ends = ", ".join(documents.ENDS)
        has_none = f"{folder} has neither corpus.jsonl nor documents ({ends}) with text"
        raise DataMissing(f"{has_none}; add some, or set the parameter corpus")
    return loaded


def read_passages(path: Path) -> list[Passage]:
    """Load the passages of a file; the title may be missing."""
    lines: dict[str, int] = {}  # the line of each id
    loaded = []
    for number, row in read_rows(path, ("id", "text")):
        identity = str(row["id"])
        if identity in lines:
            same = f"the id {identity!r} is already used in line {lines[identity]}"
            raise ValueError(f"{path}, line {number}: {same}; give each passage its own id")
        lines[identity] = number
        loaded.append(Passage(identity, row.get("title") or "", row["text"]))
    return loaded


def find_files(config: Config, split: str) -> dict[str, Path]:
    """Return the files of a split by the names of their sets; an unzipped file takes precedence."""
    folder = resolve(config.data.data)
    if not folder.is_dir():
        allowed = "it must be 'world', 'hub' or a folder"
        raise DataMissing(
            f"data is {config.data.data!r}, but {allowed}, and there is no folder {folder}"
        )
    files = {}
    for end in reversed(ENDS):
        for file in sorted(folder.glob(f"{PREFIX[split]}*{end}")):
            if split == "test" and file.name.startswith(NOT_TEST):
                continue
            name = file.name.partition(".")[0].removeprefix(PREFIX[split])
            files[name] = file
    return files


def to_questions(rows: Iterable[tuple[str, dict]], dataset: str) -> list[Question]:
    """Convert rows to questions; errors name the row, and exact duplicates are dropped."""
    loaded: dict[str, Question] = {}
    for place, row in rows:
        question = to_question(place, row, dataset)
        first = loaded.setdefault(question.id, question)
        if normalise(first.question) != normalise(question.question):
            raise ValueError(f"{place}: the id {question.id!r} is already used by another question")
    return list(loaded.values())


def to_question(place: str, row: dict, dataset: str) -> Question:
    """Convert one row to a question; `place` names the row in errors."""
    answers = row["answers"]
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise ValueError(f"{place}: answers must be a list of strings, not {answers!r}")
    if not row["question"].strip():
        raise ValueError(f"{place}: the question is empty")
    gold_passages = row.get("gold_passages") or []
    if not gold_passages and row.get("gold_passage"):
        gold_passages = [row["gold_passage"]]
    return Question(
        id=str(row["id"]),
        dataset=dataset,
        question=row["question"],
        answers=tuple(answers),
        gold_passages=tuple(map(str, gold_passages)),
        clean_question=row.get("clean_question", ""),
        kind=row.get("kind", ""),
    )
