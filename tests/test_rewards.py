"""RRR's rewriter learns what the reader rewards."""

import pytest

from covrag_lite import prompts
from covrag_lite.config import Config
from covrag_lite.records import Question
from covrag_lite.related import rewards
from covrag_lite.sources import Source


class Writer:
    """A rewriter that writes a sample by its number, and a reader that reads names out of passages."""

    settings = Config().model

    def __init__(self):
        self.samples = {None: "the same thing", 0: "copper lanterns author", 1: "sheep"}

    def write(self, stage, texts, limit, sample=None):
        return [self.samples[sample]] * len(texts)

    def guess(self, x):
        return ["" for _ in x]

    def name_terms(self, x):
        return ['the "terms"' for _ in x]

    def answer(self, x, k):
        return ["Edith Marrow[1]" if "Edith" in own[0].text else "nobody" for own in k]


@pytest.fixture
def source(passages):
    def search(queries):
        return [[passages[0 if "author" in query or "kite" in query else 2]] for query in queries]

    lost = Question("q0", "nq", "who wrot teh copper lantern", ("Edith Marrow",), ("p0",))
    found = Question("q1", "nq", "kite author of lanterns", ("Edith Marrow",), ("p0",))
    return Source([lost, found], passages, search, search)


def test_candidates_are_the_question_itself_and_what_the_rewriter_writes(source):
    (made, _) = rewards.propose([one.question for one in source.questions], Writer(), 2)
    asked = source.questions[0].question
    assert made == [asked, "the same thing", "copper lanterns author", "sheep", "the terms", f"{asked}?"]


def test_the_reward_is_the_readers_answer_and_half_as_much_for_a_passage(source):
    question = source.questions[0]
    values = rewards.rewards([question], [["copper lanterns author", "sheep"]], [source.search], Writer())
    assert values == [[1.5, 0.0]]
    deaf = Writer()
    deaf.answer = lambda x, k: ["nobody" for _ in x]
    assert rewards.rewards([question], [["copper lanterns author"]], [source.search], deaf) == [[0.5]]


def test_the_question_itself_wins_ties_and_a_question_nobody_answers_teaches_nothing():
    assert rewards.choose(["asked", "rewritten"], [1.5, 1.5]) == "asked"
    assert rewards.choose(["asked", "rewritten"], [0.5, 1.5]) == "rewritten"
    assert rewards.choose(["asked", "rewritten"], [0.0, 0.0]) is None


def test_the_rewriter_learns_the_best_rewrite_of_each_question(source):
    config = Config().change(n_rewrites=2)
    samples = rewards.reward_samples(config, [source], Writer(), Writer())
    assert [(one.id, one.target) for one in samples] == [
        ("q0", ("copper lanterns author",)),
        ("q1", ("kite author of lanterns",)),
    ]
    assert samples[0].prompt == prompts.build_rewrite("who wrot teh copper lantern")
    assert rewards.describe(samples) == "2 rewarded rewrites, 1 of them other than the question itself"


def test_a_reader_that_is_never_right_is_named(source, passages):
    hopeless = Source([Question("q", "nq", "what?", ("Nothing",), ("p9",))], passages, source.search, source.deep)
    with pytest.raises(ValueError, match="no rewrite was rewarded"):
        rewards.reward_samples(Config().change(n_rewrites=2), [hopeless], Writer(), Writer())


def test_all_sets_are_rewritten_searched_and_read_together_each_in_its_own_passages(source, passages):
    class Counting(Writer):
        calls = []

        def write(self, stage, texts, limit, sample=None):
            self.calls.append((stage, len(texts)))
            return super().write(stage, texts, limit, sample)

        def answer(self, x, k):
            self.calls.append(("answer", len(x)))
            return super().answer(x, k)

    def barren(queries):
        return [[passages[2]] for _ in queries]

    elsewhere = Source([Question("q9", "webq", "kite author of sheep", ("Edith Marrow",))], passages, barren, barren)
    samples = rewards.reward_samples(Config().change(n_rewrites=2), [source, elsewhere], Counting(), Counting())
    assert [one.id for one in samples] == ["q0", "q1"]  # the third question's own passages hold no answer
    assert Counting.calls == [("rewrite", 3)] * 3 + [("answer", 18)]


def test_a_thousand_rewrites_are_many_steps(monkeypatch):
    from covrag_lite import recipe

    asked = []
    monkeypatch.setattr(recipe, "train_adapter", lambda config, name, samples: asked.append((config.training, name)))
    rewards.learn(Config().change(step_tokens=16384, pack_tokens=8192, epochs=1), [])
    ((settings, name),) = asked
    assert (settings.step_tokens, settings.pack_tokens, settings.epochs) == (2048, 2048, 2)
    assert name == "rewrite-reward"
