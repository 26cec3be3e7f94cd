"""Table 6: what each retriever finds before and after a revision, next to the paper's engines.

It is built twice: for the revisions that CoV-RAG writes, and without a model for the clean
wordings, which are the best possible revisions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from covrag_lite import config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.records import Passage, Prediction, Question, Round, Search
from covrag_lite.retrieval import find_passages, load_retriever
from covrag_lite.runs.recorded import Parts, Recorded, check_data, load_or_outcomes, load_part
from covrag_lite.systems.names import COV_RAG
from covrag_lite.tables import accuracy
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.retrieval_picture import plot_retrieval
from covrag_lite.tables.retrieval_shares import (
    MEASURES,
    all_columns,
    join_retrievers,
    label_of_retriever,
    retrieval_table,
)
from covrag_lite.tables.table import Table

SETS = ("search", "entity", "nq", "webq")  # that CoV-RAG answers: the paper's two kinds
CLEAN_WORDING = "clean wording"  # the system that searches without a model
REVISIONS = (COV_RAG, "clean wording, without a model")  # who writes the second query
ITERATIONS = ("single iteration", "multi iteration")  # the first and the last search of CoV-RAG
WORDINGS = ("as asked", "clean wording")  # the two searches without a model
FACT_NAME = "{retriever} {questions} {measure}"
FACT_FORMATS = {
    "n": "{n:.0f}",
    "before": "{first:.1f}",
    "after": "{last:.1f}",
    "delta": "{delta:+.1f}",
    "interval": "[{delta_low:+.1f}, {delta_high:+.1f}]",
}


def load(run: Recorded) -> Parts:
    """Load predictions by retriever: CoV-RAG's, and those searched without a model.

    The latter are of more questions.
    """
    return load_or_outcomes(run, load_with_data, load_outcomes)


def load_outcomes(run: Recorded) -> Parts:
    """Load predictions by retriever with their recorded outcomes only."""
    return {name: load_part(run, name) for name in run.config.retrieval.retrievers}


def load_with_data(run: Recorded) -> Parts:
    """Load predictions by retriever with their questions and passages."""
    settings = run.config
    every_question = load_questions(settings.change(n_questions=0))
    passages = load_passages(settings)
    retrievers = settings.retrieval.retrievers
    answered = choose_questions(settings)
    check_data(run, retrievers, questions=answered, every=every_question, passages=passages)
    return load_parts(run, every_question, passages)


def load_parts(run: Recorded, questions: Sequence[Question], passages: Sequence[Passage]) -> Parts:
    """Load predictions by retriever with these questions, and passages of this corpus."""
    parts = {}
    for name in run.config.retrieval.retrievers:
        corpus = find_passages(replace(run.config.retrieval, retriever=name), passages)
        parts[name] = load_part(run, name, questions, corpus)
    return parts


def load_searches(settings: config.Config, passages: Sequence[Passage]) -> dict[str, Search]:
    """Load the search of each retriever over these passages."""
    searches = {}
    for name in settings.retrieval.retrievers:
        of_retriever = replace(settings.retrieval, retriever=name)
        searches[name] = load_retriever(of_retriever, passages)
    return searches


def choose_questions(settings: config.Config) -> list[Question]:
    """Return the questions that CoV-RAG answers."""
    chosen = [question for question in load_questions(settings) if question.dataset in SETS]
    if not chosen:
        raise ValueError(
            f"Table 6 needs one of the sets {', '.join(SETS)}, but the data has none of them"
        )
    return chosen


def build(searches: Parts, run: Recorded) -> Table:
    """Build Table 6 and its picture, with the part that is searched without a model."""
    frame = join_retrievers(searches)
    by_cov = frame[frame.system == COV_RAG]
    revised = retrieval_table(by_cov)
    clean = retrieval_table(frame[frame.system == CLEAN_WORDING])
    parts = build_parts(revised, REVISIONS[0], ITERATIONS)
    parts |= build_parts(clean, REVISIONS[1], WORDINGS)
    notes = []
    for retriever, rows in by_cov.groupby("retriever", sort=False):
        notes += [f"{retriever}, {note}" for note in accuracy.notes(rows)]
    facts = facts_of_rows(revised.dropna(subset="n"), FACT_NAME, FACT_FORMATS)
    with_revision = [
        revised.assign(revision=REVISIONS[0]),
        clean.assign(revision=REVISIONS[1]),
    ]
    rows = pd.concat(with_revision, ignore_index=True)
    k = run.config.retrieval.k
    title = f"Questions whose top {k} passages hold an answer ({run.config.model.short})"
    plots = {"png": partial(plot_retrieval, revised, title)}
    return Table("table6", rows, parts, notes, facts, plots, digits=3)


def build_parts(
    long: pd.DataFrame, revision: str, searches: tuple[str, str]
) -> dict[str, pd.DataFrame]:
    """Return one readable table per measure, by its heading."""
    parts = {}
    for measure in MEASURES:
        if (long.measure == measure).any():
            heading = f"Share of questions whose top k holds the {measure}, in % [95 % interval]"
            table = all_columns(long, measure, searches)
            parts[f"{heading}; revision: {revision}"] = table
    return parts


def list_passages(question: Question, searches: Mapping[str, Search]) -> pd.DataFrame:
    """List the titles and ids that each retriever finds; a web search may find fewer."""
    columns = {}
    for name, search in searches.items():
        (passages,) = search([question.question])
        titles = [f"{passage.title} ({passage.id})" for passage in passages]
        columns[label_of_retriever(name)] = pd.Series(titles)
    return pd.DataFrame(columns)


def search_twice(questions: Sequence[Question], search: Search) -> list[Prediction]:
    """Search each question as asked, then in its clean wording, which is not recorded."""
    before = search([question.question for question in questions])
    after = search([question.clean_question or question.question for question in questions])
    predictions = []
    for question, first, last in zip(questions, before, after):
        rounds = (
            Round(question.question, tuple(first), ""),
            Round("(its clean wording)", tuple(last), ""),
        )
        predictions.append(Prediction(question, CLEAN_WORDING, rounds))
    return predictions
