"""Questions, passages and predictions as a notebook shows them, and a box to type a question into."""

import html
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from covrag_lite.records import CITATION, SCORES, Passage, Prediction, Question, Round, Verdict

if TYPE_CHECKING:
    from IPython.display import HTML
    from ipywidgets import VBox

CARD = "font-family:sans-serif;max-width:60em;border:1px solid #ccc;border-radius:6px;padding:.6em .9em;margin:.4em 0"


def show(one: Prediction | Question | Sequence[Passage]) -> "HTML":
    """A prediction's whole way, a question's card or passages' cards, for a notebook's cell."""
    from IPython.display import HTML

    if isinstance(one, Prediction):
        return HTML(as_html(one))
    return HTML(card_of(one) if isinstance(one, Question) else "".join(map(card_of, one)))


def card_of(one: Question | Passage) -> str:
    """A question or a passage on a card."""
    if isinstance(one, Passage):
        head, small = one.title, one.text
    else:
        head = one.question
        small = f"set: {one.dataset}; gold answer: {' | '.join(one.answers)}"
        small += f"; well put: {one.clean_question}" if one.clean_question not in ("", one.question) else ""
    return f"<div style='{CARD}'><b>{html.escape(head)}</b><br><small>{html.escape(small)}</small></div>"


def ask_box(answer: Callable[[str], Prediction], first: str = "") -> "VBox":
    """A box to type a question into; Enter shows what `answer` makes of it."""
    from ipywidgets import HTML, Layout, Text, VBox

    box = Text(first, description="question", continuous_update=False, layout=Layout(width="90%"))
    shown = HTML("Type a question and press Enter.")

    def ask(_: object) -> None:
        shown.value = "…"
        try:
            shown.value = as_html(answer(box.value)) if box.value.strip() else ""
        except (ValueError, OSError, MemoryError) as error:  # a sentence, and not forty lines
            shown.value = html.escape(str(error))

    box.observe(ask, "value")
    return VBox([box, shown])


def as_html(one: Prediction) -> str:
    """A prediction's whole way as HTML."""
    rounds = "".join(_round_html(number, part, one.question) for number, part in enumerate(one.rounds, 1))
    if one.answer != one.rounds[-1].answer:
        rounds += f"<div><b>The answer of round {1 + one.rounds.index(one.final)} counts.</b></div>"
    gold = " | ".join(map(html.escape, one.question.answers))
    return (
        f"<div style='font-family:sans-serif;max-width:60em'>"
        f"<div style='color:#666'>{html.escape(one.system)}</div>"
        f"<div style='font-size:1.2em'><b>{html.escape(one.question.question)}</b></div>{rounds}"
        f"<div style='color:#666;margin-top:.5em'>gold answer: {gold}</div></div>"
    )


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
        shown = "–" if score is None else f"{score:.2f}"
        bars += f"<tr><td style='text-align:left'>{name.replace('_', ' ')}</td>"
        bars += f"<td style='text-align:left'><meter value='{score or 0}'></meter> {shown}</td></tr>"
    revised = html.escape(verdict.revised_question) or "(none)"
    return (
        f"<table style='font-size:.8em'>{bars}</table><div><b>Judgment:</b> {html.escape(verdict.judgment)}; "
        f"<b>revised question:</b> <i>{revised}</i></div>"
    )
