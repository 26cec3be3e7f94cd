"""The command of a 7B replication runs to its end, offline, on a hub cache made by hand."""

import io
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stdout

import datasets
import huggingface_hub
import pytest
import sentencepiece
from conftest import build_network
from test_data_hub import write_parquet, write_sets
from test_notebooks import run_cells

from covrag_lite import prompts
from covrag_lite.config import ROOT
from covrag_lite.data import SPLITS, hub

SHA = "0" * 40
WORDS = 1200  # of the tokenizer; with fewer, prompts would have thousands of tokens
SMALL = {
    "k": 2,
    "sample": 1,
    "sampling": "random",  # the cache has none of the paper's questions
    "max_answer_tokens": 10,
    "max_revised_tokens": 3,
    "table2": "RAG trained,CoV-RAG",
    "train_sets": "nq,mintaka",
    "n_train_questions": 4,
    "lora_rank": 2,
    "epochs": 8,
    "learning_rate": 0.02,
    "pack_tokens": 1024,
    "step_tokens": 256,
}
BACKBONE = "someone/Tiny-Llama"


def write_corpus(root):
    """A corpus like BEIR's NQ, with all answers; a one-word model is right about half the time."""
    rows = []
    for split, kind in itertools.product(SPLITS, ("lake", "quiz", "hill", "town")):
        for i in range(12):
            title = f"{split} {kind} {i}"
            place = "south" if i % 2 else "north"
            text = f"The {title} lies in the {place}."
            rows.append({"_id": title, "title": title, "text": text})
    write_parquet(root / "nq-wikipedia/corpus/corpus/0000.parquet", rows)


def fill_cache(root, home):
    """The files in HF_HOME after these sets were downloaded, raw or as `datasets` stores them."""
    entries = {name: entry for name, entry in hub.load_entries().items() if not entry.cited}
    entries["nq-wikipedia"] = hub.load_corpora()["nq-wikipedia"]
    for name, entry in entries.items():
        if entry.files:
            place = home / "hub" / f"datasets--{entry.id.replace('/', '--')}"
            put_snapshot(root / name, place, entry.revision)
        else:
            prepare_set(root, name, entry, home / "datasets")


def prepare_set(root, name, entry, cache):
    """A set as `datasets` stores it after a download."""
    owner, repository = entry.id.split("/")
    folder = root / owner / repository
    shutil.copytree(root / name, folder)  # `datasets` names what it stores by the folder
    datasets.load_dataset(str(folder), entry.config, cache_dir=str(cache / owner))
    (cache / owner / repository).rename(cache / f"{owner}___{repository}")


def put_snapshot(folder, place, revision="main"):
    """A repository as the hub's cache stores it."""
    shutil.copytree(folder, place / "snapshots" / SHA)
    (place / "refs" / revision).parent.mkdir(parents=True)
    (place / "refs" / revision).write_text(SHA)


def write_llama(folder):
    """Two random layers and a SentencePiece tokenizer, in the files of a Llama 2 derivative."""
    tokens = {"vocab_size": WORDS, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    build_network("Llama", **tokens).save_pretrained(folder)
    with open(folder / "tokenizer.model", "wb") as file:
        train_tokenizer(file)
    settings = {
        "tokenizer_class": "LlamaTokenizer",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def train_tokenizer(file):
    """Write a SentencePiece tokenizer of our instructions and of an English text."""
    # The text must not change: what so small a model learns depends on its words.
    english = (ROOT / "LICENSE").read_text()[:4000]
    instructions = [*prompts.CRITERIA.splitlines(), *prompts.STEPS.splitlines()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*instructions * 3, english]),
        model_writer=file,
        vocab_size=WORDS,
        model_type="bpe",
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        byte_fallback=True,
        minloglevel=2,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """HF_HOME after everything was downloaded."""
    root = tmp_path_factory.mktemp("rehearsal")
    datasets.disable_progress_bars()
    write_sets(root / "sets")
    write_corpus(root / "sets")
    fill_cache(root / "sets", root / "home")
    write_llama(root / "llama")
    put_snapshot(root / "llama", root / "home/hub/models--someone--Tiny-Llama")
    return root / "home"


@pytest.fixture(scope="module")
def runs(home):
    """The folder of everything that the command writes."""
    return home.parent / "runs"


@pytest.fixture(scope="module")
def words():
    """The parameters as the command gets them."""
    words = []
    for name, value in SMALL.items():
        words += ["-p", name, str(value)]
    return words


@pytest.fixture(scope="module")
def command(home, runs, words):
    """The command, which ran to its end or to an error."""
    stages = ["--stages", "data,rag,cov,table2", "--seeds", "1"]
    arguments = [BACKBONE, *stages, *words, "-p", "runs", str(runs)]
    environment = os.environ | {
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "COVRAG_CACHE": str(home.parent / "cache"),
    }
    return subprocess.run(
        [sys.executable, "-m", "covrag_lite.replication", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def results(command, runs):
    """The folder of the results, named after the last part of the model's id in small letters."""
    return runs / "tiny-llama" / "seed-1"


@pytest.fixture(scope="module")
def data(results):
    """What the manifest of the table says about its data."""
    return json.loads((results / "table2.manifest.json").read_text())["data"]


def test_the_command_runs_to_its_end_on_what_the_hub_left_in_its_cache(command):
    assert command.returncode == 0, command.stderr


def test_the_table_is_in_the_folder_of_the_model_and_seed(results):
    assert (results / "table2.md").exists()


def test_the_whole_corpus_is_searched(data):
    assert data["passages"]["n"] == 144


def test_one_question_of_each_of_the_four_sets_is_answered(data):
    assert data["questions"]["n"] == 4


def test_a_corpus_that_was_not_downloaded_whole_is_reported(command):
    assert "corpus 'nq-wikipedia' has 144 passages, not 2,681,468" in command.stderr


def test_the_memory_of_training_is_estimated_before_the_first_stage(command):
    before, _, _ = command.stdout.partition("seed 1, data: starting")
    assert "memory: training will need about" in before


@pytest.fixture(scope="module")
def hosted(command, home, runs, words):
    """What the notebook for a hosted GPU prints if it runs after the command."""
    parameters = {
        "backbone": BACKBONE,
        "keep": str(runs),
        "questions": 4,
        "more": shlex.join(words),
    }
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home / "hub"))
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        run_cells(ROOT / "notebooks/hosted.ipynb", parameters)
    return printed.getvalue()


def test_the_hosted_notebook_uses_what_the_command_trained(hosted):
    assert "seed 1, cov: already done" in hosted


def test_the_hosted_notebook_starts_no_stage_that_is_done(hosted):
    assert "starting" not in hosted
