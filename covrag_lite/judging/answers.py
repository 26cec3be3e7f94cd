"""The answers of a recorded run that are judged."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from covrag_lite.config import ROOT, Config
from covrag_lite.data import load_passages, load_questions
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
    predictions = [p for p in recorded.load(run) if p.system in RANKED]
    if len({p.system for p in predictions}) < 2:
        raise ValueError(
            f"predictions is {config.judging.predictions!r}, but its Table 2 has too few systems; "
            f"use a run with at least two of {', '.join(RANKED)}"
        )
    n_questions = fewest(run.config.data.n_questions, config.judging.n_judged)
    questions = load_questions(run.config.change(n_questions=n_questions))
    groups = group_by_question(questions, predictions)
    return Answers(questions, groups, load_passages(run.config), facts_of_writer(run))


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


def find_run(folder: str, root: Path) -> Recorded:
    """Return the recorded Table 2 of a folder, under results/ or under the root."""
    places = (root / "results" / folder, root / folder)
    for run in recorded.find(root):
        if run.folder in places and run.table == "table2" and run.predictions().exists():
            return run
    raise DataMissing(
        f"predictions is {folder!r}, but there is no recorded Table 2 in that folder; "
        "use a folder of results/ that contains table2.predictions.jsonl.xz"
    )


def fewest(n_answered: int, n_judged: int) -> int:
    """Return how many questions of each set are judged; 0 means all."""
    limits = [n for n in (n_answered, n_judged) if n]
    return min(limits, default=0)


def group_by_question(
    questions: Sequence[Question], predictions: Sequence[Prediction]
) -> list[dict[str, Prediction]]:
    """Return each question's predictions by system, in the order of the ranked systems."""
    groups: dict[str, dict[str, Prediction]] = {question.id: {} for question in questions}
    for prediction in sorted(predictions, key=lambda p: RANKED.index(p.system)):
        if prediction.question.id in groups:
            groups[prediction.question.id][prediction.system] = prediction
    return list(groups.values())


def facts_of_writer(run: Recorded) -> ModelFacts:
    """Return what a run's manifest says about the model and adapters of the ranked systems."""
    used = set()
    for system in RANKED:
        used.update(find_system(system).adapters)
    hashes = run.manifest["adapters"]
    adapters = {name: hashes[name] for name in sorted(used) if name in hashes}
    return ModelFacts(run.manifest["model_sha256"], run.manifest["weights"], adapters)
