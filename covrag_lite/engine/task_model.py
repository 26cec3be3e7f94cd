"""A model with a journal: it answers, verifies and rewrites, and writes no text a second time.

It connects the prompts of the paper's two tasks (Section 2.3) to an engine.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice

from covrag_lite import config, prompts
from covrag_lite.engine.interface import Completion, Engine, Schema
from covrag_lite.engine.journal import Journal, key_of
from covrag_lite.engine.progress import track
from covrag_lite.prompts import SCHEMA, VERDICT_ROOM
from covrag_lite.records import Passage, Verdict

GUESS_TOKENS = 40  # maximum length of a guess, of key terms and of options
PROBABLE = ("answer", "verify")  # the stages whose probabilities are journaled with their texts


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

    def keys(
        self, stage: str, texts: Sequence[str], limit: int, sample: int | None = None
    ) -> dict[str, str]:
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

    def complete(
        self, stage: str, texts: Sequence[str], limit: int, sample: int | None = None
    ) -> list[Completion]:
        """Complete prompts, or take their completions from the journal.

        Decoding is greedy; with a number `sample`, the text is sampled. Batches are planned over
        all prompts of the stage, including those in the journal. A resumed run therefore computes
        the same batches as an uninterrupted one and gives identical output.
        """
        keys = self.keys(stage, texts, limit, sample)
        journaled = self.journal.texts
        if not all(key in journaled for key in keys.values()):
            self._write_missing(stage, keys, limit, sample)  # only now the weights are loaded
        completions = []
        for text in texts:
            key = keys[text]
            completions.append(Completion(journaled[key], load_probabilities(self.journal, key)))
        if self.count and texts:
            written = [completion.text for completion in completions]
            self.count(self.model.count_tokens(texts, written), sample)
        return completions

    def _write_missing(
        self, stage: str, keys: Mapping[str, str], limit: int, sample: int | None
    ) -> None:
        """Complete the batches of these prompts that are not in the journal, and add them to it."""
        model = self.model
        room = limit + VERDICT_ROOM if stage == "verify" else limit
        missing = []
        for batch in model.batches(list(keys), room):
            if not all(keys[text] in self.journal.texts for text in batch):
                missing.append(batch)

        def write(batch: Sequence[str]) -> dict[str, str]:
            """Complete one batch and return its journal entries."""
            completions = self._complete_batch(stage, batch, limit, sample)
            return build_entries(stage, batch, keys, completions)

        unit = "batch" if model.at_once == 1 else "prompt"
        batches = write_batches(write, missing, model.at_once)
        for entries in track(batches, stage, unit, total=len(missing)):
            self.journal.add(stage, entries)

    def _complete_batch(
        self, stage: str, batch: Sequence[str], limit: int, sample: int | None
    ) -> list[Completion]:
        if stage != "verify":
            return self.model.complete(batch, limit, sample)
        schema = None if self.settings.verdicts == "free" else self.schema
        return self.model.fill(batch, schema, limit)

    def write(
        self, stage: str, texts: Sequence[str], limit: int, sample: int | None = None
    ) -> list[str]:
        """Return the texts of `complete`, without probabilities."""
        return [completion.text for completion in self.complete(stage, texts, limit, sample)]

    def answer(self, x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[str]:
        """Answer questions from their passages."""
        return self.write("answer", self._answer_prompts(x, k), self.settings.max_answer_tokens)

    def likelihoods(self, x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[float | None]:
        """Return the mean log-probability of the tokens of journaled answers; None if unknown."""
        texts = self._answer_prompts(x, k)
        keys = self.keys("answer", texts, self.settings.max_answer_tokens)
        likelihoods = []
        for text in texts:
            probabilities = load_probabilities(self.journal, keys[text])
            likelihoods.append(probabilities["likelihood"] if probabilities else None)
        return likelihoods

    def _answer_prompts(self, x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[str]:
        return [
            prompts.build_answer(question, passages, self.settings.layout)
            for question, passages in zip(x, k)
        ]

    def verify(
        self, x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str]
    ) -> list[Verdict]:
        """Verify answers to questions against their passages."""
        texts = [
            prompts.build_verify(question, passages, answer, self.settings.layout)
            for question, passages, answer in zip(x, k, y)
        ]
        completions = self.complete("verify", texts, self.settings.max_revised_tokens)
        return [
            prompts.parse_verdict(completion.text, self.schema, completion.probabilities)
            for completion in completions
        ]

    def write_from_question(self, task: str, x: Sequence[str]) -> list[str]:
        """Write a task of `prompts.QUESTION_ONLY`, whose prompt contains only the question."""
        limits = {
            "closed-book": self.settings.max_answer_tokens,
            "rewrite": self.settings.max_revised_tokens,
        }
        texts = [prompts.build_from_question(task, question) for question in x]
        return self.write(task, texts, limits.get(task, GUESS_TOKENS))


def write_batches(
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
            failures += [future.exception() for future in done if future.exception()]
            for future in done:
                if not future.exception():
                    yield future.result()
            n_next = 0 if failures else len(done)
            running |= {pool.submit(write, batch) for batch in islice(waiting, n_next)}
    if failures:
        raise failures[0]


# Probabilities in the journal: an entry of their own, next to the text's.


def probabilities_key(key: str) -> str:
    """Return the key of a text's probabilities; older journals, without them, remain valid."""
    return f"{key} probabilities"


def build_entries(
    stage: str, batch: Sequence[str], keys: Mapping[str, str], completions: Sequence[Completion]
) -> dict[str, str]:
    """Return the journal entries of a batch.

    Probabilities come first: a text in the journal then always has its probabilities.
    """
    probabilities = {}
    texts = {}
    for text, completion in zip(batch, completions, strict=True):
        key = keys[text]
        texts[key] = completion.text
        if completion.probabilities and stage in PROBABLE:
            probabilities[probabilities_key(key)] = json.dumps(completion.probabilities)
    return probabilities | texts


def load_probabilities(journal: Journal, key: str) -> dict[str, float] | None:
    """Return the probabilities of a journaled text; None if they are unknown."""
    text = journal.texts.get(probabilities_key(key))
    return json.loads(text) if text else None
