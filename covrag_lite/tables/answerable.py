"""The main comparisons on the questions whose answer is somewhere in the corpus. Post hoc.

A question counts as answerable if one of BM25's first 50 passages for "question, first gold answer"
contains a gold answer in whole words. This needs the gold answer, so no system could know it. The
ids of these questions are recorded, because the questions themselves may not be.

    python -m covrag_lite.tables.answerable <folder with the data> <file to write>
"""

import json
import lzma
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.files import write_bytes
from covrag_lite.records import Question, Search
from covrag_lite.retrieval import load_retriever
from covrag_lite.systems import names
from covrag_lite.tables import mixture
from covrag_lite.tables.comparisons.baselines import build_outcomes
from covrag_lite.tables.comparisons.differences import (
    difference_over_seeds,
    facts_by_seed,
    format_comparisons,
    select_pair,
    select_poolable,
)
from covrag_lite.tables.comparisons.pairs import ALL_SETS, TWO_EXPANDED_READERS
from covrag_lite.tables.labels import with_labels
from covrag_lite.tables.table import Table

FILE = "answerable.ids.json.xz"
DEPTH = 50  # passages among which a gold answer must be
ANSWERABLE = "answerable"
OTHER = "other"
# The paper's form, our best forms, and query expansion, which has no verifier.
COMPARISONS = (
    (names.RAG_TRAINED, names.COV_RAG),
    (names.RAG_TRAINED, names.TWO_ADAPTERS_COMBINED),
    (names.RAG_TRAINED, names.TWO_ADAPTERS_NO_CHAIN_COMBINED),
    (names.RAG_TRAINED, names.EXPANSION),
    (names.EXPANSION, names.TWO_ADAPTERS_COMBINED),
    (names.EXPANSION, names.TWO_ADAPTERS_NO_CHAIN_COMBINED),
    (names.EXPANSION, names.EXPANSION_COMBINED),
    (names.EXPANSION, TWO_EXPANDED_READERS),
)
# The paper's training mixture: a single model next to a reader.
MIXTURE_COMPARISONS = (
    (mixture.AGAIN, "paper, first answer"),
    (mixture.AGAIN, "paper, final answer"),
    ("paper, first answer", "paper, final answer"),
)

ANSWERABLE_NOTE = (
    f"Answerable: one of BM25's first {DEPTH} passages for the question and its first gold answer "
    "contains a gold answer in whole words. No system could know this. Computed post hoc."
)

QuestionIds = set[tuple[str, str]]  # set and id of questions


def find_answerable(questions: Sequence[Question], search: Search) -> list[Question]:
    """Return the questions whose answer is among the passages that the answer itself finds."""
    queries = [f"{question.question} {question.answers[0]}" for question in questions]
    answerable = []
    for question, passages in zip(questions, search(queries)):
        if metrics.holds_answer(passages, question.answers, "whole"):
            answerable.append(question)
    return answerable


def save_ids(path: Path, questions: Sequence[Question]) -> None:
    """Write the ids of questions by their set."""
    ids: dict[str, list[str]] = {}
    for question in questions:
        ids.setdefault(question.dataset, []).append(question.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, lzma.compress(json.dumps(ids).encode()))


def load_ids(path: Path) -> QuestionIds:
    """Read the ids that `save_ids` wrote."""
    ids: QuestionIds = set()
    for dataset, of_set in json.loads(lzma.decompress(path.read_bytes())).items():
        ids |= {(dataset, name) for name in of_set}
    return ids


def build(
    frames: Mapping[str, pd.DataFrame],
    arms: Mapping[tuple[str, str], pd.DataFrame],
    answerable: QuestionIds,
) -> Table:
    """Build the table from the frames of all seeds and of the mixture's arms."""
    parts = {}
    rows = []
    facts = {}
    for group in (ANSWERABLE, OTHER):
        keep = group == ANSWERABLE
        of_seeds = {seed: select(frame, answerable, keep) for seed, frame in frames.items()}
        of_arms = {arm: select(frame, answerable, keep) for arm, frame in arms.items()}
        compared = pd.DataFrame([*compare(of_seeds), *compare_mixture(of_arms, of_seeds)])
        table = format_comparisons(compared).assign(n=[f"{n:,}" for n in compared.n])
        parts[f"Questions: {group}"] = with_labels(table)
        # The facts of a comparison are named without its seeds, which are a fact of their own.
        facts |= facts_by_seed(group, table.assign(seeds=table.seed, seed=""))
        rows.append(compared.assign(questions=group))
    facts |= count_facts(next(iter(frames.values())), answerable)
    return Table("answerable", pd.concat(rows), parts, [ANSWERABLE_NOTE], facts, digits=4)


def select(frame: pd.DataFrame, ids: QuestionIds, keep: bool) -> pd.DataFrame:
    """Return the rows of these questions, or those of all others."""
    is_listed = [key in ids for key in zip(frame.dataset, frame.id)]
    return frame[[listed == keep for listed in is_listed]]


def compare(frames: Mapping[str, pd.DataFrame]) -> list[dict]:
    """Compare each pair over the seeds that ran it on all questions."""
    outcomes = build_outcomes(frames)
    rows = []
    for before, after in COMPARISONS:
        tables = select_pair(outcomes, before, after)
        if tables:
            tables = select_poolable(before, after, tables)
            seeds = ", ".join(tables)
            row = difference_over_seeds(before, after, ALL_SETS, seeds, list(tables.values()))
            rows.append(row)
    return rows


def compare_mixture(
    arms: Mapping[tuple[str, str], pd.DataFrame], frames: Mapping[str, pd.DataFrame]
) -> list[dict]:
    """Compare the single models of the paper's mixture, pooled over their seeds."""
    outcomes = mixture.outcomes_by_system(arms, frames)
    rows = []
    for before, after in MIXTURE_COMPARISONS:
        if before in outcomes and after in outcomes:
            baseline = mixture.mean_of_seeds(outcomes[before])
            system = mixture.mean_of_seeds(outcomes[after])
            seeds = ", ".join(outcomes[after])
            row = mixture.difference(before, after, seeds, baseline, system)
            rows.append(row | {"set": ALL_SETS})
    return rows


def count_facts(frame: pd.DataFrame, answerable: QuestionIds) -> dict[str, str]:
    """Return how many questions are answerable, and for how many the first search suffices."""
    questions = frame.drop_duplicates(["dataset", "id"])
    listed = select(questions, answerable, keep=True)
    found = listed.words_first.astype(float).mean()
    return {
        "n answerable": f"{len(listed):,}",
        "n": f"{len(questions):,}",
        "share answerable": f"{100 * len(listed) / len(questions):.0f}",
        "found by the first search": f"{100 * found:.0f}",
    }


def main(words: Sequence[str] | None = None) -> None:
    """Find the answerable questions of a folder and write their ids."""
    data, file = sys.argv[1:] if words is None else words
    config = Config().change(data=data, n_questions=0)
    questions = load_questions(config)
    deep = replace(config.retrieval, k=DEPTH)
    answerable = find_answerable(questions, load_retriever(deep, load_passages(config)))
    save_ids(Path(file), answerable)
    print(f"{len(answerable)} of {len(questions)} questions are answerable")


if __name__ == "__main__":
    main()
