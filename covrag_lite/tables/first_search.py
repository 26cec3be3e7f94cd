"""Does a second search still find new answers if the first search is better?

The recorded queries of a run are searched again with every retriever. A search counts if one of its
passages contains a gold answer; nothing is answered. The counts are recorded, because they need the
data, and the table is built from them. results/real/plan.md says what was fixed before the run.

    python -m covrag_lite.tables.first_search <folder of a recorded run> <folder to write>
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.data import load_passages
from covrag_lite.engine.weights import hash_encoder
from covrag_lite.records import Prediction, Question, Search
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs import recorded
from covrag_lite.runs.recorded import Recorded
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.pairs import ALL_SETS
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.labels import format_interval, format_points, label_of_set
from covrag_lite.tables.paired import describe_pair
from covrag_lite.tables.search_again import (
    describe_search,
    facts_of_comparisons,
    load_counts,
    run_command,
    save_counts,
)
from covrag_lite.tables.table import Table

BM25 = "bm25"
DENSE = "dense"
FUSED = "fused"
RETRIEVERS = (BM25, DENSE, FUSED)

QUESTION = "question"
EXPANSION = "expanded query"
REVISION = "revised question"
# The second queries: whose they are.
SYSTEMS = {EXPANSION: names.EXPANSION, REVISION: names.TWO_ADAPTERS_NO_CHAIN}
# Columns of the first part that are facts as they are.
GAIN_FACTS = ("first", "second", "either", "searched again", "of those missed")

NOTES = (
    "Found: one of the five passages contains a gold answer in whole words. Either: the first or "
    "the second search finds one. Gain: either minus first.",
    "Of those missed: the gain as a share of the questions for which the first search finds no "
    "answer (post hoc).",
    "A question without a second query counts as found only if its first search finds an answer.",
    "Detectable: the minimum detectable effect at 80 % power, in points.",
)

Queries = Mapping[Question, Mapping[str, str]]  # of each question: its queries by their kind


def list_queries(predictions: Sequence[Prediction]) -> dict[Question, dict[str, str]]:
    """List the queries of each question: itself, and the recorded second ones."""
    queries: dict[Question, dict[str, str]] = {}
    for prediction in predictions:
        for kind, system in SYSTEMS.items():
            if prediction.system != system:
                continue
            question = prediction.question
            of_question = queries.setdefault(question, {QUESTION: question.question})
            if prediction.revised:
                of_question[kind] = prediction.rounds[1].query
    return queries


def search_again(queries: Queries, search: Search) -> pd.DataFrame:
    """Search all queries; return by question and kind whether a passage contains a gold answer.

    It is unknown (NaN) without such a query, and if no answer to the question can be scored.
    """
    searches = []
    for question, of_question in queries.items():
        for kind, query in of_question.items():
            searches.append((question, kind, query))
    rows = {question: {"dataset": question.dataset, "id": question.id} for question in queries}
    results = search([query for _, _, query in searches])
    for (question, kind, _), passages in zip(searches, results):
        holds = metrics.holds_answer(passages, question.answers, "whole")
        rows[question][kind] = float("nan") if holds is None else float(holds)
    table = pd.DataFrame(list(rows.values())).set_index(["dataset", "id"])
    return table[[QUESTION, *SYSTEMS]]


def record(run: Recorded, folder: Path) -> Recorded:
    """Search the queries of a recorded run with every retriever, and write what they find."""
    start = time.monotonic()
    predictions = recorded.load(run)
    queries = list_queries(predictions)
    passages = load_passages(run.config)
    counts = {}
    for retriever in RETRIEVERS:
        settings = replace(run.config.retrieval, retriever=retriever)
        counts[retriever] = search_again(queries, load_retriever(settings, passages))
    table = pd.concat(counts, axis=1)
    table.columns = [f"{retriever} {kind}" for retriever, kind in table.columns]
    text = table.to_csv(float_format="%.0f", lineterminator="\n")

    seconds = time.monotonic() - start
    data = {"questions": list(queries), "passages": passages}
    manifest = describe_search(run, run.config, seconds, **data)
    searched = Recorded(folder, "first_search", manifest)
    encoder = {"encoder_sha256": hash_encoder(run.config.retrieval.encoder)}
    save_counts(searched, run, text, encoder)
    return searched


def load(run: Recorded) -> pd.DataFrame:
    """Load what was found, one row per question that can be scored."""
    counts = load_counts(run)
    return counts[counts[f"{BM25} {QUESTION}"].notna()]


def build(counts: pd.DataFrame, run: Recorded) -> Table:
    """Build the table from what was found."""
    gains = pd.DataFrame(measure_gains(counts))
    comparisons = compare(counts)
    by_set = pd.DataFrame(compare_gains_by_set(counts))
    parts = {
        "Questions whose answer is found, in %": gains,
        "Paired differences, in points": comparisons,
        "Gain of the expanded query by question set": by_set,
    }
    gain_forms = {name: f"{{{name}}}" for name in GAIN_FACTS}
    gain_forms |= {"gain": "{gain}", "interval": "{95 % interval}"}
    facts = facts_of_rows(gains, "{retriever} {second query}", gain_forms)
    facts |= facts_of_comparisons(comparisons)
    facts |= facts_of_rows(by_set, "{questions}")
    return Table("first_search", gains, parts, NOTES, facts)


def column(counts: pd.DataFrame, retriever: str, kind: str) -> np.ndarray:
    """Return whether one search of each question found an answer; 0 without such a query."""
    return counts[f"{retriever} {kind}"].fillna(0).to_numpy(dtype=int)


def either(counts: pd.DataFrame, retriever: str, kind: str) -> np.ndarray:
    """Return whether the first or the second search of each question found an answer."""
    first = column(counts, retriever, QUESTION)
    return np.maximum(first, column(counts, retriever, kind))


def gain(counts: pd.DataFrame, retriever: str, kind: str = EXPANSION) -> np.ndarray:
    """Return whether only the second search of each question found an answer."""
    return either(counts, retriever, kind) - column(counts, retriever, QUESTION)


def measure_gains(counts: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Return one row per retriever and kind of second query."""
    for kind in SYSTEMS:
        for retriever in RETRIEVERS:
            first = column(counts, retriever, QUESTION)
            second = counts[f"{retriever} {kind}"].dropna()
            value, low, high = metrics.difference_interval(gain(counts, retriever, kind))
            of_missed = value / (1 - first.mean())
            yield {
                "retriever": retriever,
                "second query": kind,
                "n": f"{len(counts):,}",
                "searched again": f"{len(second):,}",
                "first": f"{100 * first.mean():.1f}",
                "second": f"{100 * second.mean():.1f}",
                "either": f"{100 * either(counts, retriever, kind).mean():.1f}",
                "gain": format_points(value),
                "95 % interval": format_interval(low, high),
                "of those missed": f"{100 * of_missed:.1f}",
            }


def compare(counts: pd.DataFrame) -> pd.DataFrame:
    """Compare the retrievers by question: gains, first searches, and one search with two."""
    two_searches = either(counts, BM25, EXPANSION)
    pairs = {}
    for other in (FUSED, DENSE):
        pairs[f"gain: BM25 → {other}"] = (gain(counts, BM25), gain(counts, other))
    for other in (FUSED, DENSE):
        first = column(counts, other, QUESTION)
        pairs[f"first search: BM25 → {other}"] = (column(counts, BM25, QUESTION), first)
        pairs[f"two BM25 searches → one {other} search"] = (two_searches, first)
    rows = []
    for name, sides in pairs.items():
        rows.append({"comparison": name} | describe_pair(*sides))
    return pd.DataFrame(rows)


def compare_gains_by_set(counts: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Return for each question set what BM25 and fused search find and gain."""
    groups = {ALL_SETS: counts} | dict(list(counts.groupby("dataset", sort=False)))
    for name, of_set in groups.items():
        difference = describe_pair(gain(of_set, BM25), gain(of_set, FUSED))
        row = {"questions": label_of_set(name), "n": f"{len(of_set):,}"}
        for retriever in (BM25, FUSED):
            row[f"{retriever} first"] = f"{100 * column(of_set, retriever, QUESTION).mean():.1f}"
            row[f"{retriever} gain"] = format_points(gain(of_set, retriever).mean())
        row["difference of gains"] = difference["difference"]
        row["95 % interval"] = difference["95 % interval"]
        yield row


def main(words: Sequence[str] | None = None) -> None:
    """Search the queries of a recorded run again, and write what they find."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("source", type=Path, help="the folder of a recorded run")
    parser.add_argument("folder", type=Path, help="the folder to write")
    options = parser.parse_args(words)
    searched = run_command(parser, options.source, lambda run: record(run, options.folder))
    print(build(load(searched), searched).save(options.folder))


if __name__ == "__main__":
    main()
