"""Revised questions that the retriever rewards: many candidates for each question that failed, searched, the best kept.

The paper's annotator writes the revised question. Ours may be anything a search engine takes: the question with a
guessed sentence behind it, the guess alone, key terms, the question with a title that was found. A candidate is kept
only if the retriever finds with it what it missed before, and CoV-RAG learns to write it.
"""

import re
from collections.abc import Mapping, Sequence

from covrag_lite import metrics
from covrag_lite.model.author import Author
from covrag_lite.records import Passage, Question, Search
from covrag_lite.training.oracle import supporting

LONGEST = 40  # words of a revised question
TITLES = 5  # passages whose titles are tried


def propose(question: Question, passages: Sequence[Passage], guess: str, terms: str) -> list[str]:
    """Candidates in the order of preference where two find equally much."""
    asked = question.question.rstrip("? ")
    titles = [passage.title for passage in passages[:TITLES] if passage.title]
    made = [clean_wording(question, passages), f"{asked}? {guess}", guess, f"{asked} {terms}", terms]
    made += [f"{asked} {title}" for title in titles]
    return list(dict.fromkeys(tidy(one) for one in made if one and tidy(one) != tidy(asked)))


def tidy(text: str) -> str:
    """One line without quotation marks and backslashes, cut to a length that a model may write."""
    return " ".join(re.sub(r'["\\]', " ", text).split()[:LONGEST])


def clean_wording(question: Question, passages: Sequence[Passage]) -> str:
    """The well-put question where it is known and could be; of a two-hop question once its first step was found."""
    if question.kind == "two-hop":
        seen = set(metrics.normalise(" ".join([question.question, *(p.text for p in passages)])).split())
        names = re.findall(r"[A-Z]\w+", question.clean_question)[1:]
        if not all(metrics.normalise(name) in seen for name in names):
            return ""
    return question.clean_question


def reward(question: Question, found: Sequence[Passage]) -> float:
    """One over the place of the first passage that states the answer; 0 where none does."""
    places = supporting(question, found)
    return 1 / places[0] if places else 0.0


def find_revisions(
    failed: Mapping[str, tuple[Question, Sequence[Passage]]], author: Author, search: Search
) -> dict[str, str]:
    """For each question that missed, by the text it was asked in, the candidate that finds best, if one does."""
    asked = list(failed)
    guesses, terms = author.guess(asked), author.name_terms(asked)
    pairs = []  # the text it was asked in, a candidate
    for text, guess, some in zip(asked, guesses, terms):
        question, passages = failed[text]
        pairs += [(text, candidate) for candidate in propose(question, passages, guess, some)]
    found = search([candidate for _, candidate in pairs])
    best: dict[str, tuple[float, str]] = {}
    for (text, candidate), passages in zip(pairs, found):
        value = reward(failed[text][0], passages)
        if value > best.get(text, (0.0, ""))[0]:
            best[text] = (value, candidate)
    return {text: candidate for text, (_, candidate) in best.items()}
