"""Recorded predictions to look at: what came of the verdicts, and one question step by step.

`browse_page` shows all questions of a run on one page.
"""

from collections.abc import Sequence

import pandas as pd

from covrag_lite.config import Config
from covrag_lite.records import Prediction, Question
from covrag_lite.runs import recorded
from covrag_lite.runs.frame import outcome_of, to_frame
from covrag_lite.runs.redaction import MARK
from covrag_lite.tables.accuracy import in_order
from covrag_lite.tables.labels import label_of, with_labels

# What can come of a verdict. A question may have several of these outcomes, or none.
OUTCOMES = {
    "helped": "wrong before the second search, right after it",
    "hurt": "right before the second search, wrong after it",
    "wrongly rejected": "the first answer is right, but judged “false”",
    "wrongly accepted": "the first answer is wrong, but judged “true”",
}
NO_TEXT = "⟨the question⟩"  # in place of a question whose text is not available
WORDS = {True: "right", False: "wrong"}


def load_recorded(
    run: recorded.Recorded | None, config: Config
) -> tuple[list[Prediction], pd.DataFrame]:
    """Load a recorded run's predictions, with texts where the data is available, and outcomes."""
    if run is None:
        cure = "set record to a folder of results/"
        raise ValueError(f"there is no recorded run of this model and data; {cure}")
    if config.data.data == "world":
        predictions = recorded.load_or_outcomes(run)
    else:
        data = run.config.change(data=config.data.data, corpus=config.data.corpus)
        predictions = recorded.load(run, data)
    return predictions, to_frame(predictions)


def keep_verified(
    predictions: Sequence[Prediction], frame: pd.DataFrame, systems: Sequence[str]
) -> tuple[list[Prediction], pd.DataFrame]:
    """Keep those of these systems that wrote verdicts, and print which ones did not."""
    chosen = frame[frame.system.isin(systems)]
    has_verdicts = chosen.groupby("system").verdicts.sum() > 0
    verified = set(has_verdicts[has_verdicts].index)
    if not verified:
        available = "; ".join(in_order(frame[frame.verdicts > 0].system.unique()))
        problem = f"none of the systems {', '.join(systems)} wrote a verdict in this record"
        raise ValueError(f"{problem}; set systems to some of {available}")
    skipped = in_order(has_verdicts[~has_verdicts].index)
    if skipped:
        print("Not shown, because they write no verdict:", "; ".join(map(label_of, skipped)))
    kept = [prediction for prediction in predictions if prediction.system in verified]
    return kept, frame[frame.system.isin(verified)]


def find_recorded(config: Config, question: Question) -> list[Prediction]:
    """Find the recorded predictions for one question, one per system; none for other questions."""
    run = recorded.choose(config)
    predictions = recorded.load_or_outcomes(run) if run else []
    by_system = {}
    for prediction in predictions:
        if prediction.question == question:
            by_system[prediction.system] = prediction
    return [by_system[system] for system in in_order(by_system)]


def find_prediction(predictions: Sequence[Prediction], system: str, question_id: str) -> Prediction:
    """Return the prediction of a system for a question."""
    for prediction in predictions:
        if prediction.system == system and prediction.question.id == question_id:
            return prediction
    raise LookupError(f"the record has no prediction of {system} for the question {question_id}")


def compare_answers(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """Return one row per system: its last query, its answer, and whether that is right."""
    rows = []
    for prediction in predictions:
        is_right = outcome_of(prediction, prediction.kept).normalised
        row = {
            "system": prediction.system,
            "searches": sum(bool(step.query) for step in prediction.rounds),
            "last query": prediction.rounds[-1].query or "–",
            "answer": prediction.answer,
            "right?": WORDS.get(is_right, "not scored"),
        }
        rows.append(row)
    columns = ["system", "searches", "last query", "answer", "right?"]
    return with_labels(pd.DataFrame(rows, columns=columns)).set_index("system")


def mark_outcomes(frame: pd.DataFrame) -> pd.DataFrame:
    """Add one column per name of OUTCOMES: does the question have that outcome?"""
    is_scored = frame.normalised.notna() & frame.first_normalised.notna()
    before = is_scored & frame.first_normalised.eq(True)
    after = is_scored & frame.normalised.eq(True)
    return frame.assign(
        **{
            "helped": frame.revised & is_scored & ~before & after,
            "hurt": frame.revised & before & ~after,
            "wrongly rejected": before & frame.judgment.eq("false"),
            "wrongly accepted": is_scored & ~before & frame.judgment.eq("true"),
        }
    )


def count_outcomes(frame: pd.DataFrame) -> pd.DataFrame:
    """Count the questions of each system, its verdicts, and each outcome."""
    groups = mark_outcomes(frame).groupby("system")
    counts = groups[list(OUTCOMES)].sum()
    counts.insert(0, "questions", groups.size())
    counts.insert(1, "with a verdict", groups.verdicts.agg(lambda n: (n > 0).sum()))
    counts.insert(2, "searched again", groups.revised.sum())
    return counts.loc[in_order(counts.index)]


def first_of_each(predictions: Sequence[Prediction], frame: pd.DataFrame) -> pd.DataFrame:
    """Return the first question of each outcome in a few words: question, answers and revision."""
    marked = mark_outcomes(frame).reset_index(drop=True)
    rows = []
    for outcome in OUTCOMES:
        numbers = marked.index[marked[outcome]]
        if len(numbers):
            rows.append({"outcome": outcome} | summarise_prediction(predictions[numbers[0]]))
    columns = ["outcome", "question", "first answer", "revised question", "second answer", "gold"]
    return pd.DataFrame(rows, columns=columns).set_index("outcome")


def summarise_prediction(prediction: Prediction) -> dict[str, str]:
    """Return question, answers and revision of a prediction as the cells of a row."""
    question = prediction.question
    first = prediction.rounds[0]
    last = prediction.rounds[-1]
    return {
        "question": question.question or question.id,
        "first answer": first.answer,
        "revised question": MARK.sub(NO_TEXT, first.verdict.revised_question) or "(none)",
        "second answer": last.answer if prediction.revised else "–",
        "gold": " | ".join(question.answers),
    }


def first_with(predictions: Sequence[Prediction], frame: pd.DataFrame, outcome: str) -> Prediction:
    """Return the first prediction with this outcome."""
    for prediction, has_outcome in zip(predictions, mark_outcomes(frame)[outcome]):
        if has_outcome:
            return prediction
    raise LookupError(f"no question of this run is {outcome}")
