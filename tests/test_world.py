"""The embedded world: same seed, same bytes; every answer where it is said to be; hard in the right ways."""

import hashlib
import re
from collections import Counter
from dataclasses import asdict, replace
from functools import cache
from itertools import islice

import bm25s
import pytest
import Stemmer

from covrag_lite.config import World
from covrag_lite.data.world import generation
from covrag_lite.data.world.entities import KINDS, entity, name_slots
from covrag_lite.records import Question

DEFAULT = World()
ALL_SPLITS = {split: generation.questions(DEFAULT, split) for split in generation.SPLITS}
TEST = ALL_SPLITS["test"]
CORPUS = list(generation.passages(DEFAULT))
BY_ID = {passage.id: passage for passage in CORPUS}

# Recorded from the default world; a change of any word of it must be meant.
PASSAGES_SHA256 = "2912683f4e03b85213a05137a64349acd938c2f9d83b477bf08be5566c5339c9"
QUESTIONS_SHA256 = "fd9de2b5c380344a8471d10050a8c58594ee2cc0f4fc54d5ff750e4489ec6138"


def digest(records) -> str:
    return hashlib.sha256("\n".join(repr(asdict(record)) for record in records).encode()).hexdigest()


@cache
def retrieved(config: World) -> list[tuple[Question, bool, bool]]:
    """Every test question with whether BM25 has a gold passage among its first five, as typed and well put."""
    passages = list(generation.passages(config))
    stemmer = Stemmer.Stemmer("english")

    def tokens(texts):
        return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)

    index = bm25s.BM25(backend="numpy")
    index.index(tokens([f"{p.title} {p.text}" for p in passages]), show_progress=False)

    def found(questions, texts):
        rows, _ = index.retrieve(tokens(texts), k=5, backend_selection="numpy", show_progress=False)
        return [any(passages[j].id in q.gold_passages for j in row) for q, row in zip(questions, rows)]

    questions = generation.questions(config, "test")
    typed = found(questions, [q.question for q in questions])
    return list(zip(questions, typed, found(questions, [q.clean_question for q in questions])))


def hit_rate(config: World, keep=lambda question: True, clean=False) -> float:
    hits = [well_put if clean else typed for question, typed, well_put in retrieved(config) if keep(question)]
    return sum(hits) / len(hits)


def broken(question) -> bool:
    return "+" in question.kind


def test_same_seed_same_bytes():
    assert digest(CORPUS) == PASSAGES_SHA256
    assert digest(q for split in generation.SPLITS for q in ALL_SPLITS[split]) == QUESTIONS_SHA256


def test_other_seed_other_text():
    other = {p.text for p in generation.passages(World(seed=2))}
    assert not other & {p.text for p in CORPUS}


def test_a_larger_world_begins_with_the_smaller_one():
    assert list(islice(generation.passages(World(n_passages=9000)), 1500)) == CORPUS


def test_ids_and_titles_are_unique():
    passages = list(generation.passages(World(n_passages=6000)))
    assert len({p.id for p in passages}) == len({p.title for p in passages}) == 6000
    everything = [q for questions in ALL_SPLITS.values() for q in questions]
    assert len({q.id for q in everything}) == len(everything) == 4 * 150 + 1200 + 200
    assert TEST[7].id == "world1-nq-test-0007"


def test_names_are_unique_in_a_million_passages():
    districts = generation._full_districts(World(n_passages=1_000_000, distractors=0.0, stale=0.0, contradicting=0.0))
    for kind, spec in KINDS.items():
        if "parts" in spec:
            variants = [None, *range(len(spec["twins"]))]
            # all of them would take a minute; the names of every 101st entity and its twins do
            numbers = range(0, districts * spec["count"], 101)
            names = [name_slots(1, kind, i, twin)["title"] for i in numbers for twin in variants]
            assert len(set(names)) == len(names), kind


def test_passages_are_lazy():
    assert len(list(islice(generation.passages(World(n_passages=1_000_000)), 10))) == 10


def test_the_corpus_has_the_size_asked_for():
    assert len(CORPUS) == 1500
    assert len(list(generation.passages(World(n_passages=1001, distractors=0.37)))) == 1001


def test_passages_read_like_sentences():
    words = [len(passage.text.split()) for passage in CORPUS]
    assert sum(40 <= n <= 70 for n in words) / len(words) > 0.95
    assert min(words) >= 30 and max(words) <= 85
    for passage in CORPUS:
        assert not re.search(r"[{}]|  |\ba [aeiou]|\ban [^aeiou]|\.\.|\s[.,]|\b(\w+) \1\b", passage.text, re.I), passage
        assert passage.text[0] in "“" or passage.text[0].isupper()
        assert passage.text[-1] in ".”"


def test_questions_read_like_questions():
    for question in (q for questions in ALL_SPLITS.values() for q in questions):
        assert not re.search(r"[{}]|  |\bthe the\b|\ba [aeiou]", f"{question.question} {question.clean_question}", re.I)
        assert question.clean_question.endswith("?") and question.clean_question[0].isupper()
        if question.dataset == "nq":
            assert question.question == question.question.lower() and "?" not in question.question


def test_gold_passages_exist_and_state_the_answer():
    for question in (q for questions in ALL_SPLITS.values() for q in questions):
        gold = " ".join(BY_ID[id].text for id in question.gold_passages)
        assert any(answer.lower() in gold.lower() for answer in question.answers), question


def test_no_answer_is_trivially_contained():
    for question in (q for questions in ALL_SPLITS.values() for q in questions):
        for answer in question.answers:
            assert len(answer) >= 4 and (not answer.isdigit() or len(answer) == 4), question


def test_two_hop_questions_name_one_thing_and_resolve_to_another():
    hops = [q for q in TEST if q.kind == "two-hop"]
    assert len(hops) >= 30
    for question in hops:
        (gold,) = (BY_ID[id] for id in question.gold_passages)
        assert gold.title in question.clean_question and gold.title not in question.question


def test_comparisons_have_both_passages_and_name_the_right_one():
    for question in (q for q in TEST if q.kind == "comparison"):
        first, second = (BY_ID[id] for id in question.gold_passages)
        assert first.title in question.question and second.title in question.question
        assert question.answers[0].removeprefix("the ") in (first.title, second.title)
        if question.question.startswith("Who was"):
            born = {p.title: min(map(int, re.findall(r"\b1[789]\d\d\b", p.text))) for p in (first, second)}
            assert min(born, key=born.get) == question.answers[0]


def test_superlatives_and_dates_agree_with_the_entries_they_are_about():
    for district in range(20):
        rivers = [entity(1, "river", 3 * district + k) for k in range(3)]
        longest = max(rivers, key=lambda river: int(river.slots["length"]))
        assert entity(1, "lands", district).slots["longest"] == longest.slots["name"]
        for k in range(2):
            author = entity(1, "person", 6 * district + k).slots
            book = entity(1, "book", 2 * district + k).slots
            assert book["author"] == author["name"]
            assert int(author["born"]) + 20 < int(book["year"]) < int(author["died"])


def test_no_two_splits_ask_about_the_same_passages():
    gold = {split: {id for q in questions for id in q.gold_passages} for split, questions in ALL_SPLITS.items()}
    assert not gold["test"] & gold["train"] and not gold["test"] & gold["validation"]
    assert not gold["train"] & gold["validation"]
    districts = {split: {id.split("-")[1] for id in ids} for split, ids in gold.items()}
    assert not districts["test"] & (districts["train"] | districts["validation"])


def test_sets_are_of_the_size_asked_for():
    assert Counter(q.dataset for q in TEST) == dict.fromkeys(generation.DATASETS, 150)
    assert set(Counter(q.dataset for q in ALL_SPLITS["train"]).values()) == {300}
    assert len(generation.questions(World(n_passages=8000, n_train=6000), "train", "mintaka")) == 1500
    assert generation.questions(DEFAULT, "test", "webq") == [q for q in TEST if q.dataset == "webq"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_retrieval_is_hard_where_it_should_be(seed):
    config = World(seed=seed)
    assert 0.6 <= hit_rate(config) <= 0.8
    for dataset in generation.DATASETS:
        assert 0.5 <= hit_rate(config, lambda q, dataset=dataset: q.dataset == dataset) <= 0.9
    assert hit_rate(config, lambda q: not broken(q) and q.kind != "two-hop") > 0.9
    assert hit_rate(config, broken) < 0.45
    assert hit_rate(config, lambda q: broken(q) or q.kind == "two-hop", clean=True) > 0.9


@pytest.mark.parametrize("knob", ["misspelt", "cut_off", "vague"])
def test_defects_come_in_the_share_asked_for_and_hurt(knob):
    none = replace(DEFAULT, misspelt=0.0, cut_off=0.0, vague=0.0)
    many = replace(none, **{knob: 0.6})
    name = knob.replace("_", "-")
    share = sum(q.kind.endswith(f"+{name}") for q in generation.questions(many, "test", "nq")) / 150
    assert not any(broken(q) for q in generation.questions(none, "test")) and share == pytest.approx(0.6, abs=0.02)
    assert hit_rate(many) < hit_rate(none) - 0.15


def test_distractors_hurt():
    assert hit_rate(replace(DEFAULT, distractors=0.6)) < hit_rate(replace(DEFAULT, distractors=0.0)) - 0.03


def test_stale_and_contradicting_passages_come_in_the_share_asked_for():
    plain = replace(DEFAULT, stale=0.0, contradicting=0.0)
    old = [p for p in generation.passages(replace(plain, stale=0.2)) if re.search(r" in \d{4}$", p.title)]
    assert len(old) == pytest.approx(300, rel=0.1)
    wrong = [
        p for p in generation.passages(replace(plain, contradicting=0.2)) if re.search(r" in (The )?[A-Z]\w+", p.title)
    ]
    assert len(wrong) == pytest.approx(300, rel=0.1)
    assert not [p for p in generation.passages(plain) if re.search(r" in (\d{4}$|The [A-Z])", p.title)]


def test_an_outdated_population_differs_from_the_current_one():
    current = {p.title: p.text for p in CORPUS}
    old = [p for p in CORPUS if re.search(r" in \d{4}$", p.title)]
    values = [(re.search(r"\d\d,\d{3}", p.text), current[p.title[:-8]]) for p in old]
    assert len(old) > 50 and all(value[0] not in text for value, text in values if value)


def test_unanswerable_questions_have_no_gold_passage():
    questions = generation.questions(replace(DEFAULT, unanswerable=0.3), "test", "triviaqa")
    unknown = [q for q in questions if q.kind == "unanswerable"]
    assert len(unknown) == 45 and len({q.question for q in unknown}) == 45
    assert all(q.gold_passages == () and "not stated" in q.answers for q in unknown)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"misspelt": 1.5}, "misspelt is a share"),
        ({"n_passages": 999}, "n_passages must lie between 1,000"),
        ({"distractors": 0.7}, "lower one"),
        ({"vague": 0.8}, "at most one defect"),
        ({"n_train": 9000}, r"passages give \d+: raise n_passages"),
        ({"n_test": -1}, "n_test must be 0 or more"),
    ],
)
def test_impossible_worlds_are_refused_in_words(change, words):
    with pytest.raises(ValueError, match=words):
        generation.questions(replace(DEFAULT, **change), "train")


def test_unknown_split_or_dataset_is_refused_by_name():
    with pytest.raises(ValueError, match="'dev'.*test, validation, train"):
        generation.questions(DEFAULT, "dev")
    with pytest.raises(ValueError, match="'squad'.*nq, webq, mintaka, triviaqa"):
        generation.questions(DEFAULT, "test", "squad")
