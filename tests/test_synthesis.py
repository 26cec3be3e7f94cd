"""D and D2′: natural and synthetic errors, the oracle's rules, and revised questions."""

import random
from collections import Counter
from dataclasses import replace

import pytest
import toy
from conftest import write_jsonl
from toy import BORN, PASSAGES, QUESTIONS

from covrag_lite import recipe, synthesis
from covrag_lite.config import Config
from covrag_lite.data import load_questions
from covrag_lite.metrics import holds_answer, normalise
from covrag_lite.records import SCORES, Passage, Question, Sample
from covrag_lite.sources import Source, load_searches, load_sources
from covrag_lite.synthesis import Example, annotate, answer_samples, gold_answer, judge, verify_samples, with_gold

CONFIG = Config().change(k=2)
Q1, Q2, Q3, Q4, Q5 = QUESTIONS[:5]
A, B, C, D, E, F = PASSAGES.values()
GOOD = Example(Q1, (C, A), "Ada Voss[2]", "retrieved")  # a right answer from a passage that states it
BAD = Example(Q2, (C, D), "Mere[1]", "broken wording")  # a misspelt question that found nothing of use


def source_of(questions):
    return Source(list(questions), list(PASSAGES.values()), toy.search, toy.search)


@pytest.mark.parametrize("share, n_unknown", [(0.25, 2), (0.5, 6), (0.0, 0)])
def test_of_the_answers_to_learn_a_share_has_no_reference_and_no_citation(monkeypatch, share, n_unknown):
    monkeypatch.setattr(synthesis, "UNSUPPORTED", share)
    unknown = [replace(Q1, id=str(i), answers=("Agnes Vale",), gold_passages=()) for i in range(9)]
    targets = [sample.target[0] for sample in answer_samples(source_of([]), unknown + [Q1] * 6, CONFIG)]
    assert targets.count("Agnes Vale") == n_unknown == len(targets) - 6


def answer_rightly(x, k):
    return [f"Writer{question.split()[-1]}[1]" for question in x]


def test_examples_are_natural_first_and_corrupted_by_hand_in_a_minority(monkeypatch):
    numbers = range(10, 20)  # a number of one digit is no word for BM25
    passages = [Passage(f"p{i}", f"Book {i}", f"Book {i} was written by Writer{i}.") for i in numbers]
    passages += [Passage(f"x{i}", "Books", "Book was written by someone.") for i in range(8)]
    questions = [Question(f"q{i}", "nq", f"who wrote book {i}", (f"Writer{i}",), (f"p{i}",)) for i in numbers]
    source = Source(questions, passages, *load_searches(CONFIG, passages))
    monkeypatch.setattr(synthesis, "CORRUPTED", 0.3)
    made = synthesis.make_examples(source, questions, answer_rightly, CONFIG)
    counts = Counter(one.kind for one in made)
    assert (counts["retrieved"], counts["deeper passages"], counts["broken wording"]) == (10, 10, 2)
    assert counts["repetition"] + counts["wrong citation"] == 3
    for one in made:
        assert len(one.passages) == 2
        if one.kind != "broken wording":
            assert holds_answer(one.passages, one.question.answers) == (one.kind != "deeper passages")


def test_only_what_its_own_search_missed_is_a_failure():
    without = replace(GOOD, passages=(C, D), kind="deeper passages")  # it was found, and taken away
    assert synthesis.find_failures([GOOD, BAD, without]) == {Q2.question: BAD}


def test_a_rewriter_learns_the_same_revisions_without_what_was_retrieved():
    hopeless = replace(BAD, question=replace(Q2, question="wher?"))
    samples = synthesis.rewrite_samples(annotate([GOOD, BAD, BAD, hopeless], {Q2.question: BORN}))
    assert [sample.target[0] for sample in samples] == [Q1.question, BORN]  # of the hopeless one nothing is known
    assert not any(passage.text in sample.prompt for sample in samples for passage in PASSAGES.values())
    assert samples[1].prompt.endswith(f"\\Question: {Q2.question}\\Rewritten:")


class Guesser:
    """A model that writes the same text for every question."""

    def __init__(self, guess="", terms="", options=""):
        self.said = {"guess": guess, "terms": terms, "options": options}

    def write_alone(self, task, x):
        return [self.said[task] for _ in x]


def test_the_question_stands_in_every_candidate_but_the_bare_ones_and_is_none_itself():
    asked = Q2.question
    assert synthesis.propose(replace(BAD, passages=(C,)), "Ada was born there.\nMore", "birth", "Mere, Stell") == {
        "the question well put": BORN,
        "guess and answer": f"{asked}? Ada was born there. Mere",
        "guess": f"{asked}? Ada was born there.",
        "answer": f"{asked}? Mere",
        "guess and options": f"{asked}? Ada was born there. Mere, Stell",
        "options": f"{asked}? Mere, Stell",
        "key terms": f"{asked}? birth",
        "title 1": f"{asked}? Stell",
        "a guess alone": "Ada was born there.",
        "key terms alone": "birth",
    }
    unknown = replace(Q2, clean_question="")
    assert synthesis.propose(Example(unknown, (), "", ""), asked, "", "") == {"guess": f"{asked}? {asked}"}


def test_a_candidate_is_one_line_that_a_verdict_can_hold():
    assert synthesis.tidy('the "Copper\\Lanterns"\nagain') == "the Copper Lanterns again"
    assert len(synthesis.tidy(" ".join(map(str, range(99)))).split()) == synthesis.LONGEST
    assert synthesis.tidy("one\x00two\x1bthree") == "one two three"
    assert synthesis.tidy("England, England England - England") == "England, England -"


def test_candidates_that_find_the_passage_are_kept_by_their_form_and_no_others():
    def found(question, author):
        failures = {question.question: Example(question, (E, F), "", "retrieved")}
        return synthesis.find_revisions(failures, author, search)

    search, _ = load_searches(CONFIG, list(PASSAGES.values()))
    asked = replace(Q2, question="hoo?")
    assert found(asked, Guesser()) == {"hoo?": {synthesis.CLEAN: BORN}}
    kept = found(replace(asked, clean_question=""), Guesser("A fair is held.", "born Ada Voss"))["hoo?"]
    assert set(kept) == {"key terms", "key terms alone"}
    useless = replace(asked, clean_question="how long is the bridge of metres?")
    assert found(useless, Guesser("A bridge.", "metres")) == {}
    assert synthesis.find_revisions({}, Guesser(), search) == {}


def test_the_form_that_finds_most_is_taken_the_well_put_question_first_and_bare_guesses_last():
    counts = {"guess": 3, "options": 5, "a guess alone": 9, synthesis.CLEAN: 1}
    assert synthesis.choose({"guess": "b", "options": "c"}, counts) == "c"
    assert synthesis.choose({"a guess alone": "d", "guess": "b"}, counts) == "b"
    assert synthesis.choose({"options": "c", synthesis.CLEAN: "clean"}, counts) == "clean"


def test_a_second_step_or_a_newer_account_is_asked_for_only_once_a_passage_has_pointed_at_it(passages):
    clean = "Where was Edith Marrow born?"
    two_hop = Question("q", "mintaka", "Where was the author of The Copper Lanterns born?", ("",), (), clean, "two-hop")
    assert synthesis.clean_wording(two_hop, passages[:1]) == clean
    assert synthesis.clean_wording(two_hop, passages[3:5]) == ""
    asked, clean = (f"What is the population of Stonebridge {when}?" for when in ("today", "in 1954"))
    stale = Question("q", "entity", asked, ("12,400",), ("p1",), clean, "population/stale")
    old = replace(passages[0], text="Some 9,000 people live in Stonebridge, says a guide of 1931.")
    pointing = replace(old, text=f"{old.text} All was described anew in 1954.")
    assert synthesis.clean_wording(stale, [old]) == ""
    assert synthesis.clean_wording(stale, [old, pointing]) == clean


LONG = " ".join(f"word{i}" for i in range(30))
# An example, its revised question -> reference_correctness, correctness, citation_accuracy, truthfulness, bias,
# conciseness; judgment; the revised question that is kept.
CASES = {
    "right, rightly cited": (Q1, (A, C), "Ada Voss[1]", (0.95, 0.95, 0.95, 0.95, 0.05, 0.95), "true", ""),
    "right by its second answer": (Q1, (A, C), "A. Voss[1]", (0.95, 0.95, 0.95, 0.95, 0.05, 0.95), "true", ""),
    "right, wrongly cited": (Q1, (A, C), "Ada Voss[2]", (0.95, 0.95, 0.05, 0.95, 0.05, 0.95), "true", ""),
    "right, half of it cited": (Q1, (A, C), "Ada Voss[1][2]", (0.95, 0.95, 0.5, 0.95, 0.05, 0.95), "true", ""),
    "right, not cited": (Q1, (A, C), "Ada Voss", (0.95, 0.95, 0.05, 0.95, 0.05, 0.95), "true", ""),
    "right from memory": (Q1, (C, D), "Ada Voss", (0.05, 0.95, 0.05, 0.95, 0.95, 0.95), "true", ""),
    "right, in many words": (Q1, (A, C), f"Ada Voss[1] {LONG}", (0.95, 0.95, 0.95, 0.95, 0.05, 0.5), "true", ""),
    "wrong, grounded, found": (Q1, (A, C), "a town[2]", (0.95, 0.05, 0.05, 0.45, 0.55, 0.95), "false", ""),
    "wrong, grounded, not found": (Q1, (C, D), "a town[1]", (0.05, 0.05, 0.05, 0.45, 0.55, 0.95), "false", BORN),
    "wrong, ungrounded": (Q1, (C, D), "Mere[1]", (0.05, 0.05, 0.05, 0.15, 0.95, 0.95), "false", BORN),
    "wrong, rightly cited": (Q1, (A, C), "Mere[1]", (0.95, 0.05, 0.95, 0.15, 0.95, 0.95), "false", ""),
    "repetitive": (Q1, (A, C), "Ada Voss, Ada Voss, Ada Voss[1]", (0.95, 0.95, 0.95, 0.35, 0.05, 0.05), "false", ""),
    "repetitive and wrong": (Q1, (C, D), "Mere Mere Mere[1]", (0.05, 0.05, 0.05, 0.35, 0.95, 0.05), "false", BORN),
    "right only within a number": (Q5, (A, B), "1829[1]", (0.05, 0.05, 0.05, 0.45, 0.55, 0.95), "false", BORN),
    "empty": (Q1, (C, D), "", (0.05, 0.05, 0.05, 0.15, 0.95, 0.95), "false", BORN),
}


@pytest.mark.parametrize("case", CASES)
def test_the_oracles_six_scores(case):
    question, passages, answer, scores, judgment, revised = CASES[case]
    verdict = judge(Example(question, passages, answer, "retrieved"), BORN)
    assert tuple(getattr(verdict, name) for name in SCORES) == scores
    assert (verdict.judgment, verdict.revised_question) == (judgment, revised)


def test_a_passage_without_the_gold_words_supports_nothing_unless_it_is_gold():
    assert synthesis.supporting(Q2, (C, B, D)) == [2]  # gold, although others contain the words
    untold = replace(Q2, gold_passages=())
    assert synthesis.supporting(untold, (C, B, E, D)) == [1, 2, 4]
    assert synthesis.supporting(replace(untold, answers=("2",)), (A,)) == []  # 1829 is no 2


def labelled(answer, passages, revised=""):
    return annotate([Example(Q1, passages, answer, "retrieved")], {Q1.question: revised} if revised else {})[0]


def test_an_unfinished_target_stays_open():
    right, known = labelled("Ada Voss[1]", (A, C)), labelled("Mere[1]", (C, D), BORN)
    read, unknown = labelled("Mere[1]", (A, C)), labelled("Mere[1]", (C, D))
    samples = verify_samples([right, known, read, unknown])
    assert [one.unfinished for one in samples] == [False, False, False, True]
    texts = ["".join(one.target) for one in samples]
    assert texts[0].endswith('"3": "true", "4": "" }')
    assert texts[1].endswith(f'"3": "false", "4": "{BORN}" }}')
    assert texts[2].endswith('"3": "false", "4": "" }')  # what could be read needs no other search
    assert texts[3].endswith('"bias": 0.95, "conciseness": 0.95 }, "3": "false')
    direct = verify_samples([right, known, read, unknown], with_chain=False)
    assert [one.unfinished for one in direct] == [False, False, True, True]
    assert ["".join(one.target) for one in direct] == ['{ "4": "" }', f'{{ "4": "{BORN}" }}', '{ "4": "', '{ "4": "']
    for layout in ("paper", "shared"):
        (sample,) = verify_samples([known], layout=layout)
        assert sample.prompt == toy.verify_prompt(Q1.question, "cd", "Mere[1]", layout)
    assert {one.task for one in samples} == {"verify"}


def test_a_gold_passage_is_put_in_at_any_place():
    rng, found, places = random.Random(0), [C, D, E, F], set()
    for _ in range(60):
        shown = with_gold(Q1, found, {"a": A}, rng)
        assert len(shown) == 4 and A in shown and sum(one in found for one in shown) == 3
        places.add(shown.index(A))
    assert places == {0, 1, 2, 3}
    assert with_gold(Q1, [C, A], {"a": A}, rng) == [C, A]  # it was found
    two = replace(Q1, gold_passages=("a", "b"))
    assert with_gold(two, [C, A], {"a": A, "b": B}, rng) == [C, A]  # one of them is enough


def test_answers_to_learn_cite_what_is_shown():
    assert gold_answer(Q1, (C, A)) == "Ada Voss[2]"
    assert gold_answer(replace(Q1, answers=("It was Ada[1].",)), (C, A)) == "It was Ada[1]."
    samples = answer_samples(source_of(QUESTIONS), QUESTIONS, Config())
    assert [one.id for one in samples][:5] == ["q1", "q2", "q3", "q4", "q7"]
    for sample in samples:
        question = next(one for one in QUESTIONS if one.id == sample.id)
        assert sample.task == "answer" and not sample.unfinished
        assert sample.target[0].startswith(question.answers[0])
        shown = sample.prompt.partition("\\Question: ")[0]
        for mark in synthesis.CITATION.findall(sample.target[0]):
            text = shown.partition(f"Reference [{mark}]: ")[2].partition("\\")[0]
            assert text in [PASSAGES[one].text for one in question.gold_passages]


def test_only_right_answers_are_corrupted(monkeypatch):
    monkeypatch.setattr(synthesis, "CORRUPTED", 1.0)
    right, wrong = (Example(Q1, (A, C), answer, "retrieved") for answer in ("Ada Voss[1]", "Mere[1]"))
    made = synthesis.corrupt([right, wrong, replace(right, answer="")] * 20, random.Random(0))
    assert len(made) == 20 and {one.kind for one in made} == {"repetition", "wrong citation"}
    assert all("Ada Voss" in one.answer for one in made)


def test_a_wrong_answer_from_deeper_passages_is_also_put_beside_those_that_hold_the_right_one():
    deeper = Example(Q1, (C, D), "Mere[1]", "deeper passages")
    others = [replace(deeper, answer="Ada Voss"), replace(deeper, kind="retrieved")]
    (crossed,) = synthesis.cross([deeper, *others], {Q1: [A, C, D, E]}, 2)
    assert (crossed.kind, crossed.answer, crossed.passages) == ("crossed answer", "Mere[1]", (A, C))


def test_each_seed_model_answers_the_half_it_has_not_learnt_from(monkeypatch):
    asked = {}

    class Seed:
        def __init__(self, name):
            self.name = name

        def answer(self, x, k):
            asked.setdefault(self.name, set()).update(x)
            return ["Mere[1]"] * (len(x) - 1) + ["Ada Voss[1]"]

        def write_alone(self, task, x):
            return [""] * len(x)

    many = [replace(Q1, id=f"q{i}", question=f"who wrote {i}") for i in range(8)]
    source = Source(many, [A, C], *[lambda queries: [[C, D, E, F, B]] * len(queries)] * 2)
    monkeypatch.setattr(synthesis, "BROKEN", 0.0)
    whole, chosen = synthesis.make_d2(Config(), [source], Seed)
    first, second = ({one.question for one in half} for half in synthesis.halve(many))
    assert asked == {"seed-2": first, "seed-1": second}
    judged = [one.verdict.judgment for one in chosen]
    assert judged.count("true") == judged.count("false") == 2
    monkeypatch.setattr(Seed, "answer", lambda self, x, k: ["Mere[1]"] * len(x))
    with pytest.raises(ValueError, match="D2' is empty: 0 of the seed models' .* answers are right"):
        synthesis.make_d2(Config(), [source], Seed)


def test_each_seed_model_learns_one_half(monkeypatch):
    monkeypatch.setattr(recipe, "train_adapter", lambda config, name, samples: {one.id for one in samples})
    questions = [one for one in QUESTIONS if one.gold_passages]
    one, two = ({question.id for question in half} for half in synthesis.halve(questions))
    assert recipe.train_seeds(Config(), [source_of(questions)]) == {"seed-1": one, "seed-2": two}


def test_the_papers_mixture_is_as_large_as_d_and_its_verdicts_are_on_questions_that_nobody_learnt(monkeypatch):
    asked, learnt = set(), []

    class Seed:
        def __init__(self, name):
            learnt.append(name)

        def answer(self, x, k):
            asked.update(x)
            return ["Mere[1]", "Ada Voss[1]"] * (len(x) // 2)

        def write_alone(self, task, x):
            return [""] * len(x)

    many = [replace(Q1, id=f"q{i}", question=f"who wrote {i}") for i in range(8)]
    source = Source(many, [A, C], *[lambda queries: [[C, D, E, F, B]] * len(queries)] * 2)
    monkeypatch.setattr(synthesis, "BROKEN", 0.0)
    monkeypatch.setattr(recipe, "train_adapter", lambda config, name, samples: {one.id for one in samples})
    first, second = synthesis.halve(many)
    paper = Config().change(mixture="paper")
    assert recipe.train_seeds(paper, [source]) == {"seed-1": {one.id for one in first}}
    _, chosen = synthesis.make_d2(paper, [source], Seed)
    assert (learnt, asked) == (["seed-1", ""], {one.question for one in second})
    made = {}
    for mixture in synthesis.MIXTURES:
        tasks = synthesis.make_samples(Config().change(mixture=mixture), [source], chosen * 2)
        assert len(tasks["rag"]) == 8
        made[mixture] = {task: [one.id for one in tasks["cov"] if one.task == task] for task in ("answer", "verify")}
    sizes = {mixture: [len(ids) for ids in one.values()] for mixture, one in made.items()}
    assert sizes == {"all": [8, 8], "paper": [4, 4], "paper+answers": [8, 4]}
    assert set(made["paper"]["answer"]) == {one.id for one in first}
    assert {name.partition("-")[0] for name in made["paper"]["verify"]} == {one.id for one in second}
    with pytest.raises(ValueError, match="mixture 'half' is not known; use one of all, paper, paper.answers"):
        synthesis.make_d2(Config().change(mixture="half"), [source], Seed)


def test_samples_come_back_as_they_were_saved_and_damaged_ones_are_named(tmp_path):
    samples = [Sample("a", "answer", "p\u2028", ("xy",)), Sample("c", "verify", "p", ('{ "4":', ' "'), unfinished=True)]
    recipe.save_samples(tmp_path / "s.gz", samples)
    assert recipe.load_samples(tmp_path / "s.gz") == samples
    (tmp_path / "s.gz").write_bytes((tmp_path / "s.gz").read_bytes()[:-10])
    with pytest.raises(ValueError, match="s.gz is damaged"):
        recipe.load_samples(tmp_path / "s.gz")


def test_only_systems_whose_adapters_are_there_are_validated(monkeypatch, tmp_path):
    write_jsonl(tmp_path / "cov" / "adapter_config.json", [{}])
    monkeypatch.setattr(recipe.evaluate, "load_resources", lambda config, passages: None)
    monkeypatch.setattr(recipe.evaluate, "run", lambda config, resources, questions: (config, questions))
    ran, questions = recipe.validate(Config().change(adapters_out=str(tmp_path), n_questions=1))
    assert (ran.chain.systems, ran.data.split) == (("RAG", "CoV-RAG-S", "CoV-RAG"), "validation")
    assert all("-validation-" in question.id for question in questions)


def test_a_question_of_the_world_that_sounds_like_a_test_question_is_not_learnt_from():
    config = Config().change(n_train_questions=0, seed=7)
    asked = load_questions(config.change(split="test", n_questions=0))
    learnt = load_questions(config.change(split="train", n_questions=0))
    alike = {normalise(q.question) for q in asked} & {normalise(q.question) for q in learnt}
    assert alike == {"how long is the river bracken"}  # cut off, of two rivers of that name
    (source,) = load_sources(config)
    assert not {normalise(q.question) for q in source.questions} & alike
    assert len(source.questions) == len(learnt) - 1
