"""Questions and passages: from the fictional world, a folder of files, or public sets by name.

A kind of data is a module with these functions of a configuration, and one entry in KINDS:

sets(config, split)                the names of its sets
questions(config, split, dataset)  the questions of a set; its train, validation and test differ
passages(config)                   the corpus
read_cited(config, dataset)        optional: the numbered rows of a set in the form of WebGLM-QA,
                                   or None
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

from covrag_lite.config import ALL, Config
from covrag_lite.data.missing import DataMissing
from covrag_lite.loader import need, plugins
from covrag_lite.metrics import normalise
from covrag_lite.records import Passage, Question

SPLITS = ("train", "validation", "test")
KINDS = {
    "world": "covrag_lite.data.world",
    "hub": "covrag_lite.data.hub",
    "folder": "covrag_lite.data.folder",
}


def kind_of(config: Config) -> ModuleType:
    """Return the module for the parameter `data`; a value that is not in KINDS is a folder."""
    modules = {**KINDS, **plugins("data")}
    return need(modules.get(config.data.data, modules["folder"]))


def choose_sets(config: Config) -> tuple[str, ...]:
    """Return the names of the configured sets; "all" means all that the data has for this split."""
    wanted = config.data.datasets
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"datasets {wanted} must not name a set twice")
    if wanted != ALL:
        return wanted
    split = config.data.split
    sets = kind_of(config).sets(config, split)
    if not sets:
        file = f"{'' if split == 'test' else split + '_'}questions.csv"
        cure = f"add {file} with the columns question and answer"
        raise DataMissing(f"{config.data.data} has no {split} questions; {cure}")
    return sets


def load_questions(config: Config) -> list[Question]:
    """Load the first `n_questions` of each configured set, in their order."""
    n = config.data.n_questions
    if n < 0:
        raise ValueError(f"n_questions is {n}, but must be 0 (all questions) or more")
    if config.data.split not in SPLITS:
        splits = ", ".join(SPLITS)
        raise ValueError(f"split {config.data.split!r} is not known; use one of {splits}")
    return load_sets(config, choose_sets(config))


def load_sets(config: Config, sets: Sequence[str]) -> list[Question]:
    """Load the first `n_questions` of each of these sets, with different ids."""
    questions = []
    for dataset in sets:
        of_set = kind_of(config).questions(config, config.data.split, dataset)
        questions += of_set[: config.data.n_questions or None]
    times = Counter(question.id for question in questions)
    loaded = []
    for question in questions:
        if times[question.id] > 1:  # records identify questions by their ids
            question = replace(question, id=f"{question.dataset}/{question.id}")
        if not config.retrieval.has_corpus:  # gold passages belong to a corpus
            question = replace(question, gold_passages=())
        loaded.append(question)
    return loaded


def load_passages(config: Config) -> Sequence[Passage]:
    """Load the whole corpus: the data's own, or the one named by `corpus`; [] for web search."""
    if not config.retrieval.has_corpus:
        return []
    if not config.data.corpus:
        return kind_of(config).passages(config)
    if config.data.data == "world":
        named = f"corpus is {config.data.corpus!r}"
        raise ValueError(f"{named}, but the world has its own; set data to 'hub' or a folder")
    return need(KINDS["hub"]).read_corpus(config)


def own_question(text: str) -> Question:
    """Return a question typed by the user, which has no gold answer."""
    return Question("own", "own", text, ("(not known)",))


def pick_question(config: Config) -> Question:
    """Return the one question to explore: one of a set, or the user's own without a gold answer."""
    text = config.data.question
    dataset, _, number = text.rpartition(" ")
    if not dataset or " " in dataset or not number.isdigit():
        return own_question(text)
    questions = load_questions(config.change(datasets=(dataset,), n_questions=0))
    if int(number) >= len(questions):
        last = len(questions) - 1
        raise ValueError(f"question is {text!r}, but {dataset} has questions 0 to {last}")
    return questions[int(number)]


def reserved(config: Config) -> dict[str, list[Question]]:
    """Return all validation and test questions, which must not be used for training."""
    questions = {}
    for split in ("validation", "test"):
        of_split = config.change(datasets=ALL, n_questions=0, sample=0, split=split)
        questions[split] = load_sets(of_split, kind_of(config).sets(of_split, split))
    return questions


def check_disjoint(train: Sequence[Question], config: Config) -> str:
    """Return a sentence on the splits; an error if a training question is also a held-out one."""
    train_ids = {normalise(question.question): question.id for question in train}
    counts = []
    for split, questions in reserved(config).items():
        shared = [question for question in questions if normalise(question.question) in train_ids]
        if shared:
            train_id = train_ids[normalise(shared[0].question)]
            same = f"{shared[0].id!r} is the same as {train_id!r}"
            count = f"{len(shared)} {split} questions are training questions too"
            cure = "remove them from the training questions"
            raise ValueError(f"{count} ({same}, except for case and punctuation); {cure}")
        counts.append(f"{len(questions)} for {split}")
    none_of = " and ".join(counts)
    return f"{len(train_ids)} different training questions, none of them among {none_of}"
