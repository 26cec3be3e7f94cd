"""The whole replication on one backbone, with one command that can be stopped and run again.

    python -m covrag_lite.replication meta-llama/Llama-2-7b-hf --dry-run
    python -m covrag_lite.replication qwen2.5-coder-1.5b -p data <folder, or hub>

It builds the training data, trains the adapters of three seeds, fits σ on validation questions,
tests the paper's claim on all test questions, and makes Tables 2, 4, 5 and 6. All output goes to
runs/<backbone>/. Finished stages are not repeated. Other parameters than at the start are refused.
The settings are in replication.toml; those in its [plan] can be set too, as in
`-p table2 "RAG trained,CoV-RAG"`. The backbone `smollm2-135m-world` uses the fictional world and
needs no data.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite import evaluate, forecast, recipe, synthesis
from covrag_lite.config import Config, resolve, typed
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.interface import load_engine
from covrag_lite.plan import Plan, hold_to, load_plans
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Parts, find_under, load_or_outcomes, save_run
from covrag_lite.sources import load_sources
from covrag_lite.systems import find_system
from covrag_lite.tables import claim, find_table, pictures, sigma, table4, table5, table6

METHODS = ("rag", "cov", "cov-direct", "rewrite")
TABLES = ("claim", "table2", "table4", "table5", "table6")
STAGES = ("data", *METHODS, "sigma", *TABLES)
FIRST_SEED = ("rewrite", "table4", "table6")  # stages that only the first seed runs


def make_data(plan: Plan) -> None:
    """Build D and D2′ as samples for every method, with seed models trained for this purpose."""
    config = plan.training().change(adapters_out=f"{plan.config.run.runs}/{plan.backbone}/seeds", training_seed=1)
    sources = load_sources(config)
    recipe.train_seeds(config, sources)
    every, chosen = recipe.make_d2(config, sources)
    composition = pictures.composition(chosen)
    print(f"{len(every)} examples, {len(chosen)} after balancing\n{composition.to_string()}")
    pictures.plot_composition(composition, plan.folder / "figure3.png")
    for method, samples in synthesis.make_samples(config, sources, chosen).items():
        recipe.save_samples(plan.folder / f"{method}.samples.jsonl.gz", samples)


def train(plan: Plan, method: str) -> None:
    """Train one adapter, and copy its manifest and losses to the results."""
    config = plan.training()
    samples = plan.folder / f"{method}.samples.jsonl.gz"
    if not samples.exists():
        raise FileNotFoundError(f"{samples} does not exist; run the stage data first")
    losses = recipe.train_adapter(config, method, recipe.load_samples(samples))
    losses.to_csv(plan.results / f"train.{method}.losses.csv", index=False, float_format="%.4g")
    told = resolve(config.training.adapters_out) / method / "manifest.json"
    (plan.results / f"train.{method}.json").write_bytes(told.read_bytes())


def fit_sigma(plan: Plan) -> None:
    """Fit σ on validation questions, and print the rules that it is compared with."""
    changes = {"split": "validation", "systems": ("CoV-RAG",), "n_questions": plan.settings["validation"]}
    config = plan.testing("train", **changes)
    print(sigma.fit(config, answer(plan, config, "sigma")[""]).to_string())


def run_table(plan: Plan, table: str) -> None:
    """Run a table's systems; for Table 5, the first seed also runs our controls."""
    own = {"table4": table4.POSITIONS, "table5": table5.CHAINS, "table6": ("CoV-RAG",)}
    systems = (plan.settings | own)[table]
    config = plan.testing("claim" if table == "claim" else "test", systems=systems)
    if table == "table5" and plan.first:
        config = config.change(max_rounds=table5.MAX_ROUNDS, systems=(*systems, table5.CONTROL, *table5.FREE))
    answer(plan, config, table)


def answer(plan: Plan, config: Config, table: str) -> Parts:
    """Run a table's systems and record the results; free verdicts get only some questions.

    Table 6 has one part per retriever, in which all questions are also searched without a model.
    """
    start, several = time.perf_counter(), table == "table6"
    passages, every = load_passages(config), load_questions(config.change(n_questions=0) if several else config)
    questions = table6.choose_questions(config) if several else every
    resources = evaluate.load_resources(config, passages)
    for adapter in sorted(set().union(*(find_system(system).adapters for system in config.chain.systems))):
        resources.model.with_adapter(adapter)  # a missing one fails now, not after other systems
    parts = {}
    for name in config.retrieval.retrievers if several else ("",):
        search = load_retriever(replace(config.retrieval, retriever=name), passages) if several else resources.search
        parts[name] = []
        for system in config.chain.systems:
            asked = questions[:: config.chain.free_every] if system in table5.FREE else questions
            parts[name] += evaluate.run_system(system, config, replace(resources, search=search), asked)
        if several:
            parts[name] += table6.search_twice(every, search)
    data = {"questions": questions, **({"every": every} if several else {}), "passages": passages}
    run = save_run(plan.results, table, parts, config, resources.model, time.perf_counter() - start, data)
    print(find_table(table).build(parts.get("", parts), run).save(plan.results))
    return parts


def walk(plans: Sequence[Plan], stages: Sequence[str]) -> list[tuple[Plan, str, Path, Callable[[Plan], None]]]:
    """List these stages for every seed that runs them: plan, name, final file and function."""
    made = []
    for plan in plans:
        own = {"data": (plan.folder / f"{METHODS[-1]}.samples.jsonl.gz", make_data)}
        own |= {method: (plan.results / f"train.{method}.json", partial(train, method=method)) for method in METHODS}
        own["sigma"] = (plan.results / "adapters" / "cov" / "sigma.json", fit_sigma)
        own |= {table: (plan.results / f"{table}.md", partial(run_table, table=table)) for table in TABLES}
        mine = [name for name in own if name in stages and (plan.first or name not in FIRST_SEED)]
        made += [(plan, name, *own[name]) for name in mine]
    return made


def replicate(plans: Sequence[Plan], stages: Sequence[str]) -> pd.DataFrame:
    """Run every stage that is not finished; return one row per stage."""
    rows = []
    hold_to(plans[0])
    for plan, name, done, run in walk(plans, stages):
        start, there = time.perf_counter(), done.exists()
        print(f"seed {plan.seed}, {name}: {'already done' if there else 'starting'}", flush=True)
        if not there:
            plan.results.mkdir(parents=True, exist_ok=True)
            run(plan)
        rows.append((plan.seed, name, round(time.perf_counter() - start)))
    folder = plans[0].folder
    claims = {run.folder.name.removeprefix("seed-"): run for run in find_under(folder) if run.table == "claim"}
    if claims:  # pooled over all seeds so far
        frames = {seed: to_frame(load_or_outcomes(run)) for seed, run in claims.items()}
        print(claim.build_seeds(frames).save(folder))
    return pd.DataFrame(rows, columns=["seed", "stage", "seconds"])


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    about_backbone = "a name in replication.toml, a hub id, a local folder or a .gguf file"
    parser.add_argument("backbone", help=about_backbone)
    about_p = "set a parameter of config.py or of [plan] in replication.toml"
    named = {"nargs": 2, "action": "append", "default": [], "metavar": ("NAME", "VALUE")}
    parser.add_argument("-p", **named, help=about_p)
    about_stages = "the stages to run, separated by commas: %(default)s"
    parser.add_argument("--stages", default=",".join(STAGES), help=about_stages)
    parser.add_argument("--seeds", help="the training seeds, separated by commas, as in 1,2,3")
    about_dry = "only print the forecast of hours, memory and downloads"
    parser.add_argument("--dry-run", action="store_true", help=about_dry)
    about_gb = "assume a card with this many GB, not the one found"
    parser.add_argument("--gpu-gb", type=float, default=0, help=about_gb)
    asked = parser.parse_args(words)
    stages = asked.stages.split(",")
    unknown = set(stages) - set(STAGES)
    if unknown:
        names = ", ".join(sorted(unknown))
        parser.error(f"stages {names} are not known; use some of {', '.join(STAGES)}")
    try:
        seeds = typed("seeds", asked.seeds, (1,)) if asked.seeds else ()
        plans = load_plans(asked.backbone, dict(asked.p), seeds)
        named = set(plans[0].settings["claim"])
        if "claim" in stages and not any(named.issuperset(pair) for pair in claim.COMPARISONS):
            cure = "name at least RAG trained and CoV-RAG"
            raise ValueError(f"-p claim has no two systems that can be compared; {cure}")
        plans[0].choose("train")  # missing data fails before anything is written
        print(plans[0].config)
        first = {}  # by the file that a stage makes: all seeds share their data
        for plan, name, done, _ in walk(plans, stages):
            first.setdefault(done, (plan.seed, name, done.exists()))
        forecast.foresee(plans[0], list(first.values()), asked.gpu_gb)
        if not asked.dry_run:
            # A gated model or a lost network fails now, not after hours of building data.
            load_engine(plans[0].config.model)
            print(replicate(plans, stages).to_string(index=False))
    except (ValueError, OSError, MemoryError) as error:
        sys.exit(f"{parser.prog}: {error}")


if __name__ == "__main__":
    main()
