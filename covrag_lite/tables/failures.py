"""Answers by what stands in the way of a question, and what limits a system."""

import pandas as pd

from covrag_lite.systems import names
from covrag_lite.tables.paired import format_difference
from covrag_lite.tables.verifier import ALL_FORMS, count_flagged, split_by

KINDS = {  # how tables call a question's obstacle
    "none": "no obstacle",
    "namesake": "several things share the name",
    "synonym": "the passage uses other words",
    "stale": "outdated passages rank first",
    "contradiction": "unreliable passages contradict",
    "broken wording": "broken wording",
    "two-hop": "needs two passages",
}
FAILURES = (ALL_FORMS, *KINDS)


def failure_table(frame: pd.DataFrame, system: str = names.COV_RAG) -> pd.DataFrame:
    """Return a system's first and last answers by what stands in the way of the question.

    first    first answers that are right, in %
    caught   wrong first answers judged "false"; doubted: right ones judged "false"
    revised  questions searched again; mended: those that found the gold passage they had missed
    last     last answers that are right, in %; gain: in points over the first, with its interval
    """
    rows = frame[(frame.system == system) & frame.first_normalised.notna()]
    table = []
    for name, part in split_by(rows, "failure", FAILURES):
        first = part.first_normalised.astype(bool)
        last = part.normalised.astype(bool)
        judged = part.assign(right=first)[part.judgment.fillna("") != ""]
        missed = part[part.revised & part.gold_first.eq(False)]
        gain, interval = format_difference(first.tolist(), last.tolist())
        table.append(
            {
                "questions": name,
                "n": len(part),
                "first": f"{100 * first.mean():.1f}",
                **count_flagged(judged),
                "revised": int(part.revised.sum()),
                "mended": f"{missed.gold_last.eq(True).sum()} of {len(missed)}",
                "last": f"{100 * last.mean():.1f}",
                "gain": gain,
                "95 % interval": interval,
            }
        )
    return pd.DataFrame(table)


def bounds(frame: pd.DataFrame, system: str = names.COV_RAG) -> dict[str, float]:
    """Return what limits a system, in %: causes of wrong answers, and counterfactual accuracies.

    The causes are exclusive: their shares of the wrong answers add up to 100.
    """
    rows = frame[(frame.system == system) & frame.normalised.notna()]
    first = rows.first_normalised.astype(bool)
    last = rows.normalised.astype(bool)
    found_first = rows.found_first.astype(bool)
    found_kept = rows.found_kept.astype(bool)
    causes = {
        "misread": found_kept,  # the passages behind the returned answer contain a right answer
        "searched away": found_first & ~found_kept,  # only the first passages did
        "not found, trusted": ~found_first & ~found_kept & ~rows.revised,
        "not found twice": ~found_first & ~found_kept & rows.revised,
    }
    cases = {
        "answer as it is": last,
        "answer perfect judge, the better of two answers": first | last,
        "answer perfect reader of the first passages": first | found_first,
        "answer perfect reader of the last passages": last | found_kept,
        "answer where the first passages hold one": first[found_first],
        "answer where they hold none": first[~found_first],
    }
    n_wrong = max(1, (~last).sum())
    limits = {}
    for name, cause in causes.items():
        limits[f"{name} share"] = 100 * ((~last & cause).sum() / n_wrong)
    for name, right in cases.items():
        limits[name] = 100 * right.mean()
    return limits
