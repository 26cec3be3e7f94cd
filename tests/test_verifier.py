"""How the verifier's tables are shown: narrow parts, headers in words, the same numbers."""

import numpy as np
import pandas as pd
import pytest

from covrag_lite.tables import sigma, table5, verifier

# Pages name facts by these columns.
COLUMNS = "questions n right judge majority wording caught doubted".split()
COLUMNS += "AUROC likelihood both unrevised fitted unverified".split()


@pytest.fixture
def judges():
    """A judge table of 60 answers to questions of two forms; its scores are perfect."""
    right = np.arange(60) % 2 == 0
    rows = pd.DataFrame({"id": [f"q{i:02}" for i in range(60)], "first_normalised": right})
    rows["form"] = np.where(np.arange(60) < 30, "well put", "two-hop")
    rows = rows.assign(system="CoV-RAG", dataset="one", judgment="true", unrevised=0.5)
    rows["expected_correctness"] = np.where(right, 0.9, 0.1)
    rows["likelihood"] = np.linspace(-1, -0.1, 60)
    return verifier.judge_table(rows).assign(system="CoV-RAG")


def test_facts_keep_their_names(frame):
    assert verifier.judge_table(frame).columns.tolist() == COLUMNS


def test_every_column_of_the_judge_is_shown_in_one_of_three_parts(judges):
    shown = {name for headers in verifier.JUDGE_PARTS.values() for name in headers}
    assert shown == set(judges.columns) - {"system", "questions"}


def test_a_part_of_the_judges_table_fits_a_page(judges):
    parts = verifier.split_judges(judges).values()
    assert max(part.shape[1] for part in parts) <= 9


def test_questions_are_split_by_wording_where_there_are_several_forms(judges):
    ranking = list(verifier.split_judges(judges).values())[1]
    assert ranking.questions.tolist() == ["all", "well put", "two-hop"]


def test_questions_of_one_form_are_shown_once(judges):
    one_form = judges[judges.questions.isin(["all", "well put"])]
    for part in verifier.split_judges(one_form).values():
        assert len(part) == 1 and "questions" not in part


def test_few_questions_are_not_split_by_wording(frame):
    table = table5.judges_of(frame)
    assert set(table.questions) == {"all", "well put", "broken wording"}
    for part in verifier.split_judges(table).values():
        assert part.system.tolist() == ["CoV-RAG, no scores", "CoV-RAG"]


def test_an_interval_of_no_width_is_not_shown(judges):
    ranking = list(verifier.split_judges(judges).values())[1]
    assert judges.AUROC[0] == "1.00 [1.00, 1.00]"
    assert ranking["verifier's correctness score"][0] == "1.00"


def test_obstacles_have_names_that_people_read(frame):
    answers, verdicts = verifier.split_failures(verifier.failure_table(frame)).values()
    assert answers.questions.tolist() == ["all", "no obstacle", "broken wording"]
    assert verdicts.questions.equals(answers.questions)


def test_the_causes_of_wrong_answers_add_up_to_all_of_them(frame):
    shares = [value for name, value in verifier.bounds(frame).items() if name.endswith(" share")]
    assert sum(shares) == pytest.approx(100)


def test_a_tiny_p_of_a_rule_for_searching_again_is_written_as_such(cov):
    rules = sigma.cross_validate_sigma(cov, folds=3)[1].assign(**{"McNemar p": 0.0})
    assert set(sigma.rule_table(rules)["McNemar p"]) == {"< 0.001"}


def test_every_rule_for_searching_again_has_a_name_that_people_read(cov):
    assert set(sigma.cross_validate_sigma(cov, folds=3)[1]["σ"]) == set(sigma.RULES)
