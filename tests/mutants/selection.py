"""Choose the test files for a module: those that import it, directly or through other modules."""

import ast
import json
import re
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HELPERS = ("toy", "toy_project", "toy_related", "toy_web")  # modules of tests/ that tests import
RUNS_NOTEBOOKS = "test_stored_outputs.py"  # the test file that runs the recorded cells
MODULE_PATH = re.compile(r"covrag_lite(?:\.\w+)+")


def module_name(path: Path, root: Path) -> str:
    """Return a file's dotted module name; for an __init__ that of its folder."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


@cache
def find_imports(path: Path) -> frozenset[str]:
    """Return what a file imports, also inside functions, as strings and in notebooks it runs."""
    imports = set()
    texts = [path.read_text()]
    if path.name == RUNS_NOTEBOOKS:
        texts += read_recorded_cells(path.parents[1] / "notebooks")
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imports |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imports |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                imports |= set(MODULE_PATH.findall(node.value))
    return frozenset(imports)


def read_recorded_cells(folder: Path) -> Iterator[str]:
    """Return the source of the notebooks' cells that need no model."""
    for path in sorted(folder.glob("*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            if {"setup", "recorded"} & set(cell["metadata"].get("tags", ())):
                yield "".join(cell["source"])


@cache
def graph(root: Path) -> dict[str, frozenset[str]]:
    """Return the modules of the package and the helpers of the tests, with what they import."""
    files = {module_name(path, root): path for path in (root / "covrag_lite").rglob("*.py")}
    files |= {name: root / "tests" / f"{name}.py" for name in HELPERS}
    return {
        name: frozenset(found for found in find_imports(path) if found in files)
        for name, path in files.items()
    }


@cache
def distances(test: Path, root: Path) -> dict[str, int]:
    """Return, for each module that a test file reaches, through how many imports it does."""
    modules = graph(root)
    reached = {name: 1 for name in find_imports(test) if name in modules}
    waiting = deque(reached)
    while waiting:
        name = waiting.popleft()
        step = 0 if name in HELPERS else 1  # what a helper imports is as near as the helper
        for following in modules[name]:
            if following not in reached:
                reached[following] = reached[name] + step
                waiting.append(following)
    return reached


@cache
def check_reaches(file: str, root: Path) -> bool:
    """Return whether `make check` imports a module, directly or through other modules."""
    modules = graph(root)
    reached = {"covrag_lite.check.__main__"}
    waiting = list(reached)
    while waiting:
        following = modules[waiting.pop()] - reached
        reached |= following
        waiting += following
    return module_name(root / file, root) in reached


def choose_tests(file: str, root: Path, seconds: dict[str, float], limit: float) -> list[str]:
    """Return the names of the test files to run for a module, nearest and fastest first.

    A test file named after the module comes before all others, then those that import the module
    themselves, then those that reach it through others. Together they take at most `limit` seconds;
    the first one is always taken. A file that was never timed counts as fast, so that it is tried
    and timed.
    """
    module = module_name(root / file, root)
    candidates = []
    for test in sorted((root / "tests").glob("test_*.py")):
        distance = distances(test, root).get(module)
        if distance is not None and test.name != "test_mutants.py":  # it tests this runner
            cost = seconds.get(test.name, 1.0)
            name = module.rpartition(".")[2]
            is_namesake = test.stem in (f"test_{name}", f"test_{name}s")
            candidates.append((not is_namesake, distance, cost, test.name))
    chosen = []
    total = 0.0
    for _, _, cost, name in sorted(candidates):
        if not chosen or total + cost <= limit:
            chosen.append(name)
            total += cost
    return chosen
