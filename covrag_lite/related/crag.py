"""CRAG, Corrective Retrieval Augmented Generation (Yan et al. 2024): judge what was retrieved before it is read.

What differs from the paper: the evaluator is a head on a small sentence encoder in place of a T5 (`heads`), and
its thresholds are fitted on validation questions; keywords are written by the backbone as it is, not by ChatGPT;
"the web" is a second search, by default deeper results of the same corpus; where no strip passes, the best one is read
rather than none.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from covrag_lite.method import Tools
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.related.heads import SENTENCE_END, Score

CORRECT, INCORRECT, AMBIGUOUS = "Correct", "Incorrect", "Ambiguous"
SENTENCES = 2  # of a strip
STRIPS = 5  # that are kept, the best ones


def crag(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Score the passages; refine them, or search elsewhere, or both; answer from what is left."""
    related = tools.related
    lower, upper = related.thresholds
    x = [question.question for question in questions]  # Input: x and D = {d1, …, dk}
    d = tools.search(x)
    scores = related.score(x, d)  # 1: E evaluates the relevance of each pair (x, di)
    actions = [choose_action(one, lower, upper) for one in scores]  # 2: the confidence gives a final judgment

    inside = [i for i, action in enumerate(actions) if action != INCORRECT]  # 3 to 5: Knowledge_Refine(x, D)
    internal = dict(zip(inside, refine([x[i] for i in inside], [d[i] for i in inside], related.score, lower)))
    outside = [i for i, action in enumerate(actions) if action != CORRECT]  # 6 to 11: Web_Search(W rewrites x)
    terms = dict(zip(outside, related.author.write_alone("terms", [x[i] for i in outside])))
    queries = {i: terms[i] or x[i] for i in outside}  # no terms: searched as typed
    found = related.wider([queries[i] for i in outside])
    external = dict(zip(outside, refine([x[i] for i in outside], found, related.score, lower)))

    k = []  # internal knowledge, then external; a passage that both have counts once, as it stands first
    for i in range(len(x)):
        known = {passage.id for passage in internal.get(i, [])}
        k.append([*internal.get(i, []), *(passage for passage in external.get(i, []) if passage.id not in known)])
    y = tools.answer(x, k)  # 12: G predicts y given x and k
    sources = {p.id: p for many in (*d, *found) for p in many}  # a round shows whole passages; the reader saw strips
    made = []
    for i, (question, likelihood) in enumerate(zip(questions, tools.likelihoods(x, k))):
        note = f"{actions[i]}: the best passage scores {max(scores[i]):.2f}; {len(k[i])} passages keep a strip"
        passages = tuple(sources[p.id] for p in k[i])
        one = Round(queries.get(i, x[i]), passages, y[i], likelihood=likelihood, note=note)
        made.append(Prediction(question, tools.name, (one,)))
    return made


def choose_action(scores: Sequence[float], lower: float, upper: float) -> str:
    """Correct where one passage scores at least the upper threshold, Incorrect where all are below the lower one."""
    if max(scores) >= upper:
        return CORRECT
    return INCORRECT if max(scores) < lower else AMBIGUOUS


def refine(x: Sequence[str], d: Sequence[Sequence[Passage]], score: Score, threshold: float) -> list[list[Passage]]:
    """Knowledge refinement: decompose passages into strips, keep the relevant ones, recompose them in their order."""
    strips = [[strip for passage in passages for strip in split(passage)] for passages in d]
    kept = []
    for own, values in zip(strips, score(x, strips)):
        ranked = sorted(range(len(own)), key=lambda place: -values[place])[:STRIPS]
        passing = [place for place in ranked if values[place] >= threshold] or ranked[:1]
        groups = [list(same) for _, same in groupby((own[place] for place in sorted(passing)), key=lambda one: one.id)]
        kept.append([replace(same[0], text=" ".join(strip.text for strip in same)) for same in groups])
    return kept


def split(passage: Passage) -> list[Passage]:
    """The passage's strips of two sentences each; one of one or two sentences is a strip itself."""
    sentences = SENTENCE_END.split(passage.text)
    parts = [" ".join(sentences[start : start + SENTENCES]) for start in range(0, len(sentences), SENTENCES)]
    return [replace(passage, text=part) for part in parts]
