"""What the judges' scores say (Table 3 of the paper): ranks with intervals, systems two by two, agreement of judges.

Everything is made from the frame of `judges.judge`. A question enters a criterion's ranks only if the judge scored
every ranked answer to it in every order; what is missing is counted in the notes. The notebook of Table 3 and `check`
call this.
"""

from collections.abc import Sequence
from itertools import combinations, permutations, product
from pathlib import Path

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config
from covrag_lite.judging import agreement
from covrag_lite.judging.judges import Answers
from covrag_lite.tables.accuracy import PAIRS, in_order, to_markdown
from covrag_lite.tables.paper import find_values

MEASURES = {
    "rank": "mean rank, tied answers share the best place: ours [95 % interval] (the paper, by GPT-4)",
    "average rank": "mean rank, tied answers share the average of their places: ours [95 % interval]",
    "high quality": "high-quality answers in %: ours [95 % interval]",
}
LONG = ["table", "judge", "criterion", "system", "measure", "n", "value", "low", "high", "paper"]


def is_high_quality(criterion: str, score: float) -> bool:
    """Whether a score is what the arXiv version of the paper calls high quality."""
    if criterion == "bias":
        return score < 0.3
    if criterion == "conciseness":
        return score > 0.5
    return score == 1


def preferred(scores: pd.DataFrame, judge: str, criterion: str, orders: Sequence[int] = (1, 2)) -> pd.DataFrame:
    """Which of two answers is better: a row a question and a column every two ranked systems.

    A value is 1 where the first system's answer is better, -1 where it is worse, and 0 where they tie.
    """
    own = (scores.judge == judge) & (scores.criterion == criterion)
    rows = scores[own & scores.ranked & scores.order.isin(orders)]
    table = rows.pivot(index="id", columns=["order", "system"], values="score").dropna()
    systems = list(dict.fromkeys(rows.system))
    by_order = [table[order][systems].to_numpy() for order in dict.fromkeys(rows.order)]
    values = np.stack(by_order, axis=1)  # (questions, orders, systems)
    better = agreement.preferences(-values if criterion == "bias" else values)
    return pd.DataFrame(
        better.reshape(len(table), len(systems) ** 2),
        index=table.index,
        columns=pd.MultiIndex.from_tuples(product(systems, systems)),
    )


def rank_table(scores: pd.DataFrame, table: str) -> pd.DataFrame:
    """The long form of Table 3: a row a judge, criterion, system and measure, with n, interval and the paper's rank."""
    long = []
    for (judge, criterion), rows in scores.groupby(["judge", "criterion"], sort=False):
        better = preferred(scores, judge, criterion)
        ranks = _rank_rows(better, criterion, rows.dataset.unique())
        for row in ranks + _quality_rows(rows, criterion):
            long.append((table, judge, criterion, *row))
    return pd.DataFrame(long, columns=LONG).astype({"paper": float})


def _rank_rows(better: pd.DataFrame, criterion: str, datasets: Sequence[str]) -> list[tuple]:
    """The mean ranks of each system, by both ways to count ties: the columns of LONG from the system on."""
    systems = list(dict.fromkeys(better.columns.get_level_values(0)))
    pairs = better.to_numpy().reshape(len(better), len(systems), len(systems))
    rows = []
    for measure, ties in (("rank", "best"), ("average rank", "average")):
        places = agreement.ranks(pairs, ties)  # (questions, systems)
        for system, own in zip(systems, places.T):
            known = find_values("table3", system, datasets) if measure == "rank" else {}
            rows.append((system, measure, len(own), *metrics.mean_bootstrap(own), known.get(criterion)))
    return rows


def _quality_rows(scores: pd.DataFrame, criterion: str) -> list[tuple]:
    """The share of each system's answers that are of high quality in every order: as `_rank_rows`."""
    rows = []
    for system, own in scores.groupby("system", sort=False):
        by_order = own.pivot(index="id", columns="order", values="score").dropna()
        passed = by_order.map(lambda score: is_high_quality(criterion, score))
        n = len(by_order)
        good = int(passed.all(axis=1).sum())
        share = 100 * good / n if n else np.nan
        low, high = metrics.wilson(good, n)
        rows.append((system, "high quality", n, share, 100 * low, 100 * high, None))
    return rows


def wide_ranks(long: pd.DataFrame, judge: str, measure: str) -> pd.DataFrame:
    """One judge's table as a person reads it: a row a system, a column a criterion."""
    rows = long[(long.judge == judge) & (long.measure == measure)]
    digits = 1 if measure == "high quality" else 2
    cells = []
    for row in rows.itertuples():
        interval = f"[{row.low:.{digits}f}–{row.high:.{digits}f}]"
        paper = "" if pd.isna(row.paper) else f" ({row.paper:.2f})"
        cells.append(f"{row.value:.{digits}f} {interval}{paper}")
    table = rows.assign(cell=cells).pivot(index="system", columns="criterion", values="cell")
    systems = in_order(table.index)
    criteria = list(dict.fromkeys(rows.criterion))
    return table.loc[systems, criteria].fillna("–")


def compare_ranked(scores: pd.DataFrame, pairs: Sequence[tuple[str, str]] = PAIRS) -> pd.DataFrame:
    """Systems two by two: how often the second one's answer is better, as good or worse, and the exact sign test."""
    columns = ["judge", "comparison", "criterion", "n", "better", "tied", "worse", "sign test p"]
    compared = []
    for judge, criterion in scores[["judge", "criterion"]].drop_duplicates().itertuples(index=False):
        better = preferred(scores, judge, criterion)
        n = len(better)
        for a, b in pairs:
            if (b, a) in better:
                won, lost, p = metrics.mcnemar(better[b, a] < 0, better[b, a] > 0)
                compared.append((judge, f"{a} → {b}", criterion, n, won, n - won - lost, lost, f"{p:.3f}"))
    return pd.DataFrame(compared, columns=columns)


def agreement_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Weighted κ on which of two answers is better; empty for the rubric alone.

    It is told between the two orders of a judge, and between every two judges.
    """
    columns = ["raters", "criterion", "n", "pairs", "same", "κ", "95 % interval"]
    criteria = list(dict.fromkeys(scores.criterion))
    agreed = []
    for name, first, second in _raters(scores):
        for criterion in criteria:
            one = preferred(scores, first[0], criterion, first[1])
            two = preferred(scores, second[0], criterion, second[1])
            agreed.append((name, criterion, *_agreement(one, two)))
    return pd.DataFrame(agreed, columns=columns)


def _raters(scores: pd.DataFrame) -> list[tuple]:
    """Whom to compare: a name, and twice a judge with the orders that count."""
    judges = list(dict.fromkeys(scores.judge))
    raters = []
    for judge in judges:
        if scores[scores.judge == judge].order.nunique() > 1:
            raters.append((f"{judge}: its two orders", (judge, (1,)), (judge, (2,))))
    for a, b in combinations(judges, 2):
        raters.append((f"{a} and {b}", (a, (1, 2)), (b, (1, 2))))
    return raters


def _agreement(one: pd.DataFrame, two: pd.DataFrame) -> tuple:
    """Of two raters' preferences the number of questions and pairs, the share that is the same, κ, and its interval."""
    shared = dict.fromkeys(a for a, b in one.columns if (a, b) in two)
    pairs = list(permutations(shared, 2))  # both ways round: κ must not depend on whose name comes first
    both = one.index.intersection(two.index)
    ours = one.loc[both, pairs].to_numpy()
    theirs = two.loc[both, pairs].to_numpy()
    k, low, high = agreement.kappa(ours, theirs)
    same = f"{100 * (ours == theirs).mean():.0f} %" if ours.size else "–"
    return len(both), ours.size // 2, same, f"{k:.2f}", f"[{low:.2f}, {high:.2f}]"


def notes(scores: pd.DataFrame) -> list[str]:
    """The lines under a table of ranks: what has no score, whose citations are not ranked, how much is tied."""
    lines = []
    for judge, rows in scores.groupby("judge", sort=False):
        missing = int(rows.score.isna().sum())
        lines.append(
            f"{judge}: {missing} of {len(rows)} scores are missing (a reply that could not be read, "
            f"or gold that cannot be compared); such a question is left out of that criterion."
        )
        for system in dict.fromkeys(rows[~rows.ranked].system):
            lines.append(
                f"{judge}: the citations of {system} are not ranked, because its references are not always the others'."
            )
        shares = []
        for criterion in dict.fromkeys(rows.criterion):
            better = preferred(scores, judge, criterion)
            systems = dict.fromkeys(a for a, _ in better)
            tied = better[list(combinations(systems, 2))] == 0
            if tied.size:
                shares.append(f"{criterion} {100 * tied.to_numpy().mean():.0f} %")
        lines.append(f"{judge}: tied pairs of answers: {', '.join(shares)}.")
    return lines


def title(config: Config, answers: Answers) -> str:
    """The heading of the picture."""
    return f"Table 3: {config.judging.predictions or config.model.model}, n = {len(answers.questions)} questions"


def save_ranks(
    folder: Path,
    table: str,
    long: pd.DataFrame,
    comparison: pd.DataFrame,
    agreement: pd.DataFrame,
    lines: Sequence[str],
) -> str:
    """Write `<table>.csv` and, readable, `<table>.md`; returns the latter's text."""
    folder.mkdir(parents=True, exist_ok=True)
    long.to_csv(folder / f"{table}.csv", index=False, float_format="%.3f", lineterminator="\n")
    texts = []
    for judge, (measure, heading) in product(dict.fromkeys(long.judge), MEASURES.items()):
        ranks = wide_ranks(long, judge, measure).reset_index()
        texts.append(f"By {judge}: {heading}\n\n{to_markdown(ranks)}")
    texts.append(f"Systems two by two on the same questions\n\n{to_markdown(comparison)}")
    if len(agreement):
        texts.append(f"Agreement on which of two answers is better, linearly weighted κ\n\n{to_markdown(agreement)}")
    texts.append("\n".join(f"- {line}" for line in lines))
    text = "\n\n".join(texts) + "\n"
    (folder / f"{table}.md").write_text(text)
    return text
