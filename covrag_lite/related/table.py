"""The comparison of CoV-RAG with related systems: accuracy, citation quality and cost in one table.

Citation qualities and costs are recorded next to the predictions, so the table can be rebuilt
without a model.
"""

import gzip
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.records import CITATION, Prediction
from covrag_lite.related import a2r, heads
from covrag_lite.runs.manifest import save_manifest
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Recorded, load_or_outcomes
from covrag_lite.tables import Table
from covrag_lite.tables import accuracy as tables

QUALITY = {  # column of the frame -> its name in tables
    "support": "supported",
    "citation_recall": "citation recall",
    "citation_precision": "citation precision",
    "claim_recall": "claim recall",  # in recorded runs only
}
# All costs of a question; only recorded runs have seconds.
COSTS = ("steps", "searches", "passages", "seconds", "tokens read", "tokens written")


def rate(predictions: Sequence[Prediction], entailment: Mapping, evaluator: Mapping) -> pd.DataFrame:
    """Return each answer's length and citation quality; for CoV-RAG also CRAG's evaluator score."""
    x = [p.question.question for p in predictions]
    y = [p.answer for p in predictions]
    qualities = a2r.assess(x, [p.final.passages for p in predictions], y, partial(heads.score, entailment))
    first = [p.rounds[0].passages if p.system == "CoV-RAG" else () for p in predictions]
    return pd.DataFrame(
        {
            "system": [p.system for p in predictions],
            "id": [p.question.id for p in predictions],
            "words": [len(CITATION.sub(" ", answer).split()) for answer in y],
            "citations": [len(CITATION.findall(answer)) for answer in y],
            **{name.replace(" ", "_"): [one[name] for one in qualities] for name in a2r.ASPECTS},
            "evaluator": [max(scores, default=None) for scores in heads.score(evaluator, x, first)],
        }
    )


def long_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return accuracies by set, then each quality over all questions, as rows of one long table."""
    accuracy = tables.accuracy_table(frame, "related")
    rows = []
    for system in tables.in_order(frame.system.unique()):
        own = frame[frame.system == system]
        for column, metric in QUALITY.items():
            known = own[column].dropna().astype(float) if column in own else ()
            if len(known):
                shares = [100 * value for value in metrics.mean_bootstrap(known.tolist())]
                rows.append(("related", "average", system, own.backbone.iloc[0], metric, len(known), *shares, None))
    return pd.concat([accuracy, pd.DataFrame(rows, columns=tables.COLUMNS)], ignore_index=True)


def summary(long: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per system: accuracy, citations with intervals, length, cost per question."""
    shown = long[(long.dataset == "average") & long.metric.isin(["normalised", *QUALITY.values()])]
    made = tables.wide(shown, None).rename(columns={"normalised": "accuracy"})
    by_system = frame.groupby("system")
    made["cites"] = by_system.citations.agg(lambda own: f"{100 * (own > 0).mean():.0f} %")
    made["words"] = by_system.words.agg(lambda own: f"{own.mean():.1f}")
    for name in (name for name in COSTS if f"cost: {name}" in frame):
        form = "{:.0f}" if "tokens" in name else "{:.3g}"
        costs = by_system[f"cost: {name}"].first()
        made[name] = [form.format(cost) if pd.notna(cost) else "–" for cost in costs.reindex(made.index)]
    return made.reset_index()


def evaluators(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare CRAG's evaluator with our verifier's expected reference score on the same passages.

    Both predict whether an answer was found.
    """
    own = frame[frame.system == "CoV-RAG"]
    truth = own.gold_first.where(own.gold_first.notna(), own.found_first)
    rows = []
    for name, column in (("CRAG's evaluator", "evaluator"), ("our judge's reference score", "expected_reference")):
        known = own[column].notna() & truth.notna()
        if known.any():
            found, values = truth[known].astype(bool), own[column][known].astype(float)
            right = 100 * ((values >= 0.5) == found).mean()
            rows.append((name, int(known.sum()), 100 * found.mean(), right, *metrics.auroc(values, found)))
    return pd.DataFrame(rows, columns=["score", "n", "found (%)", "right (%)", "AUROC", "low", "high"]).round(2)


def build(frame: pd.DataFrame, run: Recorded) -> Table:
    """Build the table: all systems, and each compared with CoV-RAG and with RAG trained."""
    long, found, there = long_table(frame), evaluators(frame), tables.in_order(frame.system.unique())
    pairs = [(name, "CoV-RAG") for name in there if name != "CoV-RAG"]
    pairs += [("RAG trained", name) for name in there if name not in ("RAG trained", "CoV-RAG")]
    comparison = tables.compare(frame, pairs)
    parts = {
        "Accuracy and citations in %, ours [95 % interval], and costs a question": summary(long, frame),
        "Accuracy in %, normalised, by set": tables.wide(long).reset_index(),
        "Each system against CoV-RAG, and against RAG trained, on the same questions": comparison,
        "Was an answer found? AUROC of two that judge the passages": found,
    }
    title = tables.title("related", run.config, long).replace(": ", ":\n")  # two lines
    plot = partial(tables.plot_accuracy, long, title)
    facts = tables.facts_of_accuracy(frame, long, comparison)
    facts |= tables.tell_rows(long[long.metric.isin(QUALITY.values())], "{system} {metric}", {"": "{value:.1f}"})
    for system, row in frame.groupby("system", sort=False).first().iterrows():
        facts[f"{system} searches"] = f"{row['cost: searches']:.3g}"
        facts[f"{system} tokens"] = f"{row['cost: tokens read'] + row['cost: tokens written']:.0f}"
    facts |= tables.tell_rows(found, "{score} AUROC", {"": "{AUROC:.2f} [{low:.2f}, {high:.2f}]"})
    return Table("related", long, parts, run.manifest["notes"], facts, {"png": plot})


def record(run: Recorded, predictions: Sequence[Prediction], costs: pd.DataFrame) -> None:
    """Save what the table needs besides the predictions: qualities, costs, notes and heads."""
    used = {name: heads.find_head(run.config, name) for name in heads.PAIRS}
    text = rate(predictions, used["entailment"], used["evaluator"]).to_csv(index=False, lineterminator="\n")
    run.file("qualities.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    costs.to_csv(run.file("costs.csv"), index=False, lineterminator="\n")
    own, encoder = used["entailment"]["validation"][0], Path(used["entailment"]["encoder"]).name
    right = f"{own['balanced (%)']:.1f} % of {own['n']} validation pairs (balanced accuracy)"
    run.manifest["notes"] = [
        *tables.notes(to_frame(predictions)),
        "Citations are the reference marks in an answer. Entailment is scored by our own proxy, a "
        f"classifier on the encoder {encoder}; it is right for {right}, AUROC {own['AUROC']:.2f}.",
    ]
    run.manifest["adapters"] |= {name: head["sha256"] for name, head in used.items()}
    save_manifest(run.file("manifest.json"), run.manifest)


def load(run: Recorded) -> pd.DataFrame:
    """Load the frame: recorded qualities and costs; accuracies are rescored if the data exists."""
    recorded = pd.read_csv(run.file("qualities.csv.gz"), dtype={"id": str})
    frame = to_frame(load_or_outcomes(run)).merge(recorded, on=["system", "id"], validate="one_to_one")
    costs = pd.read_csv(run.file("costs.csv"), index_col="system")
    return frame.join(costs.add_prefix("cost: "), on="system")
