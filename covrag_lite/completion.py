"""Prompts through a model and into the journal, batch by batch: nothing is computed twice, and nothing written is lost.

`evaluation` and `teacher` call `complete`; `evaluation` calls the others too.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import islice
from typing import TYPE_CHECKING

from covrag_lite.prompts import VERDICT_ROOM
from covrag_lite.runs.journal import Journal, key_of
from covrag_lite.runs.progress import track

if TYPE_CHECKING:
    from covrag_lite.engine.endpoint import Endpoint
    from covrag_lite.engine.local import LanguageModel


def keys_of(
    stage: str, texts: Sequence[str], limit: int, model: "LanguageModel | Endpoint", sample: int | None = None
) -> dict[str, str]:
    """Each prompt's key in the journal: everything its completion depends on, of a sample also its number."""
    setting = {
        "weights": model.fingerprint,
        "quantize": model.config.quantize,
        "device": model.device,
        "stage": stage,
        "limit": limit,
    }
    if stage == "verify":
        setting |= {"verdicts": model.config.verdicts, "schema": model.schema}
    if sample is not None:
        setting["sample"] = sample
    return {text: key_of(**setting, prompt=text) for text in texts}


def complete(
    stage: str,
    texts: Sequence[str],
    limit: int,
    model: "LanguageModel | Endpoint",
    journal: Journal,
    sample: int | None = None,
    timed: bool = False,
) -> list[str]:
    """Complete prompts, journaling each batch as it is written; with its cost beside it where it is wanted.

    Batches are made of all prompts of the stage, whatever the journal holds already, so that a resumed run computes
    the same batches as an unbroken one and ends with the same bytes. An endpoint's batches are single prompts.
    """
    keys = keys_of(stage, texts, limit, model, sample)
    if all(key in journal for key in keys.values()):  # planning batches would load the weights
        return [journal[keys[text]] for text in texts]
    is_served = model.device == "endpoint"
    if is_served:
        batches = [[text] for text in keys]
    else:
        room = limit + VERDICT_ROOM if stage == "verify" else limit
        batches = model.batches(list(keys), room)
    left = [batch for batch in batches if not all(keys[text] in journal for text in batch)]

    def write(batch: Sequence[str]) -> dict[str, str]:
        batch_keys = [keys[text] for text in batch]
        start = time.perf_counter()
        written = write_batch(stage, batch, batch_keys, limit, model, sample)
        seconds = (time.perf_counter() - start) / len(batch)
        costs = costs_of(batch, [written[key] for key in batch_keys], seconds, model) if timed else []
        return {cost_key(key): cost for key, cost in zip(batch_keys, costs)} | written

    made = each(write, left, model.config.requests if is_served else 1)
    for written in track(made, stage, "prompt" if is_served else "batch", total=len(left)):
        journal.add(stage, written)
    if is_served:
        print(model.bill())
    return [journal[keys[text]] for text in texts]


def write_batch(
    stage: str,
    batch: Sequence[str],
    keys: Sequence[str],
    limit: int,
    model: "LanguageModel | Endpoint",
    sample: int | None = None,
) -> dict[str, str]:
    """What the journal gets for one batch: each prompt's completion and, where known, the probabilities behind it."""
    chances = [None] * len(batch)
    if sample is not None:
        written = model.sample(batch, limit, sample)
    elif stage == "answer" and hasattr(model, "answer"):
        written, chances = zip(*model.answer(batch, limit))
    elif stage != "verify":
        written = model.generate(batch, limit)
    elif hasattr(model, "judge"):
        written, chances = zip(*model.judge(batch))
    else:  # an endpoint tells no probabilities
        written = model.verify(batch)
    return with_chances(keys, written, chances)


def with_chances(keys: Sequence[str], texts: Sequence[str], chances: Sequence[dict | None]) -> dict[str, str]:
    """Texts by their keys, after the probabilities behind them: a torn line never leaves a text without these."""
    made = {beside(key): json.dumps(one) for key, one in zip(keys, chances) if one}
    return made | dict(zip(keys, texts, strict=True))


def complete_both(
    asked: Sequence[str],
    thens: Sequence[Callable[[str], str]],
    limit: int,
    revised: int,
    model: "LanguageModel",
    journal: Journal,
) -> None:
    """Journal answers together with the verdicts on them, so that the two stages find all they need.

    `thens` make the verification prompts from the answers.
    """
    keys = keys_of("answer", asked, limit, model)
    then = dict(zip(asked, thens))

    def verdict_keys(batch: Sequence[str], answers: Sequence[str]) -> list[str]:
        # As many as prompts: an answer's verification prompt holds its question.
        verify_prompts = [then[text](answer) for text, answer in zip(batch, answers)]
        return list(keys_of("verify", verify_prompts, revised, model).values())

    def is_known(batch: Sequence[str]) -> bool:
        if not all(keys[text] in journal for text in batch):
            return False
        answers = [journal[keys[text]] for text in batch]
        return all(key in journal for key in verdict_keys(batch, answers))

    if is_known(list(keys)):
        return
    batches = model.batches(list(keys), limit + VERDICT_ROOM + revised)
    left = [batch for batch in batches if not is_known(batch)]
    for batch in track(left, "answer and verify", "batch", total=len(left)):
        made = model.generate_and_judge(batch, [then[text] for text in batch], limit)
        answers, likelihoods, verdicts, chances = zip(*made)
        journal.add("answer", with_chances([keys[text] for text in batch], answers, likelihoods))
        journal.add("verify", with_chances(verdict_keys(batch, answers), verdicts, chances))


def each(
    write: Callable[[Sequence[str]], dict[str, str]], batches: Sequence[Sequence[str]], at_once: int
) -> Iterator[dict[str, str]]:
    """What `write` makes of every batch, as soon as it is made; after a failure no more are begun."""
    if at_once == 1:
        yield from map(write, batches)
        return
    waiting = iter(batches)
    failures = []
    with ThreadPoolExecutor(at_once) as pool:
        running = {pool.submit(write, batch) for batch in islice(waiting, at_once)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            failures += [one.exception() for one in done if one.exception()]
            for one in done:
                if not one.exception():
                    yield one.result()
            n_next = 0 if failures else len(done)
            running |= {pool.submit(write, batch) for batch in islice(waiting, n_next)}
    if failures:
        raise failures[0]


def beside(key: str) -> str:
    """Where the journal keeps the probabilities behind a text: beside it, so that older journals stay good."""
    return f"{key} probabilities"


def cost_key(key: str) -> str:
    """Where the journal keeps what a text cost."""
    return f"{key} cost"


def costs_of(
    prompts: Sequence[str], texts: Sequence[str], seconds: float, model: "LanguageModel | Endpoint"
) -> list[str]:
    """What each text of a batch cost: its share of the seconds, tokens read and written; a server counts its own."""
    read = written = [None] * len(texts)
    if hasattr(model, "tokenizer"):
        read = map(len, model.encode(prompts, 0))
        written = map(len, model.tokenizer(list(texts), add_special_tokens=False).input_ids)
    return [json.dumps({"seconds": seconds, "read": one, "written": other}) for one, other in zip(read, written)]


def probabilities_of(
    stage: str, texts: Sequence[str], limit: int, model: "LanguageModel | Endpoint", journal: Journal
) -> list[dict[str, float] | None]:
    """The probabilities behind journaled verdicts or answers, None where they are not known."""
    keys = keys_of(stage, texts, limit, model)
    known = [journal.texts.get(beside(keys[text])) for text in texts]
    return [json.loads(one) if one else None for one in known]
