"""A judge behind an endpoint: one request per question, with all answers to it."""

import json
import random
from collections.abc import Collection, Iterable, Mapping, Sequence

from covrag_lite import prompts
from covrag_lite.engine.endpoint import Endpoint
from covrag_lite.engine.journal import Journal
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.judging.answers import Answers
from covrag_lite.judging.criteria import CITATIONS, CRITERIA, CriterionScores, build_verdict
from covrag_lite.records import Prediction, Question

REPLY_TOKENS = 500  # five scores of four answers take about 190 tokens of JSON, more if indented
EXAMPLE_SCORE = 0.5  # in the form that a reply must have
INSTRUCTION = (
    "You are the examiner of answers that different systems gave to one question. "
    "Score each of them from 0 to 1 by each criterion;\n"
    "give equal scores where you see no difference, and let the order of the answers not sway you."
)
FORM = "Write one JSON object in this form, with your scores in the place of 0.5, and nothing else:"


def judge_by_endpoint(endpoint: Endpoint, answers: Answers, journal: Journal) -> list[dict]:
    """Judge all answers with a served model; return one verdict per question.

    Citations are scored only for systems that saw the same references.
    """
    texts_by_question = []
    requests = []
    for question, group in zip(answers.questions, answers.groups):
        texts = shuffled_texts(question, group)
        texts_by_question.append(texts)
        requests.append(build_request(question, group, texts, answers.cited_together))
    model = TaskModel(endpoint.settings, endpoint, journal)
    replies = model.write("judge", requests, REPLY_TOKENS)
    verdicts = []
    for question, group, texts, reply in zip(
        answers.questions, answers.groups, texts_by_question, replies
    ):
        by_criterion = parse_scores(reply, len(texts))
        scores = {}
        for system, prediction in group.items():
            place = texts.index(prediction.answer)
            cites = system in answers.cited_together
            scores[system] = scores_of_answer(by_criterion, place, cites)
        verdicts.append(build_verdict(endpoint.settings.model, question, scores))
    return verdicts


def shuffled_texts(question: Question, group: Mapping[str, Prediction]) -> list[str]:
    """Return the distinct answers in a random order, so that no system is always first."""
    return shuffled({prediction.answer for prediction in group.values()}, question.id)


def shuffled(texts: Iterable[str], seed: str) -> list[str]:
    """Return texts in a random order that is always the same for a seed."""
    in_order = sorted(texts)
    random.Random(seed).shuffle(in_order)
    return in_order


def scores_of_answer(
    by_criterion: Mapping[str, list[float]] | None, place: int, cites: bool
) -> CriterionScores:
    """Return one answer's scores: None for each if the reply did not parse."""
    scores = {}
    for criterion in CRITERIA:
        if cites or criterion != CITATIONS:
            scores[criterion] = by_criterion[criterion][place] if by_criterion else None
    return scores


def build_request(
    question: Question,
    group: Mapping[str, Prediction],
    texts: Sequence[str],
    cited_together: Sequence[str],
) -> str:
    """Return a request's text: criteria, question, references, gold answers and the answers."""
    references = group[cited_together[0]].final.passages if cited_together else ()
    names = answer_names(len(texts))
    form = {criterion: dict.fromkeys(names, EXAMPLE_SCORE) for criterion in CRITERIA}
    lines = [INSTRUCTION]
    lines += [f"{criterion}: {meaning}" for criterion, meaning in CRITERIA.items()]
    lines.append(f"Question: {question.question}")
    lines.append(prompts.build_references(references))
    lines.append(f"Gold answer: {' | '.join(question.answers)}")
    lines += [f"{name}: {text}" for name, text in zip(names, texts)]
    lines += [FORM, json.dumps(form)]
    return "\n".join(lines)


def answer_names(n: int) -> list[str]:
    """Return how a request calls n answers."""
    return [f"answer{number}" for number in range(1, n + 1)]


def parse_scores(
    reply: str, n: int, criteria: Collection[str] = tuple(CRITERIA)
) -> dict[str, list[float]] | None:
    """Parse the scores of n answers; None if one is missing, not a number or not in [0, 1]."""
    scores = {}
    try:
        body, _ = json.JSONDecoder().raw_decode(reply, reply.index("{"))
        for criterion in criteria:
            scores[criterion] = [body[criterion][name] for name in answer_names(n)]
    except (ValueError, KeyError, TypeError):
        return None
    for of_criterion in scores.values():
        if not all(is_score(value) for value in of_criterion):
            return None
    return scores


def is_score(value: object) -> bool:
    """Return whether a value is a number from 0 to 1; true and false are not."""
    return type(value) in (int, float) and 0 <= value <= 1
