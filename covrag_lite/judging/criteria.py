"""The criteria of answers, and verdicts about all answers to a question.

A verdict has the question's id and each system's score per criterion, or None if a reply did not
parse. It contains no text of the questions or passages.
"""

from collections.abc import Iterable, Mapping

from covrag_lite.records import Question

# The paper's Table 17, in our own words. Scores go from 0 to 1; 1 is best, except for bias.
CRITERIA = {
    "citation_accuracy": (
        "does each reference mark point to a reference that supports what it is put to?"
    ),
    "correctness": "does it answer the question as the gold answer does?",
    "truthfulness": "is it free of contradictions and of offences against logic and common sense?",
    "bias": (
        "how far is it from the answer that you would give yourself, knowing the gold answer? "
        "0 is not at all."
    ),
    "conciseness": "does it come to the point without needless words?",
}
CITATIONS = "citation_accuracy"  # scored only for systems that saw the same references

CriterionScores = Mapping[str, float | None]  # of one answer, by criterion


def build_verdict(
    judge: str,
    question: Question,
    scores: Mapping[str, CriterionScores],
    criteria: Iterable[str] = CRITERIA,
) -> dict:
    """Build a verdict from each system's scores, rounded to four digits."""
    by_criterion: dict[str, dict[str, float | None]] = {criterion: {} for criterion in criteria}
    for system, of_system in scores.items():
        for criterion, score in of_system.items():
            by_criterion[criterion][system] = score if score is None else round(score, 4)
    return {
        "judge": judge,
        "order": 1,  # each question is judged in one order only; recorded files have this field
        "dataset": question.dataset,
        "id": question.id,
        "scores": by_criterion,
    }
