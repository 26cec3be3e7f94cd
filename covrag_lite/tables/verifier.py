"""The verifier measured: correct judgments, and ranking of answers by its scores.

Every judge is shown next to three simpler ones: the majority, a rule that sees only how the
question is worded, and the answer's own likelihood.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.systems import names
from covrag_lite.tables.intervals import share, with_interval

ALL_FORMS = "all"  # in place of a form of wording or an obstacle: every question
FORMS = (ALL_FORMS, "well put", "broken wording", "two-hop")
FITTED_SCORES = ("expected_correctness", "likelihood")  # what the fitted rule combines
MIN_KNOWN_SHARE = 0.9  # likelihoods are used only if this share of the answers has one
FOLDS = 5


def judged_rows(frame: pd.DataFrame, system: str) -> pd.DataFrame:
    """Return rows with a parsed verdict on a first answer that can be scored.

    The column `right` says whether that answer is right.
    """
    rows = frame[(frame.system == system) & frame.first_normalised.notna()]
    rows = rows[rows.judgment.fillna("") != ""]
    scores = {name: rows[name].astype(float) for name in FITTED_SCORES}
    if scores["likelihood"].notna().mean() < MIN_KNOWN_SHARE:
        scores["likelihood"] = np.nan
    return rows.assign(right=rows.first_normalised.astype(bool), **scores)


def split_by(
    rows: pd.DataFrame, column: str, values: Sequence[str]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Return the rows with each of these values, if there are any; "all" is every row."""
    for value in values:
        part = rows if value == ALL_FORMS else rows[rows[column] == value]
        if len(part):
            yield value, part


def judge_table(
    frame: pd.DataFrame, system: str = names.COV_RAG, by_set: bool = False
) -> pd.DataFrame:
    """Compare one system's judge with simpler ones, by wording and by set.

    Shares are in %, AUROC is from 0 to 1.

    right       first answers that are right
    judge       judgments that are correct, with their interval
    majority    correct if every answer got the more frequent judgment
    wording     correct if every form of wording got its own more frequent judgment
    caught      wrong answers judged "false"; doubted: right answers judged "false"
    AUROC       how often the expected correctness of a right answer is above that of a wrong one
    likelihood  the same of the answer's likelihood, which needs no verdict
    both        the same of the sum of both ranks
    unrevised   the same of the probability of no revision, which needs no scores
    fitted      correct judgments of a logistic rule on expected correctness, likelihood and set,
                fitted on the other folds; unverified: the same without expected correctness
    """
    rows = judged_rows(frame, system)
    rows = rows.assign(fitted=fitted_judgments(rows))
    rows = rows.assign(unverified=fitted_judgments(rows, ["likelihood"]))
    parts = list(split_by(rows, "form", FORMS))
    if by_set:
        parts += rows.groupby("dataset", sort=False)
    table = []
    for name, part in parts:
        row = {"questions": name, "n": len(part), "right": f"{100 * part.right.mean():.1f}"}
        row |= _judgment_cells(part) | _ranking_cells(part)
        for rule in ("fitted", "unverified"):
            row[rule] = format_correct(part[rule], part.right)
        table.append(row)
    return pd.DataFrame(table)


def _judgment_cells(rows: pd.DataFrame) -> dict[str, str]:
    """Return how often judgments and simpler rules are correct, and which answers are flagged."""
    share_right = rows.right.mean()
    by_wording = 0
    for _, form in rows.groupby("form"):
        by_wording += max(form.right.sum(), (~form.right).sum())
    return {
        "judge": format_correct(rows.judgment == "true", rows.right),
        "majority": f"{100 * max(share_right, 1 - share_right):.1f}",
        "wording": f"{100 * (by_wording / len(rows)):.1f}",
        **count_flagged(rows),
    }


def _ranking_cells(rows: pd.DataFrame) -> dict[str, str]:
    """Return the AUROC of each score."""
    scores = {
        "AUROC": rows.expected_correctness,
        "likelihood": rows.likelihood,
        "both": rows.expected_correctness.rank() + rows.likelihood.rank(),
        "unrevised": rows.unrevised,
    }
    return {name: format_area(values, rows.right) for name, values in scores.items()}


def count_flagged(rows: pd.DataFrame) -> dict[str, str]:
    """Count wrong answers judged "false" (caught), and right ones (doubted)."""
    answers = {"caught": rows[~rows.right], "doubted": rows[rows.right]}
    counts = {}
    for name, part in answers.items():
        counts[name] = f"{(part.judgment == 'false').sum()} of {len(part)}"
    return counts


def format_correct(judged_right: pd.Series, right: pd.Series) -> str:
    """Return how often a judgment is correct, in %, with its interval; a dash without judgments."""
    is_known = judged_right.notna()
    correct = judged_right[is_known].astype(bool) == right[is_known]
    return with_interval("{:.1f}", *share(correct))


def format_area(scores: pd.Series, right: pd.Series, form: str = "{:.2f}") -> str:
    """Return an AUROC with its interval; a dash if scores are missing or all answers are alike."""
    is_known = scores.notna()
    return with_interval(form, *metrics.auroc(scores[is_known].astype(float), right[is_known]))


def fitted_judgments(rows: pd.DataFrame, scores: Sequence[str] = FITTED_SCORES) -> pd.Series:
    """Return whether a logistic rule fitted on other folds judges an answer right; None without it.

    The verifier was trained on as many right as wrong answers, so it trusts too much on a set where
    most are wrong. The rule combines its expected score, the answer's likelihood and the set.
    """
    from sklearn.linear_model import LogisticRegression  # takes seconds to import
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    columns = list(scores)
    scored = rows[rows[columns].notna().all(axis=1)]
    folds = scored.id.rank(method="dense").astype(int) % FOLDS
    # In how many folds there are wrong answers, and right ones.
    spread = folds.groupby(scored.right).nunique()
    if len(spread) < 2 or spread.min() < 2 or len(scored) < 2 * FOLDS:
        return pd.Series(index=rows.index, dtype=object)  # a fold would have nothing to learn from
    values = scored[columns].astype(float)
    values = (values - values.mean()) / values.std().clip(lower=1e-9)
    inputs = np.column_stack([values, pd.get_dummies(scored.dataset).astype(float)])
    rule = LogisticRegression(fit_intercept=False, tol=1e-8, max_iter=10_000)
    judgments = cross_val_predict(rule, inputs, scored.right, cv=PredefinedSplit(folds))
    return pd.Series(judgments, index=scored.index, dtype=object).reindex(rows.index)


def trust_table(frame: pd.DataFrame, system: str = names.COV_RAG) -> pd.DataFrame:
    """Return how often an answer is judged "true", in %, by answer and by gold passage.

    A judge of answers differs between right and wrong, a judge of passages between the rows.
    """
    rows = judged_rows(frame, system)
    rows = rows[rows.gold_first.notna()]
    has_gold = rows.gold_first.astype(bool)
    table = []
    for passages, of_passages in (
        ("a gold passage", rows[has_gold]),
        ("no gold passage", rows[~has_gold]),
    ):
        row = {"passages": passages}
        for answer, answers in (
            ("right", of_passages[of_passages.right]),
            ("wrong", of_passages[~of_passages.right]),
        ):
            row[answer] = 100 * (answers.judgment == "true").mean()
            row[f"n {answer}"] = len(answers)
        table.append(row)
    return pd.DataFrame(table)
