"""One visual language for every picture: a colour a system, intervals on every value, the paper's values as white diamonds.

Made from the long tables of `tables` and `ranking`; the pictures of `retrieval` and `speed.report` are saved here too.
"""

from pathlib import Path

import pandas as pd

from covrag_lite.report.tables import FIGURE4, NAMES, PALETTE


def plot_accuracy(long: pd.DataFrame, title: str, path: Path, metric: str | None = "normalised"):
    """Bars a system and set with their intervals, and the paper's values as diamonds; for None a group a metric."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk")
    rows = long[long.metric == metric] if metric else long.assign(dataset=long.metric)
    rows = rows.assign(dataset=rows.dataset.map(lambda name: NAMES.get(name, name)))
    figure, axes = plt.subplots(figsize=(13, 6.5), layout="constrained")
    sns.barplot(
        rows,
        x="dataset",
        y="value",
        hue="system",
        palette={s: PALETTE.get(s, "#777777") for s in rows.system.unique()},
        errorbar=None,
        ax=axes,
    )
    for bars, (_, group) in zip(axes.containers, rows.groupby("system", sort=False)):
        middle = [bar.get_x() + bar.get_width() / 2 for bar in bars]
        axes.errorbar(
            middle,
            group.value,
            [group.value - group.low, group.high - group.value],
            fmt="none",
            ecolor="#333333",
            elinewidth=1.5,
            capsize=3,
        )
        known = [
            (x, paper) for x, paper in zip(middle, group.paper) if paper == paper
        ]  # not NaN: the paper has that cell
        axes.plot(*zip(*known, strict=True) if known else ([], []), "D", ms=7, mfc="white", mec="black", zorder=3)
    axes.plot(
        [],
        [],
        "D",
        ms=7,
        mfc="white",
        mec="black",
        label="the paper (larger models,\nreal sets, web search)",
        ls="none",
    )
    axes.set(title=title, xlabel="", ylabel=f"accuracy, {metric} (%)" if metric else "share (%)", ylim=(0, 100))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return save_picture(figure, path)


def plot_backbones(long: pd.DataFrame, path: Path):
    """Figure 4: the three systems' average on each backbone that was run, with intervals, and the paper's backbones as diamonds."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.8)
    ours, systems = list(dict.fromkeys(long.backbone)), ("RAG trained", "CoV-RAG-S", "CoV-RAG")
    figure, axes = plt.subplots(figsize=(4 + 1.75 * (len(ours) + len(FIGURE4)), 5.5), layout="constrained")
    for i, system in enumerate(systems):
        rows = long[long.system == system]
        x = [ours.index(name) + 0.27 * (i - 1) for name in rows.backbone]
        axes.bar(x, rows.value, 0.25, color=PALETTE[system], label=system)
        axes.errorbar(
            x,
            rows.value,
            [rows.value - rows.low, rows.high - rows.value],
            fmt="none",
            ecolor="#333333",
            elinewidth=1.5,
            capsize=3,
        )
        known = [
            (len(ours) + j + 0.27 * (i - 1), values[system])
            for j, values in enumerate(FIGURE4.values())
            if system in values
        ]
        axes.plot(*zip(*known) if known else ([], []), "D", ms=9, mfc="white", mec=PALETTE[system], mew=2.5)
    axes.plot(
        [], [], "D", ms=9, mfc="white", mec="black", mew=2.5, ls="none", label="the paper (real sets,\nweb search)"
    )
    labels = [
        *(name.replace(", ", "\n") + f"\nours, n = {long[long.backbone == name].n.max()}" for name in ours),
        *(f"{name}\nthe paper" for name in FIGURE4),
    ]
    axes.set(
        xticks=range(len(labels)),
        xticklabels=labels,
        ylabel="average accuracy, normalised (%)",
        ylim=(0, 100),
        title="Figure 4: one recipe, several backbones",
    )
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return save_picture(figure, path)


def plot_knobs(effects: pd.DataFrame, path: Path):
    """What each knob of the world does to retrieval, as asked and in clean wording: one small panel a knob."""
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="notebook", font_scale=1.1)
    share = "gold passage in the top k (%)"
    rows = effects.melt(["knob", "setting"], ["as asked", "clean wording"], "query", share)
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
        palette={"as asked": PALETTE["RAG"], "clean wording": PALETTE["CoV-RAG"]},
        facet_kws={"sharex": False},
    )
    grid.set(ylim=(0, 105)).set_titles("{col_name}").set_axis_labels("share", "gold in top k (%)")
    return save_picture(grid.figure, path)


def plot_losses(losses: dict[str, pd.DataFrame], path: Path):
    """The loss of each training over its steps, smoothed, task by task."""
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.8)
    rows = pd.concat([frame.assign(method=method) for method, frame in losses.items()])
    rows = rows.drop(columns="loss").melt(["method", "step"], ["loss_answer", "loss_verify"], "task", "loss").dropna()
    rows["loss"] = rows.groupby(["method", "task"]).loss.transform(
        lambda values: values.rolling(10, min_periods=1).mean()
    )
    grid = sns.relplot(
        rows,
        x="step",
        y="loss",
        hue="method",
        col="task",
        kind="line",
        height=4.5,
        aspect=1.2,
        facet_kws={"sharey": False},
    )
    grid.set(yscale="log").set_titles("{col_name}").set_axis_labels("step", "loss a target token (mean of 10 steps)")
    return save_picture(grid.figure, path)


def plot_composition(composition: pd.DataFrame, path: Path):
    """What D2′ is made of (the paper's Figure 3): examples by origin, right and wrong, with and without a revision."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.8)
    rows = composition.assign(verdict=composition.judgment + ", " + composition.revision)
    table = rows.pivot_table(index="kind", columns="verdict", values="n", aggfunc="sum", fill_value=0)
    figure, axes = plt.subplots(figsize=(11, 4.5), layout="constrained")
    colours = {
        "true, not revised": PALETTE["CoV-RAG"],
        "false, revised": PALETTE["Start-Revise"],
        "false, not revised": PALETTE["closed-book"],
    }
    table.plot.barh(stacked=True, ax=axes, color=[colours.get(name, "#777777") for name in table.columns], width=0.7)
    axes.set(xlabel="examples", ylabel="", title="D2′ by origin and verdict")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return save_picture(figure, path)


def plot_ranks(long: pd.DataFrame, title: str, path: Path):
    """Mean ranks and high-quality rates a criterion and system with their intervals, a row a judge, up is better; the paper's ranks as diamonds."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.85)
    judges, systems = list(dict.fromkeys(long.judge)), sorted(long.system.unique(), key=list(PALETTE).index)
    criteria = list(dict.fromkeys(long.criterion))
    figure, grid = plt.subplots(len(judges), 2, figsize=(19, 5.5 * len(judges)), layout="constrained", squeeze=False)
    for axes, judge in zip(grid, judges):
        for one, measure in zip(axes, ("rank", "high quality")):
            for i, system in enumerate(systems):
                rows = long[(long.judge == judge) & (long.measure == measure) & (long.system == system)]
                x = [criteria.index(name) + 0.17 * (i - (len(systems) - 1) / 2) for name in rows.criterion]
                one.errorbar(
                    x,
                    rows.value,
                    [rows.value - rows.low, rows.high - rows.value],
                    fmt="o",
                    ms=11,
                    color=PALETTE.get(system, "#777777"),
                    capsize=4,
                    label=system,
                )
                one.plot(x, rows.paper.astype(float), "D", ms=7, mfc="white", mec="black", zorder=3)
            one.set(
                title=f"{judge}: {measure}",
                ylabel="mean rank, 1 is best" if measure == "rank" else "high-quality answers (%)",
            )
            one.set_xticks(range(len(criteria)), [name.replace("_", "\n") for name in criteria])
        axes[0].invert_yaxis()
        axes[1].set_ylim(-4, 104)
    grid[0, 0].plot([], [], "D", ms=7, mfc="white", mec="black", label="the paper\n(by GPT-4)", ls="none")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    figure.suptitle(title)
    return save_picture(figure, path)


def save_picture(figure, path: Path):
    """Write the picture, without the version that drew it: the same picture has the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return figure
