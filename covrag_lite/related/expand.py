"""Query expansion: a second search for every question, without a verdict. A no-verifier baseline.

The second query is the question followed by the base model's guesses (as in query2doc), or by the
first answer (as in iterative retrieval and generation). These are forms of the revised questions in
our training data. The reader answers from both searches, and a rule chooses between the answers:
the one with the higher likelihood, or the score-combined one, which uses a verifier.
"""

from collections.abc import Sequence
from functools import partial

from covrag_lite.method import Tools
from covrag_lite.records import Prediction, Question
from covrag_lite.synthesis import Example, propose


def expand(questions: Sequence[Question], tools: Tools, form: str) -> list[Prediction]:
    """Search a second time for every question, with a query in one form of `synthesis.propose`."""
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


by_guesses = partial(expand, form="guess and options")  # the most common form in D2′
by_answer = partial(expand, form="answer")
