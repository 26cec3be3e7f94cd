"""Which run is browsed, which notebooks become pages, what is exported, what a model card says."""

import json
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pandas as pd
import pytest
from conftest import write_jsonl
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from covrag_lite.commands import browse, export, html, model_card, own_folder
from covrag_lite.config import ROOT, Config
from covrag_lite.data import hub
from covrag_lite.runs.recorded import Recorded

# covrag browse


def write_run(folder, *tables, with_answers=True):
    for table in tables:
        write_jsonl(folder / f"{table}.manifest.json", [{}])
        if with_answers:
            (folder / f"{table}.predictions.jsonl.xz").touch()


@pytest.mark.parametrize(
    ("tables", "shown"),
    [
        (("claim", "table2", "table5"), "table2"),
        (("claim", "table5"), "claim"),
        (("table6", "table4"), "table4"),
    ],
)
def test_of_a_folders_tables_the_one_with_most_systems_is_shown(tmp_path, tables, shown):
    write_run(tmp_path / "results" / "mine", *tables)
    assert browse.find_run("mine", tmp_path).table == shown


def test_a_table_without_answers_is_not_shown(tmp_path):
    folder = tmp_path / "results" / "mine"
    write_run(folder, "table2", with_answers=False)
    write_run(folder, "table5")
    assert browse.find_run("mine", tmp_path).table == "table5"


def test_a_run_of_a_subfolder_is_not_that_of_its_folder(tmp_path):
    write_run(tmp_path / "results" / "mine" / "seed-1", "table2")
    with pytest.raises(FileNotFoundError, match="'mine' has no recorded answers; did you mean 'm"):
        browse.find_run("mine", tmp_path)


def test_an_own_run_comes_before_a_recorded_one_of_its_name(tmp_path):
    for place in ("results", "figures"):
        write_run(tmp_path / place / "mine", "table2")
    assert browse.find_run("mine", tmp_path).folder == tmp_path / "figures" / "mine"


def test_without_any_run_there_is_no_name_to_suggest(tmp_path):
    with pytest.raises(FileNotFoundError, match="^'mine' is not a run$"):
        browse.find_run("mine", tmp_path)


def test_without_any_run_the_default_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="results has no recorded run; name one"):
        browse.find_run("", tmp_path)


def test_every_run_with_answers_is_listed_once(tmp_path):
    write_run(tmp_path / "figures" / "own", "table2")
    write_run(tmp_path / "results" / "b" / "seed-1", "table2", "claim")
    write_run(tmp_path / "results" / "c", "table2", with_answers=False)
    assert browse.list_runs(tmp_path) == ["own", "b/seed-1"]


@pytest.mark.parametrize(
    ("folder", "name"),
    [("results/a/b", "a-b"), ("figures/own", "own"), ("elsewhere/own", "elsewhere-own")],
)
def test_the_page_of_a_run_is_named_after_its_folders(tmp_path, folder, name):
    run = Recorded(tmp_path / folder, "table2", {}, tmp_path)
    assert browse.default_output(run, tmp_path) == tmp_path / "html" / f"browse-{name}.html"


@pytest.mark.parametrize(
    ("platform", "environment", "can_open"),
    [
        ("darwin", {}, True),
        ("win32", {}, True),
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
    ],
)
def test_a_browser_opens_only_on_a_machine_with_a_screen(
    monkeypatch, platform, environment, can_open
):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(browse.sys, "platform", platform)
    assert browse.has_screen() == can_open


@pytest.mark.parametrize(
    ("words", "screen", "n_opened"), [([], True, 1), (["--no-open"], True, 0), ([], False, 0)]
)
def test_the_page_is_opened_unless_there_is_a_reason_not_to(
    monkeypatch, tmp_path, words, screen, n_opened
):
    opened = []
    run = Recorded(tmp_path, "table2", {}, tmp_path)
    monkeypatch.setattr(browse, "find_run", lambda name: run)
    monkeypatch.setattr(browse, "build_page", lambda run: "a page")
    monkeypatch.setattr(browse, "describe", lambda run: "a run")
    monkeypatch.setattr(browse, "has_screen", lambda: screen)
    monkeypatch.setattr(browse.webbrowser, "open", opened.append)
    output = tmp_path / "page.html"
    browse.main(["mine", "--out", str(output), *words])
    assert opened == [output.as_uri()] * n_opened
    assert output.read_text() == "a page"


def test_the_title_of_a_page_is_no_markup(monkeypatch):
    monkeypatch.setattr(browse, "describe", lambda run: "a < b")
    monkeypatch.setattr(browse, "build_fragment", lambda run: "<p>")
    assert "<title>a &lt; b</title>" in browse.build_page(None)


# covrag html


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    """A clone with three notebooks, one of which stores no outputs."""
    monkeypatch.setattr(html, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir()
    for name in ("b", "a", "hosted"):
        (tmp_path / "notebooks" / f"{name}.ipynb").touch()
    return tmp_path / "notebooks"


@pytest.mark.parametrize(
    ("names", "chosen"), [([], ["a", "b"]), (["b"], ["b"]), (["b", "a"], ["b", "a"])]
)
def test_the_named_notebooks_become_pages_or_all_with_outputs(notebooks, names, chosen):
    assert [path.stem for path in html.choose_notebooks(names)] == chosen


def test_a_notebook_without_outputs_becomes_no_page(notebooks):
    with pytest.raises(ValueError, match="'hosted' is not a notebook with outputs; did you mean"):
        html.choose_notebooks(["hosted"])


def test_without_notebooks_their_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(html, "ROOT", tmp_path)
    with pytest.raises(FileNotFoundError, match="there are no notebooks in .*/notebooks"):
        html.choose_notebooks([])


@pytest.mark.parametrize(
    ("link", "linked"),
    [
        ('href="table5.ipynb"', 'href="table5.html"'),
        ('href="table5.ipynb#part"', 'href="table5.html#part"'),
        ('href="hosted.ipynb"', 'href="../notebooks/hosted.ipynb"'),
    ],
)
def test_a_link_leads_to_a_page_or_to_a_notebook_that_has_none(link, linked):
    assert html.NOTEBOOK_LINK.sub(html.link_page, link) == linked


@pytest.mark.parametrize(
    ("tags", "outputs", "is_hidden"),
    [
        (["reveal"], [], True),
        (["reveal", "live"], [], False),
        (["reveal"], [new_output("stream", text="x")], False),
        ([], [], False),
    ],
)
def test_only_a_cell_to_guess_at_is_executed_for_its_page(tags, outputs, is_hidden):
    cell = new_code_cell("1", outputs=outputs, metadata={"tags": tags})
    assert html.is_hidden(cell) == is_hidden


def test_only_the_cell_without_output_gets_the_interactive_page(monkeypatch):
    monkeypatch.setattr(browse, "find_run", lambda name: None)
    monkeypatch.setattr(browse, "build_fragment", lambda run: "all questions")
    source = f"{html.INTERACTIVE})"
    stored = [new_output("stream", text="x")]
    cells = [new_markdown_cell(source), new_code_cell(source, outputs=stored), new_code_cell("1")]
    notebook = new_notebook(cells=cells)
    before = nbformat.writes(notebook)
    html.add_interactive_page(notebook)
    assert nbformat.writes(notebook) == before


def test_titles_of_the_index_are_no_markup():
    assert '<li><a href="a.html">x &lt; y</a></li>' in html.build_index({"a": "x < y"})


# A folder of documents.


@pytest.fixture
def manuals(tmp_path):
    """Three documents; one has two passages."""
    (tmp_path / "a.txt").write_text("\n\n".join(["word " * 100] * 2))
    (tmp_path / "b.txt").write_text("two")
    (tmp_path / "c.txt").write_text("three")
    return tmp_path


def test_a_folder_is_described_with_its_documents_passages_and_model(manuals):
    folder = own_folder.load_folder(str(manuals), "org/Model", 4, "mine")
    assert folder.notes == ("3 documents, 4 passages; model Model",)
    assert (folder.config.retrieval.k, folder.config.run.name) == (4, "mine")


def test_the_small_model_comes_with_a_warning(manuals):
    folder = own_folder.load_folder(str(manuals), own_folder.DEMO_MODEL, 3, "mine")
    assert folder.notes[-1].startswith("smollm2-135m is a small model")


@pytest.mark.parametrize("model", ["none.gguf", "/none", "./none", "~none"])
def test_a_path_without_a_model_is_missing(model):
    with pytest.raises(FileNotFoundError, match="there is no model .* check the path after --mod"):
        own_folder.find_local_model(model)


def test_the_folder_of_an_unknown_user_is_missing():
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        own_folder.load_folder("~none", own_folder.DEMO_MODEL, 1, "mine")


def test_a_folder_called_like_the_demo_model_is_not_the_model(tmp_path, monkeypatch):
    (tmp_path / own_folder.DEMO_MODEL).mkdir()
    monkeypatch.chdir(tmp_path)
    assert own_folder.find_local_model(own_folder.DEMO_MODEL) == own_folder.DEMO_MODEL


# covrag export


def write_adapter(folder, base="x/Base", model=None):
    """The files of an adapter; with a manifest if the training run's model is given."""
    write_jsonl(folder / export.CONFIG, [{"base_model_name_or_path": base, "r": 4}])
    (folder / export.WEIGHTS).write_bytes(b"weights")
    if model:
        write_jsonl(folder / "manifest.json", [{"parameters": {"model": model}}])
    return folder


def test_adapters_are_found_in_a_folder_in_its_adapters_or_as_the_folder_itself(tmp_path):
    cov = write_adapter(tmp_path / "run" / "adapters" / "cov")
    rag = write_adapter(tmp_path / "run" / "adapters" / "rag")
    assert export.find_adapters(str(tmp_path / "run")) == [cov, rag]
    assert export.find_adapters(str(tmp_path / "run" / "adapters")) == [cov, rag]
    assert export.find_adapters(str(rag)) == [rag]


@pytest.mark.parametrize(
    ("base", "model", "recorded"),
    [("x/Base", "y/Model", "y/Model"), ("x/Base", None, "x/Base"), (None, None, "")],
)
def test_the_recorded_model_is_that_of_the_training_run_or_of_peft(tmp_path, base, model, recorded):
    adapter = write_adapter(tmp_path / "cov", base, model)
    assert export.find_recorded_model(adapter) == recorded


@pytest.fixture
def without_tokenizer(monkeypatch):
    """The arguments of the model cards that were built."""
    cards = []
    monkeypatch.setattr(export, "save_tokenizer", lambda model, folder: False)
    monkeypatch.setattr(export, "build_card", lambda *words: cards.append(words) or "card")
    return cards


@pytest.mark.parametrize(("model", "revision"), [("y/Model@v2", "v2"), ("y/Model", None)])
def test_an_exported_adapter_names_its_base_and_revision(
    tmp_path, without_tokenizer, model, revision
):
    adapter = write_adapter(tmp_path / "cov", model=model)
    export.export(adapter, tmp_path / "out", data_licence="CC0")
    settings = json.loads((tmp_path / "out" / export.CONFIG).read_text())
    assert settings == {"base_model_name_or_path": "y/Model", "revision": revision, "r": 4}
    assert (tmp_path / "out" / export.WEIGHTS).read_bytes() == b"weights"
    assert without_tokenizer == [(adapter, model, "", "CC0", False)]


def test_a_base_that_is_given_is_named_but_the_tokenizer_is_that_of_the_training_run(
    tmp_path, without_tokenizer
):
    adapter = write_adapter(tmp_path / "cov", model="y/Model")
    export.export(adapter, tmp_path / "out", "z/Other")
    settings = json.loads((tmp_path / "out" / export.CONFIG).read_text())
    assert settings["base_model_name_or_path"] == "z/Other"
    assert without_tokenizer == [(adapter, "y/Model", "z/Other", "", False)]


def test_an_adapter_in_another_format_is_not_exported(tmp_path):
    adapter = write_adapter(tmp_path / "cov")
    (adapter / export.WEIGHTS).unlink()
    with pytest.raises(FileNotFoundError, match="has no adapter_model.safetensors; other formats"):
        export.export(adapter, tmp_path / "out")


# Model cards.

MANIFEST = {
    "parameters": {"epochs": 2, "lora_rank": 8, "training_seed": 3},
    "hardware": {"gpu": None, "cores": 4},
    "data": {"samples": {"n": 1234, "sha256": "abc"}},
    "weights": "q8 file; 8 bits",
    "model_sha256": "def",
    "wall_seconds": 61.4,
    "peak_memory_gb": 2.25,
    "commit": "123",
}


def test_a_card_says_how_the_adapter_was_trained():
    assert model_card.describe_training(MANIFEST) == {
        "base_weights": "read from q8 file; SHA-256 def…",
        "samples": "1,234 (SHA-256 abc…)",
        "settings": "epochs 2, lora_rank 8, seed 3",
        "machine": "4 CPU cores, 61 s, 2.2 GB",
        "commit": "123",
    }


def test_a_card_names_the_gpu():
    manifest = MANIFEST | {"hardware": {"gpu": "H200", "cores": 4}, "weights": None}
    training = model_card.describe_training(manifest)
    assert training["machine"].startswith("H200, 61 s")
    assert training["base_weights"].startswith("read from its own safetensors; ")


def test_without_a_manifest_a_card_says_so():
    assert set(model_card.describe_training({}).values()) == {"not recorded"}


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """An adapter without a manifest that no recorded run has used."""
    monkeypatch.setattr(model_card, "describe_accuracy", lambda adapter: "unknown accuracy")
    return write_adapter(tmp_path / "mine")


@pytest.mark.parametrize(
    ("base", "data_licence", "licence"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "Apache-2.0", "apache-2.0"),
        ("Qwen/Qwen2.5-7B-Instruct", "CC BY-SA", "other"),
        ("meta-llama/Llama-2-7b-hf", "Apache-2.0", "llama2"),
        ("someone/Other", "Apache-2.0", "other"),
    ],
)
def test_an_adapter_is_as_free_as_its_base_and_its_data(bare, base, data_licence, licence):
    card = model_card.build_card(bare, base, data_licence=data_licence)
    assert f"\nlicense: {licence}\n" in card


def test_an_adapter_of_another_name_was_trained_for_a_task_of_its_own(bare):
    card = model_card.build_card(bare, "someone/Other@v2")
    assert "A LoRA adapter that was trained for a task of its own." in card
    assert "base_model: someone/Other\n" in card
    assert "unknown accuracy" in card


@pytest.mark.parametrize(
    ("model", "base", "found"),
    [
        ("plain:someone/Other", "", "someone/Other"),
        ("/models/tiny.gguf", "someone/Other", "someone/Other"),
        ("smollm2-135m", "", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    ],
)
def test_the_base_of_an_adapter_is_its_id_on_the_hub(model, base, found):
    assert model_card.find_base(model, base).id == found


@pytest.mark.parametrize("model", ["", "tiny.gguf", str(ROOT), "/none"])
def test_a_base_without_an_id_must_be_given(model):
    with pytest.raises(ValueError, match="is a file or folder of this machine; give the id"):
        model_card.find_base(model)


@pytest.mark.parametrize("names", [(), ("all",)])
def test_all_public_sets_are_described_if_none_is_named(names):
    described, licence = model_card.describe_data(
        {"parameters": {"data": "hub", "datasets": names}}
    )
    assert described.count("(") == licence.count(": ") == len(hub.load_entries())


@pytest.mark.parametrize(
    ("names", "described"),
    [
        (("all",), "a folder with question sets"),
        (("a", "b"), "a folder with question sets: a, b"),
    ],
)
def test_a_folder_is_described_by_its_sets(names, described):
    manifest = {"parameters": {"data": "/home/x", "datasets": names}}
    assert model_card.describe_data(manifest) == (described, model_card.NOT_RECORDED)


def use(name="rag", has_chat=False, **parameters):
    return model_card.describe_use(name, {"parameters": parameters}, has_chat)


def test_the_example_has_the_prompt_and_the_limit_of_an_answer():
    shown = use(max_answer_tokens=31, max_revised_tokens=77)
    assert shown["max_tokens"] == 31
    assert "Emma is a novel by Jane Austen" in shown["prompt"]


def test_the_example_of_a_rewriter_rewrites():
    shown = use("rewrite", max_answer_tokens=31, max_revised_tokens=77)
    assert shown["max_tokens"] == 77
    assert "Who wrote Emma?" in shown["prompt"]
    assert "Jane Austen" not in shown["prompt"]


def test_the_example_has_the_layout_of_the_training_run():
    assert use(layout="shared")["prompt"] != use(layout="paper")["prompt"]


@pytest.mark.parametrize(("quantize", "is_noted"), [("nf4", True), ("none", False)])
def test_the_example_mentions_4_bits_only_if_they_were_used(quantize, is_noted):
    assert ("load_in_4bit" in use(quantize=quantize)["load"]) == is_noted


@pytest.mark.parametrize("has_chat", [True, False])
def test_the_example_uses_the_chat_template_only_if_there_is_one(has_chat):
    assert ("apply_chat_template" in use(has_chat=has_chat)["encode"]) == has_chat


def test_the_accuracy_of_a_card_leaves_out_questions_that_cannot_be_scored():
    rows = pd.DataFrame({"normalised": [True, True, True, False, None]})
    assert model_card.accuracy_row("RAG", rows) == "| RAG | 4 | 75.0 [30.1, 95.4] |"


def test_an_accuracy_of_no_question_is_a_row():
    rows = pd.DataFrame({"normalised": [None]})
    assert model_card.accuracy_row("RAG", rows) == "| RAG | 0 | – |"


@pytest.fixture
def recorded_runs(monkeypatch, tmp_path):
    """A function that returns the run of an adapter among these: table, questions, weights."""

    def find(*runs):
        made = []
        for number, (table, n, weights) in enumerate(runs):
            manifest = {"adapters": {"cov": weights}, "data": {"questions": {"n": n}}}
            made.append(Recorded(tmp_path / str(number), table, manifest))
        monkeypatch.setattr(model_card, "hash_files", lambda files: "mine")
        monkeypatch.setattr(model_card, "find", lambda root: made[:1])
        monkeypatch.setattr(model_card, "find_in", lambda folder: made[1:])
        run = model_card.find_run(tmp_path / "adapters" / "cov")
        return run and int(run.folder.name)

    return find


def test_a_card_shows_the_largest_run_of_whole_systems_with_the_same_weights(recorded_runs):
    runs = [("table2", 10, "mine"), ("claim", 30, "mine"), ("claim", 90, "other")]
    assert recorded_runs(*runs, ("table5", 99, "mine")) == 1


def test_of_two_equally_large_runs_table_2_is_shown(recorded_runs):
    assert recorded_runs(("table2", 10, "mine"), ("claim", 10, "mine")) == 0


def test_without_a_run_of_the_same_weights_none_is_shown(recorded_runs):
    assert recorded_runs(("table2", 10, "other")) is None


@pytest.mark.parametrize(
    ("folder", "place"),
    [(ROOT / "results" / "a" / "seed-1", "results/a/seed-1"), (Path("/home/someone/own"), "own")],
)
def test_the_place_of_a_run_shows_no_path_of_a_user(folder, place):
    assert model_card.describe_place(SimpleNamespace(folder=folder)) == place


def test_the_accuracy_is_of_rag_and_of_the_systems_with_the_adapter(monkeypatch, tmp_path):
    rows = [(system, "nq", True) for system in ("RAG", "RAG trained", "CoV-RAG")]
    frame = pd.DataFrame(rows, columns=["system", "dataset", "normalised"])
    run = Recorded(tmp_path / "own", "table2", {"parameters": Config().change(data="x").flat()})
    monkeypatch.setattr(model_card, "find_run", lambda adapter: run)
    monkeypatch.setattr(model_card, "load_or_outcomes", lambda run: None)
    monkeypatch.setattr(model_card, "to_frame", lambda predictions: frame)
    text = model_card.describe_accuracy(tmp_path / "rag")
    shown = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
    assert shown == ["| system", "| ---", "| RAG (untuned)", "| RAG (trained)"]
    assert "fictional" not in text
