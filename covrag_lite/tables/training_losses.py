"""The recorded losses of training, L_RAG and L_CoV, by adapter."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from covrag_lite.config import ROOT
from covrag_lite.systems import names, palette
from covrag_lite.tables import pictures
from covrag_lite.tables.labels import label_of

LOSS_RUN = ROOT / "results" / "real" / "qwen2.5-coder-1.5b" / "seed-3"  # has all four adapters
ADAPTER_SYSTEMS = {  # an adapter -> the system that shows its label and colour
    "rag": names.RAG_TRAINED,
    "cov": names.COV_RAG,
    "cov-direct": names.NO_CHAIN,
    "rewrite": names.START_REVISE_TRAINED,
}
TASK_TITLES = {"loss_answer": "answers: loss L_RAG", "loss_verify": "verdicts: loss L_CoV"}
TASK_NAMES = {"loss_answer": "answers", "loss_verify": "verdicts"}
SMOOTHED_STEPS = 25  # of a moving average


def load_losses(run: Path = LOSS_RUN) -> dict[str, pd.DataFrame]:
    """Load the recorded losses of a run, one frame per adapter."""
    files = {adapter: run / f"train.{adapter}.losses.csv" for adapter in ADAPTER_SYSTEMS}
    return {adapter: pd.read_csv(file) for adapter, file in files.items() if file.exists()}


def summarise_losses(losses: Mapping[str, pd.DataFrame], last: int = 50) -> pd.DataFrame:
    """Return one row per adapter: steps, tokens, first losses and the mean of the last ones."""
    rows = {}
    for adapter, frame in losses.items():
        row = {"steps": len(frame), "tokens (millions)": round(frame.tokens.sum() / 1e6, 1)}
        for column, task in TASK_NAMES.items():
            has_task = frame[column].notna().any()
            first_loss = frame[column].iloc[0]
            last_loss = frame[column].iloc[-last:].mean()
            row[f"{task}: first loss"] = f"{first_loss:.2f}" if has_task else "–"
            row[f"{task}: last {last}"] = f"{last_loss:.2f}" if has_task else "–"
        rows[label_of_adapter(adapter)] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("adapter")


def label_of_adapter(adapter: str) -> str:
    """Return the label of an adapter, such as "cov: CoV-RAG"; seed models keep their names."""
    if adapter not in ADAPTER_SYSTEMS:
        return adapter
    return f"{adapter}: {label_of(ADAPTER_SYSTEMS[adapter])}"


def plot_losses(losses: Mapping[str, pd.DataFrame], path: Path) -> "pictures.Figure":
    """Plot the loss of each adapter by step, smoothed, with one panel per task."""
    plt, _ = pictures.style(0.7)
    tasks = []
    for task in TASK_TITLES:
        if any(frame[task].notna().any() for frame in losses.values()):
            tasks.append(task)
    size = (5.6 * len(tasks), 4.2)
    figure, panels = plt.subplots(1, len(tasks), figsize=size, squeeze=False, layout="constrained")
    for axes, task in zip(panels[0], tasks):
        for adapter, frame in losses.items():
            draw_adapter(axes, adapter, frame[frame[task].notna()], task)
        axes.set(xlabel="step", title=TASK_TITLES[task])
        use_log_scale(axes)
        axes.legend(frameon=False)
    panels[0][0].set_ylabel(f"loss per target token\n(mean of {SMOOTHED_STEPS} steps)")
    return pictures.save_picture(figure, path)


def draw_adapter(axes: "pictures.Axes", adapter: str, rows: pd.DataFrame, task: str) -> None:
    """Draw the smoothed loss of one adapter; nothing if it does not learn this task."""
    if rows.empty:
        return
    look = {"ls": ":"}
    if adapter in ADAPTER_SYSTEMS:
        look = {"color": palette()[ADAPTER_SYSTEMS[adapter]]}
    smooth = rows[task].rolling(SMOOTHED_STEPS, min_periods=1).mean()
    axes.plot(rows.step, smooth, lw=2, label=label_of_adapter(adapter), **look)


def use_log_scale(axes: "pictures.Axes") -> None:
    """Give the losses a logarithmic axis with ticks at 1, 2 and 5."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
