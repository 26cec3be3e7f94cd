"""Table 6: what each retriever finds before and after a revision, next to the paper's engines."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import toy
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from toy import BORN, QUESTIONS, TEXTS

from covrag_lite.config import Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.runs import recorded
from covrag_lite.runs.frame import to_frame
from covrag_lite.systems import evaluate, palette
from covrag_lite.systems.names import COV_RAG, COV_RAG_S
from covrag_lite.tables import table6
from covrag_lite.tables.retrieval_picture import plot_retrieval
from covrag_lite.tables.retrieval_shares import (
    all_columns,
    before_after,
    join_retrievers,
    next_to_paper,
    retrieval_table,
)

PAPER_ENGINES = {"Bing*", "Chrome*"}


@pytest.fixture(scope="module")
def long(predictions):
    """The long form of the toy's questions as two of the paper's sets, with one retriever."""
    cov = [prediction for prediction in predictions if prediction.system == COV_RAG]
    return retrieval_table(join_retrievers({"one": toy.of_public_sets(cov)}))


@pytest.fixture
def rows(long):
    return long.set_index(["measure", "questions", "retriever"])


COUNTS = ["n", "first", "last", "delta", "gained", "lost"]


@pytest.mark.parametrize(
    "measure, questions, values",
    [
        ("answer", "NQ", [4, 100, 75, -25, 0, 1]),
        ("gold passage", "NQ", [4, 75, 75, 0, 1, 1]),
        ("answer", "WebQ", [2, 50, 100, 50, 1, 0]),  # q6's gold answer normalises to nothing
    ],
)
def test_a_row_has_the_shares_before_and_after_with_what_was_gained_and_lost(
    rows, measure, questions, values
):
    assert rows.loc[(measure, questions, "one"), COUNTS].tolist() == values


def test_shares_and_their_difference_have_intervals(rows):
    row = rows.loc[("answer", "WebQ", "one")]
    assert row.first_low < row["first"] < row.first_high
    assert row.delta_low <= row.delta <= row.delta_high


def test_all_questions_are_counted_together_and_by_form(rows):
    assert rows.loc[("answer", "all", "one"), "n"] == 6
    assert rows.loc[("gold passage", "broken wording", "one"), "n"] == 1
    assert rows.loc[("gold passage", "well put", "one"), "n"] == 4


def test_the_papers_engines_are_shown_only_for_its_own_sets(long):
    of_paper = long[long.n.isna()]
    assert set(of_paper.questions) == {"NQ", "WebQ"}
    assert set(of_paper.retriever) == PAPER_ENGINES


def test_the_papers_engines_are_shown_only_for_its_own_measure(long):
    assert set(long[long.n.isna()].measure) == {"answer"}


def test_a_search_without_a_model_is_not_compared_with_the_papers_engines():
    predictions = toy.of_public_sets(table6.search_twice(QUESTIONS, toy.search))
    assert retrieval_table(join_retrievers({"one": predictions})).n.notna().all()


def test_the_table_in_full_leaves_out_what_the_paper_does_not_report(long):
    table = all_columns(long, "answer", table6.ITERATIONS)
    row = table.set_index(["questions", "retriever"]).loc[("NQ", "Bing*")]
    assert row.tolist() == ["", "65.0", "66.8", "+1.8", "", "", ""]


def test_the_papers_engines_are_the_first_rows_of_a_notebook(long):
    table = next_to_paper(long)
    assert table.index.tolist() == ["Bing (the paper)", "Chrome (the paper)", "one"]
    assert table["NQ, n = 4"].loc["Bing (the paper)"].tolist() == ["65.0", "66.8", "+1.8"]


def test_few_questions_are_counted(long):
    row = before_after(long).loc[("NQ", "one")]
    assert row.tolist() == ["4", "4 of 4", "3 of 4", "−1"]


def test_many_questions_have_shares_and_an_interval(long):
    row = before_after(long.assign(n=long.n * 100)).loc[("NQ", "one")]
    assert row[["n", "before", "after"]].tolist() == ["400", "100.0", "75.0"]
    assert row.difference.startswith("−25.0 [")


@pytest.fixture(scope="module")
def figure(long, tmp_path_factory):
    figure = plot_retrieval(long, "toy", tmp_path_factory.mktemp("table6") / "table6.png")
    yield figure
    pyplot.close(figure)


def test_our_retrievers_are_bars_before_and_after(figure):
    before, after = figure.axes[0].patches
    assert (before.get_height(), after.get_height()) == (100, 75)
    assert before.get_facecolor()[:3] == to_rgb(palette()[COV_RAG_S])
    assert after.get_facecolor()[:3] == to_rgb(palette()[COV_RAG])


def test_the_papers_engines_are_diamonds(figure):
    diamonds = {}
    for line in figure.axes[0].lines:
        if line.get_marker() == "D":
            diamonds[line.get_label()] = list(line.get_ydata())
    assert diamonds == {"the paper, before": [65.0, 69.3], "the paper, after": [66.8, 71.3]}


def test_a_panel_names_its_set_and_its_retrievers(figure):
    nq, webq = figure.axes
    assert nq.get_title() == "NQ (n = 4, a sample)"
    assert "WebQ" in webq.get_title()
    assert [text.get_text() for text in nq.get_xticklabels()] == ["one", "Bing", "Chrome"]


# Searches without a model.


def test_the_second_search_without_a_model_is_for_the_clean_wording():
    queries = []

    def search(texts):
        queries.append(texts)
        return toy.search(texts)

    table6.search_twice(QUESTIONS, search)
    as_typed = list(TEXTS.values())
    assert queries == [as_typed, [BORN if text == TEXTS["q2"] else text for text in as_typed]]


def test_the_second_search_finds_what_the_clean_wording_finds():
    frame = to_frame(table6.search_twice(QUESTIONS, toy.search)).set_index("id")
    assert not frame.gold_first["q2"]
    assert frame.gold_last["q2"]
    assert frame.gold_first["q5"] is None  # it has no gold passage


def test_the_clean_wording_is_not_recorded():
    for prediction in table6.search_twice(QUESTIONS, toy.search):
        assert BORN not in [step.query for step in prediction.rounds]


def test_which_web_pages_are_gold_is_not_known():
    predictions = table6.search_twice(QUESTIONS, toy.search)
    frame = join_retrievers({"bm25": predictions, "web-ddgs": predictions})
    assert frame.groupby("retriever").gold_first.count().to_dict() == {"bm25": 5, "web-ddgs": 0}


def test_passages_are_listed_by_retriever():
    table = table6.list_passages(QUESTIONS[0], {"bm25": toy.search})
    assert table["BM25"].tolist() == ["Harbour Lamp (a)", "Stell (c)"]


def test_every_retriever_has_a_search_over_the_same_passages(monkeypatch):
    monkeypatch.setattr(table6, "load_retriever", lambda settings, found: (settings, found))
    searches = table6.load_searches(Config().change(retrievers=("bm25", "dense"), k=3), ["p"])
    assert {name: settings.retriever for name, (settings, _) in searches.items()} == {
        "bm25": "bm25",
        "dense": "dense",
    }
    assert [(settings.k, found) for settings, found in searches.values()] == [(3, ["p"])] * 2


# A recorded run.


@pytest.fixture
def run(tmp_path):
    """A recorded run on data in a folder, and the folder."""
    library = toy.write_library(tmp_path / "library")
    parameters = {"data": str(library), "retrievers": ("bm25",), "n_questions": 2}
    config, resources = toy.stage(tmp_path, systems=(COV_RAG,), **parameters)
    questions = load_questions(config)
    every = load_questions(config.change(n_questions=0))
    predictions = evaluate.run(config, resources, questions)
    predictions += table6.search_twice(questions, toy.search)
    data = {"questions": questions, "every": every, "passages": load_passages(config)}
    saved = recorded.save_run(
        tmp_path, "table6", {"bm25": predictions}, config, resources.model, 1.0, data
    )
    manifest = json.loads(json.dumps(saved.manifest))
    return recorded.Recorded(tmp_path, "table6", manifest, tmp_path), library


def build_files(run, folder):
    """The bytes of the files of a run's table."""
    table6.build(table6.load(run), run).save(folder, draw=False)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.filterwarnings("ignore:.*normalise to nothing")
def test_the_same_table_is_built_without_its_data(run, tmp_path):
    run, library = run
    with_data = build_files(run, tmp_path / "with")
    shutil.rmtree(library)
    assert build_files(run, tmp_path / "without") == with_data
    assert set(with_data) == {"table6.csv", "table6.md", "table6.facts.json"}


@pytest.mark.filterwarnings("ignore:.*normalise to nothing")
def test_without_its_data_a_table_is_built_from_recorded_outcomes_only(run):
    run, library = run
    shutil.rmtree(library)
    with pytest.raises(FileNotFoundError, match="library"):
        table6.load_with_data(run)


# What is searched, and where.


def test_passages_of_a_search_that_finds_fewer_are_listed_next_to_those_of_another():
    few = lambda queries: [found[:1] for found in toy.search(queries)]  # noqa: E731
    table = table6.list_passages(QUESTIONS[0], {"bm25": toy.search, "web-ddgs": few})
    assert list(table) == ["BM25", "web-ddgs"]
    assert table["web-ddgs"].isna().tolist() == [False, True]


def test_only_the_papers_two_kinds_of_questions_are_answered(monkeypatch):
    loaded = [replace(QUESTIONS[0], dataset=name) for name in ("quiz", "webq", "search", "one")]
    monkeypatch.setattr(table6, "load_questions", lambda settings: loaded)
    assert [q.dataset for q in table6.choose_questions(Config())] == ["webq", "search"]


def test_data_without_such_questions_is_refused(monkeypatch):
    monkeypatch.setattr(table6, "load_questions", lambda settings: QUESTIONS[:1])
    with pytest.raises(ValueError, match="needs one of the sets search, entity, nq, webq, but"):
        table6.choose_questions(Config())


def test_the_second_search_without_a_model_keeps_both_results_in_order():
    prediction = table6.search_twice(QUESTIONS[1:2], toy.search)[0]
    found = [[passage.id for passage in step.passages] for step in prediction.rounds]
    assert found == [["c", "d"], ["b", "a"]]
    assert prediction.rounds[0].query == TEXTS["q2"]


# How it is shown.


def test_a_notebook_shows_the_revisions_of_one_writer(long):
    both = pd.concat([long.assign(revision=COV_RAG), long.assign(revision="x", first=0.0)])
    shown = next_to_paper(both)["NQ, n = 4"]
    assert shown.loc["one", "before"] == "4 of 4"
    assert next_to_paper(both, "x")["NQ, n = 4"].loc["one", "before"] == "0 of 4"


def test_a_notebook_shows_one_measure(long):
    shown = before_after(long, "gold passage")
    assert shown.loc[("NQ", "one")].tolist() == ["4", "3 of 4", "3 of 4", "+0"]
    assert not shown.index.get_level_values("search").str.contains("the paper").any()


def test_a_search_engine_of_the_paper_has_no_number_of_questions_and_no_interval(long):
    row = before_after(long).loc[("NQ", "Bing (the paper)")]
    assert row.tolist() == ["–", "65.0", "66.8", "+1.8"]


def test_the_table_in_full_has_intervals_counts_and_a_test(long):
    table = all_columns(long, "answer", ("early", "late"))
    assert list(table)[2:5] == ["n", "early", "late"]
    row = table.set_index(["questions", "retriever"]).loc[("WebQ", "one")]
    assert row[["n", "gained", "lost", "McNemar p"]].tolist() == ["2", "1", "0", "1.000"]
    assert row.early.startswith("50.0 [9.5, 90.5]")  # Wilson: one of two


def test_bars_stand_left_and_right_of_their_retriever(figure):
    before, after = figure.axes[0].patches
    assert (before.get_x() + before.get_width(), after.get_x()) == pytest.approx((-0.01, 0.01))


def test_an_interval_is_drawn_on_the_middle_of_its_bar(figure, rows):
    row = rows.loc[("answer", "NQ", "one")]
    for container, bar, name in zip(
        figure.axes[0].containers[1::2], figure.axes[0].patches, ("first", "last")
    ):
        (segment,) = container.lines[2][0].get_segments()
        assert segment[0, 0] == pytest.approx(bar.get_x() + bar.get_width() / 2)
        assert segment[:, 1].tolist() == pytest.approx([row[f"{name}_low"], row[f"{name}_high"]])


def test_diamonds_stand_where_the_bars_of_their_engine_would(figure):
    places = [list(line.get_xdata()) for line in figure.axes[0].lines if line.get_marker() == "D"]
    assert places == [pytest.approx([0.8, 1.8]), pytest.approx([1.2, 2.2])]


def test_panels_share_an_axis_of_all_shares_and_the_last_has_the_legend(figure):
    assert [axes.get_ylim() for axes in figure.axes] == [(0, 100)] * 2
    assert [axes.get_legend() is None for axes in figure.axes] == [True, False]
    texts = [text.get_text() for text in figure.axes[-1].get_legend().get_texts()]
    assert texts == [
        *["the paper, before", "the paper, after", "before the revision", "after the revision"]
    ]


@pytest.mark.filterwarnings("ignore:.*normalise to nothing")
@pytest.mark.parametrize("name", ["corpus", "webq"])
def test_data_that_is_not_that_of_the_run_is_refused(run, name):
    run, library = run
    toy.change_library(library, name)
    with pytest.raises(recorded.DataChanged):
        table6.load_with_data(run)


# The table, and its parts and facts.


@pytest.fixture(scope="module")
def built(predictions):
    cov = [prediction for prediction in predictions if prediction.system == COV_RAG]
    both = toy.of_public_sets(cov + table6.search_twice(QUESTIONS, toy.search))
    return table6.build({"one": both}, SimpleNamespace(config=Config().change(k=2)))


def test_revisions_by_the_model_and_by_the_clean_wording_are_parts_of_one_table(built):
    headings = []
    for revision in ("CoV-RAG", "clean wording, without a model"):
        for measure in ("answer", "gold passage"):
            share = f"Share of questions whose top k holds the {measure}, in % [95 % interval]"
            headings.append(f"{share}; revision: {revision}")
    assert list(built.parts) == headings


def test_a_part_names_its_two_searches(built):
    first, *_, last = built.parts.values()
    assert list(first)[3:5] == ["single iteration", "multi iteration"]
    assert list(last)[3:5] == ["as asked", "clean wording"]


def test_the_rows_of_the_table_say_whose_revision_they_are_of(built):
    rows = built.rows.set_index(["revision", "measure", "questions", "retriever"])["last"]
    about = ("gold passage", "WebQ", "one")
    assert rows["CoV-RAG", *about] == 100
    assert rows["clean wording, without a model", *about] == 0  # q7 has no clean wording


def test_facts_are_of_the_models_revisions(built):
    assert built.facts["one WebQ gold passage after"] == "100.0"
    assert built.facts["one NQ answer delta"] == "−25.0"
    assert built.facts["one NQ answer n"] == "4"


def test_the_papers_engines_have_no_facts(built):
    assert not [name for name in built.facts if "Bing" in name or "Chrome" in name]


def test_a_note_names_its_retriever_and_is_about_the_models_revisions(built):
    assert [note.partition(":")[0] for note in built.notes[1:]] == ["one, CoV-RAG"] * 3
    assert built.notes[0].startswith("one, 1 of 7 questions")


def test_the_picture_shows_the_models_revisions_and_says_how_many_passages(built, tmp_path):
    figure = built.plots["png"](tmp_path / "table6.png")
    title = figure.get_suptitle()
    heights = [bar.get_height() for bar in figure.axes[1].patches]
    pyplot.close(figure)
    assert title == "Questions whose top 2 passages hold an answer (smollm2-135m)"
    assert heights == [50, 100]


@pytest.mark.parametrize("n, before", [(29, "29 of 29"), (30, "100.0")])
def test_thirty_questions_are_enough_for_a_share(long, n, before):
    assert before_after(long.assign(n=n)).loc[("NQ", "one"), "before"] == before


def test_a_recorded_run_is_loaded_by_retriever(predictions, monkeypatch):
    monkeypatch.setattr(table6, "load_part", lambda run, name: f"predictions of {name}")
    run = SimpleNamespace(config=Config().change(retrievers=("bm25", "dense")))
    assert table6.load_outcomes(run) == {
        "bm25": "predictions of bm25",
        "dense": "predictions of dense",
    }


def test_each_retriever_searches_the_passages_by_its_own_name(run, monkeypatch):
    run, _ = run
    recorded_run = SimpleNamespace(config=run.config.change(retrievers=("bm25", "dense")))
    monkeypatch.setattr(table6, "check_data", lambda *about, **data: None)
    monkeypatch.setattr(
        table6, "find_passages", lambda retrieval, passages: (retrieval.retriever, len(passages))
    )
    monkeypatch.setattr(
        table6, "load_part", lambda run, name, questions, corpus: (name, len(questions), corpus)
    )
    assert table6.load_with_data(recorded_run) == {
        "bm25": ("bm25", 7, ("bm25", 6)),
        "dense": ("dense", 7, ("dense", 6)),
    }


def test_predictions_of_several_retrievers_are_rows_of_one_frame(predictions):
    cov = [prediction for prediction in predictions if prediction.system == COV_RAG]
    frame = join_retrievers({"bm25": cov, "dense": cov[:2]})
    assert frame.retriever.tolist() == ["bm25"] * 7 + ["dense"] * 2
    assert frame.index.tolist() == list(range(9))


def test_retrievers_of_a_group_keep_their_order(predictions):
    cov = [prediction for prediction in predictions if prediction.system == COV_RAG]
    long = retrieval_table(join_retrievers({"web": cov, "bm25": cov}))
    rows = long[(long.measure == "answer") & (long.questions == "all")]
    assert rows.retriever.tolist() == ["web", "bm25"]


def test_both_of_the_papers_sets_are_shown_with_their_questions(long):
    headings = list(dict.fromkeys(heading for heading, _ in next_to_paper(long)))
    assert headings == ["NQ, n = 4", "WebQ, n = 2"]


@pytest.mark.parametrize("n, title", [(29, "NQ (n = 29, a sample)"), (30, "NQ (n = 30)")])
def test_a_panel_of_thirty_questions_is_no_sample(long, tmp_path, n, title):
    rows = long[long.questions == "NQ"]
    figure = plot_retrieval(rows.assign(n=rows.n.where(rows.n.isna(), n)), "", tmp_path / "a.png")
    pyplot.close(figure)
    assert [axes.get_title() for axes in figure.axes] == [title]


def test_a_picture_without_the_papers_engines_has_no_diamonds(long, tmp_path):
    figure = plot_retrieval(long[long.n.notna()], "", tmp_path / "a.png")
    pyplot.close(figure)
    (axes, _) = figure.axes
    assert [line for line in axes.lines if line.get_marker() == "D"] == []
    texts = [text.get_text() for text in figure.axes[-1].get_legend().get_texts()]
    assert texts == ["before the revision", "after the revision"]


def test_shares_of_retrieval_are_in_percent_of_questions(figure):
    assert figure.axes[0].get_ylabel() == "questions (%)"
