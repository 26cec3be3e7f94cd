"""Query expansion: what CoV-RAG's revised questions come to on real questions, without a verdict.

Every question is searched twice, the second time with guessed words behind it as in query2doc, or with the first answer
as in iterative retrieval and generation. The reader reads both lists, and a rule chooses between its answers: the
likelier one, or the one that a verifier's verdict speaks for.
"""

from collections.abc import Sequence
from functools import partial

from covrag_lite.method import Tools
from covrag_lite.records import Prediction, Question
from covrag_lite.synthesis import Example, propose


def expand(questions: Sequence[Question], tools: Tools, form: str) -> list[Prediction]:
    """Search again for every question, with a query in one of the forms of D2′'s revised questions."""
    x = [question.question for question in questions]
    first = tools.read(x, x)
    guesses, options = (tools.write_alone(task, x) if task in form else [""] * len(x) for task in ("guess", "options"))
    queries = []
    for question, one, guess, option in zip(questions, first, guesses, options):
        made = propose(Example(question, one.passages, one.answer, "expanded"), guess, "", option)
        queries.append(made.get(form, question.question))
    rounds = [first, tools.read(queries, x)]
    if tools.verifies_last:
        rounds = [tools.check(x, one) for one in rounds]
    both = zip(*rounds)
    return [Prediction(question, tools.name, two, kept=tools.keep(two)) for question, two in zip(questions, both)]


by_guesses = partial(expand, form="guess and options")  # the form of most revised questions in D2′
by_answer = partial(expand, form="answer")
