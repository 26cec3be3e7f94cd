"""The picture of the method: Algorithm 1 on one recorded question that the second search rescues."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill, shorten

import pandas as pd

from covrag_lite.records import CITATION, Prediction, Question, Round
from covrag_lite.runs.outcomes import outcome_of
from covrag_lite.systems import palette
from covrag_lite.tables import Table, pictures

EXAMPLE = "world1-complex-test-0011"  # in two hops: only a passage names the one to search for
WIDTH, HEIGHT, TALL = 12.38, 5.9, 1.85  # of the picture, and a box's height, in inches
BOXES = {  # left and lower edge, width: round 1 runs to the right, round 2 back to the left below it
    "question": (0.2, 3.4, 2.4),
    "passages": (2.96, 3.4, 3.85),
    "answer": (7.17, 3.4, 2.3),
    "verdict": (9.83, 3.4, 2.35),
    "revised question": (9.83, 0.6, 2.35),
    "new passages": (5.62, 0.6, 3.85),
    "new answer": (2.96, 0.6, 2.3),
}


def pick_rescued(predictions: Sequence[Prediction]) -> Prediction:
    """The example, or where a run does not rescue it the first question that its second search does."""
    revised = [p for p in predictions if p.system == "CoV-RAG" and p.revised]
    own = [p for p in revised if not outcome_of(p).normalised and outcome_of(p, -1).normalised]
    if not own:
        raise ValueError("this run rescues no question; set record to a folder of results/ whose CoV-RAG does")
    return next((p for p in own if p.question.id == EXAMPLE), own[0])


def build(predictions: Sequence[Prediction]) -> Table:
    """The picture, and in words what stands in it."""
    prediction = pick_rescued(predictions)
    steps = describe(prediction)
    words = pd.DataFrame([(step, " ".join(text.split())) for step, text in steps.items()], columns=["step", "text"])
    heading = f"One question on its way through CoV-RAG ({prediction.question.id})"
    return Table("method", pd.DataFrame(), {heading: words}, plots={"png": partial(draw, steps)})


def describe(prediction: Prediction) -> dict[str, str]:
    """What stands in each box, and a sentence of a passage: what the revision was read from, what the answer cites."""
    asked, verdict = prediction.question, prediction.rounds[0].verdict
    first, last = _round(prediction.rounds[0], asked, verdict.revised_question), _round(prediction.rounds[-1], asked)
    scores = f"references: {verdict.reference_correctness:.2f}\ncorrectness: {verdict.correctness:.2f}\n…"
    verified = f"judgment: {verdict.judgment}\n{scores}", fill(verdict.revised_question, 18)
    texts = (fill(asked.question, 19), first[0], f"{first[1]}\n\n✗ wrong", *verified, last[0], f"{last[1]}\n\n✓ right")
    return dict(zip(BOXES, texts)) | {"quoted": first[2], "quoted anew": last[2]}


def _round(one: Round, asked: Question, revised: str = "") -> tuple[str, str, str]:
    """The passages' titles, ticked where one states the answer; the answer; and a sentence of a passage.

    It is the one with the most words that a revised question adds, else the first of the passage that is cited.
    """
    titles = [f"[{i}] {p.title}" + " ✓" * (p.id in asked.gold_passages) for i, p in enumerate(one.passages, 1)]
    titles = [title if len(title) <= 34 else f"{title[:33]}…" for title in titles]
    cited, added = CITATION.search(one.answer) or [0, 1], set(revised.split()) - set(asked.question.split())
    sentences = [(i, said.rstrip(".")) for i, p in enumerate(one.passages, 1) for said in p.text.split(". ")]
    mark, said = max(sentences, key=lambda pair: (sum(word in pair[1] for word in added), pair[0] == int(cited[1])))
    sentence = shorten(f"{said}.", 76, placeholder=" …")
    return "\n".join(titles), fill(one.answer.replace("[", " ["), 19), f"[{mark}]: “{sentence}”"


def draw(steps: Mapping[str, str], path: Path) -> "pictures.Figure":
    """The boxes in two rows with arrows between them, legible at 700 pixels."""
    plt, _ = pictures.style(1, "notebook")
    figure = plt.figure(figsize=(WIDTH, HEIGHT))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT), frame_on=False, xticks=[], yticks=[])
    right, wrong, plain = (palette()[name] for name in ("CoV-RAG", "Start-Revise trained", "RAG trained"))
    for (step, (x, y, width)), colour in zip(BOXES.items(), (plain, plain, wrong, wrong, right, right, right)):
        axes.add_patch(plt.Rectangle((x, y), width, TALL, fc="white", ec=colour, lw=2.2))
        axes.text(x + 0.12, y + TALL - 0.1, step, va="top", size=14.5, weight="bold", color=colour)
        axes.text(x + 0.12, y + TALL - 0.42, steps[step], va="top", size=14, linespacing=1.2)
    arrow = dict(arrowstyle="-|>", lw=2.2, color=pictures.DARK, shrinkA=3, shrinkB=3, mutation_scale=20)
    for start, end, y in ((2.6, 2.96, 4.3), (6.81, 7.17, 4.3), (9.47, 9.83, 4.3), (9.83, 9.47, 1.5), (5.62, 5.26, 1.5)):
        axes.annotate("", (end, y), (start, y), arrowprops=arrow)
    axes.annotate("", (11, 2.45), (11, 3.4), arrowprops=arrow)
    bent = dict(ls="--", color=plain, connectionstyle="angle,angleA=90,angleB=0,rad=0")
    axes.annotate("", (2.96, 1.5), (1.4, 3.4), arrowprops=arrow | bent)
    axes.text(0.2, 0.9, "the question as\nit was asked", size=14, color=plain, linespacing=1.2)
    for name, y in (("quoted", 3.28), ("quoted anew", 0.48)):
        axes.text(2.96, y, steps[name], va="top", size=13.5, style="italic")
    title = "CoV-RAG: the verdict doubts an answer, a revised question finds better passages"
    axes.text(0.2, HEIGHT - 0.3, title, va="center", size=17, weight="bold")
    return pictures.save_picture(figure, path)
