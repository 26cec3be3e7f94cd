"""The forecast of a replication: hours, memory and downloads; an error if it cannot fit."""

import shutil
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.constants import HF_HOME
from transformers import PreTrainedModel

from covrag_lite.config import resolve
from covrag_lite.data import hub, kind_of
from covrag_lite.engine import memory, weights
from covrag_lite.engine.devices import find_device
from covrag_lite.engine.interface import Shape
from covrag_lite.plan import SETTINGS, Plan

REFUSED = "does not fit: "  # the beginning of a sentence that stops the run
UNSEEN = ("endpoint:", "plain:")  # engines whose memory cannot be estimated
LONGEST = 2048  # assumed tokens of the longest sample: twice five passages of a hundred words
TARGETS = 8  # one in this many tokens of a row is a target


def foresee(plan: Plan, states: Sequence[tuple[int, str, bool]], gpu_gb: float) -> None:
    """Print one row per stage with its hours, and sentences on memory, downloads and gates.

    `states` contains (seed, stage, whether it is done). `gpu_gb` is the memory of the assumed card;
    0 means the one found. If something cannot fit, an error names the cure.
    """
    rates = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))["rates"]
    left = {stage for _, stage, done in states if not done}
    found = find_device() if plan.config.model.device == "auto" else plan.config.model.device
    device = "cuda" if gpu_gb else found
    # A card's GiB, counted as GB, leave it 7 % for its own use.
    room = gpu_gb * 1e9 or memory.free_memory(device)
    network = sketch(plan, device) if left else None
    hours, told, size = {}, [], 0
    if network is not None:
        size = sum(p.numel() for p in network.parameters())
        hours = {stage: foresee_hours(plan, stage, size, rates) for stage in left & {*rates["tokens"], *rates["texts"]}}
        told += [foresee_memory(plan, network, device, room)] if left & set(rates["tokens"]) else []
    rows = [(*state[:2], "done" if state[2] else "to do", 0.0 if state[2] else hours.get(state[1])) for state in states]
    frame = pd.DataFrame(rows, columns=["seed", "stage", "state", "hours"]).round(2)
    if hours:
        total, watts = frame.hours.sum(), rates["watts"]
        energy = f"{total * watts / 1000:.0f} kWh at its {watts} W"
        where = f"on an {rates['card']} ({rates['source']}), or {energy}"
        # With a large network, a small card only has room for small batches.
        times = next((times for gb, times in rates["held"] if room / 1e9 <= gb), None)
        small = times and size >= 5e9 and device == "cuda"
        slower = f"; in {room / 1e9:.0f} GB its texts may take {times} times as long" if small else ""
        at_rates = f"hours: {total:.1f} at the rates measured {where}"
        told.insert(0, f"{at_rates}; other cards differ{slower}")
    told += foresee_downloads(plan, size) if left else []
    refused = [one for one in told if one.startswith(REFUSED)]
    print(frame.to_string(index=False, na_rep="?"), *(one for one in told if one not in refused), sep="\n", flush=True)
    if refused:
        raise MemoryError("; ".join(refused))


def sketch(plan: Plan, device: str) -> PreTrainedModel | None:
    """Build the backbone's network without weights; None where memory and hours cannot be estimated.

    These are served and plain models, the embedded model and 8-bit weights.
    """
    name, quantize = plan.config.model.model, plan.config.model.quantize
    if quantize == "int8" or name in weights.MODELS or name.startswith(UNSEEN):
        return None
    # A GGUF file given with -p may be another model than the one whose sizes the plan knows.
    shape = None if name.endswith(".gguf") else plan.card.get("shape")
    return memory.sketch(shape or weights.find_shape(name), quantize, device)


def foresee_memory(plan: Plan, network: PreTrainedModel, device: str, room: float) -> str:
    """Return a sentence on the memory of training; answering needs less and adapts its batches."""
    settings = plan.config.training
    tokens = settings.pack_tokens
    shape = Shape(tokens, 0, tokens // TARGETS, min(LONGEST, tokens))
    has_none = "this machine, which has no CUDA card (--gpu-gb 24 assumes one),"
    place = "the card" if device == "cuda" else has_none
    try:
        needed = memory.refuse(network, settings, shape, room, device)
    except MemoryError as error:
        return f"{REFUSED}{error}"
    needs = f"memory: training will need about {needed / 1e9:.1f} GB"
    return f"{needs}, and {place} has {room / 1e9:.1f} GB"


def foresee_hours(plan: Plan, stage: str, size: int, rates: dict) -> float:
    """Estimate the hours of a stage from the measured network nearest in size, in proportion."""
    known, tokens, texts = min(rates["measured"], key=lambda row: abs(row[0] - size))
    seconds = rates["tokens"].get(stage, 0) / tokens + rates["texts"].get(stage, 0) / texts
    config, learns = plan.config, stage in rates["tokens"]
    split = "train" if learns or stage == "sigma" else "test"
    limit = config.synthesis.n_train_questions if learns else config.data.n_questions
    limit = plan.settings["validation"] if stage == "sigma" else limit
    asked = 0
    for name in plan.choose("claim" if stage == "claim" else split):
        if config.data.data == "hub":  # known without a download
            n = hub.find_entry(name).rows[split]
            n = min(n, config.data.sample or n) if split == "test" else n
        else:
            n = len(kind_of(config).questions(config, split, name))
        asked += min(n, limit or n)
    return asked * seconds * size / known / 3600


def is_here(name: str) -> bool:
    """Is this model a local folder or file, or in the hub's cache?"""
    if resolve(name).exists():
        return True
    return isinstance(try_to_load_from_cache(name.partition("@")[0], "config.json"), str)


def foresee_downloads(plan: Plan, size: int) -> Iterator[str]:
    """Yield sentences on the downloads for a model of that size, their licences, and the disk."""
    name, parts, made = plan.config.model.model, {}, 0.0
    if size and not is_here(name):
        parts[name] = 2 * size / 1e9  # 16 bits per parameter
        login = "; gated: accept the licence on the hub, then run `hf auth login`"
        gate = login if plan.card.get("gated") else ""
        yield f"licence of {name}: {plan.card.get('licence', 'see its page on the hub')}{gate}"
    if plan.config.data.data == "hub":
        parts["questions"] = sum(entry.gb for entry in hub.load_entries().values())
    corpus = hub.load_corpora().get(plan.config.data.corpus)
    if corpus:
        parts[plan.config.data.corpus] = corpus.gb
        made = corpus.disk_gb - corpus.gb
        yield f"licence of {plan.config.data.corpus}, {corpus.passages:,} passages: {corpus.licence}"
    home = next(place for place in (Path(HF_HOME), *Path(HF_HOME).parents) if place.exists())
    needed, free = sum(parts.values()) + made, shutil.disk_usage(home).free / 1e9
    listed = ", ".join(f"{part} {gb:.1f} GB" for part, gb in parts.items())
    disk = f"{needed:.1f} GB of disk needed, {free:.1f} GB free"
    yield f"download: {listed or 'nothing'}; {disk}"
    if needed > free:
        yield f"{REFUSED}{disk} in {home}; free some space, or set HF_HOME to another disk"
