"""Table 3: ranks of answers by five criteria, systems two by two, and how far judges agree.

The paper had GPT-4 score the answers of several systems to one question and ranked the scores, criterion by criterion.
The judges of `covrag_lite.judging` give one frame: a row a judge, order, question, system and criterion, with a score,
or none where the judge's reply could not be read. A question enters a criterion's ranks only if the judge scored every
ranked answer to it in every order; what is missing is counted in the notes.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config
from covrag_lite.engine.endpoint import PREFIX, Endpoint
from covrag_lite.judging import agreement, ballots, rubric
from covrag_lite.judging.answers import Answers, load_answers
from covrag_lite.runs.journal import Journal
from covrag_lite.runs.recorded import Recorded, check_data
from covrag_lite.systems import palette
from covrag_lite.tables import Table, pictures
from covrag_lite.tables.accuracy import PAIRS, in_order
from covrag_lite.tables.paper import find_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURES = {
    "rank": "mean rank, tied answers share the best place: ours [95 % interval] (the paper, by GPT-4)",
    "average rank": "mean rank, tied answers share the average of their places: ours [95 % interval]",
    "high quality": "high-quality answers in %: ours [95 % interval]",
}
LONG = ["judge", "criterion", "system", "measure", "n", "value", "low", "high", "paper"]
SCORES = ["judge", "order", "dataset", "id", "system", "criterion", "score", "ranked"]


def load(run: Recorded) -> tuple[Answers, pd.DataFrame]:
    """The judged answers, and the verdicts that served judges gave."""
    if not run.config.judging.predictions:
        raise FileNotFoundError("as the systems ran anew for it and their answers are not recorded")
    # Of its parameters those of judging alone: the others were without effect, and their defaults may have changed.
    answers = load_answers(Config(judging=run.config.judging), run.root)
    check_data(run, questions=answers.questions, passages=answers.passages)
    return answers, load_verdicts(run.file("verdicts.jsonl"))


def build(basis: tuple[Answers, pd.DataFrame], run: Recorded) -> Table:
    """Table 3, from the judged answers and the served judges' verdicts; the rubric judges anew."""
    answers, known = basis
    scores = judge(run.config, answers, known)
    long, agreement = rank_table(scores), agreement_table(scores)
    parts = {}
    for name, (measure, heading) in product(dict.fromkeys(long.judge), MEASURES.items()):
        parts[f"By {name}: {heading}"] = wide_ranks(long, name, measure).reset_index()
    parts["Systems two by two on the same questions"] = compare_ranked(scores)
    if len(agreement):
        parts["Agreement on which of two answers is better, linearly weighted κ"] = agreement
    asked = run.config.judging.predictions or run.config.model.model
    plot = partial(plot_ranks, long, f"Table 3: {asked}, n = {len(answers.questions)} questions")
    verdicts = {"verdicts.jsonl": write_verdicts(scores)}
    return Table(
        "table3",
        long.assign(table="table3")[["table", *LONG]],
        parts,
        notes(scores),
        plot=plot,
        other_files=verdicts,
        digits=3,
    )


def judge(config: Config, answers: Answers, known: pd.DataFrame | None = None) -> pd.DataFrame:
    """Every configured judge's scores in one frame; a served judge is not asked where its verdicts are known."""
    names = config.judging.judges
    for name in names:
        if name != "rubric" and not name.startswith(PREFIX):
            raise ValueError(f"judge {name!r} is not known; use 'rubric' or '{PREFIX}<model>'")
    rows = []
    for name in dict.fromkeys(names):
        if name == "rubric":
            rows += rubric.by_rubric(answers)
        elif known is not None:
            rows += known[known.judge == name].itertuples(index=False, name=None)
        else:
            rows += ballots.by_endpoint(Endpoint(replace(config.model, model=name)), answers, Journal(config.journal()))
    return pd.DataFrame(rows, columns=SCORES).astype({"score": float})


def write_verdicts(scores: pd.DataFrame) -> str:
    """One JSON line a judge, order and question: ids, systems, criteria and scores, none of the data's own text."""
    lines = []
    for (judge_name, order, dataset, question), rows in scores.groupby(["judge", "order", "dataset", "id"], sort=False):
        given: dict[str, dict[str, float | None]] = {}
        for row in rows.itertuples():
            given.setdefault(row.criterion, {})[row.system] = None if pd.isna(row.score) else round(row.score, 4)
        line = {"judge": judge_name, "order": int(order), "dataset": dataset, "id": question, "scores": given}
        lines.append(json.dumps(line) + "\n")
    return "".join(lines)


def load_verdicts(path: Path) -> pd.DataFrame:
    """A served judge's recorded verdicts as the frame that they came from; whatever it scored is ranked."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        for criterion, given in one["scores"].items():
            for system, score in given.items():
                rows.append((one["judge"], one["order"], one["dataset"], one["id"], system, criterion, score, True))
    return pd.DataFrame(rows, columns=SCORES).astype({"score": float})


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


def rank_table(scores: pd.DataFrame) -> pd.DataFrame:
    """The long form of Table 3: a row a judge, criterion, system and measure, with n, interval and the paper's rank."""
    long = []
    for (judge, criterion), rows in scores.groupby(["judge", "criterion"], sort=False):
        better = preferred(scores, judge, criterion)
        ranks = _rank_rows(better, criterion, rows.dataset.unique())
        for row in ranks + _quality_rows(rows, criterion):
            long.append((judge, criterion, *row))
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
        # High quality as the arXiv version of the paper has it.
        passed = {"bias": by_order < 0.3, "conciseness": by_order > 0.5}.get(criterion, by_order == 1)
        n, good = len(by_order), int(passed.all(axis=1).sum())
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
    return table.loc[in_order(table.index), list(dict.fromkeys(rows.criterion))].fillna("–")


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
    orders = scores.groupby("judge", sort=False).order.nunique()
    raters = {f"{judge}: its two orders": ((judge, (1,)), (judge, (2,))) for judge in orders[orders > 1].index}
    raters |= {f"{a} and {b}": ((a, (1, 2)), (b, (1, 2))) for a, b in combinations(orders.index, 2)}
    agreed = []
    for (name, pair), criterion in product(raters.items(), dict.fromkeys(scores.criterion)):
        one, two = (preferred(scores, judge, criterion, counted) for judge, counted in pair)
        agreed.append((name, criterion, *_agreement(one, two)))
    return pd.DataFrame(agreed, columns=["raters", "criterion", "n", "pairs", "same", "κ", "95 % interval"])


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


def plot_ranks(long: pd.DataFrame, title: str, path: Path) -> "Figure":
    """Mean ranks and high-quality rates a criterion and system with their intervals, a row a judge; up is better."""
    plt, sns = pictures.style(0.85)
    judges = list(dict.fromkeys(long.judge))
    size = (19, 5.5 * len(judges))
    figure, grid = plt.subplots(len(judges), 2, figsize=size, layout="constrained", squeeze=False)
    for (left, right), judge in zip(grid, judges):
        own = long[long.judge == judge]
        _draw_ranks(left, own[own.measure == "rank"], long)
        _draw_ranks(right, own[own.measure == "high quality"], long)
        left.set(title=f"{judge}: rank", ylabel="mean rank, 1 is best")
        right.set(title=f"{judge}: high quality", ylabel="high-quality answers (%)", ylim=(-4, 104))
        left.invert_yaxis()
    if long.paper.notna().any():
        grid[0, 0].plot([], [], ms=7, label="the paper\n(by GPT-4)", **pictures.DIAMOND)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    figure.suptitle(title)
    return pictures.save_picture(figure, path)


def _draw_ranks(axes: "Axes", rows: pd.DataFrame, long: pd.DataFrame) -> None:
    """One measure: a place a criterion and, beside each other, the systems."""
    criteria = list(dict.fromkeys(long.criterion))
    systems = in_order(long.system.unique())
    for i, system in enumerate(systems):
        own = rows[rows.system == system]
        x = [criteria.index(name) + 0.17 * (i - (len(systems) - 1) / 2) for name in own.criterion]
        span = [own.value - own.low, own.high - own.value]
        axes.errorbar(x, own.value, span, fmt="o", ms=11, color=palette()[system], capsize=4, label=system)
        axes.plot(x, own.paper.astype(float), ms=7, zorder=3, **pictures.DIAMOND)
    axes.set_xticks(range(len(criteria)), [name.replace("_", "\n") for name in criteria])
