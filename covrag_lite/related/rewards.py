"""Rewrite-Retrieve-Read's rewriter, trained by the reader's reward (Ma et al. 2023; RRR in the paper's Table 2).

The original warms a small model up and then runs PPO on the reader's score. Ours samples rewrites, lets the reader
answer from what each of them finds, and learns the rewrites with the highest reward by QLoRA: one step of expert
iteration, with the same signal and no critic. The reader has learnt from the same questions, so it may answer some
that a search would have lost.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

import pandas as pd

from covrag_lite import metrics, prompts
from covrag_lite.config import Config
from covrag_lite.records import Question, Sample, Search
from covrag_lite.runs.journal import Journal
from covrag_lite.sources import Source, load_sources
from covrag_lite.synthesis import is_right, supporting, tidy
from covrag_lite.task_model import TaskModel

HIT = 0.5  # of the reward for finding the answer, whatever the reader makes of it
NAME = "rewrite-reward"
STEP_TOKENS = 2048  # between two updates: a rewrite with its prompt is some 70 tokens, and there are a thousand
EPOCHS = 2


def propose(questions: Sequence[str], rewriter: TaskModel, n: int) -> list[list[str]]:
    """Candidates for each question, itself first: the likeliest rewrite, n samples, key terms, question and guess."""
    asked = [prompts.build_rewrite(one) for one in questions]
    limit = rewriter.settings.max_revised_tokens
    written = [rewriter.write("rewrite", asked, limit, number) for number in (None, *range(n))]
    guesses, terms = rewriter.guess(questions), rewriter.name_terms(questions)
    made = []
    for question, guess, some, *rewrites in zip(questions, guesses, terms, *written):
        every = [question, *map(tidy, rewrites), tidy(some), tidy(f"{question.rstrip('? ')}? {guess}")]
        made.append([one for one in dict.fromkeys(every) if one])
    return made


def rewards(
    questions: Sequence[Question], candidates: Sequence[Sequence[str]], searches: Sequence[Search], reader: TaskModel
) -> list[list[float]]:
    """What the reader makes of each candidate: 1 for a right answer, and a half for a passage that states it."""
    flat = [(search, question, one) for search, question, many in zip(searches, questions, candidates) for one in many]
    found = []
    for search, rows in groupby(flat, key=itemgetter(0)):
        found += search([one for *_, one in rows])
    answers = reader.answer([question.question for _, question, _ in flat], found)
    values = []
    for (_, question, _), passages, answer in zip(flat, found, answers):
        values.append(float(is_right(answer, question)) + HIT * bool(supporting(question, passages)))
    left = iter(values)
    return [[next(left) for _ in many] for many in candidates]


def choose(candidates: Sequence[str], values: Sequence[float]) -> str | None:
    """The best candidate, of equals the first, so the question itself unless one is better; None where all fail."""
    best = max(range(len(values)), key=lambda place: values[place])
    return candidates[best] if values[best] else None


def reward_samples(config: Config, sources: Sequence[Source], rewriter: TaskModel, reader: TaskModel) -> list[Sample]:
    """What the rewriter learns: for each question that some candidate answers, the one that does it best."""
    asked = [(one, source.search) for source in sources for one in source.questions]
    asked = [(one, search) for one, search in asked if not metrics.is_defective(one.answers)]
    questions, searches = [one for one, _ in asked], [search for _, search in asked]
    candidates = propose([one.question for one in questions], rewriter, config.related.n_rewrites)
    samples = []
    for question, many, own in zip(questions, candidates, rewards(questions, candidates, searches, reader)):
        best = choose(many, own)
        if best:
            samples.append(Sample(question.id, "answer", prompts.build_rewrite(question.question), (best,)))
    if not samples:
        raise ValueError("no rewrite was rewarded: the reader answers none of these questions; learn from more of them")
    return samples


def train(config: Config) -> tuple[pd.DataFrame, str]:
    """Train the rewriter into `adapters_out`, with the adapter `rag` as its reader; its losses and a sentence."""
    samples = collect(config)
    return learn(config, samples), describe(samples)


def learn(config: Config, samples: Sequence[Sample]) -> pd.DataFrame:
    """The adapter, in steps small enough that a thousand samples are many of them; its losses."""
    from covrag_lite.recipe import train_adapter

    own = config.change(step_tokens=STEP_TOKENS, pack_tokens=STEP_TOKENS, epochs=EPOCHS)
    return train_adapter(own, NAME, samples)


def collect(config: Config) -> list[Sample]:
    """The rewarded rewrites of the training questions, by the model that is there."""
    from covrag_lite.engine.local import load_model

    model, journal = load_model(config.model, config.training.execution), Journal(config.journal())
    reader = TaskModel(config.model, model.with_adapter("rag"), journal)
    sources = load_sources(config.change(n_train_questions=config.related.n_rewarded))
    rewriter = TaskModel(config.model, model.with_adapter(""), journal)
    return reward_samples(config, sources, rewriter, reader)


def describe(samples: Sequence[Sample]) -> str:
    """A sentence on how often another wording than the user's own won."""
    changed = sum(sample.prompt != prompts.build_rewrite(sample.target[0]) for sample in samples)
    return f"{len(samples)} rewarded rewrites, {changed} of them other than the question itself"
