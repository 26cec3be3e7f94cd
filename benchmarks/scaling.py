"""How our own work grows with the number of questions and of passages: no model, no GPU. `inference` calls this."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import psutil

from covrag_lite import evaluate, prompts
from covrag_lite.config import Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine import weights
from covrag_lite.records import Passage, Question
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.journal import Journal
from covrag_lite.runs.outcomes import to_frame

PLAIN_QUERIES = 20  # rank_bm25 scores every passage for every query, so that few must do


def memory() -> float:
    """The MB this process holds."""
    return psutil.Process().memory_info().rss / 1e6


class Instant:
    """A model that answers at once, so that what is left is our own work."""

    fingerprint = "instant"
    device = "cpu"
    schema = prompts.SCHEMA
    adapter = None

    def __init__(self, config: Config):
        self.config = config.model
        self.verdict = prompts.render_verdict([0.1] * 6, "false", "Where is it?")

    def with_adapter(self, name: str) -> "Instant":
        return self

    def batches(self, texts: Sequence[str], room: int) -> list[list[str]]:
        return [texts[i : i + 32] for i in range(0, len(texts), 32)]

    def generate(self, texts: Sequence[str], limit: int) -> list[str]:
        return ["It is so.[1]"] * len(texts)

    def verify(self, texts: Sequence[str]) -> list[str]:
        return [self.verdict] * len(texts)


def overhead(config: Config, sizes: Sequence[int] = (100, 1000, 10_000)) -> pd.DataFrame:
    """What everything but the model costs a question (search, prompts, journal, frame), for ever more questions."""
    passages = load_passages(config)
    some = load_questions(config)
    search = load_retriever(config.retrieval, passages)
    search([some[0].question])  # what is done once is done before the clock starts
    rows = {}
    for size in sizes:
        questions = _repeat(some, size)
        with tempfile.TemporaryDirectory() as folder:
            before = memory()
            start = time.perf_counter()
            journal = Journal(Path(folder) / "journal.jsonl")
            resources = evaluate.Resources(search, Instant(config), journal)
            to_frame(evaluate.run_system("CoV-RAG", config, resources, questions))
            seconds = time.perf_counter() - start
        rows[f"{size:,} questions"] = {
            "ms_per_question": 1e3 * seconds / size,
            "kb_per_question": 1e3 * (memory() - before) / size,
        }
    frame = pd.DataFrame.from_dict(rows, orient="index")
    frame.insert(0, "cheaper", frame.ms_per_question.iloc[0] / frame.ms_per_question)
    return frame


def _repeat(some: Sequence[Question], size: int) -> list[Question]:
    """So many questions, none the same: these over and over, with a number behind each."""
    questions = []
    for i in range(size):
        one = some[i % len(some)]
        questions.append(replace(one, id=f"{i}", question=f"{one.question} {i}"))
    return questions


def bm25(config: Config, sizes: Sequence[int], n_queries: int = 200) -> pd.DataFrame:
    """Index and query time of our BM25 over ever larger worlds, against rank_bm25 and the engine over the smallest."""
    every_question = load_questions(replace(config, data=replace(config.data, n_questions=0)))
    queries = [question.question for question in every_question][:n_queries]
    smallest = f"{min(sizes):,} passages"
    rows = {}
    for size in sizes:
        passages = load_passages(config.change(n_passages=size))
        rows[f"ours, {size:,} passages"] = _time_ours(config, passages, queries)
        if size == min(sizes):
            rows[f"engine, {smallest}"] = _time_ours(config.change(retriever="engine"), passages, queries)
            rows[f"rank_bm25, {smallest}"] = _time_rank_bm25(config, passages, queries)
    frame = pd.DataFrame.from_dict(rows, orient="index")
    plain_rate = frame.loc[f"rank_bm25, {smallest}", "queries_per_second"]
    frame.insert(0, "faster", frame.queries_per_second / plain_rate)
    return frame


def _time_ours(config: Config, passages: list[Passage], queries: Sequence[str]) -> dict[str, float]:
    before = memory()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, patch.object(weights, "CACHE", Path(folder)):  # a first start
        search = load_retriever(config.retrieval, passages)
        indexed = time.perf_counter()
        search(queries[:1])
        begun = time.perf_counter()
        search(queries)
        return {
            "queries_per_second": len(queries) / (time.perf_counter() - begun),
            "index_seconds": indexed - start,
            "index_mb": memory() - before,
        }


def _time_rank_bm25(config: Config, passages: list[Passage], queries: Sequence[str]) -> dict[str, float]:
    from rank_bm25 import BM25Okapi

    before = memory()
    start = time.perf_counter()
    plain = BM25Okapi([f"{passage.title} {passage.text}".lower().split() for passage in passages])
    indexed = time.perf_counter()
    for query in queries[:PLAIN_QUERIES]:
        plain.get_top_n(query.lower().split(), passages, config.retrieval.k)
    return {
        "queries_per_second": PLAIN_QUERIES / (time.perf_counter() - indexed),
        "index_seconds": indexed - start,
        "index_mb": memory() - before,
    }
