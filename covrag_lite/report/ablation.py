"""What the revision is worth: the paper's ablations (Section 4.3, Tables 4 and 5), and controls it does not have.

Pure functions over predictions, called by notebooks/table4 and table5 and, for recorded predictions, by `check`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from covrag_lite import chain, metrics
from covrag_lite.evaluation import to_frame
from covrag_lite.records import Prediction
from covrag_lite.report import tables

CHAINS = ("CoV-RAG w/o chain", "CoV-RAG")  # the rows of Table 5
RANK = {"": -1, "false": 0, "unclear": 1, "true": 2}


def cut(prediction: Prediction, max_rounds: int) -> Prediction:
    """The prediction as it would be under a smaller `max_rounds`, whose last answer is never verified."""
    kept = prediction.rounds[:max_rounds]
    if len(kept) == max_rounds:
        kept = (*kept[:-1], replace(kept[-1], verdict=None))
    return replace(prediction, rounds=kept)


def chain_table(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """Table 5 in long form: the verifier, the answers before and after, and what re-retrieval finds, with and without the chain.

    judge   the judgment is "true" exactly where the first answer is right
    revise  of the questions that were revised or called for it (answer wrong, no gold passage found), those that were
            revised, called for it, and found a gold passage with the revised question
    format  free-running verdicts that parse
    single, multi   the first and the last answer is right
    delta   questions with a gold passage after re-retrieval minus before
    Where the data names no gold passage, one that holds a gold answer counts.
    """
    frame, rows = to_frame([cut(p, 2) for p in predictions]), []
    for system in CHAINS:
        own = frame[(frame.system == system) & frame.normalised.notna()]
        free = frame[frame.system == f"{system} free"]
        if own.empty:
            continue
        right, first, last = own.first_normalised.astype(bool), held(own, "first"), held(own, "last")
        judged = own.judgment.fillna("") != ""
        shares = {
            "judge": ((own.judgment == "true") == right)[judged],
            "revise": revisions(own).good,
            "format": free.unparsed[free.verdicts > 0] == 0,
            "single": right,
            "multi": own.normalised.astype(bool),
        }
        cells = {
            metric: (len(part), part.mean(), *metrics.wilson(int(part.sum()), len(part)))
            for metric, part in shares.items()
            if len(part)
        }
        cells["delta"] = (len(own), *metrics.paired_bootstrap(first.tolist(), last.tolist()))
        rows += [
            (
                "table5",
                "all",
                system,
                own.backbone.iloc[0],
                metric,
                n,
                *(100 * value for value in values),
                tables.TABLE5[system][metric],
            )
            for metric, (n, *values) in cells.items()
        ]
    return pd.DataFrame(
        rows, columns=["table", "dataset", "system", "backbone", "metric", "n", "value", "low", "high", "paper"]
    )


def revisions(own: pd.DataFrame) -> pd.DataFrame:
    """Of one system's rows those that were revised or called for it, and whether that was `good`: called for, done, and a gold passage found."""
    called = ~own.first_normalised.astype(bool) & ~held(own, "first")
    return own.assign(good=called & own.revised & held(own, "last"))[called | own.revised]


def held(frame: pd.DataFrame, when: str) -> pd.Series:
    """Did the first or last retrieval hold a gold passage or, where the data names none, an answer?"""
    return frame[f"gold_{when}"].where(frame[f"gold_{when}"].notna(), frame[f"found_{when}"]).astype(bool)


def chain_notes(predictions: Sequence[Prediction]) -> list[str]:
    """The counts behind Table 5's shares."""
    frame, lines = to_frame([cut(p, 2) for p in predictions]), []
    for system, own in frame[frame.normalised.notna() & frame.verdicts.gt(0)].groupby("system", sort=False):
        called = ~own.first_normalised.astype(bool) & ~held(own, "first")
        lines.append(
            f"{system}: {own.unparsed.sum()} of {own.verdicts.sum()} verdicts did not parse; {called.sum()} questions called for a revision, "
            f"{own.revised.sum()} were revised, {(called & own.revised).sum()} of them rightly; {(called & own.revised & held(own, 'last')).sum()} then found a gold passage."
        )
    return lines


def better_verified(prediction: Prediction, rounds: int) -> int:
    """Which of the first answers its verdict holds highest: by judgment, then by correctness; of equals the later one."""
    seen = [one.verdict for one in prediction.rounds[:rounds]]
    return max(range(len(seen)), key=lambda i: (RANK[seen[i].judgment], seen[i].correctness or 0.0, i))


def policies(predictions: Sequence[Prediction], system: str = "CoV-RAG") -> pd.DataFrame:
    """What to do with a second answer: one row a rule, all applied to the same predictions, against the first answers."""
    own = [p for p in predictions if p.system == system and not metrics.is_defective(p.question.answers)]
    shuffled = [
        p for p in predictions if p.system == "CoV-RAG shuffled" and not metrics.is_defective(p.question.answers)
    ]
    last = lambda rounds: lambda p: min(rounds, len(p.rounds)) - 1
    sigma = chain.by_thresholds()
    depths = [rounds for rounds in (2, 3) if rounds == 2 or any(len(p.rounds) >= rounds for p in own)]  # what was run
    rows = [_policy("never revise", own, last(1), 1)]
    rows += [
        _policy(f"replace, {rounds} rounds at most{' (the paper)' if rounds == 2 else ''}", own, last(rounds), rounds)
        for rounds in depths
    ]
    rows += [
        _policy(f"keep the better verified of {rounds}", own, lambda p: better_verified(p, rounds), rounds)
        for rounds in depths
        if all(one.verdict for p in own for one in p.rounds[:rounds])
    ]
    rows.append(
        _policy(
            "replace where the paper's thresholds are crossed",
            own,
            lambda p: int(p.revised and sigma(p.rounds[0].verdict)),
            2,
            spared=True,
        )
    )
    rows.append(
        _policy("oracle: the better of 2", own, lambda p: max(range(len(p.rounds[:2])), key=lambda i: _right(p, i)), 2)
    )
    if shuffled:
        rows.append(_policy("control: replace after another question's revision", shuffled, last(2), 2))
    return pd.DataFrame(
        rows, columns=["rule", "n", "accuracy", "low", "high", "helped", "hurt", "left", "searches"]
    ).round(1)


def _right(prediction: Prediction, number: int) -> bool:
    return bool(metrics.score(prediction.rounds[number].answer, prediction.question.answers, "normalised"))


def _policy(
    name: str, own: Sequence[Prediction], choose: Callable[[Prediction], int], rounds: int, spared: bool = False
) -> tuple:
    """A rule's accuracy, what it helped, hurt and left against the first answers, and the searches beyond the first it needs."""
    chosen = [choose(p) for p in own]
    first, now = [_right(p, 0) for p in own], [_right(p, number) for p, number in zip(own, chosen)]
    gained, lost, _ = metrics.mcnemar(first, now)
    searches = [number if spared else min(rounds, len(p.rounds)) - 1 for p, number in zip(own, chosen)]
    touched = sum(count > 0 for count in searches)
    low, high = metrics.wilson(sum(now), len(now))
    return (
        name,
        len(now),
        100 * sum(now) / len(now),
        100 * low,
        100 * high,
        gained,
        lost,
        touched - gained - lost,
        sum(searches),
    )


def retrieved(predictions: Sequence[Prediction], search: Callable) -> pd.DataFrame:
    """What each position of the revision finds with its last search, beside the question's clean wording where it is known."""
    found = lambda passages, question: (
        metrics.holds_gold(passages, question.gold_passages),
        metrics.holds_answer(passages, question.answers),
    )
    rows = [(p.system, *found(p.rounds[-1].passages, p.question)) for p in predictions]
    asked = {p.question.id: p.question for p in predictions if p.question.clean_question}
    for question, passages in zip(asked.values(), search([q.clean_question for q in asked.values()])):
        rows.append(("clean wording", *found(passages, question)))
    groups = pd.DataFrame(rows, columns=["searched by", "gold passage %", "answer %"]).groupby(
        "searched by", sort=False
    )
    return groups.agg(lambda values: 100 * values.dropna().astype(bool).mean()).round(1).assign(n=groups.size())


def off_question(predictions: Sequence[Prediction], system: str) -> tuple[int, int] | None:
    """How many rewritten questions share no word of over three letters with their question, and of how many; None where none was recorded.

    Such a rewrite has failed: a small model repeats the instruction instead. Older records left the rewritten question
    out, which reads as the question itself; a run in which no question at all was changed is taken for one of these.
    """
    words = lambda text: {word for word in metrics.normalise(text).split() if len(word) > 3}
    pairs = [(p.question.question, p.rounds[0].query) for p in predictions if p.system == system]
    if all(query == question for question, query in pairs):
        return None
    return sum(not words(question) & words(query) for question, query in pairs), len(pairs)


def drift(predictions: Sequence[Prediction], system: str = "Start-Revise trained", examples: int = 3) -> pd.DataFrame:
    """Questions that find a gold passage as asked, and lose it by being rewritten."""
    gold = lambda p: metrics.holds_gold(p.rounds[0].passages, p.question.gold_passages)
    before = {p.question.id: gold(p) for p in predictions if p.system == "CoV-RAG-S"}
    rows = [
        (p.question.question, p.rounds[0].query, before.get(p.question.id), gold(p))
        for p in predictions
        if p.system == system and p.rounds[0].query != p.question.question
    ]
    table = pd.DataFrame(rows, columns=["question", "rewritten", "gold before", "gold after"])
    return table[table["gold before"].eq(True) & table["gold after"].eq(False)].head(examples)


def gaps(n: int = 400) -> pd.DataFrame:
    """The paper's own gaps against the noise of n questions a set: the interval were the systems unpaired, and the least a paired test can see.

    McNemar's exact test needs six questions gained and none lost for p < 0.05, whatever the two systems are. The paper's
    shares are multiples of 1/400; those of Table 5 of 1/800, and its multi-iteration value is the mean of NQ and WebQ.
    """
    sets = [name for name in tables.NAMES if name != "average"]
    pairs = [
        (
            "Table 2: WebGLM → CoV-RAG, Llama2-13b",
            tables.PAPER["RAG trained"][1],
            tables.PAPER["CoV-RAG"][1],
            [*sets, "average"],
            n,
        ),
        ("Table 4: No-Revise → End-Revise", tables.TABLE4["CoV-RAG-S"][1], tables.TABLE4["CoV-RAG"][1], sets, n),
        (
            "Table 5: w/o → w/ chain",
            tables.TABLE5["CoV-RAG w/o chain"],
            tables.TABLE5["CoV-RAG"],
            ["judge", "revise", "single", "multi"],
            2 * n,
        ),
    ]
    rows = []
    for name, worse, better, columns, size in pairs:
        for column in columns:
            shares = [
                [(round(values[part] * size / 100), size) for part in (sets if column == "average" else [column])]
                for values in (worse, better)
            ]
            (a, a_low, a_high), (b, b_low, b_high) = map(metrics.mean_interval, shares)
            low, high = (
                b - a - ((b - b_low) ** 2 + (a_high - a) ** 2) ** 0.5,
                b - a + ((b_high - b) ** 2 + (a - a_low) ** 2) ** 0.5,
            )
            total = size * len(shares[0])
            least = 100 * 6 / total
            so = (
                "beyond noise"
                if low > 0 or high < 0
                else "only a paired test could tell"
                if 100 * abs(b - a) >= least
                else "no test could tell"
            )
            rows.append(
                (
                    name,
                    tables.NAMES.get(column, column),
                    total,
                    f"{100 * (b - a):+.1f}",
                    f"[{100 * low:+.1f}, {100 * high:+.1f}]",
                    f"{least:.2f}",
                    so,
                )
            )
    return pd.DataFrame(
        rows,
        columns=["the paper's gap", "of", "n", "gap", "95 % interval, unpaired", "least a paired test can see", "so"],
    )
