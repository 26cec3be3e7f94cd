"""FaVe, factored and verified search (Kim et al. 2025): a union of queries, with its prompts in our own words.

What differs from the paper: our questions want a few words, so the sub-answers are read once more to conclude, as the
paper does for such questions; candidates are what a sub-question itself finds, reordered by CRAG's evaluator (the paper
reorders the question's top 100 by a cross-encoder), whose score is the answerability too; the session generator is
prompted, not tuned by preferences, as in the paper's StrategyQA rows; fewer sessions of fewer sub-questions. What a
model writes that cannot be read is no plan and no "yes".
"""

import re
from collections.abc import Sequence

from covrag_lite.method import Tools
from covrag_lite.records import CITATION, Passage, Prediction, Question, Round
from covrag_lite.task_model import TaskModel

SESSIONS = 4  # sampled plans a question; the paper has 8
SUB_QUESTIONS = 3  # the most of a session; our questions have one or two steps
M = 2  # documents a sub-question is answered from
PLAN_TOKENS = 24  # a sub-question
YES_TOKENS = 2
NUMBERED = re.compile(r"^\s*(?:\[\d+\]|\d+[.)]|[-*•])\s*(.+)$")
# The demonstration: small models repeat it, and what is repeated is no sub-question of another question.
RIVERS = ("How long is the Danube?", "How long is the Rhine?")


def fave(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Plan several sessions of sub-questions, keep the best, answer its sub-questions apart, conclude."""
    related = tools.related
    q = [question.question for question in questions]
    sessions = plan(related.author, q)  # 1: sample sessions s = (q1, …, qN)
    flat = [(i, s, sub) for i, many in enumerate(sessions) for s, session in enumerate(many) for sub in session]
    subs = [sub for *_, sub in flat]
    found = tools.search(subs)  # 2: the top M documents of each sub-question, in parallel
    ranked = [  # in the order of their scores
        sorted(zip(scores, passages), key=lambda one: -one[0])[:M]
        for scores, passages in zip(related.score(subs, found), found)
    ]
    relevant = is_relevant(related.author, [q[i] for i, *_ in flat], subs)  # 3: relevance to q, and answerability
    marks: dict[tuple[int, int], list[tuple[bool, float]]] = {}
    for (i, s, _), fits, documents in zip(flat, relevant, ranked):
        marks.setdefault((i, s), []).append((fits, documents[0][0]))
    quality = {place: rate(many) for place, many in marks.items()}
    best = [max(range(len(many)), key=lambda s: quality[i, s]) for i, many in enumerate(sessions)]

    # 4: factored answers of the best
    chosen = [(i, sub, [p for _, p in documents]) for (i, s, sub), documents in zip(flat, ranked) if s == best[i]]
    answers = tools.answer([sub for _, sub, _ in chosen], [documents for *_, documents in chosen])
    steps: list[list[Round]] = [[] for _ in q]
    read: list[list[Passage]] = [[] for _ in q]  # sub-questions with their answers, to be read like passages
    for (i, sub, documents), answer in zip(chosen, answers):
        steps[i].append(Round(sub, tuple(documents), answer))
        read[i].append(Passage("", sub, f"{sub} {' '.join(CITATION.sub(' ', answer).split())}"))
    made = []  # 5: the final prediction, from the sub-answers; what it cites of them becomes what they cite
    for i, answer in enumerate(tools.answer(q, read)):
        union = tuple(dict.fromkeys(passage for one in steps[i] for passage in one.passages))
        note = f"session {best[i] + 1} of {len(sessions[i])}, quality {quality[i, best[i]]:.2f}"
        query = " | ".join(one.query for one in steps[i])
        last = Round(query, union, _point_to_passages(answer, steps[i], union), note=note)
        made.append(Prediction(questions[i], tools.name, (*steps[i], last)))
    return made


def rate(marks: Sequence[tuple[bool, float]]) -> float:
    """A session's quality, equations 2 to 4: r = (r_q + r_d) / 2; δ is the most sub-questions that a session has."""
    r_q = sum(fits for fits, _ in marks) / SUB_QUESTIONS
    r_d = sum(top for _, top in marks) / len(marks)
    return (r_q + r_d) / 2


def _point_to_passages(answer: str, steps: Sequence[Round], union: Sequence[Passage]) -> str:
    """The answer with every mark of a sub-answer replaced by the marks of the passages which that one cites."""
    marks = {}
    for place, one in enumerate(steps, 1):
        cited = [int(mark) for mark in CITATION.findall(one.answer)]
        passages = dict.fromkeys(one.passages[mark - 1] for mark in cited if 0 < mark <= len(one.passages))
        marks[place] = "".join(f"[{union.index(passage) + 1}]" for passage in passages)
    return CITATION.sub(lambda mark: marks.get(int(mark[1]), ""), answer)


def parse_plan(text: str) -> list[str]:
    """The sub-questions of a plan, each once; none where no line is numbered, or only the demonstration came back."""
    found = [match[1].strip() for match in map(NUMBERED.match, text.splitlines()) if match]
    asked = [line for line in found if any(letter.isalnum() for letter in line) and line not in RIVERS]
    return list(dict.fromkeys(asked))[:SUB_QUESTIONS]


def plan(author: TaskModel, x: Sequence[str]) -> list[list[list[str]]]:
    """Sampled sessions of sub-questions for each question; the question itself where one does not parse."""
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
    """Whether each sub-question helps to answer its question; what is neither yes nor no counts as no, as in FaVe."""
    asked = [
        "Does the sub-question help to answer the question? Say Yes or No.\n"
        f"Question: Which is longer, the Danube or the Rhine?\nSub-question: {RIVERS[1]}\nHelps: Yes\n"
        f"Question: Who painted the Mona Lisa?\nSub-question: {RIVERS[1]}\nHelps: No\n"
        f"Question: {question}\nSub-question: {sub}\nHelps:"
        for question, sub in zip(x, subs)
    ]
    return [text.strip().lower().startswith("yes") for text in author.write("relevant", asked, YES_TOKENS)]
