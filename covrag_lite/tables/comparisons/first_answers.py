"""How well verdicts judge first answers, and what the second search gives; by system and seed."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.pairs import ALL_SETS
from covrag_lite.tables.labels import format_p, label_of_set
from covrag_lite.tables.verifier import format_area

# The verifier score from which on answers are trusted: the best one on validation questions.
TRUSTED_FROM = 0.8
WITHOUT_CHAIN = f"{names.RAG_TRAINED}, w/o chain"
VERIFIED_SYSTEMS = {  # a system that verifies -> whose first answers, as recorded
    names.TWO_ADAPTERS: names.RAG_TRAINED,
    names.COV_RAG: names.COV_RAG_S,
    names.TWO_ADAPTERS_NO_CHAIN: WITHOUT_CHAIN,
}
# Systems with the same first answers and the same verdicts on them, for seeds that did not run
# `names.TWO_ADAPTERS_NO_CHAIN`. The one with the most verdicts is used.
STAND_INS = (names.TWO_ADAPTERS_NO_CHAIN_COMBINED, names.EXPANSION_COMBINED)
SHOWN_BY_SET = (names.TWO_ADAPTERS, names.TWO_ADAPTERS_NO_CHAIN)


def judge_rows(frame: pd.DataFrame, seed: str) -> Iterator[dict]:
    """Return how well verdicts separate right from wrong first answers, one row per system.

    Some systems also have one row per question set.
    """
    for system, rows in judged_answers(frame):
        about = {"answers of": VERIFIED_SYSTEMS[system]}
        sets = {ALL_SETS: rows}
        if system in SHOWN_BY_SET:
            sets |= dict(iter(rows.groupby("dataset", sort=False)))
        for dataset, part in sets.items():
            about |= {"set": label_of_set(dataset), "seed": seed, "n": len(part)}
            yield about | _areas(part) | _shares(part)


WITH_SCORES = "verifier with scores"
WITHOUT_SCORES = "verifier without scores"
LIKELIHOOD = "the answer's likelihood"
# Verifiers that judge the answers of RAG (trained), and so the same answers.
JUDGES = {WITH_SCORES: names.TWO_ADAPTERS, WITHOUT_SCORES: names.TWO_ADAPTERS_NO_CHAIN}


def judge_difference_rows(frame: pd.DataFrame, seed: str) -> Iterator[dict]:
    """Compare the AUROC of both verifiers, and of each with the likelihood, on the same answers."""
    rows_of = dict(judged_answers(frame))
    judged = {}
    for judge, system in JUDGES.items():
        if system in rows_of:
            judged[judge] = rows_of[system].set_index(["dataset", "id"])
    pairs = [(LIKELIHOOD, judge) for judge in judged]
    if len(judged) == len(JUDGES):
        pairs.append((WITH_SCORES, WITHOUT_SCORES))
    for before, after in pairs:
        rows = judged[after]
        scores = rows.likelihood.astype(float)
        if before in judged:
            scores = judged[before].verifier_score.reindex(rows.index)
        rows = rows[scores.notna()]
        difference, p = metrics.auroc_difference(
            scores[scores.notna()], rows.verifier_score, rows.first_whole.astype(bool)
        )
        if np.isnan(p):  # all answers are right, or all wrong
            continue
        yield {
            "AUROC of": f"{before} → {after}",
            "seed": seed,
            "n": len(rows),
            "difference": f"{difference[0]:+.3f}",
            "95 % interval": "[{:+.3f}, {:+.3f}]".format(*difference[1:]),
            "p": format_p(p),
        }


def _areas(rows: pd.DataFrame) -> dict[str, str]:
    """Return the AUROC of the verifier score, of the likelihood and of both."""
    right = rows.first_whole.astype(bool)
    scores = {
        "AUROC": rows.verifier_score,
        "AUROC of the likelihood": rows.likelihood,
        "AUROC of both, weighed": rows.first_weight,
    }
    return {name: format_area(values, right, "{:.3f}") for name, values in scores.items()}


def _shares(rows: pd.DataFrame) -> dict[str, str]:
    """Return how often judgments are correct, next to simpler rules, and which answers they trust.

    A wrong answer beside an answer was written from passages that contain a right one.
    """
    right = rows.first_whole.astype(bool)
    trusted = rows.judgment == "true"
    beside_answer = ~right & rows.words_first.eq(True)  # None if it is not known
    shares = {
        "right": (trusted == right).mean(),
        f"right, trusting from {TRUSTED_FROM}": (
            (rows.verifier_score >= TRUSTED_FROM) == right
        ).mean(),
        "majority": max(right.mean(), 1 - right.mean()),
        "right ones trusted": trusted[right].mean(),
        "wrong ones trusted": trusted[~right].mean(),
        "wrong ones beside an answer trusted": trusted[beside_answer].mean(),
    }
    return {name: f"{100 * share:.1f}" for name, share in shares.items()}


def search_rows(frame: pd.DataFrame, seed: str) -> Iterator[dict]:
    """Return what the second search finds and gives, one row per system.

    "The better of both" is what an oracle choice between first and last answer would reach.
    """
    for system, rows in first_answers(frame):
        first = rows.first_whole.astype(bool)
        last = rows.whole.astype(bool)
        cases = {
            "searched again": rows.revised,
            "an answer in the first passages": rows.words_first,
            "in the last": rows.words_last,
            "first answer right": first,
            "last": last,
            "the better of both": first | last,
        }
        row = {"answers of": VERIFIED_SYSTEMS[system], "set": ALL_SETS, "seed": seed}
        row["n"] = len(rows)
        for name, case in cases.items():
            row[name] = f"{100 * case.astype(float).mean():.1f}"
        yield row


def judged_answers(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Return first answers with their verdicts, as `first_answers` does, or those of a stand-in."""
    systems = dict(first_answers(frame))
    yield from systems.items()
    if names.TWO_ADAPTERS_NO_CHAIN not in systems:
        stand_ins = [verified_rows(frame, system) for system in STAND_INS]
        rows = max(stand_ins, key=len)
        if not rows.empty:
            yield names.TWO_ADAPTERS_NO_CHAIN, rows


def first_answers(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Return each system that verifies, with its first answers that are scored and verified."""
    for system in VERIFIED_SYSTEMS:
        rows = verified_rows(frame, system)
        if not rows.empty:
            yield system, rows


def verified_rows(frame: pd.DataFrame, system: str) -> pd.DataFrame:
    """Return a system's rows whose first answer is scored and verified."""
    is_verified = frame.first_whole.notna() & frame.verifier_score.notna()
    rows = frame[(frame.system == system) & is_verified]
    return rows.assign(verifier_score=rows.verifier_score.astype(float))
