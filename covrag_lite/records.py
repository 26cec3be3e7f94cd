"""The values that travel through a run, with the same field names in memory, on disk and in a frame.

Every other module passes these around; they hold no logic but their own display.
"""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

SCORES = ("reference_correctness", "correctness", "citation_accuracy", "truthfulness", "bias", "conciseness")
CITATION = re.compile(r"\[(\d+)\]")  # a reference mark in an answer, e.g. [2]


@dataclass(frozen=True)
class Question:
    """One question of a test, validation or training set."""

    id: str
    dataset: str  # the set it belongs to: "nq" of a folder, "search" of the embedded world
    question: str  # as the user typed it, misspellings included
    answers: tuple[str, ...]  # any of these counts as right
    gold_passages: tuple[str, ...] = ()  # ids of the passages that state the answer, where known
    clean_question: str = ""  # the same question well put, where known
    # What is asked for; after a "/" the trap it runs into, after a "+" what is wrong with the wording: "two-hop",
    # "author/namesake", "author+misspelt". No model sees it.
    kind: str = ""


@dataclass(frozen=True)
class Passage:
    """One reference the retriever can return."""

    id: str
    title: str
    text: str


Search = Callable[[Sequence[str]], list[list[Passage]]]  # every retriever: queries -> k passages each


@dataclass(frozen=True)
class Sample:
    """One training sample of either task; the target is given in the parts in which it is tokenised and decoded."""

    id: str
    task: str  # "answer" or "verify"
    prompt: str
    target: tuple[str, ...]
    unfinished: bool = False  # the target would go on, but nobody knows how: no end is learnt


@dataclass(frozen=True)
class Verdict:
    """What the verification says of one answer: Table 1 of the paper, in its order."""

    reference_correctness: float | None
    correctness: float | None
    citation_accuracy: float | None
    truthfulness: float | None
    bias: float | None
    conciseness: float | None
    judgment: str  # "true", "false" or "unclear"; "" when the output did not parse
    revised_question: str  # "" when the answer stands
    parsed: bool
    text: str  # what the model wrote, kept so that it can be parsed again
    # Of a forced verdict: P("true") among the judgments, P("empty") of the revision, each score's expectation.
    probabilities: dict[str, float] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Outcome:
    """What came of one round, against the gold answers and passages; None where there is nothing to compare with."""

    raw: bool | None
    normalised: bool | None
    whole: bool | None
    gold: bool | None  # a gold passage was found
    found: bool | None  # a passage holds an answer
    words: bool | None  # a passage holds an answer in whole words
    parsed: bool | None  # the verdict could be read


@dataclass(frozen=True)
class Round:
    """One pass of retrieve, answer and, where it was asked for, verify."""

    query: str  # what was searched for; "" when nothing was (closed-book)
    passages: tuple[Passage, ...]
    answer: str
    verdict: Verdict | None = None
    # The mean logarithmic probability of the answer's tokens, where the model tells it.
    likelihood: float | None = field(default=None, compare=False)
    note: str = ""  # what a system did or thought beside it, in a line: CRAG's action, A²R's scores and feedback
    outcome: Outcome | None = field(default=None, compare=False)  # as recorded, where the data is not at hand


@dataclass(frozen=True, repr=False)
class Prediction:
    """One question's whole journey through one system."""

    question: Question
    system: str
    rounds: tuple[Round, ...]
    backbone: str = ""  # the model it ran on, with its adapter
    kept: int = -1  # the round whose answer counts; an earlier one where a rule prefers it

    @property
    def final(self) -> Round:
        """The round whose answer counts."""
        return self.rounds[self.kept]

    @property
    def answer(self) -> str:
        return self.final.answer

    @property
    def revised(self) -> bool:
        return len(self.rounds) > 1

    def __repr__(self) -> str:
        lines = [f"{self.system} | {self.question.question}"]
        for number, one in enumerate(self.rounds, 1):
            lines.append(
                f"round {number}: searched for {one.query!r}" if one.query else f"round {number}: nothing searched"
            )
            lines += [f"  [{i}] {p.title}: {p.text}" for i, p in enumerate(one.passages, 1)]
            lines.append(f"  answer: {one.answer}")
            if one.note:
                lines.append(f"  note: {one.note}")
            if one.verdict:
                scores = ", ".join(f"{name} {_number(getattr(one.verdict, name))}" for name in SCORES)
                lines.append(f"  verdict: {one.verdict.judgment or 'unparsed'} ({scores})")
                lines.append(f"  revised question: {one.verdict.revised_question or '(none)'}")
        if self.answer != self.rounds[-1].answer:
            lines.append(f"the answer of round {1 + self.rounds.index(self.final)} counts")
        return "\n".join([*lines, f"gold: {' | '.join(self.question.answers)}"])

    def _repr_html_(self) -> str:
        rounds = "".join(_round_html(number, one, self.question) for number, one in enumerate(self.rounds, 1))
        if self.answer != self.rounds[-1].answer:
            rounds += f"<div><b>The answer of round {1 + self.rounds.index(self.final)} counts.</b></div>"
        gold = " | ".join(map(html.escape, self.question.answers))
        return (
            f"<div style='font-family:sans-serif;max-width:60em'>"
            f"<div style='color:#666'>{html.escape(self.system)}</div>"
            f"<div style='font-size:1.2em'><b>{html.escape(self.question.question)}</b></div>{rounds}"
            f"<div style='color:#666;margin-top:.5em'>gold answer: {gold}</div></div>"
        )


def _number(score: float | None) -> str:
    return "–" if score is None else f"{score:.2f}"


def _round_html(number: int, one: Round, question: Question) -> str:
    """One round as HTML: passages, the answer with its citations tied to them, the verdict as small bars."""
    cited = {int(mark) for mark in CITATION.findall(one.answer)}
    anchor = html.escape(f"{question.id}-{number}")
    passages = ""
    for i, passage in enumerate(one.passages, 1):
        style = "background:#fff3c4" if i in cited else "color:#555"
        gold = " <b>✓ gold</b>" if passage.id in question.gold_passages else ""
        text = f"<b>{html.escape(passage.title)}</b> {html.escape(passage.text)}{gold}"
        passages += f"<li id='{anchor}-{i}' style='margin:.2em 0;{style}'>{text}</li>"
    answer = CITATION.sub(lambda mark: f"<a href='#{anchor}-{mark[1]}'>{mark[0]}</a>", html.escape(one.answer))
    head = f"searched for <i>{html.escape(one.query)}</i>" if one.query else "nothing searched"
    verdict = _verdict_html(one.verdict) if one.verdict else ""
    note = f"<div style='color:#666'>{html.escape(one.note)}</div>" if one.note else ""
    return (
        f"<div style='border-left:3px solid #4c72b0;padding-left:.8em;margin:.6em 0'><b>Round {number}</b>: {head}"
        f"<ol style='font-size:.85em'>{passages}</ol><div><b>Answer:</b> {answer}</div>{note}{verdict}</div>"
    )


def _verdict_html(verdict: Verdict) -> str:
    """The scores as bars, the judgment and the revised question."""
    if not verdict.parsed:
        return f"<div><b>Verdict did not parse:</b> <code>{html.escape(verdict.text)}</code></div>"
    bars = ""
    for name in SCORES:
        score = getattr(verdict, name)
        style = f"display:inline-block;background:#4c72b0;height:.7em;width:{100 * (score or 0):.0f}px"
        bars += f"<tr><td style='text-align:left'>{name.replace('_', ' ')}</td>"
        bars += f"<td style='text-align:left'><div style='{style}'></div> {_number(score)}</td></tr>"
    revised = html.escape(verdict.revised_question) or "(none)"
    return (
        f"<table style='font-size:.8em'>{bars}</table><div><b>Judgment:</b> {html.escape(verdict.judgment)}; "
        f"<b>revised question:</b> <i>{revised}</i></div>"
    )
