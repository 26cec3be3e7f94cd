"""Table 5: verdicts with and without the chain of scores (Section 4.3 of the paper).

The same predictions answer two questions beyond the paper, shown in notebooks/controls.ipynb: what
to do with a second answer (`policies`), and whether the judge beats simpler rules (`verifier`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from covrag_lite import metrics
from covrag_lite.labels import SMALL_SAMPLE, format_p, label_of, with_labels
from covrag_lite.method import by_thresholds, keep_likelier
from covrag_lite.records import Prediction, Round
from covrag_lite.runs.outcomes import outcome_of, to_frame
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import Table, accuracy, paper, verifier

REAL = "real/qwen2.5-coder-1.5b/seed-3"  # the recorded run on real questions
WORLD = "table5-smollm2-135m-h200"  # the recorded run on all questions of the fictional world
CHAINS = ("CoV-RAG w/o chain", "CoV-RAG")  # the rows of Table 5
CONTROL = "CoV-RAG shuffled"  # searches with another question's revised question
FREE = tuple(f"{name} free" for name in CHAINS)  # verdicts decoded freely, for the format rate
MAX_ROUNDS = 3  # one more than the paper's, for rules that choose among answers
RANK = {"": -1, "false": 0, "unclear": 1, "true": 2}
MEASURES = {  # the columns of Table 5, as a reader needs them
    "judge": "judge: the judgment is correct",
    "revise": "revise: needed, and found a gold passage",
    "format": "format: the verdict parses",
    "single": "single: the first answer is right",
    "multi": "multi: the last answer is right",
    "delta": "delta: gold passages gained, points",
}
PAIRED = ("judge", "single", "multi")  # measures that both systems have for every question
RULES = {  # how `rule_table` calls the rules of `policies`
    "never revise": "first answer (never search again)",
    "replace, 2 rounds at most (the paper)": "last of at most 2 answers (the paper)",
    "replace, 3 rounds at most": "last of at most 3 answers",
    "keep the better verified of 2": "of 2 answers, the one with the better verdict",
    "keep the better verified of 3": "of 3 answers, the one with the best verdict",
    "keep the likelier of 2": "of 2 answers, the one with the higher likelihood",
    "replace where the paper's thresholds are crossed": "search again by the paper's thresholds",
    "oracle: the better of 2": "oracle choice of 2 answers",
    "control: replace after another question's revision": "control: another question's search",
}


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Table 5, the judge next to simpler rules, what to do with a second answer, and counts."""
    frame = frame_of(predictions)
    on_paper_sets = frame[frame.dataset.isin(paper.PUBLISHED)]
    long, of_paper = chain_table(frame), chain_table(on_paper_sets)
    rules = policies(predictions)
    small = long.n.max() < SMALL_SAMPLE
    heading = "Counts" if small else f"Shares in %: {accuracy.legend(long)}"
    parts = {heading: with_labels(wide(long)).reset_index()}
    if len(of_paper) and set(frame.dataset) - paper.PUBLISHED:
        heading = f"The same on the paper's own questions: {accuracy.legend(of_paper)}"
        parts[heading] = with_labels(wide(of_paper)).reset_index()
    parts |= verifier.split_judges(judges_of(frame))
    parts[f"What to do with a second answer, n = {rules.n.max()}"] = rule_table(rules)
    forms = {"": "{value:.1f}", "interval": "[{low:.1f}, {high:.1f}]"}
    facts = verifier.facts(frame)
    facts |= accuracy.tell_rows(long, "{system} {metric}", forms)
    on_sets = "on the paper's questions"
    facts |= accuracy.tell_rows(of_paper, f"{{system}} {{metric}} {on_sets}", forms | {"n": "{n}"})
    facts |= effect_facts(frame) | effect_facts(on_paper_sets, on_sets)
    for row in of_paper[of_paper.metric == "single"].itertuples():  # what a constant judgment scores
        facts[f"{row.system} majority {on_sets}"] = f"{max(row.value, 100 - row.value):.1f}"
    named = rules.assign(rule=rules.rule.str.partition(":")[0])
    facts |= accuracy.tell_rows(named, "{rule}", {"accuracy": "{accuracy:.1f}", "hurt": "{hurt}"})
    shown = of_paper if of_paper.paper.notna().any() else long
    plot = partial(accuracy.plot_accuracy, shown, title(shown, run), metric=None)
    return Table("table5", long, parts, chain_notes(frame), facts, {"png": plot})


def title(long: pd.DataFrame, run: Recorded) -> str:
    """The picture's title: the last answers with and without scores, model and questions."""
    last = long[long.metric == "multi"].set_index("system").value
    result = ""
    if set(CHAINS) <= set(last.index):
        without, with_scores = last[list(CHAINS)]
        shares = f"{without:.1f} % without scores, {with_scores:.1f} % with scores"
        result = f"Last answers right: {shares}\n"
    if long.paper.notna().any():
        questions = f"the paper's own NQ and WebQ questions, n = {long.n.max()}"
        return f"{result}Table 5: {run.config.model.short},\n{questions}"
    return accuracy.title("table5", run.config, long, result)


def cut(prediction: Prediction, max_rounds: int) -> Prediction:
    """The prediction under a smaller `max_rounds`; the last answer of a full run has no verdict."""
    rounds = prediction.rounds[:max_rounds]
    if len(rounds) == max_rounds:
        rounds = (*rounds[:-1], replace(rounds[-1], verdict=None))
    return replace(prediction, rounds=rounds)


def frame_of(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """The frame behind Table 5: at most two rounds, as in the paper."""
    return to_frame([cut(p, 2) for p in predictions])


def chain_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Table 5 in long form, with and without the chain of scores.

    judge   the judgment is "true" exactly where the first answer is right
    revise  of the questions that were revised or needed it (wrong first answer, no gold passage
            found): revised, needed, and the revised question finds a gold passage
    format  freely decoded verdicts that parse
    single, multi   the first and the last answer is right
    delta   questions with a gold passage after the second search minus before it
    Where the data names no gold passage, a passage that contains a gold answer counts.
    """
    cells = []
    for system in CHAINS:
        rows = frame[(frame.system == system) & frame.normalised.notna()]
        if rows.empty:
            continue
        of_paper = paper.find_values("table5", system, rows.dataset.unique())
        free = frame[frame.system == f"{system} free"]
        right = outcomes(rows)
        right["revise"] = revisions(rows).good
        right["format"] = free.unparsed[free.verdicts > 0] == 0
        values = {name: (len(part), *accuracy.share(part)) for name, part in right.items()}
        delta = metrics.paired_interval(held(rows, "first").tolist(), held(rows, "last").tolist())
        values["delta"] = (len(rows), *(100 * value for value in delta))
        about = ("table5", "all", system, rows.backbone.iloc[0])
        for metric in MEASURES:
            if not values[metric][0]:  # no verdict was decoded freely, or nothing was revised
                continue
            cells.append((*about, metric, *values[metric], of_paper.get(metric)))
    return pd.DataFrame(cells, columns=accuracy.COLUMNS)


def outcomes(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Per question of one system: judgment correct, first answer right, last answer right."""
    right = rows.first_normalised.astype(bool)
    judged = rows.judgment.fillna("") != ""
    return {
        "judge": ((rows.judgment == "true") == right)[judged],
        "single": right,
        "multi": rows.normalised.astype(bool),
    }


def revisions(rows: pd.DataFrame) -> pd.DataFrame:
    """Questions that were revised or needed it; `good` were both and found a gold passage."""
    needed = ~rows.first_normalised.astype(bool) & ~held(rows, "first")
    good = needed & rows.revised & held(rows, "last")
    return rows.assign(needed=needed, good=good)[needed | rows.revised]


def held(frame: pd.DataFrame, when: str) -> pd.Series:
    """Did the "first" or "last" search find a gold passage or, if none is named, an answer?"""
    gold = frame[f"gold_{when}"]
    return gold.where(gold.notna(), frame[f"found_{when}"]).astype(bool)


def wide(long: pd.DataFrame) -> pd.DataFrame:
    """Table 5 as a person reads it: one row per system, one column per measure.

    A cell is `ours [low–high] (paper)`, or a count such as `5 of 8` for a small sample.
    """
    cells = []
    for row in long.itertuples():
        of_paper = "" if pd.isna(row.paper) else f" ({row.paper:.1f})"
        cells.append(format_cell(row) + of_paper)
    table = long.assign(cell=cells).set_index(["system", "metric"]).cell
    return table.unstack(sort=False).fillna("–").rename_axis(columns=None)


def format_cell(row: tuple) -> str:
    """Our value of one row of the long table."""
    if row.n < SMALL_SAMPLE:
        sign = "+" if row.metric == "delta" else ""
        return f"{round(row.value * row.n / 100):{sign}d} of {row.n}"
    return f"{row.value:.1f} [{row.low:.0f}–{row.high:.0f}]"


def next_to_paper(frame: pd.DataFrame) -> pd.DataFrame:
    """The paper's own questions: one row per measure, per system the paper's value and ours."""
    long = chain_table(frame[frame.dataset.isin(paper.PUBLISHED)])
    long = long.assign(ours=[format_cell(row) for row in long.itertuples()])
    long["paper"] = ["–" if pd.isna(value) else f"{value:.1f}" for value in long.paper]
    columns = {}
    for system, rows in long.groupby("system", sort=False):
        for column in ("paper", "ours", "n"):
            columns[label_of(system), column] = rows.set_index("metric")[column]
    return pd.DataFrame(columns).rename(index=MEASURES).rename_axis("in %")


def score_effect(frame: pd.DataFrame) -> pd.DataFrame:
    """What the chain of scores changes, in points: with minus without, on the same questions."""
    by_system, of_paper = {}, {}
    for system in CHAINS:
        rows = frame[(frame.system == system) & frame.normalised.notna()]
        by_system[system] = outcomes(rows.set_index(["dataset", "id"]))
        of_paper[system] = paper.find_values("table5", system, rows.dataset.unique())
    effects = []
    for measure in PAIRED:
        columns = {system: by_system[system][measure] for system in CHAINS}
        both = pd.concat(columns, axis=1, join="inner")
        without, with_scores = (both[system].tolist() for system in CHAINS)
        before, after = (of_paper[system].get(measure) for system in CHAINS)
        difference, interval = accuracy.format_difference(without, with_scores)
        gained, lost, p = metrics.mcnemar(without, with_scores)
        effects.append(
            {
                "measure": measure,
                "paper": "–" if None in (before, after) else f"{after - before:+.1f}",
                "ours": difference,
                "95 % interval": interval,
                "gained": gained,
                "lost": lost,
                "McNemar p": format_p(p),
                "n": len(both),
            }
        )
    return pd.DataFrame(effects)


def effect_facts(frame: pd.DataFrame, where: str = "") -> dict[str, str]:
    """The effect of the scores on each measure, as facts; none if a system is missing."""
    if not set(CHAINS) <= set(frame.system):
        return {}
    forms = {"": "{ours}", "interval": "{95 % interval}", "p": "{McNemar p}"}
    name = f"effect of scores on {{measure}} {where}".strip()
    return accuracy.tell_rows(score_effect(frame), name, forms)


def chain_notes(frame: pd.DataFrame) -> list[str]:
    """The counts behind Table 5's shares."""
    lines = []
    verified = frame[frame.normalised.notna() & frame.verdicts.gt(0)]
    for system, rows in verified.groupby("system", sort=False):
        parsed = f"{rows.unparsed.sum()} of {rows.verdicts.sum()} verdicts did not parse."
        lines.append(f"{label_of(system)}: {parsed}")
        if system in FREE:  # these only count for the format rate
            continue
        needed, revised, both, good = count_revisions(rows)
        lines[-1] += (
            f" {needed} questions needed a revision (wrong answer, no gold passage);"
            f" {revised} were revised, of which {both} needed it"
            f" and {good} then found a gold passage."
        )
    return lines


def count_revisions(rows: pd.DataFrame) -> list[int]:
    """One system's questions that needed a revision, were revised, both, and then found gold."""
    part = revisions(rows)
    both = part.needed & part.revised
    return [int(column.sum()) for column in (part.needed, part.revised, both, part.good)]


def revision_table(frame: pd.DataFrame, systems: Sequence[str] = CHAINS) -> pd.DataFrame:
    """The counts behind "revise": one row per system."""
    scored = frame[frame.normalised.notna()]
    counts = {system: count_revisions(scored[scored.system == system]) for system in systems}
    headers = ["needed a revision", "revised", "both", "both, and found a gold passage"]
    table = pd.DataFrame.from_dict(counts, orient="index", columns=headers)
    return with_labels(table.rename_axis("system"))


def example(predictions: Sequence[Prediction]) -> list[Prediction]:
    """The first question that both systems of Table 5 revise and then answer right: a pair."""
    pairs: dict[str, dict[str, Prediction]] = {}
    for prediction in predictions:
        if prediction.system in CHAINS:
            short = cut(prediction, 2)
            pairs.setdefault(prediction.question.id, {})[prediction.system] = short
    for pair in pairs.values():
        both = [pair[system] for system in CHAINS if system in pair]
        if len(both) == len(CHAINS) and all(p.revised and is_right(p, -1) for p in both):
            return both
    return []


def policies(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """What to do with a second answer: one row per rule, all applied to the same predictions."""
    scored = [p for p in predictions if outcome_of(p).normalised is not None]
    cov = [p for p in scored if p.system == "CoV-RAG"]
    control = [p for p in scored if p.system == CONTROL]
    depths = [2, 3] if any(len(p.rounds) >= 3 for p in cov) else [2]  # what was run
    last = {rounds: last_of(cov, rounds) for rounds in (1, *depths)}
    rows = [_policy("never revise", cov, last[1], last[1])]
    for rounds in depths:
        name = f"replace, {rounds} rounds at most{' (the paper)' if rounds == 2 else ''}"
        rows.append(_policy(name, cov, last[rounds], last[rounds]))
    for rounds in depths:
        if all(a_round.verdict for p in cov for a_round in p.rounds[:rounds]):
            better = [better_verified(p.rounds[:rounds]) for p in cov]
            rows.append(_policy(f"keep the better verified of {rounds}", cov, better, last[rounds]))
    if all(a_round.likelihood is not None for p in cov for a_round in p.rounds):
        likelier = [range(n + 1)[keep_likelier(p.rounds[:2])] for p, n in zip(cov, last[2])]
        rows.append(_policy("keep the likelier of 2", cov, likelier, last[2]))
    crossed = [int(p.revised and by_thresholds(p.rounds[0])) for p in cov]
    rows.append(_policy("replace where the paper's thresholds are crossed", cov, crossed, crossed))
    right = [max(range(n + 1), key=partial(is_right, p)) for p, n in zip(cov, last[2])]
    rows.append(_policy("oracle: the better of 2", cov, right, last[2]))
    if control:
        second = last_of(control, 2)
        name = "control: replace after another question's revision"
        rows.append(_policy(name, control, second, second))
    columns = ["rule", "n", "accuracy", "low", "high", "helped", "hurt", "left", "searches"]
    return pd.DataFrame(rows, columns=columns).round(1)


def rule_table(rules: pd.DataFrame) -> pd.DataFrame:
    """The rules of `policies` as people read them, compared with the first answer."""
    cells = []
    for row in rules.itertuples():
        count = f"{round(row.accuracy * row.n / 100)} of {row.n}"
        share = f"{row.accuracy:.1f} [{row.low:.1f}, {row.high:.1f}]"
        cells.append(count if row.n < SMALL_SAMPLE else share)
    table = pd.DataFrame({"rule": rules.rule.replace(RULES), "right % [95 % interval]": cells})
    counts = rules[["helped", "hurt", "left", "searches"]]
    return table.join(counts.rename(columns={"left": "unchanged", "searches": "further searches"}))


def last_of(predictions: Sequence[Prediction], rounds: int) -> list[int]:
    """The number of each prediction's last round, from 0; also its count of further searches."""
    return [min(rounds, len(p.rounds)) - 1 for p in predictions]


def better_verified(rounds: Sequence[Round]) -> int:
    """The round with the best verdict: by judgment, then by correctness; of equals the later."""
    verdicts = [a_round.verdict for a_round in rounds]
    ranks = [(RANK[verdict.judgment], verdict.correctness or 0.0) for verdict in verdicts]
    return max(range(len(ranks)), key=lambda i: (ranks[i], i))


def is_right(prediction: Prediction, number: int) -> bool:
    """Is the answer of that round right after normalising?"""
    return bool(outcome_of(prediction, number).normalised)


def _policy(
    name: str,
    predictions: Sequence[Prediction],
    chosen: Sequence[int],
    searches: Sequence[int],
) -> tuple:
    """A rule's accuracy with the answers of the chosen rounds, against the first answers."""
    first = [is_right(p, 0) for p in predictions]
    now = [is_right(p, number) for p, number in zip(predictions, chosen)]
    gained, lost, _ = metrics.mcnemar(first, now)
    searched = sum(count > 0 for count in searches)
    unchanged = searched - gained - lost
    return name, len(now), *accuracy.share(now), gained, lost, unchanged, sum(searches)


def judges_of(frame: pd.DataFrame) -> pd.DataFrame:
    """The judge of each row of Table 5 next to simpler rules, by how the question is worded."""
    tables = {system: verifier.judge_table(frame, system) for system in CHAINS}
    return pd.concat(tables, names=["system"]).reset_index("system").reset_index(drop=True)
