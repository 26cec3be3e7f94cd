"""The served judge against the loopback server, recorded answers, and what the judges' scores say."""

import json
import re

import pandas as pd
import pytest
from test_endpoint import KEY, connect, server  # noqa: F401  the server that fails in every way a server can

from covrag_lite.config import ROOT, Config, from_notebook
from covrag_lite.engine.endpoint import EndpointError
from covrag_lite.judging import ballots
from covrag_lite.judging.answers import Answers, Recorded, load_answers
from covrag_lite.judging.rubric import PROXY
from covrag_lite.records import Prediction, Round
from covrag_lite.runs.journal import Journal
from covrag_lite.tables import paper, table3

SYSTEMS = ("RAG", "RAG trained", "CoV-RAG-S", "CoV-RAG")
TASTE = {"Edith Marrow[1]": 1.0, "Stonebridge[1]": 1.0, "Stonebridge[2]": 0.6, "Aldermere[1]": 0.5}


def made_of(questions, passages, texts):
    """Answers of the four systems, one text a system and question; CoV-RAG alone saw other references."""
    predictions = []
    for system in SYSTEMS:
        references = tuple(passages[3:5] if system == "CoV-RAG" else passages[:2])
        for question, text in zip(questions, texts[system]):
            only_round = Round(question.question, references, text)
            predictions.append(Prediction(question, system, (only_round,)))
    return Answers(predictions, list(questions), list(passages), Recorded("none"))


@pytest.fixture
def answers(questions, passages):
    return made_of(
        questions[:2],
        passages,
        {
            "RAG": ["I know it not", "maybe"],
            "RAG trained": ["Aldermere[1]", "Stonebridge[2]"],
            "CoV-RAG-S": ["Aldermere[1]", "Harrow[1]"],
            "CoV-RAG": ["Edith Marrow[1]", "Stonebridge[1]"],
        },
    )


def test_the_rubrics_ranks_leave_out_the_citations_of_who_saw_other_references(answers):
    scores = table3.judge(Config(), answers)
    assert answers.cited_together() == SYSTEMS[:3]
    assert set(scores.judge) == {PROXY}
    long = table3.rank_table(scores).set_index(["measure", "criterion", "system"])
    assert ("rank", "citation_accuracy", "CoV-RAG") not in long.index
    assert ("high quality", "citation_accuracy", "CoV-RAG") in long.index
    ranks = long.loc["rank"].loc["correctness"].value
    assert ranks.to_dict() == {"RAG": 2.5, "RAG trained": 1.5, "CoV-RAG-S": 2.5, "CoV-RAG": 1.0}
    assert long.loc["average rank"].loc["correctness"].value.sum() == 1 + 2 + 3 + 4
    quality = long.loc["high quality"].loc["correctness"].value
    assert quality.to_dict() == {"RAG": 0, "RAG trained": 50, "CoV-RAG-S": 0, "CoV-RAG": 100}
    bias = long.loc["rank"].loc["bias"].value
    assert bias["CoV-RAG"] < bias["RAG"]  # low bias is the better one
    assert long.n.eq(2).all()
    assert len(table3.agreement_table(scores)) == 0


def test_no_paper_rank_can_come_from_average_ranks():
    systems = {"citation_accuracy": 3, "correctness": 4, "truthfulness": 4, "bias": 4, "conciseness": 4}
    for criterion, n in systems.items():
        total = paper.load_table("table3")[criterion].sum()
        assert total < n * (n + 1) / 2 - 1


def written(prompt, score):
    """A judge's reply: every answer scored by its place and text, in the form the prompt ends with."""
    form = json.loads(prompt.split(ballots.AGAIN)[0].splitlines()[-1])
    texts = dict(re.findall(r"^(answer\d+): (.*)$", prompt, re.MULTILINE))
    filled = {}
    for criterion, places in form.items():
        filled[criterion] = {name: score(int(name.removeprefix("answer")), texts[name]) for name in places}
    return json.dumps(filled)


def ask(answers, path, **settings):
    rows = ballots.by_endpoint(connect(**settings), answers, Journal(path))
    return pd.DataFrame(rows, columns=table3.SCORES)


def test_a_judge_that_likes_what_comes_first_sees_only_ties(server, answers, tmp_path):  # noqa: F811
    server.write = lambda prompt: written(prompt, lambda place, text: 1 / place)
    scores = ask(answers, tmp_path / "journal.jsonl")
    long = table3.rank_table(scores)
    assert long[long.measure == "rank"].value.eq(1).all()
    average = long[(long.measure == "average rank") & (long.criterion != "citation_accuracy")]
    assert average.value.eq(2.5).all()
    assert table3.compare_ranked(scores)[["better", "worse"]].to_numpy().sum() == 0
    assert table3.agreement_table(scores).κ.astype(float).max() < 0  # the two orders contradict each other
    assert len(server.asked) == 8  # two questions, with references and without, two orders


def test_a_judge_with_a_taste_is_followed_whatever_the_order(server, answers, tmp_path):  # noqa: F811
    server.write = lambda prompt: written(prompt, lambda place, text: TASTE.get(text, 0.1))
    scores = ask(answers, tmp_path / "journal.jsonl")
    better = table3.preferred(scores, "endpoint:toy", "correctness")
    assert better["CoV-RAG", "RAG"].tolist() == [1, 1]
    assert better["RAG trained", "CoV-RAG-S"].tolist() == [0, 1]  # equal answers are shown once
    assert table3.preferred(scores, "endpoint:toy", "bias")["CoV-RAG", "RAG"].tolist() == [-1, -1]
    for _, body in server.asked:
        prompt = body["messages"][0]["content"]
        assert ("Reference [1]" in prompt) == ("citation_accuracy" in prompt) == ("Gold answer" not in prompt)


def test_agreement_counts_pairs_and_does_not_depend_on_who_comes_first(server, answers, tmp_path):  # noqa: F811
    server.write = lambda prompt: written(prompt, lambda place, text: TASTE.get(text, 0.1))
    both = pd.concat([table3.judge(Config(), answers), ask(answers, tmp_path / "journal.jsonl")])
    table = table3.agreement_table(both).set_index(["raters", "criterion"])
    orders = table.loc[("endpoint:toy: its two orders", "correctness")]
    assert orders[["n", "pairs", "same", "κ"]].tolist() == [2, 12, "100 %", "1.00"]
    citations = table.loc[("rubric (proxy) and endpoint:toy", "citation_accuracy")]
    assert citations[["n", "pairs"]].tolist() == [2, 6]  # three systems: three pairs a question
    turned = table3.agreement_table(both.iloc[::-1]).set_index(["raters", "criterion"])
    there = table.loc[("rubric (proxy) and endpoint:toy", "truthfulness"), "κ"]
    back = turned.loc[("endpoint:toy and rubric (proxy)", "truthfulness"), "κ"]
    assert there == back


@pytest.mark.parametrize(
    "text",
    [
        "I would rather not.",
        "{",
        '{"correctness": 1}',
        '{"correctness": {"answer1": 2}}',
        '{"correctness": {"answer1": true}}',
        '[{"answer1": 1}]',
        "",
    ],
)
def test_a_ballot_that_is_none_gives_no_score(text):
    assert ballots.parse_ballot(text, ("correctness",), 1) is None
    assert ballots.parse_ballot('so: {"correctness": {"answer1": 1}}', ("correctness",), 1) == {"correctness": [1]}
    assert ballots.parse_ballot('{"correctness": {"answer1": 1}}', ("correctness",), 2) is None


def test_rubbish_is_asked_for_once_more_then_counted_and_never_scored(server, answers, tmp_path, capsys):  # noqa: F811
    def write(prompt):
        hopeless = "wher was" in prompt and "Gold" in prompt
        hasty = "who wrote" in prompt and ballots.AGAIN not in prompt
        return "Hm." if hopeless or hasty else written(prompt, lambda place, text: 0.5)

    server.write = write
    scores = ask(answers, tmp_path / "journal.jsonl")
    assert "8 replies, 6 asked for again, 2 not readable and left without scores" in capsys.readouterr().out
    assert len(server.asked) == 14
    lost = scores[(scores.id == "q2") & (scores.criterion != "citation_accuracy")]
    assert lost.score.isna().all() and len(lost) == 4 * 4 * 2
    assert scores.drop(lost.index).score.notna().all()
    long = table3.rank_table(scores).set_index(["measure", "criterion", "system"])
    assert long.loc[("rank", "correctness", "CoV-RAG")].n == long.loc[("high quality", "bias", "CoV-RAG")].n == 1
    assert long.loc[("rank", "citation_accuracy", "RAG")].n == 2
    assert "endpoint:toy: 32 of 76 scores are missing" in "\n".join(table3.notes(scores))


def test_resumed_judging_asks_nothing_again(server, answers, tmp_path):  # noqa: F811
    server.write = lambda prompt: written(prompt, lambda place, text: len(text) / 100)
    server.script = ["good"] * 4 + ["broken_briefly"]
    sentence = r"status 503.*; \d texts are journaled in journal.jsonl: run again"
    with pytest.raises(EndpointError, match=sentence) as caught:
        ask(answers, tmp_path / "journal.jsonl", retries=0)
    held = len((tmp_path / "journal.jsonl").read_text().splitlines())
    server.script, server.asked = ["good"], []
    scores = ask(answers, tmp_path / "journal.jsonl")
    assert held == 4 and len(server.asked) == 4 and KEY not in str(caught.value)
    pd.testing.assert_frame_equal(ask(answers, tmp_path / "journal.jsonl"), scores)
    assert len(server.asked) == 4


def test_saved_verdicts_hold_scores_and_no_text(answers):
    text = table3.write_verdicts(table3.judge(Config(), answers))
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["id"] for row in rows] == ["q1", "q2"]
    assert rows[0]["scores"]["correctness"] == {"RAG": 0, "RAG trained": 0, "CoV-RAG-S": 0, "CoV-RAG": 1}
    assert not any(words in text for words in ("copper", "Marrow", "Aldermere", "Stonebridge"))


def test_an_unknown_judge_is_named(answers):
    with pytest.raises(ValueError, match="judge 'GPT-4' is not known; use 'rubric' or 'endpoint:<model>'"):
        table3.judge(from_notebook({"judges": ["rubric", "GPT-4"]}), answers)


def test_recorded_answers_are_judged_without_a_model():
    answers = load_answers(from_notebook({"n_judged": 2}))
    assert len(answers.questions) == 8
    assert [p.system for p in answers.predictions] == [system for system in SYSTEMS for _ in range(8)]
    manifest = json.loads((ROOT / "results" / Config().judging.predictions / "table2.manifest.json").read_text())
    assert answers.model.weights_hash == manifest["model_sha256"]


@pytest.mark.parametrize(
    "parameters, sentence",
    [
        ({"n_questions": 4}, "n_questions is 4, but recorded answers"),
        ({"predictions": "nowhere"}, "no recorded predictions"),
        ({"predictions": "judge-smollm2-135m-cpu"}, "at least two of RAG, RAG trained, CoV-RAG-S, CoV-RAG are needed"),
    ],
)
def test_a_parameter_without_effect_on_recorded_answers_is_named(parameters, sentence):
    with pytest.raises((ValueError, FileNotFoundError), match=sentence):
        load_answers(from_notebook(parameters))
