"""The verifier against the truth: whether its judgments are right, and what its revisions find."""

import pandas as pd

from covrag_lite import metrics
from covrag_lite.report.tables import format_difference


def judgment_table(frame: pd.DataFrame, system: str = "CoV-RAG") -> tuple[pd.DataFrame, str]:
    """The confusion matrix of judgment and first answer, and a sentence on its accuracy beside the majority's."""
    rows = frame[(frame.system == system) & (frame.judgment.fillna("") != "") & frame.first_normalised.notna()]
    if rows.empty:
        return pd.DataFrame(), f"{system} was not run, or none of its verdicts can be judged"
    truth = rows.first_normalised.astype(bool)
    words = truth.map({True: "answer right", False: "answer wrong"}).rename("first answer")
    right = int(((rows.judgment == "true") == truth).sum())
    low, high = metrics.wilson(right, len(rows))
    majority = max(truth.mean(), 1 - truth.mean())
    sentence = (
        f"{system}: the judgment is right for {100 * right / len(rows):.1f} % of {len(rows)} answers "
        f"[{100 * low:.1f}, {100 * high:.1f}]; "
        f"always saying the more frequent one would be right for {100 * majority:.1f} %"
    )
    return pd.crosstab(words, rows.judgment), sentence


def reference_delta(frame: pd.DataFrame, system: str = "CoV-RAG") -> pd.DataFrame:
    """What re-retrieval does to the share of questions with a gold passage, by how the question was put."""
    rows = frame[(frame.system == system) & frame.gold_first.notna()]
    made = []
    for name in ("all", "broken wording", "two-hop", "well put"):
        part = rows if name == "all" else rows[rows.form == name]
        if len(part):
            first, last = part.gold_first.astype(bool).tolist(), part.gold_last.astype(bool).tolist()
            shares = [f"{100 * sum(found) / len(part):.1f}" for found in (first, last)]
            difference = format_difference(*metrics.paired_bootstrap(first, last))
            made.append((name, len(part), int(part.revised.sum()), *shares, *difference))
    columns = ["questions", "n", "revised", "gold before", "gold after", "delta", "95 % interval"]
    return pd.DataFrame(made, columns=columns)
