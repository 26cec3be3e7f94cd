"""The answers of a recorded run that are judged."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from covrag_lite.config import ROOT, Config, Retrieval
from covrag_lite.data import load_passages
from covrag_lite.data.missing import DataMissing
from covrag_lite.records import Passage, Prediction, Question
from covrag_lite.runs import recorded
from covrag_lite.runs.manifest import ModelFacts
from covrag_lite.runs.recorded import Recorded
from covrag_lite.systems import find_system, names

# The systems of the paper's Table 3.
RANKED = (names.RAG, names.RAG_TRAINED, names.COV_RAG_S, names.COV_RAG)


@dataclass(frozen=True)
class Answers:
    """What is judged: questions, predictions by question and system, corpus, and the model."""

    questions: list[Question]
    groups: list[dict[str, Prediction]]  # for each question, the predictions by system
    passages: Sequence[Passage]
    model: ModelFacts | None = None  # that wrote the answers
    retrieval: Retrieval | None = None  # that found the references

    @property
    def has_texts(self) -> bool:
        """Whether questions and passages have their texts, which a judge needs."""
        return any(question.question for question in self.questions)

    @cached_property
    def cited_together(self) -> tuple[str, ...]:
        """The systems that saw the same references on every question.

        Only their citations can be ranked against each other; the paper therefore gives CoV-RAG no
        citation rank.
        """
        references = {}
        for system in self.groups[0]:
            references[system] = [group[system].final.passages for group in self.groups]
        with_references = [shown for shown in references.values() if any(shown)]
        if not with_references:
            return ()
        first = with_references[0]
        return tuple(system for system, shown in references.items() if shown == first)


def load_answers(config: Config, root: Path = ROOT) -> Answers:
    """Load the ranked systems' recorded answers of Table 2, from results/ or another folder."""
    check_parameters(config)
    run = find_run(config.judging.predictions, root)
    return gather_answers(run, recorded.load(run), RANKED, config.judging.n_judged)


def load_answered(config: Config, root: Path = ROOT) -> Answers:
    """Load the same answers without the data: with ids and recorded outcomes, but no texts."""
    run = find_run(config.judging.predictions, root)
    return gather_answers(run, recorded.load_part(run), RANKED, config.judging.n_judged)


def gather_answers(
    run: Recorded, predictions: Sequence[Prediction], systems: Sequence[str], n_judged: int
) -> Answers:
    """Gather the answers of these systems to the first questions of each set; 0 means all."""
    chosen = [prediction for prediction in predictions if prediction.system in systems]
    if len({prediction.system for prediction in chosen}) < 2:
        name = f"{run.folder.name}/{run.table}"
        raise ValueError(
            f"predictions: the recorded run {name} has too few systems; "
            f"use a run with at least two of {', '.join(systems)}"
        )
    questions = first_questions(chosen, n_judged)
    groups = group_by_question(questions, chosen, systems)
    passages: Sequence[Passage] = []
    if any(question.question for question in questions):  # otherwise the data is missing
        passages = load_passages(run.config)
    model = facts_of_writer(run, systems)
    return Answers(questions, groups, passages, model, run.config.retrieval)


def first_questions(predictions: Sequence[Prediction], n: int) -> list[Question]:
    """Return the first n questions of each set, in their order; 0 means all."""
    by_id = {prediction.question.id: prediction.question for prediction in predictions}
    taken: Counter[str] = Counter()
    questions = []
    for question in by_id.values():
        taken[question.dataset] += 1
        if not n or taken[question.dataset] <= n:
            questions.append(question)
    return questions


def check_parameters(config: Config) -> None:
    """Raise an error if a parameter is set that has no effect on recorded answers."""
    effective = asdict(config.judging) | asdict(config.run)
    defaults = Config().flat()
    for name, value in config.flat().items():
        if name not in effective and value != defaults[name]:
            raise ValueError(
                f"parameter {name} is {value!r}, but it has no effect on recorded answers; "
                f"leave it at its default {defaults[name]!r}"
            )


def find_run(folder: str, root: Path, table: str = "table2") -> Recorded:
    """Return the recorded run of a table in a folder, under results/ or under the root."""
    places = (root / "results" / folder, root / folder)
    for run in recorded.find(root):
        if run.folder in places and run.table == table and run.predictions().exists():
            return run
    raise DataMissing(
        f"predictions is {folder!r}, but there is no recorded {table} in that folder; "
        f"use a folder of results/ that contains {table}.predictions.jsonl.xz"
    )


def group_by_question(
    questions: Sequence[Question], predictions: Sequence[Prediction], systems: Sequence[str]
) -> list[dict[str, Prediction]]:
    """Return each question's predictions by system, in the order of these systems."""
    groups: dict[str, dict[str, Prediction]] = {question.id: {} for question in questions}
    for prediction in sorted(predictions, key=lambda p: systems.index(p.system)):
        if prediction.question.id in groups:
            groups[prediction.question.id][prediction.system] = prediction
    return list(groups.values())


def facts_of_writer(run: Recorded, systems: Sequence[str]) -> ModelFacts:
    """Return what a run's manifest says about the model and adapters of these systems."""
    used = set()
    for system in systems:
        used.update(find_system(system).adapters)
    hashes = run.manifest["adapters"]
    adapters = {name: hashes[name] for name in sorted(used) if name in hashes}
    return ModelFacts(run.manifest["model_sha256"], run.manifest["weights"], adapters)
