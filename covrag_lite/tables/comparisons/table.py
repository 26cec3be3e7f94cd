"""The table "claim": paired differences over all test questions, by seed, pooled and by set.

Each row compares two systems on the same questions with the same seeds, in points of whole-word
accuracy. It has both accuracies, so that every difference is read next to its own baseline, and the
minimum detectable effect at 80 % power.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pandas as pd

from covrag_lite.records import Prediction
from covrag_lite.runs.frame import to_frame
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables.comparisons.differences import (
    compare_systems,
    facts_by_seed,
    format_comparisons,
    select_main,
)
from covrag_lite.tables.comparisons.first_answers import (
    judge_difference_rows,
    judge_rows,
    search_rows,
)
from covrag_lite.tables.comparisons.pairs import (
    ALL_SETS,
    EQUIVALENCE_PLANNED,
    FEW_VERDICTS,
    HELP_PLANNED,
    METRIC,
)
from covrag_lite.tables.comparisons.picture import plot
from covrag_lite.tables.labels import with_labels
from covrag_lite.tables.planned import judge_equivalence, judge_help
from covrag_lite.tables.table import Table

NOTES = (
    f"Accuracy ({METRIC}): a gold answer occurs in the answer as whole words. "
    '"From" and "to" are the accuracies of the two systems on the same questions and seeds.',
    "Pooled: the largest group of seeds that answered equally many questions. Other seeds have a "
    "row of their own. A comparison between several readers has one row per pair of seeds.",
)
FEW_VERDICTS_NOTE = (
    "Where a verifier only chooses among answers, seeds 8 and 9 are not pooled with others: theirs "
    "learnt 2,625 verdicts, the others about 8,500."
)
ACCURACIES = ["from, %", "to, %"]
# The columns of facts, overall and by set.
OVERALL = ["difference", "95 % interval", "p", "detectable", "n", "gained", "lost", *ACCURACIES]
BY_SET = ["difference", "95 % interval", "n", *ACCURACIES]


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Build the table of one seed."""
    return build_seeds({str(run.config.training.training_seed): to_frame(predictions)})


def build_seeds(frames: Mapping[str, pd.DataFrame]) -> Table:
    """Build the table of every seed that was run, pooled if there are several."""
    rows = compare_systems(frames)
    overall = rows[rows.set == ALL_SETS]
    main_rows = select_main(rows)
    by_set = main_rows[main_rows.set != ALL_SETS]
    judged = rows_of_seeds(judge_rows, frames)
    compared = rows_of_seeds(judge_difference_rows, frames)
    searched = rows_of_seeds(search_rows, frames)
    parts = {
        "Paired differences over all questions, in points": format_labelled(overall),
        "The same by set": format_labelled(by_set),
        "How well the verifier judges first answers": judged,
        "Differences between these AUROCs, on the same answers (post hoc)": compared,
        "The second search, with the paper's rule that the last answer counts": searched,
    }
    facts = facts_overall(overall) | facts_of_verdicts(overall) | facts_by_set(by_set)
    facts |= facts_by_seed("judge of", judged) | facts_by_seed("search of", searched)
    facts |= facts_by_seed("AUROC", compared)
    files = {"json": to_json(overall)}
    plots = {"png": partial(plot, rows)}
    notes = [*NOTES, FEW_VERDICTS_NOTE] if set(FEW_VERDICTS) <= set(frames) else NOTES
    return Table("claim", rows, parts, notes, facts, plots, files, digits=4)


def rows_of_seeds(
    make_rows: Callable[[pd.DataFrame, str], Iterator[dict]], frames: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Return the rows of all seeds in one table."""
    rows = []
    for seed, frame in frames.items():
        rows += make_rows(frame, seed)
    return pd.DataFrame(rows)


def format_labelled(rows: pd.DataFrame) -> pd.DataFrame:
    """Return comparisons as people read them, with the systems' labels."""
    return with_labels(format_comparisons(rows))


def facts_overall(rows: pd.DataFrame) -> dict[str, str]:
    """Return every number of the comparisons over all questions as a fact."""
    table = format_comparisons(rows).assign(n=[f"{n:,}" for n in rows.n])
    return facts_by_seed("", table[["comparison", "seed", *OVERALL]])


def facts_of_verdicts(rows: pd.DataFrame) -> dict[str, str]:
    """Return what the plan calls the results of the comparisons that it has a rule for."""
    facts = {}
    for planned, judge in ((EQUIVALENCE_PLANNED, judge_equivalence), (HELP_PLANNED, judge_help)):
        for (before, after), seeds in planned.items():
            is_pair = (rows["from"] == before) & (rows["to"] == after)
            for row in rows[is_pair & rows.seed.isin(seeds)].itertuples():
                facts[f"{before} → {after} {row.seed} verdict"] = judge(row.low, row.high)
    return facts


def facts_by_set(rows: pd.DataFrame) -> dict[str, str]:
    """Return the differences and accuracies of the comparisons by set as facts."""
    table = format_comparisons(rows)
    return facts_by_seed("", table[["comparison", "set", "seed", *BY_SET]])


def to_json(rows: pd.DataFrame) -> str:
    """Return comparisons over all questions as JSON, which has no NaN."""
    columns = rows.drop(columns="set").astype(object)
    records = columns.where(rows.notna(), None).to_dict("records")
    return json.dumps(records, indent=1, ensure_ascii=False) + "\n"
