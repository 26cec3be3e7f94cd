"""What CoV-RAG's neighbours are handed beside `Tools`: scores of passages and claims, and a model's further tasks.

Every function takes and returns a whole batch. A test scripts them; `aiding` binds them to a model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from covrag_lite.records import Passage, Search

Score = Callable[[Sequence[str], Sequence[Sequence[Passage]]], list[list[float]]]
Entail = Callable[[Sequence[str], Sequence[Sequence[Passage]], Sequence[str]], list[float]]
Plan = Callable[[Sequence[str], int], list[list[list[str]]]]
FollowUp = Callable[[Sequence[str], Sequence[Sequence[tuple[str, str]]]], list[str]]
Relevant = Callable[[Sequence[str], Sequence[str]], list[bool]]
Comment = Callable[
    [Sequence[str], Sequence[Sequence[Passage]], Sequence[str], Sequence["dict[str, float] | str"]], list[str]
]


@dataclass(frozen=True)
class Aids:
    """The further functions; a system whose entry does not name one in `needs` may find None there."""

    score: Score | None = None  # questions, their passages -> each passage's relevance, from 0 to 1
    thresholds: tuple[float, float] = (
        0.5,
        0.5,
    )  # of that: all below the first, Incorrect; one above the second, Correct
    wider: Search | None = None  # queries -> passages from elsewhere, or from deeper down
    entail: Entail | None = None  # questions, their passages, statements -> does the evidence entail them, 0 to 1
    name_terms: Callable[[Sequence[str]], list[str]] | None = None  # questions -> key terms to search for
    plan: Plan | None = None  # questions, n -> n sessions of sub-questions each
    follow_up: FollowUp | None = (
        None  # questions, (sub-question, answer) so far -> the next sub-question, "" at the end
    )
    is_relevant: Relevant | None = None  # questions, sub-questions -> does one help to answer the other?
    feedback: Comment | None = None  # questions, passages, answers, scores by name -> feedback in words
    refine: Comment | None = None  # questions, passages, answers, feedback -> better answers
    sessions: int = 4  # sampled plans; FaVe's paper takes 8
    sub_questions: int = 3  # the most of a plan or a chain
    refinements: int = 2  # A²R's K
