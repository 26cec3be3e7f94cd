"""What was tried on validation questions before the claim was tested: layouts, the judge, which answer counts, σ.

`candidates.csv.gz` has a row an answer: of a question in a layout, by one of the two adapters, over the passages of the
first or the second search, with its likelihood, its verdict's expectations and whether it is right in whole words.
"Near" are held-out questions of the sets that were trained on, "far" are multi-hop questions of kinds that were not.
"""

from functools import partial

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from covrag_lite import metrics
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import Table, claim

FIRST = {"rag second": "rag first", "cov second": "cov first"}  # whose second answer it is; any other: "rag first"
KEEPS = {  # the weights of likelihood and of expected correctness, and what the second answer has in advance
    "last": (0, 0, 1),
    "likelier": (1, 0, 0),
    "better verified": (0, 1, 0),
    "likelihood + correctness": (1, 1, 0),
    "likelihood + 3 correctness": (1, 3, 0),
}
SIGMAS = (1.01, 0.4, 0.35, 0.3, 0.25, 0.2)  # search again where the expected correctness lies below
CHOICES = {  # answers among which a logistic regression chooses
    "both adapters, no second search": ("rag first", "cov first"),
    "rag's two": ("rag first", "rag second"),
    "rag's two and cov's first": ("rag first", "rag second", "cov first"),
    "both adapters' two": ("rag first", "rag second", "cov first", "cov second"),
}
FOLDS = 5


def load(run: Recorded) -> pd.DataFrame:
    """The answers of all candidates."""
    return pd.read_csv(run.file("candidates.csv.gz"), dtype={"judgment": str})


def build(rows: pd.DataFrame, run: Recorded) -> Table:
    """Everything that was tried."""
    rows = rows[rows.right.notna()].assign(right=lambda one: one.right.astype(bool))
    groups = {key: own for key, own in rows.groupby(["layout", "kind"], sort=False)}
    both = rows[(rows.layout == "shared") & rows.id.isin(rows[rows.layout == "paper"].id)]
    beside = {**groups, ("shared", "near, those of the paper's layout"): both}
    judged = [one for key, own in beside.items() if len(own) for one in judge(key, own)]
    tried = [one for key, own in groups.items() for one in rules(key, own)]
    chosen = [one for key, own in groups.items() if key[0] == "shared" for one in choices(key, own)]
    columns = ["layout", "kind", "answers", "rule", "searched", "n", "difference", "gained", "lost", "p"]
    long = pd.DataFrame([*tried, *chosen], columns=columns)
    parts = {
        "First answers and their judge": pd.DataFrame(judged),
        "Which answer counts and when to search again: points gained over the first answer": long,
    }
    compared = claim.compare_systems({"1": as_systems(groups["shared", "near"])})
    parts["The comparisons of the claim, near questions, shared layout"] = claim.shown(compared)
    notes = ["p is McNemar's, exact; the regressions are scored on other folds."]
    facts = claim.facts_of(compared[compared.set == claim.EVERY])
    for row in judged:
        facts |= {f"{row['layout']}, {row['kind']}, {row['answers']}, {name}": row[name] for name in list(row)[4:]}
    return Table("validation", long, parts, notes, facts, partial(claim.plot, compared))


def as_systems(own: pd.DataFrame) -> pd.DataFrame:
    """The answers that systems would have given, as the frame that the claim is made from."""
    answers = {name: one.set_index("id") for name, one in own.groupby("candidate")}
    rag, cov, weighed = answers["rag first"], answers["cov first"], KEEPS["likelihood + 3 correctness"]
    right = {
        "RAG trained": rag.right,
        "CoV-RAG-S": cov.right,
        "CoV-RAG": keep(cov, answers["cov second"], *KEEPS["last"]),
        claim.BEST: keep(rag, answers["rag second"], *weighed),
    }
    frames = [rag.assign(system=name, whole=values.astype(bool)).reset_index() for name, values in right.items()]
    return pd.concat(frames)[["system", "dataset", "id", "whole"]]


def judge(key: tuple[str, str], own: pd.DataFrame) -> list[dict]:
    """How well verdicts tell right first answers from wrong ones, and whether they read answer and references."""
    made = []
    for name in ("rag first", "cov first"):
        one = own[own.candidate == name]
        trusted, right, found = one.judgment == "true", one.right, one.found == True  # noqa: E712 (may be unknown)
        swapped = {}
        for control in ("swapped references", "swapped answers"):
            other = own[own.candidate == control] if name == "rag first" else own[:0]
            swapped[f"trusted, {control}"] = percent(other.judgment == "true")
        made.append(
            dict(zip(("layout", "kind"), key))
            | {
                "answers": name,
                "n": len(one),
                "right": percent(right),
                "AUROC": f"{metrics.auroc(one.correctness, right)[0]:.3f}",
                "AUROC of the likelihood": f"{metrics.auroc(one.likelihood, right)[0]:.3f}",
                "judged rightly": percent(trusted == right),
                "right ones trusted": percent(trusted[right]),
                "wrong ones trusted": percent(trusted[~right]),
                "wrong ones beside an answer trusted": percent(trusted[~right & found]),
            }
            | swapped
        )
    return made


def percent(which: pd.Series) -> str:
    """A share in %."""
    return f"{100 * which.mean():.1f}" if len(which) else "–"


def rules(key: tuple[str, str], own: pd.DataFrame) -> list[tuple]:
    """Every rule for which answer counts, and σ with the last of these."""
    made = []
    answers = {name: one.set_index("id") for name, one in own.groupby("candidate")}
    for second in [name for name in answers if "second" in name]:
        a, b = answers[FIRST.get(second, "rag first")], answers[second]
        for rule, weights in KEEPS.items():
            made.append((*key, second, rule, *compare(a, keep(a, b, *weights), len(b))))
        for below in SIGMAS[1:] if second == "rag second" else ():
            some = b[a.correctness.reindex(b.index) < below]
            rule = f"likelihood + 3 correctness; σ: correctness below {below}"
            made.append((*key, second, rule, *compare(a, keep(a, some, 1, 3, 0), len(some))))
    return made


def keep(a: pd.DataFrame, b: pd.DataFrame, likelihood: float, correctness: float, later: float) -> pd.Series:
    """Whether each question is right if its second answer counts where its weighed sum is no lower."""
    first = a.loc[b.index]
    gain = likelihood * (b.likelihood - first.likelihood) + correctness * (b.correctness - first.correctness) + later
    right = a.right.copy()
    right[b.index] = np.where(gain >= 0, b.right, first.right)
    return right


def compare(a: pd.DataFrame, right: pd.Series, searched: int) -> tuple:
    """The share of questions that were searched again, n, the difference in points, gained, lost and McNemar's p."""
    gained, lost, p = metrics.mcnemar(a.right.tolist(), right[a.index].tolist())
    return percent(pd.Series([1] * searched + [0] * (len(a) - searched))), len(a), *told(gained, lost, p, len(a))


def told(gained: int, lost: int, p: float, n: int) -> tuple:
    return f"{100 * (gained - lost) / n:+.2f}", gained, lost, f"{p:.4f}"


def choices(key: tuple[str, str], own: pd.DataFrame) -> list[tuple]:
    """A choice among several answers by a regression on likelihood, verdict and agreement, fitted on other folds."""
    made, base = [], own[own.candidate == "rag first"].set_index("id").right
    for rule, names in CHOICES.items():
        some = own[own.candidate.isin(names)].copy()
        some["agree"] = some.groupby(["id", "answer"]).answer.transform("size") / some.groupby("id").id.transform(
            "size"
        )
        some["own"] = some.candidate == "rag first"
        x = some[["likelihood", "correctness", "reference", "agree", "own"]].astype(float).to_numpy()
        fold = some.id.map({identity: place % FOLDS for place, identity in enumerate(base.index)}).to_numpy()
        score = np.zeros(len(some))
        for number in range(FOLDS):
            fitted = LogisticRegression(C=1e3, max_iter=1000).fit(x[fold != number], some.right[fold != number])
            score[fold == number] = fitted.decision_function(x[fold == number])
        best = some.assign(score=score).sort_values("score", kind="stable").groupby("id").tail(1).set_index("id").right
        for name, right in ((rule, best), (f"{rule}, chosen perfectly", some.groupby("id").right.any())):
            result = metrics.mcnemar(base.tolist(), right[base.index].tolist())
            made.append((*key, "several", name, "", len(base), *told(*result, len(base))))
    return made
