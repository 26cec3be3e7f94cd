"""Table 6: what each retriever finds before and after a revision, next to the paper's engines.

It is built twice: for the revisions that CoV-RAG writes, and without a model for the clean
wordings, which are the best possible revisions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite import config, labels, metrics
from covrag_lite.data import load_passages, load_questions
from covrag_lite.labels import format_p, label_of_set
from covrag_lite.records import Prediction, Question, Round, Search
from covrag_lite.retrieval import find_passages
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Parts, Recorded, check_data, load_or_outcomes, load_part
from covrag_lite.systems import palette
from covrag_lite.tables import Table, accuracy, paper, pictures
from covrag_lite.tables.accuracy import minus, share, with_interval

SETS = ("search", "entity", "nq", "webq")  # that CoV-RAG answers: the paper's two kinds
MEASURES = {"answer": "found", "gold passage": "gold"}  # what the top k must hold -> columns of the frame
REVISIONS = ("CoV-RAG", "clean wording, without a model")  # who writes the second query
ITERATIONS = ("single iteration", "multi iteration")  # the first and the last search of CoV-RAG
WORDINGS = ("as asked", "clean wording")  # the two searches without a model
FORMS = ("all", "well put", "broken wording", "two-hop")  # groups of questions that are not sets
PAPERS = "*"  # marks the paper's search engines
LABELS = {"bm25": "BM25"}


def load(run: Recorded) -> Parts:
    """Predictions by retriever: CoV-RAG's, and those searched without a model, over more questions."""
    names = run.config.retrieval.retrievers
    return load_or_outcomes(run, score_searches, lambda run: {name: load_part(run, name) for name in names})


def score_searches(run: Recorded) -> Parts:
    """Predictions by retriever, with their questions and passages."""
    settings = run.config
    every, passages = load_questions(settings.change(n_questions=0)), load_passages(settings)
    retrievers = settings.retrieval.retrievers
    check_data(run, retrievers, questions=choose_questions(settings), every=every, passages=passages)
    parts = {}
    for name in retrievers:
        corpus = find_passages(replace(settings.retrieval, retriever=name), passages)
        parts[name] = load_part(run, name, every, corpus)
    return parts


def choose_questions(settings: config.Config) -> list[Question]:
    """The questions that CoV-RAG answers."""
    chosen = [question for question in load_questions(settings) if question.dataset in SETS]
    if not chosen:
        raise ValueError(f"Table 6 needs one of the sets {', '.join(SETS)}, but the data has none of them")
    return chosen


def build(searches: Parts, run: Recorded) -> Table:
    """Table 6 and its picture, with the part that is searched without a model."""
    frame = join_retrievers(searches)
    by_cov, by_wording = (frame[frame.system == system] for system in ("CoV-RAG", "clean wording"))
    revised, clean = retrieval_table(by_cov), retrieval_table(by_wording)
    parts, lines = {}, []
    for name, table, words in ((REVISIONS[0], revised, ITERATIONS), (REVISIONS[1], clean, WORDINGS)):
        for measure in MEASURES:
            if (table.measure == measure).any():
                heading = f"Share of questions whose top k holds the {measure}, in % [95 % interval]; revision: {name}"
                parts[heading] = wide(table, measure, words)
    for retriever, part in by_cov.groupby("retriever", sort=False):
        lines += [f"{retriever}, {line}" for line in accuracy.notes(part)]
    forms = {"n": "{n:.0f}", "before": "{first:.1f}", "after": "{last:.1f}", "delta": "{delta:+.1f}"}
    forms |= {"interval": "[{delta_low:+.1f}, {delta_high:+.1f}]"}
    facts = accuracy.tell_rows(revised.dropna(subset="n"), "{retriever} {questions} {measure}", forms)
    rows = pd.concat([revised.assign(revision=REVISIONS[0]), clean.assign(revision=REVISIONS[1])], ignore_index=True)
    title = f"Questions whose top {run.config.retrieval.k} passages hold an answer ({run.config.model.short})"
    return Table("table6", rows, parts, lines, facts, {"png": partial(plot, revised, title)}, digits=3)


def list_found(question: Question, searches: Mapping[str, Search]) -> pd.DataFrame:
    """The titles and ids that each retriever finds for a question; a web search may find fewer."""
    columns = {}
    for name, search in searches.items():
        (passages,) = search([question.question])
        columns[LABELS.get(name, name)] = pd.Series([f"{passage.title} ({passage.id})" for passage in passages])
    return pd.DataFrame(columns)


def search_twice(questions: Sequence[Question], search: Search) -> list[Prediction]:
    """Each question searched as asked, then in its clean wording, which is not recorded."""
    before = search([q.question for q in questions])
    after = search([q.clean_question or q.question for q in questions])
    predictions = []
    for question, first, last in zip(questions, before, after):
        rounds = (Round(question.question, tuple(first), ""), Round("(its clean wording)", tuple(last), ""))
        predictions.append(Prediction(question, "clean wording", rounds))
    return predictions


def join_retrievers(searches: Parts) -> pd.DataFrame:
    """Predictions by retriever as one frame; for web pages it is not known which are gold."""
    frames = []
    for name, predictions in searches.items():
        frame = to_frame(predictions).assign(retriever=name)
        if not config.Retrieval(retriever=name).has_corpus:
            frame = frame.assign(gold_first=None, gold_last=None)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def retrieval_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The long form: one row per measure, group of questions and retriever."""
    engines = paper.load_table("table6").rename(columns={"single": "first", "multi": "last"})
    engines = engines.assign(retriever=engines.retriever + PAPERS, delta=engines["last"] - engines["first"])
    groups = {name: frame.dataset == name for name in frame.dataset.unique()}
    groups["all"] = frame.form.notna()
    groups |= {name: frame.form == name for name in FORMS[1:]}
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
            if measure == "answer" and "CoV-RAG" in frame.system.values:  # only for the paper's own sets
                of_set = engines[engines.dataset == group][["retriever", "first", "last", "delta"]]
                rows += [about | row for row in of_set.to_dict("records")]
    return pd.DataFrame(rows)


def wide(long: pd.DataFrame, measure: str = "answer", names: tuple[str, str] = ITERATIONS) -> pd.DataFrame:
    """The table in full, as its file shows it; a star marks the paper's search engines."""
    rows = long[long.measure == measure]
    columns = {"n": ("n", "{:.0f}"), names[0]: ("first", "{:.1f}"), names[1]: ("last", "{:.1f}")}
    columns |= {"delta": ("delta", "{:+.1f}"), "gained": ("gained", "{:.0f}"), "lost": ("lost", "{:.0f}")}
    shown = {name: rows[name].tolist() for name in ("questions", "retriever")}
    for heading, (name, form) in columns.items():
        cells = rows.reindex(columns=[name, f"{name}_low", f"{name}_high"])
        shown[heading] = [with_interval(form, *cell) for cell in cells.itertuples(index=False)]
    shown["McNemar p"] = ["" if pd.isna(p) else format_p(p) for p in rows.p]
    return pd.DataFrame(shown).replace("–", "")


def before_after(long: pd.DataFrame, measure: str = "answer") -> pd.DataFrame:
    """The table as a notebook shows it: shares in %, or counts where there are few questions."""
    rows = []
    for row in long[long.measure == measure].itertuples():
        about = {"questions": row.questions, "search": label_of_retriever(row.retriever)}
        if row.n < labels.SMALL_SAMPLE:
            first, last = (round(value * row.n / 100) for value in (row.first, row.last))
            cells = [f"{first} of {row.n:.0f}", f"{last} of {row.n:.0f}", f"{last - first:+d}"]
        else:
            delta = with_interval("{:+.1f}", row.delta, row.delta_low, row.delta_high)
            cells = [f"{row.first:.1f}", f"{row.last:.1f}", delta]
        n = "–" if pd.isna(row.n) else f"{row.n:.0f}"
        before, after, difference = map(minus, cells)
        rows.append(about | {"n": n, "before": before, "after": after, "difference": difference})
    return pd.DataFrame(rows).set_index(["questions", "search"])


def next_to_paper(long: pd.DataFrame) -> pd.DataFrame:
    """The paper's own sets: the paper's search engines and our retrievers, before and after."""
    shown = {}
    for name in ("NQ", "WebQ"):
        rows = long[(long.questions == name) & (long.measure == "answer")]
        if "revision" in rows:
            rows = rows[rows.revision == REVISIONS[0]]
        rows = rows.assign(ours=rows.n.notna()).sort_values("ours", kind="stable")
        cells = before_after(rows).droplevel("questions").drop(columns="n")
        shown[f"{name}, n = {rows.n.max():.0f}"] = cells
    return pd.concat(shown, axis=1)


def label_of_retriever(name: str) -> str:
    """How a retriever is called where people read it.

    >>> label_of_retriever("Bing*")
    'Bing (the paper)'
    """
    if name.endswith(PAPERS):
        return f"{name.removesuffix(PAPERS)} (the paper)"
    return LABELS.get(name, name)


def plot(long: pd.DataFrame, title: str, path: Path) -> "pictures.Figure":
    """One panel per set: the share before and after by retriever; the paper's as diamonds."""
    plt, _ = pictures.style(0.85)
    rows = long[(long.measure == "answer") & ~long.questions.isin(FORMS)]
    sets = rows.questions.unique()
    options = dict(figsize=(6.5 * len(sets), 6), layout="constrained", sharey=True, squeeze=False)
    figure, panels = plt.subplots(1, len(sets), **options)
    for axes, name in zip(panels[0], sets):
        group = rows[rows.questions == name]
        _draw_set(axes, group)
        n = group.n.max()
        sample = ", a sample" if n < labels.SMALL_SAMPLE else ""
        axes.set(title=f"{name} (n = {n:.0f}{sample})", ylim=(0, 100))
        axes.grid(axis="x", visible=False)
    panels[0][0].set_ylabel("questions (%)")
    panels[0][-1].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    figure.suptitle(title)
    return pictures.save_picture(figure, path)


def _draw_set(axes: "pictures.Axes", rows: pd.DataFrame) -> None:
    """One panel: two bars or two diamonds per row, before and after the revision."""
    light, dark = palette()["CoV-RAG-S"], palette()["CoV-RAG"]
    looks = {"first": ("before", light, -0.2), "last": ("after", dark, 0.2)}
    places = pd.Series(range(len(rows)), index=rows.index)
    ours = rows.n.notna()
    for when, (word, colour, shift) in looks.items():
        names = {when: "value", f"{when}_low": "low", f"{when}_high": "high"}
        bars = rows[ours].rename(columns=names)
        axes.bar(places[ours] + shift, bars.value, 0.38, color=colour, label=f"{word} the revision")
        pictures.draw_intervals(axes, (places[ours] + shift).tolist(), bars)
    for when, (word, colour, shift) in looks.items() if (~ours).any() else ():
        diamonds = pictures.DIAMOND | {"mfc": colour, "ms": 10, "label": f"the paper, {word}"}
        axes.plot(places[~ours] + shift, rows[~ours][when], **diamonds)
    ticks = [LABELS.get(name, name.removesuffix(PAPERS)) for name in rows.retriever]
    axes.set_xticks(places, ticks)
