"""Table 5: with and without scores, next to the paper; the effect of the scores.

The toy's answers are described in test_accuracy.py. Judgments with scores are correct for q1, q2,
q5 and q7, without scores for q1 and q2; six of its seven questions can be scored.
"""

from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import toy

from covrag_lite.config import Config
from covrag_lite.runs.frame import to_frame
from covrag_lite.tables import table5
from covrag_lite.tables.chain import CHAINS, chain_table, example, revision_table, score_effect

Row = namedtuple("Row", "metric n value low high")
# Of q1 to q7 without q6. Revised: q2, q4 and q7. Needed: q7 and q2, whose answers are wrong and
# lack gold passages.
WITH_SCORES = {
    "judge": (6, 4 / 6),
    "revise": (3, 2 / 3),
    "single": (6, 4 / 6),
    "multi": (6, 5 / 6),
    "delta": (6, 1 / 6),
}
# An empty revision means "true": q1's first answer is right and accepted, q2's wrong and revised.
WITHOUT_SCORES = {
    "judge": (6, 2 / 6),
    "revise": (2, 1 / 2),
    "single": (6, 1 / 6),
    "multi": (6, 2 / 6),
    "delta": (6, 1 / 6),
}


@pytest.fixture
def published(predictions):
    """The frame as if its two sets were NQ and WebQ."""
    return to_frame(toy.of_public_sets(predictions))


@pytest.fixture(scope="session")
def rows(frame):
    return chain_table(frame).set_index(["system", "metric"])


def build(predictions):
    return table5.build(predictions, SimpleNamespace(config=Config()))


@pytest.mark.parametrize("measure", WITH_SCORES)
def test_a_measure_with_scores(rows, measure):
    n, share = WITH_SCORES[measure]
    assert rows.loc[("CoV-RAG", measure), ["n", "value"]].tolist() == pytest.approx(
        [n, 100 * share]
    )


@pytest.mark.parametrize("measure", WITHOUT_SCORES)
def test_a_measure_without_scores(rows, measure):
    _, share = WITHOUT_SCORES[measure]
    assert rows.value["CoV-RAG w/o chain", measure] == pytest.approx(100 * share)


def test_a_measure_of_nothing_is_left_out(rows):
    assert ("CoV-RAG", "format") not in rows.index  # no verdict was decoded freely


# Next to the paper.


@pytest.mark.parametrize(
    "system, cells",
    [("CoV-RAG", ["60.0", "4 of 6", 6]), ("CoV-RAG, no scores", ["56.0", "2 of 6", 6])],
)
def test_the_papers_value_is_in_the_same_row_as_ours(published, system, cells):
    row = table5.next_to_paper(published).loc[table5.MEASURE_LABELS["judge"]]
    assert row[system].tolist() == cells


def test_the_papers_value_is_not_shown_for_one_of_its_two_sets(published):
    part = table5.next_to_paper(published[published.dataset == "nq"])
    assert set(part["CoV-RAG", "paper"]) == {"–"}


def test_the_long_table_has_the_papers_value_for_both_sets(published):
    of_paper = chain_table(published).set_index(["system", "metric"]).paper
    assert of_paper["CoV-RAG", "judge"] == 60.0


def test_the_long_table_has_no_value_of_the_paper_for_one_set(published):
    assert chain_table(published[published.dataset == "nq"]).paper.isna().all()


def test_questions_of_other_sets_do_not_count_next_to_the_paper(published, frame):
    with_others = pd.concat([frame, published])
    assert table5.next_to_paper(with_others).equals(table5.next_to_paper(published))


# The effect of the scores.


def test_the_effect_of_the_scores_is_with_scores_minus_without(published):
    effect = score_effect(published).set_index("measure")
    assert effect.ours.to_dict() == {"judge": "+2 of 6", "single": "+3 of 6", "multi": "+3 of 6"}


def test_the_effect_of_the_scores_pairs_questions_by_id(published):
    shuffled = published.sample(frac=1, random_state=3)
    assert score_effect(shuffled).equals(score_effect(published))


def test_the_papers_effect_is_the_difference_of_its_two_rows(published):
    assert score_effect(published).paper.tolist() == ["+4.0", "+3.3", "+3.7"]


def test_the_effect_of_the_scores_is_a_fact(predictions):
    facts = build(toy.of_public_sets(predictions)).facts
    assert facts["effect of scores on judge on the paper's questions"] == "+2 of 6"


# How the table is shown.


@pytest.mark.parametrize(
    "row, cell",
    [
        (Row("multi", 8, 75.0, 40.9, 92.9), "6 of 8"),
        (Row("delta", 8, 50.0, 20.0, 80.0), "+4 of 8"),
        (Row("multi", 30, 50.0, 33.15, 66.85), "50.0 [33–67]"),
    ],
)
def test_a_small_sample_is_counted_and_a_larger_one_has_an_interval(row, cell):
    assert table5.format_cell(row) == cell


def test_the_picture_of_the_papers_questions_says_so(published):
    title = table5.picture_title(chain_table(published), SimpleNamespace(config=Config()))
    assert "the paper's own NQ and WebQ questions" in title


def test_freely_decoded_verdicts_are_counted_only_for_the_format(frame):
    free = frame[frame.system == "CoV-RAG"].assign(system="CoV-RAG free")
    assert table5.chain_notes(free) == ["CoV-RAG, free decoding: 0 of 6 verdicts did not parse."]


# Rounds and revisions.


@pytest.fixture
def facts_of_deep_run(predictions):
    """A third round answers as the first one did: q2 and q7 wrong again, q4 right again."""
    deep = []
    for prediction in predictions:
        if prediction.revised:
            rounds = (*prediction.rounds, prediction.rounds[0])
            prediction = replace(prediction, rounds=rounds, kept=-1)
        deep.append(prediction)
    return build(deep).facts


@pytest.mark.parametrize(
    "fact, value", [("multi", "83.3"), ("kind all last", "83.3"), ("helped", "2"), ("hurt", "1")]
)
def test_the_facts_of_table_5_count_two_rounds_like_its_table(facts_of_deep_run, fact, value):
    assert facts_of_deep_run[f"CoV-RAG {fact}"] == value


def test_a_revision_counts_as_good_only_if_it_was_needed_and_found_a_gold_passage(frame):
    # Revised with scores: q2, q4 and q7. q4's first answer was right, so it needed none.
    assert revision_table(frame).loc["CoV-RAG"].tolist() == [2, 3, 2, 2]


def test_the_example_is_revised_and_then_right_with_and_without_scores(predictions):
    pair = example(predictions)
    assert [p.question.id for p in pair] == ["q2", "q2"]
    assert [p.system for p in pair] == list(CHAINS)
