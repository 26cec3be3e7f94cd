"""CRAG's retrieval evaluator and a proxy for entailment: does a passage fit a question, does it entail an answer?

Both are a logistic regression on a few features of a frozen sentence encoder, small enough to ship. They are learnt in
a minute on a CPU from what the data settles: which passages are gold.
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
SURE = 0.9  # how often Correct, or Incorrect, must be right on validation questions
DECAY = 1e-3  # of the head's weights
# Encoder -> text -> its vector: passages and questions come again and again.
VECTORS: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
NAME = re.compile(r"[A-Z0-9][\w'-]*(?:\s[A-Z][\w'-]*)*")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")
# Questions, their passages -> each passage's relevance; and with statements -> does each entail them? 0 to 1
Score = Callable[..., list[list[float]]]


@dataclass(frozen=True)
class Pair:
    """A question and a passage, and for entailment what an answer says."""

    question: str
    passage: Passage
    said: str = ""

    @property
    def claim(self) -> str:
        """The question or, as ALCE puts a short answer's claim, the question with the answer behind it."""
        return f"{self.question} {self.said}".strip()

    @property
    def evidence(self) -> str:
        return f"{self.passage.title} {self.passage.text}".strip()

    @cached_property
    def sentence(self) -> str:
        """The first sentence of the passage in which the answer stands, if one does."""
        sentences = SENTENCE_END.split(self.passage.text) if self.said else []
        return next((one for one in sentences if metrics.score(one, [self.said], "whole")), "")


Labelled = list[tuple[Pair, bool | None]]  # None: a passage that holds the answer but is not the gold one


def score(head: Mapping, x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str] = ()) -> list[list[float]]:
    """Each passage's relevance to its question or, where statements are given, whether it entails them."""
    groups = zip(x, k, y or [""] * len(x))
    pairs = [Pair(question, passage, said) for question, own, said in groups for passage in own]
    values = iter(rate(head, pairs) if pairs else [])
    return [[float(next(values)) for _ in own] for own in k]


def rate(head: Mapping, pairs: Sequence[Pair]) -> np.ndarray:
    """Scores from 0 to 1 by a head on the encoder that it was made for."""
    encoder = head["encoder"]
    if hash_encoder(encoder) != head["encoder_sha256"]:
        raise ValueError(f"the {head['kind']} was trained on other weights of the encoder {encoder!r}")
    slopes = pd.Series(head["head"])
    return expit(features(encoder, pairs) @ slopes.drop("bias") + slopes.bias).to_numpy()


def features(encoder: str, pairs: Sequence[Pair]) -> pd.DataFrame:
    """Pairs as a few numbers each, a column a feature."""
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
    """A pair's features: likeness of an encoder's vectors, and which words and letters two texts share."""
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
    """How much of the one is in the other."""
    return len(part & whole) / max(1, len(part))


def letters_of(text: str) -> set[str]:
    """All runs of three letters."""
    spaced = f" {normalise(text)} "
    return {spaced[place : place + 3] for place in range(len(spaced) - 2)}


def find_head(config: Config, name: str) -> dict:
    """A head, beside the adapters or shipped, with the hash of its file; an error with the command that trains it.

    A head that was trained on other data is none.
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


# Training: what heads learn from, their weights, CRAG's thresholds, and how good they are.
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
    known = normalise(" ".join((*question.answers, question.question))).split()
    return not set(normalise(name).split()).isdisjoint(known)


PAIRS = {"evaluator": relevance_pairs, "entailment": entailment_pairs}
SIMPLE = {"evaluator": ("cosine", "words of the question"), "entailment": ("cosine", "answer")}  # features to beat


def train(config: Config, name: str) -> dict:
    """Train the evaluator or the entailment proxy into `adapters_out`; returns its weights and what is known of it."""
    settings, encoder = config.related, config.retrieval.encoder
    sources = load_sources(config.change(n_train_questions=settings.n_learnt))
    rows = [row for one in sources for row in PAIRS[name](one.questions, one.search, one.passages)]
    questions = [question for one in sources for question in one.questions]
    pairs, truth = zip(*[(pair, right) for pair, right in rows if right is not None])
    head = {
        "kind": name,
        "encoder": encoder,
        "encoder_sha256": hash_encoder(encoder),
        "data": Path(config.data.data).name,  # not where it lies
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
    """A logistic regression with a little weight decay: the weight of each feature, and the bias.

    Both kinds of pairs weigh alike, however many there are, so that 0.5 is where neither is likelier.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(features.astype(float))  # weights decay alike when features are of one size
    found = LogisticRegression(C=1 / DECAY / len(truth), class_weight="balanced", tol=1e-8, max_iter=10_000)
    found.fit(scaler.transform(features.astype(float)), truth)
    slopes = found.coef_[0] / scaler.scale_
    head = dict(zip(features.columns, slopes)) | {"bias": found.intercept_[0] - slopes @ scaler.mean_}
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


def best_of_questions(rows: Labelled, scores: np.ndarray) -> tuple[list[float], list[bool]]:
    """Each question's best score and whether it found a relevant passage; none of which only the answer was found."""
    sureness = [0.5 if right is None else float(right) for _, right in rows]
    frame = pd.DataFrame({"question": [pair.question for pair, _ in rows], "best": scores, "found": sureness})
    highest = frame.groupby("question", sort=False).max().query("found != 0.5")
    return highest.best.tolist(), (highest.found == 1).tolist()


def validate(head: Mapping, rows: Labelled, scores: np.ndarray) -> list[dict]:
    """A head's scores of labelled pairs against what the data settles, beside simpler scores."""
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
