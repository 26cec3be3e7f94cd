"""Files are replaced only by complete files, and damaged ones are named."""

import errno
import gzip
import itertools
import json
import lzma
import multiprocessing
import os
import random
import resource
import shutil
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from matplotlib import pyplot
from safetensors import safe_open
from safetensors.torch import save_file

from covrag_lite import files
from covrag_lite.config import ROOT
from covrag_lite.data.documents import keep
from covrag_lite.engine import weights
from covrag_lite.engine.trainee import AdapterTrainee
from covrag_lite.files import (
    RecordDamaged,
    building_folder,
    read_json,
    read_rows,
    replacing,
    write_json,
    write_text,
)
from covrag_lite.records import Passage, Prediction, Question, Round, Sample
from covrag_lite.runs.predictions import save_predictions
from covrag_lite.tables.answerable import save_ids
from covrag_lite.tables.pictures import save_picture
from covrag_lite.tables.table import Table
from covrag_lite.training.sample_files import save_samples


@pytest.fixture
def file(tmp_path):
    """A file with an old text."""
    path = tmp_path / "table.md"
    path.write_text("old")
    return path


def names(path):
    return [other.name for other in path.parent.iterdir()]


def test_a_file_is_replaced(file):
    write_text(file, "new – ü")
    assert file.read_text(encoding="utf-8") == "new – ü"
    assert names(file) == ["table.md"]


def test_a_file_is_whole_before_it_takes_its_place(file):
    with replacing(file) as unfinished:
        unfinished.write(b"new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_stopped_writer_leaves_the_old_file_alone(file, error):
    with pytest.raises(error), replacing(file) as unfinished:
        unfinished.write(b"ne")
        raise error
    assert file.read_text() == "old"
    assert names(file) == ["table.md"]


def write_forever(path):
    """Replace a file by two long texts in turn, until the process is killed."""
    while True:
        for letter in "ab":
            write_text(path, letter * 300_000)


def kill_often(write, path, check, n=8):
    """Kill a process that writes, at random moments; `check` looks at what each one leaves."""
    rng = random.Random(0)
    for _ in range(n):
        writer = multiprocessing.get_context("fork").Process(target=write, args=(path,))
        writer.start()
        time.sleep(rng.uniform(0.02, 0.06))
        writer.kill()
        writer.join()
        check(path)


def test_a_writer_killed_at_any_moment_leaves_a_whole_file(file):
    def check(path):
        assert path.read_text() in ("old", "a" * 300_000, "b" * 300_000)

    kill_often(write_forever, file, check)


def save_checkpoints(path):
    """Write a checkpoint again and again, with one more row each time."""
    for number in itertools.count():
        tensors = {"weights": torch.full((50_000,), float(number))}
        trainee = SimpleNamespace(tensors=tensors, key="key")
        AdapterTrainee.save(trainee, path.parent, [{"step": number}])


def test_a_training_run_killed_at_any_moment_leaves_a_checkpoint_with_its_own_rows(tmp_path):
    def check(path):
        if path.exists():
            with safe_open(path, "pt") as file:
                (row,) = json.loads(file.metadata()["rows"])
                assert file.get_tensor("weights").unique().tolist() == [row["step"]]

    kill_often(save_checkpoints, tmp_path / "checkpoint.safetensors", check, 5)


def build_folders(path):
    """Build one folder after another, of two files each."""
    for number in itertools.count():
        with building_folder(path / str(number)) as unfinished:
            for name in ("a", "b"):
                (unfinished / name).write_text(name * 100_000)


def test_a_conversion_killed_at_any_moment_leaves_only_whole_folders(tmp_path):
    def check(path):
        for folder in path.glob("[0-9]*"):
            assert [len((folder / name).read_text()) for name in ("a", "b")] == [100_000] * 2
        shutil.rmtree(path, ignore_errors=True)

    kill_often(build_folders, tmp_path / "cache", check, 5)


def test_two_processes_may_write_the_same_file_at_once(file):
    with replacing(file) as unfinished:
        unfinished.write(b"a")
        other = multiprocessing.get_context("fork").Process(target=write_text, args=(file, "b"))
        other.start()
        other.join()
        assert file.read_text() == "b"
    assert file.read_text() == "a"
    assert names(file) == ["table.md"]


def test_a_file_is_on_the_disk_before_it_takes_its_place(file, monkeypatch):
    synced = []
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: synced.append(file.read_text()))
    write_text(file, "new")
    assert synced == ["old"]


@pytest.fixture
def small_files():
    """No file may be longer than a thousand bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def draw(path):
    figure, axes = pyplot.subplots()
    axes.plot([0, 1, 0])
    save_picture(figure, path)
    pyplot.close(figure)


def record(path):
    """Save predictions whose answers hardly compress."""
    rng = random.Random(0)
    predictions = []
    for number in range(20):
        question = Question(f"q{number}", "nq", f"{number}?", ("a",))
        answer = str(rng.getrandbits(400))
        predictions.append(Prediction(question, "RAG", (Round(f"{number}?", (), answer),)))
    save_predictions(path, predictions)


def write_checkpoint(path):
    trainee = SimpleNamespace(tensors={"weights": torch.zeros(1000)}, key="key")
    AdapterTrainee.save(trainee, path.parent, [])


def write_samples(path):
    rng = random.Random(0)
    samples = [Sample(str(i), "answer", str(rng.getrandbits(400)), ("!",)) for i in range(20)]
    save_samples(path, samples)


LONG = "new " * 1000
WRITERS = {
    "table.txt": lambda path: write_text(path, LONG),
    "table.png": draw,
    "table.md": lambda path: Table("table", pd.DataFrame(), notes=[LONG], parts=PARTS).save(
        path.parent
    ),
    "table.manifest.json": lambda path: write_json(path, {"notes": LONG}),
    "table.predictions.jsonl.xz": record,
    "checkpoint.safetensors": write_checkpoint,  # its library has errors of its own
    "rag.samples.jsonl.gz": write_samples,
    "passages.jsonl": lambda path: keep(path, "state", [], [Passage("p", "", LONG)]),
    "answerable.json.xz": lambda path: save_ids(
        path, [Question(str(random.getrandbits(400)), "nq", "", ()) for _ in range(20)]
    ),
}
NOBODY = 65534  # the number of the user without rights
PARTS = {"Heading": pd.DataFrame({"a": [1]})}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_does_not_fit_is_named_and_the_old_one_stays(tmp_path, small_files, name):
    file = tmp_path / name
    file.write_text("old")
    with pytest.raises(OSError, match="File too large, so this file was not written") as caught:
        WRITERS[name](file)
    assert caught.value.filename == str(file)
    assert file.read_text() == "old"
    assert not [other for other in names(file) if other.endswith(".part")]


@pytest.fixture
def forbidden():
    """A folder in which this user, or another one if this is root, may not write."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


def write_as_stranger(write, path, sender):
    """Write as a user without rights, and send the message of the error."""
    if os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        write(path)
        sender.send("written")
    except OSError as error:
        sender.send(files.describe_error(error))


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_in_a_folder_without_permission_is_named_with_what_helps(forbidden, name):
    receiver, sender = multiprocessing.Pipe()
    words = (WRITERS[name], forbidden / name, sender)
    writer = multiprocessing.get_context("fork").Process(target=write_as_stranger, args=words)
    writer.start()
    writer.join()
    message = receiver.recv() if receiver.poll() else ""
    named, _, cure = message.partition(": ")
    assert Path(named).parent == forbidden
    assert cure == (
        "Permission denied, so this file was not written; make the folder writable, or choose "
        "another one"
    )


def test_no_duration_is_measured_with_a_clock_that_may_go_backwards():
    modules = (ROOT / "covrag_lite").rglob("*.py")
    assert [path.name for path in modules if "time.time()" in path.read_text()] == []


def test_a_conversion_that_does_not_fit_leaves_nothing(tmp_path, monkeypatch):
    def save_pretrained(folder):
        (folder / "config.json").touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    loader = SimpleNamespace(
        from_pretrained=lambda *words, **named: SimpleNamespace(save_pretrained=save_pretrained)
    )
    monkeypatch.setattr(weights, "CACHE", tmp_path)
    monkeypatch.setattr(weights, "fast_gguf", nullcontext)
    monkeypatch.setattr("transformers.AutoModelForCausalLM", loader)
    monkeypatch.setattr("transformers.AutoTokenizer", loader)
    with pytest.raises(OSError, match="so this file was not written") as caught:
        weights.convert_gguf(Path("model.gguf"), "0123")
    assert caught.value.filename == str(tmp_path / "model-0123")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_does_not_fit_leaves_nothing(tmp_path, small_files):
    with pytest.raises(OSError, match="File too large") as caught:
        with building_folder(tmp_path / "model") as unfinished:
            write_text(unfinished / "config.json", "{}")
            save_file({"weights": torch.zeros(1000)}, unfinished / "model.safetensors")
    assert caught.value.filename == str(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_folder_gets_its_name_when_it_is_complete(tmp_path):
    with building_folder(tmp_path / "model") as unfinished:
        (unfinished / "config.json").touch()
        assert not (tmp_path / "model").exists()
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["config.json"]


def test_a_folder_that_another_process_has_made_is_kept(tmp_path):
    with building_folder(tmp_path / "model"):
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "theirs").touch()
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["theirs"]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "number, cure",
    [
        (errno.ENOSPC, "free some disk space and run again"),
        (errno.EROFS, "make the folder writable, or choose another one"),
    ],
)
def test_a_disk_that_cannot_be_written_gives_one_sentence_with_the_path(
    file, monkeypatch, number, cure
):
    def fail(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError) as caught:
        write_text(file, "new")
    assert cure in str(caught.value)
    assert caught.value.filename == str(file)
    assert "\n" not in str(caught.value)


def test_a_full_disk_leaves_the_old_file_alone(file, monkeypatch):
    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError):
        write_text(file, "new")
    assert file.read_text() == "old"
    assert names(file) == ["table.md"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        write_text(tmp_path / "none" / "table.md", "new")


@pytest.mark.parametrize("end, pack", [("xz", lzma.compress), ("gz", gzip.compress)])
def test_rows_end_only_at_line_feeds(tmp_path, end, pack):
    path = tmp_path / f"rows.{end}"
    path.write_bytes(pack('{"text": "a\u2028b"}\n{"text": "c"}\n'.encode()))
    assert read_rows(path) == [{"text": "a\u2028b"}, {"text": "c"}]


@pytest.mark.parametrize("end, pack", [("xz", lzma.compress), ("gz", gzip.compress)])
def test_a_torn_file_of_rows_is_damaged(tmp_path, end, pack):
    path = tmp_path / f"rows.{end}"
    path.write_bytes(pack(b'{"text": "a"}\n')[:-5])
    with pytest.raises(RecordDamaged, match=f"rows.{end} is damaged"):
        read_rows(path)


def test_a_line_that_is_not_json_is_named(tmp_path):
    path = tmp_path / "rows.gz"
    path.write_bytes(gzip.compress(b'{"text": "a"}\n{"te\n'))
    with pytest.raises(RecordDamaged, match="rows.gz is damaged: line 2 is not JSON"):
        read_rows(path)


def test_a_torn_manifest_is_damaged(tmp_path):
    path = tmp_path / "table2.manifest.json"
    path.write_text('{"parameters": {')
    with pytest.raises(RecordDamaged, match="table2.manifest.json is damaged"):
        read_json(path)
