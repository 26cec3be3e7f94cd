import json

import pandas as pd

from covrag_lite.speed import report


def test_the_best_way_to_train_is_the_quickest_within_the_memory():
    rows = [
        ("7b", "plain", 1.0, 1.0),
        ("7b", "ours, small", 1.8, 0.4),
        ("7b", "ours, middle", 2.0, 0.6),
        ("7b", "ours, large", 2.2, 0.7),
        ("tiny", "ours", 1.5, None),
    ]
    best = report.best(pd.DataFrame(rows, columns=["shape", "variant", "speed_ratio", "memory_ratio"]))
    assert best.variant.tolist() == ["ours, middle", "ours"]


def test_recorded_speed_can_be_told_in_prose(tmp_path):
    row = {
        "shape": "7b",
        "variant": "ours, 4k",
        "speed_ratio": 1.96,
        "memory_ratio": 0.455,
        "tokens_per_second": 13645.3,
        "operations_per_token": 1,
        "failure": None,
    }
    failed = row | {"variant": "left out", "tokens_per_second": None}
    about = {"device": "a GPU", "torch": "2.0", "commit": "0123456789"}
    training = about | {"matrix_rate": 1e15, "rows": [row, failed]}
    inference = about | {"bm25": {"ours, 10,000 passages": {"faster": 152.44, "queries_per_second": 6645.7}}}
    (tmp_path / "training.json").write_text(json.dumps(training))
    (tmp_path / "inference.json").write_text(json.dumps(inference))
    told = report.facts(tmp_path)
    assert (told["7b ours, 4k speed_ratio"], told["7b ours, 4k memory_ratio"]) == ("2.0", "0.46")
    assert not any("left out" in name for name in told)
    prose = "{bm25 ours, 10,000 passages faster}, {bm25 ours, 10,000 passages queries_per_second}"
    assert prose.format_map(told) == "152.4, 6,646"
