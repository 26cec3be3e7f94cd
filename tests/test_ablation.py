from dataclasses import replace

import pytest

from covrag_lite import chain, evaluation, metrics
from covrag_lite.config import Config, Retrieval, Run
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.report import ablation, tables

GOLD, OTHER = Passage("gold", "", "Stonebridge"), Passage("other", "", "nothing")


def verdict(judgment="true", revised="", correctness=0.5):
    return parse_verdict(render_verdict((0.5, correctness, 0.5, 0.5, 0.5, 0.5), judgment, revised))


def prediction(name, *rounds, system="CoV-RAG"):
    """A journey told by (right answer?, gold passage found?, verdict) a round."""
    question = Question(name, "nq", name, ("Stonebridge",), ("gold",))
    return Prediction(
        question,
        system,
        tuple(
            Round(f"{name} {i}", (GOLD if found else OTHER,), "Stonebridge" if right else "no", said)
            for i, (right, found, said) in enumerate(rounds)
        ),
    )


HELPED = prediction("helped", (False, False, verdict("false", "where?")), (True, True, None))
HURT = prediction("hurt", (True, True, verdict("false", "where?")), (False, False, None))
LEFT = prediction("left", (True, True, verdict()))
MISSED = prediction("missed", (False, False, verdict()))
READER = prediction(
    "reader", (False, True, verdict("false", "where?")), (False, True, None)
)  # the passage was there: nothing to search for


def test_a_deep_run_cut_to_two_rounds_is_a_run_of_two_rounds(passages, questions):
    search = lambda queries: [passages[:2] for _ in queries]
    answer = lambda x, k: [f"answer to {one}" for one in x]
    verify = lambda x, k, y: [verdict("false", f"{one} again?") for one in x]
    deep, paper, single = (chain.cov_rag(questions, search, answer, verify, max_rounds=rounds) for rounds in (4, 2, 1))
    assert [ablation.cut(p, 2) for p in deep] == paper and [ablation.cut(p, 1) for p in deep] == single
    assert ablation.cut(LEFT, 2) == LEFT


def test_table_5_counts_what_it_says():
    table = ablation.chain_table([HELPED, HURT, LEFT, MISSED, READER]).set_index("metric")
    assert (table.loc["judge", "n"], table.loc["judge", "value"]) == (
        5,
        60.0,
    )  # helped, left and reader are judged rightly
    # revised or called for: helped, hurt, missed, reader; only the first was called for, revised, and then found
    assert (table.loc["revise", "n"], table.loc["revise", "value"]) == (4, 25.0)
    assert (table.loc["single", "value"], table.loc["multi", "value"], table.loc["delta", "value"]) == (40.0, 40.0, 0.0)
    assert "format" not in table.index and table.loc["judge", "paper"] == 60.0
    assert (
        "2 questions called for a revision, 3 were revised, 1 of them rightly; 1 then found"
        in ablation.chain_notes([HELPED, HURT, LEFT, MISSED, READER])[0]
    )


def test_the_format_rate_is_of_free_verdicts_and_an_unparsed_one_judges_nothing():
    broken = replace(LEFT, system="CoV-RAG free", rounds=(replace(LEFT.rounds[0], verdict=parse_verdict("well …")),))
    table = ablation.chain_table(
        [LEFT, replace(LEFT, rounds=broken.rounds), broken, replace(MISSED, system="CoV-RAG free")]
    ).set_index("metric")
    assert (table.loc["format", "n"], table.loc["format", "value"]) == (2, 50.0)
    assert table.loc["judge", "n"] == 1


def test_every_rule_is_measured_against_the_first_answers():
    table = ablation.policies([HELPED, HURT, LEFT, MISSED]).set_index("rule")
    paper, oracle = table.loc["replace, 2 rounds at most (the paper)"], table.loc["oracle: the better of 2"]
    assert (
        tuple(paper[["helped", "hurt", "left", "searches"]]) == (1, 1, 0, 2)
        and paper.accuracy == table.loc["never revise", "accuracy"] == 50
    )
    assert tuple(oracle[["helped", "hurt", "left"]]) == (1, 0, 1) and oracle.accuracy == 75
    assert not any(
        "better verified" in rule for rule in table.index
    )  # second answers without a verdict cannot be weighed


def test_the_better_verified_answer_is_kept_and_of_equals_the_later():
    worse = prediction(
        "worse",
        (True, True, verdict("unclear", "where?")),
        (False, False, verdict("false", "who?")),
        (False, False, None),
    )
    equal = prediction("equal", (True, True, verdict("false", "where?")), (False, False, verdict("false")))
    surer = prediction(
        "surer", (True, True, verdict("false", "where?", 0.4)), (False, False, verdict("false", "", 0.3))
    )
    assert [ablation.better_verified(p, 2) for p in (worse, equal, surer)] == [0, 1, 0]
    rules = set(ablation.policies([worse, equal, surer]).rule)
    assert {
        "keep the better verified of 2",
        "replace, 3 rounds at most",
    } <= rules and "keep the better verified of 3" not in rules


def test_shuffled_revisions_stay_where_they_were_and_ask_for_something_else():
    said = [verdict("false", "a?"), verdict(), verdict("false", "b?"), verdict("false", "c?")]
    assert [one.revised_question for one in chain.shuffle_revisions(said)] == ["b?", "", "c?", "a?"]


def test_six_questions_gained_and_none_lost_is_the_least_a_paired_test_can_see():
    p = lambda gained: metrics.mcnemar([False] * gained, [True] * gained)[2]
    assert p(6) < 0.05 < p(5)
    table = ablation.gaps()
    assert set(table[table["the paper's gap"].str.startswith("Table 4")].so) == {"no test could tell"}
    assert (table.so == "beyond noise").sum() == 1 and table.loc[table.so == "beyond noise", "of"].item() == "revise"


def test_the_retrieval_table_holds_each_search_against_the_clean_wording(passages, questions):
    made = [
        Prediction(questions[1], system, (Round(query, (passage,), ""),))
        for system, query, passage in (
            ("CoV-RAG-S", questions[1].question, passages[1]),
            ("Start-Revise trained", "hills of the long river", passages[5]),
        )
    ]
    table = ablation.retrieved(made, lambda queries: [[passages[1]] for _ in queries])
    assert table["gold passage %"].to_dict() == {"CoV-RAG-S": 100, "Start-Revise trained": 0, "clean wording": 100}
    assert ablation.drift(made)[["gold before", "gold after"]].values.tolist() == [[True, False]]


def test_a_rewrite_that_repeats_the_instruction_is_counted_and_an_unrecorded_one_is_not(questions):
    rewrite = lambda *queries: [
        Prediction(q, "Start-Revise", (Round(query, (), ""),)) for q, query in zip(questions, queries)
    ]
    echo = "Rewrite this as one clear question for a search engine."
    assert ablation.off_question(
        rewrite(echo, "Where was Edith Marrow born?", "Rewrite: how is the"), "Start-Revise"
    ) == (2, 3)
    assert ablation.off_question(rewrite(*(q.question for q in questions)), "Start-Revise") is None


@pytest.fixture
def asked(tmp_path, passages, questions, scripted):
    """Runs a system on a model that notes which adapter and which decoding every prompt came with."""
    seen = []

    class Noting(type(scripted)):
        def with_adapter(self, name):
            view = Noting(self.config)
            view.adapter, view.fingerprint = name or None, f"scripted+{name}"
            return view

        def generate(self, prompts, max_tokens):
            seen.extend(
                ("rewrite" if "Rewritten:" in prompt else "answer", self.adapter, self.config.verdicts)
                for prompt in prompts
            )
            return super().generate(prompts, max_tokens)

        def verify(self, prompts):
            seen.extend(("verify", self.adapter, self.config.verdicts) for _ in prompts)
            return super().verify(prompts)

    config = Config(retrieval=Retrieval(k=2), run=Run(runs=str(tmp_path)))
    tools = evaluation.load_tools(config, passages, Noting())
    tools.model.adapter = None
    return lambda system: (evaluation.run_system(system, config, tools, questions[:3]), seen)


def test_start_revise_trained_rewrites_with_its_own_adapter_and_answers_with_the_chains(asked):
    _, seen = asked("Start-Revise trained")
    assert {(stage, adapter) for stage, adapter, _ in seen} == {("rewrite", "rewrite"), ("answer", "cov")}


def test_free_verdicts_are_free_for_their_system_alone(asked, monkeypatch):
    monkeypatch.setattr(evaluation, "choose_sigma", lambda *_: chain.by_revision)
    free, seen = asked("CoV-RAG free")
    assert {decoding for stage, _, decoding in seen if stage == "verify"} == {"free"} and not any(
        p.revised for p in free
    )
    seen.clear()
    made, _ = asked("CoV-RAG")
    assert {decoding for stage, _, decoding in seen if stage == "verify"} == {"forced"} and any(p.revised for p in made)


def test_a_model_that_decodes_freely_once_is_itself_unchanged(tmp_path, passages, questions, scripted):
    config = Config(retrieval=Retrieval(k=2), run=Run(runs=str(tmp_path)))
    evaluation.run_system("CoV-RAG free", config, evaluation.load_tools(config, passages, scripted), questions)
    assert scripted.config.verdicts == "forced"


def test_the_papers_tables_4_and_5_order_their_rows_as_its_text_says():
    for dataset in ("nq", "webq", "mintaka", "triviaqa"):
        start, none, end = (
            tables.TABLE4[name][1][dataset] for name in ("Start-Revise trained", "CoV-RAG-S", "CoV-RAG")
        )
        assert start < none < end
    assert (
        tables.TABLE4["Start-Revise trained"][1].items() <= tables.PAPER["Start-Revise"][1].items()
    )  # the same runs in both tables
