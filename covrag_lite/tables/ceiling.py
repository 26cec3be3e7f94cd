"""Could better revised questions help at all? Search queries by a model that knows a passage.

An upper bound, not a system: the base model sees a passage that contains a gold answer and writes a
search query for it. Every gold answer is cut out of the query. The reader answers from the passages
that the query finds, alone or after the question, and the likelier of this answer and the first one
is returned, as in query expansion. results/real/plan.md says what was fixed before the run.
"""

from collections.abc import Sequence

import pandas as pd

from covrag_lite.records import Prediction
from covrag_lite.runs.frame import outcome_of, to_frame
from covrag_lite.runs.recorded import Recorded
from covrag_lite.systems import names
from covrag_lite.tables.blocks import holm
from covrag_lite.tables.comparisons.baselines import outcome_table
from covrag_lite.tables.comparisons.differences import (
    difference,
    facts_by_seed,
    format_comparisons,
)
from covrag_lite.tables.comparisons.pairs import ALL_SETS
from covrag_lite.tables.labels import format_p, with_labels
from covrag_lite.tables.table import Table

ALONE = "query that knows a passage"
AFTER_QUESTION = "question and query that knows a passage"
FORMS = (ALONE, AFTER_QUESTION)
CONTAINED_ANSWER = "the answer was cut out"  # the note of a round whose query contained it
NEEDED = 0.6  # points over query expansion, from which training on such revisions is worth a run
WITH_QUERY = "with such a query"
WITHOUT_ANSWER = "and no answer to cut out of it"

NOTES = (
    "Accuracy: a gold answer occurs in the answer as whole words.",
    "An upper bound: the query was written by a model that saw a passage with a gold answer. "
    "Questions for which no such passage was found keep their expanded query.",
)


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Build the table: both forms of the query next to query expansion and RAG (trained)."""
    seed = str(run.config.training.training_seed)
    frame = to_frame(predictions)
    right = outcome_table(frame)
    rows = pd.DataFrame(compare(right, select_questions(predictions), seed))
    searches = count_searches(predictions)
    parts = {
        "Paired differences on the same questions, in points": format_rows(rows),
        "What the second query finds": with_labels(searches),
    }
    facts = facts_by_seed("", format_rows(rows))
    facts |= facts_by_seed("search of", searches.assign(seed=seed))
    return Table("ceiling", rows, parts, NOTES, facts, digits=4)


def select_questions(predictions: Sequence[Prediction]) -> dict[str, set[str]]:
    """Return the ids of all questions, of those with a query, and of those without a cut."""
    selected: dict[str, set[str]] = {ALL_SETS: set(), WITH_QUERY: set(), WITHOUT_ANSWER: set()}
    expanded = {}
    for prediction in predictions:
        if prediction.system == names.EXPANSION:
            expanded[prediction.question.id] = prediction.rounds[1]
    for prediction in predictions:
        identity = prediction.question.id
        selected[ALL_SETS].add(identity)
        if prediction.system != ALONE:
            continue
        second = prediction.rounds[1]
        if second != expanded[identity]:
            selected[WITH_QUERY].add(identity)
            if second.note != CONTAINED_ANSWER:
                selected[WITHOUT_ANSWER].add(identity)
    return selected


def compare(right: pd.DataFrame, selected: dict[str, set[str]], seed: str) -> list[dict]:
    """Compare each form of the query with query expansion, and all of them with one search."""
    rows = []
    pairs = [(names.EXPANSION, form) for form in FORMS]
    pairs += [(names.RAG_TRAINED, system) for system in (names.EXPANSION, *FORMS)]
    for which, identities in selected.items():
        table = right[right.index.get_level_values("id").isin(identities)]
        for before, after in pairs:
            rows.append(difference(before, after, which, seed, [table[[before, after]]]))
    return rows


def format_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the comparisons as people read them; those that were planned have Holm's p too."""
    table = with_labels(format_comparisons(rows.assign(n=rows.n.map("{:,}".format))))
    is_tested = (rows["from"] == names.EXPANSION) & (rows.set == ALL_SETS)
    table.loc[is_tested, "p, Holm"] = [format_p(p) for p in holm(list(rows[is_tested].p))]
    return table.fillna("")


def count_searches(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """Return how often the passages of each query contain a gold answer."""
    found: dict[str, list[bool]] = {}
    for prediction in predictions:
        number = len(prediction.rounds) - 1
        outcome = outcome_of(prediction, number)
        found.setdefault(prediction.system, []).append(bool(outcome.words))
    rows = []
    for system, values in found.items():
        share = f"{100 * sum(values) / len(values):.1f}"
        rows.append({"system": system, "passages with an answer, %": share, "n": len(values)})
    return pd.DataFrame(rows)
