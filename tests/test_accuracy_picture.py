"""The picture of an accuracy table: its title, bars, intervals and the paper's diamonds."""

import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_hex

from covrag_lite.config import Config
from covrag_lite.systems import palette
from covrag_lite.systems.names import (
    CLOSED_BOOK,
    COV_RAG,
    COV_RAG_S,
    EXPANSION,
    EXPANSION_COMBINED,
    RAG,
    RAG_TRAINED,
    START_REVISE_TRAINED,
)
from covrag_lite.tables.accuracy_picture import (
    GREYS,
    SAMPLE_TITLE,
    build_title,
    choose_colours,
    plot_accuracy,
)

VALUES = {  # a system -> its accuracy in two sets, and the paper's
    RAG: ((20.0, None), (30.0, None)),
    COV_RAG: ((40.0, 66.0), (50.0, 68.5)),
}


def make_rows(values, n=400, metric="normalised"):
    """A long table of two sets; the interval of a value is from 2 below to 3 above it."""
    rows = []
    for system, cells in values.items():
        for dataset, (value, of_paper) in zip(("nq", "webq"), cells):
            rows.append((dataset, system, metric, n, value, value - 2, value + 3, of_paper))
        mean = sum(value for value, _ in cells) / 2
        rows.append(("average", system, metric, 2 * n, mean, mean - 1, mean + 1, None))
    columns = ["dataset", "system", "metric", "n", "value", "low", "high", "paper"]
    return pd.DataFrame(rows, columns=columns)


@pytest.fixture(scope="module")
def axes(tmp_path_factory):
    """The axes of a picture that also has rows of another metric."""
    long = pd.concat([make_rows(VALUES, metric="raw").assign(value=1.0), make_rows(VALUES)])
    figure = plot_accuracy(long, "a title", tmp_path_factory.mktemp("picture") / "a.png")
    yield figure.axes[0]
    pyplot.close(figure)


def bars_of(axes):
    """The bars of each system, without the containers of their intervals."""
    return [container for container in axes.containers if hasattr(container, "patches")]


def test_a_bar_is_as_high_as_its_accuracy(axes):
    heights = [[bar.get_height() for bar in bars] for bars in bars_of(axes)]
    assert heights == [[20, 30, 25], [40, 50, 45]]


def test_bars_have_the_colour_of_their_system(axes):
    colours = [to_hex(bars.patches[0].get_facecolor()) for bars in bars_of(axes)]
    expected = [to_hex(palette()[system]) for system in (RAG, COV_RAG)]
    # seaborn takes some of the colour away
    for drawn, colour in zip(colours, expected):
        assert (
            max(abs(int(drawn[i : i + 2], 16) - int(colour[i : i + 2], 16)) for i in (1, 3, 5)) < 50
        )


def test_the_legend_names_systems_and_the_paper(axes):
    texts = [text.get_text().replace("\n", " ") for text in axes.get_legend().get_texts()]
    assert sorted(texts) == ["CoV-RAG", "RAG (untuned)", "the paper (larger models, web search)"]


def test_an_interval_is_drawn_on_its_own_bar(axes):
    drawn = []
    for container in axes.containers:
        if not hasattr(container, "patches"):
            for segment in container.lines[2][0].get_segments():
                drawn.append((round(segment[0, 0], 6), *segment[:, 1]))
    expected = []
    for bars, ends in zip(
        bars_of(axes), ([(18, 23), (28, 33), (24, 26)], [(38, 43), (48, 53), (44, 46)])
    ):
        for bar, (low, high) in zip(bars, ends):
            expected.append((round(bar.get_x() + bar.get_width() / 2, 6), low, high))
    assert drawn == expected


def test_a_value_of_the_paper_is_a_diamond_on_the_bar_of_its_system(axes):
    diamonds = [line for line in axes.lines if line.get_marker() == "D" and len(line.get_xdata())]
    of_cov_rag = diamonds[1]
    middles = [bar.get_x() + bar.get_width() / 2 for bar in bars_of(axes)[1]]
    assert of_cov_rag.get_xdata() == pytest.approx(middles)
    assert of_cov_rag.get_ydata()[:2].tolist() == [66.0, 68.5]
    assert pd.isna(of_cov_rag.get_ydata()[2])
    assert pd.isna(diamonds[0].get_ydata()).all()


def test_a_diamond_is_hollow(axes):
    line = next(line for line in axes.lines if line.get_marker() == "D")
    assert (line.get_markerfacecolor(), line.get_linestyle()) == ("white", "None")


def test_sets_are_called_by_their_labels_on_an_axis_of_all_shares(axes):
    assert [text.get_text() for text in axes.get_xticklabels()] == ["NQ", "WebQ", "Average"]
    assert axes.get_ylim() == (0, 100)
    assert axes.get_ylabel() == "accuracy, normalised (%)"
    assert axes.get_title() == "a title"


def test_without_a_value_of_the_paper_the_legend_does_not_name_it(tmp_path):
    long = make_rows({RAG: ((20.0, None), (30.0, None))})
    figure = plot_accuracy(long, "", tmp_path / "a.png")
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    pyplot.close(figure)
    assert texts == ["RAG (untuned)"]


def test_without_a_metric_each_metric_has_its_bars(tmp_path):
    rows = make_rows({RAG: ((20.0, None), (30.0, None))})
    long = rows.iloc[:2].assign(metric=["single", "multi"], dataset="all")
    figure = plot_accuracy(long, "", tmp_path / "a.png", metric=None)
    axes = figure.axes[0]
    pyplot.close(figure)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["single", "multi"]
    assert axes.get_ylabel() == "share (%)"


def test_a_long_label_is_wrapped_next_to_many_groups(tmp_path):
    rows = make_rows({EXPANSION_COMBINED: ((20.0, None), (30.0, None))})
    sets = [rows.iloc[:1].assign(dataset=f"set {number}") for number in range(8)]
    long = pd.concat(sets, ignore_index=True)
    figure = plot_accuracy(long, "", tmp_path / "a.png")
    (text,) = figure.axes[0].get_legend().get_texts()
    pyplot.close(figure)
    assert text.get_text() == "Query expansion +\nverifier choice"


def test_systems_without_a_colour_are_greys_that_differ():
    colours = choose_colours((EXPANSION, RAG, EXPANSION_COMBINED))
    assert list(colours.values()) == [GREYS[0], palette()[RAG], GREYS[1]]


# The title.


def title_of(values, table="table2", n=400, result="", **changes):
    return build_title(table, Config().change(**changes), make_rows(values, n), result)


def test_a_title_has_the_mean_accuracies_of_three_systems_in_the_order_of_their_interest():
    systems = (CLOSED_BOOK, COV_RAG_S, START_REVISE_TRAINED, RAG_TRAINED, COV_RAG)
    values = {system: ((10.0 + i, None), (20.0 + i, None)) for i, system in enumerate(systems)}
    first, second = title_of(values).split("\n")
    assert first == "CoV-RAG 19.0 %, RAG (trained) 18.0 %, Rewrite first (trained) 17.0 %"
    assert second.startswith("Table 2: smollm2-135m on the fictional world, ")


def test_without_such_systems_a_title_has_the_result_that_is_given():
    title = title_of({RAG: ((20.0, None), (30.0, None))}, table="table5", result="a result\n")
    assert title.startswith("a result\nTable 5: ")


@pytest.mark.parametrize("n, is_sample", [(29, True), (30, False)])
def test_a_picture_of_few_questions_is_called_a_sample(n, is_sample):
    assert title_of(VALUES, n=n).startswith(SAMPLE_TITLE) == is_sample


def test_a_title_counts_the_questions_of_a_set():
    assert title_of(VALUES).endswith("n = 400 each")
    long = make_rows(VALUES)
    long.loc[long.dataset == "webq", "n"] = 200
    assert build_title("table2", Config(), long).endswith("n = 200 to 400")


def test_a_picture_of_related_methods_has_no_number_of_a_table():
    assert "\nRelated methods: " in title_of(VALUES, table="related")


def test_only_another_layout_of_prompts_is_in_the_title():
    layouts = {layout: title_of(VALUES, layout=layout) for layout in ("paper", "shared")}
    default = Config().model.layout
    for layout, title in layouts.items():
        assert (f", {layout} layout, on" in title) == (layout != default)


def test_a_system_without_a_colour_is_grey(tmp_path):
    figure = plot_accuracy(make_rows({"another": VALUES[RAG]}), "", tmp_path / "a.png")
    pyplot.close(figure)
    (bars,) = bars_of(figure.axes[0])
    red, green, blue, _ = bars.patches[0].get_facecolor()
    assert red == green == blue


def test_axes_of_an_accuracy_have_no_name_below(axes):
    assert axes.get_xlabel() == ""
