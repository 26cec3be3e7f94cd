"""Asking a served model to judge answers (Table 17 of the paper, in our own words).

A ballot shows the different answers to one question and asks for a score of each by each criterion.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from covrag_lite import prompts
from covrag_lite.engine.endpoint import Endpoint, EndpointError
from covrag_lite.judging.answers import Answers
from covrag_lite.records import Passage, Prediction, Question
from covrag_lite.runs.journal import Journal
from covrag_lite.task_model import TaskModel
from covrag_lite.teacher import AGAIN

# Scores go from 0 to 1; 1 is best, except for bias.
CRITERIA = {
    "citation_accuracy": "does each reference mark point to a reference that supports what it is put to?",
    "correctness": "does it answer the question as the gold answer does?",
    "truthfulness": "is it free of contradictions and of offences against logic and common sense?",
    "bias": (
        "how far is it from the answer that you would give yourself, knowing the gold answer? "
        "0 is not at all, 1 is entirely."
    ),
    "conciseness": "does it come to the point without needless words?",
}
REPLY_TOKENS = 400  # four criteria and four answers take about 150 as JSON; some models indent it


@dataclass(frozen=True)
class Ballot:
    """One request to a judge: the different answers to a question, in the order in which they are shown."""

    order: int  # 1, or 2 for the reverse of 1
    question: Question
    criteria: tuple[str, ...]
    texts: list[str]
    references: tuple[Passage, ...]  # where there are none, the gold answers are shown instead
    places: dict[str, int]  # system -> where its answer stands among the texts


def by_endpoint(endpoint: Endpoint, answers: Answers, journal: Journal) -> list[tuple]:
    """A served model's rows of the judges' frame; a reply that cannot be read is asked for once more."""
    ballots = draw_up(answers)
    requests = [build_ballot(one.question, one.criteria, one.texts, one.references) for one in ballots]
    replies = ask("judge", requests, endpoint, journal)
    scores = [_read(ballot, reply) for ballot, reply in zip(ballots, replies)]
    unread = [i for i, given in enumerate(scores) if given is None]
    second_replies = ask("judge-again", [f"{requests[i]}\n{AGAIN}" for i in unread], endpoint, journal)
    for i, reply in zip(unread, second_replies):
        scores[i] = _read(ballots[i], reply)
    lost = scores.count(None)
    used = endpoint.used
    print(
        f"{endpoint.settings.model}: {len(requests)} replies, {len(unread)} asked for again, "
        f"{lost} not readable and left without scores; now {used['requests']} requests, "
        f"{used['prompt_tokens']} and {used['completion_tokens']} tokens"
    )
    rows = []
    for ballot, given in zip(ballots, scores):
        rows += _rows(endpoint.settings.model, ballot, given)
    return rows


def draw_up(answers: Answers) -> list[Ballot]:
    """All ballots: for each question one on citations and one on the other criteria, both in two orders.

    As in the paper the first shows the references and the second the gold answer, each with all answers at once: mean
    ranks need every pair, and a list of four costs two requests where its six pairs cost twelve.
    """
    citations, *others = CRITERIA
    together = answers.cited_together()
    ballots = []
    for group in answers.by_question():
        if len(together) > 1:
            references = group[together[0]].final.passages
            cited = {system: group[system] for system in together}
            ballots += _in_both_orders(cited, (citations,), references)
        if len(group) > 1:
            ballots += _in_both_orders(group, tuple(others), ())
    return ballots


def _in_both_orders(
    group: dict[str, Prediction], criteria: tuple[str, ...], references: tuple[Passage, ...]
) -> list[Ballot]:
    """A ballot and its reverse, so that each pair of answers is seen both ways round.

    The first order is drawn anew for each question. Equal answers are shown once and have one score.
    """
    question = next(iter(group.values())).question
    texts = sorted({prediction.answer for prediction in group.values()})
    random.Random(question.id).shuffle(texts)
    ballots = []
    for order, shown in ((1, texts), (2, texts[::-1])):
        places = {system: shown.index(prediction.answer) for system, prediction in group.items()}
        ballots.append(Ballot(order, question, criteria, shown, references, places))
    return ballots


def build_ballot(
    question: Question, criteria: Sequence[str], texts: Sequence[str], references: Sequence[Passage] = ()
) -> str:
    """The text of a request: criteria, question, its references or else its gold answers, and the answers in order."""
    known = prompts.build_references(references) if references else f"Gold answer: {' | '.join(question.answers)}"
    names = [f"answer{i}" for i in range(1, len(texts) + 1)]
    shown = "\n".join(f"{name}: {text}" for name, text in zip(names, texts))
    form = json.dumps({criterion: dict.fromkeys(names, 0.5) for criterion in criteria})
    return "\n".join(
        [
            "You are the examiner of answers that different systems gave to one question. "
            "Score each of them from 0 to 1 by each criterion;",
            "give equal scores where you see no difference, "
            "and let neither the order of the answers nor their number sway you.",
            *(f"{criterion}: {CRITERIA[criterion]}" for criterion in criteria),
            f"Question: {question.question}",
            known,
            shown,
            f"Write one JSON object in this form, with your scores in the place of 0.5, and nothing else:\n{form}",
        ]
    )


def parse_ballot(text: str, criteria: Sequence[str], n: int) -> dict[str, list[float]] | None:
    """The scores of n answers by each criterion, or None where one is missing, not a number or out of range."""
    body, scores = parse_object(text), {}
    for criterion in criteria:
        given = body.get(criterion)
        scores[criterion] = [given.get(f"answer{i}") if isinstance(given, dict) else None for i in range(1, n + 1)]
        if not all(map(_is_score, scores[criterion])):
            return None
    return scores


def parse_object(text: str) -> dict:
    """The first JSON object in a reply, an empty one where there is none."""
    try:
        return json.JSONDecoder().raw_decode(text, text.index("{"))[0]
    except ValueError:
        return {}


def _is_score(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1  # isinstance would let true and false pass


def _read(ballot: Ballot, reply: str) -> dict[str, list[float]] | None:
    return parse_ballot(reply, ballot.criteria, len(ballot.texts))


def _rows(judge: str, ballot: Ballot, scores: dict[str, list[float]] | None) -> list[tuple]:
    """A ballot's rows of the judges' frame, without scores where the reply could not be read."""
    question = ballot.question
    rows = []
    for criterion in ballot.criteria:
        for system, place in ballot.places.items():
            # Four digits, as they are recorded: the recorded scores must rank as these do.
            score = round(scores[criterion][place], 4) if scores else None
            rows.append((judge, ballot.order, question.dataset, question.id, system, criterion, score, True))
    return rows


def ask(stage: str, texts: Sequence[str], endpoint: Endpoint, journal: Journal) -> list[str]:
    """Replies through the journal; an error says how much of the work it holds."""
    try:
        return TaskModel(endpoint.settings, endpoint, journal).write(stage, texts, REPLY_TOKENS)
    except EndpointError as error:
        raise EndpointError(
            f"{error}; {len(journal.texts)} texts are journaled in {journal.path.name}: run again to go on from there"
        ) from None
