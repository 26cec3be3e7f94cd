"""The steps of training: who learns from what, and who answers what."""

from covrag_lite import recipe
from covrag_lite.config import Config


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
