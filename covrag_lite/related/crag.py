"""CRAG, Corrective Retrieval Augmented Generation (Yan et al. 2024): check passages before reading.

Differences from that paper:

- The evaluator is a classifier on a small sentence encoder (`heads`) and not a T5. Its thresholds
  are fitted on validation questions.
- The base model writes the keywords, not ChatGPT.
- The "web" is a second search; by default it returns deeper results from the same corpus.
- If no strip passes the threshold, the best one is read.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from covrag_lite.method import Tools
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.related.heads import SENTENCE_END, Score

CORRECT, INCORRECT, AMBIGUOUS = "Correct", "Incorrect", "Ambiguous"
SENTENCES = 2  # sentences per strip
STRIPS = 5  # maximum number of strips that are kept


def crag(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Score the passages; refine them, search elsewhere, or both; answer from the result."""
    related = tools.related
    lower, upper = related.thresholds
    x = [question.question for question in questions]  # Input: x and D = {d1, …, dk}
    d = tools.search(x)
    scores = related.score(x, d)  # 1: E evaluates the relevance of each pair (x, di)
    actions = [choose_action(one, lower, upper) for one in scores]  # 2: the final judgment

    inside = [i for i, action in enumerate(actions) if action != INCORRECT]  # 3 to 5: Knowledge_Refine(x, D)
    internal = dict(zip(inside, refine([x[i] for i in inside], [d[i] for i in inside], related.score, lower)))
    outside = [i for i, action in enumerate(actions) if action != CORRECT]  # 6 to 11: Web_Search(W rewrites x)
    terms = dict(zip(outside, related.author.write_alone("terms", [x[i] for i in outside])))
    queries = {i: terms[i] or x[i] for i in outside}  # without keywords, search with the question
    found = related.wider([queries[i] for i in outside])
    external = dict(zip(outside, refine([x[i] for i in outside], found, related.score, lower)))

    k = []  # internal knowledge, then external; a passage that is in both is used once, as internal
    for i in range(len(x)):
        known = {passage.id for passage in internal.get(i, [])}
        k.append([*internal.get(i, []), *(passage for passage in external.get(i, []) if passage.id not in known)])
    y = tools.answer(x, k)  # 12: G predicts y given x and k
    # The reader saw strips; the round shows whole passages.
    sources = {p.id: p for many in (*d, *found) for p in many}
    made = []
    for i, (question, likelihood) in enumerate(zip(questions, tools.likelihoods(x, k))):
        note = f"{actions[i]}: the best passage scores {max(scores[i]):.2f}; {len(k[i])} passages keep a strip"
        passages = tuple(sources[p.id] for p in k[i])
        one = Round(queries.get(i, x[i]), passages, y[i], likelihood=likelihood, note=note)
        made.append(Prediction(question, tools.name, (one,)))
    return made


def choose_action(scores: Sequence[float], lower: float, upper: float) -> str:
    """Correct if a score reaches `upper`, Incorrect if all are below `lower`, else Ambiguous."""
    if max(scores) >= upper:
        return CORRECT
    return INCORRECT if max(scores) < lower else AMBIGUOUS


def refine(x: Sequence[str], d: Sequence[Sequence[Passage]], score: Score, threshold: float) -> list[list[Passage]]:
    """Refine passages: split them into strips, keep the relevant ones, join them in order."""
    strips = [[strip for passage in passages for strip in split(passage)] for passages in d]
    kept = []
    for own, values in zip(strips, score(x, strips)):
        ranked = sorted(range(len(own)), key=lambda place: -values[place])[:STRIPS]
        passing = [place for place in ranked if values[place] >= threshold] or ranked[:1]
        groups = [list(same) for _, same in groupby((own[place] for place in sorted(passing)), key=lambda one: one.id)]
        kept.append([replace(same[0], text=" ".join(strip.text for strip in same)) for same in groups])
    return kept


def split(passage: Passage) -> list[Passage]:
    """Split a passage into strips of two sentences."""
    sentences = SENTENCE_END.split(passage.text)
    parts = [" ".join(sentences[start : start + SENTENCES]) for start in range(0, len(sentences), SENTENCES)]
    return [replace(passage, text=part) for part in parts]
