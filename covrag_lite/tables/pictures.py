"""One visual language for every picture: a colour a system, intervals on every value, the paper's values as diamonds.

Made from the long tables of `tables`, `retrieval` and `judging.ranking`; other rooms save their pictures here too.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from covrag_lite.systems import palette
from covrag_lite.tables.accuracy import in_order, name_of
from covrag_lite.tables.table6 import ITERATIONS, WORDINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OTHER = "#777777"  # the colour of what has none of its own
DARK = "#333333"  # of intervals
DIAMOND = dict(marker="D", ls="none", mfc="white", mec="black")  # a value of the paper
CIRCLE = dict(marker="o", ls="none", mfc="#ffd54a", mec="black", clip_on=False)  # a value of a sample, answered live
THE_PAPER = "the paper (larger models,\nweb search)"


def plot_accuracy(
    long: pd.DataFrame,
    title: str,
    path: Path,
    metric: str | None = "normalised",
    sample: pd.DataFrame | None = None,
) -> "Figure":
    """Bars a system and set with their intervals, the paper's values as diamonds; for None a group a metric.

    The values of a `sample` of the same questions, answered live, are circles on the bars.
    """
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk")
    rows = long[long.metric == metric] if metric else long.assign(dataset=long.metric)
    rows = rows.set_index("dataset", drop=False)
    rows["dataset"] = [name_of(dataset).replace(" ", "\n") for dataset in rows.dataset]
    colours = {system: palette().get(system, OTHER) for system in rows.system.unique()}
    figure, axes = plt.subplots(figsize=(13, 6.5), layout="constrained")
    sns.barplot(rows, x="dataset", y="value", hue="system", palette=colours, errorbar=None, ax=axes)
    live = {} if sample is None else sample[sample.metric == metric].set_index(["system", "dataset"]).value
    for bars, (system, group) in zip(axes.containers, rows.groupby("system", sort=False)):
        middle = [bar.get_x() + bar.get_width() / 2 for bar in bars]
        draw_intervals(axes, middle, group)
        axes.plot(middle, group.paper.astype(float), ms=7, zorder=3, **DIAMOND)
        axes.plot(middle, [live.get((system, dataset)) for dataset in group.index], ms=9, zorder=4, **CIRCLE)
    if sample is not None:
        axes.plot([], [], ms=9, label="a sample, live", **CIRCLE | {"clip_on": True})
    if rows.paper.notna().any():
        axes.plot([], [], ms=7, label=THE_PAPER, **DIAMOND)
    label = f"accuracy, {metric} (%)" if metric else "share (%)"
    axes.set(xlabel="", ylabel=label, ylim=(0, 100))
    axes.set_title(title, pad=None if sample is None else 14)  # room for circles at 100 %
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return save_picture(figure, path)


def draw_intervals(axes: "Axes", x: list[float], rows: pd.DataFrame) -> None:
    """The intervals of a long table's rows."""
    span = [rows.value - rows.low, rows.high - rows.value]
    axes.errorbar(x, rows.value, span, fmt="none", ecolor=DARK, elinewidth=1.5, capsize=3)


def plot_retrieval(
    long: pd.DataFrame, title: str, path: Path, names: tuple[str, str] = ITERATIONS, measure: str = "answer"
) -> "Figure":
    """A panel a group of questions, two bars a retriever; the paper's search engines are diamonds of their own."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.8)
    rows = long[long.measure == measure]
    groups = rows.questions.unique()
    height = -(-len(groups) // 4)
    figure, panels = plt.subplots(
        height, 4, figsize=(16, 4.6 * height), sharey=True, squeeze=False, layout="constrained"
    )
    for axes in panels.flat[len(groups) :]:
        axes.remove()
    for axes, group in zip(panels.flat, groups):
        part = rows[rows.questions == group].reset_index(drop=True)
        _draw_panel(axes, part, names)
        axes.set(title=f"{group}, n = {part.n.min():.0f}", ylim=(0, 105))
        axes.set_xticks(part.index, part.retriever, rotation=45, ha="right", rotation_mode="anchor")
        axes.grid(axis="x", visible=False)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    figure.suptitle(title)
    figure.supylabel(f"{measure} in the top k (%)")
    return save_picture(figure, path)


def plot_clean_wording(long: pd.DataFrame, path: Path) -> "Figure":
    """The same without a model: what is found as asked and in clean wording."""
    return plot_retrieval(long, "As asked and in clean wording, no model", path, WORDINGS)


def _draw_panel(axes: "Axes", part: pd.DataFrame, names: tuple[str, str]) -> None:
    """One group of questions: what each retriever finds first and last."""
    ours, theirs = part[part.n.notna()], part[part.n.isna()]
    for shift, column, name, system in ((-0.2, "first", names[0], "CoV-RAG-S"), (0.2, "last", names[1], "CoV-RAG")):
        span = [ours[column] - ours[f"{column}_low"], ours[f"{column}_high"] - ours[column]]
        style = dict(color=palette()[system], ecolor=DARK, capsize=3)
        axes.bar(ours.index + shift, ours[column], 0.4, yerr=span, label=name, **style)
        label = "* the paper" if shift > 0 and len(theirs) else None
        axes.plot(theirs.index + shift, theirs[column], ms=7, label=label, **DIAMOND)


def plot_reliability(curve: pd.DataFrame, title: str, path: Path) -> "Figure":
    """How often answers are right against the correctness that the verifier expects; the dots' size tells how many."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.8)
    figure, axes = plt.subplots(figsize=(7, 6), layout="constrained")
    axes.plot([0, 100], [0, 100], color=OTHER, ls="--", lw=1.5, label="what it expects is what happens")
    draw_intervals(axes, curve.expected.tolist(), curve)
    sizes = 40 + 400 * curve.n / curve.n.sum()
    axes.scatter(curve.expected, curve.value, sizes, color=palette()["CoV-RAG"], zorder=3)
    for row in curve.itertuples():
        axes.annotate(f"n = {row.n}", (row.expected, row.value), xytext=(12, -4), textcoords="offset points")
    axes.set(title=title, xlim=(-2, 102), ylim=(-2, 102))
    axes.set(xlabel="expected correctness (%)", ylabel="answers that are right (%)")
    axes.legend(loc="upper left", frameon=False)
    return save_picture(figure, path)


def plot_knobs(effects: pd.DataFrame, path: Path) -> "Figure":
    """What each knob of the world does to retrieval, as asked and as revised: one small panel a knob."""
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="notebook", font_scale=1.1)
    share = "gold passage in the top k (%)"
    rows = effects.melt(["knob", "setting"], ["as asked", "revised"], "query", share)
    colours = {"as asked": palette()["RAG"], "revised": palette()["CoV-RAG"]}
    grid = sns.relplot(
        rows,
        x="setting",
        y=share,
        hue="query",
        style="query",
        col="knob",
        col_wrap=4,
        kind="line",
        markers=True,
        height=3,
        palette=colours,
        facet_kws={"sharex": False},
    )
    grid.set(ylim=(0, 105)).set_titles("{col_name}").set_axis_labels("share", "gold in top k (%)")
    return save_picture(grid.figure, path)


def plot_losses(losses: dict[str, pd.DataFrame], path: Path) -> "Figure":
    """The loss of each training over its steps, smoothed, task by task."""
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.8)
    rows = pd.concat([frame.assign(method=method) for method, frame in losses.items()])
    rows = rows.drop(columns="loss").melt(["method", "step"], ["loss_answer", "loss_verify"], "task", "loss").dropna()
    rows["loss"] = rows.groupby(["method", "task"]).loss.transform(_smooth)
    options = dict(kind="line", height=4.5, aspect=1.2, facet_kws={"sharey": False})
    grid = sns.relplot(rows, x="step", y="loss", hue="method", col="task", **options)
    grid.set(yscale="log").set_titles("{col_name}").set_axis_labels("step", "loss a target token (mean of 10 steps)")
    return save_picture(grid.figure, path)


def _smooth(losses: pd.Series) -> pd.Series:
    return losses.rolling(10, min_periods=1).mean()


def plot_composition(composition: pd.DataFrame, path: Path) -> "Figure":
    """What D2′ is made of (the paper's Figure 3): examples by origin, right and wrong, with and without a revision."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.8)
    rows = composition.assign(verdict=composition.judgment + ", " + composition.revision)
    table = rows.pivot_table(index="kind", columns="verdict", values="n", aggfunc="sum", fill_value=0)
    figure, axes = plt.subplots(figsize=(11, 4.5), layout="constrained")
    colours = {
        "true, not revised": palette()["CoV-RAG"],
        "false, revised": palette()["Start-Revise"],
        "false, not revised": palette()["closed-book"],
    }
    table.plot.barh(stacked=True, ax=axes, color=[colours.get(name, OTHER) for name in table.columns], width=0.7)
    axes.set(xlabel="examples", ylabel="", title="D2′ by origin and verdict")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return save_picture(figure, path)


def plot_ranks(long: pd.DataFrame, title: str, path: Path) -> "Figure":
    """Mean ranks and high-quality rates a criterion and system with their intervals, a row a judge; up is better."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.85)
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
        grid[0, 0].plot([], [], ms=7, label="the paper\n(by GPT-4)", **DIAMOND)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    figure.suptitle(title)
    return save_picture(figure, path)


def _draw_ranks(axes: "Axes", rows: pd.DataFrame, long: pd.DataFrame) -> None:
    """One measure: a place a criterion and, beside each other, the systems."""
    criteria = list(dict.fromkeys(long.criterion))
    systems = in_order(long.system.unique())
    for i, system in enumerate(systems):
        own = rows[rows.system == system]
        x = [criteria.index(name) + 0.17 * (i - (len(systems) - 1) / 2) for name in own.criterion]
        span = [own.value - own.low, own.high - own.value]
        axes.errorbar(x, own.value, span, fmt="o", ms=11, color=palette()[system], capsize=4, label=system)
        axes.plot(x, own.paper.astype(float), ms=7, zorder=3, **DIAMOND)
    axes.set_xticks(range(len(criteria)), [name.replace("_", "\n") for name in criteria])


def save_picture(figure: "Figure", path: Path) -> "Figure":
    """Write the picture, without the version that drew it: the same picture has the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return figure
