"""Show questions, passages and predictions in a notebook (display.html); a box for a question."""

import html
from collections.abc import Callable, Sequence
from pathlib import Path

import ipywidgets as widgets
from IPython.display import HTML
from jinja2 import Environment

from covrag_lite.labels import label_of
from covrag_lite.records import CITATION, SCORES, Passage, Prediction, Question


def show(one: Prediction | Question | Sequence[Passage]) -> HTML:
    """Show a prediction with all its rounds, a question, or passages, in a notebook cell.

    Every text is escaped.
    """
    if isinstance(one, Prediction):
        shown = {"prediction": one, "system": label_of(one.system)}
    elif isinstance(one, Question):
        small = f"set: {one.dataset}; gold answer: {' | '.join(one.answers)}"
        known = one.clean_question not in ("", one.question)
        well_put = f"; in clear wording: {one.clean_question}" if known else ""
        shown = {"cards": [(one.question, small + well_put)]}
    else:
        shown = {"cards": [(passage.title, passage.text) for passage in one]}
    template = Environment(autoescape=True).from_string(Path(__file__).with_suffix(".html").read_text(encoding="utf-8"))
    return HTML(template.render(scores=SCORES, cited=CITATION.findall, split=CITATION.split, **shown))


def ask_box(answer: Callable[[str], Prediction]) -> widgets.VBox:
    """Return a box to type a question into; Enter shows the prediction that `answer` returns."""
    box = widgets.Text(description="question", continuous_update=False, layout=widgets.Layout(width="90%"))
    shown = widgets.HTML("Type a question and press Enter.")

    def ask(_: object) -> None:
        shown.value = "…"
        try:
            shown.value = show(answer(box.value)).data if box.value.strip() else ""
        except (ValueError, OSError, MemoryError) as error:  # show the message, not a traceback
            shown.value = html.escape(str(error))

    box.observe(ask, "value")
    return widgets.VBox([box, shown])
