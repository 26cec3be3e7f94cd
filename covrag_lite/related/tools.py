"""What a related system gets beside `Tools`: scores, a wider search and further tasks; and the meter of its costs.

Every function takes and returns a whole batch. A test scripts them; `bind` binds them to a model and to what was
trained for them.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite import evaluate
from covrag_lite.config import ROOT, Config, resolve
from covrag_lite.engine import weights
from covrag_lite.evaluate import Resources
from covrag_lite.method import Tools
from covrag_lite.records import Passage, Prediction, Question, Search
from covrag_lite.related import a2r, fave
from covrag_lite.related.relevance import Entail, Score, features_of, load_entail, load_score, read_about
from covrag_lite.runs.journal import Journal
from covrag_lite.systems import System
from covrag_lite.task_model import TaskModel

SHIPPED = ROOT / "results" / "adapters"
HEADS = ("evaluator", "entailment")
SEARCHES = ("search", "wider")
SCORES = ("score", "entail")
TEXTS = ("answer", "verify", "rewrite", "recall")
TEXTS += ("name_terms", "plan", "is_relevant", "feedback", "refine")
COSTS = ("searches", "passages", "texts", "tokens read", "tokens written", "seconds")


@dataclass(frozen=True)
class RelatedTools:
    """The further functions; a system whose entry does not name one in `needs` may find None there."""

    score: Score | None = None
    thresholds: Sequence[float] = ()  # of scores: all below the first, Incorrect; one above the second, Correct
    wider: Search | None = None  # queries -> passages from deeper down
    entail: Entail | None = None
    name_terms: Callable[[Sequence[str]], list[str]] | None = None  # questions -> key terms to search for
    plan: Callable[..., list[list[list[str]]]] | None = None  # questions -> sessions of sub-questions
    is_relevant: Callable[..., list[bool]] | None = None  # questions, sub-questions -> does one help with the other?
    feedback: Callable[..., list[str]] | None = None  # questions, passages, answers, scores by name -> feedback
    refine: Callable[..., list[str]] | None = None  # questions, passages, answers, feedback -> better answers


def bind(system: System, config: Config, wider: Search, rewriter: TaskModel) -> RelatedTools:
    """A system's further tools; an error that names the command where something it needs is missing."""
    evaluator, entailment = (find_head(config, name) if name in system.needs else None for name in HEADS)
    return RelatedTools(
        score=evaluator and load_score(evaluator),
        thresholds=read_about(evaluator)["thresholds"] if evaluator else (),
        wider=wider,
        entail=entailment and load_entail(entailment),
        name_terms=partial(rewriter.write_alone, "terms"),
        plan=partial(fave.plan, rewriter),
        is_relevant=partial(fave.is_relevant, rewriter),
        feedback=partial(a2r.feedback, rewriter),
        refine=partial(a2r.refine, rewriter),
    )


def recorded_only(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Stands for a system that is a row of recorded tables and whose code, or training, has gone."""
    raise ValueError(f"the system {tools.name} is in recorded tables only; leave it out of the systems to run")


def find_head(config: Config, name: str) -> Path:
    """The folder of a head, beside the adapters or shipped, or of an entailment model; an error with what trains it.

    A head that was trained on other data is none.
    """
    named, adapters, encoder = config.related.entailment, config.model.adapters, config.retrieval.encoder
    if name == "entailment" and named != "auto":
        return weights.find_folder(named, ())
    beside = SHIPPED / config.model.model if adapters in ("auto", "none") else resolve(adapters)
    for place in (beside, SHIPPED / Path(encoder).name):
        if read_about(place / name).get("data") == Path(config.data.data).name:
            return place / name
    told = f"-p data {config.data.data} -p encoder {encoder} -p adapters_out {beside}"
    command = f"papermill notebooks/train_related.ipynb {told}"
    raise FileNotFoundError(f"no {name} was trained on {config.data.data!r}; train it with: {command}")


def describe_entailment(folder: Path) -> str:
    """What stands behind the columns on citations."""
    about = read_about(folder)
    if not about:
        return f"the model {folder.name}"
    own = about["validation"][0]
    right = f"{own['balanced (%)']:.1f} % of {own['n']} validation pairs, entailed and other ones weighing alike"
    proxy = f"a proxy of our own on the encoder {Path(about['encoder']).name}"
    return f"{proxy}, which is right for {right} (AUROC {own['AUROC']:.2f})"


def load_resources(config: Config, passages: Sequence[Passage], model: object = None) -> Resources:
    """Those of a run, with a journal of their own, which knows how long each text took."""
    for name in HEADS:  # without which the table cannot be made: missed before anything runs
        find_head(config, name)
    shared = evaluate.load_resources(config, passages, model)
    return replace(shared, journal=Journal(config.journal().with_name("journal.related.jsonl")))


class Meter:
    """What one system costs a batch of questions: searches, passages, tokens, seconds, calls that wait for each other.

    Tokens and seconds are those of every text that it asked for, also where the journal had it already, because another
    system, or an earlier run, asked first. Seconds are a text's share of its batch when it was written, so they are a
    machine's throughput in full batches, not the wait for one answer; `steps` says how often a question must wait.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def watch(self, tools: Tools) -> Tools:
        """The same tools, counted."""
        related = tools.related and replace(tools.related, **self._counted(tools.related))
        return replace(tools, related=related, **self._counted(tools))

    def _counted(self, tools: object) -> dict[str, Callable]:
        known = SEARCHES + SCORES + TEXTS
        return {name: partial(self._count, name, call) for name, call in vars(tools).items() if call and name in known}

    def _count(self, name: str, call: Callable, first: Sequence, *rest: object) -> list:
        """Call one function, counted by what it is for."""
        start = time.perf_counter()
        made = call(first, *rest)
        if name in SEARCHES + SCORES:
            self.counts["seconds"] += time.perf_counter() - start
        if name in SEARCHES:
            self.counts["searches"] += len(first)
        if name == "answer":
            self.counts["passages"] += sum(map(len, rest[0]))
        if name in TEXTS and len(first):
            self.counts["steps"] += 1
        return made

    def add(self, costs: Sequence[dict]) -> None:
        """Count texts by what the journal knows of each; what it does not know of one is not known of all."""
        self.counts["texts"] += len(costs)
        for known in costs:
            for name, key in (("seconds", "seconds"), ("tokens read", "read"), ("tokens written", "written")):
                value = known.get(key)
                self.counts[name] += math.nan if value is None else value

    def row(self, system: str, n: int) -> dict[str, object]:
        """The costs of a question on average."""
        told = {name: float(f"{self.counts[name] / n:.4g}") for name in COSTS}  # as they are recorded
        return {"system": system, "n": n, "steps": self.counts["steps"], **told}


def run(config: Config, resources: Resources, questions: Sequence[Question]) -> tuple[list[Prediction], pd.DataFrame]:
    """Every configured system over the questions, and what each cost: a row a system, means a question."""
    for name in config.chain.systems:  # over none first: what is missing is named before anything is written
        evaluate.run_system(name, config, resources, [])
    made, costs = [], []
    for name in config.chain.systems:
        features_of.cache_clear()  # or the next system would be spared what this one has read
        meter, start = Meter(), time.perf_counter()
        made += evaluate.run_system(name, config, replace(resources, meter=meter), questions)
        print(f"{name}: {len(questions)} questions in {time.perf_counter() - start:.0f} s", flush=True)
        costs.append(meter.row(name, len(questions)))
    return made, pd.DataFrame(costs)
