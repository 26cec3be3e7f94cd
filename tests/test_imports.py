"""Who imports whom: the core is self-contained, folders have an order, and nothing is circular."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter

import pytest

from covrag_lite.config import ROOT

PACKAGE = "covrag_lite"
FILES = sorted((ROOT / PACKAGE).rglob("*.py"))
NAMED = re.compile(r"covrag_lite(\.\w+)+(?=:|$)")  # a text that is the name of a module

# The core: each file, and what it may import besides the core itself.
CORE = ("records", "prompts", "method", "oracle", "synthesis", "metrics")
OF_QLORA = (*CORE, "qlora", "config", "parameters", "loader", "engine.interface")

# Folders and files in their order: a lower one never imports a higher one.
FLOORS = (
    (*CORE, "loader", "files", "parameters"),
    ("config",),
    ("engine", "qlora"),
    ("retrieval", "data"),
    ("systems",),
    ("runs",),
    ("training", "judging"),
    ("tables",),
    ("replication", "check"),
    ("commands",),
    ("plugins",),
)
WITHOUT_TORCH = ("data", "tables", "check", "runs", "systems", *CORE)


def name_of(path):
    """A file's module name without the package; for an __init__ that of its folder."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return name.removeprefix(PACKAGE).lstrip(".")


MODULES = {name_of(path): path for path in FILES if path.stem != "__main__" and name_of(path)}


def imported_names(path):
    """Everything that a file imports, also inside functions, as full names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                is_module = full.removeprefix(f"{PACKAGE}.") in MODULES
                yield full if is_module else node.module


def named_modules(path):
    """The modules of the package that a file names in texts, to import them later."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            match = NAMED.match(node.value)
            if match:
                yield match[0]


def edges(names):
    """Those of these names that are modules of the package, without the package's name."""
    short = {name.removeprefix(f"{PACKAGE}.") for name in names if name.startswith(PACKAGE)}
    return short & set(MODULES)


IMPORTS = {name: edges(imported_names(path)) - {name} for name, path in MODULES.items()}
NAMES = {name: edges(named_modules(path)) - {name} for name, path in MODULES.items()}


def closure(name):
    """All modules that a module imports, directly or indirectly, itself included."""
    reached = set()
    waiting = [name]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += IMPORTS[module]
    return reached


def floor_of(name):
    folder = name if name in ("engine.interface",) else name.partition(".")[0]
    return next(floor for floor, folders in enumerate(FLOORS) if folder in folders)


@pytest.mark.parametrize("name", CORE)
def test_a_core_file_imports_only_the_core(name):
    assert closure(name) <= set(CORE)


def test_training_imports_only_the_core_the_settings_and_the_interface_of_engines():
    assert closure("qlora") <= set(OF_QLORA)


def test_there_is_no_import_cycle_even_through_modules_named_in_strings():
    graph = {name: IMPORTS[name] | NAMES[name] for name in MODULES}
    list(TopologicalSorter(graph).static_order())  # raises CycleError, with the cycle in it


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_nothing_above_its_floor(name):
    if name == "engine.interface":
        return
    floor = floor_of(name)
    above = {
        other for other in IMPORTS[name] if other != "engine.interface" and floor_of(other) > floor
    }
    assert above == set()


def test_only_the_loader_knows_the_folder_of_plug_ins_and_nobody_names_a_plug_in():
    naming = {}
    for name in MODULES:
        plugins = {other for other in IMPORTS[name] | NAMES[name] if other.startswith("plugins")}
        if plugins and not name.startswith("plugins"):
            naming[name] = plugins
    assert naming == {"loader": {"plugins"}}


def test_the_package_does_not_import_the_benchmarks():
    importing = [n for n, p in MODULES.items() if any("benchmarks" in i for i in imported_names(p))]
    assert importing == []


def test_what_is_read_without_a_model_does_not_import_torch():
    importing = []
    for name, path in MODULES.items():
        if name.partition(".")[0] in WITHOUT_TORCH:
            libraries = {library.partition(".")[0] for library in imported_names(path)}
            if libraries & {"torch", "transformers"}:
                importing.append(name)
    assert importing == []


def test_tables_and_check_load_without_torch():
    light = [name for name in MODULES if name.partition(".")[0] in ("tables", "check", "runs")]
    lines = [
        "import importlib, sys",
        f"for name in {light}:",
        f"    importlib.import_module('{PACKAGE}.' + name)",
        "    assert not {'torch', 'transformers'} & set(sys.modules), name",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=ROOT)
