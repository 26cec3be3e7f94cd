"""What a full replication costs on a rented GPU: the work that was recorded, at the rates that were measured there.

The work is that of the recorded run on real questions: its trainings' tokens, what making D2′ took, its answers and
verdicts. Called by `check`, for the table in results/README.md.
"""

import json
from pathlib import Path

import pandas as pd

from benchmarks.report import best, load_frames, load_speed
from covrag_lite.runs.outcomes import load_outputs, to_frame
from covrag_lite.systems import adapter_of

PRICE = 3.0  # of a GPU hour, in dollars: an assumption
WORK = "real/qwen2.5-coder-1.5b/seed-1"  # the recorded run whose work is counted
TABLES = tuple(f"table{number}-smollm2-135m-h200" for number in (2, 4, 5, 6))  # what the tables took, beside Table 2
SHAPES = {"smollm2": "smollm2-135m", "7b": "7b shape", "13b": "7b shape"}  # whose answering was measured


def replication(speed: Path, price: float = PRICE) -> pd.DataFrame:
    """A row a backbone: the seconds of each stage, their sum in hours, and what it costs at a price an hour.

    `speed` is a folder of measured speed under results/. 13B was measured in training alone: its answers are taken to
    be slower than 7B's as its training is.
    """
    work = count_work(speed.parent / WORK)
    tables = [json.loads((speed.parent / name / f"{name[:6]}.manifest.json").read_text()) for name in TABLES]
    of_table2 = sum(one["wall_seconds"] for one in tables) / tables[0]["wall_seconds"]
    trained = best(load_speed(speed / "training.json")[0]).set_index("shape").tokens_per_second
    frames, _ = load_frames(speed / "inference.json")
    rows = {}
    for shape, measured in SHAPES.items():
        slower = 1.0 if measured != "7b shape" else trained["7b"] / trained[shape]
        answer, verdict = (_seconds_each(frames, part, measured) * slower for part in ("batches", "verdicts"))
        seconds = {
            "training": work["tokens"] / trained[shape],
            "data": work["synthesis"] * answer,
            "tables": of_table2 * (work["answers"] * answer + work["verdicts"] * verdict),
        }
        hours = sum(seconds.values()) / 3600
        rows[shape] = {**seconds, "hours": hours, "price": hours * price}
    return pd.DataFrame.from_dict(rows, orient="index")


def count_work(run: Path) -> dict[str, int]:
    """What one backbone has to do: tokens to train on, texts for D2′, answers and verdicts of Table 2.

    Trained are `cov`, `cov-direct` on as much, `rag`, and two seed models on half of its data each. For D2′ every
    verdict has an answer by a seed model and, where that was wrong, three texts from which revisions are proposed: at
    most four.
    """
    losses = {name: pd.read_csv(run / f"train.{name}.losses.csv").tokens.sum() for name in ("cov", "rag")}
    samples = {name: json.loads((run / f"train.{name}.json").read_text())["data"]["samples"]["n"] for name in losses}
    frame = to_frame(load_outputs(run / "table2.predictions.jsonl.gz"))
    by_system = frame.assign(asked=1).groupby("system")[["asked", "revised", "verdicts"]].sum()
    texts = by_system.groupby(adapter_of).max()  # systems of one adapter share what it writes
    return {
        "tokens": int(2 * losses["cov"] + 2 * losses["rag"]),
        "synthesis": 4 * (samples["cov"] - samples["rag"]),
        "answers": int(texts.asked.sum() + texts.revised.sum()),
        "verdicts": int(texts.verdicts.sum()),
    }


def _seconds_each(frames: dict[str, pd.DataFrame], part: str, measured: str) -> float:
    """Seconds of one text in a batch."""
    row = frames[f"{part}, {measured}"].loc["forced" if part == "verdicts" else "batches"]
    return row.seconds / row.n


def facts(speed: Path, price: float = PRICE) -> dict[str, str]:
    """Every number that prose may tell of a replication's cost, by its name; none where this was not measured."""
    if not (speed / "training.json").exists() or not (speed.parent / WORK).exists():
        return {}
    told = {"price of an hour": f"{price:.2f}"}
    for shape, row in replication(speed, price).iterrows():
        told |= {f"{shape} {name}": _time(row[name]) for name in ("training", "data", "tables")}
        told[f"{shape} together"] = _time(3600 * row.hours)
        told[f"{shape} price"] = f"{row.price:.2f}"
    work = count_work(speed.parent / WORK)
    return told | {f"work {name}": f"{n:,}" for name, n in work.items()}


def _time(seconds: float) -> str:
    """Minutes, or hours where there are many."""
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
