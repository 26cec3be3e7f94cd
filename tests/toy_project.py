"""A project folder with recorded tables, made from nothing; the fixture `project` of conftest.py builds it once."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from conftest import ScriptedModel

from covrag_lite import evaluate
from covrag_lite.check import check, remake
from covrag_lite.config import Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.interface import Completion
from covrag_lite.judging import judges
from covrag_lite.judging.answers import load_answers
from covrag_lite.judging.ballots import CRITERIA
from covrag_lite.runs import recorded
from covrag_lite.tables.table6 import search_twice

CLAIMS = "CoV-RAG answers {CoV-RAG average} % of {CoV-RAG average n}, {CoV-RAG-S → CoV-RAG points} points more.\n"
README = "# Toy\n\n<!-- made from results/toy/table2.claims.md -->\n<!-- end -->\n\nAnd 12 more.\n"
SYSTEMS = ("RAG", "CoV-RAG", "CoV-RAG-S")  # in another order than the table's


class Guesser(ScriptedModel):
    """Answers some of the questions rightly, by guessing the answers of the first three."""

    guesses = ()

    def complete(self, prompts, max_tokens, sample=None):
        return [Completion(self.guesses[i % 3]) for i, _ in enumerate(prompts)]


def build(root):
    """A scripted model's Tables 2, 3 and 6 over a small world, and a README that tells of them."""
    config = Config().change(
        n_passages=1000,
        n_world=(4, 1200, 200),
        n_questions=2,
        runs=str(root / "runs"),
        retrievers=("bm25", "backwards"),
        systems=SYSTEMS,
    )
    questions, passages = load_questions(config), load_passages(config)
    model = Guesser(config.model)
    model.guesses = [question.answers[0] for question in questions]
    resources = evaluate.load_resources(config, passages, model)
    answer_questions(root, config, resources, questions, passages)
    judge_answers(root)
    search_passages(root, config, resources, questions, passages)
    (root / "README.md").write_text(README)
    assert check(root, write=True)[0] == []


def record(root, table, config, model, parts, **data):
    """A recorded run without its table yet."""
    folder = root / "results" / "toy"
    manifest = evaluate.record(folder, table, parts, config, model, 1.0, data)
    return recorded.Recorded(folder, table, manifest)


def answer_questions(root, config, resources, questions, passages):
    """A recorded Table 2."""
    predictions = evaluate.run(config, resources, questions)
    run = record(root, "table2", config, resources.model, {"": predictions}, questions=questions, passages=passages)
    remake.make_accuracy(run, predictions, run.folder)
    run.file("claims.md").write_text(CLAIMS)


def judge_answers(root):
    """A recorded Table 3 of these answers, by the rubric and by a served judge that likes CoV-RAG best."""
    config = Config().change(predictions="toy", ranked=SYSTEMS, judges=("rubric", "endpoint:toy"))
    answers = load_answers(config, root)
    rows = []
    for order in (1, 2):
        for p in answers.predictions:
            score = 0.2 * (p.system == "CoV-RAG")
            about = ("endpoint:toy", order, p.question.dataset, p.question.id, p.system)
            rows += [(*about, criterion, score, True) for criterion in CRITERIA]
    known = pd.DataFrame(rows, columns=judges.COLUMNS)
    data = {"questions": answers.questions, "passages": answers.passages}
    run = record(root, "table3", config, answers.model, {}, **data)
    judges.save_verdicts(run.file("verdicts.jsonl"), judges.judge(config, answers, known))
    remake.make_ranks(run, (answers, known), run.folder)


def search_passages(root, config, resources, questions, passages):
    """A recorded Table 6: BM25, and a retriever that reads the questions backwards."""

    def backwards(queries):
        return resources.search([query[::-1] for query in queries])

    every = load_questions(config.change(n_questions=0))
    asked = [question for question in questions if question.dataset in ("search", "entity")]
    made = {}
    for name, search in {"bm25": resources.search, "backwards": backwards}.items():
        answered = evaluate.run_system("CoV-RAG", config, replace(resources, search=search), asked)
        made[name] = answered + search_twice(every, search)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "hash_encoder", lambda encoder: "none")
        data = {"questions": asked, "every": every, "passages": passages}
        run = record(root, "table6", config, resources.model, made, **data)
    remake.make_retrieval(run, made, run.folder)


def draw_nothing(*given, **_):
    """In place of a picture: a file with the picture's name. Drawing would take most of the time."""
    path = next(one for one in given if isinstance(one, Path))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"drawn")


def undraw(patch):
    """No picture of a recorded table is drawn; test_report and the notebooks draw them."""
    for name in ("plot_accuracy", "plot_ranks", "plot_retrieval", "plot_clean_wording"):
        patch.setattr(remake.pictures, name, draw_nothing)


def find(root, table):
    """The toy's recorded run of a table."""
    return next(run for run in recorded.find(root) if run.table == table)
