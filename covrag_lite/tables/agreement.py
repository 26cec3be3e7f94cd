"""Whether a judge can be trusted: its scores compared with the gold answers.

The paper reports that samples of GPT-4's scores were correct in over 95 % of the cases. Here every
score is compared with a fact that does not depend on the judge, such as whether the answer is
right. A judge that is not above the majority and above an AUROC of 0.50 knows nothing.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from covrag_lite.judging.answers import Answers
from covrag_lite.metrics import UNKNOWN, Estimate
from covrag_lite.runs.frame import outcome_of
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.intervals import with_interval
from covrag_lite.tables.labels import label_of_judge

CRITERIA = ("correctness", "truthfulness")  # those that should follow the gold answer
RIGHT_ABOVE = 0.5  # a score above this counts as "right"
HEADING = (
    "Each judge's scores compared with the gold answers: does a score above 0.5 mean a right "
    "answer? (chance: an AUROC of 0.50)"
)


def compare_scores(scores: pd.DataFrame, answers: Answers) -> pd.DataFrame:
    """Compare scores with whether the answers are right: one row per judge and criterion.

    Equal answers to one question count once.
    """
    rows = []
    for question, group in zip(answers.questions, answers.groups):
        for system, prediction in group.items():
            right = outcome_of(prediction, prediction.kept).normalised
            rows.append((question.id, system, prediction.answer, right))
    outcomes = pd.DataFrame(rows, columns=["id", "system", "answer", "right"])
    judged = scores[scores.criterion.isin(CRITERIA)].merge(outcomes, on=["id", "system"])
    judged = judged.dropna(subset=["score", "right"])
    return measure(judged.drop_duplicates(["judge", "criterion", "id", "answer"]))


def measure(judged: pd.DataFrame) -> pd.DataFrame:
    """Measure judges; `judged` has the columns judge, criterion, id, score and right.

    n          scored answers
    right      the share of them that is right
    agreement  the share in which a score above 0.5 is of a right answer, and another of a wrong one
    majority   the agreement of a judge that gives every answer the more frequent judgment
    AUROC      how often a right answer scores above a wrong one
    Shares are in %, with 95 % intervals over questions.
    """
    rows = []
    for (judge, criterion), part in judged.groupby(["judge", "criterion"], sort=False):
        right = part.right.to_numpy(bool)
        score = part.score.to_numpy(float)
        questions = part.id.to_numpy()
        agreement = clustered_share((score > RIGHT_ABOVE) == right, questions)
        area = clustered_auroc(score, right, questions)
        share_right = 100 * right.mean()
        row = {
            "judge": judge,
            "criterion": criterion,
            "n": len(part),
            "questions": len(set(questions)),
            "right": share_right,
            "majority": max(share_right, 100 - share_right),
        }
        row |= dict(zip(("agreement", "low", "high"), (100 * value for value in agreement)))
        row |= dict(zip(("AUROC", "AUROC low", "AUROC high"), area))
        rows.append(row)
    return pd.DataFrame(rows)


def clustered_share(is_true: np.ndarray, questions: Sequence[str]) -> Estimate:
    """Return a share with its 95 % interval; answers to one question are not independent."""
    share = float(is_true.mean())
    return clustered_interval(share, (is_true - share) / len(is_true), questions)


def clustered_auroc(score: np.ndarray, right: np.ndarray, questions: Sequence[str]) -> Estimate:
    """Return an AUROC with its 95 % interval; answers to one question are not independent.

    DeLong's variance, summed by question as Obuchowski (1997) does. Ties count half.
    """
    n_right = int(right.sum())
    n_wrong = len(right) - n_right
    if n_right == 0 or n_wrong == 0:
        return UNKNOWN
    ranks = rankdata(score)
    below_right = (ranks[right] - rankdata(score[right])) / n_wrong
    above_wrong = 1 - (ranks[~right] - rankdata(score[~right])) / n_right
    area = float(below_right.mean())
    influences = np.empty(len(score))
    influences[right] = (below_right - area) / n_right
    influences[~right] = (above_wrong - area) / n_wrong
    return clustered_interval(area, influences, questions)


def clustered_interval(value: float, influences: np.ndarray, questions: Sequence[str]) -> Estimate:
    """Return a share with its 95 % interval, from each answer's influence on it, by question."""
    sums = pd.Series(influences).groupby(list(questions)).sum()
    n = len(sums)
    if n < 2:
        return value, float("nan"), float("nan")
    half_width = 1.96 * float(n / (n - 1) * (sums**2).sum()) ** 0.5
    return value, max(0.0, value - half_width), min(1.0, value + half_width)


def format_agreement(measured: pd.DataFrame) -> pd.DataFrame:
    """Return the comparison as people read it."""
    rows = []
    for row in measured.to_dict("records"):
        area = (row["AUROC"], row["AUROC low"], row["AUROC high"])
        rows.append(
            {
                "judge": label_of_judge(row["judge"]),
                "score": row["criterion"].replace("_", " "),
                "n": row["n"],
                "right, %": f"{row['right']:.1f}",
                "agreement, %": with_interval("{:.1f}", row["agreement"], row["low"], row["high"]),
                "majority, %": f"{row['majority']:.1f}",
                "AUROC": with_interval("{:.2f}", *area),
            }
        )
    return pd.DataFrame(rows)


def agreement_facts(measured: pd.DataFrame) -> dict[str, str]:
    """Return the comparison as facts, by judge and criterion."""
    forms = {
        "agreement": "{agreement:.1f}",
        "agreement interval": "[{low:.1f}, {high:.1f}]",
        "majority": "{majority:.1f}",
        "AUROC": "{AUROC:.2f}",
        "AUROC interval": "[{AUROC low:.2f}, {AUROC high:.2f}]",
        "answers": "{n}",
    }
    return facts_of_rows(measured, "{judge} {criterion}", forms)
