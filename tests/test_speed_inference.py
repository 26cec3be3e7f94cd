"""The benchmark measures what it says: both ways write the same, and ratios come out."""

from dataclasses import replace

import pytest

from covrag_lite.config import Config, Data, Model, Retrieval, World
from covrag_lite.model.local import load_model
from covrag_lite.retrieval import load_retriever
from covrag_lite.speed import inference, scaling

PROMPTS = ["who wrote it?", "where was the author of the copper lanterns born, and when?", "why", "who wrote it?" * 9]


@pytest.fixture(scope="module")
def settings(tiny_folder):
    return Config(
        model=Model(model=str(tiny_folder), max_answer_tokens=5, max_revised_tokens=6),
        data=Data(n_questions=1),
        world=World(n_passages=1000),
    )


@pytest.fixture(scope="module")
def loaded(settings):
    return load_model(settings.model)


def test_forced_and_masked_verdicts_are_the_same_text_in_fewer_passes(loaded):
    frame = inference.verdicts(loaded, PROMPTS)
    assert frame.loc["forced", "same"] == frame.loc["forced", "n"] == 4
    assert frame.loc["forced", "fewer_passes"] > 2.5 and (frame[["faster", "seconds"]] > 0).all(axis=None)


def test_batches_answer_what_single_questions_do(loaded, settings):
    frame = inference.batches(loaded, PROMPTS, 8, load_model(settings.model).network)
    assert list(frame.index) == ["one at a time, as loaded", "one at a time", "batches"] and (frame.same == 4).all()
    assert (frame.faster > 0).all() and frame.loc["one at a time, as loaded", "passes"] == frame.loc[
        "one at a time", "passes"
    ]
    assert frame.loc["batches", "passes"] < frame.loc["one at a time", "passes"]


def test_two_rounds_are_taken_apart_by_stage_in_both_layouts(loaded, settings, questions, passages):
    frame = inference.rounds(settings, loaded, load_retriever(Retrieval(k=2), passages), questions)
    assert frame.loc["search, paper layout", "passes"] == 0 and (frame.times_rag > 0).all()
    assert (
        frame.loc["CoV-RAG, paper layout", "passes"]
        >= frame.loc[["answer, paper layout", "verify, paper layout"], "passes"].sum()
        > 0
    )
    assert frame.loc["answer and verify, shared layout", "passes"] > 0
    assert frame.loc[["answer, shared layout", "verify, shared layout"], "passes"].sum() == 0  # journaled by then


def test_our_own_work_and_the_index_are_measured(settings):
    frame = scaling.overhead(settings, (20, 40))
    assert list(frame.index) == ["20 questions", "40 questions"] and (frame[["cheaper", "ms_per_question"]] > 0).all(
        axis=None
    )
    frame = scaling.bm25(settings, (1000,), 10)
    assert frame.loc["ours, 1,000 passages", "faster"] > 0 and frame.loc["rank_bm25, 1,000 passages", "faster"] == 1


def test_a_larger_shape_with_random_weights_stays_in_four_bits(settings):
    from bitsandbytes.nn import Linear4bit

    made = inference.random_model(replace(settings, model=replace(settings.model, device="cpu")), "tiny")
    assert any(isinstance(layer, Linear4bit) for layer in made.quick_network.modules()) and made.generate(PROMPTS, 2)
