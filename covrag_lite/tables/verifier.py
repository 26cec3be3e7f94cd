"""The verifier measured: correct judgments, gains of its revisions, causes of wrong answers.

Every judge is shown next to three simpler ones: the majority, a rule that sees only how the
question is worded, and the answer's own likelihood.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.labels import SMALL_SAMPLE, with_labels
from covrag_lite.tables.accuracy import (
    count_changes,
    facts_of,
    format_difference,
    share,
    tell_rows,
    with_interval,
)

FORMS = ("all", "well put", "broken wording", "two-hop")
KINDS = {  # how tables call a question's obstacle
    "none": "no obstacle",
    "namesake": "several things share the name",
    "synonym": "the passage uses other words",
    "stale": "outdated passages rank first",
    "contradiction": "unreliable passages contradict",
    "broken wording": "broken wording",
    "two-hop": "needs two passages",
}
FAILURES = ("all", *KINDS)
SCORES = ("expected_correctness", "likelihood")  # what the fitted judge combines
KNOWN = 0.9  # likelihoods are used only if at least this share of the answers has one
FOLDS = 5
Headers = Mapping[str, str]  # columns of a table and how people read them
# The columns of `judge_table` in three tables that fit a page, with headers in words.
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
# The columns of `failure_table` in two tables.
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


def judged_rows(frame: pd.DataFrame, system: str) -> pd.DataFrame:
    """Rows with a parsed verdict on a first answer that can be scored; `right`: it is right."""
    rows = frame[(frame.system == system) & frame.first_normalised.notna()]
    rows = rows[rows.judgment.fillna("") != ""]
    scores = {name: rows[name].astype(float) for name in SCORES}
    if scores["likelihood"].notna().mean() < KNOWN:
        scores["likelihood"] = np.nan
    return rows.assign(right=rows.first_normalised.astype(bool), **scores)


def split_by(
    rows: pd.DataFrame,
    column: str,
    names: Sequence[str],
) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows with each of these values in a column, if there are any; "all" is every row."""
    for name in names:
        part = rows if name == "all" else rows[rows[column] == name]
        if len(part):
            yield name, part


def count_doubts(rows: pd.DataFrame) -> dict[str, str]:
    """How many wrong answers are judged "false" (caught), and how many right ones are (doubted)."""
    answers = {"caught": rows[~rows.right], "doubted": rows[rows.right]}
    counts = {}
    for name, part in answers.items():
        counts[name] = f"{(part.judgment == 'false').sum()} of {len(part)}"
    return counts


def judge_table(frame: pd.DataFrame, system: str = "CoV-RAG", by_set: bool = False) -> pd.DataFrame:
    """One system's judge and simpler ones, by wording and by set: shares in %, AUROC from 0 to 1.

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
    sets = rows.groupby("dataset", sort=False) if by_set else ()
    table = []
    for name, part in (*split_by(rows, "form", FORMS), *sets):
        forms = [form.right for _, form in part.groupby("form")]
        wording = sum(max(right.sum(), (~right).sum()) for right in forms) / len(part)
        row = {"questions": name, "n": len(part), "right": f"{100 * part.right.mean():.1f}"}
        row["judge"] = _share(part.judgment == "true", part.right)
        row["majority"] = f"{100 * max(part.right.mean(), 1 - part.right.mean()):.1f}"
        row |= {"wording": f"{100 * wording:.1f}", **count_doubts(part)}
        scores = {"AUROC": part.expected_correctness, "likelihood": part.likelihood}
        scores["both"] = part.expected_correctness.rank() + part.likelihood.rank()
        scores["unrevised"] = part.unrevised
        row |= {score: tell_area(values, part.right) for score, values in scores.items()}
        row |= {judge: _share(part[judge], part.right) for judge in ("fitted", "unverified")}
        table.append(row)
    return pd.DataFrame(table)


def split_judges(judges: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """A `judge_table`, also of several systems, as three tables that fit a page, by heading.

    Questions are split by wording only if there are several forms and enough questions. An interval
    of no width is left out: all right answers score above all wrong ones.
    """
    if set(judges.questions) <= {"all", "well put"} or judges.n.max() < SMALL_SAMPLE:
        judges = judges[judges.questions == "all"].drop(columns="questions")
    judges = judges.replace(r"^(\S+) \[\1, \1\]$", r"\1", regex=True)
    return split_columns(with_labels(judges), JUDGE_PARTS)


def split_failures(failures: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """A `failure_table` as two tables that fit a page, by heading."""
    named = failures.assign(questions=failures.questions.replace(KINDS))
    return split_columns(named, FAILURE_PARTS)


def split_columns(table: pd.DataFrame, parts: Mapping[str, Headers]) -> dict[str, pd.DataFrame]:
    """A wide table as several narrow ones: by heading, the columns and their headers."""
    index = [name for name in ("system", "questions") if name in table]
    narrow = {}
    for heading, headers in parts.items():
        narrow[heading] = table[[*index, *headers]].rename(columns=headers)
    return narrow


def trust_table(frame: pd.DataFrame, system: str = "CoV-RAG") -> pd.DataFrame:
    """How often an answer is judged "true", in %, by answer (right or wrong) and by gold passage.

    A judge of answers differs between right and wrong, a judge of passages between the rows.
    """
    rows = judged_rows(frame, system)
    rows = rows[rows.gold_first.notna()]
    table = []
    for passages, found in (("a gold passage", True), ("no gold passage", False)):
        part = rows[rows.gold_first.astype(bool) == found]
        row = {"passages": passages}
        for answer, answers in (("right", part[part.right]), ("wrong", part[~part.right])):
            row |= {answer: 100 * (answers.judgment == "true").mean(), f"n {answer}": len(answers)}
        table.append(row)
    return pd.DataFrame(table)


def _share(judged_true: pd.Series, right: pd.Series) -> str:
    """How often a judgment is correct, in %, with its interval; a dash without judgments."""
    correct = judged_true.dropna().astype(bool) == right[judged_true.notna()]
    return with_interval("{:.1f}", *share(correct))


def tell_area(scores: pd.Series, right: pd.Series, form: str = "{:.2f}") -> str:
    """An AUROC with its interval; a dash if scores are missing or all answers are alike."""
    known = scores.notna()
    return with_interval(form, *metrics.auroc(scores[known].astype(float), right[known]))


def fitted_judgments(rows: pd.DataFrame, names: Sequence[str] = SCORES) -> pd.Series:
    """Whether a logistic rule fitted on other folds judges an answer right; None without scores.

    The verifier was trained on as many right as wrong answers, so it trusts too much on a set where
    most are wrong. The rule combines its expected score, the answer's likelihood and the set.
    """
    from sklearn.linear_model import LogisticRegression  # takes seconds to import
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    known = rows[rows[list(names)].notna().all(axis=1)]
    fold = known.id.rank(method="dense").astype(int) % FOLDS
    spread = fold.groupby(known.right).nunique()  # folds with wrong answers, folds with right ones
    too_few = len(spread) < 2 or spread.min() < 2 or len(known) < 2 * FOLDS
    if too_few:  # a fold would have nothing to learn from
        return pd.Series(index=rows.index, dtype=object)
    scores = known[list(names)].astype(float)
    scores = (scores - scores.mean()) / scores.std().clip(lower=1e-9)
    inputs = np.column_stack([scores, pd.get_dummies(known.dataset).astype(float)])
    fit = LogisticRegression(fit_intercept=False, tol=1e-8, max_iter=10_000)
    judged = cross_val_predict(fit, inputs, known.right, cv=PredefinedSplit(fold))
    return pd.Series(judged, index=known.index, dtype=object).reindex(rows.index)


def failure_table(frame: pd.DataFrame, system: str = "CoV-RAG") -> pd.DataFrame:
    """A system's first and last answers by what stands in the way of the question.

    first    first answers that are right, in %
    caught   wrong first answers judged "false"; doubted: right ones judged "false"
    revised  questions searched again; mended: those that found the gold passage they had missed
    last     last answers that are right, in %; gain: in points over the first, with its interval
    """
    rows = frame[(frame.system == system) & frame.first_normalised.notna()]
    table = []
    for name, part in split_by(rows, "failure", FAILURES):
        first, last = part.first_normalised.astype(bool), part.normalised.astype(bool)
        judged = part.assign(right=first)[part.judgment.fillna("") != ""]
        missed = part[part.revised & part.gold_first.eq(False)]
        gain, interval = format_difference(first.tolist(), last.tolist())
        row = {"questions": name, "n": len(part), "first": f"{100 * first.mean():.1f}"}
        row |= count_doubts(judged)
        row["revised"] = int(part.revised.sum())
        row["mended"] = f"{missed.gold_last.eq(True).sum()} of {len(missed)}"
        row |= {"last": f"{100 * last.mean():.1f}", "gain": gain, "95 % interval": interval}
        table.append(row)
    return pd.DataFrame(table)


def bounds(frame: pd.DataFrame, system: str = "CoV-RAG") -> dict[str, float]:
    """What limits a system, in %: accuracy under counterfactuals, and the causes of wrong answers.

    The causes are exclusive: their shares of the wrong answers add up to 100.
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
    causes = {
        "misread": again,  # the passages behind the last answer contain a right answer
        "searched away": found & ~again,  # only the first passages did
        "not found, trusted": ~found & ~again & ~rows.revised,
        "not found twice": ~found & ~again & rows.revised,
    }
    wrong = (~last).sum()
    shares = {}
    for name, cause in causes.items():
        shares[f"{name} share"] = (~last & cause).sum() / max(1, wrong)
    shares |= {name: values.mean() for name, values in cases.items()}
    return {name: 100 * value for name, value in shares.items()}


def facts(frame: pd.DataFrame) -> dict[str, str]:
    """Facts of every system that verifies: judge, trust, effect of revisions, limits."""
    facts_by_name = {}
    for system, rows in frame.groupby("system"):
        if not rows.verdicts.any():
            continue
        judged = judge_table(rows, system, by_set=True).rename(columns={"n": "judged n"})
        facts_by_name |= tell_rows(judged, f"{system} {{questions}}")
        for answer in ("right", "wrong"):
            forms = {"": f"{{{answer}:.1f}}", "n": f"{{n {answer}}}"}
            name = f"{system} trusted {{passages}} {answer}"
            facts_by_name |= tell_rows(trust_table(rows, system), name, forms)
        scored = rows[rows.normalised.notna()]
        found = [scored[f"found_{when}"].astype(bool) for when in ("first", "last")]
        changes = (*count_changes(rows[rows.verdicts > 0]), *metrics.mcnemar(*found)[:2])
        words = ("revised", "helped", "hurt", "found anew", "found no more")
        facts_by_name |= facts_of(system, dict(zip(words, changes)))
        kinds = failure_table(rows, system).rename(columns={"95 % interval": "interval"})
        facts_by_name |= tell_rows(kinds, f"{system} kind {{questions}}")
        limits = {name: f"{value:.1f}" for name, value in bounds(rows, system).items()}
        facts_by_name |= facts_of(system, limits)
    return facts_by_name
