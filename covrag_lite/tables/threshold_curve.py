"""The rule σ with a threshold: accuracy and second searches for each, as a figure with a slider."""

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd

from covrag_lite.systems import palette
from covrag_lite.systems.names import COV_RAG, RAG_TRAINED
from covrag_lite.tables import pictures
from covrag_lite.tables.labels import label_of
from covrag_lite.tables.verifier import judged_rows

THRESHOLDS = np.arange(101) / 100
WIDTH = 900  # of the slider and its figure, in pixels
DPI = 90
AXIS_LABELS = {"accuracy": "accuracy (%)", "searches": "questions searched again"}


def accuracy_by_threshold(
    frame: pd.DataFrame, thresholds: Sequence[float] = THRESHOLDS
) -> pd.DataFrame:
    """Return CoV-RAG's accuracy if it searches again only below a threshold, one row per threshold.

    The threshold is on the expected correctness of the first answer. The record has a second answer
    wherever there is a revised question, so no model is needed.
    """
    rows = judged_rows(frame, COV_RAG)
    is_below = rows.expected_correctness.to_numpy() < np.array(thresholds)[:, None]
    again = rows.revised.to_numpy(bool) & is_below  # (thresholds, questions)
    right = np.where(again, rows.normalised.to_numpy(bool), rows.right.to_numpy(bool))
    values = {"accuracy": 100 * right.mean(1), "searches": again.sum(1), "n": len(rows)}
    table = pd.DataFrame(values, index=pd.Index(thresholds, name="threshold"))
    return table.round({"accuracy": 1})


def draw_thresholds(frame: pd.DataFrame, threshold: float) -> "pictures.Figure":
    """Plot accuracy and number of second searches for all thresholds, and mark one of them."""
    plt, _ = pictures.style(0.9, "notebook")
    curves = accuracy_by_threshold(frame)
    (chosen,) = accuracy_by_threshold(frame, [threshold]).itertuples()
    # Not a figure of pyplot: a notebook would show that one twice.
    figure = plt.Figure(figsize=(WIDTH / DPI, 3.6), dpi=DPI, layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, (name, label) in zip(panels, AXIS_LABELS.items()):
        axes.plot(curves.index, curves[name], color=palette()[COV_RAG], lw=2)
        axes.plot(threshold, getattr(chosen, name), "o", ms=9, color=pictures.DARK)
        axes.set(xlabel="search again below this expected correctness")
        axes.set(ylabel=label, ylim=(0, None))
    baseline = frame[frame.system == RAG_TRAINED].normalised.astype(float).mean()  # may be NaN
    look = dict(color=palette()[RAG_TRAINED], ls="--", lw=1.5)
    panels[0].axhline(100 * baseline, label=label_of(RAG_TRAINED), **look)
    panels[0].legend(loc="lower right")
    result = f"{chosen.accuracy:.1f} % right, {chosen.searches} of {chosen.n} searched again"
    figure.suptitle(f"threshold {threshold:.2f}: {result}")
    return figure


def build_slider(frame: pd.DataFrame, threshold: float = 0.12) -> object:
    """Return a slider for the threshold with its figure below; both open with a click.

    Not `interact`: papermill may wait for its output without end.
    """
    from ipywidgets import Accordion, FloatSlider, Image, Layout, VBox

    from covrag_lite.tables.display import GUESS_FIRST

    def draw(change: dict) -> None:
        file = io.BytesIO()
        draw_thresholds(frame, change["new"]).savefig(file, format="png", dpi=DPI)
        picture.value = file.getvalue()

    layout = Layout(width=f"{WIDTH}px")
    picture = Image(layout=layout)
    slider = FloatSlider(threshold, min=0, max=1, step=0.01, description="threshold", layout=layout)
    slider.observe(draw, "value")
    draw({"new": threshold})
    return Accordion([VBox([slider, picture])], titles=[GUESS_FIRST], selected_index=None)
