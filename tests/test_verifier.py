"""The verifier measured: the toy's judge next to simpler rules, and how its tables are shown.

The verifier judges the first answers, of which q1, q3, q4 and q5 are right.
"""

import numpy as np
import pandas as pd
import pytest

from covrag_lite.tables.table5 import compare_judges
from covrag_lite.tables.verifier import (
    fitted_judgments,
    format_correct,
    judge_table,
    judged_rows,
    split_by,
    trust_table,
)
from covrag_lite.tables.verifier_facts import verifier_facts
from covrag_lite.tables.verifier_parts import JUDGE_PARTS, split_judges

# The row of all questions; pages name facts by these columns.
ALL_QUESTIONS = {
    "questions": "all",
    "n": 6,
    "right": "66.7",
    "judge": "66.7 [30.0, 90.3]",  # q1, q2, q5 and q7; "unclear" is not "true"
    "majority": "66.7",
    "wording": "83.3",  # 4 of 5 well put, 1 of 1 broken
    "caught": "2 of 2",
    "doubted": "1 of 4",
    # Of 4 · 2 pairs only q4 (0.2) is below q2 (0.3) and q7 (0.25). DeLong: (1, 1, 0, 1) and
    # (0.75, 0.75); 0.75 ± 1.96 · √(0.75 / 12).
    "AUROC": "0.75 [0.26, 1.00]",
    "likelihood": "1.00 [1.00, 1.00]",
    "both": "1.00 [1.00, 1.00]",  # ranks 12, 9, 5 and 8 above 4 and 4
    "unrevised": "1.00 [1.00, 1.00]",  # P(empty) of right answers above that of q2 and q7
    "fitted": "–",
    "unverified": "–",
}


@pytest.fixture(scope="session")
def toy_judges(frame):
    return judge_table(frame)


@pytest.mark.parametrize("column", ALL_QUESTIONS)
def test_a_column_of_the_judge(toy_judges, column):
    assert toy_judges[column][0] == ALL_QUESTIONS[column]


def test_facts_keep_their_names(toy_judges):
    assert toy_judges.columns.tolist() == list(ALL_QUESTIONS)


@pytest.mark.parametrize(
    "column, value",
    [
        ("right", "0.0"),
        ("majority", "100.0"),
        ("wording", "100.0"),
        ("judge", "100.0 [20.7, 100.0]"),
    ],
)
def test_questions_with_broken_wording_have_a_row_of_their_own(toy_judges, column, value):
    assert toy_judges.set_index("questions").loc["broken wording", column] == value


@pytest.fixture(scope="session")
def spelling(frame):
    """A judge that only looks at the wording of the question."""
    judgment = frame.form.map({"well put": "true", "broken wording": "false"})
    return judge_table(frame.assign(judgment=judgment)).set_index("questions")


def test_a_judge_of_spelling_is_better_than_the_majority(spelling):
    assert spelling.judge["all"].startswith("83.3")
    assert spelling.majority["all"] == "66.7"


def test_a_judge_of_spelling_is_no_better_than_the_rule_that_sees_only_the_wording(spelling):
    assert spelling.wording["all"] == "83.3"


def test_a_judge_of_spelling_flags_no_wrong_answer_to_a_well_put_question(spelling):
    assert spelling.caught["well put"] == "0 of 1"


def test_trust_is_counted_by_answer_and_by_gold_passage(frame):
    table = trust_table(frame).set_index("passages")
    counts = table[["n right", "n wrong"]].to_dict("index")
    assert counts["a gold passage"] == {"n right": 3, "n wrong": 0}
    assert counts["no gold passage"] == {"n right": 0, "n wrong": 2}


def test_trust_is_the_share_of_answers_judged_true(frame):
    table = trust_table(frame).set_index("passages")
    assert table.right["a gold passage"] == pytest.approx(100 / 3)
    assert table.wrong["no gold passage"] == 0


@pytest.mark.parametrize(
    "fact, value",
    [("found anew", "1"), ("found no more", "1"), ("revised", "3"), ("helped", "2"), ("hurt", "1")],
)
def test_what_the_second_search_changes_is_a_fact(frame, fact, value):
    assert verifier_facts(frame)[f"CoV-RAG {fact}"] == value


def test_a_system_that_does_not_verify_has_no_facts(frame):
    assert verifier_facts(frame[frame.system == "RAG trained"]) == {}


# How the tables are shown.


@pytest.fixture
def judges():
    """A judge table of 60 answers to questions of two forms; its scores are perfect."""
    right = np.arange(60) % 2 == 0
    rows = pd.DataFrame({"id": [f"q{i:02}" for i in range(60)], "first_normalised": right})
    rows["form"] = np.where(np.arange(60) < 30, "well put", "two-hop")
    rows = rows.assign(system="CoV-RAG", dataset="one", judgment="true", unrevised=0.5)
    rows["expected_correctness"] = np.where(right, 0.9, 0.1)
    rows["likelihood"] = np.linspace(-1, -0.1, 60)
    return judge_table(rows).assign(system="CoV-RAG")


@pytest.fixture
def ranking(judges):
    _, ranking, _ = split_judges(judges).values()
    return ranking


def test_every_column_of_the_judge_is_shown_in_one_of_three_parts(judges):
    shown = set()
    for headers in JUDGE_PARTS.values():
        shown.update(headers)
    assert shown == set(judges.columns) - {"system", "questions"}


def test_a_part_of_the_judges_table_fits_a_page(judges):
    parts = split_judges(judges).values()
    assert max(part.shape[1] for part in parts) <= 9


def test_questions_are_split_by_wording_if_there_are_several_forms(ranking):
    assert ranking.questions.tolist() == ["all", "well put", "two-hop"]


def test_questions_of_one_form_are_shown_once(judges):
    one_form = judges[judges.questions.isin(["all", "well put"])]
    for part in split_judges(one_form).values():
        assert len(part) == 1
        assert "questions" not in part


def test_few_questions_are_not_split_by_wording(frame):
    table = compare_judges(frame)
    assert set(table.questions) == {"all", "well put", "broken wording"}
    for part in split_judges(table).values():
        assert part.system.tolist() == ["CoV-RAG, no scores", "CoV-RAG"]


def test_an_interval_of_no_width_is_not_shown(judges, ranking):
    assert judges.AUROC[0] == "1.00 [1.00, 1.00]"
    assert ranking["verifier's correctness score"][0] == "1.00"


def judged_frame(n=20, **columns):
    """Answers of one system, of which every other one is right; all are judged true."""
    right = np.arange(n) % 2 == 0
    rows = pd.DataFrame({"id": [f"q{i:02}" for i in range(n)], "first_normalised": right})
    rows = rows.assign(system="CoV-RAG", dataset="one", judgment="true", form="well put")
    rows = rows.assign(expected_correctness=np.where(right, 0.9, 0.1), unrevised=0.5)
    return rows.assign(**({"likelihood": np.linspace(-1, -0.1, n)} | columns))


@pytest.mark.parametrize("n_unknown, is_used", [(2, True), (3, False)])
def test_likelihoods_are_used_only_if_nearly_all_are_known(n_unknown, is_used):
    likelihoods = [None] * n_unknown + [-0.5] * (20 - n_unknown)
    rows = judged_rows(judged_frame(likelihood=likelihoods), "CoV-RAG")
    assert rows.likelihood.notna().any() == is_used


def test_answers_without_a_verdict_or_a_gold_answer_are_not_judged():
    outcomes = [True, False, True, None]
    frame = judged_frame(4, judgment=["true", "", None, "false"], first_normalised=outcomes)
    assert judged_rows(frame, "CoV-RAG").id.tolist() == ["q00"]
    assert judged_rows(frame, "another").empty


def test_a_rule_with_the_verdict_is_fitted_on_other_answers():
    table = judge_table(judged_frame()).iloc[0]
    assert table.fitted.startswith("100.0 [")
    assert not table.unverified.startswith("100.0")


def test_a_rule_needs_right_and_wrong_answers_in_several_folds():
    all_right = judged_frame(first_normalised=True)
    assert fitted_judgments(judged_rows(all_right, "CoV-RAG")).isna().all()
    one_wrong = judged_frame(first_normalised=[False] + [True] * 19)
    assert fitted_judgments(judged_rows(one_wrong, "CoV-RAG")).isna().all()


@pytest.mark.parametrize("n, is_fitted", [(9, False), (10, True)])
def test_a_rule_needs_two_answers_per_fold(n, is_fitted):
    assert fitted_judgments(judged_rows(judged_frame(n), "CoV-RAG")).notna().all() == is_fitted


def test_a_rule_may_learn_from_the_set_alone():
    frame = judged_frame(40, expected_correctness=0.5)
    frame["dataset"] = np.where(frame.first_normalised, "easy", "hard")
    judgments = fitted_judgments(judged_rows(frame, "CoV-RAG"), ["expected_correctness"])
    assert (judgments.astype(bool) == frame.first_normalised).all()


def test_a_judge_has_a_row_per_set_on_request():
    frame = judged_frame(4, dataset=["b", "b", "a", "b"])
    table = judge_table(frame, by_set=True)
    assert table[["questions", "n"]].values.tolist() == [
        *[["all", 4], ["well put", 4], ["b", 3], ["a", 1]]
    ]


def test_values_without_a_question_have_no_row():
    rows = pd.DataFrame({"form": ["x", "y", "x"]})
    parts = [(name, len(part)) for name, part in split_by(rows, "form", ("all", "y", "z", "x"))]
    assert parts == [("all", 3), ("y", 1), ("x", 2)]


def test_trust_counts_answers_by_what_was_found():
    frame = judged_frame(8, gold_first=[True, True, True, True, False, False, False, None])
    frame["judgment"] = ["true", "true", "false", "false", "true", "false", "true", "true"]
    table = trust_table(frame).set_index("passages")
    assert table.loc["a gold passage"].tolist() == [50.0, 2, 50.0, 2]
    assert table.loc["no gold passage"].tolist() == [100.0, 2, 0.0, 1]


def test_an_unknown_judgment_is_not_correct_or_wrong():
    right = pd.Series([True, False, True])
    assert format_correct(pd.Series([True, None, False]), right) == "50.0 [9.5, 90.5]"
    assert format_correct(pd.Series([None] * 3), right) == "–"


def test_the_trust_of_a_system_is_a_fact(frame):
    facts = verifier_facts(frame)
    assert facts["CoV-RAG trusted a gold passage right"] == "33.3"
    assert facts["CoV-RAG trusted no gold passage wrong n"] == "2"
    assert facts["CoV-RAG all judged n"] == "6"
    assert facts["CoV-RAG kind broken wording gain"] == "+1 of 1"
    assert facts["CoV-RAG kind all interval"] == "–"
    assert facts["CoV-RAG searched away share"] == "100.0"


def test_a_column_of_the_judge_is_shown_under_its_own_words(judges):
    judgments, ranking, fitted = split_judges(judges).values()
    assert judgments.loc[0, "majority %"] == judges.majority[0]
    assert judgments.loc[0, "wording-only rule %"] == judges.wording[0]
    assert judgments.loc[0, "wrong answers judged false"] == judges.caught[0] == "0 of 30"
    assert judgments.loc[0, "judgment correct %"] == fitted.loc[0, "judgment as written"]
    assert ranking.loc[0, "answer's likelihood"] == judges.likelihood[0]
    assert ranking.loc[0, "probability of no revision"] == judges.unrevised[0].split()[0]
    assert fitted.loc[0, "fitted rule with the verdict"] == judges.fitted[0]
    assert fitted.loc[0, "fitted rule without the verdict"] == judges.unverified[0]


@pytest.mark.parametrize("n, is_split", [(29, False), (30, True)])
def test_thirty_questions_are_split_by_wording(judges, n, is_split):
    first, *_ = split_judges(judges.assign(n=n)).values()
    assert ("questions" in first) == is_split


def test_an_interval_with_a_width_is_shown(judges):
    judgments, *_ = split_judges(judges).values()
    assert judgments.loc[0, "judgment correct %"] == judges.judge[0]
    assert " [" in judges.judge[0]


def test_a_table_of_trust_has_both_kinds_of_answers_by_passages(frame):
    assert list(trust_table(frame)) == ["passages", "right", "n right", "wrong", "n wrong"]


def test_verdicts_that_did_not_parse_are_not_judged_by_a_fact(frame):
    unparsed = (frame.system == "CoV-RAG") & (frame.id == "q1")
    facts = verifier_facts(frame.assign(judgment=frame.judgment.mask(unparsed)))
    assert facts["CoV-RAG all judged n"] == "5"


def test_passages_of_a_question_that_cannot_be_scored_are_not_counted(frame):
    is_unscored = frame.id == "q6"
    found = frame.assign(found_last=frame.found_last.mask(is_unscored, True))
    found = found.assign(found_first=found.found_first.mask(is_unscored, False))
    assert verifier_facts(found)["CoV-RAG found anew"] == "1"
