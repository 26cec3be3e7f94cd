"""Figure 4: the same recipe on backbones of several sizes.

The paper's figure shows the accuracy of WebGLM, CoV-RAG-S and CoV-RAG on five backbones; its
Table 2 has the numbers of three of them. Ours adds how well the verifier judges answers and what
the second round gains.
"""

from functools import partial

import pandas as pd

from covrag_lite.systems import names
from covrag_lite.tables.backbones import (
    ACCURACIES,
    MEAN,
    PAPER_FORM,
    label,
    load_paper_backbones,
    short_label,
)
from covrag_lite.tables.facts import minus
from covrag_lite.tables.figure4_picture import plot
from covrag_lite.tables.intervals import with_interval
from covrag_lite.tables.labels import label_of
from covrag_lite.tables.table import Table

FORMS = {"accuracy": "{:.1f}", "AUROC": "{:.2f}", "gain": "{:+.1f}"}  # how values are written


def build_figure4(long: pd.DataFrame) -> Table:
    """Build the figure, and every mean over seeds as a fact, such as "135M judge AUROC"."""
    facts = {}
    for row in means(long).itertuples():
        value, _, interval = row.cell.partition(" ")
        name = f"{row.parameters / 1e6:.0f}M {row.what} {row.measure}"
        facts[name] = minus(value)
        if interval:
            facts[f"{name} interval"] = minus(interval)
    return Table("figure4", long, facts=facts, plots={"png": partial(plot, long)}, digits=3)


def means(long: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the mean over seeds; `cell` is the value as people read it."""
    rows = long[long.seed == MEAN]
    cells = []
    for row in rows.itertuples():
        cells.append(with_interval(FORMS[row.measure], row.value, row.low, row.high))
    return rows.assign(cell=cells)


def next_to_paper(long: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracies of plain RAG and CoV-RAG and the gain, ours and the paper's."""
    rows = []
    for backbone, part in means(long).groupby("backbone", sort=False):
        cells = part.set_index("what").cell
        values = [cells[what] for what in (*ACCURACIES, PAPER_FORM)]
        rows.append(("ours", short_label(backbone), *values))
    for backbone, row in load_paper_backbones().iterrows():
        values = [f"{row[what]:.1f}" if what in row else "–" for what in ACCURACIES]
        rows.append(
            ("paper", backbone, *values, f"{row[names.COV_RAG] - row[names.RAG_TRAINED]:+.1f}")
        )
    columns = ["whose", "backbone", *map(label_of, ACCURACIES), "CoV-RAG − RAG"]
    table = pd.DataFrame(rows, columns=columns).set_index(["whose", "backbone"])
    return table.map(minus)


def wide(long: pd.DataFrame, measures: tuple[str, ...] = tuple(FORMS)) -> pd.DataFrame:
    """Return the means over seeds: one row per value, one column per backbone."""
    rows = means(long)
    rows = rows[rows.measure.isin(measures)]
    rows = rows.assign(backbone=rows.backbone.map(short_label), what=rows.what.map(label))
    table = rows.set_index(["measure", "what", "backbone"]).cell.unstack(sort=False)
    return table.fillna("–").map(minus).rename_axis(columns=None)
