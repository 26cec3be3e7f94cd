"""Which of several answers from deeper passages is returned: rules, reads, and what is compared."""

from types import SimpleNamespace

import pytest

from covrag_lite.check.tables import Together
from covrag_lite.prompts import DIRECT, parse_verdict
from covrag_lite.records import Prediction, Question, Round
from covrag_lite.runs.predictions import load_predictions, save_predictions
from covrag_lite.systems import names
from covrag_lite.tables import blocks

READ_BLOCKS = names.TWO_ADAPTERS_NO_CHAIN_BLOCKS
PARIS = Question("q1", "nq", "what is the capital of france", ("Paris",))
ROME = Question("q2", "nq", "what is the capital of italy", ("Rome",))
OSLO = Question("q3", "webq", "what is the capital of norway", ("Oslo",))
UNSCORED = Question("q4", "webq", "what is it", ("---",))


def predict(question, *answers, system=READ_BLOCKS):
    """A prediction with one round per answer: its text, likelihood and verifier's score."""
    rounds = []
    for text, likelihood, score in answers:
        verdict = None
        if score is not None:
            verdict = parse_verdict('{ "4": "" }', DIRECT, {"empty": score})
        rounds.append(Round(question.question, (), text, verdict, likelihood))
    return Prediction(question, system, tuple(rounds))


def choose(rule, *predictions):
    """The answers that a rule chooses among the blocks that the first prediction has."""
    answers = blocks.list_answers("8", predictions)
    sources = [f"8 block {number + 1}" for number in range(len(predictions[0].rounds))]
    return blocks.choose(answers, sources, rule).answer.tolist()


# The rules.


def test_of_equally_likely_answers_that_of_the_first_block_is_returned():
    answers = [("Oslo", -0.2, 0.1), ("Paris", -0.1, 0.1), ("Rome", -0.1, 0.1)]
    assert choose("likelihood", predict(PARIS, *answers)) == ["paris"]


@pytest.mark.parametrize("score, expected", [(0.60, "paris"), (0.65, "rome")])
def test_by_both_the_verifiers_score_counts_three_times(score, expected):
    # -0.1 + 3 · 0.5 = 1.4, and -0.5 + 3 · 0.6 = 1.3 or -0.5 + 3 · 0.65 = 1.45
    answers = [("Paris", -0.1, 0.5), ("Rome", -0.5, score)]
    assert choose("both", predict(PARIS, *answers)) == [expected]


def test_the_verifiers_rule_ignores_the_likelihood():
    answers = [("Paris", -0.1, 0.5), ("Rome", -5.0, 0.51)]
    assert choose("verifier", predict(PARIS, *answers)) == ["rome"]


def test_a_vote_counts_answers_that_are_equal_after_normalising():
    answers = [("Rome", -0.1, 0.9), ("Paris", -0.5, 0.1), ("paris. [1]", -0.6, 0.1)]
    assert choose("vote", predict(PARIS, *answers)) == ["paris"]


def test_of_equally_frequent_answers_the_one_with_the_highest_likelihood_is_returned():
    answers = [("Rome", -0.3, 0.9), ("Paris", -0.5, 0.1), ("Oslo", -0.2, 0.1)]
    assert choose("vote", predict(PARIS, *answers)) == ["oslo"]


def test_of_equal_votes_and_likelihoods_that_of_the_first_block_is_returned():
    answers = [("Oslo", -0.2, 0.1), ("Paris", -0.1, 0.1), ("Rome", -0.1, 0.1)]
    assert choose("vote", predict(PARIS, *answers)) == ["paris"]


def test_the_oracle_returns_a_right_answer_if_there_is_one():
    answers = [("Rome", -0.1, 0.9), ("Paris", -5.0, 0.1)]
    assert choose("oracle", predict(PARIS, *answers), predict(OSLO, *answers)) == ["paris", "rome"]


# Which questions count.


@pytest.mark.parametrize(
    "rule, n", [("likelihood", 2), ("oracle", 2), ("verifier", 1), ("both", 1)]
)
def test_a_question_that_lacks_a_verdict_is_left_out_where_a_rule_needs_it(rule, n):
    verified = predict(PARIS, ("Paris", -0.1, 0.5), ("Rome", -0.2, 0.5))
    unverified = predict(ROME, ("Paris", -0.1, 0.5), ("Rome", -0.2, None))
    assert len(choose(rule, verified, unverified)) == n


def test_a_question_with_fewer_blocks_is_left_out():
    two_blocks = predict(PARIS, ("Paris", -0.1, 0.5), ("Rome", -0.2, 0.5))
    one_block = predict(ROME, ("Rome", -0.1, 0.5))
    assert choose("likelihood", two_blocks, one_block) == ["paris"]


def test_a_question_without_a_usable_gold_answer_is_left_out():
    unscored = predict(UNSCORED, ("Rome", -0.1, 0.5))
    assert choose("likelihood", predict(PARIS, ("Paris", -0.1, 0.5)), unscored) == ["paris"]


def test_the_answers_of_another_system_are_refused():
    prediction = predict(PARIS, ("Paris", -0.1, 0.9), system=names.EXPANSION)
    with pytest.raises(ValueError, match="cannot read 'RAG trained, every query expanded"):
        blocks.list_answers("8", [prediction])


def test_the_first_passages_of_query_expansion_are_the_first_block():
    read = predict(PARIS, ("Paris", -0.1, 0.5), ("Rome", -0.2, 0.5))
    expanded = predict(
        PARIS, ("Paris", -0.1, 0.5), ("Oslo", -0.3, 0.5), system=names.EXPANSION_COMBINED
    )
    answers = blocks.list_answers("8", [read, expanded])
    assert answers[["source", "answer"]].values.tolist() == [
        ["8 block 1", "paris"],
        ["8 block 2", "rome"],
        ["8 expanded query", "oslo"],
    ]


def test_records_without_the_data_have_the_same_answers_and_scores(tmp_path):
    read = predict(PARIS, ("Paris", -0.1, 0.5), ("Rome", -0.2, None))
    file = tmp_path / "blocks.predictions.jsonl.xz"
    save_predictions(file, [read])
    reloaded = blocks.list_answers("8", load_predictions(file))
    assert reloaded.equals(blocks.list_answers("8", [read]))


# The table.

SURE = -0.1
UNSURE = -0.5
TRUSTED = 0.9
FLAGGED = 0.1


@pytest.fixture
def first_seed():
    """Four blocks and an expanded query for each of three questions.

    By likelihood the first block's answer is returned, by both the last one's.
    """
    wrong = ("Bonn", SURE, FLAGGED)
    unlikely = ("Bonn", UNSURE, FLAGGED)
    predictions = []
    for question, answer, score in (
        (PARIS, "Paris", TRUSTED),
        (ROME, "Rome", TRUSTED),
        (OSLO, "Bern", FLAGGED),
    ):
        last = (answer, UNSURE, score)
        predictions.append(predict(question, wrong, unlikely, unlikely, last))
    for question in (PARIS, ROME, OSLO):
        expanded = ("Oslo", UNSURE, TRUSTED)
        predictions.append(predict(question, wrong, expanded, system=names.EXPANSION_COMBINED))
    return blocks.list_answers("8", predictions)


@pytest.fixture
def second_seed():
    """A second reader of the first passages and of an expanded query; both answers are Paris."""
    predictions = []
    for question in (PARIS, ROME, OSLO):
        first = ("Paris", -0.05, FLAGGED)
        expanded = ("Paris", -0.4, TRUSTED)
        predictions.append(predict(question, first, expanded, system=names.EXPANSION_COMBINED))
    return blocks.list_answers("9", predictions)


@pytest.fixture
def table(first_seed):
    return blocks.build_seeds({"8": first_seed})


@pytest.fixture
def two_readers(first_seed, second_seed):
    return blocks.build_seeds({"8": first_seed, "9": second_seed})


def counts(table, before, after):
    row = table.rows.set_index(["from", "to"]).loc[(before, after)]
    return row[["n", "gained", "lost"]].tolist()


def test_the_verifiers_choice_is_compared_with_that_of_the_likelihood(table):
    assert counts(table, "4 blocks, likelihood", "4 blocks, both") == [3, 2, 0]


def test_among_two_blocks_only_the_first_two_answers_count(table):
    assert counts(table, "2 blocks, likelihood", "2 blocks, both") == [3, 0, 0]


def test_rules_are_compared_with_the_first_block(table):
    assert counts(table, "block 1", "4 blocks, oracle") == [3, 2, 0]
    assert counts(table, "block 1", "4 blocks, vote") == [3, 0, 0]


def test_two_reads_of_blocks_are_compared_with_an_expanded_query(table):
    # Expansion is right for the question about Norway, two blocks for none.
    assert counts(table, "2 reads, query expansion, both", "2 blocks, both") == [3, 0, 1]


def test_without_a_second_reader_its_rows_are_left_out(table):
    assert not table.rows["from"].str.contains("two readers").any()


def test_two_readers_return_the_answer_with_the_highest_score_of_all_four(two_readers):
    # By both the second reader's expanded query, 2.3: right for France; four blocks also for Italy.
    name = "4 reads, query expansion and two readers"
    assert counts(two_readers, f"{name}, both", "4 blocks, both") == [3, 1, 0]


def test_two_readers_of_the_first_passages_are_compared_with_two_blocks(two_readers):
    # The second reader's answer has the higher likelihood, and is right for France.
    row = "2 reads, two readers, likelihood"
    assert counts(two_readers, row, "2 blocks, likelihood") == [3, 0, 1]


def test_the_verifiers_choice_is_also_compared_with_unverified_reads(two_readers):
    name = "4 reads, query expansion and two readers"
    assert counts(two_readers, f"{name}, likelihood", "4 blocks, both") == [3, 1, 0]


def test_p_is_corrected_for_the_numbers_of_blocks(table):
    # McNemar's p of two gains is 0.5, without a difference 1.
    part = table.parts[blocks.CHOICE].set_index("comparison")
    row = part.loc["4 blocks, likelihood → 4 blocks, both"]
    assert row[["p", "p, Holm"]].tolist() == ["0.500", "1.000"]


def test_every_number_of_a_comparison_is_a_fact(table):
    name = "4 blocks, likelihood → 4 blocks, both 8"
    ends = {"": "+66.7", "n": "3", "gained": "2", "lost": "0", "p": "0.500", "p, Holm": "1.000"}
    assert {end: table.facts[f"{name} {end}".strip()] for end in ends} == ends
    assert f"{name} interval" in table.facts
    assert f"{name} visible" in table.facts


def test_the_comparison_that_counts_has_a_verdict(table):
    verdicts = {name: fact for name, fact in table.facts.items() if name.endswith("verdict")}
    assert verdicts == {"4 blocks, likelihood → 4 blocks, both 8 verdict": "not settled"}


def test_the_accuracy_of_a_rule_is_a_fact(table):
    assert table.facts["4 blocks, both 8"] == "66.7"
    assert table.facts["4 blocks, both 8 n"] == "3"


def test_the_table_shows_from_which_block_answers_are_returned(table):
    shares = table.parts[blocks.CHOSEN].set_index("rule")
    columns = [f"block {number}" for number in (1, 2, 3, 4)]
    assert shares.loc["4 blocks, both", columns].tolist() == ["33", "0", "0", "67"]
    assert shares.loc["2 blocks, both", columns].tolist() == ["100", "0", "", ""]


def test_the_verifier_is_judged_by_the_answers_of_each_block(table):
    # The two right answers from block 4 have .9, the wrong one .1; all have the same likelihood.
    assert table.facts["judge of block 4 8 right"] == "66.7"
    assert table.facts["judge of block 4 8 AUROC"].startswith("1.000")
    assert table.facts["judge of block 4 8 AUROC of the likelihood"].startswith("0.500")


def test_only_verified_answers_judge_the_verifier():
    read = [
        predict(PARIS, ("Paris", SURE, TRUSTED), ("Rome", SURE, None)),
        predict(ROME, ("Bonn", SURE, FLAGGED), ("Rome", SURE, None)),
    ]
    rows = list(blocks.judge_rows(blocks.list_answers("8", read)))
    assert [(row["answers from"], row["n"]) for row in rows] == [("block 1", "2")]


def test_runs_of_several_seeds_are_one_table(tmp_path):
    together = Together()
    read = predict(PARIS, *[("Paris", SURE, TRUSTED)] * 4)
    expanded = predict(PARIS, *[("Paris", SURE, TRUSTED)] * 2, system=names.EXPANSION_COMBINED)
    for seed, predictions in (("8", [read, expanded]), ("9", [expanded])):
        run = SimpleNamespace(table="blocks", folder=tmp_path / "blocks" / f"seed-{seed}")
        assert together.add(run, tmp_path, predictions)
    ((place, table),) = together.build(tmp_path)
    assert (place.as_posix(), table.name) == ("blocks/blocks", "blocks")
    assert table.rows["from"].str.contains("two readers").any()
