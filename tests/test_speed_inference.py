"""The benchmark measures what it says: both ways write the same, and ratios come out."""

import json
import sys
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import pytest
from peft import LoraConfig, get_peft_model

from benchmarks import continuous, inference, replaying, scaling, stages
from benchmarks.rows import Rows, known_rows
from covrag_lite.config import Config, Data, Model, Retrieval, World
from covrag_lite.engine.local import load_model
from covrag_lite.retrieval import load_retriever

PROMPTS = ["who wrote it?", "where was the author of the copper lanterns born, and when?", "why", "who wrote it?" * 9]


@pytest.fixture(scope="module")
def settings(tiny_folder):
    return Config(
        model=Model(model=str(tiny_folder), max_answer_tokens=5, max_revised_tokens=6),
        data=Data(n_questions=1),
        world=World(n_passages=1000, n_world=(50, 1200, 200)),
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


def test_the_shared_layout_is_measured_with_an_adapter_of_its_own_where_there_is_one(loaded, settings, monkeypatch):
    asked = []
    monkeypatch.setattr(stages, "find_adapter", lambda model, name, _: asked.append(model.layout) or "a folder")
    views = [stages.view_in(replace(settings.model, layout=layout), loaded) for layout in ("paper", "shared")]
    assert [view.adapter for view in views] == [None, "a folder"] and asked == ["shared"]
    monkeypatch.setattr(stages, "find_adapter", lambda *_: None)
    assert stages.view_in(replace(settings.model, layout="shared"), loaded).adapter is None


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
    stages = [f"{stage}, {way}" for stage in ("answers", "verdicts") for way in replaying.TEXTS]
    assert set(stages) < set(frame.index)
    assert (frame.same[stages] == len(questions)).all()
    assert frame.recorded["answers, graphs"] > 0 == frame.recorded["answers, eager"]
    assert not frame.given_up[stages].any()
    steps = frame.steps
    assert steps["answers, eager"] == steps["answers, graphs"] > 0
    assert frame.passes["answers, eager"] > 0
    assert (frame.faster[stages] > 0).all()
    for way in replaying.WAYS:
        assert frame.times_rag[f"one round, {way}"] == 1 < frame.times_rag[f"two rounds, paper layout, {way}"]
    assert frame.faster["two rounds, paper layout, packed"] > 0
    assert frame.per_second["two rounds, shared layout, packed"] > 0


def test_a_row_that_time_is_too_short_for_says_so(settings, loaded, questions, passages):
    search = load_retriever(Retrieval(k=2), passages)
    frame = replaying.against(settings, loaded, search, questions, seconds=0)
    assert frame.failure["answers, graphs"] == "not begun, because 0 seconds were over"


@pytest.fixture(scope="module")
def trained(settings, tmp_path_factory):
    """The same settings with adapters that were trained in the paper's layout, as their manifests say."""
    folder = tmp_path_factory.mktemp("adapters")
    network = load_model(replace(settings.model, quantize="none"))._network
    get_peft_model(network, LoraConfig(r=2, target_modules="all-linear")).save_pretrained(folder / "cov")
    (folder / "cov" / "manifest.json").write_text(json.dumps({"parameters": {"layout": "paper"}}))
    return replace(settings, model=replace(settings.model, adapters=str(folder)))


def test_an_adapter_of_one_layout_is_timed_in_the_other(trained, questions, passages):
    search = load_retriever(Retrieval(k=2), passages)
    frame = inference.rounds(trained, load_model(trained.model), search, questions)
    assert frame.n["answer and verify, shared layout"] == len(questions)
    assert frame.passes["CoV-RAG, shared layout"] > 0


@pytest.mark.parametrize("execution, expected", [("eager", (3.0, 3.0)), ("compiled+graph", (3.0, 2.0))])
def test_what_is_recorded_or_compiled_in_a_first_time_does_not_count(execution, expected, monkeypatch):
    later = ({"answer": {"seconds": seconds}} for seconds in (1.0, 4.0, 2.0))  # the middle one counts
    times = chain([{"answer": {"seconds": 1.0}, "verify": {"seconds": 2.0}}], later)
    monkeypatch.setattr(stages, "time_stages", lambda *_: next(times))
    first, taken = stages.time_settled(None, SimpleNamespace(execution=execution), None, ())
    assert (first, stages.seconds_of(taken)) == expected


@pytest.mark.parametrize("part", ["graphs", "continuous"])
def test_a_run_that_is_killed_leaves_the_rows_that_it_has_measured(part, settings, tmp_path, monkeypatch):
    seen = []
    out = tmp_path / "speed.json"

    def killed(*_):
        seen.append(json.loads(out.read_text())[part])
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "time_stages", killed)
    monkeypatch.setattr(inference, "Config", lambda **_: settings)
    model = ["--model", settings.model.model, "--questions", "2"]
    monkeypatch.setattr(sys, "argv", ["inference", "--parts", part, "--out", str(out), *model])
    with pytest.raises(KeyboardInterrupt):
        inference.main()
    before = seen[0]
    assert before == json.loads(out.read_text())[part]
    first = "eager" if part == "graphs" else "ours"
    assert before[f"answers, {first}"]["seconds"] > 0 and before[f"verdicts, {first}"]["seconds"] > 0


@pytest.mark.parametrize("module", [replaying, continuous])
def test_a_stage_that_fails_is_a_row_and_not_the_end(module, settings, questions, passages, monkeypatch):
    def fails(*_):
        raise RuntimeError("CUDA out of memory\nand more")

    search = load_retriever(Retrieval(k=2), passages)
    for owner in (stages, module):
        monkeypatch.setattr(owner, "time_stages", fails, raising=False)
    frame = module.against(settings, load_model(settings.model), search, questions)
    failed = frame.failure.dropna()
    assert set(failed) == {"RuntimeError: CUDA out of memory"} and failed.index.str.startswith("two rounds").all()
    assert (frame.per_second.drop(failed.index) > 0).all()
    monkeypatch.setattr(module, "time_texts", fails)
    frame = module.against(settings, load_model(settings.model), search, questions)
    assert frame.failure.notna().all()
    ours = "eager" if module is replaying else "ours"
    assert frame.failure[f"verdicts, {ours}"] == f"LookupError: it needs 'answers, {ours}', which was not measured"


def test_no_row_is_begun_after_its_time():
    rows = Rows(0, noted := [].append)
    rows.take("first", lambda: {"first": {"seconds": 1.0}}, always=True)
    rows.take("second", lambda: {"second": {"seconds": 1.0}})
    assert rows.made["second"] == {"failure": "not begun, because 0 seconds were over"}
    assert rows.made["first"] == {"seconds": 1.0} and noted.__self__ == [rows.made] * 2


def test_continuous_batching_is_laid_out_for_all_prompts_though_its_first_round_is_short(monkeypatch, settings, loaded):
    peer = continuous.Continuous(loaded)
    rounds = []

    def generate(prompts, limit):
        rounds.append(len(prompts))
        ids = [[1] * 9] * len(prompts)
        if len(rounds) == 1:
            sizes = peer.pages(ids, 5)
            assert sizes.num_blocks >= 100 * 2  # two pages for each of the hundred to come
            peer.model.device = "cuda"
            assert peer.pages(ids, 5).max_requests_per_batch == 100
            peer.model.device = "cpu"
        return ["so"] * len(prompts)

    monkeypatch.setattr(peer, "generate", generate, raising=False)
    row, texts = continuous.time_texts(peer, "answers", [f"prompt {n}" for n in range(100)], 5)
    assert rounds == [32, 100] and row["n"] == len(texts) == 100


def test_no_engine_is_timed_on_prompts_that_it_has_read_before(monkeypatch, loaded):
    peer = continuous.Continuous(loaded)
    read = []

    def generate(prompts, limit):
        read.append(set(prompts))
        return ["so"] * len(prompts)

    monkeypatch.setattr(peer, "generate", generate, raising=False)
    given = [f"prompt {n} of many" for n in range(5)]
    continuous.time_texts(peer, "answers", given, 5)
    warm_up, timed = read
    assert timed == set(given) and not warm_up & timed
    assert sorted(map(len, warm_up)) == sorted(map(len, timed))


def test_a_broken_record_is_named_and_left_as_it_is(tmp_path):
    out = tmp_path / "peers.json"
    assert known_rows(out) == known_rows(None) == []
    for content in ("{", "", "[]", "{}"):
        out.write_text(content)
        with pytest.raises(SystemExit, match="peers.json is no record of an earlier run"):
            known_rows(out)
        assert out.read_text() == content
