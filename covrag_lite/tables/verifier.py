"""The verifier against the truth: whether its judgments are right, what its revisions gain, and why answers are wrong.

A judge that sees nothing but the wording, one that always says the more frequent word, and the answer's own likelihood
stand beside it, for all questions and by how they were put.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.tables.accuracy import count_changes, facts_of, format_difference, share, tell_rows, with_interval

FAILURES = ("all", "none", "namesake", "synonym", "stale", "contradiction", "broken wording", "two-hop")
FORMS = ("all", "well put", "broken wording", "two-hop")
SCORES = ("expected_correctness", "likelihood")  # what a fitted judge weighs
KNOWN = 0.9  # of the answers, whose likelihood must be known to be told: a few may not stand for all
FOLDS = 5


def judged_rows(frame: pd.DataFrame, system: str) -> pd.DataFrame:
    """One system's rows with a readable verdict on an answer that can be scored; `right` is the truth about it."""
    rows = frame[(frame.system == system) & (frame.judgment.fillna("") != "") & frame.first_normalised.notna()]
    scores = {name: rows[name].astype(float) for name in SCORES}
    if scores["likelihood"].notna().mean() < KNOWN:
        scores["likelihood"] = np.nan
    return rows.assign(right=rows.first_normalised.astype(bool), **scores)


def split_by(rows: pd.DataFrame, column: str, names: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows with each of these values in a column, as far as there are any; "all" are all of them."""
    for name in names:
        part = rows if name == "all" else rows[rows[column] == name]
        if len(part):
            yield name, part


def count_doubts(rows: pd.DataFrame) -> dict[str, str]:
    """How many wrong answers are judged "false" (caught), and how many right ones (doubted)."""
    answers = {"caught": rows[~rows.right], "doubted": rows[rows.right]}
    return {name: f"{(part.judgment == 'false').sum()} of {len(part)}" for name, part in answers.items()}


def judge_table(frame: pd.DataFrame, system: str = "CoV-RAG", by_set: bool = False) -> pd.DataFrame:
    """The judge and three that know less, by how the question was put and by set: shares in %, AUROC from 0 to 1.

    right     first answers that are right; judge: judgments that are, with their interval
    majority  how often the more frequent of the two words would be right
    wording   how often a rule would be right that sees only how the question is put, and knows each form's majority
    caught    wrong answers that are judged "false"; doubted: right ones that are
    AUROC     how often the expected correctness of a right answer is above that of a wrong one, with its interval;
              likelihood: the same of the answer's own likelihood, which needs no verdict; both: of their ranks' sum;
              unrevised: of the chance that no question is revised, which a verdict without scores tells too
    fitted    how often a judgment would be right that weighs both and the set, by weights of the other folds;
              unverified: the same of the likelihood and the set, without a verdict
    """
    rows = judged_rows(frame, system)
    rows = rows.assign(fitted=fitted_judgments(rows), unverified=fitted_judgments(rows, ["likelihood"]))
    made = []
    for name, part in (*split_by(rows, "form", FORMS), *(rows.groupby("dataset", sort=False) if by_set else ())):
        wording = sum(max(one.right.sum(), (~one.right).sum()) for _, one in part.groupby("form")) / len(part)
        row = {"questions": name, "n": len(part), "right": f"{100 * part.right.mean():.1f}"}
        row["judge"] = _share(part.judgment == "true", part.right)
        row["majority"] = f"{100 * max(part.right.mean(), 1 - part.right.mean()):.1f}"
        row |= {"wording": f"{100 * wording:.1f}", **count_doubts(part)}
        scores = {"AUROC": part.expected_correctness, "likelihood": part.likelihood}
        scores["both"] = part.expected_correctness.rank() + part.likelihood.rank()
        scores["unrevised"] = part.unrevised
        row |= {score: tell_area(values, part.right) for score, values in scores.items()}
        made.append(row | {judge: _share(part[judge], part.right) for judge in ("fitted", "unverified")})
    return pd.DataFrame(made)


def trust_table(frame: pd.DataFrame, system: str = "CoV-RAG") -> pd.DataFrame:
    """How often an answer is held for true, by whether it is right and whether a gold passage was found, in %.

    A judge of answers differs between right and wrong, a judge of passages between the rows.
    """
    rows = judged_rows(frame, system)
    rows = rows[rows.gold_first.notna()]
    made = []
    for passages, found in (("a gold passage", True), ("no gold passage", False)):
        own, row = rows[rows.gold_first.astype(bool) == found], {"passages": passages}
        for answer, part in (("right", own[own.right]), ("wrong", own[~own.right])):
            row |= {answer: 100 * (part.judgment == "true").mean(), f"n {answer}": len(part)}
        made.append(row)
    return pd.DataFrame(made)


def _share(said: pd.Series, right: pd.Series) -> str:
    """How often what was said is right, in %, with its interval; a dash where nothing was said."""
    agreed = said.dropna().astype(bool) == right[said.notna()]
    return with_interval("{:.1f}", *share(agreed))


def tell_area(scores: pd.Series, right: pd.Series, form: str = "{:.2f}") -> str:
    """An AUROC with its interval; a dash where the scores are not known or all answers are alike."""
    known = scores.notna()
    return with_interval(form, *metrics.auroc(scores[known].astype(float), right[known]))


def fitted_judgments(rows: pd.DataFrame, names: Sequence[str] = SCORES) -> pd.Series:
    """For each row whether a logistic fit on the other folds holds it for right; none where a score is not known.

    The verdict's own word was learnt where as many answers are right as wrong; on a set where most are wrong it is too
    trusting. The fit weighs what the verifier expects, how likely the answer was, and how hard its set is.
    """
    from sklearn.linear_model import LogisticRegression  # takes seconds to import
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    known = rows[rows[list(names)].notna().all(axis=1)]
    fold = known.id.rank(method="dense").astype(int) % FOLDS
    spread = fold.groupby(known.right).nunique()  # in how many folds there are wrong answers, and right ones
    if len(spread) < 2 or spread.min() < 2 or len(known) < 2 * FOLDS:  # a fold may have nothing to learn from
        return pd.Series(index=rows.index, dtype=object)
    scores = known[list(names)].astype(float)
    scores = (scores - scores.mean()) / scores.std().clip(lower=1e-9)
    inputs = np.column_stack([scores, pd.get_dummies(known.dataset).astype(float)])
    fit = LogisticRegression(fit_intercept=False, tol=1e-8, max_iter=10_000)
    judged = cross_val_predict(fit, inputs, known.right, cv=PredefinedSplit(fold))
    return pd.Series(judged, index=known.index, dtype=object).reindex(rows.index)


def failure_table(frame: pd.DataFrame, system: str = "CoV-RAG") -> pd.DataFrame:
    """A system's first and last answers by kind of failure.

    first    first answers that are right, in %
    caught   wrong first answers that are judged "false"; doubted: right ones that are
    revised  questions that were searched again; mended: those among them that found the gold passage they had missed
    last     last answers that are right, in %; gain: in points over the first, with a bootstrap interval
    """
    rows = frame[(frame.system == system) & frame.first_normalised.notna()]
    made = []
    for name, part in split_by(rows, "failure", FAILURES):
        first, last = part.first_normalised.astype(bool), part.normalised.astype(bool)
        judged = part.assign(right=first)[part.judgment.fillna("") != ""]
        missed = part[part.revised & part.gold_first.eq(False)]
        gain, interval = format_difference(first.tolist(), last.tolist())
        row = {"questions": name, "n": len(part), "first": f"{100 * first.mean():.1f}", **count_doubts(judged)}
        row |= {"revised": int(part.revised.sum()), "mended": f"{missed.gold_last.eq(True).sum()} of {len(missed)}"}
        made.append(row | {"last": f"{100 * last.mean():.1f}", "gain": gain, "95 % interval": interval})
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
    """Of every system that verifies: its judge, which answers it trusts, what its revisions did, and what bounds it."""
    made = {}
    for system, own in frame.groupby("system"):
        if not own.verdicts.any():
            continue
        judged = judge_table(own, system, by_set=True).rename(columns={"n": "judged n"})
        made |= tell_rows(judged, f"{system} {{questions}}")
        for answer in ("right", "wrong"):
            forms = {"": f"{{{answer}:.1f}}", "n": f"{{n {answer}}}"}
            made |= tell_rows(trust_table(own, system), f"{system} trusted {{passages}} {answer}", forms)
        scored = own[own.normalised.notna()]
        found = metrics.mcnemar(scored.found_first.astype(bool), scored.found_last.astype(bool))[:2]
        words = ("revised", "helped", "hurt", "found anew", "found no more")
        made |= facts_of(system, dict(zip(words, (*count_changes(own[own.verdicts > 0]), *found))))
        kinds = failure_table(own, system).rename(columns={"95 % interval": "interval"})
        made |= tell_rows(kinds, f"{system} kind {{questions}}")
        made |= facts_of(system, {name: f"{value:.1f}" for name, value in bounds(own, system).items()})
    return made
