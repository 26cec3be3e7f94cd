"""The systems that CoV-RAG is compared with in the paper's Tables 2 and 4."""

from collections.abc import Sequence
from dataclasses import replace

from covrag_lite.method import cov_rag
from covrag_lite.records import Prediction, Question, Round
from covrag_lite.tools import Tools


def rag(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Retrieve and answer once: lines 1 to 3 of Algorithm 1. CoV-RAG-S is this with the CoV-RAG model."""
    return cov_rag(questions, replace(tools, max_rounds=1))


def start_revise(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Rewrite-Retrieve-Read: rewrite before anything was retrieved, search with that, answer the first question."""
    x = [question.question for question in questions]
    queries = [new or old for new, old in zip(tools.rewrite(x), x)]  # an empty rewrite searches as typed
    return [Prediction(question, tools.name, (one,)) for question, one in zip(questions, tools.read(queries, x))]


def closed_book(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """No retrieval: what the model knows by itself."""
    answers = tools.recall([question.question for question in questions])
    return [Prediction(question, tools.name, (Round("", (), text),)) for question, text in zip(questions, answers)]
