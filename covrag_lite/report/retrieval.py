"""Table 6: what each retriever finds at first and after a revision, beside the paper's search engines.

Made from the tidy frame of `evaluation.to_frame` with a column `retriever`; notebooks/table6.ipynb calls it twice, for
CoV-RAG's revisions and for the clean wordings, which are the best revisions there could be.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config
from covrag_lite.report import tables
from covrag_lite.report.pictures import save_picture
from covrag_lite.report.tables import NAMES, PALETTE, to_markdown

# Single- and multi-iteration retrieval accuracy in the paper; neither engine is one of our retrievers, and no n is given.
PAPER = {"Bing": {"nq": (65.0, 66.8), "webq": (69.8, 71.0)}, "Chrome": {"nq": (69.3, 71.3), "webq": (76.0, 76.0)}}
MEASURES = {
    "answer": "found",
    "gold passage": "gold",
}  # what the top k must hold: the columns of the frame that tell it
REVISIONS = ("CoV-RAG", "clean wording, without a model")  # who put the question anew
ITERATIONS, WORDINGS = (
    ("single iteration", "multi iteration"),
    ("as asked", "clean wording"),
)  # what first and last mean


def retrieval_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The long form: a row a measure, group of questions and retriever, with the share before and after and their difference."""
    form = frame.kind.map(
        lambda kind: "broken wording" if "+" in kind else "two-hop" if kind == "two-hop" else "well put"
    )
    groups = {name: frame.dataset == name for name in frame.dataset.unique()} | {"all": form.notna()}
    groups |= {name: form == name for name in ("well put", "broken wording", "two-hop")}
    rows = []
    for measure, column in MEASURES.items():
        known = frame[f"{column}_first"].notna()
        for group, chosen in groups.items():
            for retriever, part in frame[known & chosen].groupby("retriever", sort=False):
                first, last = (
                    part[f"{column}_first"].astype(bool).tolist(),
                    part[f"{column}_last"].astype(bool).tolist(),
                )
                rows.append(
                    {"measure": measure, "questions": NAMES.get(group, group), "retriever": retriever, "n": len(part)}
                    | _percent("first", sum(first) / len(first), *metrics.wilson(sum(first), len(first)))
                    | _percent("last", sum(last) / len(last), *metrics.wilson(sum(last), len(last)))
                    | _percent("delta", *metrics.paired_bootstrap(first, last))
                    | dict(zip(("gained", "lost", "p"), metrics.mcnemar(first, last)))
                )
            if measure == "answer" and "CoV-RAG" in frame.system.values:
                rows += [
                    {
                        "measure": measure,
                        "questions": NAMES[group],
                        "retriever": f"{engine}*",
                        "first": single,
                        "last": multi,
                        "delta": multi - single,
                    }
                    for engine, sets in PAPER.items()
                    for dataset, (single, multi) in sets.items()
                    if dataset == group
                ]
    return pd.DataFrame(rows)


def _percent(name: str, value: float, low: float, high: float) -> dict[str, float]:
    return {name: 100 * value, f"{name}_low": 100 * low, f"{name}_high": 100 * high}


def wide(long: pd.DataFrame, measure: str = "answer", names: tuple[str, str] = ITERATIONS) -> pd.DataFrame:
    """The same table as a person reads it; a star marks the paper's search engines."""
    rows = long[long.measure == measure]
    count = lambda column, form="{:.0f}": ["" if pd.isna(value) else form.format(value) for value in rows[column]]
    share = lambda column, form: [
        form.format(value) + ("" if pd.isna(low) else f" [{form}, {form}]".format(low, high))
        for value, low, high in zip(rows[column], rows[f"{column}_low"], rows[f"{column}_high"])
    ]
    return pd.DataFrame(
        {
            "questions": rows.questions.tolist(),
            "retriever": rows.retriever.tolist(),
            "n": count("n"),
            names[0]: share("first", "{:.1f}"),
            names[1]: share("last", "{:.1f}"),
            "delta": share("delta", "{:+.1f}"),
            "gained": count("gained"),
            "lost": count("lost"),
            "McNemar p": count("p", "{:.3f}"),
        }
    )


def plot_retrieval(
    long: pd.DataFrame, title: str, path: Path, names: tuple[str, str] = ITERATIONS, measure: str = "answer"
):
    """A panel a group of questions, two bars a retriever with their intervals; the paper's search engines are diamonds of their own."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.8)
    rows = long[long.measure == measure]
    groups = rows.questions.unique()
    figure, panels = plt.subplots(
        -(-len(groups) // 4),
        4,
        figsize=(16, 4.6 * -(-len(groups) // 4)),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axes in panels.flat[len(groups) :]:
        axes.remove()
    for axes, group in zip(panels.flat, groups):
        part = rows[rows.questions == group].reset_index(drop=True)
        ours, paper = part[part.n.notna()], part[part.n.isna()]
        for shift, column, name, colour in (
            (-0.2, "first", names[0], PALETTE["CoV-RAG-S"]),
            (0.2, "last", names[1], PALETTE["CoV-RAG"]),
        ):
            span = [ours[column] - ours[f"{column}_low"], ours[f"{column}_high"] - ours[column]]
            axes.bar(
                ours.index + shift, ours[column], 0.4, yerr=span, color=colour, ecolor="#333333", capsize=3, label=name
            )
            axes.plot(
                paper.index + shift,
                paper[column],
                "D",
                ms=7,
                mfc="white",
                mec="black",
                label="* the paper" if shift > 0 and len(paper) else None,
            )
        axes.set(title=f"{group}, n = {ours.n.min():.0f}", ylim=(0, 105))
        axes.set_xticks(part.index, part.retriever, rotation=45)
        axes.grid(axis="x", visible=False)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    figure.suptitle(title)
    figure.supylabel(f"{measure} in the top k (%)")
    return save_picture(figure, path)


def join(revised: pd.DataFrame, clean: pd.DataFrame) -> pd.DataFrame:
    """Both parts as one long table."""
    return pd.concat(
        [table.assign(revision=name) for name, table in zip(REVISIONS, (revised, clean))], ignore_index=True
    )


def notes(frame: pd.DataFrame) -> list[str]:
    """What must stand under the table, retriever by retriever."""
    return [
        f"{retriever}, {line}"
        for retriever, part in frame.groupby("retriever", sort=False)
        for line in tables.notes(part)
    ]


def title(config: Config, names: tuple[str, str] = ITERATIONS) -> str:
    """What stands over the picture."""
    return (
        f"Table 6: CoV-RAG, {config.model.model}, on {config.data.data}'s sets"
        if names == ITERATIONS
        else "As asked and in clean wording, no model"
    )


def save(folder: Path, revised: pd.DataFrame, clean: pd.DataFrame, lines: Sequence[str]) -> str:
    """Write `table6.csv` and, readable, `table6.md`: CoV-RAG's revisions, then the clean wordings; returns the latter's text."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {REVISIONS[0]: (revised, ITERATIONS), REVISIONS[1]: (clean, WORDINGS)}
    join(revised, clean).to_csv(folder / "table6.csv", index=False, float_format="%.3f", lineterminator="\n")
    texts = [
        f"Share of questions whose top k holds the {measure}, in % [95 % interval]; revision: {name}\n\n{to_markdown(wide(table, measure, names))}"
        for name, (table, names) in parts.items()
        for measure in MEASURES
        if (table.measure == measure).any()
    ]
    text = "\n\n".join([*texts, "\n".join(f"- {line}" for line in lines)]) + "\n"
    (folder / "table6.md").write_text(text)
    return text
