"""Training against what people use instead, side by side: trl, trl with Liger's kernels, Unsloth, the plain way.

Every way reads the same 4-bit folder, gets the same rows in the same order, and trains adapters of the same rank on the
same layers; only the samples' own tokens count. A way runs in a process of its own, with libraries of its own where
they need other versions than ours, and where it cannot run its own words are the result.

    python -m covrag_lite.speed.peers --shapes tiny --out peers.json
    python -m covrag_lite.speed.peers --shapes 7b,13b,path/to/model.gguf --libraries unsloth=path/to/its/packages
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from covrag_lite.config import ROOT, Config, Training

WARM_UP = 2  # steps that are not timed
GRACE = 90  # seconds beyond its time after which a way is stopped, whatever it does
PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "trl", "liger-kernel", "unsloth", "unsloth-zoo", "datasets")
COLUMNS = ["shape", "samples", "way", "ours_faster", "ours_memory", "tokens_per_second", "peak_gb", "of_limit"]
COLUMNS += ["first_loss", "last_loss", "losses", "settings", "versions", "failure"]
OPTIMIZER = {"optim": "adamw_torch_fused"}
SELECTIVE = {"gradient_checkpointing_kwargs": {"selective": True}}  # trl's: matrix products are kept, all else is not


@dataclass(frozen=True)
class Way:
    """One way to train."""

    kind: str  # "ours", "plain", "trl" or "unsloth"
    modules: tuple[str, ...] = ()  # what must be installed
    given: Mapping[str, object] = field(default_factory=dict)  # of our settings, or of SFTConfig
    # Of a way that trl runs, on CUDA: "flex_attention" keeps the samples of a row apart without a mask of its square.
    attention: str = "sdpa"


WAYS = {  # those worth most first: what does not fit into the time is left out
    "ours": Way("ours"),
    "trl + Liger": Way("trl", ("trl", "liger_kernel"), OPTIMIZER | {"use_liger_kernel": True}, "flex_attention"),
    "Unsloth": Way("unsloth", ("unsloth", "trl"), {"optim": "adamw_8bit"}),
    "trl": Way("trl", ("trl",), OPTIMIZER, "flex_attention"),
    "trl + Liger, selective": Way(
        "trl", ("trl", "liger_kernel"), OPTIMIZER | SELECTIVE | {"use_liger_kernel": True}, "flex_attention"
    ),
    "ours, unpacked, all kept": Way("ours", given={"unpack": "yes", "checkpointing": 0.0}),
    "plain": Way("plain"),
}
SAMPLES = {"our mix": 4096, "rows of 2,048": 2048}  # the samples, and the tokens of a row


@dataclass(frozen=True)
class Case:
    """What is trained on what."""

    shape: str  # of `shapes`, or a model's folder or GGUF file
    samples: str
    step_tokens: int
    n_steps: int


def cases_of(shapes: Sequence[str], step_tokens: int, n_steps: int) -> list[Case]:
    """Both kinds of samples for every shape; a tiny one takes short steps, and a small one more of them."""
    made = []
    for shape in shapes:
        tokens = min(4096, step_tokens) if shape == "tiny" else step_tokens
        steps = n_steps if shape in ("tiny", "7b", "13b") else 4 * n_steps
        made += [Case(shape, samples, tokens, steps) for samples in SAMPLES]
    return made


def benchmark(
    ways: Sequence[str],
    shapes: Sequence[str],
    device: str,
    libraries: Mapping[str, str] | None = None,
    step_tokens: int = 16384,
    n_steps: int = 4,
    seconds: float = 420,
    out: Path | None = None,
) -> pd.DataFrame:
    """Every way on every shape, one process a way; written to `out` as it goes."""
    for way in ways:
        if way not in WAYS:
            raise ValueError(f"way {way!r} is not known; use some of {', '.join(WAYS)}")
    begin = time.perf_counter()
    cases = cases_of(shapes, step_tokens, n_steps)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number, way in enumerate(ways, 1):
            left = seconds * number / len(ways) - (time.perf_counter() - begin)
            rows += run_way(way, cases, device, (libraries or {}).get(WAYS[way].kind, ""), left, Path(folder))
            frame = compare(rows)
            if out:
                out.write_text(json.dumps({"rows": json.loads(frame.to_json(orient="records"))}, indent=1) + "\n")
    return compare(rows)


def run_way(way: str, cases: Sequence[Case], device: str, library: str, seconds: float, folder: Path) -> list[dict]:
    """One way's rows, from a process of its own; a case that it never came to says why."""
    outcome = folder / "outcome.jsonl"
    outcome.write_text("")
    task = {"way": way, "device": device, "seconds": seconds, "folder": str(folder), "outcome": str(outcome)}
    task["cases"] = [vars(case) for case in cases]
    paths = [library, str(ROOT), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(path for path in paths if path), "HF_HUB_OFFLINE": "1"}
    own |= {"UNSLOTH_DISABLE_STATISTICS": "1", "UNSLOTH_COMPILE_LOCATION": str(folder / "unsloth")}
    command = [sys.executable, "-m", "covrag_lite.speed.peers", "--task", json.dumps(task)]
    log = folder / "log.txt"
    with log.open("w") as lines:
        try:
            subprocess.run(
                command,
                env=os.environ | own,
                cwd=folder,
                timeout=max(0, seconds) + GRACE,
                stdout=lines,
                stderr=subprocess.STDOUT,
                check=False,
            )
            reason = ""
        except subprocess.TimeoutExpired as error:
            reason = f"stopped after {error.timeout:.0f} seconds"
    rows = [json.loads(line) for line in outcome.read_text().splitlines()]
    if len(rows) < len(cases):
        said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        reason = reason or (said[-1] if said else "it ended without a word")
        rows += [about(way, case) | {"failure": reason[:300]} for case in cases[len(rows) :]]
    for row in rows:
        print({name: row[name] for name in row if name not in ("losses", "settings", "versions")}, flush=True)
    return rows


def about(way: str, case: Case) -> dict:
    """The beginning of every row."""
    return {"shape": Path(case.shape).name.removesuffix(".gguf"), "samples": case.samples, "way": way}


def compare(rows: list[dict]) -> pd.DataFrame:
    """The rows; `ours_faster` is our speed over theirs and `ours_memory` our peak over theirs, on the same samples."""
    frame = pd.DataFrame(rows).reindex(columns=COLUMNS)
    ours = frame[frame.way == "ours"].set_index(["shape", "samples"])
    of_each = pd.MultiIndex.from_frame(frame[["shape", "samples"]])
    for name, column in (("ours_faster", "tokens_per_second"), ("ours_memory", "peak_gb")):
        frame[name] = ours[column].astype(float).reindex(of_each).to_numpy() / frame[column].astype(float)
    return frame


def work(task: dict) -> None:
    """In a way's own process: all its cases, each written as soon as it is known."""
    begin = time.perf_counter()
    way = WAYS[task["way"]]
    missing = [name for name in way.modules if importlib.util.find_spec(name) is None]
    if way.kind == "unsloth" and not missing:
        import unsloth  # noqa: F401  before transformers, whose code it changes
    for case in (Case(**given) for given in task["cases"]):
        row = about(task["way"], case)
        if missing:
            row["failure"] = f"not installed: {', '.join(missing)}"
        elif time.perf_counter() - begin > task["seconds"]:
            row["failure"] = "left out: the time is up"
        else:
            row |= measure(way, case, task["device"], Path(task["folder"]))
        with open(task["outcome"], "a") as lines:
            lines.write(json.dumps(row) + "\n")


def measure(way: Way, case: Case, device: str, folder: Path) -> dict:
    """Useful tokens a second, peak memory and the losses of one way; what it stumbles over is a result like any other."""
    import gc

    import torch

    from covrag_lite.speed import folders, training

    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    settings = Training(pack_tokens=SAMPLES[case.samples], step_tokens=case.step_tokens)
    try:
        place = folders.write_folder(case.shape, folder, device)
        steps = steps_of(case, place, settings.pack_tokens)
        seconds, losses, told = train(way, place, steps, settings, device, folder)
    except Exception as error:  # whatever a peer says is its result
        said = str(error).strip().splitlines() or [""]
        return {"failure": f"{type(error).__name__}: {said[0][:240]}"}
    useful = [sum(len(one.ids) for row in step for one in row) for step in steps]
    rates = [tokens / duration for tokens, duration in zip(useful[WARM_UP:], seconds[WARM_UP:])]
    speed = statistics.median(rates)
    shape = json.loads((place / "config.json").read_text())
    return {
        "tokens_per_second": speed,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None,
        "of_limit": speed * operations(shape) / training.matrix_rate(device),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "losses": losses,
        "settings": told,
        "versions": versions(),
    }


def steps_of(case: Case, place: Path, pack_tokens: int) -> list:
    """The case's samples in rows, and its rows in steps; for a model's own weights they are pieces of our passages."""
    from covrag_lite.data import load_passages
    from covrag_lite.speed import folders, shapes, training

    n_steps = case.n_steps + WARM_UP
    text = ()
    if case.shape not in shapes.SHAPES:
        passages = " ".join(passage.text for passage in load_passages(Config())[:3000])
        text = folders.load_tokenizer(place)(passages, add_special_tokens=False).input_ids
    vocabulary = json.loads((place / "config.json").read_text())["vocab_size"]
    if case.samples == "our mix":
        samples = shapes.length_mix(case.step_tokens * n_steps * 2 // 600 + 60, vocabulary, text=text)
    else:
        samples = shapes.full_rows(case.step_tokens // pack_tokens * n_steps, vocabulary, pack_tokens, text=text)
    return training.plan(samples, pack_tokens, case.step_tokens, n_steps)


def train(
    way: Way, place: Path, steps: list, settings: Training, device: str, folder: Path
) -> tuple[list[float], list[float], dict]:
    """Each step's seconds and loss, and the settings that were given."""
    from covrag_lite.speed import sft

    if way.kind in ("ours", "plain"):
        return train_here(way, place, steps, settings, device)
    attention = way.attention if device == "cuda" else "sdpa"
    given = dict(way.given)
    if way.kind == "trl":
        clock = sft.run_trl(place, steps, settings, device, folder / "out", given, attention)
        return clock.seconds, clock.losses, given | {"attn_implementation": attention, "packing": True}
    clock = sft.run_unsloth(place, steps, settings, device, folder / "out", given, "unsloth")
    return clock.seconds, clock.losses, given | {"use_gradient_checkpointing": "unsloth", "packing": True}


def train_here(
    way: Way, place: Path, steps: list, settings: Training, device: str
) -> tuple[list[float], list[float], dict]:
    """The same, by our own steps or by plain ones on the same samples."""
    from dataclasses import replace

    import torch

    from covrag_lite.speed import folders, training

    network = folders.load_four_bit(place, device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    if way.kind == "plain":
        together = [[[one for row in step for one in row]] for step in steps]
        taken = training.plain_steps(network, together, settings, False, device)
        told = {"padded": True, "gradient_checkpointing": True}
    else:
        told = {"execution": "compiled+graph" if device == "cuda" else "eager", "unpack": "no"} | dict(way.given)
        taken = training.our_steps(network, steps, replace(settings, **told), True, device)
    seconds, losses = [], []
    start = time.perf_counter()
    for loss, _ in taken:
        end = time.perf_counter()
        seconds.append(end - start)
        losses.append(loss)
        start = end
    return seconds, losses, told


def operations(shape: dict) -> float:
    """What a token cannot cost less than: forward, and back to the inputs, through the linear layers of a Llama."""
    width, wide, heads = shape["hidden_size"], shape["intermediate_size"], shape["num_attention_heads"]
    keys = width * shape["num_key_value_heads"] // heads
    return 4.0 * shape["num_hidden_layers"] * width * (2 * width + 2 * keys + 3 * wide)


def versions() -> dict[str, str]:
    """The versions of what is installed of the libraries that matter."""
    made = {}
    for name in PACKAGES:
        if importlib.util.find_spec(name.replace("-", "_")):
            made[name] = importlib.metadata.version(name)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", default=",".join(way for way in WAYS if "," not in way), help="separated by ;")
    parser.add_argument("--shapes", default="tiny", help="of covrag_lite.speed.shapes, or folders or GGUF files")
    parser.add_argument("--libraries", default="", help="folders of packages, as unsloth=path,trl=path")
    parser.add_argument("--steps", type=int, default=4, help="steps that are timed, after two that are not")
    parser.add_argument("--seconds", type=float, default=420, help="after which no further case is begun")
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        return work(json.loads(given.task))
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    libraries = dict(part.split("=", 1) for part in given.libraries.split(",") if part)
    ways = given.ways.split(";") if ";" in given.ways else given.ways.split(",")
    shapes = [str(Path(one).resolve()) if Path(one).exists() else one for one in given.shapes.split(",")]
    frame = benchmark(ways, shapes, device, libraries, n_steps=given.steps, seconds=given.seconds, out=given.out)
    print(frame.drop(columns=["losses", "settings", "versions"]).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
