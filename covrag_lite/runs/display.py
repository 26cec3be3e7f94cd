"""Questions, passages and predictions as a notebook shows them (display.html), and a box to type a question into."""

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from covrag_lite.records import CITATION, SCORES, Passage, Prediction, Question

if TYPE_CHECKING:
    from IPython.display import HTML
    from ipywidgets import VBox


def show(one: Prediction | Question | Sequence[Passage]) -> "HTML":
    """A prediction's whole way, a question's card or passages' cards, for a notebook's cell."""
    from IPython.display import HTML

    if isinstance(one, Prediction):
        return HTML(as_html(one))
    return HTML(render(cards=[card_of(one)] if isinstance(one, Question) else [(p.title, p.text) for p in one]))


def card_of(one: Question) -> tuple[str, str]:
    """What stands on a question's card, large and small."""
    small = f"set: {one.dataset}; gold answer: {' | '.join(one.answers)}"
    well_put = f"; well put: {one.clean_question}" if one.clean_question not in ("", one.question) else ""
    return one.question, small + well_put


def as_html(one: Prediction) -> str:
    """A prediction's whole way as HTML."""
    return render(prediction=one)


def render(**shown: object) -> str:
    """The template with what is shown; every text in it is escaped."""
    from jinja2 import Environment

    template = Environment(autoescape=True).from_string(Path(__file__).with_suffix(".html").read_text(encoding="utf-8"))
    return template.render(scores=SCORES, cited=CITATION.findall, split=CITATION.split, **shown)


def ask_box(answer: Callable[[str], Prediction]) -> "VBox":
    """A box to type a question into; Enter shows what `answer` makes of it."""
    from ipywidgets import HTML, Layout, Text, VBox

    box = Text(description="question", continuous_update=False, layout=Layout(width="90%"))
    shown = HTML("Type a question and press Enter.")

    def ask(_: object) -> None:
        shown.value = "…"
        try:
            shown.value = as_html(answer(box.value)) if box.value.strip() else ""
        except (ValueError, OSError, MemoryError) as error:  # a sentence, and not forty lines
            shown.value = html.escape(str(error))

    box.observe(ask, "value")
    return VBox([box, shown])
