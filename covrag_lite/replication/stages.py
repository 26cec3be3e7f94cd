"""The stages of a replication: what each of them makes, and running those that are not finished.

They build the training data, train the adapters, fit σ on validation questions, test the paper's
claim on all test questions, make Tables 2, 4, 5 and 6, and count citations.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite.config import Config, resolve
from covrag_lite.data import load_passages, load_questions
from covrag_lite.files import write_bytes, write_text
from covrag_lite.records import Passage, Prediction
from covrag_lite.replication.plan import Plan, refuse_changes, save_plan
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.frame import to_frame
from covrag_lite.runs.recorded import (
    Parts,
    find_in,
    find_under,
    load,
    load_or_outcomes,
    save_run,
)
from covrag_lite.systems import evaluate, find_system
from covrag_lite.systems.names import COV_RAG
from covrag_lite.tables import (
    chain,
    citations,
    find_table,
    second_answers,
    sigma,
    table4,
    table6,
    training_data,
)
from covrag_lite.tables.comparisons.table import build_seeds
from covrag_lite.training import recipe
from covrag_lite.training.sample_files import load_samples, save_samples
from covrag_lite.training.sources import load_sources

METHODS = ("rag", "cov", "cov-direct", "rewrite")  # adapters to train, one stage each
TABLE_STAGES = ("claim", "table2", "table4", "table5", "table6")  # one recorded run each
STAGES = ("data", *METHODS, "sigma", *TABLE_STAGES, "citations")
FIRST_SEED = ("rewrite", "table4", "table6")  # stages that only the first seed runs


@dataclass(frozen=True)
class Step:
    """One stage of one seed."""

    plan: Plan
    stage: str
    result: Path  # the file that the stage writes last
    run: Callable[[Plan], object]

    @property
    def done(self) -> bool:
        """Is this stage finished?"""
        return self.result.exists()


def make_data(plan: Plan) -> None:
    """Build D and D2′ as samples for every method, with seed models trained for this purpose."""
    seeds_folder = f"{plan.config.run.runs}/{plan.backbone}/seeds"
    config = plan.training().change(adapters_out=seeds_folder, training_seed=1)
    sources = load_sources(config)
    recipe.train_seeds(config, sources)
    examples, chosen = recipe.synthesise_d2(config, sources)
    composition = training_data.count_examples(chosen)
    print(f"{len(examples)} examples, {len(chosen)} after balancing\n{composition.to_string()}")
    training_data.plot_examples(composition, plan.folder / "figure3.png")
    for method, samples in recipe.learnt_samples(config, sources, chosen).items():
        save_samples(samples_file(plan, method), samples)


def samples_file(plan: Plan, method: str) -> Path:
    """Return the path of the samples that a method learns from."""
    return plan.folder / f"{method}.samples.jsonl.gz"


def train(plan: Plan, method: str) -> None:
    """Train one adapter, and copy its manifest and losses to the results."""
    config = plan.training()
    samples = samples_file(plan, method)
    if not samples.exists():
        raise FileNotFoundError(f"{samples} does not exist; run the stage data first")
    losses = recipe.train_adapter(config, method, load_samples(samples))
    table = losses.to_csv(index=False, float_format="%.4g")
    write_text(plan.results / f"train.{method}.losses.csv", table)
    manifest = resolve(config.training.adapters_out) / method / "manifest.json"
    write_bytes(plan.results / f"train.{method}.json", manifest.read_bytes())


def fit_sigma(plan: Plan) -> None:
    """Fit σ on validation questions, and print the rules that it is compared with."""
    config = plan.testing(
        "train", split="validation", systems=(COV_RAG,), n_questions=plan.settings["validation"]
    )
    print(sigma.fit(config, answer(plan, config, "sigma")).to_string())


def run_table(plan: Plan, table: str) -> None:
    """Run a table's systems; for Table 5, the first seed also runs our controls."""
    fixed = {"table4": table4.POSITIONS, "table5": chain.CHAINS, "table6": (COV_RAG,)}
    systems = (plan.settings | fixed)[table]
    config = plan.testing("claim" if table == "claim" else "test", systems=systems)
    if table == "table5" and plan.first:
        with_controls = (*systems, second_answers.CONTROL, *chain.FREE)
        config = config.change(max_rounds=second_answers.MAX_ROUNDS, systems=with_controls)
    if table == "table6":
        answer_by_retriever(plan, config)
    else:
        answer(plan, config, table)


def answer(plan: Plan, config: Config, table: str) -> list[Prediction]:
    """Run a table's systems and record the results; free verdicts get only some questions."""
    start = time.perf_counter()
    passages = load_passages(config)
    questions = load_questions(config)
    resources = load_resources(config, passages)
    predictions = []
    for system in config.chain.systems:
        is_free = system in chain.FREE
        selected = questions[:: config.chain.free_every] if is_free else questions
        predictions += evaluate.run_system(system, config, resources, selected)
    data = {"questions": questions, "passages": passages}
    record(plan, config, table, {"": predictions}, resources, start, data)
    return predictions


def answer_by_retriever(plan: Plan, config: Config) -> None:
    """Run Table 6: with each retriever, all questions are also searched without a model."""
    start = time.perf_counter()
    passages = load_passages(config)
    every = load_questions(config.change(n_questions=0))
    questions = table6.choose_questions(config)
    resources = load_resources(config, passages)
    parts = {}
    for name in config.retrieval.retrievers:
        search = load_retriever(replace(config.retrieval, retriever=name), passages)
        parts[name] = []
        for system in config.chain.systems:
            with_search = replace(resources, search=search)
            parts[name] += evaluate.run_system(system, config, with_search, questions)
        parts[name] += table6.search_twice(every, search)
    data = {"questions": questions, "every": every, "passages": passages}
    record(plan, config, "table6", parts, resources, start, data)


def count_citations(plan: Plan) -> None:
    """Count the citations of Table 2's answers; no text is written."""
    runs = {run.table: run for run in find_in(plan.results)}
    if "table2" not in runs:
        raise FileNotFoundError(f"{plan.results} has no Table 2; run the stage table2 first")
    run = citations.record(runs["table2"], load(runs["table2"]))
    print(citations.build(citations.load(run), run).save(plan.results))


def load_resources(config: Config, passages: Sequence[Passage]) -> evaluate.Resources:
    """Load what systems share; a missing adapter fails now, not after other systems have run."""
    resources = evaluate.load_resources(config, passages)
    adapters = set()
    for system in config.chain.systems:
        adapters.update(find_system(system).adapters)
    for adapter in sorted(adapters):
        resources.model.with_adapter(adapter)
    return resources


def record(
    plan: Plan,
    config: Config,
    table: str,
    parts: Parts,
    resources: evaluate.Resources,
    start: float,
    data: Mapping[str, Sequence],
) -> None:
    """Record predictions, and save and print the table that is built from them."""
    seconds = time.perf_counter() - start
    run = save_run(plan.results, table, parts, config, resources.model, seconds, data)
    basis = parts[""] if "" in parts else parts
    print(find_table(table).build(basis, run).save(plan.results))


def list_steps(plans: Sequence[Plan], stages: Sequence[str]) -> list[Step]:
    """List these stages for every seed that runs them."""
    steps = []
    for plan in plans:
        for step in list_all_steps(plan):
            if step.stage in stages and (plan.first or step.stage not in FIRST_SEED):
                steps.append(step)
    return steps


def list_all_steps(plan: Plan) -> list[Step]:
    """List all stages of one seed, in their order."""
    # The samples of the last method are written last.
    steps = [Step(plan, "data", samples_file(plan, METHODS[-1]), make_data)]
    for method in METHODS:
        result = plan.results / f"train.{method}.json"
        steps.append(Step(plan, method, result, partial(train, method=method)))
    thresholds = plan.results / "adapters" / "cov" / "sigma.json"
    steps.append(Step(plan, "sigma", thresholds, fit_sigma))
    for table in TABLE_STAGES:
        result = plan.results / f"{table}.md"
        steps.append(Step(plan, table, result, partial(run_table, table=table)))
    steps.append(Step(plan, "citations", plan.results / "citations.md", count_citations))
    return steps


def replicate(plans: Sequence[Plan], stages: Sequence[str]) -> pd.DataFrame:
    """Run every stage that is not finished; return one row per stage."""
    rows = []
    save_plan(plans[0])
    refuse_changes(plans[0])
    for step in list_steps(plans, stages):
        start = time.perf_counter()
        state = "already done" if step.done else "starting"
        print(f"seed {step.plan.seed}, {step.stage}: {state}", flush=True)
        if not step.done:
            step.plan.results.mkdir(parents=True, exist_ok=True)
            step.run(step.plan)
        rows.append((step.plan.seed, step.stage, round(time.perf_counter() - start)))
    pool_seeds(plans[0].folder)
    return pd.DataFrame(rows, columns=["seed", "stage", "seconds"])


def pool_seeds(folder: Path) -> None:
    """Build and print the table of the claim over all seeds so far."""
    frames = {}
    for run in find_under(folder):
        if run.table == "claim":
            seed = run.folder.name.removeprefix("seed-")
            frames[seed] = to_frame(load_or_outcomes(run))
    if frames:
        print(build_seeds(frames).save(folder))
