"""The whole encoder tuned to score pairs, where a head on the frozen one is too little: minutes on a GPU."""

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from covrag_lite.config import Config
from covrag_lite.engine.weights import find_encoder
from covrag_lite.related.relevance import LONGEST, Pair
from covrag_lite.runs.progress import track

BATCH = 32
EPOCHS = 2
LEARNING_RATE = 5e-5  # usual for encoders of this size
WARMUP = 0.1  # share of the steps


def tune(config: Config, rows: Sequence[tuple[Pair, bool]], folder: Path, premise_first: bool) -> None:
    """Tune the encoder with one score on top on labelled pairs, and write it as a model folder.

    Both kinds of pairs weigh alike, as for a head, so that 0.5 is where neither is likelier.
    """
    start = find_encoder(config.retrieval.encoder)
    device = "cuda" if torch.cuda.is_available() and config.model.device != "cpu" else "cpu"
    torch.manual_seed(config.training.training_seed)
    tokenizer = AutoTokenizer.from_pretrained(start)
    network = AutoModelForSequenceClassification.from_pretrained(start, num_labels=1, use_safetensors=True)
    network.to(device).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    n_true = sum(right for _, right in rows)
    heavier = torch.tensor((len(rows) - n_true) / n_true, device=device)  # so much more a true pair weighs
    rng = random.Random(config.training.training_seed)
    order = [i for _ in range(EPOCHS) for i in rng.sample(range(len(rows)), len(rows))]
    batches = [order[first : first + BATCH] for first in range(0, len(order), BATCH)]
    rise = max(1, round(WARMUP * len(batches)))
    for number, places in enumerate(track(batches, "tune", "batch", total=len(batches))):
        share = min((number + 1) / rise, (len(batches) - number) / max(1, len(batches) - rise))
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * share
        texts = [[rows[i][0].asked for i in places], [rows[i][0].evidence for i in places]]
        read = tokenizer(
            *(texts[::-1] if premise_first else texts),
            truncation="only_first" if premise_first else "only_second",
            max_length=min(LONGEST, tokenizer.model_max_length, 256),
            padding=True,
            return_tensors="pt",
        )
        logits = network(**read.to(device)).logits[:, 0]  # (pairs)
        truth = torch.tensor([float(rows[i][1]) for i in places], device=device)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.float(), truth, pos_weight=heavier)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
