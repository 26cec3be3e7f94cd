"""Related systems on the same questions: what each costs, their table, and what is recorded."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from conftest import ScriptedModel, write_jsonl
from matplotlib import pyplot

from covrag_lite.check import check
from covrag_lite.config import Config
from covrag_lite.engine.interface import Completion
from covrag_lite.files import read_packed
from covrag_lite.plugins.related import SYSTEMS, heads, runner
from covrag_lite.plugins.related import table as related
from covrag_lite.plugins.related.names import A2R, COQ, CRAG, FAVE, HEADS, RRR, UOQ
from covrag_lite.runs.recorded import save_run
from covrag_lite.systems import evaluate, find_system, palette
from covrag_lite.systems.names import (
    COV_RAG,
    EXPANSION,
    EXPANSION_COMBINED,
    RAG_TRAINED,
    TWO_ADAPTERS_COMBINED,
    TWO_ADAPTERS_NEXT,
    TWO_ADAPTERS_NO_CHAIN_COMBINED,
)
from covrag_lite.tables.labels import SYSTEM_LABELS

METHODS = (RRR, CRAG, A2R, COQ, UOQ, FAVE)
LATER = (
    RAG_TRAINED,
    EXPANSION,
    EXPANSION_COMBINED,
    COV_RAG,
    TWO_ADAPTERS_NO_CHAIN_COMBINED,
    UOQ,
    FAVE,
)
EVERY = (RAG_TRAINED, EXPANSION, *METHODS, COV_RAG, TWO_ADAPTERS_COMBINED)


@pytest.fixture
def config(tmp_path, monkeypatch):
    """An evaluator that prefers passages about Edith, and a proxy that always entails."""

    def score_pair(pair):
        if pair.statement:
            return 1.0
        return 0.9 if "Edith" in pair.passage.text else 0.1

    def score_pairs(head, pairs):
        return np.array([score_pair(pair) for pair in pairs])

    monkeypatch.setattr(heads, "score_pairs", score_pairs)
    head = {"data": "mine", "encoder": "toy", "thresholds": [0.2, 0.8]}
    head["validation"] = [{"balanced (%)": 90.0, "n": 9, "AUROC": 0.8}]
    for name in HEADS:
        write_jsonl(tmp_path / "adapters" / name / "head.json", [head])
    return Config().change(
        k=2,
        n_questions=0,
        related_systems=EVERY,
        systems=EVERY,
        data=str(tmp_path / "mine"),
        adapters=str(tmp_path / "adapters"),
        runs=str(tmp_path / "runs"),
    )


@pytest.fixture
def resources(config, passages, scripted):
    """Resources whose model reads 100 tokens and writes 7 for every text."""
    scripted.count_tokens = lambda prompts, texts: [(100, 7)] * len(prompts)
    return evaluate.load_resources(config, passages, scripted)


def run_only(names, config, resources, questions):
    """Run these systems; returns predictions, and costs by system."""
    chosen = config.change(systems=tuple(names))
    predictions, costs = runner.run(chosen, resources, questions)
    return predictions, costs.set_index("system")


# Which systems there are.


def test_every_method_is_registered():
    assert tuple(system.name for system in SYSTEMS) == METHODS


@pytest.mark.parametrize("name", METHODS)
def test_every_method_reads_with_the_adapter_that_only_answers(name):
    assert find_system(name).adapter == "rag"


@pytest.mark.parametrize("name", METHODS)
def test_only_rrr_has_a_rewriter(name):
    assert find_system(name).rewriter == ("rewrite" if name == RRR else "")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_colour(name):
    assert name in palette()


def test_no_two_methods_share_a_colour():
    assert len({palette()[name] for name in METHODS}) == len(METHODS)


@pytest.mark.parametrize("name", [RRR, COQ, UOQ])
def test_an_abbreviation_has_a_label(name):
    assert name in SYSTEM_LABELS


# Costs.


@pytest.fixture
def spent(config, resources, questions):
    """The costs of all systems on the four questions."""
    return run_only(EVERY, config, resources, questions)[1]


# What a question costs on average. Of the scripted model, a greedy plan has no numbered line, so
# that the question is its only sub-question; a sampled plan has one sub-question; a chain never
# ends and never repeats itself.
@pytest.mark.parametrize(
    "name, searches, n_read, texts, steps",
    [
        (RAG_TRAINED, 1, 2, 1, 1),
        # A guess and options; two searches, and an answer from each.
        (EXPANSION, 2, 4, 4, 4),
        # A rewritten question and an answer.
        (RRR, 1, 2, 2, 2),
        # One of four finds no passage about Edith: keywords and a wider search.
        (CRAG, 1.25, 2, 1.25, 2),
        # The proxy entails everything, and every answer cites: nothing is refined.
        (A2R, 1, 2, 1, 1),
        # Three times a sub-question and its answer, from 2, 3 and 4 references; the conclusion.
        (COQ, 3, 12, 7, 7),
        # A plan, an answer, the conclusion.
        (UOQ, 1, 3, 3, 3),
        # Eight plans in one step, eight searches and relevance replies, an answer, the conclusion.
        (FAVE, 8, 3, 18, 4),
        # An answer and a verdict each; one of four is searched and answered again.
        (COV_RAG, 1.25, 2.5, 2.25, 3),
        # The second answer is verified too.
        (TWO_ADAPTERS_COMBINED, 1.25, 2.5, 2.5, 4),
    ],
)
def test_a_system_costs_these_counts_per_question(spent, name, searches, n_read, texts, steps):
    counts = spent.loc[name, ["searches", "passages", "texts", "steps"]]
    assert counts.tolist() == [searches, n_read, texts, steps]


@pytest.mark.parametrize("name", EVERY)
def test_the_tokens_of_every_text_are_counted(spent, name):
    tokens = spent.loc[name, ["tokens read", "tokens written"]]
    assert tokens.tolist() == [100 * spent.texts[name], 7 * spent.texts[name]]


def test_costs_are_means_of_all_questions(spent):
    assert (spent.n == 4).all()


def test_every_system_answers_every_question(config, resources, questions):
    predictions, _ = run_only(EVERY, config, resources, questions)
    pairs = [(prediction.system, prediction.question) for prediction in predictions]
    assert pairs == list(product(EVERY, questions))


def test_a_search_for_deeper_passages_is_counted(config, resources, questions):
    _, spent = run_only([TWO_ADAPTERS_NEXT], config, resources, questions)
    assert spent.searches.tolist() == [1.25]


def test_a_text_costs_every_system_that_needs_it(config, resources, questions):
    _, first = run_only([RAG_TRAINED], config, resources, questions)
    _, later = run_only([COV_RAG, RAG_TRAINED], config, resources, questions)
    assert later.texts[RAG_TRAINED] == first.texts[RAG_TRAINED]


def test_a_text_from_the_journal_costs_its_tokens(config, resources, questions):
    run_only([RAG_TRAINED], config, resources, questions)
    n_prompts = len(resources.model.asked)
    _, again = run_only([RAG_TRAINED], config, resources, questions)
    assert len(resources.model.asked) == n_prompts
    assert again["tokens read"].tolist() == [100]


def test_unknown_tokens_are_not_recorded_as_zero(config, passages, questions):
    without_tokenizer = evaluate.load_resources(config, passages, ScriptedModel())
    _, spent = run_only([FAVE], config, without_tokenizer, questions)
    assert spent["tokens read"].isna().all()


def test_a_missing_head_stops_a_run_before_any_text_is_written(config, resources, questions):
    with pytest.raises(FileNotFoundError, match="no evaluator was trained on 'other'"):
        runner.run(config.change(data="other"), resources, questions)
    assert not resources.journal.texts


# The table.


def record(config, questions, passages, folder, model):
    """Run what notebooks/related.ipynb runs."""
    resources = evaluate.load_resources(config, passages, model)
    predictions, costs = runner.run(config, resources, questions)
    data = {"questions": questions, "passages": passages}
    run = save_run(folder, "related", {"": predictions}, config, resources.model, 1.0, data)
    related.record(run, predictions, costs)
    related.build(related.load(run), run).save(folder, draw=False)
    return run


@pytest.fixture
def recorded(config, questions, passages, resources, tmp_path):
    """The recorded run of all systems."""
    folder = tmp_path / "results" / "real" / "toy" / "seed-1"
    return record(config, questions, passages, folder, resources.model)


@pytest.fixture
def table(recorded):
    return related.build(related.load(recorded), recorded)


def rows_of(table, part):
    return table.part(part).set_index("system")


def test_the_manifest_names_the_heads(recorded):
    assert set(recorded.manifest["adapters"]) >= set(HEADS)


def test_the_manifest_says_how_good_the_entailment_proxy_is(recorded):
    assert "on the encoder toy; it is right for 90.0 % of 9" in recorded.manifest["notes"][-1]


def test_the_table_says_how_good_the_entailment_proxy_is(table, recorded):
    assert recorded.manifest["notes"][-1] in table.notes


def test_the_table_is_built_again_without_a_model_and_without_the_data(recorded, tmp_path):
    assert check(tmp_path).differences == []


def test_the_table_has_a_row_for_every_system(table):
    assert set(rows_of(table, "Accuracy and citations").index) == {
        SYSTEM_LABELS.get(name, name) for name in EVERY
    }


@pytest.mark.parametrize("quality", ["supported", "citation recall", "citation precision"])
def test_the_table_has_the_citation_quality_of_every_system(table, quality):
    assert (rows_of(table, "Accuracy and citations")[quality] != "–").all()


def test_the_table_has_the_claim_recall(table):
    assert rows_of(table, "Accuracy and citations").loc["CRAG", "claim recall"] == "33"


def test_the_table_has_the_costs_of_every_system(table):
    costs = rows_of(table, "Costs")[["searches", "tokens read", "tokens written"]].astype(float)
    assert (costs > 0).all(axis=None)


def test_every_system_is_compared_with_rag_trained(table):
    comparisons = set(table.part("Each system").comparison)
    others = [SYSTEM_LABELS.get(name, name) for name in EVERY if name != RAG_TRAINED]
    assert comparisons >= {f"RAG (trained) → {other}" for other in others}


def test_every_system_is_compared_with_cov_rag(table):
    comparisons = set(table.part("Each system").comparison)
    others = [SYSTEM_LABELS.get(name, name) for name in EVERY if name != COV_RAG]
    assert comparisons >= {f"{other} → CoV-RAG" for other in others}


def test_two_scores_of_the_same_passages_are_compared(table):
    part = table.part("Was an answer found?")
    assert part.score.tolist() == ["CRAG's evaluator", "our judge's reference score"]


def test_a_question_whose_gold_answer_normalises_to_nothing_is_left_out(table):
    part = table.part("Was an answer found?")
    assert part.n.tolist() == [3, 3]  # of four
    assert part["answer found %"].tolist() == ["100.0", "100.0"]


@pytest.mark.parametrize(
    "fact, value",
    [("CRAG citation recall", "100.0"), ("CoV-RAG searches", "1.25"), ("FaVe tokens", "1,926")],
)
def test_prose_may_use_the_qualities_and_costs(table, fact, value):
    assert table.facts[fact] == value


def test_prose_may_use_the_auroc_of_both_scores(table):
    assert {"CRAG's evaluator AUROC", "our judge's reference score AUROC"} <= set(table.facts)


def test_a_table_without_cov_rag_has_no_scores_of_passages(
    config, questions, passages, resources, tmp_path
):
    few = config.change(systems=(RAG_TRAINED, UOQ))
    run = record(few, questions, passages, tmp_path / "few", resources.model)
    table = related.build(related.load(run), run)
    assert not [part for part in table.parts if part.startswith("Was an answer found?")]


@pytest.fixture
def later(config, questions, passages, resources, tmp_path):
    """The table of a run with both forms of CoV-RAG, in which two systems have no colour."""
    chosen = config.change(systems=LATER)
    run = record(chosen, questions, passages, tmp_path / "later", resources.model)
    return related.build(related.load(run), run)


def test_systems_without_a_colour_have_rows(later):
    assert set(later.rows.system) == set(LATER)


def test_both_forms_of_cov_rag_are_compared_with_each_other(later):
    comparisons = set(later.part("Each system").comparison)
    assert "Two adapters, no scores, score-combined → CoV-RAG" in comparisons


def test_every_system_of_a_picture_has_its_own_colour(later, tmp_path):
    figure = later.plots["png"](tmp_path / "related.png")
    bars = [container for container in figure.axes[0].containers if hasattr(container, "patches")]
    assert len({bar.patches[0].get_facecolor() for bar in bars}) == len(bars) == len(LATER)
    pyplot.close(figure)


def test_p_values_against_rag_trained_are_corrected_for_their_number(table):
    corrected = [name for name in table.facts if name.endswith("p corrected")]
    others = [name for name in EVERY if name != RAG_TRAINED]
    assert sorted(corrected) == sorted(f"RAG trained → {name} p corrected" for name in others)


# Questions are not recorded.


@pytest.fixture
def long_questions(questions):
    """Questions that are long enough to be recognised in a text."""
    place = "in the old town of Aldermere upon Stell"
    return [replace(question, question=f"{question.question} {place}") for question in questions]


@pytest.fixture
def copying(long_questions):
    """A model whose every text copies the question, as the only line of a plan in capitals."""
    beginnings = {question.question[:20].lower(): question.question for question in long_questions}

    class Copying(ScriptedModel):
        def complete(self, prompts, *rest):
            texts = []
            for prompt in prompts:
                copied = [text for start, text in beginnings.items() if start in prompt.lower()][0]
                is_plan = "numbered" in prompt
                texts.append(f"1. {copied[:-3].upper()}" if is_plan else copied)
            return [Completion(text) for text in texts]

    return Copying


@pytest.fixture
def copied(config, long_questions, passages, copying, tmp_path):
    return record(config, long_questions, passages, tmp_path / "out", copying())


def test_no_recorded_file_contains_a_question(copied, long_questions):
    beginnings = [question.question[:20].lower() for question in long_questions]
    for file in copied.folder.iterdir():
        text = read_packed(file) if file.suffix in (".gz", ".xz") else file.read_text()
        assert not [start for start in beginnings if start in text.lower()], file.name


def test_a_recorded_query_stands_for_the_question(copied):
    lines = [json.loads(line) for line in read_packed(copied.predictions()).splitlines()]
    (line,) = [line for line in lines if line["id"] == "q1"]
    first_round = line["systems"][FAVE][0][0]
    assert line["rounds"][first_round]["query"].startswith("⟨question")


@pytest.mark.parametrize("name", ["predictions.jsonl.xz", "qualities.csv.gz", "csv"])
def test_a_second_run_writes_the_same_bytes(
    copied, config, long_questions, passages, copying, tmp_path, name
):
    elsewhere = config.change(runs=str(tmp_path / "again"))
    again = record(elsewhere, long_questions, passages, tmp_path / "again", copying())
    assert copied.file(name).read_bytes() == again.file(name).read_bytes()
