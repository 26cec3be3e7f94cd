"""CoV-RAG next to related systems: accuracy, citation quality and cost in one table.

The table is built from the frame of outcomes joined with qualities and costs. Both are recorded, so
that the table can be built again without a model.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.files import write_gzip, write_json, write_text
from covrag_lite.plugins.related.answer_quality import (
    CITATION_PRECISION,
    CITATION_RECALL,
    CLAIM_RECALL,
    SUPPORT,
)
from covrag_lite.plugins.related.head_tables import compare_evaluators, evaluator_table
from covrag_lite.plugins.related.heads import find_head
from covrag_lite.plugins.related.names import ENTAILMENT, EVALUATOR, HEADS
from covrag_lite.plugins.related.qualities import as_column, measure_qualities
from covrag_lite.records import Prediction
from covrag_lite.runs.frame import to_frame
from covrag_lite.runs.recorded import Recorded, load_or_outcomes
from covrag_lite.systems.names import COV_RAG, RAG_TRAINED
from covrag_lite.tables import accuracy as tables
from covrag_lite.tables.accuracy_picture import build_title, plot_accuracy
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.labels import SMALL_SAMPLE, format_p, with_labels
from covrag_lite.tables.paired import compare_pairs
from covrag_lite.tables.table import Table

RECORDED = "real/former/qwen2.5-coder-1.5b/seed-1"  # the recorded run on real questions
QUALITIES = {  # how tables call the qualities
    SUPPORT: "supported",
    CITATION_RECALL: CITATION_RECALL,
    CITATION_PRECISION: CITATION_PRECISION,
    CLAIM_RECALL: CLAIM_RECALL,
}
# Earlier runs also recorded seconds.
COSTS = ("steps", "searches", "passages", "seconds", "tokens read", "tokens written")
RECORDED_NOTES = ("Citations", "Seconds")  # how notes begin that only the manifest has


def record(run: Recorded, predictions: Sequence[Prediction], costs: pd.DataFrame) -> None:
    """Write what the table needs besides predictions: qualities, costs, heads and a note."""
    used = {name: find_head(run.config, name) for name in HEADS}
    entailment = used[ENTAILMENT]
    qualities = measure_qualities(predictions, entailment, used[EVALUATOR])
    text = qualities.to_csv(index=False, lineterminator="\n")
    write_gzip(run.file("qualities.csv.gz"), text)
    write_text(run.file("costs.csv"), costs.to_csv(index=False, lineterminator="\n"))
    validation = entailment["validation"][0]
    run.manifest["notes"] = [
        "Citations are the [n] marks that an answer writes. Entailment is judged by our own proxy "
        f"on the encoder {Path(entailment['encoder']).name}; it is right for "
        f"{validation['balanced (%)']:.1f} % of {validation['n']} validation pairs, with both "
        f"classes weighted equally (AUROC {validation['AUROC']:.2f})."
    ]
    run.manifest["adapters"] |= {name: head["sha256"] for name, head in used.items()}
    write_json(run.file("manifest.json"), run.manifest)


def load(run: Recorded) -> pd.DataFrame:
    """The frame: recorded qualities and costs; accuracies scored again if the data is here."""
    qualities = pd.read_csv(run.file("qualities.csv.gz"), dtype={"id": str})
    outcomes = to_frame(load_or_outcomes(run))
    frame = outcomes.merge(qualities, on=["system", "id"], validate="one_to_one")
    costs = pd.read_csv(run.file("costs.csv"), index_col="system")
    return frame.join(costs.add_prefix("cost: "), on="system")


def build(frame: pd.DataFrame, run: Recorded) -> Table:
    """All systems in one table, and each compared with CoV-RAG and with RAG (trained)."""
    long = long_table(frame)
    scores = compare_evaluators(frame)
    comparison = compare_pairs(frame, pairs_of(tables.in_order(frame.system.unique())))
    by_set = tables.wide(long).rename_axis(columns=None).reset_index()
    parts = {
        "Accuracy and citations in % [95 % interval]": with_labels(quality_table(long, frame)),
        "Costs per question": with_labels(cost_table(frame)),
        "Accuracy in % by set, normalised [95 % interval]": with_labels(by_set),
        "Each system against CoV-RAG and RAG (trained)": with_labels(comparison),
    }
    if not scores.empty:
        parts["Was an answer found? Two scores of the same passages"] = evaluator_table(scores)
    title = build_title("related", run.config, long).replace(": ", ":\n")  # too long for one line
    plot = partial(plot_accuracy, long, title)
    facts = tables.facts_of_accuracy(frame, long, comparison)
    facts |= facts_of_related(frame, long, scores)
    facts |= facts_of_corrected(comparison)
    recorded_notes = [note for note in run.manifest["notes"] if note.startswith(RECORDED_NOTES)]
    notes = [*tables.notes(frame), *recorded_notes]
    return Table("related", long, parts, notes, facts, {"png": plot})


def pairs_of(systems: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs to compare: each system with CoV-RAG, and RAG (trained) with each."""
    pairs = [(name, COV_RAG) for name in systems if name != COV_RAG]
    others = [name for name in systems if name not in (RAG_TRAINED, COV_RAG)]
    return pairs + [(RAG_TRAINED, name) for name in others]


def facts_of_corrected(comparison: pd.DataFrame) -> dict[str, str]:
    """Facts: p of each system against RAG (trained), by Holm's method for all of these."""
    is_counted = comparison.metric == "normalised"
    is_with_reader = comparison.comparison.str.startswith(f"{RAG_TRAINED} → ")
    rows = comparison[is_counted & is_with_reader]
    p_values = [metrics.mcnemar_p(row.gained, row.lost) for row in rows.itertuples()]
    corrected = metrics.adjust_p(p_values)
    return {
        f"{name} p corrected": format_p(p)
        for name, p in zip(rows.comparison, corrected, strict=True)
    }


def long_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Accuracies by set, then each quality over all questions, in one long table."""
    accuracy = tables.accuracy_table(frame, "related")
    rows = []
    for system in tables.in_order(frame.system.unique()):
        part = frame[frame.system == system]
        place = ("related", "average", system, part.backbone.iloc[0])
        for quality, metric in QUALITIES.items():
            column = as_column(quality)
            values = part[column].dropna().astype(float) if column in part else ()
            if len(values):
                shares = [100 * value for value in metrics.mean_bootstrap(values.tolist())]
                rows.append((*place, metric, len(values), *shares, None))
    qualities = pd.DataFrame(rows, columns=tables.COLUMNS)
    return pd.concat([accuracy, qualities], ignore_index=True)


def quality_table(long: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """One row per system: accuracy and qualities, and how many answers cite a passage."""
    metric = long.metric.replace({"normalised": "accuracy"})
    is_shown = metric.isin(["accuracy", *QUALITIES.values()])
    rows = long.assign(metric=metric)[(long.dataset == "average") & is_shown]
    cells = rows.assign(cell=[format_cell(row) for row in rows.itertuples()])
    table = cells.set_index(["system", "metric"]).cell.unstack(sort=False).fillna("–")
    citing = frame.groupby("system").citations.agg(lambda counts: (counts > 0).mean())
    table["answers that cite"] = [f"{100 * share:.0f}" for share in citing.reindex(table.index)]
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


def facts_of_related(
    frame: pd.DataFrame, long: pd.DataFrame, scores: pd.DataFrame
) -> dict[str, str]:
    """Facts about qualities, costs and the two evaluators, for prose."""
    qualities = long[long.metric.isin(QUALITIES.values())]
    facts = facts_of_rows(qualities, "{system} {metric}", {"": "{value:.1f}"})
    for system, row in frame.groupby("system", sort=False).first().iterrows():
        tokens = row["cost: tokens read"] + row["cost: tokens written"]
        facts[f"{system} searches"] = f"{row['cost: searches']:.3g}"
        facts[f"{system} tokens"] = f"{tokens:,.0f}"
    area = {"": "{AUROC:.2f} [{low:.2f}, {high:.2f}]"}
    return facts | facts_of_rows(scores, "{score} AUROC", area)
