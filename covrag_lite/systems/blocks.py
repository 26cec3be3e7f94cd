"""Deeper passages: one answer per block of k passages of a longer ranking, and a verdict on each.

Does a verifier choose better among such answers than their likelihood does? Every round keeps its
likelihood and its verdict, so one run answers this for every number of blocks and every rule.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from covrag_lite.config import Config
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.method import Passages, Tools
from covrag_lite.records import Passage, Prediction, Question, Round, Search

N_BLOCKS = 10  # with k = 5 the first 50 passages


def search_all_blocks(
    tools: Tools, settings: Config, deeper: Callable[[int], Search], rewriter: TaskModel
) -> Tools:
    """Let `search_deeper` return all passages after the first k, not only the next k."""
    k = settings.retrieval.k

    def search_deeper(queries: Sequence[str]) -> list[list[Passage]]:
        return [passages[k:] for passages in deeper(N_BLOCKS)(queries)]

    return replace(tools, search_deeper=search_deeper)


def read_blocks(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer from each block of passages, verify each answer, and keep one by the rule `keep`."""
    x = [question.question for question in questions]
    blocks_of = [
        split(first, others)
        for first, others in zip(tools.search(x), tools.search_deeper(x), strict=True)
    ]
    rounds: list[list[Round]] = [[] for _ in x]
    most_blocks = max((len(blocks) for blocks in blocks_of), default=0)  # of a small corpus, fewer
    for number in range(most_blocks):
        present = [i for i, blocks in enumerate(blocks_of) if number < len(blocks)]
        block_rounds = answer_block(
            [x[i] for i in present], [blocks_of[i][number] for i in present], tools
        )
        for i, block_round in zip(present, block_rounds):
            rounds[i].append(block_round)
    return [
        Prediction(question, tools.name, tuple(turns), kept=tools.keep(turns))
        for question, turns in zip(questions, rounds)
    ]


def split(first: Passages, others: Passages) -> list[Passages]:
    """Return the first block, and the other passages in blocks of the same size."""
    size = max(len(first), 1)  # a web search may find nothing
    return [first, *(others[start : start + size] for start in range(0, len(others), size))]


def answer_block(x: Sequence[str], k: Sequence[Passages], tools: Tools) -> list[Round]:
    """Answer each question from its block, and verify the answer."""
    answers = tools.answer(x, k)
    likelihoods = tools.likelihoods(x, k)
    rounds = [
        Round(question, tuple(passages), answer, likelihood=likelihood)
        for question, passages, answer, likelihood in zip(x, k, answers, likelihoods)
    ]
    return tools.add_verdicts(x, rounds)
