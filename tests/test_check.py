"""What is recorded follows from the predictions, and a number that was changed by hand is found."""

import json
import re
import shutil

import pandas as pd
import pytest

from covrag_lite import check, evaluation, recorded, report
from covrag_lite.config import ROOT, Config, Data, Run, World
from covrag_lite.data import load_passages, load_questions
from covrag_lite.journal import Journal
from covrag_lite.retrieval import load_retriever

CLAIMS = "CoV-RAG answers {CoV-RAG average} % of {CoV-RAG average n}, {CoV-RAG-S → CoV-RAG points} points more.\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project folder with one recorded run of a scripted model over a small world, and a README that tells of it."""
    from conftest import ScriptedModel

    root = tmp_path_factory.mktemp("project")
    config = Config(world=World(n_passages=1000, n_test=4), data=Data(n_questions=2), run=Run(runs=str(root / "runs"))).with_chain(systems=("RAG", "CoV-RAG-S", "CoV-RAG"))
    questions, passages = load_questions(config), load_passages(config)
    model = ScriptedModel(config.model)
    model.generate = lambda prompts, limit: [questions[i % 3].answers[0] for i, _ in enumerate(prompts)]
    tools = evaluation.bind(config, load_retriever(config.retrieval, passages), model, Journal(root / "runs" / "journal.jsonl"))
    run = recorded.Recorded(root / "results" / "toy", "table2", evaluation.manifest(config, model, 1.0, questions=questions, passages=passages))
    predictions = evaluation.run(config, tools, questions)
    evaluation.save_predictions(run.file("predictions.jsonl"), predictions)
    evaluation.save_manifest(run.file("manifest.json"), run.manifest)
    check.make_accuracy(run, predictions, run.folder)
    run.file("claims.md").write_text(CLAIMS)
    (root / "README.md").write_text("# Toy\n\n<!-- made from results/toy/table2.claims.md -->\n<!-- end -->\n\nAnd 12 more.\n")
    assert check.check(root, write=True)[0] == []
    return root


@pytest.fixture
def copy(project, tmp_path):
    shutil.copytree(project, tmp_path / "copy")
    return tmp_path / "copy"


def test_an_untouched_record_follows_to_the_last_number(copy):
    assert check.check(copy) == ([], [])
    assert re.search(r"CoV-RAG answers [\d.]+ % of 8, 0.0 points more", (copy / "README.md").read_text())


def test_one_altered_prediction_is_found(copy):
    file = copy / "results" / "toy" / "table2.predictions.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    wanted = {q.id: q.answers[0] for q in load_questions(recorded.find(copy)[0].config)}
    wrong = next(row for row in rows if row["system"] == "CoV-RAG" and wanted[row["id"]] not in row["rounds"][-1]["answer"])
    wrong["rounds"][-1]["answer"] = wanted[wrong["id"]]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines, _ = check.check(copy)
    assert {line.split(",")[0] for line in lines} == {"results/toy/table2.csv", "results/toy/table2.md", "README.md"}


def test_one_altered_readme_number_is_found_with_both_values(copy):
    readme = copy / "README.md"
    was = re.search(r"answers ([\d.]+) %", readme.read_text())[1]
    readme.write_text(readme.read_text().replace(f"answers {was} %", "answers 99.9 %"))
    assert check.check(copy)[0] == [f"README.md, line 4: recorded 99.9, recomputed {was}"]


def test_one_altered_csv_value_is_found_by_its_cell(copy):
    file = copy / "results" / "toy" / "table2.csv"
    table = pd.read_csv(file)
    row = table.index[(table.system == "RAG") & (table.dataset == "webq") & (table.metric == "raw")][0]
    was, table.loc[row, "value"] = table.loc[row, "value"], 77.0
    table.to_csv(file, index=False, float_format="%.2f")
    assert check.check(copy)[0] == [f"results/toy/table2.csv, smollm2-135m / webq / RAG / raw, value: recorded 77.00, recomputed {was:.2f}"]


def test_prose_may_only_name_numbers_of_its_run(copy):
    (copy / "results" / "toy" / "table2.claims.md").write_text("{GPT-9 average} %\n")
    assert check.check(copy)[0] == ["results/toy/table2.claims.md: 'GPT-9 average' is no number of that run"]


def test_a_block_cannot_be_left_out_of_the_readme(copy):
    (copy / "README.md").write_text("CoV-RAG answers 99.9 %\n")
    assert check.check(copy)[0] == ["README.md: nothing is made from results/toy/table2.claims.md"]


def test_other_data_than_the_recorded_is_no_basis_for_a_score(copy):
    file = copy / "results" / "toy" / "table2.manifest.json"
    file.write_text(file.read_text().replace('"seed": 1', '"seed": 2'))
    assert "the questions of this configuration are no longer those of the run" in check.check(copy)[0][0]


def test_a_new_table_is_held_against_the_recorded_one_of_its_configuration(copy, capsys):
    run = recorded.find(copy)[0]
    long = report.accuracy_table(evaluation.to_frame(recorded.load(run)), "table2")
    assert set(recorded.reproduction(long, run.manifest, copy).verdict) == {"OK"}
    near, far = long.assign(value=long.value + 0.1), long.assign(value=long.value + 90, low=long.low + 90, high=long.high + 90)
    assert set(recorded.reproduction(near, run.manifest, copy).verdict) == {"within noise"}
    assert "DIFFERS" in set(recorded.reproduction(far, run.manifest, copy).verdict)
    faster = run.manifest | {"parameters": run.manifest["parameters"] | {"batch_tokens": 99, "device": "cuda", "name": "mine"}}
    assert len(recorded.reproduction(long, faster, copy)) == len(long)
    capsys.readouterr()
    other = run.manifest | {"parameters": run.manifest["parameters"] | {"k": 3}}
    assert recorded.reproduction(long, other, copy) is None
    assert "nearest, results/toy/table2.csv, differs in k (3, recorded 5)" in capsys.readouterr().out


def test_an_adapter_is_told_by_its_weights_and_not_by_its_folder(copy, capsys):
    run = recorded.find(copy)[0]
    here, there = run.manifest | {"adapters": {"cov": "aa"}}, run.manifest | {"adapters": {"cov": "bb", "rag": "cc"}}
    assert recorded.changed(here, there) == ["the adapter cov"]
    moved = {**here, "parameters": here["parameters"] | {"adapters": "elsewhere"}}
    assert recorded.changed(moved, here | {"adapters": {"cov": "aa", "rag": "cc"}}) == []
    assert recorded.changed(here, {name: value for name, value in run.manifest.items() if name != "adapters"}) == []  # not known: said in words


def test_every_number_this_project_records_follows_from_its_predictions():
    assert check.check(ROOT)[0] == []
