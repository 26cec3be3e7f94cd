"""The rubric's rules, tested on hand-written answers."""

from covrag_lite.judging import CRITERIA, claim, rubric, supports
from covrag_lite.records import Prediction, Round


def scores_of(question, references, answer, gold=()):
    only_round = Round(question.question, tuple(references), answer)
    return rubric(Prediction(question, "RAG", (only_round,)), gold)


def test_a_citation_counts_only_if_its_passage_exists_and_holds_the_claim(questions, passages):
    asked = questions[0].question
    assert supports("Edith Marrow[1]", asked, passages[:2]) == [True]
    assert supports("Edith Marrow[1][2][7][0]", asked, passages[:2]) == [True, True, False, False]
    assert supports("Edith Marrow[1]", asked, passages[2:4]) == [False]
    three_sentences = "She lived in Aldermere. It was Edith Marrow[1]. It rises in the Harrow Hills[4]."
    assert supports(three_sentences, asked, passages) == [True, True]
    assert supports("[1]", asked, passages) == [False]
    assert supports("Edith Marrow", asked, passages) == []
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
    def score(answer):
        return scores_of(questions[1], passages[2:4], answer, gold=passages[1:2])

    copied = score("Aldermere, a town")  # in its references, but wrong
    assert copied["truthfulness"] == 1 and copied["bias"] == 1
    known = score("Stonebridge in 1861")  # the other way round
    assert known["truthfulness"] == 0 and known["bias"] == 0
    assert score("Stonebridge or Aldermere")["bias"] == 0.5


def test_conciseness_is_length_against_gold_and_nothing_for_repetition(questions, passages):
    texts = {
        "Edith Marrow[1]": 1,
        "Marrow": 1,
        "It was surely Edith Marrow, I think, indeed": 0.25,
        "Edith Edith Edith": 0,
    }
    for text, concise in texts.items():
        assert scores_of(questions[0], passages[:2], text)["conciseness"] == concise


def test_an_empty_answer_is_the_worst_by_every_criterion(questions, passages):
    assert scores_of(questions[0], passages[:2], "") == dict.fromkeys(CRITERIA, 0) | {"bias": 1}
