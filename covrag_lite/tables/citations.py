"""The table "citations": does a cited passage contain the answer? For long cited answers.

It counts the marks in Table 2's answers, such as "[2]". Records omit the passages' texts, so the
counts are recorded themselves, and the table is built from them.

- Precision: of an answer's marks, the share whose passage contains a gold answer; a mean over the
  answers that cite.
- Recall: of the answers for which a retrieved passage contains a gold answer, the share that cite
  such a passage.
"""

import io
from bisect import bisect_left
from collections.abc import Sequence

import pandas as pd

from covrag_lite import metrics
from covrag_lite.files import read_packed, write_gzip, write_json
from covrag_lite.records import CITATION, Prediction
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables.accuracy import in_order
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.intervals import share
from covrag_lite.tables.labels import with_labels
from covrag_lite.tables.table import Table

COUNTS = "counts.csv.gz"  # the end of the file with one row per answer
COLUMNS = ["system", "measure", "n", "value", "low", "high"]
ACCURACY = "accuracy"
CITING = "answers that cite"
PRECISION = "citation precision"
RECALL = "citation recall"
WORDS = "words per answer"
NOTE = (
    "Accuracy is the paper's (normalised). Precision: of an answer's marks, the share whose "
    "passage contains a gold answer in whole words, as a mean over answers that cite. Recall: of "
    "the answers for which a retrieved passage contains a gold answer, the share that cite one."
)


def count(prediction: Prediction) -> dict[str, object]:
    """Count the citations of one answer, and those whose passage contains a gold answer."""
    gold = prediction.question.answers
    passages = prediction.final.passages
    supporting = set()
    for number, passage in enumerate(passages, 1):
        if metrics.holds_answer([passage], gold, "whole"):
            supporting.add(number)
    cited = {int(number) for number in CITATION.findall(prediction.answer)}
    return {
        "system": prediction.system,
        "id": prediction.question.id,
        "right": metrics.score(prediction.answer, gold, "normalised"),
        "right_after": count_words_until_right(prediction.answer, gold),
        "words": len(metrics.normalise(prediction.answer).split()),
        "cited": len(cited),
        "cited_supporting": len(cited & supporting),
        "supporting": len(supporting),
    }


def count_words_until_right(answer: str, gold: Sequence[str]) -> int | None:
    """Return how many words of an answer must be read until it is right; None if it never is.

    By the paper's rule an answer is right if it contains a gold answer, so a longer one is right
    more easily. With this number, answers can be compared after the same number of words.
    """
    words = metrics.normalise(answer).split()

    def is_right_after(n: int) -> bool:
        return bool(metrics.score(" ".join(words[:n]), gold, "normalised"))

    if not is_right_after(len(words)):
        return None
    return bisect_left(range(len(words)), True, key=is_right_after)


def record(run: Recorded, predictions: Sequence[Prediction]) -> Recorded:
    """Write the counts of a run's answers, and a manifest, next to that run."""
    counted = Recorded(run.folder, "citations", run.manifest, run.root)
    counts = pd.DataFrame([count(prediction) for prediction in predictions])
    text = counts.to_csv(index=False, lineterminator="\n")
    write_gzip(counted.file(COUNTS), text)
    write_json(counted.file("manifest.json"), counted.manifest)
    return counted


def load(run: Recorded) -> pd.DataFrame:
    """Load the recorded counts, one row per answer."""
    text = read_packed(run.file(COUNTS))
    return pd.read_csv(io.StringIO(text), dtype={"id": str})


def build(counts: pd.DataFrame, run: Recorded) -> Table:
    """Build the table from the counts of every answer."""
    rows = []
    for system in in_order(counts.system.unique()):
        for measure, values in measure_system(counts[counts.system == system]).items():
            rows.append((system, measure, *values))
    long = pd.DataFrame(rows, columns=COLUMNS)
    parts = {"Long answers: accuracy and citations in % [95 % interval]": with_labels(wide(long))}
    forms = {"": "{value:.1f}", "interval": "[{low:.0f}–{high:.0f}]", "n": "{n}"}
    facts = facts_of_rows(long, "{system} {measure}", forms)
    return Table("citations", long, parts, [NOTE], facts)


def measure_system(counts: pd.DataFrame) -> dict[str, tuple]:
    """Return n, value and interval of each measure for one system's answers."""
    scored = counts.right.dropna().astype(bool)
    citing = counts[counts.cited > 0]
    findable = counts[counts.supporting > 0]
    precision = metrics.mean_bootstrap((citing.cited_supporting / citing.cited).tolist())
    words = metrics.mean_bootstrap(counts.words.tolist())
    return {
        ACCURACY: (len(scored), *share(scored.tolist())),
        CITING: (len(counts), *share((counts.cited > 0).tolist())),
        PRECISION: (len(citing), *(100 * value for value in precision)),
        RECALL: (len(findable), *share((findable.cited_supporting > 0).tolist())),
        WORDS: (len(counts), *words),
    }


def wide(long: pd.DataFrame) -> pd.DataFrame:
    """Return one row per system and one column per measure, each with its n."""
    cells = []
    for row in long.itertuples():
        if pd.isna(row.value):
            cells.append("–")
        elif row.measure == WORDS:
            cells.append(f"{row.value:.1f}")
        else:
            cells.append(f"{row.value:.1f} [{row.low:.0f}–{row.high:.0f}], n = {row.n}")
    shown = long.assign(cell=cells).set_index(["system", "measure"]).cell.unstack(sort=False)
    return shown.rename_axis(columns=None).reset_index()
