"""What to do with a second answer: rules that choose a round, applied to the same predictions."""

from collections.abc import Sequence

import pandas as pd

from covrag_lite import metrics
from covrag_lite.method import by_thresholds, keep_likelier
from covrag_lite.records import Prediction, Round
from covrag_lite.runs.frame import is_round_right, outcome_of
from covrag_lite.systems import names
from covrag_lite.tables.intervals import share
from covrag_lite.tables.labels import SMALL_SAMPLE

MAX_ROUNDS = 3  # one more than the paper's, for rules that choose among answers
CONTROL = names.COV_RAG_SHUFFLED  # searches with another question's revised question
RANK = {"": -1, "false": 0, "unclear": 1, "true": 2}  # of judgments; the best is the highest
# The recorded names of the rules.
NEVER = "never revise"
REPLACE_2 = "replace, 2 rounds at most (the paper)"
REPLACE_3 = "replace, 3 rounds at most"
BETTER_OF_2 = "keep the better verified of 2"
BETTER_OF_3 = "keep the better verified of 3"
LIKELIER_OF_2 = "keep the likelier of 2"
THRESHOLDS = "replace where the paper's thresholds are crossed"
ORACLE = "oracle: the better of 2"
SHUFFLED = "control: replace after another question's revision"
REPLACE = {2: REPLACE_2, 3: REPLACE_3}  # by the number of rounds
BETTER = {2: BETTER_OF_2, 3: BETTER_OF_3}
RULES = {  # how `rule_table` calls the rules
    NEVER: "first answer (never search again)",
    REPLACE_2: "last of at most 2 answers (the paper)",
    REPLACE_3: "last of at most 3 answers",
    BETTER_OF_2: "of 2 answers, the one with the better verdict",
    BETTER_OF_3: "of 3 answers, the one with the best verdict",
    LIKELIER_OF_2: "of 2 answers, the one with the higher likelihood",
    THRESHOLDS: "search again by the paper's thresholds",
    ORACLE: "oracle choice of 2 answers",
    SHUFFLED: "control: another question's search",
}
COLUMNS = ["rule", "n", "accuracy", "low", "high", "helped", "hurt", "left", "searches"]


def compare_rules(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """Compare what can be done with a second answer, one row per rule."""
    scored = [p for p in predictions if outcome_of(p).normalised is not None]
    cov = [p for p in scored if p.system == names.COV_RAG]
    has_third = any(len(p.rounds) >= 3 for p in cov)
    depths = (2, 3) if has_third else (2,)
    first = last_of(cov, 1)
    second = last_of(cov, 2)
    rows = [_rule_row(NEVER, cov, first, first)]
    for depth in depths:
        last = last_of(cov, depth)
        rows.append(_rule_row(REPLACE[depth], cov, last, last))
    for depth in depths:
        if all(is_verified(p.rounds[:depth]) for p in cov):
            better = [better_verified(p.rounds[:depth]) for p in cov]
            rows.append(_rule_row(BETTER[depth], cov, better, last_of(cov, depth)))
    if all(has_likelihoods(p.rounds) for p in cov):
        likelier = [keep_likelier(p.rounds[:2]) for p in cov]
        rows.append(_rule_row(LIKELIER_OF_2, cov, likelier, second))
    crossed = [int(p.revised and by_thresholds(p.rounds[0])) for p in cov]
    rows.append(_rule_row(THRESHOLDS, cov, crossed, crossed))
    best = [_first_right(p, last) for p, last in zip(cov, second)]
    rows.append(_rule_row(ORACLE, cov, best, second))
    control = [p for p in scored if p.system == CONTROL]
    if control:
        last = last_of(control, 2)
        rows.append(_rule_row(SHUFFLED, control, last, last))
    return pd.DataFrame(rows, columns=COLUMNS).round(1)


def last_of(predictions: Sequence[Prediction], depth: int) -> list[int]:
    """Return the number of each prediction's last round, which is its count of further searches."""
    return [min(depth, len(p.rounds)) - 1 for p in predictions]


def is_verified(rounds: Sequence[Round]) -> bool:
    """Return whether all rounds have a verdict."""
    return all(turn.verdict for turn in rounds)


def has_likelihoods(rounds: Sequence[Round]) -> bool:
    """Return whether the likelihood of every answer is known."""
    return all(turn.likelihood is not None for turn in rounds)


def better_verified(rounds: Sequence[Round]) -> int:
    """Return the round with the best judgment, then correctness; of equals the last."""
    best = 0
    for number, turn in enumerate(rounds):
        if _quality(turn) >= _quality(rounds[best]):
            best = number
    return best


def _quality(turn: Round) -> tuple[int, float]:
    """Return the rank of a round's judgment and its correctness."""
    return RANK[turn.verdict.judgment], turn.verdict.correctness or 0.0


def _first_right(prediction: Prediction, last: int) -> int:
    """Return the first round with a right answer, or the first round if there is none."""
    for number in range(last + 1):
        if is_round_right(prediction, number):
            return number
    return 0


def _rule_row(
    rule: str, predictions: Sequence[Prediction], chosen: Sequence[int], searches: Sequence[int]
) -> tuple:
    """Return a rule's accuracy with the answers of the chosen rounds, against the first answers.

    `searches` are the further searches of each prediction.
    """
    first = [is_round_right(p, 0) for p in predictions]
    outcome = [is_round_right(p, number) for p, number in zip(predictions, chosen)]
    helped, hurt, _ = metrics.mcnemar(first, outcome)
    n_searched = sum(count > 0 for count in searches)
    unchanged = n_searched - helped - hurt
    return rule, len(outcome), *share(outcome), helped, hurt, unchanged, sum(searches)


def format_rules(rules: pd.DataFrame) -> pd.DataFrame:
    """Return the rules of `compare_rules` as people read them, compared with the first answer."""
    cells = []
    for row in rules.itertuples():
        if row.n < SMALL_SAMPLE:
            cells.append(f"{round(row.accuracy * row.n / 100)} of {row.n}")
        else:
            cells.append(f"{row.accuracy:.1f} [{row.low:.1f}, {row.high:.1f}]")
    table = pd.DataFrame({"rule": rules.rule.replace(RULES), "right % [95 % interval]": cells})
    counts = rules[["helped", "hurt", "left", "searches"]]
    return table.join(counts.rename(columns={"left": "unchanged", "searches": "further searches"}))
