"""One visual language for all pictures: a colour a system, intervals on every value, the paper's values as diamonds."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:  # other modules name these types by this one
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from covrag_lite.synthesis import Example

OTHER = "#777777"  # the colour of what has none of its own
DARK = "#333333"  # of intervals
DIAMOND = dict(marker="D", ls="none", mfc="white", mec="black")  # a value of the paper
THE_PAPER = "the paper (larger models,\nweb search)"


def style(font_scale: float = 1, context: str = "talk") -> tuple[ModuleType, ModuleType]:
    """matplotlib.pyplot and seaborn, loaded where a picture is drawn, in the style of all pictures."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context=context, font_scale=font_scale)
    return plt, sns


def draw_intervals(axes: "Axes", x: list[float], rows: pd.DataFrame) -> None:
    """The intervals of a long table's rows."""
    span = [rows.value - rows.low, rows.high - rows.value]
    axes.errorbar(x, rows.value, span, fmt="none", ecolor=DARK, elinewidth=1.5, capsize=3)


def plot_losses(losses: dict[str, pd.DataFrame], path: Path) -> "Figure":
    """The loss of each training over its steps, smoothed, task by task."""
    _, sns = style(0.8)
    rows = pd.concat([frame.assign(method=method) for method, frame in losses.items()])
    rows = rows.drop(columns="loss").melt(["method", "step"], ["loss_answer", "loss_verify"], "task", "loss").dropna()
    rows["loss"] = rows.groupby(["method", "task"]).loss.transform(lambda one: one.rolling(10, min_periods=1).mean())
    options = dict(kind="line", height=4.5, aspect=1.2, facet_kws={"sharey": False})
    grid = sns.relplot(rows, x="step", y="loss", hue="method", col="task", **options)
    grid.set(yscale="log").set_titles("{col_name}").set_axis_labels("step", "loss a target token (mean of 10 steps)")
    return save_picture(grid.figure, path)


def composition(examples: Sequence["Example"]) -> pd.DataFrame:
    """What D2′ is made of (Figure 3): examples by origin, judgment and revision."""
    columns = ["kind", "judgment", "revision"]
    rows = []
    for one in examples:
        revision = "revised" if one.verdict.revised_question else "not known" if one.lacks_revision else "not revised"
        rows.append((one.kind, one.verdict.judgment, revision))
    counts = pd.DataFrame(rows, columns=columns).value_counts().rename("n").reset_index()
    return counts.sort_values(columns, ignore_index=True)


def plot_composition(composition: pd.DataFrame, path: Path) -> "Figure":
    """What D2′ is made of (the paper's Figure 3): examples by origin, right and wrong, with and without a revision."""
    plt, _ = style(0.8)
    rows = composition.assign(verdict=composition.judgment + ", " + composition.revision)
    table = rows.pivot_table(index="kind", columns="verdict", values="n", aggfunc="sum", fill_value=0)
    figure, axes = plt.subplots(figsize=(11, 4.5), layout="constrained")
    table.plot.barh(stacked=True, ax=axes, width=0.7)
    axes.set(xlabel="examples", ylabel="", title="D2′ by origin and verdict")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return save_picture(figure, path)


def save_picture(figure: "Figure", path: Path) -> "Figure":
    """Write the picture, without the version that drew it (the same picture has the same bytes), in 256 colours."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    drawn = Image.open(path).convert("RGB")
    drawn.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)  # a third of the bytes
    return figure
