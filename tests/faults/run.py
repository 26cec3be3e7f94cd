"""Put each fault of this folder into a copy of the project and see whether the tests that concern it notice.

A fault is a TOML file: `file`, the exact `old` text that stands there once, the `new` text in its place, `why` it
matters, and the `tests` that concern it. A fault whose old text is not found ends the run with an error, as does one
that no test notices. Results are kept in runs/faults.json for as long as fault, code and tests stay as they are.
"""

import argparse
import compileall
import hashlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "runs" / "faults.json"
COPIED = ("covrag_lite", "benchmarks", "tests", "pyproject.toml")  # everything else is linked
SHARED = ("conftest.py", "toy.py", "toy_project.py", "toy_web.py")  # what tests rest on
LIMIT = 900  # seconds for the tests of one fault; a fault that takes longer was noticed
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
# Imported once, before a process is forked for each fault: they take most of a short test's time.
SLOW = (
    *("numpy", "pandas", "scipy.stats", "scipy.optimize", "sklearn.metrics", "bm25s", "Stemmer", "pytest", "openai"),
    *("torch", "accelerate", "peft", "bitsandbytes", "safetensors.torch", "transformers.models.llama.modeling_llama"),
    *("transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto", "httpx2"),
)


@dataclass(frozen=True)
class Fault:
    """A small change that would falsify a result or harm a user."""

    name: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]

    @property
    def is_stale(self) -> bool:
        """Does its old text no longer stand in its file exactly once?"""
        path = ROOT / self.file
        return not path.exists() or path.read_text().count(self.old) != 1 or self.old == self.new


def load_faults(folder: Path = Path(__file__).parent) -> list[Fault]:
    """Every fault, by name."""
    made = []
    for path in sorted(folder.glob("*.toml")):
        told = tomllib.loads(path.read_text())
        made.append(Fault(path.stem, told["file"], told["old"], told["new"], told["why"], tuple(told["tests"])))
    return made


def key_of(fault: Fault) -> str:
    """A hash of the fault, of the package and of the tests that concern it."""
    whole = hashlib.sha256(repr(fault).encode())
    shared = [ROOT / "tests" / name for name in SHARED]
    own = [ROOT / name for name in fault.tests]
    for path in [*sorted((ROOT / "covrag_lite").rglob("*.py")), *shared, *own]:
        whole.update(path.read_bytes() if path.exists() else b"")
    return whole.hexdigest()[:16]


def copy_project(folder: Path) -> Path:
    """A copy of code and tests, compiled, with links to everything else; times are kept, so that this stays good."""
    folder.mkdir()
    for path in ROOT.iterdir():
        if path.name in COPIED:
            copy = shutil.copytree if path.is_dir() else shutil.copy2
            copy(path, folder / path.name)
        elif path.name not in (".git", "runs"):
            (folder / path.name).symlink_to(path)
    compileall.compile_dir(folder / "covrag_lite", quiet=2)
    return folder


def import_slow() -> None:
    """Import what all tests share, but nothing of the project."""
    os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True  # a change within a second of a compiled file's time would not be seen
    for name in SLOW:
        importlib.import_module(name)
    assert "covrag_lite" not in sys.modules


class Attempt:
    """The tests of a fault, or of none, under way in a process of their own over one copy."""

    def __init__(self, folder: Path, tests: Sequence[str], fault: Fault | None = None):
        self.folder, self.fault, self.start = folder, fault, time.monotonic()
        self.output = folder.with_suffix(".txt")
        if fault:
            path = folder / fault.file
            path.write_text(path.read_text().replace(fault.old, fault.new))
        self.process = os.fork()
        if not self.process:
            self.run(tests)

    def run(self, tests: Sequence[str]) -> None:
        """Run the tests in the copy, and never come back."""
        with open(self.output, "w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.setsid()
        os.chdir(self.folder)
        os.environ["PYTHONPATH"] = str(self.folder)
        sys.path[:] = [str(self.folder), *(one for one in sys.path if not one.startswith(str(ROOT / "tests")))]
        status = 3
        try:
            given = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "--tb=line", *tests]
            status = int(sys.modules["pytest"].main(given))
        finally:
            sys.stdout.flush()
            os._exit(status)

    def result(self) -> dict | None:
        """What came of it, once it has ended; a fault is taken out again."""
        process, status = os.waitpid(self.process, os.WNOHANG)
        status = os.waitstatus_to_exitcode(status)
        if not process:
            if time.monotonic() - self.start < LIMIT:
                return None
            os.killpg(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
            status = 1
        if self.fault:
            shutil.copy2(ROOT / self.fault.file, self.folder / self.fault.file)
        told = self.output.read_text(errors="replace")
        failed = FAILED.search(told)
        lines = told.strip().splitlines() or ["nothing ended in time"]
        return {"noticed": status == 1, "status": status, "by": failed[1] if failed else lines[-1]}


def check_clean(faults: Sequence[Fault], folder: Path) -> None:
    """Stop where tests fail without any fault: they would notice everything."""
    tests = list(dict.fromkeys(name for fault in faults for name in fault.tests))
    attempt = Attempt(folder, tests)
    while (made := attempt.result()) is None:
        time.sleep(0.1)
    if made["status"]:
        sys.exit(f"the tests fail without any fault: {made['by']}")


def try_all(left: Mapping[Fault, str], known: dict, scratch: Path, at_once: int, is_checked: bool) -> None:
    """Try the faults that are left, several at a time, and write down each under its key as it is known."""
    import_slow()
    folders = [copy_project(scratch / str(number)) for number in range(at_once)]
    if not is_checked:
        check_clean(list(left), folders[0])
    waiting, running = list(left), []
    while waiting or running:
        while waiting and folders:
            fault = waiting.pop(0)
            running.append(Attempt(folders.pop(), fault.tests, fault))
        for attempt in list(running):
            result = attempt.result()
            if result is not None:
                running.remove(attempt)
                folders.append(attempt.folder)
                known[attempt.fault.name] = result | {"key": left[attempt.fault]}
                KEPT.parent.mkdir(exist_ok=True)
                KEPT.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
                word = "noticed" if result["noticed"] else "MISSED"
                print(f"{word:8}{attempt.fault.name}: {result['by']}", flush=True)
        time.sleep(0.05)


def main() -> None:
    """Try all faults, or some, and print what was not noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="the beginnings of some faults' names; all by default")
    parser.add_argument("--sample", type=int, default=0, help="so many faults, chosen by the date")
    parser.add_argument("--at-once", type=int, default=2, help="how many are tried at a time")
    parser.add_argument("--checked", action="store_true", help="the tests are known to pass without a fault")
    asked = parser.parse_args()
    every = [fault for fault in load_faults() if not asked.names or fault.name.startswith(tuple(asked.names))]
    if asked.sample:
        every = random.Random(date.today().isoformat()).sample(every, min(asked.sample, len(every)))
    stale = [fault for fault in every if fault.is_stale]
    for fault in stale:
        print(f"STALE   {fault.name}: its old text does not stand in {fault.file} exactly once")
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    sound = {fault: key_of(fault) for fault in every if fault not in stale}
    left = {fault: key for fault, key in sound.items() if known.get(fault.name, {}).get("key") != key}
    if left:
        with tempfile.TemporaryDirectory() as scratch:
            try_all(left, known, Path(scratch), max(1, asked.at_once), asked.checked)
    told = {fault: known[fault.name] for fault in sound}
    for fault, result in told.items():
        if not result["noticed"]:
            word = "MISSED " if result["status"] == 0 else "BROKEN "
            print(f"{word} {fault.name}: {fault.why}" + (f" ({result['by']})" if result["status"] else ""))
    noticed = sum(result["noticed"] for result in told.values())
    print(f"{noticed} of {len(every)} faults noticed, {len(told) - noticed} not, {len(stale)} stale")
    sys.exit(noticed < len(every))


if __name__ == "__main__":
    main()
