"""What a replication will fetch, hold and take, told before anything starts; what cannot fit is told with its cure."""

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

REFUSED = "does not fit: "  # begins a sentence on what stops the run
UNSEEN = ("endpoint:", "plain:")  # engines whose memory is not known beforehand
LONGEST = 2048  # tokens that the longest sample is taken to have: five passages of a hundred words take half of it
TARGETS = 8  # of so many tokens of a row one is learnt from


def foresee(plan: Plan, states: Sequence[tuple[int, str, bool]], gpu_gb: float) -> None:
    """Print a row a stage (seed, stage, whether it is done) with its hours, and sentences on memory, downloads, gates.

    `gpu_gb` reckons with a card of that size; 0 takes what is found. What cannot fit is an error, with its cure.
    """
    rates = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))["rates"]
    left = {stage for _, stage, done in states if not done}
    found = find_device() if plan.config.model.device == "auto" else plan.config.model.device
    device = "cuda" if gpu_gb else found
    room = gpu_gb * 1e9 or memory.free_memory(device)  # a card's GiB counted as GB leave it 7 % for its own use
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
        where = f"on an {rates['card']} ({rates['source']}), or {total * watts / 1000:.0f} kWh at its {watts} W"
        # A small card holds small batches of a large network alone.
        times = next((times for gb, times in rates["held"] if room / 1e9 <= gb), None)
        small = times and size >= 5e9 and device == "cuda"
        slower = f"; in {room / 1e9:.0f} GB its texts may take {times} times as long" if small else ""
        told.insert(0, f"hours: {total:.1f} at the rates measured {where}; other cards have others{slower}")
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
    """What training holds; answering holds less, and its batches shrink until they fit."""
    settings = plan.config.training
    tokens = settings.pack_tokens
    shape = Shape(tokens, 0, tokens // TARGETS, min(LONGEST, tokens))
    place = "the card" if device == "cuda" else "this machine, which has no CUDA card (--gpu-gb 24 reckons with one),"
    try:
        needed = memory.refuse(network, settings, shape, room, device)
    except MemoryError as error:
        return f"{REFUSED}{error}"
    return f"memory: training will need about {needed / 1e9:.1f} GB, and {place} has {room / 1e9:.1f} GB"


def foresee_hours(plan: Plan, stage: str, size: int, rates: dict) -> float:
    """The hours of a stage, at the rates of the measured network that is nearest in size, in proportion to it."""
    known, tokens, texts = min(rates["measured"], key=lambda row: abs(row[0] - size))
    seconds = rates["tokens"].get(stage, 0) / tokens + rates["texts"].get(stage, 0) / texts
    config, learns = plan.config, stage in rates["tokens"]
    split = "train" if learns or stage == "sigma" else "test"
    limit = config.synthesis.n_train_questions if learns else config.data.n_questions
    limit = plan.settings["validation"] if stage == "sigma" else limit
    asked = 0
    for name in plan.choose("claim" if stage == "claim" else split):
        if config.data.data == "hub":  # known without fetching them
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
    """What is fetched for a model of that size, by which licence and gate, and whether the disk has room for it."""
    name, parts, made = plan.config.model.model, {}, 0.0
    if size and not is_here(name):
        parts[name] = 2 * size / 1e9  # 16 bits each
        gate = "; gated: accept the licence on the hub, then `hf auth login`" if plan.card.get("gated") else ""
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
    yield f"download: {listed or 'nothing'}; {needed:.1f} GB of disk, of which {free:.1f} GB are free"
    if needed > free:
        yield f"{REFUSED}{needed:.1f} GB of disk where {free:.1f} GB are free; make room, or set HF_HOME elsewhere"
