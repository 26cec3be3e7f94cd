"""Questions and passages from anywhere: the embedded world, a folder of files, or public sets by name.

A kind of data is a module with three functions of a configuration, or more, and one entry in KINDS:

sets(config, split)                the names of its sets
questions(config, split, dataset)  the questions of a set; its splits train, validation and test share none
passages(config)                   the corpus
describe(dataset)                  if it knows: source, licence and the like of a set
read_cited(config, dataset)        if it has such: the numbered rows of a set in WebGLM-QA's shape, else None
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from types import ModuleType

import pandas as pd

from covrag_lite.config import ALL, Config
from covrag_lite.metrics import is_defective, normalise
from covrag_lite.records import Passage, Question, digest

SPLITS = ("train", "validation", "test")
KINDS = {"world": "covrag_lite.data.world", "hub": "covrag_lite.data.hub", "folder": "covrag_lite.data.folder"}


def kind_of(config: Config) -> ModuleType:
    """The kind that the parameter `data` names; what is no kind's name is a folder."""
    return import_module(KINDS.get(config.data.data, KINDS["folder"]))


def choose_sets(config: Config) -> tuple[str, ...]:
    """The names of the configured sets; "all" are those that the data has for this split."""
    wanted = config.data.datasets
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"datasets {wanted} must name no set twice")
    return kind_of(config).sets(config, config.data.split) if wanted == ALL else wanted


def load_questions(config: Config) -> list[Question]:
    """The first `n_questions` of each of the configured sets, in their order."""
    limit = config.data.n_questions
    if limit < 0:
        raise ValueError(f"n_questions is {limit} and must not be negative (0 means all)")
    if config.data.split not in SPLITS:
        raise ValueError(f"split {config.data.split!r} is not known; use one of {', '.join(SPLITS)}")
    made = []
    for dataset in choose_sets(config):
        made += kind_of(config).questions(config, config.data.split, dataset)[: limit or None]
    times = Counter(question.id for question in made)  # records tell questions apart by their ids
    made = [replace(one, id=f"{one.dataset}/{one.id}") if times[one.id] > 1 else one for one in made]
    if not config.retrieval.has_corpus:  # gold passages are the corpus's
        made = [replace(question, gold_passages=()) for question in made]
    return made


def load_passages(config: Config) -> Sequence[Passage]:
    """The whole corpus: the data's own, or the one that the parameter `corpus` names; none if the web is searched."""
    if not config.retrieval.has_corpus:
        return []
    if not config.data.corpus:
        return kind_of(config).passages(config)
    if config.data.data == "world":
        raise ValueError(f"corpus is {config.data.corpus!r}, but the world has its own; set data to 'hub' or a folder")
    return import_module(KINDS["hub"]).read_corpus(config)


def own_question(text: str) -> Question:
    """A question that a user typed, whose answer nobody wrote down."""
    return Question("own", "own", text, ("(not known)",))


def pick_question(config: Config) -> Question:
    """The one question to explore: one of a set, or the user's own, which has no gold answer."""
    asked = config.data.question
    name, _, number = asked.rpartition(" ")
    if not name or " " in name or not number.isdigit():
        return own_question(asked)
    rows = load_questions(config.change(datasets=(name,), n_questions=0))
    if int(number) >= len(rows):
        raise ValueError(f"question is {asked!r}, but {name} has questions 0 to {len(rows) - 1}")
    return rows[int(number)]


def reserved(config: Config) -> dict[str, list[Question]]:
    """Every question of validation and testing, from which nothing may be learnt."""
    every = config.change(datasets=ALL, n_questions=0, sample=0)
    return {split: load_questions(every.change(split=split)) for split in ("validation", "test")}


def check_disjoint(train: Sequence[Question], config: Config) -> str:
    """A sentence on the splits, or an error where a training question is also asked in validation or testing."""
    learnt = {normalise(question.question): question.id for question in train}
    counts = []
    for split, asked in reserved(config).items():
        shared = [question for question in asked if normalise(question.question) in learnt]
        if shared:
            same = f"{shared[0].id!r} is {learnt[normalise(shared[0].question)]!r}, but for capitals and punctuation"
            raise ValueError(f"{len(shared)} {split} questions are training questions too ({same}); train without them")
        counts.append(f"{len(asked)} for {split}")
    return f"{len(learnt)} different questions to learn from, none of them among {' and '.join(counts)}"


def describe(config: Config) -> pd.DataFrame:
    """A card of each configured set: where it comes from, its size and hash, defects, and three examples."""
    cards, told = {}, getattr(kind_of(config), "describe", lambda dataset: {})
    for dataset in choose_sets(config):
        rows = load_questions(config.change(datasets=(dataset,), n_questions=0))
        texts = [normalise(one.question) for one in rows]
        cards[dataset] = {
            **told(dataset),
            "questions": len(rows),
            "sha256": digest(rows),
            "gold that normalises to nothing": sum(is_defective(one.answers) for one in rows),
            "questions that stand twice": len(texts) - len(set(texts)),
            **{f"example {number}": one.question for number, one in enumerate(rows[:3], 1)},
        }
    return pd.DataFrame(cards)
