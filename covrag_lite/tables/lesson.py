"""What notebooks/lesson.ipynb shows a class, all from recorded predictions.

A verdict field by field, the judge, and which questions the second search helps or hurts. The rule
σ is in `threshold_curve`, the judge's calibration in `calibration`.
"""

from collections.abc import Sequence

import pandas as pd

from covrag_lite.config import Config, resolve
from covrag_lite.method import expected_score
from covrag_lite.records import SCORES, Prediction, Verdict
from covrag_lite.runs.recorded import choose, describe_run
from covrag_lite.tables import browse, method_picture, verifier
from covrag_lite.tables.failures import failure_table

RECORDS = {  # what "auto" means here: the runs of the shipped adapters on the fictional world
    "table2": "table2-smollm2-135m-h200",
    "sigma": "train-smollm2-135m-h200",
    "claim": "claim-smollm2-135m-h200",
}
SCORE_QUESTIONS = {  # what each score of the paper's Table 1 asks, in our words
    "reference_correctness": "do the passages contain an answer?",
    "correctness": "is the answer to the question correct?",
    "citation_accuracy": "do the marks [1] point to the right passages?",
    "truthfulness": "is the text free of contradictions and nonsense?",
    "bias": "how far from the judge's own answer? (0 is best)",
    "conciseness": "is it short and to the point?",
}
PICTURE_WIDTH = 900  # pixels
# The columns of a table of `verifier` or `failures` that the lesson shows, with their names there.
JUDGE_COLUMNS = {
    "questions": "wording",
    "n": "answers",
    "right": "right (%)",
    "judge": "judge right (%)",
    "majority": "majority right (%)",
    "wording": "wording rule right (%)",
    "AUROC": "AUROC of the verdict",
}
LIKELIHOOD_COLUMNS = {
    "questions": "wording",
    "n": "answers",
    "AUROC": "AUROC of the verdict",
    "likelihood": "AUROC of the likelihood",
    "both": "AUROC of both together",
}
FAILURE_COLUMNS = {
    "questions": "obstacle",
    "n": "questions",
    "first": "right at first (%)",
    "revised": "searched again",
    "mended": "missed passage found",
    "last": "right at the end (%)",
    "gain": "gain (points)",
    "95 % interval": "95 % interval",
}


def load(config: Config, table: str = "table2") -> tuple[list[Prediction], pd.DataFrame]:
    """Load the recorded predictions of the lesson and their outcomes; print the run's name."""
    if config.run.record == "auto":
        config = config.change(record=RECORDS[table])
    run = choose(config, table=table)
    print(describe_run(run))
    return browse.load_recorded(run, config)


def list_fields(verdict: Verdict) -> pd.DataFrame:
    """List a verdict field by field: what it asks, the value written, and the expected value.

    The expected value is the mean under the model's own probabilities.
    """
    rows = []
    for name in SCORES:
        written = f"{getattr(verdict, name):.2f}"
        expected = f"{expected_score(verdict, name):.2f}"
        rows.append((name.replace("_", " "), SCORE_QUESTIONS[name], written, expected))
    revised = verdict.revised_question or "(none)"
    rows.append(("judgment", "is the answer right?", verdict.judgment, ""))
    rows.append(("revised question", "what to search for instead?", revised, ""))
    columns = ["field", "asks", "written", "expected"]
    return pd.DataFrame(rows, columns=columns).set_index("field")


def show_method(predictions: Sequence[Prediction], config: Config) -> object:
    """Show the picture of the method: the shipped one, or a new one for another record."""
    from IPython.display import Image

    folder = resolve("figures/embedded")
    if config != Config():
        folder = config.folder()
        method_picture.build(predictions).save(folder)
    return Image(filename=folder / "method.png", width=PICTURE_WIDTH)


def compare_judges(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare the judge with simpler ones, one row per wording of the question."""
    return select_columns(verifier.judge_table(frame), JUDGE_COLUMNS)


def compare_likelihood(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare the verdict with the answer's own likelihood, over all questions."""
    return select_columns(verifier.judge_table(frame)[:1], LIKELIHOOD_COLUMNS)


def gain_by_obstacle(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what the second search gains, one row per obstacle of the fictional world."""
    return select_columns(failure_table(frame), FAILURE_COLUMNS)


def select_columns(table: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    """Return these columns under the names that the lesson uses; the first becomes the index."""
    chosen = table.filter(items=list(columns)).rename(columns=columns)
    return chosen.set_index(next(iter(columns.values())))
