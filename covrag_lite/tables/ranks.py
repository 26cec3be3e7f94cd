"""Judges' scores as ranks: one row per judge, criterion and system (Table 3)."""

from collections.abc import Sequence

import pandas as pd
from scipy.stats import rankdata

import covrag_lite.tables.paper as paper
from covrag_lite import metrics
from covrag_lite.judging.answers import Answers
from covrag_lite.judging.criteria import CITATIONS
from covrag_lite.tables.intervals import share
from covrag_lite.tables.labels import SMALL_SAMPLE, format_p
from covrag_lite.tables.paired import PAIRS

SCORE_COLUMNS = ["judge", "dataset", "id", "system", "criterion", "score", "ranked"]
RANK_COLUMNS = ["judge", "criterion", "system", "measure", "n", "value", "low", "high", "paper"]
PAIR_COLUMNS = ["judge", "comparison", "criterion", "n", "better", "tied", "worse", "sign test p"]
RANK = "rank"
HIGH_QUALITY = "high quality"


def score_frame(verdicts: Sequence[dict], answers: Answers) -> pd.DataFrame:
    """Return one row per judge, question, system and criterion.

    Citations are ranked only among systems that saw the same references.
    """
    rows = []
    for verdict in verdicts:
        about = (verdict["judge"], verdict["dataset"], verdict["id"])
        for criterion, scores in verdict["scores"].items():
            for system, score in scores.items():
                is_ranked = criterion != CITATIONS or system in answers.cited_together
                rows.append((*about, system, criterion, score, is_ranked))
    return pd.DataFrame(rows, columns=SCORE_COLUMNS).astype({"score": float})


def ranked_scores(scores: pd.DataFrame, judge: str, criterion: str) -> pd.DataFrame:
    """Return the ranked scores: a row per question, a column per system; higher is better.

    Only questions with a score for every ranked system are included.
    """
    rows = scores[(scores.judge == judge) & (scores.criterion == criterion) & scores.ranked]
    table = rows.pivot(index="id", columns="system", values="score").dropna()
    table = table[list(dict.fromkeys(rows.system))]
    return -table if criterion == "bias" else table


def rank_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Return Table 3 in long form: one row per judge, criterion, system and measure."""
    long = []
    for (judge, criterion), rows in scores.groupby(["judge", "criterion"], sort=False):
        table = ranked_scores(scores, judge, criterion)
        places = rankdata(-table.to_numpy(), method="min", axis=1)  # (questions, systems)
        datasets = rows.dataset.unique()
        for system, ranks in zip(table, places.T):
            about = (judge, criterion, system, RANK, len(ranks))
            of_paper = paper.find_values("table3", system, datasets).get(criterion)
            long.append((*about, *mean_rank(ranks), of_paper))
        for system, answers in rows.groupby("system", sort=False):
            score = answers.score.dropna()
            about = (judge, criterion, system, HIGH_QUALITY, len(score))
            long.append((*about, *share(is_high_quality(criterion, score)), None))
    return pd.DataFrame(long, columns=RANK_COLUMNS).astype({"paper": float})


def mean_rank(ranks: Sequence[int]) -> metrics.Estimate:
    """Return the mean with its bootstrap interval, which is not defined for few questions.

    Resampling a few ranks that are all alike would give an interval without width.
    """
    mean, low, high = metrics.mean_bootstrap(ranks)
    if len(ranks) < SMALL_SAMPLE:
        return mean, float("nan"), float("nan")
    return mean, low, high


def is_high_quality(criterion: str, score: pd.Series) -> pd.Series:
    """Return which scores are of high quality, by the thresholds of the paper's arXiv version."""
    if criterion == "bias":
        return score < 0.3
    if criterion == "conciseness":
        return score > 0.5
    return score == 1


def compare_ranked(scores: pd.DataFrame) -> pd.DataFrame:
    """Compare pairs of systems: how often the second answer is better, tied or worse; sign test."""
    rows = []
    judged = scores[["judge", "criterion"]].drop_duplicates()
    for judge, criterion in judged.itertuples(index=False):
        table = ranked_scores(scores, judge, criterion)
        for before, after in PAIRS:
            if before in table and after in table:
                is_worse = table[after] < table[before]
                is_better = table[after] > table[before]
                better, worse, p = metrics.mcnemar(is_worse, is_better)
                tied = len(table) - better - worse
                about = (judge, f"{before} → {after}", label_criterion(criterion), len(table))
                rows.append((*about, better, tied, worse, format_p(p)))
    return pd.DataFrame(rows, columns=PAIR_COLUMNS)


def label_criterion(criterion: str) -> str:
    """Return how tables call a criterion."""
    return criterion.replace("_", " ")
