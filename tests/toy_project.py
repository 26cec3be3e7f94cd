"""A project folder with recorded tables; the fixture `project` of conftest.py builds it once."""

from dataclasses import replace
from functools import partialmethod

import pytest
from conftest import ScriptedModel

from covrag_lite.check import check
from covrag_lite.config import Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.interface import Completion
from covrag_lite.judging.answers import load_answers
from covrag_lite.judging.criteria import CRITERIA, build_verdict
from covrag_lite.runs import recorded
from covrag_lite.systems import evaluate
from covrag_lite.tables import find_table
from covrag_lite.tables.table import Table
from covrag_lite.tables.table6 import search_twice

README = """# Toy

CoV-RAG answers {toy/table2 | CoV-RAG average} % of {toy/table2 | CoV-RAG average n},
{toy/table2 | CoV-RAG-S → CoV-RAG points} points more.

And 12 more.
"""
SYSTEMS = ("RAG", "CoV-RAG", "CoV-RAG-S")  # in another order than the table's


class Guesser(ScriptedModel):
    """A model that answers some questions right, by guessing the answers of the first three."""

    def complete(self, prompts, max_tokens, sample=None):
        return [Completion(self.guesses[i % 3]) for i, _ in enumerate(prompts)]


def build(root):
    """Build a scripted model's Tables 2, 3 and 6 over a small world, and a README about them."""
    config = Config().change(
        n_passages=1000, n_world=(4, 1200, 200), n_questions=2, runs=str(root / "runs")
    )
    config = config.change(retrievers=("bm25", "backwards"), systems=SYSTEMS)
    questions = load_questions(config)
    passages = load_passages(config)
    model = Guesser(config.model)
    model.guesses = [question.answers[0] for question in questions]
    resources = evaluate.load_resources(config, passages, model)
    predictions = evaluate.run(config, resources, questions)
    data = {"questions": questions, "passages": passages}
    record(root, "table2", predictions, config, model, {"": predictions}, **data)
    judge_answers(root)
    search_passages(root, config, resources, questions, passages)
    (root / "README.template.md").write_text(README)
    assert check(root, write=True).differences == []


def record(root, table, basis, config, model, parts, **data):
    """Record a run and its table."""
    folder = root / "results" / "toy"
    run = replace(recorded.save_run(folder, table, parts, config, model, 1.0, data), root=root)
    find_table(table).build(basis, run).save(folder, draw=False)


def judge_answers(root):
    """Record a Table 3 of Table 2's answers: the rubric, and a judge that prefers CoV-RAG."""
    config = Config().change(predictions="toy", judges=("rubric", "endpoint:toy"))
    answers = load_answers(config, root)
    scores = {system: dict.fromkeys(CRITERIA, 0.2 * (system == "CoV-RAG")) for system in SYSTEMS}
    verdicts = [build_verdict("endpoint:toy", question, scores) for question in answers.questions]
    data = {"questions": answers.questions, "passages": answers.passages}
    record(root, "table3", (answers, verdicts), config, answers.model, {}, **data)


def search_passages(root, config, resources, questions, passages):
    """Record a Table 6 with BM25 and a retriever that reads questions backwards."""

    def backwards(queries):
        return resources.search([query[::-1] for query in queries])

    every = load_questions(config.change(n_questions=0))
    searched = [question for question in questions if question.dataset in ("search", "entity")]
    predictions = {}
    for name, search in {"bm25": resources.search, "backwards": backwards}.items():
        of_search = replace(resources, search=search)
        answered = evaluate.run_system("CoV-RAG", config, of_search, searched)
        predictions[name] = answered + search_twice(every, search)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded, "hash_encoder", lambda encoder: "none")
        data = {"questions": searched, "every": every, "passages": passages}
        record(root, "table6", predictions, config, resources.model, predictions, **data)


def undraw(patch):
    """Draw no figures, because they take most of the time; other tests draw them."""
    patch.setattr(Table, "save", partialmethod(Table.save, draw=False))


def find(root, table):
    """The toy's recorded run of a table."""
    return next(run for run in recorded.find(root) if run.table == table)
