"""Algorithm 1, line by line, with everything scripted."""

from covrag_lite import chain
from covrag_lite.prompts import parse_verdict, render_verdict

TRUE = parse_verdict(render_verdict([0.9] * 6, "true", ""))
FALSE = parse_verdict(render_verdict((0.21, 0.21, 0.81, 0.91, 0.82, 0.89), "false", "Where was Edith Marrow born?"))


class Script:
    """Search, answer and verify that keep a log of what they were handed."""

    def __init__(self, passages, verdicts):
        self.passages, self.verdicts, self.log = passages, verdicts, []

    def search(self, queries):
        self.log.append(("search", list(queries)))
        return [[self.passages[len(query) % 3], self.passages[3]] for query in queries]

    def answer(self, x, k):
        self.log.append(("answer", list(x), [[p.id for p in ps] for ps in k]))
        return [f"answer to {question} from {ps[0].id}" for question, ps in zip(x, k)]

    def verify(self, x, k, y):
        self.log.append(("verify", list(x), list(y)))
        return [self.verdicts[question] for question in x]


def run(questions, passages, **settings):
    script = Script(passages, {"who wrote the copper lanterns": TRUE, "wher was edit marow born": FALSE})
    return script, chain.cov_rag(questions[:2], script.search, script.answer, script.verify, **settings)


def test_algorithm_1_line_by_line(questions, passages):
    script, (kept, revised) = run(questions, passages)
    first, second = "who wrote the copper lanterns", "wher was edit marow born"
    assert script.log[0] == ("search", [first, second])  # line 2: R(x)
    assert script.log[1][:2] == ("answer", [first, second])  # line 3: M(x, k)
    assert script.log[2] == ("verify", [first, second], [kept.rounds[0].answer, revised.rounds[0].answer])  # line 4
    assert script.log[3] == ("search", ["Where was Edith Marrow born?"])  # lines 5 to 7: σ, R(x′)
    assert script.log[4][:2] == ("answer", [second])  # line 8: the initial question with k′
    assert script.log[4][2] == [[p.id for p in revised.rounds[1].passages]]
    assert len(script.log) == 5  # and nothing after that
    assert revised.answer == revised.rounds[1].answer != revised.rounds[0].answer  # line 9: ŷ = ŷ′
    assert kept.answer == kept.rounds[0].answer and len(kept.rounds) == 1  # line 11


def test_one_round_is_plain_rag_and_asks_for_no_verdict(questions, passages):
    script, predictions = run(questions, passages, max_rounds=1)
    assert [entry[0] for entry in script.log] == ["search", "answer"]
    assert [p.answer for p in predictions] == [p.answer for p in chain.rag(questions[:2], script.search, script.answer)]


def test_cov_rag_s_is_cov_rags_first_round(questions, passages):
    single, double = run(questions, passages, max_rounds=1)[1], run(questions, passages)[1]
    assert [p.rounds[0].answer for p in single] == [p.rounds[0].answer for p in double]


def test_a_third_round_verifies_only_what_was_revised(questions, passages):
    script, (kept, revised) = run(questions, passages, max_rounds=3)
    assert [entry[1] for entry in script.log if entry[0] == "verify"] == [
        ["who wrote the copper lanterns", "wher was edit marow born"],
        ["wher was edit marow born"],
    ]
    assert (len(kept.rounds), len(revised.rounds)) == (1, 3)


def test_sigma_by_thresholds_wants_every_threshold_crossed():
    sigma = chain.by_thresholds()
    assert sigma(FALSE)  # the scores of the paper's Table 15, which were revised there
    assert not sigma(TRUE)
    better = parse_verdict(render_verdict((0.5, 0.21, 0.81, 0.91, 0.82, 0.89), "false", "Where was Edith Marrow born?"))
    assert chain.by_revision(better) and not sigma(better)


def test_an_unparsed_verdict_revises_nothing():
    rubbish = parse_verdict("I think the answer is fine.")
    assert not chain.by_revision(rubbish) and not chain.by_thresholds()(rubbish)


def test_start_revise_searches_with_the_rewrite_and_answers_the_first_question(questions, passages):
    script = Script(passages, {})
    made = chain.start_revise(questions[:2], script.search, script.answer, lambda x: ["Who wrote it?", ""])
    assert script.log[0] == ("search", ["Who wrote it?", questions[1].question])  # an empty rewrite searches as typed
    assert script.log[1][1] == [questions[0].question, questions[1].question]
    assert [p.system for p in made] == ["Start-Revise"] * 2


def test_closed_book_sees_no_passage(questions):
    made = chain.closed_book(questions, lambda x: ["?"] * len(x))
    assert all(p.rounds[0].passages == () and p.rounds[0].query == "" for p in made)


def test_algorithm_1_fits_on_one_screen():
    import inspect

    assert len(inspect.getsource(chain.cov_rag).splitlines()) <= 40
