"""An annotator of D2′ whose revised questions know something: `-p annotator informed`.

The oracle's revised questions end in guesses of the untuned model (oracle.py). Here this model sees
a gold answer and a passage with it, and writes a search query for the passage. Every gold answer
is cut out of the query. The revised question is the question followed by this query, and is used
if its search finds a supporting passage. Otherwise the question keeps its revised question with a
guess, if it has one. Verdicts follow from the same rules as with the oracle.

The passage is seen only while the training data are made. At test time, the verifier has to write
such queries from what it has learnt.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from covrag_lite import metrics
from covrag_lite.oracle import Example, annotate_by_rules, first_line, supporting, tidy
from covrag_lite.records import Passage, Question, Search

N_ANSWERS = 3  # gold answers that are searched for, the first ones
QUERY_TOKENS = 40  # maximum length of a query

PROMPT = """Passage: {title}. {text}
Question: {question}
Answer: {answer}
Write one short search query that finds this passage. Use names and facts from the passage, but do \
not use the answer.
Query:"""

Author = Callable[[Sequence[str]], list[str]]  # the untuned model: prompts -> texts


def annotate_informed(
    examples: Sequence[Example], revisions: Mapping[str, str], search: Search, author: Author
) -> list[Example]:
    """Add the oracle's verdicts, with informed revised questions where there are any.

    `revisions` maps a question to its revised question with a guess.
    """
    lacking = {}
    for example in annotate_by_rules(examples, {}):
        question = example.question
        has_clear_wording = revisions.get(question.question) == tidy(question.clean_question)
        if example.lacks_revision and not has_clear_wording:
            lacking[question.question] = question
    informed = write_revisions(list(lacking.values()), search, author)
    n_new = len(informed.keys() - revisions.keys())
    print(f"{len(informed)} of {len(lacking)} questions have an informed revised question")
    print(f"{n_new} of these had none with a guess")
    return annotate_by_rules(examples, {**revisions, **informed})


def write_revisions(
    questions: Sequence[Question], search: Search, author: Author
) -> dict[str, str]:
    """Return the informed revised questions that find a supporting passage, by question text."""
    sources = find_sources(questions, search)
    selected = [question for question in questions if question.question in sources]
    prompts = []
    for question in selected:
        passage, answer = sources[question.question]
        text = question.clean_question or question.question
        fields = {"title": passage.title, "text": passage.text, "question": text, "answer": answer}
        prompts.append(PROMPT.format(**fields))

    candidates = []
    for question, text in zip(selected, author(prompts)):
        query = cut_answers(first_line(text), question.answers)
        revised = tidy(f"{question.question.rstrip('? ')}? {query}")
        # Together, the question and the query may contain an answer that neither contains.
        if query and not metrics.score(revised, question.answers, "whole"):
            candidates.append((question, revised))

    revisions = {}
    results = search([revised for _, revised in candidates])
    for (question, revised), passages in zip(candidates, results):
        if supporting(question, passages):
            revisions[question.question] = revised
    return revisions


def find_sources(questions: Sequence[Question], search: Search) -> dict[str, tuple[Passage, str]]:
    """Return, by question text, a supporting passage and the gold answer with which it was found.

    The search query is the question followed by a gold answer.
    """
    attempts = []
    for question in questions:
        attempts += [(question, answer) for answer in question.answers[:N_ANSWERS]]
    queries = [f"{question.clean_question or question.question} {a}" for question, a in attempts]
    sources: dict[str, tuple[Passage, str]] = {}
    for (question, answer), passages in zip(attempts, search(queries)):
        numbers = supporting(question, passages)
        if numbers:
            sources.setdefault(question.question, (passages[numbers[0] - 1], answer))
    return sources


def cut_answers(query: str, answers: Sequence[str]) -> str:
    """Return a search query without any gold answer, compared as accuracy compares them.

    Example:
        >>> cut_answers('the 1815 novel "Emma" by Jane Austen.', ["Jane Austen"])
        'the 1815 novel "Emma" by .'
    """
    for answer in sorted(answers, key=len, reverse=True):
        if metrics.normalise(answer):
            query = re.sub(rf"(?<!\w){re.escape(answer)}(?!\w)", " ", query, flags=re.IGNORECASE)
    # An answer may still be there with other punctuation or articles: drop its words.
    for answer in answers:
        while metrics.score(query, [answer], "whole"):
            answer_words = set(metrics.normalise(answer).split())
            kept = []
            for word in query.split():
                if not answer_words.intersection(metrics.normalise(word).split()):
                    kept.append(word)
            if len(kept) == len(query.split()):
                return ""
            query = " ".join(kept)
    return " ".join(query.split())
