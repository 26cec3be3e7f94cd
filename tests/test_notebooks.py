"""Every notebook is thin, takes its defaults from config.py, and runs from both folders on a tiny model."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from covrag_lite import check
from covrag_lite.config import ROOT, Config, from_notebook

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Parameters that make a run small enough for a test.
SMALL = {
    "table2": {"n_questions": 1, "batch_tokens": 4096},
    "explore": {},
    "world": {},
    "figure4": {},
    "speed": {"speed_questions": 2, "speed_parts": "verdicts,batches,rounds"},
    "table3": {"predictions": "", "n_questions": 1, "batch_tokens": 4096},
    "table4": {"n_questions": 1, "batch_tokens": 4096},
    "table5": {"n_questions": 1, "batch_tokens": 4096},
    "table6": {"n_questions": 1, "batch_tokens": 4096, "encoder": "{encoder}"},
    "train": {
        "layout": "shared",
        "n_train_questions": 24,
        "n_questions": 1,
        "epochs": 1,
        "adapters_out": "{tmp}/adapters",
    },
}
WRITTEN = {
    "table6": {
        f"table6.{end}"
        for end in (
            "csv",
            "md",
            "png",
            "clean.png",
            "manifest.json",
            *(f"{name}.predictions.jsonl" for name in ("bm25", "dense", "fused")),
        )
    }
}


def cells(path):
    return [
        (cell["metadata"].get("tags", []), "".join(cell["source"]), cell.get("outputs"))
        for cell in json.loads(path.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_thin(path):
    lines = [
        line.strip()
        for _, source, _ in cells(path)
        for line in source.splitlines()
        if line.strip() and not line.strip().startswith("#")
    ]
    assert len(lines) <= 60
    assert not any(line.startswith(("def ", "class ", "try:", "!", "%")) or "sys.path" in line for line in lines)
    assert not any(outputs for _, _, outputs in cells(path)), "committed with outputs"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebooks_parameters_are_the_defaults_of_config(path):
    (source,) = [source for tags, source, _ in cells(path) if "parameters" in tags]
    for line in source.splitlines():
        code = line.split("#")[0]
        assert code.count("=") == 1 and "|" not in code and "#" in line, (
            f"papermill would drop it, or it is unexplained: {line}"
        )
    given = {node.target.id: ast.literal_eval(node.value) for node in ast.parse(source).body}
    assert from_notebook(given) == Config()


def papermill(notebook, output, folder, **parameters):
    words = [word for name, value in parameters.items() for word in ("-p", name, str(value))]
    command = [
        str(Path(sys.executable).parent / "papermill"),
        str(notebook),
        *([str(output)] if output else []),
        "--no-progress-bar",
        *words,
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_the_root(path, tmp_path, tiny_folder, tiny_encoder, monkeypatch):
    monkeypatch.setenv("COVRAG_CACHE", str(tmp_path / "cache"))
    small = {
        "model": tiny_folder,
        "runs": tmp_path / "runs",
        "figures": tmp_path / "figures",
        "name": "toy",
        **SMALL[path.stem],
    }
    small = {name: str(value).format(tmp=tmp_path, encoder=tiny_encoder) for name, value in small.items()}
    result = papermill(path, tmp_path / "out.ipynb", ROOT, **small)
    assert result.returncode == 0, result.stderr[-3000:]
    assert WRITTEN.get(path.stem, set()) <= {file.name for file in (tmp_path / "figures").rglob("*.*")}
    assert check.check(tmp_path)[0] == []  # what a table's notebook writes follows from what it records


def test_table2_runs_from_the_notebooks_folder_and_writes_everything(tmp_path, tiny_folder):
    small = {
        "model": tiny_folder,
        "runs": tmp_path / "runs",
        "figures": tmp_path / "figures",
        "name": "toy",
        **SMALL["table2"],
    }
    assert papermill("table2.ipynb", tmp_path / "out.ipynb", ROOT / "notebooks", **small).returncode == 0
    assert {file.name for file in (tmp_path / "figures" / "toy").iterdir()} == {
        f"table2.{end}" for end in ("csv", "md", "png", "predictions.jsonl", "manifest.json")
    }


def test_table3_judges_recorded_answers_without_a_model_and_writes_everything(tmp_path):
    result = papermill(
        "table3.ipynb",
        tmp_path / "out.ipynb",
        ROOT / "notebooks",
        runs=tmp_path / "runs",
        figures=tmp_path / "figures",
        name="toy",
        n_judged=2,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert {file.name for file in (tmp_path / "figures" / "toy").iterdir()} == {
        f"table3.{end}" for end in ("csv", "md", "png", "verdicts.jsonl", "manifest.json")
    }
    assert not (tmp_path / "runs").exists()
    shutil.copytree(
        ROOT / "results" / Config().judging.predictions, tmp_path / "results" / Config().judging.predictions
    )
    assert check.check(tmp_path)[0][1:] == []  # but that no README tells of these predictions


@pytest.mark.parametrize(
    "parameters, sentence",
    [({"n_question": 4}, "did you mean 'n_questions'"), ({"n_questions": "four"}, "must be a whole number")],
)
def test_a_bad_parameter_stops_papermill_before_any_work(parameters, sentence, tmp_path):
    result = papermill(
        ROOT / "notebooks" / "table2.ipynb", tmp_path / "out.ipynb", ROOT, runs=tmp_path / "runs", **parameters
    )
    assert result.returncode != 0 and sentence in result.stderr
    assert not (tmp_path / "runs").exists()


def test_papermill_needs_no_output_path(tmp_path):
    notebook = tmp_path / "nothing_to_do.ipynb"
    notebook.write_text(
        json.dumps(
            {
                "cells": [],
                "metadata": json.loads(NOTEBOOKS[0].read_text())["metadata"],
                "nbformat": 4,
                "nbformat_minor": 5,
            }
        )
    )
    result = papermill(notebook, None, tmp_path)
    copy = ROOT / "runs" / "executed" / "nothing_to_do.ipynb"
    assert result.returncode == 0 and copy.exists()
    copy.unlink()
