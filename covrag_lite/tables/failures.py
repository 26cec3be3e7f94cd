"""What CoV-RAG gains, by what makes a question fail: a trap of the world, broken wording, two hops, or nothing.

Called by notebooks/table2 and table5 and by `check`.
"""

from collections.abc import Iterator

import pandas as pd

from covrag_lite import metrics
from covrag_lite.tables.accuracy import format_difference

FAILURES = ("all", "none", "namesake", "synonym", "stale", "contradiction", "broken wording", "two-hop")


def by_failure(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """All rows, then those of each kind of failure that there is."""
    for name in FAILURES:
        part = rows if name == "all" else rows[rows.failure == name]
        if len(part):
            yield name, part


def failure_table(frame: pd.DataFrame, system: str = "CoV-RAG") -> pd.DataFrame:
    """A system's first and last answers by kind of failure.

    first    first answers that are right, in %
    caught   wrong first answers that are judged "false"; doubted: right ones that are
    revised  questions that were searched again; mended: those among them that found the gold passage they had missed
    last     last answers that are right, in %; gain: in points over the first, with a bootstrap interval
    """
    rows = frame[(frame.system == system) & frame.first_normalised.notna()]
    made = []
    for name, part in by_failure(rows):
        first, last = part.first_normalised.astype(bool), part.normalised.astype(bool)
        judged = part[part.judgment.fillna("") != ""]
        wrong = judged[~first[judged.index]]
        right = judged[first[judged.index]]
        missed = part[part.revised & part.gold_first.eq(False)]
        gain, interval = format_difference(*metrics.paired_bootstrap(first.tolist(), last.tolist()))
        made.append(
            {
                "questions": name,
                "n": len(part),
                "first": f"{100 * first.mean():.1f}",
                "caught": f"{(wrong.judgment == 'false').sum()} of {len(wrong)}",
                "doubted": f"{(right.judgment == 'false').sum()} of {len(right)}",
                "revised": int(part.revised.sum()),
                "mended": f"{missed.gold_last.eq(True).sum()} of {len(missed)}",
                "last": f"{100 * last.mean():.1f}",
                "gain": gain,
                "95 % interval": interval,
            }
        )
    return pd.DataFrame(made)
