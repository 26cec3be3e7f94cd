"""Table 6: what each retriever finds at first and after a revision, beside the paper's search engines.

Made from the tidy frame of `outcomes.to_frame` with a column `retriever`; notebooks/table6.ipynb calls it twice, for
CoV-RAG's revisions and for the clean wordings, which are the best revisions there could be.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config, Retrieval
from covrag_lite.records import Prediction, Question, Round, Search
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.tables import accuracy as tables
from covrag_lite.tables import paper

MEASURES = {"answer": "found", "gold passage": "gold"}  # what the top k must hold: the frame's columns that tell it
REVISIONS = ("CoV-RAG", "clean wording, without a model")  # who put the question anew
ITERATIONS = ("single iteration", "multi iteration")  # what first and last mean for CoV-RAG
WORDINGS = ("as asked", "clean wording")  # and without a model


def list_found(question: Question, searches: Mapping[str, Search]) -> pd.DataFrame:
    """The titles and ids that each retriever finds for a question; on the web some find fewer."""
    found = {}
    for name, search in searches.items():
        found[name] = pd.Series([f"{passage.title} ({passage.id})" for passage in search([question.question])[0]])
    return pd.DataFrame(found)


def search_twice(questions: Sequence[Question], search: Search) -> list[Prediction]:
    """Each question searched as asked and, in a second round, in its clean wording, without a model.

    The second round does not repeat that wording, because a recorded prediction holds none of the data's own text.
    """
    asked = search([q.question for q in questions])
    clean = search([q.clean_question or q.question for q in questions])
    made = []
    for question, first, last in zip(questions, asked, clean):
        rounds = (Round(question.question, tuple(first), ""), Round("(its clean wording)", tuple(last), ""))
        made.append(Prediction(question, "clean wording", rounds))
    return made


def join_retrievers(searches: Mapping[str, Sequence[Prediction]]) -> pd.DataFrame:
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
    groups = {name: frame.dataset == name for name in frame.dataset.unique()}
    groups["all"] = frame.form.notna()
    groups |= {name: frame.form == name for name in ("well put", "broken wording", "two-hop")}
    rows = []
    for measure, column in MEASURES.items():
        known = frame[f"{column}_first"].notna()
        for group, chosen in groups.items():
            about = {"measure": measure, "questions": tables.name_of(group)}
            for retriever, part in frame[known & chosen].groupby("retriever", sort=False):
                first, last = part[f"{column}_first"].astype(bool), part[f"{column}_last"].astype(bool)
                rows.append(about | {"retriever": retriever} | _before_and_after(first.tolist(), last.tolist()))
            if measure == "answer" and "CoV-RAG" in frame.system.values:
                rows += [about | row for row in _paper_rows(group)]
    return pd.DataFrame(rows)


def _before_and_after(first: list[bool], last: list[bool]) -> dict[str, float]:
    """Both shares and their difference, with intervals and McNemar's test."""
    gained, lost, p = metrics.mcnemar(first, last)
    row = {"n": len(first)}
    row |= _percent("first", sum(first) / len(first), *metrics.wilson(sum(first), len(first)))
    row |= _percent("last", sum(last) / len(last), *metrics.wilson(sum(last), len(last)))
    row |= _percent("delta", *metrics.paired_bootstrap(first, last))
    return row | {"gained": gained, "lost": lost, "p": p}


def _percent(name: str, value: float, low: float, high: float) -> dict[str, float]:
    return {name: 100 * value, f"{name}_low": 100 * low, f"{name}_high": 100 * high}


def _paper_rows(dataset: str) -> list[dict]:
    """The paper's search engines on this very set; neither is one of our retrievers, and no n is given."""
    made = []
    for row in paper.load_paper()["table6"]["rows"].values():
        if row["dataset"] == dataset:
            delta = row["multi"] - row["single"]
            name = f"{row['retriever']}*"
            made.append({"retriever": name, "first": row["single"], "last": row["multi"], "delta": delta})
    return made


def wide(long: pd.DataFrame, measure: str = "answer", names: tuple[str, str] = ITERATIONS) -> pd.DataFrame:
    """The same table as a person reads it; a star marks the paper's search engines."""
    rows = long[long.measure == measure]
    return pd.DataFrame(
        {
            "questions": rows.questions.tolist(),
            "retriever": rows.retriever.tolist(),
            "n": _counts(rows.n),
            names[0]: _shares(rows, "first", "{:.1f}"),
            names[1]: _shares(rows, "last", "{:.1f}"),
            "delta": _shares(rows, "delta", "{:+.1f}"),
            "gained": _counts(rows.gained),
            "lost": _counts(rows.lost),
            "McNemar p": _counts(rows.p, "{:.3f}"),
        }
    )


def _counts(values: pd.Series, form: str = "{:.0f}") -> list[str]:
    return ["" if pd.isna(value) else form.format(value) for value in values]


def _shares(rows: pd.DataFrame, column: str, form: str) -> list[str]:
    """Shares with their intervals; the paper gives none."""
    made = []
    for value, low, high in zip(rows[column], rows[f"{column}_low"], rows[f"{column}_high"]):
        interval = "" if pd.isna(low) else f" [{form}, {form}]".format(low, high)
        made.append(form.format(value) + interval)
    return made


def join(revised: pd.DataFrame, clean: pd.DataFrame) -> pd.DataFrame:
    """Both parts as one long table."""
    parts = [table.assign(revision=name) for name, table in zip(REVISIONS, (revised, clean))]
    return pd.concat(parts, ignore_index=True)


def notes(frame: pd.DataFrame) -> list[str]:
    """What must stand under the table, retriever by retriever."""
    lines = []
    for retriever, part in frame.groupby("retriever", sort=False):
        lines += [f"{retriever}, {line}" for line in tables.notes(part)]
    return lines


def title(config: Config) -> str:
    """What stands over the picture."""
    data = "the embedded world" if config.data.data == "world" else Path(config.data.data).name
    return f"Table 6: CoV-RAG, {config.model.short}, on {data}"


def save(folder: Path, revised: pd.DataFrame, clean: pd.DataFrame, lines: Sequence[str]) -> str:
    """Write `table6.csv` and, readable, `table6.md`: CoV-RAG's revisions, then the clean wordings."""
    parts = {}
    for name, table, words in ((REVISIONS[0], revised, ITERATIONS), (REVISIONS[1], clean, WORDINGS)):
        for measure in MEASURES:
            if (table.measure == measure).any():
                heading = f"Share of questions whose top k holds the {measure}, in % [95 % interval]; revision: {name}"
                parts[heading] = wide(table, measure, words)
    return tables.write_table(folder, "table6", join(revised, clean), parts, lines, digits=3)
