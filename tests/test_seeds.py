"""Several training seeds beside each other."""

from dataclasses import replace

import pytest

from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.tables import seeds

HELD, OTHER = (Passage("gold", "", "Stonebridge"),), (Passage("other", "", "nothing"),)


def ways(system, rights, n=4):
    """A system's predictions: the numbers of the questions that it has right."""
    made = []
    for number in range(n):
        question = Question(f"q{number}", "nq", f"question {number}", ("Stonebridge",), ("gold",))
        right = number in rights
        made.append(
            Prediction(question, system, (Round("x", HELD if right else OTHER, "Stonebridge" if right else "no"),))
        )
    return made


def judged(predictions, judgment="true"):
    verdict = parse_verdict(render_verdict([0.5] * 6, judgment, ""))
    return [replace(p, rounds=(replace(p.rounds[0], verdict=verdict), *p.rounds[1:])) for p in predictions]


@pytest.fixture
def two():
    """In both seeds CoV-RAG has one question more right than RAG trained, another one in each."""
    first = ways("RAG trained", {0}) + ways("CoV-RAG-S", {0}) + judged(ways("CoV-RAG", {0, 1}))
    second = ways("RAG trained", {0}) + ways("CoV-RAG-S", {0, 2}) + judged(ways("CoV-RAG", {0, 2}))
    return seeds.Seeds({"1": first, "2": second}, {})


def row_of(table, what, seed):
    (row,) = table[(table.what == f"answer right: {what}") & (table.seed == seed)].to_dict("records")
    return row


def test_questions_that_one_seed_lacks_are_left_out_of_the_mean_alone(two):
    short = [p for p in two.table2["2"] if p.question.id != "q1"]
    table = seeds.comparisons(seeds.Seeds({**two.table2, "2": short}, {}))
    assert row_of(table, "RAG trained → CoV-RAG", "1")["n"] == 4
    assert row_of(table, "RAG trained → CoV-RAG", seeds.MEAN)["n"] == 3


def test_chain_and_none_are_compared_where_table_5_was_run(two):
    with_chain = judged(ways("CoV-RAG", {0, 1}), "true")
    none = judged(ways("CoV-RAG w/o chain", {0}), "true")
    table = seeds.comparisons(seeds.Seeds(two.table2, {"1": with_chain + none}))
    found = table[table.what.str.contains("w/o chain")].set_index("what").value.to_dict()
    pair = "CoV-RAG w/o chain → CoV-RAG"
    assert found == {f"{part} right: {pair}": 25.0 for part in ("first answer", "last answer", "judgment")}
    assert not seeds.comparisons(two).what.str.contains("w/o chain").any()


def with_chances(predictions, chances):
    """The verdicts with a chance each that no question is revised."""
    made = []
    for prediction, chance in zip(judged(predictions), chances, strict=True):
        verdict = replace(prediction.rounds[0].verdict, probabilities={"empty": chance})
        made.append(replace(prediction, rounds=(replace(prediction.rounds[0], verdict=verdict),)))
    return made


def test_judges_with_and_without_scores_are_ordered_by_the_one_chance_that_both_have(two):
    with_chain = with_chances(ways("CoV-RAG", {0, 1}), [0.9, 0.8, 0.2, 0.1])
    none = with_chances(ways("CoV-RAG w/o chain", {0, 1}), [0.1, 0.8, 0.9, 0.2])
    both = seeds.Seeds(two.table2, {"1": with_chain + none})
    areas = seeds.unrevised(both).set_index("system").AUROC.str.split().str[0].to_dict()
    assert areas == {"CoV-RAG": "1.00", "CoV-RAG w/o chain": "0.25"}
    assert seeds.build(both).facts["CoV-RAG 1 unrevised AUROC"].startswith("1.00")
    assert "by the chance that no question is revised" in seeds.build(both).text
    assert seeds.unrevised(two).empty
