"""Citation quality and claim recall of answers, as in ALCE (Gao et al. 2023).

The citations of an answer are the marks that it contains, such as "[2]". The statement of a short
answer is the question followed by the answer. Entailment is scored for each passage separately, so
a citation counts as correct if its passage entails the statement.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from covrag_lite import metrics
from covrag_lite.method import Passages
from covrag_lite.plugins.related.heads import Entail
from covrag_lite.records import CITATION, Passage, Question

# The aspects of citation quality, each a share from 0 to 1.
SUPPORT = "support"  # statements that a passage entails
CITATION_RECALL = "citation recall"  # statements that a cited passage entails
CITATION_PRECISION = "citation precision"  # citations whose passage entails their statement
ASPECTS = (SUPPORT, CITATION_RECALL, CITATION_PRECISION)
CLAIM_RECALL = "claim recall"  # gold claims that the answer makes

ENTAILED = 0.5  # a passage entails a statement if it scores at least this
LONG_ANSWER = 12  # a gold answer of more words than this consists of several claims
STATEMENT_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|(?<=\])\s+(?=[A-Z])")


class Statement(NamedTuple):
    """One sentence of an answer without its citations, and the indices of the cited passages."""

    text: str
    cited: list[int]


def read_statements(answer: str, n_passages: int) -> list[Statement]:
    """Split an answer into statements; a mark that points nowhere cites nothing."""
    statements = []
    for sentence in STATEMENT_END.split(answer.strip()):
        text = remove_citations(sentence)
        numbers = dict.fromkeys(int(number) for number in CITATION.findall(sentence))
        cited = [number - 1 for number in numbers if 0 < number <= n_passages]
        if any(letter.isalnum() for letter in text):
            statements.append(Statement(text, cited))
    return statements


def remove_citations(text: str, replacement: str = "") -> str:
    """Return a text on one line without its citation marks."""
    return " ".join(CITATION.sub(replacement, text).split())


def assess(
    x: Sequence[str], k: Sequence[Passages], y: Sequence[str], entail: Entail
) -> list[dict[str, float | None]]:
    """Return each answer's share per aspect; the precision is None if nothing is cited."""
    answers = [read_statements(answer, len(passages)) for answer, passages in zip(y, k)]
    owners = []  # for each statement, the index of its answer
    texts = []
    for i, statements in enumerate(answers):
        for statement in statements:
            owners.append(i)
            texts.append(statement.text)
    scores = iter(entail([x[i] for i in owners], [k[i] for i in owners], texts))
    qualities = []
    for statements in answers:
        entailing = [[score >= ENTAILED for score in next(scores)] for _ in statements]
        qualities.append(share_of_aspects(statements, entailing))
    return qualities


def share_of_aspects(
    statements: Sequence[Statement], entailing: Sequence[Sequence[bool]]
) -> dict[str, float | None]:
    """Return an answer's share per aspect, from which passages entail each of its statements."""
    supported = []
    recalled = []
    precise: list[bool] = []
    for statement, entails in zip(statements, entailing):
        citations = [entails[place] for place in statement.cited]
        supported.append(any(entails))
        recalled.append(any(citations))
        precise += citations
    return {
        SUPPORT: share(supported, if_none=0.0),
        CITATION_RECALL: share(recalled, if_none=0.0),
        CITATION_PRECISION: share(precise, if_none=None),
    }


def share(values: Sequence[bool], if_none: float | None) -> float | None:
    """Return the share of true values."""
    return sum(values) / len(values) if values else if_none


def claim_recall(
    questions: Sequence[Question], y: Sequence[str], entail: Entail
) -> list[float | None]:
    """Return which share of the gold claims each answer makes. It needs the gold answer.

    A short gold answer is one claim, which an answer makes if it contains the gold answer in whole
    words (None without a usable gold answer). Of a long one, each sentence is a claim, and the
    answer must entail it.
    """
    claims = [read_claims(question.answers[0]) for question in questions]
    x = []
    evidence = []  # for each claim, the answer that may entail it
    texts = []
    for question, answer, sentences in zip(questions, y, claims):
        for sentence in sentences:
            x.append(question.question)
            evidence.append([Passage("", "", answer)])
            texts.append(sentence)
    scores = iter(entail(x, evidence, texts))
    recalls: list[float | None] = []
    for question, answer, sentences in zip(questions, y, claims):
        if sentences:
            entailed = [next(scores)[0] >= ENTAILED for _ in sentences]
            recalls.append(share(entailed, if_none=None))
        else:
            is_right = metrics.score(answer, question.answers, "whole")
            recalls.append(None if is_right is None else float(is_right))
    return recalls


def read_claims(gold_answer: str) -> list[str]:
    """Split a long gold answer into its claims, one per sentence; a short one has none."""
    text = remove_citations(gold_answer, " ")
    return STATEMENT_END.split(text) if len(text.split()) > LONG_ANSWER else []
