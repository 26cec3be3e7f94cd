"""Table 3: the ranks of the systems, by the rubric and by a served judge on a local server."""

import json
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from matplotlib import pyplot
from test_endpoint import connect, server  # noqa: F401  a server that can fail in every way

from covrag_lite.config import Config, from_notebook
from covrag_lite.engine.journal import Journal
from covrag_lite.judging.answers import Answers, first_questions
from covrag_lite.judging.criteria import CRITERIA, build_verdict
from covrag_lite.judging.rubric import PROXY
from covrag_lite.judging.served import judge_by_endpoint, parse_scores
from covrag_lite.records import Prediction, Question, Round
from covrag_lite.runs.frame import outcome_of
from covrag_lite.runs.manifest import ModelFacts, build_manifest
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import table3
from covrag_lite.tables.labels import label_of
from covrag_lite.tables.ranks import (
    RANK,
    SCORE_COLUMNS,
    compare_ranked,
    mean_rank,
    rank_table,
    ranked_scores,
    score_frame,
)

TEXTS = {
    "RAG": ["I know it not", "maybe"],
    "RAG trained": ["Aldermere[1]", "Stonebridge[2]"],
    "CoV-RAG-S": ["Aldermere[1]", "Harrow[1]"],
    "CoV-RAG": ["Edith Marrow[1]", "Stonebridge[1]"],
}
SYSTEMS = tuple(TEXTS)
WORDS = ("copper", "Marrow", "Aldermere", "Stonebridge")  # of questions, passages and answers
# The served judge's score of each answer, by every criterion.
PREFERENCES = {
    "Edith Marrow[1]": 1.0,
    "Stonebridge[1]": 1.0,
    "Stonebridge[2]": 0.6,
    "Aldermere[1]": 0.5,
}
OTHER_SCORE = 0.1


@pytest.fixture
def answers(questions, passages):
    """Answers of the four systems to two questions; only CoV-RAG saw other references."""
    groups = [{}, {}]
    for system, texts in TEXTS.items():
        references = tuple(passages[3:5] if system == "CoV-RAG" else passages[:2])
        for group, question, text in zip(groups, questions, texts):
            only_round = Round(question.question, references, text)
            group[system] = Prediction(question, system, (only_round,))
    return Answers(questions[:2], groups, passages)


def rows_of(frame, measure, criterion):
    rows = frame[(frame.measure == measure) & (frame.criterion == criterion)]
    return rows.set_index("system").value.to_dict()


# Intervals of mean ranks.


@pytest.mark.parametrize(("n", "known"), [(29, False), (30, True)])
def test_a_mean_rank_of_few_questions_has_no_interval(n, known):
    assert math.isfinite(mean_rank([1] * n)[1]) == known


def test_a_cell_without_an_interval_is_the_value_alone(verdicts, answers):
    long = rank_table(score_frame(verdicts, answers))
    assert "[" not in table3.wide_ranks(long, PROXY, RANK).to_string()


# The rubric.


@pytest.fixture
def verdicts(answers):
    return table3.judge(Config(), answers)


@pytest.fixture
def ranks(verdicts, answers):
    return rank_table(score_frame(verdicts, answers))


def test_the_rubric_is_the_default_judge(verdicts):
    assert {verdict["judge"] for verdict in verdicts} == {PROXY}


def test_there_is_one_verdict_per_question(verdicts):
    assert [verdict["id"] for verdict in verdicts] == ["q1", "q2"]


def test_a_verdict_has_a_score_of_each_system(verdicts):
    scores = {"RAG": 0, "RAG trained": 0, "CoV-RAG-S": 0, "CoV-RAG": 1}
    assert verdicts[0]["scores"]["correctness"] == scores


def test_a_verdict_contains_no_text(verdicts):
    text = json.dumps(verdicts)
    assert [word for word in WORDS if word in text] == []


def test_a_verdict_rounds_scores_to_four_digits(questions):
    verdict = build_verdict("x", questions[0], {"RAG": {"bias": 1 / 3, "correctness": None}})
    assert verdict["scores"]["bias"] == {"RAG": 0.3333}
    assert verdict["scores"]["correctness"] == {"RAG": None}


def test_citations_are_ranked_only_among_systems_that_saw_the_same_references(answers, ranks):
    assert answers.cited_together == SYSTEMS[:3]
    assert set(rows_of(ranks, "rank", "citation_accuracy")) == set(SYSTEMS[:3])


def test_the_quality_of_all_citations_is_shown(ranks):
    assert set(rows_of(ranks, "high quality", "citation_accuracy")) == set(SYSTEMS)


def test_tied_answers_have_the_best_place(ranks):
    expected = {"RAG": 2.5, "RAG trained": 1.5, "CoV-RAG-S": 2.5, "CoV-RAG": 1.0}
    assert rows_of(ranks, "rank", "correctness") == expected


def test_high_quality_is_the_share_of_right_answers(ranks):
    expected = {"RAG": 0, "RAG trained": 50, "CoV-RAG-S": 0, "CoV-RAG": 100}
    assert rows_of(ranks, "high quality", "correctness") == expected


def test_low_bias_is_better(ranks):
    bias = rows_of(ranks, "rank", "bias")
    assert bias["CoV-RAG"] < bias["RAG"]


def test_every_row_counts_its_questions(ranks):
    assert ranks.n.eq(2).all()


def test_the_example_has_the_most_different_answers(answers, verdicts):
    question, table = table3.explain(answers, verdicts)
    assert question.id == "q2"
    assert table.answer.to_dict() == {label_of(system): texts[1] for system, texts in TEXTS.items()}


def test_the_example_shows_the_scores_of_its_verdict(answers, verdicts):
    _, table = table3.explain(answers, verdicts)
    scores = verdicts[1]["scores"]["correctness"]
    assert table.correctness.to_dict() == {label_of(name): scores[name] for name in scores}


def test_an_unknown_judge_is_refused(answers):
    message = "unknown judge 'GPT-4': use 'rubric' or 'endpoint:<model>'"
    with pytest.raises(ValueError, match=message):
        table3.judge(from_notebook({"judges": ["rubric", "GPT-4"]}), answers)


@pytest.mark.parametrize(
    "criterion, good, bad",
    [("bias", 0.29, 0.3), ("conciseness", 0.51, 0.5), ("correctness", 1.0, 0.99)],
)
def test_an_answer_is_of_high_quality_by_the_papers_thresholds(criterion, good, bad):
    rows = []
    for number, score in enumerate((good, bad)):
        rows.append(("x", "nq", f"q{number}", "RAG", criterion, score, True))
    both = rank_table(pd.DataFrame(rows, columns=SCORE_COLUMNS))
    only_good = rank_table(pd.DataFrame(rows[:1], columns=SCORE_COLUMNS))
    assert rows_of(both, "high quality", criterion) == {"RAG": 50}
    assert rows_of(only_good, "high quality", criterion) == {"RAG": 100}


# The answers that are judged.


@pytest.mark.parametrize("n, ids", [(0, ["q1", "q2", "q3", "q4"]), (1, ["q1", "q3"])])
def test_the_first_questions_of_each_set_are_judged(questions, n, ids):
    predictions = []
    for system in ("RAG", "CoV-RAG"):
        predictions += [Prediction(question, system, ()) for question in questions]
    assert [question.id for question in first_questions(predictions, n)] == ids


def test_the_manifest_names_the_model_that_wrote_the_answers():
    facts = ModelFacts("a1", None, {"cov": "c3"})
    manifest = build_manifest(Config(), facts, 1.0)
    assert (manifest["model_sha256"], manifest["adapters"]) == ("a1", {"cov": "c3"})


def test_the_manifest_of_judged_answers_counts_no_tokens():
    assert build_manifest(Config(), ModelFacts("a1", None, {}), 1.0)["used"] == {}


# A served judge.


def write_reply(prompt, score):
    """Return a judge's reply in the requested form; a score depends on the answer's text only."""
    form = json.loads(prompt.splitlines()[-1])
    texts = dict(re.findall(r"^(answer\d+): (.*)$", prompt, re.MULTILINE))
    for scores in form.values():
        for name in scores:
            scores[name] = score(texts[name])
    return json.dumps(form)


def by_preference(prompt):
    return write_reply(prompt, lambda text: PREFERENCES.get(text, OTHER_SCORE))


def ask(answers, path):
    return score_frame(judge_by_endpoint(connect(), answers, Journal(path)), answers)


@pytest.fixture
def served_scores(server, answers, tmp_path):  # noqa: F811
    server.write = by_preference
    return ask(answers, tmp_path / "journal.jsonl")


def test_a_served_judges_scores_are_used(served_scores):
    correctness = ranked_scores(served_scores, "endpoint:toy", "correctness")
    assert all(correctness["CoV-RAG"] > correctness["RAG"])


def test_a_served_judges_bias_counts_downwards(served_scores):
    bias = ranked_scores(served_scores, "endpoint:toy", "bias")
    assert all(bias["CoV-RAG"] < bias["RAG"])


def test_equal_answers_have_equal_scores(served_scores):
    correctness = ranked_scores(served_scores, "endpoint:toy", "correctness")
    assert (correctness["RAG trained"] == correctness["CoV-RAG-S"]).tolist() == [True, False]


def test_a_served_judge_scores_citations_of_the_same_references_only(served_scores):
    citations = ranked_scores(served_scores, "endpoint:toy", "citation_accuracy")
    assert list(citations) == list(SYSTEMS[:3])


def test_a_served_judge_gets_one_request_per_question(served_scores, server):  # noqa: F811
    assert len(server.asked) == 2


def test_a_request_contains_references_and_gold_answers(served_scores, server):  # noqa: F811
    for _, body in server.asked:
        prompt = body["messages"][0]["content"]
        assert "Reference [1]" in prompt
        assert "Gold answer" in prompt


NO_SCORES = [
    "I would rather not.",
    "{",
    '{"correctness": 1}',
    '[{"answer1": 1}]',
    "",
    json.dumps(dict.fromkeys(CRITERIA, {"answer1": 2})),  # above 1
    json.dumps(dict.fromkeys(CRITERIA, {"answer1": True})),
    json.dumps(dict.fromkeys(CRITERIA, {})),
]


@pytest.mark.parametrize("reply", NO_SCORES)
def test_a_reply_without_valid_scores_gives_none(reply):
    assert parse_scores(reply, 1) is None


def test_scores_may_follow_other_text():
    form = json.dumps(dict.fromkeys(CRITERIA, {"answer1": 1}))
    assert parse_scores(f"so: {form}", 1) == dict.fromkeys(CRITERIA, [1])


def test_a_reply_must_score_every_answer():
    form = json.dumps(dict.fromkeys(CRITERIA, {"answer1": 1}))
    assert parse_scores(form, 2) is None


@pytest.fixture
def partly_unread(server, answers, tmp_path):  # noqa: F811
    """Scores of two questions; the reply about the second one does not parse."""

    def reply(prompt):
        return "Hm." if "wher was" in prompt else write_reply(prompt, lambda text: 0.5)

    server.write = reply
    return ask(answers, tmp_path / "journal.jsonl")


def test_a_reply_that_does_not_parse_gives_no_score(partly_unread):
    unread = partly_unread[partly_unread.id == "q2"]
    assert len(unread) == 4 * 4 + 3  # four criteria of four systems, citations of three
    assert unread.score.isna().all()


def test_other_replies_keep_their_scores(partly_unread):
    assert partly_unread[partly_unread.id == "q1"].score.notna().all()


def test_questions_without_scores_are_left_out_of_ranks(partly_unread):
    long = rank_table(partly_unread).set_index(["measure", "criterion", "system"])
    assert long.loc[("rank", "correctness", "CoV-RAG")].n == 1
    assert long.loc[("high quality", "bias", "CoV-RAG")].n == 1


def test_scores_that_repeat_the_form_are_counted(served_scores):
    notes = "\n".join(table3.notes(served_scores))  # five scores of two answers "Aldermere[1]"
    assert "endpoint:toy: 10 of 38 scores repeat the 0.5 of the form" in notes


def test_missing_scores_are_counted(partly_unread):
    notes = "\n".join(table3.notes(partly_unread))
    assert "endpoint:toy: 19 of 38 scores are missing" in notes


# The table.


@pytest.fixture
def table(answers):
    """Table 3 of these answers by the rubric."""
    return table3.build((answers, []), SimpleNamespace(config=Config()))


def test_the_papers_ranks_are_shown_under_the_papers_names_and_its_judge(table):
    ranks = table3.next_to_paper(table.rows)
    cells = {"rubric": "1.50", "WebGLM-13b, GPT-4": "1.25"}
    assert ranks.loc["correctness", "RAG (trained)"].to_dict() == cells


def test_the_citations_of_cov_rag_have_no_rank_in_the_paper_either(table):
    cells = table3.next_to_paper(table.rows).loc["citation accuracy", "CoV-RAG"]
    assert cells.tolist() == ["–", "–"]


def test_the_rubric_is_called_a_proxy_next_to_the_papers_ranks(table):
    (heading,) = [heading for heading in table.parts if "The paper's ranks" in heading]
    warning = "a proxy judge on other questions, not comparable with the paper's GPT-4 ranks"
    assert warning in heading


def test_the_long_table_has_no_rank_of_the_paper_for_other_questions(table):
    assert table.rows.paper.isna().all()


@pytest.mark.parametrize(
    "end, value", [("better", "1"), ("tied", "1"), ("worse", "0"), ("p", "1.000")]
)
def test_a_pair_of_systems_is_a_fact(table, end, value):
    name = "rubric (proxy) RAG trained → CoV-RAG correctness"
    assert table.facts[f"{name} {end}"] == value


def test_the_rubrics_correctness_agrees_with_the_gold_answers_by_construction(table):
    agreement = table.part("gold answers").set_index("score")
    assert agreement.loc["correctness", "agreement, %"].startswith("100.0")
    assert "rubric (proxy): its correctness is the gold answer's rule" in "\n".join(table.notes)


def test_agreement_is_a_fact(table):
    assert table.facts["rubric (proxy) correctness AUROC"] == "1.00"


def test_a_rehearsal_is_called_so_where_people_read_it(answers):
    name = "endpoint:smollm2-135m"
    scores = {"RAG": dict.fromkeys(CRITERIA, 0.5), "CoV-RAG": dict.fromkeys(CRITERIA, 0.5)}
    verdicts = [build_verdict(name, question, scores) for question in answers.questions]
    config = Config().change(judges=(name,))
    table = table3.build((answers, verdicts), SimpleNamespace(config=config))
    assert "SmolLM2-135M (rehearsal, no measurement)" in table.text
    assert name not in table.text


# Without the data.


@pytest.fixture
def without_texts(answers):
    """The same answers as they are known without the data: ids and outcomes, but no texts."""
    questions = []
    groups = []
    for question, group in zip(answers.questions, answers.groups):
        bare = Question(question.id, question.dataset, "", ())
        questions.append(bare)
        groups.append({})
        for system, prediction in group.items():
            (only_round,) = prediction.rounds
            passages = tuple(replace(passage, title="", text="") for passage in only_round.passages)
            outcome = outcome_of(prediction, 0)
            known = replace(only_round, query="", passages=passages, outcome=outcome)
            groups[-1][system] = Prediction(bare, system, (known,))
    return Answers(questions, groups, [])


def test_without_the_data_the_table_follows_from_the_recorded_verdicts(
    without_texts, verdicts, table
):
    again = table3.build((without_texts, verdicts), SimpleNamespace(config=Config()))
    assert again.text == table.text
    assert again.facts == table.facts


def test_without_the_data_nothing_is_judged_again(without_texts, verdicts):
    assert table3.judge(Config(), without_texts, verdicts) == verdicts


def test_a_tiny_p_of_the_sign_test_is_written_as_an_inequality():
    rows = []
    for number in range(20):
        for system, score in (("RAG trained", 0.0), ("CoV-RAG", 1.0)):
            rows.append(("x", "nq", f"q{number}", system, "correctness", score, True))
    (row,) = compare_ranked(pd.DataFrame(rows, columns=SCORE_COLUMNS)).to_dict("records")
    assert (row["better"], row["sign test p"]) == (20, "< 0.001")


def test_the_example_is_a_table_of_answers_and_scores(answers, verdicts):
    _, table = table3.explain(answers, verdicts)
    assert list(table)[0] == "answer"
    assert {"citation accuracy", "reference correctness"} & set(table) == {"citation accuracy"}
    assert table.index.name == "system"


def test_the_example_shows_the_first_judge(answers, verdicts):
    second = [verdict | {"judge": "another", "scores": {}} for verdict in verdicts]
    _, table = table3.explain(answers, [*verdicts, *second])
    scores = verdicts[1]["scores"]["correctness"]
    assert table.correctness.to_dict() == {label_of(name): scores[name] for name in scores}


def test_only_the_recorded_verdicts_of_a_served_judge_are_used_again(answers, verdicts):
    served = [verdict | {"judge": "endpoint:toy"} for verdict in verdicts]
    other = [verdict | {"judge": "endpoint:another"} for verdict in verdicts]
    config = Config().change(judges=("endpoint:toy", "endpoint:toy"))
    assert table3.judge(config, answers, [*other, *served]) == served


def test_judges_are_asked_in_the_order_of_the_parameter(answers, verdicts):
    served = [verdict | {"judge": "endpoint:toy"} for verdict in verdicts]
    config = Config().change(judges=("endpoint:toy", "rubric"))
    judged = table3.judge(config, answers, served)
    assert [verdict["judge"] for verdict in judged] == ["endpoint:toy"] * 2 + [PROXY] * 2


def test_a_served_judge_is_asked_by_its_name_if_nothing_is_recorded(answers, tmp_path, monkeypatch):
    monkeypatch.setattr(table3, "Endpoint", lambda settings: f"endpoint of {settings.model}")
    asked = []

    def by_endpoint(endpoint, judged, journal):
        asked.append((endpoint, judged, journal.path))
        return [{"judge": "endpoint:toy"}]

    config = Config().change(judges=("endpoint:toy",), runs=str(tmp_path))
    verdicts = table3.judge(config, answers, by_endpoint=by_endpoint)
    assert verdicts == [{"judge": "endpoint:toy"}]
    assert asked == [("endpoint of endpoint:toy", answers, config.journal())]


def test_the_picture_shows_the_first_judges_share_of_each_criterion(table, tmp_path):
    figure = table.plots["png"](tmp_path / "table3.png")
    axes = figure.axes[0]
    pyplot.close(figure)
    assert axes.get_title() == "Table 3: high-quality answers by rubric (proxy), n = 2 questions"
    ticks = [text.get_text().replace("\n", " ") for text in axes.get_xticklabels()]
    assert {"correctness", "citation accuracy"} < set(ticks)


def test_recorded_verdicts_are_read_line_by_line(verdicts, tmp_path):
    lines = "".join(f"{json.dumps(verdict)}\n" for verdict in verdicts)
    (tmp_path / "table3.verdicts.jsonl").write_text(lines)
    assert table3.read_verdicts(Recorded(tmp_path, "table3", {})) == verdicts
