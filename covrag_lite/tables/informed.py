"""Does training on revised questions that know something help? Two verifiers of one reader.

Both learnt the same verdicts on the same answers. The revised questions of one end in a guess,
those of the other in a query by a writer that saw a passage with the answer (training/informed.py).
Both are run as CoV-RAG without scores with two adapters, on the same questions. A run has one part
per verifier; the first also has RAG (trained) and query expansion. results/real/plan.md says what
was fixed before the run.
"""

from collections.abc import Iterator, Sequence

import pandas as pd

from covrag_lite import metrics
from covrag_lite.data import load_passages, load_questions
from covrag_lite.records import Prediction
from covrag_lite.retrieval import find_passages
from covrag_lite.runs.frame import outcome_of, to_frame
from covrag_lite.runs.recorded import Parts, Recorded, check_data, load_or_outcomes, load_part
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.differences import (
    difference_over_seeds,
    facts_by_seed,
    format_comparisons,
    format_corrected,
)
from covrag_lite.tables.comparisons.pairs import ALL_SETS, METRIC
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.labels import format_p, with_labels
from covrag_lite.tables.planned import MARGIN, judge_help
from covrag_lite.tables.table import Table
from covrag_lite.tables.verifier import format_area

SYSTEM = names.TWO_ADAPTERS_NO_CHAIN_COMBINED
GUESSED = "guessed"
INFORMED = "informed"
VERIFIERS = {GUESSED: "revisions with guesses", INFORMED: "informed revisions"}  # by part
# Which of a system's two answers counts.
COMBINED = ""  # the higher combined score, as recorded
LAST = ", last answer"
LIKELIER = ", higher likelihood"
RULES = (COMBINED, LAST, LIKELIER)
WITHOUT_VERIFIER = (names.RAG_TRAINED, names.EXPANSION)

PLANNED = (
    (VERIFIERS[GUESSED], VERIFIERS[INFORMED]),
    (names.EXPANSION, VERIFIERS[INFORMED]),
)
OTHERS = (
    (VERIFIERS[GUESSED] + LAST, VERIFIERS[INFORMED] + LAST),
    (VERIFIERS[GUESSED] + LIKELIER, VERIFIERS[INFORMED] + LIKELIER),
    (names.EXPANSION, VERIFIERS[GUESSED]),
    (names.RAG_TRAINED, VERIFIERS[GUESSED]),
    (names.RAG_TRAINED, VERIFIERS[INFORMED]),
    (names.RAG_TRAINED, names.EXPANSION),
)
EVERY = "all questions"
BOTH_REVISE = "questions that both revise"

NOTES = (
    f"Accuracy ({METRIC}): a gold answer occurs in the answer as whole words.",
    "Revisions with guesses, informed revisions: CoV-RAG without scores, two adapters; of the two "
    "answers the one with the higher combined score, unless another rule is named.",
    "Both verifiers learnt the same verdicts; only their revised questions differ.",
    f'"Helps": the whole interval is above zero. "Equivalent": it lies within ±{MARGIN} points.',
    "p, Holm: corrected for both planned comparisons.",
    "Detectable: the minimum detectable effect at 80 % power, in points.",
)


def load(run: Recorded) -> Parts:
    """Load predictions by verifier; if their data is missing, only with recorded outcomes."""
    return load_or_outcomes(run, load_with_data, load_outcomes)


def load_with_data(run: Recorded) -> Parts:
    """Load predictions by verifier with their questions and passages."""
    questions = load_questions(run.config)
    passages = load_passages(run.config)
    check_data(run, questions=questions, passages=passages)
    corpus = find_passages(run.config.retrieval, passages)
    return {part: load_part(run, part, questions, corpus) for part in VERIFIERS}


def load_outcomes(run: Recorded) -> Parts:
    """Load predictions by verifier with their recorded outcomes only."""
    return {part: load_part(run, part) for part in VERIFIERS}


def build(parts: Parts, run: Recorded) -> Table:
    """Build the table from the predictions with both verifiers."""
    seed = str(run.config.training.training_seed)
    outcomes = join_outcomes(parts)
    rows = pd.DataFrame([compare(outcomes, *pair, seed) for pair in (*PLANNED, *OTHERS)])
    written = rows.assign(n=rows.n.map("{:,}".format))
    planned = format_corrected(written[: len(PLANNED)])
    others = format_comparisons(written[len(PLANNED) :])
    frames = {part: verified_rows(parts[part]) for part in VERIFIERS}
    judges = pd.DataFrame(judge_rows(frames))
    searches = pd.DataFrame(search_rows(frames))
    readable = {
        "Planned differences, in points": with_labels(planned),
        "Other paired differences, in points": with_labels(others),
        "How well each verifier judges first answers": judges,
        "The second search": searches,
    }
    facts = facts_by_seed("", planned) | facts_by_seed("", others)
    facts["verdict"] = judge_help(rows.low[0], rows.high[0])
    facts |= facts_of_rows(judges, "judge of {verifier}")
    facts |= facts_of_rows(searches, "search of {verifier}, {questions}")
    notes = [*NOTES, f"Informed revisions next to revisions with guesses: {facts['verdict']}."]
    return Table("informed", rows, readable, notes, facts, digits=4)


def join_outcomes(parts: Parts) -> pd.DataFrame:
    """Return whether each question is answered correctly, one column per system and rule.

    Only questions that all of them answered are kept.
    """
    columns: dict[str, dict] = {}
    for part, name in VERIFIERS.items():
        for prediction in parts[part]:
            key = (prediction.question.dataset, prediction.question.id)
            if prediction.system in WITHOUT_VERIFIER:
                columns.setdefault(prediction.system, {})[key] = right_by(prediction, COMBINED)
            if prediction.system == SYSTEM:
                for rule in RULES:
                    columns.setdefault(name + rule, {})[key] = right_by(prediction, rule)
    series = {name: pd.Series(right, dtype=float) for name, right in columns.items()}
    outcomes = pd.concat(series, axis=1, join="inner").dropna()
    return outcomes.rename_axis(["dataset", "id"])


def right_by(prediction: Prediction, rule: str) -> bool | None:
    """Return whether the answer that this rule returns is right; None if it cannot be scored."""
    number = prediction.kept
    if rule == LAST:
        number = len(prediction.rounds) - 1
    if rule == LIKELIER:
        likelihoods = [round_.likelihood for round_ in prediction.rounds]
        number = likelihoods.index(max(likelihoods))
    return outcome_of(prediction, number).whole


def compare(outcomes: pd.DataFrame, before: str, after: str, seed: str) -> dict:
    """Compare two columns by question."""
    return difference_over_seeds(before, after, ALL_SETS, seed, [outcomes])


def verified_rows(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """Return the rows of the verified system, by question, without those that cannot be scored."""
    frame = to_frame([p for p in predictions if p.system == SYSTEM])
    return frame[frame.first_whole.notna()].set_index(["dataset", "id"])


def judge_rows(frames: dict[str, pd.DataFrame]) -> Iterator[dict[str, str]]:
    """Return the AUROC of each verifier, and their difference on the same first answers."""
    scores = {}
    for part, rows in frames.items():
        scores[part] = rows.verifier_score.astype(float)
        right = rows.first_whole.astype(bool)
        area = format_area(scores[part], right, "{:.3f}")
        yield {"verifier": VERIFIERS[part], "n": f"{len(rows):,}", "AUROC": area, "p": ""}
    before, after = scores[GUESSED].align(scores[INFORMED], join="inner")
    right = frames[GUESSED].first_whole.astype(bool).loc[before.index]
    (value, low, high), p = metrics.auroc_difference(before, after, right)
    yield {
        "verifier": "difference",
        "n": f"{len(before):,}",
        "AUROC": f"{value:+.3f} [{low:+.3f}, {high:+.3f}]",
        "p": format_p(p),
    }


def search_rows(frames: dict[str, pd.DataFrame]) -> Iterator[dict[str, str]]:
    """Return how often each verifier searches again, and what the last search finds."""
    revised = [rows.revised.astype(bool) for rows in frames.values()]
    first, second = revised[0].align(revised[1], join="inner")
    both = first.index[first & second]
    for part, rows in frames.items():
        for questions, selected in ((EVERY, rows), (BOTH_REVISE, rows.loc[both])):
            yield {
                "verifier": VERIFIERS[part],
                "questions": questions,
                "n": f"{len(selected):,}",
                "searched again, %": percent(selected.revised),
                "an answer in the first passages, %": percent(selected.words_first),
                "in the last, %": percent(selected.words_last),
                "in either, %": percent(either_found(selected)),
            }


def either_found(rows: pd.DataFrame) -> pd.Series:
    """Return whether the first or the last search found a passage with an answer."""
    return rows.words_first.astype(bool) | rows.words_last.astype(bool)


def percent(cases: pd.Series) -> str:
    """Return the share of true cases in %."""
    return f"{100 * cases.astype(float).mean():.1f}"
