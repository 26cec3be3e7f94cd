"""Outcomes: whether answers and retrieval were right, as a data frame and in recorded files.

Every table is built from the frame of `to_frame`. A recorded prediction contains ids and what our
models wrote, but no text of the questions or passages.
"""

import gzip
import json
import lzma
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path

import pandas as pd

from covrag_lite import metrics, prompts
from covrag_lite.engine.interface import Schema
from covrag_lite.method import expect, weigh
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.runs.redaction import Index, core, index_questions, redact, restore
from covrag_lite.systems import adapter_of, verifier_of
from covrag_lite.task_model import schema_of

FOUND = ("gold", "found", "words")  # the fields of an outcome about retrieval
LETTERS = {True: "t", False: "f", None: "-"}  # a recorded outcome has one letter per field
VALUES = {letter: value for value, letter in LETTERS.items()}
# Compression settings that gave the smallest files on real records.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one round; None if there is no gold answer, gold passage or verdict."""

    raw: bool | None
    normalised: bool | None
    whole: bool | None
    gold: bool | None  # a gold passage was retrieved
    found: bool | None  # a retrieved passage contains a gold answer
    words: bool | None  # a retrieved passage contains a gold answer in whole words
    parsed: bool | None  # the verdict parsed


def outcome_of(prediction: Prediction, number: int = 0) -> Outcome:
    """Return the outcome of a round: scored if the data is available, else as recorded."""
    one, asked = prediction.rounds[number], prediction.question
    if one.outcome:
        return one.outcome
    return Outcome(
        *(metrics.score(one.answer, asked.answers, metric) for metric in metrics.METRICS),
        metrics.holds_gold(one.passages, asked.gold_passages),
        metrics.holds_answer(one.passages, asked.answers),
        metrics.holds_answer(one.passages, asked.answers, "whole"),
        one.verdict.parsed if one.verdict else None,
    )


def to_frame(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """Return a frame with one row per question and system."""
    rows = []
    for p in predictions:
        first, last = p.rounds[0], p.final
        before = outcome_of(p)
        after = outcome_of(p, p.kept) if p.revised else before
        verdicts = [one.verdict for one in p.rounds if one.verdict]
        judged = verdicts[0] if verdicts and verdicts[0].parsed else None
        row = dict(
            system=p.system,
            backbone=p.backbone,
            dataset=p.question.dataset,
            id=p.question.id,
            form=form_of(p.question.kind),
            failure=failure_of(p.question.kind),
            **{name: getattr(after, name) for name in metrics.METRICS},
            first_normalised=before.normalised,
            first_whole=before.whole,
            **{f"{name}_first": getattr(before, name) for name in FOUND},
            **{f"{name}_last": getattr(after, name) for name in FOUND},
            verdicts=len(verdicts),
            unparsed=sum(not verdict.parsed for verdict in verdicts),
            judgment=verdicts[0].judgment if verdicts else None,
            expected_correctness=expect(judged, "correctness") if judged else None,
            expected_reference=expect(judged, "reference_correctness") if judged else None,
            unrevised=(judged.probabilities or {}).get("empty") if judged else None,
            likelihood=first.likelihood,
            kept_likelihood=last.likelihood,
            first_weight=weigh(first),
            weight=weigh(last),
            revised=p.revised,
            searched=bool(last.query or last.passages),
        )
        rows.append(row)
    return pd.DataFrame(rows)


def form_of(kind: str) -> str:
    """Return how a question of this kind is worded: broken wording, two-hop, or well put."""
    if "+" in kind:
        return "broken wording"
    return "two-hop" if kind == "two-hop" else "well put"


def failure_of(kind: str) -> str:
    """Return why a question of this kind may fail: a trap of the world, its wording, or "none"."""
    form = form_of(kind)
    return form if form != "well put" else kind.partition("/")[2] or "none"


def save_predictions(path: Path, predictions: Sequence[Prediction]) -> None:
    """Write predictions as xz-compressed JSONL, one line per question.

    A line contains each distinct round once. For each system it lists the indices of its rounds
    and, unless it is the last one, the round whose answer is returned; the list is empty if the
    system did not answer the question. The same predictions always give identical files.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    systems: dict[str, dict[str, Prediction]] = {}
    for p in predictions:
        systems.setdefault(p.system, {})[p.question.id] = p
    most_first = sorted(systems.values(), key=len, reverse=True)
    questions = {identity: p.question for own in most_first for identity, p in own.items()}
    if [own[one] for own in systems.values() for one in questions if one in own] != list(predictions):
        raise ValueError(
            f"{path.name}: a system has the same question twice, or its questions in another order "
            "than the other systems; give each system the questions once, in the same order"
        )
    others, lines = index_questions(questions.values()), []
    for identity, question in questions.items():
        # index of each distinct round, by its text; what the line says about each system
        places, told = {}, {system: [] for system in systems}
        for p in [own[identity] for own in systems.values() if identity in own]:
            texts = [json.dumps(_to_json(p, number, others)) for number in range(len(p.rounds))]
            kept = [p.kept] if p.kept != -1 else []
            told[p.system] = [[places.setdefault(text, len(places)) for text in texts], *kept]
        line = {"id": identity, "dataset": question.dataset, "kind": question.kind}
        line |= {"rounds": [json.loads(text) for text in places], "systems": told}
        lines.append(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
    path.write_bytes(lzma.compress("".join(lines).encode(), filters=FILTERS))


def _to_json(p: Prediction, number: int, others: Index) -> dict:
    """Return a round without the data's text: passages become ids, questions become marks."""
    one, question = p.rounds[number], p.question
    hide = partial(redact, asked=core(question.question), others=others)
    row = {
        "query": hide(one.query) if one.query != question.question else None,
        "passages": [passage.id for passage in one.passages],
        "answer": hide(one.answer),
        "verdict": hide(one.verdict.text) if one.verdict else None,
    }
    further = {"note": hide(one.note), "probabilities": one.verdict and one.verdict.probabilities}
    further["likelihood"] = one.likelihood
    further["outcome"] = "".join(LETTERS[value] for value in asdict(outcome_of(p, number)).values())
    return row | {name: value for name, value in further.items() if value not in (None, "", {})}


def read_rows(path: Path) -> list[dict]:
    """Return the rows of a compressed JSONL file.

    Lines end at "\\n" only, because a text may contain other characters that break lines.
    """
    return [json.loads(line) for line in read_packed(path).split("\n") if line]


def read_packed(path: Path) -> str:
    """Return the text of a file compressed with xz or gzip; a damaged file raises ValueError."""
    try:
        return (lzma if path.suffix == ".xz" else gzip).decompress(path.read_bytes()).decode()
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}; restore it or make it again") from None


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
    lines = read_rows(path)
    found = {identity for line in lines for one in line["rounds"] for identity in one["passages"]}
    if questions is None:
        if not all("outcome" in one for line in lines for one in line["rounds"]):
            raise ValueError(
                f"{path.name} does not contain the outcomes of its predictions, and the data to "
                "score them is missing; set the parameter data to the questions of this run"
            )
        asked = {line["id"]: Question(line["id"], line["dataset"], "", (), kind=line["kind"]) for line in lines}
        known = {identity: Passage(identity, "", "") for identity in found}
    else:
        asked = {question.id: question for question in questions}
        known = {one.id: one for one in passages if one.id in found}
    made = {system: [] for line in lines for system in line["systems"]}
    for line in lines:
        read = cache(partial(_to_round, line, asked, known))  # systems share rounds
        for system, (places, *kept) in [one for one in line["systems"].items() if one[1]]:
            adapter, schema = adapter_of(system), schema_of(verifier_of(system))
            rounds = tuple(read(place, schema) for place in places)
            backbone = f"{model}+{adapter}" if adapter in adapters else model
            made[system].append(Prediction(asked[line["id"]], system, rounds, backbone, *kept))
    return [p for own in made.values() for p in own]


def _to_round(line: dict, asked: Mapping[str, Question], known: Mapping[str, Passage], i: int, schema: Schema) -> Round:
    """Return a recorded round with its texts put back."""
    one, question = line["rounds"][i], asked[line["id"]]
    show = partial(restore, asked=core(question.question), others=asked)
    query = question.question if one["query"] is None else show(one["query"])
    passages, verdict, outcome = tuple(known[identity] for identity in one["passages"]), None, None
    if one["verdict"]:
        verdict = prompts.parse_verdict(show(one["verdict"]), schema, one.get("probabilities"))
    # The recorded outcome is used if the data is missing, or if the record omits the passages' ids.
    if "outcome" in one and not (question.question and one["passages"]):
        outcome = Outcome(*(VALUES[letter] for letter in one["outcome"]))
        # Without its question, a verdict may parse that did not parse when it was recorded.
        if outcome.parsed is False:
            verdict = replace(prompts.parse_verdict(""), text=verdict.text)
    note = show(one.get("note", ""))
    return Round(query, passages, show(one["answer"]), verdict, one.get("likelihood"), note, outcome)


def check_frame(frame: pd.DataFrame, n: int, verdicts: str = "forced", by: str = "system") -> None:
    """Raise an error unless each group has each of n questions once and forced verdicts parsed."""
    sizes = frame.groupby(by).id.agg(["size", "nunique"])
    message = f"each group must have each of {n} questions once, but has {sizes.to_dict()}"
    assert sizes.eq(n).all(axis=None), message
    assert verdicts == "free" or frame.unparsed.sum() == 0, "a forced verdict did not parse"
