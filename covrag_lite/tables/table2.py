"""Table 2: accuracy of the systems; a sample answered live beside the record, and where live texts part from it.

A GPU in bf16 and a CPU in fp32 round otherwise, so a text may part from the recorded one at any word; how many do, and
at which step, is counted here.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import ROOT, Config
from covrag_lite.records import Prediction
from covrag_lite.runs import recorded
from covrag_lite.runs.choice import changed, choose, tell
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import Table, accuracy, failures, table4, to_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIVE, RECORDED = "live", "recorded"
MARKED = "background-color: #fff3c4"  # a live row
STEPS = ("query", "passages", "answer", "verdict")  # of a round, in their order
SAME, ALIKE = "every text the same", "same outcome"
Record = tuple[Recorded | None, list[Prediction], pd.DataFrame]  # a recorded run, its predictions, their frame

load = recorded.load_or_outcomes


def build(predictions: Sequence[Prediction], run: Recorded, record: Record | None = None) -> Table:
    """Table 2; in the picture of a sample the record that it is a sample of, found where it is not given."""
    frame = to_frame(predictions)  # in the order in which they ran, as the notes under the table stand
    facts = failures.facts(frame) | table4.facts(predictions)
    return accuracy.build("table2", frame, run, facts, partial(plot, run, record, frame))


def load_record(asked: Config, root: Path = ROOT) -> Record:
    """The recorded run that is shown, told in a sentence, its predictions and their frame; all empty without one."""
    run = choose(asked, root)
    print(tell(run, root))
    known = recorded.load(run) if run else []
    return run, known, to_frame(known)


def find_larger(run: Recorded) -> Record:
    """The record that a run is a sample of; nothing where it is of none."""
    larger = choose(run.config, run.root)
    if larger is None or larger.n <= run.n:
        return None, [], pd.DataFrame()
    known = load(larger)
    return larger, known, to_frame(known)


def beside(known: pd.DataFrame, new: pd.DataFrame | None = None, metric: str = "normalised") -> pd.DataFrame:
    """One table of the recorded and the live rows, system by system; with live rows, only their systems are shown."""
    if new is not None and len(known):
        known = known[known.system.isin(new.system)]
    parts = []
    for word, frame in ((RECORDED, known), (LIVE, new)):
        if frame is not None and len(frame):
            wide = accuracy.wide(accuracy.accuracy_table(frame, "table2"), metric)
            wide.insert(0, "n", frame.groupby("system").id.nunique())
            parts.append(wide.assign(answered=word).set_index("answered", append=True))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts)
    systems = accuracy.in_order(table.index.get_level_values("system").unique())
    order = [(system, word) for system in systems for word in (RECORDED, LIVE) if (system, word) in table.index]
    return table.loc[order].rename_axis(columns=None)


def mark(table: pd.DataFrame) -> "pd.io.formats.style.Styler":
    """The table as it is shown, its live rows coloured."""
    return table.style.apply(lambda row: [MARKED if LIVE in row.name else ""] * len(row), axis=1)


def plot(run: Recorded, record: Record | None, new: pd.DataFrame, path: Path) -> "Figure":
    """Draw the recorded accuracies as bars and the live ones as circles on them, where the live ones are a sample.

    Without a record of this very model and data that has more questions, the live accuracies are the bars.
    """
    larger, _, known = record or find_larger(run)
    bars, circles = accuracy.accuracy_table(new, "table2"), None
    if larger and not differences(run.manifest, larger):
        known = known[known.system.isin(new.system) & known.dataset.isin(new.dataset)]
        of_record = accuracy.accuracy_table(known, "table2")
        if len(of_record) == len(bars) and len(known) > len(new):
            bars, circles = of_record, bars
    title = accuracy.title("table2", run.config, bars, circles)
    return accuracy.plot_accuracy(bars, title, path, sample=circles)


def find_parting(new: Prediction, known: Prediction) -> tuple[int, str] | None:
    """The first step, by its round and name, at which two predictions for one question differ; None where none does."""
    steps = []
    for p in (new, known):
        texts = [
            (one.query, [k.id for k in one.passages], one.answer, one.verdict and one.verdict.text) for one in p.rounds
        ]
        steps.append([((i, name), text) for i, one in enumerate(texts, 1) for name, text in zip(STEPS, one)])
    return next(((mine or theirs)[0] for mine, theirs in zip_longest(*steps) if mine != theirs), None)


def compare_texts(new: Sequence[Prediction], known: Sequence[Prediction]) -> pd.DataFrame:
    """Of each live system: how many predictions are the recorded ones to the last text, and where the others part."""
    answered = {(p.system, p.question.id): p for p in known}
    rows: dict[str, Counter] = {}
    for p in new:
        theirs = answered.get((p.system, p.question.id))
        if theirs is not None:
            right = [metrics.score(one.answer, one.question.answers, "normalised") for one in (p, theirs)]
            row = rows.setdefault(p.system, Counter())
            row.update(("questions", find_parting(p, theirs) or SAME))
            row[ALIKE] += right[0] == right[1]
    partings = {step for row in rows.values() for step in row if isinstance(step, tuple)}
    ordered = sorted(partings, key=lambda step: (step[0], STEPS.index(step[1])))
    columns = {"questions": "questions", SAME: SAME, **{step: _name(*step) for step in ordered}, ALIKE: ALIKE}
    table = [{title: row[column] for column, title in columns.items()} for row in rows.values()]
    return pd.DataFrame(table, index=pd.Index(rows, name="system"), columns=list(columns.values()))


def _name(number: int, step: str) -> str:
    """How a column calls the step at which texts part."""
    return f"parts at the {step}" if number == 1 else f"parts at the {step} of round {number}"


def tell_texts(table: pd.DataFrame, manifest: dict, run: Recorded | None) -> str:
    """What the live texts show, in a sentence or two, with what else differs from the recorded run than the sample."""
    if run is None or table.empty:
        return "none of the live questions is recorded, so there is nothing to hold the live texts against"
    sums = table.sum()
    partings = [f"{n} {name.replace('parts', 'part')}" for name, n in sums.items() if name.startswith("parts")]
    machines = [one["hardware"]["gpu"] or "a CPU" for one in (manifest, run.manifest)]
    said = (
        f"{sums[SAME]} of {sums['questions']} live predictions are the recorded ones, every text of "
        f"them{'; ' if partings else ''}{', '.join(partings)}. {sums[ALIKE]} end alike, right or wrong. "
        f"Live on {machines[0]}, recorded on {machines[1]}"
    )
    others = differences(manifest, run)
    return f"{said}; they also differ in {'; '.join(others)}." if others else f"{said}."


def differences(manifest: dict, run: Recorded) -> list[str]:
    """What can change a number and differs from the recorded run, but for how many questions were asked."""
    asked = ("n_questions ", "the questions")  # a sample asks fewer
    return [line for line in changed(manifest, run.manifest) if not line.startswith(asked)]


def save_live(path: Path, table: pd.DataFrame, texts: pd.DataFrame, said: str) -> str:
    """Write the recorded and live rows, and where the texts part, as Markdown: what `make table2` prints."""
    parts = ["Accuracy in %, normalised: ours [95 % interval]", to_markdown(table.reset_index())]
    if len(texts):
        parts.append(to_markdown(texts.reset_index()))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join([*parts, said]) + "\n")
    return said
