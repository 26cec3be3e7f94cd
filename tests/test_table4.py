from covrag_lite.records import Prediction, Round
from covrag_lite.tables import table4


def rewritten(questions, *queries):
    """The questions, searched for with these queries."""
    return [Prediction(q, "Start-Revise", (Round(query, (), ""),)) for q, query in zip(questions, queries)]


def test_a_rewrite_that_loses_the_gold_passage_is_shown(passages, questions):
    asked = questions[1]
    kept = Prediction(asked, "CoV-RAG-S", (Round(asked.question, (passages[1],), ""),))
    lost = Prediction(asked, "Start-Revise trained", (Round("hills of the long river", (passages[5],), ""),))
    assert table4.drift([kept, lost]).values.tolist() == [[asked.question, "hills of the long river"]]
    same = Prediction(asked, "Start-Revise trained", (Round("Where was Edith Marrow born?", (passages[1],), ""),))
    assert table4.drift([kept]).empty and table4.drift([kept, same]).empty


def test_a_rewrite_that_repeats_the_instruction_is_counted(questions):
    echo = "Rewrite this as one clear question for a search engine."
    made = rewritten(questions, echo, "Where was Edith Marrow born?", "Rewrite: how is the")
    assert table4.off_question(made) == 2


def test_rewrites_that_were_not_recorded_are_not_counted(questions):
    made = rewritten(questions, *(q.question for q in questions))
    assert table4.off_question(made) is None
