"""A prediction in plain words: each answer with the passages it cites, and the verdict on it."""

from covrag_lite.commands.screen import paragraph, separate_citations
from covrag_lite.method import expected_score
from covrag_lite.records import CITATION, Prediction, Round, Verdict

INDENT = "  "
ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth")
JUDGMENTS = {
    "true": "The verifier accepts this answer",
    "false": "The verifier rejects this answer",
    "unclear": "The verifier cannot decide whether this answer is right",
}
# A score below the first limit is a "no", one above the second a "yes".
NO_BELOW = 1 / 3
YES_ABOVE = 2 / 3
SCORE_WORDS = {
    "reference_correctness": (
        "the passages do not contain an answer",
        "the passages may contain an answer",
        "the passages contain an answer",
    ),
    "correctness": ("the answer is wrong", "the answer may be wrong", "the answer is correct"),
}


def describe_prediction(prediction: Prediction) -> str:
    """Return all rounds of a prediction as plain text."""
    blocks = [heading("Question", prediction.question.question)]
    rounds = prediction.rounds
    for number, step in enumerate(rounds):
        name = "Answer" if len(rounds) == 1 else f"{ORDINALS[number]} answer"
        blocks.append(describe_answer(name, step))
        if step.note:
            blocks.append(heading("Note", step.note))
        if step.verdict:
            is_last = number == len(rounds) - 1
            blocks.append(describe_verdict(step.verdict, is_last))
    if len(rounds) > 1 and prediction.final is not rounds[-1]:
        blocks.append(heading("Kept", separate_citations(prediction.answer)))
    return "\n\n".join(blocks)


def heading(name: str, text: str) -> str:
    """Return a heading and an indented paragraph."""
    return f"{name}\n{paragraph(text, INDENT)}"


def describe_answer(name: str, step: Round) -> str:
    """Return an answer and the passages that it cites."""
    blocks = [heading(name, separate_citations(step.answer) or "(the model wrote nothing)")]
    if not step.passages:
        return blocks[0]
    cited = sorted({int(number) for number in CITATION.findall(step.answer)})
    valid = [number for number in cited if 1 <= number <= len(step.passages)]
    for number in valid:
        passage = step.passages[number - 1]
        blocks.append(f"{INDENT}[{number}] {passage.title}\n{paragraph(passage.text, INDENT * 3)}")
    if not valid:
        blocks.append(f"{INDENT}It cites none of the passages.")
    others = [p.title for number, p in enumerate(step.passages, 1) if number not in valid]
    if others:
        beginning = "Also read" if valid else "It read"
        titles = "; ".join(dict.fromkeys(others))
        blocks.append(paragraph(f"{beginning}: {titles}", INDENT))
    return "\n".join(blocks)


def describe_verdict(verdict: Verdict, is_last: bool) -> str:
    """Return a verdict in plain words, and what follows from it."""
    if not verdict.parsed:
        return heading("Verdict", f"It could not be read. The model wrote: {verdict.text}")
    judgment = JUDGMENTS.get(verdict.judgment, "The verifier gives no judgment")
    reasons = [describe_score(verdict, score) for score in SCORE_WORDS]
    reasons = [reason for reason in reasons if reason]
    sentence = f"{judgment}: {', and '.join(reasons)}." if reasons else f"{judgment}."
    if not verdict.revised_question:
        return heading("Verdict", f"{sentence} It asks for no second search.")
    name = "Revised question (not searched)" if is_last else "Revised question"
    return f"{heading('Verdict', sentence)}\n\n{heading(name, verdict.revised_question)}"


def describe_score(verdict: Verdict, score: str) -> str:
    """Return a score in words and as a number; "" if the verdict has no such score."""
    value = expected_score(verdict, score)
    if value is None:
        return ""
    no, unsure, yes = SCORE_WORDS[score]
    words = unsure
    if value < NO_BELOW:
        words = no
    elif value > YES_ABOVE:
        words = yes
    return f"{words} (score {value:.2f} of 1)"
