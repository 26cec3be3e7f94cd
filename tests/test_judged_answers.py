"""Which answers of a recorded run are judged, and what a judge of them reads."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from covrag_lite.config import Config
from covrag_lite.data.missing import DataMissing
from covrag_lite.judging import answers as judged
from covrag_lite.judging import revisions
from covrag_lite.judging.answers import Answers, find_run, gather_answers, load_answers
from covrag_lite.judging.criteria import build_verdict
from covrag_lite.judging.rubric import judge_by_rubric, score_answer
from covrag_lite.judging.served import answer_names, build_request, is_score, parse_scores
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.runs.recorded import Recorded

RIVER = Passage("p1", "Stell", "The Stell is 71 kilometres long.")
NOVEL = Passage("p2", "Copper Lanterns", "A novel by Edith Marrow.")
RANKED = ("RAG", "RAG trained", "CoV-RAG-S", "CoV-RAG")
HASHES = {"cov": "c3", "rag": "a1", "rewrite": "d4"}


def ask(dataset, number):
    return Question(f"{dataset}{number}", dataset, f"{dataset} {number}?", ("Edith",), ("p2",))


QUESTIONS = [ask("nq", 1), ask("nq", 2), ask("webq", 1)]


def predict(question, system, text="Edith Marrow[1]", passages=(NOVEL,)):
    return Prediction(question, system, (Round(question.question, tuple(passages), text),))


def predict_all(systems, questions=tuple(QUESTIONS)):
    return [predict(question, system) for system in systems for question in questions]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A clone with recorded runs; only some of them have their predictions."""
    runs = []
    manifest = {"model_sha256": "m0", "weights": "gguf", "adapters": HASHES}
    manifest["parameters"] = Config().change(k=3).flat()
    for place, table, is_kept in (
        ("results/toy", "table3", True),
        ("results/toy", "table2", True),
        ("results/toy", "table5", True),
        ("results/cut", "table2", False),
        ("mine", "table2", True),
    ):
        run = Recorded(tmp_path / place, table, manifest, tmp_path)
        run.folder.mkdir(parents=True, exist_ok=True)
        if is_kept:
            run.predictions().touch()
        runs.append(run)
    monkeypatch.setattr(judged.recorded, "find", lambda root: runs)
    monkeypatch.setattr(judged, "load_passages", lambda config: [RIVER, NOVEL])
    return tmp_path


@pytest.fixture
def loaded(root, monkeypatch):
    """The predictions of every recorded run: those of more systems than are judged."""
    systems = ("closed-book", *reversed(RANKED), "CoV-RAG w/o chain")
    monkeypatch.setattr(judged.recorded, "load", lambda run: predict_all(systems))
    return root


# The recorded run.


def test_the_judged_run_is_the_table_2_of_the_folder_in_results(root):
    run = find_run("toy", root)
    assert (run.folder, run.table) == (root / "results" / "toy", "table2")


def test_a_folder_outside_of_results_can_be_judged(root):
    assert find_run("mine", root).folder == root / "mine"


def test_another_table_of_the_folder_can_be_judged(root):
    assert find_run("toy", root, "table5").table == "table5"


@pytest.mark.parametrize("folder", ["cut", "none"])
def test_a_run_without_predictions_is_missing(root, folder):
    sentence = f"predictions is '{folder}', but there is no recorded table2 in that folder"
    with pytest.raises(DataMissing, match=sentence):
        find_run(folder, root)


def test_the_revisions_of_table_5_are_judged(loaded):
    answers = revisions.load_revised(Config().change(predictions="toy"), loaded)
    assert list(answers.groups[0]) == ["CoV-RAG w/o chain", "CoV-RAG"]


def test_without_the_data_the_revisions_are_loaded_without_it(loaded, monkeypatch):
    parts = []
    monkeypatch.setattr(revisions.recorded, "load", None)
    monkeypatch.setattr(
        revisions.recorded,
        "load_part",
        lambda run: parts.append(run.table) or predict_all(("CoV-RAG", "CoV-RAG w/o chain")),
    )
    revisions.load_revised_without_texts(Config().change(predictions="toy"), loaded)
    assert parts == ["table5"]


@pytest.mark.parametrize("load", [load_answers, revisions.load_revised])
def test_a_parameter_without_effect_on_recorded_answers_is_refused(loaded, load):
    sentence = "parameter k is 3, but it has no effect on recorded answers; leave it at its default"
    with pytest.raises(ValueError, match=sentence):
        load(Config().change(predictions="toy", k=3), loaded)


def test_parameters_of_judges_and_of_the_run_have_an_effect(loaded):
    config = Config().change(predictions="toy", judges=("endpoint:x",), name="other")
    assert load_answers(config, loaded).questions == QUESTIONS


# The answers.


def test_the_systems_of_table_3_are_judged_in_its_order(loaded):
    answers = load_answers(Config().change(predictions="toy"), loaded)
    assert [list(group) for group in answers.groups] == [list(RANKED)] * 3


@pytest.mark.parametrize("load", [load_answers, revisions.load_revised])
def test_only_the_first_questions_of_each_set_are_loaded(loaded, load):
    answers = load(Config().change(predictions="toy", n_judged=1), loaded)
    assert [question.id for question in answers.questions] == ["nq1", "webq1"]


@pytest.mark.parametrize("load", [load_answers, revisions.load_revised])
def test_each_question_has_its_own_answers(loaded, load):
    answers = load(Config().change(predictions="toy", n_judged=1), loaded)
    for question, group in zip(answers.questions, answers.groups, strict=True):
        assert {prediction.question for prediction in group.values()} == {question}


def test_the_corpus_and_the_retriever_are_those_of_the_run(loaded):
    answers = load_answers(Config().change(predictions="toy"), loaded)
    assert answers.passages == [RIVER, NOVEL]
    assert answers.retrieval.k == 3


def test_the_adapters_of_the_judged_systems_alone_are_named(loaded):
    answers = load_answers(Config().change(predictions="toy"), loaded)
    assert answers.model.adapters == {"cov": "c3", "rag": "a1"}
    assert (answers.model.sha256, answers.model.weights) == ("m0", "gguf")


def test_one_system_cannot_be_ranked(root):
    run = find_run("toy", root)
    sentence = "the recorded run toy/table2 has too few systems; use a run with at least two of RAG"
    with pytest.raises(ValueError, match=sentence):
        gather_answers(run, predict_all(("RAG", "closed-book")), RANKED, 0)


def test_two_systems_can_be_ranked(root):
    answers = gather_answers(find_run("toy", root), predict_all(("RAG", "CoV-RAG")), RANKED, 0)
    assert list(answers.groups[0]) == ["RAG", "CoV-RAG"]


def test_without_texts_no_passage_is_loaded(root, monkeypatch):
    monkeypatch.setattr(judged, "load_passages", None)
    bare = tuple(replace(question, question="") for question in QUESTIONS)
    answers = gather_answers(find_run("toy", root), predict_all(RANKED, bare), RANKED, 0)
    assert answers.passages == []
    assert not answers.has_texts


# References.


def test_a_system_without_references_is_not_among_those_cited_together():
    group = {"closed-book": predict(QUESTIONS[0], "closed-book", passages=())}
    group |= {system: predict(QUESTIONS[0], system) for system in ("RAG", "CoV-RAG")}
    assert Answers(QUESTIONS[:1], [group], []).cited_together == ("RAG", "CoV-RAG")


def test_without_references_no_system_is_cited():
    group = {system: predict(QUESTIONS[0], system, passages=()) for system in ("RAG", "CoV-RAG")}
    assert Answers(QUESTIONS[:1], [group], []).cited_together == ()


def test_a_search_that_once_finds_nothing_leaves_the_systems_together():
    groups = []
    for question, passages in zip(QUESTIONS, [(NOVEL,), (), (RIVER,)]):
        groups.append(
            {system: predict(question, system, passages=passages) for system in ("RAG", "CoV-RAG")}
        )
    assert Answers(QUESTIONS, groups, []).cited_together == ("RAG", "CoV-RAG")


# The rubric.


def test_the_rubric_reads_the_gold_passages(questions, passages):
    question = questions[0]  # its gold answer does not name the year of its gold passage
    group = {"RAG": predict(question, "RAG", "1893", passages[2:4])}
    (verdict,) = judge_by_rubric(Answers([question], [group], passages))
    assert verdict["scores"]["bias"] == {"RAG": 0}


def test_a_gold_passage_that_the_corpus_lacks_is_left_out(questions, passages):
    question = questions[0]
    group = {"RAG": predict(question, "RAG", "1893", passages[2:4])}
    (verdict,) = judge_by_rubric(Answers([question], [group], passages[1:]))
    assert verdict["scores"]["bias"] == {"RAG": 1}


def test_an_answer_may_be_as_long_as_the_longest_gold_answer():
    question = replace(QUESTIONS[0], answers=("Marrow", "Edith Anne Marrow"))
    scores = score_answer(predict(question, "RAG", "Edith Anne Marrow"), [])
    assert scores["conciseness"] == 1


def test_truthfulness_is_the_share_of_words_in_the_references():
    scores = score_answer(predict(QUESTIONS[0], "RAG", "Edith Marrow Voss Toll"), [])
    assert scores["truthfulness"] == 0.5


def test_the_title_of_a_reference_supports_a_claim():
    scores = score_answer(predict(QUESTIONS[0], "RAG", "Copper Lanterns[1]"), [])
    assert (scores["truthfulness"], scores["citation_accuracy"]) == (1, 1)


def test_a_verdict_names_its_judge_its_question_and_the_scores_by_criterion():
    scores = {"RAG": {"correctness": 0.12346}, "CoV-RAG": {"correctness": None}}
    assert build_verdict("a judge", QUESTIONS[0], scores, ["correctness"]) == {
        "judge": "a judge",
        "order": 1,
        "dataset": "nq",
        "id": "nq1",
        "scores": {"correctness": {"RAG": 0.1235, "CoV-RAG": None}},
    }


# A served judge.


def request(question, group, texts, cited_together):
    return build_request(question, group, texts, cited_together).splitlines()


def test_a_request_shows_the_question_each_answer_and_the_references_that_are_cited():
    group = {"RAG": predict(QUESTIONS[0], "RAG", "a"), "CoV-RAG": predict(QUESTIONS[0], "CoV-RAG")}
    group["CoV-RAG"] = predict(QUESTIONS[0], "CoV-RAG", "b", [RIVER])
    lines = request(QUESTIONS[0], group, ["b", "a"], ("RAG",))
    assert "Question: nq 1?" in lines
    assert "answer1: b" in lines
    assert "answer2: a" in lines
    assert any("Edith Marrow" in line for line in lines)
    assert not any("71 kilometres" in line for line in lines)


def test_a_request_without_references_can_be_built():
    group = {"RAG": predict(QUESTIONS[0], "RAG", "a", passages=())}
    assert "answer1: a" in request(QUESTIONS[0], group, ["a"], ())


def test_the_form_of_a_request_has_a_score_of_every_answer_by_every_criterion():
    group = {"RAG": predict(QUESTIONS[0], "RAG", "a")}
    form = json.loads(request(QUESTIONS[0], group, ["a", "b"], ("RAG",))[-1])
    assert list(form) == [
        *("citation_accuracy", "correctness", "truthfulness", "bias", "conciseness"),
    ]
    assert all(scores == {"answer1": 0.5, "answer2": 0.5} for scores in form.values())


@pytest.mark.parametrize(
    ("value", "counts"),
    [(0, True), (1, True), (0.5, True), (-0.1, False), (1.1, False), ("1", False), (False, False)],
)
def test_a_score_is_a_number_from_0_to_1(value, counts):
    assert is_score(value) == counts


def test_scores_are_in_the_order_of_the_answers():
    reply = json.dumps({"revision": {"answer2": 0.2, "answer1": 0.1}})
    assert parse_scores(reply, 2, ["revision"]) == {"revision": [0.1, 0.2]}


def test_one_score_that_is_not_valid_spoils_a_reply():
    reply = json.dumps({"revision": dict(zip(answer_names(2), (0.1, 2)))})
    assert parse_scores(reply, 2, ["revision"]) is None


# Revised questions.


@pytest.mark.parametrize(
    ("gold", "found", "counts"),
    [(True, False, True), (False, True, False), (None, True, True), (None, False, False)],
)
def test_a_search_found_a_gold_passage_or_an_answer_where_none_is_named(gold, found, counts):
    outcome = SimpleNamespace(gold=gold, found=found)
    assert revisions.has_found(outcome) == counts


def test_references_are_not_searched_again_without_a_retriever():
    bare = Prediction(
        QUESTIONS[0],
        "CoV-RAG",
        (Round("", (), "a"), Round("", (NOVEL,), "b")),
    )
    answers = Answers(QUESTIONS[:1], [{"CoV-RAG": bare}], [])
    assert revisions.find_references(answers) == [()]


def test_one_missing_record_of_references_searches_all_again(monkeypatch):
    groups = []
    for question, passages in zip(QUESTIONS[:2], ((NOVEL,), ())):
        rounds = (Round("", passages, "a"), Round("", (), "b"))
        groups.append({"CoV-RAG": Prediction(question, "CoV-RAG", rounds)})
    queries = []
    monkeypatch.setattr(revisions, "load_retriever", lambda settings, passages: queries.append)
    answers = Answers(QUESTIONS[:2], groups, [], retrieval=Config().retrieval)
    revisions.find_references(answers)
    assert queries == [["nq 1?", "nq 2?"]]


def test_a_request_about_revisions_shows_question_and_gold_answers():
    question = replace(QUESTIONS[0], answers=("Edith", "Marrow"))
    lines = revisions.build_request(question, [NOVEL], []).splitlines()
    assert "Question: nq 1?" in lines
    assert "Gold answer: Edith | Marrow" in lines
