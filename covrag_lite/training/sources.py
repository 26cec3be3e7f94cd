"""D, the training questions (Section 2.3 of the paper), with their passages and searches."""

from collections.abc import Iterable, Sequence
from itertools import islice

from covrag_lite.config import Config
from covrag_lite.data import (
    check_disjoint,
    choose_sets,
    kind_of,
    load_passages,
    load_questions,
    reserved,
)
from covrag_lite.metrics import normalise
from covrag_lite.records import Passage, Question, Search, Source
from covrag_lite.retrieval import load_deeper

DEPTH = 4  # the deep search returns this many times k passages


def load_sources(config: Config) -> list[Source]:
    """Load the training questions of several worlds, or of a folder's sets.

    It prints that no training question is used for validation or testing, or raises an error.
    """
    learning = config.change(split="train", n_questions=0)
    load = _load_worlds if config.data.data == "world" else _load_sets
    sources = load(learning, config.synthesis.n_train_questions or None)
    questions = []
    for source in sources:
        questions += source.questions
    print(check_disjoint(questions, config))
    return sources


def _load_worlds(config: Config, limit: int | None) -> list[Source]:
    """Load the training questions of the test world, then those of the worlds of the next seeds.

    No two splits ask about the same entity. Questions that are cut off can still have the same text
    as a validation or test question; these are dropped.
    """
    reserved_texts = set()
    for questions in reserved(config).values():
        reserved_texts.update(normalise(question.question) for question in questions)
    sources = []
    for number in range(config.synthesis.n_worlds):
        of_world = config.change(seed=config.world.seed + number)
        passages = load_passages(of_world)
        questions = []
        for question in load_questions(of_world):
            if normalise(question.question) not in reserved_texts:
                questions.append(question)
        search, deep = load_searches(config, passages)
        sources.append(Source(questions[:limit], passages, search, deep))
    return sources


def _load_sets(config: Config, limit: int | None) -> list[Source]:
    """Load one source per set; sets without references of their own share the corpus."""
    read_cited = getattr(kind_of(config), "read_cited", lambda config, dataset: None)
    sources = []
    corpus = None
    for dataset in choose_sets(config):
        cited = read_cited(config, dataset)
        if cited is not None:
            sources.append(_build_cited(config, dataset, islice(cited, limit)))
            continue
        if corpus is None:
            passages = load_passages(config)
            corpus = (passages, *load_searches(config, passages))
        questions = load_questions(config.change(datasets=(dataset,)))
        sources.append(Source(questions[:limit], *corpus))
    return sources


def _build_cited(config: Config, dataset: str, rows: Iterable[tuple[int, dict]]) -> Source:
    """Build a source in which each question has its own references, as in WebGLM-QA.

    A query that is a question returns its own references; any other query searches all of them.
    """
    questions = []
    references: dict[str, list[Passage]] = {}  # by the text of their question
    for number, row in rows:
        if row["question"] in references:  # its references are those of the first row
            continue
        identity = f"{dataset}-{number}"
        cited = []
        for place, text in enumerate(row["references"], 1):
            cited.append(Passage(f"{identity}-{place}", "", text))
        gold = tuple(passage.id for passage in cited)
        questions.append(Question(identity, dataset, row["question"], (row["answer"],), gold))
        references[row["question"]] = cited
    passages = []
    for question in questions:
        passages += references[question.question]
    search_all, deep = load_searches(config, passages)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        results = []
        for query in queries:
            results.append(references.get(query) or search_all([query])[0])
        return results

    return Source(questions, passages, search, deep)


def load_searches(config: Config, passages: Sequence[Passage]) -> tuple[Search, Search]:
    """Return the search of a system and a deeper one, both over the same index."""
    deep = load_deeper(config.retrieval, passages, DEPTH)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        return [passages[: config.retrieval.k] for passages in deep(queries)]

    return search, deep
