"""The thresholds of σ are chosen on other questions than those they are judged on."""

import json

from covrag_lite import evaluate
from covrag_lite.check.compare import compare_file
from covrag_lite.config import Config
from covrag_lite.runs.outcomes import save_outcomes, save_predictions
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import sigma


def run(passages, questions, scripted, tmp_path):
    config = Config().change(k=2, runs=str(tmp_path))
    return evaluate.run_system("CoV-RAG", config, evaluate.load_resources(config, passages, scripted), questions)


def test_thresholds_are_kept_beside_the_adapter_they_were_fitted_for(passages, questions, scripted, tmp_path):
    predictions = run(passages, questions, scripted, tmp_path) * 10
    config = Config().change(adapters_out=str(tmp_path / "adapters"))
    (tmp_path / "adapters" / "cov").mkdir(parents=True)
    assert len(sigma.fit(config, predictions)) == 6
    kept = json.loads((tmp_path / "adapters" / "cov" / "sigma.json").read_text())
    assert kept == sigma.cross_validate_sigma(predictions)[0]
    assert sigma.fit(config, []) is None


def test_the_rules_can_be_made_again_from_what_came_of_the_validation_questions(
    passages, questions, scripted, tmp_path
):
    predictions = run(passages, questions, scripted, tmp_path)
    save_predictions(tmp_path / "sigma.predictions.jsonl.xz", predictions)
    save_outcomes(tmp_path / "sigma.outcomes.csv.gz", predictions)
    nowhere = Config().change(data=str(tmp_path / "nowhere"), split="validation")
    record = Recorded(tmp_path, "sigma", {"parameters": nowhere.flat(), "data": {}})
    sigma.build(predictions, record).save(tmp_path)
    sigma.build(sigma.load(record), record).save(tmp_path / "again")
    assert compare_file(tmp_path / "sigma.csv", tmp_path / "again" / "sigma.csv") == []
