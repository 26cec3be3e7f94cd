"""Questions and passages: from the fictional world, a folder of files, or public sets by name.

A kind of data is a module with these functions of a configuration, and one entry in KINDS:

sets(config, split)                the names of its sets
questions(config, split, dataset)  the questions of a set; its train, validation and test differ
passages(config)                   the corpus
describe(dataset)                  optional: the source, licence and other facts of a set
read_cited(config, dataset)        optional: the numbered rows of a set in the form of WebGLM-QA,
                                   or None
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
    """Return the module for the parameter `data`; a value that is not in KINDS is a folder."""
    return import_module(KINDS.get(config.data.data, KINDS["folder"]))


def choose_sets(config: Config) -> tuple[str, ...]:
    """Return the names of the configured sets; "all" means all that the data has for this split."""
    wanted = config.data.datasets
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"datasets {wanted} must not name a set twice")
    return kind_of(config).sets(config, config.data.split) if wanted == ALL else wanted


def load_questions(config: Config) -> list[Question]:
    """Load the first `n_questions` of each configured set, in their order."""
    limit = config.data.n_questions
    if limit < 0:
        raise ValueError(f"n_questions is {limit}, but must be 0 (all questions) or more")
    if config.data.split not in SPLITS:
        known = ", ".join(SPLITS)
        raise ValueError(f"split {config.data.split!r} is not known; use one of {known}")
    made = []
    for dataset in choose_sets(config):
        made += kind_of(config).questions(config, config.data.split, dataset)[: limit or None]
    times = Counter(question.id for question in made)  # records identify questions by their ids
    made = [replace(one, id=f"{one.dataset}/{one.id}") if times[one.id] > 1 else one for one in made]
    if not config.retrieval.has_corpus:  # gold passages belong to a corpus
        made = [replace(question, gold_passages=()) for question in made]
    return made


def load_passages(config: Config) -> Sequence[Passage]:
    """Load the whole corpus: the data's own, or the one named by `corpus`; [] for web search."""
    if not config.retrieval.has_corpus:
        return []
    if not config.data.corpus:
        return kind_of(config).passages(config)
    if config.data.data == "world":
        named = f"corpus is {config.data.corpus!r}"
        raise ValueError(f"{named}, but the world has its own; set data to 'hub' or a folder")
    return import_module(KINDS["hub"]).read_corpus(config)


def own_question(text: str) -> Question:
    """Return a question typed by the user, which has no gold answer."""
    return Question("own", "own", text, ("(not known)",))


def pick_question(config: Config) -> Question:
    """Return the one question to explore: one of a set, or the user's own without a gold answer."""
    asked = config.data.question
    name, _, number = asked.rpartition(" ")
    if not name or " " in name or not number.isdigit():
        return own_question(asked)
    rows = load_questions(config.change(datasets=(name,), n_questions=0))
    if int(number) >= len(rows):
        raise ValueError(f"question is {asked!r}, but {name} has questions 0 to {len(rows) - 1}")
    return rows[int(number)]


def reserved(config: Config) -> dict[str, list[Question]]:
    """Return all validation and test questions, which must not be used for training."""
    every = config.change(datasets=ALL, n_questions=0, sample=0)
    return {split: load_questions(every.change(split=split)) for split in ("validation", "test")}


def check_disjoint(train: Sequence[Question], config: Config) -> str:
    """Return a sentence on the splits; an error if a training question is also a held-out one."""
    learnt = {normalise(question.question): question.id for question in train}
    counts = []
    for split, asked in reserved(config).items():
        shared = [question for question in asked if normalise(question.question) in learnt]
        if shared:
            same = f"{shared[0].id!r} is the same as {learnt[normalise(shared[0].question)]!r}"
            count = f"{len(shared)} {split} questions are training questions too"
            cure = "remove them from the training questions"
            raise ValueError(f"{count} ({same}, except for case and punctuation); {cure}")
        counts.append(f"{len(asked)} for {split}")
    none_of = " and ".join(counts)
    return f"{len(learnt)} different training questions, none of them among {none_of}"


def describe(config: Config) -> pd.DataFrame:
    """Describe each configured set: source, size, hash, defects, and three examples."""
    cards, told = {}, getattr(kind_of(config), "describe", lambda dataset: {})
    for dataset in choose_sets(config):
        rows = load_questions(config.change(datasets=(dataset,), n_questions=0))
        texts = [normalise(one.question) for one in rows]
        cards[dataset] = {
            **told(dataset),
            "questions": len(rows),
            "sha256": digest(rows),
            "golds that normalise to nothing": sum(is_defective(one.answers) for one in rows),
            "duplicate questions": len(texts) - len(set(texts)),
            **{f"example {number}": one.question for number, one in enumerate(rows[:3], 1)},
        }
    return pd.DataFrame(cards)
