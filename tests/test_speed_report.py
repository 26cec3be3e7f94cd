import json

import pandas as pd

from benchmarks import report


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
    more = about | {"graphs, 494M": {"answers, graphs": {"faster": 1.52, "same": 393.0}}}
    (tmp_path / "inference.of-another-run.json").write_text(json.dumps(more))
    told = report.facts(tmp_path)
    assert "{graphs, 494M answers, graphs faster}, {graphs, 494M answers, graphs same}".format_map(told) == "1.5, 393"
    assert (told["7b ours, 4k speed_ratio"], told["7b ours, 4k memory_ratio"]) == ("2.0", "0.46")
    assert not any("left out" in name for name in told)
    prose = "{bm25 ours, 10,000 passages faster}, {bm25 ours, 10,000 passages queries_per_second}"
    assert prose.format_map(told) == "152.4, 6,646"


def test_a_table_of_ways_shows_what_came_of_them_and_not_where_their_time_went():
    frame = pd.DataFrame({"faster": [1.5, None], "reads_s": [0.3, None], "reads": [2, None], "cache_ms": [None, 27.0]})
    frame.index = ["answers", "profile"]
    assert report.without_details(frame).to_dict("index") == {"answers": {"faster": 1.5}}


def test_recorded_peers_and_cards_can_be_told_and_drawn(tmp_path):
    row = {
        "shape": "7b",
        "samples": "our mix",
        "way": "trl",
        "ours_faster": 1.24,
        "ours_memory": 0.5,
        "ours_faster_steady": 1.14,
        "tokens_per_second": 9.0,
        "peak_gb": 5.0,
        "losses": [2.0, 1.0],
        "step_seconds": [9.0, 3.0],
    }
    failed = {"shape": "7b", "samples": "our mix", "way": "Unsloth", "failure": "ImportError: no"}
    held = {"backbone": "7b", "card_gb": 24.0, "row": 4096, "training_peak_gb": 8.4, "batch": "does not fit"}
    (tmp_path / "peers.json").write_text(json.dumps({"rows": [row, failed]}))
    (tmp_path / "holding.json").write_text(json.dumps({"rows": [held]}))
    about = {"device": "a GPU", "torch": "2.0", "commit": "0123456789"}
    (tmp_path / "inference.json").write_text(json.dumps(about))
    told = report.facts(tmp_path)
    assert told["7b, our mix, trl ours_faster"] == "1.2" and told["7b, our mix, trl ours_memory"] == "0.50"
    assert told["7b in 24 GB row"] == "4,096" and "7b in 24 GB batch" not in told
    assert not any("Unsloth" in name for name in told)
    frame = report.load_peers(tmp_path)
    assert told["7b, our mix, trl ours_faster_steady"] == "1.1"
    shown = report.tell_peers(frame)
    assert not {"losses", "step_seconds"} & set(shown)
    assert shown.loc[("7b", "our mix", "Unsloth"), ["peak", "failure"]].tolist() == ["–", "ImportError: no"]
    assert shown.loc[("7b", "our mix", "trl"), ["peak", "ours_faster", "failure"]].tolist() == ["5.00 GB", "1.24", ""]
    figure = report.plot_losses(frame, tmp_path / "losses.png")
    (panel,) = figure.axes
    assert [line.get_ydata().tolist() for line in panel.lines] == [[2.0, 1.0]]
    assert report.load_peers(tmp_path / "nowhere").empty


def test_beside_each_peer_stands_the_quickest_of_our_ways_that_takes_no_more_memory():
    rows = [("7b", "ours", 10.0, 8.0), ("7b", "ours away", 9.0, 5.0), ("7b", "ours leanest", 6.0, 4.0)]
    rows += [("7b", "trl", 5.0, 6.0), ("7b", "Unsloth", 3.0, 4.0), ("7b", "plain", 1.0, 3.0), ("13b", "trl", 1.0, 99.0)]
    frame = pd.DataFrame(rows, columns=["shape", "way", "tokens_per_second", "peak_gb"])
    made = report.with_as_lean(frame.assign(samples="our mix", steady=frame.tokens_per_second / 2))
    told = made.set_index("way")
    assert told.as_lean.tolist()[3:5] == ["ours away", "ours leanest"] and told.as_lean.notna().sum() == 2
    assert told.as_lean_faster["Unsloth"] == told.as_lean_steady["Unsloth"] == 2.0
    shown = report.tell_peers(made.sample(frac=1, random_state=0)).as_lean
    assert shown["7b", "our mix", "plain"] == "–" and shown["7b", "our mix", "trl"] == "ours away"
    shapes = shown.index.get_level_values("shape").tolist()
    assert sorted(shapes) == shapes or sorted(shapes, reverse=True) == shapes  # those on the same samples are together


def test_what_cards_hold_is_told_with_dashes_and_reasons_where_nothing_was_measured():
    rows = [
        {"backbone": "7b", "card_gb": 24.0, "row": 8192, "training_peak_gb": 12.2, "batch": 32.0},
        {"backbone": "13b", "card_gb": 12.0, "row": "does not fit", "answering_failure": "left out"},
    ]
    frame = pd.DataFrame(rows).assign(answering_peak_gb=[17.55, None])
    told = report.tell_holding(frame)
    assert told.loc["7b"].tolist() == ["24 GB", "8,192", "12.2 GB", "–", "–", "32", "17.6 GB", ""]
    assert told.loc["13b"].tolist() == ["12 GB", "does not fit", "–", "–", "–", "–", "–", "left out"]
    assert list(told)[-1] == "why no answering"
    assert report.tell_holding(pd.DataFrame()).empty
