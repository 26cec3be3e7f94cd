"""Related methods over two training runs of the same reader: their rows, corrected together."""

import json
from pathlib import Path

import pandas as pd
import pytest

from covrag_lite.check.tables import build_tables
from covrag_lite.config import Config
from covrag_lite.metrics import adjust_p, mcnemar_p
from covrag_lite.plugins.related import readers
from covrag_lite.plugins.related.names import COQ, CRAG, FAVE
from covrag_lite.records import Outcome, Prediction, Question, Round
from covrag_lite.runs.predictions import save_predictions
from covrag_lite.systems.names import COV_RAG, EXPANSION, EXPANSION_COMBINED, RAG_TRAINED
from covrag_lite.tables import all_tables
from covrag_lite.tables.labels import format_p
from covrag_lite.tables.table import Table

# Right (1) and wrong (0) answers of 20 questions: the first 5 are of NQ, the others of WebQ. A "-"
# is a question that cannot be scored.
FIRST = {
    RAG_TRAINED: "11111000000000000000",
    EXPANSION: "11111111111100000000",
    CRAG: "11100100000000000000",
    COQ: "00000000000000000000",
}
SECOND = {
    RAG_TRAINED: "11111111000000000000",
    EXPANSION: "11111111111000000000",
    EXPANSION_COMBINED: "11111111111111000000",
    COV_RAG: "11111111110000000000",
    FAVE: "00000000111111100000",
}
CORRECTED = (EXPANSION, CRAG, COQ)
ALSO_CORRECTED = (EXPANSION_COMBINED, COV_RAG, FAVE)


def set_of(number):
    return "nq" if number < 5 else "webq"


def make_frame(right):
    """A frame of outcomes from each system's letters."""
    values = {"1": True, "0": False, "-": None}
    rows = []
    for system, letters in right.items():
        for number, letter in enumerate(letters):
            about = {"system": system, "dataset": set_of(number), "id": f"q{number}"}
            rows.append(about | {"normalised": values[letter]})
    return pd.DataFrame(rows)


def build(first, second):
    return readers.build({"a": make_frame(first), "b": make_frame(second)}, run=None)


@pytest.fixture(scope="module")
def table():
    return build(FIRST, SECOND)


@pytest.fixture(scope="module")
def facts(table):
    return table.facts


# Rows against the reader.


def test_a_row_is_compared_with_the_reader_of_its_own_run(facts):
    name = f"RAG trained → {COV_RAG}"
    counts = [facts[f"{name} {end}"] for end in ("n", "points", "gained", "lost")]
    # With the reader of the first run five questions would be gained.
    assert counts == ["20", "+10.0", "2", "0"]


def test_a_row_of_the_first_run_is_compared_with_the_first_reader(facts):
    name = f"RAG trained → {CRAG}"
    counts = [facts[f"{name} {end}"] for end in ("n", "points", "gained", "lost")]
    assert counts == ["20", "−5.0", "1", "2"]


def test_accuracies_are_means_over_the_sets(facts):
    name = f"RAG trained → {CRAG}"
    # All of 5 and none of 15; then 3 of 5 and 1 of 15.
    assert [facts[f"{name} from"], facts[f"{name} to"]] == ["50.0", "33.3"]


def test_every_system_but_the_readers_has_a_row(table):
    part = table.part("Each method")
    assert part.run.tolist() == ["a"] * 3 + ["b"] * 4
    assert set(part.comparison.str.partition(" → ")[0]) == {"RAG (trained)"}


def test_a_question_that_cannot_be_scored_is_not_counted():
    second = SECOND | {system: letters[:-1] + "-" for system, letters in SECOND.items()}
    facts = build(FIRST, second).facts
    assert facts[f"RAG trained → {COV_RAG} n"] == "19"


def test_a_question_that_only_one_side_answered_is_not_counted():
    facts = build(FIRST, SECOND | {FAVE: SECOND[FAVE][:12]}).facts
    assert facts[f"RAG trained → {FAVE} n"] == "12"
    assert facts[f"RAG trained → {COV_RAG} n"] == "20"


def test_parts_of_the_runs_tables_are_joined_by_run_and_system():
    tables = {}
    for run, steps in (("a", 1), ("b", 2)):
        costs = pd.DataFrame({"system": ["RAG", "CoV-RAG"], "steps": [steps, 3 * steps]})
        tables[run] = Table("related", costs, {"Accuracy": costs[:0], "Costs per question": costs})
    joined = readers.join_parts(tables, "Costs")
    assert joined.loc[("b", "CoV-RAG"), "steps"] == 6
    assert joined.index.names == ["run", "system"]


# Holm's method.


def test_query_expansion_counts_once_with_the_first_run(facts):
    assert facts["comparisons"] == str(len(CORRECTED + ALSO_CORRECTED))
    assert facts[f"RAG trained → {EXPANSION} gained"] == "7"  # 3 in the second run


def test_a_repeated_row_is_shown_without_a_corrected_p(table):
    part = table.part("Each method")
    repeated = part[part["p, Holm"] == "–"]
    assert repeated[["comparison", "run"]].values.tolist() == [
        ["RAG (trained) → Query expansion", "b"]
    ]


def test_a_repeated_row_is_a_fact_of_its_run(facts):
    assert facts[f"b: RAG trained → {EXPANSION} gained"] == "3"
    assert f"b: RAG trained → {EXPANSION} p corrected" not in facts


def test_p_is_corrected_for_the_rows_of_both_runs(facts):
    # Gained and lost, in the order of the systems.
    counts = [(7, 0), (1, 2), (0, 5), (6, 0), (2, 0), (7, 6)]
    systems = CORRECTED + ALSO_CORRECTED
    shown = [facts[f"RAG trained → {system} p corrected"] for system in systems]
    assert shown == [format_p(p) for p in adjust_p([mcnemar_p(*pair) for pair in counts])]


def test_p_is_not_rounded_before_it_is_corrected(facts):
    # 0.015625 of query expansion, times six; 0.016 would give 0.096.
    assert facts[f"RAG trained → {EXPANSION} p corrected"] == "0.094"


# Both runs.


def test_the_reader_of_the_second_run_is_compared_with_the_first(facts):
    counts = [facts[f"a → b: RAG trained {end}"] for end in ("n", "points", "gained", "lost")]
    assert counts == ["20", "+15.0", "3", "0"]


def test_query_expansion_of_both_runs_is_compared(facts):
    assert facts[f"a → b: {EXPANSION} points"] == "−5.0"


def test_only_systems_of_both_runs_are_compared_between_them(table):
    assert table.part("both runs").system.tolist() == ["RAG (trained)", "Query expansion"]


@pytest.mark.parametrize(
    "n_gained, n_lost, verdict",
    [
        (40, 40, "equivalent within ±0.75"),  # 0 ± 0.45 points of 4,000
        (150, 150, "not shown to be equivalent"),  # 0 ± 0.85
        (60, 40, "not shown to be equivalent"),  # +0.5 ± 0.5
        (40, 60, "not shown to be equivalent"),
    ],
)
def test_equivalence_needs_the_whole_interval_within_the_margin(n_gained, n_lost, verdict):
    others = "0" * (4000 - n_gained - n_lost)
    first = "0" * n_gained + "1" * n_lost + others
    second = "1" * n_gained + "0" * n_lost + others
    facts = build({RAG_TRAINED: first, CRAG: first}, {RAG_TRAINED: second, FAVE: second}).facts
    assert facts["a → b: RAG trained verdict"] == verdict


# Pairs within a run.


@pytest.fixture(scope="module")
def both_pairs():
    """The table of two runs that both have query expansion and CoV-RAG."""
    return build(FIRST | {COV_RAG: "0" * 20}, SECOND)


@pytest.mark.parametrize(
    "pair, points",
    [
        (f"{EXPANSION} → {COV_RAG}", "−5.0"),
        (f"{EXPANSION} → {EXPANSION_COMBINED}", "+15.0"),
        (f"{FAVE} → {COV_RAG}", "+15.0"),
    ],
)
def test_forms_with_a_verifier_are_compared_with_query_expansion_and_fave(facts, pair, points):
    assert facts[f"b: {pair} points"] == points


def test_a_pair_of_both_runs_is_a_fact_of_each(both_pairs):
    pair = f"{EXPANSION} → {COV_RAG}"
    assert both_pairs.facts[f"a: {pair} points"] == "−60.0"
    assert both_pairs.facts[f"b: {pair} points"] == "−5.0"


def test_a_fact_of_a_pair_names_its_run(facts):
    assert f"{EXPANSION} → {COV_RAG} points" not in facts


def test_every_comparison_has_facts_of_its_own(both_pairs):
    n_comparisons = sum(map(len, both_pairs.parts.values()))
    points = [name for name in both_pairs.facts if name.endswith(" points")]
    assert len(points) == n_comparisons


def test_runs_without_a_pair_have_no_such_part():
    table = build(FIRST, {RAG_TRAINED: SECOND[RAG_TRAINED]})
    assert not [heading for heading in table.parts if heading.startswith("Systems of the same")]


# The record.


def test_the_recorded_comparison_names_its_runs():
    run = readers.find_recorded()
    assert list(readers.find_sources(run)) == ["related", "related-2"]


@pytest.fixture
def backbone(tmp_path):
    """A folder with two recorded runs, without their data."""
    folder = tmp_path / "results" / "real" / "toy"
    for name, right in {"related": FIRST, "related-2": SECOND}.items():
        predictions = []
        for row in make_frame(right).itertuples():
            outcome = Outcome(row.normalised, row.normalised, row.normalised, *[None] * 4)
            question = Question(row.id, row.dataset, "", ())
            rounds = (Round("", (), "", outcome=outcome),)
            predictions.append(Prediction(question, row.system, rounds))
        save_predictions(folder / name / "related.predictions.jsonl.xz", predictions)
        parameters = Config().change(data=str(tmp_path / "no data")).flat()
        manifest = {"commit": "abc", "parameters": parameters, "adapters": {}, "data": {}}
        (folder / name / "related.manifest.json").write_text(json.dumps(manifest))
    return folder


def test_the_runs_of_the_sibling_folders_are_loaded(backbone):
    run = readers.record(backbone, ["related", "related-2"])
    facts = readers.build(readers.load(run), run).facts
    assert facts[f"RAG trained → {COV_RAG} points"] == "+10.0"


def test_the_manifest_is_that_of_the_last_run_with_the_names_of_all(backbone):
    readers.record(backbone, ["related", "related-2"])
    file = backbone / "related-2" / "related_readers.manifest.json"
    manifest = json.loads(file.read_text())
    assert manifest["runs"] == ["related", "related-2"]
    assert set(manifest) == {"commit", "parameters", "data", "runs"}


def test_make_check_builds_the_table_from_its_manifest(backbone, tmp_path):
    readers.record(backbone, ["related", "related-2"])
    tables = build_tables(tmp_path).tables  # without "related", which needs more files
    assert list(tables) == [Path("results/real/toy/related-2/related_readers")]


def test_the_command_writes_manifest_and_table(backbone, capsys):
    readers.main([str(backbone), "related", "related-2"])
    assert "RAG (trained) → Query expansion" in capsys.readouterr().out
    assert (backbone / "related-2" / "related_readers.facts.json").exists()


def test_a_folder_without_a_run_is_one_sentence(backbone, capsys):
    with pytest.raises(SystemExit) as ended:
        readers.main([str(backbone), "related", "related-3"])
    assert ended.value.code == 2
    assert "related-3/related.manifest.json: No such file" in capsys.readouterr().err


def test_a_run_that_is_named_twice_is_one_sentence(backbone, capsys):
    with pytest.raises(SystemExit) as ended:
        readers.main([str(backbone), "related", "related-2", "related"])
    assert ended.value.code == 2
    assert "related: named twice; name each run once" in capsys.readouterr().err


def test_the_plug_in_registers_the_table():
    assert all_tables()["related_readers"] == readers.__name__
