"""Related systems as stages of the one command: they are trained for, run and recorded, and a kill loses nothing."""

import json
import shutil
from functools import partial

import pytest
import toy_project
from conftest import write_jsonl

from covrag_lite import recipe, replication, task_model
from covrag_lite.check import check
from covrag_lite.engine.interface import Completion
from covrag_lite.prompts import render_verdict
from covrag_lite.records import Sample
from covrag_lite.related import a2r, fave
from covrag_lite.runs.outcomes import read_packed
from covrag_lite.runs.recorded import find

TOWNS = ("Aldermere", "Stonebridge", "Harrow", "Stell", "Marrow", "Kettering", "Ostwick", "Penfold", "Ravens", "Sallow")
SMALL = {"k": 2, "quantize": "none", "device": "cpu", "lora_rank": 2, "max_answer_tokens": 3, "max_revised_tokens": 3}


@pytest.fixture
def given(tmp_path, tiny_folder, tiny_encoder, monkeypatch):
    """Parameters of a run on made-up questions about towns."""
    data = tmp_path / "towns"

    def ask(name, numbers):
        for i in numbers:
            town, other = TOWNS[i % 10], TOWNS[i * 7 % 10].lower()
            question = f"which river of number {i} in the land of {other} flows through the old town of {town}"
            yield {"id": f"{name}{i}", "question": question, "answers": [f"River {town} {i}"], "gold_passage": f"p{i}"}

    write_jsonl(data / "nq.jsonl", ask("nq", range(3)))
    write_jsonl(data / "webq.jsonl", ask("webq", range(3, 6)))
    write_jsonl(data / "train_nq.jsonl", ask("train", range(6, 22)))
    write_jsonl(data / "validation_nq.jsonl", ask("valid", range(22, 28)))
    texts = [f"{TOWNS[i % 10]} is an old town. River {TOWNS[i % 10]} {i} flows through it." for i in range(30)]
    corpus = [{"id": f"p{i}", "title": TOWNS[i % 10], "text": text} for i, text in enumerate(texts)]
    write_jsonl(data / "corpus.jsonl", corpus)
    toy_project.undraw(monkeypatch)
    monkeypatch.setattr(fave, "SESSIONS", 2)
    monkeypatch.setattr(a2r, "REFINEMENTS", 1)
    own = {"data": str(data), "model": str(tiny_folder), "encoder": str(tiny_encoder)}
    return SMALL | own | {"runs": str(tmp_path / "runs"), "n_learnt": 20}


@pytest.fixture
def plan(given):
    return load(given)


def load(given, **changes):
    return replication.load_plans("smollm2-135m", given | changes, (1,))[0]


def give_adapters(plan):
    """The adapters that the systems answer with, after one step."""
    for method in ("rag", "cov"):
        plan.folder.mkdir(parents=True, exist_ok=True)
        samples = [Sample(str(i), "answer", f"question {i}", ("an answer",)) for i in range(3)]
        recipe.save_samples(plan.folder / f"{method}.samples.jsonl.gz", samples)
    replication.replicate([plan], ["rag", "cov"])


def read(path):
    return read_packed(path) if path.suffix in (".gz", ".xz") else path.read_bytes().decode("latin-1")


def test_related_systems_are_trained_for_run_and_recorded_by_the_command(plan, tmp_path, capsys):
    give_adapters(plan)
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
    assert list(dict.fromkeys(row["system"] for row in rows)) == list(plan.related.related_systems)
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
    plan = load(given)
    give_adapters(plan)
    replication.replicate([plan], ["learners"])
    shutil.copytree(tmp_path / "runs", tmp_path / "again")
    replication.replicate([plan], ["related"])
    other = load(given, runs=str(tmp_path / "again"))
    (other.folder / "plan.json").unlink()
    real, asked = task_model.write_journaled, []

    def dying(stage, keys, texts, write, *rest):
        def write_few(batch):
            if len(asked) == 5:
                raise KeyboardInterrupt
            asked.append(stage)
            return write(batch)

        return real(stage, keys, texts, write_few, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(task_model, "write_journaled", dying)
        replication.replicate([other], ["related"])
    lines = (other.results / "journal.related.jsonl").read_text().splitlines()
    replication.replicate([other], ["related"])
    assert (other.results / "journal.related.jsonl").read_text().splitlines()[: len(lines)] == lines
    for name in ("predictions.jsonl.xz", "outcomes.csv.gz", "qualities.csv.gz", "csv"):
        assert (plan.results / f"related.{name}").read_bytes() == (other.results / f"related.{name}").read_bytes(), name


def test_no_question_is_recorded_though_every_text_of_the_model_copies_it(plan, monkeypatch, tmp_path):
    give_adapters(plan)
    replication.replicate([plan], ["learners"])
    texts = [
        json.loads(line)["question"] for name in ("nq", "webq") for line in open(tmp_path / "towns" / f"{name}.jsonl")
    ]

    real = task_model.write_journaled

    def copy(stage, batch):
        copied = [next(text for text in texts if text[:32].lower() in prompt.lower()) for prompt in batch]
        cut = [text[:-7].upper() if stage == "plan" else text.capitalize() for text in copied]
        if stage == "verify":
            cut = [render_verdict([0.5] * 6, "false", text) for text in cut]
        return [Completion(f"1. {text}" if stage == "plan" else text) for text in cut]

    def write_copies(stage, keys, texts, write, *rest):
        return real(stage, keys, texts, partial(copy, stage), *rest)

    monkeypatch.setattr(task_model, "write_journaled", write_copies)
    replication.replicate([plan], ["related"])
    for file in plan.results.glob("related.*"):
        for text in texts:
            assert text.lower()[:32] not in read(file).lower(), file.name
    rows = [json.loads(line) for line in read(plan.results / "related.predictions.jsonl.xz").splitlines()]
    (planned,) = [row for row in rows if (row["system"], row["id"]) == ("FaVe", "nq0")]
    assert planned["rounds"][0]["query"].startswith("⟨question")


def test_what_is_missing_is_named_with_the_command_that_makes_it(given, monkeypatch):
    plan = load(given, related_systems="RAG trained,CRAG")
    command = "run python -m covrag_lite.replication smollm2-135m --stages"
    told = f"the related systems need rag, learners: {command} rag,learners, with the parameters of"
    with pytest.raises(FileNotFoundError, match=told):
        replication.replicate([plan], ["related"])
    give_adapters(plan)
    with pytest.raises(FileNotFoundError, match=f"need learners: {command} learners, with"):
        replication.replicate([plan], ["related"])
    assert not (plan.results / "related.md").exists()
