"""Table 6: what each retriever finds at first and after a revision, beside the paper's search engines.

Made twice: for CoV-RAG's revisions, and without a model for the clean wordings, the best revisions there could be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config, Retrieval
from covrag_lite.data import load_passages, load_questions
from covrag_lite.records import Prediction, Question, Round, Search
from covrag_lite.retrieval import find_passages
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Parts, Recorded, check_data, load_or_outcomes, load_part
from covrag_lite.tables import Table, accuracy, paper
from covrag_lite.tables.accuracy import share, with_interval
from covrag_lite.tables.labels import format_p, label_of_set
from covrag_lite.tables.reproduction import tidy

SETS = ("search", "entity", "nq", "webq")  # that CoV-RAG answers: the paper's two kinds, as far as the data has them
MEASURES = {"answer": "found", "gold passage": "gold"}  # what the top k must hold: the frame's columns that tell it
REVISIONS = ("CoV-RAG", "clean wording, without a model")  # who put the question anew
ITERATIONS = ("single iteration", "multi iteration")  # what first and last mean for CoV-RAG
WORDINGS = ("as asked", "clean wording")  # and without a model


def load(run: Recorded) -> Parts:
    """Predictions by their retriever: CoV-RAG's, and those searched without a model, over more questions."""
    names = run.config.retrieval.retrievers
    return load_or_outcomes(run, score_searches, lambda run: {name: load_part(run, name) for name in names})


def score_searches(run: Recorded) -> Parts:
    """Predictions by their retriever, with the questions and passages put back."""
    asked = run.config
    every, passages = load_questions(asked.change(n_questions=0)), load_passages(asked)
    retrievers = asked.retrieval.retrievers
    check_data(run, retrievers, questions=choose_questions(asked), every=every, passages=passages)
    found = {name: find_passages(replace(asked.retrieval, retriever=name), passages) for name in retrievers}
    return {name: load_part(run, name, every, own) for name, own in found.items()}


def choose_questions(config: Config) -> list[Question]:
    """The questions that CoV-RAG answers."""
    chosen = [one for one in load_questions(config) if one.dataset in SETS]
    if not chosen:
        raise ValueError(f"the data has none of the sets {', '.join(SETS)}, which Table 6 is about")
    return chosen


def build(searches: Parts, run: Recorded) -> Table:
    """Table 6 and its picture, with the part that is searched without a model."""
    frame = join_retrievers(searches)
    own, without = (frame[frame.system == system] for system in ("CoV-RAG", "clean wording"))
    revised, clean = retrieval_table(own), retrieval_table(without)
    parts, lines = {}, []
    for name, table, words in ((REVISIONS[0], revised, ITERATIONS), (REVISIONS[1], clean, WORDINGS)):
        for measure in MEASURES:
            if (table.measure == measure).any():
                heading = f"Share of questions whose top k holds the {measure}, in % [95 % interval]; revision: {name}"
                parts[heading] = wide(table, measure, words)
    for retriever, part in own.groupby("retriever", sort=False):
        lines += [f"{retriever}, {line}" for line in accuracy.notes(part)]
    every = revised[(revised.questions == "all") & (revised.measure == "answer")].dropna(subset="n")
    found = ", ".join(f"{row.retriever} {row.first:.0f} → {row.last:.0f} %" for row in every.itertuples())
    forms = {"n": "{n:.0f}", "before": "{first:.1f}", "after": "{last:.1f}", "delta": "{delta:+.1f}"}
    forms |= {"interval": "[{delta_low:+.1f}, {delta_high:+.1f}]"}
    facts = accuracy.tell_rows(revised.dropna(subset="n"), "{retriever} {questions} {measure}", forms)
    rows = pd.concat([revised.assign(revision=REVISIONS[0]), clean.assign(revision=REVISIONS[1])], ignore_index=True)
    shares = tidy(every).assign(dataset="all", metric=lambda own: own.retriever, paper=None)
    drawn = shares.assign(system=shares.share.map({"first": "CoV-RAG-S", "last": "CoV-RAG"})).dropna(subset="system")
    title = accuracy.title("table6", run.config, drawn.astype({"n": int}), f"Found before → after: {found}\n")
    plot = partial(accuracy.plot_accuracy, drawn, title, metric=None)
    return Table("table6", rows, parts, lines, facts, {"png": plot}, digits=3)


def list_found(question: Question, searches: Mapping[str, Search]) -> pd.DataFrame:
    """The titles and ids that each retriever finds for a question; on the web some find fewer."""
    found = {name: search([question.question])[0] for name, search in searches.items()}
    return pd.DataFrame({name: pd.Series([f"{one.title} ({one.id})" for one in own]) for name, own in found.items()})


def search_twice(questions: Sequence[Question], search: Search) -> list[Prediction]:
    """Each question searched as asked and, in a second round, in its clean wording, which no record may repeat."""
    asked = search([q.question for q in questions])
    clean = search([q.clean_question or q.question for q in questions])
    made = []
    for question, first, last in zip(questions, asked, clean):
        rounds = (Round(question.question, tuple(first), ""), Round("(its clean wording)", tuple(last), ""))
        made.append(Prediction(question, "clean wording", rounds))
    return made


def join_retrievers(searches: Parts) -> pd.DataFrame:
    """Predictions by their retriever as one frame; of pages of the web none is known to be gold."""
    frames = []
    for name, made in searches.items():
        frame = to_frame(made).assign(retriever=name)
        if not Retrieval(retriever=name).has_corpus:
            frame = frame.assign(gold_first=None, gold_last=None)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def retrieval_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The long form: a row a measure, group of questions and retriever, with the share before and after."""
    engines = paper.load_table("table6").rename(columns={"single": "first", "multi": "last"})
    engines = engines.assign(retriever=engines.retriever + "*", delta=engines["last"] - engines["first"])
    groups = {name: frame.dataset == name for name in frame.dataset.unique()}
    groups["all"] = frame.form.notna()
    groups |= {name: frame.form == name for name in ("well put", "broken wording", "two-hop")}
    rows = []
    for measure, column in MEASURES.items():
        known = frame[f"{column}_first"].notna()
        for group, chosen in groups.items():
            about = {"measure": measure, "questions": label_of_set(group)}
            for retriever, part in frame[known & chosen].groupby("retriever", sort=False):
                first, last = (part[f"{column}_{when}"].astype(bool).tolist() for when in ("first", "last"))
                delta = [100 * value for value in metrics.paired_interval(first, last)]
                row = about | {"retriever": retriever, "n": len(first)}
                for name, values in (("first", share(first)), ("last", share(last)), ("delta", delta)):
                    row |= dict(zip((name, f"{name}_low", f"{name}_high"), values))
                rows.append(row | dict(zip(("gained", "lost", "p"), metrics.mcnemar(first, last))))
            if measure == "answer" and "CoV-RAG" in frame.system.values:  # the paper's engines, on this very set
                beside = engines[engines.dataset == group][["retriever", "first", "last", "delta"]]
                rows += [about | row for row in beside.to_dict("records")]
    return pd.DataFrame(rows)


def wide(long: pd.DataFrame, measure: str = "answer", names: tuple[str, str] = ITERATIONS) -> pd.DataFrame:
    """The same table as a person reads it; a star marks the paper's search engines, of which less is known."""
    rows = long[long.measure == measure]
    columns = {"n": ("n", "{:.0f}"), names[0]: ("first", "{:.1f}"), names[1]: ("last", "{:.1f}")}
    columns |= {"delta": ("delta", "{:+.1f}"), "gained": ("gained", "{:.0f}"), "lost": ("lost", "{:.0f}")}
    made = {name: rows[name].tolist() for name in ("questions", "retriever")}
    for heading, (name, form) in columns.items():
        cells = rows.reindex(columns=[name, f"{name}_low", f"{name}_high"])
        made[heading] = [with_interval(form, *cell) for cell in cells.itertuples(index=False)]
    made["McNemar p"] = ["" if pd.isna(p) else format_p(p) for p in rows.p]
    return pd.DataFrame(made).replace("–", "")
