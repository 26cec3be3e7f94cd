"""Training against what people use instead, side by side: trl, trl with Liger's kernels, Unsloth, the plain way.

Every way reads the same 4-bit folder, gets the same rows in the same order, and trains adapters of the same rank on the
same layers; only the samples' own tokens count. A way runs in a process of its own, with libraries of its own where
they need other versions than ours, and where it cannot run its own words are the result (`peer`).

    python -m covrag_lite.speed.peers --shapes tiny --out peers.json
    python -m covrag_lite.speed.peers --shapes 7b,13b,path/to/model.gguf --libraries unsloth=path/to/its/packages
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from covrag_lite.config import ROOT
from covrag_lite.manifest import find_commit
from covrag_lite.speed.options import pairs, some_of

LOG = "log.txt"  # what a way printed
GRACE = 90  # seconds beyond its time after which a way is stopped, whatever it does
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
    "trl + Liger + selective": Way(
        "trl", ("trl", "liger_kernel"), OPTIMIZER | SELECTIVE | {"use_liger_kernel": True}, "flex_attention"
    ),
    "trl + Liger + flash": Way(
        "trl", ("trl", "liger_kernel", "flash_attn"), OPTIMIZER | {"use_liger_kernel": True}, "flash_attention_4"
    ),
    "ours unpacked": Way("ours", given={"unpack": "yes", "checkpointing": 0.0}),
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
) -> pd.DataFrame:
    """Every way on every shape, one process a way; written to `out` as it goes, beside what is there of other ways."""
    for way in ways:
        if way not in WAYS:
            raise ValueError(f"way {way!r} is not known; use some of {', '.join(WAYS)}")
    begin = time.perf_counter()
    cases = cases_of(shapes, kinds, step_tokens, n_steps)
    made_anew = {(about(way, case)["shape"], case.samples, way) for way in ways for case in cases}
    rows = [row for row in known_rows(out) if (row["shape"], row["samples"], row["way"]) not in made_anew]
    with tempfile.TemporaryDirectory() as folder:
        for number, way in enumerate(ways, 1):
            left = seconds * number / len(ways) - (time.perf_counter() - begin)
            rows += run_way(way, cases, device, (libraries or {}).get(WAYS[way].kind, ""), left, Path(folder))
            if out:
                made = json.loads(compare(rows).to_json(orient="records"))
                out.write_text(json.dumps({**find_commit(), "rows": made}, indent=1) + "\n")
            if log:
                with log.open("a") as lines:
                    lines.write(f"== {way}\n{(Path(folder) / LOG).read_text(errors='replace')}")
    return compare(rows)


def known_rows(out: Path | None) -> list[dict]:
    """The rows of an earlier run."""
    return json.loads(out.read_text())["rows"] if out and out.exists() else []


def run_way(way: str, cases: Sequence[Case], device: str, library: str, seconds: float, folder: Path) -> list[dict]:
    """One way's rows, from a process of its own; a case that it never came to says why."""
    outcome = folder / "outcome.jsonl"
    outcome.write_text("")
    task = {"way": way, "device": device, "seconds": seconds, "folder": str(folder), "outcome": str(outcome)}
    task["cases"] = [vars(case) for case in cases]
    paths = [library, str(ROOT), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(path for path in paths if path), "HF_HUB_OFFLINE": "1"}
    own |= {"UNSLOTH_DISABLE_STATISTICS": "1", "UNSLOTH_COMPILE_LOCATION": str(folder / "unsloth")}
    command = [sys.executable, "-m", "covrag_lite.speed.peer", json.dumps(task)]
    log = folder / LOG
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", type=some_of(WAYS), default=list(WAYS))
    parser.add_argument("--shapes", default="tiny", help="of covrag_lite.speed.shapes, or folders or GGUF files")
    samples_help = f"some of {'; '.join(SAMPLES)}, joined by ;"
    parser.add_argument("--samples", type=some_of(SAMPLES, ";"), default=list(BOTH), help=samples_help)
    parser.add_argument("--libraries", type=pairs, default={}, help="folders of packages, as unsloth=path,trl=path")
    parser.add_argument("--steps", type=int, default=4, help="steps that are timed, after two that are not")
    parser.add_argument("--seconds", type=float, default=420, help="after which no further case is begun")
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    given = parser.parse_args()
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    shapes = [str(Path(one).resolve()) if Path(one).exists() else one for one in given.shapes.split(",")]
    log = given.out.with_suffix(".log") if given.out else None
    frame = benchmark(
        given.ways, shapes, device, given.libraries, 16384, given.steps, given.seconds, given.samples, given.out, log
    )
    print(frame.drop(columns=["losses", "settings", "versions"]).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
