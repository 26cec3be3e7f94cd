"""CoV-RAG next to related systems: accuracy, citation quality and cost in one table.

The table is built from the frame of outcomes joined with citation qualities and costs. Both are
recorded, so that the table can be built again without a model.
"""

import gzip
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.labels import SMALL_SAMPLE, with_labels
from covrag_lite.records import CITATION, Prediction
from covrag_lite.related import a2r, heads
from covrag_lite.runs.manifest import save_manifest
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Recorded, load_or_outcomes
from covrag_lite.tables import Table
from covrag_lite.tables import accuracy as tables

RECORDED = "real/former/qwen2.5-coder-1.5b/seed-1"  # the recorded run on real questions
QUALITY = {  # how tables call the citation qualities
    "support": "supported",
    "citation_recall": "citation recall",
    "citation_precision": "citation precision",
    "claim_recall": "claim recall",  # only in the recorded run
}
# Recorded runs also have seconds.
COSTS = ("steps", "searches", "passages", "seconds", "tokens read", "tokens written")
RECORDED_NOTES = ("Citations", "Seconds")  # how notes begin that only the manifest has


def rate(
    predictions: Sequence[Prediction],
    entailment: Mapping,
    evaluator: Mapping,
) -> pd.DataFrame:
    """Length and citation quality of each prediction; for CoV-RAG also the evaluator's score."""
    x = [p.question.question for p in predictions]
    y = [p.answer for p in predictions]
    references = [p.final.passages for p in predictions]
    qualities = a2r.assess(x, references, y, partial(heads.score, entailment))
    first = [p.rounds[0].passages if p.system == "CoV-RAG" else () for p in predictions]
    aspects = {name: [quality[name] for quality in qualities] for name in a2r.ASPECTS}
    return pd.DataFrame(
        {
            "system": [p.system for p in predictions],
            "id": [p.question.id for p in predictions],
            "words": [len(CITATION.sub(" ", answer).split()) for answer in y],
            "citations": [len(CITATION.findall(answer)) for answer in y],
            **{name.replace(" ", "_"): values for name, values in aspects.items()},
            "evaluator": [max(scores, default=None) for scores in heads.score(evaluator, x, first)],
        }
    )


def long_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Accuracies by set, then each citation quality over all questions, in one long table."""
    accuracy = tables.accuracy_table(frame, "related")
    rows = []
    for system in tables.in_order(frame.system.unique()):
        part = frame[frame.system == system]
        about = ("related", "average", system, part.backbone.iloc[0])
        for column, metric in QUALITY.items():
            values = part[column].dropna().astype(float) if column in part else ()
            if len(values):
                shares = [100 * value for value in metrics.mean_bootstrap(values.tolist())]
                rows.append((*about, metric, len(values), *shares, None))
    quality = pd.DataFrame(rows, columns=tables.COLUMNS)
    return pd.concat([accuracy, quality], ignore_index=True)


def quality_table(long: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """One row per system: accuracy and citation qualities, and how many answers cite a passage."""
    metric = long.metric.replace({"normalised": "accuracy"})
    rows = long[(long.dataset == "average") & metric.isin(["accuracy", *QUALITY.values()])]
    rows = rows.assign(metric=metric)
    cells = rows.assign(cell=[format_cell(row) for row in rows.itertuples()])
    table = cells.set_index(["system", "metric"]).cell.unstack(sort=False).fillna("–")
    cites = frame.groupby("system").citations.agg(lambda counts: (counts > 0).mean())
    table["answers that cite"] = [f"{100 * share:.0f}" for share in cites.reindex(table.index)]
    return table.rename_axis(columns=None).reset_index()


def format_cell(row: tuple) -> str:
    """One value of the long table: with its interval, or as a count or plain for a small sample."""
    if row.n >= SMALL_SAMPLE:
        return f"{row.value:.1f} [{row.low:.0f}–{row.high:.0f}]"
    is_count = row.metric == "accuracy"
    return f"{round(row.value * row.n / 100)} of {row.n}" if is_count else f"{row.value:.0f}"


def cost_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per system: words per answer, and what a question costs."""
    by_system = frame.groupby("system")
    table = pd.DataFrame(index=pd.Index(tables.in_order(frame.system.unique()), name="system"))
    table["words"] = [f"{mean:.1f}" for mean in by_system.words.mean().reindex(table.index)]
    for name in COSTS:
        if f"cost: {name}" in frame:
            form = "{:.0f}" if "tokens" in name else "{:.3g}"
            costs = by_system[f"cost: {name}"].first().reindex(table.index)
            table[name] = ["–" if pd.isna(cost) else form.format(cost) for cost in costs]
    return table.reset_index()


def evaluators(frame: pd.DataFrame) -> pd.DataFrame:
    """CRAG's evaluator and our verifier's reference score: did the passages hold an answer?"""
    cov = frame[frame.system == "CoV-RAG"]
    truth = cov.gold_first.where(cov.gold_first.notna(), cov.found_first)
    columns = {
        "CRAG's evaluator": "evaluator",
        "our judge's reference score": "expected_reference",
    }
    rows = []
    for name, column in columns.items():
        known = cov[column].notna() & truth.notna()
        if known.any():
            found, values = truth[known].astype(bool), cov[column][known].astype(float)
            correct = 100 * ((values >= 0.5) == found).mean()
            area = metrics.auroc(values, found)
            rows.append((name, int(known.sum()), 100 * found.mean(), correct, *area))
    columns = ["score", "n", "found (%)", "right (%)", "AUROC", "low", "high"]
    return pd.DataFrame(rows, columns=columns).round(2)


def evaluator_table(scores: pd.DataFrame) -> pd.DataFrame:
    """`evaluators` as people read it."""
    table = scores[["score", "n"]].copy()
    table["answer found %"] = scores["found (%)"].map("{:.1f}".format)
    table["correct %"] = scores["right (%)"].map("{:.1f}".format)
    areas = zip(scores.AUROC, scores.low, scores.high)
    table["AUROC [95 % interval]"] = [tables.with_interval("{:.2f}", *area) for area in areas]
    return table


def head_table(head: Mapping) -> pd.DataFrame:
    """How good a trained head is on validation pairs, next to simpler scores."""
    rows = []
    for row in head["validation"]:
        shares = [row[name] for name in ("majority (%)", "right (%)", "balanced (%)")]
        cells = ["–" if share is None else f"{share:.1f}" for share in shares]
        area = tables.with_interval("{:.2f}", row["AUROC"], row["low"], row["high"])
        rows.append((row["score"], row["n"], *cells, area))
    shares = ["majority %", "correct %", "correct %, classes weighted equally"]
    return pd.DataFrame(rows, columns=["score", "pairs", *shares, "AUROC [95 % interval]"])


def build(frame: pd.DataFrame, run: Recorded) -> Table:
    """All systems in one table, and each compared with CoV-RAG and with RAG (trained)."""
    long, scores = long_table(frame), evaluators(frame)
    systems = tables.in_order(frame.system.unique())
    pairs = [(name, "CoV-RAG") for name in systems if name != "CoV-RAG"]
    others = [name for name in systems if name not in ("RAG trained", "CoV-RAG")]
    pairs += [("RAG trained", name) for name in others]
    comparison = tables.compare(frame, pairs)
    by_set = tables.wide(long).rename_axis(columns=None).reset_index()
    parts = {
        "Accuracy and citations in % [95 % interval]": with_labels(quality_table(long, frame)),
        "Costs per question": with_labels(cost_table(frame)),
        "Accuracy in % by set, normalised [95 % interval]": with_labels(by_set),
        "Each system against CoV-RAG and RAG (trained)": with_labels(comparison),
        "Was an answer found? Two scores of the same passages": evaluator_table(scores),
    }
    title = tables.title("related", run.config, long).replace(": ", ":\n")  # too long for one line
    plot = partial(tables.plot_accuracy, long, title)
    facts = tables.facts_of_accuracy(frame, long, comparison)
    quality = long[long.metric.isin(QUALITY.values())]
    facts |= tables.tell_rows(quality, "{system} {metric}", {"": "{value:.1f}"})
    for system, row in frame.groupby("system", sort=False).first().iterrows():
        tokens = row["cost: tokens read"] + row["cost: tokens written"]
        facts[f"{system} searches"] = f"{row['cost: searches']:.3g}"
        facts[f"{system} tokens"] = f"{tokens:.0f}"
    forms = {"": "{AUROC:.2f} [{low:.2f}, {high:.2f}]"}
    facts |= tables.tell_rows(scores, "{score} AUROC", forms)
    recorded = [line for line in run.manifest["notes"] if line.startswith(RECORDED_NOTES)]
    notes = [*tables.notes(frame), *recorded]
    return Table("related", long, parts, notes, facts, {"png": plot})


def record(run: Recorded, predictions: Sequence[Prediction], costs: pd.DataFrame) -> None:
    """Write what the table needs besides predictions: qualities, costs, heads and a note."""
    used = {name: heads.find_head(run.config, name) for name in heads.PAIRS}
    qualities = rate(predictions, used["entailment"], used["evaluator"])
    text = qualities.to_csv(index=False, lineterminator="\n")
    run.file("qualities.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    costs.to_csv(run.file("costs.csv"), index=False, lineterminator="\n")
    validation = used["entailment"]["validation"][0]
    encoder = Path(used["entailment"]["encoder"]).name
    run.manifest["notes"] = [
        "Citations are the [n] marks that an answer writes. Entailment is judged by our own proxy "
        f"on the encoder {encoder}; it is right for {validation['balanced (%)']:.1f} % of "
        f"{validation['n']} validation pairs, with both classes weighted equally "
        f"(AUROC {validation['AUROC']:.2f})."
    ]
    run.manifest["adapters"] |= {name: head["sha256"] for name, head in used.items()}
    save_manifest(run.file("manifest.json"), run.manifest)


def load(run: Recorded) -> pd.DataFrame:
    """The frame: recorded qualities and costs; accuracies scored again if the data is here."""
    recorded = pd.read_csv(run.file("qualities.csv.gz"), dtype={"id": str})
    outcomes = to_frame(load_or_outcomes(run))
    frame = outcomes.merge(recorded, on=["system", "id"], validate="one_to_one")
    costs = pd.read_csv(run.file("costs.csv"), index_col="system")
    return frame.join(costs.add_prefix("cost: "), on="system")
