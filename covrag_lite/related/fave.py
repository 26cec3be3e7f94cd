"""FaVe, factored and verified search (Kim et al. 2025): union of queries, and the chain of queries it is set against.

What differs from the paper: our questions want a few words, so the sub-answers are read once more to conclude, as the
paper does for such questions; candidates are what a sub-question itself finds, reordered by CRAG's evaluator (the paper
reorders the question's top 100 by a cross-encoder), whose score is the answerability too; the session generator is
prompted, not tuned by preferences, as in the paper's StrategyQA rows; fewer sessions of fewer sub-questions.
"""

from collections.abc import Sequence

from covrag_lite.method import Tools
from covrag_lite.records import CITATION, Passage, Prediction, Question, Round
from covrag_lite.related.prompts import SUB_QUESTIONS

SESSIONS = 4  # sampled plans a question; the paper has 8
M = 2  # documents a sub-question is answered from


def fave(questions: Sequence[Question], tools: Tools, n_sessions: int = SESSIONS) -> list[Prediction]:
    """Plan several sessions of sub-questions, keep the best, answer its sub-questions apart, conclude."""
    related = tools.related
    q = [question.question for question in questions]
    sessions = related.plan(q, n_sessions)  # 1: sample sessions s = (q1, …, qN)
    flat = [(i, s, sub) for i, many in enumerate(sessions) for s, session in enumerate(many) for sub in session]
    subs = [sub for *_, sub in flat]
    documents, tops = find(subs, tools)  # 2: the top M documents of each sub-question, in parallel
    relevant = related.is_relevant([q[i] for i, *_ in flat], subs)  # 3: relevance to q, answerability by documents
    marks: dict[tuple[int, int], list[tuple[bool, float]]] = {}
    for (i, s, _), fits, top in zip(flat, relevant, tops):
        marks.setdefault((i, s), []).append((fits, top))
    quality = {place: rate(many) for place, many in marks.items()}
    best = [max(range(len(many)), key=lambda s: quality[i, s]) for i, many in enumerate(sessions)]

    chosen = [place for place, (i, s, _) in enumerate(flat) if s == best[i]]  # 4: factored answers of the best
    answers = tools.answer([subs[place] for place in chosen], [documents[place] for place in chosen])
    steps: list[list[Round]] = [[] for _ in q]
    for place, answer in zip(chosen, answers):
        steps[flat[place][0]].append(Round(subs[place], tuple(documents[place]), answer))
    notes = [f"session {best[i] + 1} of {len(sessions[i])}, quality {quality[i, best[i]]:.2f}" for i in range(len(q))]
    return conclude(questions, steps, notes, tools)


def chain_of_queries(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """CoQ: a sub-question, its answer, and from both the next sub-question, until nothing is left to ask."""
    related = tools.related
    q = [question.question for question in questions]
    steps: list[list[Round]] = [[] for _ in q]
    open_ = list(range(len(q)))
    for _ in range(SUB_QUESTIONS):
        so_far = [[(one.query, one.answer) for one in steps[i]] for i in open_]
        subs = related.follow_up([q[i] for i in open_], so_far)  # chain C1: answers lead to the next query
        subs = [sub or ("" if steps[i] else q[i]) for i, sub in zip(open_, subs)]  # at least the question itself
        asked = [(i, sub) for i, sub in zip(open_, subs) if sub and sub not in [one.query for one in steps[i]]]
        open_ = [i for i, _ in asked]
        documents, _ = find([sub for _, sub in asked], tools)
        # Chain C2: earlier answers stand behind the documents when the next one is written.
        shown = [[*found, *as_references(steps[i])] for i, found in zip(open_, documents)]
        answers = tools.answer([sub for _, sub in asked], shown)
        for (i, sub), found, answer in zip(asked, documents, answers):
            steps[i].append(Round(sub, tuple(found), answer))
    return conclude(questions, steps, ["" for _ in q], tools)


def find(subs: Sequence[str], tools: Tools) -> tuple[list[list[Passage]], list[float]]:
    """Each sub-question's top M documents in the order of their scores, and the first one's score."""
    found = tools.search(subs)
    documents, tops = [], []
    for passages, scores in zip(found, tools.related.score(subs, found)):
        order = sorted(range(len(passages)), key=lambda place: -scores[place])[:M]
        documents.append([passages[place] for place in order])
        tops.append(scores[order[0]])
    return documents, tops


def rate(marks: Sequence[tuple[bool, float]], most: int = SUB_QUESTIONS) -> float:
    """A session's quality, equations 2 to 4: r = (r_q + r_d) / 2; δ is the most sub-questions that a session has."""
    r_q = min(sum(fits for fits, _ in marks), most) / most
    r_d = sum(top for _, top in marks) / len(marks)
    return (r_q + r_d) / 2


def as_references(steps: Sequence[Round]) -> list[Passage]:
    """Sub-questions with their answers, to be read like passages."""
    made = []
    for i, one in enumerate(steps, 1):
        said = " ".join(CITATION.sub(" ", one.answer).split())
        made.append(Passage(f"step {i}", one.query, f"{one.query} {said}"))
    return made


def conclude(
    questions: Sequence[Question], steps: Sequence[Sequence[Round]], notes: Sequence[str], tools: Tools
) -> list[Prediction]:
    """The final prediction, from the sub-answers; what it cites of them becomes what they cite."""
    q = [question.question for question in questions]
    answers = tools.answer(q, [as_references(own) for own in steps])
    made = []
    for question, own, answer, note in zip(questions, steps, answers, notes):
        union = tuple(dict.fromkeys(passage for one in own for passage in one.passages))
        query = " | ".join(one.query for one in own)
        last = Round(query, union, _point_to_passages(answer, own, union), note=note)
        made.append(Prediction(question, tools.name, (*own, last)))
    return made


def _point_to_passages(answer: str, steps: Sequence[Round], union: Sequence[Passage]) -> str:
    """The answer with every mark of a sub-answer replaced by the marks of the passages which that one cites."""

    def marks_of(place: int) -> str:
        if not 0 < place <= len(steps):
            return ""
        own = steps[place - 1]
        cited = [int(mark) for mark in CITATION.findall(own.answer)]
        passages = [own.passages[mark - 1] for mark in cited if 0 < mark <= len(own.passages)]
        return "".join(f"[{union.index(passage) + 1}]" for passage in dict.fromkeys(passages))

    return CITATION.sub(lambda mark: marks_of(int(mark[1])), answer)
