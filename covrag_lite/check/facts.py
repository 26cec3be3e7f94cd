"""Every number that prose may use of a recorded run, by its name, written as prose writes it."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name

import pandas as pd

from covrag_lite.records import Prediction
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.systems import palette
from covrag_lite.tables import accuracy as tables
from covrag_lite.tables import bounds, failures, seeds, verifier
from covrag_lite.tables import figure4 as sizes
from covrag_lite.tables import table4 as position
from covrag_lite.tables import table5 as ablation
from covrag_lite.tables import table6 as retrieval
from covrag_lite.tables.figure4 import Sizes
from covrag_lite.tables.seeds import Seeds

# What a run's numbers come from: predictions, the frame of related systems, predictions by retriever, by training seed
# or by the backbone's size, measured speed.
Basis = Sequence[Prediction] | pd.DataFrame | dict[str, list[Prediction]] | Seeds | Sizes | Path


def facts(basis: Basis) -> dict[str, str]:
    """The numbers of a run: of predictions, of predictions by retriever, or of a folder of measured speed."""
    if isinstance(basis, Path):
        return importlib.import_module("benchmarks.report").facts(basis)
    if isinstance(basis, dict):
        return facts_of_retrieval(basis)
    if isinstance(basis, Seeds):
        return facts_of_seeds(basis)
    if isinstance(basis, Sizes):
        return facts_of_sizes(basis)
    frame = basis if isinstance(basis, pd.DataFrame) else to_frame(basis)
    made = facts_of_accuracy(frame) | facts_of_comparisons(frame) | facts_of_verdicts(frame)
    if isinstance(basis, pd.DataFrame):
        return made | facts_of_related(frame)
    return made | facts_of_rewriting(basis) | facts_of_chain(basis)


def minus(text: str) -> str:
    """A number with a proper minus sign."""
    return text.replace("-", "−")


def facts_of_retrieval(searches: dict[str, list[Prediction]]) -> dict[str, str]:
    """Table 6: what each retriever found before and after CoV-RAG's revision."""
    frame = retrieval.join_retrievers(searches)
    made = {}
    for row in retrieval.retrieval_table(frame[frame.system == "CoV-RAG"]).dropna(subset="n").itertuples():
        name = f"{row.retriever} {row.questions} {row.measure}"
        made[f"{name} n"] = f"{row.n:.0f}"
        made[f"{name} before"] = f"{row.first:.1f}"
        made[f"{name} after"] = f"{row.last:.1f}"
        made[f"{name} delta"] = minus(f"{row.delta:+.1f}")
        made[f"{name} interval"] = minus(f"[{row.delta_low:+.1f}, {row.delta_high:+.1f}]")
    return made


def facts_of_seeds(by_seed: Seeds) -> dict[str, str]:
    """Several training seeds: accuracies, comparisons and the judge, seed by seed and on average."""
    made = {}
    for system, row in seeds.accuracies(by_seed).iterrows():
        made |= {f"{system} {name}": f"{value:.1f}" for name, value in row.items()}
    for row in seeds.comparisons(by_seed).itertuples():
        name = f"{row.what.replace(':', '')} {row.seed}"
        made |= {f"{name} points": minus(f"{row.value:+.1f}"), f"{name} n": str(row.n)}
        made[f"{name} interval"] = minus(f"[{row.low:+.1f}, {row.high:+.1f}]")
        if row.seed != seeds.MEAN:
            made |= {f"{name} gained": str(row.gained), f"{name} lost": str(row.lost), f"{name} p": f"{row.p:.3f}"}
    for row in seeds.judges(by_seed).to_dict("records"):
        name = f"judge {row.pop('questions')} {row.pop('seed')}"
        made |= {f"{name} {column}": str(value) for column, value in row.items()}
    for row in seeds.unrevised(by_seed).itertuples():
        made[f"{row.system} {row.seed} unrevised AUROC"] = row.AUROC
    return made


def facts_of_sizes(by_size: Sizes) -> dict[str, str]:
    """Figure 4: every mean over seeds, the backbone told by its millions of parameters (a dot in braces is refused)."""
    made = {}
    long = sizes.size_table(by_size)
    for row in long[long.seed == seeds.MEAN].itertuples():
        name = f"{row.parameters / 1e6:.0f}M {row.what} {row.measure}"
        value, _, interval = sizes.format_cell(row).partition(" ")
        made |= {name: minus(value), f"{name} interval": minus(interval), f"{name} n": str(row.n)}
    return made


def facts_of_accuracy(frame: pd.DataFrame) -> dict[str, str]:
    """Every system's accuracy, set by set and on average, and how often it finds a gold passage."""
    made = {}
    long = tables.accuracy_table(frame[frame.system.isin(palette())], "table2")
    for row in long[long.metric == "normalised"].itertuples():
        name = f"{row.system} {row.dataset}"
        made[name] = f"{row.value:.1f}"
        made[f"{name} interval"] = f"[{row.low:.0f}–{row.high:.0f}]"
        made[f"{name} n"] = str(row.n)
    for system, found in frame.dropna(subset="gold_last").groupby("system").gold_last:
        made[f"{system} gold"] = f"{100 * found.mean():.1f}"
    return made


def facts_of_related(frame: pd.DataFrame) -> dict[str, str]:
    """Related systems: each against CoV-RAG, how well they cite, and who tells best whether an answer was found."""
    related = resolve_name("covrag_lite.related.table")
    made = facts_of_comparisons(frame, related.compare(frame))
    long = related.long_table(frame)
    for row in long[long.metric.isin(related.QUALITY.values())].itertuples():
        name = f"{row.system} {row.metric}"
        made |= {name: f"{row.value:.1f}", f"{name} interval": f"[{row.low:.0f}–{row.high:.0f}]"}
    for system, row in frame.groupby("system").first().filter(like="cost: ").iterrows():
        made |= {f"{system} {name.removeprefix('cost: ')}": f"{value:.3g}" for name, value in row.items()}
        made[f"{system} tokens"] = f"{row['cost: tokens read'] + row['cost: tokens written']:.0f}"
    for row in related.evaluators(frame).itertuples():
        made[f"{row.score} AUROC"] = f"{row.AUROC:.2f} [{row.low:.2f}, {row.high:.2f}]"
    return made


def facts_of_comparisons(frame: pd.DataFrame, table: pd.DataFrame | None = None) -> dict[str, str]:
    """Systems two by two; those of the tables, unless others are given."""
    made = {}
    table = tables.compare(frame) if table is None else table
    for name, _, _, points, interval, gained, lost, p in table[table.metric == "normalised"].itertuples(index=False):
        made[f"{name} points"] = points.lstrip("+-")
        made[f"{name} interval"] = minus(interval)
        made[f"{name} p"] = p
        made[f"{name} gained"] = str(gained)
        made[f"{name} lost"] = str(lost)
    return made


def facts_of_rewriting(predictions: Sequence[Prediction]) -> dict[str, str]:
    """What a rewriter before retrieval does to the questions."""
    made = {}
    for system in dict.fromkeys(p.system for p in predictions if p.system.startswith("Start-Revise")):
        own = [p for p in predictions if p.system == system]
        changed = [p.question for p in own if p.rounds[0].query != p.question.question]
        made[f"{system} rewritten"] = str(len(changed))
        made[f"{system} rewritten broken wording"] = str(sum("+" in question.kind for question in changed))
        counts = position.off_question(predictions, system)
        if counts:
            made[f"{system} off the question"] = str(counts[0])
    return made


def facts_of_verdicts(frame: pd.DataFrame) -> dict[str, str]:
    """What verdicts said, what revisions did, and what re-retrieval found."""
    made = {}
    for system, rows in frame[frame.verdicts > 0].groupby("system"):
        for judgment, n in rows.judgment.value_counts().items():
            made[f"{system} judged {judgment}"] = str(n)
        revised, helped, hurt = map(str, tables.count_changes(rows))
        made |= {f"{system} revised": revised, f"{system} helped": helped, f"{system} hurt": hurt}
        share = rows.first_normalised.dropna().mean()
        made[f"{system} majority"] = f"{100 * max(share, 1 - share):.1f}"
        judged = [verifier.judge_table(frame, system, groups) for groups in (verifier.by_form, verifier.by_set)]
        for row in pd.concat(judged).itertuples():
            name = f"{system} {row.questions}"
            made |= {f"{name} judged n": str(row.n), f"{name} right": row.right, f"{name} majority": row.majority}
            made |= {f"{name} judge": row.judge, f"{name} wording": row.wording, f"{name} AUROC": row.AUROC}
            made |= {f"{name} caught": row.caught, f"{name} doubted": row.doubted, f"{name} likelihood": row.likelihood}
            made |= {f"{name} both": row.both, f"{name} fitted": row.fitted, f"{name} unverified": row.unverified}
        for row in verifier.trust_table(frame, system).to_dict("records"):
            for answer in ("right", "wrong"):
                name = f"{system} trusted {row['passages']} {answer}"
                made |= {name: f"{row[answer]:.1f}", f"{name} n": str(row[f"n {answer}"])}
        for row in failures.failure_table(frame, system).to_dict("records"):
            name = f"{system} kind {row.pop('questions')}"
            made |= {f"{name} {column.removeprefix('95 % ')}": minus(str(value)) for column, value in row.items()}
        for row in bounds.bounds(frame, system).itertuples():
            made[f"{system} {row.case.replace(':', '')}"] = f"{row.value:.1f}"  # a colon in braces begins a format
        for row in bounds.error_classes(frame, system).itertuples(index=False):
            made |= {f"{system} {row[0]} n": str(row.n), f"{system} {row[0]} share": f"{row.share:.1f}"}
        found = map(str, bounds.count_found(frame, system))
        made |= dict(zip((f"{system} found anew", f"{system} found no more"), found))
        for part, n, _, before, after, delta, interval in verifier.reference_delta(frame, system).itertuples(
            index=False
        ):
            name = f"{system} {part}"
            made |= {f"{name} n": str(n), f"{name} before": before, f"{name} after": after}
            made |= {f"{name} delta": minus(delta), f"{name} interval": minus(interval)}
    return made


def facts_of_chain(predictions: Sequence[Prediction]) -> dict[str, str]:
    """Table 5, and what each rule does with a second answer."""
    made = {}
    for row in ablation.chain_table(predictions).itertuples():
        name = f"{row.system} {row.metric}"
        made[name] = f"{row.value:.1f}"
        made[f"{name} interval"] = minus(f"[{row.low:.1f}, {row.high:.1f}]")
        made[f"{name} n"] = str(row.n)
    if any(p.system == "CoV-RAG" for p in predictions):
        for row in ablation.policies(predictions).itertuples():
            rule = row.rule.partition(":")[0]  # a colon in braces would begin a format
            made[f"{rule} accuracy"] = f"{row.accuracy:.1f}"
            made[f"{rule} helped"] = str(row.helped)
            made[f"{rule} hurt"] = str(row.hurt)
    return made
