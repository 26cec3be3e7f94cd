"""The answers that Table 3 ranks: those of a recorded run, or new ones."""

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from covrag_lite import evaluate
from covrag_lite.config import ROOT, Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.records import Passage, Prediction, Question
from covrag_lite.runs import recorded

RANKED = ("RAG", "RAG trained", "CoV-RAG-S", "CoV-RAG")  # the systems of the paper's Table 3


@dataclass(frozen=True)
class Recorded:
    """Stands in for a model whose answers were recorded, with what its run's manifest says of it."""

    weights_hash: str
    adapters: dict[str, str] = field(default_factory=dict)  # adapter -> the hash of its weights
    adapter: str = ""
    device: str = "recorded"
    weights: None = None
    used: Counter = field(default_factory=Counter)

    @property
    def fingerprint(self) -> str:
        return f"{self.weights_hash}+{self.adapters.get(self.adapter, '')}"

    def with_adapter(self, name: str) -> "Recorded":
        return replace(self, adapter=name if name in self.adapters else "")


@dataclass(frozen=True)
class Answers:
    """What is judged: every ranked system's predictions on the same questions, the corpus, and who wrote them."""

    predictions: list[Prediction]
    questions: list[Question]
    passages: list[Passage]
    model: object

    @cached_property
    def corpus(self) -> dict[str, Passage]:
        """The passages by their ids."""
        return {passage.id: passage for passage in self.passages}

    def gold(self, question: Question) -> list[Passage]:
        """A question's gold passages."""
        return [self.corpus[i] for i in question.gold_passages if i in self.corpus]

    def by_question(self) -> list[dict[str, Prediction]]:
        """Each question's predictions by their system."""
        groups = {question.id: {} for question in self.questions}
        for prediction in self.predictions:
            groups[prediction.question.id][prediction.system] = prediction
        return list(groups.values())

    def cited_together(self) -> tuple[str, ...]:
        """The systems that saw the same references on every question.

        Only their citations can be ranked against each other, which is why the paper leaves CoV-RAG out.
        """
        seen: dict[str, list[tuple[Passage, ...]]] = {}
        for group in self.by_question():
            for system, prediction in group.items():
                seen.setdefault(system, []).append(prediction.final.passages)
        first = next((references for references in seen.values() if any(references)), None)
        return tuple(system for system, references in seen.items() if references == first)


def load_answers(config: Config, root: Path = ROOT) -> Answers:
    """The answers of those ranked systems that were run: recorded under results/, or new ones."""
    answers = _load_recorded(config, root) if config.judging.predictions else _run_anew(config)
    held = list(dict.fromkeys(prediction.system for prediction in answers.predictions))
    if len(set(RANKED) & set(held)) < 2:
        raise ValueError(
            f"predictions {config.judging.predictions!r} hold answers of {', '.join(held)}; "
            f"at least two of {', '.join(RANKED)} are needed"
        )
    sets: dict[str, list[Question]] = {}
    for question in answers.questions:
        sets.setdefault(question.dataset, []).append(question)
    questions = [question for one in sets.values() for question in one[: config.judging.n_judged or None]]
    kept = {question.id for question in questions}
    predictions = [p for p in answers.predictions if p.system in RANKED and p.question.id in kept]
    predictions.sort(key=lambda prediction: RANKED.index(prediction.system))
    return replace(answers, predictions=predictions, questions=questions)


def _run_anew(config: Config) -> Answers:
    """New answers of the ranked systems."""
    questions, passages = load_questions(config), load_passages(config)
    resources = evaluate.load_resources(config, passages)
    predictions = evaluate.run(config.change(systems=RANKED), resources, questions)
    return Answers(predictions, questions, passages, resources.model)


def _load_recorded(config: Config, root: Path) -> Answers:
    """A recorded run's answers with its own data, made again from its manifest and compared by their hashes."""
    _refuse_what_has_no_effect(config)
    folder = root / "results" / config.judging.predictions
    runs = [run for run in recorded.find(root) if run.folder == folder and run.has_predictions]
    if not runs:
        raise FileNotFoundError(
            f'{folder} holds no recorded predictions; name a folder under results/, or "" to run the systems anew'
        )
    run = runs[0]
    model = Recorded(run.manifest["model_sha256"], run.manifest.get("adapters", {}))
    return Answers(recorded.load(run), load_questions(run.config), load_passages(run.config), model)


def _refuse_what_has_no_effect(config: Config) -> None:
    """Raise an error where a setting was changed on which recorded answers do not depend any more."""
    usual = Config().flat()
    for concern in ("world", "data", "model", "retrieval", "chain"):
        for name, value in asdict(getattr(config, concern)).items():
            if value != usual[name]:
                told = f"{name} is {value!r}, but recorded answers do not depend on it any more"
                raise ValueError(f'{told}; with predictions "" the systems run anew')
