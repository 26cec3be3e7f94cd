"""Does a passage fit a question, does it entail an answer: pairs of texts, scored from 0 to 1 by a small encoder.

Either a linear head on a frozen sentence encoder, small enough to ship (`heads` trains it), or an entailment model by
its hub id or folder.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from covrag_lite.config import need
from covrag_lite.engine import weights
from covrag_lite.metrics import normalise
from covrag_lite.records import Passage
from covrag_lite.retrieval.dense import load_encoder

# Questions, their passages -> each passage's relevance; and with statements -> does the evidence entail them? 0 to 1
Score = Callable[[Sequence[str], Sequence[Sequence[Passage]]], list[list[float]]]
Entail = Callable[[Sequence[str], Sequence[Sequence[Passage]], Sequence[str]], list[float]]
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")
ABOUT = "head.json"  # a head's weights, and how it was trained
LABELS = ("entailment", "entailed")  # how an entailment model may call what is asked for


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
        said = normalise(self.said)
        sentences = SENTENCE_END.split(self.passage.text) if said else []
        return next((one for one in sentences if stands_in(said, normalise(one))), "")


Rate = Callable[[Sequence[Pair]], np.ndarray]  # pairs -> scores from 0 to 1


@cache
def features_of(encoder: str) -> Callable[[Sequence[Pair]], pd.DataFrame]:
    """Pairs as a few numbers each, a column a feature."""
    network = load_encoder(weights.find_encoder(encoder))
    vectors: dict[str, np.ndarray] = {}  # passages and questions come again and again

    def features(pairs: Sequence[Pair]) -> pd.DataFrame:
        texts = [text for one in pairs for text in (one.question, one.passage.title, one.evidence)]
        stated = [one for one in pairs if one.sentence]
        texts += [*(one.sentence for one in stated), *(one.claim for one in stated)]
        missing = [text for text in dict.fromkeys(texts) if text not in vectors]
        if missing:
            made = network.encode(missing, normalize_embeddings=True, show_progress_bar=False)
            vectors.update(zip(missing, made))
        return pd.DataFrame([describe(one, vectors) for one in pairs], dtype=np.float32)

    return features


def describe(pair: Pair, vectors: Mapping[str, np.ndarray]) -> dict[str, float]:
    """A pair's features: likeness of an encoder's vectors, and which words and letters two texts share."""
    question, title = vectors[pair.question], pair.passage.title
    cosine = question @ vectors[pair.evidence]
    text, said = normalise(pair.evidence), normalise(pair.said)
    words, asked, claimed = set(text.split()), set(normalise(pair.question).split()), set(said.split())
    stands = float(stands_in(said, text))
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


def stands_in(said: str, text: str) -> bool:
    """Whether a normalised answer stands in a normalised text, in whole words."""
    return bool(said) and f" {said} " in f" {text} "


def rate_by_head(about: Mapping) -> Rate:
    """A linear head on the encoder that it was made for."""
    encoder, slopes = about["encoder"], pd.Series(about["head"])
    if weights.hash_encoder(encoder) != about["encoder_sha256"]:
        raise ValueError(f"the {about['kind']} was trained on other weights of the encoder {encoder!r}")
    bias = slopes.pop("bias")

    def rate(pairs: Sequence[Pair]) -> np.ndarray:
        return 1 / (1 + np.exp(-(features_of(encoder)(pairs) @ slopes + bias).to_numpy()))

    return rate


def read_about(folder: Path) -> dict:
    """What is known of a head; nothing of a model from elsewhere."""
    file = folder / ABOUT
    return json.loads(file.read_text()) if file.exists() else {}


def load_classifier(folder: Path) -> Rate:
    """An entailment model from elsewhere; it reads the passage first."""
    import torch

    network = need("sentence_transformers").CrossEncoder(str(folder), model_kwargs={"use_safetensors": True})
    names = [name.lower() for name in network.config.id2label.values()]
    label = next((place for place, name in enumerate(names) if name in LABELS), None)
    if label is None:
        raise ValueError(f"the model {folder} has the labels {', '.join(names)}, and none of {', '.join(LABELS)}")

    def rate(pairs: Sequence[Pair]) -> np.ndarray:
        texts = [(pair.evidence, pair.claim) for pair in pairs]
        return network.predict(texts, activation_fn=torch.nn.Softmax(dim=1), show_progress_bar=False)[:, label]

    return rate


@cache
def load_rate(folder: Path) -> Rate:
    """The scores of a head, or of an entailment model."""
    about = read_about(folder)
    return rate_by_head(about) if about else load_classifier(folder)


def load_score(folder: Path) -> Score:
    """Each passage's relevance to its question or, where statements are given, whether it entails them."""
    rate = load_rate(folder)

    def score(x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str] = ()) -> list[list[float]]:
        groups = zip(x, k, y or [""] * len(x))
        pairs = [Pair(question, passage, said) for question, own, said in groups for passage in own]
        values = iter(rate(pairs) if pairs else [])
        return [[float(next(values)) for _ in own] for own in k]

    return score


def load_entail(folder: Path) -> Entail:
    """Whether passages entail a statement: by a model, by all of them as one text; by a head, a proxy, by the best."""
    score, one_by_one = load_score(folder), bool(read_about(folder))  # as heads were trained

    def entail(x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str]) -> list[float]:
        groups = k if one_by_one else [[Passage("", "", " ".join(f"{p.title} {p.text}" for p in own))] for own in k]
        return [max(values, default=0.0) for values in score(x, groups, y)]

    return entail
