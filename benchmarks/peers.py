"""Training compared with other libraries: trl, trl with Liger's kernels, Unsloth, and plain.

Every method reads the same 4-bit folder, gets the same rows in the same order, and trains adapters
of the same rank on the same layers. Only the tokens of the samples count, not padding. A method
runs in its own process (`peer`), with its own libraries if it needs other versions than ours. If it
cannot run, its error is the result. Rows with the same number of steps that the file of `--out`
already contains are kept; `--again` measures them again.

    python -m benchmarks.peers --shapes tiny --out peers.json
    python -m benchmarks.peers --shapes 7b 13b path/to/model.gguf --unsloth path/to/its/packages
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

import pandas as pd

from benchmarks import folders, peer
from benchmarks.peer import SAMPLES, WARM_UP, WAYS, Case
from benchmarks.rows import LATE, ChildFailed, known_rows, run_child, write_json
from covrag_lite.runs.manifest import find_commit

COLUMNS = ["shape", "samples", "way", "ours_faster", "ours_faster_steady", "ours_memory", "tokens_per_second", "steady"]
COLUMNS += ["peak_gb", "useful", "of_limit", "first_loss", "last_loss", "losses", "step_seconds", "settings"]
COLUMNS += ["versions", "failure"]
LONG = ["losses", "step_seconds", "settings", "versions"]  # columns that tables do not show
STEP_TOKENS = 16384  # per update
BOTH = ("our mix", "rows of 2,048")


def cases_of(shapes: Sequence[str], kinds: Sequence[str], n_steps: int) -> list[Case]:
    """List the cases, kind by kind of samples; a tiny shape has short steps, a small one more."""
    made = []
    for samples in kinds:
        for shape in shapes:
            tokens = 4096 if shape == "tiny" else STEP_TOKENS
            steps = {"tiny": min(2, n_steps), "7b": n_steps, "13b": n_steps}.get(shape, 4 * n_steps)
            made.append(Case(shape, samples, tokens, steps))
    return made


def benchmark(
    ways: Sequence[str],
    shapes: Sequence[str],
    device: str,
    kinds: Sequence[str] = BOTH,
    n_steps: int = 4,
    seconds: float = 420,
    out: Path | None = None,
    again: bool = False,
    libraries: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Measure every method on every case, in one process each; add each row to `out` at once.

    Rows in `out` with the same number of steps are kept, unless `again` is set. `seconds` count
    from when the weights are written.
    """
    for way in ways:
        if way not in WAYS:
            known = ", ".join(WAYS)
            raise ValueError(f"way {way!r} is not known; use some of {known}")
    rows = {key_of(row): row for row in known_rows(out)}
    asked = [(way, case) for case in cases_of(shapes, kinds, n_steps) for way in ways]
    if not again:
        asked = [(way, case) for way, case in asked if not is_known(rows, way, case)]
    log = out.with_suffix(".log") if out else None
    with tempfile.TemporaryDirectory() as folder:
        write_folders([case.shape for _, case in asked], device, folder, log)
        until = time.monotonic() + seconds
        for way, case in asked:
            task = {"way": way, "case": vars(case), "device": device, "folder": folder}
            row = about(way, case) | run_way(task, until, (libraries or {}).get(WAYS[way].kind, ""), log)
            if row.get("failure") != LATE or not is_measured(rows.get(key_of(row), {})):
                rows[key_of(row)] = row
            print({name: row[name] for name in row if name not in LONG}, flush=True)
            made = json.loads(compare(list(rows.values())).to_json(orient="records"))
            write_json(out, {**find_commit(), "rows": made})
    return compare(list(rows.values()))


def write_folders(shapes: Sequence[str], device: str, folder: str, log: Path | None) -> None:
    """Write the 4-bit folders before the time starts; if that fails, the methods report it."""
    for shape in dict.fromkeys(shapes):
        if device == "cpu":  # memory is not measured there
            folders.write_folder(shape, Path(folder), device)
            continue
        try:
            run_child("benchmarks.folders", {"shape": shape, "device": device, "folder": folder}, log=log)
        except ChildFailed as error:
            print(shape, error, flush=True)


def run_way(task: dict, until: float, library: str, log: Path | None) -> dict:
    """Return the result of one method on one case, or why there is none."""
    paths = [library, *sys.path] if library else sys.path
    missing = [name for name in WAYS[task["way"]].modules if PathFinder.find_spec(name, paths) is None]
    if missing:
        return {"failure": f"not installed: {', '.join(missing)}"}
    if time.monotonic() > until:
        return {"failure": LATE}
    # On a CPU, memory is not measured.
    if task["device"] == "cpu" and WAYS[task["way"]].kind in ("ours", "plain"):
        return peer.measure(WAYS[task["way"]], Case(**task["case"]), "cpu", Path(task["folder"]))
    try:
        return run_child("benchmarks.peer", task, until, log, library)
    except ChildFailed as error:
        return {"failure": str(error)}


def key_of(row: dict) -> tuple[str, str, str]:
    """Return what identifies a row."""
    return row["shape"], row["samples"], row["way"]


def is_measured(row: dict) -> bool:
    return row.get("tokens_per_second") is not None


def is_known(rows: Mapping[tuple, dict], way: str, case: Case) -> bool:
    """Was this method measured on this case with the same number of steps?"""
    row = rows.get(key_of(about(way, case)), {})
    return is_measured(row) and len(row.get("losses") or ()) == WARM_UP + case.n_steps


def about(way: str, case: Case) -> dict:
    """Return the first columns of a row."""
    return {"shape": Path(case.shape).name.removesuffix(".gguf"), "samples": case.samples, "way": way}


def compare(rows: list[dict]) -> pd.DataFrame:
    """Return the rows with `ours_faster`, our relative speed, and `ours_memory`, our relative peak.

    `ours_faster` compares the median of the timed steps, and `ours_faster_steady` each method's
    fastest step (`steady`): a method that compiles again for each length may do so in most steps.
    """
    frame = pd.DataFrame(rows).reindex(columns=COLUMNS)
    ours = frame[frame.way == "ours"].set_index(["shape", "samples"])
    of_each = pd.MultiIndex.from_frame(frame[["shape", "samples"]])
    divided = {"ours_faster": "tokens_per_second", "ours_faster_steady": "steady", "ours_memory": "peak_gb"}
    for name, column in divided.items():
        frame[name] = ours[column].astype(float).reindex(of_each).to_numpy() / frame[column].astype(float)
    return frame


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    about_shapes = "shapes of benchmarks.shapes, model folders or GGUF files"
    parser.add_argument("--shapes", nargs="+", default=["tiny"], help=about_shapes)
    parser.add_argument("--samples", nargs="+", choices=SAMPLES, default=BOTH)
    for kind in ("unsloth", "trl"):
        about_kind = "a folder of packages that only this method uses, before ours"
        parser.add_argument(f"--{kind}", default="", help=about_kind)
    about_steps = "timed steps, after two that are not timed"
    parser.add_argument("--steps", type=int, default=4, help=about_steps)
    about_seconds = "no new case is started after this time"
    parser.add_argument("--seconds", type=float, default=420, help=about_seconds)
    about_again = "also measure what --out already contains"
    parser.add_argument("--again", action="store_true", help=about_again)
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # Absolute, because a method runs in its own folder; a link keeps its name.
    shapes = [os.path.abspath(one) if Path(one).exists() else one for one in given.shapes]
    libraries = {"unsloth": given.unsloth, "trl": given.trl}
    frame = benchmark(
        given.ways, shapes, device, given.samples, given.steps, given.seconds, given.out, given.again, libraries
    )
    print(frame.drop(columns=LONG).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
