"""The rubric's rules on answers made by hand, the served judge against the loopback server, and what is made of their scores."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from test_endpoint import KEY, connect, server  # noqa: F401  the server that fails in every way a server can

from covrag_lite import metrics, prompts
from covrag_lite.config import ROOT, Config, from_notebook
from covrag_lite.journal import Journal
from covrag_lite.judging import judges, ranking, revisions
from covrag_lite.judging.rubric import claim, rubric, supports
from covrag_lite.model.endpoint import EndpointError
from covrag_lite.records import Prediction, Round
from covrag_lite.report import tables

SYSTEMS = ("RAG", "RAG trained", "CoV-RAG-S", "CoV-RAG")


def predict(question, references, answer, system="RAG"):
    return Prediction(question, system, (Round(question.question, tuple(references), answer),))


def made_of(questions, passages, texts):
    """Answers of the four systems, one text a system and question; CoV-RAG alone saw other references."""
    references = {system: tuple(passages[3:5] if system == "CoV-RAG" else passages[:2]) for system in SYSTEMS}
    predictions = [
        predict(q, references[system], text, system) for system in SYSTEMS for q, text in zip(questions, texts[system])
    ]
    return judges.Answers(predictions, list(questions), list(passages), judges.Recorded("none"))


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


def scores_of(question, references, answer, gold=()):
    return {name: score for name, (score, _) in rubric(predict(question, references, answer), gold).items()}


def test_a_citation_counts_only_if_its_passage_exists_and_holds_the_claim(questions, passages):
    asked = questions[0].question
    assert supports("Edith Marrow[1]", asked, passages[:2]) == [True]
    assert supports("Edith Marrow[1][2][7][0]", asked, passages[:2]) == [True, True, False, False]
    assert supports("Edith Marrow[1]", asked, passages[2:4]) == [False]
    assert supports(
        "She lived in Aldermere. It was Edith Marrow[1]. It rises in the Harrow Hills[4].", asked, passages
    ) == [True, True]
    assert supports("[1]", asked, passages) == [False] and supports("Edith Marrow", asked, passages) == []
    assert scores_of(questions[0], passages[:2], "Edith Marrow[1][7]")["citation_accuracy"] == 0.5
    assert scores_of(questions[0], passages[:2], "Edith Marrow")["citation_accuracy"] == 0


def test_a_choice_between_two_names_of_the_question_claims_the_chosen_one():
    assert claim("the Stell", "Is the Stell or the Marl longer?") == {"stell"}
    assert claim("The Stell, 71 kilometres", "Is the Stell or the Marl longer?") == {"71", "kilometres"}
    assert claim("no", "is it?") == {"no"}  # a stop word, and all that is said
    assert claim("1. Edith\n2. Marrow", "who?") == {"edith", "marrow"}  # a list's numbers claim nothing


def test_correctness_is_the_gold_answer_or_no_score_at_all(questions, passages):
    assert scores_of(questions[2], passages[:2], "It is 71 KM long.")["correctness"] == 1
    assert scores_of(questions[2], passages[:2], "It is 17 km long.")["correctness"] == 0
    assert scores_of(questions[3], passages[:2], "anything")["correctness"] is None  # its gold is "---"


def test_truthfulness_asks_the_references_and_bias_asks_gold(questions, passages):
    copied = scores_of(
        questions[1], passages[2:4], "Aldermere, a town", gold=passages[1:2]
    )  # stands in its references, is not the truth
    assert copied["truthfulness"] == 1 and copied["bias"] == 1
    known = scores_of(questions[1], passages[2:4], "Stonebridge in 1861", gold=passages[1:2])  # the other way round
    assert known["truthfulness"] == 0 and known["bias"] == 0
    assert scores_of(questions[1], passages[2:4], "Stonebridge or Aldermere", gold=passages[1:2])["bias"] == 0.5


def test_conciseness_is_length_against_gold_and_nothing_for_repetition(questions, passages):
    concise = lambda text: scores_of(questions[0], passages[:2], text)["conciseness"]
    assert (
        concise("Edith Marrow[1]") == concise("Marrow") == 1
        and concise("It was surely Edith Marrow, I think, indeed") == 0.25
    )
    assert concise("Edith Edith Edith") == 0 and concise("") == 0


def test_an_empty_answer_is_the_worst_by_every_criterion(questions, passages):
    assert scores_of(questions[0], passages[:2], "") == {
        "citation_accuracy": 0,
        "correctness": 0,
        "truthfulness": 0,
        "bias": 1,
        "conciseness": 0,
    }


def test_tied_answers_share_the_best_or_the_average_place():
    better = metrics.preferences(np.array([[[0.9, 0.5, 0.5, 0.1]], [[0.2, 0.2, 0.2, 0.2]]]))
    assert metrics.ranks(better, "best").tolist() == [[1, 2, 2, 4], [1, 1, 1, 1]]
    assert metrics.ranks(better, "average").tolist() == [[1, 2.5, 2.5, 4], [2.5] * 4]
    with pytest.raises(ValueError, match="'worst' is not known"):
        metrics.ranks(better, "worst")


def test_a_preference_needs_both_orders():
    better = metrics.preferences(np.array([[[0.9, 0.5, 0.1], [0.8, 0.1, 0.5]]]))[0]
    assert better.tolist() == [[0, 1, 1], [-1, 0, 0], [-1, 0, 0]]


def test_kappa_is_the_one_computed_by_hand():
    # Confusion, rows a and columns b: (-1,-1) 4, (-1,1) 1, (1,-1) 2, (1,1) 3. Agreed 0.7; by chance 0.5·0.6 + 0.5·0.4 = 0.5.
    a = np.array([-1] * 5 + [1] * 5)[:, None]
    b = np.array([-1] * 4 + [1] + [-1] * 2 + [1] * 3)[:, None]
    value, low, high = metrics.kappa(a, b)
    assert value == pytest.approx(0.4) and low < 0.4 < high <= 1
    # A tie is half a disagreement: seen cost (1 + 0) / 2; by chance, a is -1 half of the time and 1 half, b is 0 and 1: (1 + 2 + 1 + 0) / 4.
    assert metrics.kappa(np.array([[-1], [1]]), np.array([[0], [1]]))[0] == pytest.approx(1 - 0.5 / 1)
    assert metrics.kappa(a, a)[0] == 1 and np.isnan(metrics.kappa(a * 0, a * 0)[0])


def test_the_rubrics_ranks_leave_out_the_citations_of_who_saw_other_references(answers):
    scores = judges.judge(Config(), answers)
    assert answers.cited_together() == SYSTEMS[:3] and set(scores.judge) == {judges.PROXY}
    long = ranking.rank_table(scores, "table3").set_index(["measure", "criterion", "system"])
    assert ("rank", "citation_accuracy", "CoV-RAG") not in long.index and (
        "high quality",
        "citation_accuracy",
        "CoV-RAG",
    ) in long.index
    assert long.loc["rank"].loc["correctness"].value.to_dict() == {
        "RAG": 2.5,
        "RAG trained": 1.5,
        "CoV-RAG-S": 2.5,
        "CoV-RAG": 1.0,
    }
    assert long.loc["average rank"].loc["correctness"].value.sum() == 1 + 2 + 3 + 4
    assert long.loc["high quality"].loc["correctness"].value.to_dict() == {
        "RAG": 0,
        "RAG trained": 50,
        "CoV-RAG-S": 0,
        "CoV-RAG": 100,
    }
    assert (
        long.loc[("rank", "bias", "CoV-RAG")].value < long.loc[("rank", "bias", "RAG")].value
    )  # low bias is the better one
    assert long.n.eq(2).all() and len(ranking.agreement_table(scores)) == 0


def test_no_paper_rank_can_come_from_average_ranks():
    for criterion, n in (
        ("citation_accuracy", 3),
        ("correctness", 4),
        ("truthfulness", 4),
        ("bias", 4),
        ("conciseness", 4),
    ):
        assert sum(values.get(criterion, 0) for _, values in tables.PAPER_RANKS.values()) < n * (n + 1) / 2 - 1


def written(prompt, score):
    """A judge's reply: every answer scored by its place and text, in the form the prompt ends with."""
    form = json.loads(prompt.split(judges.AGAIN)[0].splitlines()[-1])
    texts = dict(re.findall(r"^(answer\d+): (.*)$", prompt, re.MULTILINE))
    return json.dumps(
        {name: {answer: score(int(answer[6:]), texts[answer]) for answer in places} for name, places in form.items()}
    )


def ask(answers, path, **settings):
    return pd.DataFrame(judges.by_endpoint(connect(**settings), answers, Journal(path)), columns=judges.COLUMNS)


def test_a_judge_that_likes_what_comes_first_sees_only_ties(server, answers, tmp_path):  # noqa: F811
    server.write = lambda prompt: written(prompt, lambda place, text: 1 / place)
    scores = ask(answers, tmp_path / "journal.jsonl")
    long = ranking.rank_table(scores, "table3")
    assert (
        long[long.measure == "rank"].value.eq(1).all()
        and long[(long.measure == "average rank") & (long.criterion != "citation_accuracy")].value.eq(2.5).all()
    )
    assert ranking.compare_ranked(scores)[["better", "worse"]].to_numpy().sum() == 0
    assert ranking.agreement_table(scores).κ.astype(float).max() < 0  # the two orders contradict each other
    assert len(server.asked) == 8  # two questions, with references and without, two orders


def test_a_judge_with_a_taste_is_followed_whatever_the_order(server, answers, tmp_path):  # noqa: F811
    taste = {"Edith Marrow[1]": 1.0, "Stonebridge[1]": 1.0, "Stonebridge[2]": 0.6, "Aldermere[1]": 0.5}
    server.write = lambda prompt: written(prompt, lambda place, text: taste.get(text, 0.1))
    scores = ask(answers, tmp_path / "journal.jsonl")
    better = ranking.preferred(scores, "endpoint:toy", "correctness")
    assert better["CoV-RAG", "RAG"].tolist() == [1, 1] and better["RAG trained", "CoV-RAG-S"].tolist() == [
        0,
        1,
    ]  # equal answers are shown once
    assert ranking.preferred(scores, "endpoint:toy", "bias")["CoV-RAG", "RAG"].tolist() == [-1, -1]
    both = pd.concat([judges.judge(Config(), answers), scores])
    table = ranking.agreement_table(both).set_index(["raters", "criterion"])
    assert table.loc[("endpoint:toy: its two orders", "correctness"), ["n", "pairs", "same", "κ"]].tolist() == [
        2,
        12,
        "100 %",
        "1.00",
    ]
    assert table.loc[("rubric (proxy) and endpoint:toy", "citation_accuracy"), ["n", "pairs"]].tolist() == [
        2,
        6,
    ]  # three systems: three pairs a question
    turned = ranking.agreement_table(both.iloc[::-1]).set_index(
        ["raters", "criterion"]
    )  # the systems in the other order: the same κ
    assert (
        turned.loc[("endpoint:toy and rubric (proxy)", "truthfulness"), "κ"]
        == table.loc[("rubric (proxy) and endpoint:toy", "truthfulness"), "κ"]
    )
    prompts = [body["messages"][0]["content"] for _, body in server.asked]
    assert all(
        ("Reference [1]" in prompt) == ("citation_accuracy" in prompt) == ("Gold answer" not in prompt)
        for prompt in prompts
    )


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
    assert judges.parse_ballot(text, ("correctness",), 1) is None
    assert judges.parse_ballot('so: {"correctness": {"answer1": 1}}', ("correctness",), 1) == {"correctness": [1]}
    assert judges.parse_ballot('{"correctness": {"answer1": 1}}', ("correctness",), 2) is None


def test_rubbish_is_asked_for_once_more_then_counted_and_never_scored(server, answers, tmp_path, capsys):  # noqa: F811
    def write(prompt):
        hopeless, hasty = (
            "wher was" in prompt and "Gold" in prompt,
            "who wrote" in prompt and judges.AGAIN not in prompt,
        )
        return "Hm." if hopeless or hasty else written(prompt, lambda place, text: 0.5)

    server.write = write
    scores = ask(answers, tmp_path / "journal.jsonl")
    assert (
        "8 replies, 6 asked for again, 2 not readable and left without scores" in capsys.readouterr().out
        and len(server.asked) == 14
    )
    lost = scores[(scores.id == "q2") & (scores.criterion != "citation_accuracy")]
    assert lost.score.isna().all() and len(lost) == 4 * 4 * 2 and scores.drop(lost.index).score.notna().all()
    long = ranking.rank_table(scores, "table3").set_index(["measure", "criterion", "system"])
    assert long.loc[("rank", "correctness", "CoV-RAG")].n == long.loc[("high quality", "bias", "CoV-RAG")].n == 1
    assert long.loc[("rank", "citation_accuracy", "RAG")].n == 2
    assert "endpoint:toy: 32 of 76 scores are missing" in "\n".join(ranking.notes(scores))


def test_a_judge_that_never_makes_sense_ranks_nobody(server, answers, tmp_path):  # noqa: F811
    server.script = ["refusal"]
    scores = ask(answers, tmp_path / "journal.jsonl")
    long = ranking.rank_table(scores, "table3")
    assert scores.score.isna().all() and long.n.eq(0).all() and long.value.isna().all()
    assert ranking.agreement_table(scores).n.eq(0).all() and ranking.notes(scores)


def test_resumed_judging_asks_nothing_again(server, answers, tmp_path):  # noqa: F811
    server.write = lambda prompt: written(prompt, lambda place, text: len(text) / 100)
    server.script = ["good"] * 4 + ["broken_briefly"]
    with pytest.raises(
        EndpointError, match=r"status 503.*; \d texts are journaled in journal.jsonl: run again"
    ) as caught:
        ask(answers, tmp_path / "journal.jsonl", retries=0)
    held = len((tmp_path / "journal.jsonl").read_text().splitlines())
    server.script, server.asked = ["good"], []
    scores = ask(answers, tmp_path / "journal.jsonl")
    assert held == 4 and len(server.asked) == 4 and KEY not in str(caught.value)
    pd.testing.assert_frame_equal(ask(answers, tmp_path / "journal.jsonl"), scores)
    assert len(server.asked) == 4


def test_saved_verdicts_hold_scores_and_no_text(answers, tmp_path):
    judges.save_verdicts(tmp_path / "verdicts.jsonl", judges.judge(Config(), answers))
    text = (tmp_path / "verdicts.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["id"] for row in rows] == ["q1", "q2"] and rows[0]["scores"]["correctness"] == {
        "RAG": 0,
        "RAG trained": 0,
        "CoV-RAG-S": 0,
        "CoV-RAG": 1,
    }
    assert not any(words in text for words in ("copper", "Marrow", "Aldermere", "Stonebridge"))


def test_an_unknown_judge_or_a_lonely_system_is_named(answers):
    with pytest.raises(ValueError, match="judge 'GPT-4' is not known; use 'rubric' or 'endpoint:<model>'"):
        judges.judge(from_notebook({"judges": ["rubric", "GPT-4"]}), answers)
    with pytest.raises(ValueError, match="at least two systems"):
        judges.load_answers(from_notebook({"ranked": ["RAG"]}))


def test_recorded_answers_are_judged_without_a_model():
    answers = judges.load_answers(from_notebook({"n_judged": 2, "ranked": ["CoV-RAG-S", "RAG"]}))
    assert len(answers.questions) == 8 and [p.system for p in answers.predictions] == ["CoV-RAG-S"] * 8 + ["RAG"] * 8
    manifest = json.loads((ROOT / "results" / Config().judging.predictions / "table2.manifest.json").read_text())
    assert answers.model.base.weights_hash == manifest["model_sha256"]


@pytest.mark.parametrize(
    "parameters, sentence",
    [
        ({"n_questions": 4}, "n_questions is 4, but recorded answers"),
        ({"predictions": "nowhere"}, "no recorded predictions"),
        ({"predictions": "table2-smollm2-135m-h200-fresh"}, "hold no answers of RAG"),
    ],
)
def test_a_parameter_without_effect_on_recorded_answers_is_named(parameters, sentence):
    with pytest.raises((ValueError, FileNotFoundError), match=sentence):
        judges.load_answers(from_notebook(parameters))


def test_a_served_judges_view_of_revisions_stands_beside_what_is_counted(server, questions, passages, tmp_path):
    lead = lambda revised: prompts.parse_verdict(
        prompts.render_verdict((0.1,) * 6, "false" if revised else "true", revised)
    )

    def made(question, answer, revised, found):
        first = Round(question.question, tuple(passages[3:5]), answer, lead(revised))
        return Prediction(question, "CoV-RAG", (first, Round(revised, tuple(found), answer)) if revised else (first,))

    gold = [p for p in passages if p.id in questions[1].gold_passages]
    predictions = [
        made(questions[0], questions[0].answers[0], "", ()),  # right and left: neither revised nor called for
        made(questions[1], "nobody", "Where was Edith Marrow born?", gold),
        made(questions[2], "nothing", "What is it?", passages[4:5]),
    ]
    server.write = lambda asked: (
        '{"timing": true, "content": true}'
        if "Edith Marrow born" in asked
        else "I cannot say"
        if "What is it" in asked
        else "{}"
    )
    config = from_notebook({"judges": "rubric,endpoint:toy", "runs": str(tmp_path), "requests": 1})
    frame = revisions.judge_revisions(config, predictions)
    (row,) = frame[frame.system == "CoV-RAG"].itertuples(index=False)
    assert (row.n, row.right, row.unreadable, row.counted, row.same) == (1, 100, 1, 50, 100)
    assert len(server.asked) == 2 and all("Gold answer" in body["messages"][0]["content"] for _, body in server.asked)
    revisions.judge_revisions(config, predictions)
    assert len(server.asked) == 2  # journaled
    assert revisions.judge_revisions(from_notebook({"runs": str(tmp_path)}), predictions).empty


@pytest.mark.parametrize(
    "text, right",
    [
        ('{"timing": true, "content": true}', True),
        ('Well: {"timing": true, "content": false} so.', False),
        ('{"timing": "yes", "content": true}', None),
        ("{timing}", None),
        ("", None),
        ("[true]", None),
    ],
)
def test_a_view_that_cannot_be_read_is_none(text, right):
    assert revisions.parse_reply(text) is right
