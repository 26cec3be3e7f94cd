"""Baselines that are computed from recorded answers: two readers, and expansion of some queries.

They are added as columns to the outcome tables of the systems (`runs.frame.outcome_table`).
"""

from collections.abc import Mapping
from functools import reduce

import pandas as pd

from covrag_lite.runs.frame import KEY, outcome_table
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.pairs import (
    ALL_EXPANDED_READERS,
    EXPANSION_IF_FLAGGED,
    EXPANSION_IF_UNLIKELY,
    METRIC,
    OURS,
    OURS_NO_CHAIN,
    TWO_EXPANDED_READERS,
    TWO_EXPANDED_READERS_COMBINED,
    TWO_PLAIN_READERS,
    TWO_READERS_NEXT,
    TWO_READERS_ONE_SEARCH,
    TWO_READERS_TWO_SEARCHES,
)

# A baseline of two readers with a verifier -> the system of the first reader, and the prefix of the
# columns about the answer that it takes from it: its first one, or the one that is returned.
FIRST_READERS = {
    TWO_READERS_ONE_SEARCH: (names.TWO_ADAPTERS, "first_"),
    TWO_READERS_NEXT: (names.TWO_ADAPTERS_NEXT, ""),
    TWO_READERS_TWO_SEARCHES: (OURS, ""),
}
# A baseline of two readers of expanded queries -> the system of both, and the column by which one
# of their two returned answers is chosen.
EXPANDED_READERS = {
    TWO_EXPANDED_READERS: (names.EXPANSION, "kept_likelihood"),
    TWO_EXPANDED_READERS_COMBINED: (names.EXPANSION_COMBINED, "weight"),
}


def build_outcomes(frames: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the outcome table of each seed, with the computed baselines."""
    tables = {seed: outcomes_of_seed(frame) for seed, frame in frames.items()}
    _add_expanded_readers(tables, frames)
    _add_plain_readers(tables, frames)
    return tables


def outcomes_of_seed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one seed's outcome table, with the baselines that need no other seed."""
    scored = frame[frame[METRIC].notna()]
    table = outcome_table(scored, METRIC).sort_index()
    for baseline, (system, prefix) in FIRST_READERS.items():
        if system in table and names.COV_RAG in table:
            table[baseline] = choose_by_combined_score(scored, system, prefix)
    if {names.RAG_TRAINED, names.EXPANSION, OURS_NO_CHAIN} <= set(table):
        table = table.assign(**expand_some_queries(scored))
    return table


def rows_of(frame: pd.DataFrame, system: str) -> pd.DataFrame:
    """Return a system's rows, indexed and sorted by question."""
    return frame[frame.system == system].set_index(KEY).sort_index()


def choose_by_combined_score(frame: pd.DataFrame, system: str, prefix: str) -> pd.Series:
    """Return whether the better scored answer is right: a system's, or CoV-RAG's first one.

    The system's answer is kept where a combined score is unknown.
    """
    reader = rows_of(frame, system)
    second_reader = rows_of(frame, names.COV_RAG)
    score = reader[f"{prefix}weight"].astype(float)
    second_is_better = second_reader.first_weight.astype(float) > score
    right = reader[f"{prefix}{METRIC}"].astype(float)
    return right.where(~second_is_better, second_reader[f"first_{METRIC}"].astype(float))


def expand_some_queries(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """Return whether answers are right if only some queries are expanded, by baseline.

    These are the queries that the verifier flags, or as many with the lowest likelihood.
    """
    verified = rows_of(frame, OURS_NO_CHAIN)  # of a seed that ended early, only some questions
    plain = rows_of(frame, names.RAG_TRAINED).loc[verified.index]
    expanded = rows_of(frame, names.EXPANSION).loc[verified.index]
    flagged = verified.revised.astype(bool)
    unlikely = plain.likelihood.astype(float).rank(method="first") <= flagged.sum()
    outcomes = {}
    for baseline, is_expanded in (
        (EXPANSION_IF_FLAGGED, flagged),
        (EXPANSION_IF_UNLIKELY, unlikely),
    ):
        right = expanded[METRIC].astype(float)
        outcomes[baseline] = right.where(is_expanded, plain[METRIC].astype(float))
    return outcomes


def _add_expanded_readers(
    tables: Mapping[str, pd.DataFrame], frames: Mapping[str, pd.DataFrame]
) -> None:
    """Add to both seeds of a pair what two readers of expanded queries reach.

    Expanded queries are the same for both, so seeds are paired two by two. A pair with a verifier
    is also compared with all readers.
    """
    seeds = [seed for seed in tables if names.EXPANSION in tables[seed]]
    complete = with_most_answers(tables, names.EXPANSION)
    for pair in zip(seeds[::2], seeds[1::2]):
        for baseline, (system, score) in EXPANDED_READERS.items():
            if all(system in tables[seed] for seed in pair):
                first, second = (answers_of(frames[seed], system, score) for seed in pair)
                for seed in pair:
                    tables[seed][baseline] = choose_higher(first, second).right
        if TWO_EXPANDED_READERS_COMBINED in tables[pair[0]]:
            answers = [
                answers_of(frames[seed], names.EXPANSION, "kept_likelihood") for seed in complete
            ]
            for seed in pair:
                tables[seed][ALL_EXPANDED_READERS] = reduce(choose_higher, answers).right


def with_most_answers(tables: Mapping[str, pd.DataFrame], system: str) -> list[str]:
    """Return the seeds of a system, without those that answered fewer questions than others."""
    answered = {
        seed: table[system].notna().sum() for seed, table in tables.items() if system in table
    }
    return [seed for seed in answered if answered[seed] == max(answered.values())]


def _add_plain_readers(
    tables: Mapping[str, pd.DataFrame], frames: Mapping[str, pd.DataFrame]
) -> None:
    """Add to each seed what two readers of one search reach, its own and the next seed's.

    Plain readers all read the same passages. The last seed is paired with the first. A seed that
    answered fewer questions than others is left out.
    """
    seeds = with_most_answers(tables, names.RAG_TRAINED)
    for seed, other in zip(seeds, seeds[1:] + seeds[:1]):
        if seed != other:
            answers = choose_higher(
                answers_of(frames[seed], names.RAG_TRAINED, "likelihood"),
                answers_of(frames[other], names.RAG_TRAINED, "likelihood"),
            )
            tables[seed][TWO_PLAIN_READERS] = answers.right


def answers_of(frame: pd.DataFrame, system: str, score: str) -> pd.DataFrame:
    """Return a system's outcome and the column `score` per question, as "right" and "score"."""
    rows = frame[(frame.system == system) & frame[METRIC].notna()].set_index(KEY)
    columns = {METRIC: "right", score: "score"}
    return rows[list(columns)].rename(columns=columns).astype(float)


def choose_higher(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Return the answers with the higher score, as `answers_of` does; of ties the first one.

    An answer without a score is an error: it is neither the higher nor the lower one.
    """
    first, second = first.align(second, join="inner", axis=0)
    _check_scores(first, "first")
    _check_scores(second, "second")
    return first.where(~(second.score > first.score), second)


def _check_scores(answers: pd.DataFrame, which: str) -> None:
    """Raise an error that names the first question whose answer has no score."""
    unscored = answers.index[answers.score.isna()]
    if len(unscored):
        dataset, question = unscored[0]
        raise ValueError(
            f"question {question!r} of {dataset}: the answer of the {which} of two readers has no "
            f"score ({len(unscored)} such questions), so the higher score cannot be chosen; use an "
            "engine that reports likelihoods, and forced verdicts, or leave out one of the readers"
        )
