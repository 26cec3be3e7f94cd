"""Every system of the tables, one entry each: its function, its adapters, its colour and the paper's row.

A new system is one function over `method.Tools` and one entry here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from covrag_lite.controls import read_on, shuffled, swap_answers, swap_references, verify_only
from covrag_lite.method import Tools, closed_book, cov_rag, rag, start_revise
from covrag_lite.records import Prediction, Question


@dataclass(frozen=True)
class System:
    """One system, with everything that the rest of the project has to know of it."""

    name: str
    run: Callable[[Sequence[Question], Tools], list[Prediction]] | str  # "module:function" is imported when it runs
    adapter: str = ""  # the trained adapter that answers and verifies; "" is the base model
    rewriter: str = ""  # the adapter that rewrites the question before retrieval, and writes all that is no answer
    verifier: str = ""  # the adapter that verifies, where it is another than the one that answers
    settings: Mapping[str, object] = field(default_factory=dict)  # parameters that it fixes, whatever the run says
    colour: str = ""  # in every picture; "" is never drawn nor a row of a table
    paper: Mapping[str, str] = field(default_factory=dict)  # a table of the paper -> the row to compare with
    needs: tuple[str, ...] = ()  # adapters, "evaluator", "entailment": without one of these it does not run at all

    @property
    def adapters(self) -> set[str]:
        """Every adapter it runs with."""
        return {self.adapter, self.verifier, self.rewriter} - {""}


def two_adapters(rule: str, keep: str, colour: str = "", run: Callable = cov_rag, verifier: str = "cov") -> System:
    """CoV-RAG whose reader has the adapter of plain retrieval, and whose verifier another."""
    chain = "" if verifier == "cov" else " w/o chain"
    name = f"CoV-RAG{chain}, two adapters{rule}"
    return System(name, run, "rag", verifier=verifier, settings={"keep": keep}, colour=colour)


EXPAND, EVERY = "covrag_lite.related.expand", "RAG trained, every query expanded by"
LIKELIER, WEIGHED = {"keep": "likelier"}, {"keep": "weighed"}
COV_RAG = {"table2": "CoV-RAG Llama2-13b", "table3": "CoV-RAG", "table4": "End-Revise", "table5": "w/ Chain"}
# In the order of a table's rows. Colours: grey without retrieval, blues for plain retrieval, orange for rewriting
# first, greens for CoV-RAG, reds and violets for related systems.
ENTRIES = (
    System("closed-book", closed_book, colour="#9a9a9a", paper={"table2": "GPT3 text-davinci-003"}),
    System("RAG", rag, colour="#5b8fd0", paper={"table2": "ChatGPT gpt-3.5-turbo-0125", "table3": "WebGLM-10b"}),
    System("Start-Revise", start_revise, colour="#e0893a", paper={"table2": "RRR gpt-4-1106-preview"}),
    System("CoV-RAG untrained", cov_rag, colour="#c9b458"),
    System("RAG trained", rag, "rag", colour="#28559a", paper={"table2": "WebGLM Llama2-13b", "table3": "WebGLM-13b"}),
    System("CoV-RAG w/o chain", cov_rag, "cov-direct", colour="#b07aa1", paper={"table5": "w/o Chain"}),
    System("CoV-RAG-S", rag, "cov", colour="#8fca8f", paper={"table3": "CoV-RAG-S", "table4": "No-Revise"}),
    System("Start-Revise trained", start_revise, "cov", "rewrite", colour="#b5651d", paper={"table4": "Start-Revise"}),
    System("CoV-RAG thresholds", cov_rag, "cov", settings={"sigma": "thresholds"}, colour="#1b5e3b"),
    System("CoV-RAG shuffled", shuffled, "cov", colour="#c0504d"),
    System("CoV-RAG", cov_rag, "cov", colour="#2e8b57", paper=COV_RAG),
    System("CoV-RAG, likelier answer", cov_rag, "cov", settings=LIKELIER, colour="#c2b12f"),
    two_adapters("", "last", "#3fd0c4"),
    two_adapters(", likelier answer", "likelier", "#6fb1ea"),
    two_adapters(", weighed answer", "weighed", "#0f2747"),
    two_adapters(", another question's search", "weighed", run=shuffled),
    two_adapters(", the next passages", "weighed", run=read_on),
    two_adapters("", "last", verifier="cov-direct"),
    two_adapters(", likelier answer", "likelier", verifier="cov-direct"),
    two_adapters(", weighed answer", "weighed", "#8828e8", verifier="cov-direct"),
    two_adapters(", the next passages, likelier answer", "likelier", run=read_on, verifier="cov-direct"),
    System(f"{EVERY} guesses", f"{EXPAND}:by_guesses", "rag", settings=LIKELIER),
    System(f"{EVERY} guesses, weighed answer", f"{EXPAND}:by_guesses", "rag", verifier="cov-direct", settings=WEIGHED),
    System(f"{EVERY} its answer", f"{EXPAND}:by_answer", "rag", settings=LIKELIER),
    System("RRR", "covrag_lite.related.tools:recorded_only", "rag", colour="#f2b705"),
    System("CRAG", "covrag_lite.related.crag:crag", "rag", colour="#e8308c", needs=("evaluator",)),
    System("A²R", "covrag_lite.related.a2r:a2r", "rag", colour="#af86ed", needs=("entailment",)),
    System("CoQ", "covrag_lite.related.tools:recorded_only", "rag", colour="#e7a6b8"),
    System("FaVe", "covrag_lite.related.fave:fave", "rag", colour="#8c1c55", needs=("evaluator",)),
    System("verify, swapped references", swap_references, "cov", colour="#555555"),
    System("verify, swapped answers", swap_answers, "cov", colour="#d9b38c"),
    System("CoV-RAG free", verify_only, "cov", settings={"verdicts": "free"}),
    System("CoV-RAG w/o chain free", verify_only, "cov-direct", settings={"verdicts": "free"}),
)
SYSTEMS = {system.name: system for system in ENTRIES}


def find_system(name: str) -> System:
    """The entry of that name."""
    if name not in SYSTEMS:
        raise ValueError(f"system {name!r} is not known; use some of {', '.join(SYSTEMS)}")
    return SYSTEMS[name]


def palette() -> dict[str, str]:
    """The colour of every system that may be a row of a table, in the order of rows."""
    return {system.name: system.colour for system in SYSTEMS.values() if system.colour}


def adapter_of(name: str) -> str:
    """The adapter that a system answers with; "" also for what is no system, such as a search without a model."""
    return SYSTEMS[name].adapter if name in SYSTEMS else ""


def verifier_of(name: str) -> str:
    """The adapter that a system verifies with."""
    return SYSTEMS[name].verifier if name in SYSTEMS and SYSTEMS[name].verifier else adapter_of(name)
