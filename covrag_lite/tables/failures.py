"""Why answers are wrong and what CoV-RAG gains: by kind of failure, by class of error, and beside perfect parts."""

import pandas as pd

from covrag_lite import metrics
from covrag_lite.tables import verifier
from covrag_lite.tables.accuracy import count_changes, facts_of, format_difference

FAILURES = ("all", "none", "namesake", "synonym", "stale", "contradiction", "broken wording", "two-hop")


def failure_table(frame: pd.DataFrame, system: str = "CoV-RAG") -> pd.DataFrame:
    """A system's first and last answers by kind of failure.

    first    first answers that are right, in %
    caught   wrong first answers that are judged "false"; doubted: right ones that are
    revised  questions that were searched again; mended: those among them that found the gold passage they had missed
    last     last answers that are right, in %; gain: in points over the first, with a bootstrap interval
    """
    rows = frame[(frame.system == system) & frame.first_normalised.notna()]
    made = []
    for name, part in verifier.split_by(rows, "failure", FAILURES):
        first, last = part.first_normalised.astype(bool), part.normalised.astype(bool)
        judged = part.assign(right=first)[part.judgment.fillna("") != ""]
        missed = part[part.revised & part.gold_first.eq(False)]
        gain, interval = format_difference(*metrics.paired_bootstrap(first.tolist(), last.tolist()))
        made.append(
            {
                "questions": name,
                "n": len(part),
                "first": f"{100 * first.mean():.1f}",
                **verifier.count_doubts(judged),
                "revised": int(part.revised.sum()),
                "mended": f"{missed.gold_last.eq(True).sum()} of {len(missed)}",
                "last": f"{100 * last.mean():.1f}",
                "gain": gain,
                "95 % interval": interval,
            }
        )
    return pd.DataFrame(made)


def bounds(frame: pd.DataFrame, system: str = "CoV-RAG") -> dict[str, float]:
    """By counterfactual how many questions would be answered rightly, in %."""
    rows = frame[(frame.system == system) & frame.normalised.notna()]
    first, last = rows.first_normalised.astype(bool), rows.normalised.astype(bool)
    found, again = rows.found_first.astype(bool), rows.found_last.astype(bool)
    cases = {
        "answer as it is": last,
        "answer perfect judge, the better of two answers": first | last,
        "answer perfect reader of the first passages": first | found,
        "answer perfect reader of the last passages": last | again,
        "answer where the first passages hold one": first[found],
        "answer where they hold none": first[~found],
    }
    return {name: 100 * values.mean() for name, values in cases.items()}


def error_classes(frame: pd.DataFrame, system: str = "CoV-RAG") -> dict[str, float]:
    """Why answers are wrong, in % of the wrong ones, which these classes are together."""
    rows = frame[(frame.system == system) & frame.normalised.notna()]
    wrong = rows[~rows.normalised.astype(bool)]
    found, again = wrong.found_first.astype(bool), wrong.found_last.astype(bool)
    classes = {
        "misread": again,  # the passages it answered from hold an answer
        "searched away": found & ~again,  # only the first passages held one
        "not found, trusted": ~found & ~again & ~wrong.revised,
        "not found twice": ~found & ~again & wrong.revised,
    }
    return {name: 100 * values.sum() / max(1, len(wrong)) for name, values in classes.items()}


def count_found(frame: pd.DataFrame, system: str = "CoV-RAG") -> tuple[int, int]:
    """How many questions find an answer only after the revision, and how many only before it."""
    rows = frame[(frame.system == system) & frame.normalised.notna()]
    gained, lost, _ = metrics.mcnemar(rows.found_first.astype(bool).tolist(), rows.found_last.astype(bool).tolist())
    return gained, lost


def facts(frame: pd.DataFrame) -> dict[str, str]:
    """Of every system that verifies: its judge, what its revisions did, and what bounds it."""
    made = {}
    for system, own in frame.groupby("system"):
        if not own.verdicts.any():
            continue
        made |= verifier.facts(own, system)
        counts = (*count_changes(own[own.verdicts > 0]), *count_found(own, system))
        words = ("revised", "helped", "hurt", "found anew", "found no more")
        made |= facts_of(system, dict(zip(words, counts)))
        for row in failure_table(own, system).rename(columns={"95 % interval": "interval"}).to_dict("records"):
            made |= facts_of(f"{system} kind {row.pop('questions')}", row)
        made |= facts_of(system, {name: f"{value:.1f}" for name, value in bounds(own, system).items()})
        classes = error_classes(own, system).items()
        made |= facts_of(system, {f"{name} share": f"{value:.1f}" for name, value in classes})
    return made
