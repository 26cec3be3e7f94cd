"""The fictional world: deterministic, answers where they should be, wording without hints."""

import hashlib
import re
from collections import Counter
from dataclasses import asdict
from functools import cache
from itertools import combinations

import pytest

from covrag_lite.config import Config, Retrieval
from covrag_lite.data import world
from covrag_lite.data.world.entities import TRAPS
from covrag_lite.metrics import normalise
from covrag_lite.records import Passage, Question
from covrag_lite.retrieval import load_retriever
from covrag_lite.tables.world import failure_rates, find_gold, show_failures

SPLITS = ("test", "validation", "train")
FORMS = ("well put", "broken wording", "two-hop")
FAILURES = {"none", "namesake", "synonym", "stale", "contradiction", "broken wording", "two-hop"}
N_SEARCH = 150  # search queries of the test split

# Recorded from the default world; a change of any word must be intended.
PASSAGES_SHA256 = "16b525c6aed0e3d0c8feb435b789e7aaf79182b226ab255322b4f14ce4b27d9b"
QUESTIONS_SHA256 = "1c48277b6ea483ca4ebef17a779812d9fdb1e99c1bf76cfd5f5c486c37af4304"


@cache
def ask(config, split, *datasets):
    """The questions of a split, from some sets or all four."""
    questions = []
    for name in datasets or world.DATASETS:
        questions += world.questions(config, split, name)
    return questions


DEFAULT = Config()
WORLDS = [DEFAULT.change(seed=seed) for seed in (1, 2)]
BY_SPLIT = {split: ask(DEFAULT, split) for split in SPLITS}
ALL_QUESTIONS = sum(BY_SPLIT.values(), [])
CORPUS = world.passages(DEFAULT)
BY_ID = {passage.id: passage for passage in CORPUS}
seeds = pytest.mark.parametrize("config", WORLDS, ids=lambda config: f"seed-{config.world.seed}")
splits = pytest.mark.parametrize("questions", BY_SPLIT.values(), ids=BY_SPLIT.keys())
pairs_of_splits = pytest.mark.parametrize("first, second", list(combinations(SPLITS, 2)))


def digest(records) -> str:
    texts = "\n".join(repr(asdict(record)) for record in records)
    return hashlib.sha256(texts.encode()).hexdigest()


@cache
def search_all(config, split="test", clean=False):
    """The questions of a split, and what BM25 finds for each in its original or clear wording."""
    questions = ask(config, split)
    search = load_retriever(Retrieval(), world.passages(config))
    queries = [question.clean_question if clean else question.question for question in questions]
    return questions, search(queries)


def hit_rate(config, keep=lambda question: True, clean=False) -> float:
    """The share of some questions whose gold passage is found."""
    questions, results = search_all(config, clean=clean)
    hits = []
    for question, is_hit in zip(questions, find_gold(questions, results)):
        if keep(question):
            hits.append(is_hit)
    return sum(hits) / len(hits)


# The same seed gives the same world.


def test_the_same_seed_gives_the_same_passages():
    assert digest(CORPUS) == PASSAGES_SHA256


def test_the_same_seed_gives_the_same_questions():
    assert digest(ALL_QUESTIONS) == QUESTIONS_SHA256


def test_another_seed_gives_other_texts():
    texts = {passage.text for passage in CORPUS}
    assert not texts & {passage.text for passage in world.passages(WORLDS[1])}


@pytest.fixture(scope="module")
def larger():
    return world.passages(DEFAULT.change(n_passages=3501))


def test_a_larger_world_begins_with_the_smaller_one(larger):
    assert larger[:2400] == CORPUS
    assert len(larger) == 3501


def test_ids_and_titles_are_unique(larger):
    assert len({passage.id for passage in larger}) == len(larger)
    assert len({passage.title for passage in larger}) == len(larger)


# Questions and their gold passages.


@splits
def test_no_question_has_a_gap_or_a_wrong_article(questions):
    mistake = re.compile(r"[{}]|  |\bthe the\b|\ba [aeiou]", re.IGNORECASE)
    for question in questions:
        assert not mistake.search(f"{question.question} {question.clean_question}"), question


@splits
def test_a_clear_wording_is_a_sentence(questions):
    for question in questions:
        assert question.clean_question.endswith("?")
        assert question.clean_question[0].isupper()


def test_search_queries_are_typed_without_capitals_and_question_mark():
    for question in ALL_QUESTIONS:
        if question.dataset == "search":
            assert question.question == question.question.lower()
            assert "?" not in question.question


@splits
def test_gold_passages_state_the_answer(questions):
    for question in questions:
        gold = " ".join(BY_ID[identity].text for identity in question.gold_passages).lower()
        assert any(answer.lower() in gold for answer in question.answers), question


@splits
def test_no_answer_is_so_short_that_a_text_contains_it_by_chance(questions):
    for question in questions:
        for answer in question.answers:
            assert len(answer) >= 4, question
            assert not answer.isdigit() or len(answer) == 4, question


@splits
def test_every_split_has_every_kind_of_failure(questions):
    assert {question.failure for question in questions} == FAILURES


# No split gives away the answers of another.


def gold_passages(split):
    passages = set()
    for question in BY_SPLIT[split]:
        passages |= set(question.gold_passages)
    return passages


def districts(split):
    """The parts of the world that a split asks about."""
    return {question.gold_passages[0].split("-")[1] for question in BY_SPLIT[split]}


@pairs_of_splits
def test_two_splits_ask_about_different_passages(first, second):
    assert not gold_passages(first) & gold_passages(second)


@pairs_of_splits
def test_two_splits_ask_in_different_words(first, second):
    texts = [
        {normalise(question.question) for question in BY_SPLIT[split]} for split in (first, second)
    ]
    assert not texts[0] & texts[1]


@pytest.mark.parametrize("other", ["train", "validation"])
def test_test_questions_are_about_districts_of_their_own(other):
    assert not districts("test") & districts(other)


# Only reading shows whether an answer is right.

# Error rates of a reader that has the gold passage: small models often fail on broken wording and
# two hops.
ERROR_RATES = {"well put": 0.1, "broken wording": 0.3, "two-hop": 0.6}


def read_perfectly(questions, results):
    """Whether each first answer is right, for a reader without errors."""
    return find_gold(questions, results)


def read_with_errors(questions, results):
    """Whether each first answer is right, for a reader with a fixed error rate per wording."""
    n_with_gold = Counter()
    right = []
    for question, is_hit in zip(questions, find_gold(questions, results)):
        rate = ERROR_RATES[question.form]
        n_with_gold[question.form] += is_hit
        n = n_with_gold[question.form]
        is_error = int(n * rate) > int((n - 1) * rate)
        right.append(is_hit and not is_error)
    return right


def wording_rule(questions, right):
    """The accuracy of a rule that sees only a question's wording and predicts the usual outcome."""
    counts = Counter(zip((question.form for question in questions), right))
    n_right = sum(max(counts[form, True], counts[form, False]) for form in FORMS)
    return n_right / len(right)


@pytest.mark.parametrize("read", [read_perfectly, read_with_errors])
@pytest.mark.parametrize("split", ["test", "train"])
@seeds
def test_the_wording_does_not_show_whether_an_answer_is_right(config, split, read):
    questions, results = search_all(config, split)
    right = read(questions, results)
    majority = max(sum(right), len(right) - sum(right)) / len(right)
    assert wording_rule(questions, right) <= majority + 0.05


@pytest.mark.parametrize("split", ["test", "train"])
@seeds
def test_a_reader_with_errors_is_right_less_often(config, split):
    questions, results = search_all(config, split)
    with_errors = sum(read_with_errors(questions, results)) / len(questions)
    without = sum(read_perfectly(questions, results)) / len(questions)
    assert 0.3 < with_errors < without - 0.05


@pytest.mark.parametrize("form", FORMS)
@seeds
def test_questions_of_every_form_fail_and_succeed(config, form):
    assert 0.35 <= hit_rate(config, lambda question: question.form == form) <= 0.75


@seeds
def test_a_question_without_an_obstacle_finds_its_passage(config):
    assert hit_rate(config, lambda question: question.failure == "none") > 0.9


@pytest.mark.parametrize("trap", TRAPS)
@seeds
def test_a_trap_hides_most_passages(config, trap):
    assert hit_rate(config, lambda question: question.failure == trap) < 0.5


@pytest.mark.parametrize("failure", sorted(FAILURES))
@seeds
def test_the_clear_wording_repairs_every_failure(config, failure):
    assert hit_rate(config, lambda question: question.failure == failure, clean=True) >= 0.9


# The tables of notebooks/world.ipynb.


@pytest.fixture(scope="module")
def search():
    return load_retriever(Retrieval(), CORPUS)


def test_there_is_an_example_of_every_obstacle_whose_good_query_finds_its_passage(search):
    examples = show_failures(ask(DEFAULT, "test"), search)
    assert set(examples.index) == FAILURES
    assert examples["gold at rank"].notna().all()


@pytest.fixture(scope="module")
def rates(search):
    return failure_rates(ask(DEFAULT, "test"), search)


def test_there_is_a_rate_of_every_obstacle_and_of_all_questions(rates):
    assert set(rates.index) == FAILURES | {"all"}
    assert rates.loc["all", "questions"] == len(ask(DEFAULT, "test"))


def test_the_rate_of_all_questions_is_the_share_that_find_their_passage(rates):
    assert rates.loc["all", "found"] == pytest.approx(100 * hit_rate(DEFAULT), abs=0.05)


def test_good_queries_find_more_for_every_obstacle(rates):
    assert (rates["found, good query"] >= rates["found"]).all()


# Shares of defects and traps are parameters.

WITHOUT_DEFECTS = DEFAULT.change(traps=("misspelt 0", "cut_off 0", "vague 0"))
defects = pytest.mark.parametrize("defect", ["misspelt", "cut_off", "vague"])


def with_defect(defect):
    return WITHOUT_DEFECTS.change(traps=(*WITHOUT_DEFECTS.world.traps, f"{defect} 0.4"))


def test_without_defects_every_wording_is_whole():
    assert not any("+" in question.kind for question in ask(WITHOUT_DEFECTS, "test"))


@defects
def test_a_defect_has_its_share(defect):
    ending = "+" + defect.replace("_", "-")
    questions = ask(with_defect(defect), "test", "search")
    n = sum(question.kind.endswith(ending) for question in questions)
    assert n / N_SEARCH == pytest.approx(0.4, abs=0.02)


@defects
def test_a_defect_hides_passages(defect):
    assert hit_rate(with_defect(defect)) < hit_rate(WITHOUT_DEFECTS) - 0.1


UNEVEN = DEFAULT.change(traps=("namesakes 0.2", "synonyms 0.05", "stale 0.14", "contradicting 0"))
WITHOUT_TRAPS = DEFAULT.change(traps=tuple(f"{spec['share']} 0" for spec in TRAPS.values()))


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_has_its_share(trap):
    failures = [question.failure for question in ask(UNEVEN, "test", "search")]
    share = UNEVEN.world.shares[TRAPS[trap]["share"]]
    assert failures.count(trap) / N_SEARCH == pytest.approx(share, abs=0.03)


def test_without_traps_no_question_has_one():
    failures = {question.failure for question in ask(WITHOUT_TRAPS, "test")}
    assert not failures & TRAPS.keys()


def test_traps_hide_passages():
    assert hit_rate(DEFAULT) < hit_rate(WITHOUT_TRAPS) - 0.2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"traps": ("misspelt -0.5",)}, "but shares must be 0 or more"),
        ({"n_passages": 999}, "n_passages is 999, but must be between 1,000"),
        ({"traps": ("stale 0.25", "contradicting 0.25")}, "lower one"),
        ({"traps": ("vague 0.6",)}, "their sum may be at most 1"),
        ({"n_world": (150, 9000, 200)}, r"passages give \d+; raise n_passages"),
        ({"n_world": (150, 1200)}, "n_world is .* three numbers of 0 or more"),
    ],
)
def test_an_impossible_world_is_refused_with_a_reason(parameters, message):
    with pytest.raises(ValueError, match=message):
        ask(DEFAULT.change(**parameters), "train")


def small_search(queries):
    """Find the passage that a query names, after one that it does not; "nothing" finds one."""
    names = {name: Passage(name, f"title {name}", "") for name in ("a", "b", "c", "d", "x")}
    return [
        [names["x"], *(names[word] for word in query.split() if word in names)] for query in queries
    ]


@pytest.fixture(scope="module")
def few():
    """Questions of three obstacles: as typed, the first, third and fifth find their passage."""
    rows = [
        ("q1", "a", "first", ""),  # has no good query
        ("q2", "nothing", "b", "author+misspelt"),
        ("q3", "b", "c", "author+misspelt"),
        ("q4", "nothing", "c d", "two-hop"),
        ("q5", "d", "d", "two-hop"),
    ]
    gold = {"q1": "a", "q2": "b", "q3": "b", "q4": "d", "q5": "d"}
    questions = []
    for name, typed, good, kind in rows:
        good = "" if name == "q1" else good
        questions.append(Question(name, "search", typed, ("yes",), (gold[name],), good, kind))
    return questions


def test_rates_are_shares_of_the_questions_of_an_obstacle(few):
    rates = failure_rates(few, small_search)
    assert rates.index.tolist() == ["all", "none", "broken wording", "two-hop"]
    assert rates["questions"].tolist() == [5, 1, 2, 2]
    assert rates["found"].tolist() == [60.0, 100.0, 50.0, 50.0]
    assert rates["found, good query"].tolist() == [80.0, 100.0, 50.0, 100.0]


def test_a_passage_behind_the_first_is_not_found_first(few):
    rates = failure_rates(few, small_search)
    assert rates["found first"].tolist() == [0.0] * 4
    gold_first = lambda queries: [found[::-1] for found in small_search(queries)]  # noqa: E731
    assert failure_rates(few, gold_first)["found first"].tolist() == [60.0, 100.0, 50.0, 50.0]


def test_an_example_of_an_obstacle_is_the_first_question_that_fails(few):
    table = show_failures(few[::-1], small_search)
    assert table.index.tolist() == ["none", "broken wording", "two-hop"]
    assert table.question.tolist() == ["a", "nothing", "nothing"]
    assert table["good query"].tolist() == ["", "b", "c d"]


def test_an_example_says_what_it_finds_and_where_its_good_query_finds_the_passage(few):
    row = show_failures(few, small_search).loc["two-hop"]
    assert row["top three passages"] == "title x"
    assert row["gold at rank"] == 3


def test_three_passages_of_an_example_are_named():
    question = Question("q", "search", "a b c d", ("yes",), ("missing",), "a", "two-hop")
    row = show_failures([question], small_search).loc["two-hop"]
    assert row["top three passages"] == "title x; title a; title b"
    assert row["gold at rank"] is None


def test_a_rate_has_one_decimal(few):
    rates = failure_rates(few[1:4], small_search)
    assert rates.loc["all", "found"] == 33.3


def test_a_good_query_may_find_the_gold_passage_first(few):
    gold_first = lambda queries: [found[::-1] for found in small_search(queries)]  # noqa: E731
    rates = failure_rates(few, gold_first)
    assert rates["found first, good query"].tolist() == [80.0, 100.0, 50.0, 100.0]


def test_the_rates_have_a_row_per_obstacle(few):
    assert failure_rates(few, small_search).index.name == "obstacle"
    assert show_failures(few, small_search).index.name == "obstacle"


def test_an_example_with_several_gold_passages_has_the_first_rank():
    question = Question("q", "search", "nothing", ("yes",), ("b", "c"), "a b c", "two-hop")
    assert show_failures([question], small_search)["gold at rank"].tolist() == [3]
