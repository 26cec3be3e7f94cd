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
from covrag_lite.tables.chain import (
    CHAINS,
    chain_table,
    example,
    has_found,
    limit_rounds,
    revision_table,
    score_effect,
)

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


# The picture and the parts.


@pytest.fixture
def drawn(monkeypatch):
    """What the picture of a table is drawn from, in place of drawing it."""
    calls = []

    def plot_accuracy(long, title, path, metric="normalised"):
        calls.append((long, title, metric))

    monkeypatch.setattr(table5, "plot_accuracy", plot_accuracy)
    return calls


def test_the_picture_shows_every_measure_of_all_questions(predictions, drawn, tmp_path):
    table = build(predictions)
    table.plots["png"](tmp_path / "table5.png")
    ((long, title, metric),) = drawn
    assert long.equals(table.rows)
    assert title.startswith("A sample")
    assert metric is None


def test_the_picture_shows_the_papers_questions_if_they_were_asked(predictions, drawn, tmp_path):
    table = build([*predictions, *toy.of_public_sets(predictions)])
    table.plots["png"](tmp_path / "table5.png")
    ((long, title, _),) = drawn
    assert long.paper.notna().any()
    assert table.rows.paper.isna().all()
    assert title.endswith("the paper's own NQ and WebQ questions, n = 6")


def test_a_title_has_the_last_answers_with_and_without_scores(published):
    title = table5.picture_title(chain_table(published), SimpleNamespace(config=Config()))
    first, second, _ = title.split("\n")
    assert first == "Last answers right: 33.3 % without scores, 83.3 % with scores"
    assert second == "Table 5: smollm2-135m,"


def test_a_title_of_one_system_has_no_result(published):
    long = chain_table(published[published.system == "CoV-RAG"])
    title = table5.picture_title(long, SimpleNamespace(config=Config()))
    assert title.startswith("Table 5: ")


@pytest.mark.parametrize("with_others, n_parts", [(True, 1), (False, 0)])
def test_the_papers_questions_are_a_part_only_next_to_others(predictions, with_others, n_parts):
    public = toy.of_public_sets(predictions)
    parts = build([*predictions, *public] if with_others else public).parts
    assert sum("the paper's own questions" in heading for heading in parts) == n_parts


def test_a_cell_has_the_papers_value_in_brackets(published):
    table = table5.wide(chain_table(published))
    assert table.loc["CoV-RAG", ["judge", "single"]].tolist() == ["4 of 6 (60.0)", "4 of 6 (65.8)"]
    assert table.loc["CoV-RAG w/o chain", "judge"] == "2 of 6 (56.0)"


def test_the_majority_on_the_papers_questions_is_a_fact(predictions):
    facts = build(toy.of_public_sets(predictions)).facts
    assert facts["CoV-RAG majority on the paper's questions"] == "66.7"
    assert facts["CoV-RAG w/o chain majority on the paper's questions"] == "83.3"


def test_a_rule_for_a_second_answer_is_a_fact(predictions):
    facts = build(predictions).facts
    assert facts["keep the likelier of 2 accuracy"] == "100.0"
    assert facts["oracle hurt"] == "0"


def test_notes_count_revisions(frame):
    notes = table5.chain_notes(frame[frame.system == "CoV-RAG"])
    assert notes == [
        "CoV-RAG: 0 of 6 verdicts did not parse. 2 questions needed a revision (wrong answer, no"
        " gold passage); 3 were revised, of which 2 needed it and 2 then found a gold passage."
    ]


def test_notes_follow_the_order_of_the_systems(frame):
    systems = ["CoV-RAG w/o chain", "CoV-RAG"]
    in_order = pd.concat([frame[frame.system == system] for system in systems])
    notes = table5.chain_notes(in_order)
    assert [note.partition(":")[0] for note in notes] == ["CoV-RAG, no scores", "CoV-RAG"]


def test_without_both_systems_the_scores_have_no_effect(frame):
    assert table5.effect_facts(frame[frame.system == "CoV-RAG"]) == {}


# Examples and rounds.


def test_a_pair_that_is_not_right_twice_is_no_example(predictions):
    without = [p for p in predictions if p.question.id != "q2"]
    assert example(without) == []


def test_an_example_needs_both_systems(predictions):
    assert example([p for p in predictions if p.system == "CoV-RAG"]) == []


def test_of_more_rounds_the_first_ones_stay_and_the_last_has_no_verdict(cov):
    first, last = cov[1].rounds
    longer = replace(cov[1], rounds=(first, replace(last, verdict=first.verdict), first), kept=2)
    limited = limit_rounds(longer, 2)
    assert limited.rounds == (first, replace(last, verdict=None))
    assert limited.kept == 1
    assert limit_rounds(cov[0], 2) == cov[0]


def test_where_no_gold_passage_is_known_an_answer_counts_as_found():
    frame = pd.DataFrame({"gold_first": [True, False, None], "found_first": [False, True, True]})
    assert has_found(frame, "first").tolist() == [True, False, True]


def test_a_freely_decoded_verdict_counts_for_the_format(frame):
    free = frame[frame.system == "CoV-RAG"].assign(system="CoV-RAG free")
    free = free.assign(unparsed=[1, 0, 0, 0, 0, 0, 0], verdicts=[1, 1, 1, 1, 0, 0, 0])
    rows = chain_table(pd.concat([frame, free])).set_index(["system", "metric"])
    assert rows.loc[("CoV-RAG", "format"), ["n", "value"]].tolist() == [4, 75.0]
    assert ("CoV-RAG w/o chain", "format") not in rows.index


# What scores change, and examples.


def test_the_effect_of_the_scores_counts_gained_and_lost_questions(published):
    effect = score_effect(published).set_index("measure")
    assert effect.loc["judge", ["gained", "lost", "McNemar p", "n"]].tolist() == [2, 0, "0.500", 6]


def test_the_papers_effect_needs_both_of_its_values(published):
    one_set = published[(published.system != "CoV-RAG") | (published.dataset == "nq")]
    assert score_effect(one_set).paper.tolist() == ["–"] * 3
    other = published[(published.system == "CoV-RAG") | (published.dataset == "nq")]
    assert score_effect(other).paper.tolist() == ["–"] * 3


def test_the_effect_of_the_scores_is_on_questions_that_both_judged(published):
    unparsed = (published.system == "CoV-RAG") & (published.id == "q1")
    partly = published.assign(judgment=published.judgment.mask(unparsed))
    effect = score_effect(partly).set_index("measure")
    assert effect.n.to_dict() == {"judge": 5, "single": 6, "multi": 6}


def test_a_verdict_that_did_not_parse_is_no_judgment(frame):
    unparsed = (frame.system == "CoV-RAG") & frame.id.isin(["q1", "q2"])
    partly = frame.assign(judgment=frame.judgment.mask(unparsed))
    rows = chain_table(partly).set_index(["system", "metric"])
    assert rows.loc[("CoV-RAG", "judge"), ["n", "value"]].tolist() == [4, 50.0]  # q5 and q7


def test_revisions_are_counted_under_their_headings(frame):
    table = revision_table(frame)
    assert table.index.tolist() == ["CoV-RAG, no scores", "CoV-RAG"]
    row = table.loc["CoV-RAG"].to_dict()
    assert row == {
        **{"needed a revision": 2, "revised": 3, "both": 2},
        "both, and found a gold passage": 2,
    }


def test_an_example_has_two_rounds(predictions):
    deep = [replace(p, rounds=(*p.rounds, p.rounds[0])) if p.revised else p for p in predictions]
    assert [len(p.rounds) for p in example(deep)] == [2, 2]


# The rows and parts of the table.


def test_measures_next_to_the_paper_are_in_the_order_of_its_columns(published):
    table = table5.next_to_paper(published)
    assert table.index.tolist() == [
        "judge: the judgment is correct",
        "revise: needed, and found a gold passage",
        "single: the first answer is right",
        "multi: the last answer is right",
        "delta: gold passages gained, points",
    ]
    assert table.index.name == "in %"
    assert list(table) == [
        (system, column)
        for system in ("CoV-RAG, no scores", "CoV-RAG")
        for column in ("paper", "ours", "n")
    ]


def test_a_measure_that_one_system_lacks_is_a_dash(frame):
    never = frame.assign(revised=frame.revised & (frame.system == "CoV-RAG"))
    never["first_normalised"] = never.first_normalised.mask(never.system != "CoV-RAG", True)
    table = table5.wide(chain_table(never))
    assert table.loc["CoV-RAG w/o chain", "revise"] == "–"
    assert table.loc["CoV-RAG", "revise"] == "2 of 3"


@pytest.mark.parametrize("n_copies, heading", [(4, "Counts"), (5, "Shares in %: ours")])
def test_thirty_questions_are_shown_as_shares(predictions, n_copies, heading):
    copies = []
    for number in range(n_copies):  # of six questions that can be scored
        for p in predictions:
            question = replace(p.question, id=f"{p.question.id}-{number}")
            copies.append(replace(p, question=question))
    assert next(iter(build(copies).parts)).startswith(heading)


def test_rules_for_a_second_answer_are_a_part_with_their_number_of_questions(predictions):
    parts = build(predictions).parts
    assert len(parts["What to do with a second answer, n = 6"]) == 5


def test_judges_with_and_without_scores_are_in_one_table(frame):
    table = table5.compare_judges(frame)
    all_questions = table[table.questions == "all"]
    assert all_questions.system.tolist() == ["CoV-RAG w/o chain", "CoV-RAG"]
    assert table.index.tolist() == list(range(len(table)))


def test_the_interval_of_a_measure_is_in_percent(rows):
    row = rows.loc[("CoV-RAG", "single")]
    assert (row.low, row.high) == pytest.approx((29.999, 90.323), abs=0.001)  # Wilson: 4 of 6
    delta = rows.loc[("CoV-RAG", "delta")]
    assert -100 < delta.low < -1 and 1 < delta.high < 100


def test_questions_are_paired_across_sets_of_the_same_ids(published):
    same_ids = published.assign(id=published.id.where(published.id != "q5", "q1"))
    effect = score_effect(same_ids).set_index("measure")
    assert effect.loc["single", ["ours", "n"]].tolist() == ["+3 of 6", 6]
