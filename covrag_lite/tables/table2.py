"""Table 2: accuracy of the systems, next to the paper and over all held-out questions."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite import config
from covrag_lite.records import Prediction
from covrag_lite.runs.frame import is_round_right, to_frame
from covrag_lite.runs.recorded import Recorded, choose
from covrag_lite.systems import names
from covrag_lite.tables.accuracy import build_accuracy, wide
from covrag_lite.tables.comparisons.differences import (
    format_comparisons,
    list_main_seeds,
    select_main,
)
from covrag_lite.tables.comparisons.pairs import (
    ALL_SETS,
    BASELINE,
    OURS,
    OURS_NO_CHAIN,
    POST_HOC,
    TWO_PLAIN_READERS,
)
from covrag_lite.tables.facts import minus
from covrag_lite.tables.failures import failure_table
from covrag_lite.tables.labels import label_of, with_labels
from covrag_lite.tables.paired import PAIRS, compare_pairs, with_detectable_effects
from covrag_lite.tables.paper_comparison import REAL, load_rows
from covrag_lite.tables.table import Table
from covrag_lite.tables.table4 import rewrite_facts
from covrag_lite.tables.verifier_facts import verifier_facts

SHOWN = (names.RAG, BASELINE, names.COV_RAG_S, names.COV_RAG)  # rows shown next to the paper's
DIFFERENCES = ((BASELINE, names.COV_RAG),)  # the paper's claim
OTHER_QUESTIONS = ("mintaka", "triviaqa")  # the paper's samples of these sets are not published
# Systems of the large test that are shown, the paper's form first, then ours, then baselines.
GAINS = (
    names.COV_RAG_S,
    names.COV_RAG,
    OURS,
    OURS_NO_CHAIN,
    names.EXPANSION,
    names.EXPANSION_COMBINED,
    TWO_PLAIN_READERS,
)
MAIN_PAIRS = PAIRS[:6]  # up to CoV-RAG and its first answer


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Build Table 2; a sample of a larger recorded run keeps that run's picture."""
    frame = to_frame(predictions)  # in the order in which they ran, as the notes below the table
    facts = verifier_facts(frame) | rewrite_facts(predictions)
    table = build_accuracy("table2", frame, run, facts)
    larger = choose(run.config, run.root)
    if larger and larger.n > run.n:
        return replace(table, plots={"png": partial(shutil.copyfile, larger.file("png"))})
    return table


def on_other_questions(rows: pd.DataFrame) -> pd.DataFrame:
    """Return our accuracy on samples of Mintaka and TriviaQA that are not the paper's."""
    rows = rows[rows.system.isin(SHOWN) & rows.dataset.isin(OTHER_QUESTIONS)]
    table = with_labels(wide(rows.assign(paper=None)))
    return table.rename(columns="{} (other questions)".format)


def large_test(
    folder: Path = REAL, systems: Sequence[str] = GAINS, root: Path = config.ROOT
) -> pd.DataFrame:
    """Return the gains over RAG (trained) on the large test, one row per system.

    The baseline of a row has the same seeds and questions, so it differs slightly between rows.
    """
    rows = load_rows("claim", folder, root)
    rows = rows[(rows.set == ALL_SETS) & (rows["from"] == BASELINE)]
    table = []
    for system in systems:
        of_system = rows[rows.to == system]
        if of_system.empty:  # not run with this backbone
            continue
        row = format_comparisons(select_main(of_system)).iloc[-1]
        note = " (post hoc)" if system in POST_HOC else ""
        table.append(
            {
                "system": label_of(system) + note,
                "seeds": ", ".join(list_main_seeds(of_system)),
                "n": f"{row.n:,}",
                f"{label_of(BASELINE)}, %": row["from, %"],
                "this system, %": row["to, %"],
                "difference": minus(row.difference),
                "95 % interval": minus(row["95 % interval"]),
            }
        )
    return pd.DataFrame(table).set_index("system")


def compare_main_systems(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare the main systems two by two, with the minimum detectable effect."""
    rows = compare_pairs(frame, MAIN_PAIRS).query("metric == 'normalised'")
    table = with_labels(with_detectable_effects(rows)).drop(columns=["metric", "n"])
    return table.set_index("comparison").map(minus_in_text)


def gain_by_failure(frame: pd.DataFrame) -> pd.DataFrame:
    """Return first and last answers of CoV-RAG by what makes a question of the world fail."""
    table = failure_table(frame).set_index("questions")
    columns = ["n", "first", "revised", "last", "gain", "95 % interval"]
    return table[columns].rename(index={"none": "no failure"}).map(minus_in_text)


def minus_in_text(cell: object) -> object:
    """Return a cell of a table, a text with a proper minus sign."""
    return minus(cell) if isinstance(cell, str) else cell


def rescued(predictions: Sequence[Prediction]) -> Prediction:
    """Return the first question that CoV-RAG answers rightly only after its revision, or any."""
    for prediction in predictions:
        if prediction.system == names.COV_RAG:
            is_rescued = is_round_right(prediction, prediction.kept)
            if is_rescued and not is_round_right(prediction, 0):
                return prediction
    return predictions[-1]
