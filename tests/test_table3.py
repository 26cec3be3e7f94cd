"""Table 3: a served judge on a local server, recorded answers, and the ranks of the systems."""

import json
import re
from types import SimpleNamespace

import pandas as pd
import pytest
from test_endpoint import KEY, connect, server  # noqa: F401  the server that fails in every way a server can

from covrag_lite import judging
from covrag_lite.config import Config, from_notebook
from covrag_lite.journal import Journal
from covrag_lite.judging import PROXY, Answers
from covrag_lite.records import Prediction, Round
from covrag_lite.tables import table3

TASTE = {"Edith Marrow[1]": 1.0, "Stonebridge[1]": 1.0, "Stonebridge[2]": 0.6, "Aldermere[1]": 0.5}
TEXTS = {
    "RAG": ["I know it not", "maybe"],
    "RAG trained": ["Aldermere[1]", "Stonebridge[2]"],
    "CoV-RAG-S": ["Aldermere[1]", "Harrow[1]"],
    "CoV-RAG": ["Edith Marrow[1]", "Stonebridge[1]"],
}
SYSTEMS = tuple(TEXTS)
WINS = (("RAG trained", 0.0), ("CoV-RAG", 1.0))  # a system that is always better


@pytest.fixture
def answers(questions, passages):
    """Answers of the four systems to two questions; only CoV-RAG saw other references."""
    groups = [{}, {}]
    for system, texts in TEXTS.items():
        references = tuple(passages[3:5] if system == "CoV-RAG" else passages[:2])
        for group, question, text in zip(groups, questions, texts):
            group[system] = Prediction(question, system, (Round(question.question, references, text),))
    return Answers(questions[:2], groups, passages)


def test_the_rubrics_ranks_leave_out_the_citations_of_who_saw_other_references(answers):
    verdicts = table3.judge(Config(), answers)
    scores = table3.to_frame(verdicts, answers)
    assert answers.cited_together == SYSTEMS[:3]
    assert set(scores.judge) == {PROXY}
    long = table3.rank_table(scores).set_index(["measure", "criterion", "system"])
    assert ("rank", "citation_accuracy", "CoV-RAG") not in long.index
    assert ("high quality", "citation_accuracy", "CoV-RAG") in long.index
    ranks = long.loc["rank"].loc["correctness"].value
    assert ranks.to_dict() == {"RAG": 2.5, "RAG trained": 1.5, "CoV-RAG-S": 2.5, "CoV-RAG": 1.0}
    quality = long.loc["high quality"].loc["correctness"].value
    assert quality.to_dict() == {"RAG": 0, "RAG trained": 50, "CoV-RAG-S": 0, "CoV-RAG": 100}
    bias = long.loc["rank"].loc["bias"].value
    assert bias["CoV-RAG"] < bias["RAG"]  # low bias is the better one
    assert long.n.eq(2).all()
    assert [verdict["id"] for verdict in verdicts] == ["q1", "q2"]
    assert verdicts[0]["scores"]["correctness"] == {"RAG": 0, "RAG trained": 0, "CoV-RAG-S": 0, "CoV-RAG": 1}
    hidden = ("copper", "Marrow", "Aldermere", "Stonebridge")  # a record has scores, but no text
    assert not any(words in json.dumps(verdicts) for words in hidden)
    asked, shown = table3.explain(answers, verdicts)
    assert asked.id == "q2" and shown.answer.to_dict() == {system: texts[1] for system, texts in TEXTS.items()}
    assert shown.correctness.to_dict() == verdicts[1]["scores"]["correctness"]
    with pytest.raises(ValueError, match="unknown judge 'GPT-4': use 'rubric' or 'endpoint:<model>'"):
        table3.judge(from_notebook({"judges": ["rubric", "GPT-4"]}), answers)


def test_an_answer_is_of_high_quality_by_the_papers_bounds():
    bounds = {"bias": (0.29, 0.3), "conciseness": (0.51, 0.5), "correctness": (1.0, 0.99)}
    rows = [("x", "nq", f"q{i}", "RAG", name, pair[i], True) for name, pair in bounds.items() for i in (0, 1)]
    for some, share in ((rows, 50), (rows[::2], 100)):  # the first of each pair is, the second is not
        long = table3.rank_table(pd.DataFrame(some, columns=table3.SCORES)).query("measure == 'high quality'")
        assert long.set_index("criterion").value.to_dict() == dict.fromkeys(bounds, share)


def written(prompt, score):
    """A judge's reply in the requested format; a score depends on the answer's text only."""
    form = json.loads(prompt.splitlines()[-1])
    texts = dict(re.findall(r"^(answer\d+): (.*)$", prompt, re.MULTILINE))
    return json.dumps({criterion: {name: score(texts[name]) for name in names} for criterion, names in form.items()})


def ask(answers, path, **settings):
    return table3.to_frame(judging.by_endpoint(connect(**settings), answers, Journal(path)), answers)


def test_a_served_judge_is_followed_in_one_request_a_question(server, answers, tmp_path):  # noqa: F811
    server.write = lambda prompt: written(prompt, lambda text: TASTE.get(text, 0.1))
    scores = ask(answers, tmp_path / "journal.jsonl")
    correct = table3.ranked_scores(scores, "endpoint:toy", "correctness")
    biased = table3.ranked_scores(scores, "endpoint:toy", "bias")
    assert all(correct["CoV-RAG"] > correct["RAG"]) and all(biased["CoV-RAG"] < biased["RAG"])
    assert (correct["RAG trained"] == correct["CoV-RAG-S"]).tolist() == [True, False]  # equal answers are shown once
    assert list(table3.ranked_scores(scores, "endpoint:toy", "citation_accuracy")) == list(SYSTEMS[:3])
    assert len(server.asked) == 2
    asked = [body["messages"][0]["content"] for _, body in server.asked]
    assert all("Reference [1]" in prompt and "Gold answer" in prompt for prompt in asked)


@pytest.mark.parametrize(
    "given",
    ["I would rather not.", "{", '{"correctness": 1}', '[{"answer1": 1}]', "", {"answer1": 2}, {"answer1": True}, {}],
)
def test_a_reply_that_is_none_gives_no_score(given):
    text = given if isinstance(given, str) else json.dumps(dict.fromkeys(judging.CRITERIA, given))
    assert judging.parse_scores(text, 1) is None
    good = dict.fromkeys(judging.CRITERIA, {"answer1": 1})
    assert judging.parse_scores(f"so: {json.dumps(good)}", 1) == dict.fromkeys(judging.CRITERIA, [1])
    assert judging.parse_scores(json.dumps(good), 2) is None


def test_rubbish_is_counted_and_never_scored(server, answers, tmp_path):  # noqa: F811
    server.write = lambda prompt: "Hm." if "wher was" in prompt else written(prompt, lambda text: 0.5)
    scores = ask(answers, tmp_path / "journal.jsonl")
    lost = scores[scores.id == "q2"]
    assert lost.score.isna().all() and len(lost) == 4 * 4 + 3
    assert scores.drop(lost.index).score.notna().all()
    long = table3.rank_table(scores).set_index(["measure", "criterion", "system"])
    assert long.loc[("rank", "correctness", "CoV-RAG")].n == long.loc[("high quality", "bias", "CoV-RAG")].n == 1
    assert "endpoint:toy: 19 of 38 scores are missing" in "\n".join(table3.notes(scores))


@pytest.fixture
def recorded(answers):
    """Table 3 of these answers by the rubric."""
    return table3.build((answers, []), SimpleNamespace(config=Config()))


def test_the_papers_ranks_are_shown_under_the_papers_names_and_its_judge(recorded):
    ranks = table3.next_to_paper(recorded.rows)
    assert ranks.loc["correctness", "RAG (trained)"].to_dict() == {"rubric": "1.50", "WebGLM-13b, GPT-4": "1.25"}


def test_the_citations_of_cov_rag_have_no_rank_in_the_paper_either(recorded):
    assert table3.next_to_paper(recorded.rows).loc["citation accuracy", "CoV-RAG"].tolist() == ["–", "–"]


def test_the_rubric_is_called_a_proxy_that_is_not_comparable_where_the_papers_ranks_are_shown(recorded):
    (heading,) = [heading for heading in recorded.parts if "The paper's ranks" in heading]
    assert "a proxy judge on other questions, not comparable with the paper's GPT-4 ranks" in heading


def test_the_long_table_holds_no_rank_of_the_paper_for_other_questions(recorded):
    assert recorded.rows.paper.isna().all()


def test_a_pair_of_systems_is_a_fact_with_its_p(recorded):
    name = "rubric (proxy) RAG trained → CoV-RAG correctness"
    assert [recorded.facts[f"{name} {end}"] for end in ("better", "tied", "worse", "p")] == ["1", "1", "0", "1.000"]


def test_a_tiny_p_of_the_sign_test_is_written_as_such():
    rows = [("x", "nq", f"q{i}", system, "correctness", score, True) for i in range(20) for system, score in WINS]
    (row,) = table3.compare_ranked(pd.DataFrame(rows, columns=table3.SCORES)).to_dict("records")
    assert (row["better"], row["sign test p"]) == (20, "< 0.001")
