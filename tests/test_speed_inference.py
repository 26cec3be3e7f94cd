"""The benchmark measures what it says: both ways write the same, and ratios come out."""

from dataclasses import replace

import pytest

from covrag_lite.config import Config, Data, Model, Retrieval, World
from covrag_lite.model.local import load_model
from covrag_lite.retrieval import load_retriever
from covrag_lite.speed import inference, replaying, scaling

PROMPTS = ["who wrote it?", "where was the author of the copper lanterns born, and when?", "why", "who wrote it?" * 9]


@pytest.fixture(scope="module")
def settings(tiny_folder):
    return Config(
        model=Model(model=str(tiny_folder), max_answer_tokens=5, max_revised_tokens=6),
        data=Data(n_questions=1),
        world=World(n_passages=1000, n_test=50),
    )


@pytest.fixture(scope="module")
def loaded(settings):
    return load_model(settings.model)


def test_forced_and_masked_verdicts_are_the_same_text_in_fewer_passes(loaded):
    frame = inference.verdicts(loaded, PROMPTS)
    assert frame.loc["forced", "same"] == frame.loc["forced", "n"] == 4
    assert frame.loc["forced", "fewer_passes"] > 2.5
    assert (frame[["faster", "seconds"]] > 0).all(axis=None)


def test_batches_answer_what_single_questions_do(loaded, settings):
    frame = inference.batches(loaded, PROMPTS, 8, load_model(settings.model).network)
    assert list(frame.index) == ["one at a time, as loaded", "one at a time", "batches"]
    assert (frame.same == 4).all()
    assert (frame.faster > 0).all()
    passes = frame.passes
    assert passes["one at a time, as loaded"] == passes["one at a time"] > passes["batches"]


def test_two_rounds_are_taken_apart_by_stage_in_both_layouts(loaded, settings, questions, passages):
    search = load_retriever(Retrieval(k=2), passages)
    frame = inference.rounds(settings, loaded, search, questions)
    assert (frame.times_rag > 0).all()
    passes = frame.passes
    assert passes["search, paper layout"] == 0
    first_round = passes["answer, paper layout"] + passes["verify, paper layout"]
    assert passes["CoV-RAG, paper layout"] >= first_round > 0
    assert passes["answer and verify, shared layout"] > 0
    assert passes["answer, shared layout"] + passes["verify, shared layout"] == 0  # journaled by then


def test_our_own_work_and_the_index_are_measured(settings):
    frame = scaling.overhead(settings, (20, 40))
    assert list(frame.index) == ["20 questions", "40 questions"]
    assert (frame[["cheaper", "ms_per_question"]] > 0).all(axis=None)
    frame = scaling.bm25(settings, (1000,), 10)
    assert frame.faster["ours, 1,000 passages"] > 0
    assert frame.faster["engine, 1,000 passages"] > 0
    assert frame.faster["rank_bm25, 1,000 passages"] == 1


def test_a_larger_shape_with_random_weights_stays_in_four_bits(settings):
    from bitsandbytes.nn import Linear4bit

    on_cpu = replace(settings, model=replace(settings.model, device="cpu"))
    made = inference.random_model(on_cpu, "tiny")
    assert any(isinstance(layer, Linear4bit) for layer in made.quick_network.modules())
    assert made.generate(PROMPTS, 2)


def test_steps_by_graphs_are_measured_against_those_without(settings, questions, passages):
    loaded = load_model(settings.model)
    changed = replace(settings, model=replace(settings.model, max_answer_tokens=12, max_revised_tokens=12))
    search = load_retriever(Retrieval(k=2), passages)
    frame = replaying.against(changed, loaded, search, questions)
    stages = [
        f"{stage}, {way}" for stage in ("answers", "verdicts") for way in ("eager", "graphs, recording", "graphs")
    ]
    assert set(stages) < set(frame.index)
    assert (frame.same[stages] == len(questions)).all()
    assert frame.recorded["answers, graphs"] > 0 == frame.recorded["answers, eager"]
    assert not frame.given_up[stages].any()
    steps = frame.steps
    assert steps["answers, eager"] == steps["answers, graphs"] > 0
    assert frame.passes["answers, eager"] > 0
    assert (frame.faster[stages] > 0).all()
    assert frame.times_rag["one round, graphs"] == 1 < frame.times_rag["two rounds, paper layout, graphs"]
    assert frame.per_second["two rounds, shared layout, graphs"] > 0


def test_a_row_that_time_is_too_short_for_says_so(settings, loaded, questions, passages):
    search = load_retriever(Retrieval(k=2), passages)
    frame = replaying.against(settings, loaded, search, questions, seconds=0)
    assert frame.failure["answers, graphs"] == "not begun, because 0 seconds were over"
