"""Related systems as stages of the one command: they are trained for, run and recorded, and a kill loses nothing."""

import json
import shutil

import pytest
import toy_project
from conftest import write_jsonl

from covrag_lite import recipe, replication
from covrag_lite.check import check
from covrag_lite.engine.interface import Completion
from covrag_lite.prompts import render_verdict
from covrag_lite.records import Sample
from covrag_lite.related import a2r, fave
from covrag_lite.runs.outcomes import read_packed
from covrag_lite.runs.recorded import find
from covrag_lite.task_model import TaskModel

TOWNS = ("Aldermere", "Stonebridge", "Harrow", "Stell", "Marrow", "Kettering", "Ostwick", "Penfold", "Ravens", "Sallow")
SMALL = {"k": 2, "quantize": "none", "device": "cpu", "lora_rank": 2, "max_answer_tokens": 3, "max_revised_tokens": 3}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_folder, tiny_encoder):
    """Parameters of a run on made-up questions about towns, whose adapters and heads are trained already."""
    home = tmp_path_factory.mktemp("trained")

    def ask(name, numbers):
        for i in numbers:
            town, other = TOWNS[i % 10], TOWNS[i * 7 % 10].lower()
            question = f"which river of number {i} in the land of {other} flows through the old town of {town}"
            yield {"id": f"{name}{i}", "question": question, "answers": [f"River {town} {i}"], "gold_passage": f"p{i}"}

    sets = {"nq": range(3), "webq": range(3, 6), "train_nq": range(6, 22), "validation_nq": range(22, 28)}
    for name, numbers in sets.items():
        write_jsonl(home / "towns" / f"{name}.jsonl", ask(name, numbers))
    texts = [f"{TOWNS[i % 10]} is an old town. River {TOWNS[i % 10]} {i} flows through it." for i in range(30)]
    corpus = [{"id": f"p{i}", "title": TOWNS[i % 10], "text": text} for i, text in enumerate(texts)]
    write_jsonl(home / "towns" / "corpus.jsonl", corpus)
    own = {"data": str(home / "towns"), "model": str(tiny_folder), "encoder": str(tiny_encoder), "n_learnt": 20}
    given = SMALL | own | {"runs": str(home / "runs")}
    plan = load(given)
    for method in ("rag", "cov"):  # after one step
        plan.folder.mkdir(parents=True, exist_ok=True)
        samples = [Sample(str(i), "answer", f"question {i}", ("an answer",)) for i in range(3)]
        recipe.save_samples(plan.folder / f"{method}.samples.jsonl.gz", samples)
    replication.replicate([plan], ["rag", "cov", "learners"])
    (plan.folder / "plan.json").unlink()  # which says where it was begun
    return given


@pytest.fixture
def given(trained, tmp_path, monkeypatch):
    """The same parameters over copies of data and runs."""
    toy_project.undraw(monkeypatch)
    few = {"SESSIONS": (fave, 2), "PLAN_TOKENS": (fave, 2), "REFINEMENTS": (a2r, 1), "FEEDBACK_TOKENS": (a2r, 6)}
    for name, (module, value) in few.items():
        monkeypatch.setattr(module, name, value)
    shutil.copytree(trained["data"], tmp_path / "towns")
    shutil.copytree(trained["runs"], tmp_path / "runs")
    return trained | {"data": str(tmp_path / "towns"), "runs": str(tmp_path / "runs")}


@pytest.fixture
def plan(given):
    return load(given)


def load(given, **changes):
    return replication.load_plans("smollm2-135m", given | changes, (1,))[0]


def read(path):
    return read_packed(path) if path.suffix in (".gz", ".xz") else path.read_bytes().decode("latin-1")


def test_related_systems_are_trained_for_run_and_recorded_by_the_command(plan, tmp_path, capsys):
    table = replication.replicate([plan], replication.RELATED)
    assert table.stage.tolist() == ["learners", "related"]
    assert "CRAG: 6 questions in" in (said := capsys.readouterr().out)
    assert said.rstrip().endswith((plan.results / "related.md").read_text().rstrip())  # the table stands at the end
    ends = "csv md facts.json manifest.json predictions.jsonl.xz outcomes.csv.gz qualities.csv.gz costs.csv"
    for name in (*(f"related.{end}" for end in ends.split()), "train.evaluator.json", "train.entailment.json"):
        assert (plan.results / name).exists(), name
    manifest = json.loads((plan.results / "related.manifest.json").read_text())
    assert set(manifest["adapters"]) == {"rag", "cov", "evaluator", "entailment"}
    assert manifest["data"]["questions"]["n"] == 6
    rows = [json.loads(line) for line in read(plan.results / "related.predictions.jsonl.xz").splitlines()]
    assert list(dict.fromkeys(row["system"] for row in rows)) == list(plan.config.related.related_systems)
    root = tmp_path / "project" / "results" / "real" / "toy"
    root.mkdir(parents=True)
    shutil.copytree(plan.results, root / "seed-1", ignore=shutil.ignore_patterns("adapters", "journal*", "train*"))
    shutil.rmtree(tmp_path / "towns")
    assert [run.table for run in find(tmp_path / "project")] == ["related"]
    wrong, notes = check(tmp_path / "project")  # without the data
    assert wrong == []
    assert not any("related.csv" in note for note in notes)


def test_a_killed_run_goes_on_and_ends_with_the_bytes_of_an_unbroken_one(given, tmp_path, monkeypatch):
    given |= {"related_systems": "RAG trained,A²R,FaVe"}
    shutil.copytree(tmp_path / "runs", tmp_path / "again")
    plan, other = load(given), load(given, runs=str(tmp_path / "again"))
    replication.replicate([plan], ["related"])
    real, asked = TaskModel.compute, []

    def dying(*given):
        if len(asked) == 5:
            raise KeyboardInterrupt
        asked.append(given)
        return real(*given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TaskModel, "compute", dying)
        replication.replicate([other], ["related"])
    lines = (other.results / "journal.related.jsonl").read_text().splitlines()
    replication.replicate([other], ["related"])
    assert (other.results / "journal.related.jsonl").read_text().splitlines()[: len(lines)] == lines
    for name in ("predictions.jsonl.xz", "outcomes.csv.gz", "qualities.csv.gz", "csv"):
        assert (plan.results / f"related.{name}").read_bytes() == (other.results / f"related.{name}").read_bytes(), name


def test_no_question_is_recorded_though_every_text_of_the_model_copies_it(plan, monkeypatch, tmp_path):
    lines = [line for name in ("nq", "webq") for line in open(tmp_path / "towns" / f"{name}.jsonl")]
    texts = [json.loads(line)["question"] for line in lines]

    def copy(self, stage, batch, *_):
        copied = [next(text for text in texts if text[:32].lower() in prompt.lower()) for prompt in batch]
        cut = [text[:-7].upper() if stage == "plan" else text.capitalize() for text in copied]
        if stage == "verify":
            cut = [render_verdict([0.5] * 6, "false", text) for text in cut]
        return [Completion(f"1. {text}" if stage == "plan" else text) for text in cut]

    monkeypatch.setattr(TaskModel, "compute", copy)
    replication.replicate([plan], ["related"])
    for file in plan.results.glob("related.*"):
        for text in texts:
            assert text.lower()[:32] not in read(file).lower(), file.name
    rows = [json.loads(line) for line in read(plan.results / "related.predictions.jsonl.xz").splitlines()]
    (planned,) = [row for row in rows if (row["system"], row["id"]) == ("FaVe", "nq0")]
    assert planned["rounds"][0]["query"].startswith("⟨question")


def test_what_is_missing_is_named_with_the_command_that_makes_it(given, tmp_path):
    bare, headless = load(given, runs=str(tmp_path / "none"), related_systems="RAG trained,CRAG"), load(given)
    headless.learnt.unlink()
    for plan, missing in ((bare, ["rag", "learners"]), (headless, ["learners"])):
        command = f"run python -m covrag_lite.replication smollm2-135m --stages {','.join(missing)}, with"
        with pytest.raises(FileNotFoundError, match=f"the related systems need {', '.join(missing)}: {command}"):
            replication.replicate([plan], ["related"])
        assert not (plan.results / "related.md").exists()
