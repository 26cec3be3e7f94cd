"""The pins agree, and the parts that need no torch load none."""

import re
import subprocess
import sys

from covrag_lite.config import ROOT

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "covrag_lite").rglob("*.py"))
}
TORCH = {
    f"covrag_lite.{name}"
    for name in (
        "model.local",
        "model.decoding",
        "model.serving",
        "training.loop",
        "training.packing",
        "training.lora",
        "training.layers",
        "training.memory",
        "speed.training",
        "speed.inference",
    )
}
ROOMS = ["world", "model", "training", "report", "judging", "speed"]
PIN = re.compile(r"^\s*(?:- )?([A-Za-z0-9_.-]+)==([^\s#]+)", re.MULTILINE)


def pins(name):
    return {package.lower(): version for package, version in PIN.findall((ROOT / name).read_text())}


def test_conda_and_pip_users_get_the_same_versions():
    assert pins("environment.yml") == pins("env/requirements.txt") != {}


def test_every_direct_requirement_is_installed_as_pinned():
    from importlib.metadata import version

    for package, wanted in pins("env/requirements.txt").items():
        assert version(package).split("+")[0] == wanted, package


def test_constraints_do_not_contradict_the_requirements():
    assert not set(pins("env/constraints.txt")) & set(pins("env/requirements.txt"))


def test_the_weights_wheels_of_the_aliases_are_the_ones_that_are_installed():
    from covrag_lite.model.local import ALIASES
    from covrag_lite.retrieval import ENCODERS

    assert {requirement.replace("_", "-") for _, requirement in [*ALIASES.values(), *ENCODERS.values()]} <= set(
        (ROOT / "env/weights.txt").read_text().split("\n")
    )


def test_everything_but_the_local_model_its_training_and_its_speed_loads_without_torch():
    light = [name for name in MODULES if name not in TORCH]
    program = f"import importlib, sys\nfor name in {light}: importlib.import_module(name); assert not {{'torch', 'transformers'}} & set(sys.modules), name"
    assert TORCH <= set(MODULES)
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_room_imports_only_from_rooms_before_it():
    for name, path in MODULES.items():
        room, *file = name.split(".")[1:] or [""]
        if file:
            imported = set(re.findall(r"from covrag_lite\.(\w+)", path.read_text())) & set(ROOMS)
            assert imported <= set(ROOMS[: ROOMS.index(room) + 1]), name


def test_chain_imports_only_records_and_prompts():
    text = (ROOT / "covrag_lite" / "chain.py").read_text()
    assert set(re.findall(r"^from covrag_lite\.(\w+)", text, re.MULTILINE)) <= {"records", "prompts"}
    assert (ROOT / "LICENSE").read_text().count("Apache License") >= 1 and (ROOT / "CITATION.cff").exists()
