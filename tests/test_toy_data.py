"""Facts that results depend on: disjoint splits, journal keys, manifests, comparisons."""

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


# How the verifier is measured.


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


def judge(rows):
    """The row of the judges' table about all questions."""
    return verifier.judge_table(rows).iloc[0]


def percent(cell):
    """The share of a cell, without its interval."""
    return float(cell.split()[0])


@pytest.fixture(scope="module")
def table(judged):
    return judge(judged)


@pytest.fixture(scope="module")
def noise_table(judged):
    """The table if the expected correctness says nothing."""
    return judge(judged.assign(expected_correctness=judged.noise))


@pytest.fixture(scope="module")
def likely(judged):
    """The answers if their likelihood separates them and their expected correctness does not."""
    likelihood = np.where(judged.first_normalised, -0.1, -0.9)
    return judged.assign(likelihood=likelihood, expected_correctness=0.5)


@pytest.fixture(scope="module")
def half_likely_table(likely):
    """The table if half of the answers have no likelihood."""
    has_likelihood = likely.index < len(likely) // 2
    return judge(likely.assign(likelihood=likely.likelihood.where(has_likelihood)))


def test_the_fitted_judge_sees_the_expected_correctness(table):
    assert table.fitted.startswith("100.0 ")


def test_a_fitted_judge_without_a_useful_score_is_sometimes_wrong(noise_table):
    assert not noise_table.fitted.startswith("100.0 ")


def test_the_unverified_judge_does_not_see_the_expected_correctness(table):
    assert percent(table.unverified) < 70


def test_the_unverified_judge_is_the_same_whatever_the_expected_correctness(table, noise_table):
    assert noise_table.unverified == table.unverified


def test_the_unverified_judge_sees_the_likelihood(likely):
    assert judge(likely).unverified.startswith("100.0 ")


@pytest.mark.parametrize("column", ["likelihood", "both", "fitted", "unverified"])
def test_half_of_the_likelihoods_do_not_represent_all(half_likely_table, column):
    assert half_likely_table[column] == "–"


def test_no_question_is_judged_by_weights_that_were_fitted_on_it(judged):
    # Each question is its own set: a fit on all questions would know each set's answer.
    own_sets = judged.assign(dataset=judged.id, expected_correctness=judged.noise)
    assert percent(judge(own_sets).fitted) < 70


@pytest.fixture(scope="module")
def rows_without_q03(judged):
    """Rows in which one answer has no likelihood."""
    likelihood = judged.likelihood.mask(judged.id == "q03")
    return verifier.judged_rows(judged.assign(likelihood=likelihood), "CoV-RAG")


def test_an_answer_without_a_likelihood_is_not_judged(rows_without_q03):
    unjudged = verifier.fitted_judgments(rows_without_q03).isna()
    assert rows_without_q03.id[unjudged].tolist() == ["q03"]


def test_answers_without_an_expected_correctness_are_not_judged(rows_without_q03):
    silent = rows_without_q03.assign(expected_correctness=np.nan)
    assert verifier.fitted_judgments(silent).isna().all()


def test_answers_without_an_expected_correctness_are_judged_by_their_likelihood(rows_without_q03):
    silent = rows_without_q03.assign(expected_correctness=np.nan)
    assert not verifier.fitted_judgments(silent, ["likelihood"])[:3].isna().any()


@pytest.fixture(scope="module")
def single_right_table(judged):
    """The table if one answer is right."""
    return judge(judged.assign(first_normalised=judged.id == "q03"))


def test_the_share_of_right_answers_is_in_percent(single_right_table):
    assert single_right_table.right == "1.7"


def test_nothing_is_fitted_to_a_single_right_answer(single_right_table):
    assert single_right_table.unverified == "–"


@pytest.fixture(scope="module")
def unsure_table(judged):
    """The table if right answers are the ones that would be revised."""
    return judge(judged.assign(unrevised=np.where(judged.first_normalised, 0.2, 0.8)))


def test_the_probability_of_no_revision_is_a_score(unsure_table):
    assert unsure_table.unrevised.startswith("0.00 ")


def test_the_probability_of_no_revision_does_not_change_auroc(unsure_table):
    assert unsure_table.AUROC.startswith("1.00 ")


@pytest.mark.parametrize("column", ["caught", "doubted"])
@pytest.mark.parametrize("judgment", ["true", "unclear"])
def test_only_the_judgment_false_flags_an_answer(judged, judgment, column):
    assert judge(judged.assign(judgment=judgment))[column].startswith("0 of ")


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


@pytest.fixture(params=["two", "validation_two"])
def overlapping(request, tmp_path):
    """A folder in which one training question of set one is tested or validated in set two."""
    files = {
        "one": ["who is it"],
        "train_one": ["who was it", "WHERE is it?"],
        "two": ["when"],
        "train_two": ["how"],
    }
    files[request.param] = ["why", "where, is it"]
    return write_folder(tmp_path, **files).change(datasets=("one",))


def test_a_training_question_of_another_sets_test_is_an_error(overlapping):
    training = data.load_questions(overlapping.change(split="train", n_questions=0))
    with pytest.raises(ValueError, match="are training questions too"):
        data.check_disjoint(training, overlapping.change(n_questions=1))


def test_no_source_has_a_training_question_of_another_sets_test(overlapping):
    with pytest.raises(ValueError, match="are training questions too"):
        load_sources(overlapping.change(n_questions=1, n_train_questions=0))


@pytest.fixture(scope="module")
def forty(tmp_path_factory):
    """A folder with forty training questions."""
    folder = tmp_path_factory.mktemp("forty")
    return write_folder(folder, one=["x"], train_one=[f"question {i}" for i in range(40)])


@pytest.fixture(scope="module")
def learnt(forty):
    """The texts of the training questions that are not held out."""
    questions = data.load_questions(forty.change(split="train", n_questions=0))
    return {question.question for question in questions}


@pytest.fixture(scope="module")
def held_out(forty):
    questions = data.load_questions(forty.change(split="validation", n_questions=0))
    return {question.question for question in questions}


@pytest.fixture(scope="module")
def source(forty):
    (source,) = load_sources(forty.change(n_train_questions=5))
    return source


def test_a_tenth_of_the_training_questions_is_held_out(held_out):
    assert len(held_out) == 4


def test_nine_tenths_of_the_training_questions_are_learnt(learnt):
    assert len(learnt) == 36


def test_no_question_that_is_held_out_is_learnt(learnt, held_out):
    assert not learnt & held_out


def test_a_source_has_as_many_questions_as_are_wanted(source):
    assert len(source.questions) == 5


def test_a_source_has_no_question_that_is_held_out(source, learnt):
    assert {question.question for question in source.questions} < learnt


def test_the_search_of_a_source_returns_k_passages(source):
    assert len(source.search(["bridge"])[0]) == 1


def test_the_deep_search_of_a_source_returns_four_times_as_many(source):
    assert [len(passages) for passages in source.deep(["bridge"])] == [4]


@pytest.fixture
def with_gold(tmp_path):
    """A folder of three questions, each with two gold answers and two gold passages."""
    config = write_folder(tmp_path, one=["x", "y", "z"])
    rows = [
        {"id": i, "question": f"q {i}", "answers": ["a", "b"], "gold_passages": ["c", "d"]}
        for i in range(3)
    ]
    write_jsonl(tmp_path / "one.jsonl", rows)
    return config


def test_every_gold_answer_and_passage_of_a_row_is_read(with_gold):
    questions = data.load_questions(with_gold.change(n_questions=1))
    assert questions == [Question("0", "one", "q 0", ("a", "b"), ("c", "d"))]


def test_0_questions_means_all(with_gold):
    assert len(data.load_questions(with_gold.change(n_questions=0))) == 3


# What a journaled text depends on.


def test_a_text_is_another_under_any_other_setting():
    model = toy.Actor(Config().model)
    author = TaskModel(model.settings, model, None)

    def by_model(other):
        return replace(author, model=other).keys("answer", ["x"], 9)["x"]

    def by_schema(verdicts, schema):
        settings = replace(model.settings, verdicts=verdicts)
        return TaskModel(settings, model, None, schema).keys("verify", ["x"], 9)["x"]

    keys = {
        "as it is": author.keys("answer", ["x"], 9)["x"],
        "quantization": by_model(toy.Actor(replace(model.settings, quantize="none"))),
        "adapter": by_model(model.with_adapter("cov")),
        "task": author.keys("rewrite", ["x"], 9)["x"],
        "prompt": author.keys("answer", ["y"], 9)["y"],
        "limit": author.keys("answer", ["x"], 8, None)["x"],
        "sample 1": author.keys("answer", ["x"], 9, 1)["x"],
        "sample 2": author.keys("answer", ["x"], 9, 2)["x"],
        "forced verdicts": by_schema("forced", prompts.SCHEMA),
        "forced verdicts without the chain": by_schema("forced", prompts.DIRECT),
        "free verdicts": by_schema("free", prompts.SCHEMA),
        "free verdicts without the chain": by_schema("free", prompts.DIRECT),
    }
    setting_of = {key: setting for setting, key in keys.items()}
    assert [setting_of[key] for key in keys.values()] == list(keys)


def test_of_two_texts_under_one_key_the_first_counts(tmp_path):
    lines = [{"key": "k", "stage": "answer", "text": text} for text in ("first", "second")]
    assert Journal(write_jsonl(tmp_path / "j", lines)).texts["k"] == "first"


# Retrieval.

ALIKE = [Passage(str(i), f"title{i}", "the same words") for i in range(4)]


@pytest.fixture(scope="module")
def search_alike():
    return bm25.load(ALIKE, Config().change(k=2).retrieval)


def test_bm25_reads_titles(search_alike):
    assert [passage.id for passage in search_alike(["title3"])[0]] == ["3", "0"]


def test_bm25_breaks_ties_by_order(search_alike):
    assert [passage.id for passage in search_alike(["same words"])[0]] == ["0", "1"]


def test_another_corpus_has_another_lance_index():
    assert lance.key_of(ALIKE) != lance.key_of([*ALIKE[:3], A])


def test_ranks_are_fused_by_their_reciprocals():
    # b: 1/62 + 1/61, a: 1/61 + 1/63, d: 1/62
    assert [p.id for p in fused.fuse([[A, B, C], [B, D, A]], 3)] == ["b", "a", "d"]


def test_twice_third_is_better_than_once_first():
    # 2/63 and 1/61
    assert [p.id for p in fused.fuse([[A, B, C], [D, E, C]], 2)] == ["c", "a"]


class LengthEncoder:
    """Its vector of a text is a multiple of the text's length."""

    def __init__(self, factor):
        self.factor = factor

    def encode_document(self, texts, **_):
        return np.array([[self.factor * len(text)] for text in texts], np.float32)


@pytest.fixture
def embed(tmp_path, monkeypatch):
    """The embedding with the encoders "x" and "y" and an empty cache."""
    encoders = {"x": LengthEncoder(1), "y": LengthEncoder(2)}
    monkeypatch.setattr(weights, "CACHE", tmp_path)
    monkeypatch.setattr(weights, "find_encoder", lambda name: name)
    monkeypatch.setattr(weights, "hash_encoder", lambda name: f"hash of {name}")
    monkeypatch.setattr(dense, "load_encoder", encoders.__getitem__)
    return lambda texts, name: dense.embed(texts, name)[0].tolist()


def test_every_text_gets_the_vector_of_its_encoder(embed):
    assert embed(["ab", "c"], "x") == [[2], [1]]


def test_cached_vectors_are_not_used_for_another_encoder(embed):
    embed(["ab", "c"], "x")
    assert embed(["ab", "c"], "y") == [[4], [2]]


def test_cached_vectors_are_not_used_for_other_texts(embed):
    embed(["ab", "c"], "x")
    assert embed(["ab", "cd"], "x") == [[2], [2]]


def test_the_nearest_vectors_are_chosen_among_all_blocks_for_every_query():
    blocks = np.array([[[1.0], [3.0]], [[2.0], [0.0]]])
    queries = np.array([[1.0], [-1.0]] * dense.AT_ONCE)
    nearest = dense.nearest(queries, blocks, 2)
    assert [rows.tolist() for rows in nearest] == [[1, 2], [3, 0]] * dense.AT_ONCE


# Records.


@pytest.mark.parametrize("status, modified", [("", False), (" M covrag_lite/method.py", True)])
def test_a_manifest_says_whether_the_code_was_modified(monkeypatch, status, modified):
    monkeypatch.delenv("COVRAG_COMMIT", raising=False)
    monkeypatch.setattr(manifest, "git", lambda *words: status if words[0] == "status" else "abc")
    assert manifest.find_commit() == {"commit": "abc", "modified": modified}


def test_a_manifest_names_adapters_by_their_own_weights():
    config = Config().change(systems=("RAG", "RAG trained", "Start-Revise trained"))
    described = manifest.build_manifest(config, toy.Actor(config.model), 1.0)
    assert described["adapters"] == {"cov": "cov", "rag": "rag", "rewrite": "rewrite"}


FOUR_LINES = "system,n\nRAG,4\nCoV-RAG,4\nRRR,4\n"
THREE_LINES = "system,n\nRAG,5\nRRR,4\n"


@pytest.mark.parametrize(
    "recorded, rebuilt, differences",
    [
        (FOUR_LINES, THREE_LINES, [(2, "RAG,4", "RAG,5"), (3, "CoV-RAG,4", "nothing")]),
        ("a\nb\n", "b\n", [(1, "a", "nothing")]),
    ],
)
def test_a_recorded_row_that_is_not_rebuilt_is_a_difference(recorded, rebuilt, differences):
    assert list(compare_lines(recorded, rebuilt)) == differences


@pytest.mark.parametrize(
    "recorded, rebuilt, differences",
    [
        (THREE_LINES, FOUR_LINES, [(2, "RAG,5", "RAG,4"), (3, "nothing", "CoV-RAG,4")]),
        ("b\n", "b\nc\n", [(2, "nothing", "c")]),
    ],
)
def test_a_rebuilt_row_that_is_not_recorded_is_a_difference(recorded, rebuilt, differences):
    assert list(compare_lines(recorded, rebuilt)) == differences


@pytest.mark.parametrize(
    "change, differences",
    [
        ({}, []),
        ({"model_sha256": "b"}, ["the weights of the model"]),
        ({"encoder_sha256": "b"}, ["the weights of the encoder"]),
        ({"data": {"questions": {"n": 1, "sha256": "y"}}}, ["the questions"]),
        (
            {"parameters": Config().change(layout="paper").flat()},
            ["layout ('shared', recorded 'paper')"],
        ),
    ],
)
def test_runs_of_other_weights_data_or_parameters_differ(change, differences):
    run = {"parameters": Config().flat(), "adapters": {}, "model_sha256": "a"}
    run["data"] = {"questions": {"n": 1, "sha256": "x"}}
    assert compare.changed(run, run | change) == differences


def test_a_digest_changes_with_every_field():
    others = [
        replace(Q1, answers=("x",)),
        replace(Q1, gold_passages=()),
        replace(Q1, kind="x"),
        replace(Q1, id="x"),
    ]
    digests = {digest([question]) for question in [Q1, *others]}
    assert len(digests | {digest([Q1, Q1])}) == 6


def test_questions_of_two_sets_differ():
    assert Question("q", "one", "x", ()) != Question("q", "two", "x", ())


def test_an_answer_in_a_title_counts_as_retrieved():
    assert metrics.holds_answer([Passage("x", "Ada Voss", "")], ("Ada Voss",))
