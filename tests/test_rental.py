"""What a replication costs: recorded work at measured rates."""

import json

import pandas as pd
import pytest

from benchmarks import rental
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Prediction, Question, Round
from covrag_lite.runs.outcomes import save_predictions


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.fixture
def speed(tmp_path):
    """Ten questions' worth of work, and a GPU on which 7B answers one a second."""
    run = tmp_path / rental.WORK
    for name, tokens, samples in (("cov", 3000, 30), ("rag", 1000, 10)):
        write(run / f"train.{name}.json", {"data": {"samples": {"n": samples}}})
        pd.DataFrame({"step": [1, 2], "tokens": tokens // 2}).to_csv(run / f"train.{name}.losses.csv", index=False)
    once = (Round("q", (), "a"),)
    twice = (Round("q", (), "a", parse_verdict(render_verdict([0.5] * 6, "true", ""))), *once)
    ways = {"RAG": once, "CoV-RAG-S": once, "CoV-RAG": twice}
    asked = [Question(f"q{number}", "toy", "q", ("a",)) for number in range(10)]
    made = [Prediction(question, name, rounds) for name, rounds in ways.items() for question in asked]
    save_predictions(run / "table2.predictions.jsonl.gz", made)
    for name, seconds in zip(rental.TABLES, (10, 5, 10, 5)):
        write(tmp_path / name / f"{name[:6]}.manifest.json", {"wall_seconds": seconds})
    about = {"device": "a GPU", "torch": "2.0", "commit": "0123456789"}
    trained = {"variant": "ours", "speed_ratio": 2.0, "memory_ratio": 0.5, "operations_per_token": 1, "failure": None}
    rates = {"smollm2": 8000, "7b": 80, "13b": 40}
    rows = [trained | {"shape": shape, "tokens_per_second": rate} for shape, rate in rates.items()]
    write(tmp_path / "speed-toy" / "training.json", about | {"matrix_rate": 1e15, "rows": rows})
    inference = about | {
        "batches, 7b shape": {"batches": {"seconds": 4.0, "n": 4}},
        "verdicts, 7b shape": {"forced": {"seconds": 8.0, "n": 4}},
        "batches, smollm2-135m": {"batches": {"seconds": 1.0, "n": 100}},
        "verdicts, smollm2-135m": {"forced": {"seconds": 1.0, "n": 100}},
    }
    write(tmp_path / "speed-toy" / "inference.json", inference)
    return tmp_path / "speed-toy"


def test_an_answer_that_two_systems_share_is_counted_once(speed):
    work = rental.count_work(speed.parent / rental.WORK)
    assert work == {"tokens": 8000, "synthesis": 80, "answers": 30, "verdicts": 10}  # ten of them second answers


def test_the_cost_is_the_work_at_the_measured_rates(speed):
    table = rental.replication(speed, price=6.0)
    small, middle, large = (table.loc[shape] for shape in ("smollm2", "7b", "13b"))
    assert (middle.training, middle.data, middle.tables) == (100, 80, 3 * (30 + 2 * 10))
    assert middle.hours == pytest.approx(330 / 3600)
    assert middle.price == pytest.approx(6 * 330 / 3600)
    assert small.data == pytest.approx(0.8)
    assert large.hours == pytest.approx(2 * middle.hours)  # half as quick in training, so it is in answering


def test_prose_tells_the_price_that_was_assumed(speed):
    told = rental.facts(speed, price=6.0)
    assert told["price of an hour"] == "6.00"
    assert (told["7b training"], told["7b price"], told["work tokens"]) == ("2 min", "0.55", "8,000")
    (speed / "training.json").unlink()
    assert rental.facts(speed) == {}
