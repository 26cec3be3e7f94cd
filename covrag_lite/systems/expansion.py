"""Query expansion: a second search for every question, without a verdict. A no-verifier baseline.

The second query is the question followed by the base model's guesses (as in query2doc), or by the
first answer (as in iterative retrieval and generation). These are forms of the revised questions in
our training data. The reader answers from both searches, and a rule chooses between the answers:
the one with the higher likelihood, or the score-combined one, which uses a verifier.
"""

from collections.abc import Sequence

from covrag_lite.method import Tools
from covrag_lite.oracle import Example, propose
from covrag_lite.records import Prediction, Question


def expand(questions: Sequence[Question], tools: Tools, form: str) -> list[Prediction]:
    """Search a second time for every question, with a query in one form of `oracle.propose`."""
    x = [question.question for question in questions]
    first = tools.search_and_answer(x, x)
    nothing = [""] * len(x)
    guesses = tools.write_from_question("guess", x) if "guess" in form else nothing
    options = tools.write_from_question("options", x) if "options" in form else nothing
    queries = []
    for question, read, guess, option in zip(questions, first, guesses, options):
        example = Example(question, read.passages, read.answer, "expanded")
        candidates = propose(example, guess, "", option)
        # Without a guess there is no such form: the question is searched again.
        queries.append(candidates.get(form, question.question))
    second = tools.search_and_answer(queries, x)
    if tools.verifies_last:
        first = tools.add_verdicts(x, first)
        second = tools.add_verdicts(x, second)
    return [
        Prediction(question, tools.name, tuple(rounds), kept=tools.keep(rounds))
        for question, *rounds in zip(questions, first, second)
    ]


def expand_by_guesses(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Expand the query by the base model's guesses: the most common form in D2′."""
    return expand(questions, tools, "guess and options")


def expand_by_answer(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Expand the query by the first answer."""
    return expand(questions, tools, "answer")
