"""The training data D1 and D2′ (the paper's Figure 3): counts by verdict, and two pictures."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from covrag_lite.config import ROOT
from covrag_lite.systems import names, palette
from covrag_lite.tables import pictures
from covrag_lite.tables.table import Table
from covrag_lite.tables.training_losses import load_losses, plot_losses

if TYPE_CHECKING:
    from covrag_lite.oracle import Example

# The recorded training data of the 1.5B model (seed 1); the manifests have the other counts.
TRAINING_RUN = ROOT / "results" / "real" / "qwen2.5-coder-1.5b" / "seed-1"
N_QUESTIONS = 10_540  # of D: results/real/plan.md
N_CROSSED = 746  # crossed answers in D2′: results/real/plan.md

# The picture, in inches.
WIDTH = 12.4
HEIGHT = 6.1
LEFT = 1.3  # of all bars
BARS_WIDTH = 10.6  # of all our samples together
BAR_HEIGHT = 0.62
RED = "#b8433f"  # of verdicts that say "false"
CHOSEN_ANSWERS = "gold answers to learn, mostly\nwhere the five passages\ncontain the answer"
CHOSEN_VERDICTS = (
    "two seed models: each answers the half of D\n"
    "that it was not trained on; gold answers decide;\n"
    "equal numbers of “true” and “false” are kept"
)


def build() -> Table:
    """Build the committed figures of training: the training data and the losses."""
    plots = {
        "data.png": partial(draw_training_data, count_training_data()),
        "losses.png": partial(plot_losses, load_losses()),
    }
    return Table("training", pd.DataFrame(), plots=plots)


def count_examples(examples: Sequence["Example"]) -> pd.DataFrame:
    """Count the examples of D2′ by origin, judgment and revision."""
    columns = ["kind", "judgment", "revision"]
    rows = []
    for example in examples:
        if example.verdict.revised_question:
            revision = "revised"
        elif example.lacks_revision:
            revision = "unknown"
        else:
            revision = "not revised"
        rows.append((example.kind, example.verdict.judgment, revision))
    counts = pd.DataFrame(rows, columns=columns).value_counts().rename("n").reset_index()
    return counts.sort_values(columns, ignore_index=True)


def plot_examples(counts: pd.DataFrame, path: Path) -> "pictures.Figure":
    """Plot the examples of D2′ by origin, judgment and revision."""
    plt, _ = pictures.style(0.8)
    rows = counts.assign(verdict=counts.judgment + ", " + counts.revision)
    table = rows.pivot_table("n", "kind", "verdict", aggfunc="sum", fill_value=0)
    figure, axes = plt.subplots(figsize=(11, 4.5), layout="constrained")
    table.plot.barh(stacked=True, ax=axes, width=0.7)
    axes.set(xlabel="examples", ylabel="", title="D2′ by origin and verdict")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return pictures.save_picture(figure, path)


def count_training_data(run: Path = TRAINING_RUN) -> dict[str, int]:
    """Return the recorded sizes of D, D1 and D2′; half of the verdicts are "true"."""
    samples = {}
    for adapter in ("rag", "cov"):
        manifest = json.loads((run / f"train.{adapter}.json").read_text())
        samples[adapter] = manifest["data"]["samples"]["n"]
    verdicts = samples["cov"] - samples["rag"]
    return {
        "questions": N_QUESTIONS,
        "answers": samples["rag"],
        "verdicts": verdicts,
        "true": verdicts // 2,  # `synthesis.balance` keeps equal numbers of both judgments
        "false": verdicts - verdicts // 2,
        "crossed": N_CROSSED,
        "together": samples["cov"],
    }


class Canvas:
    """A picture without axes, on which bars have the width of their number of samples."""

    def __init__(self, n_samples: int):
        self.plt, _ = pictures.style(1, "notebook")
        self.figure = self.plt.figure(figsize=(WIDTH, HEIGHT))
        limits = {"xlim": (0, WIDTH), "ylim": (0, HEIGHT)}
        self.axes = self.figure.add_axes((0, 0, 1, 1), frame_on=False, **limits)
        self.axes.set(xticks=[], yticks=[])
        self.inches_per_sample = BARS_WIDTH / n_samples

    def x_of(self, n: float) -> float:
        """Return the place of the end of this many samples."""
        return LEFT + self.inches_per_sample * n

    def draw_bar(
        self, start: float, n: float, y: float, colour: str, text: str, **look: object
    ) -> float:
        """Draw a bar of n samples with a text in its middle; return the number at its end."""
        x = self.x_of(start)
        width = self.inches_per_sample * n
        look = dict(fc=colour, ec="white", lw=2.5) | look
        self.axes.add_patch(self.plt.Rectangle((x, y), width, BAR_HEIGHT, **look))
        centred = dict(ha="center", va="center", size=13, color="white", weight="bold")
        self.axes.text(x + width / 2, y + BAR_HEIGHT / 2, text, **centred)
        return start + n

    def write(self, x: float, y: float, text: str, **look: object) -> None:
        """Write a text whose middle is at this height."""
        self.axes.text(x, y, text, **dict(va="center", size=12.5, linespacing=1.25) | look)

    def draw_arrow(self, start: tuple, end: tuple, **look: object) -> None:
        """Draw an arrow."""
        arrow = dict(lw=2, color=pictures.DARK) | look
        self.axes.annotate("", end, start, arrowprops=arrow)


def draw_training_data(counts: Mapping[str, int], path: Path) -> "pictures.Figure":
    """Draw how D becomes D1 and D2′, in the paper and here; bars are in proportion."""
    canvas = Canvas(counts["together"])
    title = "Training data: from D to D1 and D2′"
    canvas.axes.text(0.15, 5.8, title, va="center", size=17, weight="bold")
    draw_papers_data(canvas, counts)
    canvas.axes.axhline(3.92, 0.012, 0.988, color="#bbbbbb", lw=1)
    draw_our_data(canvas, counts)
    draw_adapters(canvas, counts)
    return pictures.save_picture(canvas.figure, path)


def draw_papers_data(canvas: Canvas, counts: Mapping[str, int]) -> None:
    """Draw the paper's data, with a D as large as ours: half of it answers, half verdicts."""
    total = counts["questions"]
    canvas.write(0.15, 5.26, "the paper", weight="bold")
    canvas.draw_bar(0, total, 4.95, pictures.OTHER, "D: questions of WebGLM-QA")
    blue = palette()[names.RAG_TRAINED]
    green = palette()[names.COV_RAG]
    middle = canvas.draw_bar(0, total / 2, 4.2, blue, "D1: answers")
    canvas.draw_bar(middle, total / 2, 4.2, green, "D2′: verdicts, true or false")
    note = "D1 + D2′ is\nas large as D"
    canvas.write(canvas.x_of(total) + 0.15, 4.51, note, color=pictures.DARK)


def draw_our_data(canvas: Canvas, counts: Mapping[str, int]) -> None:
    """Draw our data: D above, D1 and D2′ below, and how their samples were chosen."""
    answers = counts["answers"]
    canvas.write(0.15, 3.51, "ours", weight="bold")
    canvas.write(0.15, 2.9, "1.5B model,\nseed 1")
    text = f"D: {counts['questions']:,} questions of six data sets"
    canvas.draw_bar(0, counts["questions"], 3.2, pictures.OTHER, text)
    for n, text in ((0, CHOSEN_ANSWERS), (answers, CHOSEN_VERDICTS)):
        x = canvas.x_of(n) + 0.45
        canvas.draw_arrow((x, 3.18), (x, 2.0), arrowstyle="-|>", mutation_scale=18)
        canvas.write(x + 0.2, 2.6, text)
    blue = palette()[names.RAG_TRAINED]
    green = palette()[names.COV_RAG]
    not_crossed = counts["false"] - counts["crossed"]
    end = canvas.draw_bar(0, answers, 1.36, blue, f"D1: {answers:,} answers")
    end = canvas.draw_bar(end, counts["true"], 1.36, green, f"D2′: {counts['true']:,} × “true”")
    end = canvas.draw_bar(end, not_crossed, 1.36, RED, f"D2′: {counts['false']:,} × “false”")
    canvas.draw_bar(end, counts["crossed"], 1.36, RED, "", hatch="///")
    note = f"hatched: {counts['crossed']:,} wrong answers next to passages with the right one"
    canvas.write(canvas.x_of(counts["together"]), 1.12, note, ha="right", color=pictures.DARK)


def draw_adapters(canvas: Canvas, counts: Mapping[str, int]) -> None:
    """Draw which samples each adapter learns."""
    of_rag = f"adapter rag learns D1: {counts['answers']:,} samples"
    of_cov = f"adapter cov learns D1 + D2′: {counts['together']:,} samples"
    box = dict(fc="white", ec="none", pad=3)
    ends = dict(arrowstyle="|-|,widthA=0.3,widthB=0.3", lw=1.5, shrinkA=0, shrinkB=0)
    for n, y, text in ((counts["answers"], 0.78, of_rag), (counts["together"], 0.3, of_cov)):
        canvas.draw_arrow((LEFT, y), (canvas.x_of(n), y), **ends)
        canvas.write(canvas.x_of(n / 2), y, text, ha="center", bbox=box)
