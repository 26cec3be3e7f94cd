"""How many questions' top k hold an answer or a gold passage, before and after a revision."""

import pandas as pd

from covrag_lite import config, metrics
from covrag_lite.runs.frame import to_frame
from covrag_lite.runs.recorded import Parts
from covrag_lite.systems.names import COV_RAG
from covrag_lite.tables import paper
from covrag_lite.tables.facts import minus
from covrag_lite.tables.intervals import share, with_interval
from covrag_lite.tables.labels import SMALL_SAMPLE, format_p, label_of_set

# What the top k must hold -> the columns of the frame.
MEASURES = {"answer": "found", "gold passage": "gold"}
FORMS = ("well put", "broken wording", "two-hop")
GROUPS = ("all", *FORMS)  # of questions, that are not sets
PAPER_MARK = "*"  # after the names of the paper's search engines
RETRIEVER_LABELS = {"bm25": "BM25"}
PAPER_SETS = ("NQ", "WebQ")
COLUMNS = {  # of the long form -> how a value is written
    "n": "{:.0f}",
    "first": "{:.1f}",
    "last": "{:.1f}",
    "delta": "{:+.1f}",
    "gained": "{:.0f}",
    "lost": "{:.0f}",
}


def join_retrievers(searches: Parts) -> pd.DataFrame:
    """Join predictions by retriever in one frame; which web pages are gold is not known."""
    frames = []
    for name, predictions in searches.items():
        frame = to_frame(predictions).assign(retriever=name)
        if not config.Retrieval(retriever=name).has_corpus:
            frame = frame.assign(gold_first=None, gold_last=None)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def retrieval_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the long form: one row per measure, group of questions and retriever."""
    rows = []
    for measure, column in MEASURES.items():
        measured = frame[f"{column}_first"].notna()
        for group, is_member in groups_of_questions(frame).items():
            start = {"measure": measure, "questions": label_of_set(group)}
            members = frame[measured & is_member]
            for retriever, part in members.groupby("retriever", sort=False):
                first = part[f"{column}_first"].astype(bool).tolist()
                last = part[f"{column}_last"].astype(bool).tolist()
                rows.append(start | {"retriever": retriever} | compare_searches(first, last))
            if measure == "answer" and COV_RAG in frame.system.values:
                rows += [start | row for row in rows_of_paper(group)]
    return pd.DataFrame(rows)


def groups_of_questions(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """Return for each set, for all questions and for each form whether a row belongs to it."""
    groups = {name: frame.dataset == name for name in frame.dataset.unique()}
    groups["all"] = frame.form.notna()
    for form in FORMS:
        groups[form] = frame.form == form
    return groups


def compare_searches(first: list[bool], last: list[bool]) -> dict[str, float]:
    """Return both shares and their difference in %, with intervals, and McNemar's test."""
    delta = [100 * value for value in metrics.paired_interval(first, last)]
    row = {"n": len(first)}
    for name, values in (("first", share(first)), ("last", share(last)), ("delta", delta)):
        row |= dict(zip((name, f"{name}_low", f"{name}_high"), values))
    return row | dict(zip(("gained", "lost", "p"), metrics.mcnemar(first, last)))


def rows_of_paper(dataset: str) -> list[dict]:
    """Return the paper's search engines; none for sets that are not the paper's."""
    engines = paper.load_table("table6").rename(columns={"single": "first", "multi": "last"})
    engines = engines[engines.dataset == dataset]
    engines = engines.assign(retriever=engines.retriever + PAPER_MARK)
    engines = engines.assign(delta=engines["last"] - engines["first"])
    return engines[["retriever", "first", "last", "delta"]].to_dict("records")


def all_columns(long: pd.DataFrame, measure: str, searches: tuple[str, str]) -> pd.DataFrame:
    """Return the table in full, as its file shows it, with names for both searches.

    A star marks the paper's search engines.
    """
    rows = long[long.measure == measure]
    headings = {"first": searches[0], "last": searches[1]}
    table = rows[["questions", "retriever"]].reset_index(drop=True)
    for name, text in COLUMNS.items():
        cells = rows.reindex(columns=[name, f"{name}_low", f"{name}_high"])
        texts = [with_interval(text, *cell) for cell in cells.itertuples(index=False)]
        table[headings.get(name, name)] = texts
    table["McNemar p"] = ["" if pd.isna(p) else format_p(p) for p in rows.p]
    return table.replace("–", "")


def before_after(long: pd.DataFrame, measure: str = "answer") -> pd.DataFrame:
    """Return the table as a notebook shows it: shares in %, or counts of few questions."""
    rows = []
    for row in long[long.measure == measure].itertuples():
        cells = count_cells(row) if row.n < SMALL_SAMPLE else share_cells(row)
        start = {"questions": row.questions, "search": label_of_retriever(row.retriever)}
        start["n"] = "–" if pd.isna(row.n) else f"{row.n:.0f}"
        rows.append(start | {name: minus(cell) for name, cell in cells.items()})
    return pd.DataFrame(rows).set_index(["questions", "search"])


def count_cells(row: tuple) -> dict[str, str]:
    """Return the cells of a row with few questions: how many of them."""
    first = round(row.first * row.n / 100)
    last = round(row.last * row.n / 100)
    return {
        "before": f"{first} of {row.n:.0f}",
        "after": f"{last} of {row.n:.0f}",
        "difference": f"{last - first:+d}",
    }


def share_cells(row: tuple) -> dict[str, str]:
    """Return the cells of a row with many questions: shares in %."""
    return {
        "before": f"{row.first:.1f}",
        "after": f"{row.last:.1f}",
        "difference": with_interval("{:+.1f}", row.delta, row.delta_low, row.delta_high),
    }


def next_to_paper(long: pd.DataFrame, revision: str = COV_RAG) -> pd.DataFrame:
    """Return the paper's own sets: its search engines and our retrievers, before and after."""
    shown = {}
    for name in PAPER_SETS:
        rows = long[(long.questions == name) & (long.measure == "answer")]
        if "revision" in rows:
            rows = rows[rows.revision == revision]
        rows = rows.assign(ours=rows.n.notna()).sort_values("ours", kind="stable")
        cells = before_after(rows).droplevel("questions").drop(columns="n")
        shown[f"{name}, n = {rows.n.max():.0f}"] = cells
    return pd.concat(shown, axis=1)


def label_of_retriever(name: str) -> str:
    """Return how a retriever is called where people read it.

    >>> label_of_retriever("Bing*")
    'Bing (the paper)'
    """
    if name.endswith(PAPER_MARK):
        return f"{name.removesuffix(PAPER_MARK)} (the paper)"
    return RETRIEVER_LABELS.get(name, name)
