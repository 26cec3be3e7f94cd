"""The tables of notebooks/speed.ipynb: our speed and memory compared with other programs."""

from pathlib import Path

import pandas as pd

from covrag_lite.tables.speed.labels import label_model, label_setting
from covrag_lite.tables.speed.records import (
    ANSWERING_FILE,
    is_size,
    load_answering,
    load_cards,
    load_peers,
    load_training,
    select_fastest,
)

# How answering is compared with `generate`: a task, its part of the record, and our row there.
GENERATE_PARTS = (("answers", "batches", "batches"), ("verdicts", "verdicts", "forced"))
GENERATE_MODELS = (("smollm2-135m", "SmolLM2-135M"), ("7b shape", "7B shape"))
# How answering is compared with vLLM: a model, its file, its part of the record, and vLLM's row.
VLLM_RECORDS = (
    ("SmolLM2-135M", "inference.vllm.smollm2-135m.json", "vllm, 135M", "vLLM merged"),
    ("Qwen2.5-Coder-1.5B", "inference.vllm.qwen2.5-coder-1.5b.json", "vllm, 1544M", "vLLM"),
)
VLLM_TASKS = ("answers", "verdicts", "two rounds")
CORPUS_SIZES = ("10,000", "100,000", "1,000,000")  # passages
PEER_FORMATS = {  # column of the record -> heading and format
    "tokens_per_second": ("tokens/s", "{:,.0f}"),
    "peak_gb": ("peak (GB)", "{:.2f}"),
    "ours_faster": ("ours: times as fast", "{:.2f}"),
    "ours_memory": ("ours: times its memory", "{:.2f}"),
    "as_lean_faster": ("ours, at no more memory: times as fast", "{:.2f}"),
}
CARD_COLUMNS = {  # column of the record with a size -> column with its peak, and heading
    "row": ("training_peak_gb", "tokens per training row"),
    "away_row": ("away_peak_gb", "the same, offloaded"),
    "batch": ("answering_peak_gb", "prompts per batch"),
}
# The tables of a live measurement.
LIVE_PEER_FORMATS = {
    "tokens_per_second": ("tokens per second", "{:,.0f}"),
    "steady": ("fastest step", "{:,.0f}"),
    "peak_gb": ("peak", "{:.2f} GB"),
    "of_limit": ("of the limit", "{:.2f}"),
    "ours_faster": ("ours_faster", "{:.2f}"),
    "ours_memory": ("ours_memory", "{:.2f}"),
    "as_lean": ("as_lean", "{}"),
    "as_lean_faster": ("as_lean_faster", "{:.2f}"),
    "last_loss": ("last loss", "{:.3f}"),
}
COUNT_COLUMNS = ("n", "same", "parsed")  # integers, some missing


def compare_with_plain(speed: Path) -> pd.DataFrame:
    """Return our fastest setting per model within 0.6 of the memory of plain training."""
    settings, _ = load_training(speed)
    rows = select_fastest(settings)
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
    cells = {"model": rows["shape"].map(label_model), "samples": rows.samples, "program": rows.way}
    cells |= format_columns(rows, PEER_FORMATS)
    return pd.DataFrame(cells).fillna("–").set_index(["model", "samples", "program"])


def format_columns(rows: pd.DataFrame, formats: dict[str, tuple[str, str]]) -> dict[str, pd.Series]:
    """Return those of the columns that the rows have, as texts by their headings."""
    cells = {}
    for name, (heading, text) in formats.items():
        if name in rows:
            cells[heading] = rows[name].map(text.format, na_action="ignore").astype(object)
    return cells


def compare_cards(speed: Path) -> pd.DataFrame:
    """Return what cards of 8, 12 and 24 GB hold: the longest training row and the largest batch."""
    rows = load_cards(speed)
    if rows.empty:
        return rows
    caps = rows.card_gb.map("{:g} GB".format)
    cells = {"model": rows.backbone.map(label_model), "memory cap": caps}
    for name, (peak_name, heading) in CARD_COLUMNS.items():
        pairs = zip(rows[name], rows[peak_name])
        cells[heading] = [format_size(size, peak) for size, peak in pairs]
    return pd.DataFrame(cells).set_index(["model", "memory cap"])


def format_size(size: object, peak: float) -> str:
    """Write a size with its peak memory; a recorded word stays as it is."""
    return f"{size:,.0f} ({peak:.1f} GB)" if is_size(size) else str(size)


def compare_answering(speed: Path) -> pd.DataFrame:
    """Return how fast answers and verdicts are, compared with `generate` and with vLLM."""
    rows = compare_with_generate(speed) + compare_with_vllm(speed)
    columns = ["task", "model", "compared with", "ours, per second", "theirs, per second"]
    table = pd.DataFrame(rows, columns=[*columns, "times as fast"])
    for name in table.columns[3:]:
        table[name] = table[name].map("{:,.1f}".format)
    return table.set_index(["task", "model", "compared with"])


def compare_with_generate(speed: Path) -> list[tuple]:
    """Return the rows of `compare_answering` for `generate` of transformers."""
    frames = load_answering(speed / ANSWERING_FILE)
    rows = []
    for task, part, our_row in GENERATE_PARTS:
        for shape, model in GENERATE_MODELS:
            frame = frames[f"{part}, {shape}"]
            baseline = frame.faster.eq(1).idxmax()  # the row that all others are compared with
            rates = frame.n / frame.seconds
            about = (task, model, "transformers generate")
            rows.append((*about, rates[our_row], rates[baseline], frame.faster[our_row]))
    return rows


def compare_with_vllm(speed: Path) -> list[tuple]:
    """Return the rows of `compare_answering` for vLLM."""
    rows = []
    for model, file, part, name in VLLM_RECORDS:
        frame = load_answering(speed / file)[part]
        for task in VLLM_TASKS:
            ours = frame.loc[f"{task}, ours"]
            theirs = frame.loc[f"{task}, {name}"]
            rates = (ours.per_second, theirs.per_second)
            rows.append((task, model, "vLLM", *rates, theirs.ours_faster))
    return rows


def compare_engines(results: Path) -> pd.DataFrame:
    """Return CPU milliseconds per query of word search engines, one row per engine."""
    frame = load_answering(results / "speed-engines" / ANSWERING_FILE)["words"]
    names = frame.index.str.extract(r"(?P<engine>.*), (?P<passages>[\d,]+) passages")
    frame = frame.assign(engine=names.engine.to_numpy(), passages=names.passages.to_numpy())
    pivot = frame.pivot(index="engine", columns="passages")
    cells = {}
    for size in CORPUS_SIZES:
        cells[f"ms, {size} passages"] = pivot.cpu_ms_per_query[size].map("{:,.1f}".format)
    cells["found of BM25's top 5"] = (100 * pivot.recall["100,000"]).map("{:.0f} %".format)
    cells["GB to index a million"] = (pivot.index_peak_mb["1,000,000"] / 1000).map("{:.1f}".format)
    return pd.DataFrame(cells).replace("nan", "–").loc[frame.engine.unique()]


def list_live_programs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return live training programs as a readable table, by samples; a dash means unknown."""
    if frame.empty:
        return frame
    groups = frame.groupby(["shape", "samples"], sort=False).ngroup()
    rows = frame.loc[groups.sort_values(kind="stable").index]
    table = pd.DataFrame(format_columns(rows, LIVE_PEER_FORMATS), index=rows.index).fillna("–")
    if "failure" in rows and rows.failure.notna().any():
        table["failure"] = rows.failure.astype(object).fillna("")
    return table.set_index(pd.MultiIndex.from_frame(rows[["shape", "samples", "way"]]))


def count_as_integers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return live rows of answering with their counts as integers; a row may lack some."""
    return frame.astype({name: "Int64" for name in COUNT_COLUMNS if name in frame})
