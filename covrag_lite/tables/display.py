"""Show questions, passages and predictions in a notebook (display.html); a box for a question."""

import base64
import html
from collections.abc import Callable, Sequence
from pathlib import Path

import ipywidgets as widgets
import pandas as pd
from IPython.display import HTML, Image
from jinja2 import Environment

from covrag_lite.records import CITATION, SCORES, Passage, Prediction, Question
from covrag_lite.tables.labels import label_of

TEMPLATE = Path(__file__).with_name("display.html")
GUESS_FIRST = "Guess first, then click here to see the result"
Card = tuple[str, str]  # a heading and a text


def show(item: Prediction | Question | Sequence[Passage]) -> HTML:
    """Show a prediction with all its rounds, a question, or passages, in a notebook cell.

    Every text is escaped.
    """
    if isinstance(item, Prediction):
        return render(prediction=item, system=label_of(item.system))
    if isinstance(item, Question):
        return render(cards=[card_of_question(item)])
    return render(cards=[(passage.title, passage.text) for passage in item])


def render(**values: object) -> HTML:
    """Fill the template."""
    template = Environment(autoescape=True).from_string(TEMPLATE.read_text(encoding="utf-8"))
    helpers = {
        "scores": SCORES,
        "citations": CITATION.findall,
        "split_at_citations": CITATION.split,
    }
    return HTML(template.render(**helpers, **values))


def card_of_question(question: Question) -> Card:
    """Return a question with its set, gold answers and, if it differs, its clear wording."""
    text = f"set: {question.dataset}; gold answer: {' | '.join(question.answers)}"
    if question.clean_question not in ("", question.question):
        text += f"; in clear wording: {question.clean_question}"
    return question.question, text


def fold(table: pd.DataFrame, picture: Image) -> HTML:
    """Return a table and a picture that open with a click: a class guesses before it looks."""
    data = base64.b64encode(picture.data).decode()
    image = f'<img style="max-width: 100%" alt="" src="data:image/png;base64,{data}">'
    shown = f"{table.to_html()}<p>{image}</p>"
    return HTML(f"<details><summary>{GUESS_FIRST}</summary>{shown}</details>")


def ask_box(answer: Callable[[str], Prediction]) -> widgets.VBox:
    """Return a box to type a question into; Enter shows the prediction that `answer` returns."""
    box = widgets.Text(
        description="question", continuous_update=False, layout=widgets.Layout(width="90%")
    )
    output = widgets.HTML("Type a question and press Enter.")

    def show_answer(_: object) -> None:
        output.value = "…"
        try:
            output.value = show(answer(box.value)).data if box.value.strip() else ""
        except (ValueError, OSError, MemoryError) as error:  # show the message, not a traceback
            output.value = html.escape(str(error))

    box.observe(show_answer, "value")
    return widgets.VBox([box, output])
