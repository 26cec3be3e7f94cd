"""Facts that results depend on: disjoint splits, journal keys, manifests, comparisons."""

import itertools
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import toy
from conftest import write_jsonl
from toy import PASSAGES, QUESTIONS

from covrag_lite import data, metrics, prompts
from covrag_lite.check.compare import compare_lines
from covrag_lite.config import Config
from covrag_lite.engine import weights
from covrag_lite.engine.journal import Journal
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.plugins.lance import retriever as lance
from covrag_lite.records import Passage, Question, digest
from covrag_lite.retrieval import bm25, dense, fused
from covrag_lite.runs import compare, manifest
from covrag_lite.tables import verifier
from covrag_lite.training.sources import load_sources

Q1 = QUESTIONS[0]
A, B, C, D, E, F = PASSAGES.values()


@pytest.fixture(scope="module")
def judged():
    """Sixty answers judged true, whose expected correctness separates right from wrong ones."""
    rng = np.random.default_rng(0)
    right = rng.random(60) < 0.5
    rows = pd.DataFrame({"id": [f"q{i:02}" for i in range(60)], "first_normalised": right})
    rows = rows.assign(
        system="CoV-RAG", dataset="one", form="well put", judgment="true", noise=rng.random(60)
    )
    rows = rows.assign(
        expected_correctness=np.where(right, 0.9, 0.1), likelihood=rng.random(60) - 1
    )
    return rows.assign(unrevised=0.5)


def test_a_judge_without_a_verdict_does_not_see_its_score(judged):
    table, unread = (
        verifier.judge_table(rows).iloc[0]
        for rows in (judged, judged.assign(expected_correctness=judged.noise))
    )
    assert table.fitted.startswith("100.0 ") and float(table.unverified.split()[0]) < 70
    assert unread.unverified == table.unverified and not unread.fitted.startswith("100.0 ")
    likely = judged.assign(
        likelihood=np.where(judged.first_normalised, -0.1, -0.9), expected_correctness=0.5
    )
    assert verifier.judge_table(likely).iloc[0].unverified.startswith("100.0 ")
    few = likely.assign(likelihood=likely.likelihood.where(likely.index < len(likely) // 2))
    told = verifier.judge_table(few).iloc[0]  # half of the answers must not represent all
    assert (told.likelihood, told.both, told.fitted, told.unverified) == ("–",) * 4


def test_no_question_is_judged_by_weights_that_were_fitted_on_it(judged):
    # Each question is its own set: a fit on all questions would know each set's answer.
    alone = verifier.judge_table(
        judged.assign(dataset=judged.id, expected_correctness=judged.noise)
    ).iloc[0]
    assert float(alone.fitted.split()[0]) < 70


def test_an_answer_without_scores_is_not_judged(judged):
    rows = verifier.judged_rows(
        judged.assign(likelihood=judged.likelihood.mask(judged.id == "q03")), "CoV-RAG"
    )
    assert rows.id[verifier.fitted_judgments(rows).isna()].tolist() == ["q03"]
    silent = rows.assign(expected_correctness=np.nan)
    assert verifier.fitted_judgments(silent).isna().all()
    assert not verifier.fitted_judgments(silent, ["likelihood"])[:3].isna().any()


def test_what_else_the_judges_table_tells(judged):
    def told(**changes):
        return verifier.judge_table(judged.assign(**changes)).iloc[0]

    alone = told(first_normalised=judged.id == "q03")  # of one right answer nothing can be learnt
    assert alone.right == "1.7" and alone.unverified == "–"
    unsure = told(
        unrevised=np.where(judged.first_normalised, 0.2, 0.8)
    )  # that no question is revised is a score
    assert unsure.unrevised.startswith("0.00 ") and unsure.AUROC.startswith("1.00 ")
    for word in ("true", "unclear"):  # "unclear" is neither caught nor flagged
        assert told(judgment=word).caught.startswith("0 of ") and told(
            judgment=word
        ).doubted.startswith("0 of ")


# Splits.


def write_folder(folder, **files):
    for name, questions in files.items():
        rows = [
            {"id": f"{name}-{i}", "question": text, "answers": ["x"]}
            for i, text in enumerate(questions)
        ]
        write_jsonl(folder / f"{name}.jsonl", rows)
    write_jsonl(folder / "corpus.jsonl", map(asdict, PASSAGES.values()))
    return Config().change(data=str(folder), k=1)


@pytest.mark.parametrize("name", ["two", "validation_two"])
def test_a_training_question_may_stand_in_no_set_that_is_tested(tmp_path, name):
    files = {
        "one": ["who is it"],
        "train_one": ["who was it", "WHERE is it?"],
        "two": ["when"],
        "train_two": ["how"],
    }
    config = write_folder(tmp_path, **{**files, name: ["why", "where, is it"]})
    with pytest.raises(ValueError, match="are training questions too"):
        train = data.load_questions(config.change(split="train", datasets=("one",), n_questions=0))
        data.check_disjoint(train, config.change(datasets=("one",), n_questions=1))
    with pytest.raises(ValueError, match="are training questions too"):
        load_sources(config.change(datasets=("one",), n_questions=1, n_train_questions=0))


def test_validation_questions_are_held_out_of_training(tmp_path):
    config = write_folder(tmp_path, one=["x"], train_one=[f"question {i}" for i in range(40)])
    train, held = (
        {one.question for one in data.load_questions(config.change(split=split, n_questions=0))}
        for split in ("train", "validation")
    )
    assert (len(train), len(held), len(train & held)) == (36, 4, 0)
    (source,) = load_sources(config.change(n_train_questions=5))
    assert len(source.questions) == 5 and {one.question for one in source.questions} < train
    assert [len(found) for found in source.deep(["bridge"])] == [4] and len(
        source.search(["bridge"])[0]
    ) == 1


def test_every_gold_answer_and_passage_of_a_row_is_read(tmp_path):
    config = write_folder(tmp_path, one=["x", "y", "z"])
    rows = [
        {"id": i, "question": f"q {i}", "answers": ["a", "b"], "gold_passages": ["c", "d"]}
        for i in range(3)
    ]
    write_jsonl(tmp_path / "one.jsonl", rows)
    asked = data.load_questions(config.change(n_questions=1))
    assert asked == [Question("0", "one", "q 0", ("a", "b"), ("c", "d"))]
    assert len(data.load_questions(config.change(n_questions=0))) == 3


# What a journaled text depends on.


def test_a_text_is_another_under_any_other_setting():
    model = toy.Actor(Config().model)
    author = TaskModel(model.settings, model, None)
    known = author.keys("answer", ["x"], 9)["x"]
    changed = [toy.Actor(replace(model.settings, quantize="none")), model.with_adapter("cov")]
    others = [replace(author, model=one).keys("answer", ["x"], 9)["x"] for one in changed]
    others += [author.keys("rewrite", ["x"], 9)["x"], author.keys("answer", ["y"], 9)["y"]]
    others += [
        author.keys("answer", ["x"], limit, sample)["x"]
        for limit, sample in ((8, None), (9, 1), (9, 2))
    ]
    for settings, schema in itertools.product(("forced", "free"), (prompts.SCHEMA, prompts.DIRECT)):
        author = TaskModel(replace(model.settings, verdicts=settings), model, None, schema)
        others.append(author.keys("verify", ["x"], 9)["x"])
    assert len({known, *others}) == 12


def test_of_two_texts_under_one_key_the_first_counts(tmp_path):
    lines = [{"key": "k", "stage": "answer", "text": text} for text in ("first", "second")]
    assert Journal(write_jsonl(tmp_path / "j", lines)).texts["k"] == "first"


# Retrieval.


def test_bm25_reads_titles_and_breaks_ties_by_order():
    alike = [Passage(str(i), f"title{i}", "the same words") for i in range(4)]
    search = bm25.load(alike, Config().change(k=2).retrieval)
    assert [p.id for p in search(["title3"])[0]] == ["3", "0"]
    assert [p.id for p in search(["same words"])[0]] == ["0", "1"]
    assert lance.key_of(alike) != lance.key_of([*alike[:3], A])


def test_ranks_are_fused_by_their_reciprocals():
    # b: 1/62 + 1/61, a: 1/61 + 1/63, d: 1/62
    assert [p.id for p in fused.fuse([[A, B, C], [B, D, A]], 3)] == ["b", "a", "d"]
    # Twice third is better than once first: 2/63 and 1/61.
    assert [p.id for p in fused.fuse([[A, B, C], [D, E, C]], 2)] == ["c", "a"]


def test_vectors_are_cached_by_encoder_and_texts(tmp_path, monkeypatch):
    class Encoder:
        def __init__(self, factor):
            self.factor = factor

        def encode_document(self, texts, **_):
            return np.array([[self.factor * len(text)] for text in texts], np.float32)

    monkeypatch.setattr(weights, "CACHE", tmp_path)
    monkeypatch.setattr(weights, "find_encoder", lambda name: name)
    monkeypatch.setattr(weights, "hash_encoder", lambda name: f"hash of {name}")
    monkeypatch.setattr(dense, "load_encoder", lambda name: Encoder({"x": 1, "y": 2}[name]))
    assert dense.embed(["ab", "c"], "x")[0].tolist() == [[2], [1]]
    assert dense.embed(["ab", "c"], "y")[0].tolist() == [[4], [2]]
    assert dense.embed(["ab", "cd"], "x")[0].tolist() == [[2], [2]]
    blocks = np.array([[[1.0], [3.0]], [[2.0], [0.0]]])
    found = dense.nearest(np.array([[1.0], [-1.0]] * dense.AT_ONCE), blocks, 2)
    assert [rows.tolist() for rows in found] == [[1, 2], [3, 0]] * dense.AT_ONCE


# Records.


@pytest.mark.parametrize("said, modified", [("", False), (" M covrag_lite/method.py", True)])
def test_a_manifest_says_whether_the_code_was_modified(monkeypatch, said, modified):
    monkeypatch.delenv("COVRAG_COMMIT", raising=False)
    monkeypatch.setattr(manifest, "git", lambda *words: said if words[0] == "status" else "abc")
    assert manifest.find_commit() == {"commit": "abc", "modified": modified}


def test_a_manifest_names_adapters_by_their_own_weights():
    config = Config().change(systems=("RAG", "RAG trained", "Start-Revise trained"))
    told = manifest.build_manifest(config, toy.Actor(config.model), 1.0)
    assert told["adapters"] == {"cov": "cov", "rag": "rag", "rewrite": "rewrite"}


def test_a_recorded_row_that_is_made_no_more_is_a_difference_and_so_is_a_new_one():
    was, now = "system,n\nRAG,4\nCoV-RAG,4\nRRR,4\n", "system,n\nRAG,5\nRRR,4\n"
    assert list(compare_lines(was, now)) == [(2, "RAG,4", "RAG,5"), (3, "CoV-RAG,4", "nothing")]
    assert list(compare_lines(now, was)) == [(2, "RAG,5", "RAG,4"), (3, "nothing", "CoV-RAG,4")]
    assert list(compare_lines("a\nb\n", "b\n")) == [(1, "a", "nothing")]
    assert list(compare_lines("b\n", "b\nc\n")) == [(2, "nothing", "c")]


def test_two_runs_of_other_weights_or_data_differ():
    one = {"parameters": Config().flat(), "adapters": {}, "model_sha256": "a"}
    one["data"] = {"questions": {"n": 1, "sha256": "x"}}
    assert compare.changed(one, one) == []
    assert compare.changed(one, one | {"model_sha256": "b"}) == ["the weights of the model"]
    assert compare.changed(one, one | {"encoder_sha256": "b"}) == ["the weights of the encoder"]
    assert compare.changed(one, one | {"data": {"questions": {"n": 1, "sha256": "y"}}}) == [
        "the questions"
    ]
    other = one | {"parameters": Config().change(layout="paper").flat()}
    assert compare.changed(one, other) == ["layout ('shared', recorded 'paper')"]


def test_a_digest_changes_with_every_field():
    one = digest([Q1])
    others = [
        replace(Q1, answers=("x",)),
        replace(Q1, gold_passages=()),
        replace(Q1, kind="x"),
        replace(Q1, id="x"),
    ]
    assert len({one, *(digest([other]) for other in others), digest([Q1, Q1])}) == 6
    assert Question("q", "one", "x", ()) != Question("q", "two", "x", ())
    assert metrics.holds_answer([Passage("x", "Ada Voss", "")], ("Ada Voss",))  # a title counts
