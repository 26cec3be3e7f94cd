"""The pictures of training: the counts of its data, and the losses of each adapter."""

from dataclasses import dataclass

import pandas as pd
import pytest
from matplotlib import pyplot

from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Verdict
from covrag_lite.systems import palette
from covrag_lite.systems.names import COV_RAG
from covrag_lite.tables import training_data, training_losses

ADAPTERS = ("rag", "cov", "cov-direct", "rewrite")


@pytest.fixture
def plots(tmp_path):
    """The committed pictures, drawn again, with the figures that they were drawn from."""

    def draw(end):
        path = tmp_path / end
        figure = training_data.build().plots[end](path)
        pyplot.close("all")
        return figure, path

    return draw


def test_half_of_the_recorded_verdicts_are_true():
    counts = training_data.count_training_data()
    assert counts["answers"] == 5308
    assert counts["verdicts"] == 8580
    assert counts["true"] == counts["false"] == 4290
    assert counts["together"] == 13888


def test_the_picture_of_the_training_data_has_the_recorded_counts(plots):
    figure, _ = plots("data.png")
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert {"D1: 5,308 answers", "D2′: 4,290 × “true”", "D2′: 4,290 × “false”"} <= texts


def test_the_papers_data_is_as_large_as_the_questions(plots):
    figure, _ = plots("data.png")
    questions, answers, verdicts = [bar.get_width() for bar in figure.axes[0].patches[:3]]
    assert questions == pytest.approx(answers + verdicts)


def test_our_bars_are_in_proportion(plots):
    figure, _ = plots("data.png")
    widths = [bar.get_width() for bar in figure.axes[0].patches[3:8]]
    questions, answers, true, not_crossed, crossed = widths
    assert answers / questions == pytest.approx(5308 / 10540)
    assert true == pytest.approx(not_crossed + crossed)


@dataclass
class Example:
    """An example of D2′, as far as it is counted."""

    verdict: Verdict
    kind: str = "natural"
    lacks_revision: bool = False


def test_examples_are_counted_by_judgment_and_revision():
    true = parse_verdict(render_verdict([0.5] * 6, "true", ""))
    false = parse_verdict(render_verdict([0.5] * 6, "false", ""))
    revised = parse_verdict(render_verdict([0.5] * 6, "false", "who?"))
    examples = [Example(true), Example(false, lacks_revision=True), *[Example(revised)] * 2]
    counts = training_data.count_examples(examples)
    rows = counts[["judgment", "revision", "n"]].values.tolist()
    assert rows == [["false", "revised", 2], ["false", "unknown", 1], ["true", "not revised", 1]]


def test_losses_have_a_line_per_adapter_in_the_colour_of_its_system(plots):
    figure, _ = plots("losses.png")
    colours = {line.get_label(): line.get_color() for line in figure.axes[0].lines}
    assert list(colours) == [training_losses.label_of_adapter(adapter) for adapter in ADAPTERS]
    assert colours["cov: CoV-RAG"] == palette()[COV_RAG]


def test_losses_are_moving_averages(plots):
    figure, _ = plots("losses.png")
    (line,) = [line for line in figure.axes[0].lines if line.get_label() == "cov: CoV-RAG"]
    steps = training_losses.SMOOTHED_STEPS
    mean = training_losses.load_losses()["cov"].loss_answer[:steps].mean()
    assert line.get_ydata()[steps - 1] == pytest.approx(mean)


def test_only_two_adapters_learn_verdicts(plots):
    figure, _ = plots("losses.png")
    assert len(figure.axes[1].lines) == 2


def test_a_task_that_an_adapter_does_not_learn_has_no_loss_in_the_summary():
    nothing = float("nan")
    frame = pd.DataFrame({"loss_answer": [3.0, 1.0], "loss_verify": nothing, "tokens": 500_000})
    row = training_losses.summarise_losses({"rag": frame}, last=1).loc["rag: RAG (trained)"]
    assert row["answers: first loss"] == "3.00"
    assert row["answers: last 1"] == "1.00"
    assert row["verdicts: first loss"] == "–"
    assert row["tokens (millions)"] == 1.0
