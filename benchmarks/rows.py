"""Rows of a measurement as they come: each is told at once, and what fails or comes too late is a row as well."""

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
GRACE = 90  # seconds beyond its time after which a process is stopped, whatever it does
Made = dict[str, dict]  # rows by their names


class ChildFailed(RuntimeError):
    """A process ended without a result; the message is its last words."""


class Rows:
    """What was measured so far, and the time after which no further row is begun."""

    def __init__(self, seconds: float, note: Callable[[Made], None] | None = None):
        self.until = time.monotonic() + seconds
        self.note = note  # called with all rows whenever there is a new one
        self.made: Made = {}

    def take(self, name: str, work: Callable[[], dict]) -> None:
        """The row that `work` returns, or one that says why there is none."""
        if time.monotonic() > self.until:
            row = {"failure": LATE}
        else:
            try:
                row = work()
            except Exception as error:  # whatever a peer or this machine says is its result
                row = {"failure": tell_failure(error)}
        self.made[name] = row
        print(name, row, flush=True)
        if self.note:
            self.note(self.made)

    def need(self, name: str) -> None:
        """Refuse to go on without a row that was measured."""
        if "failure" in self.made.get(name, {"failure": ""}):
            raise LookupError(f"it needs {name!r}, which was not measured")


def tell_failure(error: BaseException, limit: int = 200) -> str:
    """The kind of an error and its first line; the kind alone where it says nothing."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:limit]}" if lines else type(error).__name__


def run_child(
    module: str,
    task: Mapping[str, object],
    until: float = float("inf"),
    log: Path | None = None,
    library: str = "",
) -> dict:
    """What a module prints about a task in a process of its own, with packages of its own before ours.

    The process is stopped some time after `until`; all else that it says is added to the log.
    """
    paths = [library, str(ROOT), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(path for path in paths if path), "HF_HUB_OFFLINE": "1"}
    own |= {"UNSLOTH_DISABLE_STATISTICS": "1", "UNSLOTH_COMPILE_LOCATION": f"{task['folder']}/unsloth"}
    limit = max(0.0, until - time.monotonic()) + GRACE if until < float("inf") else None
    # Files and no pipes: those that compile for it may hold on to a pipe when it is gone.
    with (
        tempfile.TemporaryFile("w+", errors="replace") as result,
        tempfile.TemporaryFile("w+", errors="replace") as talk,
    ):
        try:
            child = subprocess.run(
                [sys.executable, "-m", module, json.dumps(task)],
                env=os.environ | own,
                cwd=task["folder"],
                stdout=result,
                stderr=talk,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"stopped after {limit:.0f} seconds") from None
        result.seek(0)
        talk.seek(0)
        lines, said = result.read().splitlines(), talk.read()
    if log:
        with log.open("a") as file:
            file.write(f"== {module} {json.dumps(task)}\n{said}")
    if child.returncode or not lines:
        words = [line.strip() for line in said.splitlines() if line.strip()]
        raise ChildFailed(words[-1][:300] if words else "it ended without a word")
    return json.loads(lines[-1])


def known_rows(out: Path | None) -> list[dict]:
    """The rows that an earlier run has left in a file; none where there is no file."""
    if not (out and out.exists()):
        return []
    try:
        return json.loads(out.read_text())["rows"]
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(
            f"{out} is no record of an earlier run ({error}); name another file, or move it away"
        ) from None


def write_json(path: Path | None, content: dict) -> None:
    """Write a record at once: whoever kills the run finds the old one or the new one, and no half."""
    if path:
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_text(json.dumps(content, indent=1) + "\n")
        new.replace(path)
