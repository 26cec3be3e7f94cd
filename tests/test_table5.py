from dataclasses import replace

import pandas as pd

from covrag_lite.method import Tools, cov_rag
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.runs.outcomes import load_outcomes, load_outputs, save_outcomes, save_predictions
from covrag_lite.tables import table5

GOLD, OTHER = Passage("gold", "", "Stonebridge"), Passage("other", "", "nothing")


def verdict(judgment="true", revised="", correctness=0.5):
    return parse_verdict(render_verdict((0.5, correctness, 0.5, 0.5, 0.5, 0.5), judgment, revised))


def prediction(name, *rounds, system="CoV-RAG"):
    """A journey told by (right answer?, gold passage found?, verdict) a round."""
    question = Question(name, "nq", name, ("Stonebridge",), ("gold",))
    made = []
    for i, (right, found, said) in enumerate(rounds):
        made.append(Round(f"{name} {i}", (GOLD if found else OTHER,), "Stonebridge" if right else "no", said))
    return Prediction(question, system, tuple(made))


HELPED = prediction("helped", (False, False, verdict("false", "where?")), (True, True, None))
HURT = prediction("hurt", (True, True, verdict("false", "where?")), (False, False, None))
LEFT = prediction("left", (True, True, verdict()))
MISSED = prediction("missed", (False, False, verdict()))
# The passage was there: nothing to search for.
READER = prediction("reader", (False, True, verdict("false", "where?")), (False, True, None))


def test_a_deep_run_cut_to_two_rounds_is_a_run_of_two_rounds(passages, questions):
    def search(queries):
        return [passages[:2] for _ in queries]

    def answer(x, k):
        return [f"answer to {one}" for one in x]

    def verify(x, k, y):
        return [verdict("false", f"{one} again?") for one in x]

    deep, two, single = (cov_rag(questions, Tools("toy", search, answer, verify, max_rounds=n)) for n in (4, 2, 1))
    assert [table5.cut(p, 2) for p in deep] == two
    assert [table5.cut(p, 1) for p in deep] == single
    assert table5.cut(LEFT, 2) == LEFT


def test_the_papers_shares_stand_beside_its_two_sets_alone():
    other = replace(MISSED, question=replace(MISSED.question, id="other", dataset="webq"))
    both = table5.chain_table([LEFT, other]).set_index("metric")
    assert both.loc["judge", "paper"] == 60.0
    assert table5.chain_table([LEFT]).paper.isna().all()


def test_every_rule_is_measured_against_the_first_answers():
    table = table5.policies([HELPED, HURT, LEFT, MISSED]).set_index("rule")
    paper = table.loc["replace, 2 rounds at most (the paper)"]
    oracle = table.loc["oracle: the better of 2"]
    assert paper[["helped", "hurt", "left", "searches"]].tolist() == [1, 1, 0, 2]
    assert paper.accuracy == table.loc["never revise", "accuracy"] == 50
    assert oracle[["helped", "hurt", "left"]].tolist() == [1, 0, 1]
    assert oracle.accuracy == 75
    # Second answers without a verdict cannot be weighed.
    assert not any("better verified" in rule for rule in table.index)


def test_the_better_verified_answer_is_kept_and_of_equals_the_later():
    last = (False, False, None)
    first = (True, True, verdict("unclear", "where?"))
    worse = prediction("worse", first, (False, False, verdict("false", "who?")), last)
    equal = prediction("equal", (True, True, verdict("false", "where?")), (False, False, verdict("false")))
    first = (True, True, verdict("false", "where?", 0.4))
    surer = prediction("surer", first, (False, False, verdict("false", "", 0.3)))
    assert [table5.better_verified(p.rounds[:2]) for p in (worse, equal, surer)] == [0, 1, 0]
    rules = set(table5.policies([worse, equal, surer]).rule)
    assert {"keep the better verified of 2", "replace, 3 rounds at most"} <= rules
    assert "keep the better verified of 3" not in rules


def test_table_5_can_be_made_from_what_came_of_its_rounds_without_the_data(tmp_path):
    deep = prediction("deep", *[(False, False, verdict("false", "where?"))] * 2, (True, True, None))
    ways = [HELPED, HURT, LEFT, MISSED, READER, deep]
    systems = ("CoV-RAG", "CoV-RAG shuffled", "CoV-RAG free")
    made = [replace(p, system=system) for system in systems for p in ways]
    save_predictions(tmp_path / "p.jsonl.xz", made)
    save_outcomes(tmp_path / "o.csv.gz", made)
    told = load_outcomes(tmp_path / "o.csv.gz", load_outputs(tmp_path / "p.jsonl.xz"))
    for table in (table5.chain_table, table5.policies, table5.judges_of):
        unnamed = [one.drop(columns="backbone", errors="ignore") for one in (table(told), table(made))]
        pd.testing.assert_frame_equal(*unnamed)
    assert table5.chain_notes(told) == table5.chain_notes(made)
