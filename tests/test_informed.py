"""Revised questions by a writer that knows a passage: no answer in them, and the search decides."""

import pytest

from covrag_lite import metrics
from covrag_lite.config import Config
from covrag_lite.oracle import Example, annotate_by_rules
from covrag_lite.records import Passage, Question
from covrag_lite.training import annotators
from covrag_lite.training.informed import annotate_informed, cut_answers, find_sources

EMMA = Passage("e", "Emma", "A novel of 1815 by Jane Austen about Highbury.")
OTHER = Passage("o", "Tides", "The tide table of the harbour.")
QUESTION = Question("q1", "nq", "who wrote emma?", ("Jane Austen",))
BROKEN = Question("q2", "nq", "who wroet emma", ("Jane Austen",), clean_question="who wrote emma?")
WRONG = Example(QUESTION, (OTHER,), "Mary Shelley", "retrieved")
RIGHT = Example(QUESTION, (OTHER,), "Jane Austen", "retrieved")


def search(queries):
    """Find the passage only by its place or its author."""
    results = []
    for query in queries:
        is_found = "Highbury" in query or "Austen" in query
        results.append([EMMA] if is_found else [OTHER])
    return results


def author_of(*texts):
    """Return an author that writes these texts and keeps its prompts."""
    queue = list(texts)

    def write(prompts):
        write.prompts += prompts
        return [queue.pop(0) for _ in prompts]

    write.prompts = []
    return write


def revise(example, text, revisions=None):
    annotated = annotate_informed([example], revisions or {}, search, author_of(text))
    return annotated[0].revised_question


def test_the_revised_question_is_the_question_and_the_query():
    assert revise(WRONG, "novel about Highbury") == "who wrote emma? novel about Highbury"


def test_an_answer_is_cut_out_of_the_query():
    revised = revise(WRONG, "Jane Austen's novel about Highbury")
    assert revised == "who wrote emma? 's novel about Highbury"


def test_a_query_that_finds_nothing_leaves_the_guess():
    guess = "who wrote emma? Highbury"
    assert revise(WRONG, "a nice book", {QUESTION.question: guess}) == guess


def test_a_query_that_is_only_the_answer_leaves_the_guess():
    guess = "who wrote emma? Highbury"
    assert revise(WRONG, "Jane Austen", {QUESTION.question: guess}) == guess


def test_a_clear_wording_that_works_is_kept():
    example = Example(BROKEN, (OTHER,), "Mary Shelley", "broken wording")
    revisions = {BROKEN.question: "who wrote emma?"}
    author = author_of()
    annotated = annotate_informed([example], revisions, search, author)
    assert annotated[0].revised_question == "who wrote emma?"
    assert author.prompts == []


def test_the_author_sees_the_passage_the_clear_question_and_the_answer():
    author = author_of("Highbury")
    annotate_informed([Example(BROKEN, (OTHER,), "no", "broken wording")], {}, search, author)
    (prompt,) = author.prompts
    for part in (EMMA.text, BROKEN.clean_question, "Jane Austen"):
        assert part in prompt
    assert BROKEN.question not in prompt


def test_a_right_answer_needs_no_revision():
    author = author_of()
    annotated = annotate_informed([RIGHT], {}, search, author)
    assert annotated == annotate_by_rules([RIGHT], {})
    assert author.prompts == []


def test_a_wrong_answer_next_to_the_right_passage_needs_no_revision():
    author = author_of()
    example = Example(QUESTION, (EMMA,), "Mary Shelley", "retrieved")
    assert annotate_informed([example], {}, search, author)[0].revised_question == ""
    assert author.prompts == []


def test_a_question_whose_answer_is_in_no_passage_has_no_source():
    unknown = Question("q3", "nq", "who wrote persuasion?", ("Anne",))
    assert list(find_sources([QUESTION, unknown], search)) == [QUESTION.question]


@pytest.mark.parametrize(
    "query, answers, cut",
    [
        ("novels of JANE AUSTEN", ("Jane Austen",), "novels of"),
        ("the U.S.A. and Canada", ("USA", "U.S.A."), "the and Canada"),
        ("Jane-Austen novels", ("Jane Austen",), "novels"),
        ("the Beatles songs", ("The Beatles", "Beatles"), "songs"),
        ("Austenland by others", ("Austen",), "Austenland by others"),
        ("1815, 1816", ("1815",), ", 1816"),
    ],
)
def test_a_cut_query_contains_no_answer(query, answers, cut):
    assert cut_answers(query, answers) == cut
    assert not metrics.score(cut, answers, "whole")


def test_the_annotator_is_chosen_by_its_name(tmp_path):
    config = Config().change(annotator="informed", runs=str(tmp_path))
    annotated = annotators.load_annotator(config)([RIGHT], {}, search)
    assert annotated == annotate_by_rules([RIGHT], {})


def test_an_unknown_annotator_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'informed'"):
        annotators.load_annotator(Config().change(annotator="gpt", runs=str(tmp_path)))
