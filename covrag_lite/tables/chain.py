"""Verdicts with and without the chain of scores (Table 5): what is measured."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

import covrag_lite.tables.paper as paper
from covrag_lite import metrics
from covrag_lite.records import Prediction
from covrag_lite.runs.frame import is_round_right, to_frame
from covrag_lite.systems import names
from covrag_lite.tables.accuracy import COLUMNS
from covrag_lite.tables.intervals import share
from covrag_lite.tables.labels import format_p, with_labels
from covrag_lite.tables.paired import format_difference

CHAINS = (names.NO_CHAIN, names.COV_RAG)  # the rows of Table 5: without and with scores
FREE_DECODING = {  # the same with verdicts that are decoded freely, for the format rate
    names.NO_CHAIN: names.NO_CHAIN_FREE,
    names.COV_RAG: names.COV_RAG_FREE,
}
FREE = tuple(FREE_DECODING.values())
MEASURES = ("judge", "revise", "format", "single", "multi", "delta")  # the columns of Table 5
PAIRED_MEASURES = ("judge", "single", "multi")  # those that both systems have for every question


def frame_of(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """Return the frame behind Table 5: at most two rounds, as in the paper."""
    return to_frame([limit_rounds(p, 2) for p in predictions])


def limit_rounds(prediction: Prediction, max_rounds: int) -> Prediction:
    """Return the prediction of a run with fewer rounds; a full run's last answer has no verdict."""
    rounds = prediction.rounds[:max_rounds]
    if len(rounds) == max_rounds:
        rounds = (*rounds[:-1], replace(rounds[-1], verdict=None))
    kept = min(prediction.kept, len(rounds) - 1)
    return replace(prediction, rounds=rounds, kept=kept)


def chain_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return Table 5 in long form, with and without the chain of scores.

    judge   the judgment is "true" exactly where the first answer is right
    revise  of the questions that were revised or needed it (wrong first answer, no gold passage
            found): revised, needed, and the revised question finds a gold passage
    format  freely decoded verdicts that parse
    single, multi   the first and the last answer is right
    delta   questions with a gold passage after the second search minus before it
    Where the data names no gold passage, a passage that contains a gold answer counts.
    """
    cells = []
    for system in CHAINS:
        rows = frame[(frame.system == system) & frame.normalised.notna()]
        if rows.empty:
            continue
        free = frame[frame.system == FREE_DECODING[system]]
        values = measure(rows, free)
        of_paper = paper.find_values("table5", system, rows.dataset.unique())
        about = ("table5", "all", system, rows.backbone.iloc[0])
        for name in MEASURES:
            n = values[name][0]
            if n:  # otherwise no verdict was decoded freely, or nothing was revised
                cells.append((*about, name, *values[name], of_paper.get(name)))
    return pd.DataFrame(cells, columns=COLUMNS)


def measure(rows: pd.DataFrame, free: pd.DataFrame) -> dict[str, tuple]:
    """Return each measure of one system: n, value and interval in %."""
    right = outcomes(rows)
    right["revise"] = revisions(rows).good
    right["format"] = free.unparsed[free.verdicts > 0] == 0
    values = {name: (len(part), *share(part)) for name, part in right.items()}
    found_first = has_found(rows, "first").tolist()
    found_last = has_found(rows, "last").tolist()
    delta = metrics.paired_interval(found_first, found_last)
    values["delta"] = (len(rows), *(100 * value for value in delta))
    return values


def outcomes(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Return per question of one system what is right: judgment, first answer, last answer."""
    right = rows.first_normalised.astype(bool)
    is_judged = rows.judgment.fillna("") != ""
    is_correct = (rows.judgment == "true") == right
    return {
        "judge": is_correct[is_judged],
        "single": right,
        "multi": rows.normalised.astype(bool),
    }


def revisions(rows: pd.DataFrame) -> pd.DataFrame:
    """Return questions that were revised or needed it; `good` are both and found a gold passage."""
    needed = ~rows.first_normalised.astype(bool) & ~has_found(rows, "first")
    good = needed & rows.revised & has_found(rows, "last")
    return rows.assign(needed=needed, good=good)[needed | rows.revised]


def has_found(frame: pd.DataFrame, when: str) -> pd.Series:
    """Return whether the "first" or "last" search found a gold passage, or an answer if unnamed."""
    gold = frame[f"gold_{when}"]
    return gold.where(gold.notna(), frame[f"found_{when}"]).astype(bool)


def count_revisions(rows: pd.DataFrame) -> list[int]:
    """Count one system's questions that needed a revision, were revised, both, and found gold."""
    part = revisions(rows)
    columns = (part.needed, part.revised, part.needed & part.revised, part.good)
    return [int(column.sum()) for column in columns]


def revision_table(frame: pd.DataFrame, systems: Sequence[str] = CHAINS) -> pd.DataFrame:
    """Return the counts behind "revise": one row per system."""
    scored = frame[frame.normalised.notna()]
    counts = {system: count_revisions(scored[scored.system == system]) for system in systems}
    headers = ["needed a revision", "revised", "both", "both, and found a gold passage"]
    table = pd.DataFrame.from_dict(counts, orient="index", columns=headers)
    return with_labels(table.rename_axis("system"))


def score_effect(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what the scores change, in points: with minus without, on the same questions."""
    outcomes_by_system = {}
    paper_values = {}
    for system in CHAINS:
        rows = frame[(frame.system == system) & frame.normalised.notna()]
        outcomes_by_system[system] = outcomes(rows.set_index(["dataset", "id"]))
        paper_values[system] = paper.find_values("table5", system, rows.dataset.unique())
    effects = []
    for name in PAIRED_MEASURES:
        columns = [outcomes_by_system[system][name] for system in CHAINS]
        pairs = pd.concat(columns, axis=1, join="inner", keys=["without", "with"])
        without_scores = pairs["without"].tolist()
        with_scores = pairs["with"].tolist()
        difference, interval = format_difference(without_scores, with_scores)
        gained, lost, p = metrics.mcnemar(without_scores, with_scores)
        effects.append(
            {
                "measure": name,
                "paper": _paper_effect(*(paper_values[system].get(name) for system in CHAINS)),
                "ours": difference,
                "95 % interval": interval,
                "gained": gained,
                "lost": lost,
                "McNemar p": format_p(p),
                "n": len(pairs),
            }
        )
    return pd.DataFrame(effects)


def _paper_effect(without_scores: float | None, with_scores: float | None) -> str:
    """Return the difference of two values of the paper; a dash if one is missing."""
    if without_scores is None or with_scores is None:
        return "–"
    return f"{with_scores - without_scores:+.1f}"


def example(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return the first question that both systems revise and then answer right: a pair."""
    pairs: dict[str, dict[str, Prediction]] = {}
    for prediction in predictions:
        if prediction.system in CHAINS:
            pair = pairs.setdefault(prediction.question.id, {})
            pair[prediction.system] = limit_rounds(prediction, 2)
    for pair in pairs.values():
        both = [pair[system] for system in CHAINS if system in pair]
        if len(both) == len(CHAINS) and all(p.revised and is_round_right(p, -1) for p in both):
            return both
    return []
