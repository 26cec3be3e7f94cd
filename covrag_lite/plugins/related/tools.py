"""The tools of related systems: those of every system, and an author, a search and two scores."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial

from covrag_lite.config import Config
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.method import Tools
from covrag_lite.plugins.related import heads
from covrag_lite.plugins.related.heads import Entail, Score
from covrag_lite.plugins.related.names import ENTAILMENT, EVALUATOR
from covrag_lite.records import Search
from covrag_lite.systems import Deeper

WIDER = 3  # CRAG's second search returns this many times k passages from the same corpus


@dataclass(frozen=True, kw_only=True)
class RelatedTools(Tools):
    """The tools of a system, with those that only related systems use.

    A score works only if the system was registered with its head.
    """

    author: TaskModel  # writes plans, keywords and feedback
    wider: Search  # queries -> more passages than `search` returns
    score: Score
    entail: Entail
    # Incorrect if all relevance scores are below the first, Correct if one reaches the second.
    thresholds: Sequence[float]


def equip(
    tools: Tools, config: Config, deeper: Deeper, author: TaskModel, needed: Sequence[str]
) -> RelatedTools:
    """Add the tools of related systems; if a head is missing, the error gives the command."""
    evaluator = heads.find_head(config, EVALUATOR) if EVALUATOR in needed else {}
    entailment = heads.find_head(config, ENTAILMENT) if ENTAILMENT in needed else {}
    common = {field.name: getattr(tools, field.name) for field in fields(tools)}
    return RelatedTools(
        **common,
        author=author,
        wider=deeper(WIDER),
        score=partial(heads.score_relevance, evaluator),
        entail=partial(heads.score_entailment, entailment),
        thresholds=evaluator.get("thresholds", ()),
    )
