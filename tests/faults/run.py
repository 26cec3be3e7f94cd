"""Put each fault of this folder into a copy of the project and see whether the tests that concern it notice.

A fault is a TOML file: `file`, the exact `old` text that stands there once, the `new` text in its place, `why` it
matters, and the `tests` that concern it. A fault whose old text is not found ends the run with an error, as does one
that no test notices. Results are kept in runs/faults.json for as long as fault, code and tests stay as they are.
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from queue import Queue
from threading import Lock

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "runs" / "faults.json"
COPIED = ("covrag_lite", "benchmarks", "tests", "pyproject.toml")  # everything else is linked
SHARED = ("conftest.py", "toy.py", "toy_project.py", "toy_web.py")  # what tests rest on
LIMIT = 900  # seconds for the tests of one fault; a fault that takes longer was noticed
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


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
    """A copy of code and tests, with links to everything else; compiled files stay good, as times are kept."""
    for path in ROOT.iterdir():
        if path.name in COPIED:
            copy = shutil.copytree if path.is_dir() else shutil.copy2
            copy(path, folder / path.name)
        elif path.name not in (".git", "runs"):
            (folder / path.name).symlink_to(path)
    return folder


def run_tests(folder: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """Pytest's status in a copy, and the first test that failed; 1 where the tests never end."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "--tb=no", *tests]
    # A change within a second of the compiled file's time would not be seen, so none is compiled into the copy.
    own = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return 1, f"nothing ended within {LIMIT} s"
    failed = FAILED.search(done.stdout)
    return done.returncode, failed[1] if failed else done.stdout.strip().splitlines()[
        -1
    ] if done.stdout else done.stderr


def try_fault(fault: Fault, folder: Path) -> dict:
    """What the tests say of a copy with this fault, which is taken out again."""
    path = folder / fault.file
    whole = path.read_text()
    path.write_text(whole.replace(fault.old, fault.new))
    try:
        status, told = run_tests(folder, fault.tests)
    finally:
        shutil.copy2(ROOT / fault.file, path)
    return {"noticed": status == 1, "status": status, "by": told}


def check_clean(faults: list[Fault], folder: Path) -> None:
    """Stop where tests fail without any fault: they would notice everything."""
    tests = tuple(dict.fromkeys(name for fault in faults for name in fault.tests))
    missing = [name for name in tests if not (ROOT / name).exists()]
    if missing:
        sys.exit(f"faults name tests that do not exist: {', '.join(missing)}")
    status, told = run_tests(folder, tests)
    if status:
        sys.exit(f"the tests fail without any fault: {told}")


def main() -> None:
    """Try all faults, or some, and print what was not noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="the beginnings of some faults' names; all by default")
    parser.add_argument("--sample", type=int, default=0, help="so many faults, chosen by the date")
    parser.add_argument("--at-once", type=int, default=2, help="how many are tried at a time")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests without a fault first")
    asked = parser.parse_args()
    every = [fault for fault in load_faults() if not asked.names or fault.name.startswith(tuple(asked.names))]
    if asked.sample:
        every = random.Random(date.today().isoformat()).sample(every, min(asked.sample, len(every)))
    stale = [fault for fault in every if fault.is_stale]
    for fault in stale:
        print(f"STALE   {fault.name}: its old text does not stand in {fault.file} exactly once")
    keys = {fault: key_of(fault) for fault in every}
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    left = [fault for fault in every if fault not in stale and known.get(fault.name, {}).get("key") != keys[fault]]
    with tempfile.TemporaryDirectory() as scratch:
        try_all(left, keys, known, Path(scratch), asked)
    told = {fault: known[fault.name] for fault in every if fault not in stale}
    for fault, result in told.items():
        if not result["noticed"]:
            word = "MISSED " if result["status"] == 0 else "BROKEN "
            print(f"{word} {fault.name}: {fault.why}" + (f" ({result['by']})" if result["status"] else ""))
    noticed = sum(result["noticed"] for result in told.values())
    print(f"{noticed} of {len(every)} faults noticed, {len(told) - noticed} not, {len(stale)} stale")
    sys.exit(noticed < len(every))


def try_all(left: list[Fault], keys: dict[Fault, str], known: dict, scratch: Path, asked: argparse.Namespace) -> None:
    """Try the faults that are left, several at a time, and write down each as it is known."""
    if not left:
        return
    folders, lock = Queue(), Lock()
    for number in range(max(1, asked.at_once)):
        folder = scratch / str(number)
        folder.mkdir()
        folders.put(copy_project(folder))
    if not asked.unchecked:
        check_clean(left, scratch / "0")

    def one(fault: Fault) -> None:
        folder = folders.get()
        try:
            result = try_fault(fault, folder) | {"key": keys[fault]}
        finally:
            folders.put(folder)
        with lock:
            known[fault.name] = result
            KEPT.parent.mkdir(exist_ok=True)
            KEPT.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
            word = "noticed" if result["noticed"] else "MISSED"
            print(f"{word:8}{fault.name}: {result['by']}", flush=True)

    with ThreadPoolExecutor(max(1, asked.at_once)) as pool:
        list(pool.map(one, left))


if __name__ == "__main__":
    main()
