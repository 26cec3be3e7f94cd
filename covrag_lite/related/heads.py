"""CRAG's retrieval evaluator and a proxy for entailment, learnt from what the data settles: which passages are gold.

Both are a logistic regression on a frozen encoder's features, made in a minute on a CPU.
"""

import random
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config, resolve
from covrag_lite.data import digest, load_passages, load_questions
from covrag_lite.engine.weights import hash_encoder
from covrag_lite.records import Passage, Question, Search
from covrag_lite.related.relevance import ABOUT, Pair, features_of, load_rate, rate_by_head
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.manifest import find_commit, save_manifest
from covrag_lite.sources import load_sources
from covrag_lite.synthesis import supporting

SURE = 0.9  # how often Correct, or Incorrect, must be right on validation questions
DECAY = 1e-3  # of the head's weights
NAME = re.compile(r"[A-Z0-9][\w'-]*(?:\s[A-Z][\w'-]*)*")
Labelled = list[tuple[Pair, bool | None]]  # None: a passage that holds the answer but is not the gold one


def relevance_pairs(questions: Sequence[Question], search: Search, passages: Sequence[Passage] = ()) -> Labelled:
    """What each question finds, and its gold passages where they were missed: is it relevant?"""
    by_id = {passage.id: passage for passage in passages}
    made = []
    for question, found in zip(questions, search([one.question for one in questions])):
        right = set(supporting(question, found))
        for i, p in enumerate(found, 1):
            unsettled = i not in right and metrics.holds_answer([p], question.answers, "whole")
            made.append((Pair(question.question, p), None if unsettled else i in right))
        seen = {p.id for p in found}
        missed = [by_id[one] for one in question.gold_passages if one in by_id and one not in seen]
        made += [(Pair(question.question, p), True) for p in missed]
    return made


def entailment_pairs(questions: Sequence[Question], search: Search, passages: Sequence[Passage] = ()) -> Labelled:
    """A passage that states the answer entails it; another passage, or another answer, does not."""
    rng = random.Random(1)
    by_text = {one.question: one for one in questions}
    made = []
    for pair, right in relevance_pairs(questions, search, passages):
        question = by_text[pair.question]
        made.append((Pair(pair.question, pair.passage, question.answers[0]), right))
        others = [name for name in NAME.findall(pair.passage.text) if not is_same(name, question)]
        if others:  # a wrong answer that stands in the passage, as a reader might take it from there
            made.append((Pair(pair.question, pair.passage, rng.choice(others)), False))
        if right:  # and one of another question
            other = rng.choice(questions)
            if not is_same(other.answers[0], question):
                made.append((Pair(pair.question, pair.passage, other.answers[0]), False))
    return made


def is_same(name: str, question: Question) -> bool:
    """Does a name share a word with a gold answer, or stand in the question?"""
    words = set(metrics.normalise(name).split())
    known = set(metrics.normalise(" ".join((*question.answers, question.question))).split())
    return bool(words & known)


PAIRS = {"evaluator": relevance_pairs, "entailment": entailment_pairs}
SIMPLE = {"evaluator": ("cosine", "words of the question"), "entailment": ("cosine", "answer")}  # features to beat


def fit(features: pd.DataFrame, truth: np.ndarray) -> dict[str, float]:
    """A logistic regression with a little weight decay: the weight of each feature, and the bias.

    Both kinds of pairs weigh alike, however many there are, so that 0.5 is where neither is likelier.
    """
    from sklearn.linear_model import LogisticRegression

    shares = 0.5 / np.where(truth, truth.sum(), (~truth).sum())
    values = np.ascontiguousarray(features)  # row by row, or sums would round otherwise
    middle, size = values.mean(0), values.std(0) + 1e-6  # weights decay alike when features are of one size
    found = LogisticRegression(C=1 / DECAY, tol=1e-8, max_iter=10_000)
    found.fit(((values - middle) / size).astype(float), truth, sample_weight=shares)
    slopes = found.coef_[0] / size
    head = dict(zip(features.columns, slopes)) | {"bias": found.intercept_[0] - slopes @ middle}
    return {name: float(f"{value:.5g}") for name, value in head.items()}


def fit_thresholds(best: Sequence[float], found: Sequence[bool], sure: float = SURE) -> tuple[float, float]:
    """CRAG's two thresholds on a question's best score: below the first nothing was found, from the second on it was.

    Each is the one that decides most questions and is still right for a share `sure` of them; where none is, it decides
    nothing. Where they cross, both become their middle.
    """
    best, found = np.asarray(best, float), np.asarray(found, bool)
    lower, upper = 0.0, 1.01
    for cut in np.unique(best):
        below, above = best < cut, best >= cut
        if below.any() and (~found[below]).mean() >= sure:
            lower = float(cut)
        if upper > 1 and found[above].mean() >= sure:
            upper = float(cut)
    if lower > upper:
        lower = upper = (lower + upper) / 2
    return round(lower, 4), round(upper, 4)


def train(config: Config, name: str) -> pd.DataFrame:
    """Train the evaluator or the entailment proxy into `adapters_out`; returns its quality on validation questions."""
    settings, encoder, start = config.related, config.retrieval.encoder, time.perf_counter()
    sources = load_sources(config.change(n_train_questions=settings.n_learnt))
    rows = [row for one in sources for row in PAIRS[name](one.questions, one.search, one.passages)]
    rows = [(pair, right) for pair, right in rows if right is not None]
    if len({right for _, right in rows}) < 2:
        raise ValueError(f"the {name} has nothing to learn: all {len(rows)} pairs are alike; take more questions")
    questions = [question for one in sources for question in one.questions]
    pairs, truth = zip(*rows)
    about = {
        "kind": name,
        "encoder": encoder,
        "encoder_sha256": hash_encoder(encoder),
        "data": Path(config.data.data).name,  # not where it lies
        "questions": {"n": len(questions), "sha256": digest(questions)},
        "pairs": len(rows),
        **find_commit(),
        "head": fit(features_of(encoder)(pairs), np.array(truth)),
    }
    fifth = max(1, settings.n_learnt // 5) if settings.n_learnt else 0
    questions = load_questions(config.change(split="validation", n_questions=fifth))
    report, thresholds = validate(about, questions, load_retriever(config.retrieval, load_passages(config)))
    if name == "evaluator":
        about["thresholds"] = thresholds
    about["validation"] = report.astype(object).where(report.notna(), None).to_dict("records")
    about["seconds"] = round(time.perf_counter() - start, 1)
    folder = resolve(config.training.adapters_out) / name
    folder.mkdir(parents=True, exist_ok=True)
    save_manifest(folder / ABOUT, about)
    load_rate.cache_clear()
    return report


def validate(about: Mapping, questions: Sequence[Question], search: Search) -> tuple[pd.DataFrame, tuple[float, float]]:
    """A head against what the data settles, beside simpler scores, and the thresholds that CRAG takes."""
    kind = about["kind"]
    rows = PAIRS[kind](questions, search)
    scores = rate_by_head(about)([pair for pair, _ in rows])
    settled = [place for place, (_, right) in enumerate(rows) if right is not None]
    truth, values = np.array([rows[place][1] for place in settled]), scores[settled]
    right, majority = (values >= 0.5) == truth, 100 * max(truth.mean(), 1 - truth.mean())
    shares = 100 * right.mean(), 50 * (right[truth].mean() + right[~truth].mean())
    table = [(kind, len(truth), majority, *shares, *metrics.auroc(values, truth))]
    features = features_of(about["encoder"])([rows[place][0] for place in settled])
    for name in SIMPLE[kind]:
        table.append((f"{name} alone", len(truth), majority, None, None, *metrics.auroc(features[name], truth)))
    columns = ["score", "n", "majority (%)", "right (%)", "balanced (%)", "AUROC", "low", "high"]
    return pd.DataFrame(table, columns=columns).round(3), fit_thresholds(*best_of_questions(rows, scores))


def best_of_questions(rows: Labelled, scores: np.ndarray) -> tuple[list[float], list[bool]]:
    """Each question's best score and whether it found a relevant passage; none of which only the answer was found."""
    sureness = [0.5 if right is None else float(right) for _, right in rows]
    frame = pd.DataFrame({"question": [pair.question for pair, _ in rows], "best": scores, "found": sureness})
    highest = frame.groupby("question", sort=False).max().query("found != 0.5")
    return highest.best.tolist(), (highest.found == 1).tolist()
