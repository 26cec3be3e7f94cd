"""The whole replication on the embedded world, in small: every stage runs, and what is recorded can be made anew."""

import pytest
import toy_project

from covrag_lite import recipe, replication
from covrag_lite.config import Config
from covrag_lite.data import load_questions
from covrag_lite.runs.choice import OTHERWISE_ALIKE, changed_parameters
from covrag_lite.runs.recorded import find
from covrag_lite.tables import find_table
from covrag_lite.task_model import TaskModel

WORLD = {"n_passages": 1000, "n_world": (8, 20, 8)}
SMALL = {
    "n_worlds": 1,
    "k": 2,
    "epochs": 1,
    "lora_rank": 2,
    "max_answer_tokens": 4,
    "max_revised_tokens": 4,
    "n_questions": 1,
    "retrievers": "bm25",
}


class Knowing(TaskModel):
    """A seed model that is right about every other question, as no random one is."""

    def answer(self, x, k):
        learnt = Config().change(**WORLD, split="train", n_questions=0)
        known = {one.question: one.answers[0] for one in load_questions(learnt)}
        return [known.get(text, "nobody") if i % 2 else "nobody[1]" for i, text in enumerate(x)]


@pytest.fixture
def plan(tiny_folder, tmp_path, monkeypatch):
    load = recipe.load_trained

    def load_knowing(config, adapter):
        author = load(config, adapter)
        return Knowing(author.settings, author.model, author.journal)

    monkeypatch.setattr(recipe, "load_trained", load_knowing)
    toy_project.undraw(monkeypatch)
    given = WORLD | SMALL | {"model": str(tiny_folder), "runs": str(tmp_path / "runs")}
    return replication.load_plans("smollm2-135m-world", given)[0]


def test_every_stage_of_the_world_runs_and_what_it_records_can_be_read_again(plan, tmp_path):
    table = replication.replicate([plan], replication.STAGES)
    assert tuple(table.stage) == replication.STAGES
    results = plan.results.rename(tmp_path / "results")
    runs = find(tmp_path)
    assert [run.table for run in runs] == ["claim", "sigma", "table2", "table4", "table5", "table6"]
    assert all(len(find_table(run.table).load(run)) for run in runs)
    names = {path.name for path in results.iterdir() if path.is_file()}
    for table in ("claim", "table2", "table4", "table5"):
        ends = ("csv", "manifest.json", "md", "predictions.jsonl.gz")
        assert {f"{table}.{end}" for end in ends} <= names
    assert {"table6.bm25.predictions.jsonl.gz", "table6.csv"} <= names
    assert {f"train.{method}.json" for method in replication.METHODS} <= names


def test_the_worlds_run_differs_from_the_defaults_in_nothing_that_its_notebooks_compare():
    config = replication.load_plans("smollm2-135m-world", {})[0].testing()
    assert changed_parameters(Config(), config, OTHERWISE_ALIKE) == []
