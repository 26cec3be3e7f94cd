"""Figure 4: the same recipe on backbones of several sizes.

The paper's figure shows the accuracy of WebGLM, CoV-RAG-S and CoV-RAG on five backbones; its Table 2
has the numbers of three of them. Ours adds how well the verifier judges answers and what the second
round gains. It is built from the claim of each backbone, results/real/<backbone>/claim.json and
claim.facts.json, which `make check` rebuilds. The size of each backbone is in backbones.toml.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pandas as pd

from covrag_lite import config
from covrag_lite.labels import label_of
from covrag_lite.systems import palette
from covrag_lite.tables import Table, claim, paper, pictures
from covrag_lite.tables.accuracy import minus, with_interval

REAL = Path("results", "real")
MEAN = "mean"  # in the place of a seed: the mean of several training runs, or the only one
PAPER_FORM = "CoV-RAG over RAG trained"  # one model answers and verifies
SECOND_ROUND = "CoV-RAG over its first answer"
OUR_FORM = "two adapters over RAG trained"
GAINS = {  # from, to
    OUR_FORM: ("RAG trained", claim.BEST),
    PAPER_FORM: ("RAG trained", "CoV-RAG"),
    SECOND_ROUND: ("CoV-RAG-S", "CoV-RAG"),
}
# A system -> the gain of which it is one side, and which side: so all three are of the same seeds.
ACCURACIES = {
    "RAG trained": (PAPER_FORM, "accuracy_from"),
    "CoV-RAG-S": (SECOND_ROUND, "accuracy_from"),
    "CoV-RAG": (PAPER_FORM, "accuracy_to"),
}
AREAS = {  # how an answer is scored -> the claim's fact of a seed
    "judge": "judge of RAG trained {} AUROC",
    "likelihood": "judge of RAG trained {} AUROC of the likelihood",
    "both": "judge of RAG trained {} AUROC of both, weighed",
}
FORMS = {"accuracy": "{:.1f}", "AUROC": "{:.2f}", "gain": "{:+.1f}"}  # how values are written
COLUMNS = ("backbone", "parameters", "measure", "what", "seed", "value", "low", "high")
NUMBER = re.compile(r"-?[\d.]+")
LABELS = {  # of what is measured, where people read it
    OUR_FORM: "Two adapters − RAG (trained)",
    PAPER_FORM: "CoV-RAG − RAG (trained)",
    SECOND_ROUND: "CoV-RAG − its first answer",
    "judge": "verifier's score",
    "likelihood": "answer's likelihood",
    "both": "both (likelihood + 3 × score)",
}
GREEN, ORANGE = palette()["CoV-RAG"], palette()["Start-Revise"]
LOOKS = {  # colour and marker of every series; those of one panel differ in both
    "RAG trained": (palette()["RAG trained"], "s"),
    "CoV-RAG-S": (palette()["CoV-RAG-S"], "v"),
    "CoV-RAG": (GREEN, "o"),
    "judge": (GREEN, "o"),
    "likelihood": (ORANGE, "s"),
    "both": (pictures.DARK, "v"),
    PAPER_FORM: (GREEN, "o"),
    SECOND_ROUND: (ORANGE, "s"),
    OUR_FORM: (pictures.DARK, "v"),
}
PAPER_SYSTEMS = {"RAG trained": "WebGLM", "CoV-RAG": "CoV-RAG"}  # ours -> the paper's


@cache
def load_backbones() -> dict[str, dict]:
    """Label, hub id and number of parameters of every backbone."""
    return tomllib.loads(Path(__file__).with_name("backbones.toml").read_text(encoding="utf-8"))


def load(root: Path = config.ROOT) -> pd.DataFrame:
    """One row per backbone, measure, what is measured and seed, the smallest backbone first."""
    claims = {file.parent.name: file for file in (root / REAL).glob("*/claim.json")}
    sizes = {name: load_backbones()[name]["parameters"] for name in claims}
    questions, rows = set(), []
    for name in sorted(claims, key=sizes.get):
        file = claims[name]
        for manifest in file.parent.glob("seed-*/claim.manifest.json"):
            questions.add(json.loads(manifest.read_text())["data"]["questions"]["sha256"])
        comparisons = json.loads(file.read_text())
        facts = json.loads(file.with_suffix(".facts.json").read_text())
        rows += [(name, sizes[name], *row) for row in _values(comparisons, facts)]
    if len(questions) > 1:
        names = ", ".join(claims)
        raise ValueError(f"the runs of {names} have different questions; Figure 4 needs the same ones")
    return pd.DataFrame(rows, columns=COLUMNS)


def _values(comparisons: list[dict], facts: dict[str, str]) -> Iterator[tuple]:
    """Accuracies, AUROCs and gains, each by seed and as a mean; a mean gain has its interval."""
    by_gain = {what: _with_mean(comparisons, pair) for what, pair in GAINS.items()}
    for what, (gain, side) in ACCURACIES.items():
        for seed, row in by_gain[gain]:
            yield "accuracy", what, seed, row[side], None, None
    seeds = sorted({row["seed"] for row in comparisons} - {claim.POOLED})
    for what, name in AREAS.items():
        areas = []
        for seed in seeds:
            numbers = [float(number) for number in NUMBER.findall(facts.get(name.format(seed), ""))]
            if numbers:
                areas.append(numbers[0])
                yield "AUROC", what, seed, *(numbers + [None, None])[:3]
        if areas:
            yield "AUROC", what, MEAN, sum(areas) / len(areas), None, None
    for what, rows in by_gain.items():
        for seed, row in rows:
            yield "gain", what, seed, row["difference"], row["low"], row["high"]


def _with_mean(comparisons: list[dict], pair: tuple[str, str]) -> list[tuple[str, dict]]:
    """The rows of one comparison by seed, and last the mean: the pooled row, or the only seed's."""
    of_pair = [row for row in comparisons if (row["from"], row["to"]) == pair]
    rows = [(row["seed"], row) for row in of_pair if row["seed"] != claim.POOLED]
    return rows + [(MEAN, row) for row in of_pair[-1:]]


def build(long: pd.DataFrame) -> Table:
    """The figure, and every mean over seeds as a fact, such as "135M judge AUROC"."""
    facts = {}
    for row in means(long).itertuples():
        value, _, interval = row.cell.partition(" ")
        name = f"{row.parameters / 1e6:.0f}M {row.what} {row.measure}"
        facts |= {name: minus(value)} | ({f"{name} interval": minus(interval)} if interval else {})
    return Table("figure4", long, facts=facts, plots={"png": partial(plot, long)}, digits=3)


def means(long: pd.DataFrame) -> pd.DataFrame:
    """The rows of the mean over seeds; `cell` is the value as a person reads it."""
    rows = long[long.seed == MEAN]
    return rows.assign(cell=[with_interval(FORMS[row.measure], *row[-3:]) for row in rows.itertuples()])


def next_to_paper(long: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of plain RAG and of CoV-RAG and the gain, by backbone, ours and the paper's."""
    rows = []
    for backbone, part in means(long).groupby("backbone", sort=False):
        cells = part.set_index("what").cell
        values = [cells[what] for what in (*ACCURACIES, PAPER_FORM)]
        rows.append(("ours", short_label(backbone), *values))
    for backbone, row in load_paper_backbones().iterrows():
        values = [f"{row[what]:.1f}" if what in row else "–" for what in ACCURACIES]
        rows.append(("paper", backbone, *values, f"{row['CoV-RAG'] - row['RAG trained']:+.1f}"))
    columns = ["whose", "backbone", *map(label_of, ACCURACIES), "CoV-RAG − RAG"]
    table = pd.DataFrame(rows, columns=columns).set_index(["whose", "backbone"])
    return table.map(minus)


def load_paper_backbones() -> pd.DataFrame:
    """The averages of WebGLM (RAG trained here) and CoV-RAG in the paper's Table 2, by backbone."""
    average = paper.load_table("table2").average
    names = [name for name in average.index if name.startswith("CoV-RAG ")]
    backbones = [name.removeprefix("CoV-RAG ") for name in names]
    columns = {}
    for ours, theirs in PAPER_SYSTEMS.items():
        columns[ours] = [average[f"{theirs} {backbone}"] for backbone in backbones]
    return pd.DataFrame(columns, index=backbones)


def wide(long: pd.DataFrame, measures: tuple[str, ...] = tuple(FORMS)) -> pd.DataFrame:
    """The means over seeds: one row per value, one column per backbone."""
    rows = means(long)
    rows = rows[rows.measure.isin(measures)]
    rows = rows.assign(backbone=rows.backbone.map(short_label), what=rows.what.map(label))
    table = rows.set_index(["measure", "what", "backbone"]).cell.unstack(sort=False)
    return table.fillna("–").map(minus).rename_axis(columns=None)


def label(what: str) -> str:
    """How a series is called where people read it."""
    return LABELS.get(what, label_of(what))


def short_label(backbone: str) -> str:
    """The name of a backbone in one line."""
    return load_backbones()[backbone]["label"].replace("\n", " ")


def _tick(backbone: str) -> str:
    """A backbone's label, short enough for an axis with six of them."""
    return load_backbones()[backbone]["label"].replace("Qwen2.5-Coder", "Qwen")


def plot(long: pd.DataFrame, path: Path) -> "pictures.Figure":
    """Accuracy and gain of the paper's form; below, AUROC and what the second round gains."""
    plt, _ = pictures.style(0.8)
    figure, panels = plt.subplots(2, 2, figsize=(13.5, 11), layout="constrained")
    (accuracy, gain), (area, second) = panels
    of_paper = load_paper_backbones()
    sizes = len(long.backbone.unique())
    _draw(accuracy, long, "accuracy", list(ACCURACIES))
    for what, shift in zip(PAPER_SYSTEMS, (-0.2, 0.2)):
        _draw_paper(accuracy, of_paper[what], sizes, LOOKS[what][0], shift)
    _draw(gain, long, "gain", [PAPER_FORM])
    _draw_paper(gain, of_paper["CoV-RAG"] - of_paper["RAG trained"], sizes, LOOKS[PAPER_FORM][0])
    _draw(area, long, "AUROC", list(AREAS))
    _draw(second, long, "gain", [SECOND_ROUND, OUR_FORM])
    accuracy.set(title="Accuracy", ylabel="right answers (%)", ylim=(0, 100))
    gain.set(title="CoV-RAG − RAG (trained), one model", ylabel="points")
    area.set(title="Separating right from wrong answers", ylabel="AUROC")
    second.set(title="What the second round gains", ylabel="points")
    for axes in (accuracy, gain):
        axes.plot([], [], ms=8, label="the paper (other questions)", **pictures.DIAMOND)
        axes.axvline(sizes - 0.5, color=pictures.OTHER, ls=":", lw=1.5)
    for axes in (gain, second):
        axes.axhline(0, color=pictures.OTHER, ls="--", lw=1.5)
    area.axhline(0.5, color=pictures.OTHER, ls="--", lw=1.5)
    area.annotate("chance", (0.99, 0.5), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    for axes in panels.flat:
        axes.grid(axis="x", visible=False)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=2, frameon=False)
    note = "bars: 95 % intervals; small rings: single seeds"
    figure.suptitle(f"Figure 4: one recipe, several backbones ({note})")
    return pictures.save_picture(figure, path)


def _draw(axes: "pictures.Axes", long: pd.DataFrame, measure: str, series: list[str]) -> None:
    """Series over our backbones: means with their intervals, and single seeds if there are several."""
    backbones = list(long.backbone.unique())
    for number, what in enumerate(series):
        colour, marker = LOOKS[what]
        shift = 0.2 * (number - (len(series) - 1) / 2)
        rows = long[(long.measure == measure) & (long.what == what)]
        rows = rows.assign(place=[backbones.index(name) + shift for name in rows.backbone])
        mean, single = rows[rows.seed == MEAN], rows[rows.seed != MEAN]
        span = [(mean.value - mean.low).astype(float), (mean.high - mean.value).astype(float)]
        style = dict(marker=marker, ms=9, ls="none", elinewidth=2, capsize=4, color=colour)
        axes.errorbar(mean.place, mean.value, span, label=label(what), **style)
        several = single[single.groupby("backbone").seed.transform("nunique") > 1]
        if measure != "accuracy":  # where seeds differ by less than a marker's size
            axes.plot(several.place + 0.07, several.value, "o", ms=4, mfc="white", mec=colour, zorder=4)
    axes.set_xticks(range(len(backbones)), map(_tick, backbones))
    axes.set_xlim(-0.5, len(backbones) - 0.5)


def _draw_paper(axes: "pictures.Axes", values: pd.Series, start: int, colour: str, shift: float = 0) -> None:
    """The paper's values right of ours, as diamonds."""
    places = range(start, start + len(values))
    style = pictures.DIAMOND | {"mec": colour, "mew": 2.5, "ms": 8}
    axes.plot([place + shift for place in places], values, **style)
    ours = [text.get_text() for text in axes.get_xticklabels()][:start]
    theirs = [name.replace("-", "\n").replace("b", "B") for name in values.index]
    axes.set_xticks([*range(start), *places], ours + theirs)
    axes.set_xlim(-0.5, start + len(values) - 0.5)
