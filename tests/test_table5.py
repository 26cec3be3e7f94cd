"""Table 5: our values next to the paper's, the effect of the scores, rules for a second answer.

The toy's answers are in test_toy_table.py. Judgments with scores are correct for q1, q2, q5 and q7,
without scores for q1 and q2; six of its seven questions can be scored.
"""

from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import toy

from covrag_lite.config import Config
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.tables import table5

Row = namedtuple("Row", "metric n value low high")


@pytest.fixture
def published(predictions):
    """The frame as if its two sets were NQ and WebQ."""
    return to_frame(toy.of_public_sets(predictions))


def build(predictions):
    return table5.build(predictions, SimpleNamespace(config=Config()))


def test_the_papers_value_is_in_the_same_row_as_ours(published):
    row = table5.next_to_paper(published).loc[table5.MEASURES["judge"]]
    assert row["CoV-RAG"].tolist() == ["60.0", "4 of 6", 6]
    assert row["CoV-RAG, no scores"].tolist() == ["56.0", "2 of 6", 6]


def test_the_papers_value_is_not_shown_for_one_of_its_two_sets(published):
    part = table5.next_to_paper(published[published.dataset == "nq"])
    assert set(part["CoV-RAG", "paper"]) == {"–"}


def test_questions_of_other_sets_do_not_count_next_to_the_paper(published, frame):
    with_others = pd.concat([frame, published])
    assert table5.next_to_paper(with_others).equals(table5.next_to_paper(published))


def test_the_effect_of_the_scores_is_with_scores_minus_without(published):
    effect = table5.score_effect(published).set_index("measure")
    assert effect.ours.to_dict() == {"judge": "+2 of 6", "single": "+3 of 6", "multi": "+3 of 6"}


def test_the_effect_of_the_scores_pairs_questions_by_id(published):
    shuffled = published.sample(frac=1, random_state=3)
    assert table5.score_effect(shuffled).equals(table5.score_effect(published))


def test_the_papers_effect_is_the_difference_of_its_two_rows(published):
    assert table5.score_effect(published).paper.tolist() == ["+4.0", "+3.3", "+3.7"]


def test_a_small_sample_is_counted_and_a_gain_has_its_sign():
    assert table5.format_cell(Row("multi", 8, 75.0, 40.9, 92.9)) == "6 of 8"
    assert table5.format_cell(Row("delta", 8, 50.0, 20.0, 80.0)) == "+4 of 8"


def test_thirty_questions_give_a_share_with_its_interval():
    assert table5.format_cell(Row("multi", 30, 50.0, 33.15, 66.85)) == "50.0 [33–67]"


def test_the_facts_of_table_5_count_two_rounds_like_its_table(predictions):
    # A third round that answers as the first one did: q2 and q7 wrong again, q4 right again.
    deep = [replace(p, rounds=(*p.rounds, p.rounds[0])) if p.revised else p for p in predictions]
    facts = build(deep).facts
    assert (facts["CoV-RAG multi"], facts["CoV-RAG kind all last"]) == ("83.3", "83.3")
    assert (facts["CoV-RAG helped"], facts["CoV-RAG hurt"]) == ("2", "1")


def test_the_effect_of_the_scores_is_a_fact(predictions):
    facts = build(toy.of_public_sets(predictions)).facts
    assert facts["effect of scores on judge on the paper's questions"] == "+2 of 6"


def test_the_picture_of_the_papers_questions_says_so(predictions):
    run = SimpleNamespace(config=Config())
    long = table5.chain_table(to_frame(toy.of_public_sets(predictions)))
    assert "the paper's own NQ and WebQ questions" in table5.title(long, run)


def test_a_revision_counts_as_good_only_if_it_was_needed_and_found_a_gold_passage(frame):
    # Revised with scores: q2, q4 and q7. q4's first answer was right, so it needed none.
    assert table5.revision_table(frame).loc["CoV-RAG"].tolist() == [2, 3, 2, 2]


def test_the_example_is_revised_and_then_right_with_and_without_scores(predictions):
    pair = table5.example(predictions)
    assert [p.question.id for p in pair] == ["q2", "q2"]
    assert [p.system for p in pair] == list(table5.CHAINS)


def test_every_rule_has_a_name_that_people_read(predictions, cov):
    deep = [replace(p, rounds=(p.rounds[0],) * 3) for p in cov]
    rules = {*table5.policies(predictions).rule, *table5.policies(deep).rule}
    assert rules <= set(table5.RULES)


def test_no_rule_that_chooses_between_two_answers_beats_the_oracle(predictions):
    rules = table5.policies(predictions).set_index("rule").accuracy
    assert rules.max() == rules["oracle: the better of 2"]


def test_freely_decoded_verdicts_are_counted_only_for_the_format(frame):
    free = frame[frame.system == "CoV-RAG"].assign(system="CoV-RAG free")
    assert table5.chain_notes(free) == ["CoV-RAG, free decoding: 0 of 6 verdicts did not parse."]
