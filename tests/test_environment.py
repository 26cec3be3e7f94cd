"""The pins agree, rooms import only from rooms above them, and what needs no torch loads none."""

import ast
import re
import subprocess
import sys
from importlib.metadata import version

from covrag_lite.config import ROOT
from covrag_lite.weights import ENCODERS, MODELS

FILES = sorted((ROOT / "covrag_lite").rglob("*.py"))
# A file or room imports from itself and from those of the lines above it; never from its own line.
ORDER = (
    ("records", "config", "progress"),
    ("metrics", "journal", "weights", "command", "hiding"),
    ("prompts",),
    ("tasks",),
    ("data",),
    ("retrieval", "systems"),
    ("model", "outcomes", "manifest"),
    ("cost", "aiding"),
    ("evaluation",),
    ("training", "related"),
    ("report",),
    ("judging", "speed"),
    ("plan",),
    ("check",),
    ("replication",),
)
LEVEL = {room: number for number, rooms in enumerate(ORDER) for room in rooms}
# Files that cannot be imported without torch.
TORCH = {
    "model.attending",
    "model.decoding",
    "model.elementwise",
    "model.linears",
    "model.packed",
    "model.padded",
    "model.reading",
    "model.recording",
    "model.sampling",
    "model.serving",
    "model.stepping",
    "model.steps",
    "replication",
    "speed.card",
    "speed.continuous",
    "speed.folders",
    "speed.holding",
    "speed.inference",
    "speed.profiling",
    "speed.reading",
    "speed.replaying",
    "speed.sft",
    "speed.shapes",
    "speed.stages",
    "speed.training",
    "speed.vllm_peer",
    "training.attention",
    "training.checkpoint",
    "training.elementwise",
    "training.layers",
    "training.loop",
    "training.lora",
    "training.loss",
    "training.memory",
    "training.optimizer",
    "training.packing",
    "training.recipe",
    "training.shelf",
    "training.tuning",
}
PIN = re.compile(r"^\s*(?:- )?([A-Za-z0-9_.-]+)==([^\s#]+)", re.MULTILINE)


def name_of(path):
    """A file's dotted name inside the package; of a room's __init__ the room's."""
    return ".".join(path.relative_to(ROOT / "covrag_lite").with_suffix("").parts).removesuffix("__init__").strip(".")


def imports_of(path):
    """Every module that a file imports, wherever in it, as a dotted name."""
    made = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            made |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            made |= {f"{node.module}.{alias.name}" for alias in node.names}
    return made


def rooms_of(path):
    """The rooms, or files beside them, of this package that a file imports from."""
    return {name.split(".")[1] for name in imports_of(path) if name.startswith("covrag_lite.")}


def pins(name):
    return {package.lower(): pinned for package, pinned in PIN.findall((ROOT / name).read_text())}


def test_conda_and_pip_users_get_the_same_versions():
    assert pins("environment.yml") == pins("env/requirements.txt") != {}


def test_every_direct_requirement_is_installed_as_pinned():
    for package, wanted in pins("env/requirements.txt").items():
        assert version(package).split("+")[0] == wanted, package


def test_constraints_do_not_contradict_the_requirements():
    assert not set(pins("env/constraints.txt")) & set(pins("env/requirements.txt"))


def test_the_weights_wheels_of_the_aliases_are_the_ones_that_are_installed():
    wanted = {requirement.replace("_", "-") for _, requirement in [*MODELS.values(), *ENCODERS.values()]}
    assert wanted <= set((ROOT / "env/weights.txt").read_text().split("\n"))


def test_a_room_imports_only_from_rooms_above_it():
    for path in FILES:
        room = name_of(path).split(".")[0]
        if room:
            wrong = {other for other in rooms_of(path) - {room} if LEVEL[other] >= LEVEL[room]}
            assert not wrong, f"{name_of(path)} imports from {wrong}"


def test_systems_know_nothing_but_records():
    for path in (ROOT / "covrag_lite" / "systems").glob("*.py"):
        assert rooms_of(path) <= {"records", "systems"}, path.name


def test_no_file_of_the_data_the_systems_or_the_reports_imports_torch_even_when_it_is_called():
    for path in FILES:
        if name_of(path).split(".")[0] in ("data", "systems", "outcomes", "report", "judging", "check"):
            heavy = {name.split(".")[0] for name in imports_of(path)} & {"torch", "transformers"}
            assert not heavy, path.name


def test_everything_but_the_torch_files_loads_without_torch():
    names = [name_of(path) for path in FILES]
    light = [f"covrag_lite.{name}".strip(".") for name in names if name not in TORCH and not name.endswith("__main__")]
    lines = [
        "import importlib, sys",
        f"for name in {light}:",
        "    importlib.import_module(name)",
        "    assert not {'torch', 'transformers'} & set(sys.modules), name",
    ]
    assert set(names) >= TORCH
    assert len(light) > 40
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=ROOT)


def test_a_torch_file_is_one_that_imports_torch_or_another_torch_file():
    for path in FILES:
        if name_of(path) in TORCH:
            heavy = {f"covrag_lite.{name}" for name in TORCH} | {"torch"}
            named = imports_of(path)
            assert any(name in heavy or name.rpartition(".")[0] in heavy for name in named), name_of(path)


def test_licence_and_citation_are_there():
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert (ROOT / "CITATION.cff").exists()
