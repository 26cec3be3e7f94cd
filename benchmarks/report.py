"""Recorded speed: its facts, tables and figures, and what a replication costs on a rented GPU."""

import json
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import pandas as pd

from benchmarks.measurements import (
    MEMORY,
    best,
    find_frames,
    load_frames,
    load_holding,
    load_peers,
    load_speed,
)
from covrag_lite.config import ROOT, resolve
from covrag_lite.runs.outcomes import load_predictions, to_frame
from covrag_lite.systems import adapter_of, palette
from covrag_lite.tables import Table
from covrag_lite.tables.pictures import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RECORDED = "speed-h200"  # the folder under results/ whose figures are committed
# What training must reach on a CUDA GPU.
WANTED = {"smollm2": 3.0, "7b": 1.9, "13b": 1.9}  # times the tokens per second of "plain", rounded
USEFUL = 0.97  # share of all computed tokens that are not padding
FORMS = {  # how prose writes a number of a column; one decimal for all others
    "memory_ratio": "{:.2f}",
    "ours_memory": "{:.2f}",
    "as_lean_faster": "{:.2f}",
    "as_lean_steady": "{:.2f}",
    "of_limit": "{:.2f}",
    "row": "{:,.0f}",
    "away_row": "{:,.0f}",
    "tokens_per_second": "{:,.0f}",
    "steady": "{:,.0f}",
    "per_second": "{:,.0f}",
    "same": "{:.0f}",
    "parsed": "{:.0f}",
    "n": "{:.0f}",
    "batch": "{:,.0f}",
    "queries_per_second": "{:,.0f}",
    "index_seconds": "{:.0f}",
    "index_mb": "{:.0f}",
}
# The cost of a replication: the work of one recorded run, at measured rates.
PRICE = 3.0  # of a GPU hour, in dollars: an assumption
WORK = "real/qwen2.5-coder-1.5b/seed-3"  # the recorded run whose work is counted
OF_TABLE2 = 121.7 / 72.3  # seconds of Tables 2, 4, 5 and 6 over those of Table 2, measured once
SHAPES = {"smollm2": "smollm2-135m", "7b": "7b shape", "13b": "7b shape"}  # measured in answering

# How tables and figures call models and settings; the records keep their own names.
MODELS = {"smollm2": "SmolLM2-135M", "1.5b": "1.5B", "7b": "7B", "13b": "13B"}
SETTINGS = (  # each part of a recorded name, and its label
    ("plain, prepared by peft", "plain, fp32 as in peft's guide"),
    ("plain, once more", "plain, measured again"),
    ("packed alone", "plain + packing"),
    ("unpacked", "16-bit weights"),
    ("all kept", "activations kept"),
    ("quarter kept", "a quarter of activations kept"),
    ("16k", "rows of 16,384"),
    ("8k", "rows of 8,192"),
    ("4k", "rows of 4,096"),
    ("2k", "rows of 2,048"),
    ("ours away leanest", "ours, offloaded, rows of 2,048"),
    ("ours away", "ours, offloaded"),
    ("no graph", "no CUDA graph"),
)
# Where answering is compared: model, file, table in it and row of vLLM; then task, table and row.
BY_VLLM = (
    ("SmolLM2-135M", "inference.vllm.smollm2-135m.json", "vllm, 135M", "vLLM merged"),
    ("Qwen2.5-Coder-1.5B", "inference.vllm.qwen2.5-coder-1.5b.json", "vllm, 1544M", "vLLM"),
)
BY_GENERATE = (("answers", "batches", "batches"), ("verdicts", "verdicts", "forced"))
ENGINES = ("10,000", "100,000", "1,000,000")  # passages


def label_setting(name: str) -> str:
    """Return the label of a recorded setting.

    >>> label_setting("ours, unpacked, all kept, 8k")
    'ours, 16-bit weights, activations kept, rows of 8,192'
    """
    for part, label in SETTINGS:
        name = name.replace(part, label)
    return name


def label_model(shape: str) -> str:
    """Return the label of a recorded model shape."""
    return MODELS.get(shape, shape)


def facts(folder: Path) -> dict[str, str]:
    """Return every number of a folder of measured speed that prose may use, as prose writes it."""
    return facts_of_speed(folder) | facts_of_cost(folder)


def facts_of_speed(folder: Path) -> dict[str, str]:
    """Return what was measured: training, other programs, cards and answering.

    A dot in a name is written as a hyphen, because templates do not allow dots in braces.
    """
    rows = {}
    if (folder / "training.json").exists():
        trained, _ = load_speed(folder / "training.json")
        for row in trained.to_dict("records"):
            rows[f"{row['shape']} {row['variant']}"] = row
    for row in load_peers(folder).to_dict("records"):
        rows[f"{row['shape']}, {row['samples']}, {row['way']}"] = row
    for row in load_holding(folder).to_dict("records"):
        names = [name for name in ("row", "away_row", "batch") if is_size(row.get(name))]
        sizes = {name: float(row[name]) for name in names}
        rows[f"{row['backbone']} in {row['card_gb']:g} GB"] = row | sizes
    for frames, _ in map(load_frames, find_frames(folder)):
        for part, frame in frames.items():
            for name, row in frame.to_dict("index").items():
                rows[f"{part} {name}"] = row
    by_name = {}
    for name, row in rows.items():
        for column, value in row.items():
            if isinstance(value, float) and pd.notna(value):
                form = FORMS.get(column, "{:.1f}")
                by_name[f"{name} {column}".replace(".", "-")] = form.format(value)
    return by_name


def is_size(value: object) -> bool:
    """Return whether a value is a number of tokens or prompts, not a word."""
    return isinstance(value, int | float) and pd.notna(value)


def facts_of_cost(speed: Path, price: float = PRICE) -> dict[str, str]:
    """Return the cost of a replication; nothing if its parts were not measured."""
    if not (speed / "training.json").exists() or not (speed.parent / WORK).exists():
        return {}
    by_name = {"price of an hour": f"{price:.2f}"}
    for shape, row in replication(speed, price).iterrows():
        stages = ("training", "data", "tables")
        by_name |= {f"{shape} {stage}": _time(row[stage]) for stage in stages}
        by_name[f"{shape} together"] = _time(3600 * row.hours)
        by_name[f"{shape} price"] = f"{row.price:.2f}"
    work = count_work(speed.parent / WORK)
    return by_name | {f"work {name}": f"{n:,}" for name, n in work.items()}


def _time(seconds: float) -> str:
    """Write a time in minutes, or in hours from 90 minutes on."""
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def replication(speed: Path, price: float = PRICE) -> pd.DataFrame:
    """Return one row per backbone: seconds of each stage, hours in total, and the price.

    `speed` is a folder of measured speed under results/. 13B was measured in training only. Its
    answers are assumed to be slower than 7B's by the same factor as its training.
    """
    work = count_work(speed.parent / WORK)
    trained = best(load_speed(speed / "training.json")[0]).set_index("shape").tokens_per_second
    frames, _ = load_frames(speed / "inference.json")
    rows = {}
    for shape, measured in SHAPES.items():
        slower = 1.0 if measured != "7b shape" else trained["7b"] / trained[shape]
        answer = _seconds_each(frames, "batches", measured) * slower
        verdict = _seconds_each(frames, "verdicts", measured) * slower
        seconds = {
            "training": work["tokens"] / trained[shape],
            "data": work["synthesis"] * answer,
            "tables": OF_TABLE2 * (work["answers"] * answer + work["verdicts"] * verdict),
        }
        hours = sum(seconds.values()) / 3600
        rows[shape] = {**seconds, "hours": hours, "price": hours * price}
    return pd.DataFrame.from_dict(rows, orient="index")


def count_work(run: Path) -> dict[str, int]:
    """Count one backbone's work: training tokens, texts for D2′, answers and verdicts of Table 2.

    Five adapters are trained: `cov`, `cov-direct` on as many tokens, `rag`, and two seed models on
    half of its data each. Each verdict of D2′ needs one answer of a seed model and, if that is
    wrong, three texts from which revised questions are proposed: at most four texts.
    """
    tokens, samples = {}, {}
    for name in ("cov", "rag"):
        tokens[name] = pd.read_csv(run / f"train.{name}.losses.csv").tokens.sum()
        manifest = json.loads((run / f"train.{name}.json").read_text())
        samples[name] = manifest["data"]["samples"]["n"]
    frame = to_frame(load_predictions(run / "table2.predictions.jsonl.xz"))
    by_system = frame.assign(asked=1).groupby("system")[["asked", "revised", "verdicts"]].sum()
    texts = by_system.groupby(adapter_of).max()  # systems with the same adapter share its texts
    return {
        "tokens": int(2 * tokens["cov"] + 2 * tokens["rag"]),
        "synthesis": 4 * (samples["cov"] - samples["rag"]),
        "answers": int(texts.asked.sum() + texts.revised.sum()),
        "verdicts": int(texts.verdicts.sum()),
    }


def _seconds_each(frames: dict[str, pd.DataFrame], part: str, measured: str) -> float:
    """Return the seconds per text in a batch."""
    row = frames[f"{part}, {measured}"].loc["forced" if part == "verdicts" else "batches"]
    return row.seconds / row.n


def compare_with_plain(speed: Path) -> pd.DataFrame:
    """Return our fastest setting per model within 0.6 of the memory of plain training."""
    rows = best(load_speed(speed / "training.json")[0])
    cells = {
        "model": rows["shape"].map(label_model),
        "our setting": rows.variant.map(label_setting).str.removeprefix("ours, "),
        "times as fast as plain": rows.speed_ratio.map("{:.1f}".format),
        "share of plain's memory": rows.memory_ratio.map("{:.2f}".format),
        "peak (GB)": rows.peak_gb.map("{:.1f}".format),
        "useful tokens/s": rows.tokens_per_second.map("{:,.0f}".format),
    }
    return pd.DataFrame(cells).set_index("model")


def compare_with_peers(speed: Path) -> pd.DataFrame:
    """Return one row per other training program: its speed and memory, and ours relative to it."""
    peers = load_peers(speed)
    if peers.empty:
        return peers
    rows = peers[~peers.way.str.startswith("ours") & peers.tokens_per_second.notna()]
    rows = rows.sort_values(["shape", "samples"], key=lambda names: names.map(str.lower))
    forms = {
        "tokens_per_second": ("tokens/s", "{:,.0f}"),
        "peak_gb": ("peak (GB)", "{:.2f}"),
        "ours_faster": ("ours: times as fast", "{:.2f}"),
        "ours_memory": ("ours: times its memory", "{:.2f}"),
        "as_lean_faster": ("ours, at no more memory: times as fast", "{:.2f}"),
    }
    cells = {"model": rows["shape"].map(label_model), "samples": rows.samples, "program": rows.way}
    for name, (heading, form) in forms.items():
        cells[heading] = rows[name].map(form.format, na_action="ignore").astype(object).fillna("–")
    return pd.DataFrame(cells).set_index(["model", "samples", "program"])


def compare_cards(speed: Path) -> pd.DataFrame:
    """Return what cards of 12 and 24 GB hold: the longest training row and the largest batch."""
    rows = load_holding(speed)
    if rows.empty:
        return rows
    works = {
        "training": ("row", "tokens per training row"),
        "away": ("away_row", "the same, offloaded"),
        "answering": ("batch", "prompts per batch"),
    }
    caps = rows.card_gb.map("{:g} GB".format)
    cells = {"model": rows.backbone.map(label_model), "memory cap": caps}
    for work, (size, heading) in works.items():
        pairs = zip(rows[size], rows[f"{work}_peak_gb"])
        cells[heading] = [_with_peak(n, peak) for n, peak in pairs]
    return pd.DataFrame(cells).set_index(["model", "memory cap"])


def _with_peak(size: object, peak: float) -> str:
    """Write a size with its peak memory; a recorded word stays as it is."""
    return f"{size:,.0f} ({peak:.1f} GB)" if is_size(size) else str(size)


def compare_answering(speed: Path) -> pd.DataFrame:
    """Return how fast answers and verdicts are, compared with `generate` and with vLLM."""
    rows = []
    frames, _ = load_frames(speed / "inference.json")
    for task, part, ours in BY_GENERATE:
        for shape, model in (("smollm2-135m", "SmolLM2-135M"), ("7b shape", "7B shape")):
            frame = frames[f"{part}, {shape}"]
            other = frame.faster.eq(1).idxmax()  # the row that all others are compared with
            rates = [frame.n[name] / frame.seconds[name] for name in (ours, other)]
            rows.append((task, model, "transformers generate", *rates, frame.faster[ours]))
    for model, file, part, other in BY_VLLM:
        frame = load_frames(speed / file)[0][part]
        for task in ("answers", "verdicts", "two rounds"):
            ours, theirs = frame.loc[f"{task}, ours"], frame.loc[f"{task}, {other}"]
            rates = ours.per_second, theirs.per_second
            rows.append((task, model, "vLLM", *rates, theirs.ours_faster))
    columns = ["task", "model", "compared with", "ours, per second", "theirs, per second"]
    table = pd.DataFrame(rows, columns=[*columns, "times as fast"])
    form = "{:,.1f}".format
    numbers = {name: table[name].map(form) for name in table.columns[3:]}
    return table.assign(**numbers).set_index(["task", "model", "compared with"])


def compare_engines(results: Path) -> pd.DataFrame:
    """Return CPU milliseconds per query of word search engines, one row per engine."""
    frame = load_frames(results / "speed-engines" / "inference.json")[0]["words"]
    names = frame.index.str.extract(r"(?P<engine>.*), (?P<passages>[\d,]+) passages")
    frame = frame.assign(engine=names.engine.to_numpy(), passages=names.passages.to_numpy())
    pivot = frame.pivot(index="engine", columns="passages")
    times = pivot.cpu_ms_per_query
    cells = {f"ms, {size} passages": times[size].map("{:,.1f}".format) for size in ENGINES}
    cells["found of BM25's top 5"] = (100 * pivot.recall["100,000"]).map("{:.0f} %".format)
    cells["GB to index a million"] = (pivot.index_peak_mb["1,000,000"] / 1000).map("{:.1f}".format)
    return pd.DataFrame(cells).replace("nan", "–").loc[frame.engine.unique()]


def show_figure(speed: Path, folder: Path, end: str) -> object:
    """Show a figure of recorded speed: the committed one, or a new one for another record."""
    from IPython.display import Image

    path = ROOT / "figures" / "embedded" / f"speed.{end}"
    if speed != resolve("results") / RECORDED:
        path = folder / f"speed.{end}"
        build(speed).plots[end](path)
    return Image(filename=path, width=900)


def plot_speed(frame: pd.DataFrame, machine: str, path: Path) -> "Figure":
    """Plot speed and memory of each setting relative to plain, with one row of panels per model."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.7)
    shapes = list(dict.fromkeys(frame["shape"]))
    heights = [(frame["shape"] == shape).sum() + 1 for shape in shapes]
    figure, panels = plt.subplots(
        len(shapes),
        2,
        figsize=(11.5, 0.46 * sum(heights) + 1.4),
        squeeze=False,
        layout="constrained",
        sharey="row",
        gridspec_kw={"height_ratios": heights, "width_ratios": [3, 2]},
    )
    for (left, right), shape in zip(panels, shapes):
        rows = frame[frame["shape"] == shape][::-1]
        _plot_bars(left, rows, "speed_ratio", "{:.1f}×", WANTED.get(shape))
        _plot_bars(right, rows, "memory_ratio", "{:.2f}", MEMORY)
        left.set_title(f"{label_model(shape)}: speed relative to plain", loc="left")
        right.set_title("GPU memory relative to plain", loc="left")
    title = f"Training on {machine.split(',')[0]} (plain: transformers + peft; dashed: our target)"
    figure.suptitle(title)
    return save_picture(figure, path)


def _plot_bars(
    axes: "Axes",
    rows: pd.DataFrame,
    column: str,
    form: str,
    target: float | None,
) -> None:
    """Draw one panel: a labelled bar per setting, and a line at the target."""
    values = rows[column].astype(float)
    colours = [_colour_of(variant) for variant in rows.variant]
    labels = ["" if pd.isna(value) else form.format(value) for value in values]
    settings = [fill(label_setting(variant), 36) for variant in rows.variant]
    bars = axes.barh(settings, values.fillna(0), color=colours)
    if target and values.notna().any():
        axes.axvline(target, color="#333333", ls="--", lw=1.5)
    box = dict(fc="white", ec="none", pad=1)
    axes.bar_label(bars, labels, padding=5, bbox=box)
    axes.margins(x=0.22)
    axes.grid(axis="y", visible=False)


def _colour_of(variant: str) -> str:
    if variant.startswith("ours"):
        return palette()["CoV-RAG"]
    if variant.startswith("packed"):
        return palette()["RAG"]
    return palette()["closed-book"]


def plot_losses(frame: pd.DataFrame, path: Path) -> "Figure":
    """Plot the loss of each training program by step; all train on the same rows in the same order.

    There is one panel per model and kind of samples. Of our settings, the default and the
    offloaded one are drawn.
    """
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.7)
    shown = ~frame.way.str.startswith("ours") | frame.way.isin(["ours", "ours away"])
    measured = frame[frame.losses.notna() & shown]
    groups = list(measured.groupby(["shape", "samples"], sort=False))
    n_rows = max(1, (len(groups) + 1) // 2)
    size = (11, 3.2 * n_rows + 0.6)
    figure, panels = plt.subplots(n_rows, 2, figsize=size, squeeze=False, layout="constrained")
    styles = ["-", "--", ":", "-."]
    ways = list(dict.fromkeys(measured.way))
    colours = dict(zip(ways, sns.color_palette("colorblind", 12)))  # the same in every panel
    lines = {}
    for panel, ((shape, samples), rows) in zip(panels.flat, groups):
        for row in rows.itertuples():
            steps = range(1, len(row.losses) + 1)
            look = {"ls": styles[ways.index(row.way) % 4], "color": colours[row.way], "lw": 2.5}
            (lines[label_setting(row.way)],) = panel.plot(steps, row.losses, **look)
        panel.set_title(f"{label_model(shape)}, {samples}", loc="left")
        panel.set(xlabel="step", ylabel="loss")
    for panel in panels.flat[len(groups) :]:
        panel.set_axis_off()
    if lines:
        place = dict(loc="outside lower center", ncol=len(lines), frameon=False)
        figure.legend(lines.values(), lines, **place)
    return save_picture(figure, path)


def build(folder: Path) -> Table:
    """Build the facts of a folder of measured speed, and figures if it measured training."""
    plots = {}
    if (folder / "training.json").exists():
        plots["training.png"] = partial(plot_speed, *load_speed(folder / "training.json"))
        peers = load_peers(folder)
        if len(peers):
            plots["losses.png"] = partial(plot_losses, peers)
    return Table("speed", pd.DataFrame(), facts=facts(folder), plots=plots)
