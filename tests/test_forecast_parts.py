"""The forecast and the plan of a replication by hand: questions, hours, downloads and settings."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from conftest import write_jsonl

from covrag_lite.config import Config
from covrag_lite.data import hub
from covrag_lite.engine.interface import RowShape
from covrag_lite.records import Sample
from covrag_lite.replication import __main__ as command
from covrag_lite.replication import forecast, plan, stages
from covrag_lite.replication.forecast import Downloads, Forecast, State
from covrag_lite.replication.plan import load_plans
from covrag_lite.training.sample_files import save_samples

RATES = {
    "card": "toy card",
    "source": "a notebook",
    "watts": 500,
    "held": [[12, 5.8], [24, 2.2]],
    "measured": [[100, 10, 2], [1000, 5, 1]],  # size, tokens and texts per second
    "tokens": {"rag": 600, "data": 600},
    "texts": {"data": 4, "table2": 4, "citations": 0},
}
# Files of questions, with the number of questions in each.
FILES = {"nq": 3, "webq": 4, "x_nq": 2, "train_nq": 9, "validation_nq": 3, "train_nq_qa": 6}


@pytest.fixture
def toy(tmp_path):
    """A function that returns the first seed's plan on a folder of questions, with changes."""
    for name, n in FILES.items():
        rows = [
            {"id": f"{name}{i}", "question": f"{name} {i}?", "answers": ["a"]} for i in range(n)
        ]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)

    def build(backbone="smollm2-135m", seeds=(1,), **changes):
        places = {"data": str(tmp_path), "runs": str(tmp_path / "runs")}
        return load_plans(backbone, places | changes, seeds)[0]

    return build


# Questions.


@pytest.mark.parametrize(
    ("stage", "changes", "n"),
    [
        ("rag", {}, 14),  # the training questions of two sets, one of them held out
        ("rag", {"n_train_questions": 8}, 13),  # at most 8 of each
        ("sigma", {"validation": "2"}, 4),
        ("table2", {}, 7),
        ("table2", {"n_questions": 3}, 6),
        ("claim", {}, 9),
        ("claim", {"n_questions": 2}, 6),
    ],
)
def test_the_questions_of_a_stage_are_those_of_its_sets_up_to_its_limit(toy, stage, changes, n):
    assert forecast.count_questions(toy(**changes), stage, RATES) == n


def test_all_sets_of_the_data_are_counted_if_all_are_chosen(toy):
    assert forecast.count_questions(toy(test_sets="all"), "table2", RATES) == 9


@pytest.mark.parametrize(
    ("split", "sample", "n"),
    [("test", 400, 400), ("test", 5000, 3610), ("test", 0, 3610), ("train", 400, 87_925)],
)
def test_the_test_questions_of_a_public_set_are_a_sample(split, sample, n):
    config = Config().change(data="hub", sample=sample)
    assert forecast.count_set(config, split, "nq") == n


# Hours.


@pytest.fixture
def thousand(monkeypatch):
    """Every stage has 3,600 questions."""
    monkeypatch.setattr(forecast, "count_questions", lambda *_: 3600)


@pytest.mark.parametrize(
    ("stage", "size", "hours"),
    [
        ("rag", 100, 60),  # 600 / 10 seconds per question
        ("table2", 100, 2),  # 4 / 2
        ("data", 100, 62),
        ("rag", 200, 120),  # in proportion to the network's size
        ("rag", 1000, 120),  # 600 / 5
        ("rag", 500, 300),  # the network of 100 parameters is nearer
        ("rag", 600, 72),  # that of 1,000 is nearer
        ("citations", 100, 0),
    ],
)
def test_hours_follow_from_the_measured_network_that_is_nearest(thousand, stage, size, hours):
    assert forecast.foresee_hours(None, stage, size, RATES) == pytest.approx(hours)


def test_hours_are_described_with_their_energy():
    assert forecast.describe_hours(4.0, RATES, None) == (
        "hours: 4.0 at the rates measured on an toy card (a notebook), or 2 kWh at its 500 W; "
        "other cards differ"
    )


@pytest.mark.parametrize(
    ("gb", "times"), [(8, "5.8"), (12, "5.8"), (16, "2.2"), (24, "2.2"), (40, None)]
)
def test_a_small_card_is_slower_by_the_factor_of_the_next_larger_measured_one(gb, times):
    sentence = forecast.describe_hours(4.0, RATES, gb * 1e9)
    expected = f"; in {gb} GB its texts may take {times} times as long" if times else "differ"
    assert sentence.endswith(expected)


def test_a_stage_has_its_hours_none_if_it_is_done_and_unknown_ones_are_marked():
    states = [State(1, "rag", False), State(1, "cov", True), State(2, "claim", False)]
    rows = forecast.list_rows(states, {"rag": 1.234, "cov": 9.0})
    assert rows.state.tolist() == ["to do", "done", "to do"]
    assert rows.hours[:2].tolist() == [1.23, 0.0]
    lines = str(Forecast(rows, ["a sentence"], [])).splitlines()
    assert [line.split()[-1] for line in lines[1:4]] == ["1.23", "0.00", "?"]
    assert lines[4:] == ["a sentence"]


def test_a_finished_replication_needs_nothing(toy):
    expected = forecast.foresee(toy(), [State(1, "rag", True)], 24)
    assert (expected.sentences, expected.refusals) == ([], [])


def test_answering_alone_needs_no_memory_for_training(toy):
    small = toy("qwen2.5-7b-instruct", activations="keep")
    expected = forecast.foresee(small, [State(1, "table2", False)], 24)
    assert not [sentence for sentence in expected.sentences if sentence.startswith("memory")]
    assert "in 24 GB its texts may take 2.2 times as long" in expected.sentences[0]


def test_a_small_network_is_not_slower_on_a_small_card(toy, monkeypatch):
    parameters = [SimpleNamespace(numel=lambda: 10**9)]
    network = SimpleNamespace(parameters=lambda: iter(parameters))
    monkeypatch.setattr(forecast, "sketch", lambda *_: network)
    monkeypatch.setattr(forecast, "list_downloads", lambda *_: Downloads({}, 0, Path("/")))
    expected = forecast.foresee(toy(), [State(1, "table2", False)], 12)
    assert expected.sentences[0].endswith("other cards differ")


@pytest.mark.parametrize(
    ("device", "place"),
    [
        ("cuda", "and the card has 30.0 GB"),
        (
            "cpu",
            "and this machine, which has no CUDA card (--gpu-gb 24 assumes one), has 30.0 GB",
        ),
    ],
)
def test_the_memory_is_that_of_the_card_or_of_the_machine(toy, monkeypatch, device, place):
    monkeypatch.setattr(forecast.memory, "require_memory", lambda *_: 12.34e9)
    sentence = forecast.foresee_memory(toy(), None, device, 30e9)
    assert sentence == f"memory: training will need about 12.3 GB, {place}"


def test_the_memory_is_that_of_a_full_row_with_a_long_sample(toy, monkeypatch):
    shapes = []
    monkeypatch.setattr(
        forecast.memory, "require_memory", lambda *words: shapes.append(words[2]) or 0
    )
    for tokens in (8192, 1024):
        forecast.foresee_memory(toy(pack_tokens=tokens), None, "cuda", 30e9)
    assert shapes == [RowShape(8192, 0, 1024, 2048), RowShape(1024, 0, 128, 1024)]


# Downloads.


def test_a_download_needs_its_parts_and_what_is_built_from_them(tmp_path):
    downloads = Downloads({"model": 13.5, "corpus": 0.8}, 4.2, tmp_path)
    assert downloads.needed_gb == pytest.approx(18.5)


@pytest.fixture
def disk(monkeypatch):
    """Twenty gigabytes are free."""
    monkeypatch.setattr(forecast.shutil, "disk_usage", lambda place: SimpleNamespace(free=20e9))


@pytest.mark.parametrize(("gb", "fits"), [(20.0, True), (20.1, False)])
def test_a_download_fits_up_to_the_free_disk(disk, tmp_path, gb, fits):
    refusals = forecast.refuse_downloads(Downloads({"model": gb}, 0.0, tmp_path))
    assert (refusals == []) == fits


def test_downloads_are_described_with_the_disk(disk, tmp_path):
    downloads = Downloads({"model": 13.5, "questions": 0.25}, 4.0, tmp_path)
    assert forecast.describe_downloads(downloads) == (
        "download: model 13.5 GB, questions 0.2 GB; 17.8 GB of disk needed, 20.0 GB free"
    )


def test_a_model_of_the_hub_is_downloaded_in_16_bits_with_questions_and_corpus(monkeypatch):
    monkeypatch.setattr(forecast, "try_to_load_from_cache", lambda *_: None)
    (of_hub,) = load_plans("qwen2.5-7b-instruct", {"corpus": "nq-wikipedia"}, (1,))
    downloads = forecast.list_downloads(of_hub, 7 * 10**9)
    corpus = hub.load_corpora()["nq-wikipedia"]
    assert downloads.parts == {
        "Qwen/Qwen2.5-7B-Instruct": 14.0,
        "questions": sum(entry.gb for entry in hub.load_entries().values()),
        "nq-wikipedia": corpus.gb,
    }
    assert downloads.built_gb == pytest.approx(corpus.disk_gb - corpus.gb)
    assert downloads.home.exists()


def test_questions_of_a_folder_are_not_downloaded(toy, monkeypatch):
    monkeypatch.setattr(forecast, "try_to_load_from_cache", lambda *_: "/cache/config.json")
    downloads = forecast.list_downloads(toy("qwen2.5-7b-instruct"), 7 * 10**9)
    assert (downloads.parts, downloads.built_gb) == ({}, 0)


@pytest.mark.parametrize(("cached", "here"), [("/cache/config.json", True), (None, False)])
def test_a_model_in_the_cache_is_here_whatever_its_revision(monkeypatch, cached, here):
    asked = []
    monkeypatch.setattr(
        forecast, "try_to_load_from_cache", lambda *words: asked.append(words) or cached
    )
    assert forecast.is_here("someone/Tiny@refs/pr/3") == here
    assert asked == [("someone/Tiny", "config.json")]


def test_a_folder_is_here(tmp_path):
    assert forecast.is_here(str(tmp_path))


@pytest.mark.parametrize(
    ("backbone", "licence"),
    [
        ("qwen2.5-7b-instruct", "licence of Qwen/Qwen2.5-7B-Instruct: Apache-2.0"),
        ("someone/Other", "licence of someone/Other: see its page on the hub"),
        (
            "llama-2-7b-hf",
            "licence of meta-llama/Llama-2-7b-hf: Llama 2; gated: accept the licence on the hub, "
            "then run `hf auth login`",
        ),
    ],
)
def test_the_licence_of_a_model_that_is_downloaded_is_stated(toy, backbone, licence):
    of_model = toy(backbone)
    downloads = Downloads({of_model.config.model.model: 1.0}, 0, Path("/"))
    assert forecast.describe_licences(of_model, downloads) == [licence]


def test_the_licence_of_a_model_that_is_here_is_not_stated(toy):
    downloads = Downloads({}, 0, Path("/"))
    assert forecast.describe_licences(toy("llama-2-7b-hf"), downloads) == []


@pytest.mark.parametrize("model", ["endpoint:x", "plain:someone/Other", "smollm2-135m"])
def test_a_served_plain_or_embedded_model_has_no_known_size(toy, model):
    assert forecast.sketch(toy(model=model), "cpu") is None


# The command.


def test_an_unknown_stage_ends_the_command(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["smollm2-135m-world", "--stages", "data,tables"])
    assert ended.value.code == 2
    assert "stages tables are not known; use some of data, rag, cov" in capsys.readouterr().err


@pytest.fixture
def replicated(monkeypatch):
    """The seeds and stages that the command runs."""
    calls = []

    def replicate(plans, wanted):
        calls.append(([plan.seed for plan in plans], wanted))
        return pd.DataFrame({"seed": [1]})

    monkeypatch.setattr(command.stages, "replicate", replicate)
    monkeypatch.setattr(command, "load_engine", lambda settings: None)
    monkeypatch.setattr(command.forecast, "foresee", lambda *_: Forecast(pd.DataFrame(), [], []))
    return calls


def test_the_command_runs_the_seeds_and_stages_that_are_wanted(toy, replicated):
    data = toy().config.data.data
    words = ["smollm2-135m", "-p", "data", data, "--stages", "rag,cov", "--seeds", "2,3"]
    command.main(words)
    assert replicated == [([2, 3], ["rag", "cov"])]


def test_without_seeds_the_command_runs_those_of_the_settings(toy, replicated):
    data = toy().config.data.data
    command.main(["smollm2-135m", "-p", "data", data, "--stages", "rag"])
    assert replicated == [([1, 2, 3], ["rag"])]


# Plans.


def test_a_plan_without_a_training_set_is_refused(toy):
    with pytest.raises(ValueError, match="the data has none of the train sets webq; set train_se"):
        toy(train_sets="webq").choose("train")


def test_the_sets_of_a_plan_are_those_that_the_data_has_in_the_plans_order(toy):
    assert toy(claim_sets="x_nq,squad,nq").choose("claim") == ("x_nq", "nq")


def test_the_name_of_a_test_is_backbone_and_seed(toy):
    testing = toy(seeds=(2,)).testing()
    assert testing.run.name == "smollm2-135m/seed-2"


def test_adapters_are_trained_into_the_folder_of_the_seed(toy, tmp_path):
    training = toy(seeds=(2,)).training()
    expected = tmp_path / "runs" / "smollm2-135m" / "seed-2" / "adapters"
    assert training.training.adapters_out == str(expected)
    assert training.run.name == "smollm2-135m"


def test_a_revision_of_a_known_backbone_keeps_its_settings():
    backbones = {"a": {"model": "x/Small"}, "b": {"model": "x/Big", "epochs": 3}}
    found = plan.find_backbone("x/Big@v2", backbones)
    assert found == ("big", {"model": "x/Big@v2", "epochs": 3})


@pytest.mark.parametrize("name", ["tiny.gguf", "folder"])
def test_a_backbone_may_be_a_local_file_or_folder(name, tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(plan, "resolve", lambda path: tmp_path / path)
    assert plan.find_backbone(name, {})[1] == {"model": name}


def test_the_card_of_a_model_is_found_without_its_revision():
    backbones = {"a": {"model": "x/A", "card": {"licence": "free"}}, "b": {"model": "x/B"}}
    assert plan.find_card(backbones, "x/A@v2") == {"licence": "free"}
    assert plan.find_card(backbones, "x/B") == plan.find_card(backbones, "x/C") == {}


def test_lists_of_the_settings_are_read_from_the_command(toy):
    assert toy(table2="RAG,CoV-RAG").settings["table2"] == ("RAG", "CoV-RAG")


def test_parameters_that_only_the_related_notebook_uses_may_change(toy):
    first = toy()
    stages.save_plan(first)
    (first.folder / "rag.samples.jsonl.gz").touch()
    stages.refuse_changes(toy(n_learnt=7))


def test_an_empty_folder_of_a_plan_is_no_start(toy):
    first = toy()
    stages.save_plan(first)
    first.results.mkdir()
    assert not plan.is_started(first)


def test_the_plan_on_disk_has_parameters_and_settings(toy):
    first = toy(epochs=4, validation="5")
    stages.save_plan(first)
    saved = json.loads((first.folder / "plan.json").read_text())
    assert (saved["parameters"]["epochs"], saved["plan"]["validation"]) == (4, 5)


# Stages.


def test_citations_need_table_2(toy):
    with pytest.raises(FileNotFoundError, match="has no Table 2; run the stage table2 first"):
        stages.count_citations(toy())


def test_a_stage_of_the_first_seed_alone_is_not_listed_for_others(toy):
    plans = [replace(toy(), seed=seed) for seed in (1, 2)]
    steps = stages.list_steps(plans, ["rewrite", "cov", "table6"])
    assert [(step.plan.seed, step.stage) for step in steps] == [
        (1, "cov"),
        (1, "rewrite"),
        (1, "table6"),
        (2, "cov"),
    ]


def test_the_losses_and_the_manifest_of_an_adapter_are_copied_to_the_results(toy, monkeypatch):
    of_seed = toy()

    def train_adapter(config, method, samples):
        write_jsonl(Path(config.training.adapters_out) / method / "manifest.json", [{"n": 1}])
        return pd.DataFrame({"step": [1, 2], "loss": [1.234567, 0.5]})

    monkeypatch.setattr(stages.recipe, "train_adapter", train_adapter)
    of_seed.results.mkdir(parents=True)
    save_samples(stages.samples_file(of_seed, "cov"), [Sample("s", "answer", "?", ("!",))])
    stages.train(of_seed, "cov")
    assert (of_seed.results / "train.cov.losses.csv").read_text() == "step,loss\n1,1.235\n2,0.5\n"
    assert json.loads((of_seed.results / "train.cov.json").read_text()) == {"n": 1}


def test_every_adapter_of_the_systems_is_loaded_before_any_answer(toy, monkeypatch):
    loaded = []
    model = SimpleNamespace(with_adapter=loaded.append)
    resources = SimpleNamespace(model=model)
    monkeypatch.setattr(stages.evaluate, "load_resources", lambda *_: resources)
    config = toy().config.change(systems=("RAG", "CoV-RAG", "RAG trained"))
    assert stages.load_resources(config, []) is resources
    assert loaded == ["cov", "rag"]


@pytest.mark.parametrize(
    ("parts", "basis"),
    [({"": ["a"]}, ["a"]), ({"bm25": ["a"], "dense": ["b"]}, {"bm25": ["a"], "dense": ["b"]})],
)
def test_a_table_is_built_from_its_predictions_or_from_all_its_parts(
    toy, monkeypatch, parts, basis
):
    built = []
    saved = SimpleNamespace(save=lambda folder: "")

    def build(predictions, run):
        built.append(predictions)
        return saved

    monkeypatch.setattr(stages, "save_run", lambda *_: None)
    monkeypatch.setattr(stages, "find_table", lambda name: SimpleNamespace(build=build))
    resources = SimpleNamespace(model=None)
    stages.record(toy(), toy().config, "table6", parts, resources, 0.0, {})
    assert built == [basis]
