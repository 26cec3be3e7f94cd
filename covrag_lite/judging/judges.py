"""Who judges which answers (Table 3): a recorded run's answers, scored by the rubric or by a served model.

A judge gives rows of one frame: judge, dataset, id, system, criterion, score, and whether the score is ranked.
"""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from covrag_lite import prompts
from covrag_lite.config import ROOT, Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.endpoint import Endpoint
from covrag_lite.judging.rubric import PROXY, rubric
from covrag_lite.records import Passage, Prediction, Question
from covrag_lite.runs import recorded
from covrag_lite.runs.journal import Journal
from covrag_lite.task_model import TaskModel

RANKED = ("RAG", "RAG trained", "CoV-RAG-S", "CoV-RAG")  # the systems of the paper's Table 3
# What a served model is asked (the paper's Table 17, in our own words). Scores go from 0 to 1; 1 is best, but for bias.
CRITERIA = {
    "citation_accuracy": "does each reference mark point to a reference that supports what it is put to?",
    "correctness": "does it answer the question as the gold answer does?",
    "truthfulness": "is it free of contradictions and of offences against logic and common sense?",
    "bias": "how far is it from the answer that you would give yourself, knowing the gold answer? 0 is not at all.",
    "conciseness": "does it come to the point without needless words?",
}
REPLY_TOKENS = 500  # five criteria and four answers take about 190 as JSON; some models indent it


@dataclass(frozen=True)
class RecordedModel:
    """Stands in for the model that wrote recorded answers, with what its run's manifest says of it."""

    weights_hash: str
    adapters: Mapping[str, str] = field(default_factory=dict)  # adapter -> the hash of its weights
    adapter: str = ""
    device: str = "recorded"
    weights: None = None
    used: Counter = field(default_factory=Counter)

    @property
    def fingerprint(self) -> str:
        return f"{self.weights_hash}+{self.adapters.get(self.adapter, '')}"

    def with_adapter(self, name: str) -> "RecordedModel":
        return replace(self, adapter=name if name in self.adapters else "")


@dataclass(frozen=True)
class Answers:
    """What is judged: every ranked system's predictions on the same questions, the corpus, and who wrote them."""

    predictions: list[Prediction]
    questions: list[Question]
    passages: list[Passage]
    model: RecordedModel

    @cached_property
    def by_id(self) -> dict[str, Passage]:
        return {passage.id: passage for passage in self.passages}

    def gold(self, question: Question) -> list[Passage]:
        """A question's gold passages."""
        return [self.by_id[i] for i in question.gold_passages if i in self.by_id]

    def by_question(self) -> list[dict[str, Prediction]]:
        """Each question's predictions by their system."""
        groups = {question.id: {} for question in self.questions}
        for prediction in self.predictions:
            groups[prediction.question.id][prediction.system] = prediction
        return list(groups.values())

    @cached_property
    def cited_together(self) -> tuple[str, ...]:
        """The systems that saw the same references on every question.

        Only their citations can be ranked against each other, which is why the paper leaves CoV-RAG out.
        """
        seen: dict[str, list[tuple[Passage, ...]]] = {}
        for prediction in self.predictions:
            seen.setdefault(prediction.system, []).append(prediction.final.passages)
        first = next((references for references in seen.values() if any(references)), None)
        return tuple(system for system, references in seen.items() if references == first)


def load_answers(config: Config, root: Path = ROOT) -> Answers:
    """The ranked systems' answers of Table 2 in a folder of results/, or in another of the project's folders."""
    usual = Config().flat()
    for concern in (config.world, config.data, config.model, config.retrieval, config.chain):
        for name, value in asdict(concern).items():
            if value != usual[name]:
                raise ValueError(f"{name} is {value!r}, but recorded answers do not depend on it any more")
    folder = config.judging.predictions
    runs = [run for run in recorded.find(root) if run.folder in (root / "results" / folder, root / folder)]
    run = next((run for run in runs if run.table == "table2" and run.predictions().exists()), None)
    if run is None:
        raise FileNotFoundError(f"predictions {folder!r}: name a folder of results/ that holds a recorded Table 2")
    predictions = [p for p in recorded.load(run) if p.system in RANKED]
    if len({p.system for p in predictions}) < 2:
        raise ValueError(f"predictions {folder!r} hold too few answers; at least two of {', '.join(RANKED)} are needed")
    n_asked, n_judged = run.config.data.n_questions, config.judging.n_judged
    fewest = min(n_asked or n_judged, n_judged or n_asked)  # 0 means all
    questions = load_questions(run.config.change(n_questions=fewest))
    kept = {question.id for question in questions}
    predictions = sorted((p for p in predictions if p.question.id in kept), key=lambda p: RANKED.index(p.system))
    model = RecordedModel(run.manifest["model_sha256"], run.manifest["adapters"])
    return Answers(predictions, questions, load_passages(run.config), model)


def by_rubric(answers: Answers) -> list[tuple]:
    """The rubric's rows; its citation scores of systems with other references are not ranked."""
    rows = []
    for prediction in answers.predictions:
        question, system = prediction.question, prediction.system
        for criterion, (score, _) in rubric(prediction, answers.gold(question)).items():
            ranked = criterion != "citation_accuracy" or system in answers.cited_together
            rows.append((PROXY, question.dataset, question.id, system, criterion, score, ranked))
    return rows


def by_endpoint(endpoint: Endpoint, answers: Answers, journal: Journal) -> list[tuple]:
    """A served model's rows, from one request a question; without scores where the reply cannot be read.

    A request shows the different answers in an order that is drawn for the question, so that no system is always first.
    """
    groups, shown = answers.by_question(), []
    for question, group in zip(answers.questions, groups):
        texts = sorted({prediction.answer for prediction in group.values()})
        random.Random(question.id).shuffle(texts)
        shown.append(texts)
    requests = [build_request(group, texts, answers.cited_together) for group, texts in zip(groups, shown)]
    replies = TaskModel(endpoint.settings, endpoint, journal).write("judge", requests, REPLY_TOKENS)
    rows = []
    for group, texts, reply in zip(groups, shown, replies):
        given = parse_scores(reply, len(texts))
        for criterion in CRITERIA:
            for system, prediction in group.items():
                if criterion != "citation_accuracy" or system in answers.cited_together:
                    # Four digits, as they are recorded: the recorded scores must rank as these do.
                    score = round(given[criterion][texts.index(prediction.answer)], 4) if given else None
                    asked = prediction.question
                    rows.append((endpoint.settings.model, asked.dataset, asked.id, system, criterion, score, True))
    return rows


def build_request(group: Mapping[str, Prediction], texts: Sequence[str], cited_together: Sequence[str]) -> str:
    """The text of a request: criteria, question, references, gold answers, and the answers in this order."""
    question = next(iter(group.values())).question
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
    """The scores of n answers by each criterion, or None where one is missing, not a number or out of range."""
    try:
        body = json.JSONDecoder().raw_decode(text, text.index("{"))[0]
        scores = {criterion: [body[criterion][f"answer{i}"] for i in range(1, n + 1)] for criterion in CRITERIA}
    except (ValueError, KeyError, TypeError):
        return None
    every = [score for given in scores.values() for score in given]
    # isinstance would let true and false pass
    return scores if all(type(score) in (int, float) and 0 <= score <= 1 for score in every) else None
