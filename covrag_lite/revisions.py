"""Revised questions that the retriever rewards: many candidates for each question that failed, those kept that find.

The paper's annotator writes the revised question. Ours may be anything a search engine takes: the question with a
guessed sentence behind it, with the answer that was held for wrong, with possible answers, key terms or a title that
was found. A candidate counts only if the retriever finds with it what it missed before, and CoV-RAG learns to write it.
Of several the one in the form that finds most is taken, so that what is to be learnt looks alike.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from covrag_lite import metrics
from covrag_lite.oracle import Example, supporting
from covrag_lite.records import CITATION, Passage, Question, Search
from covrag_lite.runs.outcomes import failure_of
from covrag_lite.task_model import TaskModel

LONGEST = 40  # words of a revised question
TITLES = 3  # passages whose titles are tried
CLEAN = "the question well put"  # a form that goes before all others
BARE = ("a guess alone", "key terms alone")  # forms that drop the question, and with it what it had found

Candidates = dict[str, str]  # a form -> the revised question in that form


def propose(one: Example, guess: str, terms: str, options: str) -> Candidates:
    """Every candidate by its form; what says nothing beyond the question is none."""
    asked = one.question.question.rstrip("? ")
    answer = CITATION.sub("", one.answer).strip()
    guess, terms, options = (text.strip().split("\n")[0] for text in (guess, terms, options))
    behind = {
        "guess and answer": f"{guess} {answer}" if guess and answer else "",
        "guess": guess,
        "answer": answer,
        "guess and options": f"{guess} {options}" if guess and options else "",
        "options": options,
        "key terms": terms,
    }
    behind |= {f"title {i}": passage.title for i, passage in enumerate(one.passages[:TITLES], 1)}
    made = {CLEAN: clean_wording(one.question, one.passages)}
    made |= {form: f"{asked}? {text}" if text else "" for form, text in behind.items()}
    made |= dict(zip(BARE, (guess, terms)))
    tidied = {form: tidy(text) for form, text in made.items()}
    return {form: text for form, text in tidied.items() if text and text != tidy(asked)}


def tidy(text: str) -> str:
    """One line without what JSON has to escape, no word more than twice, of a length that a model may write."""
    seen = Counter()
    kept = []
    plain_text = "".join(letter if letter.isprintable() and letter not in '"\\' else " " for letter in text)
    for word in plain_text.split():
        plain = metrics.normalise(word)
        seen[plain] += 1
        if seen[plain] <= 2 or not plain:
            kept.append(word)
    return " ".join(kept[:LONGEST])


def clean_wording(question: Question, passages: Sequence[Passage]) -> str:
    """The well-put question where it is known and could be: names, years and records it adds must have been read.

    A two-hop question's first step, or a newer account or a better source that a passage points at, may not be found.
    """
    if failure_of(question.kind) in ("two-hop", "stale", "contradiction"):
        seen = set(metrics.normalise(" ".join([question.question, *(p.text for p in passages)])).split())
        names = re.findall(r"[A-Z][\w'’-]*|\d+", question.clean_question)[1:]
        if not all(metrics.normalise(name) in seen for name in names):
            return ""
    return question.clean_question


def find_revisions(failed: Mapping[str, Example], author: TaskModel, search: Search) -> dict[str, Candidates]:
    """For each question that missed, by the text it was asked in, the candidates that find what states the answer."""
    asked = list(failed)
    texts = (author.guess(asked), author.name_terms(asked), author.name_options(asked))
    tried = []  # the text it was asked in, a form, the candidate
    for text, *said in zip(asked, *texts):
        tried += [(text, form, candidate) for form, candidate in propose(failed[text], *said).items()]
    kept: dict[str, Candidates] = {}
    for (text, form, candidate), passages in zip(tried, search([candidate for *_, candidate in tried])):
        if supporting(failed[text].question, passages):
            kept.setdefault(text, {})[form] = candidate
    return kept


def count_forms(found: Sequence[Mapping[str, Candidates]]) -> Counter[str]:
    """How many questions each form finds what was missing for."""
    return Counter(form for one in found for candidates in one.values() for form in candidates)


def choose(candidates: Candidates, counts: Mapping[str, int]) -> str:
    """The candidate in the form that finds most; before all the well-put question, last what drops the question."""

    def order(form: str) -> tuple[bool, bool, int]:
        return form != CLEAN, form in BARE, -counts[form]

    return candidates[min(candidates, key=order)]
