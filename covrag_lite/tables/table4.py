"""Table 4: where to revise (Section 4.3 of the paper), and what each query finds."""

from collections.abc import Sequence

import pandas as pd

from covrag_lite import metrics
from covrag_lite.records import Prediction, Question, Search
from covrag_lite.runs.frame import is_round_right, outcome_of, to_frame
from covrag_lite.runs.recorded import Recorded
from covrag_lite.systems import names
from covrag_lite.tables.accuracy import accuracy_table, build_accuracy, wide
from covrag_lite.tables.labels import label_of
from covrag_lite.tables.table import Table

# No revision, a revision before retrieval, one after the answer.
POSITIONS = (names.COV_RAG_S, names.START_REVISE_TRAINED, names.COV_RAG)
DIFFERENCES = (
    (names.COV_RAG_S, names.START_REVISE_TRAINED),
    (names.COV_RAG_S, names.COV_RAG),
)
LABELS = {names.COV_RAG_S: "No revision", names.START_REVISE_TRAINED: "Rewrite first"}
QUERIES = {  # a system -> what its last search looks for
    names.COV_RAG_S: "as asked (no revision)",
    names.START_REVISE: "rewritten first (untuned)",
    names.START_REVISE_TRAINED: "rewritten first (trained)",
    names.COV_RAG: "revised after the answer (CoV-RAG)",
}
CLEAN_WORDING = "clean wording (oracle)"
REWRITERS = (names.START_REVISE, names.START_REVISE_TRAINED)  # rewrite before the first search
LONG_WORD = 4  # letters; a rewrite that shares no such word with its question is off the question
EXAMPLES = 3


def label(system: str) -> str:
    """Return how this table calls a system.

    >>> label("CoV-RAG-S")
    'No revision'
    """
    return LABELS.get(system, label_of(system))


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Build Table 4."""
    return build_accuracy("table4", to_frame(predictions), run, rewrite_facts(predictions))


def rewrite_facts(predictions: Sequence[Prediction]) -> dict[str, str]:
    """Count for each rewriter the questions it changes, and rewrites that are off the question."""
    by_system = group_by_system(predictions)
    facts = {}
    for system in by_system:
        if system not in REWRITERS:
            continue
        pairs = [(p.question.question, p.rounds[0].query) for p in by_system[system]]
        rewritten = [(question, query) for question, query in pairs if query != question]
        facts[f"{system} rewritten"] = str(len(rewritten))
        # Records of public sets do not contain the questions.
        with_text = [(question, query) for question, query in pairs if question]
        if any(question for question, _ in rewritten):
            n_off = sum(is_off(question, query) for question, query in with_text)
            facts[f"{system} off the question"] = str(n_off)
    return facts


def group_by_system(predictions: Sequence[Prediction]) -> dict[str, list[Prediction]]:
    """Return the predictions of each system."""
    by_system: dict[str, list[Prediction]] = {}
    for prediction in predictions:
        by_system.setdefault(prediction.system, []).append(prediction)
    return by_system


def is_off(question: str, query: str) -> bool:
    """Return whether a query shares no long word with its question."""
    shared = set(metrics.normalise(question).split()) & set(metrics.normalise(query).split())
    return not any(len(word) >= LONG_WORD for word in shared)


def positions(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy by the place of the revision, one row per place."""
    rows = accuracy_table(frame[frame.system.isin(POSITIONS)], "table4")
    return wide(rows.assign(paper=None)).rename(index=label)


def same_question(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return one question that only a revision after the answer rescues: rewritten, and revised.

    The first round of the second prediction is the one without revision.
    """
    by_question: dict[str, dict[str, Prediction]] = {}
    for prediction in predictions:
        by_question.setdefault(prediction.question.id, {})[prediction.system] = prediction
    for by_system in by_question.values():
        if not set(POSITIONS) <= set(by_system):
            continue
        unrevised, rewritten, revised = (by_system[system] for system in POSITIONS)
        right = [is_round_right(p, p.kept) for p in (unrevised, rewritten, revised)]
        query = metrics.normalise(rewritten.rounds[0].query)
        is_rewritten = query != metrics.normalise(rewritten.question.question)
        if right == [False, False, True] and is_rewritten:
            return [rewritten, revised]
    return []


def query_table(predictions: Sequence[Prediction], search: Search | None = None) -> pd.DataFrame:
    """Return what each query finds: as asked, rewritten first, or revised after the answer.

    With a search there is a last row for the clean wording, which a perfect rewriter would write.

    changed              queries that differ from the question
    no shared word       those without a long word of the question; a dash where it is not recorded
    gold passage found   questions whose gold passage is retrieved, of those where it is known
    """
    by_system = group_by_system(predictions)
    rows = {}
    for system, row_name in QUERIES.items():
        if system in by_system:
            questions = [p.question for p in by_system[system]]
            queries = [p.rounds[-1].query for p in by_system[system]]
            gold = [outcome_of(p, -1).gold for p in by_system[system]]
            rows[row_name] = _query_row(questions, queries, gold)
    questions = [p.question for p in by_system.get(names.COV_RAG, ())]
    if search and any(question.clean_question for question in questions):
        queries = [question.clean_question or question.question for question in questions]
        gold = []
        for question, passages in zip(questions, search(queries)):
            gold.append(metrics.holds_gold(passages, question.gold_passages))
        rows[CLEAN_WORDING] = _query_row(questions, queries, gold)
    return pd.DataFrame(rows).T.rename_axis("query")


def _query_row(
    questions: Sequence[Question], queries: Sequence[str], gold: Sequence[bool | None]
) -> dict[str, str]:
    """Return one row of `query_table`."""
    changed = []
    for question, query in zip(questions, queries):
        if query != question.question:
            changed.append((question.question, query))
    has_texts = all(question.question for question in questions)
    n_off = sum(is_off(question, query) for question, query in changed)
    hits = [hit for hit in gold if hit is not None]
    return {
        "changed": f"{len(changed)} of {len(queries)}",
        "no shared word": str(n_off) if has_texts else "–",
        "gold passage found": f"{sum(hits)} of {len(hits)}" if hits else "–",
        "in %": f"{100 * sum(hits) / len(hits):.1f}" if hits else "–",
    }


def drift(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """Return the first questions that find a gold passage as asked, and lose it when rewritten."""
    has_gold = {}
    for prediction in predictions:
        if prediction.system == names.COV_RAG_S:
            has_gold[prediction.question.id] = outcome_of(prediction).gold
    rows = []
    for prediction in predictions:
        question = prediction.question
        query = prediction.rounds[0].query
        is_new = prediction.system == names.START_REVISE_TRAINED and query != question.question
        if is_new and has_gold.get(question.id) and not outcome_of(prediction).gold:
            rows.append((question.question, query))
    columns = ["question, finds a gold passage", "rewritten, no longer finds it"]
    return pd.DataFrame(rows, columns=columns).head(EXAMPLES)
