"""What bounds CoV-RAG: the same questions with a perfect judge, a perfect choice of passages, a perfect reader."""

import pandas as pd

from covrag_lite import metrics


def bounds(frame: pd.DataFrame, system: str = "CoV-RAG") -> pd.DataFrame:
    """A row a counterfactual: how many questions would be answered rightly, or find an answer, in %."""
    rows = frame[(frame.system == system) & frame.normalised.notna()]
    first, last = rows.first_normalised.astype(bool), rows.normalised.astype(bool)
    found, again = rows.found_first.astype(bool), rows.found_last.astype(bool)
    cases = {
        "answer: never revise": first,
        "answer: as it is": last,
        "answer: perfect judge, the better of two answers": first | last,
        "answer: perfect reader of the first passages": first | found,
        "answer: perfect reader of the last passages": last | again,
        "answer: perfect judge and reader": first | last | found | again,
        "answer: where the first passages hold one": first[found],
        "answer: where they hold none": first[~found],
        "answer: second one, where only the last passages hold one": last[again & ~found],
        "passages: first": found,
        "passages: last": again,
        "passages: perfect choice between the two": found | again,
    }
    made = []
    for name, values in cases.items():
        low, high = metrics.wilson(int(values.sum()), len(values))
        share = 100 * values.mean() if len(values) else float("nan")
        made.append((name, len(values), share, 100 * low, 100 * high))
    return pd.DataFrame(made, columns=["case", "n", "value", "low", "high"]).round(1)


def error_classes(frame: pd.DataFrame, system: str = "CoV-RAG") -> pd.DataFrame:
    """Why answers are wrong: a row a class, which together are all wrong answers; shares of these in %."""
    rows = frame[(frame.system == system) & frame.normalised.notna()]
    wrong = rows[~rows.normalised.astype(bool)]
    found, again = wrong.found_first.astype(bool), wrong.found_last.astype(bool)
    classes = {
        "misread": again,  # the passages it answered from hold an answer
        "searched away": found & ~again,  # only the first passages held one
        "not found, trusted": ~found & ~again & ~wrong.revised,
        "not found twice": ~found & ~again & wrong.revised,
    }
    counts = {name: int(values.sum()) for name, values in classes.items()}
    made = [(name, n, 100 * n / max(1, len(wrong))) for name, n in counts.items()]
    return pd.DataFrame(made, columns=["class", "n", "share"]).round(1)


def count_found(frame: pd.DataFrame, system: str = "CoV-RAG") -> tuple[int, int]:
    """How many questions find an answer only after the revision, and how many only before it."""
    rows = frame[(frame.system == system) & frame.normalised.notna()]
    gained, lost, _ = metrics.mcnemar(rows.found_first.astype(bool).tolist(), rows.found_last.astype(bool).tolist())
    return gained, lost
