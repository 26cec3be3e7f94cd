"""Recorded predictions to look at: what came of each verdict, and the page with all of them."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from toy import BORN, LOW, SYSTEMS, TEXTS, of_public_sets

from covrag_lite.config import Config
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.runs.frame import to_frame
from covrag_lite.runs.predictions import load_predictions, save_predictions
from covrag_lite.systems import palette
from covrag_lite.systems.names import COV_RAG, NO_CHAIN, RAG, RAG_TRAINED
from covrag_lite.tables import browse, browse_page, pictures
from covrag_lite.tables.display import show


@pytest.fixture
def judged(cov):
    """The outcomes of CoV-RAG, with some judgments changed."""
    frame = to_frame(cov)
    frame["judgment"] = ["false", "true", *frame.judgment[2:6], "unclear"]
    return frame


def test_a_question_has_the_outcomes_of_its_verdict(cov, judged):
    outcomes = {}
    for item in browse_page.build_data(cov, judged, "toy")["predictions"]:
        if item["outcomes"]:
            outcomes[item["id"]] = item["outcomes"]
    assert outcomes == {
        "q1": ["wrongly rejected"],
        "q2": ["helped", "wrongly accepted"],
        "q4": ["hurt", "wrongly rejected"],
        "q7": ["helped"],
    }


def test_outcomes_are_counted_by_system(judged):
    row = browse.count_outcomes(judged).loc[COV_RAG]
    assert row.to_dict() == {
        "questions": 7,
        "with a verdict": 7,
        "searched again": 3,
        "helped": 2,
        "hurt": 1,
        "wrongly rejected": 2,
        "wrongly accepted": 1,
    }


def test_the_first_question_of_each_outcome_is_listed(cov, judged):
    table = browse.first_of_each(cov, judged)
    assert table.index.tolist() == list(browse.OUTCOMES)
    assert table.loc["hurt", "question"] == TEXTS["q4"]
    assert table.loc["helped", "revised question"] == BORN


def test_an_outcome_that_no_question_has_is_not_listed(cov):
    table = browse.first_of_each(cov[:1], to_frame(cov[:1]))
    assert table.empty


def test_the_first_question_with_an_outcome_is_found(cov, judged):
    assert browse.first_with(cov, judged, "hurt").question.id == "q4"


def test_only_systems_with_verdicts_are_kept(predictions, frame):
    kept, rows = browse.keep_verified(predictions, frame, [RAG_TRAINED, COV_RAG])
    assert {prediction.system for prediction in kept} == set(rows.system) == {COV_RAG}
    assert len(kept) == len(rows)


def test_systems_without_verdicts_are_named(predictions, frame, capsys):
    browse.keep_verified(predictions, frame, [RAG_TRAINED, COV_RAG])
    assert capsys.readouterr().out == "Not shown, because they write no verdict: RAG (trained)\n"


def test_systems_of_which_none_wrote_a_verdict_are_refused_with_those_that_did(predictions, frame):
    message = "none of the systems RAG wrote a verdict .*; set systems to some of .*CoV-RAG"
    with pytest.raises(ValueError, match=message):
        browse.keep_verified(predictions, frame, [RAG])


def test_without_a_recorded_run_the_parameter_to_set_is_named():
    with pytest.raises(ValueError, match="no recorded run of this model and data; set record to"):
        browse.load_recorded(None, Config())


def test_a_prediction_is_found_by_system_and_question(predictions):
    prediction = browse.find_prediction(predictions, COV_RAG, "q2")
    assert (prediction.system, prediction.question.id) == (COV_RAG, "q2")


def test_a_prediction_that_there_is_not_is_an_error(predictions):
    with pytest.raises(LookupError, match="no prediction of CoV-RAG for the question q99"):
        browse.find_prediction(predictions, COV_RAG, "q99")


def test_the_answers_of_all_systems_to_one_question_are_compared(predictions):
    of_question = [item for item in predictions if item.question.id == "q2"]
    row = browse.compare_answers(of_question).loc["CoV-RAG"]
    assert row[["searches", "last query", "right?"]].tolist() == [2, BORN, "right"]


def test_tables_call_a_system_by_its_label(predictions):
    assert "RAG (trained)" in browse.compare_answers(predictions).index


def test_a_prediction_calls_its_system_by_its_label(cov):
    shown = show(replace(cov[1], system=NO_CHAIN)).data
    assert "CoV-RAG, no scores" in shown
    assert "w/o chain" not in shown


# The page.

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='alert(2)'><!--"
DATA = re.compile(r'<script type="application/json"[^>]*>(.*?)</script>', re.DOTALL)


def data_of(page):
    return json.loads(DATA.search(page)[1])


def test_the_page_has_the_label_and_the_colour_of_each_system(cov):
    systems = browse_page.build_data(cov, to_frame(cov), "toy")["systems"]
    assert systems == {COV_RAG: ["CoV-RAG", palette()[COV_RAG]]}


def test_the_first_and_the_last_answer_are_right_or_wrong(cov):
    data = browse_page.build_data(cov, to_frame(cov), "toy")
    rounds = {
        item["id"]: [step["right"] for step in item["rounds"]] for item in data["predictions"]
    }
    assert rounds["q1"] == ["right"]
    assert rounds["q2"] == ["wrong", "right"]
    assert rounds["q4"] == ["right", "wrong"]


def test_passages_that_contain_an_answer_are_marked(cov):
    data = browse_page.build_data(cov, to_frame(cov), "toy")
    first, last = data["predictions"][1]["rounds"]
    assert first["passages"] == ["c", "d"]
    assert first["holds"] == [0, 1]  # both name Stell
    assert last["holds"] == [0]


@pytest.fixture
def hostile_page():
    """A page in which every text is an attack."""
    passage = Passage(HOSTILE, HOSTILE, HOSTILE)
    verdict = parse_verdict(render_verdict([0.5] * 6, "false", HOSTILE))
    question = Question(HOSTILE, "nq", HOSTILE, (HOSTILE,), (), "", HOSTILE)
    rounds = (Round(HOSTILE, (passage,), HOSTILE, verdict), Round("x", (), HOSTILE))
    hostile = Prediction(question, COV_RAG, rounds)
    return browse_page.build_page([hostile], to_frame([hostile]), HOSTILE)


def test_no_text_becomes_markup(hostile_page):
    # The data and the page's own script.
    assert hostile_page.count("<script") == hostile_page.count("</script>") == 2
    assert "<img" not in hostile_page
    assert "<!--" not in hostile_page


def test_every_text_is_in_the_data(hostile_page):
    data = data_of(hostile_page)
    assert data["passages"][HOSTILE] == [HOSTILE, HOSTILE]
    assert data["predictions"][0]["rounds"][0]["verdict"]["revised_question"] == HOSTILE


def test_the_script_sets_texts_only_as_text():
    script = (browse_page.FOLDER / "browse.js").read_text()
    unsafe = "innerHTML|outerHTML|insertAdjacentHTML|document.write|eval"
    assert not re.search(unsafe, script)


def test_typed_words_are_no_shortcuts_of_jupyterlab(hostile_page):
    assert 'data-lm-suppress-shortcuts="true"' in hostile_page


@pytest.fixture
def page_without_texts(cov, tmp_path):
    """The page of q2, saved and loaded without its data; its verdict repeats the question."""
    first, last = cov[1].rounds
    echo = parse_verdict(render_verdict(LOW, "false", f"{TEXTS['q2']}? Voss was born in"))
    prediction = replace(cov[1], rounds=(replace(first, verdict=echo), last))
    save_predictions(tmp_path / "p.jsonl.xz", [prediction])
    loaded = load_predictions(tmp_path / "p.jsonl.xz")
    return browse_page.build_page(loaded, to_frame(loaded), "toy")


def test_without_the_data_no_text_of_it_is_shown(page_without_texts):
    assert not data_of(page_without_texts)["texts"]
    assert TEXTS["q2"] not in page_without_texts
    assert "Harbour" not in page_without_texts


def test_without_the_data_a_repeated_question_is_a_mark(page_without_texts):
    first, _ = data_of(page_without_texts)["predictions"][0]["rounds"]
    assert first["verdict"]["revised_question"] == "⟨the question⟩? Voss was born in"


def test_without_the_data_ids_and_recorded_outcomes_are_shown(page_without_texts):
    (item,) = data_of(page_without_texts)["predictions"]
    first, last = item["rounds"]
    assert first["passages"] == ["c", "d"]
    assert (first["right"], last["right"]) == ("wrong", "right")
    assert item["outcomes"] == ["helped"]


def test_without_the_data_the_page_has_no_scores_of_its_own(page_without_texts):
    (item,) = data_of(page_without_texts)["predictions"]
    assert [step["holds"] for step in item["rounds"]] == [[], []]


def test_the_page_has_what_its_script_shows(cov):
    data = browse_page.build_data(cov, to_frame(cov), "a title")
    assert data["title"] == "a title"
    assert data["texts"]
    assert data["sets"] == {"one": "one", "two": "two"}
    assert data["questions"]["q1"]["question"] == TEXTS["q1"]
    assert data["passages"]["d"] == ["Bridge", "The bridge of Stell is 71 metres long."]


def test_a_passage_of_a_second_search_is_on_the_page(cov):
    data = browse_page.build_data(cov[1:2], to_frame(cov[1:2]), "toy")
    assert set(data["passages"]) == {"c", "d", "b", "a"}


def test_systems_of_the_page_are_in_the_order_of_a_tables_rows(predictions, frame):
    data = browse_page.build_data(predictions[::-1], frame[::-1], "toy")
    assert list(data["systems"]) == list(SYSTEMS)


def test_predictions_and_outcomes_of_different_numbers_are_refused(cov):
    with pytest.raises(ValueError, match="zip"):
        browse_page.build_data(cov, to_frame(cov[1:]), "toy")


def test_a_round_has_its_query_its_answer_and_its_verdict(cov):
    data = browse_page.build_data(cov[1:2], to_frame(cov[1:2]), "toy")
    (item,) = data["predictions"]
    first, last = item["rounds"]
    assert (item["system"], item["id"]) == (COV_RAG, "q2")
    assert (first["query"], first["answer"]) == (TEXTS["q2"], "Mere[1]")
    assert (last["query"], last["answer"]) == (BORN, "Stell[1]")
    assert first["verdict"]["judgment"] == "false"
    assert last["verdict"] is None


@pytest.mark.parametrize("is_whole, text", [(True, ""), (False, "no verdict")])
def test_only_a_verdict_that_does_not_parse_is_shown_as_its_raw_text(cov, is_whole, text):
    first = cov[0].rounds[0]
    verdict = first.verdict if is_whole else parse_verdict("no verdict")
    step = browse_page.round_data(replace(first, verdict=verdict), ["Ada Voss"], None)
    assert step["verdict"]["text"] == text


def test_a_round_between_the_first_and_the_last_is_neither_right_nor_wrong(cov):
    first, last = cov[1].rounds
    longer = replace(cov[1], rounds=(first, first, last), kept=2)
    item = browse_page.prediction_data(longer, browse.mark_outcomes(to_frame([longer])).iloc[0])
    assert [step["right"] for step in item["rounds"]] == ["wrong", None, "right"]


def test_two_pages_of_one_notebook_have_different_names(cov):
    pages = [browse_page.build_page(cov[:n], to_frame(cov[:n]), "toy") for n in (1, 2)]
    names = [re.search(r'<div id="([^"]+)"', page)[1] for page in pages]
    assert names[0] != names[1]
    for name, page in zip(names, pages):
        assert f'id="{name}-data"' in page
        assert f'showPredictions("{name}", ' in page


# What is loaded, found and listed.


def test_counts_are_in_the_order_in_which_a_verdict_works(judged):
    assert list(browse.count_outcomes(judged)) == [
        *["questions", "with a verdict", "searched again", *browse.OUTCOMES]
    ]


def test_systems_are_counted_in_the_order_of_a_tables_rows(frame):
    counts = browse.count_outcomes(frame)
    assert list(counts.index) == list(SYSTEMS)
    assert counts.loc[RAG, "with a verdict"] == 0


def test_a_question_that_cannot_be_scored_has_no_outcome_of_its_answer(cov, judged):
    unscored = browse.mark_outcomes(judged[judged.id == "q6"].assign(judgment="true", revised=True))
    assert not unscored[list(browse.OUTCOMES)].any(axis=None)


def test_a_row_about_an_outcome_has_both_answers_and_the_gold_ones(cov, judged):
    row = browse.first_of_each(cov, judged).loc["helped"]
    assert row.to_dict() == {
        "question": TEXTS["q2"],
        "first answer": "Mere[1]",
        "revised question": BORN,
        "second answer": "Stell[1]",
        "gold": "Stell",
    }


def test_a_row_about_a_question_that_was_not_searched_again_has_one_answer(cov, judged):
    row = browse.first_of_each(cov, judged).loc["wrongly rejected"]
    assert row[["revised question", "second answer", "gold"]].tolist() == [
        *["(none)", "–", "Ada Voss | A. Voss"]
    ]


def test_outcomes_are_those_of_the_prediction_in_the_same_row(cov, judged):
    shuffled = judged.sample(frac=1, random_state=3)
    of_rows = [cov[int(name[1]) - 1] for name in shuffled.id]
    assert browse.first_of_each(of_rows, shuffled).loc["hurt", "question"] == TEXTS["q4"]


def test_an_outcome_that_no_question_has_is_not_found(cov):
    with pytest.raises(LookupError, match="no question of this run is hurt"):
        browse.first_with(cov[:1], to_frame(cov[:1]), "hurt")


def test_a_question_that_was_not_searched_for_has_no_query(predictions):
    of_question = [item for item in predictions if item.question.id == "q1"]
    row = browse.compare_answers(of_question).iloc[0]
    assert row[["searches", "last query"]].tolist() == [0, "–"]


def test_an_answer_that_cannot_be_scored_is_neither_right_nor_wrong(cov):
    (row,) = browse.compare_answers([cov[5]]).to_dict("records")
    assert row["right?"] == "not scored"
    assert row["answer"] == "a town"


def test_the_kept_answer_is_the_one_that_is_right_or_wrong(cov):
    (row,) = browse.compare_answers([replace(cov[1], kept=0)]).to_dict("records")
    assert (row["answer"], row["right?"]) == ("Mere[1]", "wrong")


def test_recorded_predictions_of_one_question_are_in_the_order_of_a_table(predictions, monkeypatch):
    monkeypatch.setattr(browse.recorded, "choose", lambda config: "a run")
    monkeypatch.setattr(browse.recorded, "load_or_outcomes", lambda run: predictions[::-1])
    found = browse.find_recorded(Config(), predictions[1].question)
    assert [prediction.system for prediction in found] == list(SYSTEMS)
    assert {prediction.question.id for prediction in found} == {predictions[1].question.id}


def test_without_a_record_no_prediction_is_found(predictions, monkeypatch):
    monkeypatch.setattr(browse.recorded, "choose", lambda config: None)
    assert browse.find_recorded(Config(), predictions[0].question) == []


def test_a_record_of_real_questions_is_loaded_with_the_data_that_is_named(cov, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        browse.recorded, "load", lambda run, config: loaded.append(config.data) or cov
    )
    run = SimpleNamespace(config=Config())
    config = Config().change(data="folder/questions", corpus="folder/corpus")
    predictions, frame = browse.load_recorded(run, config)
    assert [(data.data, data.corpus) for data in loaded] == [("folder/questions", "folder/corpus")]
    assert predictions is cov
    assert frame.id.tolist() == [prediction.question.id for prediction in cov]


def test_a_record_of_the_fictional_world_is_loaded_with_or_without_its_texts(cov, monkeypatch):
    monkeypatch.setattr(browse.recorded, "load_or_outcomes", lambda run: [cov[0]])
    predictions, frame = browse.load_recorded(SimpleNamespace(config=Config()), Config())
    assert predictions == [cov[0]]
    assert frame.id.tolist() == ["q1"]


def test_a_system_without_a_colour_is_grey_on_the_page(cov):
    free = [replace(prediction, system="CoV-RAG free") for prediction in cov]
    systems = browse_page.build_data(free, to_frame(free), "toy")["systems"]
    assert systems["CoV-RAG free"] == ["CoV-RAG, free decoding", pictures.OTHER]


def test_a_set_of_the_page_has_its_label(cov):
    of_sets = of_public_sets(cov)
    sets = browse_page.build_data(of_sets, to_frame(of_sets), "toy")["sets"]
    assert sets == {"nq": "NQ", "webq": "WebQ"}


def test_a_question_without_a_text_is_listed_by_its_id(cov, judged):
    bare = [replace(p, question=replace(p.question, question="")) for p in cov]
    assert browse.first_of_each(bare, judged).loc["helped", "question"] == "q2"


def test_a_repeated_question_whose_text_is_missing_is_a_mark_in_the_list(cov, judged):
    first, last = cov[1].rounds
    verdict = replace(first.verdict, revised_question="⟨question 401⟩? Voss was born in")
    marked = replace(cov[1], rounds=(replace(first, verdict=verdict), last))
    row = browse.summarise_prediction(marked)
    assert row["revised question"] == f"{browse.NO_TEXT}? Voss was born in"


def test_systems_of_which_one_wrote_a_verdict_for_some_questions_are_kept(predictions, frame):
    one_verdict = frame.assign(verdicts=frame.verdicts.where(frame.id == "q1", 0))
    kept, _ = browse.keep_verified(predictions, one_verdict, [COV_RAG])
    assert {prediction.system for prediction in kept} == {COV_RAG}
