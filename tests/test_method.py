"""Algorithm 1 line by line, and the systems compared with it, with scripted tools."""

import inspect
from dataclasses import replace
from pkgutil import resolve_name

import pytest

from covrag_lite import evaluate, systems
from covrag_lite.config import Config
from covrag_lite.controls import read_on, shuffled, swap_answers, swap_references, verify_only
from covrag_lite.method import (
    Tools,
    by_fitted_thresholds,
    by_revision,
    by_thresholds,
    cov_rag,
    expect,
    keep_likelier,
    keep_weighed,
    rag,
)
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Round

WRITER, BIRTHPLACE = "who wrote the copper lanterns", "wher was edit marow born"
REVISED = "Where was Edith Marrow born?"
TRUE = parse_verdict(render_verdict([0.9] * 6, "true", ""))
FALSE = parse_verdict(render_verdict((0.21, 0.21, 0.81, 0.91, 0.82, 0.89), "false", REVISED))


class Script:
    """Tools of a system that log their arguments."""

    def __init__(self, passages, verdicts):
        self.passages, self.verdicts, self.log = passages, verdicts, []

    def search(self, queries):
        self.log.append(("search", list(queries)))
        return [[self.passages[len(query) % 3], self.passages[3]] for query in queries]

    def answer(self, x, k):
        self.log.append(("answer", list(x), [[p.id for p in ps] for ps in k]))
        return [f"answer to {question} from {ps[0].id}" for question, ps in zip(x, k)]

    def verify(self, x, k, y):
        self.log.append(("verify", list(x), list(y), [[p.id for p in ps] for ps in k]))
        return [self.verdicts[question] for question in x]

    def tools(self, **settings):
        return Tools("toy", self.search, self.answer, self.verify, **settings)

    def stages(self):
        return [entry[0] for entry in self.log]


@pytest.fixture
def script(passages):
    return Script(passages, {WRITER: TRUE, BIRTHPLACE: FALSE})


def test_algorithm_1_line_by_line(questions, script):
    two = questions[:2]
    kept, revised = cov_rag(two, script.tools())
    assert script.log[0] == ("search", [WRITER, BIRTHPLACE])  # line 2: R(x)
    assert script.log[1][:2] == ("answer", [WRITER, BIRTHPLACE])  # line 3: M(x, k)
    first_answers = [kept.rounds[0].answer, revised.rounds[0].answer]
    assert script.log[2][:3] == ("verify", [WRITER, BIRTHPLACE], first_answers)  # line 4
    assert script.log[3] == ("search", [REVISED])  # lines 5 to 7: σ, R(x′)
    assert script.log[4][:2] == ("answer", [BIRTHPLACE])  # line 8: the initial question with k′
    assert script.log[4][2] == [[p.id for p in revised.rounds[1].passages]]
    assert len(script.log) == 5  # and nothing after that
    assert revised.answer == revised.rounds[1].answer != revised.rounds[0].answer  # line 9: ŷ = ŷ′
    assert kept.answer == kept.rounds[0].answer  # line 11
    assert len(kept.rounds) == 1
    assert [kept.question, revised.question] == two
    assert {kept.system, revised.system} == {"toy"}


def test_sigma_decides_which_questions_are_searched_again(questions, script):
    assert not any(prediction.revised for prediction in cov_rag(questions[:2], script.tools(sigma=lambda one: False)))
    assert script.stages() == ["search", "answer", "verify", "search", "answer"]
    assert script.log[3:] == [("search", []), ("answer", [], [])]


# Just within every bound of the paper's thresholds.
DOUBTED = parse_verdict(render_verdict((0.26, 0.25, 0.5, 0.91, 0.71, 0.5), "false", REVISED))


def verified(verdict, likelihood=None):
    return Round("asked", (), "answer", verdict, likelihood)


def test_sigma_by_thresholds_stops_at_each_of_its_bounds():
    assert by_thresholds(verified(DOUBTED))
    bounds = {"reference_correctness": 0.27, "correctness": 0.26, "bias": 0.7, "truthfulness": 0.92}
    for name, value in bounds.items() | {("judgment", "unclear"), ("revised_question", "")}:
        assert not by_thresholds(verified(replace(DOUBTED, **{name: value}))), name


def test_sigma_by_fitted_thresholds_reads_expectations_not_what_was_written():
    told = replace(DOUBTED, probabilities={"reference_correctness": 0.8, "correctness": 0.7})
    assert expect(told, "correctness") == 0.7 and expect(told, "bias") == 0.71
    one = verified(told, -0.5)
    assert by_fitted_thresholds(0.81, 0.71, -0.49)(one)
    for bounds in ((0.8, 0.71, -0.49), (0.81, 0.7, -0.49), (0.81, 0.71, -0.5)):
        assert not by_fitted_thresholds(*bounds)(one)
    assert by_fitted_thresholds(0.81, 0.71, -0.49)(replace(one, likelihood=None))
    rounds = [replace(one, likelihood=value) for value in (-0.5, -0.5)]
    assert keep_likelier(rounds) == -1 and keep_likelier([rounds[0], replace(one, likelihood=-0.6)]) == 0
    assert keep_likelier([rounds[0], replace(one, likelihood=None)]) == -1


@pytest.mark.parametrize("sigma", [by_revision, by_thresholds, by_fitted_thresholds()])
def test_an_unparsed_verdict_revises_nothing(sigma):
    assert not sigma(verified(parse_verdict("I think the answer is fine.")))


def test_the_weighed_answer_needs_likelihood_and_verdict_of_every_round():
    first = verified(replace(TRUE, correctness=0.2), -0.1)
    assert keep_weighed([first, verified(TRUE, -1.5)]) == -1  # -0.1 + 0.6 is less than -1.5 + 2.7
    assert keep_weighed([first, verified(replace(TRUE, correctness=0.5), -1.5)]) == 0
    assert keep_weighed([first, verified(None, -1.5)]) == keep_weighed([verified(TRUE), first]) == -1
    direct = [replace(TRUE, correctness=None, probabilities={"empty": chance}) for chance in (0.9, 0.2)]
    assert keep_weighed([verified(one, -1.0) for one in direct]) == 0  # without a chain no revision is what trust is


def test_the_last_answer_is_verified_only_where_a_rule_asks_for_it(questions, script):
    weighing = script.tools(verifies_last=True)
    _, revised = cov_rag(questions[:2], weighing)
    assert script.stages() == ["search", "answer", "verify"] * 2
    assert script.log[-1][1:3] == ([BIRTHPLACE], [revised.answer]) and revised.rounds[1].verdict == FALSE
    assert rag(questions[:2], weighing)[0].rounds[0].verdict is None


def test_the_shuffled_control_searches_as_often_as_cov_rag_but_for_another_question(questions, passages):
    three = questions[:3]
    said = {WRITER: TRUE, BIRTHPLACE: FALSE, three[2].question: replace(FALSE, revised_question="How long is it?")}
    plain, mixed = Script(passages, said), Script(passages, said)
    cov_rag(three, plain.tools())
    made = shuffled(three, mixed.tools(max_rounds=3))  # the control has two rounds, whatever the run says
    assert plain.log[3] == ("search", [REVISED, "How long is it?"])
    assert mixed.log[3] == ("search", ["How long is it?", REVISED])
    assert [len(p.rounds) for p in made] == [1, 2, 2]


def test_the_control_that_reads_on_takes_the_next_passages_of_the_same_question(questions, script):
    one, other = script.passages[-2:]
    asked = []
    tools = script.tools(max_rounds=3, search_on=lambda queries: asked.append(queries) or [[one, other]])
    kept, again = read_on(questions[:2], tools)
    assert script.stages() == ["search", "answer", "verify", "answer"] and asked == [[BIRTHPLACE]]
    assert script.log[-1] == ("answer", [BIRTHPLACE], [[one.id, other.id]])
    assert len(kept.rounds) == 1 and (again.rounds[1].query, again.rounds[1].passages) == (BIRTHPLACE, (one, other))


def test_the_control_that_expands_queries_searches_again_for_every_question_and_verifies_if_asked(questions, script):
    named = "RAG trained, every query expanded by {}".format
    by_guesses, by_answer = (resolve_name(systems.find_system(named(way)).run) for way in ("guesses", "its answer"))
    said = {"guess": ["Ada wrote it.", ""], "options": ["Ada, Bea, Cyd", "Oslo"]}
    tools = script.tools(write_alone=lambda task, x: said[task], keep=lambda rounds: 0)
    told, silent = by_guesses(questions[:2], tools)
    assert script.stages() == ["search", "answer"] * 2 and script.log[2][1][1] == BIRTHPLACE  # no guess: as typed
    assert told.rounds[1].query == f"{WRITER}? Ada wrote it. Ada, Bea, Cyd" and script.log[3][1] == [WRITER, BIRTHPLACE]
    assert (told.answer, told.kept, silent.rounds[1].query) == (told.rounds[0].answer, 0, BIRTHPLACE)
    told, _ = by_guesses(questions[:2], replace(tools, verifies_last=True))
    assert script.stages()[4:] == ["search", "answer"] * 2 + ["verify"] * 2
    assert script.log[-1][1:3] == ([WRITER, BIRTHPLACE], [told.rounds[1].answer, silent.rounds[1].answer])
    told, _ = by_answer(questions[:2], replace(tools, write_alone=None, keep=lambda rounds: -1))
    assert told.answer == told.rounds[1].answer
    assert told.rounds[1].query.startswith(f"{WRITER}? answer to who")


def test_to_verify_only_is_to_search_once(questions, script):
    made = verify_only(questions[:2], script.tools(max_rounds=3))
    assert script.stages().count("verify") == 1
    assert [len(p.rounds) for p in made] == [1, 1]
    assert [p.rounds[0].verdict for p in made] == [TRUE, FALSE]


def test_swapped_references_are_the_next_questions_passages_beside_ones_own_answer(questions, script):
    first, second = swap_references(questions[:2], script.tools())
    own = [first.rounds[0].passages, second.rounds[0].passages]
    shown = [[p.id for p in passages] for passages in own[::-1]]
    assert script.log[2] == ("verify", [WRITER, BIRTHPLACE], [first.answer, second.answer], shown)
    assert [first.answer, second.answer] == script.answer([WRITER, BIRTHPLACE], own)
    assert len(first.rounds) == len(second.rounds) == 1


def test_a_swapped_answer_is_the_next_other_one_of_the_same_set(questions, script):
    asked = [replace(questions[0], dataset=name) for name in ("one", "one", "one", "two")]
    tools = replace(
        script.tools(), answer=lambda x, k: ["a", "a", "b", "x"][: len(x)], likelihoods=lambda x, k: [-1.0] * len(x)
    )
    made = swap_answers(asked, tools)
    assert [p.answer for p in made] == ["b", "b", "a", "x"]
    assert script.log[1][2] == ["b", "b", "a", "x"]  # what the judge was shown
    assert {p.rounds[0].likelihood for p in made} == {None}  # the model has not written it here


def test_algorithm_1_fits_on_one_screen():
    assert len(inspect.getsource(cov_rag).splitlines()) <= 40


def test_every_entry_is_found_by_its_name_and_drawn_in_a_colour_of_its_own():
    for name, system in systems.SYSTEMS.items():
        assert systems.find_system(name) is system
        assert system.name == name
    colours = list(systems.palette().values())
    assert len(colours) == len(set(colours)) > 5
    assert systems.find_system("Start-Revise trained").adapters == {"cov", "rewrite"}
    direct = systems.find_system("CoV-RAG w/o chain, two adapters, weighed answer")
    assert (direct.adapter, direct.verifier) == ("rag", "cov-direct")
    assert systems.adapter_of("clean wording") == ""  # no system
    with pytest.raises(ValueError, match="system 'GPT-9' is not known; use some of closed-book, RAG"):
        systems.find_system("GPT-9")
    with pytest.raises(ValueError, match="there are no questions in .*; a folder needs"):
        evaluate.run(Config(), None, [])
