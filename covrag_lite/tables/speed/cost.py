"""What a replication costs on a rented GPU: the work of one recorded run, at measured rates."""

import json
import statistics
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from covrag_lite.runs.frame import to_frame
from covrag_lite.runs.predictions import load_predictions
from covrag_lite.systems import adapter_of
from covrag_lite.tables.speed.records import (
    ANSWERING_FILE,
    TRAINING_FILE,
    load_answering,
    load_training,
    select_fastest,
)

PRICE_PER_HOUR = 3.0  # of a GPU, in dollars: an assumption
WORK_RUN = "real/qwen2.5-coder-1.5b/seed-3"  # the recorded run whose work is counted
WORLD_TRAINING = "train-smollm2-135m-h200/train.*.json"  # of the adapters that are shipped
# Seconds of Tables 2, 4, 5 and 6 over those of Table 2, measured once.
TABLES_PER_TABLE2 = 121.7 / 72.3
# A shape that was measured in training -> the one whose rates of answering are used.
ANSWERING_SHAPES = {"smollm2": "smollm2-135m", "7b": "7b shape", "13b": "7b shape"}
SHORT_SECONDS = 90  # below it, the recorded training time is written in seconds
STAGES = ("training", "data", "tables")


def facts_of_cost(speed: Path, price: float = PRICE_PER_HOUR) -> dict[str, str]:
    """Return the cost of a replication; nothing if its parts were not measured."""
    work_run = speed.parent / WORK_RUN
    if not (speed / TRAINING_FILE).exists() or not work_run.exists():
        return {}
    facts = {"price of an hour": f"{price:.2f}"}
    for shape, row in estimate_cost(speed, price).iterrows():
        for stage in STAGES:
            facts[f"{shape} {stage}"] = format_duration(row[stage])
        facts[f"{shape} together"] = format_duration(3600 * row.hours)
        facts[f"{shape} price"] = f"{row.price:.2f}"
    for name, n in count_work(work_run).items():
        facts[f"work {name}"] = f"{n:,}"
    return facts | facts_of_recorded_training(speed.parent)


def facts_of_recorded_training(results: Path) -> dict[str, str]:
    """Return how long each kind of adapter took to train: the median over the recorded seeds."""
    seconds: dict[str, list[float]] = {}
    for file in sorted(
        [*results.glob("real/*/seed-*/train.*.json"), *results.glob(WORLD_TRAINING)]
    ):
        is_seed = file.parent.name.startswith("seed-")
        backbone = file.parent.parent.name.replace(".", "-") if is_seed else "world"
        method = file.name.split(".")[1]
        manifest = json.loads(file.read_text())
        if "wall_seconds" in manifest:
            seconds.setdefault(f"{backbone} {method}", []).append(manifest["wall_seconds"])
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    facts = {}
    for name, median in medians.items():
        is_short = median < SHORT_SECONDS
        duration = f"{median:.0f} s" if is_short else format_duration(median)
        facts[f"recorded training {name}"] = duration
    return facts


def format_duration(seconds: float) -> str:
    """Write a time in minutes, or in hours from 90 minutes on."""
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def estimate_cost(speed: Path, price: float = PRICE_PER_HOUR) -> pd.DataFrame:
    """Return one row per backbone: seconds of each stage, hours in total, and the price.

    `speed` is a folder of measured speed under results/. 13B was measured in training only. Its
    answers are assumed to be slower than 7B's by the same factor as its training.
    """
    work = count_work(speed.parent / WORK_RUN)
    settings, _ = load_training(speed)
    training_rates = select_fastest(settings).set_index("shape").tokens_per_second
    answering = load_answering(speed / ANSWERING_FILE)
    rows = {}
    for shape, measured_shape in ANSWERING_SHAPES.items():
        slower = 1.0
        if measured_shape == "7b shape":
            slower = training_rates["7b"] / training_rates[shape]
        answer = seconds_per_answer(answering, measured_shape) * slower
        verdict = seconds_per_verdict(answering, measured_shape) * slower
        seconds = {
            "training": work["tokens"] / training_rates[shape],
            "data": work["synthesis"] * answer,
            "tables": TABLES_PER_TABLE2 * (work["answers"] * answer + work["verdicts"] * verdict),
        }
        hours = sum(seconds.values()) / 3600
        rows[shape] = {**seconds, "hours": hours, "price": hours * price}
    return pd.DataFrame.from_dict(rows, orient="index")


def seconds_per_answer(answering: Mapping[str, pd.DataFrame], shape: str) -> float:
    """Return the seconds of one answer in a batch."""
    row = answering[f"batches, {shape}"].loc["batches"]
    return row.seconds / row.n


def seconds_per_verdict(answering: Mapping[str, pd.DataFrame], shape: str) -> float:
    """Return the seconds of one verdict in a batch, forced into its schema."""
    row = answering[f"verdicts, {shape}"].loc["forced"]
    return row.seconds / row.n


def count_work(run: Path) -> dict[str, int]:
    """Count one backbone's work: training tokens, texts for D2′, answers and verdicts of Table 2.

    Five adapters are trained: `cov`, `cov-direct` on as many tokens, `rag`, and two seed models on
    half of its data each. Each verdict of D2′ needs one answer of a seed model and, if that is
    wrong, three texts from which revised questions are proposed: at most four texts.
    """
    tokens = {}
    samples = {}
    for adapter in ("cov", "rag"):
        tokens[adapter] = pd.read_csv(run / f"train.{adapter}.losses.csv").tokens.sum()
        manifest = json.loads((run / f"train.{adapter}.json").read_text())
        samples[adapter] = manifest["data"]["samples"]["n"]
    frame = to_frame(load_predictions(run / "table2.predictions.jsonl.xz")).assign(answers=1)
    by_system = frame.groupby("system")[["answers", "revised", "verdicts"]].sum()
    texts = by_system.groupby(adapter_of).max()  # systems with the same adapter share its texts
    return {
        "tokens": int(2 * tokens["cov"] + 2 * tokens["rag"]),
        "synthesis": 4 * (samples["cov"] - samples["rag"]),
        "answers": int(texts.answers.sum() + texts.revised.sum()),
        "verdicts": int(texts.verdicts.sum()),
    }
