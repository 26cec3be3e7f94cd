"""D, the questions to learn from (Section 2.3 of the paper), with the passages behind them and their search."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from covrag_lite.config import Config
from covrag_lite.data import check_disjoint, choose_sets, kind_of, load_passages, load_questions, reserved
from covrag_lite.metrics import normalise
from covrag_lite.records import Passage, Question, Search
from covrag_lite.retrieval import load_deeper

DEPTH = 4  # a retriever's next passages, from which answers without support are made


@dataclass(frozen=True)
class Source:
    """Questions to learn from, the passages behind them, and the search over these."""

    questions: list[Question]
    passages: list[Passage]
    search: Search  # the k passages that a system sees
    deep: Search  # DEPTH times as many, for the worse ones among them


def load_sources(config: Config) -> list[Source]:
    """The training splits of several worlds, or of a folder's sets; never a question that is validated or tested on."""
    learning = config.change(split="train", n_questions=0)
    sources = (_worlds if config.data.data == "world" else _sets)(learning, config.synthesis.n_train_questions or None)
    print(check_disjoint([question for source in sources for question in source.questions], config))
    return sources


def _worlds(config: Config, limit: int | None) -> list[Source]:
    """The test world's own training split, and those of the worlds of the next seeds.

    No two splits ask about the same entity, but a few questions that are cut off sound alike: these are left out.
    """
    asked = {normalise(question.question) for split in reserved(config).values() for question in split}
    made = []
    for number in range(config.synthesis.n_worlds):
        one = config.change(seed=config.world.seed + number)
        passages = load_passages(one)
        questions = [question for question in load_questions(one) if normalise(question.question) not in asked]
        made.append(Source(questions[:limit], passages, *load_searches(config, passages)))
    return made


def _sets(config: Config, limit: int | None) -> list[Source]:
    """One source a set; all but those with references of their own share the corpus."""
    read_cited = getattr(kind_of(config), "read_cited", lambda config, dataset: None)
    made, corpus = [], None
    for dataset in choose_sets(config):
        cited = read_cited(config, dataset)
        if cited is not None:
            made.append(_cited(config, dataset, islice(cited, limit)))
            continue
        if corpus is None:
            passages = load_passages(config)
            corpus = (passages, *load_searches(config, passages))
        made.append(Source(load_questions(config.change(datasets=(dataset,)))[:limit], *corpus))
    return made


def _cited(config: Config, dataset: str, rows: Iterable[tuple[int, dict]]) -> Source:
    """WebGLM-QA's shape: a question finds its own references; any other query searches all of them."""
    questions, own = [], {}
    for number, row in rows:
        found = [Passage(f"{dataset}-{number}-{i}", "", text) for i, text in enumerate(row["references"], 1)]
        gold = tuple(passage.id for passage in found)
        questions.append(Question(f"{dataset}-{number}", dataset, row["question"], (row["answer"],), gold))
        own[row["question"]] = found
    passages = [passage for question in questions for passage in own[question.question]]
    find, deep = load_searches(config, passages)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        return [own.get(query) or find([query])[0] for query in queries]

    return Source(questions, passages, search, deep)


def load_searches(config: Config, passages: Sequence[Passage]) -> tuple[Search, Search]:
    """The search that a system has, and a deeper one over the same index."""
    deep = load_deeper(config.retrieval, passages, DEPTH)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        return [found[: config.retrieval.k] for found in deep(queries)]

    return search, deep
