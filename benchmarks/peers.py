"""Training against what people use instead, side by side: trl, trl with Liger's kernels, Unsloth, the plain way.

Every way reads the same 4-bit folder, gets the same rows in the same order, and trains adapters of the same rank on the
same layers; only the samples' own tokens count. A way runs in a process of its own, with libraries of its own where
they need other versions than ours, and where it cannot run its own words are the result (`peer`). What the file of
`--out` holds already with as many steps is kept; `--again` measures it anew.

    python -m benchmarks.peers --shapes tiny --out peers.json
    python -m benchmarks.peers --shapes 7b,13b,path/to/model.gguf --libraries unsloth=path/to/its/packages
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pandas as pd

from benchmarks.options import pairs, some_of
from benchmarks.rows import known_rows, write_json
from benchmarks.saying import last_words
from covrag_lite.config import ROOT
from covrag_lite.runs.manifest import find_commit

LOG = "log.txt"  # what a way printed
GRACE = 90  # seconds beyond its time after which a way is stopped, whatever it does
WARM_UP = 2  # steps that are not timed
LATE = "left out: the time is up"
COLUMNS = ["shape", "samples", "way", "ours_faster", "ours_faster_steady", "ours_memory", "tokens_per_second", "steady"]
COLUMNS += ["peak_gb", "of_limit", "first_loss", "last_loss", "losses", "step_seconds", "settings", "versions"]
COLUMNS += ["failure"]
LONG = ["losses", "step_seconds", "settings", "versions"]  # columns that no table shows
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
    "trl + Liger + selective": Way(
        "trl", ("trl", "liger_kernel"), OPTIMIZER | SELECTIVE | {"use_liger_kernel": True}, "flex_attention"
    ),
    "trl + Liger + flash": Way(
        "trl", ("trl", "liger_kernel", "flash_attn"), OPTIMIZER | {"use_liger_kernel": True}, "flash_attention_4"
    ),
    "ours away": Way("ours", given={"activations": "offload"}),
    "ours away leanest": Way("ours", given={"activations": "offload", "pack_tokens": 2048}),
    "ours keeping all": Way("ours", given={"activations": "keep"}),
    "ours unpacked": Way("ours", given={"unpack": True, "activations": "keep"}),
    "plain": Way("plain"),
}
# The samples, and the tokens of a row; the last is for a GPU with room, where longer rows may be quicker.
SAMPLES = {"our mix": 4096, "rows of 2,048": 2048, "our mix in rows of 16,384": 16384}
BOTH = ("our mix", "rows of 2,048")


@dataclass(frozen=True)
class Case:
    """What is trained on what."""

    shape: str  # of `shapes`, or a model's folder or GGUF file
    samples: str
    step_tokens: int
    n_steps: int


def cases_of(shapes: Sequence[str], kinds: Sequence[str], step_tokens: int, n_steps: int) -> list[Case]:
    """The first kind of samples for every shape, then the next; a tiny shape takes short steps, a small one more."""
    made = []
    for samples in kinds:
        for shape in shapes:
            tokens = min(4096, step_tokens) if shape == "tiny" else step_tokens
            steps = {"tiny": min(2, n_steps), "7b": n_steps, "13b": n_steps}.get(shape, 4 * n_steps)
            made.append(Case(shape, samples, tokens, steps))
    return made


def benchmark(
    ways: Sequence[str],
    shapes: Sequence[str],
    device: str,
    libraries: Mapping[str, str] | None = None,
    step_tokens: int = 16384,
    n_steps: int = 4,
    seconds: float = 420,
    kinds: Sequence[str] = BOTH,
    out: Path | None = None,
    log: Path | None = None,
    again: bool = False,
) -> pd.DataFrame:
    """Every way on every shape, one process a way; written to `out` as it goes, beside what is there already.

    What `out` holds of these ways with as many steps is not measured again, unless `again` says so. `seconds` count
    from when the weights are written; each way has its share of them.
    """
    for way in ways:
        if way not in WAYS:
            raise ValueError(f"way {way!r} is not known; use some of {', '.join(WAYS)}")
    rows = {key_of(row): row for row in known_rows(out)}
    asked = {way: cases_of(shapes, kinds, step_tokens, n_steps) for way in ways}
    if not again:
        asked = {way: [one for one in cases if not is_known(rows, way, one)] for way, cases in asked.items()}
    asked = {way: cases for way, cases in asked.items() if cases}

    def add(row: dict) -> None:
        if not (is_late(row) and is_measured(rows.get(key_of(row), {}))):
            rows[key_of(row)] = row
        print({name: row[name] for name in row if name not in LONG}, flush=True)
        if out:
            made = json.loads(compare(list(rows.values())).to_json(orient="records"))
            write_json(out, {**find_commit(), "rows": made})

    with tempfile.TemporaryDirectory() as folder:
        write_folders([one for cases in asked.values() for one in cases], device, Path(folder))
        begin = time.perf_counter()
        for number, (way, cases) in enumerate(asked.items(), 1):
            left = seconds * number / len(asked) - (time.perf_counter() - begin)
            library = (libraries or {}).get(WAYS[way].kind, "")
            for row in run_way(way, cases, device, library, left, Path(folder)):
                add(row)
            if log:
                with log.open("a") as lines:
                    lines.write(f"== {way}\n{(Path(folder) / LOG).read_text(errors='replace')}")
    return compare(list(rows.values()))


def key_of(row: dict) -> tuple[str, str, str]:
    """What a row is about."""
    return row["shape"], row["samples"], row["way"]


def is_measured(row: dict) -> bool:
    return row.get("tokens_per_second") is not None


def is_late(row: dict) -> bool:
    """Whether a row says nothing but that the time was too short."""
    return (row.get("failure") or "").startswith(("left out", "stopped after"))


def is_known(rows: Mapping[tuple, dict], way: str, case: Case) -> bool:
    """Whether a way was measured on this case with as many steps."""
    row = rows.get(key_of(about(way, case)), {})
    return is_measured(row) and len(row.get("losses") or ()) == WARM_UP + case.n_steps


def write_folders(cases: Sequence[Case], device: str, folder: Path) -> None:
    """Write the 4-bit folders in a process that then gives its memory back; what it stumbles over, every way will."""
    shapes = list(dict.fromkeys(case.shape for case in cases))
    if shapes:
        task = {"shapes": shapes, "device": device, "folder": str(folder)}
        with (folder / LOG).open("w") as lines:
            start(task, folder, lines).wait()


def start(task: dict, folder: Path, lines: IO[str], library: str = "") -> subprocess.Popen:
    """Begin a task in a process of its own, with libraries of its own before ours."""
    paths = [library, str(ROOT), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(path for path in paths if path), "HF_HUB_OFFLINE": "1"}
    own |= {"UNSLOTH_DISABLE_STATISTICS": "1", "UNSLOTH_COMPILE_LOCATION": str(folder / "unsloth")}
    command = [sys.executable, "-m", "benchmarks.peer", json.dumps(task)]
    return subprocess.Popen(command, env=os.environ | own, cwd=folder, stdout=lines, stderr=subprocess.STDOUT)


def run_way(way: str, cases: Sequence[Case], device: str, library: str, seconds: float, folder: Path) -> Iterator[dict]:
    """One way's rows as its process tells them; a case that it never came to says why."""
    outcome = folder / "outcome.jsonl"
    outcome.write_text("")
    task = {"way": way, "device": device, "seconds": seconds, "folder": str(folder), "outcome": str(outcome)}
    task["cases"] = [vars(case) for case in cases]
    limit = max(0, seconds) + GRACE
    begin = time.perf_counter()
    reason, told, has_ended = "", 0, False
    with (folder / LOG).open("w") as lines:
        process = start(task, folder, lines, library)
        try:
            while not has_ended:
                time.sleep(0.2)
                if not reason and time.perf_counter() - begin > limit:
                    process.kill()
                    reason = f"stopped after {limit:.0f} seconds"
                has_ended = process.poll() is not None
                whole = outcome.read_text().rpartition("\n")[0].splitlines()
                yield from map(json.loads, whole[told:])
                told = len(whole)
        finally:
            process.kill()
            process.wait()
    reason = reason or last_words((folder / LOG).read_text(errors="replace"))
    for case in cases[told:]:
        yield about(way, case) | {"failure": reason}


def about(way: str, case: Case) -> dict:
    """The beginning of every row."""
    return {"shape": Path(case.shape).name.removesuffix(".gguf"), "samples": case.samples, "way": way}


def compare(rows: list[dict]) -> pd.DataFrame:
    """The rows; `ours_faster` is our speed over theirs and `ours_memory` our peak over theirs, on the same samples.

    `ours_faster` is of the timed steps' median, `ours_faster_steady` of each way's fastest one (`steady`): a way that
    compiles anew for each length may still be at it in most of them.
    """
    frame = pd.DataFrame(rows).reindex(columns=COLUMNS)
    ours = frame[frame.way == "ours"].set_index(["shape", "samples"])
    of_each = pd.MultiIndex.from_frame(frame[["shape", "samples"]])
    divided = {"ours_faster": "tokens_per_second", "ours_faster_steady": "steady", "ours_memory": "peak_gb"}
    for name, column in divided.items():
        frame[name] = ours[column].astype(float).reindex(of_each).to_numpy() / frame[column].astype(float)
    return frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", type=some_of(WAYS), default=list(WAYS))
    parser.add_argument("--shapes", default="tiny", help="of covrag_lite.speed.shapes, or folders or GGUF files")
    samples_help = f"some of {'; '.join(SAMPLES)}, joined by ;"
    parser.add_argument("--samples", type=some_of(SAMPLES, ";"), default=list(BOTH), help=samples_help)
    parser.add_argument("--libraries", type=pairs, default={}, help="folders of packages, as unsloth=path,trl=path")
    parser.add_argument("--steps", type=int, default=4, help="steps that are timed, after two that are not")
    seconds_help = "after which no further case is begun, from when the weights are written"
    parser.add_argument("--seconds", type=float, default=420, help=seconds_help)
    again_help = "measure what --out holds already with as many steps, too"
    parser.add_argument("--again", action="store_true", help=again_help)
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    given = parser.parse_args()
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    # Whole, because a way runs in a folder of its own; a link keeps its name.
    shapes = [os.path.abspath(one) if Path(one).exists() else one for one in given.shapes.split(",")]
    files = {"out": given.out, "log": given.out.with_suffix(".log") if given.out else None, "again": given.again}
    frame = benchmark(
        given.ways, shapes, device, given.libraries, 16384, given.steps, given.seconds, given.samples, **files
    )
    print(frame.drop(columns=LONG).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
