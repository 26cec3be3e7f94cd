"""CoV-RAG's neighbours over the same questions (notebooks/related.ipynb): who can run, and what each costs."""

import gzip
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite import evaluate, prompts
from covrag_lite.config import Config
from covrag_lite.engine.weights import hash_files
from covrag_lite.evaluate import Resources
from covrag_lite.records import Passage, Prediction, Question
from covrag_lite.related.aids import Entail, Score
from covrag_lite.related.metering import Meter
from covrag_lite.related.relevance import as_score, features_of, load_rate, read_about
from covrag_lite.related.tools import find_entailment, find_head, load_entail, load_wider
from covrag_lite.runs.journal import Journal
from covrag_lite.runs.manifest import peak_memory, save_manifest
from covrag_lite.systems import find_system

ANSWERS_EACH = 2  # what a question costs a system, on average over the seven, in answers by themselves
# What is told of each prediction beside its outcome.
QUALITIES = ("words", "citations", "support", "citation_recall", "citation_precision", "claim_recall", "evaluator")


def load_resources(config: Config, passages: Sequence[Passage], model: object = None) -> Resources:
    """Those of a run, with the wider search, and with a journal of their own, which knows how long each text took."""
    shared = evaluate.load_resources(config, passages, model)
    journal = Journal(config.journal().with_name("journal.related.jsonl"))
    return replace(shared, journal=journal, wider=load_wider(config, passages))


def choose(config: Config, resources: Resources) -> tuple[Config, list[str]]:
    """The configuration with those neighbours that can run, and a sentence for each that cannot: what trains it."""
    ready, missing = [], []
    for name in config.related.neighbours:
        try:
            evaluate.bind(find_system(name), config, resources)
            ready.append(name)
        except FileNotFoundError as error:
            missing.append(f"{name} was left out: {error}")
    if not ready:
        raise FileNotFoundError("; ".join(missing))
    return config.change(systems=tuple(ready)), missing


def run(config: Config, resources: Resources, questions: Sequence[Question]) -> tuple[list[Prediction], pd.DataFrame]:
    """Every configured system over the questions, and what each cost: a row a system, means a question."""
    made, costs = [], []
    for name in config.chain.systems:
        features_of.cache_clear()  # or the next system would be spared what this one has read
        meter, start = Meter(), time.perf_counter()
        made += evaluate.run_system(name, config, replace(resources, meter=meter), questions)
        print(f"{name}: {len(questions)} questions in {time.perf_counter() - start:.0f} s", flush=True)
        costs.append(meter.row(name, len(questions)))
    return made, pd.DataFrame(costs)


def estimate(config: Config, resources: Resources, questions: Sequence[Question]) -> str:
    """A sentence on the time that `run` will take, from timing one answer outside the journal."""
    model = resources.model
    x = [question.question for question in questions[:1]]
    asked = [prompts.build_answer(*one, config.model.layout) for one in zip(x, resources.search(x))]
    getattr(model, "quick_network", None)  # loading is not answering
    start = time.perf_counter()
    model.generate(asked, config.model.max_answer_tokens)
    seconds = time.perf_counter() - start
    n_systems = len(config.chain.systems)
    minutes = len(questions) * n_systems * ANSWERS_EACH * seconds / 60
    return (
        f"{len(questions)} questions through {n_systems} systems: at most {minutes:.0f} min "
        f"({seconds:.1f} s an answer here, less in full batches), {peak_memory():.1f} GB of memory so far"
    )


def load_judges(config: Config) -> tuple[Entail | None, Score | None, str]:
    """Who tells entailment and relevance for the table's columns, None where none is there; and the first in words."""
    entail, score, told = None, None, "nobody: there is no entailment model"
    try:
        entail, told = load_entail(config), describe_entailment(config)
        score = as_score(load_rate(find_head(config, "evaluator"), False))
    except FileNotFoundError as error:
        print(error)
    return entail, score, told


def describe_entailment(config: Config) -> str:
    """What stands behind the columns on citations."""
    about = read_about(find_entailment(config))
    if not about:
        return f"the model {Path(config.related.entailment).name}"
    own = about["validation"][0]
    return (
        f"a proxy of our own on the encoder {Path(about['encoder']).name}, which is right for "
        f"{own['balanced (%)']:.1f} % of {own['n']} validation pairs, entailed and other ones weighing alike "
        f"(AUROC {own['AUROC']:.2f})"
    )


def hash_heads(config: Config) -> dict[str, str]:
    """What was trained beside the adapters, by its hash, as far as it is there."""
    made = {}
    for kind, find in (("evaluator", partial(find_head, kind="evaluator")), ("entailment", find_entailment)):
        try:
            folder = find(config)
        except FileNotFoundError:
            continue
        made[kind] = hash_files(sorted(file for end in ("json", "safetensors") for file in folder.glob(f"*.{end}")))
    return made


def save_qualities(path: Path, frame: pd.DataFrame) -> None:
    """What an entailment model and an evaluator said of each prediction, as a gzipped CSV."""
    text = frame[["system", "id", *QUALITIES]].to_csv(index=False, lineterminator="\n")
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def record(
    folder: Path,
    predictions: Sequence[Prediction],
    frame: pd.DataFrame,
    costs: pd.DataFrame,
    config: Config,
    model: object,
    seconds: float,
    data: Mapping[str, Sequence],
    lines: Sequence[str],
) -> dict:
    """Write what the table is made from: predictions, their qualities, costs, and the manifest."""
    manifest = evaluate.record(folder, "related", {"": predictions}, config, model, seconds, data)
    save_qualities(folder / "related.qualities.csv.gz", frame)
    costs.to_csv(folder / "related.costs.csv", index=False, lineterminator="\n")
    manifest["notes"] = list(lines)
    manifest["adapters"] |= hash_heads(config)
    save_manifest(folder / "related.manifest.json", manifest)
    return manifest
