"""A sample of Table 2 that is answered live: its rows, answers and texts next to the recorded ones.

A GPU in bf16 and a CPU in fp32 round differently, so a text may differ at any word.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from covrag_lite import config
from covrag_lite.records import Prediction
from covrag_lite.runs import recorded
from covrag_lite.runs.compare import changed
from covrag_lite.runs.frame import is_round_right, outcome_of
from covrag_lite.runs.recorded import Recorded, choose, describe_run
from covrag_lite.systems import names
from covrag_lite.tables.accuracy import accuracy_table, in_order, wide
from covrag_lite.tables.labels import label_of, with_labels
from covrag_lite.tables.table import Table

LISTED_SYSTEMS = (names.RAG_TRAINED, names.COV_RAG)  # whose answers are listed
LISTED_QUESTIONS = 20
SAME_TEXT = "identical texts"
SAME_OUTCOME = "same outcome"
MARKS = {True: "✓ ", False: "✗ ", None: ""}  # None: the gold answer cannot be scored


def load_record(settings: config.Config) -> tuple[Recorded | None, list[Prediction]]:
    """Load the recorded run that is shown and its predictions; print what it is, if any."""
    run = choose(settings)
    print(describe_run(run))
    return run, recorded.load(run) if run else []


def recorded_and_live(stored: pd.DataFrame, live: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return recorded rows, or recorded and live rows of the live systems in one table."""
    if live is not None and len(stored):
        stored = stored[stored.system.isin(live.system)]
    parts = {}
    for answered, frame in (("recorded", stored), ("live", live)):
        if frame is not None and len(frame):
            parts[answered] = wide(accuracy_table(frame, "table2"))
            parts[answered].insert(0, "n", frame.groupby("system").id.nunique())
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, names=["answered"]).swaplevel()
    systems = in_order(table.index.unique("system"))
    table = table.loc[sorted(table.index, key=lambda row: systems.index(row[0]))]
    table = with_labels(table).fillna("–").rename_axis(columns=None)
    return table if live is not None else table.droplevel("answered")


def list_answers(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """Return the first questions with gold answer, two systems' answers and revised question."""
    rows: dict[str, dict[str, str]] = {}
    for prediction in predictions:
        if prediction.system not in LISTED_SYSTEMS:
            continue
        question = prediction.question
        about = {"question": question.question, "gold answer": question.answers[0]}
        row = rows.setdefault(question.id, about)
        mark = MARKS[outcome_of(prediction, prediction.kept).normalised]
        row[label_of(prediction.system)] = mark + prediction.answer
        if prediction.revised:
            row["revised question"] = prediction.rounds[1].query
    return pd.DataFrame(rows.values()).fillna("–").head(LISTED_QUESTIONS)


def compare_texts(live: Sequence[Prediction], stored: Sequence[Prediction]) -> pd.DataFrame:
    """Count per system the live predictions with the recorded texts, and with the same outcome."""
    stored_by_question = {(p.system, p.question.id): p for p in stored}
    rows = []
    for new in live:
        old = stored_by_question.get((new.system, new.question.id))
        if old:
            same_outcome = is_round_right(new, new.kept) == is_round_right(old, old.kept)
            rows.append((new.system, 1, new.rounds == old.rounds, same_outcome))
    table = pd.DataFrame(rows, columns=["system", "questions", SAME_TEXT, SAME_OUTCOME])
    return with_labels(table.groupby("system", sort=False).sum())


def describe_texts(texts: pd.DataFrame, manifest: dict, run: Recorded | None) -> str:
    """Describe what `compare_texts` shows, and what else differs from the recorded run."""
    if run is None or texts.empty:
        return "none of the live questions is recorded, so there are no texts to compare with"
    counts = texts.sum()
    text = (
        f"{counts[SAME_TEXT]} of {counts['questions']} live predictions repeat every recorded"
        f" text; {counts[SAME_OUTCOME]} have the same outcome, right or wrong. "
        f"Live on {machine_of(manifest)}, recorded on {machine_of(run.manifest)}"
    )
    of_sample = ("n_questions ", "the questions")  # a sample has fewer questions
    others = [line for line in changed(manifest, run.manifest) if not line.startswith(of_sample)]
    return text + (f"; they also differ in {'; '.join(others)}." if others else ".")


def machine_of(manifest: dict) -> str:
    """Return the machine of a run, in words."""
    return manifest["hardware"]["gpu"] or "a CPU"


def save_live(folder: Path, table: pd.DataFrame, texts: pd.DataFrame, sentence: str) -> str:
    """Write both tables as Markdown, which `make table2` prints; return the sentence."""
    heading = "Accuracy in % [95 % interval]; a count where there are few questions"
    parts = {
        heading: table.reset_index(),
        "Live predictions compared with the recorded ones": texts.reset_index(),
    }
    Table("table2.live", pd.DataFrame(), parts, [sentence]).save(folder)
    return sentence
