"""Recorded predictions: files with ids, what our models wrote, and the outcome of every round.

They contain no text of the questions or passages, which is put back where the data is available.
"""

import json
import lzma
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path

from covrag_lite import prompts
from covrag_lite.engine.interface import Schema
from covrag_lite.files import RecordDamaged, read_rows, write_bytes
from covrag_lite.records import Outcome, Passage, Prediction, Question, Round, Verdict
from covrag_lite.runs.frame import outcome_of
from covrag_lite.runs.redaction import Index, core, index_questions, redact, restore
from covrag_lite.systems import adapter_of, all_systems

LETTERS = {True: "t", False: "f", None: "-"}  # a recorded outcome has one letter per field
VALUES = {letter: value for value, letter in LETTERS.items()}
# Compression settings that gave the smallest files on real records.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]


def save_predictions(path: Path, predictions: Sequence[Prediction]) -> None:
    """Write predictions as xz-compressed JSONL, one line per question.

    A line contains each distinct round once. For each system it lists the indices of its rounds
    and, unless it is the last one, the round whose answer is returned; the list is empty if the
    system did not answer the question. The same predictions always give identical files.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    by_system: dict[str, dict[str, Prediction]] = {}
    for prediction in predictions:
        by_system.setdefault(prediction.system, {})[prediction.question.id] = prediction
    questions: dict[str, Question] = {}
    for answered in sorted(by_system.values(), key=len, reverse=True):
        for identity, prediction in answered.items():
            questions.setdefault(identity, prediction.question)
    _check_order(path, predictions, by_system, questions)
    index = index_questions(questions.values())
    lines = []
    for identity, question in questions.items():
        answered = {system: of_system.get(identity) for system, of_system in by_system.items()}
        row = _to_row(question, answered, index)
        lines.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
    write_bytes(path, lzma.compress("".join(lines).encode(), filters=FILTERS))


def _check_order(
    path: Path,
    predictions: Sequence[Prediction],
    by_system: Mapping[str, Mapping[str, Prediction]],
    questions: Mapping[str, Question],
) -> None:
    """Raise an error if the predictions would not be loaded in their order."""
    reloaded = []
    for answered in by_system.values():
        reloaded += [answered[identity] for identity in questions if identity in answered]
    if reloaded != list(predictions):
        raise ValueError(
            f"{path.name}: a system has the same question twice, or its questions in another order "
            "than the other systems; give each system the questions once, in the same order"
        )


def _to_row(
    question: Question, by_system: Mapping[str, Prediction | None], index: Index
) -> dict[str, object]:
    """Return the line of one question: each distinct round once, and the rounds of each system."""
    places: dict[str, int] = {}  # index of each distinct round, by its text
    systems: dict[str, list] = {}
    for system, prediction in by_system.items():
        systems[system] = []
        if prediction is None:
            continue
        rounds = []
        for number in range(len(prediction.rounds)):
            text = json.dumps(_to_json(prediction, number, index))
            rounds.append(places.setdefault(text, len(places)))
        systems[system].append(rounds)
        if prediction.kept != len(prediction.rounds) - 1:
            systems[system].append(prediction.kept)
    return {
        "id": question.id,
        "dataset": question.dataset,
        "kind": question.kind,
        "rounds": [json.loads(text) for text in places],
        "systems": systems,
    }


def _to_json(prediction: Prediction, number: int, index: Index) -> dict[str, object]:
    """Return a round without the data's text: passages become ids, questions become marks."""
    recorded = prediction.rounds[number]
    question = prediction.question.question
    verdict = recorded.verdict
    hide = partial(redact, question=core(question), others=index)
    outcome = asdict(outcome_of(prediction, number))
    row = {
        "query": hide(recorded.query) if recorded.query != question else None,
        "passages": [passage.id for passage in recorded.passages],
        "answer": hide(recorded.answer),
        "verdict": hide(verdict.text) if verdict else None,
    }
    optional = {
        "note": hide(recorded.note),
        "probabilities": verdict.probabilities if verdict else None,
        "likelihood": recorded.likelihood,
        "outcome": "".join(LETTERS[value] for value in outcome.values()),
    }
    for name, value in optional.items():
        if value not in (None, "", {}):
            row[name] = value
    return row


def load_predictions(
    path: Path,
    questions: Sequence[Question] | None = None,
    passages: Sequence[Passage] = (),
    model: str = "",
    adapters: Collection[str] = (),
) -> list[Prediction]:
    """Load recorded predictions, with their questions and passages put back.

    Without `questions`, a prediction has only ids, what our models wrote and the recorded outcomes;
    all other texts are empty. A system whose adapter is not in `adapters` ran on the base model.
    """
    rows = read_rows(path)
    if questions is None:
        _check_outcomes(path, rows)
        questions = [Question(row["id"], row["dataset"], "", (), kind=row["kind"]) for row in rows]
        passages = [Passage(identity, "", "") for identity in _retrieved(rows)]
    retrieved = _retrieved(rows)
    questions_by_id = {question.id: question for question in questions}
    passages_by_id = {passage.id: passage for passage in passages if passage.id in retrieved}
    loaded: dict[str, list[Prediction]] = {}
    for row in rows:
        # Systems share rounds, and each is parsed once per schema.
        load_round = cache(partial(_to_round, row, questions_by_id, passages_by_id))
        for system, recorded in row["systems"].items():
            predictions = loaded.setdefault(system, [])
            if not recorded:
                continue
            places, *kept = recorded
            schema = all_systems()[system].schema if system in all_systems() else prompts.SCHEMA
            rounds = tuple(load_round(place, schema) for place in places)
            adapter = adapter_of(system)
            backbone = f"{model}+{adapter}" if adapter in adapters else model
            question = questions_by_id[row["id"]]
            predictions.append(Prediction(question, system, rounds, backbone, *kept))
    in_order = []
    for predictions in loaded.values():
        in_order += predictions
    return in_order


def _check_outcomes(path: Path, rows: Sequence[dict]) -> None:
    """Raise an error if a round has no outcome.

    Older records of the fictional world have none, because their data can always be built again.
    """
    for row in rows:
        for recorded in row["rounds"]:
            if "outcome" not in recorded:
                raise RecordDamaged(
                    f"{path.name} does not contain the outcomes of its predictions, and the data "
                    "to score them is missing; set the parameter data to the questions of this run"
                )


def _retrieved(rows: Sequence[dict]) -> dict[str, None]:
    """Return the ids of all retrieved passages."""
    identities = {}
    for row in rows:
        for recorded in row["rounds"]:
            identities |= dict.fromkeys(recorded["passages"])
    return identities


def _to_round(
    row: dict,
    questions: Mapping[str, Question],
    passages: Mapping[str, Passage],
    place: int,
    schema: Schema,
) -> Round:
    """Return a recorded round with its texts put back."""
    recorded = row["rounds"][place]
    question = questions[row["id"]].question
    show = partial(restore, question=core(question), others=questions)
    # The recorded outcome is used if the data is missing, or if the record omits the passages' ids.
    outcome = None
    is_needed = not question or not recorded["passages"]
    if is_needed and "outcome" in recorded:
        outcome = Outcome(*(VALUES[letter] for letter in recorded["outcome"]))
    verdict = None
    if recorded["verdict"]:
        text = show(recorded["verdict"])
        verdict = _load_verdict(text, schema, recorded.get("probabilities"), outcome)
    return Round(
        query=question if recorded["query"] is None else show(recorded["query"]),
        passages=tuple(passages[identity] for identity in recorded["passages"]),
        answer=show(recorded["answer"]),
        verdict=verdict,
        likelihood=recorded.get("likelihood"),
        note=show(recorded.get("note", "")),
        outcome=outcome,
    )


def _load_verdict(
    text: str, schema: Schema, probabilities: dict[str, float] | None, outcome: Outcome | None
) -> Verdict:
    """Parse a recorded verdict; one that did not parse with its question stays unparsed without."""
    if outcome is not None and outcome.parsed is False:
        return replace(prompts.parse_verdict(""), text=text)
    return prompts.parse_verdict(text, schema, probabilities)
