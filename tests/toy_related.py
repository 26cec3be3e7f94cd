"""Scripted tools of related systems: every call is logged, and every result follows a rule."""

from functools import partial

from covrag_lite.config import Model
from covrag_lite.plugins.related.tools import RelatedTools
from covrag_lite.prompts import SEPARATOR

WRITER = "who wrote the copper lanterns"
BORN = "wher was edit marow born"
LONG = "how long is the River Stell?"


class Script:
    """Tools that log their calls.

    A search returns the first three passages. `relevance` maps (question, passage id) to a score,
    by default 0; `entailed` contains (passage id, statement). `answers` maps a question to its
    answer, by default "answer to <question>". A prompt is answered by the function of its stage in
    `texts`, which gets the prompt and the number of the sample.
    """

    settings = Model()

    def __init__(self, passages, relevance=None, entailed=(), answers=None, texts=None):
        self.passages = passages
        self.relevance = relevance or {}
        self.entailed = entailed
        self.answers = answers or {}
        self.texts = texts or {}
        self.log = []  # (name of the function, its arguments)

    def search(self, queries):
        return [self.passages[:3] for _ in queries]

    def wider(self, queries):
        return [[self.passages[1], self.passages[5]] for _ in queries]

    def answer(self, x, k):
        return [self.answers.get(question, f"answer to {question}") for question in x]

    def score(self, x, k):
        return [
            [self.relevance.get((question, passage.id), 0.0) for passage in passages]
            for question, passages in zip(x, k)
        ]

    def entail(self, x, k, y):
        return [
            [float((passage.id, statement) in self.entailed) for passage in passages]
            for passages, statement in zip(k, y)
        ]

    def write_from_question(self, task, x):
        """As the author; logged under the name of the task."""
        self.log.append((task, list(x)))
        return [self.texts[task](question, None) for question in x]

    def write(self, stage, prompts, limit, sample=None):
        """As the author; logged under the name of the stage."""
        self.log.append((stage, list(prompts)))
        return [self.texts[stage](prompt, sample) for prompt in prompts]

    def call(self, name, *arguments):
        self.log.append((name, *map(list, arguments)))
        return getattr(self, name)(*arguments)

    def tools(self):
        """The tools of a system that uses this script."""
        names = ("search", "answer", "wider", "score", "entail")
        functions = {name: partial(self.call, name) for name in names}
        return RelatedTools(
            name="toy",
            author=self,
            write_from_question=self.write_from_question,
            thresholds=(0.2, 0.8),
            **functions,
        )

    @property
    def names(self):
        """The names of the functions in the order of their calls."""
        return [name for name, *_ in self.log]

    def calls(self, name):
        """The arguments of each call of this function."""
        return [arguments for logged, *arguments in self.log if logged == name]


def answer_in(prompt):
    """The last answer that a prompt contains."""
    return prompt.rpartition("Answer: ")[2].split(SEPARATOR)[0]


def last_question(prompt):
    """The last question that a prompt contains."""
    return prompt.rpartition("Question: ")[2].split("\n")[0]


def ids(passages):
    return [passage.id for passage in passages]
