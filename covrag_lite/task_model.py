"""A model with a journal: it answers, verifies and rewrites, and writes no text a second time.

It connects the prompts of the paper's two tasks (Section 2.3) to an engine.
"""

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

GUESS_TOKENS = 40  # maximum length of a guess, of key terms and of options
PROBABLE = ("answer", "verify")  # the stages whose probabilities are journaled with their texts
# A text's journal key -> the key of its probabilities; older journals, without them, remain valid.
beside = "{} probabilities".format


@dataclass(frozen=True)
class TaskModel:
    """A model, with or without an adapter, that writes answers, verdicts and rewritten questions.

    Example:
        settings = Config().model
        model = TaskModel(settings, load_engine(settings), Journal(Path("runs/mine/journal.jsonl")))
        model.answer(["Who wrote Emma?"], [[Passage("p1", "Emma", "A novel by Jane Austen.")]])
        # e.g. ["Jane Austen [1]"]
    """

    settings: config.Model
    model: Engine
    journal: Journal
    schema: Schema = SCHEMA
    # Called with the tokens read and written for each text, to count the costs of a system.
    count: Callable[[Sequence[tuple[float, float]], int | None], None] | None = None

    def keys(self, stage: str, texts: Sequence[str], limit: int, sample: int | None = None) -> dict[str, str]:
        """Return each prompt's journal key: a hash of everything that its completion depends on."""
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
        """Complete prompts, or take their completions from the journal.

        Decoding is greedy; with a number `sample`, the text is sampled. Batches are planned over
        all prompts of the stage, including those in the journal. A resumed run therefore computes
        the same batches as an uninterrupted one and gives identical output.
        """
        keys, known, model = self.keys(stage, texts, limit, sample), self.journal.texts, self.model

        def write(batch: Sequence[str]) -> dict[str, str]:
            """Complete one batch and return its journal entries.

            Probabilities come first: a text in the journal then always has its probabilities.
            """
            if stage == "verify":
                made = model.fill(batch, None if self.settings.verdicts == "free" else self.schema, limit)
            else:
                made = model.complete(batch, limit, sample)
            written = {}
            for text, one in zip(batch, made):
                if one.probabilities and stage in PROBABLE:
                    written[beside(keys[text])] = json.dumps(one.probabilities)
            return written | {keys[text]: one.text for text, one in zip(batch, made, strict=True)}

        if not all(key in known for key in keys.values()):  # else the weights need not be loaded
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
        """Return the texts of `complete`, without probabilities."""
        return [one.text for one in self.complete(stage, texts, limit, sample)]

    def answer(self, x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[str]:
        """Answer questions from their passages."""
        return self.write("answer", self._ask(x, k), self.settings.max_answer_tokens)

    def likelihoods(self, x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[float | None]:
        """Return the mean log-probability of the tokens of journaled answers; None if unknown."""
        asked = self._ask(x, k)
        keys = self.keys("answer", asked, self.settings.max_answer_tokens)
        known = [probabilities_of(self.journal, keys[text]) for text in asked]
        return [one["likelihood"] if one else None for one in known]

    def _ask(self, x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[str]:
        return [prompts.build_answer(*one, self.settings.layout) for one in zip(x, k)]

    def verify(self, x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str]) -> list[Verdict]:
        """Verify answers to questions against their passages."""
        asked = [prompts.build_verify(*one, self.settings.layout) for one in zip(x, k, y)]
        made = self.complete("verify", asked, self.settings.max_revised_tokens)
        return [prompts.parse_verdict(one.text, self.schema, one.probabilities) for one in made]

    def write_alone(self, task: str, x: Sequence[str]) -> list[str]:
        """Write a task of `prompts.ALONE`, whose prompt contains only the question."""
        own = {"closed-book": self.settings.max_answer_tokens, "rewrite": self.settings.max_revised_tokens}
        return self.write(task, [prompts.build_alone(task, one) for one in x], own.get(task, GUESS_TOKENS))


def schema_of(adapter: str) -> Schema:
    """Return the schema of an adapter's verdicts; cov-direct has no chain (Table 5)."""
    return DIRECT if adapter == "cov-direct" else SCHEMA


def each(
    write: Callable[[Sequence[str]], dict[str, str]], batches: Sequence[Sequence[str]], at_once: int
) -> Iterator[dict[str, str]]:
    """Yield what `write` returns for each batch; after a failure, start no further batch."""
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
    """Return the probabilities of a journaled text; None if they are unknown."""
    known = journal.texts.get(beside(key))
    return json.loads(known) if known else None
