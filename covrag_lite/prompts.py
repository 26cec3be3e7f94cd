"""Prompts of the two tasks, answering and verifying, and the schema of a verdict.

They follow the paper's Table 7. Task markers, order of the fields, JSON keys and names of the
scores are the paper's; the wording of the instructions is ours. A prompt has one of two layouts.
"paper" has the paper's order. "shared" is ours: in both tasks, criteria, steps and format come
first, then references, question and answer. All prompts then begin with the same instructions,
which an engine reads once per batch.
"""

import json
import re
from collections.abc import Sequence

from covrag_lite.records import SCORES, Passage, Verdict

ANSWER_MARKER = "#Question-Answering-in-Context-Task#"
VERIFY_MARKER = "#verification-Task#"
LAYOUTS = ("paper", "shared")
SEPARATOR = "\\"  # WebGLM and the paper separate the parts of a prompt by one literal backslash

# The schema of a verdict: a sequence of parts. A string is fixed text. A tuple (kind, name) is a
# slot that the model fills; its kind is "score", "judgment" or "text". Training tokenises part by
# part too, so that it sees the tokens that decoding produces. The slot of the revised question
# includes the quotation marks and the space before them, because most tokenizers have a single
# token for an empty ` ""`.
Schema = Sequence[str | tuple[str, str]]
SCHEMA: Schema = (
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
# The variant without the chain (Table 5): only the revised question, without the scores and the
# judgment that lead to it.
DIRECT: Schema = ('{ "4":', ("text", "revised_question"), " }")
JUDGMENTS = ("true", "false", "unclear")
OPENING_QUOTE = ' "'  # how a revised question begins
EMPTY_QUOTES = ' ""'  # an empty revised question
VERDICT_ROOM = 128  # tokens reserved for a verdict, in addition to its revised question


def fill_schema(
    schema: Schema, scores: Sequence[float], judgment: str, revised_question: str
) -> tuple[str, ...]:
    """Return the parts of a verdict: the schema with its slots filled, scores with two decimals."""
    score_of = dict(zip(SCORES, scores, strict=True))
    parts: list[str] = []
    for part in schema:
        match part:
            case str():
                parts.append(part)
            case "score", name:
                parts.append(f"{score_of[name]:.2f}")
            case "judgment", _:
                parts.append(judgment)
            case "text", _:
                parts += quote_question(revised_question)
    return tuple(parts)


def quote_question(revised_question: str) -> list[str]:
    """Return a revised question in quotation marks, in the parts in which it is decoded.

    The closing quotation mark is a part of its own. Decoding stops at a token that is only this
    mark, and forbids tokens that join it to the text before it, such as `?"`. Training must
    therefore tokenise the mark separately.
    """
    text = revised_question.replace("\\", "").replace('"', "'")
    return [OPENING_QUOTE, text, '"'] if text else [EMPTY_QUOTES]


def render_verdict(scores: Sequence[float], judgment: str, revised_question: str) -> str:
    """Return the text of a verdict."""
    return "".join(fill_schema(SCHEMA, scores, judgment, revised_question))


def verdict_parts(
    verdict: Verdict, with_chain: bool = True, unfinished: bool = False
) -> tuple[str, ...]:
    """Return a verdict as a training target, in the parts in which it is decoded.

    An unfinished verdict belongs to a wrong answer for which no good revised question is known.
    With the chain, it ends after the judgment. Without the chain, it ends after the opening
    quotation mark: the model learns only that the question is not empty. An empty one would mean
    that the answer is true.
    """
    schema = SCHEMA if with_chain else DIRECT
    scores = [getattr(verdict, name) for name in SCORES]
    if not unfinished:
        return fill_schema(schema, scores, verdict.judgment, verdict.revised_question)
    # With any question that is not empty, the opening quotation mark is a part of its own. The
    # question itself is cut off below.
    placeholder = "?"
    parts = fill_schema(schema, scores, verdict.judgment, placeholder)
    opening_quote = parts.index(OPENING_QUOTE)
    if with_chain:
        fourth_key = opening_quote - 1
        return parts[:fourth_key]
    return parts[: opening_quote + 1]


def parse_verdict(
    text: str, schema: Schema = SCHEMA, probabilities: dict[str, float] | None = None
) -> Verdict:
    """Parse the text of a verdict; a text that does not follow the schema gets parsed=False.

    Example:
        >>> verdict = parse_verdict(EXAMPLE)
        >>> verdict.judgment, verdict.correctness, verdict.revised_question
        ('true', 1.0, '')
    """
    unknown_scores: dict[str, float | None] = dict.fromkeys(SCORES)
    unparsed = Verdict(
        **unknown_scores,
        judgment="",
        revised_question="",
        parsed=False,
        text=text,
        probabilities=None,
    )
    fields = parse_json(text)
    revised_question = fields.get("4")
    if not isinstance(revised_question, str):
        return unparsed
    if schema == DIRECT:  # an empty revised question means "true" (Section 4.3 of the paper)
        scores = unknown_scores
        judgment = "false" if revised_question else "true"
    else:
        scores = parse_scores(fields)
        judgment = fields.get("3", "")
        if len(scores) < len(SCORES) or judgment not in JUDGMENTS:
            return unparsed
    return Verdict(
        **scores,
        judgment=judgment,
        revised_question=revised_question.strip(),
        parsed=True,
        text=text,
        probabilities=probabilities,
    )


def parse_json(text: str) -> dict:
    """Return the JSON object in a text, from the first brace to the last; {} if there is none."""
    match = re.search(r"\{.*\}", text, re.DOTALL)
    if match is None:
        return {}
    try:
        return json.loads(match[0])
    except json.JSONDecodeError:
        return {}


def parse_scores(fields: dict) -> dict[str, float | None]:
    """Return the valid scores of a verdict's JSON object: numbers from 0 to 1.

    Scores that are missing or not valid are left out.
    """
    reference_scores = fields.get("1")
    answer_scores = fields.get("2")
    if not isinstance(reference_scores, dict) or not isinstance(answer_scores, dict):
        return {}
    values = reference_scores | answer_scores
    scores: dict[str, float | None] = {}
    for name in SCORES:
        value = values.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            scores[name] = float(value)
    return scores


# The instructions of both tasks.

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

# The paper's example. Its bias of 0.8 does not fit its judgment "true".
EXAMPLE = render_verdict((0.9, 1.0, 0.8, 0.7, 0.8, 0.9), "true", "")
FORMAT = f"Output format example:\n{EXAMPLE}"


def build_references(passages: Sequence[Passage]) -> str:
    """Return the numbered references as both tasks show them."""
    references = [f"Reference [{n}]: {passage.text}" for n, passage in enumerate(passages, 1)]
    return SEPARATOR.join(references)


def build_answer(question: str, passages: Sequence[Passage], layout: str = "paper") -> str:
    """Return the prompt of the question-answering task, in one of the two layouts."""
    if layout == "shared":
        return f"{build_shared(question, passages)}{ANSWER_MARKER}Answer:"
    references = build_references(passages)
    return f"{ANSWER_MARKER}{references}{SEPARATOR}Question: {question}{SEPARATOR}Answer:"


def build_verify(
    question: str, passages: Sequence[Passage], answer: str, layout: str = "paper"
) -> str:
    """Return the prompt of the verification task, in one of the two layouts."""
    if layout == "shared":
        shared = build_shared(question, passages)
        return f"{shared}{VERIFY_MARKER}Answer: {answer}{SEPARATOR}Verdict:"
    references = build_references(passages)
    triple = f'{{ "question": {question}, "answer": {answer}, "reference": {references} }}'
    return f"{VERIFY_MARKER}{CRITERIA}\n{triple}\n{STEPS}\n{FORMAT}"


def build_shared(question: str, passages: Sequence[Passage]) -> str:
    """Return the text with which the prompts of both tasks begin in the shared layout.

    What is the same for all questions comes first.
    """
    references = build_references(passages)
    fixed = f"{CRITERIA}\n{STEPS}\n{FORMAT}\n"
    return f"{fixed}{references}{SEPARATOR}Question: {question}{SEPARATOR}"


# Tasks whose prompt contains only the question. Each has an instruction, and the word after which
# the model writes. The last three help to find revised questions for the training data; query
# expansion uses two of them, too.
QUESTION_ONLY = {
    "closed-book": ("Answer the question in a few words.", "Answer"),
    "rewrite": (  # the first step of Start-Revise (Table 4)
        "Rewrite this as one clear question for a search engine. Give only the question.",
        "Rewritten",
    ),
    "guess": (
        "Write one short sentence, as an encyclopedia would have it, that answers the question. "
        "If unsure, guess.",
        "Sentence",
    ),
    "terms": (
        "List the names and key terms that a page answering the question would hold, separated by "
        "commas.",
        "Terms",
    ),
    "options": (
        "Name three different things that could answer the question, separated by commas. "
        "If unsure, guess.",
        "Answers",
    ),
}


def build_from_question(task: str, question: str) -> str:
    """Return the prompt of a task of `QUESTION_ONLY`."""
    instruction, beginning = QUESTION_ONLY[task]
    return f"{instruction}{SEPARATOR}Question: {question}{SEPARATOR}{beginning}:"
