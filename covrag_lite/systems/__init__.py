"""All systems of the tables, one entry each: function, adapters, colour and the paper's row.

A new system is one function over `method.Tools` and one entry here. Plug-ins register theirs.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from covrag_lite.config import Config
from covrag_lite.engine.interface import Schema
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.loader import plugins
from covrag_lite.method import Tools, closed_book, cov_rag, rag, start_revise
from covrag_lite.prompts import DIRECT, SCHEMA
from covrag_lite.records import Prediction, Question, Search
from covrag_lite.systems import names
from covrag_lite.systems.blocks import read_blocks, search_all_blocks
from covrag_lite.systems.controls import (
    read_on,
    shuffled,
    swap_answers,
    swap_references,
    verify_only,
)
from covrag_lite.systems.expansion import expand_by_answer, expand_by_guesses

RunSystem = Callable[[Sequence[Question], Tools], list[Prediction]]
Deeper = Callable[[int], Search]  # n -> the same search with n times k passages
# Adds the tools that only one system uses: tools, settings, deeper searches, the writing model.
Equip = Callable[[Tools, Config, Deeper, TaskModel], Tools]


@dataclass(frozen=True)
class System:
    """One system, with everything that the rest of the project has to know of it."""

    name: str
    run: RunSystem
    adapter: str = ""  # the adapter that answers, and verifies unless `verifier` is set; "": none
    verifier: str = ""  # the adapter that verifies, if it is another one
    rewriter: str = ""  # the adapter that writes texts other than answers and verdicts
    schema: Schema = SCHEMA  # of the verdicts
    settings: Mapping[str, object] = field(default_factory=dict)  # parameters that it fixes
    colour: str = ""  # in every picture; "" if it is in no picture and no accuracy table
    paper: Mapping[str, str] = field(default_factory=dict)  # a table of the paper -> its row there
    equip: Equip | None = None

    @property
    def adapters(self) -> set[str]:
        """Every adapter that it runs with."""
        return {self.adapter, self.verifier, self.rewriter} - {""}


LAST = {"keep": "last"}
LIKELIER = {"keep": "likelier"}
COMBINED = {"keep": "weighed"}
# The paper's rows that CoV-RAG is compared with.
OF_COV_RAG = {
    "table2": "CoV-RAG Llama2-13b",
    "table3": "CoV-RAG",
    "table4": "End-Revise",
    "table5": "w/ Chain",
}
OF_RAG = {"table2": "ChatGPT gpt-3.5-turbo-0125", "table3": "WebGLM-10b"}
OF_RAG_TRAINED = {"table2": "WebGLM Llama2-13b", "table3": "WebGLM-13b"}

# In the order of a table's rows. Colours: grey without retrieval, blue for plain retrieval, orange
# for rewriting first, green for CoV-RAG.
ENTRIES = (
    System(
        names.CLOSED_BOOK,
        closed_book,
        colour="#9a9a9a",
        paper={"table2": "GPT3 text-davinci-003"},
    ),
    System(names.RAG, rag, colour="#5b8fd0", paper=OF_RAG),
    System(
        names.START_REVISE,
        start_revise,
        colour="#e0893a",
        paper={"table2": "RRR gpt-4-1106-preview"},
    ),
    System(names.COV_RAG_UNTRAINED, cov_rag, colour="#c9b458"),
    System(names.RAG_TRAINED, rag, "rag", colour="#28559a", paper=OF_RAG_TRAINED),
    System(
        names.NO_CHAIN,
        cov_rag,
        "cov-direct",
        schema=DIRECT,
        colour="#b07aa1",
        paper={"table5": "w/o Chain"},
    ),
    System(
        names.COV_RAG_S,
        rag,
        "cov",
        colour="#8fca8f",
        paper={"table3": "CoV-RAG-S", "table4": "No-Revise"},
    ),
    System(
        names.START_REVISE_TRAINED,
        start_revise,
        "cov",
        rewriter="rewrite",
        colour="#b5651d",
        paper={"table4": "Start-Revise"},
    ),
    System(
        names.COV_RAG_THRESHOLDS,
        cov_rag,
        "cov",
        settings={"sigma": "thresholds"},
        colour="#1b5e3b",
    ),
    System(names.COV_RAG_SHUFFLED, shuffled, "cov", colour="#c0504d"),
    System(names.COV_RAG, cov_rag, "cov", colour="#2e8b57", paper=OF_COV_RAG),
    System(names.COV_RAG_LIKELIER, cov_rag, "cov", settings=LIKELIER, colour="#c2b12f"),
    System(names.TWO_ADAPTERS, cov_rag, "rag", "cov", settings=LAST, colour="#3fd0c4"),
    System(names.TWO_ADAPTERS_LIKELIER, cov_rag, "rag", "cov", settings=LIKELIER, colour="#6fb1ea"),
    System(names.TWO_ADAPTERS_COMBINED, cov_rag, "rag", "cov", settings=COMBINED, colour="#0f2747"),
    System(names.TWO_ADAPTERS_SHUFFLED, shuffled, "rag", "cov", settings=COMBINED),
    System(names.TWO_ADAPTERS_NEXT, read_on, "rag", "cov", settings=COMBINED),
    System(
        names.TWO_ADAPTERS_NO_CHAIN,
        cov_rag,
        "rag",
        "cov-direct",
        schema=DIRECT,
        settings=LAST,
    ),
    System(
        names.TWO_ADAPTERS_NO_CHAIN_LIKELIER,
        cov_rag,
        "rag",
        "cov-direct",
        schema=DIRECT,
        settings=LIKELIER,
    ),
    System(
        names.TWO_ADAPTERS_NO_CHAIN_COMBINED,
        cov_rag,
        "rag",
        "cov-direct",
        schema=DIRECT,
        settings=COMBINED,
        colour="#8828e8",
    ),
    System(
        names.TWO_ADAPTERS_NO_CHAIN_NEXT,
        read_on,
        "rag",
        "cov-direct",
        schema=DIRECT,
        settings=LIKELIER,
    ),
    System(
        names.TWO_ADAPTERS_NO_CHAIN_BLOCKS,
        read_blocks,
        "rag",
        "cov-direct",
        schema=DIRECT,
        settings=COMBINED,
        equip=search_all_blocks,
    ),
    System(names.EXPANSION, expand_by_guesses, "rag", settings=LIKELIER),
    System(
        names.EXPANSION_COMBINED,
        expand_by_guesses,
        "rag",
        "cov-direct",
        schema=DIRECT,
        settings=COMBINED,
    ),
    System(names.EXPANSION_BY_ANSWER, expand_by_answer, "rag", settings=LIKELIER),
    System(names.SWAPPED_REFERENCES, swap_references, "cov", colour="#555555"),
    System(names.SWAPPED_ANSWERS, swap_answers, "cov", colour="#d9b38c"),
    System(names.COV_RAG_FREE, verify_only, "cov", settings={"verdicts": "free"}),
    System(
        names.NO_CHAIN_FREE,
        verify_only,
        "cov-direct",
        schema=DIRECT,
        settings={"verdicts": "free"},
    ),
)
SYSTEMS = {system.name: system for system in ENTRIES}


def all_systems() -> dict[str, System]:
    """Return every system by its name: those listed here, then those of plug-ins."""
    return {**SYSTEMS, **plugins("system")}


def find_system(name: str) -> System:
    """Return the entry of that name."""
    systems = all_systems()
    if name not in systems:
        nearest = difflib.get_close_matches(name, systems, n=1, cutoff=0)[0]
        rules = "names are in covrag_lite/systems; if one has a comma, separate all by semicolons"
        raise ValueError(f"system {name!r} is not known; did you mean {nearest!r}? ({rules})")
    return systems[name]


def palette() -> dict[str, str]:
    """Return the colour of every system that may be a row of a table, in the order of rows."""
    return {name: system.colour for name, system in all_systems().items() if system.colour}


def adapter_of(name: str) -> str:
    """Return the adapter that answers; "" also for a name that is no system, such as a search."""
    system = all_systems().get(name)
    return system.adapter if system else ""
