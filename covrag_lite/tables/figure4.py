"""Figure 4: accuracy, the judge and what the method gains, against the size of the backbone.

Made from the claim of each backbone, results/real/<backbone>/claim.json and claim.facts.json, which `make check` makes
anew from the predictions. How many parameters a backbone has stands in backbones.toml.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pandas as pd

from covrag_lite import config
from covrag_lite.systems import palette
from covrag_lite.tables import Table, claim, pictures
from covrag_lite.tables.accuracy import minus, with_interval

REAL = Path("results", "real")
MEAN = "mean"  # in the place of a seed: of several trainings, or of the only one
GAINS = {  # from, to, and whose colour the picture takes
    "two adapters over RAG trained": ("RAG trained", claim.BEST, claim.BEST),
    "CoV-RAG over RAG trained": ("RAG trained", "CoV-RAG", "RAG trained"),
    "CoV-RAG over its first answer": ("CoV-RAG-S", "CoV-RAG", "CoV-RAG-S"),
}
FACTS = {  # measure and what is measured -> the claim's fact of a seed
    ("accuracy", "RAG trained"): "search of RAG trained {} first answer right",
    ("accuracy", "CoV-RAG-S"): "search of CoV-RAG-S {} first answer right",
    ("accuracy", "CoV-RAG"): "search of CoV-RAG-S {} last",
    ("AUROC", "judge"): "judge of RAG trained {} AUROC",
    ("AUROC", "likelihood"): "judge of RAG trained {} AUROC of the likelihood",
    ("AUROC", "both"): "judge of RAG trained {} AUROC of both, weighed",
}
PANELS = {  # measure -> the panel's title, its axis, and how values are written
    "accuracy": ("Accuracy", "answers that are right (%)", "{:.1f}"),
    "AUROC": ("The judge of RAG trained's answers", "AUROC, right above wrong answers", "{:.2f}"),
    "gain": ("What the second round gains", "points of accuracy", "{:+.1f}"),
}
COLUMNS = ("backbone", "parameters", "measure", "what", "seed", "value", "low", "high")
NUMBER = re.compile(r"-?[\d.]+")


@cache
def load_backbones() -> dict[str, dict]:
    """What is known of every backbone: its label, its hub id, its number of parameters."""
    return tomllib.loads(Path(__file__).with_name("backbones.toml").read_text(encoding="utf-8"))


def load(root: Path = config.ROOT) -> pd.DataFrame:
    """A row a backbone, measure, what is measured and seed, the smallest backbone first; no model, no questions."""
    claims, asked, rows = {file.parent.name: file for file in (root / REAL).glob("*/claim.json")}, set(), []
    sizes = {name: load_backbones()[name]["parameters"] for name in claims}
    for name in sorted(claims, key=sizes.get):
        file = claims[name]
        manifests = [json.loads(one.read_text()) for one in file.parent.glob("seed-*/claim.manifest.json")]
        asked |= {one["data"]["questions"]["sha256"] for one in manifests}
        comparisons, facts = (json.loads(file.with_suffix(end).read_text()) for end in (".json", ".facts.json"))
        rows += [(name, sizes[name], *row) for row in _values(comparisons, facts)]
    if len(asked) > 1:
        raise ValueError(f"the runs of {', '.join(claims)} asked different questions; Figure 4 needs the same ones")
    return pd.DataFrame(rows, columns=COLUMNS)


def _values(comparisons: list[dict], facts: dict[str, str]) -> Iterator[tuple]:
    """Accuracies and AUROCs of each training and their mean; differences of each, and pooled with their interval."""
    seeds = sorted({row["seed"] for row in comparisons} - {claim.POOLED})
    for (measure, what), name in FACTS.items():
        texts = {seed: facts.get(name.format(seed)) for seed in seeds}
        found = {seed: [float(one) for one in NUMBER.findall(text)] for seed, text in texts.items() if text}
        for seed, numbers in found.items():
            yield measure, what, seed, *(numbers + [None, None])[:3]
        if found:
            yield measure, what, MEAN, sum(one[0] for one in found.values()) / len(found), None, None
    for what, pair in GAINS.items():
        own = [row for row in comparisons if (row["from"], row["to"]) == pair[:2]]
        rows = [(row["seed"], row) for row in own if row["seed"] != claim.POOLED]
        rows += [(MEAN, row) for row in own[-1:]]  # pooled, or the only training
        for seed, row in rows:
            yield "gain", what, seed, row["difference"], row["low"], row["high"]


def build(long: pd.DataFrame) -> Table:
    """The figure, and every mean over seeds as facts, a backbone told by its millions of parameters."""
    facts = {}
    for row in means(long).itertuples():
        value, _, interval = row.cell.partition(" ")
        name = f"{row.parameters / 1e6:.0f}M {row.what} {row.measure}"
        facts |= {name: minus(value)} | ({f"{name} interval": minus(interval)} if interval else {})
    return Table("figure4", long, facts=facts, plots={"png": partial(plot, long)}, digits=3)


def means(long: pd.DataFrame) -> pd.DataFrame:
    """The rows of the mean over seeds; `cell` is the value as a person reads it."""
    rows = long[long.seed == MEAN]
    return rows.assign(cell=[with_interval(PANELS[row.measure][2], *row[-3:]) for row in rows.itertuples()])


def wide(long: pd.DataFrame) -> pd.DataFrame:
    """The means of the seeds: a row a value, a column a backbone."""
    return means(long).set_index(["measure", "what", "backbone"]).cell.unstack(sort=False).fillna("–")


def plot(long: pd.DataFrame, path: Path) -> "pictures.Figure":
    """A panel a measure: means against the number of parameters, single trainings as rings."""
    plt, _ = pictures.style(0.8)
    figure, panels = plt.subplots(1, len(PANELS), figsize=(18, 6.6), layout="constrained")
    sizes = long.groupby("backbone", sort=False).parameters.first()
    for axes, (measure, (title, label, _)) in zip(panels, PANELS.items()):
        groups = dict(list(long[long.measure == measure].groupby("what", sort=False)))
        for number, (what, rows) in enumerate(groups.items()):
            _draw_series(axes, what, rows, 1.11 ** (number - (len(groups) - 1) / 2))
        axes.set(title=title, ylabel=label, xscale="log", xlim=(sizes.min() / 1.6, sizes.max() * 1.6))
        axes.set_xticks(sizes, [load_backbones()[backbone]["label"] for backbone in sizes.index])
        axes.minorticks_off()
        axes.grid(axis="x", visible=False)
        columns = 1 if measure == "gain" else 3
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncol=columns, frameon=False)
    panels[0].set(ylim=(0, None))
    for axes, level in ((panels[1], 0.5), (panels[2], 0)):
        axes.axhline(level, color=pictures.OTHER, ls="--", lw=1.5)
    panels[1].annotate("chance", (0.99, 0.5), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    figure.suptitle("Figure 4: the judge grows with the backbone, and the largest gains most (rings: single trainings)")
    return pictures.save_picture(figure, path)


def _draw_series(axes: "pictures.Axes", what: str, rows: pd.DataFrame, shift: float) -> None:
    """One system, judge or gain: a line through the means, and the seeds where there are several."""
    colours = palette() | {"judge": palette()["CoV-RAG"], "both": pictures.DARK}
    colour = colours.get(GAINS[what][2] if what in GAINS else what, pictures.OTHER)
    middle, single = rows[rows.seed == MEAN], rows[rows.seed != MEAN]
    span = [(middle.value - middle.low).fillna(0), (middle.high - middle.value).fillna(0)]
    style = dict(marker="o", ms=9, lw=1.5, elinewidth=2, capsize=4, color=colour, label=what)
    axes.errorbar(middle.parameters * shift, middle.value, span, **style)
    several = single[single.groupby("backbone").seed.transform("nunique") > 1]
    axes.plot(several.parameters * shift * 1.04, several.value, "o", ms=5, mfc="white", mec=colour, zorder=4)
