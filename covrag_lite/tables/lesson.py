"""What notebooks/lesson.ipynb shows a class from recorded predictions: a verdict, σ, the judge, helped and hurt."""

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd

from covrag_lite.config import Config
from covrag_lite.method import expect
from covrag_lite.records import SCORES, Prediction, Verdict
from covrag_lite.runs.recorded import choose, tell
from covrag_lite.systems import palette
from covrag_lite.tables import browse, pictures
from covrag_lite.tables.accuracy import share
from covrag_lite.tables.verifier import judged_rows

RECORDS = {  # what "auto" means here: the recorded runs of the shipped adapters on the world
    "table2": "table2-smollm2-135m-h200",
    "sigma": "train-smollm2-135m-h200",
    "claim": "claim-smollm2-135m-h200",
}
ASKED = {  # what each score answers (the paper's Table 1), in our words
    "reference_correctness": "do the passages hold an answer?",
    "correctness": "is the question answered rightly?",
    "citation_accuracy": "do the marks [1] point to the right passages?",
    "truthfulness": "is the text free of contradictions and nonsense?",
    "bias": "how far from the judge's own answer? (0 is best)",
    "conciseness": "does it come to the point?",
}
THRESHOLDS = np.arange(101) / 100


def load(config: Config, table: str = "table2") -> tuple[list[Prediction], pd.DataFrame]:
    """The recorded predictions that a lesson is about, and their outcomes; says which they are."""
    run = choose(config.change(record=RECORDS[table]) if config.run.record == "auto" else config, table=table)
    print(tell(run))
    return browse.load_ways(run, config)


def read_verdict(verdict: Verdict) -> pd.DataFrame:
    """A verdict field by field: what is asked, what the model wrote, and what it expected by its own probabilities."""
    rows = [(name, ASKED[name], getattr(verdict, name), round(expect(verdict, name), 2)) for name in SCORES]
    rows.append(("judgment", "is the answer right?", verdict.judgment, ""))
    rows.append(("revised question", "what to search for instead?", verdict.revised_question or "(none)", ""))
    table = pd.DataFrame(rows, columns=["field", "asks", "written", "expected"])
    return table.set_index(table.pop("field").str.replace("_", " "))


def move_sigma(frame: pd.DataFrame, thresholds: Sequence[float] = THRESHOLDS) -> pd.DataFrame:
    """CoV-RAG that searches again only where the expected correctness lies below a threshold: a row a threshold."""
    rows = judged_rows(frame, "CoV-RAG")  # of σ = "revision": a second answer is known wherever there is a revision
    again = rows.revised.to_numpy(bool) & (rows.expected_correctness.to_numpy() < np.array(thresholds)[:, None])
    right = np.where(again, rows.normalised.to_numpy(bool), rows.right.to_numpy(bool))  # (thresholds, questions)
    values = {"accuracy": 100 * right.mean(1), "searches": again.sum(1), "n": len(rows)}
    return pd.DataFrame(values, index=pd.Index(thresholds, name="threshold")).round({"accuracy": 1})


def draw_sigma(frame: pd.DataFrame, threshold: float) -> "pictures.Figure":
    """Accuracy and further searches over all thresholds, with the one that is chosen."""
    plt, _ = pictures.style(0.9, "notebook")
    curves, (here,) = move_sigma(frame), move_sigma(frame, [threshold]).itertuples()
    plain = 100 * frame[frame.system == "RAG trained"].normalised.astype(float).mean()  # NaN where it was not run
    panels = plt.Figure(figsize=(9, 3.4), layout="constrained").subplots(1, 2)  # pyplot's own would be shown twice
    for axes, name, label in zip(panels, ("accuracy", "searches"), ("accuracy (%)", "questions searched again")):
        axes.plot(curves.index, curves[name], color=palette()["CoV-RAG"], lw=2)
        axes.plot(threshold, getattr(here, name), "o", ms=9, color=pictures.DARK)
        axes.set(xlabel="search again below this expected correctness", ylabel=label, ylim=(0, None))
    panels[0].axhline(plain, color=palette()["RAG trained"], ls="--", lw=1.5, label="RAG trained")
    panels[0].legend(loc="lower right")
    told = f"{here.accuracy:.1f} % right, {here.searches} of {here.n} searched again"
    axes.figure.suptitle(f"below {threshold:.2f}: {told}")
    return axes.figure


def slide_sigma(frame: pd.DataFrame, threshold: float = 0.12) -> object:
    """A slider that draws it anew; not by `interact`, whose output papermill may wait for without end."""
    from ipywidgets import FloatSlider, Image, VBox

    def draw(change: dict) -> None:
        file = io.BytesIO()
        draw_sigma(frame, change["new"]).savefig(file, format="png", dpi=90)
        picture.value = file.getvalue()

    picture, slider = Image(), FloatSlider(threshold, min=0, max=1, step=0.01, description="threshold")
    slider.observe(draw, "value")
    draw({"new": threshold})
    return VBox([slider, picture])


def reliability(frame: pd.DataFrame, system: str = "CoV-RAG") -> pd.DataFrame:
    """How often first answers are right, by the correctness that the verifier expects of them: a row a bin, in %."""
    rows, made = judged_rows(frame, system), []
    bins = pd.cut(rows.expected_correctness, np.linspace(0, 1, 6), include_lowest=True)
    for name, part in rows.groupby(bins, observed=True):
        told = f"{max(name.left, 0):.1f} to {name.right:.1f}"
        made.append((told, len(part), 100 * part.expected_correctness.mean(), *share(part.right)))
    return pd.DataFrame(made, columns=["bin", "n", "expected", "value", "low", "high"]).round(1)


def draw_reliability(curve: pd.DataFrame, guesses: Sequence[float] = ()) -> "pictures.Figure":
    """The curve with its intervals beside the diagonal of a perfect judge, and what a class has guessed, in %."""
    plt, _ = pictures.style(0.9, "notebook")
    axes = plt.Figure(figsize=(5.6, 4.6), layout="constrained").subplots()
    axes.plot([0, 100], [0, 100], "--", color=pictures.OTHER, label="a perfectly calibrated judge")
    axes.plot(curve.expected, curve.value, "o-", color=palette()["CoV-RAG"], label="the recorded judge")
    pictures.draw_intervals(axes, curve.expected.tolist(), curve)
    axes.set_xticks(curve.expected, [f"{row.expected:.0f}\nn = {row.n}" for row in curve.itertuples()])
    middles = range(10, 100, 20)  # of the bins
    axes.plot(middles[: len(guesses)], guesses, "s", color=palette()["Start-Revise"], label="the class's guess")
    axes.set(xlabel="expected correctness (%)", ylabel="answers that are right (%)", xlim=(0, 101), ylim=(0, 101))
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.22), frameon=False)
    return axes.figure
