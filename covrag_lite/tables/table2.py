"""Table 2: accuracy of the systems.

`large_test` shows our gains over all held-out questions. The rest is about a sample that is
answered live: its rows next to the recorded ones, its answers, and whether its texts are the recorded
ones. A GPU in bf16 and a CPU in fp32 round differently, so a text may differ at any word.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite import config
from covrag_lite.labels import label_of, with_labels
from covrag_lite.records import Prediction
from covrag_lite.runs import recorded
from covrag_lite.runs.outcomes import outcome_of, to_frame
from covrag_lite.runs.recorded import Recorded, changed, choose, tell
from covrag_lite.tables import Table, accuracy, claim, table4, verifier
from covrag_lite.tables.reproduction import REAL, load_rows
from covrag_lite.tables.table5 import is_right

BASELINE = "RAG trained"
SHOWN = ("RAG", BASELINE, "CoV-RAG-S", "CoV-RAG")  # rows shown next to the paper's
DIFFERENCES = ((BASELINE, "CoV-RAG"),)  # the paper's claim
OTHER_QUESTIONS = ("mintaka", "triviaqa")  # the paper's samples of these sets are not published
# Systems of the large test that are shown, the paper's form first, then ours, then baselines.
GAINS = (
    "CoV-RAG-S",
    "CoV-RAG",
    claim.BEST,
    claim.DIRECT,
    claim.EXPANDED,
    claim.CHOSEN,
    claim.PLAIN_TWO,
)
SAME_TEXT, SAME_OUTCOME = "identical texts", "same outcome"


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Table 2; a sample of a larger recorded run keeps that run's picture."""
    frame = to_frame(predictions)  # in the order in which they ran, as the notes below the table
    table = accuracy.build("table2", frame, run, verifier.facts(frame) | table4.facts(predictions))
    larger = choose(run.config, run.root)
    if larger and larger.n > run.n:
        return replace(table, plots={"png": partial(shutil.copyfile, larger.file("png"))})
    return table


def on_other_questions(rows: pd.DataFrame) -> pd.DataFrame:
    """Our accuracy on samples of Mintaka and TriviaQA that are not the paper's."""
    rows = rows[rows.system.isin(SHOWN) & rows.dataset.isin(OTHER_QUESTIONS)]
    shown = with_labels(accuracy.wide(rows.assign(paper=None)))
    return shown.rename(columns="{} (other questions)".format)


def large_test(folder: Path = REAL, systems: Sequence[str] = GAINS, root: Path = config.ROOT) -> pd.DataFrame:
    """Gains over RAG (trained) on the large test, one row per system.

    The baseline of a row has the same seeds and questions, so it differs slightly between rows.
    """
    rows = load_rows("claim", folder, root)
    rows = rows[(rows.set == claim.EVERY) & (rows["from"] == BASELINE)]
    shown = []
    for system in systems:
        of_system = rows[rows.to == system]
        if of_system.empty:  # not run with this backbone
            continue
        single = of_system[of_system.seed != claim.POOLED]
        row = claim.shown(of_system.tail(1)).iloc[0]  # pooled, or the only seed
        note = " (post hoc)" if "post hoc" in claim.FOREST.get(system, [""])[0] else ""
        shown.append(
            {
                "system": label_of(system) + note,
                "seeds": ", ".join(map(str, single.seed)),
                "n": f"{row.n:,}",
                f"{label_of(BASELINE)}, %": row["from, %"],
                "this system, %": row["to, %"],
                "difference": accuracy.minus(row.difference),
                "95 % interval": accuracy.minus(row["95 % interval"]),
            }
        )
    return pd.DataFrame(shown).set_index("system")


def load_record(settings: config.Config) -> tuple[Recorded | None, list[Prediction]]:
    """The recorded run that is shown and its predictions; prints what it is, if there is one."""
    run = choose(settings)
    print(tell(run))
    return run, recorded.load(run) if run else []


def compare_systems(frame: pd.DataFrame) -> pd.DataFrame:
    """The main systems two by two on the same questions, with the minimum detectable effect."""
    rows = accuracy.compare(frame, accuracy.PAIRS[:6]).query("metric == 'normalised'")
    shown = with_labels(accuracy.with_visible(rows)).drop(columns=["metric", "n"])
    return shown.set_index("comparison").map(with_minus)


def gain_by_failure(frame: pd.DataFrame) -> pd.DataFrame:
    """First and last answers of CoV-RAG by what makes a question of the fictional world fail."""
    table = verifier.failure_table(frame).set_index("questions")
    columns = ["n", "first", "revised", "last", "gain", "95 % interval"]
    return table[columns].rename(index={"none": "no failure"}).map(with_minus)


def with_minus(cell: object) -> object:
    """A cell of a table with a proper minus sign."""
    return accuracy.minus(cell) if isinstance(cell, str) else cell


def rescued(predictions: Sequence[Prediction]) -> Prediction:
    """The first question that CoV-RAG answers wrongly at first and rightly after its revision, or any."""
    for prediction in predictions:
        if prediction.system == "CoV-RAG" and prediction.revised:
            if not is_right(prediction, 0) and is_right(prediction, prediction.kept):
                return prediction
    return predictions[-1]


def recorded_and_live(recorded: pd.DataFrame, live: pd.DataFrame | None = None) -> pd.DataFrame:
    """Recorded rows, or recorded and live rows of the live systems in one table."""
    if live is not None and len(recorded):
        recorded = recorded[recorded.system.isin(live.system)]
    parts = {}
    for answered, frame in (("recorded", recorded), ("live", live)):
        if frame is not None and len(frame):
            parts[answered] = accuracy.wide(accuracy.accuracy_table(frame, "table2"))
            parts[answered].insert(0, "n", frame.groupby("system").id.nunique())
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, names=["answered"]).swaplevel()
    systems = accuracy.in_order(table.index.unique("system"))
    table = table.loc[sorted(table.index, key=lambda row: systems.index(row[0]))]
    table = with_labels(table).fillna("–").rename_axis(columns=None)
    return table if live is not None else table.droplevel("answered")


def list_answers(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """The first 20 questions with gold answer, the systems' answers and the revised question."""
    rows: dict[str, dict[str, str]] = {}
    marks = {True: "✓ ", False: "✗ ", None: ""}  # None: the gold answer cannot be scored
    for prediction in predictions:
        if prediction.system in DIFFERENCES[0]:
            question = prediction.question
            about = {"question": question.question, "gold answer": question.answers[0]}
            row = rows.setdefault(question.id, about)
            mark = marks[outcome_of(prediction, prediction.kept).normalised]
            row[label_of(prediction.system)] = mark + prediction.answer
            if prediction.revised:
                row["revised question"] = prediction.rounds[1].query
    return pd.DataFrame(rows.values()).fillna("–").head(20)


def compare_texts(live: Sequence[Prediction], recorded: Sequence[Prediction]) -> pd.DataFrame:
    """Per system: live predictions with the recorded texts, and those with the same outcome."""
    answered = {(p.system, p.question.id): p for p in recorded}
    rows = []
    for new in live:
        old = answered.get((new.system, new.question.id))
        if old:
            same_outcome = is_right(new, new.kept) == is_right(old, old.kept)
            rows.append((new.system, 1, new.rounds == old.rounds, same_outcome))
    table = pd.DataFrame(rows, columns=["system", "questions", SAME_TEXT, SAME_OUTCOME])
    return with_labels(table.groupby("system", sort=False).sum())


def describe_texts(table: pd.DataFrame, manifest: dict, run: Recorded | None) -> str:
    """What `compare_texts` shows, in words, and what else differs from the recorded run."""
    if run is None or table.empty:
        return "none of the live questions is recorded, so there are no texts to compare with"
    sums = table.sum()
    machines = [each["hardware"]["gpu"] or "a CPU" for each in (manifest, run.manifest)]
    text = (
        f"{sums[SAME_TEXT]} of {sums['questions']} live predictions repeat every recorded text; "
        f"{sums[SAME_OUTCOME]} have the same outcome, right or wrong. "
        f"Live on {machines[0]}, recorded on {machines[1]}"
    )
    of_sample = ("n_questions ", "the questions")  # a sample has fewer questions
    others = [line for line in changed(manifest, run.manifest) if not line.startswith(of_sample)]
    return text + (f"; they also differ in {'; '.join(others)}." if others else ".")


def save_live(folder: Path, table: pd.DataFrame, texts: pd.DataFrame, sentence: str) -> str:
    """Write both tables as Markdown, which `make table2` prints; returns the sentence."""
    heading = "Accuracy in % [95 % interval]; a count where there are few questions"
    parts = {heading: table.reset_index()}
    parts["Live predictions compared with the recorded ones"] = texts.reset_index()
    Table("table2.live", pd.DataFrame(), parts, [sentence]).save(folder)
    return sentence
