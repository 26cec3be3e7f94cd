"""Judges of revised questions (Table 18 of the paper).

Only a question that a system revised is judged. As in the paper, a score is low if the revision was
not needed, and otherwise says how well the revised question serves the search.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from covrag_lite import prompts
from covrag_lite.config import ROOT, Config
from covrag_lite.engine.endpoint import Endpoint
from covrag_lite.engine.journal import Journal
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.judging.answers import Answers, check_parameters, find_run, gather_answers
from covrag_lite.judging.criteria import build_verdict
from covrag_lite.judging.rubric import PROXY
from covrag_lite.judging.served import EXAMPLE_SCORE, FORM, answer_names, parse_scores, shuffled
from covrag_lite.records import Outcome, Passage, Prediction, Question
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs import recorded
from covrag_lite.runs.frame import outcome_of
from covrag_lite.systems import names

SYSTEMS = (names.NO_CHAIN, names.COV_RAG)  # of Table 5, whose "revise" the paper's judge rates
REVISION = "revision"  # the only criterion
REPLY_TOKENS = 100  # one score of two revised questions takes about 30 tokens of JSON
# The paper's Table 18, in our own words.
INSTRUCTION = (
    "You are the examiner of revised questions. Each system answered the question from the same "
    "references, and then wrote a revised question for a second search. "
    "Score each revised question from 0 to 1.\n"
    "revision: first the timing. It was right to revise only if the system's answer is wrong and "
    "the references cannot answer the question; otherwise the score is 0. Then the content: does "
    "a search with the revised question find better references, and does it keep the meaning of "
    "the question or make it clearer or more correct?"
)


def load_revised(config: Config, root: Path = ROOT) -> Answers:
    """Load the recorded answers of Table 5 from the folder that `predictions` names."""
    check_parameters(config)
    run = find_run(config.judging.predictions, root, "table5")
    return gather_answers(run, recorded.load(run), SYSTEMS, config.judging.n_judged)


def load_revised_without_texts(config: Config, root: Path = ROOT) -> Answers:
    """Load the same answers without the data: with ids and recorded outcomes, but no texts."""
    run = find_run(config.judging.predictions, root, "table5")
    return gather_answers(run, recorded.load_part(run), SYSTEMS, config.judging.n_judged)


def revised_groups(answers: Answers) -> list[tuple[Question, dict[str, Prediction]]]:
    """Return each revised question with the predictions of the systems that revised it."""
    groups = []
    for question, group in zip(answers.questions, answers.groups):
        revised = {system: p for system, p in group.items() if p.revised}
        if revised:
            groups.append((question, revised))
    return groups


def judge_revisions_by_rule(answers: Answers) -> list[dict]:
    """Judge all revised questions by a rule, from recorded outcomes; it reads no text."""
    verdicts = []
    for question, group in revised_groups(answers):
        scores = {system: {REVISION: score_revision(p)} for system, p in group.items()}
        verdicts.append(build_verdict(PROXY, question, scores, [REVISION]))
    return verdicts


def score_revision(prediction: Prediction) -> float | None:
    """Return 1 if a revision was needed and found a gold passage, else 0.

    It was needed if the first answer is wrong and no gold passage was found. Where the data names
    no gold passage, a passage that contains a gold answer counts.
    """
    first = outcome_of(prediction, 0)
    if first.normalised is None:
        return None
    is_needed = not first.normalised and not has_found(first)
    return float(is_needed and has_found(outcome_of(prediction, 1)))


def has_found(outcome: Outcome) -> bool:
    """Return whether a search found a gold passage or, if none is named, an answer."""
    return bool(outcome.found if outcome.gold is None else outcome.gold)


def judge_revisions_by_endpoint(
    endpoint: Endpoint, answers: Answers, journal: Journal
) -> list[dict]:
    """Judge all revised questions with a served model, in one request per question."""
    groups = revised_groups(answers)
    orders = [shuffled(group, question.id) for question, group in groups]
    requests = []
    for (question, group), systems, found in zip(groups, orders, find_references(answers)):
        requests.append(build_request(question, found, [group[system] for system in systems]))
    model = TaskModel(endpoint.settings, endpoint, journal)
    replies = model.write("judge-revision", requests, REPLY_TOKENS)
    verdicts = []
    for (question, _), systems, reply in zip(groups, orders, replies):
        parsed = parse_scores(reply, len(systems), [REVISION])
        values = parsed[REVISION] if parsed else [None] * len(systems)
        scores: Mapping[str, Mapping[str, float | None]] = {
            system: {REVISION: value} for system, value in zip(systems, values)
        }
        verdicts.append(build_verdict(endpoint.settings.model, question, scores, [REVISION]))
    return verdicts


def find_references(answers: Answers) -> list[Sequence[Passage]]:
    """Return what the first search for each revised question found.

    The systems share it, because they search with the same question. Where a record omits the
    passages, they are searched again, which finds the same ones.
    """
    groups = revised_groups(answers)
    references = []
    for _, group in groups:
        first = next(iter(group.values()))
        references.append(first.rounds[0].passages)
    if all(references) or answers.retrieval is None:
        return references
    search = load_retriever(answers.retrieval, answers.passages)
    return search([question.question for question, _ in groups])


def build_request(
    question: Question, references: Sequence[Passage], revised: Sequence[Prediction]
) -> str:
    """Return a request's text: question, references, gold answers, answers, revised questions."""
    lines = [INSTRUCTION, f"Question: {question.question}"]
    lines.append(prompts.build_references(references))
    lines.append(f"Gold answer: {' | '.join(question.answers)}")
    form_names = answer_names(len(revised))
    for name, prediction in zip(form_names, revised):
        first = prediction.rounds[0]
        lines.append(f"{name}: {first.answer}")
        lines.append(f"revised question after {name}: {first.revised_question}")
    form = {REVISION: dict.fromkeys(form_names, EXAMPLE_SCORE)}
    lines += [FORM, json.dumps(form)]
    return "\n".join(lines)
