"""FaVe, factored and verified search (Kim et al. 2025), with prompts in our own words.

Implemented: Algorithm 1, with the unified session selector of Section 3.2.2 (equations 2 to 4) and
the factored answers of Section 3.1 (see `uoq`). The numbers in `fave` are the algorithm's lines.

Differences from that paper:

- Our answers have a few words, so the model reads the sub-answers again to conclude; the paper does
  this for such questions too.
- A sub-question's own search results are reranked by CRAG's evaluator, whose score is also the
  answerability. The paper reranks the question's top 100 with a cross-encoder.
- The session generator is prompted, as in the paper's StrategyQA rows. It is not tuned on
  preferences (equation 1).
- A session has at most three sub-questions, and δ is 3; the paper's δ is 5.
- The base model writes sessions and internal feedback, the trained reader the answers; in the
  paper, one model writes all. The relevance prompt has two demonstrations, the paper's eight.

The number of sessions is the paper's. The recorded run `real/former/qwen2.5-coder-1.5b/seed-1` had
four. A relevance reply that does not parse counts as "no".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from covrag_lite.engine.task_model import TaskModel
from covrag_lite.plugins.related.search_session import (
    EXAMPLE_QUESTION,
    EXAMPLE_SUB_QUESTIONS,
    Session,
    write_sessions,
)
from covrag_lite.plugins.related.sub_questions import (
    Ranked,
    answer_apart,
    conclude,
    search_documents,
)
from covrag_lite.plugins.related.tools import RelatedTools
from covrag_lite.records import Prediction, Question, Round

SESSIONS = 8  # sampled sessions per question
MAX_RELEVANT = 3  # δ, the number of relevant sub-questions that r_q counts at most
YES_TOKENS = 2  # maximum length of a relevance reply


@dataclass(frozen=True)
class SubQuestion:
    """One sub-question of one session, with what verification finds out about it."""

    question: int  # the index of its question
    session: int  # the index of its session
    text: str
    ranked: Ranked  # its documents
    is_relevant: bool  # the internal feedback


def fave(questions: Sequence[Question], tools: RelatedTools) -> list[Prediction]:
    """Sample sessions of sub-questions, choose the best, answer it part by part, then conclude."""
    x = [question.question for question in questions]
    # 1: sample sessions s = (q_1, …, q_N)
    sessions = sample_sessions(tools.author, x)
    # 2 and the feedback of 3, for the sub-questions of all sessions at once
    candidates = verify_sub_questions(x, sessions, tools)
    # 3: r = (r_q + r_d) / 2 of each session
    qualities = rate_sessions(candidates)
    best = []
    for i, alternatives in enumerate(sessions):
        best.append(max(range(len(alternatives)), key=lambda s: qualities[i, s]))

    # 4: answer the sub-questions of the best session, each from its own documents
    chosen = [
        candidate for candidate in candidates if candidate.session == best[candidate.question]
    ]
    sub_questions = [candidate.text for candidate in chosen]
    answered = answer_apart(sub_questions, [candidate.ranked for candidate in chosen], tools)
    steps: list[list[Round]] = [[] for _ in x]
    for candidate, step in zip(chosen, answered):
        steps[candidate.question].append(step)
    notes = []
    for i, s in enumerate(best):
        notes.append(f"session {s + 1} of {len(sessions[i])}, quality {qualities[i, s]:.2f}")
    # 4, post-processing: the final prediction
    return conclude(questions, steps, notes, tools)


def sample_sessions(author: TaskModel, x: Sequence[str]) -> list[list[Session]]:
    """Sample the sessions of each question."""
    samples = [write_sessions(author, x, sample) for sample in range(SESSIONS)]
    return [list(alternatives) for alternatives in zip(*samples)]


def verify_sub_questions(
    x: Sequence[str], sessions: Sequence[Sequence[Session]], tools: RelatedTools
) -> list[SubQuestion]:
    """Search for every sub-question of every session, and ask whether it helps."""
    places = []  # question, session, sub-question
    for i, alternatives in enumerate(sessions):
        for s, session in enumerate(alternatives):
            places += [(i, s, sub_question) for sub_question in session]
    sub_questions = [sub_question for _, _, sub_question in places]
    ranked = search_documents(sub_questions, tools)
    relevant = is_relevant(tools.author, [x[i] for i, _, _ in places], sub_questions)
    return [
        SubQuestion(*place, documents, helps)
        for place, documents, helps in zip(places, ranked, relevant)
    ]


def rate_sessions(candidates: Sequence[SubQuestion]) -> Mapping[tuple[int, int], float]:
    """Return the quality of each session, by its question and its number."""
    sessions: dict[tuple[int, int], list[SubQuestion]] = {}
    for candidate in candidates:
        sessions.setdefault((candidate.question, candidate.session), []).append(candidate)
    qualities = {}
    for place, members in sessions.items():
        relevant = [member.is_relevant for member in members]
        top_scores = [member.ranked.top_score for member in members]
        qualities[place] = rate(relevant, top_scores)
    return qualities


def rate(relevant: Sequence[bool], top_scores: Sequence[float]) -> float:
    """Return a session's quality from the relevance and answerability of its sub-questions."""
    r_q = min(sum(relevant), MAX_RELEVANT) / MAX_RELEVANT  # equation 3
    r_d = sum(top_scores) / len(top_scores)  # equation 4
    return (r_q + r_d) / 2  # equation 2


def is_relevant(author: TaskModel, x: Sequence[str], sub_questions: Sequence[str]) -> list[bool]:
    """Return whether each sub-question helps to answer its question; an unclear reply means no."""
    prompts = [build_relevant(*pair) for pair in zip(x, sub_questions)]
    replies = author.write("relevant", prompts, YES_TOKENS)
    return [reply.strip().lower().startswith("yes") for reply in replies]


def build_relevant(question: str, sub_question: str) -> str:
    """Return the prompt of the internal feedback (Figure 10)."""
    example = EXAMPLE_SUB_QUESTIONS[1]
    return (
        "Does the sub-question help to answer the question? Say Yes or No.\n"
        f"Question: {EXAMPLE_QUESTION}\nSub-question: {example}\nHelps: Yes\n"
        f"Question: Who painted the Mona Lisa?\nSub-question: {example}\nHelps: No\n"
        f"Question: {question}\nSub-question: {sub_question}\nHelps:"
    )
