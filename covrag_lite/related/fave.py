"""FaVe, factored and verified search (Kim et al. 2025), with prompts in our own words.

Differences from that paper:

- Our answers have a few words, so the model reads the sub-answers again to conclude; the paper does
  this for such questions too.
- A sub-question's own search results are reranked by CRAG's evaluator, whose score is also the
  answerability. The paper reranks the question's top 100 with a cross-encoder.
- The session generator is prompted, as in the paper's StrategyQA rows, not tuned on preferences.
- There are fewer sessions with fewer sub-questions.

A plan that does not parse is ignored, and a relevance reply that does not parse counts as "no".
"""

import re
from collections.abc import Sequence

from covrag_lite.method import Tools
from covrag_lite.records import CITATION, Passage, Prediction, Question, Round
from covrag_lite.task_model import TaskModel

SESSIONS = 4  # sampled plans per question; the paper uses 8
SUB_QUESTIONS = 3  # maximum per session; our questions have one or two steps
M = 2  # documents per sub-question
PLAN_TOKENS = 24  # maximum length of a sub-question
YES_TOKENS = 2
NUMBERED = re.compile(r"^\s*(?:\[\d+\]|\d+[.)]|[-*•])\s*(.+)$")
# The example in the prompt. Small models copy it; a copied sub-question is dropped.
RIVERS = ("How long is the Danube?", "How long is the Rhine?")


def fave(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Plan sessions of sub-questions, choose the best, answer its sub-questions, then conclude."""
    related = tools.related
    q = [question.question for question in questions]
    sessions = plan(related.author, q)  # 1: sample sessions s = (q1, …, qN)
    flat = [(i, s, sub) for i, many in enumerate(sessions) for s, session in enumerate(many) for sub in session]
    subs = [sub for *_, sub in flat]
    found = tools.search(subs)  # 2: the top M documents of each sub-question, in parallel
    ranked = [  # sorted by score, highest first
        sorted(zip(scores, passages), key=lambda one: -one[0])[:M]
        for scores, passages in zip(related.score(subs, found), found)
    ]
    # 3: relevance to q, and answerability
    relevant = is_relevant(related.author, [q[i] for i, *_ in flat], subs)
    marks: dict[tuple[int, int], list[tuple[bool, float]]] = {}
    for (i, s, _), fits, documents in zip(flat, relevant, ranked):
        marks.setdefault((i, s), []).append((fits, documents[0][0]))
    quality = {place: rate(many) for place, many in marks.items()}
    best = [max(range(len(many)), key=lambda s: quality[i, s]) for i, many in enumerate(sessions)]

    # 4: answer the sub-questions of the best session
    chosen = [(i, sub, [p for _, p in documents]) for (i, s, sub), documents in zip(flat, ranked) if s == best[i]]
    answers = tools.answer([sub for _, sub, _ in chosen], [documents for *_, documents in chosen])
    steps: list[list[Round]] = [[] for _ in q]
    read: list[list[Passage]] = [[] for _ in q]  # sub-questions and answers, read like passages
    for (i, sub, documents), answer in zip(chosen, answers):
        steps[i].append(Round(sub, tuple(documents), answer))
        read[i].append(Passage("", sub, f"{sub} {' '.join(CITATION.sub(' ', answer).split())}"))
    made = []  # 5: the final prediction; a cited sub-answer is replaced by the passages it cites
    for i, answer in enumerate(tools.answer(q, read)):
        union = tuple(dict.fromkeys(passage for one in steps[i] for passage in one.passages))
        note = f"session {best[i] + 1} of {len(sessions[i])}, quality {quality[i, best[i]]:.2f}"
        query = " | ".join(one.query for one in steps[i])
        last = Round(query, union, _point_to_passages(answer, steps[i], union), note=note)
        made.append(Prediction(questions[i], tools.name, (*steps[i], last)))
    return made


def rate(marks: Sequence[tuple[bool, float]]) -> float:
    """Return a session's quality r = (r_q + r_d) / 2 (equations 2 to 4); δ is SUB_QUESTIONS."""
    r_q = sum(fits for fits, _ in marks) / SUB_QUESTIONS
    r_d = sum(top for _, top in marks) / len(marks)
    return (r_q + r_d) / 2


def _point_to_passages(answer: str, steps: Sequence[Round], union: Sequence[Passage]) -> str:
    """Replace each citation of a sub-answer by citations of the passages that it cites."""
    marks = {}
    for place, one in enumerate(steps, 1):
        cited = [int(mark) for mark in CITATION.findall(one.answer)]
        passages = dict.fromkeys(one.passages[mark - 1] for mark in cited if 0 < mark <= len(one.passages))
        marks[place] = "".join(f"[{union.index(passage) + 1}]" for passage in passages)
    return CITATION.sub(lambda mark: marks.get(int(mark[1]), ""), answer)


def parse_plan(text: str) -> list[str]:
    """Parse the distinct sub-questions of a plan; copies of the prompt's example are dropped."""
    found = [match[1].strip() for match in map(NUMBERED.match, text.splitlines()) if match]
    asked = [line for line in found if any(letter.isalnum() for letter in line) and line not in RIVERS]
    return list(dict.fromkeys(asked))[:SUB_QUESTIONS]


def plan(author: TaskModel, x: Sequence[str]) -> list[list[list[str]]]:
    """Sample sessions of sub-questions; a plan that does not parse is the question itself."""
    asked = [
        f"Split the question into at most {SUB_QUESTIONS} simple questions to search for, one a line, numbered.\n"
        f"Question: Which is longer, the Danube or the Rhine?\n"
        f"[1] {RIVERS[0]}\n[2] {RIVERS[1]}\n"
        f"Question: {question}"
        for question in x
    ]
    written = [author.write("plan", asked, SUB_QUESTIONS * PLAN_TOKENS, number) for number in range(SESSIONS)]
    return [[parse_plan(text) or [one] for text in texts] for one, *texts in zip(x, *written)]


def is_relevant(author: TaskModel, x: Sequence[str], subs: Sequence[str]) -> list[bool]:
    """Return whether each sub-question helps to answer its question; an unclear reply means no."""
    asked = [
        "Does the sub-question help to answer the question? Say Yes or No.\n"
        f"Question: Which is longer, the Danube or the Rhine?\nSub-question: {RIVERS[1]}\nHelps: Yes\n"
        f"Question: Who painted the Mona Lisa?\nSub-question: {RIVERS[1]}\nHelps: No\n"
        f"Question: {question}\nSub-question: {sub}\nHelps:"
        for question, sub in zip(x, subs)
    ]
    return [text.strip().lower().startswith("yes") for text in author.write("relevant", asked, YES_TOKENS)]
