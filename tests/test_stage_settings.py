"""What every stage of a replication is given: questions, seed, adapters, samples, retriever."""

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from conftest import write_jsonl

from covrag_lite import data
from covrag_lite.config import ALL, Config
from covrag_lite.records import Passage, Prediction, Round, Sample
from covrag_lite.replication import stages
from covrag_lite.replication.plan import load_plans
from covrag_lite.systems import evaluate
from covrag_lite.systems.names import COV_RAG, COV_RAG_FREE, NO_CHAIN
from covrag_lite.training import recipe, sources
from covrag_lite.training.sample_files import save_samples

# Files of questions, with the number of questions in each.
FILES = {
    "nq": 3,
    "x_nq": 2,
    "train_nq": 9,
    "validation_nq": 3,
    "train_nq_qa": 9,
    "validation_nq_qa": 1,
}


@pytest.fixture
def plans(tmp_path):
    """The plans of two seeds on a folder whose questions are called like their files."""
    for name, n in FILES.items():
        rows = [
            {"id": f"{name}-{i}", "question": f"{name} {i}?", "answers": ["a"]} for i in range(n)
        ]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    changes = {"data": str(tmp_path), "runs": str(tmp_path / "runs"), "validation": "2"}
    return load_plans("smollm2-135m", changes, (1, 2))


# Questions.


@pytest.fixture
def answered(monkeypatch):
    """The parameters with which questions were answered, by table."""
    configs = {}

    def answer(plan, config, table):
        configs[table] = config
        return f"predictions of {table}"

    monkeypatch.setattr(stages, "answer", answer)
    return configs


@pytest.fixture
def fitted(plans, answered, monkeypatch):
    """The parameters and predictions on which σ was fitted for the second seed."""
    calls = []

    def fit(*words):
        calls.append(words)
        return pd.DataFrame()

    monkeypatch.setattr(stages.sigma, "fit", fit)
    stages.fit_sigma(plans[1])
    return calls[0]


def ids(questions):
    return [question.id for question in questions]


def test_sigma_is_fitted_on_validation_questions_of_every_training_set(fitted):
    config, _ = fitted
    expected = ["validation_nq-0", "validation_nq-1", "validation_nq_qa-0"]
    assert ids(data.load_questions(config)) == expected


def test_sigma_sees_no_test_question(fitted):
    config, _ = fitted
    held_out = {question.question for question in data.reserved(config)["test"]}
    assert held_out.isdisjoint(question.question for question in data.load_questions(config))


def test_sigma_is_fitted_on_the_answers_of_cov_rag_alone(fitted):
    config, predictions = fitted
    assert config.chain.systems == (COV_RAG,)
    assert predictions == "predictions of sigma"


def test_sigma_is_saved_with_the_adapters_of_its_seed(fitted, plans):
    config, _ = fitted
    assert config.training.adapters_out == plans[1].training().training.adapters_out


def test_the_claim_is_tested_on_its_own_sets(plans, answered):
    stages.run_table(plans[0], "claim")
    assert data.choose_sets(answered["claim"]) == ("nq", "x_nq")


@pytest.mark.parametrize("table", ["table2", "table4", "table5"])
def test_a_table_is_made_from_all_questions_of_the_test_sets(plans, answered, table):
    stages.run_table(plans[0], table)
    assert ids(data.load_questions(answered[table])) == ["nq-0", "nq-1", "nq-2"]


def test_free_verdicts_are_written_for_every_nth_question(plans, monkeypatch):
    asked = {}

    def run_system(system, config, resources, questions):
        asked[system] = ids(questions)
        return []

    monkeypatch.setattr(stages, "load_passages", lambda config: [])
    monkeypatch.setattr(stages, "load_resources", lambda *words: None)
    monkeypatch.setattr(stages, "record", lambda *words: None)
    monkeypatch.setattr(evaluate, "run_system", run_system)
    systems = (NO_CHAIN, COV_RAG_FREE)
    stages.answer(plans[0], plans[0].testing(systems=systems, free_every=2), "table5")
    assert asked == {NO_CHAIN: ["nq-0", "nq-1", "nq-2"], COV_RAG_FREE: ["nq-0", "nq-2"]}


def test_validation_and_test_questions_are_reserved_whatever_is_chosen(plans):
    few = plans[0].testing(datasets=("nq",), n_questions=1)
    questions = data.reserved(few)
    assert ids(questions["test"]) == [f"nq-{i}" for i in range(3)] + ["x_nq-0", "x_nq-1"]
    assert len(questions["validation"]) == 4


def test_undrawn_test_questions_are_reserved(plans, monkeypatch):
    drawn = []

    def questions(config, split, dataset):
        drawn.append(config.data.sample)
        return []

    kind = data.kind_of(plans[0].config)
    monkeypatch.setattr(kind, "questions", questions)
    data.reserved(plans[0].testing(sample=400))
    assert set(drawn) == {0}


def test_reserved_questions_are_those_of_all_sets(plans):
    chosen = plans[0].testing(datasets=("x_nq",))
    assert data.reserved(chosen) == data.reserved(chosen.change(datasets=ALL))


@pytest.fixture(scope="module")
def worlds():
    """The training sources of two small worlds, and their parameters."""
    config = Config().change(
        n_passages=1000, n_world=(8, 20, 8), n_worlds=2, n_train_questions=6, k=2, n_questions=1
    )
    return sources.load_sources(config), config


def test_each_training_world_has_a_seed_of_its_own(worlds):
    (first, second), _ = worlds
    assert {question.id.partition("-")[0] for question in first.questions} == {"world1"}
    assert {question.id.partition("-")[0] for question in second.questions} == {"world2"}


def test_worlds_of_different_seeds_share_no_passage(worlds):
    (first, second), _ = worlds
    texts = {passage.text for passage in first.passages}
    assert texts.isdisjoint(passage.text for passage in second.passages)


def test_a_training_world_is_searched_for_its_own_passages(worlds):
    for source in worlds[0]:
        (found,) = source.search([source.questions[0].question])
        assert set(found) <= set(source.passages)


def test_a_system_in_training_reads_k_passages_and_the_annotator_more(worlds):
    (source, _), config = worlds
    question = source.questions[0].question
    k = config.retrieval.k
    assert len(source.search([question])[0]) == k
    assert source.deep([question])[0][:k] == source.search([question])[0]
    assert len(source.deep([question])[0]) > k


def test_so_many_questions_of_each_world_are_learnt(worlds):
    assert [len(source.questions) for source in worlds[0]] == [6, 6]


@pytest.fixture
def cited(plans, monkeypatch):
    """The source of a set whose questions have references of their own, limited to two of three."""
    texts = ["the river Stell", "the town of Mere", "the hill Harrow"]
    rows = [
        {"question": f"where is {text}?", "references": [text, f"{text}, again"], "answer": "here"}
        for text in texts
    ]
    kind = SimpleNamespace(read_cited=lambda config, dataset: enumerate(rows, 1))
    monkeypatch.setattr(sources, "kind_of", lambda config: kind)
    monkeypatch.setattr(sources, "choose_sets", lambda config: ("webglm",))
    monkeypatch.setattr(sources, "check_disjoint", lambda questions, config: "")
    (source,) = sources.load_sources(plans[0].config.change(n_train_questions=2, k=2))
    return source


def test_so_many_cited_questions_are_learnt(cited):
    assert ids(cited.questions) == ["webglm-1", "webglm-2"]


def test_a_cited_question_that_comes_twice_keeps_its_first_references(plans):
    rows = [
        {"question": "where?", "references": [place], "answer": place}
        for place in ("here", "there")
    ]
    config = plans[0].config.change(k=1)
    source = sources._build_cited(config, "webglm", enumerate(rows, 1))
    assert ids(source.questions) == ["webglm-1"]
    assert [passage.text for passage in source.search(["where?"])[0]] == ["here"]


def test_a_cited_question_reads_its_own_references(cited):
    (found,) = cited.search(["where is the town of Mere?"])
    assert ids(found) == ["webglm-2-1", "webglm-2-2"]


def test_the_references_of_a_cited_question_are_its_gold_passages(cited):
    assert cited.questions[0].gold_passages == ("webglm-1-1", "webglm-1-2")


def test_any_other_query_searches_all_references(cited):
    (found,) = cited.search(["Stell"])
    assert ids(found)[0] in ("webglm-1-1", "webglm-1-2")
    assert len(found) == 2


def test_no_question_of_a_training_world_is_a_test_question(worlds):
    of_worlds, config = worlds
    held_out = set()
    for seed in (1, 2):
        for questions in data.reserved(config.change(seed=seed)).values():
            held_out.update(question.question for question in questions)
    for source in of_worlds:
        assert held_out.isdisjoint(question.question for question in source.questions)


def test_a_test_question_is_not_learnt_although_a_training_question_has_its_text(
    worlds, monkeypatch
):
    of_worlds, config = worlds
    same = replace(of_worlds[0].questions[0], id="test-0")
    reserved = {"test": [same], "validation": []}
    monkeypatch.setattr(sources, "reserved", lambda config: reserved)
    for source in sources.load_sources(config):
        assert same.question not in [question.question for question in source.questions]


# Seeds, adapters and samples.


def test_each_seed_trains_with_its_own_number(plans):
    assert [plan.training().training.training_seed for plan in plans] == [1, 2]


def test_each_seed_is_tested_with_its_own_adapters(plans):
    folders = [plan.testing().model.adapters for plan in plans]
    assert [folder.rpartition("/seed-")[2] for folder in folders] == ["1/adapters", "2/adapters"]


def test_the_first_seed_is_the_first_of_the_settings(plans):
    assert [plan.first for plan in plans] == [True, False]


@pytest.fixture
def seed_training(plans, monkeypatch):
    """The parameters with which the data of the second seed was made."""
    configs = []

    def train_seeds(config, sources):
        configs.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "load_sources", lambda config: [])
    monkeypatch.setattr(stages.recipe, "train_seeds", train_seeds)
    with pytest.raises(KeyboardInterrupt):
        stages.make_data(plans[1])
    return configs[0]


def test_the_data_is_the_same_whichever_seed_makes_it(seed_training, plans):
    assert seed_training.training.training_seed == 1
    assert "seed-2" not in seed_training.training.adapters_out


def save_all(plan, methods):
    plan.folder.mkdir(parents=True)
    for method in methods:
        save_samples(stages.samples_file(plan, method), [Sample(method, "answer", "?", ("!",))])


def test_an_adapter_learns_its_own_samples(plans, monkeypatch):
    learnt = {}

    def train_adapter(config, method, samples):
        learnt[method] = ids(samples)
        write_jsonl(stages.resolve(config.training.adapters_out) / method / "manifest.json", [])
        return pd.DataFrame()

    monkeypatch.setattr(stages.recipe, "train_adapter", train_adapter)
    save_all(plans[0], stages.METHODS)
    plans[0].results.mkdir()
    for method in stages.METHODS:
        stages.train(plans[0], method)
    assert learnt == {method: [method] for method in stages.METHODS}


def test_the_data_is_not_made_before_the_samples_of_every_method(plans):
    save_all(plans[0], stages.METHODS[:-1])
    assert not stages.list_all_steps(plans[0])[0].done


# Retrievers.


@pytest.fixture
def parts(plans, monkeypatch):
    """Table 6's parts; each search finds one passage, named after its retriever."""

    def load_retriever(settings, passages):
        found = Passage(settings.retriever, "", "")
        return lambda queries: [[found] for _ in queries]

    def load_resources(config, passages):
        return evaluate.Resources(load_retriever(config.retrieval, passages), None, None)

    def run_system(system, config, resources, questions):
        predictions = []
        for question, found in zip(questions, resources.search(ids(questions))):
            predictions.append(Prediction(question, system, (Round("", tuple(found), ""),)))
        return predictions

    recorded = {}
    monkeypatch.setattr(stages, "load_passages", lambda config: [])
    monkeypatch.setattr(stages, "load_retriever", load_retriever)
    monkeypatch.setattr(stages, "load_resources", load_resources)
    monkeypatch.setattr(evaluate, "run_system", run_system)
    monkeypatch.setattr(stages, "record", lambda *words: recorded.update(words[3]))
    config = plans[0].testing(systems=(COV_RAG,), retrievers=("bm25", "dense"), n_questions=2)
    stages.answer_by_retriever(plans[0], config)
    return recorded


@pytest.mark.parametrize("name", ["bm25", "dense"])
def test_every_search_of_a_part_of_table_6_is_that_of_its_retriever(parts, name):
    found = {
        passage.id
        for prediction in parts[name]
        for searched in prediction.rounds
        for passage in searched.passages
    }
    assert found == {name}


def test_without_a_model_all_questions_are_searched(parts):
    answered = [p for p in parts["bm25"] if p.system == COV_RAG]
    searched = [p for p in parts["bm25"] if p.system != COV_RAG]
    assert (len(answered), len(searched)) == (2, 3)


# What the settings say.


def test_the_command_wins_over_the_settings_of_public_data(tmp_path):
    plans = load_plans("qwen2.5-coder-1.5b", {"retriever": "bm25", "runs": str(tmp_path)})
    assert plans[0].config.retrieval.retriever == "bm25"


def test_a_backbones_own_settings_win_over_the_common_ones():
    assert load_plans("smollm2-135m-world", {})[0].settings["test_sets"] == ALL


def test_a_replication_does_not_continue_with_other_settings_of_its_plan(plans):
    stages.save_plan(plans[0])
    (plans[0].folder / "rag.samples.jsonl.gz").touch()
    changed = {"data": plans[0].config.data.data, "runs": plans[0].config.run.runs}
    (other,) = load_plans("smollm2-135m", changed | {"validation": "3"}, (1,))
    with pytest.raises(ValueError, match="validation was 2 and is 3"):
        stages.refuse_changes(other)


def test_the_plan_of_a_started_replication_is_kept(plans):
    stages.save_plan(plans[0])
    before = (plans[0].folder / "plan.json").read_bytes()
    plans[0].results.mkdir()
    (plans[0].results / "table2.md").touch()
    changed = {"data": plans[0].config.data.data, "runs": plans[0].config.run.runs}
    (other,) = load_plans("smollm2-135m", changed | {"validation": "3"}, (1,))
    stages.save_plan(other)
    assert (plans[0].folder / "plan.json").read_bytes() == before


def test_the_claims_of_all_seeds_are_pooled(plans, monkeypatch):
    pooled = {}

    class Run:
        def __init__(self, seed, table):
            self.folder = plans[0].folder / f"seed-{seed}"
            self.table = table

    runs = [Run(1, "claim"), Run(1, "table2"), Run(2, "claim")]
    monkeypatch.setattr(stages, "find_under", lambda folder: runs)
    monkeypatch.setattr(stages, "load_or_outcomes", lambda run: (run.folder.name, run.table))
    monkeypatch.setattr(stages, "to_frame", lambda loaded: loaded)

    class Built:
        def save(self, folder):
            return ""

    def build_seeds(frames):
        pooled.update(frames)
        return Built()

    monkeypatch.setattr(stages, "build_seeds", build_seeds)
    stages.pool_seeds(plans[0].folder)
    assert pooled == {"1": ("seed-1", "claim"), "2": ("seed-2", "claim")}


def test_a_resumed_training_counts_the_seconds_of_earlier_sessions(plans, monkeypatch, tmp_path):
    manifests = []
    losses = pd.DataFrame({"loss": [1.0, 0.5], "seconds": [3000.0, 20.0]})
    monkeypatch.setattr(recipe, "load_engine", lambda model: None)
    monkeypatch.setattr(recipe.qlora, "train", lambda *arguments: losses)
    monkeypatch.setattr(
        recipe,
        "build_manifest",
        lambda config, model, seconds, **data: manifests.append(seconds) or {},
    )
    monkeypatch.setattr(recipe, "write_json", lambda path, manifest: None)
    recipe.train_adapter(plans[0].config.change(adapters_out=str(tmp_path)), "rag", [])
    assert manifests == [3020.0]
