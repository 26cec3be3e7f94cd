"""D and D2′: answers to learn, natural and synthetic errors, balance, samples and mixtures."""

import random
from collections import Counter
from dataclasses import replace

import pytest
import toy
from conftest import write_jsonl
from toy import BORN, PASSAGES, QUESTIONS

from covrag_lite import synthesis
from covrag_lite.config import Config
from covrag_lite.data import load_questions
from covrag_lite.metrics import holds_answer, normalise
from covrag_lite.oracle import Example, annotate_by_rules, find_failures, find_revisions
from covrag_lite.prompts import LAYOUTS, parse_verdict
from covrag_lite.records import CITATION, Passage, Question, Sample, Source
from covrag_lite.synthesis import (
    answer_samples,
    gold_answer,
    rewrite_samples,
    verify_samples,
    with_gold,
)
from covrag_lite.training import recipe
from covrag_lite.training.sample_files import load_samples, save_samples
from covrag_lite.training.sources import load_searches, load_sources

Q1, Q2, Q3, Q4, Q5 = QUESTIONS[:5]
A, B, C, D, E, F = PASSAGES.values()
RIGHT = Example(Q1, (C, A), "Ada Voss[2]", "retrieved")  # from a passage that states it
WRONG = Example(Q2, (C, D), "Mere[1]", "broken wording")  # nothing of use was found


def source_of(questions):
    return Source(list(questions), list(PASSAGES.values()), toy.search, toy.search)


# Answers to learn.


@pytest.mark.parametrize("share, n_unsupported", [(0.25, 2), (0.5, 6), (0.0, 0)])
def test_a_share_of_the_answers_has_no_supporting_passage(monkeypatch, share, n_unsupported):
    monkeypatch.setattr(synthesis, "UNSUPPORTED_SHARE", share)
    unknown = replace(Q1, answers=("Agnes Vale",), gold_passages=())
    questions = [replace(unknown, id=str(i)) for i in range(9)] + [Q1] * 6
    samples = answer_samples(source_of([]), questions, "shared")
    targets = [sample.target[0] for sample in samples]
    assert targets.count("Agnes Vale") == n_unsupported
    assert len(targets) == n_unsupported + 6


def test_a_gold_passage_that_was_missed_replaces_any_of_the_others():
    rng = random.Random(0)
    places = set()
    for _ in range(60):
        passages = with_gold(Q1, [C, D, E, F], {"a": A}, rng)
        assert len(passages) == 4
        assert sum(passage in (C, D, E, F) for passage in passages) == 3
        places.add(passages.index(A))
    assert places == {0, 1, 2, 3}


def test_a_gold_passage_that_was_found_stays_where_it_is():
    assert with_gold(Q1, [C, A], {"a": A}, random.Random(0)) == [C, A]


def test_one_of_two_gold_passages_is_enough():
    two = replace(Q1, gold_passages=("a", "b"))
    assert with_gold(two, [C, A], {"a": A, "b": B}, random.Random(0)) == [C, A]


def test_a_gold_answer_cites_the_passages_that_state_it():
    assert gold_answer(Q1, (C, A)) == "Ada Voss[2]"


def test_a_gold_answer_with_citations_is_kept():
    cited = replace(Q1, answers=("It was Ada[1].",))
    assert gold_answer(cited, (C, A)) == "It was Ada[1]."


def test_answer_samples_are_those_with_a_supporting_passage_first():
    samples = answer_samples(source_of(QUESTIONS), QUESTIONS, "shared")
    assert [sample.id for sample in samples][:5] == ["q1", "q2", "q3", "q4", "q7"]
    assert {sample.task for sample in samples} == {"answer"}


def test_answer_samples_cite_a_gold_passage_of_their_prompt():
    by_id = {question.id: question for question in QUESTIONS}
    for sample in answer_samples(source_of(QUESTIONS), QUESTIONS, "shared"):
        question = by_id[sample.id]
        assert sample.target[0].startswith(question.answers[0])
        references = sample.prompt.partition("\\Question: ")[0]
        for number in CITATION.findall(sample.target[0]):
            text = references.partition(f"Reference [{number}]: ")[2].partition("\\")[0]
            assert text in [PASSAGES[name].text for name in question.gold_passages]


# Examples.


def answer_rightly(x, k):
    return [f"Writer{question.split()[-1]}[1]" for question in x]


@pytest.fixture
def examples(monkeypatch):
    """The examples of ten questions that a seed model answers rightly."""
    numbers = range(10, 20)  # a number of one digit is no word for BM25
    passages = [
        Passage(f"p{i}", f"Book {i}", f"Book {i} was written by Writer{i}.") for i in numbers
    ]
    passages += [Passage(f"x{i}", "Books", "Book was written by someone.") for i in range(8)]
    questions = [
        Question(f"q{i}", "nq", f"who wrote book {i}", (f"Writer{i}",), (f"p{i}",)) for i in numbers
    ]
    searches = load_searches(Config().change(k=2), passages)
    source = Source(questions, passages, *searches)
    monkeypatch.setattr(synthesis, "CORRUPTED_SHARE", 0.3)
    return synthesis.make_examples(source, questions, answer_rightly, 2)


def test_the_kinds_of_examples(examples):
    counts = Counter(example.kind for example in examples)
    corrupted = counts.pop("repetition", 0) + counts.pop("wrong citation", 0)
    assert corrupted == 3
    assert counts == {"retrieved": 10, "deeper passages": 10, "broken wording": 2}


def test_every_example_has_k_passages(examples):
    assert {len(example.passages) for example in examples} == {2}


def test_only_deeper_passages_do_not_contain_the_answer(examples):
    for example in examples:
        if example.kind != "broken wording":
            contains = holds_answer(example.passages, example.question.answers)
            assert contains == (example.kind != "deeper passages")


def test_without_enough_passages_there_is_no_example_with_deeper_ones():
    assert synthesis.deeper_passages(Q1, (A, C, D), 2) == (C, D)
    assert synthesis.deeper_passages(Q1, (A, C), 2) == ()
    assert synthesis.deeper_passages(Q1, (C, D, A, E), 2) == ()  # it was not among the first two


DEEPER = Example(Q1, (C, D), "Mere[1]", "deeper passages")


def test_a_wrong_answer_from_deeper_passages_is_also_paired_with_the_retrieved_ones():
    (crossed,) = synthesis.cross([DEEPER], {Q1: [A, C, D, E]}, 2)
    assert crossed == replace(DEEPER, passages=(A, C), kind="crossed answer")


def test_other_answers_are_not_crossed():
    others = [replace(DEEPER, answer="Ada Voss"), replace(DEEPER, kind="retrieved")]
    assert synthesis.cross(others, {Q1: [A, C, D, E]}, 2) == []


def test_only_right_answers_are_corrupted(monkeypatch):
    monkeypatch.setattr(synthesis, "CORRUPTED_SHARE", 1.0)
    right = Example(Q1, (A, C), "Ada Voss[1]", "retrieved")
    others = [replace(right, answer="Mere[1]"), replace(right, answer="")]
    corrupted = synthesis.corrupt([right, *others] * 20, random.Random(0))
    assert len(corrupted) == 20
    assert {example.kind for example in corrupted} == {"repetition", "wrong citation"}
    assert all("Ada Voss" in example.answer for example in corrupted)


# Samples.


def labelled(answer, passages, revised_question=""):
    revisions = {Q1.question: revised_question} if revised_question else {}
    example = Example(Q1, passages, answer, "retrieved")
    return annotate_by_rules([example], revisions)[0]


# Right; wrong with a revised question; wrong although it could be read; wrong without either.
LABELLED = [
    labelled("Ada Voss[1]", (A, C)),
    labelled("Mere[1]", (C, D), BORN),
    labelled("Mere[1]", (A, C)),
    labelled("Mere[1]", (C, D)),
]


def test_a_verdict_without_a_known_revision_is_unfinished():
    samples = verify_samples(LABELLED, True, "shared")
    assert [sample.unfinished for sample in samples] == [False, False, False, True]


def test_how_the_targets_of_verdicts_end():
    texts = ["".join(sample.target) for sample in verify_samples(LABELLED, True, "shared")]
    assert texts[0].endswith('"3": "true", "4": "" }')
    assert texts[1].endswith(f'"3": "false", "4": "{BORN}" }}')
    assert texts[2].endswith('"3": "false", "4": "" }')  # what could be read needs no other search
    assert texts[3].endswith('"bias": 0.95, "conciseness": 0.95 }, "3": "false')


def test_without_the_chain_a_wrong_answer_never_gets_an_empty_revision():
    samples = verify_samples(LABELLED, False, "shared")
    assert [sample.unfinished for sample in samples] == [False, False, True, True]
    texts = ["".join(sample.target) for sample in samples]
    assert texts == ['{ "4": "" }', f'{{ "4": "{BORN}" }}', '{ "4": "', '{ "4": "']


@pytest.mark.parametrize("layout", ["paper", "shared"])
def test_the_prompt_of_a_verify_sample_is_that_of_inference(layout):
    (sample,) = verify_samples(LABELLED[1:2], True, layout)
    assert sample.prompt == toy.verify_prompt(Q1.question, "cd", "Mere[1]", layout)


def test_verify_samples_belong_to_the_verification_task():
    assert {sample.task for sample in verify_samples(LABELLED, True, "shared")} == {"verify"}


@pytest.fixture
def rewrites():
    hopeless = replace(WRONG, question=replace(Q2, question="wher?"))
    examples = annotate_by_rules([RIGHT, WRONG, WRONG, hopeless], {Q2.question: BORN})
    return rewrite_samples(examples)


def test_a_rewriter_learns_revised_questions_and_unchanged_ones(rewrites):
    targets = [sample.target[0] for sample in rewrites]
    assert targets == [Q1.question, BORN]  # nothing is known of the hopeless one


def test_a_rewriter_sees_no_passages(rewrites):
    prompts = "".join(sample.prompt for sample in rewrites)
    assert not any(passage.text in prompts for passage in PASSAGES.values())
    assert rewrites[1].prompt.endswith(f"\\Question: {Q2.question}\\Rewritten:")


# D2′ as a whole.


class SeedModel:
    """A seed model that notes its questions and is right for the last one of every batch."""

    questions_of = {}

    def __init__(self, name):
        self.name = name

    def answer(self, x, k):
        self.questions_of.setdefault(self.name, set()).update(x)
        return ["Mere[1]"] * (len(x) - 1) + ["Ada Voss[1]"]

    def write_from_question(self, task, x):
        return [""] * len(x)


@pytest.fixture
def d2(monkeypatch):
    """Eight questions whose search misses what a deeper one finds, and seed models for them."""
    questions = [replace(Q1, id=f"q{i}", question=f"who wrote {i}") for i in range(8)]

    def search(queries):
        return [[C, D, E, F, B]] * len(queries)

    monkeypatch.setattr(synthesis, "BROKEN_SHARE", 0.0)
    monkeypatch.setattr(SeedModel, "questions_of", {})
    monkeypatch.setattr(recipe, "load_trained", lambda config, name: SeedModel(name))
    monkeypatch.setattr(
        recipe, "train_adapter", lambda config, name, samples: {sample.id for sample in samples}
    )
    return Source(questions, [A, C], search, search)


def texts_of(questions):
    return {question.question for question in questions}


def ids_of(questions):
    return {question.id for question in questions}


def test_each_seed_model_answers_the_half_that_it_has_not_learnt(d2):
    recipe.synthesise_d2(Config(), [d2])
    first, second = synthesis.halve(d2.questions)
    assert SeedModel.questions_of == {"seed-2": texts_of(first), "seed-1": texts_of(second)}


def test_half_of_the_chosen_examples_are_true(d2):
    _, chosen = recipe.synthesise_d2(Config(), [d2])
    assert Counter(example.is_true for example in chosen) == {True: 2, False: 2}


def test_seed_models_without_a_right_answer_are_an_error(d2, monkeypatch):
    monkeypatch.setattr(SeedModel, "answer", lambda self, x, k: ["Mere[1]"] * len(x))
    with pytest.raises(ValueError, match="D2' is empty: 0 of the seed models' .* are right"):
        recipe.synthesise_d2(Config(), [d2])


def test_each_seed_model_learns_one_half(d2):
    questions = [question for question in QUESTIONS if question.gold_passages]
    first, second = synthesis.halve(questions)
    losses = recipe.train_seeds(Config(), [source_of(questions)])
    assert losses == {"seed-1": ids_of(first), "seed-2": ids_of(second)}


# The example of the module's docstring.

WHERE_BORN = Question("q", "one", "Where was the writer of book 7 born?", ("Mere",), ("born",))
WRITTEN = Passage("written", "Book 7", "Book 7 was written by Ada Voss.")
WAS_BORN = Passage("born", "Ada Voss", "Ada Voss was born in Mere.")
REVISED = "Where was the writer of book 7 born? Ada Voss"


def search_by_name(queries):
    return [[WAS_BORN] if "Ada Voss" in query else [WRITTEN] for query in queries]


@pytest.fixture
def unannotated():
    source = Source([WHERE_BORN], [WRITTEN, WAS_BORN], search_by_name, search_by_name)
    return synthesis.make_examples(source, [WHERE_BORN], lambda x, k: ["Ada Voss[1]"], 1)


def test_the_answer_to_another_question_becomes_a_revised_question(unannotated):
    failures = find_failures(unannotated)
    revisions = find_revisions(failures, lambda task, x: [""] * len(x), search_by_name)
    assert revisions == {WHERE_BORN.question: {"answer": REVISED}}


def test_a_wrong_answer_becomes_a_verdict_with_its_revised_question(unannotated):
    examples = annotate_by_rules(unannotated, {WHERE_BORN.question: REVISED})
    (sample,) = verify_samples(examples, True, "paper")
    verdict = parse_verdict("".join(sample.target))
    assert (verdict.correctness, verdict.judgment) == (0.05, "false")
    assert verdict.revised_question == REVISED


def test_a_wrong_answer_without_a_revised_question_is_unfinished(unannotated):
    (sample,) = verify_samples(annotate_by_rules(unannotated, {}), True, "paper")
    assert sample.unfinished
    assert sample.target[-1] == "false"


# The mixtures.

PAPER = Config().change(mixture="paper")


def test_the_papers_mixture_has_one_seed_model(d2):
    first, _ = synthesis.halve(d2.questions)
    assert recipe.train_seeds(PAPER, [d2]) == {"seed-1": ids_of(first)}


def test_the_papers_seed_model_answers_the_other_half(d2):
    recipe.synthesise_d2(PAPER, [d2])
    _, second = synthesis.halve(d2.questions)
    assert SeedModel.questions_of == {"seed-1": texts_of(second)}


@pytest.mark.parametrize(
    "mixture, n_answers, n_verdicts", [("all", 8, 8), ("paper", 4, 4), ("paper+answers", 8, 4)]
)
def test_the_size_of_a_mixture(d2, mixture, n_answers, n_verdicts):
    chosen = LABELLED[:2] * 4
    samples = synthesis.make_samples([d2], chosen, mixture, "shared")
    for method in ("cov", "cov-direct"):
        counts = Counter(sample.task for sample in samples[method])
        assert counts == {"answer": n_answers, "verify": n_verdicts}


def test_the_papers_mixture_takes_the_place_of_the_other_half_only(d2):
    chosen = LABELLED[:2] * 10  # 20 verdicts, of which 4 fit into the size of D
    samples = synthesis.make_samples([d2], chosen, "paper", "shared")
    assert len(samples["cov"]) == len(samples["rag"])


@pytest.mark.parametrize("mixture", synthesis.MIXTURES)
def test_plain_retrieval_learns_all_answers_in_every_mixture(d2, mixture):
    samples = synthesis.make_samples([d2], LABELLED, mixture, "shared")
    assert {sample.id for sample in samples["rag"]} == ids_of(d2.questions)


def test_the_papers_mixture_learns_the_answers_of_the_first_half(d2):
    samples = synthesis.make_samples([d2], LABELLED, "paper", "shared")
    first, _ = synthesis.halve(d2.questions)
    learnt = {sample.id for sample in samples["cov"] if sample.task == "answer"}
    assert learnt == ids_of(first)


def test_the_verdicts_without_the_chain_have_their_own_targets(d2):
    samples = synthesis.make_samples([d2], LABELLED[:1], "all", "shared")
    assert samples["cov"][-1].target[0].startswith('{ "1"')
    assert samples["cov-direct"][-1].target[0].startswith('{ "4"')


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("adapter", ["rag", "cov", "cov-direct"])
def test_every_sample_has_the_layout_of_its_run(d2, adapter, layout):
    samples = synthesis.make_samples([d2], LABELLED, "all", layout)[adapter]
    starts_with_marker = {sample.prompt.startswith("#") for sample in samples}
    assert starts_with_marker == {layout == "paper"}


def test_an_unknown_mixture_is_named(d2):
    with pytest.raises(ValueError, match="mixture 'half' is not known; use one of all, paper,"):
        recipe.synthesise_d2(Config().change(mixture="half"), [d2])


# Files and sources.

SAMPLES = [
    Sample("a", "answer", "p\u2028", ("xy",)),
    Sample("c", "verify", "p", ('{ "4":', ' "'), unfinished=True),
]


def test_samples_are_loaded_as_they_were_saved(tmp_path):
    save_samples(tmp_path / "s.gz", SAMPLES)
    assert load_samples(tmp_path / "s.gz") == SAMPLES


def test_a_damaged_file_of_samples_is_named(tmp_path):
    path = tmp_path / "s.gz"
    save_samples(path, SAMPLES)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="s.gz is damaged"):
        load_samples(path)


def test_only_systems_whose_adapters_exist_are_validated(monkeypatch, tmp_path):
    write_jsonl(tmp_path / "cov" / "adapter_config.json", [{}])
    monkeypatch.setattr(recipe.evaluate, "load_resources", lambda config, passages: None)
    monkeypatch.setattr(
        recipe.evaluate, "run", lambda config, resources, questions: (config, questions)
    )
    config, questions = recipe.validate(Config().change(adapters_out=str(tmp_path), n_questions=1))
    assert config.chain.systems == ("RAG", "CoV-RAG-S", "CoV-RAG")
    assert config.data.split == "validation"
    assert all("-validation-" in question.id for question in questions)


def test_a_training_question_that_reads_like_a_test_question_is_dropped():
    config = Config().change(n_train_questions=0, seed=7)
    tested = load_questions(config.change(split="test", n_questions=0))
    training = load_questions(config.change(split="train", n_questions=0))
    alike = {normalise(q.question) for q in tested} & {normalise(q.question) for q in training}
    assert alike == {"how long is the river bracken"}  # cut off, of two rivers of that name
    (source,) = load_sources(config)
    assert not {normalise(question.question) for question in source.questions} & alike
    assert len(source.questions) == len(training) - 1
