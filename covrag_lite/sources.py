"""D, the training questions (Section 2.3 of the paper), with their passages and searches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from covrag_lite.config import Config
from covrag_lite.data import check_disjoint, choose_sets, kind_of, load_passages, load_questions, reserved
from covrag_lite.metrics import normalise
from covrag_lite.records import Passage, Question, Search
from covrag_lite.retrieval import load_deeper

DEPTH = 4  # the deep search returns this many times k passages


@dataclass(frozen=True)
class Source:
    """Training questions, their corpus, and two searches over it."""

    questions: list[Question]
    passages: list[Passage]
    search: Search  # queries -> the k passages that a system sees
    deep: Search  # queries -> DEPTH × k passages; the later ones rarely contain the answer


def load_sources(config: Config) -> list[Source]:
    """Load the training questions of several worlds, or of a folder's sets.

    It prints that no training question is used for validation or testing, or raises an error.
    """
    learning = config.change(split="train", n_questions=0)
    sources = (_worlds if config.data.data == "world" else _sets)(learning, config.synthesis.n_train_questions or None)
    print(check_disjoint([question for source in sources for question in source.questions], config))
    return sources


def _worlds(config: Config, limit: int | None) -> list[Source]:
    """Load the training questions of the test world, then those of the worlds of the next seeds.

    No two splits ask about the same entity. Questions that are cut off can still have the same text
    as a validation or test question; these are dropped.
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
    """Load one source per set; sets without references of their own share the corpus."""
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
    """Build a source in which each question has its own references, as in WebGLM-QA.

    A query that is a question returns its own references; any other query searches all of them.
    """
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
    """Return the search of a system and a deeper one, both over the same index."""
    deep = load_deeper(config.retrieval, passages, DEPTH)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        return [found[: config.retrieval.k] for found in deep(queries)]

    return search, deep
