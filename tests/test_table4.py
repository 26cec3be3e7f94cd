"""Table 4: what each query finds, and rewrites that lose the gold passage or repeat words."""

from dataclasses import replace

import pytest
import toy
from toy import PASSAGES, TEXTS

from covrag_lite.records import Round
from covrag_lite.runs.frame import to_frame
from covrag_lite.systems.names import COV_RAG, RAG, START_REVISE, START_REVISE_TRAINED
from covrag_lite.tables import table4

ECHO = "Rewrite this as one clear question for a search engine."
OFF_THE_QUESTION = f"{START_REVISE_TRAINED} off the question"  # without a word of its question


def rewrite(predictions, **queries):
    """Predictions in which some rewritten questions of Start-Revise find the gold passage of q4."""
    changed = []
    for prediction in predictions:
        query = queries.get(prediction.question.id)
        if query and prediction.system == START_REVISE_TRAINED:
            prediction = replace(prediction, rounds=(Round(query, (PASSAGES["e"],), ""),))
        changed.append(prediction)
    return changed


def test_a_rewrite_that_loses_the_gold_passage_is_shown(predictions):
    queries = {"q2": "of the hills", "q3": "hills of the river", "q4": "when is it?"}
    lost = table4.drift(rewrite(predictions, **queries))  # q2 had not found it, q4 still finds it
    assert lost.values.tolist() == [[TEXTS["q3"], "hills of the river"]]


def test_without_a_lost_passage_no_rewrite_is_shown(predictions):
    assert table4.drift(predictions).empty


def test_rewrites_that_share_no_word_with_their_question_are_counted(predictions):
    assert table4.rewrite_facts(predictions)[OFF_THE_QUESTION] == "0"
    repeating = rewrite(predictions, q1=ECHO, q3="Rewrite: how is the")
    assert table4.rewrite_facts(repeating)[OFF_THE_QUESTION] == "2"


def test_without_a_recorded_rewrite_none_is_counted(predictions):
    unchanged = rewrite(predictions, q2=TEXTS["q2"])
    assert OFF_THE_QUESTION not in table4.rewrite_facts(unchanged)


@pytest.fixture
def queries(predictions):
    rewritten = rewrite(predictions, q1=ECHO, q4="when is it?")
    return table4.query_table(rewritten, toy.search)


def test_there_is_a_row_per_place_of_the_revision_and_one_for_the_clean_wording(queries):
    assert queries.index.tolist() == [
        "as asked (no revision)",
        "rewritten first (trained)",
        "revised after the answer (CoV-RAG)",
        "clean wording (oracle)",
    ]


@pytest.mark.parametrize(
    "name, cells",
    [
        ("as asked (no revision)", ["0 of 7", "0", "3 of 5", "60.0"]),
        ("revised after the answer (CoV-RAG)", ["3 of 7", "0", "4 of 5", "80.0"]),
        ("clean wording (oracle)", ["1 of 7", "0", "4 of 5", "80.0"]),  # only q2 has one
    ],
)
def test_a_query_is_counted_with_what_it_changes_and_finds(queries, name, cells):
    assert queries.loc[name].tolist() == cells  # two questions have no gold passage


def test_a_changed_query_without_a_word_of_its_question_is_counted(queries):
    row = queries.loc["rewritten first (trained)"]
    assert row.tolist()[:2] == ["3 of 7", "1"]  # also q2 is rewritten; the echo shares no word


def test_without_a_search_there_is_no_row_for_the_clean_wording(predictions):
    assert "clean wording (oracle)" not in table4.query_table(predictions).index


def test_rows_are_called_by_the_place_of_the_revision(frame):
    assert table4.positions(frame).index.tolist() == ["No revision", "Rewrite first", "CoV-RAG"]


def test_a_question_is_shown_that_only_the_later_revision_rescues(predictions):
    shown = table4.same_question(rewrite(predictions, q2="where was ada voss"))
    assert [prediction.system for prediction in shown] == [START_REVISE_TRAINED, COV_RAG]
    assert {prediction.question.id for prediction in shown} == {"q2"}


def test_a_question_that_is_answered_rightly_without_a_revision_is_not_shown(predictions):
    rescued = rewrite(predictions, q2="where was ada voss")
    others = [p for p in rescued if p.question.id != "q2"]
    assert table4.same_question(others) == []


def test_a_question_that_was_not_rewritten_is_not_shown(predictions):
    unchanged = rewrite(predictions, q2=f"{TEXTS['q2']}?")
    assert table4.same_question([p for p in unchanged if p.question.id == "q2"]) == []


def test_a_question_that_one_place_lacks_is_not_shown(predictions):
    rescued = rewrite(predictions, q2="where was ada voss")
    partly = [p for p in rescued if p.system != COV_RAG]
    assert table4.same_question(partly) == []


def test_rewritten_questions_are_counted(predictions):
    rewritten = f"{START_REVISE_TRAINED} rewritten"
    assert table4.rewrite_facts(predictions)[rewritten] == "1"  # q2
    assert table4.rewrite_facts(rewrite(predictions, q1=ECHO))[rewritten] == "2"


def test_both_rewriters_are_counted_and_have_a_row(predictions):
    both = [
        *predictions,
        *(replace(p, system=START_REVISE) for p in predictions if p.system == RAG),
    ]
    assert table4.rewrite_facts(both)[f"{START_REVISE} rewritten"] == "0"
    rows = [name for name in table4.query_table(both).index if name.startswith("rewritten")]
    assert rows == ["rewritten first (untuned)", "rewritten first (trained)"]


def test_other_systems_than_rewriters_have_no_such_fact(predictions):
    assert {name.partition(" trained")[0] for name in table4.rewrite_facts(predictions)} == {
        "Start-Revise"
    }


@pytest.mark.parametrize(
    "question, query, is_off",
    [
        ("who kept the lamp", "the lamp of old", False),
        ("who kept the lamp", "THE LAMP!", False),
        ("is it the sea", "the sea is it", True),  # no word of four letters
    ],
)
def test_a_query_is_off_its_question_without_a_common_long_word(question, query, is_off):
    assert table4.is_off(question, query) == is_off


def test_positions_have_our_accuracy_without_the_papers(predictions):
    table = table4.positions(to_frame(toy.of_public_sets(predictions)))
    assert table.loc["CoV-RAG"].tolist() == ["3 of 4", "2 of 2", "5 of 6"]


def test_where_no_text_is_recorded_words_are_not_compared(predictions):
    without = [replace(p, question=replace(p.question, question="")) for p in predictions]
    row = table4.query_table(without).loc["as asked (no revision)"]
    assert row.tolist()[:2] == ["7 of 7", "–"]


def test_where_no_gold_passage_is_known_none_is_counted(predictions):
    without = [replace(p, question=replace(p.question, gold_passages=())) for p in predictions]
    row = table4.query_table(without).loc["as asked (no revision)"]
    assert row.tolist()[2:] == ["–", "–"]


def test_lost_passages_are_shown_by_both_queries(predictions):
    lost = table4.drift(rewrite(predictions, q3="hills of the river"))
    assert list(lost) == ["question, finds a gold passage", "rewritten, no longer finds it"]


def test_three_lost_passages_are_shown(predictions):
    as_asked = dict.fromkeys(("q1", "q3", "q4", "q5", "q7"), "hills of the river")
    known = []
    for p in rewrite(predictions, **as_asked):
        if p.system == "CoV-RAG-S":  # as if every question found its gold passage
            question = replace(p.question, gold_passages=(p.rounds[0].passages[0].id,))
            p = replace(p, question=question)
        elif p.question.id in as_asked:
            p = replace(p, question=replace(p.question, gold_passages=("missing",)))
        known.append(p)
    lost = table4.drift(known)
    assert lost.iloc[:, 0].tolist() == [TEXTS["q1"], TEXTS["q3"], TEXTS["q4"]]


def test_the_rows_of_the_queries_are_named(queries):
    assert queries.index.name == "query"
    assert list(queries) == ["changed", "no shared word", "gold passage found", "in %"]


def test_without_clean_wordings_there_is_no_row_of_them(predictions):
    without = [replace(p, question=replace(p.question, clean_question="")) for p in predictions]
    assert "clean wording (oracle)" not in table4.query_table(without, toy.search).index


def test_the_first_question_that_only_the_later_revision_rescues_is_shown(predictions):
    both = rewrite(predictions, q2="where was ada voss", q7="who is the keeper")
    assert table4.same_question(both)[0].question.id == "q2"
    assert table4.same_question(both[::-1])[0].question.id == "q7"


def test_a_question_that_the_rewrite_rescues_as_well_is_not_shown(predictions):
    rewritten = []
    for p in rewrite(predictions, q2="where was ada voss"):
        if p.system == START_REVISE_TRAINED:
            rounds = tuple(replace(step, answer=p.question.answers[0]) for step in p.rounds)
            p = replace(p, rounds=rounds)
        rewritten.append(p)
    assert table4.same_question(rewritten) == []


def test_only_the_places_of_the_revision_have_a_row(frame):
    assert len(table4.positions(frame)) == len(table4.POSITIONS)
    assert table4.label("RAG trained") == "RAG (trained)"
