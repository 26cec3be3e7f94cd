"""The pictures of training: the counts of its data, and the losses of each adapter."""

import json
from dataclasses import dataclass
from functools import cache

import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Verdict
from covrag_lite.systems import palette
from covrag_lite.systems.names import COV_RAG
from covrag_lite.tables import pictures, training_data, training_losses

ADAPTERS = ("rag", "cov", "cov-direct", "rewrite")


@pytest.fixture(scope="module")
def plots(tmp_path_factory):
    """The figures of the committed pictures, each drawn once."""
    folder = tmp_path_factory.mktemp("pictures")

    @cache
    def draw(end):
        figure = training_data.build().plots[end](folder / end)
        pyplot.close("all")
        return figure

    return draw


def test_half_of_the_recorded_verdicts_are_true():
    counts = training_data.count_training_data()
    assert counts["answers"] == 5308
    assert counts["verdicts"] == 8580
    assert counts["true"] == counts["false"] == 4290
    assert counts["together"] == 13888


def test_the_picture_of_the_training_data_has_the_recorded_counts(plots):
    figure = plots("data.png")
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert {"D1: 5,308 answers", "D2′: 4,290 × “true”", "D2′: 4,290 × “false”"} <= texts


def test_the_papers_data_is_as_large_as_the_questions(plots):
    figure = plots("data.png")
    questions, answers, verdicts = [bar.get_width() for bar in figure.axes[0].patches[:3]]
    assert questions == pytest.approx(answers + verdicts)


def test_our_bars_are_in_proportion(plots):
    figure = plots("data.png")
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


@pytest.fixture
def bars(tmp_path):
    """The axes of a picture of the examples of two kinds, of which one has no false verdict."""
    rows = [
        ("natural", "true", "not revised", 4),
        ("natural", "false", "revised", 3),
        ("crossed", "false", "revised", 2),
    ]
    counts = pd.DataFrame(rows, columns=["kind", "judgment", "revision", "n"])
    figure = training_data.plot_examples(counts, tmp_path / "examples.png")
    yield figure.axes[0]
    pyplot.close(figure)


def test_examples_are_bars_by_origin_one_behind_the_other_by_verdict(bars):
    shown = {}
    for container in bars.containers:
        shown[container.get_label()] = [(bar.get_x(), bar.get_width()) for bar in container]
    assert shown == {"false, revised": [(0, 2), (0, 3)], "true, not revised": [(2, 0), (3, 4)]}


def test_bars_of_examples_are_named_by_their_origin(bars):
    assert [text.get_text() for text in bars.get_yticklabels()] == ["crossed", "natural"]


def test_examples_are_sorted_by_origin_then_judgment():
    true = parse_verdict(render_verdict([0.5] * 6, "true", ""))
    false = parse_verdict(render_verdict([0.5] * 6, "false", "who?"))
    examples = [Example(true), Example(true), Example(false), Example(true, "crossed")]
    counts = training_data.count_examples(examples)
    assert counts.values.tolist() == [
        ["crossed", "true", "not revised", 1],
        ["natural", "false", "revised", 1],
        ["natural", "true", "not revised", 2],
    ]


def test_an_odd_verdict_counts_as_false(tmp_path):
    for adapter, n in (("rag", 10), ("cov", 17)):
        manifest = {"data": {"samples": {"n": n}}}
        (tmp_path / f"train.{adapter}.json").write_text(json.dumps(manifest))
    counts = training_data.count_training_data(tmp_path)
    names = ("answers", "verdicts", "true", "false", "together")
    assert [counts[name] for name in names] == [10, 7, 3, 4, 17]


@pytest.fixture
def small_losses(tmp_path):
    """The axes of the losses of a seed model and an adapter; only the adapter learns verdicts."""
    nothing = [float("nan")] * 3
    seed = pd.DataFrame({"step": [1, 2, 3], "loss_answer": [4.0, 2.0, 3.0], "loss_verify": nothing})
    cov = seed.assign(loss_verify=[float("nan"), 1.0, 3.0])
    figure = training_losses.plot_losses({"seed": seed, "cov": cov}, tmp_path / "losses.png")
    yield figure.axes
    pyplot.close(figure)


def test_a_smoothed_loss_begins_with_its_first_value(small_losses):
    answers, verdicts = small_losses
    assert answers.lines[0].get_xydata().tolist() == [[1, 4], [2, 3], [3, 3]]
    assert [line.get_xydata().tolist() for line in verdicts.lines] == [[[2, 1], [3, 2]]]


def test_a_seed_model_is_a_dotted_line_under_its_own_name(small_losses):
    seed, cov = small_losses[0].lines
    assert (seed.get_label(), seed.get_linestyle()) == ("seed", ":")
    assert (cov.get_label(), cov.get_linestyle()) == ("cov: CoV-RAG", "-")


def test_panels_of_losses_name_their_task(small_losses):
    titles = [axes.get_title() for axes in small_losses]
    assert titles == ["answers: loss L_RAG", "verdicts: loss L_CoV"]


def test_losses_have_a_logarithmic_axis_with_plain_numbers(small_losses):
    answers, _ = small_losses
    assert answers.get_yscale() == "log"
    texts = [text.get_text() for text in answers.get_yticklabels()]
    assert all(float(text) > 0 for text in texts)  # not as a power of ten
    assert {text.get_text() for text in answers.get_yticklabels(minor=True)} == {""}


def test_a_task_that_nobody_learns_has_no_panel(tmp_path):
    frame = pd.DataFrame({"step": [1], "loss_answer": [4.0], "loss_verify": [float("nan")]})
    figure = training_losses.plot_losses({"rag": frame}, tmp_path / "losses.png")
    assert len(figure.axes) == 1
    pyplot.close(figure)


def test_adapters_without_recorded_losses_are_left_out(tmp_path):
    for adapter in ("rewrite", "cov"):
        pd.DataFrame({"step": [1]}).to_csv(tmp_path / f"train.{adapter}.losses.csv", index=False)
    assert list(training_losses.load_losses(tmp_path)) == ["cov", "rewrite"]


def test_the_summary_of_losses_has_the_first_loss_and_the_mean_of_the_last_ones():
    losses = {"loss_answer": [9.0, 4.0, 2.0], "loss_verify": [8.0, 1.0, 2.0]}
    frame = pd.DataFrame(losses | {"tokens": [100_000, 200_000, 260_000]})
    table = training_losses.summarise_losses({"seed": frame}, last=2)
    assert table.index.name == "adapter"
    assert table.loc["seed"].to_dict() == {
        **{"steps": 3, "tokens (millions)": 0.6},
        **{"answers: first loss": "9.00", "answers: last 2": "3.00"},
        **{"verdicts: first loss": "8.00", "verdicts: last 2": "1.50"},
    }


def test_losses_have_a_line_per_adapter_in_the_colour_of_its_system(plots):
    figure = plots("losses.png")
    colours = {line.get_label(): line.get_color() for line in figure.axes[0].lines}
    assert list(colours) == [training_losses.label_of_adapter(adapter) for adapter in ADAPTERS]
    assert colours["cov: CoV-RAG"] == palette()[COV_RAG]


def test_losses_are_moving_averages(plots):
    figure = plots("losses.png")
    (line,) = [line for line in figure.axes[0].lines if line.get_label() == "cov: CoV-RAG"]
    steps = training_losses.SMOOTHED_STEPS
    mean = training_losses.load_losses()["cov"].loss_answer[:steps].mean()
    assert line.get_ydata()[steps - 1] == pytest.approx(mean)


def test_only_two_adapters_learn_verdicts(plots):
    figure = plots("losses.png")
    assert len(figure.axes[1].lines) == 2


def test_a_task_that_an_adapter_does_not_learn_has_no_loss_in_the_summary():
    nothing = float("nan")
    frame = pd.DataFrame({"loss_answer": [3.0, 1.0], "loss_verify": nothing, "tokens": 500_000})
    row = training_losses.summarise_losses({"rag": frame}, last=1).loc["rag: RAG (trained)"]
    assert row["answers: first loss"] == "3.00"
    assert row["answers: last 1"] == "1.00"
    assert row["verdicts: first loss"] == "–"
    assert row["tokens (millions)"] == 1.0


def test_the_summary_of_losses_is_of_the_last_fifty_steps():
    losses = [5.0] * 10 + [1.0] * 50
    frame = pd.DataFrame({"loss_answer": losses, "loss_verify": float("nan"), "tokens": 1000})
    row = training_losses.summarise_losses({"seed": frame}).loc["seed"]
    assert row["answers: last 50"] == "1.00"


def test_a_picture_is_saved_in_a_new_folder_and_again(tmp_path):
    path = tmp_path / "a" / "b" / "empty.png"
    figure = Figure(figsize=(1, 1))
    assert pictures.save_picture(figure, path) is figure
    first = path.read_bytes()
    pictures.save_picture(figure, path)
    assert path.read_bytes() == first


def test_axes_of_losses_name_the_step_and_the_loss(small_losses):
    answers, verdicts = small_losses
    assert answers.get_xlabel() == verdicts.get_xlabel() == "step"
    assert answers.get_ylabel().startswith("loss per target token")
    assert verdicts.get_ylabel() == ""


def test_axes_of_examples_say_what_they_show(bars):
    assert (bars.get_xlabel(), bars.get_ylabel()) == ("examples", "")
    assert bars.get_title() == "D2′ by origin and verdict"
