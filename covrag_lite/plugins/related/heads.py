"""Heads: two small classifiers that score passages. CRAG's evaluator, and the entailment proxy.

The evaluator scores whether a passage is relevant to a question; the proxy, whether it entails a
statement. Each is a logistic regression on a few `features` from a frozen sentence encoder, small
enough to be part of the repository.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

from covrag_lite.config import ROOT, Config, resolve
from covrag_lite.engine.weights import hash_encoder, hash_files
from covrag_lite.method import Passages
from covrag_lite.plugins.related.features import Pair, compute_features

SHIPPED = ROOT / "results" / "adapters"
DESCRIPTION = "head.json"  # the file with a head's weights and how it was trained

# Questions, their passages -> the relevance of each passage, from 0 to 1.
Score = Callable[[Sequence[str], Sequence[Passages]], list[list[float]]]
# Questions, their passages, statements -> how well each passage entails the statement.
Entail = Callable[[Sequence[str], Sequence[Passages], Sequence[str]], list[list[float]]]


def score_relevance(head: Mapping, x: Sequence[str], k: Sequence[Passages]) -> list[list[float]]:
    """Score how relevant each passage is to its question."""
    return score_entailment(head, x, k, [""] * len(x))


def score_entailment(
    head: Mapping, x: Sequence[str], k: Sequence[Passages], y: Sequence[str]
) -> list[list[float]]:
    """Score how well each passage entails the statement about its question."""
    pairs = []
    for question, passages, statement in zip(x, k, y, strict=True):
        pairs += [Pair(question, passage, statement) for passage in passages]
    scores = iter(score_pairs(head, pairs) if pairs else [])
    return [[float(next(scores)) for _ in passages] for passages in k]


def score_pairs(head: Mapping, pairs: Sequence[Pair]) -> np.ndarray:
    """Score pairs from 0 to 1 with a head; the encoder must be the one it was trained on."""
    encoder = head["encoder"]
    if hash_encoder(encoder) != head["encoder_sha256"]:
        raise ValueError(
            f"the {head['kind']} was trained on other weights of the encoder {encoder!r}; use "
            "those weights, or train it again with notebooks/train_related.ipynb"
        )
    slopes = pd.Series(head["head"])
    features = compute_features(encoder, pairs)
    return expit(features @ slopes.drop("bias") + slopes.bias).to_numpy()


class MissingHead(FileNotFoundError):
    """No head was trained on this data; the message has the command that trains it."""


def find_head(config: Config, name: str) -> dict:
    """Find a head that was trained on this data, next to the adapters or among those included.

    The result contains the hash of its file.
    """
    data = config.data.data
    encoder = config.retrieval.encoder
    folder = adapters_folder(config)
    for place in (folder, SHIPPED / Path(encoder).name):
        file = place / name / DESCRIPTION
        if not file.exists():
            continue
        head = json.loads(file.read_text())
        if head.get("data") == Path(data).name:
            return head | {"sha256": hash_files([file])}
    command = (
        f"papermill notebooks/train_related.ipynb -p data {data} -p encoder {encoder} "
        f"-p adapters_out {folder}"
    )
    raise MissingHead(f"no {name} was trained on {data!r}; train it with: {command}")


def adapters_folder(config: Config) -> Path:
    """Return the folder of the model's adapters."""
    adapters = config.model.adapters
    return SHIPPED / config.model.model if adapters in ("auto", "none") else resolve(adapters)
