"""One model behind the journal: it writes the text of every task, batch by batch, and writes none twice."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice

from covrag_lite import config, prompts
from covrag_lite.engine.interface import Completion, Engine, Schema
from covrag_lite.journal import Journal, key_of
from covrag_lite.progress import track
from covrag_lite.prompts import DIRECT, SCHEMA, VERDICT_ROOM
from covrag_lite.records import Passage, Verdict

GUESS_TOKENS = 40  # of a guessed sentence, terms and options
PROBABLE = ("answer", "verify")  # the stages whose probabilities are journaled beside their texts
beside = "{} probabilities".format  # where the journal keeps those of a key's text, so that older journals stay good


@dataclass(frozen=True)
class TaskModel:
    """A model, bare or with an adapter, as the author of answers, verdicts and rewritten questions."""

    settings: config.Model
    model: Engine
    journal: Journal
    schema: Schema = SCHEMA
    # Counts texts by the tokens read and written for each, where somebody wants to know.
    count: Callable[[Sequence[tuple[float, float]], int | None], None] | None = None

    def keys(self, stage: str, texts: Sequence[str], limit: int, sample: int | None = None) -> dict[str, str]:
        """Each prompt's key in the journal: everything its completion depends on, of a sample also its number."""
        setting = {
            "weights": self.model.fingerprint,
            "quantize": self.model.settings.quantize,
            "device": self.model.device,
            "stage": stage,
            "limit": limit,
        }
        if sample is not None:
            setting["sample"] = sample
        if stage == "verify":
            setting |= {"verdicts": self.settings.verdicts, "schema": self.schema}
        return {text: key_of(**setting, prompt=text) for text in texts}

    def complete(self, stage: str, texts: Sequence[str], limit: int, sample: int | None = None) -> list[Completion]:
        """Complete prompts through the journal, greedily or, for a number, by chance.

        Batches are made of all prompts of the stage, whatever the journal holds already, so that a resumed run computes
        the same batches as an unbroken one and ends with the same bytes.
        """
        keys, known, model = self.keys(stage, texts, limit, sample), self.journal.texts, self.model

        def write(batch: Sequence[str]) -> dict[str, str]:
            """What the journal gets of one batch; probabilities first: a torn line costs no text these."""
            if stage == "verify":
                made = model.fill(batch, None if self.settings.verdicts == "free" else self.schema, limit)
            else:
                made = model.complete(batch, limit, sample)
            written = {}
            for text, one in zip(batch, made):
                if one.probabilities and stage in PROBABLE:
                    written[beside(keys[text])] = json.dumps(one.probabilities)
            return written | {keys[text]: one.text for text, one in zip(batch, made, strict=True)}

        if not all(key in known for key in keys.values()):  # planning batches would load the weights
            batches = model.batches(list(keys), limit + VERDICT_ROOM if stage == "verify" else limit)
            left = [batch for batch in batches if not all(keys[text] in known for text in batch)]
            unit = "batch" if model.at_once == 1 else "prompt"
            for written in track(each(write, left, model.at_once), stage, unit, total=len(left)):
                self.journal.add(stage, written)
        made = [Completion(known[keys[text]], probabilities_of(self.journal, keys[text])) for text in texts]
        if self.count and texts:
            self.count(model.count_tokens(texts, [one.text for one in made]), sample)
        return made

    def write(self, stage: str, texts: Sequence[str], limit: int, sample: int | None = None) -> list[str]:
        """The texts of `complete` alone."""
        return [one.text for one in self.complete(stage, texts, limit, sample)]

    def answer(self, x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[str]:
        """Answer questions from their passages."""
        return self.write("answer", self._ask(x, k), self.settings.max_answer_tokens)

    def likelihoods(self, x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[float | None]:
        """The mean logarithmic probability of journaled answers' tokens, None where it is not known."""
        asked = self._ask(x, k)
        keys = self.keys("answer", asked, self.settings.max_answer_tokens)
        known = [probabilities_of(self.journal, keys[text]) for text in asked]
        return [one["likelihood"] if one else None for one in known]

    def _ask(self, x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[str]:
        return [prompts.build_answer(*one, self.settings.layout) for one in zip(x, k)]

    def verify(self, x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str]) -> list[Verdict]:
        """Verify answers to questions from their passages."""
        asked = [prompts.build_verify(*one, self.settings.layout) for one in zip(x, k, y)]
        made = self.complete("verify", asked, self.settings.max_revised_tokens)
        return [prompts.parse_verdict(one.text, self.schema, one.probabilities) for one in made]

    def write_alone(self, task: str, x: Sequence[str]) -> list[str]:
        """What the model writes of questions alone, without any passage: a task of `prompts.ALONE`."""
        own = {"closed-book": self.settings.max_answer_tokens, "rewrite": self.settings.max_revised_tokens}
        return self.write(task, [prompts.build_alone(task, one) for one in x], own.get(task, GUESS_TOKENS))


def schema_of(adapter: str) -> Schema:
    """The schema of an adapter's verdicts: one was trained without the chain (Table 5)."""
    return DIRECT if adapter == "cov-direct" else SCHEMA


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


def probabilities_of(journal: Journal, key: str) -> dict[str, float] | None:
    """The probabilities behind a journaled text, None where they are not known."""
    known = journal.texts.get(beside(key))
    return json.loads(known) if known else None
