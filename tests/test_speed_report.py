"""Recorded speed can be told in prose, in tables and in pictures, and what a replication costs follows from it."""

import json

import pandas as pd
import pytest

from benchmarks import report
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Prediction, Question, Round
from covrag_lite.runs.outcomes import save_predictions

ABOUT = {"device": "a GPU", "torch": "2.0", "commit": "0123456789"}
TRAINED = {"operations_per_token": 1, "failure": None}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_recorded_speed_can_be_told_in_prose(tmp_path):
    row = {"shape": "7b", "variant": "ours, 4k", "speed_ratio": 1.96, "memory_ratio": 0.455} | TRAINED
    rows = [row | {"tokens_per_second": 13645.3}, row | {"variant": "left out", "tokens_per_second": None}]
    write(tmp_path / "training.json", ABOUT | {"matrix_rate": 1e15, "rows": rows})
    searched = {"ours, 10,000 passages": {"faster": 152.44, "queries_per_second": 6645.7}}
    write(tmp_path / "inference.json", ABOUT | {"bm25": searched})
    more = {"graphs, 494M": {"answers, graphs": {"faster": 1.52, "same": 393.0}}}
    write(tmp_path / "inference.of-another-run.json", ABOUT | more)
    told = report.facts(tmp_path)
    assert "{graphs, 494M answers, graphs faster}, {graphs, 494M answers, graphs same}".format_map(told) == "1.5, 393"
    assert (told["7b ours, 4k speed_ratio"], told["7b ours, 4k memory_ratio"]) == ("2.0", "0.46")
    assert not any("left out" in name for name in told)
    prose = "{bm25 ours, 10,000 passages faster}, {bm25 ours, 10,000 passages queries_per_second}"
    assert prose.format_map(told) == "152.4, 6,646"


@pytest.fixture
def speed(tmp_path):
    """Ten questions' worth of work, and a GPU on which 7B answers one a second."""
    run = tmp_path / report.WORK
    for name, tokens, samples in (("cov", 3000, 30), ("rag", 1000, 10)):
        write(run / f"train.{name}.json", {"data": {"samples": {"n": samples}}})
        pd.DataFrame({"step": [1, 2], "tokens": tokens // 2}).to_csv(run / f"train.{name}.losses.csv", index=False)
    once = (Round("q", (), "a"),)
    twice = (Round("q", (), "a", parse_verdict(render_verdict([0.5] * 6, "true", ""))), *once)
    ways = {"RAG": once, "CoV-RAG-S": once, "CoV-RAG": twice}
    asked = [Question(f"q{number}", "toy", "q", ("a",)) for number in range(10)]
    made = [Prediction(question, name, rounds) for name, rounds in ways.items() for question in asked]
    save_predictions(run / "table2.predictions.jsonl.gz", made)
    for name, seconds in zip(report.TABLES, (10, 5, 10, 5)):
        write(tmp_path / name / f"{name[:6]}.manifest.json", {"wall_seconds": seconds})
    trained = {"variant": "ours", "speed_ratio": 2.0, "memory_ratio": 0.5} | TRAINED
    rates = {"smollm2": 8000, "7b": 80, "13b": 40}
    rows = [trained | {"shape": shape, "tokens_per_second": rate} for shape, rate in rates.items()]
    write(tmp_path / "speed-toy" / "training.json", ABOUT | {"matrix_rate": 1e15, "rows": rows})
    inference = {
        "batches, 7b shape": {"batches": {"seconds": 4.0, "n": 4}},
        "verdicts, 7b shape": {"forced": {"seconds": 8.0, "n": 4}},
        "batches, smollm2-135m": {"batches": {"seconds": 1.0, "n": 100}},
        "verdicts, smollm2-135m": {"forced": {"seconds": 1.0, "n": 100}},
    }
    write(tmp_path / "speed-toy" / "inference.json", ABOUT | inference)
    return tmp_path / "speed-toy"


def test_the_cost_is_the_work_at_the_measured_rates(speed):
    work = report.count_work(speed.parent / report.WORK)  # an answer that two systems share is counted once
    assert work == {"tokens": 8000, "synthesis": 80, "answers": 30, "verdicts": 10}  # ten of them second answers
    table = report.replication(speed, price=6.0)
    small, middle, large = (table.loc[shape] for shape in ("smollm2", "7b", "13b"))
    assert (middle.training, middle.data, middle.tables) == (100, 80, 3 * (30 + 2 * 10))
    assert middle.price == pytest.approx(6 * middle.hours) == pytest.approx(6 * 330 / 3600)
    assert small.data == pytest.approx(0.8)
    assert large.hours == pytest.approx(2 * middle.hours)  # half as quick in training, so it is in answering
    told = report.facts(speed)
    assert (told["price of an hour"], told["7b training"], told["work tokens"]) == ("3.00", "2 min", "8,000")
    (speed / "training.json").unlink()
    assert "price of an hour" not in report.facts(speed)
