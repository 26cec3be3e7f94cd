"""CRAG, Corrective Retrieval Augmented Generation (Yan et al. 2024): check passages before reading.

Implemented: Algorithm 1 (CRAG inference) with its three actions, knowledge refinement
(decompose, filter, recompose) and the second search. The numbers in `crag` are its lines.

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

from covrag_lite.method import Passages
from covrag_lite.plugins.related.features import SENTENCE_END
from covrag_lite.plugins.related.heads import Score
from covrag_lite.plugins.related.tools import RelatedTools
from covrag_lite.records import Passage, Prediction, Question, Round

CORRECT = "Correct"
INCORRECT = "Incorrect"
AMBIGUOUS = "Ambiguous"
STRIP_SENTENCES = 2  # sentences per strip
MAX_STRIPS = 5  # maximum number of strips that are kept


def crag(questions: Sequence[Question], tools: RelatedTools) -> list[Prediction]:
    """Score the passages; refine them, search elsewhere, or both; answer from the result."""
    lower, upper = tools.thresholds
    x = [question.question for question in questions]  # Input: x and D = {d1, …, dk}
    d = tools.search(x)
    scores = tools.score(x, d)  # 1: E evaluates the relevance of each pair (x, di)
    actions = [choose_action(values, lower, upper) for values in scores]  # 2: the final judgment

    # 3 to 5: internal knowledge = Knowledge_Refine(x, D)
    inside = [i for i, action in enumerate(actions) if action != INCORRECT]
    refined = refine([x[i] for i in inside], [d[i] for i in inside], tools.score, lower)
    internal = dict(zip(inside, refined))

    # 6 to 11: external knowledge = Web_Search(W rewrites x)
    outside = [i for i, action in enumerate(actions) if action != CORRECT]
    keywords = tools.author.write_from_question("terms", [x[i] for i in outside])
    # Without keywords, search with the question.
    queries = {i: terms or x[i] for i, terms in zip(outside, keywords)}
    deeper = tools.wider([queries[i] for i in outside])
    refined = refine([x[i] for i in outside], deeper, tools.score, lower)
    external = dict(zip(outside, refined))

    k = [join_knowledge(internal.get(i, []), external.get(i, [])) for i in range(len(x))]
    y = tools.answer(x, k)  # 12: G predicts y given x and k
    likelihoods = tools.likelihoods(x, k)
    whole_passages: dict[str, Passage] = {}
    for passages in (*d, *deeper):
        whole_passages |= {passage.id: passage for passage in passages}
    predictions = []
    for i, question in enumerate(questions):
        note = (
            f"{actions[i]}: the best passage scores {max(scores[i], default=0.0):.2f}; "
            f"{len(k[i])} passages keep a strip"
        )
        # The reader saw strips; the round shows whole passages.
        shown = tuple(whole_passages[knowledge.id] for knowledge in k[i])
        query = queries.get(i, x[i])
        only = Round(query, shown, y[i], likelihood=likelihoods[i], note=note)
        predictions.append(Prediction(question, tools.name, (only,)))
    return predictions


def choose_action(scores: Sequence[float], lower: float, upper: float) -> str:
    """Correct if a score reaches `upper`, Incorrect if all are below `lower`, else Ambiguous."""
    best = max(scores, default=0.0)  # a web search may find nothing
    if best >= upper:
        return CORRECT
    return INCORRECT if best < lower else AMBIGUOUS


def join_knowledge(internal: Passages, external: Passages) -> list[Passage]:
    """Return internal, then external knowledge; a passage in both is used once, as internal."""
    internal_ids = {passage.id for passage in internal}
    return [*internal, *(passage for passage in external if passage.id not in internal_ids)]


def refine(
    x: Sequence[str], d: Sequence[Passages], score: Score, threshold: float
) -> list[list[Passage]]:
    """Refine passages: split them into strips, keep the relevant ones, join them in order."""
    strips = [split_all(passages) for passages in d]
    scores = score(x, strips)
    return [recompose(*candidates, threshold) for candidates in zip(strips, scores)]


def split_all(passages: Passages) -> list[Passage]:
    """Split passages into strips."""
    strips: list[Passage] = []
    for passage in passages:
        strips += split(passage)
    return strips


def split(passage: Passage) -> list[Passage]:
    """Split a passage into strips of two sentences."""
    sentences = SENTENCE_END.split(passage.text)
    starts = range(0, len(sentences), STRIP_SENTENCES)
    texts = [" ".join(sentences[start : start + STRIP_SENTENCES]) for start in starts]
    return [replace(passage, text=text) for text in texts]


def recompose(strips: Passages, scores: Sequence[float], threshold: float) -> list[Passage]:
    """Keep the best strips that pass the threshold, and join those of one passage in order."""
    ranked = sorted(range(len(strips)), key=lambda place: -scores[place])[:MAX_STRIPS]
    passing = [place for place in ranked if scores[place] >= threshold] or ranked[:1]
    chosen = [strips[place] for place in sorted(passing)]
    passages = []
    for _, same_passage in groupby(chosen, key=lambda strip: strip.id):
        parts = list(same_passage)
        passages.append(replace(parts[0], text=" ".join(strip.text for strip in parts)))
    return passages
