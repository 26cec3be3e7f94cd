"""Which recorded run is shown for a configuration, and a new table next to it, cell by cell."""

from dataclasses import replace

import pandas as pd
import pytest
from toy_project import find

from covrag_lite.labels import label_of
from covrag_lite.runs import recorded
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import choose
from covrag_lite.tables import table2
from covrag_lite.tables.reproduction import changed, differing_cells, reproduction


@pytest.fixture(scope="module")
def run(project):
    return find(project, "table2")


@pytest.fixture(scope="module")
def known(run):
    return recorded.load(run)


def with_parameters(manifest, **parameters):
    return manifest | {"parameters": manifest["parameters"] | parameters}


def test_a_recorded_run_tells_its_data_weights_code_and_machine(run):
    assert {name: part["n"] for name, part in run.manifest["data"].items()} == {"questions": 8, "passages": 1000}
    assert {"commit", "versions", "hardware", "wall_seconds", "peak_memory_gb"} <= set(run.manifest)
    assert (run.manifest["parameters"]["seed"], run.manifest["model_sha256"]) == (1, "scripted")
    assert "encoder_sha256" not in run.manifest  # BM25 has none


def test_a_new_table_is_compared_with_the_recorded_one_of_its_configuration(project, run, capsys):
    long = pd.read_csv(run.file("csv"))
    assert set(reproduction(long, run.manifest, project).verdict) == {"OK"}
    near = long.assign(value=long.value + 0.1)
    assert set(reproduction(near, run.manifest, project).verdict) == {"within noise"}
    assert reproduction(long, with_parameters(run.manifest, k=3), project) is None  # but the nearest is named
    printed = capsys.readouterr().out
    assert f"next to results/toy/table2.csv: OK {len(long)}, within noise 0, DIFFERS 0 of {len(long)} cells" in printed
    assert "nearest, results/toy/table2.csv, differs in k (3, recorded 5)" in printed


def test_a_notebook_lists_only_the_cells_that_are_not_the_recorded_number(project, run):
    long = pd.read_csv(run.file("csv"))
    assert differing_cells(long, run.manifest, project) is None
    moved = (long.system == "RAG") & (long.dataset == "quiz")
    cells = differing_cells(long.assign(value=long.value + 0.1 * moved), run.manifest, project)
    assert len(cells) == moved.sum() and set(cells.verdict) == {"within noise"}
    assert "recorded" in cells and set(cells.system) == {"RAG"}
    assert differing_cells(long, with_parameters(run.manifest, k=3), project) is None


@pytest.mark.parametrize(
    "table, cells, value, values_a_row",
    [
        ("table3", {"judge": "endpoint:toy"}, "value", 1),
        ("table6", {"retriever": "bm25", "measure": "answer"}, "last", 3),
    ],
)
def test_tables_with_other_columns_are_compared_with_the_recorded_ones_too(project, table, cells, value, values_a_row):
    run = find(project, table)
    long = pd.read_csv(run.file("csv"))
    made = reproduction(long, run.manifest, project)
    assert set(made.verdict) == {"OK"}
    assert len(made) == values_a_row * long.n.notna().sum()
    chosen = (long[list(cells)] == list(cells.values())).all(axis=1) & long.n.notna()
    moved = [name for name in long if name in (value, "low", "high", f"{value}_low", f"{value}_high")]
    long.loc[chosen, moved] += 99
    made = reproduction(long, run.manifest, project)
    differing = made[made.verdict == "DIFFERS"]
    assert len(differing) == chosen.sum() > 0
    assert all(set(differing[name]) == {wanted} for name, wanted in cells.items())


def test_an_adapter_is_told_by_its_weights_and_not_by_its_folder(run):
    here = run.manifest | {"adapters": {"cov": "aa"}}
    assert changed(here, run.manifest | {"adapters": {"cov": "bb", "rag": "cc"}}) == ["the adapter cov"]
    moved = with_parameters(here, adapters="elsewhere")
    assert changed(moved, run.manifest | {"adapters": {"cov": "aa", "rag": "cc"}}) == []
    assert changed(here, run.manifest | {"adapters": {}}) == ["having adapters"]


def test_a_run_is_told_with_its_weights_and_its_layout(run):
    other = replace(run, manifest=with_parameters(run.manifest, quantize="int8", layout="paper"))
    assert "toy: smollm2-135m (int8, paper layout) on " in recorded.tell(other)


def test_the_run_of_the_same_model_and_data_is_found_or_the_one_that_is_named_or_none(project, run):
    asked = run.config
    assert choose(asked, project).folder == project / "results" / "toy"
    assert choose(asked.change(n_questions=1, systems=("RAG",), device="cpu"), project) is not None
    for other in ({"model": "other"}, {"seed": 2}, {"k": 3}, {"quantize": "none"}, {"data": "elsewhere"}):
        assert choose(asked.change(**other), project) is None
    assert choose(run.config.change(model="other", record="toy"), project).table == "table2"
    assert choose(run.config.change(record="none"), project) is None
    with pytest.raises(ValueError, match="record is 'toys', but must be 'auto', 'none' or one of toy"):
        choose(run.config.change(record="toys"), project)


# Live rows next to recorded ones.


def test_a_changed_text_is_counted_with_its_outcome_and_other_differences_are_named(run, known):
    right = next(p for p in known if p.rounds[-1].answer == p.question.answers[0])
    *before, last = right.rounds
    for answer, alike in ((f"{right.answer}, surely", 1), ("another", 0)):
        new = replace(right, rounds=(*before, replace(last, answer=answer)))
        table = table2.compare_texts([new], known)
        text = table2.describe_texts(table, run.manifest, run)
        row = table.loc[label_of(right.system)]
        assert (row.questions, row[table2.SAME_TEXT], row[table2.SAME_OUTCOME]) == (1, 0, alike)
        assert text.startswith(f"0 of 1 live predictions repeat every recorded text; {alike} have the same outcome")
    other = with_parameters(run.manifest, n_questions=1, k=3) | {"model_sha256": "other"}
    text = table2.describe_texts(table2.compare_texts(known, known), other, run)
    assert text.endswith("they also differ in k (3, recorded 5); the weights of the model.")
    assert "n_questions" not in text  # a sample always has fewer


def test_live_rows_are_below_the_recorded_ones_of_their_system(known):
    frame = to_frame(known)
    assert list(table2.recorded_and_live(frame).index) == ["RAG (untuned)", "CoV-RAG, first answer", "CoV-RAG"]
    some = frame[(frame.system == "CoV-RAG") & frame.dataset.isin(["search", "quiz"])]
    table = table2.recorded_and_live(frame, some)
    assert list(table.index) == [("CoV-RAG", "recorded"), ("CoV-RAG", "live")]
    assert list(table.n) == [8, 4]
    assert table.loc[("CoV-RAG", "live"), "entity questions"] == "–"
    assert table.loc[("CoV-RAG", "live"), "quiz questions"].endswith(" of 2")  # too few for a share


def test_live_rows_without_a_record_are_shown_and_saved_with_their_labels(known, run, tmp_path):
    table = table2.recorded_and_live(to_frame([]), to_frame(known))
    assert {answered for _, answered in table.index} == {"live"}
    texts = table2.compare_texts(known, [])
    text = table2.describe_texts(texts, run.manifest, None)
    assert texts.empty and "none of the live questions is recorded" in text
    assert table2.save_live(tmp_path / "deep", table, texts, text) == text
    assert "| CoV-RAG, first answer | live" in (tmp_path / "deep" / "table2.live.md").read_text()


def test_the_live_answers_are_listed_with_gold_answer_and_revised_question(known):
    table = table2.list_answers(known)
    cov = [p for p in known if p.system == "CoV-RAG"]
    assert table.question.tolist() == [p.question.question for p in cov]
    assert table["gold answer"].tolist() == [p.question.answers[0] for p in cov]
    marks = ["✓" if p.answer == p.question.answers[0] else "✗" for p in cov]
    assert [cell[0] for cell in table["CoV-RAG"]] == marks and len(set(marks)) == 2
    revised = replace(cov[0], rounds=(cov[0].rounds[0], replace(cov[0].rounds[0], query="another query")))
    assert table2.list_answers([revised, cov[1]])["revised question"].tolist() == ["another query", "–"]
