"""Table 4: where to revise (Section 4.3 of the paper), and what each query finds."""

from collections.abc import Sequence

import pandas as pd

from covrag_lite import metrics
from covrag_lite.labels import label_of
from covrag_lite.records import Prediction, Question, Search
from covrag_lite.runs.outcomes import outcome_of, to_frame
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import Table, accuracy

# No revision, a revision before retrieval, one after the answer.
POSITIONS = ("CoV-RAG-S", "Start-Revise trained", "CoV-RAG")
DIFFERENCES = (("CoV-RAG-S", "Start-Revise trained"), ("CoV-RAG-S", "CoV-RAG"))
LABELS = {"CoV-RAG-S": "No revision", "Start-Revise trained": "Rewrite first"}
QUERIES = {  # a system -> what its last search looks for
    "CoV-RAG-S": "as asked (no revision)",
    "Start-Revise": "rewritten first (untuned)",
    "Start-Revise trained": "rewritten first (trained)",
    "CoV-RAG": "revised after the answer (CoV-RAG)",
}
LONG_WORD = 4  # letters; a rewrite that shares no such word with its question is off the question


def label(system: str) -> str:
    """How this table calls a system.

    >>> label("CoV-RAG-S")
    'No revision'
    """
    return LABELS.get(system, label_of(system))


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Table 4."""
    return accuracy.build("table4", to_frame(predictions), run, facts(predictions))


def facts(predictions: Sequence[Prediction]) -> dict[str, str]:
    """Per rewriter before retrieval: questions it changes, and rewrites that are off the question."""
    counts = {}
    for system in dict.fromkeys(p.system for p in predictions if p.system.startswith("Start-Revise")):
        pairs = [(p.question.question, p.rounds[0].query) for p in predictions if p.system == system]
        counts[f"{system} rewritten"] = str(sum(query != question for question, query in pairs))
        with_text = [pair for pair in pairs if pair[0]]  # records of public sets hold no question
        if any(query != question for question, query in with_text):
            counts[f"{system} off the question"] = str(sum(is_off(*pair) for pair in with_text))
    return counts


def is_off(question: str, query: str) -> bool:
    """Whether a query shares no long word with its question, as a repeated instruction does not."""
    shared = set(metrics.normalise(question).split()) & set(metrics.normalise(query).split())
    return not any(len(word) >= LONG_WORD for word in shared)


def positions(frame: pd.DataFrame) -> pd.DataFrame:
    """Accuracy by the place of the revision, one row per place."""
    rows = accuracy.accuracy_table(frame[frame.system.isin(POSITIONS)], "table4")
    return accuracy.wide(rows.assign(paper=None)).rename(index=label)


def same_question(predictions: Sequence[Prediction]) -> list[Prediction]:
    """One question that a rewrite before retrieval does not rescue and a revision afterwards does."""
    by_question: dict[str, dict[str, Prediction]] = {}
    for prediction in predictions:
        by_question.setdefault(prediction.question.id, {})[prediction.system] = prediction
    for systems in by_question.values():
        if all(name in systems for name in POSITIONS):
            chosen = [systems[name] for name in POSITIONS]
            texts = (chosen[1].question.question, chosen[1].rounds[0].query)
            right = [bool(outcome_of(p, p.kept).normalised) for p in chosen]
            if right == [False, False, True] and len(set(map(metrics.normalise, texts))) == 2:
                return chosen[1:]  # the first round of the last one is the one without revision
    return []


def query_table(predictions: Sequence[Prediction], search: Search | None = None) -> pd.DataFrame:
    """What each query finds: the question as asked, rewritten first, or revised after the answer.

    With a search there is a last row for the clean wording, which a perfect rewriter would write.

    changed              queries that differ from the question
    no shared word       those without a long word of the question; a dash where it is not recorded
    gold passage found   questions whose gold passage is retrieved, of those where it is known
    """
    by_system: dict[str, list[Prediction]] = {}
    for prediction in predictions:
        by_system.setdefault(prediction.system, []).append(prediction)
    rows = {}
    for system, name in QUERIES.items():
        if system in by_system:
            queries = [p.rounds[-1].query for p in by_system[system]]
            gold = [outcome_of(p, -1).gold for p in by_system[system]]
            rows[name] = _count([p.question for p in by_system[system]], queries, gold)
    questions = [p.question for p in by_system.get("CoV-RAG", ())]
    if search and any(question.clean_question for question in questions):
        queries = [question.clean_question or question.question for question in questions]
        found = zip(search(queries), questions)
        gold = [metrics.holds_gold(passages, question.gold_passages) for passages, question in found]
        rows["clean wording (oracle)"] = _count(questions, queries, gold)
    return pd.DataFrame(rows).T.rename_axis("query")


def _count(questions: Sequence[Question], queries: Sequence[str], gold: Sequence[bool | None]) -> dict[str, str]:
    """One row of `query_table`."""
    changed = [(q.question, query) for q, query in zip(questions, queries) if query != q.question]
    readable = all(question.question for question in questions)
    known = [hit for hit in gold if hit is not None]
    return {
        "changed": f"{len(changed)} of {len(queries)}",
        "no shared word": str(sum(is_off(*pair) for pair in changed)) if readable else "–",
        "gold passage found": f"{sum(known)} of {len(known)}" if known else "–",
        "in %": f"{100 * sum(known) / len(known):.1f}" if known else "–",
    }


def drift(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """The first three questions that find a gold passage as asked, and lose it when rewritten."""
    before = {p.question.id: outcome_of(p).gold for p in predictions if p.system == "CoV-RAG-S"}
    rows = []
    for p in predictions:
        rewritten = p.rounds[0].query
        is_new = p.system == "Start-Revise trained" and rewritten != p.question.question
        if is_new and before.get(p.question.id) and not outcome_of(p).gold:
            rows.append((p.question.question, rewritten))
    columns = ["question, finds a gold passage", "rewritten, no longer finds it"]
    return pd.DataFrame(rows, columns=columns).head(3)
