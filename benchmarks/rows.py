"""Rows of a measurement: each is printed at once; failures and missing time are rows too."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from covrag_lite.config import ROOT

LATE = "left out: the time is up"
GRACE_SECONDS = 90  # beyond its time, after which a process is stopped
RowsByName = dict[str, dict]


class ChildFailed(RuntimeError):
    """A process ended without a result; the message is the last line of its output."""


class TimedRows:
    """The rows measured so far, and the time after which no new row is started."""

    def __init__(self, seconds: float, on_change: Callable[[RowsByName], None] | None = None):
        self.until = time.monotonic() + seconds
        self.on_change = on_change  # called with all rows after every new one
        self.by_name: RowsByName = {}

    def measure(self, name: str, work: Callable[[], dict]) -> None:
        """Add the row that `work` returns, or a row that says why there is none."""
        if time.monotonic() > self.until:
            row = {"failure": LATE}
        else:
            try:
                row = work()
            except Exception as error:  # any error of another library or this machine is a result
                row = {"failure": summarise_error(error)}
        self.by_name[name] = row
        print(name, row, flush=True)
        if self.on_change:
            self.on_change(self.by_name)

    def require(self, name: str) -> None:
        """Raise an error if this row was not measured."""
        if name not in self.by_name or "failure" in self.by_name[name]:
            raise LookupError(f"it needs {name!r}, which was not measured")


def summarise_error(error: BaseException, limit: int = 200) -> str:
    """Return the type of an error and its first line, if it has one."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:limit]}" if lines else type(error).__name__


def run_child(
    module: str,
    task: Mapping[str, object],
    until: float = float("inf"),
    log: Path | None = None,
    library: str = "",
) -> dict:
    """Run a module in its own process, with its own packages before ours; return what it prints.

    The process is stopped some time after `until`. The rest of its output is added to the log.
    """
    limit = None
    if until < float("inf"):
        limit = max(0.0, until - time.monotonic()) + GRACE_SECONDS
    # Files, not pipes: compilers that it started may keep a pipe open after it has ended.
    with (
        tempfile.TemporaryFile("w+", errors="replace") as output,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        try:
            child = subprocess.run(
                [sys.executable, "-m", module, json.dumps(task)],
                env=os.environ | child_environment(str(task["folder"]), library),
                cwd=task["folder"],
                stdout=output,
                stderr=errors,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"stopped after {limit:.0f} seconds") from None
        output.seek(0)
        errors.seek(0)
        lines = output.read().splitlines()
        messages = errors.read()
    if log:
        with log.open("a") as file:
            file.write(f"== {module} {json.dumps(task)}\n{messages}")
    if child.returncode or not lines:
        last = [line.strip() for line in messages.splitlines() if line.strip()][-1:]
        raise ChildFailed(last[0][:300] if last else "it ended without a message")
    return json.loads(lines[-1])


def child_environment(folder: str, library: str) -> dict[str, str]:
    """Return the environment variables that a process gets in addition to ours."""
    paths = [library, str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "HF_HUB_OFFLINE": "1",
        "UNSLOTH_DISABLE_STATISTICS": "1",
        "UNSLOTH_COMPILE_LOCATION": f"{folder}/unsloth",
    }


def load_rows(out: Path | None) -> list[dict]:
    """Load the rows of an earlier run from a file; an empty list if there is no file."""
    if not (out and out.exists()):
        return []
    try:
        return json.loads(out.read_text())["rows"]
    except (ValueError, KeyError, TypeError) as error:
        cause = f"{out} is not a record of an earlier run ({error})"
        raise SystemExit(f"{cause}; name another file, or move this one") from None


def write_json(path: Path | None, content: dict) -> None:
    """Write a record in one move, so that a killed run leaves the old or the new one."""
    if path:
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_text(json.dumps(content, indent=1) + "\n")
        new.replace(path)
