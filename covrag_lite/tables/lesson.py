"""What notebooks/lesson.ipynb shows a class, all from recorded predictions.

A verdict field by field, the rule σ for the second search, the judge, and which questions the
second search helps or hurts.
"""

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd

from covrag_lite.config import Config
from covrag_lite.labels import label_of
from covrag_lite.method import expect
from covrag_lite.records import SCORES, Prediction, Verdict
from covrag_lite.runs.recorded import choose, tell
from covrag_lite.systems import palette
from covrag_lite.tables import browse, method_picture, pictures, verifier
from covrag_lite.tables.accuracy import share
from covrag_lite.tables.verifier import judged_rows

RECORDS = {  # what "auto" means here: the runs of the shipped adapters on the fictional world
    "table2": "table2-smollm2-135m-h200",
    "sigma": "train-smollm2-135m-h200",
    "claim": "claim-smollm2-135m-h200",
}
ASKED = {  # what each score of the paper's Table 1 asks, in our words
    "reference_correctness": "do the passages contain an answer?",
    "correctness": "is the answer to the question correct?",
    "citation_accuracy": "do the marks [1] point to the right passages?",
    "truthfulness": "is the text free of contradictions and nonsense?",
    "bias": "how far from the judge's own answer? (0 is best)",
    "conciseness": "is it short and to the point?",
}
THRESHOLDS = np.arange(101) / 100
WIDTH, DPI = 900, 90  # of the slider and its figure, in pixels
JUDGE_COLUMNS = {  # of verifier.judge_table -> in the lesson
    "questions": "wording",
    "n": "answers",
    "right": "right (%)",
    "judge": "judge right (%)",
    "majority": "majority right (%)",
    "wording": "wording rule right (%)",
    "AUROC": "AUROC of the verdict",
}
LIKELIHOOD_COLUMNS = {
    "questions": "wording",
    "n": "answers",
    "AUROC": "AUROC of the verdict",
    "likelihood": "AUROC of the likelihood",
    "both": "AUROC of both together",
}
FAILURE_COLUMNS = {  # of verifier.failure_table -> in the lesson
    "questions": "obstacle",
    "n": "questions",
    "first": "right at first (%)",
    "revised": "searched again",
    "mended": "missed passage found",
    "last": "right at the end (%)",
    "gain": "gain (points)",
    "95 % interval": "95 % interval",
}


def load(config: Config, table: str = "table2") -> tuple[list[Prediction], pd.DataFrame]:
    """Load the recorded predictions of the lesson and their outcomes; print the run's name."""
    if config.run.record == "auto":
        config = config.change(record=RECORDS[table])
    run = choose(config, table=table)
    print(tell(run))
    return browse.load_recorded(run, config)


def read_verdict(verdict: Verdict) -> pd.DataFrame:
    """List a verdict field by field: what it asks, the value written, and the expected value.

    The expected value is the mean under the model's own probabilities.
    """
    rows = []
    for name in SCORES:
        expected = f"{expect(verdict, name):.2f}"
        rows.append((name, ASKED[name], f"{getattr(verdict, name):.2f}", expected))
    revised = verdict.revised_question or "(none)"
    rows.append(("judgment", "is the answer right?", verdict.judgment, ""))
    rows.append(("revised question", "what to search for instead?", revised, ""))
    table = pd.DataFrame(rows, columns=["field", "asks", "written", "expected"])
    return table.set_index(table.pop("field").str.replace("_", " "))


def show_method(predictions: Sequence[Prediction], config: Config) -> object:
    """Show the picture of the method: the shipped one, or a new one for another record."""
    from IPython.display import Image

    folder = config.folder()
    if config != Config():
        method_picture.build(predictions).save(folder)
    return Image(filename=folder / "method.png", width=WIDTH)


def accuracy_by_threshold(
    frame: pd.DataFrame,
    thresholds: Sequence[float] = THRESHOLDS,
) -> pd.DataFrame:
    """Return CoV-RAG's accuracy if it searches again only below a threshold, one row per threshold.

    The threshold is on the expected correctness of the first answer. The record has a second answer
    wherever there is a revised question, so no model is needed.
    """
    rows = judged_rows(frame, "CoV-RAG")
    below = rows.expected_correctness.to_numpy() < np.array(thresholds)[:, None]
    again = rows.revised.to_numpy(bool) & below  # (thresholds, questions)
    right = np.where(again, rows.normalised.to_numpy(bool), rows.right.to_numpy(bool))
    values = {"accuracy": 100 * right.mean(1), "searches": again.sum(1), "n": len(rows)}
    table = pd.DataFrame(values, index=pd.Index(thresholds, name="threshold"))
    return table.round({"accuracy": 1})


def draw_thresholds(frame: pd.DataFrame, threshold: float) -> "pictures.Figure":
    """Plot accuracy and number of second searches for all thresholds, and mark one of them."""
    plt, _ = pictures.style(0.9, "notebook")
    curves = accuracy_by_threshold(frame)
    (chosen,) = accuracy_by_threshold(frame, [threshold]).itertuples()
    baseline = frame[frame.system == "RAG trained"].normalised.astype(float).mean()  # may be NaN
    # Not a figure of pyplot: a notebook would show that one twice.
    figure = plt.Figure(figsize=(WIDTH / DPI, 3.6), dpi=DPI, layout="constrained")
    panels = figure.subplots(1, 2)
    labels = {"accuracy": "accuracy (%)", "searches": "questions searched again"}
    for axes, (name, label) in zip(panels, labels.items()):
        axes.plot(curves.index, curves[name], color=palette()["CoV-RAG"], lw=2)
        axes.plot(threshold, getattr(chosen, name), "o", ms=9, color=pictures.DARK)
        axes.set(xlabel="search again below this expected correctness")
        axes.set(ylabel=label, ylim=(0, None))
    name = "RAG trained"
    panels[0].axhline(100 * baseline, color=palette()[name], ls="--", lw=1.5, label=label_of(name))
    panels[0].legend(loc="lower right")
    result = f"{chosen.accuracy:.1f} % right, {chosen.searches} of {chosen.n} searched again"
    figure.suptitle(f"threshold {threshold:.2f}: {result}")
    return figure


def threshold_slider(frame: pd.DataFrame, threshold: float = 0.12) -> object:
    """Return a slider for the threshold with its figure below.

    Not `interact`: papermill may wait for its output without end.
    """
    from ipywidgets import FloatSlider, Image, Layout, VBox

    def draw(change: dict) -> None:
        file = io.BytesIO()
        draw_thresholds(frame, change["new"]).savefig(file, format="png", dpi=DPI)
        picture.value = file.getvalue()

    wide = Layout(width=f"{WIDTH}px")
    picture = Image(layout=wide)
    slider = FloatSlider(threshold, min=0, max=1, step=0.01, description="threshold", layout=wide)
    slider.observe(draw, "value")
    draw({"new": threshold})
    return VBox([slider, picture])


def compare_judges(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare the judge with simpler ones, one row per wording of the question."""
    return select(verifier.judge_table(frame), JUDGE_COLUMNS)


def compare_likelihood(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare the verdict with the answer's own likelihood, over all questions."""
    return select(verifier.judge_table(frame)[:1], LIKELIHOOD_COLUMNS)


def gain_by_obstacle(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what the second search gains, one row per obstacle of the fictional world."""
    return select(verifier.failure_table(frame), FAILURE_COLUMNS)


def select(table: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    """Return these columns under the names that the lesson uses; the first becomes the index."""
    chosen = table.filter(items=list(columns)).rename(columns=columns)
    return chosen.set_index(next(iter(columns.values())))


def reliability(frame: pd.DataFrame, system: str = "CoV-RAG") -> pd.DataFrame:
    """Return how many first answers are right, in %, one row per fifth of expected correctness."""
    rows = judged_rows(frame, system)
    bins = pd.cut(rows.expected_correctness, np.linspace(0, 1, 6), include_lowest=True)
    points = []
    for interval, part in rows.groupby(bins, observed=True):
        name = f"{max(interval.left, 0):.1f} to {interval.right:.1f}"
        expected = 100 * part.expected_correctness.mean()
        points.append((name, len(part), expected, *share(part.right)))
    columns = ["bin", "n", "expected", "value", "low", "high"]
    return pd.DataFrame(points, columns=columns).round(1)


def draw_reliability(curve: pd.DataFrame, guesses: Sequence[float] = ()) -> "pictures.Figure":
    """Plot the share of right answers next to a perfect judge, with the guesses of a class in %."""
    plt, _ = pictures.style(0.9, "notebook")
    colours = palette()
    axes = plt.Figure(figsize=(5.6, 4.6), layout="constrained").subplots()
    axes.plot([0, 100], [0, 100], "--", color=pictures.OTHER, label="a perfectly calibrated judge")
    label = "the recorded judge"
    axes.plot(curve.expected, curve.value, "o-", color=colours["CoV-RAG"], label=label)
    pictures.draw_intervals(axes, curve.expected.tolist(), curve)
    ticks = [f"{row.expected:.0f}\nn = {row.n}" for row in curve.itertuples()]
    axes.set_xticks(curve.expected, ticks)
    middles = range(10, 100, 20)  # of the bins
    label = "the guess of the class"
    axes.plot(middles[: len(guesses)], guesses, "s", color=colours["Start-Revise"], label=label)
    axes.set(xlabel="expected correctness (%)", ylabel="answers that are right (%)")
    axes.set(xlim=(0, 101), ylim=(0, 101))
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.22), frameon=False)
    return axes.figure
