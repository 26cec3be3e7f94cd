"""Questions, passages and predictions as a notebook shows them (display.html), and a box to type a question into."""

import html
from collections.abc import Callable, Sequence
from pathlib import Path

import ipywidgets as widgets
from IPython.display import HTML
from jinja2 import Environment

from covrag_lite.records import CITATION, SCORES, Passage, Prediction, Question


def show(one: Prediction | Question | Sequence[Passage]) -> HTML:
    """A prediction's whole way, a question's card or passages' cards, for a notebook's cell; every text is escaped."""
    if isinstance(one, Prediction):
        shown = {"prediction": one}
    elif isinstance(one, Question):
        small = f"set: {one.dataset}; gold answer: {' | '.join(one.answers)}"
        well_put = f"; well put: {one.clean_question}" if one.clean_question not in ("", one.question) else ""
        shown = {"cards": [(one.question, small + well_put)]}
    else:
        shown = {"cards": [(passage.title, passage.text) for passage in one]}
    template = Environment(autoescape=True).from_string(Path(__file__).with_suffix(".html").read_text(encoding="utf-8"))
    return HTML(template.render(scores=SCORES, cited=CITATION.findall, split=CITATION.split, **shown))


def ask_box(answer: Callable[[str], Prediction]) -> widgets.VBox:
    """A box to type a question into; Enter shows what `answer` makes of it."""
    box = widgets.Text(description="question", continuous_update=False, layout=widgets.Layout(width="90%"))
    shown = widgets.HTML("Type a question and press Enter.")

    def ask(_: object) -> None:
        shown.value = "…"
        try:
            shown.value = show(answer(box.value)).data if box.value.strip() else ""
        except (ValueError, OSError, MemoryError) as error:  # a sentence, and not forty lines
            shown.value = html.escape(str(error))

    box.observe(ask, "value")
    return widgets.VBox([box, shown])
