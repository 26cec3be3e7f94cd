"""Could better revised questions help at all? Search queries by a model that knows a passage.

Not a system: the untuned model sees a gold answer and a passage that contains it, and writes a
search query for it. Every gold answer is cut out of the query. A better writer could gain more.

The reader answers from the passages that the query finds, by itself or after the question. As in
query expansion, the answer with the higher likelihood is returned, this one or the first one.
results/real/plan.md says what was fixed before the run. A run is in <backbone>/ceiling.
"""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from covrag_lite.records import Prediction
from covrag_lite.runs.frame import outcome_table, to_frame
from covrag_lite.runs.recorded import Recorded
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.differences import (
    difference_over_seeds,
    facts_by_seed,
    format_comparisons,
    format_corrected,
)
from covrag_lite.tables.comparisons.pairs import ALL_SETS, METRIC
from covrag_lite.tables.facts import facts_of
from covrag_lite.tables.labels import with_labels
from covrag_lite.tables.table import Table

FORMS = (names.INFORMED_QUERY, names.QUESTION_AND_INFORMED_QUERY)
CUT_OUT = "the answer was cut out"  # the note of a round whose query contained a gold answer
NEEDED = 0.6  # points over query expansion, fixed in results/real/plan.md
# Sets of questions.
WITH_QUERY = "with a query"
WITHOUT_CUT = "with a query that contained no answer"

PLANNED = "Gain over query expansion, in points"
OTHERS = "Other paired differences, in points"
QUERIES = "Questions with a query"
SEARCHES = "What the last search finds"

NOTES = (
    "Accuracy: a gold answer occurs in the answer as whole words.",
    "Not a system: the query was written by a model that saw a gold answer and a passage with it. "
    "The answer was then cut out. Without such a passage, a question keeps its expanded query.",
    "Training on such queries is worth a run if one of the two forms gains at least "
    f"{NEEDED} points over query expansion on all questions.",
    "p, Holm: corrected for both forms of the query.",
    "Detectable: the minimum detectable effect at 80 % power, in points.",
)


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Build the table: both forms of the query next to query expansion and RAG (trained)."""
    seed = str(run.config.training.training_seed)
    frame = to_frame(predictions)
    selected = select_questions(predictions)
    rows = pd.DataFrame(compare(outcome_table(frame, METRIC), selected, seed))
    is_planned = (rows["from"] == names.EXPANSION) & (rows.set == ALL_SETS)
    written = rows.assign(n=rows.n.map("{:,}".format))
    planned = format_corrected(written[is_planned])
    others = format_comparisons(written[~is_planned])
    counts = count_queries(selected)
    searches = pd.DataFrame(search_rows(frame, selected, seed))
    parts = {
        PLANNED: with_labels(planned),
        OTHERS: with_labels(others),
        QUERIES: pd.DataFrame([counts]),
        SEARCHES: with_labels(searches),
    }
    facts = facts_by_seed("", planned) | facts_by_seed("", others)
    facts |= facts_of("", counts) | facts_by_seed("search of", searches)
    return Table("ceiling", rows, parts, NOTES, facts, digits=4)


def select_questions(predictions: Sequence[Prediction]) -> dict[str, set[str]]:
    """Return the ids of all questions, of those with a query, and of those without a cut."""
    last_rounds = {}
    for prediction in predictions:
        last_rounds[prediction.system, prediction.question.id] = prediction.rounds[-1]
    selected: dict[str, set[str]] = {ALL_SETS: set(), WITH_QUERY: set(), WITHOUT_CUT: set()}
    for (system, identity), last in last_rounds.items():
        if system != names.INFORMED_QUERY:
            continue
        selected[ALL_SETS].add(identity)
        # A question without a query has its expanded one. Records may be loaded without the texts
        # of passages, so only queries are compared.
        if last.query != last_rounds[names.EXPANSION, identity].query:
            selected[WITH_QUERY].add(identity)
            if last.note != CUT_OUT:
                selected[WITHOUT_CUT].add(identity)
    return selected


def count_queries(selected: Mapping[str, set[str]]) -> dict[str, str]:
    """Count the questions, those with a query, and the queries from which an answer was cut."""
    with_query = len(selected[WITH_QUERY])
    counts = {
        "questions": len(selected[ALL_SETS]),
        "with a query": with_query,
        CUT_OUT: with_query - len(selected[WITHOUT_CUT]),
    }
    return {name: f"{count:,}" for name, count in counts.items()}


def compare(
    right: pd.DataFrame, selected: Mapping[str, set[str]], seed: str
) -> Iterator[dict[str, object]]:
    """Compare both forms of the query with query expansion, and these three with one search."""
    pairs = [(names.EXPANSION, form) for form in FORMS]
    pairs += [(names.RAG_TRAINED, system) for system in (names.EXPANSION, *FORMS)]
    for questions, identities in selected.items():
        rows = right[right.index.get_level_values("id").isin(identities)]
        for before, after in pairs:
            sides = rows[[before, after]].dropna()
            if len(sides):
                yield difference_over_seeds(before, after, questions, seed, [sides])


def search_rows(
    frame: pd.DataFrame, selected: Mapping[str, set[str]], seed: str
) -> Iterator[dict[str, str]]:
    """Return how often the passages of each system's last search contain a gold answer."""
    for questions in (ALL_SETS, WITH_QUERY):
        rows = frame[frame.id.isin(selected[questions])]
        for system, of_system in rows.groupby("system", sort=False):
            contains_answer = of_system.words_last.dropna().astype(float)
            yield {
                "system": str(system),
                "set": questions,
                "seed": seed,
                "n": f"{len(contains_answer):,}",
                "passages with an answer, %": f"{100 * contains_answer.mean():.1f}",
            }
