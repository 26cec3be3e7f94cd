"""Judges of answers (Section 4.2 and Table 3 of the paper): rules, or a model behind an endpoint.

A judge scores the answers of a recorded run. It gives one verdict per question, which is recorded:
the question's id and each system's score per criterion, or None if a reply did not parse. A verdict
contains no text of the questions or passages.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

from bm25s.stopwords import STOPWORDS_EN

from covrag_lite import metrics, prompts
from covrag_lite.config import ROOT, Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.endpoint import Endpoint
from covrag_lite.journal import Journal
from covrag_lite.records import CITATION, Passage, Prediction, Question
from covrag_lite.runs import recorded
from covrag_lite.synthesis import is_repetitive
from covrag_lite.task_model import TaskModel

RANKED = ("RAG", "RAG trained", "CoV-RAG-S", "CoV-RAG")  # the systems of the paper's Table 3
# The criteria that a served model is given: the paper's Table 17, in our own words. Scores go from
# 0 to 1; 1 is best, except for bias.
CRITERIA = {
    "citation_accuracy": "does each reference mark point to a reference that supports what it is put to?",
    "correctness": "does it answer the question as the gold answer does?",
    "truthfulness": "is it free of contradictions and of offences against logic and common sense?",
    "bias": "how far is it from the answer that you would give yourself, knowing the gold answer? 0 is not at all.",
    "conciseness": "does it come to the point without needless words?",
}
PROXY = "rubric (proxy)"  # the name of the rubric in tables and figures
LIST_MARK = re.compile(r"^\s*\d+[.:)]\s", re.MULTILINE)  # the number of a list item; not a claim
MARKED = re.compile(r"([^\[\]]*)((?:\[\d+\]\s*)+)")  # a text and the citations after it
SENTENCE_END = re.compile(r"(?<=[.!?])\s")
REPLY_TOKENS = 500  # five scores of four answers take about 190 tokens of JSON, more if indented


@dataclass(frozen=True)
class Answers:
    """What is judged: questions, predictions by question and system, corpus, and the model."""

    questions: list[Question]
    groups: list[dict[str, Prediction]]  # for each question, the predictions by system
    passages: list[Passage]
    model: object = None

    @cached_property
    def cited_together(self) -> tuple[str, ...]:
        """The systems that saw the same references on every question.

        Only their citations can be ranked against each other; the paper therefore gives CoV-RAG no
        citation rank.
        """
        seen = {system: [group[system].final.passages for group in self.groups] for system in self.groups[0]}
        first = next((references for references in seen.values() if any(references)), None)
        return tuple(system for system, references in seen.items() if references == first)


def stand_in(manifest: Mapping) -> SimpleNamespace:
    """Return a placeholder for the model that wrote a recorded run's answers, from its manifest."""
    views = {name: SimpleNamespace(adapter=name, fingerprint=f"+{own}") for name, own in manifest["adapters"].items()}
    about = {"weights_hash": manifest["model_sha256"], "weights": None, "device": "recorded", "used": Counter()}
    return SimpleNamespace(**about, with_adapter=lambda name: views.get(name, SimpleNamespace(adapter="")))


def load_answers(config: Config, root: Path = ROOT) -> Answers:
    """Load the ranked systems' recorded answers of Table 2, from results/ or another folder."""
    own, usual = asdict(config.judging) | asdict(config.run), Config().flat()
    for name, value in config.flat().items():
        if name not in own and value != usual[name]:
            raise ValueError(
                f"parameter {name} is {value!r}, but it has no effect on recorded answers; "
                f"leave it at its default {usual[name]!r}"
            )
    folder = config.judging.predictions
    runs = [run for run in recorded.find(root) if run.folder in (root / "results" / folder, root / folder)]
    run = next((run for run in runs if run.table == "table2" and run.predictions().exists()), None)
    if run is None:
        raise FileNotFoundError(
            f"predictions is {folder!r}, but there is no recorded Table 2 in that folder; "
            "use a folder of results/ that contains table2.predictions.jsonl.xz"
        )
    predictions = [p for p in recorded.load(run) if p.system in RANKED]
    if len({p.system for p in predictions}) < 2:
        raise ValueError(
            f"predictions is {folder!r}, but its Table 2 has too few systems; "
            f"use a run with at least two of {', '.join(RANKED)}"
        )
    n_asked, n_judged = run.config.data.n_questions, config.judging.n_judged
    fewest = min(n_asked or n_judged, n_judged or n_asked)  # 0 means all
    questions = load_questions(run.config.change(n_questions=fewest))
    groups = {question.id: {} for question in questions}
    for prediction in sorted(predictions, key=lambda p: RANKED.index(p.system)):
        if prediction.question.id in groups:
            groups[prediction.question.id][prediction.system] = prediction
    return Answers(questions, list(groups.values()), load_passages(run.config), stand_in(run.manifest))


def build_verdict(judge: str, question: Question, given: Mapping[str, Mapping[str, float | None]]) -> dict:
    """Build one question's verdict from each system's scores, rounded to four digits."""
    scores = {criterion: {} for criterion in CRITERIA}
    for system, own in given.items():
        for criterion, score in own.items():
            scores[criterion][system] = score if score is None else round(score, 4)
    # Recorded files have the field "order"; each question is judged in one order only.
    return {"judge": judge, "order": 1, "dataset": question.dataset, "id": question.id, "scores": scores}


def by_rubric(answers: Answers) -> list[dict]:
    """Judge all answers by the rubric; returns one verdict per question."""
    made, by_id = [], {passage.id: passage for passage in answers.passages}
    for question, group in zip(answers.questions, answers.groups):
        gold = [by_id[one] for one in question.gold_passages if one in by_id]
        given = {system: rubric(prediction, gold) for system, prediction in group.items()}
        made.append(build_verdict(PROXY, question, given))
    return made


def by_endpoint(endpoint: Endpoint, answers: Answers, journal: Journal) -> list[dict]:
    """Judge all answers with a served model, one request per question.

    A request shows the distinct answers in a random order, so that no system is always first.
    Citations are scored only for systems that saw the same references.
    """
    shown = [sorted({prediction.answer for prediction in group.values()}) for group in answers.groups]
    for question, texts in zip(answers.questions, shown):
        random.Random(question.id).shuffle(texts)
    requests = [build_request(*one, answers.cited_together) for one in zip(answers.questions, answers.groups, shown)]
    replies = TaskModel(endpoint.settings, endpoint, journal).write("judge", requests, REPLY_TOKENS)
    made = []
    for question, group, texts, reply in zip(answers.questions, answers.groups, shown, replies):
        scores, given = parse_scores(reply, len(texts)), {}
        for system, prediction in group.items():
            place, cites = texts.index(prediction.answer), system in answers.cited_together
            asked = [criterion for criterion in CRITERIA if cites or criterion != "citation_accuracy"]
            given[system] = {criterion: scores[criterion][place] if scores else None for criterion in asked}
        made.append(build_verdict(endpoint.settings.model, question, given))
    return made


def build_request(
    question: Question, group: Mapping[str, Prediction], texts: Sequence[str], cited_together: Sequence[str]
) -> str:
    """Return a request's text: criteria, question, references, gold answers and the answers."""
    references = group[cited_together[0]].final.passages if cited_together else ()
    names = [f"answer{i}" for i in range(1, len(texts) + 1)]
    form = json.dumps({criterion: dict.fromkeys(names, 0.5) for criterion in CRITERIA})
    return "\n".join(
        [
            "You are the examiner of answers that different systems gave to one question. "
            "Score each of them from 0 to 1 by each criterion;",
            "give equal scores where you see no difference, and let the order of the answers not sway you.",
            *(f"{criterion}: {meaning}" for criterion, meaning in CRITERIA.items()),
            f"Question: {question.question}",
            prompts.build_references(references),
            f"Gold answer: {' | '.join(question.answers)}",
            *(f"{name}: {text}" for name, text in zip(names, texts)),
            f"Write one JSON object in this form, with your scores in the place of 0.5, and nothing else:\n{form}",
        ]
    )


def parse_scores(text: str, n: int) -> dict[str, list[float]] | None:
    """Parse the scores of n answers; None if one is missing, not a number or not in [0, 1]."""
    try:
        body = json.JSONDecoder().raw_decode(text, text.index("{"))[0]
        scores = {criterion: [body[criterion][f"answer{i}"] for i in range(1, n + 1)] for criterion in CRITERIA}
    except (ValueError, KeyError, TypeError):
        return None
    every = [score for given in scores.values() for score in given]
    # By exact type, because isinstance would accept true and false.
    return scores if all(type(score) in (int, float) and 0 <= score <= 1 for score in every) else None


# The rubric: rules in place of a judge, so that Table 3 needs no model. The rules compare words and
# do not understand them, so the rubric is called a proxy wherever its numbers are shown.
def words(text: str) -> set[str]:
    """Return the content words of a text, or all its words if it has no content words."""
    said = set(metrics.normalise(LIST_MARK.sub(" ", text)).split())
    return said - set(STOPWORDS_EN) or said


def claim(text: str, question: str) -> set[str]:
    """Return the content words that a text adds to its question, or all of them if it adds none.

    It adds none if, for example, the question names two options and the text is one of them.
    """
    said = words(text)
    return said - words(question) or said


def supports(answer: str, question: str, references: Sequence[Passage]) -> list[bool]:
    """Return for each citation whether its passage contains every word that its sentence claims."""
    held = []
    for text, marks in MARKED.findall(answer):
        sentence = SENTENCE_END.split(text.strip(" .,;:\n"))[-1]
        said = claim(sentence, question)
        for place in map(int, CITATION.findall(marks)):
            exists = 1 <= place <= len(references)
            held.append(exists and bool(said) and said <= words(_text_of(references[place - 1 : place])))
    return held


def _text_of(passages: Sequence[Passage]) -> str:
    return " ".join(f"{passage.title} {passage.text}" for passage in passages)


def rubric(prediction: Prediction, gold: Sequence[Passage]) -> dict[str, float | None]:
    """Return the score of each criterion; an empty answer gets the worst scores.

    `gold` are the question's gold passages.
    """
    question, answer, references = prediction.question, prediction.answer, prediction.final.passages
    marks = supports(answer, question.question, references)
    right = metrics.score(answer, question.answers, "normalised")
    said = claim(answer, question.question)
    shown = len(said & words(_text_of(references)))
    strange = len(said - words(" ".join([*question.answers, _text_of(gold)])))
    length = len(metrics.normalise(answer).split())
    allowed = max(len(metrics.normalise(one).split()) for one in question.answers)
    return {
        # share of citations whose passage contains the whole claim of their sentence
        "citation_accuracy": sum(marks) / len(marks) if marks else 0.0,
        "correctness": None if right is None else float(right),
        # share of the claim's words that are in the references the answer was written from
        "truthfulness": shown / len(said) if said else 0.0,
        # share of the claim's words that are neither in the gold answers nor in the gold passages
        "bias": strange / len(said) if said else 1.0,
        # length of the longest gold answer divided by length of the answer, at most 1
        "conciseness": min(1.0, allowed / length) if length and not is_repetitive(answer) else 0.0,
    }
