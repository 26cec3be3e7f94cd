"""Why answers are wrong and what CoV-RAG gains: by kind of failure, by class of error, and beside perfect parts."""

import pandas as pd

from covrag_lite import metrics
from covrag_lite.tables import verifier
from covrag_lite.tables.accuracy import count_changes, facts_of, format_difference, tell_rows

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
    """What bounds a system, in %: of all questions those that would be answered rightly, by counterfactual; and of the
    wrong answers, why they are wrong, in classes that are together all of them.
    """
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
    classes = {
        "misread": again,  # the passages it answered from hold an answer
        "searched away": found & ~again,  # only the first passages held one
        "not found, trusted": ~found & ~again & ~rows.revised,
        "not found twice": ~found & ~again & rows.revised,
    }
    shares = {f"{name} share": (~last & values).sum() / max(1, (~last).sum()) for name, values in classes.items()}
    shares |= {name: values.mean() for name, values in cases.items()}
    return {name: 100 * share for name, share in shares.items()}


def facts(frame: pd.DataFrame) -> dict[str, str]:
    """Of every system that verifies: its judge, what its revisions did, and what bounds it."""
    made = {}
    for system, own in frame.groupby("system"):
        if not own.verdicts.any():
            continue
        made |= verifier.facts(own, system)
        scored = own[own.normalised.notna()]
        found = metrics.mcnemar(scored.found_first.astype(bool), scored.found_last.astype(bool))[:2]
        words = ("revised", "helped", "hurt", "found anew", "found no more")
        made |= facts_of(system, dict(zip(words, (*count_changes(own[own.verdicts > 0]), *found))))
        kinds = failure_table(own, system).rename(columns={"95 % interval": "interval"})
        made |= tell_rows(kinds, f"{system} kind {{questions}}")
        made |= facts_of(system, {name: f"{value:.1f}" for name, value in bounds(own, system).items()})
    return made
