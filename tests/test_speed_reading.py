"""Ways of reading prompts are measured on one network: they read the same, and one that fails is a row."""

import pytest

from benchmarks import profiling, reading
from covrag_lite.config import Config, Model, Retrieval
from covrag_lite.engine import varlen_prefill as packed
from covrag_lite.engine.local import load_model
from covrag_lite.retrieval import load_retriever


@pytest.fixture(scope="module")
def settings(tiny_folder):
    return Config(model=Model(model=str(tiny_folder), max_answer_tokens=5, max_revised_tokens=6))


@pytest.fixture(scope="module")
def loaded(settings):
    return load_model(settings.model)


@pytest.fixture
def search(passages):
    return load_retriever(Retrieval(k=2), passages)


def test_every_way_reads_the_same_and_says_where_time_goes(settings, loaded, search, questions, monkeypatch):
    monkeypatch.setattr(profiling, "SMALL", 16)  # the sides of tiny weights are small too
    tables = []
    frame = reading.against(settings, loaded, search, questions, note=tables.append)
    assert [len(one) for one in tables] == list(range(1, len(frame) + 1))
    assert "failure" not in frame
    ways = [f"read, {way}" for way in reading.ways_of(loaded)]
    written = [f"{stage}, {way}" for stage in ("answers", "verdicts") for way in (reading.PLAIN, reading.BEST)]
    assert (frame.same[ways + written] == len(questions)).all()
    assert (frame.faster[ways + written] > 0).all()
    assert (frame.padded_tokens[ways] > frame.tokens[ways]).all()
    assert frame.passes[f"verdicts, {reading.BEST}"] > 0
    profiles = frame.loc[[f"profile, {way}" for way in (reading.PLAIN, reading.BEST)]]
    assert (profiles[["products_ms", "attention_ms", "elementwise_ms"]] > 0).all(axis=None)


def test_a_way_that_fails_is_a_row_with_its_words(settings, loaded, search, questions, monkeypatch):
    def fail(*_):
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(packed, "attend_packed", fail)
    with pytest.warns(UserWarning, match="not read packed"):
        frame = reading.against(settings, loaded, search, questions)
    assert frame.failure["read, packed"] == "RuntimeError: no kernel image is available"
    assert frame.same["read, compiled steps"] == len(questions)
    assert frame.failure[f"answers, {reading.BEST}"] == "RuntimeError: no kernel image is available"


@pytest.mark.parametrize(
    ("name", "shapes", "kind"),
    [
        ("aten::mm", [[900, 1536], [1536, 48]], "adapter"),
        ("aten::addmm_", [[900, 17920], [900, 32], [32, 17920], [], []], "adapter"),
        ("aten::addmm", [[2048], [900, 1536], [1536, 2048], [], []], "products"),
        ("aten::mm", [], "products"),
        ("aten::_efficient_attention_forward", [[2, 450, 12, 128]], "attention"),
        ("aten::copy_", [[2, 2, 6, 450, 128], [2, 2, 6, 450, 128]], "attention"),
        ("aten::copy_", [[2, 2, 450, 128], [2, 2, 450, 128]], "cache"),
        ("aten::copy_", [[2, 450, 1536], [2, 450, 1536]], "elementwise"),
        ("aten::index", [[900, 2, 128], []], "cache"),
        ("triton_poi_fused_mul_silu_0", [], "elementwise"),
    ],
)
def test_work_is_told_apart_by_operator_and_sizes(name, shapes, kind):
    assert profiling.kind_of(name, shapes) == kind
