"""Training compared with other libraries: trl, trl with Liger's kernels, Unsloth, and plain.

Every method reads the same 4-bit folder, gets the same rows in the same order, and trains adapters
of the same rank on the same layers. Only the tokens of the samples count, not padding. A method
runs in its own process (`methods`), with its own libraries if it needs other versions than ours. If
it cannot run, its error is the result. Rows with the same number of steps that the file of `--out`
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

from benchmarks import folders, methods
from benchmarks.methods import METHODS, ROW_TOKENS, WARM_UP, Case
from benchmarks.rows import LATE, ChildFailed, load_rows, run_child, write_json
from covrag_lite.runs.manifest import find_commit

COLUMNS = [
    "shape",
    "samples",
    "way",
    "ours_faster",
    "ours_faster_steady",
    "ours_memory",
    "tokens_per_second",
    "steady",
    "peak_gb",
    "useful",
    "of_limit",
    "first_loss",
    "last_loss",
    "losses",
    "step_seconds",
    "settings",
    "versions",
    "failure",
]
LONG_COLUMNS = ["losses", "step_seconds", "settings", "versions"]  # not printed
RATIOS = {  # a column -> the column whose value for ours is divided by that of the other method
    "ours_faster": "tokens_per_second",
    "ours_faster_steady": "steady",
    "ours_memory": "peak_gb",
}
STEP_TOKENS = 16384  # per update
TINY_STEP_TOKENS = 4096
Key = tuple[str, str, str]  # of a row: shape, samples, way


def list_cases(shapes: Sequence[str], kinds: Sequence[str], n_steps: int) -> list[Case]:
    """List the cases, one kind of samples after another.

    A tiny shape has fewer and smaller steps, and a small model has more steps than a large one.
    """
    cases = []
    for samples in kinds:
        for shape in shapes:
            step_tokens = TINY_STEP_TOKENS if shape == "tiny" else STEP_TOKENS
            steps = {"tiny": min(2, n_steps), "7b": n_steps, "13b": n_steps}
            cases.append(Case(shape, samples, step_tokens, steps.get(shape, 4 * n_steps)))
    return cases


def benchmark(
    ways: Sequence[str],
    shapes: Sequence[str],
    device: str,
    kinds: Sequence[str] = tuple(ROW_TOKENS),
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
    check_names(ways)
    rows = {key_of_row(row): row for row in load_rows(out)}
    pairs = []
    for case in list_cases(shapes, kinds, n_steps):
        pairs += [(way, case) for way in ways if again or not is_kept(rows, way, case)]
    log = out.with_suffix(".log") if out else None
    with tempfile.TemporaryDirectory() as folder:
        write_folders([case.shape for _, case in pairs], device, folder, log)
        until = time.monotonic() + seconds
        for way, case in pairs:
            task = {"way": way, "case": vars(case), "device": device, "folder": folder}
            library = (libraries or {}).get(METHODS[way].program, "")
            row = row_start(way, case) | measure(task, until, library, log)
            key = key_of_row(row)
            if row.get("failure") != LATE or not is_measured(rows.get(key, {})):
                rows[key] = row
            print({name: row[name] for name in row if name not in LONG_COLUMNS}, flush=True)
            save_rows(out, rows)
    return add_ratios(list(rows.values()))


def check_names(ways: Sequence[str]) -> None:
    """Raise an error for a name that is no training method."""
    for way in ways:
        if way not in METHODS:
            raise ValueError(f"way {way!r} is not known; use some of {', '.join(METHODS)}")


def save_rows(out: Path | None, rows: Mapping[Key, dict]) -> None:
    """Write all rows with their ratios to a JSON file."""
    table = add_ratios(list(rows.values())).to_json(orient="records")
    write_json(out, {**find_commit(), "rows": json.loads(table)})


def write_folders(shapes: Sequence[str], device: str, folder: str, log: Path | None) -> None:
    """Write the 4-bit folders before the time starts; if that fails, the methods report it."""
    for shape in dict.fromkeys(shapes):
        if device == "cpu":  # memory is not measured there
            folders.write_folder(shape, Path(folder), device)
            continue
        task = {"shape": shape, "device": device, "folder": folder}
        try:
            run_child("benchmarks.folders", task, log=log)
        except ChildFailed as error:
            print(shape, error, flush=True)


def measure(task: dict, until: float, library: str, log: Path | None) -> dict:
    """Return the result of one method on one case, or why there is none."""
    method = METHODS[task["way"]]
    paths = [library, *sys.path] if library else sys.path
    missing = [name for name in method.modules if PathFinder.find_spec(name, paths) is None]
    if missing:
        return {"failure": f"not installed: {', '.join(missing)}"}
    if time.monotonic() > until:
        return {"failure": LATE}
    # On a CPU, memory is not measured, so our methods need no process of their own.
    if task["device"] == "cpu" and method.program in ("ours", "plain"):
        return methods.measure(method, Case(**task["case"]), "cpu", Path(task["folder"]))
    try:
        return run_child("benchmarks.methods", task, until, log, library)
    except ChildFailed as error:
        return {"failure": str(error)}


def row_start(way: str, case: Case) -> dict:
    """Return the first columns of a row."""
    shape = Path(case.shape).name.removesuffix(".gguf")
    return {"shape": shape, "samples": case.samples, "way": way}


def key_of_row(row: dict) -> Key:
    """Return what identifies a row."""
    return row["shape"], row["samples"], row["way"]


def is_measured(row: dict) -> bool:
    """Return whether a row has a result, not only a reason for none."""
    return row.get("tokens_per_second") is not None


def is_kept(rows: Mapping[Key, dict], way: str, case: Case) -> bool:
    """Return whether this method was measured on this case with the same number of steps."""
    row = rows.get(key_of_row(row_start(way, case)), {})
    return is_measured(row) and len(row.get("losses") or ()) == WARM_UP + case.n_steps


def add_ratios(rows: list[dict]) -> pd.DataFrame:
    """Return the rows with `ours_faster`, our relative speed, and `ours_memory`, our relative peak.

    `ours_faster` compares the median of the timed steps, and `ours_faster_steady` each method's
    fastest step (`steady`): a method that compiles again for each length may do so in most steps.
    """
    frame = pd.DataFrame(rows).reindex(columns=COLUMNS)
    ours = frame[frame.way == "ours"].set_index(["shape", "samples"])
    cases = pd.MultiIndex.from_frame(frame[["shape", "samples"]])
    for ratio, column in RATIOS.items():
        our_values = ours[column].astype(float).reindex(cases).to_numpy()
        frame[ratio] = our_values / frame[column].astype(float)
    return frame


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", nargs="+", choices=METHODS, default=list(METHODS))
    about_shapes = "shapes of benchmarks.shapes, model folders or GGUF files"
    parser.add_argument("--shapes", nargs="+", default=["tiny"], help=about_shapes)
    kinds = list(ROW_TOKENS)
    parser.add_argument("--samples", nargs="+", choices=kinds, default=kinds)
    for program in ("unsloth", "trl"):
        about_program = "a folder of packages that only this program uses, before ours"
        parser.add_argument(f"--{program}", default="", help=about_program)
    about_steps = "timed steps, after two that are not timed"
    parser.add_argument("--steps", type=int, default=4, help=about_steps)
    about_seconds = "no new case is started after this time"
    parser.add_argument("--seconds", type=float, default=420, help=about_seconds)
    about_again = "also measure what --out already contains"
    parser.add_argument("--again", action="store_true", help=about_again)
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    return parser.parse_args()


def main() -> None:
    """Measure, and print the rows."""
    import torch

    arguments = parse_arguments()
    # Absolute, because a method runs in its own folder; a link keeps its name.
    shapes = [
        os.path.abspath(shape) if Path(shape).exists() else shape for shape in arguments.shapes
    ]
    frame = benchmark(
        arguments.ways,
        shapes,
        "cuda" if torch.cuda.is_available() else "cpu",
        arguments.samples,
        arguments.steps,
        arguments.seconds,
        arguments.out,
        arguments.again,
        {"unsloth": arguments.unsloth, "trl": arguments.trl},
    )
    print(frame.drop(columns=LONG_COLUMNS).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
