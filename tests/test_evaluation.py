import json

import pandas as pd
import pytest

from covrag_lite import evaluation
from covrag_lite.config import Chain, Config, Model, Retrieval, Run
from covrag_lite.model.local import LanguageModel


@pytest.fixture
def config(tmp_path):
    return Config(retrieval=Retrieval(k=2), run=Run(runs=str(tmp_path)))


@pytest.fixture
def tools(config, passages, scripted):
    return evaluation.load_tools(config, passages, scripted)


def test_systems_that_share_their_first_round_compute_it_once(config, tools, questions, scripted):
    evaluation.run(config.with_chain(systems=("RAG", "CoV-RAG-S", "CoV-RAG")), tools, questions)
    assert len(scripted.asked) == len(set(scripted.asked))
    # first answers 4, verdicts 4, one second round at most
    assert len(scripted.asked) <= 9


def test_a_second_run_asks_the_model_nothing(config, passages, tools, questions, scripted):
    first = evaluation.run(config, tools, questions)
    asked = len(scripted.asked)
    again = evaluation.run(config, evaluation.load_tools(config, passages, scripted), questions)
    assert len(scripted.asked) == asked and again == first


def test_the_shared_layout_gives_what_its_stages_give_one_by_one_and_goes_on_after_a_stop(
    tiny_folder, passages, questions, tmp_path, monkeypatch
):
    def made(name):
        settings = Config(
            model=Model(
                model=str(tiny_folder), layout="shared", max_answer_tokens=4, max_revised_tokens=4, batch_tokens=1
            ),
            retrieval=Retrieval(k=2),
            run=Run(runs=str(tmp_path), name=name),
        ).with_chain(systems=("CoV-RAG-S", "CoV-RAG"))
        return evaluation.run(settings, evaluation.load_tools(settings, passages), questions)

    def texts(predictions):
        return [
            [(one.query, one.answer, one.verdict and one.verdict.text) for one in prediction.rounds]
            for prediction in predictions
        ]

    whole = made("whole")
    both, calls = LanguageModel.generate_and_judge, []
    monkeypatch.setattr(
        LanguageModel,
        "generate_and_judge",
        lambda *given: both(*given) if len(calls) < 1 and not calls.append(1) else 1 / 0,
    )
    with pytest.raises(ZeroDivisionError):
        made("stopped")
    monkeypatch.setattr(LanguageModel, "generate_and_judge", both)
    assert made("stopped") == whole and len(calls) == 1
    monkeypatch.setattr(evaluation, "foresee", lambda *_: None)
    assert texts(made("apart")) == texts(whole)


def test_batches_do_not_depend_on_what_is_journaled(config, tools, scripted):
    texts = [f"prompt {'x' * i}" for i in range(5)]
    evaluation.complete("answer", texts[2:3], 9, scripted, tools.journal)
    scripted.asked.clear()
    evaluation.complete("answer", texts, 9, scripted, tools.journal)
    assert scripted.asked == texts[::-1]  # the journaled one is computed again with its batch, and its first text kept


def test_the_frame_tells_what_revision_did(config, tools, questions):
    frame = evaluation.to_frame(evaluation.run(config, tools, questions))
    cov = frame[frame.system == "CoV-RAG"].set_index("id")
    assert list(frame.groupby("system", sort=False).size()) == [4] * len(config.chain.systems)
    assert cov.revised.to_dict() == {"q1": False, "q2": True, "q3": False, "q4": False}
    assert cov.loc["q2", "query"] == "Where was Edith Marrow born?" and cov.loc["q2", "judgment"] == "false"
    assert bool(cov.loc["q1", "normalised"]) and pd.isna(cov.loc["q4", "normalised"])  # q4's gold is defective
    assert cov.loc["q2", "gold_last"] and cov.verdicts.sum() == 4 and cov.unparsed.sum() == 0


def test_unknown_names_are_named(config, tools, questions):
    with pytest.raises(ValueError, match="system 'GPT-9' is not known"):
        evaluation.run_system("GPT-9", config, tools, questions)
    with pytest.raises(ValueError, match="max_rounds is 0"):
        evaluation.run(Config(chain=Chain(max_rounds=0)), tools, questions)
    with pytest.raises(ValueError, match="sigma 'luck' is not known"):
        evaluation.run(Config(chain=Chain(sigma="luck")), tools, questions)


def test_saved_predictions_hold_ids_and_outputs_but_no_question(config, tools, questions, tmp_path):
    evaluation.save_predictions(tmp_path / "p.jsonl", evaluation.run(config, tools, questions))
    text = (tmp_path / "p.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert (
        len(rows) == 4 * len(config.chain.systems) and rows[-3]["rounds"][1]["query"] == "Where was Edith Marrow born?"
    )
    assert not any(question.question in text for question in questions)


def test_the_estimate_speaks_of_what_is_left(config, tools, questions):
    assert "4 of 4 questions to do: at most" in evaluation.estimate(config, tools, questions)
    evaluation.run(config, tools, questions)
    assert "are journaled" in evaluation.estimate(config, tools, questions)


def test_a_manifest_names_code_data_and_machine(config, tools, questions, passages):
    made = evaluation.manifest(config, tools.model, 1.23, questions=questions, passages=passages)
    assert {"commit", "versions", "model_sha256", "data", "hardware", "wall_seconds", "peak_memory_gb"} <= set(made)
    assert made["data"]["questions"]["n"] == 4
    assert made["parameters"]["seed"] == 1 and json.dumps(made)


def test_sigma_thresholds_are_chosen_on_other_questions_than_they_are_judged_on(config, tools, questions):
    predictions = evaluation.run_system("CoV-RAG", config, tools, questions) * 10
    thresholds, table = evaluation.cross_validate_sigma(predictions)
    assert set(thresholds) == {"reference", "correctness", "bias", "truthfulness"}
    assert table.n.tolist() == [30, 30, 30] and table.searches.tolist()[:2] == [0, 10]  # q4's gold is defective


def test_recorded_predictions_score_as_they_did(config, tools, questions, passages, tmp_path):
    predictions = evaluation.run(config, tools, questions)
    evaluation.save_predictions(tmp_path / "p.jsonl", predictions)
    again = evaluation.load_predictions(tmp_path / "p.jsonl", questions, passages, config.model.model)
    before, after = evaluation.to_frame(predictions), evaluation.to_frame(again)
    pd.testing.assert_frame_equal(before.drop(columns="backbone"), after.drop(columns="backbone"))


def test_probabilities_survive_the_journal_and_the_predictions_file(config, passages, questions, scripted, tmp_path):
    scripted.judge = lambda batch: [(text, {"true": 0.25, "bias": 0.8}) for text in scripted.verify(batch)]
    tools = lambda: evaluation.load_tools(config, passages, scripted)
    first, again = (evaluation.run_system("CoV-RAG", config, tools(), questions) for _ in range(2))
    assert len(scripted.asked) == len(set(scripted.asked)) and first[0].rounds[0].verdict.probabilities == {
        "true": 0.25,
        "bias": 0.8,
    }
    evaluation.save_predictions(tmp_path / "p.jsonl", first)
    loaded = evaluation.load_predictions(tmp_path / "p.jsonl", questions, passages)
    for made in (again, loaded):
        assert [[one.verdict and one.verdict.probabilities for one in p.rounds] for p in made] == [
            [one.verdict and one.verdict.probabilities for one in p.rounds] for p in first
        ]


def test_records_without_probabilities_still_load(config, tools, questions, passages, tmp_path):
    evaluation.save_predictions(tmp_path / "p.jsonl", evaluation.run(config, tools, questions))
    assert "probabilities" not in (tmp_path / "p.jsonl").read_text()
    loaded = evaluation.load_predictions(tmp_path / "p.jsonl", questions, passages)
    assert all(one.verdict.probabilities is None for p in loaded for one in p.rounds if one.verdict)
