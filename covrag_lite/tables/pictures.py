"""One style for all figures: one colour per system, intervals on values, the paper as diamonds.

Also the figures of training: the training data D1 and D2′ (the paper's Figure 3) and the losses.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pandas as pd

from covrag_lite.config import ROOT
from covrag_lite.labels import label_of
from covrag_lite.systems import palette
from covrag_lite.tables import Table

if TYPE_CHECKING:  # other modules refer to these types through this one
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from covrag_lite.synthesis import Example

OTHER = "#777777"  # the colour of everything that is not a system
DARK = "#333333"  # the colour of intervals
DIAMOND = dict(marker="D", ls="none", mfc="white", mec="black")  # a value of the paper
THE_PAPER = "the paper (larger models,\nweb search)"
ADAPTERS = {  # an adapter -> the system that shows its label and colour
    "rag": "RAG trained",
    "cov": "CoV-RAG",
    "cov-direct": "CoV-RAG w/o chain",
    "rewrite": "Start-Revise trained",
}
TASKS = {"loss_answer": "answers: loss L_RAG", "loss_verify": "verdicts: loss L_CoV"}
SMOOTHED = 25  # steps of a moving average

# The recorded training data of the 1.5B model (seed 1); the manifests have the other counts.
TRAINING_RUN = ROOT / "results" / "real" / "qwen2.5-coder-1.5b" / "seed-1"
LOSS_RUN = ROOT / "results" / "real" / "qwen2.5-coder-1.5b" / "seed-3"  # has the losses of all four
N_QUESTIONS, N_CROSSED = 10_540, 746  # of D, and crossed answers in D2′: results/real/plan.md


def style(font_scale: float = 1, context: str = "talk") -> tuple[ModuleType, ModuleType]:
    """Import matplotlib.pyplot and seaborn, set the style of all figures, and return both."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context=context, font_scale=font_scale)
    return plt, sns


def draw_intervals(axes: "Axes", x: list[float], rows: pd.DataFrame) -> None:
    """Draw the intervals of the rows of a long table."""
    span = [rows.value - rows.low, rows.high - rows.value]
    axes.errorbar(x, rows.value, span, fmt="none", ecolor=DARK, elinewidth=1.5, capsize=3)


def load_losses(run: Path = LOSS_RUN) -> dict[str, pd.DataFrame]:
    """Load the recorded losses of a run, one frame per adapter."""
    files = {adapter: run / f"train.{adapter}.losses.csv" for adapter in ADAPTERS}
    return {adapter: pd.read_csv(file) for adapter, file in files.items() if file.exists()}


def summarise_losses(losses: Mapping[str, pd.DataFrame], last: int = 50) -> pd.DataFrame:
    """Return one row per adapter: steps, tokens, first losses and the mean of the last ones."""
    rows = {}
    for adapter, frame in losses.items():
        row = {"steps": len(frame), "tokens (millions)": round(frame.tokens.sum() / 1e6, 1)}
        for name, task in (("loss_answer", "answers"), ("loss_verify", "verdicts")):
            has_task = frame[name].notna().any()
            ends = frame[name].iloc[0], frame[name].iloc[-last:].mean()
            texts = [f"{loss:.2f}" for loss in ends] if has_task else ["–", "–"]
            row[f"{task}: first loss"], row[f"{task}: last {last}"] = texts
        rows[label_of_adapter(adapter)] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("adapter")


def label_of_adapter(adapter: str) -> str:
    """Return the label of an adapter, such as "cov: CoV-RAG"; seed models keep their names."""
    return f"{adapter}: {label_of(ADAPTERS[adapter])}" if adapter in ADAPTERS else adapter


def plot_losses(losses: Mapping[str, pd.DataFrame], path: Path) -> "Figure":
    """Plot the loss of each adapter by step, smoothed, with one panel per task."""
    plt, _ = style(0.7)
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    tasks = [name for name in TASKS if any(f[name].notna().any() for f in losses.values())]
    size = (5.6 * len(tasks), 4.2)
    figure, panels = plt.subplots(1, len(tasks), figsize=size, squeeze=False, layout="constrained")
    colours = palette()
    for axes, task in zip(panels[0], tasks):
        for adapter, frame in losses.items():
            rows = frame[frame[task].notna()]
            if rows.empty:
                continue
            smooth = rows[task].rolling(SMOOTHED, min_periods=1).mean()
            look = {"color": colours[ADAPTERS[adapter]]} if adapter in ADAPTERS else {"ls": ":"}
            axes.plot(rows.step, smooth, lw=2, label=label_of_adapter(adapter), **look)
        axes.set(yscale="log", xlabel="step", title=TASKS[task])
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.legend(frameon=False)
    panels[0][0].set_ylabel(f"loss per target token\n(mean of {SMOOTHED} steps)")
    return save_picture(figure, path)


def composition(examples: Sequence["Example"]) -> pd.DataFrame:
    """Count the examples of D2′ by origin, judgment and revision (the paper's Figure 3)."""
    columns = ["kind", "judgment", "revision"]
    rows = []
    for example in examples:
        revision = "unknown" if example.lacks_revision else "not revised"
        revision = "revised" if example.verdict.revised_question else revision
        rows.append((example.kind, example.verdict.judgment, revision))
    counts = pd.DataFrame(rows, columns=columns).value_counts().rename("n").reset_index()
    return counts.sort_values(columns, ignore_index=True)


def plot_composition(composition: pd.DataFrame, path: Path) -> "Figure":
    """Plot the composition of D2′: examples by origin, judgment and revision."""
    plt, _ = style(0.8)
    rows = composition.assign(verdict=composition.judgment + ", " + composition.revision)
    table = rows.pivot_table("n", "kind", "verdict", aggfunc="sum", fill_value=0)
    figure, axes = plt.subplots(figsize=(11, 4.5), layout="constrained")
    table.plot.barh(stacked=True, ax=axes, width=0.7)
    axes.set(xlabel="examples", ylabel="", title="D2′ by origin and verdict")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return save_picture(figure, path)


def count_training_data(run: Path = TRAINING_RUN) -> dict[str, int]:
    """Return the recorded sizes of D, D1 and D2′; half of the verdicts are "true"."""
    samples = {}
    for name in ("rag", "cov"):
        manifest = json.loads((run / f"train.{name}.json").read_text())
        samples[name] = manifest["data"]["samples"]["n"]
    verdicts = samples["cov"] - samples["rag"]
    return {
        "questions": N_QUESTIONS,
        "answers": samples["rag"],
        "verdicts": verdicts,
        "true": verdicts // 2,  # `synthesis.balance` keeps as many of one as of the other
        "false": verdicts - verdicts // 2,
        "crossed": N_CROSSED,
        "together": samples["cov"],
    }


def draw_training_data(counts: Mapping[str, int], path: Path) -> "Figure":
    """Draw how D becomes D1 and D2′, in the paper and here; bars are in proportion."""
    plt, _ = style(1, "notebook")
    figure = plt.figure(figsize=(12.4, 6.1))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 12.4), ylim=(0, 6.1), frame_on=False)
    axes.set(xticks=[], yticks=[])
    left, unit = 1.3, 10.6 / counts["together"]  # inches per sample
    blue, green, red = palette()["RAG trained"], palette()["CoV-RAG"], "#b8433f"

    def bar(start: float, n: float, y: float, colour: str, text: str, **look: object) -> float:
        x, width = left + unit * start, unit * n
        box = plt.Rectangle((x, y), width, 0.62, fc=colour, ec="white", lw=2.5, **look)
        axes.add_patch(box)
        middle = (x + width / 2, y + 0.31)
        axes.text(*middle, text, ha="center", va="center", size=13, color="white", weight="bold")
        return start + n

    def write(x: float, y: float, text: str, **look: object) -> None:
        axes.text(x, y, text, va="center", size=12.5, linespacing=1.25, **look)

    whole = counts["questions"]
    axes.text(0.15, 5.8, "Training data: from D to D1 and D2′", va="center", size=17, weight="bold")
    write(0.15, 5.26, "the paper", weight="bold")
    bar(0, whole, 4.95, OTHER, "D: questions of WebGLM-QA")
    middle = bar(0, whole / 2, 4.2, blue, "D1: answers")
    bar(middle, whole / 2, 4.2, green, "D2′: verdicts, true or false")
    note = "D1 + D2′ is\nas large as D"
    write(left + unit * whole + 0.15, 4.51, note, color=DARK)
    axes.axhline(3.92, 0.012, 0.988, color="#bbbbbb", lw=1)

    write(0.15, 3.51, "ours", weight="bold")
    write(0.15, 2.9, "1.5B model,\nseed 1")
    bar(0, whole, 3.2, OTHER, f"D: {whole:,} questions of six data sets")
    answers = counts["answers"]
    arrow = dict(arrowstyle="-|>", lw=2, color=DARK, mutation_scale=18)
    places = left + 0.45, left + unit * answers + 0.45
    texts = (
        "gold answers to learn, mostly\nwhere the five passages\ncontain the answer",
        "two seed models: each answers the half of D\n"
        "that it was not trained on; gold answers decide;\n"
        "equal numbers of “true” and “false” are kept",
    )
    for x, text in zip(places, texts):
        axes.annotate("", (x, 2.0), (x, 3.18), arrowprops=arrow)
        write(x + 0.2, 2.6, text)
    middle = bar(0, answers, 1.36, blue, f"D1: {answers:,} answers")
    middle = bar(middle, counts["true"], 1.36, green, f"D2′: {counts['true']:,} × “true”")
    plain = counts["false"] - counts["crossed"]
    middle = bar(middle, plain, 1.36, red, f"D2′: {counts['false']:,} × “false”")
    bar(middle, counts["crossed"], 1.36, red, "", hatch="///")
    crossed = f"hatched: {counts['crossed']:,} wrong answers next to passages with the right one"
    write(left + unit * counts["together"], 1.12, crossed, ha="right", color=DARK)
    for end, y, text in (
        (answers, 0.78, f"adapter rag learns D1: {answers:,} samples"),
        (counts["together"], 0.3, f"adapter cov learns D1 + D2′: {counts['together']:,} samples"),
    ):
        ends = dict(arrowstyle="|-|,widthA=0.3,widthB=0.3", lw=1.5, color=DARK)
        ends |= dict(shrinkA=0, shrinkB=0)
        axes.annotate("", (left + unit * end, y), (left, y), arrowprops=ends)
        write(left + unit * end / 2, y, text, ha="center", bbox=dict(fc="white", ec="none", pad=3))
    return save_picture(figure, path)


def build_training() -> Table:
    """Build the committed figures of training: the training data and the losses."""
    plots = {
        "data.png": partial(draw_training_data, count_training_data()),
        "losses.png": partial(plot_losses, load_losses()),
    }
    return Table("training", pd.DataFrame(), plots=plots)


def save_picture(figure: "Figure", path: Path) -> "Figure":
    """Save a figure in 256 colours, without a version, so that equal figures have equal bytes."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    image = Image.open(path).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)  # a third of the bytes
    return figure
