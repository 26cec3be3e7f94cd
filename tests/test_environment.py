"""The pins agree, and the parts that need no torch load none."""

import re
import subprocess
import sys

import pytest

from covrag_lite.config import ROOT

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
    from covrag_lite.model import ALIASES
    from covrag_lite.retrieval import ENCODERS

    assert {requirement.replace("_", "-") for _, requirement in [*ALIASES.values(), *ENCODERS.values()]} <= set((ROOT / "env/weights.txt").read_text().split("\n"))


@pytest.mark.parametrize("module", ["", ".records", ".config", ".world", ".data", ".prompts", ".metrics", ".retrieval", ".chain", ".journal", ".evaluation", ".report", ".report_retrieval"])
def test_everything_but_model_and_training_loads_without_torch(module):
    program = f"import sys, covrag_lite{module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_chain_imports_only_records_and_prompts():
    text = (ROOT / "covrag_lite" / "chain.py").read_text()
    assert set(re.findall(r"^from covrag_lite\.(\w+)", text, re.MULTILINE)) <= {"records", "prompts"}
    assert (ROOT / "LICENSE").read_text().count("Apache License") >= 1 and (ROOT / "CITATION.cff").exists()
