"""The command of a 7B replication runs to its end, offline, on a hub cache made by hand."""

import json
import os
import shlex
import shutil
import subprocess
import sys

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
}
SMALL |= {"train_sets": "nq,mintaka", "n_train_questions": 4, "lora_rank": 2}
SMALL |= {"epochs": 8, "learning_rate": 0.02, "pack_tokens": 1024, "step_tokens": 256}


def write_corpus(root):
    """A corpus like BEIR's NQ, with all answers; a one-word model is right about half the time."""
    names = [f"{split} {kind}" for split in SPLITS for kind in ("lake", "quiz", "hill", "town")]
    rows = [(f"{name} {i}", ("north", "south")[i % 2]) for name in names for i in range(12)]
    rows = [
        {"_id": title, "title": title, "text": f"The {title} lies in the {place}."}
        for title, place in rows
    ]
    write_parquet(root / "nq-wikipedia/corpus/corpus/0000.parquet", rows)


def fill_cache(root, home):
    """The files in HF_HOME after these sets were downloaded, raw or as `datasets` stores them."""
    known = {name: entry for name, entry in hub.load_entries().items() if not entry.cited}
    for name, entry in (known | {"nq-wikipedia": hub.load_corpora()["nq-wikipedia"]}).items():
        owner, repository = entry.id.split("/")
        if entry.files:
            put_snapshot(root / name, home / f"hub/datasets--{owner}--{repository}", entry.revision)
            continue
        shutil.copytree(
            root / name, root / owner / repository
        )  # `datasets` names what it makes by the folder
        datasets.load_dataset(
            str(root / owner / repository), entry.config, cache_dir=str(home / "datasets" / owner)
        )
        (home / "datasets" / owner / repository).rename(
            home / "datasets" / f"{owner}___{repository}"
        )


def put_snapshot(folder, place, revision="main"):
    """A repository as the hub's cache stores it."""
    shutil.copytree(folder, place / "snapshots" / SHA)
    (place / "refs" / revision).parent.mkdir(parents=True)
    (place / "refs" / revision).write_text(SHA)


def write_llama(folder):
    """Two random layers and a SentencePiece tokenizer, in the files of a Llama 2 derivative."""
    build_network(
        "Llama", vocab_size=WORDS, bos_token_id=1, eos_token_id=2, pad_token_id=2
    ).save_pretrained(folder)
    lines = [*prompts.CRITERIA.splitlines(), *prompts.STEPS.splitlines()] * 3 + [
        (ROOT / "LICENSE").read_text()[
            :4000
        ]  # a text that stays as it is: what so small a model learns hangs on its words
    ]
    numbers = {
        "unk_id": 0,
        "bos_id": 1,
        "eos_id": 2,
        "pad_id": -1,
        "byte_fallback": True,
        "minloglevel": 2,
    }
    with open(folder / "tokenizer.model", "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=file,
            vocab_size=WORDS,
            model_type="bpe",
            **numbers,
        )
    about = {
        "tokenizer_class": "LlamaTokenizer",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


@pytest.fixture
def home(tmp_path):
    """HF_HOME after everything was downloaded."""
    datasets.disable_progress_bars()
    write_sets(tmp_path / "sets")
    write_corpus(tmp_path / "sets")
    fill_cache(tmp_path / "sets", tmp_path / "home")
    write_llama(tmp_path / "llama")
    put_snapshot(tmp_path / "llama", tmp_path / "home/hub/models--someone--Tiny-Llama")
    return tmp_path / "home"


def test_the_command_runs_to_its_end_on_what_the_hub_left_in_its_cache(home, monkeypatch, capsys):
    given = [word for name, value in SMALL.items() for word in ("-p", name, str(value))]
    place, stages = str(home.parent / "runs"), ["--stages", "data,rag,cov,table2", "--seeds", "1"]
    command = [
        "covrag_lite.replication",
        "someone/Tiny-Llama",
        *stages,
        *given,
        "-p",
        "runs",
        place,
    ]
    own = os.environ | {
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "COVRAG_CACHE": str(home.parent / "cache"),
    }
    made = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=own, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    results = home.parent / "runs" / "tiny-llama" / "seed-1"  # the id's last part, in small letters
    assert (results / "table2.md").exists()
    manifest = json.loads((results / "table2.manifest.json").read_text())
    assert manifest["data"]["passages"]["n"] == 144 and manifest["data"]["questions"]["n"] == 4
    assert (
        "corpus 'nq-wikipedia' has 144 passages, not 2,681,468" in made.stderr
    )  # what is missing is told
    assert "memory: training will need about" in made.stdout.partition("seed 1, data: starting")[0]
    # The notebook for a hosted GPU resumes where the command ended: it only shows the table.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    asked = {
        "backbone": "someone/Tiny-Llama",
        "keep": place,
        "questions": 4,
        "more": shlex.join(given),
    }
    capsys.readouterr()
    run_cells(ROOT / "notebooks/hosted.ipynb", asked)
    shown = capsys.readouterr().out
    assert "seed 1, cov: already done" in shown and "starting" not in shown
