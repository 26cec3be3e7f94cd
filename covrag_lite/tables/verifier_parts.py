"""How tables about the verifier are shown: in parts that fit a page, with headers in words."""

from collections.abc import Mapping

import pandas as pd

from covrag_lite.tables.failures import KINDS
from covrag_lite.tables.labels import SMALL_SAMPLE, with_labels
from covrag_lite.tables.verifier import ALL_FORMS

Headers = Mapping[str, str]  # columns of a table and how people read them
# The columns of `judge_table` in three parts.
JUDGMENTS = {
    "n": "n",
    "right": "right answers %",
    "judge": "judgment correct %",
    "majority": "majority %",
    "wording": "wording-only rule %",
    "caught": "wrong answers judged false",
    "doubted": "right answers judged false",
}
RANKING = {
    "AUROC": "verifier's correctness score",
    "likelihood": "answer's likelihood",
    "both": "both",
    "unrevised": "probability of no revision",
}
FITTED = {
    "majority": "majority",
    "judge": "judgment as written",
    "fitted": "fitted rule with the verdict",
    "unverified": "fitted rule without the verdict",
}
JUDGE_PARTS = {
    "Judgments, correct in % [95 % interval], next to simpler rules": JUDGMENTS,
    "Ranking, AUROC [95 % interval]: how often a right answer scores above a wrong one": RANKING,
    "Fitted rule, correct in % [95 % interval], with and without the verdict": FITTED,
}
# The columns of `failure_table` in two parts.
ANSWERS_BY_KIND = {
    "n": "n",
    "first": "first answer right %",
    "last": "last answer right %",
    "gain": "gain, points",
    "95 % interval": "95 % interval",
}
VERDICTS_BY_KIND = {
    "caught": "wrong answers judged false",
    "doubted": "right answers judged false",
    "revised": "searched again",
    "mended": "missed gold passage then found",
}
FAILURE_PARTS = {
    "First and last answers by obstacle": ANSWERS_BY_KIND,
    "Verdicts and second searches by obstacle": VERDICTS_BY_KIND,
}


def split_judges(judges: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return a `judge_table`, also of several systems, as three tables, by heading.

    Questions are split by wording only if there are several forms and enough questions. An interval
    of no width is left out: all right answers score above all wrong ones.
    """
    if set(judges.questions) <= {ALL_FORMS, "well put"} or judges.n.max() < SMALL_SAMPLE:
        judges = judges[judges.questions == ALL_FORMS].drop(columns="questions")
    judges = judges.replace(r"^(\S+) \[\1, \1\]$", r"\1", regex=True)
    return split_columns(with_labels(judges), JUDGE_PARTS)


def split_failures(failures: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return a `failure_table` as two tables, by heading."""
    in_words = failures.assign(questions=failures.questions.replace(KINDS))
    return split_columns(in_words, FAILURE_PARTS)


def split_columns(table: pd.DataFrame, parts: Mapping[str, Headers]) -> dict[str, pd.DataFrame]:
    """Return a wide table as several narrow ones: by heading, the columns and their headers."""
    index = [name for name in ("system", "questions") if name in table]
    narrow = {}
    for heading, headers in parts.items():
        narrow[heading] = table[[*index, *headers]].rename(columns=headers)
    return narrow
