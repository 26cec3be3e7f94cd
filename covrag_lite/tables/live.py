"""A recorded table with a sample of its questions answered live beside it, and where the live texts part from it.

A GPU in bf16 and a CPU in fp32 round otherwise, so a text may part from the recorded one at any word; how many do, and
at which step, is counted here. Called by notebooks/table2.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import ROOT, Config, from_manifest
from covrag_lite.records import Prediction
from covrag_lite.runs.choice import choose, tell
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Recorded, load
from covrag_lite.tables import accuracy as tables
from covrag_lite.tables import pictures
from covrag_lite.tables.reproduction import changed

LIVE, RECORDED = "live", "recorded"
MARKED = "background-color: #fff3c4"  # a live row
STEPS = ("query", "passages", "answer", "verdict")  # of a round, in their order
SAME, ALIKE = "every text the same", "same outcome"


def load_record(asked: Config, root: Path = ROOT) -> tuple[Recorded | None, list[Prediction], pd.DataFrame]:
    """The recorded run that is shown, told in a sentence, its predictions and their frame; all empty without one."""
    run = choose(asked, root)
    print(tell(run, root))
    known = load(run) if run else []
    return run, known, to_frame(known)


def beside(known: pd.DataFrame, new: pd.DataFrame | None = None, metric: str = "normalised") -> pd.DataFrame:
    """One table of the recorded and the live rows, system by system; with live rows, only their systems are shown."""
    if new is not None and len(known):
        known = known[known.system.isin(new.system)]
    parts = []
    for word, frame in ((RECORDED, known), (LIVE, new)):
        if frame is not None and len(frame):
            long = tables.accuracy_table(frame, "table2")
            wide = tables.wide(long, metric)
            wide.insert(0, "n", frame.groupby("system").id.nunique())
            parts.append(wide.assign(answered=word).set_index("answered", append=True))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts)
    systems = tables.in_order(table.index.get_level_values("system").unique())
    order = [(system, word) for system in systems for word in (RECORDED, LIVE) if (system, word) in table.index]
    return table.loc[order].rename_axis(columns=None)


def mark(table: pd.DataFrame) -> "pd.io.formats.style.Styler":
    """The table as it is shown, its live rows coloured."""

    def colour(row: pd.Series) -> list[str]:
        return [MARKED if LIVE in row.name else ""] * len(row)

    return table.style.apply(colour, axis=1)


def plot(manifest: dict, run: Recorded | None, known: pd.DataFrame, new: pd.DataFrame, path: Path) -> Path:
    """Draw the recorded accuracies as bars and the live ones as circles on them, where the live ones are a sample.

    Without a record of this very model and data that has more questions, the live accuracies are the bars.
    """
    import matplotlib.pyplot as plt

    asked = from_manifest(manifest["parameters"])
    live = tables.accuracy_table(new, "table2")
    bars, circles = live, None
    if run and not differences(manifest, run):
        known = known[known.system.isin(new.system) & known.dataset.isin(new.dataset)]
        recorded = tables.accuracy_table(known, "table2")
        if len(recorded) == len(live) and len(known) > len(new):
            bars, circles = recorded, live
    figure = pictures.plot_accuracy(bars, tables.title("table2", asked, bars, circles), path, sample=circles)
    plt.close(figure)  # the notebook shows the file, and need not draw it a second time
    return path


def steps_of(p: Prediction) -> list[tuple[tuple[int, str], object]]:
    """Every step of a prediction, by its round and name, with what came out of it."""
    made = []
    for number, one in enumerate(p.rounds, 1):
        came_out = (one.query, [passage.id for passage in one.passages], one.answer, one.verdict and one.verdict.text)
        made += [((number, name), value) for name, value in zip(STEPS, came_out)]
    return made


def find_parting(new: Prediction, known: Prediction) -> tuple[int, str] | None:
    """The first step at which two predictions for the same question differ; None where none does."""
    for mine, theirs in zip_longest(steps_of(new), steps_of(known)):
        if mine != theirs:
            return (mine or theirs)[0]
    return None


def compare_texts(new: Sequence[Prediction], known: Sequence[Prediction]) -> pd.DataFrame:
    """Of each live system: how many predictions are the recorded ones to the last text, and where the others part."""
    recorded = {(p.system, p.question.id): p for p in known}
    rows, partings = {}, set()
    for p in new:
        theirs = recorded.get((p.system, p.question.id))
        if theirs is None:
            continue
        step = find_parting(p, theirs)
        scores = [metrics.score(one.answer, one.question.answers, "normalised") for one in (p, theirs)]
        row = rows.setdefault(p.system, Counter())
        row.update(("questions", SAME if step is None else step))
        row[ALIKE] += scores[0] == scores[1]
        partings |= {step} - {None}
    ordered = sorted(partings, key=lambda step: (step[0], STEPS.index(step[1])))
    columns = {"questions": "questions", SAME: SAME, **{step: _name(*step) for step in ordered}, ALIKE: ALIKE}
    table = [{title: row[column] for column, title in columns.items()} for row in rows.values()]
    return pd.DataFrame(table, index=pd.Index(rows, name="system"), columns=list(columns.values()))


def _name(number: int, step: str) -> str:
    """How a column calls the step at which texts part."""
    return f"parts at the {step}" if number == 1 else f"parts at the {step} of round {number}"


def hold_against(
    new: Sequence[Prediction], known: Sequence[Prediction], manifest: dict, run: Recorded | None
) -> tuple[pd.DataFrame, str]:
    """The live predictions held against the recorded ones: where texts part, as a table and in words."""
    table = compare_texts(new, known)
    return table, tell_texts(table, manifest, run)


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
    parts = ["Accuracy in %, normalised: ours [95 % interval]", tables.to_markdown(table.reset_index())]
    if len(texts):
        parts.append(tables.to_markdown(texts.reset_index()))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join([*parts, said]) + "\n")
    return said
