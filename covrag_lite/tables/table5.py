"""Table 5: what the chain and the revision are worth (Section 4.3 of the paper), and rules that it does not have."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from covrag_lite import metrics
from covrag_lite.method import by_thresholds, keep_likelier
from covrag_lite.records import Prediction, Round
from covrag_lite.runs.outcomes import outcome_of, to_frame
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import Table, accuracy, paper, verifier
from covrag_lite.tables.labels import with_labels

CHAINS = ("CoV-RAG w/o chain", "CoV-RAG")  # the rows of Table 5
CONTROL = "CoV-RAG shuffled"  # searches with another question's revision
FREE = tuple(f"{name} free" for name in CHAINS)  # verdicts that run free, for the format rate
MAX_ROUNDS = 3  # one more than the paper's, for rules that choose among answers
RANK = {"": -1, "false": 0, "unclear": 1, "true": 2}


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Table 5: the table, the judge, what each rule does with a second answer, and the counts behind them."""
    frame = frame_of(predictions)
    long, rules = chain_table(frame), policies(predictions)
    of_paper = chain_table(frame[frame.dataset.isin(paper.PUBLISHED)])  # on the paper's own questions
    parts = {f"Shares in %: {accuracy.legend(long)}": with_labels(accuracy.wide(long, None)).reset_index()}
    if len(of_paper) and set(frame.dataset) - paper.PUBLISHED:
        heading = f"The same on the paper's own questions: {accuracy.legend(of_paper)}"
        parts[heading] = with_labels(accuracy.wide(of_paper, None)).reset_index()
    parts["The judge next to the majority, the wording only and the answer's likelihood"] = with_labels(
        judges_of(frame)
    )
    parts["What to do with a second answer"] = rules
    values = long.set_index(["system", "metric"]).value
    pair = [values.get((system, "multi")) for system in CHAINS]
    found = "" if None in pair else "Without the chain {:.1f} % are right in the end, with it {:.1f} %\n".format(*pair)
    plot = partial(accuracy.plot_accuracy, long, accuracy.title("table5", run.config, long, found), metric=None)
    facts = verifier.facts(to_frame(predictions))
    forms = {"": "{value:.1f}", "interval": "[{low:.1f}, {high:.1f}]"}
    facts |= accuracy.tell_rows(long, "{system} {metric}", forms)
    facts |= accuracy.tell_rows(of_paper, "{system} {metric} on the paper's questions", forms | {"n": "{n}"})
    named = rules.assign(rule=rules.rule.str.partition(":")[0])
    facts |= accuracy.tell_rows(named, "{rule}", {"accuracy": "{accuracy:.1f}", "hurt": "{hurt}"})
    return Table("table5", long, parts, chain_notes(frame), facts, {"png": plot})


def cut(prediction: Prediction, max_rounds: int) -> Prediction:
    """The prediction as it would be under a smaller `max_rounds`, whose last answer is never verified."""
    kept = prediction.rounds[:max_rounds]
    if len(kept) == max_rounds:
        kept = (*kept[:-1], replace(kept[-1], verdict=None))
    return replace(prediction, rounds=kept)


def frame_of(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """The frame that Table 5 is made from, of two rounds at most."""
    return to_frame([cut(p, 2) for p in predictions])


def chain_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Table 5 in long form, with and without the chain.

    judge   the judgment is "true" exactly where the first answer is right
    revise  of the questions that were revised or called for it (answer wrong, no gold passage found), those that were
            revised, called for it, and found a gold passage with the revised question
    format  free-running verdicts that parse
    single, multi   the first and the last answer is right
    delta   questions with a gold passage after re-retrieval minus before
    Where the data names no gold passage, one that holds a gold answer counts.
    """
    rows = []
    for system in CHAINS:
        own = frame[(frame.system == system) & frame.normalised.notna()]
        free = frame[frame.system == f"{system} free"]
        if own.empty:
            continue
        known = paper.find_values("table5", system, own.dataset.unique())
        right, judged = own.first_normalised.astype(bool), own.judgment.fillna("") != ""
        shares = {
            "judge": ((own.judgment == "true") == right)[judged],
            "revise": revisions(own).good,
            "format": free.unparsed[free.verdicts > 0] == 0,
            "single": right,
            "multi": own.normalised.astype(bool),
        }
        cells = {metric: (len(part), *accuracy.share(part)) for metric, part in shares.items() if len(part)}
        delta = metrics.paired_interval(held(own, "first").tolist(), held(own, "last").tolist())
        cells["delta"] = (len(own), *(100 * value for value in delta))
        for metric, cell in cells.items():
            rows.append(("table5", "all", system, own.backbone.iloc[0], metric, *cell, known.get(metric)))
    return pd.DataFrame(rows, columns=accuracy.COLUMNS)


def revisions(own: pd.DataFrame) -> pd.DataFrame:
    """One system's rows that were revised or called for it, wrong and without a gold passage; `good` found one."""
    called = ~own.first_normalised.astype(bool) & ~held(own, "first")
    return own.assign(called=called, good=called & own.revised & held(own, "last"))[called | own.revised]


def held(frame: pd.DataFrame, when: str) -> pd.Series:
    """Did the first or last retrieval hold a gold passage or, where the data names none, an answer?"""
    gold = frame[f"gold_{when}"]
    return gold.where(gold.notna(), frame[f"found_{when}"]).astype(bool)


def chain_notes(frame: pd.DataFrame) -> list[str]:
    """The counts behind Table 5's shares."""
    lines = []
    for system, own in frame[frame.normalised.notna() & frame.verdicts.gt(0)].groupby("system", sort=False):
        rows = revisions(own)
        lines.append(
            f"{system}: {own.unparsed.sum()} of {own.verdicts.sum()} verdicts did not parse; "
            f"{rows.called.sum()} questions called for a revision, {rows.revised.sum()} were revised, "
            f"{(rows.called & rows.revised).sum()} of them rightly; {rows.good.sum()} then found a gold passage."
        )
    return lines


def policies(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """What to do with a second answer: one row a rule, all applied to the same predictions."""
    scored = [p for p in predictions if outcome_of(p).normalised is not None]
    own = [p for p in scored if p.system == "CoV-RAG"]
    control = [p for p in scored if p.system == CONTROL]
    depths = [2, 3] if any(len(p.rounds) >= 3 for p in own) else [2]  # what was run
    last = {rounds: last_of(own, rounds) for rounds in (1, *depths)}
    rows = [_policy("never revise", own, last[1], last[1])]
    for rounds in depths:
        name = f"replace, {rounds} rounds at most{' (the paper)' if rounds == 2 else ''}"
        rows.append(_policy(name, own, last[rounds], last[rounds]))
    for rounds in depths:
        if all(one.verdict for p in own for one in p.rounds[:rounds]):
            better = [better_verified(p.rounds[:rounds]) for p in own]
            rows.append(_policy(f"keep the better verified of {rounds}", own, better, last[rounds]))
    if all(one.likelihood is not None for p in own for one in p.rounds):
        likelier = [range(n + 1)[keep_likelier(p.rounds[:2])] for p, n in zip(own, last[2])]
        rows.append(_policy("keep the likelier of 2", own, likelier, last[2]))
    crossed = [int(p.revised and by_thresholds(p.rounds[0])) for p in own]
    rows.append(_policy("replace where the paper's thresholds are crossed", own, crossed, crossed))
    right = [max(range(n + 1), key=partial(is_right, p)) for p, n in zip(own, last[2])]
    rows.append(_policy("oracle: the better of 2", own, right, last[2]))
    if control:
        second = last_of(control, 2)
        rows.append(_policy("control: replace after another question's revision", control, second, second))
    columns = ["rule", "n", "accuracy", "low", "high", "helped", "hurt", "left", "searches"]
    return pd.DataFrame(rows, columns=columns).round(1)


def last_of(predictions: Sequence[Prediction], rounds: int) -> list[int]:
    """The number of each prediction's last round among so many, which is also how often it searched again."""
    return [min(rounds, len(p.rounds)) - 1 for p in predictions]


def better_verified(rounds: Sequence[Round]) -> int:
    """The round whose verdict is best: by judgment, then by correctness; of equals the later."""
    seen = [one.verdict for one in rounds]
    return max(range(len(seen)), key=lambda i: (RANK[seen[i].judgment], seen[i].correctness or 0.0, i))


def is_right(prediction: Prediction, number: int) -> bool:
    """Is the answer of that round right, normalised?"""
    return bool(outcome_of(prediction, number).normalised)


def _policy(name: str, own: Sequence[Prediction], chosen: Sequence[int], searches: Sequence[int]) -> tuple:
    """A rule's accuracy with the answers of these rounds, what it helped, hurt and left, and its further searches."""
    first = [is_right(p, 0) for p in own]
    now = [is_right(p, number) for p, number in zip(own, chosen)]
    gained, lost, _ = metrics.mcnemar(first, now)
    touched = sum(count > 0 for count in searches)
    return name, len(now), *accuracy.share(now), gained, lost, touched - gained - lost, sum(searches)


def judges_of(frame: pd.DataFrame) -> pd.DataFrame:
    """The judge of each row of Table 5 beside three that know less, by how the question was put."""
    tables = {system: verifier.judge_table(frame, system) for system in CHAINS}
    return pd.concat(tables, names=["system"]).reset_index("system").reset_index(drop=True)
