"""The picture of the method: Algorithm 1 on a recorded question that the second search rescues."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill, shorten

import pandas as pd

from covrag_lite.records import CITATION, Prediction, Question, Round
from covrag_lite.runs.outcomes import outcome_of
from covrag_lite.systems import palette
from covrag_lite.tables import Table, pictures

EXAMPLE = "world1-complex-test-0011"  # two hops: only a passage names the person to search for
WIDTH, HEIGHT, BOX_HEIGHT = 12.38, 5.9, 1.85  # in inches
BOXES = {  # left edge, lower edge, width: round 1 goes to the right, round 2 back below it
    "question": (0.2, 3.4, 2.4),
    "passages": (2.96, 3.4, 3.85),
    "answer": (7.17, 3.4, 2.3),
    "verdict": (9.83, 3.4, 2.35),
    "revised question": (9.83, 0.6, 2.35),
    "new passages": (5.62, 0.6, 3.85),
    "new answer": (2.96, 0.6, 2.3),
}
TITLE = "CoV-RAG: the verdict flags a wrong answer, a revised question finds better passages"


def pick_rescued(predictions: Sequence[Prediction]) -> Prediction:
    """Return the example, or the first other question that the second search rescues."""
    revised = [p for p in predictions if p.system == "CoV-RAG" and p.revised]
    rescued = [
        prediction
        for prediction in revised
        if not outcome_of(prediction).normalised and outcome_of(prediction, -1).normalised
    ]
    if not rescued:
        raise ValueError(
            "the second search rescues no question of this run; "
            "set record to a folder of results/ in which CoV-RAG rescues one"
        )
    return next((p for p in rescued if p.question.id == EXAMPLE), rescued[0])


def build(predictions: Sequence[Prediction]) -> Table:
    """Build the picture and its text."""
    prediction = pick_rescued(predictions)
    steps = describe(prediction)
    rows = [(step, " ".join(text.split())) for step, text in steps.items()]
    words = pd.DataFrame(rows, columns=["step", "text"])
    heading = f"One question through CoV-RAG, step by step ({prediction.question.id})"
    return Table("method", pd.DataFrame(), {heading: words}, plots={"png": partial(draw, steps)})


def describe(prediction: Prediction) -> dict[str, str]:
    """Return the text of each box, and one quoted sentence of a passage per round."""
    question, verdict = prediction.question, prediction.rounds[0].verdict
    first = _round(prediction.rounds[0], question, verdict.revised_question)
    last = _round(prediction.rounds[-1], question)
    texts = {
        "question": fill(question.question, 19),
        "passages": first[0],
        "answer": f"{first[1]}\n\n✗ wrong",
        "verdict": (
            f"judgment: {verdict.judgment}\n"
            f"references: {verdict.reference_correctness:.2f}\n"
            f"correctness: {verdict.correctness:.2f}\n…"
        ),
        "revised question": fill(verdict.revised_question, 18),
        "new passages": last[0],
        "new answer": f"{last[1]}\n\n✓ right",
    }
    return texts | {"quoted": first[2], "quoted again": last[2]}


def _round(step: Round, question: Question, revised: str = "") -> tuple[str, str, str]:
    """Return the passages' titles, the answer, and one quoted sentence of a passage.

    A tick marks a passage that states the answer. The quoted sentence is the one with the most
    words that the revised question adds; otherwise it is the first one of the cited passage.
    """
    titles = []
    for number, passage in enumerate(step.passages, 1):
        title = f"[{number}] {passage.title}" + " ✓" * (passage.id in question.gold_passages)
        titles.append(title if len(title) <= 34 else f"{title[:33]}…")
    cited = int((CITATION.search(step.answer) or [0, 1])[1])
    added = set(revised.split()) - set(question.question.split())
    sentences = [
        (sum(word in sentence for word in added), number == cited, number, sentence.rstrip("."))
        for number, passage in enumerate(step.passages, 1)
        for sentence in passage.text.split(". ")
    ]
    *_, number, sentence = max(sentences, key=lambda candidate: candidate[:2])
    quote = shorten(f"{sentence}.", 76, placeholder=" …")
    return "\n".join(titles), fill(step.answer.replace("[", " ["), 19), f"[{number}]: “{quote}”"


def draw(steps: Mapping[str, str], path: Path) -> "pictures.Figure":
    """Draw the boxes in two rows with arrows between them, readable at a width of 700 pixels."""
    plt, _ = pictures.style(1, "notebook")
    figure = plt.figure(figsize=(WIDTH, HEIGHT))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT), frame_on=False)
    axes.set(xticks=[], yticks=[])
    names = ("CoV-RAG", "Start-Revise trained", "RAG trained")
    right, wrong, plain = (palette()[name] for name in names)
    colours = (plain, plain, wrong, wrong, right, right, right)
    for (step, (x, y, width)), colour in zip(BOXES.items(), colours):
        top = y + BOX_HEIGHT
        axes.add_patch(plt.Rectangle((x, y), width, BOX_HEIGHT, fc="white", ec=colour, lw=2.2))
        axes.text(x + 0.12, top - 0.1, step, va="top", size=14.5, weight="bold", color=colour)
        axes.text(x + 0.12, top - 0.42, steps[step], va="top", size=14, linespacing=1.2)
    arrow = dict(arrowstyle="-|>", lw=2.2, color=pictures.DARK, shrinkA=3, shrinkB=3)
    arrow |= dict(mutation_scale=20)
    for start, end in ((2.6, 2.96), (6.81, 7.17), (9.47, 9.83)):
        axes.annotate("", (end, 4.3), (start, 4.3), arrowprops=arrow)
    for start, end in ((9.83, 9.47), (5.62, 5.26)):
        axes.annotate("", (end, 1.5), (start, 1.5), arrowprops=arrow)
    axes.annotate("", (11, 2.45), (11, 3.4), arrowprops=arrow)
    bent = dict(ls="--", color=plain, connectionstyle="angle,angleA=90,angleB=0,rad=0")
    axes.annotate("", (2.96, 1.5), (1.4, 3.4), arrowprops=arrow | bent)
    axes.text(0.2, 0.78, "the original question\nis answered again", size=14, color=plain)
    for name, y in (("quoted", 3.28), ("quoted again", 0.48)):
        axes.text(2.96, y, steps[name], va="top", size=13.5, style="italic")
    axes.text(0.2, HEIGHT - 0.3, TITLE, va="center", size=17, weight="bold")
    x, y, width = BOXES["new passages"]
    place = (x + width - 0.12, y + BOX_HEIGHT - 0.12)
    axes.text(*place, "✓ states the answer", va="top", ha="right", size=13, color=right)
    return pictures.save_picture(figure, path)
