"""Citation quality as in ALCE (Gao et al. 2023), by whatever tells whether passages entail a statement.

An answer cites by the marks that it writes itself, "[2]"; one without marks cites nothing. As ALCE does with short
answers, a statement is the question with what the answer says of it. A²R assesses by this, `report.related` counts by
it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from covrag_lite.records import CITATION, Passage
from covrag_lite.related.aids import Entail

ENTAILED = 0.5  # from this on evidence entails a statement
STATEMENT_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|(?<=\])\s+(?=[A-Z])")


@dataclass(frozen=True)
class Quality:
    """How well an answer's statements stand on its passages; shares from 0 to 1."""

    support: float  # statements that all passages together entail
    recall: float  # statements that their own citations entail
    precision: float | None  # citations that are needed, or entail their statement alone; None where none is written
    citations: int

    def scores(self) -> dict[str, float]:
        """The three aspects by name; who cites nothing cites nothing rightly."""
        return {"support": self.support, "citation recall": self.recall, "citation precision": self.precision or 0.0}


def assess(x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str], entail: Entail) -> list[Quality]:
    """The citation quality of each answer, in one call of `entail`."""
    asked: list[tuple[str, tuple[Passage, ...], str]] = []  # what must be known: question, evidence, statement
    for question, passages, answer in zip(x, k, y):
        for said, cited in read_statements(answer, passages):
            asked += [(question, evidence, said) for evidence in (tuple(passages), *evidences(cited)) if evidence]
    asked = list(dict.fromkeys(asked))
    values = entail([one[0] for one in asked], [one[1] for one in asked], [one[2] for one in asked]) if asked else []
    known = {one: value >= ENTAILED for one, value in zip(asked, values)}
    return [_assess(question, passages, answer, known) for question, passages, answer in zip(x, k, y)]


def _assess(question: str, passages: Sequence[Passage], answer: str, known: dict) -> Quality:
    """One answer's quality, from what is known to entail what."""

    def holds(evidence: Sequence[Passage], said: str) -> bool:
        return known.get((question, tuple(evidence), said), False)  # nothing entails nothing

    statements = read_statements(answer, passages)
    if not statements:
        return Quality(0.0, 0.0, None, 0)
    supported = [holds(passages, said) for said, _ in statements]
    recalled = [holds(cited, said) for said, cited in statements]
    precise = []
    for (said, cited), whole in zip(statements, recalled):
        for one in cited:
            rest = tuple(other for other in cited if other != one)
            precise.append(whole and (holds((one,), said) or not holds(rest, said)))
    precision = sum(precise) / len(precise) if precise else None
    n = len(statements)
    return Quality(sum(supported) / n, sum(recalled) / n, precision, len(precise))


def evidences(cited: tuple[Passage, ...]) -> list[tuple[Passage, ...]]:
    """All that a statement cites, each citation alone, and all but that one."""
    return [cited, *((one,) for one in cited), *(tuple(p for p in cited if p != one) for one in cited)]


def read_statements(answer: str, passages: Sequence[Passage]) -> list[tuple[str, tuple[Passage, ...]]]:
    """The answer's sentences without their marks, each with the passages that it cites."""
    made = []
    for sentence in STATEMENT_END.split(answer.strip()):
        said = " ".join(CITATION.sub("", sentence).split())
        marks = dict.fromkeys(int(mark) for mark in CITATION.findall(sentence))
        cited = tuple(passages[mark - 1] for mark in marks if 0 < mark <= len(passages))
        if any(letter.isalnum() for letter in said):
            made.append((said, cited))
    return made
