"""Prompts of the two tasks and the schema of a verdict (the paper's Table 7): build and parse.

Task markers, order of the fields, JSON keys and names of the scores are the paper's; the wording of
the instructions is ours. The layout "shared" is ours too: in both tasks, criteria, steps and format
come first, then references, question and answer. All prompts then begin with the same text, which
an engine reads once per batch.
"""

import json
import re
from collections.abc import Sequence

from covrag_lite.records import SCORES, Passage, Verdict

ANSWER_MARKER = "#Question-Answering-in-Context-Task#"
VERIFY_MARKER = "#verification-Task#"
JUDGMENTS = ("true", "false", "unclear")
LAYOUTS = ("paper", "shared")
VERDICT_ROOM = 128  # tokens reserved for a verdict, in addition to its revised question
SEPARATOR = "\\"  # WebGLM and the paper separate the parts of a prompt by one literal backslash

CRITERIA = """An answer is scored from 0 to 1 by five criteria.
correctness: does it answer the question rightly?
citation_accuracy: do its reference marks point to the references that support it?
truthfulness: is it free of contradictions and of offences against logic and common sense?
bias: does it depart from what the references say? 0 is not at all, 1 is entirely.
conciseness: does it come to the point without needless words?"""

STEPS = """You are the examiner of this answer. Do four things in order.
1. Score how well the reference fits the question.
2. Score the answer by the five criteria.
3. Judge the answer: true, false or unclear.
4. If it is not true, put the question anew so that a search finds better references: \
a full question, names spelt right, ending with a question mark. If it is true, leave this empty."""


def build_references(passages: Sequence[Passage]) -> str:
    """Return the numbered references as both tasks show them."""
    return SEPARATOR.join(f"Reference [{i}]: {p.text}" for i, p in enumerate(passages, 1))


def build_shared(question: str, passages: Sequence[Passage]) -> str:
    """Return the beginning of both prompts in the shared layout; it starts with the fixed part."""
    alike = f"{CRITERIA}\n{STEPS}\nOutput format example:\n{EXAMPLE}\n"
    return f"{alike}{build_references(passages)}{SEPARATOR}Question: {question}{SEPARATOR}"


def build_answer(question: str, passages: Sequence[Passage], layout: str = "paper") -> str:
    """Return the prompt of the question-answering task: references, then the question."""
    if layout == "shared":
        return f"{build_shared(question, passages)}{ANSWER_MARKER}Answer:"
    return f"{ANSWER_MARKER}{build_references(passages)}{SEPARATOR}Question: {question}{SEPARATOR}Answer:"


# Tasks whose prompt contains only the question. The last three give candidates for the revised
# questions in the training data.
ALONE = {
    "closed-book": "Answer the question in a few words.",
    "rewrite": "Rewrite this as one clear question for a search engine. Give only the question.",
    "guess": "Write one short sentence, as an encyclopedia would have it, that answers the question. If unsure, guess.",
    "terms": "List the names and key terms that a page answering the question would hold, separated by commas.",
    "options": "Name three different things that could answer the question, separated by commas. If unsure, guess.",
}
WRITTEN = {"closed-book": "Answer", "rewrite": "Rewritten", "guess": "Sentence", "terms": "Terms", "options": "Answers"}


def build_alone(task: str, question: str) -> str:
    """Return the prompt of a task of `ALONE`; "rewrite" is the first step of Start-Revise."""
    return f"{ALONE[task]}{SEPARATOR}Question: {question}{SEPARATOR}{WRITTEN[task]}:"


def build_verify(question: str, passages: Sequence[Passage], answer: str, layout: str = "paper") -> str:
    """Return the prompt of the verification task: criteria, question, answer and references."""
    if layout == "shared":
        return f"{build_shared(question, passages)}{VERIFY_MARKER}Answer: {answer}{SEPARATOR}Verdict:"
    triple = f'{{ "question": {question}, "answer": {answer}, "reference": {build_references(passages)} }}'
    return f"{VERIFY_MARKER}{CRITERIA}\n{triple}\n{STEPS}\nOutput format example:\n{EXAMPLE}"


# The verdict as a sequence of parts: a string is fixed by the schema, a tuple is a slot that the
# model fills. Training tokenises the same parts, so that it sees what decoding produces. The last
# slot includes its quotation marks and the space before them, because most tokenizers have a single
# token for an empty ` ""`.
SCHEMA: tuple[str | tuple[str, str], ...] = (
    '{ "1": { "reference_correctness": ', ("score", "reference_correctness"),
    ' }, "2": { "correctness": ', ("score", "correctness"),
    ', "citation_accuracy": ', ("score", "citation_accuracy"),
    ', "truthfulness": ', ("score", "truthfulness"),
    ', "bias": ', ("score", "bias"),
    ', "conciseness": ', ("score", "conciseness"),
    ' }, "3": "', ("judgment", "judgment"),
    '", "4":', ("text", "revised_question"),
    " }",
)  # fmt: skip
DIRECT: tuple[str | tuple[str, str], ...] = ('{ "4":', ("text", "revised_question"), " }")  # no chain (Table 5)


def fill(
    schema: Sequence[str | tuple[str, str]], scores: Sequence[float], judgment: str, revised_question: str
) -> tuple[str, ...]:
    """Return the parts of a verdict: the schema with its slots filled, scores with two decimals.

    A revised question has three parts, because decoding adds the closing quotation mark itself. A
    tokenizer would join this mark to the question mark before it, and the model would learn a token
    that decoding never lets it write.
    """
    values = dict(zip(SCORES, ((f"{score:.2f}",) for score in scores), strict=True))
    text = revised_question.replace("\\", "").replace('"', "'")
    values |= {"judgment": (judgment,), "revised_question": (' "', text, '"') if text else (' ""',)}
    return tuple(piece for part in schema for piece in ((part,) if isinstance(part, str) else values[part[1]]))


def render_verdict(scores: Sequence[float], judgment: str, revised_question: str) -> str:
    """Return the text of a verdict."""
    return "".join(fill(SCHEMA, scores, judgment, revised_question))


EXAMPLE = render_verdict((0.9, 1.0, 0.8, 0.7, 0.8, 0.9), "true", "")  # of the output format


def verdict_parts(verdict: Verdict, with_chain: bool = True, unfinished: bool = False) -> tuple[str, ...]:
    """Return a verdict as a training target, in the parts in which it is decoded.

    An unfinished verdict belongs to a wrong answer without a known revised question; it ends where
    the revised question would begin. Without the chain it ends after the opening quotation mark,
    because an empty revised question would mean that the answer is true.
    """
    scores, revised = [getattr(verdict, name) for name in SCORES], "?" if unfinished else verdict.revised_question
    parts = fill(SCHEMA if with_chain else DIRECT, scores, verdict.judgment, revised)
    if not unfinished:
        return parts
    known = parts.index(' "')
    return parts[: known - 1] if with_chain else parts[: known + 1]


def parse_verdict(
    text: str, schema: Sequence[str | tuple[str, str]] = SCHEMA, probabilities: dict[str, float] | None = None
) -> Verdict:
    """Parse the text of a verdict; a text that does not follow the schema gets parsed=False.

    Example:
        >>> verdict = parse_verdict(EXAMPLE)
        >>> verdict.judgment, verdict.correctness, verdict.revised_question
        ('true', 1.0, '')
    """
    match = re.search(r"\{.*\}", text, re.DOTALL)
    try:
        body = json.loads(match[0] if match else "{}")
    except json.JSONDecodeError:
        body = {}
    scores, judgment, revised = dict.fromkeys(SCORES), body.get("3"), body.get("4")
    if schema is DIRECT:  # an empty revised question means "true" (Section 4.3 of the paper)
        judgment = "false" if revised else "true"
    else:
        written = body["1"] | body["2"] if all(isinstance(body.get(part), dict) for part in ("1", "2")) else {}
        found = {name: written.get(name) for name in SCORES}
        scores = {name: float(n) for name, n in found.items() if type(n) in (int, float) and 0 <= n <= 1}
    if len(scores) < len(SCORES) or judgment not in JUDGMENTS or not isinstance(revised, str):
        return Verdict(**dict.fromkeys(SCORES), judgment="", revised_question="", parsed=False, text=text)
    told = {"judgment": judgment, "revised_question": revised.strip(), "probabilities": probabilities}
    return Verdict(**scores, **told, parsed=True, text=text)
