"""What is shown: a lesson's curves, the picture of the method, a page of predictions, training, Tables 4 and 6."""

import io
import json
import re
import shutil
from dataclasses import asdict, replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import toy
from conftest import write_jsonl
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from toy import BORN, LOW, PASSAGES, QUESTIONS, TEXTS

from covrag_lite import evaluate
from covrag_lite.config import ROOT, Config, Related
from covrag_lite.data import load_passages, load_questions
from covrag_lite.plan import load_plans
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.runs import recorded
from covrag_lite.runs.outcomes import load_predictions, save_predictions, to_frame
from covrag_lite.systems import palette
from covrag_lite.tables import browse, lesson, method_picture, pictures, table4, table5, table6
from covrag_lite.tables.table6 import join_retrievers, retrieval_table, search_twice, wide


def test_sigma_searches_again_below_the_threshold_and_only_where_a_question_was_revised(frame):
    table = lesson.accuracy_by_threshold(frame, [0, 0.2, 0.25, 0.3, 1])
    assert table.searches.tolist() == [0, 0, 1, 2, 3]  # q4, q7 and q2 lie on a threshold, and not below it
    assert table.accuracy.tolist() == [66.7, 66.7, 50.0, 66.7, 83.3]


def test_the_slider_is_as_wide_as_its_figure_and_draws_it_again(frame):
    slider, picture = lesson.threshold_slider(frame, 0.1).children
    before = picture.value
    slider.value = 0.25
    assert picture.value != before
    width = imread(io.BytesIO(picture.value)).shape[1]
    assert slider.layout.width == picture.layout.width == f"{width}px" == "900px"


def test_the_figure_of_thresholds_marks_the_chosen_one_and_the_baseline_by_its_label(frame):
    accuracy, searches = lesson.draw_thresholds(frame, 0.25).axes
    assert [panel.lines[1].get_ydata().tolist() for panel in (accuracy, searches)] == [[50.0], [1]]
    assert [text.get_text() for text in accuracy.get_legend().get_texts()] == ["RAG (trained)"]


def test_a_bin_of_the_curve_holds_each_answer_once_and_its_share_that_is_right(frame):
    curve = lesson.reliability(frame)
    assert curve.bin.tolist() == ["0.0 to 0.2", "0.2 to 0.4", "0.4 to 0.6", "0.6 to 0.8", "0.8 to 1.0"]
    assert curve.n.tolist() == [1, 2, 1, 1, 1] and curve.expected.tolist() == [20.0, 27.5, 60.0, 70.0, 95.0]
    assert curve.value.tolist() == [100.0, 0.0, 100.0, 100.0, 100.0]


def test_the_picture_shows_a_question_that_the_second_search_rescues(cov, tmp_path):
    first, last = cov[1].rounds
    far = replace(cov[1], rounds=(first, replace(last, answer="Stell[7]")))
    table = method_picture.build([cov[3], far])  # the second search has hurt q4
    texts = dict(table.part("q2").itertuples(index=False))
    assert (texts["answer"], texts["new answer"]) == ("Mere [1] ✗ wrong", "Stell [7] ✓ right")
    assert "Stell" in texts["quoted"]  # what the revised question was read from
    assert texts["quoted again"].startswith("[1]: “")  # there is no seventh passage
    table.save(tmp_path)
    shown = [text.get_text() for text in pyplot.gcf().axes[0].texts]
    pyplot.close("all")
    assert {"question", "verdict", "revised question", method_picture.TITLE} <= set(shown)
    assert imread(tmp_path / "method.png").shape[1] > 1200


def test_a_run_without_a_rescued_question_or_without_a_record_says_which_parameter_to_set(cov):
    with pytest.raises(ValueError, match="rescues no question of this run; set record to"):
        method_picture.build(cov[3:4])
    with pytest.raises(ValueError, match="no recorded run of this model and data; set record to"):
        browse.load_recorded(None, Config())


def test_the_lesson_shows_the_shipped_picture_and_draws_one_for_another_record(cov, tmp_path, monkeypatch):
    monkeypatch.setattr(method_picture, "build", lambda predictions: pytest.fail("drawn again"))
    assert Path(lesson.show_method(cov, Config()).filename) == ROOT / "figures" / "embedded" / "method.png"
    monkeypatch.undo()
    lesson.show_method(cov, Config().change(figures=str(tmp_path), name="toy"))
    pyplot.close("all")
    assert (tmp_path / "toy" / "method.png").exists()


def test_a_verdict_is_read_in_the_papers_order(cov):
    table = lesson.read_verdict(cov[1].rounds[0].verdict)
    assert table.index[0] == "reference correctness" and table.index[-1] == "revised question"
    assert table.written.tolist() == [*(f"{score:.2f}" for score in LOW), "false", BORN]


# The browse page.

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='alert(2)'><!--"


def data_of(page):
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])


def test_each_question_is_filed_under_what_came_of_its_verdict(cov):
    own = to_frame(cov)
    own["judgment"] = ["false", "true", *own.judgment[2:6], "unclear"]
    filed = {way["id"]: way["outcomes"] for way in browse.describe(cov, own, "toy")["predictions"] if way["outcomes"]}
    several = {"q2": ["helped", "wrongly accepted"], "q4": ["hurt", "wrongly rejected"]}
    assert filed == {"q1": ["wrongly rejected"], "q7": ["helped"]} | several
    first = browse.first_of_each(cov, own)
    assert first.index.tolist() == list(browse.OUTCOMES) and first.loc["hurt", "question"] == TEXTS["q4"]


def test_only_systems_with_verdicts_are_shown_and_the_others_are_named(predictions, frame, capsys):
    kept, rows = browse.keep_verified(predictions, frame, ["RAG trained", "CoV-RAG"])
    assert {p.system for p in kept} == set(rows.system) == {"CoV-RAG"} and len(kept) == len(rows)
    assert capsys.readouterr().out == "Not shown, because they write no verdict: RAG (trained)\n"
    with pytest.raises(
        ValueError, match="none of the systems RAG wrote a verdict .*; set systems to some of .*CoV-RAG"
    ):
        browse.keep_verified(predictions, frame, ["RAG"])


def test_a_system_is_shown_by_its_label(predictions, cov):
    assert "RAG (trained)" in browse.compare_answers(predictions).index
    shown = browse.show_prediction(replace(cov[1], system="CoV-RAG w/o chain")).data
    assert "CoV-RAG, no scores" in shown and "w/o chain" not in shown
    one = browse.describe(cov, to_frame(cov), "toy")["systems"]
    assert one == {"CoV-RAG": ["CoV-RAG", palette()["CoV-RAG"]]}


def test_the_answers_of_all_systems_to_one_question_are_compared(predictions):
    table = browse.compare_answers([p for p in predictions if p.question.id == "q2"])
    assert table.loc["CoV-RAG", ["searches", "last query", "right?"]].tolist() == [2, BORN, "right"]


def test_no_text_can_become_markup():
    passage = Passage(HOSTILE, HOSTILE, HOSTILE)
    verdict = parse_verdict(render_verdict([0.5] * 6, "false", HOSTILE))
    question = Question(HOSTILE, "nq", HOSTILE, (HOSTILE,), (), "", HOSTILE)
    hostile = Prediction(question, "CoV-RAG", (Round(HOSTILE, (passage,), HOSTILE, verdict), Round("x", (), HOSTILE)))
    page = browse.page([hostile], to_frame([hostile]), HOSTILE)
    data = data_of(page)
    assert 'data-lm-suppress-shortcuts="true"' in page  # what is typed into it is no shortcut of JupyterLab
    assert page.count("<script") == page.count("</script>") == 2  # the data and the page's own
    assert "<img" not in page and "<!--" not in page
    assert data["passages"][HOSTILE] == [HOSTILE, HOSTILE]  # and yet it is all there
    assert data["predictions"][0]["rounds"][0]["verdict"]["revised_question"] == HOSTILE
    script = (browse.HERE / "browse.js").read_text()
    assert not re.search("innerHTML|outerHTML|insertAdjacentHTML|document.write|eval", script)


def test_without_the_data_there_are_ids_and_our_own_outputs(cov, tmp_path):
    first, last = cov[1].rounds
    echo = parse_verdict(render_verdict(LOW, "false", f"{TEXTS['q2']}? Voss was born in"))
    one = replace(cov[1], rounds=(replace(first, verdict=echo), last))
    save_predictions(tmp_path / "p.jsonl.xz", [one])
    told = load_predictions(tmp_path / "p.jsonl.xz")
    page = browse.page(told, to_frame(told), "toy")
    data = data_of(page)
    first, last = data["predictions"][0]["rounds"]
    assert not data["texts"] and TEXTS["q2"] not in page and "Harbour" not in page
    assert first["verdict"]["revised_question"] == "⟨the question⟩? Voss was born in"
    assert (first["passages"], first["right"], last["right"]) == (["c", "d"], "wrong", "right")
    assert data["predictions"][0]["outcomes"] == ["helped"]


# The figures of training.


def draw_again(end, tmp_path):
    """The figure drawn from the records, and how far its pixels are from the committed file."""
    name = f"training.{end}"
    figure = pictures.build_training().plots[end](tmp_path / name)
    pyplot.close("all")
    new, committed = (imread(folder / name) for folder in (tmp_path, ROOT / "figures" / "embedded"))
    assert new.shape == committed.shape
    return figure, np.abs(new - committed).mean()


def test_the_figure_of_the_training_data_has_the_recorded_counts_in_proportion(tmp_path):
    counts = pictures.count_training_data()
    assert counts["answers"] + counts["verdicts"] == counts["together"] == 13888
    assert (counts["answers"], counts["verdicts"], counts["true"], counts["false"]) == (5308, 8580, 4290, 4290)
    figure, distance = draw_again("data.png", tmp_path)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert {"D1: 5,308 answers", "D2′: 4,290 × “true”", "D2′: 4,290 × “false”"} <= set(texts)
    *paper, whole, answers, true, false, crossed = [patch.get_width() for patch in figure.axes[0].patches[:8]]
    assert paper[0] == pytest.approx(paper[1] + paper[2])  # as large as D
    assert answers / whole == pytest.approx(5308 / 10540) and true == pytest.approx(false + crossed)
    assert distance < 0.01


def test_the_figure_of_losses_has_a_line_per_adapter_in_the_colour_of_its_system(tmp_path):
    losses = pictures.load_losses()
    figure, distance = draw_again("losses.png", tmp_path)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert list(lines) == [pictures.label_of_adapter(name) for name in ("rag", "cov", "cov-direct", "rewrite")]
    assert lines["cov: CoV-RAG"].get_color() == palette()["CoV-RAG"]
    expected = losses["cov"].loss_answer[: pictures.SMOOTHED].mean()
    assert lines["cov: CoV-RAG"].get_ydata()[pictures.SMOOTHED - 1] == pytest.approx(expected)
    assert len(figure.axes[1].lines) == 2 and distance < 0.01  # two adapters learn verdicts


# Table 4.


def rewrite(predictions, **queries):
    """Predictions in which some rewritten questions of Start-Revise find the gold passage of q4."""
    made = []
    for p in predictions:
        query = queries.get(p.question.id) if p.system == "Start-Revise trained" else None
        made.append(replace(p, rounds=(Round(query, (PASSAGES["e"],), ""),)) if query else p)
    return made


def test_a_rewrite_that_loses_the_gold_passage_is_shown_and_one_that_repeats_the_instruction_counted(predictions):
    assert table4.drift(predictions).empty
    lost = rewrite(predictions, q2="of the hills", q3="hills of the river", q4="when is it?")  # q2 had not found it
    assert table4.drift(lost).values.tolist() == [[TEXTS["q3"], "hills of the river"]]
    echo = "Rewrite this as one clear question for a search engine."
    name = "Start-Revise trained off the question"  # without a word of its question
    assert table4.facts(predictions)[name] == "0"
    assert table4.facts(rewrite(predictions, q1=echo, q3="Rewrite: how is the"))[name] == "2"
    assert name not in table4.facts(rewrite(predictions, q2=TEXTS["q2"]))  # no rewrite is recorded


def test_each_query_is_counted_with_what_it_changes_and_finds_up_to_the_clean_wording(predictions):
    echo = "Rewrite this as one clear question for a search engine."
    table = table4.query_table(rewrite(predictions, q1=echo, q4="when is it?"), toy.search)
    assert table.index.tolist() == [
        "as asked (no revision)",
        "rewritten first (trained)",
        "revised after the answer (CoV-RAG)",
        "clean wording (oracle)",
    ]
    assert table.iloc[0].tolist() == ["0 of 7", "0", "3 of 5", "60.0"]  # two questions have no gold passage
    assert table.iloc[1].tolist()[:2] == ["3 of 7", "1"]  # also q2's; the echo shares no word
    assert table.iloc[2].tolist() == ["3 of 7", "0", "4 of 5", "80.0"]
    assert table.iloc[3].tolist() == ["1 of 7", "0", "4 of 5", "80.0"]  # only q2 has a clean wording
    assert "clean wording (oracle)" not in table4.query_table(predictions).index


def test_table_4_calls_its_rows_by_the_place_of_the_revision(frame, predictions):
    assert table4.positions(frame).index.tolist() == ["No revision", "Rewrite first", "CoV-RAG"]
    rescued = rewrite(predictions, q2="where was ada voss")
    assert [p.system for p in table4.same_question(rescued)] == ["Start-Revise trained", "CoV-RAG"]
    assert {p.question.id for p in table4.same_question(rescued)} == {"q2"}


# Table 6.


@pytest.fixture
def searched(cov):
    return retrieval_table(join_retrievers({"one": toy.of_public_sets(cov)}))


def test_the_share_before_and_after_has_n_intervals_and_what_was_gained_and_lost(searched):
    long = searched.set_index(["measure", "questions", "retriever"])
    columns = ["n", "first", "last", "delta", "gained", "lost"]
    assert long.loc[("answer", "NQ", "one"), columns].tolist() == [4, 100, 75, -25, 0, 1]
    assert long.loc[("gold passage", "NQ", "one"), columns].tolist() == [4, 75, 75, 0, 1, 1]
    row = long.loc[("answer", "WebQ", "one")]
    assert row[columns].tolist() == [2, 50, 100, 50, 1, 0]  # the gold answer of q6 normalises to nothing
    assert row.first_low < 50 < row.first_high and row.delta_low <= 50 <= row.delta_high
    assert long.loc[("answer", "all", "one"), "n"] == 6
    assert [long.loc[("gold passage", form, "one"), "n"] for form in ("broken wording", "well put")] == [1, 4]


def test_the_papers_engines_are_shown_only_for_its_own_sets_and_measure(searched):
    paper = searched.query("n.isna()")
    assert set(paper.measure) == {"answer"} and set(paper.questions) == {"NQ", "WebQ"}
    assert set(paper.retriever) == {"Bing*", "Chrome*"}
    shown = wide(searched).set_index(["questions", "retriever"])
    assert shown.loc[("NQ", "Bing*")].tolist() == ["", "65.0", "66.8", "+1.8", "", "", ""]


def test_a_notebook_shows_the_papers_engines_first_and_counts_where_questions_are_few(searched):
    table = table6.next_to_paper(searched)
    assert table.index.tolist() == ["Bing (the paper)", "Chrome (the paper)", "one"]
    assert table["NQ, n = 4"].loc["Bing (the paper)"].tolist() == ["65.0", "66.8", "+1.8"]
    assert table["NQ, n = 4"].loc["one"].tolist() == ["4 of 4", "3 of 4", "−1"]
    many = searched.assign(n=searched.n * 100)
    row = table6.before_after(many).loc[("NQ", "one")]
    assert (row.n, row.before, row.after) == ("400", "100.0", "75.0") and row.difference.startswith("−25.0 [")


def test_the_picture_has_bars_for_our_retrievers_and_diamonds_for_the_papers_engines(searched, tmp_path):
    figure = table6.plot(searched, "toy", tmp_path / "table6.png")
    nq, webq = figure.axes
    assert [text.get_text() for text in nq.get_xticklabels()] == ["one", "Bing", "Chrome"]
    assert [bar.get_height() for bar in nq.patches] == [100, 75]  # before, after
    diamonds = {line.get_label(): list(line.get_ydata()) for line in nq.lines if line.get_marker() == "D"}
    assert diamonds == {"the paper, before": [65.0, 69.3], "the paper, after": [66.8, 71.3]}
    assert nq.patches[0].get_facecolor()[:3] == to_rgb(palette()["CoV-RAG-S"])
    assert nq.patches[1].get_facecolor()[:3] == to_rgb(palette()["CoV-RAG"])
    assert nq.get_title() == "NQ (n = 4, a sample)" and "WebQ" in webq.get_title()
    pyplot.close(figure)


def test_without_a_model_the_second_round_asks_in_the_clean_wording_and_no_page_of_the_web_is_known_to_be_gold():
    asked = []

    def search(queries):
        asked.append(queries)
        return toy.search(queries)

    made = search_twice(QUESTIONS, search)
    known = join_retrievers({"bm25": made, "web-ddgs": made}).groupby("retriever").gold_first.count()
    assert known.to_dict() == {"bm25": 5, "web-ddgs": 0}
    own = to_frame(made).set_index("id")
    assert asked == [list(TEXTS.values()), [BORN if one == "q2" else text for one, text in TEXTS.items()]]
    assert (own.gold_first["q2"], own.gold_last["q2"], own.gold_first["q5"]) == (False, True, None)
    assert not any(BORN == one.query for p in made for one in p.rounds)  # the data's own text is not recorded


@pytest.mark.filterwarnings("ignore:.*normalise to nothing")
def test_table_6_is_made_anew_byte_for_byte_where_its_data_is_gone(tmp_path):
    for name, rows in {"nq": QUESTIONS[:4], "webq": QUESTIONS[4:], "corpus": PASSAGES.values()}.items():
        write_jsonl(tmp_path / "library" / f"{name}.jsonl", map(asdict, rows))
    given = {"data": str(tmp_path / "library"), "retrievers": ("bm25",), "n_questions": 2, "systems": ("CoV-RAG",)}
    config, resources = toy.stage(tmp_path, **given)
    asked, every = load_questions(config), load_questions(config.change(n_questions=0))
    made = evaluate.run(config, resources, asked) + search_twice(asked, toy.search)
    data = {"questions": asked, "every": every, "passages": load_passages(config)}
    run = recorded.save_run(tmp_path, "table6", {"bm25": made}, config, resources.model, 1.0, data)
    run = recorded.Recorded(tmp_path, "table6", json.loads(json.dumps(run.manifest)), tmp_path)
    for name in ("with", "without"):
        table6.build(table6.load(run), run).save(tmp_path / name, draw=False)
        shutil.rmtree(tmp_path / "library", ignore_errors=True)
    with pytest.raises(FileNotFoundError, match="library"):
        table6.score_searches(run)
    made = {file.name: file.read_bytes() for file in (tmp_path / "without").iterdir()}
    assert made == {file.name: file.read_bytes() for file in (tmp_path / "with").iterdir()}
    assert set(made) == {f"table6.{end}" for end in ("csv", "md", "facts.json")}


# Machado, Oliveira and Fernandes (2009): linear RGB for three kinds of colour blindness.
VIEWS = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def to_lab(colour: str, view: list[list[float]]) -> np.ndarray:
    """A colour in CIELAB, where distances approximate what the eye sees."""
    value = np.array(to_rgb(colour))
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
    xyz = to_xyz @ np.clip(np.array(view) @ linear, 0, 1) / (0.9505, 1, 1.089)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_systems_of_one_picture_differ_for_every_kind_of_eye():
    plans = [load_plans(name, {"data": "world"})[0] for name in ("smollm2-135m", "smollm2-135m-world")]
    drawn = [plan.settings[table] for plan in plans for table in ("table2", "claim")]
    drawn += [Related().related_systems, table4.POSITIONS, (*table5.CHAINS, table5.CONTROL)]
    for names, (view, cones) in product(drawn, VIEWS.items()):
        for a, b in combinations([name for name in names if name in palette()], 2):
            distance = np.linalg.norm(to_lab(palette()[a], cones) - to_lab(palette()[b], cones))
            assert distance > 10, (a, b, view)
