"""Rewrite-Retrieve-Read's rewriter, trained by the reader's reward (Ma et al. 2023; RRR in the paper's Table 2).

The original warms a small model up and then runs PPO on the reader's score. Ours samples rewrites, lets the reader
answer from what each of them finds, and learns the rewrites with the highest reward by QLoRA: one step of expert
iteration, with the same signal and no critic.
"""

from collections.abc import Sequence

import pandas as pd

from covrag_lite import metrics, prompts
from covrag_lite.config import Config
from covrag_lite.journal import Journal
from covrag_lite.model.author import Author
from covrag_lite.records import Question, Sample
from covrag_lite.training.oracle import is_right, supporting
from covrag_lite.training.revisions import tidy
from covrag_lite.training.sources import Source, load_sources

HIT = 0.5  # of the reward for finding the answer, whatever the reader makes of it
NAME = "rewrite-reward"


def propose(questions: Sequence[str], rewriter: Author, n: int) -> list[list[str]]:
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
    questions: Sequence[Question], candidates: Sequence[Sequence[str]], source: Source, reader: Author
) -> list[list[float]]:
    """What the reader makes of each candidate: 1 for a right answer, and a half for a passage that states it."""
    flat = [(question, one) for question, many in zip(questions, candidates) for one in many]
    found = source.search([one for _, one in flat])
    answers = reader.answer([question.question for question, _ in flat], found)
    values = []
    for (question, _), passages, answer in zip(flat, found, answers):
        values.append(float(is_right(answer, question)) + HIT * bool(supporting(question, passages)))
    left = iter(values)
    return [[next(left) for _ in many] for many in candidates]


def choose(candidates: Sequence[str], values: Sequence[float]) -> str | None:
    """The best candidate, of equals the first, so the question itself unless one is better; None where all fail."""
    best = max(range(len(values)), key=lambda place: values[place])
    return candidates[best] if values[best] else None


def reward_samples(config: Config, sources: Sequence[Source], rewriter: Author, reader: Author) -> list[Sample]:
    """What the rewriter learns: for each question that some candidate answers, the one that does it best."""
    samples = []
    for source in sources:
        questions = [one for one in source.questions if not metrics.is_defective(one.answers)]
        candidates = propose([one.question for one in questions], rewriter, config.related.n_rewrites)
        values = rewards(questions, candidates, source, reader)
        for question, many, own in zip(questions, candidates, values):
            best = choose(many, own)
            if best:
                samples.append(Sample(question.id, "answer", prompts.build_rewrite(question.question), (best,)))
    if not samples:
        raise ValueError("no rewrite was rewarded: the reader answers none of these questions; learn from more of them")
    return samples


def train(config: Config) -> tuple[pd.DataFrame, str]:
    """Train the rewriter into `adapters_out`, with the adapter `rag` as its reader; its losses and a sentence."""
    from covrag_lite.training.recipe import train_adapter

    samples = collect(config)
    return train_adapter(config, NAME, samples), describe(samples)


def collect(config: Config) -> list[Sample]:
    """The rewarded rewrites of the training questions, by the model that is there."""
    from covrag_lite.model.local import load_model

    model, journal = load_model(config.model), Journal(config.journal())
    reader = Author(config.model, model.with_adapter("rag"), journal)
    sources = load_sources(config.change(n_train_questions=config.related.n_learnt))
    rewriter = Author(config.model, model.with_adapter(""), journal)
    return reward_samples(config, sources, rewriter, reader)


def describe(samples: Sequence[Sample]) -> str:
    """A sentence on how often another wording than the user's own won."""
    changed = sum(sample.prompt != prompts.build_rewrite(sample.target[0]) for sample in samples)
    return f"{len(samples)} rewarded rewrites, {changed} of them other than the question itself"
