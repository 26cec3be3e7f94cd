"""The replication command: finished stages are skipped, settings are printed, every stage runs."""

import json
from functools import partial

import pytest
import toy_project
from conftest import write_jsonl

from covrag_lite import recipe, replication
from covrag_lite.config import Config
from covrag_lite.data import load_questions
from covrag_lite.runs.recorded import OTHERWISE_ALIKE, changed_parameters, find
from covrag_lite.tables import load_basis
from covrag_lite.task_model import TaskModel


@pytest.fixture
def plans(tmp_path):
    """A plan of two seeds on a folder with one set; all its files are in a folder of the test."""
    for name, n in (("nq", 2), ("train_nq", 20)):
        rows = [{"id": f"{name}{i}", "question": f"{name} {i}?", "answers": ["a"]} for i in range(n)]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    given = {"data": str(tmp_path), "runs": str(tmp_path / "runs")}
    return replication.load_plans("smollm2-135m", given, (1, 2))


@pytest.fixture
def log(monkeypatch):
    """Stages that write only the file that marks their end."""
    done, real = [], replication.walk

    def run(name, file, plan):
        done.append((plan.seed, name))
        write_jsonl(file, [])

    def walk(*asked):
        return [(plan, name, file, partial(run, name, file)) for plan, name, file, _ in real(*asked)]

    monkeypatch.setattr(replication, "walk", walk)
    return done


def test_every_stage_runs_once_and_those_of_one_seed_with_the_first_alone(plans, log, capsys):
    replication.replicate(plans[:1], ["data", "rag"])
    table = replication.replicate(plans[:1], replication.STAGES)
    assert log == [(1, stage) for stage in replication.STAGES] and tuple(table.stage) == replication.STAGES
    assert "seed 1, rag: already done" in capsys.readouterr().out
    replication.replicate(plans, replication.STAGES)
    second = [stage for stage in replication.STAGES if stage not in ("data", *replication.FIRST_SEED)]
    assert log[len(replication.STAGES) :] == [(2, stage) for stage in second]  # both learn from the same data


def test_seeds_differ_in_their_training_alone_and_learn_from_sets_that_the_data_has(plans):
    one, two = (plan.training() for plan in plans)
    assert one.data.datasets == ("nq",)
    assert one.change(training_seed=2, adapters_out=two.training.adapters_out) == two
    assert plans[0].testing().model.adapters == one.training.adapters_out
    assert plans[0].results != plans[1].results


def test_parameters_of_the_command_go_before_those_of_the_settings(tmp_path):
    given = {"data": str(tmp_path), "epochs": "4", "learning_rate": "1e-3", "model": "mine", "seeds": "2,3"}
    plans = replication.load_plans("qwen2.5-coder-1.5b", given)
    config = plans[0].config
    assert (config.training.epochs, config.training.learning_rate, config.model.model) == (4, 0.001, "mine")
    assert [plan.seed for plan in plans] == [2, 3]
    # The settings for the world equal the defaults in all parameters that its notebooks compare.
    world = replication.load_plans("smollm2-135m-world", {})[0].testing()
    assert changed_parameters(Config(), world, OTHERWISE_ALIKE) == []


@pytest.mark.parametrize(
    "words, said",
    [
        ("gpt", "backbone 'gpt' is not one of smollm2-135m"),
        ("smollm2-135m -p epoch 1", "'epoch' is not a parameter; did you mean 'epochs'"),
        ("smollm2-135m -p table2 traned", "system 'traned' is not known"),
        ("smollm2-135m -p validation many", "'validation' is 'many', but must be a whole number"),
        ("smollm2-135m -p data /none", "data is '/none', but it must be .* or a folder"),
        ("smollm2-135m --seeds one", "'seeds' is 'one', but must be a list of whole numbers"),
    ],
)
def test_a_slip_ends_the_command_with_a_sentence_before_anything_runs(words, said, tmp_path):
    with pytest.raises(SystemExit, match=said):
        replication.main([*words.split(), "-p", "runs", str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_an_adapter_without_its_samples_is_told_which_stage_makes_them(tmp_path):
    words = f"smollm2-135m-world --stages rag --seeds 1 -p runs {tmp_path}"
    with pytest.raises(SystemExit, match="rag.samples.jsonl.gz does not exist; run the stage data first"):
        replication.main(words.split())


def test_a_plan_without_what_is_new_goes_on_and_one_with_other_parameters_is_refused(plans, log):
    replication.replicate(plans[:1], ["data"])
    file = plans[0].folder / "plan.json"
    begun = json.loads(file.read_text())
    del begun["parameters"]["question"], begun["plan"]["claim"]  # which an earlier version did not know
    file.write_text(json.dumps(begun | {"parameters": begun["parameters"] | {"gone_since": 1}}))
    replication.replicate(plans[:1], ["data", "rag"])
    file.write_text(json.dumps(begun | {"parameters": begun["parameters"] | {"epochs": 9}}))
    with pytest.raises(ValueError, match="started with other parameters: epochs was 9 and is 1; use the same"):
        replication.replicate(plans[:1], ["data", "rag", "cov"])
    assert log == [(1, "data"), (1, "rag")]  # what is done stays


def test_later_seeds_repeat_the_chain_against_none_without_the_control_and_the_third_round(plans, monkeypatch):
    asked = []
    monkeypatch.setattr(replication, "answer", lambda plan, config, table: asked.append(config.chain))
    for plan in plans:
        replication.run_table(plan, "table5")
    first, second = asked
    free = ("CoV-RAG w/o chain free", "CoV-RAG free")
    assert first.systems == ("CoV-RAG w/o chain", "CoV-RAG", "CoV-RAG shuffled", *free) and first.max_rounds == 3
    assert second.systems == ("CoV-RAG w/o chain", "CoV-RAG") and second.max_rounds == 2


WORLD = {"n_passages": 1000, "n_world": (8, 20, 8)}
SMALL = {"n_worlds": 1, "n_train_questions": 8, "k": 2, "epochs": 1, "lora_rank": 2, "n_questions": 1}
FEW = {"retrievers": "bm25", "test_sets": "search,entity", "claim_sets": "search,entity", "table2": "RAG,CoV-RAG"}
SHORT = {"max_answer_tokens": 4, "max_revised_tokens": 4}


class Knowing(TaskModel):
    """A seed model that is right for every other question, unlike a random one."""

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
    given = WORLD | SMALL | FEW | SHORT | {"model": str(tiny_folder), "runs": str(tmp_path / "runs")}
    return replication.load_plans("smollm2-135m-world", given)[0]


def test_an_adapter_that_was_not_trained_is_told_before_anything_is_answered(plan, monkeypatch):
    monkeypatch.setattr(replication.evaluate, "run_system", lambda *words: pytest.fail("answered"))
    with pytest.raises(FileNotFoundError, match="there is no adapter 'cov'"):
        replication.run_table(plan, "claim")


def test_every_stage_of_the_world_runs_and_what_it_records_can_be_read_again(plan, tmp_path):
    table = replication.replicate([plan], replication.STAGES)
    assert tuple(table.stage) == replication.STAGES
    results = plan.results.rename(tmp_path / "results")
    runs = find(tmp_path)
    assert [run.table for run in runs] == ["claim", "sigma", "table2", "table4", "table5", "table6"]
    assert all(len(load_basis(run)) for run in runs)
    names = {path.name for path in results.iterdir() if path.is_file()}
    for table, part in (("table2", ""), ("table4", ""), ("table5", ""), ("table6", "bm25.")):
        assert {f"{table}.{end}" for end in ("csv", "manifest.json", "md", f"{part}predictions.jsonl.xz")} <= names
    assert {f"train.{method}.json" for method in replication.METHODS} <= names
