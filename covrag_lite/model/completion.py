"""Prompts through a model and into the journal: batch by batch, nothing computed twice, nothing written lost.

`evaluation` and `teacher` call `complete`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import islice

from tqdm.auto import tqdm

from covrag_lite.journal import Journal, key_of
from covrag_lite.prompts import VERDICT_ROOM


def keys_of(stage: str, texts: Sequence[str], limit: int, model) -> dict[str, str]:
    """Each prompt's key in the journal: everything its completion depends on."""
    setting = dict(
        weights=model.fingerprint, quantize=model.config.quantize, device=model.device, stage=stage, limit=limit
    )
    if stage == "verify":
        setting |= dict(verdicts=model.config.verdicts, schema=model.schema)
    return {text: key_of(**setting, prompt=text) for text in texts}


def complete(stage: str, texts: Sequence[str], limit: int, model, journal: Journal) -> list[str]:
    """Complete prompts, journaling each batch as it is written.

    Batches are made of all prompts of the stage, whatever the journal holds already, so that a resumed run computes
    the same batches as an unbroken one and ends with the same bytes. An endpoint's batches are single prompts.
    """
    keys, served = keys_of(stage, texts, limit, model), model.device == "endpoint"
    room = limit + VERDICT_ROOM if stage == "verify" else limit
    batches = [[text] for text in keys] if served else model.batches(list(keys), room)
    left = [batch for batch in batches if not all(keys[text] in journal for text in batch)]

    def write(batch: Sequence[str]) -> dict[str, str]:
        chances = [None] * len(batch)
        if stage == "verify" and hasattr(model, "judge"):
            written, chances = zip(*model.judge(batch))
        else:  # an endpoint tells no probabilities
            written = model.verify(batch) if stage == "verify" else model.generate(batch, limit)
        return {keys[text]: one for text, one in zip(batch, written, strict=True)} | {
            beside(keys[text]): json.dumps(one) for text, one in zip(batch, chances) if one
        }

    for written in tqdm(
        each(write, left, model.config.requests if served else 1),
        total=len(left),
        desc=stage,
        unit="prompt" if served else "batch",
        disable=not left,
    ):
        journal.add(stage, written)
    if served and left:
        print(model.bill())
    return [journal[keys[text]] for text in texts]


def complete_both(
    asked: Sequence[str], thens: Sequence[Callable[[str], str]], limit: int, revised: int, model, journal: Journal
) -> None:
    """Journal answers together with the verdicts on them, whose prompts `thens` make: the two stages then find all they need."""
    keys, then = keys_of("answer", asked, limit, model), dict(zip(asked, thens))
    judged = lambda batch, answers: keys_of(
        "verify", [then[text](answer) for text, answer in zip(batch, answers)], revised, model
    )
    known = lambda batch: (
        all(keys[text] in journal for text in batch)
        and all(key in journal for key in judged(batch, [journal[keys[text]] for text in batch]).values())
    )
    left = [batch for batch in model.batches(list(keys), limit + VERDICT_ROOM + revised) if not known(batch)]
    for batch in tqdm(left, desc="answer and verify", unit="batch", disable=not left):
        answers, verdicts, chances = zip(*model.generate_and_judge(batch, [then[text] for text in batch], limit))
        places = list(
            judged(batch, answers).values()
        )  # as many as prompts: an answer's verification prompt holds its question
        journal.add("answer", {keys[text]: answer for text, answer in zip(batch, answers)})
        journal.add(
            "verify",
            dict(zip(places, verdicts)) | {beside(place): json.dumps(one) for place, one in zip(places, chances)},
        )


def each(write: Callable, batches: Sequence[Sequence[str]], at_once: int) -> Iterator[dict[str, str]]:
    """What `write` makes of every batch, as soon as it is made; a failure lets those under way end and begins no more."""
    if at_once == 1:
        yield from map(write, batches)
        return
    waiting, failures = iter(batches), []
    with ThreadPoolExecutor(at_once) as pool:
        running = {pool.submit(write, batch) for batch in islice(waiting, at_once)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            failures += [one.exception() for one in done if one.exception()]
            yield from (one.result() for one in done if not one.exception())
            running |= {pool.submit(write, batch) for batch in islice(waiting, 0 if failures else len(done))}
    if failures:
        raise failures[0]


def beside(key: str) -> str:
    """Where the journal keeps the probabilities behind a verdict: beside its text, so that older journals stay good."""
    return f"{key} probabilities"


def probabilities_of(texts: Sequence[str], limit: int, model, journal: Journal) -> list[dict[str, float] | None]:
    """The probabilities behind journaled verdicts, None where they are not known."""
    keys = keys_of("verify", texts, limit, model)
    known = [journal.texts.get(beside(keys[text])) for text in texts]
    return [json.loads(one) if one else None for one in known]
