"""Train and validate a head. It takes a minute on a CPU; notebooks/train_related.ipynb shows it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config, resolve
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.weights import hash_encoder
from covrag_lite.files import write_json
from covrag_lite.plugins.related.features import compute_features
from covrag_lite.plugins.related.head_tables import DECISION
from covrag_lite.plugins.related.heads import DESCRIPTION, score_pairs
from covrag_lite.plugins.related.labelled_pairs import LABEL_PAIRS, Labelled
from covrag_lite.plugins.related.names import ENTAILMENT, EVALUATOR
from covrag_lite.plugins.related.thresholds import best_of_questions, fit_thresholds
from covrag_lite.records import Question, digest
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.manifest import find_commit
from covrag_lite.training.sources import load_sources

WEIGHT_DECAY = 1e-3
VALIDATION_SHARE = 5  # one validation question for this many training questions
# The simple features that a head should outperform.
SIMPLE = {EVALUATOR: ("cosine", "words of the question"), ENTAILMENT: ("cosine", "answer")}


def train(config: Config, name: str) -> dict:
    """Train the evaluator or the entailment proxy into `adapters_out`; returns its description."""
    encoder = config.retrieval.encoder
    questions, labelled = load_training_pairs(config, name)
    certain = drop_unclear(labelled)
    pairs = [pair for pair, _ in certain]
    labels = np.array([label for _, label in certain])
    head = {
        "kind": name,
        "encoder": encoder,
        "encoder_sha256": hash_encoder(encoder),
        "data": Path(config.data.data).name,  # the name only, not the path
        "questions": {"n": len(questions), "sha256": digest(questions)},
        "pairs": len(pairs),
        **find_commit(),
        "head": fit(compute_features(encoder, pairs), labels),
    }
    validation = load_validation_pairs(config, name)
    scores = score_pairs(head, [pair for pair, _ in validation])
    if name == EVALUATOR:
        head["thresholds"] = fit_thresholds(*best_of_questions(validation, scores))
    head["validation"] = validate(head, validation, scores)
    folder = resolve(config.training.adapters_out) / name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / DESCRIPTION, head)
    return head


def load_training_pairs(config: Config, name: str) -> tuple[list[Question], Labelled]:
    """Load the training questions, and their labelled pairs."""
    questions: list[Question] = []
    labelled: Labelled = []
    for source in load_sources(config.change(n_train_questions=config.related.n_learnt)):
        questions += source.questions
        labelled += LABEL_PAIRS[name](source.questions, source.search, source.passages)
    return questions, labelled


def load_validation_pairs(config: Config, name: str) -> Labelled:
    """Load the labelled pairs of the validation questions."""
    n_learnt = config.related.n_learnt
    n_questions = max(1, n_learnt // VALIDATION_SHARE) if n_learnt else 0  # 0 means all
    questions = load_questions(config.change(split="validation", n_questions=n_questions))
    search = load_retriever(config.retrieval, load_passages(config))
    return LABEL_PAIRS[name](questions, search, ())


def drop_unclear(labelled: Labelled) -> Labelled:
    """Drop the pairs without a label."""
    return [(pair, label) for pair, label in labelled if label is not None]


def fit(features: pd.DataFrame, labels: np.ndarray) -> dict[str, float]:
    """Fit a logistic regression with weight decay; returns the weight of each feature and the bias.

    The two classes get the same total weight, so that 0.5 separates them.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    values = features.astype(float)
    scaler = StandardScaler().fit(values)  # so that weight decay acts equally
    regression = LogisticRegression(
        C=1 / WEIGHT_DECAY / len(labels), class_weight="balanced", tol=1e-8, max_iter=10_000
    )
    regression.fit(scaler.transform(values), labels)
    slopes = regression.coef_[0] / scaler.scale_
    weights = dict(zip(features.columns, slopes))
    weights["bias"] = regression.intercept_[0] - slopes @ scaler.mean_
    return {name: float(f"{weight:.5g}") for name, weight in weights.items()}


def validate(head: Mapping, labelled: Labelled, scores: np.ndarray) -> list[dict]:
    """Compare a head with the labels of validation pairs; simpler scores are listed next to it."""
    certain = [i for i, (_, label) in enumerate(labelled) if label is not None]
    labels = np.array([labelled[i][1] for i in certain])
    values = scores[certain]
    right = (values >= DECISION) == labels
    majority = 100 * max(labels.mean(), 1 - labels.mean())
    balanced = 50 * (right[labels].mean() + right[~labels].mean())
    shares = (majority, 100 * right.mean(), balanced)
    rows: list[Sequence] = [(head["kind"], len(labels), *shares, *metrics.auroc(values, labels))]
    features = compute_features(head["encoder"], [labelled[i][0] for i in certain])
    for name in SIMPLE[head["kind"]]:
        area = metrics.auroc(features[name], labels)
        rows.append((f"{name} alone", len(labels), majority, None, None, *area))
    columns = ["score", "n", "majority (%)", "right (%)", "balanced (%)", "AUROC", "low", "high"]
    report = pd.DataFrame(rows, columns=columns).round(3).astype(object)
    return report.where(report.notna(), None).to_dict("records")
