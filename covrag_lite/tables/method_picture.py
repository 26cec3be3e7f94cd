"""The picture of the method: Algorithm 1 on a recorded question that the second search rescues."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill, shorten
from typing import NamedTuple

import pandas as pd

from covrag_lite.records import CITATION, Prediction, Question, Round
from covrag_lite.runs.frame import outcome_of
from covrag_lite.systems import palette
from covrag_lite.systems.names import COV_RAG, RAG_TRAINED, START_REVISE_TRAINED
from covrag_lite.tables import pictures
from covrag_lite.tables.table import Table

EXAMPLE = "world1-complex-test-0011"  # two hops: only a passage names the person to search for
TITLE = "CoV-RAG: the verdict flags a wrong answer, a revised question finds better passages"
MAX_TITLE = 34  # letters of a passage's title
MAX_QUOTE = 76  # letters of a quoted sentence

# The picture, in inches.
WIDTH = 12.38
HEIGHT = 5.9
BOX_HEIGHT = 1.85
BOXES = {  # left edge, lower edge, width: round 1 goes to the right, round 2 back below it
    "question": (0.2, 3.4, 2.4),
    "passages": (2.96, 3.4, 3.85),
    "answer": (7.17, 3.4, 2.3),
    "verdict": (9.83, 3.4, 2.35),
    "revised question": (9.83, 0.6, 2.35),
    "new passages": (5.62, 0.6, 3.85),
    "new answer": (2.96, 0.6, 2.3),
}
COLOUR_SYSTEMS = {  # a box -> the system whose colour it has: blue, then orange, then green
    "question": RAG_TRAINED,
    "passages": RAG_TRAINED,
    "answer": START_REVISE_TRAINED,
    "verdict": START_REVISE_TRAINED,
    "revised question": COV_RAG,
    "new passages": COV_RAG,
    "new answer": COV_RAG,
}
ARROWS_RIGHT = ((2.6, 2.96), (6.81, 7.17), (9.47, 9.83))
ARROWS_LEFT = ((9.83, 9.47), (5.62, 5.26))


class RoundTexts(NamedTuple):
    """The texts of one round."""

    titles: str
    answer: str
    quote: str


def pick_rescued(predictions: Sequence[Prediction]) -> Prediction:
    """Return the example, or the first other question that the second search rescues."""
    rescued = [prediction for prediction in predictions if is_rescued(prediction)]
    if not rescued:
        raise ValueError(
            "the second search rescues no question of this run; "
            "set record to a folder of results/ in which CoV-RAG rescues one"
        )
    examples = [prediction for prediction in rescued if prediction.question.id == EXAMPLE]
    return examples[0] if examples else rescued[0]


def is_rescued(prediction: Prediction) -> bool:
    """Return whether CoV-RAG's second search turned a wrong answer into a right one."""
    if prediction.system != COV_RAG or not prediction.revised:
        return False
    before = outcome_of(prediction)
    after = outcome_of(prediction, -1)
    return bool(after.normalised and not before.normalised)


def build(predictions: Sequence[Prediction]) -> Table:
    """Build the picture and its text."""
    prediction = pick_rescued(predictions)
    texts = write_texts(prediction)
    rows = [(step, " ".join(text.split())) for step, text in texts.items()]
    heading = f"One question through CoV-RAG, step by step ({prediction.question.id})"
    parts = {heading: pd.DataFrame(rows, columns=["step", "text"])}
    return Table("method", pd.DataFrame(), parts, plots={"png": partial(draw, texts)})


def write_texts(prediction: Prediction) -> dict[str, str]:
    """Return the text of each box, and one quoted sentence of a passage per round."""
    question = prediction.question
    verdict = prediction.rounds[0].required_verdict
    first = summarise_round(prediction.rounds[0], question, verdict.revised_question)
    last = summarise_round(prediction.rounds[-1], question)
    return {
        "question": fill(question.question, 19),
        "passages": first.titles,
        "answer": f"{first.answer}\n\n✗ wrong",
        "verdict": (
            f"judgment: {verdict.judgment}\n"
            f"references: {verdict.reference_correctness:.2f}\n"
            f"correctness: {verdict.correctness:.2f}\n…"
        ),
        "revised question": fill(verdict.revised_question, 18),
        "new passages": last.titles,
        "new answer": f"{last.answer}\n\n✓ right",
        "quoted": first.quote,
        "quoted again": last.quote,
    }


def summarise_round(step: Round, question: Question, revised_question: str = "") -> RoundTexts:
    """Return the passages' titles, the answer, and one quoted sentence of a passage.

    A tick marks a passage that states the answer. The quoted sentence is the one with the most
    words that the revised question adds; otherwise it is the first one of the cited passage.
    """
    titles = []
    for number, passage in enumerate(step.passages, 1):
        tick = " ✓" if passage.id in question.gold_passages else ""
        title = f"[{number}] {passage.title}{tick}"
        titles.append(title if len(title) <= MAX_TITLE else f"{title[: MAX_TITLE - 1]}…")
    added_words = set(revised_question.split()) - set(question.question.split())
    answer = fill(step.answer.replace("[", " ["), 19)
    return RoundTexts("\n".join(titles), answer, quote_sentence(step, added_words))


def quote_sentence(step: Round, words: set[str]) -> str:
    """Return the sentence with the most of these words, preferably of the cited passage."""
    citation = CITATION.search(step.answer)
    cited = int(citation[1]) if citation else 1
    text = ""
    best = (-1, False)
    for number, passage in enumerate(step.passages, 1):
        for sentence in passage.text.split(". "):
            rank = (sum(word in sentence for word in words), number == cited)
            if rank > best:
                best = rank
                quote = shorten(f"{sentence.rstrip('.')}.", MAX_QUOTE, placeholder=" …")
                text = f"[{number}]: “{quote}”"
    return text


def draw(texts: Mapping[str, str], path: Path) -> "pictures.Figure":
    """Draw the boxes in two rows with arrows between them, readable at a width of 700 pixels."""
    plt, _ = pictures.style(1, "notebook")
    figure = plt.figure(figsize=(WIDTH, HEIGHT))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT), frame_on=False)
    axes.set(xticks=[], yticks=[])
    for name, (x, y, width) in BOXES.items():
        colour = palette()[COLOUR_SYSTEMS[name]]
        top = y + BOX_HEIGHT
        axes.add_patch(plt.Rectangle((x, y), width, BOX_HEIGHT, fc="white", ec=colour, lw=2.2))
        heading = dict(size=14.5, weight="bold", color=colour)
        axes.text(x + 0.12, top - 0.1, name, va="top", **heading)
        axes.text(x + 0.12, top - 0.42, texts[name], va="top", size=14, linespacing=1.2)
    draw_arrows(axes)
    draw_notes(axes, texts)
    return pictures.save_picture(figure, path)


def draw_arrows(axes: "pictures.Axes") -> None:
    """Draw the arrows between the boxes; the dashed one takes the question to the new answer."""
    arrow = dict(arrowstyle="-|>", lw=2.2, color=pictures.DARK)
    arrow |= dict(shrinkA=3, shrinkB=3, mutation_scale=20)
    for start, end in ARROWS_RIGHT:
        axes.annotate("", (end, 4.3), (start, 4.3), arrowprops=arrow)
    for start, end in ARROWS_LEFT:
        axes.annotate("", (end, 1.5), (start, 1.5), arrowprops=arrow)
    axes.annotate("", (11, 2.45), (11, 3.4), arrowprops=arrow)
    bend = "angle,angleA=90,angleB=0,rad=0"
    dashed = dict(ls="--", color=palette()[RAG_TRAINED], connectionstyle=bend)
    axes.annotate("", (2.96, 1.5), (1.4, 3.4), arrowprops=arrow | dashed)


def draw_notes(axes: "pictures.Axes", texts: Mapping[str, str]) -> None:
    """Write the title, the quoted sentences, and what the dashed arrow and the tick mean."""
    note = "the original question\nis answered again"
    axes.text(0.2, 0.78, note, size=14, color=palette()[RAG_TRAINED])
    for name, y in (("quoted", 3.28), ("quoted again", 0.48)):
        axes.text(2.96, y, texts[name], va="top", size=13.5, style="italic")
    axes.text(0.2, HEIGHT - 0.3, TITLE, va="center", size=17, weight="bold")
    x, y, width = BOXES["new passages"]
    corner = (x + width - 0.12, y + BOX_HEIGHT - 0.12)
    look = dict(va="top", ha="right", size=13, color=palette()[COV_RAG])
    axes.text(*corner, "✓ states the answer", **look)
