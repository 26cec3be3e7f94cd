"""The check: recorded numbers follow from the predictions, and a changed number is found."""

import json
import lzma
import re
import shutil
import sys
from types import SimpleNamespace

import pandas as pd
import pytest
from conftest import write_jsonl
from toy_project import find

from covrag_lite.check import check, check_pages, try_to_load
from covrag_lite.data import load_questions
from covrag_lite.runs.outcomes import read_packed
from covrag_lite.runs.recorded import load_or_outcomes
from covrag_lite.tables import TABLES, Table


@pytest.fixture
def judged(project, tmp_path):
    """A copy of the project with Tables 2 and 3 only, which halves the time of a check."""
    return shutil.copytree(project, tmp_path / "copy", ignore=shutil.ignore_patterns("table6.*", "runs"))


@pytest.fixture
def alone(judged):
    """A copy of the project with Table 2 only."""
    for file in judged.glob("results/toy/table3.*"):
        file.unlink()
    return judged


def test_an_untouched_record_follows_and_facts_whose_code_left_the_tree_are_taken_as_recorded(project, alone):
    assert check(project) == ([], [])
    assert re.search(r"CoV-RAG answers [\d.]+ % of 8,\n\+0 of 8 points more", (project / "README.md").read_text())
    (alone / "results" / "toy" / "gone.facts.json").write_text('{"gain": "+1.5"}')
    template = alone / "README.template.md"
    template.write_text(template.read_text() + "Formerly {toy/gone | gain}.\n")
    page = alone / "README.md"
    page.write_text(page.read_text() + "Formerly +1.6.\n")
    (wrong,), (note,) = check(alone)
    assert "recorded +1.6., recomputed +1.5." in wrong and "gone.facts.json: taken as recorded" in note


def test_one_altered_prediction_is_found(judged, tmp_path):
    run = find(judged, "table2")
    file = run.file("predictions.jsonl.xz")
    lines = [json.loads(line) for line in read_packed(file).splitlines()]
    gold = {question.id: question.answers[0] for question in load_questions(run.config)}
    lasts = [(gold[line["id"]], line["rounds"][line["systems"]["CoV-RAG"][0][-1]]) for line in lines]
    right, wrong = next((right, last) for right, last in lasts if right not in last["answer"])
    wrong["answer"] = right
    file.write_bytes(lzma.compress(write_jsonl(tmp_path / "lines", lines).read_bytes()))
    ends = (
        "table2.csv",
        "table2.md",
        "table2.facts.json",
        "table3.csv",
        "table3.md",
        "table3.facts.json",
        "table3.verdicts.jsonl",
    )
    assert {line.split(",")[0] for line in check(judged)[0]} == {"README.md", *(f"results/toy/{end}" for end in ends)}


def alter(file, was, now):
    file.write_text(file.read_text().replace(was, now))


def test_one_altered_number_of_a_page_a_table_or_a_fact_is_found_with_both_values_and_a_page_is_written_anew(alone):
    run = find(alone, "table2")
    facts, table = json.loads(run.file("facts.json").read_text()), run.file("csv").read_text()
    share, fact = facts["CoV-RAG average"], f'"CoV-RAG average n": "{facts["CoV-RAG average n"]}",'
    row = re.search("^table2,entity,RAG,.*,raw,.*$", table, re.MULTILINE)[0]
    alter(alone / "README.md", f"answers {share} %", "answers 99.9 %")
    alter(run.file("facts.json"), fact, '"CoV-RAG average n": "9",')
    alter(run.file("csv"), row, f"{row}77")
    assert [re.sub(r", line \d+", "", line) for line in check(alone)[0]] == [
        f"results/toy/table2.csv: recorded {row}77, recomputed {row}",
        f'results/toy/table2.facts.json: recorded "CoV-RAG average n": "9",, recomputed {fact}',
        f"README.md: recorded 99.9, recomputed {share}",
    ]
    run.file("csv").write_text(f"{table}{row}\n")
    twice = [f"results/toy/table2.csv, line {len(table.splitlines()) + 1}: recorded {row}, recomputed nothing"]
    assert check(alone, write=True)[0] == twice == check(alone)[0]  # page and facts are as they were


def test_only_a_rebuild_replaces_a_recorded_table(alone):
    file = find(alone, "table2").file("csv")
    table = file.read_text()
    file.write_text(table.replace("table2,", "table2 ,", 1))
    assert check(alone, write=True)[0] != []
    assert check(alone, write=True, rebuild=True)[0] == []
    assert file.read_text() == table


# The rubric's verdicts are computed again; a served judge's are kept, and its table must follow.
@pytest.mark.parametrize(
    "judge, ends", [("rubric (proxy)", {"verdicts.jsonl"}), ("endpoint:toy", {"csv", "md", "facts.json"})]
)
def test_a_score_that_no_judge_gave_is_found(judged, judge, ends):
    file = find(judged, "table3").file("verdicts.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    altered = next(row for row in rows if row["judge"] == judge)
    altered["scores"]["conciseness"]["CoV-RAG"] = 0.0
    write_jsonl(file, rows)
    assert {line.split(",")[0] for line in check(judged)[0]} == {f"results/toy/table3.{end}" for end in ends}


@pytest.mark.parametrize(
    "name", ["table2.predictions.jsonl.xz", "table3.verdicts.jsonl", "table6.backwards.predictions.jsonl.xz"]
)
def test_what_a_table_was_made_from_cannot_be_left_out_nor_torn(project, name, tmp_path):
    root = shutil.copytree(project, tmp_path / "copy")
    file, run, told = root / "results" / "toy" / name, find(root, name.partition(".")[0]), []
    if file.suffix == ".xz":
        file.write_bytes(file.read_bytes()[:-20])
        assert try_to_load(run, root, told, []) is None and f"{name} is damaged" in told.pop()
    file.unlink()
    assert try_to_load(run, root, told, []) is None
    assert told == [f"results/toy/{run.table}.manifest.json: not checked, {name} is missing"]


def test_a_page_may_only_name_facts_of_recorded_runs(tmp_path):
    text = "# Toy\n{toy/table2 | GPT-9 average} %\n{gone/table2 | RAG average}\n"
    (tmp_path / "README.template.md").write_text(text)
    assert check_pages(tmp_path, {"toy/table2": {"RAG average": "9"}}, write=True) == [
        "the template of README.md: {toy/table2 | GPT-9 average} is not a fact of a recorded run",
        "the template of README.md: {gone/table2 | RAG average} is not a fact of a recorded run",
    ]
    assert (tmp_path / "README.md").read_text() == text  # and their values are not invented


def test_the_prose_of_a_notebook_is_filled_in_and_checked_too(tmp_path):
    template, facts = ["Text.\n", "{toy/table2 | n} questions"], {"toy/table2": {"n": "8"}}
    cells = [
        {"cell_type": "code", "metadata": {}, "source": template},
        {"cell_type": "markdown", "metadata": {"template": template}, "source": ["Text.\n", "9 questions"]},
    ]
    notebook = tmp_path / "notebooks" / "toy.ipynb"
    notebook.parent.mkdir()
    notebook.write_text(json.dumps({"cells": cells}))
    assert check_pages(tmp_path, facts, False) == ["notebooks/toy.ipynb, cell 1, line 2: recorded 9, recomputed 8"]
    assert check_pages(tmp_path, facts, write=True) == [] == check_pages(tmp_path, facts, False)
    code, prose = json.loads(notebook.read_text())["cells"]
    assert code["source"] == template and prose["source"] == ["Text.\n", "8 questions"]


def test_other_data_than_the_recorded_is_no_basis_for_a_score(alone):
    file, told = find(alone, "table2").file("manifest.json"), []
    file.write_text(file.read_text().replace('"seed": 1', '"seed": 2'))
    assert try_to_load(find(alone, "table2"), alone, told, []) is None
    assert "questions: this configuration has other data than the run" in told[0]


def count(predictions, run):
    rows = pd.DataFrame({"what": ["predictions"], "value": [len(predictions)]})
    return Table(run.table, rows, facts={"predictions": str(len(predictions))})


def test_a_table_is_one_file_and_one_entry(alone, monkeypatch):
    monkeypatch.setitem(sys.modules, "counting", SimpleNamespace(load=load_or_outcomes, build=count))
    monkeypatch.setitem(TABLES, "counted", "counting")
    run = find(alone, "table2")
    for end in ("manifest.json", "predictions.jsonl.xz"):
        shutil.copy(run.file(end), run.folder / f"counted.{end}")
    (run.folder / "counted.csv").write_text("what,value\npredictions,25\n")
    (alone / "results" / "README.template.md").write_text("{toy/counted | predictions} predictions\n")
    said = "results/toy/counted.csv, line 2: recorded predictions,25, recomputed predictions,24"
    assert check(alone, write=True)[0] == [said]
    assert (alone / "results" / "README.md").read_text() == "24 predictions\n"
