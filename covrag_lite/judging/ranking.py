"""What the judges' scores say (Table 3 of the paper): ranks with their intervals, systems two by two, agreement between judges.

Everything is made from the frame of `judges.judge`. A question enters a criterion's ranks only if the judge scored every
ranked answer to it in every order; what is missing is counted in the notes.
"""

from collections.abc import Sequence
from itertools import combinations, permutations, product
from pathlib import Path

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config
from covrag_lite.judging.judges import HIGH_QUALITY, Answers
from covrag_lite.report.tables import PAIRS, PALETTE, PAPER_RANKS, to_markdown

MEASURES = {
    "rank": "mean rank, tied answers share the best place: ours [95 % interval] (the paper, by GPT-4)",
    "average rank": "mean rank, tied answers share the average of their places: ours [95 % interval]",
    "high quality": "high-quality answers in %: ours [95 % interval]",
}


def preferred(scores: pd.DataFrame, judge: str, criterion: str, orders: Sequence[int] = (1, 2)) -> pd.DataFrame:
    """A row a question, a column every two ranked systems: 1 where the first one's answer is better, -1 where it is worse, 0 where they tie."""
    rows = scores[(scores.judge == judge) & (scores.criterion == criterion) & scores.ranked & scores.order.isin(orders)]
    table, systems = (
        rows.pivot(index="id", columns=["order", "system"], values="score").dropna(),
        list(dict.fromkeys(rows.system)),
    )
    values = np.stack(
        [table[order][systems].to_numpy() for order in dict.fromkeys(rows.order)], axis=1
    )  # (questions, orders, systems)
    better = metrics.preferences(-values if criterion == "bias" else values)
    return pd.DataFrame(
        better.reshape(len(table), len(systems) ** 2),
        index=table.index,
        columns=pd.MultiIndex.from_tuples(product(systems, systems)),
    )


def rank_table(scores: pd.DataFrame, table: str) -> pd.DataFrame:
    """The long form of Table 3: one row a judge, criterion, system and measure, with n, interval and the paper's rank."""
    made = []
    for (judge, criterion), rows in scores.groupby(["judge", "criterion"], sort=False):
        better = preferred(scores, judge, criterion)
        systems = list(dict.fromkeys(better.columns.get_level_values(0)))
        for measure, ties in (("rank", "best"), ("average rank", "average")):
            places = metrics.ranks(
                better.to_numpy().reshape(len(better), len(systems), len(systems)), ties
            )  # (questions, systems)
            for system, own in zip(systems, places.T):
                paper = PAPER_RANKS.get(system, ("", {}))[1].get(criterion) if measure == "rank" else None
                made.append((table, judge, criterion, system, measure, len(own), *metrics.mean_bootstrap(own), paper))
        for system, part in rows.groupby("system", sort=False):
            scored = part.pivot(index="id", columns="order", values="score").dropna()
            good, n = int(scored.map(HIGH_QUALITY[criterion]).all(axis=1).sum()), len(scored)  # high in every order
            made.append(
                (
                    table,
                    judge,
                    criterion,
                    system,
                    "high quality",
                    n,
                    100 * good / n if n else np.nan,
                    *(100 * end for end in metrics.wilson(good, n)),
                    None,
                )
            )
    return pd.DataFrame(
        made, columns=["table", "judge", "criterion", "system", "measure", "n", "value", "low", "high", "paper"]
    ).astype({"paper": float})


def wide_ranks(long: pd.DataFrame, judge: str, measure: str) -> pd.DataFrame:
    """One judge's table as a person reads it: a row a system, a column a criterion."""
    rows, digits = long[(long.judge == judge) & (long.measure == measure)], 1 if measure == "high quality" else 2
    cells = [
        f"{r.value:.{digits}f} [{r.low:.{digits}f}–{r.high:.{digits}f}]"
        + ("" if pd.isna(r.paper) else f" ({r.paper:.2f})")
        for r in rows.itertuples()
    ]
    table = rows.assign(cell=cells).pivot(index="system", columns="criterion", values="cell")
    return table.loc[sorted(table.index, key=list(PALETTE).index), list(dict.fromkeys(rows.criterion))].fillna("–")


def compare_ranked(scores: pd.DataFrame, pairs: Sequence[tuple[str, str]] = PAIRS) -> pd.DataFrame:
    """Systems two by two: on how many questions the second one's answer is better, as good, worse, and the exact sign test."""
    made = []
    for judge, criterion in scores[["judge", "criterion"]].drop_duplicates().itertuples(index=False):
        better = preferred(scores, judge, criterion)
        for a, b in pairs:
            if (b, a) in better:
                won, lost, p = metrics.mcnemar(better[b, a] < 0, better[b, a] > 0)
                made.append(
                    (judge, f"{a} → {b}", criterion, len(better), won, len(better) - won - lost, lost, f"{p:.3f}")
                )
    return pd.DataFrame(
        made, columns=["judge", "comparison", "criterion", "n", "better", "tied", "worse", "sign test p"]
    )


def agreement_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Weighted κ on which of two answers is better: between the two orders of a judge, and between every two judges; empty for the rubric alone."""
    made, judges = [], list(dict.fromkeys(scores.judge))
    raters = [
        (f"{judge}: its two orders", (judge, (1,)), (judge, (2,)))
        for judge in judges
        if scores[scores.judge == judge].order.nunique() > 1
    ]
    raters += [(f"{a} and {b}", (a, (1, 2)), (b, (1, 2))) for a, b in combinations(judges, 2)]
    for (name, *sides), criterion in product(raters, dict.fromkeys(scores.criterion)):
        one, two = (preferred(scores, judge, criterion, orders) for judge, orders in sides)
        pairs = list(
            permutations(dict.fromkeys(a for a, b in one.columns if (a, b) in two), 2)
        )  # both ways round: κ must not depend on whose name comes first
        both = one.index.intersection(two.index)
        one, two = one.loc[both, pairs].to_numpy(), two.loc[both, pairs].to_numpy()
        k, low, high = metrics.kappa(one, two)
        same = f"{100 * (one == two).mean():.0f} %" if one.size else "–"
        made.append((name, criterion, len(both), one.size // 2, same, f"{k:.2f}", f"[{low:.2f}, {high:.2f}]"))
    return pd.DataFrame(made, columns=["raters", "criterion", "n", "pairs", "same", "κ", "95 % interval"])


def notes(scores: pd.DataFrame) -> list[str]:
    """What must stand under a table of ranks: what has no score, whose citations are not ranked, how much is tied."""
    lines = []
    for judge, rows in scores.groupby("judge", sort=False):
        lines.append(
            f"{judge}: {int(rows.score.isna().sum())} of {len(rows)} scores are missing (a reply that could not be read, or gold that cannot be compared); "
            f"such a question is left out of that criterion."
        )
        for system in dict.fromkeys(rows[~rows.ranked].system):
            lines.append(
                f"{judge}: the citations of {system} are not ranked, because its references are not always the others'."
            )
        tied = {
            criterion: (better[list(combinations(dict.fromkeys(a for a, _ in better), 2))] == 0).to_numpy()
            for criterion in dict.fromkeys(rows.criterion)
            for better in [preferred(scores, judge, criterion)]
        }
        lines.append(
            f"{judge}: tied pairs of answers: "
            + ", ".join(f"{name} {100 * pairs.mean():.0f} %" for name, pairs in tied.items() if pairs.size)
            + "."
        )
    return lines


def title(config: Config, answers: Answers) -> str:
    """What stands over the picture."""
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
    texts = [
        f"By {judge}: {heading}\n\n{to_markdown(wide_ranks(long, judge, measure).reset_index())}"
        for judge in dict.fromkeys(long.judge)
        for measure, heading in MEASURES.items()
    ]
    texts.append(f"Systems two by two on the same questions\n\n{to_markdown(comparison)}")
    if len(agreement):
        texts.append(f"Agreement on which of two answers is better, linearly weighted κ\n\n{to_markdown(agreement)}")
    text = "\n\n".join([*texts, "\n".join(f"- {line}" for line in lines)]) + "\n"
    (folder / f"{table}.md").write_text(text)
    return text
