"""The paper's numbers, and ours beside them: long tables, paired comparisons, notes.

Everything is made from the tidy frame of `evaluation.to_frame`; percentages throughout, as in the paper.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config

NAMES = {"nq": "NQ", "webq": "WebQ", "mintaka": "Mintaka", "triviaqa": "TriviaQA", "average": "Average"}
# One colour a system in every picture, and the order of the rows: grey without retrieval, blues for plain retrieval, orange for rewriting first, greens for CoV-RAG.
PALETTE = {
    "closed-book": "#9a9a9a",
    "RAG": "#5b8fd0",
    "Start-Revise": "#e0893a",
    "CoV-RAG untrained": "#c9b458",
    "RAG trained": "#28559a",
    "CoV-RAG w/o chain": "#b07aa1",
    "CoV-RAG-S": "#8fca8f",
    "Start-Revise trained": "#b5651d",
    "CoV-RAG thresholds": "#1b5e3b",
    "CoV-RAG shuffled": "#c0504d",
    "CoV-RAG": "#2e8b57",
}
# Table 2 of the paper, for each of our systems the row that is nearest to it; CoV-RAG-S is there only drawn, in Figure 4.
PAPER = {
    "closed-book": ("GPT-3 text-davinci-003", {"nq": 29.9, "webq": 41.5, "average": 35.7}),
    "RAG": (
        "ChatGPT gpt-3.5-turbo-0125",
        {"nq": 58.5, "webq": 63.8, "mintaka": 74.0, "triviaqa": 88.0, "average": 71.1},
    ),
    "Start-Revise": (
        "RRR gpt-4-1106-preview",
        {"nq": 33.3, "webq": 40.8, "mintaka": 53.5, "triviaqa": 68.8, "average": 49.1},
    ),
    "RAG trained": (
        "WebGLM Llama2-13b",
        {"nq": 62.8, "webq": 68.3, "mintaka": 77.3, "triviaqa": 86.8, "average": 73.8},
    ),
    "CoV-RAG": ("CoV-RAG Llama2-13b", {"nq": 66.0, "webq": 68.5, "mintaka": 78.5, "triviaqa": 87.5, "average": 75.1}),
}
# Table 4 was measured with GPT-4 over DuckDuckGo; Table 5 with Llama2-13b, w/o and w/ chain.
TABLE4 = {
    "CoV-RAG-S": ("No-Revise gpt-4-1106-preview", {"nq": 57.5, "webq": 60.8, "mintaka": 72.5, "triviaqa": 84.5}),
    "Start-Revise trained": (
        "Start-Revise gpt-4-1106-preview",
        {"nq": 33.3, "webq": 40.8, "mintaka": 53.5, "triviaqa": 68.8},
    ),
    "CoV-RAG": ("End-Revise gpt-4-1106-preview", {"nq": 58.3, "webq": 61.0, "mintaka": 72.8, "triviaqa": 84.8}),
}
TABLE5 = {
    "CoV-RAG w/o chain": {"judge": 56.0, "revise": 45.8, "format": 99.8, "single": 62.5, "multi": 63.6, "delta": 0.9},
    "CoV-RAG": {"judge": 60.0, "revise": 54.2, "format": 99.5, "single": 65.8, "multi": 67.3, "delta": 2.5},
}
# Table 3 of the paper: mean ranks by GPT-4. Its weaker WebGLM stands beside our untrained RAG, which is no copy of it.
PAPER_RANKS = {
    "RAG": (
        "WebGLM GLM-10b",
        {"citation_accuracy": 1.51, "correctness": 1.34, "truthfulness": 1.22, "bias": 2.45, "conciseness": 2.86},
    ),
    "RAG trained": (
        "WebGLM Llama2-13b",
        {"citation_accuracy": 1.90, "correctness": 1.25, "truthfulness": 1.17, "bias": 2.43, "conciseness": 2.44},
    ),
    "CoV-RAG-S": (
        "CoV-RAG-S Llama2-13b",
        {"citation_accuracy": 1.50, "correctness": 1.21, "truthfulness": 1.16, "bias": 1.91, "conciseness": 1.77},
    ),
    "CoV-RAG": ("CoV-RAG Llama2-13b", {"correctness": 1.20, "truthfulness": 1.15, "bias": 1.89, "conciseness": 1.76}),
}
# Figure 4 is only drawn; these are the averages of Table 2 for the backbones that stand there too.
FIGURE4 = {
    "ChatGLM2-6b": {"RAG trained": 71.0, "CoV-RAG": 72.2},
    "Vicuna-13b": {"RAG trained": 71.1, "CoV-RAG": 74.8},
    "Llama2-13b": {"RAG trained": 73.8, "CoV-RAG": 75.1},
}
PAIRS = (
    ("closed-book", "RAG"),
    ("RAG", "Start-Revise"),
    ("RAG", "RAG trained"),
    ("RAG trained", "CoV-RAG-S"),
    ("RAG trained", "CoV-RAG"),
    ("CoV-RAG-S", "CoV-RAG"),
    ("CoV-RAG-S", "Start-Revise trained"),
    ("Start-Revise trained", "CoV-RAG"),
    ("CoV-RAG w/o chain", "CoV-RAG"),
    ("CoV-RAG shuffled", "CoV-RAG"),
)


def accuracy_table(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """The long form of an accuracy table: one row a system, set and metric, with n, interval and the paper's value."""
    rows, known = [], {"table4": TABLE4}.get(table, PAPER)
    for metric in metrics.METRICS:
        scored = frame[frame[metric].notna()]
        for system in sorted(scored.system.unique(), key=list(PALETTE).index):
            group = scored[scored.system == system]
            counts = {
                dataset: (int(one[metric].sum()), len(one)) for dataset, one in group.groupby("dataset", sort=False)
            }
            cells = {dataset: (right / n, *metrics.wilson(right, n)) for dataset, (right, n) in counts.items()}
            cells["average"] = metrics.mean_interval(list(counts.values()))
            for dataset, (value, low, high) in cells.items():
                n = len(group) if dataset == "average" else counts[dataset][1]
                paper = known.get(system, ("", {}))[1].get(dataset)
                rows.append(
                    (
                        table,
                        dataset,
                        system,
                        group.backbone.iloc[0],
                        metric,
                        n,
                        100 * value,
                        100 * low,
                        100 * high,
                        paper,
                    )
                )
    return pd.DataFrame(
        rows, columns=["table", "dataset", "system", "backbone", "metric", "n", "value", "low", "high", "paper"]
    )


def wide(long: pd.DataFrame, metric: str | None = "normalised") -> pd.DataFrame:
    """The same table as a person reads it: a row a system, a column a set, `ours [low–high] (paper)` in each cell; for None a column a metric."""
    rows = long[long.metric == metric] if metric else long.assign(dataset=long.metric)
    paper = rows.paper.map(lambda value: "" if pd.isna(value) else f" ({value:.1f})")
    cell = rows.value.map("{:.1f}".format) + rows.low.map(" [{:.0f}–".format) + rows.high.map("{:.0f}]".format) + paper
    table = rows.assign(cell=cell, dataset=rows.dataset.map(lambda name: NAMES.get(name, name)))
    order = list(dict.fromkeys(table.dataset))
    return (
        table.pivot(index="system", columns="dataset", values="cell")
        .loc[list(dict.fromkeys(table.system)), order]
        .fillna("–")
    )


def compare(frame: pd.DataFrame, pairs: Sequence[tuple[str, str]] = PAIRS) -> pd.DataFrame:
    """Systems two by two on the same questions: difference with its interval, gained, lost, McNemar's exact p."""
    rows = []
    for metric in metrics.METRICS:
        right = frame[frame[metric].notna()].pivot(index="id", columns="system", values=metric)
        for a, b in pairs:
            if {a, b} <= set(right.columns):
                x, y = right[a].astype(bool).tolist(), right[b].astype(bool).tolist()
                difference, low, high = metrics.paired_bootstrap(x, y)
                gained, lost, p = metrics.mcnemar(x, y)
                rows.append(
                    (
                        f"{a} → {b}",
                        metric,
                        len(x),
                        f"{100 * difference:+.1f}",
                        f"[{100 * low:+.1f}, {100 * high:+.1f}]",
                        gained,
                        lost,
                        f"{p:.3f}",
                    )
                )
    return pd.DataFrame(
        rows, columns=["comparison", "metric", "n", "difference", "95 % interval", "gained", "lost", "McNemar p"]
    )


def notes(frame: pd.DataFrame) -> list[str]:
    """What must stand under an accuracy table: what did not parse, what cannot be scored, what the revision did."""
    one = frame[frame.system == frame.system.iloc[0]]
    lines = [
        f"{int(one.normalised.isna().sum())} of {len(one)} questions have gold answers that normalise to nothing; they count in raw only."
    ]
    for system, rows in frame.groupby("system", sort=False):
        if rows.verdicts.sum():
            lines.append(
                f"{system}: {rows.unparsed.sum()} of {rows.verdicts.sum()} verdicts did not parse; judged true {(rows.judgment == 'true').sum()}, "
                f"false {(rows.judgment == 'false').sum()}, unclear {(rows.judgment == 'unclear').sum()}."
            )
            changed = rows[rows.revised & rows.normalised.notna()]
            helped = int((changed.normalised.astype(bool) & ~changed.first_normalised.astype(bool)).sum())
            hurt = int((~changed.normalised.astype(bool) & changed.first_normalised.astype(bool)).sum())
            lines.append(
                f"{system}: {int(rows.revised.sum())} questions were revised; that helped {helped}, hurt {hurt} and left {len(changed) - helped - hurt} as they were."
            )
        if rows.found_first.notna().any() and system != "closed-book":
            gold = (
                f", a gold passage for {100 * rows.gold_last.dropna().mean():.0f} %"
                if rows.gold_last.notna().any()
                else ""
            )
            lines.append(
                f"{system}: the last retrieval holds an answer for {100 * rows.found_last.dropna().mean():.0f} % of the questions{gold}."
            )
    return lines


def judgment_table(frame: pd.DataFrame, system: str = "CoV-RAG") -> tuple[pd.DataFrame, str]:
    """The verifier against the truth: the confusion matrix of judgment and first answer, and its accuracy beside the majority's."""
    rows = frame[(frame.system == system) & (frame.judgment.fillna("") != "") & frame.first_normalised.notna()]
    truth = rows.first_normalised.astype(bool)
    confusion = pd.crosstab(
        truth.map({True: "answer right", False: "answer wrong"}).rename("first answer"), rows.judgment
    )
    right = int(((rows.judgment == "true") == truth).sum())
    low, high = metrics.wilson(right, len(rows))
    majority = max(truth.mean(), 1 - truth.mean())
    return confusion, (
        f"{system}: the judgment is right for {100 * right / len(rows):.1f} % of {len(rows)} answers [{100 * low:.1f}, {100 * high:.1f}]; "
        f"always saying the more frequent one would be right for {100 * majority:.1f} %"
    )


def reference_delta(frame: pd.DataFrame, system: str = "CoV-RAG") -> pd.DataFrame:
    """What re-retrieval does to the share of questions with a gold passage: all, broken and two-hop ones, and well-put ones."""
    rows = frame[(frame.system == system) & frame.gold_first.notna()]
    broken, two_hop = rows.kind.str.contains("+", regex=False), rows.kind == "two-hop"
    made = []
    for name, part in (
        ("all", rows),
        ("broken wording", rows[broken]),
        ("two-hop", rows[two_hop]),
        ("well put", rows[~broken & ~two_hop]),
    ):
        if len(part):
            first, last = part.gold_first.astype(bool).tolist(), part.gold_last.astype(bool).tolist()
            delta, low, high = metrics.paired_bootstrap(first, last)
            made.append(
                (
                    name,
                    len(part),
                    int(part.revised.sum()),
                    f"{100 * sum(first) / len(part):.1f}",
                    f"{100 * sum(last) / len(part):.1f}",
                    f"{100 * delta:+.1f}",
                    f"[{100 * low:+.1f}, {100 * high:+.1f}]",
                )
            )
    return pd.DataFrame(
        made, columns=["questions", "n", "revised", "gold before", "gold after", "delta", "95 % interval"]
    )


def title(table: str, config: Config, long: pd.DataFrame) -> str:
    """What stands over the picture of an accuracy table."""
    sizes = long[long.dataset != "average"].n
    size = f"{sizes.min()} each" if sizes.nunique() == 1 else f"{sizes.min()} to {sizes.max()}"
    return f"{table.replace('table', 'Table ')}: {config.model.model} on {config.data.data}'s sets, n = {size}"


def save_table(folder: Path, table: str, long: pd.DataFrame, comparison: pd.DataFrame, lines: Sequence[str]) -> str:
    """Write `<table>.csv` and, readable, `<table>.md`; returns the latter's text."""
    folder.mkdir(parents=True, exist_ok=True)
    long.to_csv(folder / f"{table}.csv", index=False, float_format="%.2f", lineterminator="\n")
    texts = [
        f"Accuracy in %, {metric}: ours [95 % interval] (the paper)\n\n{to_markdown(wide(long, metric).reset_index())}"
        for metric in metrics.METRICS
    ]
    texts += [
        f"Paired comparisons on the same questions\n\n{to_markdown(comparison)}",
        "\n".join(f"- {line}" for line in lines),
    ]
    text = "\n\n".join(texts) + "\n"
    (folder / f"{table}.md").write_text(text)
    return text


def save_chain(folder: Path, long: pd.DataFrame, rules: pd.DataFrame, lines: Sequence[str]) -> str:
    """Write Table 5 likewise: the table, what each rule does with a second answer, and the counts behind them."""
    folder.mkdir(parents=True, exist_ok=True)
    long.to_csv(folder / "table5.csv", index=False, float_format="%.2f", lineterminator="\n")
    text = (
        "\n\n".join(
            [
                f"Shares in %: ours [95 % interval] (the paper)\n\n{to_markdown(wide(long, None).reset_index())}",
                f"What to do with a second answer\n\n{to_markdown(rules)}",
                "\n".join(f"- {line}" for line in lines),
            ]
        )
        + "\n"
    )
    (folder / "table5.md").write_text(text)
    return text


def to_markdown(frame: pd.DataFrame) -> str:
    """A frame as an aligned Markdown table."""
    cells = [
        [str(name) for name in frame.columns],
        *([str(value) for value in row] for row in frame.itertuples(index=False)),
    ]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])
