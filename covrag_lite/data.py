"""Questions and passages from anywhere: the embedded world, or a folder of JSONL files.

A folder holds one `<dataset>.jsonl` a set, rows of `id, question, answers` with optionally `gold_passage` (or
`gold_passages`) and `clean_question`, and `corpus.jsonl` or `corpus.jsonl.gz`, rows of `id, title, text`.
"""

import gzip
import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from covrag_lite.config import Config, resolve
from covrag_lite.metrics import holds_gold, is_defective
from covrag_lite.records import Passage, Question
from covrag_lite.retrieval import load_retriever
from covrag_lite.world import generation

# Settings of the world's knobs that show what each does to retrieval.
KNOBS = {
    "misspelt": (0.0, 0.2, 0.5),
    "cut_off": (0.0, 0.1, 0.4),
    "vague": (0.0, 0.1, 0.4),
    "distractors": (0.0, 0.25, 0.5),
    "stale": (0.0, 0.05, 0.2),
    "contradicting": (0.0, 0.03, 0.2),
    "unanswerable": (0.0, 0.2),
}


def load_questions(config: Config) -> list[Question]:
    """The first `n_questions` of each of the configured sets, in their order."""
    made, wanted = [], config.data
    if wanted.n_questions < 0 or len(set(wanted.datasets)) < len(wanted.datasets):
        raise ValueError(
            f"n_questions is {wanted.n_questions} and must not be negative (0 means all); datasets {wanted.datasets} must name no set twice"
        )
    for dataset in config.data.datasets:
        if config.data.data == "world":
            rows = generation.questions(config.world, config.data.split, dataset)
        else:
            rows = _read_questions(_file(_folder(config.data.data), dataset), dataset)
        made += rows[: config.data.n_questions or None]
    return made


def pick_question(config: Config) -> Question:
    """The one question to explore: the user's own, which has no gold answer, or one of a set."""
    wanted = config.explore
    if wanted.question:
        return Question("own", wanted.dataset, wanted.question, ("(not known)",))
    rows = load_questions(replace(config, data=replace(config.data, datasets=(wanted.dataset,), n_questions=0)))
    if not 0 <= wanted.number < len(rows):
        raise ValueError(f"number is {wanted.number}, but {wanted.dataset} has questions 0 to {len(rows) - 1}")
    return rows[wanted.number]


def load_passages(config: Config) -> list[Passage]:
    """The whole corpus."""
    if config.data.data == "world":
        return list(generation.passages(config.world))
    folder = _folder(config.data.data)
    path = next((p for p in (folder / "corpus.jsonl", folder / "corpus.jsonl.gz") if p.exists()), None)
    if path is None:
        raise FileNotFoundError(f"{folder} has no corpus.jsonl or corpus.jsonl.gz")
    return [Passage(str(row["id"]), row.get("title") or "", row["text"]) for _, row in _rows(path, ("id", "text"))]


@dataclass(frozen=True)
class Source:
    """Questions to learn from, the passages behind them, and the search over these."""

    questions: list[Question]
    passages: list[Passage]
    search: Callable[[Sequence[str]], list[list[Passage]]]


def load_sources(config: Config) -> list[Source]:
    """D: the training splits of several worlds, or a folder's sets, each with its own corpus and search."""
    limit = config.synthesis.n_train_questions or None
    find = lambda passages: load_retriever(config.retrieval, passages)
    if config.data.data == "world":
        worlds = [replace(config.world, seed=config.world.seed + i) for i in range(config.synthesis.n_worlds)]
        corpora = [list(generation.passages(one)) for one in worlds]
        return [
            Source(generation.questions(one, "train")[:limit], passages, find(passages))
            for one, passages in zip(worlds, corpora)
        ]
    made, corpus = [], None
    for dataset in config.data.datasets:
        path = _file(_folder(config.data.data), dataset)
        if "references" in next(_rows(path, ("question",)))[1]:
            made.append(_read_cited(path, dataset, limit, find))
        else:
            corpus = corpus or load_passages(config)
            made.append(Source(_read_questions(path, dataset)[:limit], corpus, find(corpus)))
    return made


def _read_cited(path: Path, dataset: str, limit: int | None, find: Callable) -> Source:
    """WebGLM-QA's shape: each question comes with its own references and a cited answer; other queries search all of them."""
    questions, passages, own = [], [], {}
    for number, row in list(_rows(path, ("question", "answer", "references")))[:limit]:
        references = [Passage(f"{dataset}-{number}-{i}", "", text) for i, text in enumerate(row["references"], 1)]
        questions.append(
            Question(f"{dataset}-{number}", dataset, row["question"], (row["answer"],), tuple(p.id for p in references))
        )
        passages += references
        own[row["question"]] = references
    search = find(passages)
    return Source(questions, passages, lambda queries: [own.get(q) or search([q])[0] for q in queries])


def digest(items: Iterable[Question | Passage]) -> str:
    """A hash of the very records a run used, for its manifest: the version of the data."""
    whole = hashlib.sha256()
    for item in items:
        whole.update(repr(item).encode())
    return whole.hexdigest()[:16]


def _folder(data: str) -> Path:
    if not resolve(data).is_dir():
        raise FileNotFoundError(f"data {data!r} is neither 'world' nor a folder ({resolve(data)} does not exist)")
    return resolve(data)


def _file(folder: Path, dataset: str) -> Path:
    path = folder / f"{dataset}.jsonl"
    if not path.exists():
        there = ", ".join(sorted(p.stem for p in folder.glob("*.jsonl") if p.stem != "corpus")) or "none"
        raise FileNotFoundError(f"dataset {dataset!r} is not known: {path} does not exist; sets there: {there}")
    return path


def _read_questions(path: Path, dataset: str) -> list[Question]:
    made, lines = [], {}
    for number, row in _rows(path, ("id", "question", "answers")):
        if not isinstance(row["answers"], list) or not all(isinstance(answer, str) for answer in row["answers"]):
            raise ValueError(f"{path}, line {number}: answers must be a list of strings, not {row['answers']!r}")
        if is_defective(row["answers"]):
            warnings.warn(
                f"{path}, line {number}: the answers {row['answers']} normalise to nothing; the question stays, "
                "but is left out of the normalised accuracy",
                stacklevel=3,
            )
        identity = str(row["id"])
        if identity in lines:
            raise ValueError(f"{path}, line {number}: the id {identity!r} stands already on line {lines[identity]}")
        lines[identity] = number
        gold = row.get("gold_passages") or ([row["gold_passage"]] if row.get("gold_passage") else [])
        made.append(
            Question(
                identity,
                dataset,
                row["question"],
                tuple(row["answers"]),
                tuple(map(str, gold)),
                row.get("clean_question", ""),
                row.get("kind", ""),
            )
        )
    return made


def _rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict]]:
    """The file's rows with their line numbers; a broken one is named by file and line."""
    number = 0
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
            missing = [name for name in needed if not isinstance(row, dict) or name not in row]
            if missing:
                raise ValueError(f"{path}, line {number}: has no {' and no '.join(missing)}")
            yield number, row
    if number == 0:
        raise ValueError(f"{path} is empty")


def retrieval_rates(questions: Sequence[Question], search: Callable) -> "pd.DataFrame":
    """For each set: how often a gold passage is found as asked, for well-put and for broken questions, and with the clean wording."""
    import pandas as pd

    frame = pd.DataFrame(
        {
            "dataset": [q.dataset for q in questions],
            "broken": ["+" in q.kind or q.kind == "two-hop" for q in questions],
            "asked": _gold_found(questions, search([q.question for q in questions])),
            "clean": _gold_found(questions, search([q.clean_question or q.question for q in questions])),
        }
    )
    rows = {}
    for dataset, part in [*frame.groupby("dataset", sort=False), ("all", frame)]:
        broken = part[part.broken]
        rows[dataset] = {
            "n": len(part),
            "as asked": part.asked.mean(),
            "well-put questions": part[~part.broken].asked.mean(),
            "broken or two-hop": broken.asked.mean(),
            "these, in clean wording": broken.clean.mean(),
        }
    table = pd.DataFrame(rows).T
    return (100 * table.drop(columns="n")).round(1).assign(n=table.n.astype(int))


def _gold_found(questions: Sequence[Question], found: Sequence[Sequence[Passage]]) -> list[bool]:
    return [bool(holds_gold(passages, q.gold_passages)) for q, passages in zip(questions, found)]


def knob_effects(config: Config, knobs: dict[str, Sequence[float]] = KNOBS) -> "pd.DataFrame":
    """The share of test questions with a gold passage in the top k, all of them, with one knob of the world turned at a time."""
    import pandas as pd

    rows = []
    for knob, settings in knobs.items():
        for setting in settings:
            turned = replace(
                config, world=replace(config.world, **{knob: setting}), data=replace(config.data, n_questions=0)
            )
            questions = load_questions(turned)
            search = load_retriever(config.retrieval, load_passages(turned))
            rates = retrieval_rates(questions, search).loc["all"]
            rows.append(
                {
                    "knob": knob,
                    "setting": setting,
                    "as asked": rates["as asked"],
                    "clean wording": 100
                    * sum(_gold_found(questions, search([q.clean_question or q.question for q in questions])))
                    / len(questions),
                }
            )
    return pd.DataFrame(rows)
