"""Which adapter each system reads, verifies and writes with, and by which rules it decides."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from covrag_lite.config import Config
from covrag_lite.engine.interface import Completion
from covrag_lite.method import (
    by_revision,
    by_thresholds,
    closed_book,
    cov_rag,
    keep_combined,
    keep_last,
    keep_likelier,
    rag,
    start_revise,
)
from covrag_lite.prompts import DIRECT, SCHEMA
from covrag_lite.records import Passage
from covrag_lite.systems import SYSTEMS, evaluate
from covrag_lite.systems.blocks import read_blocks
from covrag_lite.systems.controls import (
    read_on,
    shuffled,
    swap_answers,
    swap_references,
    verify_only,
)
from covrag_lite.systems.expansion import expand_by_answer, expand_by_guesses


class Wiring(NamedTuple):
    """What a system must do. An adapter "" is the base model."""

    run: object
    reads: str
    verifies: str
    schema: object = SCHEMA
    writes: str = ""
    keep: object = keep_last
    sigma: object = by_revision


EXPECTED = {
    "closed-book": Wiring(closed_book, "", ""),
    "RAG": Wiring(rag, "", ""),
    "Start-Revise": Wiring(start_revise, "", ""),
    "CoV-RAG untrained": Wiring(cov_rag, "", ""),
    "RAG trained": Wiring(rag, "rag", "rag"),
    "CoV-RAG w/o chain": Wiring(cov_rag, "cov-direct", "cov-direct", DIRECT),
    "CoV-RAG-S": Wiring(rag, "cov", "cov"),
    "Start-Revise trained": Wiring(start_revise, "cov", "cov", writes="rewrite"),
    "CoV-RAG thresholds": Wiring(cov_rag, "cov", "cov", sigma=by_thresholds),
    "CoV-RAG shuffled": Wiring(shuffled, "cov", "cov"),
    "CoV-RAG": Wiring(cov_rag, "cov", "cov"),
    "CoV-RAG, likelier answer": Wiring(cov_rag, "cov", "cov", keep=keep_likelier),
    "CoV-RAG, two adapters": Wiring(cov_rag, "rag", "cov"),
    "CoV-RAG, two adapters, likelier answer": Wiring(cov_rag, "rag", "cov", keep=keep_likelier),
    "CoV-RAG, two adapters, weighed answer": Wiring(cov_rag, "rag", "cov", keep=keep_combined),
    "CoV-RAG, two adapters, another question's search": Wiring(
        shuffled, "rag", "cov", keep=keep_combined
    ),
    "CoV-RAG, two adapters, the next passages": Wiring(read_on, "rag", "cov", keep=keep_combined),
    "CoV-RAG w/o chain, two adapters": Wiring(cov_rag, "rag", "cov-direct", DIRECT),
    "CoV-RAG w/o chain, two adapters, likelier answer": Wiring(
        cov_rag, "rag", "cov-direct", DIRECT, keep=keep_likelier
    ),
    "CoV-RAG w/o chain, two adapters, weighed answer": Wiring(
        cov_rag, "rag", "cov-direct", DIRECT, keep=keep_combined
    ),
    "CoV-RAG w/o chain, two adapters, the next passages, likelier answer": Wiring(
        read_on, "rag", "cov-direct", DIRECT, keep=keep_likelier
    ),
    "CoV-RAG w/o chain, two adapters, ten blocks of passages": Wiring(
        read_blocks, "rag", "cov-direct", DIRECT, keep=keep_combined
    ),
    "RAG trained, every query expanded by guesses": Wiring(
        expand_by_guesses, "rag", "rag", keep=keep_likelier
    ),
    "RAG trained, every query expanded by guesses, weighed answer": Wiring(
        expand_by_guesses, "rag", "cov-direct", DIRECT, keep=keep_combined
    ),
    "RAG trained, every query expanded by its answer": Wiring(
        expand_by_answer, "rag", "rag", keep=keep_likelier
    ),
    "verify, swapped references": Wiring(swap_references, "cov", "cov"),
    "verify, swapped answers": Wiring(swap_answers, "cov", "cov"),
    "CoV-RAG free": Wiring(verify_only, "cov", "cov", None),
    "CoV-RAG w/o chain free": Wiring(verify_only, "cov-direct", "cov-direct", None),
}


class Recorder:
    """An engine that notes which adapter is used for what, and with which limit."""

    at_once = 1
    device = "cpu"
    weights = None
    weights_hash = "recorder"

    def __init__(self, settings, name="", calls=None):
        self.settings = settings
        self.name = name
        self.adapter = Path(name) if name else None
        self.fingerprint = f"recorder+{name}"
        self.used = Counter()
        self.calls = [] if calls is None else calls

    def with_adapter(self, name):
        return Recorder(self.settings, name, self.calls)

    def batches(self, prompts, room):
        return [list(prompts)]

    def complete(self, prompts, max_tokens, sample=None):
        self.calls.append((self.name, max_tokens))
        return [Completion("text", {"likelihood": -1.0})] * len(prompts)

    def fill(self, prompts, schema, max_tokens):
        self.calls.append((self.name, max_tokens, schema))
        return [Completion("no verdict")] * len(prompts)


@pytest.fixture
def bound(tmp_path, passages):
    """Build the tools of a system; also the calls that its engine gets."""

    def build(name):
        config = Config().change(runs=str(tmp_path), max_answer_tokens=11, max_revised_tokens=7)
        engine = Recorder(config.model)
        resources = evaluate.load_resources(config, passages, engine)
        return evaluate.bind(SYSTEMS[name], config, resources), engine.calls

    return build


PASSAGE = [[Passage("p", "title", "text")]]


def test_every_system_is_listed_here():
    assert set(EXPECTED) == set(SYSTEMS)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_function_of_a_system(name):
    assert SYSTEMS[name].run is EXPECTED[name].run


@pytest.mark.parametrize("name", EXPECTED)
def test_the_adapter_that_answers(bound, name):
    tools, calls = bound(name)
    tools.answer(["who?"], PASSAGE)
    assert calls == [(EXPECTED[name].reads, 11)]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_likelihood_is_that_of_the_adapter_that_answers(bound, name):
    tools, _ = bound(name)
    tools.answer(["who?"], PASSAGE)
    assert tools.likelihoods(["who?"], PASSAGE) == [-1.0]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_adapter_and_the_schema_of_verdicts(bound, name):
    tools, calls = bound(name)
    tools.verify(["who?"], PASSAGE, ["somebody"])
    assert calls == [(EXPECTED[name].verifies, 7, EXPECTED[name].schema)]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_adapter_that_rewrites(bound, name):
    tools, calls = bound(name)
    tools.write_from_question("rewrite", ["who?"])
    assert calls == [(EXPECTED[name].writes, 7)]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_rule_for_the_answer_that_is_kept(bound, name):
    tools, _ = bound(name)
    assert tools.keep is EXPECTED[name].keep


@pytest.mark.parametrize("name", EXPECTED)
def test_the_last_answer_is_verified_only_for_the_combined_score(bound, name):
    tools, _ = bound(name)
    assert tools.verifies_last == (EXPECTED[name].keep is keep_combined)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_rule_for_searching_again(bound, name):
    tools, _ = bound(name)
    assert tools.sigma is EXPECTED[name].sigma


def test_guesses_have_their_own_limit(bound):
    tools, calls = bound("RAG trained, every query expanded by guesses")
    tools.write_from_question("guess", ["who?"])
    assert calls == [("", 40)]


def test_a_closed_book_answer_is_as_long_as_an_answer(bound):
    tools, calls = bound("closed-book")
    tools.write_from_question("closed-book", ["who?"])
    assert calls == [("", 11)]
