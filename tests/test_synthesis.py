"""D → D1 and D2′: every negative is wrong in its own way, and the oracle follows its rules."""

import json
import random
from dataclasses import replace

import pytest

from covrag_lite.config import Config, Data, Retrieval, Synthesis
from covrag_lite.data import load_sources
from covrag_lite.records import CITATION, Question
from covrag_lite.retrieval import load_retriever
from covrag_lite.training import synthesis
from covrag_lite.training.synthesis import Example, judge


@pytest.fixture
def search(passages):
    return load_retriever(Retrieval(k=2), passages)


@pytest.fixture
def good(passages):
    question = Question(
        "q",
        "nq",
        "who wrote the copper lanterns",
        ("Edith Marrow",),
        ("p0",),
        "Who wrote The Copper Lanterns?",
        "author",
    )
    return Example(question, (passages[2], passages[0]), "Edith Marrow[2]", "gold answer")


def test_the_halves_share_no_question_and_lose_none():
    questions = [Question(str(i), "nq", "?", ("a",)) for i in range(11)]
    one, two = synthesis.halve(questions, 1)
    assert len(one) == 5 and sorted(one + two, key=lambda q: int(q.id)) == questions
    assert synthesis.halve(questions, 1) == (one, two) != synthesis.halve(questions, 2)


def test_an_answer_sample_always_shows_a_reference_that_answers_it(passages, questions, search):
    samples = synthesis.answer_samples(questions[:3], passages, search, 1)
    assert [s.target for s in samples][0][0].startswith("Edith Marrow[")
    for sample, question in zip(samples, questions):
        cited = int(CITATION.findall(sample.target[0])[0])
        shown = sample.prompt.split(f"Reference [{cited}]: ")[1].split("\\")[0]
        assert question.answers[0] in shown  # q2's misspelt query finds nothing: its gold passage was put in


def test_a_right_answer_is_true_and_needs_no_revision(good, search):
    verdict = judge(good, search)
    assert verdict.judgment == "true" and verdict.revised_question == ""
    assert (
        min(
            verdict.reference_correctness,
            verdict.correctness,
            verdict.citation_accuracy,
            verdict.truthfulness,
            verdict.conciseness,
        )
        > 0.9
        > 0.1
        > verdict.bias
    )


def test_a_repetition_is_wrong_in_conciseness_alone_of_the_two_forms(good, search):
    for seed in range(6):
        verdict = judge(replace(good, answer=synthesis.repeat_words(good.answer, random.Random(seed))), search)
        assert (
            verdict.judgment == "false"
            and verdict.conciseness < 0.1
            and verdict.correctness > 0.9
            and verdict.citation_accuracy > 0.9
        )


def test_a_moved_citation_is_wrong_in_citation_accuracy(good, search):
    moved = synthesis.move_citations(good.answer, [2], 2, random.Random(0))
    assert moved == "Edith Marrow[1]"
    verdict = judge(replace(good, answer=moved), search)
    assert (
        verdict.judgment == "false"
        and verdict.citation_accuracy < 0.1
        and verdict.correctness > 0.9
        and verdict.conciseness > 0.9
    )


def test_a_bad_query_is_wrong_in_its_references_and_gets_a_question_that_finds_them(passages, search):
    question = Question(
        "q",
        "nq",
        "hoo rote teh coper lnterns",
        ("Edith Marrow",),
        ("p0",),
        "Who wrote The Copper Lanterns?",
        "author+misspelt",
    )
    bad = Example(question, (passages[2], passages[3]), "Aldermere[1]", "bad query")
    verdict = judge(bad, search)
    assert verdict.judgment == "false" and verdict.reference_correctness < 0.1 and verdict.correctness < 0.1
    assert verdict.revised_question == "Who wrote The Copper Lanterns?"
    assert synthesis.supporting(question, search([verdict.revised_question])[0]) and not synthesis.supporting(
        question, bad.passages
    )


def test_a_revision_that_finds_nothing_new_is_not_taught(good, passages, search):
    useless = replace(good.question, clean_question="what about sheep and hills?")
    assert (
        judge(Example(useless, (passages[2], passages[3]), "Aldermere[1]", "bad query"), search).revised_question == ""
    )
    wrong_reader = replace(good, answer="Aldermere[1]")  # the references were good: searching again would not help
    assert judge(wrong_reader, search).judgment == "false" and judge(wrong_reader, search).revised_question == ""


def test_a_second_step_is_asked_for_only_after_the_first_was_found(passages, search):
    question = Question(
        "q",
        "mintaka",
        "Where was the author of The Copper Lanterns born?",
        ("Stonebridge",),
        ("p1",),
        "Where was Edith Marrow born?",
        "two-hop",
    )
    assert (
        judge(Example(question, (passages[0], passages[3]), "Aldermere[1]", "seed answer"), search).revised_question
        == "Where was Edith Marrow born?"
    )
    assert (
        judge(Example(question, (passages[4], passages[3]), "Aldermere[1]", "seed answer"), search).revised_question
        == ""
    )


def test_broken_questions_differ_from_the_first_and_keep_it_as_their_clean_form(good):
    made = {synthesis.break_question(good.question, random.Random(seed)) for seed in range(20)}
    assert (
        all(q.question != good.question.question and q.clean_question == "Who wrote The Copper Lanterns?" for q in made)
        and len(made) > 5
    )


def test_balanced_data_has_as_many_right_as_wrong_answers(good, passages, search):
    wrong = replace(good, answer="Aldermere[1]")
    examples = synthesis.annotate([good] * 30 + [wrong] * 90, search)
    chosen = synthesis.balance(examples, 40, 1)
    judgments = [one.verdict.judgment for one in chosen]
    assert judgments.count("true") == judgments.count("false") == 20
    assert len(synthesis.balance(examples, 1000, 1)) == 60  # no more than the rarer side allows
    assert synthesis.composition(chosen).n.sum() == 40


def test_a_verify_sample_is_decoded_by_the_parts_it_is_taught_by(good, search):
    from covrag_lite.prompts import parse_verdict

    one = replace(good, verdict=judge(good, search))
    chained, direct = synthesis.verify_samples([one])[0], synthesis.verify_samples([one], with_chain=False)[0]
    assert parse_verdict("".join(chained.target)) == one.verdict and "".join(direct.target) == '{ "4": "" }'
    assert chained.prompt == direct.prompt


def test_a_rewriter_learns_the_same_revisions_without_what_was_retrieved(good, passages, search):
    broken = Example(
        replace(good.question, question="hoo rote teh coper lnterns"),
        (passages[2], passages[3]),
        "Aldermere[1]",
        "bad query",
    )
    examples = [replace(one, verdict=judge(one, search)) for one in (good, broken, broken)]
    samples = synthesis.rewrite_samples(examples)
    assert [sample.target[0] for sample in samples] == [good.question.question, "Who wrote The Copper Lanterns?"]
    assert not any(passage.text in sample.prompt for sample in samples for passage in passages)


def test_every_shape_of_data_becomes_a_source(tmp_path):
    cited = {"question": "who?", "answer": "Edith wrote it [1].", "references": ["Edith wrote it.", "Nobody knows."]}
    (tmp_path / "cited.jsonl").write_text("\n".join(json.dumps({**cited, "question": f"who {i}?"}) for i in range(5)))
    (tmp_path / "plain.jsonl").write_text(
        "\n".join(json.dumps({"id": str(i), "question": "who wrote it", "answers": ["Edith"]}) for i in range(4))
    )
    (tmp_path / "corpus.jsonl").write_text(
        "\n".join(json.dumps({"id": str(i), "title": "", "text": f"Edith wrote it {i}."}) for i in range(6))
    )
    config = Config(
        data=Data(data=str(tmp_path), datasets=("cited", "plain")), synthesis=Synthesis(n_train_questions=0)
    )
    first, second = load_sources(config)
    assert [p.text for p in first.search(["who 3?"])[0]] == cited["references"]  # its own references
    assert synthesis.answer_samples(first.questions, first.passages, first.search, 1)[0].target == (
        "Edith wrote it [1].",
    )
    assert len(second.questions) == 4 and synthesis.answer_samples(second.questions, second.passages, second.search, 1)[
        0
    ].target[0].startswith("Edith[")
    worlds = load_sources(Config(synthesis=Synthesis(n_worlds=2, n_train_questions=3)))
    assert [source.questions[0].id.split("-")[0] for source in worlds] == ["world1", "world2"]
