"""CRAG's retrieval evaluator and A²R's entailment proxy: two small classifiers, called heads.

The evaluator scores whether a passage is relevant to a question; the proxy, whether it entails an
answer. Each is a logistic regression on a few features from a frozen sentence encoder, small enough
to be part of the repository. Training takes a minute on a CPU; the labels are the gold passages.
"""

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

from covrag_lite import metrics
from covrag_lite.config import ROOT, Config, resolve
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.weights import find_encoder, hash_encoder, hash_files
from covrag_lite.metrics import normalise
from covrag_lite.records import Passage, Question, Search, digest
from covrag_lite.retrieval import load_retriever
from covrag_lite.retrieval.dense import load_encoder
from covrag_lite.runs.manifest import find_commit, save_manifest
from covrag_lite.sources import load_sources
from covrag_lite.synthesis import supporting

SHIPPED = ROOT / "results" / "adapters"
ABOUT = "head.json"  # a head's weights, and how it was trained
SURE = 0.9  # required precision of Correct, and of Incorrect, on validation questions
DECAY = 1e-3  # weight decay of a head
# Encoder -> text -> its vector; the same passages and questions are scored many times.
VECTORS: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
NAME = re.compile(r"[A-Z0-9][\w'-]*(?:\s[A-Z][\w'-]*)*")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")
# (questions, passages) -> relevance of each passage, or (questions, passages, statements) ->
# whether each passage entails the statement; scores from 0 to 1.
Score = Callable[..., list[list[float]]]


@dataclass(frozen=True)
class Pair:
    """A question and a passage; for entailment also what an answer says."""

    question: str
    passage: Passage
    said: str = ""

    @property
    def claim(self) -> str:
        """The question; for entailment followed by the answer, as ALCE does for short answers."""
        return f"{self.question} {self.said}".strip()

    @property
    def evidence(self) -> str:
        return f"{self.passage.title} {self.passage.text}".strip()

    @cached_property
    def sentence(self) -> str:
        """The first sentence of the passage that contains the answer, or ""."""
        sentences = SENTENCE_END.split(self.passage.text) if self.said else []
        return next((one for one in sentences if metrics.score(one, [self.said], "whole")), "")


# The label is None for a passage that contains the answer but is not gold.
Labelled = list[tuple[Pair, bool | None]]


def score(head: Mapping, x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str] = ()) -> list[list[float]]:
    """Score each passage: its relevance to the question or, with `y`, whether it entails that."""
    groups = zip(x, k, y or [""] * len(x))
    pairs = [Pair(question, passage, said) for question, own, said in groups for passage in own]
    values = iter(rate(head, pairs) if pairs else [])
    return [[float(next(values)) for _ in own] for own in k]


def rate(head: Mapping, pairs: Sequence[Pair]) -> np.ndarray:
    """Score pairs from 0 to 1 with a head; the encoder must be the one it was trained on."""
    encoder = head["encoder"]
    if hash_encoder(encoder) != head["encoder_sha256"]:
        raise ValueError(
            f"the {head['kind']} was trained on other weights of the encoder {encoder!r}; use "
            "those weights, or train it again with notebooks/train_related.ipynb"
        )
    slopes = pd.Series(head["head"])
    return expit(features(encoder, pairs) @ slopes.drop("bias") + slopes.bias).to_numpy()


def features(encoder: str, pairs: Sequence[Pair]) -> pd.DataFrame:
    """Return the features of pairs: one row per pair, one column per feature."""
    texts = [text for one in pairs for text in (one.question, one.passage.title, one.evidence)]
    texts += [text for one in pairs if one.sentence for text in (one.sentence, one.claim)]
    vectors = VECTORS[encoder]
    missing = [text for text in dict.fromkeys(texts) if text not in vectors]
    if missing:
        network = load_encoder(find_encoder(encoder))
        made = network.encode(missing, normalize_embeddings=True, show_progress_bar=False)
        vectors.update(zip(missing, made))
    return pd.DataFrame([describe(one, vectors) for one in pairs], dtype=np.float32)


def describe(pair: Pair, vectors: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return a pair's features: cosines of encoder vectors, and shared words and letters."""
    question, title = vectors[pair.question], pair.passage.title
    cosine = question @ vectors[pair.evidence]
    words, asked, claimed = (set(normalise(text).split()) for text in (pair.evidence, pair.question, pair.said))
    stands = float(bool(metrics.score(pair.evidence, [pair.said], "whole")))
    return {
        "cosine": cosine,
        "cosine of the title": question @ vectors[title],
        "letters of the title": share(letters_of(title), letters_of(pair.question)),  # names may be misspelt
        "words of the title": share(set(normalise(title).split()), asked),
        "words of the question": share(asked, words),
        "words of the answer": share(claimed, words),
        "new words": share(claimed - asked, words),  # what the answer adds to the question
        "answer": stands,
        "answer and cosine": stands * cosine,
        "cosine of its sentence": question @ vectors[pair.sentence] if pair.sentence else 0.0,
        "claim and sentence": vectors[pair.claim] @ vectors[pair.sentence] if pair.sentence else 0.0,
    }


def share(part: set[str], whole: set[str]) -> float:
    """Return the share of `part` that is in `whole`."""
    return len(part & whole) / max(1, len(part))


def letters_of(text: str) -> set[str]:
    """Return all sequences of three letters in a text."""
    spaced = f" {normalise(text)} "
    return {spaced[place : place + 3] for place in range(len(spaced) - 2)}


def find_head(config: Config, name: str) -> dict:
    """Find a head that was trained on this data, next to the adapters or among those included.

    The result contains the hash of its file. If there is none, an error gives the training command.
    """
    data, adapters, encoder = config.data.data, config.model.adapters, config.retrieval.encoder
    beside = SHIPPED / config.model.model if adapters in ("auto", "none") else resolve(adapters)
    for place in (beside, SHIPPED / Path(encoder).name):
        file = place / name / ABOUT
        head = json.loads(file.read_text()) if file.exists() else {}
        if head.get("data") == Path(data).name:
            return head | {"sha256": hash_files([file])}
    command = f"papermill notebooks/train_related.ipynb -p data {data} -p encoder {encoder} -p adapters_out {beside}"
    raise FileNotFoundError(f"no {name} was trained on {data!r}; train it with: {command}")


# Training: labelled pairs, weights, CRAG's thresholds and validation.
def relevance_pairs(questions: Sequence[Question], search: Search, passages: Sequence[Passage] = ()) -> Labelled:
    """Label each question's passages as relevant or not; gold ones that were missed are added."""
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
    """Label pairs for entailment: a supporting passage entails the gold answer, and no other."""
    rng = random.Random(1)
    by_text = {one.question: one for one in questions}
    made = []
    for pair, right in relevance_pairs(questions, search, passages):
        question = by_text[pair.question]
        made.append((Pair(pair.question, pair.passage, question.answers[0]), right))
        others = [name for name in NAME.findall(pair.passage.text) if not is_same(name, question)]
        if others:  # a wrong answer from the same passage, as a reader might give it
            made.append((Pair(pair.question, pair.passage, rng.choice(others)), False))
        if right:  # the gold answer of another question
            other = rng.choice(questions)
            if not is_same(other.answers[0], question):
                made.append((Pair(pair.question, pair.passage, other.answers[0]), False))
    return made


def is_same(name: str, question: Question) -> bool:
    """Return whether a name shares a word with a gold answer or with the question."""
    known = normalise(" ".join((*question.answers, question.question))).split()
    return not set(normalise(name).split()).isdisjoint(known)


PAIRS = {"evaluator": relevance_pairs, "entailment": entailment_pairs}
# The simple features that a head should outperform.
SIMPLE = {"evaluator": ("cosine", "words of the question"), "entailment": ("cosine", "answer")}


def train(config: Config, name: str) -> dict:
    """Train the evaluator or the entailment proxy into `adapters_out`; returns its description."""
    settings, encoder = config.related, config.retrieval.encoder
    sources = load_sources(config.change(n_train_questions=settings.n_learnt))
    rows = [row for one in sources for row in PAIRS[name](one.questions, one.search, one.passages)]
    questions = [question for one in sources for question in one.questions]
    pairs, truth = zip(*[(pair, right) for pair, right in rows if right is not None])
    head = {
        "kind": name,
        "encoder": encoder,
        "encoder_sha256": hash_encoder(encoder),
        "data": Path(config.data.data).name,  # the name only, not the path
        "questions": {"n": len(questions), "sha256": digest(questions)},
        "pairs": len(pairs),
        **find_commit(),
        "head": fit(features(encoder, pairs), np.array(truth)),
    }
    fifth = max(1, settings.n_learnt // 5) if settings.n_learnt else 0
    questions = load_questions(config.change(split="validation", n_questions=fifth))
    rows = PAIRS[name](questions, load_retriever(config.retrieval, load_passages(config)))
    scores = rate(head, [pair for pair, _ in rows])
    if name == "evaluator":
        head["thresholds"] = fit_thresholds(*best_of_questions(rows, scores))
    head["validation"] = validate(head, rows, scores)
    folder = resolve(config.training.adapters_out) / name
    folder.mkdir(parents=True, exist_ok=True)
    save_manifest(folder / ABOUT, head)
    return head


def fit(features: pd.DataFrame, truth: np.ndarray) -> dict[str, float]:
    """Fit a logistic regression with weight decay; returns the weight of each feature and the bias.

    The two classes get the same total weight, so that 0.5 separates them.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(features.astype(float))  # so that weight decay acts equally
    found = LogisticRegression(C=1 / DECAY / len(truth), class_weight="balanced", tol=1e-8, max_iter=10_000)
    found.fit(scaler.transform(features.astype(float)), truth)
    slopes = found.coef_[0] / scaler.scale_
    head = dict(zip(features.columns, slopes)) | {"bias": found.intercept_[0] - slopes @ scaler.mean_}
    return {name: float(f"{value:.5g}") for name, value in head.items()}


def fit_thresholds(best: Sequence[float], found: Sequence[bool], sure: float = SURE) -> tuple[float, float]:
    """Fit CRAG's two thresholds on a question's best score.

    Below the first, nothing relevant was found; from the second on, something was. Each decides the
    largest possible number of questions with a precision of at least `sure`; if that cannot be
    reached, it decides none. If the two thresholds cross, both are set to their mean.
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


def best_of_questions(rows: Labelled, scores: np.ndarray) -> tuple[list[float], list[bool]]:
    """Return each question's best score and whether a relevant passage was found.

    Questions whose best label is unknown are dropped.
    """
    sureness = [0.5 if right is None else float(right) for _, right in rows]
    frame = pd.DataFrame({"question": [pair.question for pair, _ in rows], "best": scores, "found": sureness})
    highest = frame.groupby("question", sort=False).max().query("found != 0.5")
    return highest.best.tolist(), (highest.found == 1).tolist()


def validate(head: Mapping, rows: Labelled, scores: np.ndarray) -> list[dict]:
    """Compare a head with the labels of validation pairs; simpler scores are listed next to it."""
    settled = [place for place, (_, right) in enumerate(rows) if right is not None]
    truth, values = np.array([rows[place][1] for place in settled]), scores[settled]
    right, majority = (values >= 0.5) == truth, 100 * max(truth.mean(), 1 - truth.mean())
    shares = 100 * right.mean(), 50 * (right[truth].mean() + right[~truth].mean())
    table = [(head["kind"], len(truth), majority, *shares, *metrics.auroc(values, truth))]
    simple = features(head["encoder"], [rows[place][0] for place in settled])
    for name in SIMPLE[head["kind"]]:
        table.append((f"{name} alone", len(truth), majority, None, None, *metrics.auroc(simple[name], truth)))
    columns = ["score", "n", "majority (%)", "right (%)", "balanced (%)", "AUROC", "low", "high"]
    report = pd.DataFrame(table, columns=columns).round(3).astype(object)
    return report.where(report.notna(), None).to_dict("records")
