"""Plug-in: related systems on the same questions and passages, and their table.

Each method is one module. The adapter `rag` writes the answers of all of them; the base model
writes everything else, except RRR's rewritten questions.
"""

from collections.abc import Sequence
from importlib import import_module

from covrag_lite.config import Config
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.loader import register
from covrag_lite.method import Tools
from covrag_lite.plugins.related import names
from covrag_lite.plugins.related.names import ENTAILMENT, EVALUATOR
from covrag_lite.records import Prediction, Question
from covrag_lite.systems import Deeper, Equip, RunSystem, System

READER = "rag"  # the adapter that answers
REWRITER = "rewrite"  # the adapter that rewrites questions for RRR


def run_later(method: str) -> RunSystem:
    """Return a method's function, whose module of the same name is imported when it runs."""

    def run(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
        module = import_module(f"{__name__}.{method}")
        return getattr(module, method)(questions, tools)

    return run


def equip_with(*heads: str) -> Equip:
    """Return a function that adds the tools of related systems, with these trained heads."""

    def equip(tools: Tools, config: Config, deeper: Deeper, author: TaskModel) -> Tools:
        module = import_module(f"{__name__}.tools")
        return module.equip(tools, config, deeper, author, heads)

    return equip


SYSTEMS = (
    System(names.RRR, run_later("rrr"), READER, rewriter=REWRITER, colour="#f2b705"),
    System(names.CRAG, run_later("crag"), READER, colour="#e8308c", equip=equip_with(EVALUATOR)),
    System(names.A2R, run_later("a2r"), READER, colour="#af86ed", equip=equip_with(ENTAILMENT)),
    System(names.COQ, run_later("coq"), READER, colour="#e7a6b8", equip=equip_with(EVALUATOR)),
    System(names.UOQ, run_later("uoq"), READER, colour="#c8eb92", equip=equip_with(EVALUATOR)),
    System(names.FAVE, run_later("fave"), READER, colour="#8c1c55", equip=equip_with(EVALUATOR)),
)
for system in SYSTEMS:
    register("system", system.name, system)
register("table", "related", "covrag_lite.plugins.related.table")
register("table", "related_readers", "covrag_lite.plugins.related.readers")
