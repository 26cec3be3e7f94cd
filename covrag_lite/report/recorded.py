"""The recorded runs under results/ and figures/: find them, load their predictions, hold a new result against them.

A recorded run is a `<table>.manifest.json` with the table's .csv and .md, its picture, and what these are made from:
`<table>.predictions.jsonl`, one such file a retriever for Table 6, the judges' verdicts for Table 3.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pandas as pd

from covrag_lite import config, evaluation
from covrag_lite.data import digest, load_passages, load_questions
from covrag_lite.records import Prediction
from covrag_lite.report import tables

# Columns that say whose value a row holds; a table has some of them.
KEY = (
    "backbone",
    "revision",
    "judge",
    "dataset",
    "questions",
    "criterion",
    "system",
    "retriever",
    "measure",
    "metric",
    "share",
    "knob",
    "setting",
)
# Parameters that change no number: how fast, where, which of the systems; adapters are told apart by their hash.
IMMATERIAL = {
    "batch_tokens",
    "requests",
    "device",
    "adapters",
    "systems",
    "positions",
    "chains",
    "free_every",
    "retrievers",
}


@dataclass(frozen=True)
class Recorded:
    """One recorded run of one table."""

    folder: Path
    table: str
    manifest: dict

    def file(self, end: str) -> Path:
        return self.folder / f"{self.table}.{end}"

    @property
    def has_predictions(self) -> bool:
        return self.file("predictions.jsonl").exists()

    @property
    def config(self) -> config.Config:
        return config.from_manifest(self.manifest["parameters"])


def find(root: Path = config.ROOT) -> list[Recorded]:
    """Every recorded run under results/ and figures/, but for figures/custom, which every other run overwrites."""
    files = [
        file
        for place in ("results", "figures")
        for file in sorted((root / place).glob("**/*.manifest.json"))
        if file.parent.name != "custom"
    ]
    return [
        Recorded(file.parent, file.name.removesuffix(".manifest.json"), json.loads(file.read_text())) for file in files
    ]


def load(run: Recorded) -> list[Prediction]:
    """The run's predictions, with the questions and passages of its configuration put back."""
    asked = run.config
    questions, passages = load_questions(asked), load_passages(asked)
    check_data(run, questions=questions, passages=passages)
    made = evaluation.load_predictions(run.file("predictions.jsonl"), questions, passages, asked.model.model)
    bare = {
        system
        for system, (_, adapter) in evaluation.SYSTEMS.items()
        if adapter not in run.manifest.get("adapters", {adapter})
    }
    return [
        replace(p, backbone=asked.model.model) if p.system in bare else p for p in made
    ]  # systems that ran without their adapter


def load_searches(run: Recorded) -> dict[str, list[Prediction]]:
    """Table 6's predictions by their retriever: those of CoV-RAG, and those that were searched without a model, over more questions."""
    asked = run.config
    every, passages = load_questions(replace(asked, data=replace(asked.data, n_questions=0))), load_passages(asked)
    check_data(
        run,
        questions=[q for q in load_questions(asked) if q.dataset in asked.retrieval.retrieval_datasets],
        every=every,
        passages=passages,
    )
    return {
        name: evaluation.load_predictions(run.file(f"{name}.predictions.jsonl"), every, passages, asked.model.model)
        for name in asked.retrieval.retrievers
    }


def check_data(run: Recorded, **data: Sequence) -> None:
    """An error where the data of the run's configuration are no longer those that it was made on."""
    for name, rows in data.items():
        if digest(rows) != run.manifest["data"][name]["sha256"]:
            raise ValueError(
                f"the {name} of this configuration are no longer those of the run: recorded {run.manifest['data'][name]['sha256']}, now {digest(rows)}"
            )


def listing(root: Path = config.ROOT) -> pd.DataFrame:
    """The recorded runs: what was run on what, and how long it took."""
    rows = [
        (
            str(run.folder.relative_to(root)),
            run.table,
            backbone(run),
            run.manifest["data"]["questions"]["n"],
            run.manifest["hardware"]["gpu"] or run.manifest["hardware"]["machine"],
            run.manifest["commit"][:7],
            run.manifest["wall_seconds"],
        )
        for run in find(root)
    ]
    return pd.DataFrame(rows, columns=["folder", "table", "backbone", "questions", "machine", "commit", "seconds"])


def backbone(run: Recorded) -> str:
    """The model's name, how its weights are kept where that is not 4 bits, and how its prompts are laid out where that is not the paper's way."""
    asked = run.config.model
    weights = {"nf4": "", "none": ", unquantised"}.get(asked.quantize, f", {asked.quantize}")
    return Path(asked.model).name + weights + ("" if asked.layout == "paper" else f", {asked.layout} layout")


def largest(*systems: str, root: Path = config.ROOT) -> dict[str, Recorded]:
    """Of each backbone the recorded run of these systems on the world's test questions that has the most of them."""
    best: dict[str, Recorded] = {}
    size = lambda run: run.manifest["data"]["questions"]["n"]
    for run in find(root):
        name, asked = backbone(run), run.config.data
        fits = (
            run.has_predictions
            and {*systems} <= {*run.manifest["parameters"]["systems"]}
            and (asked.data, asked.split) == ("world", "test")
        )
        if fits and (name not in best or size(run) > size(best[name])):
            best[name] = run
    return best


def backbones(root: Path = config.ROOT) -> pd.DataFrame:
    """Figure 4's numbers: WebGLM's recipe, CoV-RAG-S and CoV-RAG on every backbone with a recorded run of the three."""
    systems, rows = ("RAG trained", "CoV-RAG-S", "CoV-RAG"), []
    for name, run in largest(*systems, root=root).items():
        long = tables.accuracy_table(evaluation.to_frame(load(run)), "figure4").assign(
            backbone=name, paper=float("nan")
        )
        rows.append(long[(long.metric == "normalised") & (long.dataset == "average") & long.system.isin(systems)])
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()


def reproduction(long: pd.DataFrame, manifest: dict, root: Path = config.ROOT) -> pd.DataFrame | None:
    """A new long table beside the recorded one of the same configuration, cell by cell; where there is none, the nearest is named."""
    rivals, long = [], tidy(long)
    key = [
        name for name in KEY if name in long and name != "backbone"
    ]  # a table writes it with its adapter, Figure 4 without
    for run in find(root):
        if run.folder.is_relative_to(root / "results"):  # figures/ holds whatever ran last
            known = tidy(pd.read_csv(run.file("csv")))
            both = long.merge(known, on=key, suffixes=("", "_recorded")) if {*key} <= {*known} else long[:0]
            if len(both):
                rivals.append(
                    (
                        changed(manifest, run.manifest),
                        -len(both),
                        str(run.file("csv").relative_to(root)),
                        both,
                        run.manifest,
                    )
                )
    if not rivals:
        print("no recorded run has any of these cells")
        return None
    differs, _, name, both, recorded = min(rivals, key=lambda rival: (len(rival[0]), rival[1], rival[2]))
    if differs:
        print(f"no recorded run has this configuration; the nearest, {name}, differs in {'; '.join(differs)}")
        return None
    if "adapters" not in recorded:
        print(
            f"that run's manifest names its adapters by their folder, {recorded['parameters']['adapters']!r}, not by a hash: that they are today's is not certain"
        )
    digits = 2 if both.value_recorded.round(2).equals(both.value_recorded) else 3  # as it was recorded
    both["verdict"] = [verdict(row, 0.51 * 10**-digits) for row in both.itertuples()]
    print(
        f"beside {name}: "
        + ", ".join(f"{word} {(both.verdict == word).sum()}" for word in ("OK", "within noise", "DIFFERS"))
        + f" of {len(both)} cells"
    )
    return both[[*key, "n", "value", "n_recorded", "value_recorded", "low_recorded", "high_recorded", "verdict"]].round(
        digits
    )


def tidy(long: pd.DataFrame) -> pd.DataFrame:
    """A long table with one value a row; Table 6 has three, each with its interval, and rows of the paper alone."""
    shares = [name.removesuffix("_low") for name in long if name.endswith("_low")]
    parts = [
        long[long.n.notna()]
        .rename(columns={share: "value", f"{share}_low": "low", f"{share}_high": "high"})
        .assign(share=share)
        for share in shares
    ]
    return (
        pd.concat([part[[name for name in (*KEY, "n", "value", "low", "high") if name in part]] for part in parts])
        if parts
        else long
    )


def verdict(row, exact: float) -> str:
    """OK where the value is the recorded one; within noise where the interval of the difference, from both n, holds zero."""
    gap = row.value - row.value_recorded
    if row.n == row.n_recorded and (abs(gap) < exact or row.n == 0):
        return "OK"
    up, down = (
        math.hypot(row.high - row.value, row.value_recorded - row.low_recorded),
        math.hypot(row.value - row.low, row.high_recorded - row.value_recorded),
    )
    return "within noise" if gap - down <= 0 <= gap + up else "DIFFERS"


def changed(now: dict, recorded: dict) -> list[str]:
    """What differs between two runs' manifests of all that can change a number."""
    concerns = (config.World, config.Data, config.Model, config.Retrieval, config.Chain, config.Judging)
    defaults = json.loads(json.dumps(config.Config().flat()))
    a, b = (defaults | json.loads(json.dumps(one["parameters"])) for one in (now, recorded))
    differs = [
        f"{f.name} ({a[f.name]!r}, recorded {b[f.name]!r})"
        for concern in concerns
        for f in fields(concern)
        if f.name not in IMMATERIAL and a[f.name] != b[f.name]
    ]
    if (
        "adapters" in recorded and "adapters" in now
    ):  # by hash; of two tables' runs only the adapters that both used can be compared
        shared = sorted(now["adapters"].keys() & recorded["adapters"].keys())
        differs += [f"the adapter {name}" for name in shared if now["adapters"][name] != recorded["adapters"][name]]
        differs += ["having adapters"] if bool(now["adapters"]) != bool(recorded["adapters"]) else []
    differs += [
        f"the weights of the {name.partition('_')[0]}"
        for name in ("model_sha256", "encoder_sha256")
        if now.get(name) != recorded.get(name)
    ]
    return differs or [f"the {name}" for name in now["data"] if now["data"][name] != recorded["data"].get(name)]
