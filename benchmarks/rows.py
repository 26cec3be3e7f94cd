"""Rows of a measurement as they come: each is told at once, and what fails or comes too late is a row as well.

`continuous` and `replaying` fill such rows, so that a run that is killed leaves what it has measured.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.saying import tell_failure

Made = dict[str, dict]  # rows by their names


class Rows:
    """What was measured so far, and the time after which no further row is begun."""

    def __init__(self, seconds: float, note: Callable[[Made], None]):
        self.seconds = seconds
        self.note = note  # called with all rows whenever there are new ones
        self.begun = time.perf_counter()
        self.made: Made = {}

    def take(self, name: str, work: Callable[[], Made], always: bool = False) -> None:
        """The rows that `work` returns, or one of this name that says why there are none."""
        if not always and time.perf_counter() - self.begun > self.seconds:
            new = {name: {"failure": f"not begun, because {self.seconds:.0f} seconds were over"}}
        else:
            try:
                new = work()
            except Exception as error:  # whatever a peer or this machine says is its result
                new = {name: {"failure": tell_failure(error)}}
        self.made |= new
        for row in new.items():
            print(*row, flush=True)
        self.note(self.made)

    def need(self, name: str) -> None:
        """Refuse to go on without a row that was measured."""
        if "failure" in self.made.get(name, {"failure": ""}):
            raise LookupError(f"it needs {name!r}, which was not measured")


def ignore(_: object) -> None:
    """Where nobody asks for rows before all are there."""


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


def write_json(path: Path, content: dict) -> None:
    """Write a record at once: whoever kills the run finds the old one or the new one, and no half."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(json.dumps(content, indent=1) + "\n")
    new.replace(path)
