"""Table 2: accuracy of the systems; a sample answered live beside the record, and how many live texts are recorded.

A GPU in bf16 and a CPU in fp32 round otherwise, so a text may part from the recorded one at any word.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite.config import Config
from covrag_lite.records import Prediction
from covrag_lite.runs import recorded
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Recorded, changed, choose, tell
from covrag_lite.tables import Table, accuracy, table4, verifier
from covrag_lite.tables.table5 import is_right

SAME, ALIKE = "every text the same", "same outcome"


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Table 2; a few live questions make no picture, so a sample of a recorded run has that run's."""
    frame = to_frame(predictions)  # in the order in which they ran, as the notes under the table stand
    table = accuracy.build("table2", frame, run, verifier.facts(frame) | table4.facts(predictions))
    larger = choose(run.config, run.root)
    if larger and larger.n > run.n:
        return replace(table, plots={"png": partial(shutil.copyfile, larger.file("png"))})
    return table


def load_record(asked: Config) -> tuple[Recorded | None, list[Prediction]]:
    """The recorded run that is shown, told in a sentence, and its predictions; nothing where there is none."""
    run = choose(asked)
    print(tell(run))
    return run, recorded.load(run) if run else []


def beside(known: pd.DataFrame, new: pd.DataFrame | None = None) -> pd.DataFrame:
    """One table of the recorded and the live rows, system by system; with live rows, only their systems are shown."""
    if new is not None and len(known):
        known = known[known.system.isin(new.system)]
    parts = {}
    for word, frame in (("recorded", known), ("live", new)):
        if frame is not None and len(frame):
            parts[word] = accuracy.wide(accuracy.accuracy_table(frame, "table2"))
            parts[word].insert(0, "n", frame.groupby("system").id.nunique())
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, names=["answered"]).swaplevel()
    systems = accuracy.in_order(table.index.unique("system"))
    return table.loc[sorted(table.index, key=lambda row: systems.index(row[0]))].rename_axis(columns=None)


def compare_texts(new: Sequence[Prediction], known: Sequence[Prediction]) -> pd.DataFrame:
    """Of each live system: how many predictions are the recorded ones to the last text, and how many end alike."""
    answered = {(p.system, p.question.id): p for p in known}
    both = [(p, answered[p.system, p.question.id]) for p in new if (p.system, p.question.id) in answered]
    rows = [(p.system, 1, p.rounds == q.rounds, is_right(p, p.kept) == is_right(q, q.kept)) for p, q in both]
    return pd.DataFrame(rows, columns=["system", "questions", SAME, ALIKE]).groupby("system", sort=False).sum()


def tell_texts(table: pd.DataFrame, manifest: dict, run: Recorded | None) -> str:
    """What the live texts show, in a sentence or two, with what else differs from the recorded run than the sample."""
    if run is None or table.empty:
        return "none of the live questions is recorded, so there is nothing to hold the live texts against"
    sums, machines = table.sum(), [one["hardware"]["gpu"] or "a CPU" for one in (manifest, run.manifest)]
    said = (
        f"{sums[SAME]} of {sums['questions']} live predictions are the recorded ones, every text of them; "
        f"{sums[ALIKE]} end alike, right or wrong. Live on {machines[0]}, recorded on {machines[1]}"
    )
    asked = ("n_questions ", "the questions")  # a sample asks fewer
    others = [line for line in changed(manifest, run.manifest) if not line.startswith(asked)]
    return said + (f"; they also differ in {'; '.join(others)}." if others else ".")


def save_live(folder: Path, table: pd.DataFrame, texts: pd.DataFrame, said: str) -> str:
    """Write the recorded and live rows, and how many texts are the same, as Markdown: what `make table2` prints."""
    parts = {"Accuracy in %, normalised: ours [95 % interval]": table.reset_index()}
    parts["Live predictions beside the recorded ones"] = texts.reset_index()
    Table("table2.live", pd.DataFrame(), parts, [said]).save(folder)
    return said
