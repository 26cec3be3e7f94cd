"""The replication command: finished stages are skipped, settings are printed, every stage runs."""

import json
from dataclasses import replace
from functools import partial

import pytest
import toy_project
from conftest import write_jsonl

from covrag_lite.config import Config
from covrag_lite.data import load_questions
from covrag_lite.engine.endpoint import EndpointError
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.replication import __main__ as command
from covrag_lite.replication import stages
from covrag_lite.replication.plan import load_plans, save_plan
from covrag_lite.runs.compare import OTHERWISE_ALIKE, changed_parameters
from covrag_lite.runs.recorded import find
from covrag_lite.systems import evaluate
from covrag_lite.systems.names import (
    COV_RAG,
    COV_RAG_FREE,
    COV_RAG_SHUFFLED,
    NO_CHAIN,
    NO_CHAIN_FREE,
)
from covrag_lite.tables import load_basis
from covrag_lite.training import recipe


@pytest.fixture
def plans(tmp_path):
    """A plan of two seeds on a folder with one set; all its files are in a folder of the test."""
    for name, n in (("nq", 2), ("train_nq", 20)):
        rows = [
            {"id": f"{name}{i}", "question": f"{name} {i}?", "answers": ["a"]} for i in range(n)
        ]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    changes = {"data": str(tmp_path), "runs": str(tmp_path / "runs")}
    return load_plans("smollm2-135m", changes, (1, 2))


@pytest.fixture
def log(monkeypatch):
    """Stages that write only the file that marks their end."""
    finished = []
    list_steps = stages.list_steps

    def run(stage, file, plan):
        finished.append((plan.seed, stage))
        write_jsonl(file, [])

    def list_short_steps(*words):
        steps = []
        for step in list_steps(*words):
            steps.append(replace(step, run=partial(run, step.stage, step.result)))
        return steps

    monkeypatch.setattr(stages, "list_steps", list_short_steps)
    return finished


def test_the_first_seed_runs_every_stage_in_its_order(plans, log):
    table = stages.replicate(plans[:1], stages.STAGES)
    assert log == [(1, stage) for stage in stages.STAGES]
    assert tuple(table.stage) == stages.STAGES


def test_a_finished_stage_is_not_repeated(plans, log, capsys):
    stages.replicate(plans[:1], ["data", "rag"])
    stages.replicate(plans[:1], ["data", "rag"])
    assert log == [(1, "data"), (1, "rag")]
    assert "seed 1, rag: already done" in capsys.readouterr().out


def test_later_seeds_share_the_data_of_the_first_and_leave_out_its_stages(plans, log):
    stages.replicate(plans, stages.STAGES)
    left_out = ("data", *stages.FIRST_SEED)
    expected = [stage for stage in stages.STAGES if stage not in left_out]
    assert [stage for seed, stage in log if seed == 2] == expected


def test_seeds_differ_only_in_their_training(plans):
    first, second = (plan.training() for plan in plans)
    assert first.change(training_seed=2, adapters_out=second.training.adapters_out) == second


def test_each_seed_has_a_folder_for_its_results(plans):
    assert plans[0].results != plans[1].results


def test_training_uses_the_sets_that_the_data_has(plans):
    assert plans[0].training().data.datasets == ("nq",)


def test_tables_use_the_adapters_that_were_trained(plans):
    trained = plans[0].training().training.adapters_out
    assert plans[0].testing().model.adapters == trained


def test_parameters_of_the_command_replace_those_of_the_settings(tmp_path):
    changes = {"data": str(tmp_path), "epochs": "4", "learning_rate": "1e-3", "model": "mine"}
    config = load_plans("qwen2.5-coder-1.5b", changes)[0].config
    assert config.training.epochs == 4
    assert config.training.learning_rate == 0.001
    assert config.model.model == "mine"


def test_a_parameter_that_the_stages_would_overwrite_is_an_error():
    plan = load_plans("smollm2-135m-world", {}, seeds=(2,))[0]
    before = plan.config.flat()
    after = plan.training().flat().items() | plan.testing().flat().items()
    overwritten = {name for name, value in after if value != before[name]}
    assert overwritten == {"adapters", "adapters_out", "name", "training_seed"}
    for name in overwritten:
        with pytest.raises(ValueError, match=f"{name} has no effect"):
            load_plans("smollm2-135m-world", {name: "1"})


def test_seeds_are_a_setting(tmp_path):
    plans = load_plans("qwen2.5-coder-1.5b", {"data": str(tmp_path), "seeds": "2,3"})
    assert [plan.seed for plan in plans] == [2, 3]


def test_the_settings_for_the_world_are_the_defaults_that_notebooks_compare():
    world = load_plans("smollm2-135m-world", {})[0].testing()
    assert changed_parameters(Config(), world, OTHERWISE_ALIKE) == []


@pytest.mark.parametrize(
    "words, sentence",
    [
        ("gpt", "backbone 'gpt' is not one of smollm2-135m"),
        ("smollm2-135m -p epoch 1", "'epoch' is not a parameter; did you mean 'epochs'"),
        ("smollm2-135m -p table2 traned", "system 'traned' is not known"),
        ("smollm2-135m -p validation many", "'validation' is 'many', but must be a whole number"),
        ("smollm2-135m -p data /none", "data is '/none', but it must be .* or a folder"),
        ("smollm2-135m --seeds one", "'seeds' is 'one', but must be a list of whole numbers"),
        ("smollm2-135m -p methods rag", "methods has no effect in a replication: .* --stages"),
    ],
)
def test_a_mistake_ends_the_command_before_anything_is_written(words, sentence, tmp_path):
    with pytest.raises(SystemExit, match=sentence):
        command.main([*words.split(), "-p", "runs", str(tmp_path)])
    assert not list(tmp_path.iterdir())


WORLD_WORDS = ["smollm2-135m-world", "--stages", "data"]


@pytest.mark.parametrize(
    "error, sentence",
    [
        (OSError(28, "disk full", "/runs/plan.json"), "^pytest: /runs/plan.json: disk full$"),
        (FloatingPointError("the loss is nan"), "^pytest: the loss is nan$"),
        (EndpointError("no answer"), "^pytest: no answer$"),
        (KeyboardInterrupt(), "^pytest: interrupted; the same command continues$"),
    ],
)
def test_what_stops_a_replication_is_one_sentence(error, sentence, monkeypatch):
    def fail(*words):
        raise error

    monkeypatch.setattr("sys.argv", ["pytest"])
    monkeypatch.setattr(command, "run", fail)
    with pytest.raises(SystemExit, match=sentence):
        command.main(WORLD_WORDS)


def test_a_mistake_of_ours_is_not_hidden(monkeypatch):
    monkeypatch.setattr(command, "run", lambda *words: {}["missing"])
    with pytest.raises(KeyError):
        command.main(WORLD_WORDS)


def test_the_module_calls_itself_as_it_was_typed(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/x/replication/__main__.py"])
    assert command.build_parser().prog == "python -m covrag_lite.replication"


def test_an_adapter_without_its_samples_names_the_stage_that_makes_them(tmp_path):
    words = f"smollm2-135m-world --stages rag --seeds 1 -p runs {tmp_path}"
    with pytest.raises(
        SystemExit, match="rag.samples.jsonl.gz does not exist; run the stage data first"
    ):
        command.main(words.split())


@pytest.fixture
def started(plans, log):
    """The plan.json of a replication whose first stage is finished."""
    stages.replicate(plans[:1], ["data"])
    return plans[0].folder / "plan.json"


def test_a_replication_continues_although_its_plan_lacks_new_parameters(plans, log, started):
    saved = json.loads(started.read_text())
    del saved["parameters"]["question"]
    del saved["plan"]["claim"]
    started.write_text(json.dumps(saved))
    stages.replicate(plans[:1], ["data", "rag"])
    assert log == [(1, "data"), (1, "rag")]


def test_a_replication_continues_although_its_plan_has_a_parameter_that_no_longer_exists(
    plans, log, started
):
    saved = json.loads(started.read_text())
    saved["parameters"]["no_longer"] = 1
    started.write_text(json.dumps(saved))
    stages.replicate(plans[:1], ["data", "rag"])
    assert log == [(1, "data"), (1, "rag")]


def test_a_replication_does_not_continue_with_other_parameters(plans, log, started):
    saved = json.loads(started.read_text())
    saved["parameters"]["epochs"] = 9
    started.write_text(json.dumps(saved))
    with pytest.raises(ValueError, match="other parameters: epochs was 9 and is 1; use the same"):
        stages.replicate(plans[:1], ["data", "rag", "cov"])
    assert log == [(1, "data")]


def test_a_replication_that_made_nothing_may_start_with_other_parameters(plans, log):
    save_plan(plans[0])
    other = replace(plans[0], config=plans[0].config.change(epochs=9))
    stages.replicate([other], ["data"])
    saved = json.loads((plans[0].folder / "plan.json").read_text())
    assert saved["parameters"]["epochs"] == 9


@pytest.fixture
def chains(plans, monkeypatch):
    """The settings with which Table 5 is run for the first and for the second seed."""
    settings = []

    def answer(plan, config, table):
        settings.append(config.chain)

    monkeypatch.setattr(stages, "answer", answer)
    for plan in plans:
        stages.run_table(plan, "table5")
    return settings


def test_the_first_seed_runs_table_5_with_controls_and_a_third_round(chains):
    controls = (COV_RAG_SHUFFLED, NO_CHAIN_FREE, COV_RAG_FREE)
    assert chains[0].systems == (NO_CHAIN, COV_RAG, *controls)
    assert chains[0].max_rounds == 3


def test_later_seeds_run_table_5_without_controls_and_third_round(chains):
    assert chains[1].systems == (NO_CHAIN, COV_RAG)
    assert chains[1].max_rounds == 2


WORLD = {"n_passages": 1000, "n_world": (8, 20, 8)}
SMALL = {
    "n_worlds": 1,
    "n_train_questions": 8,
    "k": 2,
    "epochs": 1,
    "lora_rank": 2,
    "n_questions": 1,
}
FEW = {
    "retrievers": "bm25",
    "test_sets": "search,entity",
    "claim_sets": "search,entity",
    "table2": "RAG,CoV-RAG",
}
SHORT = {"max_answer_tokens": 4, "max_revised_tokens": 4}


class Knowing(TaskModel):
    """A seed model that is right for every other question, unlike a random one."""

    def answer(self, x, k):
        learnt = Config().change(**WORLD, split="train", n_questions=0)
        gold = {question.question: question.answers[0] for question in load_questions(learnt)}
        return [gold.get(text, "nobody") if i % 2 else "nobody[1]" for i, text in enumerate(x)]


@pytest.fixture
def plan(tiny_folder, tmp_path, monkeypatch):
    load = recipe.load_trained

    def load_knowing(config, adapter):
        author = load(config, adapter)
        return Knowing(author.settings, author.model, author.journal)

    monkeypatch.setattr(recipe, "load_trained", load_knowing)
    toy_project.undraw(monkeypatch)
    changes = WORLD | SMALL | FEW | SHORT
    changes |= {"model": str(tiny_folder), "runs": str(tmp_path / "runs")}
    return load_plans("smollm2-135m-world", changes)[0]


def test_an_adapter_that_was_not_trained_is_named_before_anything_is_answered(plan, monkeypatch):
    monkeypatch.setattr(evaluate, "run_system", lambda *words: pytest.fail("answered"))
    with pytest.raises(FileNotFoundError, match="there is no adapter 'cov'"):
        stages.run_table(plan, "claim")


def test_every_stage_of_the_world_runs_and_its_records_can_be_loaded(plan, tmp_path):
    table = stages.replicate([plan], stages.STAGES)
    assert tuple(table.stage) == stages.STAGES
    assert (plan.folder / "figure3.png").exists()
    results = plan.results.rename(tmp_path / "results")
    runs = find(tmp_path)
    assert {run.table for run in runs} == {"sigma", "citations", *stages.TABLE_STAGES}
    for run in runs:
        assert len(load_basis(run)) > 0
    names = {path.name for path in results.iterdir() if path.is_file()}
    for table, part in (("table2", ""), ("table4", ""), ("table5", ""), ("table6", "bm25.")):
        ends = ("csv", "manifest.json", "md", f"{part}predictions.jsonl.xz")
        assert {f"{table}.{end}" for end in ends} <= names
    assert {f"train.{method}.json" for method in stages.METHODS} <= names
