"""Figure 4: accuracy, the judge and what the method gains, against the size of the backbone.

Made from Table 2 of results/real/<backbone>/seed-<n>. How many parameters a backbone has stands in backbones.toml.
Questions are what is resampled: the intervals tell of other questions, the spread between seeds of other trainings.
Beside them, as a control, RAG trained for longer, where it was recorded (results/real/<backbone>/longer-<epochs>):
CoV-RAG takes more steps than RAG, because it learns to verify as well.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import pandas as pd

from covrag_lite import config, metrics
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import find_under, load_or_outcomes
from covrag_lite.systems import palette
from covrag_lite.tables import Table, pictures, verifier
from covrag_lite.tables.accuracy import minus, with_interval

REAL = Path("results", "real")
MEAN = "mean"  # in the place of a seed
KINDS = ("seed", "longer")  # of runs: the recipe by its training seed, and RAG trained for longer by its epochs
SYSTEMS = ("RAG", "RAG trained", "CoV-RAG-S", "CoV-RAG")  # the first may be missing
GAINS = {"its first round": "CoV-RAG-S", "RAG trained": "RAG trained"}  # what CoV-RAG is compared with
# What may tell right answers from wrong ones: the verifier's expected correctness, the answer's likelihood, both ranks.
JUDGES = {"judge": "expected_correctness", "likelihood": "likelihood", "both": "both"}
PANELS = {
    "accuracy": "answers that are right (%)",
    "AUROC": "AUROC, right above wrong answers",
    "gain": "CoV-RAG minus the other (points)",
}
FORMS = {"accuracy": "{:.1f}", "AUROC": "{:.2f}", "gain": "{:+.1f}"}  # how values are written, by measure
FORMS |= {"control": "{:.1f}", "gain over control": "{:+.1f}"}
COLUMNS = ("backbone", "parameters", "measure", "what", "seed", "n", "value", "low", "high")


@dataclass(frozen=True)
class Sizes:
    """The frames of Table 2 by backbone, the smallest first, and by training seed; RAG trained longer by its epochs."""

    frames: Mapping[str, Mapping[str, pd.DataFrame]]
    longer: Mapping[str, Mapping[str, pd.DataFrame]] = field(default_factory=dict)


@cache
def load_backbones() -> dict[str, dict]:
    """What is known of every backbone: its label, its hub id, its number of parameters."""
    return tomllib.loads(Path(__file__).with_name("backbones.toml").read_text(encoding="utf-8"))


def count_parameters(backbone: str) -> int:
    """How many parameters a backbone has."""
    if backbone not in load_backbones():
        raise ValueError(
            f"{REAL / backbone}: add the backbone and its number of parameters to covrag_lite/tables/backbones.toml"
        )
    return load_backbones()[backbone]["parameters"]


def load(root: Path = config.ROOT) -> Sizes:
    """The recorded runs on real questions; the data need not be at hand."""
    runs = {run.folder.relative_to(root) / run.table: run for run in find_under(root / REAL, root)}
    return gather({place: load_or_outcomes(run) for place, run in runs.items() if kind_of(place) in KINDS})


def kind_of(place: Path) -> str:
    """Of results/real/<backbone>/<kind>-<number>/table2, or one of the former recipe, the kind; else nothing."""
    known = any(place.match(str(REAL / middle / "*-*" / "table2")) for middle in ("*", "former/*"))
    return place.parent.name.partition("-")[0] if known else ""


def gather(bases: Mapping[Path, object]) -> Sizes:
    """Of all predictions by their place those that the figure is made from; all must have asked the same questions."""
    found: dict[str, dict[str, dict[str, pd.DataFrame]]] = {kind: {} for kind in KINDS}
    for place, predictions in bases.items():
        kind, number = kind_of(place), place.parent.name.partition("-")[2]
        if kind in found:
            frame = to_frame(predictions)
            if kind == "longer" or set(SYSTEMS[1:]) <= set(frame.system):
                found[kind].setdefault(place.parent.parent.name, {})[number] = frame
    seeds, longer = found["seed"], {name: found["longer"].get(name, {}) for name in found["seed"]}
    asked = {frozenset(frame.id) for name in seeds for frame in (*seeds[name].values(), *longer[name].values())}
    if len(asked) > 1:
        raise ValueError(f"the runs of {', '.join(seeds)} asked different questions; Figure 4 needs the same ones")
    return Sizes({name: seeds[name] for name in sorted(seeds, key=count_parameters)}, longer)


def build(sizes: Sizes) -> Table:
    """The figure, and every mean over seeds as facts, a backbone told by its millions of parameters."""
    long, facts = size_table(sizes), {}
    for row in long[long.seed == MEAN].itertuples():
        name = f"{row.parameters / 1e6:.0f}M {row.what} {row.measure}"
        value, _, interval = with_interval(FORMS[row.measure], row.value, row.low, row.high).partition(" ")
        facts |= {name: minus(value), f"{name} interval": minus(interval), f"{name} n": str(row.n)}
    return Table("figure4", long, facts=facts, plot=partial(plot, long), digits=3)


def size_table(sizes: Sizes) -> pd.DataFrame:
    """The long form: a row a backbone, measure, what is measured and seed, and one for the mean of the seeds."""
    rows = []
    for backbone, frames in sizes.frames.items():
        about = (backbone, count_parameters(backbone))
        controls = _controls(frames, sizes.longer.get(backbone, {}))
        rows += [(*about, *row) for row in (*_shares(frames), *_areas(frames), *controls)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _shares(frames: Mapping[str, pd.DataFrame]) -> Iterator[tuple]:
    """One backbone's accuracies and gains over all questions together, in % and points."""
    right = {seed: _right(frame) for seed, frame in frames.items()}
    for system in SYSTEMS:
        if all(system in table for table in right.values()):
            yield from _by_seed("accuracy", system, {seed: table[system] for seed, table in right.items()})
    for name, other in GAINS.items():
        gained = {seed: table["CoV-RAG"] - table[other] for seed, table in right.items()}
        yield from _by_seed("gain", name, gained)


def _right(frame: pd.DataFrame) -> pd.DataFrame:
    """Whether each system (a column) answers each question (a row) rightly."""
    known = frame[frame.normalised.notna()]
    return known.pivot(index="id", columns="system", values="normalised").astype(float)


def _controls(frames: Mapping[str, pd.DataFrame], longer: Mapping[str, pd.DataFrame]) -> Iterator[tuple]:
    """RAG trained for more epochs, and CoV-RAG, the mean of its seeds, beside it."""
    cov = pd.DataFrame({seed: _right(frame)["CoV-RAG"] for seed, frame in frames.items()}).dropna().mean(axis=1)
    for epochs, frame in sorted(longer.items()):
        rag = _right(frame)["RAG trained"]
        name = f"RAG trained for {epochs} epochs"
        yield from _by_seed("control", name, {MEAN: rag})
        yield from _by_seed("gain over control", name, {MEAN: (cov - rag).dropna()})


def _by_seed(measure: str, what: str, values: Mapping[str, pd.Series]) -> Iterator[tuple]:
    """Values a question as means with their intervals: of every seed, and of the questions' means over the seeds."""
    together = pd.DataFrame(values).dropna().mean(axis=1)
    for seed, one in {**values, MEAN: together}.items():
        yield measure, what, seed, len(one), *(100 * value for value in metrics.mean_bootstrap(one))


def _areas(frames: Mapping[str, pd.DataFrame]) -> Iterator[tuple]:
    """How well one backbone's judge, and what it is measured against, tell right first answers from wrong ones."""
    judged = {}
    for seed, frame in frames.items():
        rows = verifier.judged_rows(frame, "CoV-RAG").set_index("id")
        judged[seed] = rows.assign(both=rows.expected_correctness.rank() + rows.likelihood.rank())
    for what, column in JUDGES.items():
        known = {seed: rows[[column, "right"]].dropna() for seed, rows in judged.items()}
        for seed, rows in known.items():
            yield "AUROC", what, seed, len(rows), *metrics.auroc(rows[column], rows.right)
        shared = pd.concat(known, axis=1, join="inner")  # the questions that every seed has
        scores, right = (shared.xs(name, axis=1, level=1).T for name in (column, "right"))
        yield "AUROC", what, MEAN, len(shared), *metrics.mean_auroc(scores, right)


def wide(long: pd.DataFrame) -> pd.DataFrame:
    """The means of the seeds as a person reads them: a row a value, a column a backbone."""
    rows = long[long.seed == MEAN]
    cells = [with_interval(FORMS[row.measure], row.value, row.low, row.high) for row in rows.itertuples()]
    table = rows.assign(cell=cells).pivot(index=["measure", "what"], columns="backbone", values="cell")
    order = rows[["measure", "what"]].drop_duplicates().itertuples(index=False, name=None)
    return table.loc[list(order), list(dict.fromkeys(rows.backbone))].fillna("–")


def plot(long: pd.DataFrame, path: Path) -> "pictures.Figure":
    """A panel a measure: the mean of the seeds with its interval against the number of parameters, each seed a dot."""
    plt, _ = pictures.style(0.8)
    figure, panels = plt.subplots(1, len(PANELS), figsize=(18, 6.6), layout="constrained")
    for axes, (measure, label) in zip(panels, PANELS.items()):
        rows = long[long.measure == measure]
        names = list(dict.fromkeys(rows.what))
        for number, what in enumerate(names):
            _draw_series(axes, rows[rows.what == what], 1.11 ** (number - (len(names) - 1) / 2))
        if measure == "gain":
            _draw_control(axes, long[long.measure == "gain over control"])
        _label_sizes(axes, long)
        axes.set(ylabel=label)
        columns = 2 if len(names) == 4 else 3
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncol=columns, frameon=False)
    panels[0].set(title="Accuracy", ylim=(0, None))
    panels[1].set(title="The judge, beside the answer's likelihood")
    panels[2].set(title="What CoV-RAG gains over")
    panels[1].axhline(0.5, color=pictures.OTHER, ls="--", lw=1.5)
    panels[1].annotate("chance", (0.99, 0.5), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    panels[2].axhline(0, color=pictures.OTHER, ls="--", lw=1.5)
    sizes = long[long.measure == "accuracy"].n
    figure.suptitle(f"Figure 4: one recipe, by the size of the backbone; real questions, n = {sizes.max()}")
    return pictures.save_picture(figure, path)


def _draw_series(axes: "pictures.Axes", rows: pd.DataFrame, shift: float) -> None:
    """One system, judge or gain: a line through the means, and the seeds where there are several."""
    what = rows.what.iloc[0]
    judges = {"judge": palette()["CoV-RAG"], "both": pictures.DARK}
    colour = palette().get(GAINS.get(what, what)) or judges.get(what, pictures.OTHER)
    means, single = rows[rows.seed == MEAN], rows[rows.seed != MEAN]
    span = [means.value - means.low, means.high - means.value]
    style = dict(marker="o", ms=9, lw=1.5, elinewidth=2, capsize=4, color=colour, label=what)
    axes.errorbar(means.parameters * shift, means.value, span, **style)
    several = single[single.groupby("backbone").seed.transform("nunique") > 1]
    axes.plot(several.parameters * shift * 1.04, several.value, "o", ms=5, mfc="white", mec=colour, zorder=4)


def _draw_control(axes: "pictures.Axes", rows: pd.DataFrame) -> None:
    """CoV-RAG beside RAG trained for the most epochs, where that was recorded."""
    if len(rows):
        last = rows.sort_values("what").groupby("backbone").last()
        span = [last.value - last.low, last.high - last.value]
        style = dict(fmt="s", ms=9, mfc="white", elinewidth=2, capsize=4, color=pictures.DARK)
        axes.errorbar(last.parameters * 1.25, last.value, span, label="RAG trained longer", **style)


def _label_sizes(axes: "pictures.Axes", long: pd.DataFrame) -> None:
    """Backbones along a logarithmic axis, with how many seeds each was trained."""
    from matplotlib.ticker import NullLocator

    places, labels = [], []
    for backbone, rows in long.groupby("backbone", sort=False):
        n = rows[rows.seed != MEAN].seed.nunique()
        places.append(rows.parameters.iloc[0])
        labels.append(f"{load_backbones()[backbone]['label']}\n{n} seed{'s' * (n > 1)}")
    axes.set_xscale("log")
    axes.set_xticks(places, labels)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(places) / 1.6, max(places) * 1.6)
    axes.grid(axis="x", visible=False)
