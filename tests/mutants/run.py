"""Measure the tests with random mutants: `make mutants SAMPLE=100 SEED=2026-01-31 ONLY=core`.

A mutant is one small change of the package's meaning (mutate.py). A random sample is drawn; for
each mutant the test files that import its module are run in a copy of the project, and at last
`make check` if it imports the module. A mutant that none of them notices has survived: either a
test is missing, or the change makes no difference. Changes that make none are listed in
equivalent.toml, each with a reason.

`--only cuda` draws from the lines that only a GPU runs. Run it without a GPU first, and then with
COVRAG_CUDA_TESTS=1 and `--again` on a machine with a GPU, for those that survived.

Results are appended to runs/mutants.jsonl under a hash of the mutant and of all code and tests, so
a stopped run resumes. `--suite` runs all other test files for those that survived.
"""

import argparse
import compileall
import difflib
import hashlib
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from mutate import Mutant, Site, find_sites, is_valid  # noqa: E402
from selection import check_reaches, choose_tests  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "runs" / "mutants.jsonl"
SECONDS = ROOT / "runs" / "mutants.seconds.json"  # how long each test file takes
EXCEPTIONS = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text())
CORE = ("records", "prompts", "method", "metrics", "synthesis", "oracle", "qlora")
NOT_COPIED = {".git", ".venv", ".gpu", ".github", "runs", "html"}  # at the top of the project
CUDA = "cuda"  # a line with this word decides what happens on a GPU; so does all of CUDA_FILE
CUDA_FILE = "covrag_lite/engine/fast/offload.py"
CUDA_TESTS = [
    "test_cuda.py",
    "test_training.py::test_on_cuda_packing_is_exact_too_and_a_graph_repeats_it",
]
ON_GPU = bool(os.environ.get("COVRAG_CUDA_TESTS"))  # then only CUDA_TESTS run
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
WRONG_CODE = 9  # exit status of tests that did not run the changed copy
CHECK = "make check"  # runs after all test files of a mutant
CHECK_SECONDS = 120.0  # of CPU
WALL = 1200  # seconds after which a mutant's tests are stopped, whatever they wait for
# Imported once, before a process is forked for each mutant: most of a short test's time.
SLOW_IMPORTS = (
    "numpy",
    "pandas",
    "scipy.stats",
    "scipy.optimize",
    "sklearn.metrics",
    "bm25s",
    "Stemmer",
    "pytest",
    "openai",
    "torch",
    "accelerate",
    "peft",
    "safetensors.torch",
    "transformers.models.llama.modeling_llama",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "httpx2",
)


# The pool: which mutants there are.


def load_pool(only: str = "") -> list[Site]:
    """Return all places that can be changed, without those of equivalent.toml.

    `only` is "core", "rest" (all but the core), "cuda" (what only a GPU runs, which the others
    leave out), or the beginning of a path below covrag_lite/.
    """
    wants_cuda = only == CUDA
    pool = []
    for path in sorted((ROOT / "covrag_lite").rglob("*.py")):
        file = str(path.relative_to(ROOT))
        name = str(path.relative_to(ROOT / "covrag_lite").with_suffix(""))
        if not (wants_cuda or is_chosen(name, only)) or file in EXCEPTIONS["skipped"]:
            continue
        text = path.read_text()
        lines = text.splitlines()
        for site in find_sites(file, text):
            kept = []
            for mutant in site:
                is_for_cuda = file == CUDA_FILE or CUDA in lines[mutant.line - 1]
                if is_for_cuda == wants_cuda and not is_equivalent(mutant):
                    kept.append(mutant)
            if kept:
                pool.append(kept)
    return pool


def is_chosen(name: str, only: str) -> bool:
    """Return whether a module, named by its path below covrag_lite/, belongs to the part `only`."""
    if only in ("core", "rest"):
        return (name in CORE) == (only == "core")
    return name.startswith(only)


def is_equivalent(mutant: Mutant) -> bool:
    """Return whether equivalent.toml lists this mutant."""
    return any(matches(entry, mutant) for entry in EXCEPTIONS["equivalent"])


def matches(entry: dict, mutant: Mutant) -> bool:
    """Return whether an entry of equivalent.toml describes this mutant; missing keys match all."""
    if entry["file"] != mutant.file.removeprefix("covrag_lite/"):
        return False
    return all(
        entry.get(key, getattr(mutant, key)) == getattr(mutant, key)
        for key in ("function", "operator", "old", "new")
    )


def draw(pool: Sequence[Site], size: int, seed: str) -> list[Mutant]:
    """Draw places, and one change of each."""
    rng = random.Random(seed)
    drawn = []
    for site in rng.sample(list(pool), len(pool)):
        if len(drawn) == size:
            break
        mutant = rng.choice(site)
        if is_valid(mutant, (ROOT / mutant.file).read_bytes()):
            drawn.append(mutant)
    return drawn


# Results.


def code_hash() -> str:
    """Return a hash of the package and its tests."""
    whole = hashlib.sha256()
    for folder in ("covrag_lite", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.parent.name != "mutants":
                whole.update(path.read_bytes())
    return whole.hexdigest()[:12]


def load_results(code: str) -> dict[str, dict]:
    """Return the results of this code, by the mutants' keys."""
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return {row["key"]: row for row in rows if row["code"] == code}


def save_result(row: dict) -> None:
    """Append one result."""
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def load_seconds() -> dict[str, float]:
    """Return how many CPU seconds each test file took when it was last run without a mutant."""
    return json.loads(SECONDS.read_text()) if SECONDS.exists() else {}


# Running tests in a copy.


def copy_project(folder: Path) -> Path:
    """Copy the project, compiled; times are kept, so that compiled files stay valid."""
    shutil.copytree(ROOT, folder, ignore=not_copied, symlinks=True)
    compileall.compile_dir(folder / "covrag_lite", quiet=2)
    return folder


def not_copied(folder: str, names: Sequence[str]) -> set[str]:
    """Return which names of a folder no test needs. `runs` is also a folder of the package."""
    if Path(folder) == ROOT:
        return NOT_COPIED | {name for name in names if name.endswith(("_cache", ".egg-info"))}
    return set()


def import_slow() -> None:
    """Import what all tests share, but nothing of the project."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if not ON_GPU:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # A change within a second of a compiled file's time would not be seen.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    # On a GPU, a process that has started CUDA cannot be forked, and some imports start it.
    for name in ("pytest",) if ON_GPU else SLOW_IMPORTS:
        importlib.import_module(name)
    if "covrag_lite" in sys.modules:
        raise RuntimeError("covrag_lite was imported before it was changed")


@dataclass(frozen=True)
class Outcome:
    """What the tests of one process said."""

    status: str  # "passed", "failed", "slow" (stopped) or "broken" (pytest could not run)
    failed_test: str
    seconds: float  # of CPU


def run_pytest(tests: Sequence[str]) -> int:
    """Run test files up to the first failure; return pytest's exit status."""
    options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "--tb=line"]
    names = [f"tests/{name}" for name in tests]
    return int(sys.modules["pytest"].main([*options, *names]))


def run_check() -> int:
    """Compute every recorded table again, as `make check` does; return its exit status."""
    try:
        importlib.import_module("covrag_lite.check.__main__").main([])
    except SystemExit as end:
        return int(bool(end.code))
    return 1


class TestRun:
    """Test files that run in a process of their own over one copy, with or without a mutant."""

    __test__ = False  # no test class of pytest

    def __init__(self, folder: Path, tests: Sequence[str], cpu_limit: float, mutant: Mutant | None):
        self.folder = folder
        self.mutant = mutant
        self.start = time.monotonic()
        self.output = folder.with_suffix(".txt")
        shutil.rmtree(folder / "runs", ignore_errors=True)
        if mutant:
            path = folder / mutant.file
            self.original = path.read_bytes()
            self.times = path.stat().st_atime_ns, path.stat().st_mtime_ns
            path.write_bytes(mutant.apply(self.original))
        self.process = os.fork()
        if not self.process:
            self.run(tests, cpu_limit)

    def run(self, tests: Sequence[str], cpu_limit: float) -> None:
        """Run the tests, and end the process."""
        status = 3
        try:
            with open(self.output, "w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            os.setsid()
            os.chdir(self.folder)
            limit = int(cpu_limit) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            os.environ["PYTHONPATH"] = str(self.folder)
            others = [path for path in sys.path if not path.startswith(str(ROOT / "tests"))]
            sys.path[:] = [str(self.folder), *(path for path in others if path != str(ROOT))]
            status = run_check() if tests == [CHECK] else run_pytest(tests)
            package = sys.modules.get("covrag_lite")
            if package and not str(package.__file__).startswith(str(self.folder)):
                status = WRONG_CODE
        finally:
            sys.stdout.flush()
            os._exit(status)

    def poll(self) -> Outcome | None:
        """Return the outcome once the process has ended; the copy is restored."""
        process, status, usage = os.wait4(self.process, os.WNOHANG)
        if not process:
            if time.monotonic() - self.start < WALL:
                return None
            os.killpg(self.process, signal.SIGKILL)
            _, status, usage = os.wait4(self.process, 0)
        if self.mutant:
            path = self.folder / self.mutant.file
            path.write_bytes(self.original)
            os.utime(path, ns=self.times)  # its compiled file is valid again
        code = os.waitstatus_to_exitcode(status)
        text = self.output.read_text(errors="replace")
        failed = FAILED.search(text)
        lines = text.strip().splitlines() or [""]
        said = failed[1] if failed else "" if code == 0 else lines[-1]
        # 1: a test failed; 2 to 4: pytest could not import a file; a signal: out of CPU time.
        status_name = {0: "passed", WRONG_CODE: "broken"}.get(code, "failed")
        if code < 0:
            status_name = "slow"
        return Outcome(status_name, said, usage.ru_utime + usage.ru_stime)


class Workers:
    """Several copies of the project, in each of which one process runs at a time."""

    def __init__(self, scratch: Path, number: int):
        self.free = [copy_project(scratch / str(i)) for i in range(number)]
        self.running: dict[TestRun, object] = {}

    def start(
        self, task: object, tests: Sequence[str], cpu_limit: float, mutant: Mutant | None = None
    ) -> None:
        run = TestRun(self.free.pop(), tests, cpu_limit, mutant)
        self.running[run] = task

    def collect(self) -> list[tuple[object, Outcome]]:
        """Return the tasks that have ended, with their outcomes."""
        ended = []
        for run in list(self.running):
            outcome = run.poll()
            if outcome:
                ended.append((self.running.pop(run), outcome))
                self.free.append(run.folder)
        return ended


def measure_tests(workers: Workers, tests: Sequence[str]) -> dict[str, float]:
    """Run tests without a mutant; return the CPU seconds of each, negative if it fails."""
    seconds = {}
    waiting = list(tests)
    while waiting or workers.running:
        while waiting and workers.free:
            test = waiting.pop(0)
            workers.start(test, [test], 900)
        for test, outcome in workers.collect():
            if outcome.status != "passed":
                print(f"left out: {test} fails without a mutant: {outcome.failed_test}", flush=True)
                seconds[test] = -1.0
            else:
                seconds[test] = round(outcome.seconds, 1)
        time.sleep(0.05)
    return seconds


@dataclass
class Task:
    """A mutant with the test files that are run for it."""

    mutant: Mutant
    tests: list[str]


def plan_tasks(
    mutants: Sequence[Mutant],
    workers: Workers,
    limit: float,
    whole_suite: bool = False,
    checked: bool = False,
) -> list[Task]:
    """Choose each mutant's tests.

    Test files that were not run without a mutant since they last changed are run first, to see that
    they pass and how long they take; not if they are `checked`. So is the check, every time.
    """
    if ON_GPU:
        return [Task(mutant, CUDA_TESTS) for mutant in mutants]
    seconds = load_seconds()

    def choose(mutant: Mutant) -> list[str]:
        usable = {name: cost for name, cost in seconds.items() if cost >= 0}
        broken = {name for name, cost in seconds.items() if cost < 0}
        room = 1e9 if whole_suite else limit
        costs = usable | dict.fromkeys(broken, 1e12)
        return [t for t in choose_tests(mutant.file, ROOT, costs, room) if t not in broken]

    # A measured time may change the choice, so this ends when every chosen file is measured.
    while True:
        chosen = {mutant: choose(mutant) for mutant in mutants}
        names = {name for tests in chosen.values() for name in tests}
        stamps = {name: stamp(name) for name in names}
        unknown = sorted(name for name in names if seconds.get(f"#{name}") != stamps[name])
        if not unknown or checked:
            break
        for name, cost in measure_tests(workers, unknown).items():
            seconds[name] = cost
            seconds[f"#{name}"] = stamps[name]
        SECONDS.parent.mkdir(exist_ok=True)
        SECONDS.write_text(json.dumps(seconds, indent=1) + "\n")
    reached = {mutant for mutant in mutants if check_reaches(mutant.file, ROOT)}
    # If the check fails by itself, it would seem to notice every mutant.
    is_usable = reached and not checked and measure_tests(workers, [CHECK])[CHECK] >= 0
    tasks = []
    for mutant, tests in chosen.items():
        last = [CHECK] if is_usable and mutant in reached else []
        tasks.append(Task(mutant, [*tests, *last]))
    return tasks


def stamp(test: str) -> float:
    """Return a number that changes with a test file."""
    digest = hashlib.sha256((ROOT / "tests" / test).read_bytes()).hexdigest()
    return float(int(digest[:8], 16)) + 2.0


def try_mutants(tasks: Sequence[Task], workers: Workers, code: str) -> None:
    """Run the tests of every mutant and save each result.

    Most mutants are noticed by the nearest tests, so these run first, in a process of their own.
    """
    seconds = load_seconds() | {CHECK: CHECK_SECONDS}
    waiting = [(task, 0) for task in tasks]  # and how many of its test files have passed
    while waiting or workers.running:
        while waiting and workers.free:
            task, n_passed = waiting.pop(0)
            tests = next_tests(task.tests, n_passed, seconds)
            cpu_limit = 30 + 3 * sum(seconds.get(name, 60.0) for name in tests)
            workers.start((task, n_passed + len(tests)), tests, cpu_limit, task.mutant)
        for (task, n_run), outcome in workers.collect():
            if outcome.status == "passed" and n_run < len(task.tests):
                waiting.insert(0, (task, n_run))
                continue
            row = build_result(task, outcome, code)
            save_result(row)
            word = row["status"].upper() if row["status"] != "killed" else "killed"
            where = f"{task.mutant.file}:{task.mutant.line} {task.mutant.operator}"
            print(f"{word:9}{where}: {row['by']}", flush=True)
        time.sleep(0.05)


def next_tests(tests: Sequence[str], n_passed: int, seconds: dict[str, float]) -> list[str]:
    """Return what to run next: about ten seconds of test files, then the others, then the check."""
    files = [name for name in tests[n_passed:] if name != CHECK]
    if not files:
        return [CHECK]
    return files if n_passed else near_tests(files, seconds)


def near_tests(tests: Sequence[str], seconds: dict[str, float]) -> list[str]:
    """Return the first test files, about ten seconds of them."""
    total = 0.0
    for place, name in enumerate(tests, 1):
        total += seconds.get(name, 5.0)
        if total > 10:
            return list(tests[:place])
    return list(tests)


def build_result(task: Task, outcome: Outcome, code: str) -> dict:
    """Return the row that is saved for a mutant."""
    mutant = task.mutant
    status = {"passed": "survived", "failed": "killed", "slow": "killed"}
    return {
        "key": mutant.key,
        "code": code,
        "status": status.get(outcome.status, "broken"),
        "by": outcome.failed_test,
        "seconds": round(outcome.seconds, 1),
        "file": mutant.file,
        "line": mutant.line,
        "operator": mutant.operator,
        "old": mutant.old,
        "new": mutant.new,
        "tests": len(task.tests),
    }


# The report.


def show(mutant: Mutant) -> str:
    """Return the change as the lines of a diff."""
    source = (ROOT / mutant.file).read_bytes()
    before = source.decode().splitlines()
    after = mutant.apply(source).decode().splitlines()
    lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[3:]
    where = f"{mutant.file}:{mutant.line} {mutant.operator} in {mutant.function or 'the module'}"
    return "\n".join([f"{where} ({mutant.key})", *(f"    {line}" for line in lines)])


def score_table(rows: Sequence[tuple[str, bool]]) -> list[str]:
    """Return a line per group: its name, mutants, killed ones, and their share."""
    groups = defaultdict(list)
    for name, killed in rows:
        groups[name].append(killed)
    return [
        f"{name:42}{len(killed):5}{sum(killed):7}{100 * sum(killed) / len(killed):7.0f} %"
        for name, killed in sorted(groups.items())
    ]


def report(mutants: Sequence[Mutant], results: dict[str, dict]) -> None:
    """Print the survivors, and the scores per module, per folder and of all."""
    tried = [mutant for mutant in mutants if mutant.key in results]
    survivors = [mutant for mutant in tried if results[mutant.key]["status"] == "survived"]
    broken = [mutant for mutant in tried if results[mutant.key]["status"] == "broken"]
    for mutant in survivors:
        print(f"\nSURVIVED {show(mutant)}")
    for mutant in broken:
        print(f"\nBROKEN {show(mutant)}\n    {results[mutant.key]['by']}")
    valid = [mutant for mutant in tried if mutant not in broken]
    killed = {mutant: mutant not in survivors for mutant in valid}
    print(f"\n{'':42}{'tried':>5}{'killed':>7}")
    modules = [(mutant.file.removeprefix("covrag_lite/"), killed[mutant]) for mutant in valid]
    folders = [(name.rpartition("/")[0] or "core and config", k) for name, k in modules]
    for lines in (score_table(modules), score_table(folders)):
        print(*lines, "", sep="\n")
    print(*score_table([("all", k) for _, k in modules]), sep="\n")


def main() -> None:
    """Draw mutants, try those without a result, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=100, help="how many mutants are drawn")
    parser.add_argument("--seed", default=date.today().isoformat(), help="of the sample")
    parser.add_argument(
        "--only", default="", help="core, rest, cuda, or a path such as tables or runs/manifest"
    )
    parser.add_argument("--limit", type=float, default=60, help="CPU seconds of tests per mutant")
    parser.add_argument("--suite", action="store_true", help="run all tests for survivors")
    parser.add_argument("--again", action="store_true", help="try the last survivors again")
    parser.add_argument("--checked", action="store_true", help="the tests are known to pass")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="show the sample, and run nothing")
    asked = parser.parse_args()

    pool = load_pool(asked.only)
    print(f"{len(pool)} places can be changed; {min(asked.sample, len(pool))} are drawn")
    mutants = draw(pool, asked.sample, asked.seed)
    if asked.again:
        mutants = last_survivors(pool)
    if asked.list:
        print(*map(show, mutants), sep="\n")
        return
    code = code_hash()
    results = load_results(code)
    left = [mutant for mutant in mutants if mutant.key not in results]
    if left or asked.suite:
        import_slow()
        with tempfile.TemporaryDirectory() as scratch:
            workers = Workers(Path(scratch), max(1, asked.workers))
            try_mutants(
                plan_tasks(left, workers, asked.limit, checked=asked.checked), workers, code
            )
            if asked.suite:
                results = load_results(code)
                survivors = [m for m in mutants if results[m.key]["status"] == "survived"]
                tasks = plan_tasks(survivors, workers, asked.limit, whole_suite=True)
                try_mutants(tasks, workers, code)
    report(mutants, load_results(code))


def last_survivors(pool: Sequence[Site]) -> list[Mutant]:
    """Return the mutants whose last result, with whatever code, is that they survived."""
    last = {}
    for line in RESULTS.read_text().splitlines():
        row = json.loads(line)
        last[row["key"]] = row["status"]
    return [m for site in pool for m in site if last.get(m.key) == "survived"]


if __name__ == "__main__":
    main()
