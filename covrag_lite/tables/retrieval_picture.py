"""The picture of Table 6: shares before and after a revision, the paper's as diamonds."""

from pathlib import Path

import pandas as pd

from covrag_lite.systems import palette
from covrag_lite.systems.names import COV_RAG, COV_RAG_S
from covrag_lite.tables import pictures
from covrag_lite.tables.labels import SMALL_SAMPLE
from covrag_lite.tables.retrieval_shares import GROUPS, PAPER_MARK, RETRIEVER_LABELS

# Before and after: column, word, the system whose colour it has, and the shift of its bar.
SEARCHES = (("first", "before", COV_RAG_S, -0.2), ("last", "after", COV_RAG, 0.2))


def plot_retrieval(long: pd.DataFrame, title: str, path: Path) -> "pictures.Figure":
    """Plot the share before and after by retriever, one panel per set."""
    plt, _ = pictures.style(0.85)
    rows = long[(long.measure == "answer") & ~long.questions.isin(GROUPS)]
    sets = rows.questions.unique()
    options = dict(figsize=(6.5 * len(sets), 6), layout="constrained", sharey=True, squeeze=False)
    figure, panels = plt.subplots(1, len(sets), **options)
    for axes, name in zip(panels[0], sets):
        group = rows[rows.questions == name]
        draw_set(axes, group)
        n = group.n.max()
        sample = ", a sample" if n < SMALL_SAMPLE else ""
        axes.set(title=f"{name} (n = {n:.0f}{sample})", ylim=(0, 100))
        axes.grid(axis="x", visible=False)
    panels[0][0].set_ylabel("questions (%)")
    panels[0][-1].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    figure.suptitle(title)
    return pictures.save_picture(figure, path)


def draw_set(axes: "pictures.Axes", rows: pd.DataFrame) -> None:
    """Draw one panel: two bars or two diamonds per row, before and after the revision."""
    places = pd.Series(range(len(rows)), index=rows.index)
    is_ours = rows.n.notna()
    for column, word, system, shift in SEARCHES:
        names = {column: "value", f"{column}_low": "low", f"{column}_high": "high"}
        bars = rows[is_ours].rename(columns=names)
        middles = places[is_ours] + shift
        look = dict(color=palette()[system], label=f"{word} the revision")
        axes.bar(middles, bars.value, 0.38, **look)
        pictures.draw_intervals(axes, middles.tolist(), bars)
    if not is_ours.all():
        for column, word, system, shift in SEARCHES:
            look = {"mfc": palette()[system], "ms": 10, "label": f"the paper, {word}"}
            middles = places[~is_ours] + shift
            axes.plot(middles, rows[~is_ours][column], **pictures.DIAMOND | look)
    ticks = [RETRIEVER_LABELS.get(name, name.removesuffix(PAPER_MARK)) for name in rows.retriever]
    axes.set_xticks(places, ticks)
