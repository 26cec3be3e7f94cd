"""The steps of training: who learns from what, and who answers what."""

from types import SimpleNamespace

import pytest

from covrag_lite import recipe, synthesis
from covrag_lite.config import Config
from covrag_lite.records import Passage, Question
from covrag_lite.sources import Source, load_searches

CONFIG = Config().change(k=1)


@pytest.fixture
def source():
    """Twenty books with a passage each; half are by Edith."""
    writers = {i: "Edith" if i % 2 else "Agnes" for i in range(10, 30)}
    passages = [Passage(f"p{i}", f"Book {i}", f"{who} wrote it.") for i, who in writers.items()]
    asked = {i: f"who wrote book {i}" for i in writers}
    questions = [Question(f"q{i}", "books", asked[i], (who,), (f"p{i}",)) for i, who in writers.items()]
    return Source(questions, passages, *load_searches(CONFIG, passages))


@pytest.fixture
def seeds(monkeypatch):
    """Training and answering without a model: what each seed model learnt from, and what it was asked."""
    learnt, asked = {}, {}

    def train(config, method, samples):
        learnt[method] = {sample.id for sample in samples}

    def load(config, adapter):
        def answer(x, k):
            asked.setdefault(adapter, set()).update(f"q{question.split()[-1]}" for question in x)
            return ["Edith[1]"] * len(x)

        def say_nothing(x):
            return [""] * len(x)

        silent = dict.fromkeys(("guess", "name_terms", "name_options"), say_nothing)
        return SimpleNamespace(answer=answer, journal=None, **silent)

    monkeypatch.setattr(recipe, "train_adapter", train)
    monkeypatch.setattr(recipe, "load_trained", load)
    monkeypatch.setattr(synthesis, "BROKEN", 0.0)
    return learnt, asked


def test_every_question_is_answered_by_the_seed_model_that_has_not_learnt_from_it(source, seeds):
    learnt, asked = seeds
    recipe.train_seeds(CONFIG, [source])
    whole, _ = recipe.make_d2(CONFIG, [source])
    every = {question.id for question in source.questions}
    assert learnt["seed-1"] | learnt["seed-2"] == every
    assert asked["seed-1"] | asked["seed-2"] == every
    for name in ("seed-1", "seed-2"):
        assert len(learnt[name]) == 10
        assert not learnt[name] & asked[name]
    assert {one.question.id for one in whole if one.kind == "retrieved"} == every


def test_a_seed_model_that_is_never_right_is_named_as_what_is_missing(source, seeds):
    wrong = [question for question in source.questions if question.answers == ("Agnes",)]
    hopeless = Source(wrong, source.passages, source.search, source.deep)
    with pytest.raises(ValueError, match="D2' is empty: 0 of the seed models' .* answers are right"):
        recipe.make_d2(CONFIG, [hopeless])


def test_only_systems_whose_adapters_are_there_are_validated(monkeypatch, tmp_path):
    (tmp_path / "cov").mkdir()
    (tmp_path / "cov" / "adapter_config.json").write_text("{}")
    ran = {}

    def run(config, resources, questions):
        ran.update(systems=config.chain.systems, split=config.data.split, ids=[q.id for q in questions])

    monkeypatch.setattr(recipe.evaluate, "load_resources", lambda config, passages: None)
    monkeypatch.setattr(recipe.evaluate, "run", run)
    recipe.validate(Config().change(adapters_out=str(tmp_path), n_questions=1))
    assert ran["systems"] == ("RAG", "CoV-RAG-S", "CoV-RAG")
    assert ran["split"] == "validation"
    assert all("-validation-" in identity for identity in ran["ids"])
