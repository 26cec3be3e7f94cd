"""The forecast of a replication: its hours, memory and downloads, and what cannot fit."""

import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.constants import HF_HOME
from transformers import PreTrainedModel

from covrag_lite.config import ALL, Config, resolve
from covrag_lite.data import hub, kind_of
from covrag_lite.engine import weights
from covrag_lite.engine.devices import find_device, free_memory
from covrag_lite.engine.fast import memory
from covrag_lite.engine.interface import RowShape
from covrag_lite.replication.plan import SETTINGS, Plan

UNSEEN = ("endpoint:", "plain:")  # engines whose memory cannot be estimated
LONGEST_SAMPLE = 2048  # assumed, in tokens: twice five passages of a hundred words
TARGETS = 8  # one in this many tokens of a row is a target
LARGE = 5e9  # parameters; answers of such a network need small batches on a small card


class State(NamedTuple):
    """One stage of one seed, and whether it is finished."""

    seed: int
    stage: str
    done: bool


@dataclass(frozen=True)
class Forecast:
    """What a replication will need."""

    rows: pd.DataFrame  # one per stage, with its hours
    sentences: list[str]  # on hours, memory, licences and downloads
    refusals: list[str]  # what cannot fit, each with its cure

    def __str__(self) -> str:
        table = self.rows.to_string(index=False, na_rep="?")
        return "\n".join([table, *self.sentences])


def foresee(plan: Plan, states: Sequence[State], gpu_gb: float) -> Forecast:
    """Forecast the hours, memory and downloads of the stages that are not done.

    `gpu_gb` is the memory of the assumed card; 0 means the card of this machine.
    """
    rates = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))["rates"]
    left = {state.stage for state in states if not state.done}
    device = "cuda" if gpu_gb else plan.config.model.device
    if device == "auto":
        device = find_device()
    # A card's GiB, counted as GB, leave it 7 % for its own use.
    room = gpu_gb * 1e9 or free_memory(device)
    network = sketch(plan, device) if left else None
    hours: dict[str, float] = {}
    sentences: list[str] = []
    refusals: list[str] = []
    size = 0
    if network is not None:
        size = sum(tensor.numel() for tensor in network.parameters())
        for stage in left & {*rates["tokens"], *rates["texts"]}:
            hours[stage] = foresee_hours(plan, stage, size, rates)
    rows = list_rows(states, hours)
    if hours:
        is_slower = size >= LARGE and device == "cuda"
        sentences.append(describe_hours(rows.hours.sum(), rates, room if is_slower else None))
    if network is not None and left & set(rates["tokens"]):
        try:
            sentences.append(foresee_memory(plan, network, device, room))
        except MemoryError as error:
            refusals.append(str(error))
    if left:
        downloads = list_downloads(plan, size)
        sentences += describe_licences(plan, downloads)
        sentences.append(describe_downloads(downloads))
        refusals += refuse_downloads(downloads)
    return Forecast(rows, sentences, refusals)


def list_rows(states: Sequence[State], hours: Mapping[str, float]) -> pd.DataFrame:
    """Return one row per stage with its hours; None if they cannot be estimated."""
    rows = []
    for state in states:
        word = "done" if state.done else "to do"
        rows.append((state.seed, state.stage, word, 0.0 if state.done else hours.get(state.stage)))
    return pd.DataFrame(rows, columns=["seed", "stage", "state", "hours"]).round(2)


def describe_hours(hours: float, rates: Mapping, room: float | None) -> str:
    """Describe the hours and energy; `room` if a large network answers slower on such a card."""
    watts = rates["watts"]
    energy = f"{hours * watts / 1000:.0f} kWh at its {watts} W"
    card = f"on an {rates['card']} ({rates['source']}), or {energy}"
    sentence = f"hours: {hours:.1f} at the rates measured {card}; other cards differ"
    if room is None:
        return sentence
    # With a large network, a small card only has room for small batches.
    for gb, times in rates["held"]:
        if room / 1e9 <= gb:
            return f"{sentence}; in {room / 1e9:.0f} GB its texts may take {times} times as long"
    return sentence


def sketch(plan: Plan, device: str) -> PreTrainedModel | None:
    """Build the backbone's network without weights; None if memory and hours cannot be estimated.

    These are served and plain models, and the embedded model.
    """
    name = plan.config.model.model
    quantize = plan.config.model.quantize
    if name in weights.MODELS or name.startswith(UNSEEN):
        return None
    shape = plan.card.get("shape") or weights.find_shape(name)
    return memory.build_without_weights(shape, quantize, device)


def foresee_memory(plan: Plan, network: PreTrainedModel, device: str, room: float) -> str:
    """Return a sentence on the memory of training; an error names the cure if it does not fit.

    Answering needs less and adapts its batches.
    """
    settings = plan.config.training
    tokens = settings.pack_tokens
    shape = RowShape(tokens, 0, tokens // TARGETS, min(LONGEST_SAMPLE, tokens))
    needed = memory.require_memory(network, settings, shape, room, device)
    place = "this machine, which has no CUDA card (--gpu-gb 24 assumes one),"
    if device == "cuda":
        place = "the card"
    needs = f"memory: training will need about {needed / 1e9:.1f} GB"
    return f"{needs}, and {place} has {room / 1e9:.1f} GB"


def foresee_hours(plan: Plan, stage: str, size: int, rates: Mapping) -> float:
    """Estimate the hours of a stage from the measured network nearest in size, in proportion."""
    nearest = min(rates["measured"], key=lambda row: abs(row[0] - size))
    measured_size, tokens_per_second, texts_per_second = nearest
    training = rates["tokens"].get(stage, 0) / tokens_per_second
    answering = rates["texts"].get(stage, 0) / texts_per_second
    seconds = count_questions(plan, stage, rates) * (training + answering)
    return seconds * size / measured_size / 3600


def count_questions(plan: Plan, stage: str, rates: Mapping) -> int:
    """Count the questions of a stage without loading a public set."""
    config = plan.config
    learns = stage in rates["tokens"]
    split = "train" if learns or stage == "sigma" else "test"
    limit = config.data.n_questions
    if learns:
        limit = config.synthesis.n_train_questions
    elif stage == "sigma":
        limit = plan.settings["validation"]
    chosen = plan.choose("claim" if stage == "claim" else split)
    if chosen == ALL:
        chosen = kind_of(config).sets(config, split)
    total = 0
    for dataset in chosen:
        n = count_set(config, split, dataset)
        total += min(n, limit or n)
    return total


def count_set(config: Config, split: str, dataset: str) -> int:
    """Count the questions of a set; those of a public set are known without a download."""
    if config.data.data != "hub":
        return len(kind_of(config).questions(config, split, dataset))
    n = hub.find_entry(dataset).rows[split]
    if split == "test" and config.data.sample:
        return min(n, config.data.sample)
    return n


def is_here(name: str) -> bool:
    """Is this model a local folder or file, or in the hub's cache?"""
    if resolve(name).exists():
        return True
    return isinstance(try_to_load_from_cache(name.partition("@")[0], "config.json"), str)


@dataclass(frozen=True)
class Downloads:
    """What must be downloaded, and the disk that it needs."""

    parts: dict[str, float]  # gigabytes of each
    built_gb: float  # on disk, made from the downloads
    home: Path  # a folder on the disk that they go to

    @property
    def needed_gb(self) -> float:
        return sum(self.parts.values()) + self.built_gb

    @property
    def free_gb(self) -> float:
        return shutil.disk_usage(self.home).free / 1e9

    @property
    def disk(self) -> str:
        return f"{self.needed_gb:.1f} GB of disk needed, {self.free_gb:.1f} GB free"


def list_downloads(plan: Plan, size: int) -> Downloads:
    """List the downloads of a replication with a model of that size."""
    parts = {}
    built_gb = 0.0
    model = plan.config.model.model
    if size and not is_here(model):
        parts[model] = 2 * size / 1e9  # 16 bits per parameter
    if plan.config.data.data == "hub":
        parts["questions"] = sum(entry.gb for entry in hub.load_entries().values())
    corpus = hub.load_corpora().get(plan.config.data.corpus)
    if corpus:
        parts[plan.config.data.corpus] = corpus.gb
        built_gb = corpus.disk_gb - corpus.gb
    folders = (Path(HF_HOME), *Path(HF_HOME).parents)
    home = next(folder for folder in folders if folder.exists())
    return Downloads(parts, built_gb, home)


def describe_licences(plan: Plan, downloads: Downloads) -> list[str]:
    """Describe the licences of the model and of the corpus."""
    sentences = []
    model = plan.config.model.model
    if model in downloads.parts:
        licence = plan.card.get("licence", "see its page on the hub")
        gate = ""
        if plan.card.get("gated"):
            gate = "; gated: accept the licence on the hub, then run `hf auth login`"
        sentences.append(f"licence of {model}: {licence}{gate}")
    name = plan.config.data.corpus
    corpus = hub.load_corpora().get(name)
    if corpus:
        sentences.append(f"licence of {name}, {corpus.passages:,} passages: {corpus.licence}")
    return sentences


def describe_downloads(downloads: Downloads) -> str:
    """Describe the sizes of the downloads and the disk that they need."""
    listed = ", ".join(f"{part} {gb:.1f} GB" for part, gb in downloads.parts.items())
    return f"download: {listed or 'nothing'}; {downloads.disk}"


def refuse_downloads(downloads: Downloads) -> list[str]:
    """Return a sentence with the cure if the disk is too small."""
    if downloads.needed_gb <= downloads.free_gb:
        return []
    cure = "free some space, or set HF_HOME to another disk"
    return [f"{downloads.disk} in {downloads.home}; {cure}"]
