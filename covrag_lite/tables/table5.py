"""Table 5: verdicts with and without the chain of scores (Section 4.3 of the paper).

The same predictions answer two questions beyond the paper, shown in notebooks/controls.ipynb: what
to do with a second answer, and whether the judge beats simpler rules.
"""

from collections.abc import Sequence
from functools import partial

import pandas as pd

import covrag_lite.tables.paper as paper
from covrag_lite.records import Prediction
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables.accuracy import legend
from covrag_lite.tables.accuracy_picture import build_title, plot_accuracy
from covrag_lite.tables.chain import (
    CHAINS,
    FREE,
    chain_table,
    count_revisions,
    frame_of,
    score_effect,
)
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.labels import SMALL_SAMPLE, label_of, with_labels
from covrag_lite.tables.second_answers import compare_rules, format_rules
from covrag_lite.tables.table import Table
from covrag_lite.tables.verifier import judge_table
from covrag_lite.tables.verifier_facts import verifier_facts
from covrag_lite.tables.verifier_parts import split_judges

REAL = "real/qwen2.5-coder-1.5b/seed-3"  # the recorded run on real questions
WORLD = "table5-smollm2-135m-h200"  # the recorded run on all questions of the fictional world
MEASURE_LABELS = {
    "judge": "judge: the judgment is correct",
    "revise": "revise: needed, and found a gold passage",
    "format": "format: the verdict parses",
    "single": "single: the first answer is right",
    "multi": "multi: the last answer is right",
    "delta": "delta: gold passages gained, points",
}
ON_PAPER_SETS = "on the paper's questions"  # the end of facts about them


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Build Table 5, the judge next to simpler rules, and rules for a second answer."""
    frame = frame_of(predictions)
    on_paper_sets = frame[frame.dataset.isin(paper.PUBLISHED)]
    long = chain_table(frame)
    of_paper = chain_table(on_paper_sets)
    rules = compare_rules(predictions)
    heading = "Counts" if long.n.max() < SMALL_SAMPLE else f"Shares in %: {legend(long)}"
    parts = {heading: with_labels(wide(long)).reset_index()}
    if len(of_paper) and set(frame.dataset) - paper.PUBLISHED:
        heading = f"The same on the paper's own questions: {legend(of_paper)}"
        parts[heading] = with_labels(wide(of_paper)).reset_index()
    parts |= split_judges(compare_judges(frame))
    parts[f"What to do with a second answer, n = {rules.n.max()}"] = format_rules(rules)
    facts = verifier_facts(frame) | chain_facts(long, of_paper)
    facts |= effect_facts(frame) | effect_facts(on_paper_sets, ON_PAPER_SETS)
    facts |= majority_facts(of_paper) | rule_facts(rules)
    drawn = of_paper if of_paper.paper.notna().any() else long
    plot = partial(plot_accuracy, drawn, picture_title(drawn, run), metric=None)
    return Table("table5", long, parts, chain_notes(frame), facts, {"png": plot})


def compare_judges(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare the judge of each row of Table 5 with simpler rules, by wording."""
    tables = {system: judge_table(frame, system) for system in CHAINS}
    return pd.concat(tables, names=["system"]).reset_index("system").reset_index(drop=True)


# How the table is shown.


def wide(long: pd.DataFrame) -> pd.DataFrame:
    """Return Table 5 as people read it: one row per system, one column per measure.

    A cell is `ours [low–high] (paper)`, or a count such as `5 of 8` for a small sample.
    """
    cells = []
    for row in long.itertuples():
        of_paper = "" if pd.isna(row.paper) else f" ({row.paper:.1f})"
        cells.append(format_cell(row) + of_paper)
    table = long.assign(cell=cells).set_index(["system", "metric"]).cell
    return table.unstack(sort=False).fillna("–").rename_axis(columns=None)


def format_cell(row: tuple) -> str:
    """Return our value of one row of the long table."""
    if row.n < SMALL_SAMPLE:
        sign = "+" if row.metric == "delta" else ""
        return f"{round(row.value * row.n / 100):{sign}d} of {row.n}"
    return f"{row.value:.1f} [{row.low:.0f}–{row.high:.0f}]"


def next_to_paper(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's own questions: one row per measure, per system its value and ours."""
    long = chain_table(frame[frame.dataset.isin(paper.PUBLISHED)])
    long = long.assign(ours=[format_cell(row) for row in long.itertuples()])
    long["paper"] = ["–" if pd.isna(value) else f"{value:.1f}" for value in long.paper]
    columns = {}
    for system, rows in long.groupby("system", sort=False):
        for column in ("paper", "ours", "n"):
            columns[label_of(system), column] = rows.set_index("metric")[column]
    return pd.DataFrame(columns).rename(index=MEASURE_LABELS).rename_axis("in %")


def picture_title(long: pd.DataFrame, run: Recorded) -> str:
    """Return the picture's title: last answers with and without scores, model and questions."""
    accuracies = long[long.metric == "multi"].set_index("system").value
    result = ""
    if set(CHAINS) <= set(accuracies.index):
        without_scores, with_scores = accuracies[list(CHAINS)]
        shares = f"{without_scores:.1f} % without scores, {with_scores:.1f} % with scores"
        result = f"Last answers right: {shares}\n"
    if long.paper.notna().any():
        questions = f"the paper's own NQ and WebQ questions, n = {long.n.max()}"
        return f"{result}Table 5: {run.config.model.short},\n{questions}"
    return build_title("table5", run.config, long, result)


def chain_notes(frame: pd.DataFrame) -> list[str]:
    """Return the counts behind Table 5's shares."""
    lines = []
    verified = frame[frame.normalised.notna() & frame.verdicts.gt(0)]
    for system, rows in verified.groupby("system", sort=False):
        unparsed = f"{rows.unparsed.sum()} of {rows.verdicts.sum()} verdicts did not parse."
        line = f"{label_of(system)}: {unparsed}"
        if system not in FREE:  # those only count for the format rate
            needed, revised, both, good = count_revisions(rows)
            line += (
                f" {needed} questions needed a revision (wrong answer, no gold passage);"
                f" {revised} were revised, of which {both} needed it"
                f" and {good} then found a gold passage."
            )
        lines.append(line)
    return lines


# Facts.


def chain_facts(long: pd.DataFrame, of_paper: pd.DataFrame) -> dict[str, str]:
    """Return every measure as a fact, also on the paper's own questions."""
    forms = {"": "{value:.1f}", "interval": "[{low:.1f}, {high:.1f}]"}
    facts = facts_of_rows(long, "{system} {metric}", forms)
    name = f"{{system}} {{metric}} {ON_PAPER_SETS}"
    return facts | facts_of_rows(of_paper, name, forms | {"n": "{n}"})


def effect_facts(frame: pd.DataFrame, where: str = "") -> dict[str, str]:
    """Return the effect of the scores on each measure as facts; none if a system is missing."""
    if not set(CHAINS) <= set(frame.system):
        return {}
    forms = {"": "{ours}", "interval": "{95 % interval}", "p": "{McNemar p}"}
    name = f"effect of scores on {{measure}} {where}".strip()
    return facts_of_rows(score_effect(frame), name, forms)


def majority_facts(of_paper: pd.DataFrame) -> dict[str, str]:
    """Return what a constant judgment scores on the paper's own questions as facts."""
    facts = {}
    for row in of_paper[of_paper.metric == "single"].itertuples():
        majority = max(row.value, 100 - row.value)
        facts[f"{row.system} majority {ON_PAPER_SETS}"] = f"{majority:.1f}"
    return facts


def rule_facts(rules: pd.DataFrame) -> dict[str, str]:
    """Return accuracy and harm of each rule as facts; of an oracle or control only the kind."""
    by_kind = rules.assign(rule=rules.rule.str.partition(":")[0])
    return facts_of_rows(by_kind, "{rule}", {"accuracy": "{accuracy:.1f}", "hurt": "{hurt}"})
