"""Synthesis of the training data (Section 2.3): answer samples for L_RAG, and D2′ for L_CoV.

D2′ contains verdicts on answers. The paper splits D into halves, lets a seed model trained on D1
answer the questions of D2, and adds synthetic errors. We rely mainly on natural errors:

- Two seed models, each trained on one half, answer the other half. They read the retrieved passages
  and, for some questions, deeper passages that do not contain the answer.
- Each wrong answer from deeper passages is also paired with the retrieved passages, which do
  contain the right answer. The verifier must therefore read the answer, not only the passages.
- A minority has synthetic errors (repetition, wrong citations) or a question with broken wording.
- Within every set and wording, half of the answers are right, so neither reveals the verdict.

`make_d2` calls these steps in order. The oracle that writes the verdicts is in `oracle`.

One wrong answer, from its question to a training sample (tests/test_synthesis.py runs this):

    question     "Where was the writer of book 7 born?"; the gold answer is "Mere"
    example      from the retrieved passages, the seed model answers "Ada Voss[1]"  (make_examples)
    failure      no retrieved passage states "Mere"  (oracle.find_failures)
    candidate    a search for "… of book 7 born? Ada Voss" finds one  (oracle.find_revisions)
    verdict      correctness 0.05, "false", the candidate as revised question  (oracle.judge)
    sample       prompt: question, passages and answer; target: the verdict  (verify_samples)

If no candidate finds a supporting passage, the sample is unfinished: its target ends after the
judgment, because nobody knows a good revised question.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from covrag_lite import prompts
from covrag_lite.method import Answer, Write
from covrag_lite.oracle import (
    Annotate,
    Example,
    annotate_by_rules,
    choose_revision,
    find_failures,
    find_revisions,
    is_right,
    supporting,
)
from covrag_lite.records import CITATION, Passage, Question, Sample, Source

SEED = 1  # for the halves, the corruption and the balancing; `training_seed` does not change it
UNSUPPORTED_SHARE = 0.25  # share of answer samples without a supporting passage (no citation)
BROKEN_SHARE = 0.2  # share of D's questions that are also asked with broken wording
CORRUPTED_SHARE = 0.1  # share of right answers that are also corrupted: repetition, wrong citations


# D1: one half of D, and the answers that are learnt from it.


def halve(questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """Split D into two random halves."""
    shuffled = random.Random(SEED).sample(list(questions), len(questions))
    middle = len(shuffled) // 2
    return shuffled[:middle], shuffled[middle:]


MIXTURES = ("all", "paper", "paper+answers")


def seed_halves(mixture: str) -> dict[str, int]:
    """Return the seed models, each with the half of D that it learns from: 0 or 1.

    It answers the other half. The paper has one seed model.
    """
    if mixture not in MIXTURES:
        raise ValueError(f"mixture {mixture!r} is not known; use one of {', '.join(MIXTURES)}")
    return {"seed-1": 0, "seed-2": 1} if mixture == "all" else {"seed-1": 0}


def answer_samples(source: Source, questions: Sequence[Question], layout: str) -> list[Sample]:
    """Make samples of the answering task (WebGLM's recipe); a share has no supporting passage."""
    rng = random.Random(SEED)
    gold_ids: set[str] = set()
    for question in questions:
        gold_ids.update(question.gold_passages)
    # A corpus may have millions of passages; keep only the gold ones.
    gold_passages = {}
    if gold_ids:
        gold_passages = {p.id: p for p in source.passages if p.id in gold_ids}

    supported = []
    unsupported = []
    results = source.search([question.question for question in questions])
    for question, retrieved in zip(questions, results):
        passages = with_gold(question, retrieved, gold_passages, rng)
        prompt = prompts.build_answer(question.question, passages, layout)
        sample = Sample(question.id, "answer", prompt, (gold_answer(question, passages),))
        has_support = supporting(question, passages) or CITATION.search(question.answers[0])
        if has_support:
            supported.append(sample)
        else:
            unsupported.append(sample)

    n_unsupported = round(len(supported) * UNSUPPORTED_SHARE / (1 - UNSUPPORTED_SHARE))
    return supported + rng.sample(unsupported, min(n_unsupported, len(unsupported)))


def with_gold(
    question: Question,
    retrieved: Sequence[Passage],
    gold_passages: Mapping[str, Passage],
    rng: random.Random,
) -> list[Passage]:
    """Return the retrieved passages; if none is gold, gold passages replace some of them.

    The sample then teaches the model to read the answer, not to guess it.
    """
    passages = list(retrieved)
    gold = [gold_passages[name] for name in question.gold_passages if name in gold_passages]
    if not gold or supporting(question, passages):
        return passages
    n_replaced = min(len(gold), len(passages))
    places = rng.sample(range(len(passages)), n_replaced)
    for place, passage in zip(places, gold):
        passages[place] = passage
    return passages


def gold_answer(question: Question, passages: Sequence[Passage]) -> str:
    """Return the gold answer with citations; an answer that already has citations is kept."""
    answer = question.answers[0]
    if CITATION.search(answer):
        return answer
    return answer + "".join(f"[{number}]" for number in supporting(question, passages))


# The examples of D2′: answers of the seed models to the half that they did not learn from.


def make_examples(
    source: Source, questions: Sequence[Question], answer: Answer, k: int
) -> list[Example]:
    """Make the examples of D2′ before annotation: seed model answers and some corrupted answers."""
    rng = random.Random(SEED)
    deep = dict(zip(questions, source.deep([question.question for question in questions])))

    tasks = []  # (question, passages, kind)
    for question in questions:
        tasks.append((question, tuple(deep[question][:k]), "retrieved"))
    for question in questions:
        passages = deeper_passages(question, deep[question], k)
        if passages:
            tasks.append((question, passages, "deeper passages"))
    # Two-hop questions, and those already broken, would become impossible to understand.
    clear = [question for question in questions if question.form == "well put"]
    chosen = rng.sample(clear, round(BROKEN_SHARE * len(clear)))
    broken = [break_question(question, rng) for question in chosen]
    for question, found_passages in zip(broken, source.search([q.question for q in broken])):
        tasks.append((question, tuple(found_passages), "broken wording"))

    x = [question.question for question, _, _ in tasks]
    answers = answer(x, [passages for _, passages, _ in tasks])
    examples = [
        Example(question, passages, text, kind)
        for (question, passages, kind), text in zip(tasks, answers)
    ]
    retrieved = [example for example in examples if example.kind == "retrieved"]
    return examples + cross(examples, deep, k) + corrupt(retrieved, rng)


def deeper_passages(question: Question, deep: Sequence[Passage], k: int) -> tuple[Passage, ...]:
    """Return k passages without the answer, if the first k contain it; () if there are too few."""
    supporting_numbers = supporting(question, deep)
    others = [p for number, p in enumerate(deep, 1) if number not in supporting_numbers]
    is_found = bool(supporting_numbers) and min(supporting_numbers) <= k
    return tuple(others[:k]) if is_found and len(others) >= k else ()


def cross(
    examples: Sequence[Example], deep: Mapping[Question, Sequence[Passage]], k: int
) -> list[Example]:
    """Pair the wrong answers from deeper passages with the retrieved passages of the question."""
    crossed = []
    for example in examples:
        question = example.question
        if example.kind == "deeper passages" and not is_right(example.answer, question):
            retrieved = tuple(deep[question][:k])
            crossed.append(replace(example, passages=retrieved, kind="crossed answer"))
    return crossed


def corrupt(examples: Sequence[Example], rng: random.Random) -> list[Example]:
    """Copy some right answers and corrupt them by repetition or by wrong citations.

    Unlike in the paper, the oracle still judges an answer with wrong citations to be true.
    """
    right = [e for e in examples if e.answer and is_right(e.answer, e.question)]
    corrupted = []
    for example in rng.sample(right, round(CORRUPTED_SHARE * len(right))):
        n_passages = len(example.passages)
        numbers = supporting(example.question, example.passages)
        can_cite_wrongly = 0 < len(numbers) < n_passages
        if rng.random() < 0.5 or not can_cite_wrongly:
            answer = repeat_words(example.answer, rng)
            corrupted.append(replace(example, answer=answer, kind="repetition"))
        else:
            answer = move_citations(example.answer, numbers, n_passages, rng)
            corrupted.append(replace(example, answer=answer, kind="wrong citation"))
    return corrupted


def break_question(question: Question, rng: random.Random) -> Question:
    """Return the question as typed in a hurry: misspelt long words, or the end missing."""
    words = question.question.rstrip("?. ").split()
    if rng.random() < 0.35 and len(words) > 4:
        words = words[: -rng.randint(1, 2)]
        last = words[-1]
        words[-1] = last[: max(3, len(last) * 2 // 3)]
    else:
        longest_first = sorted(range(len(words)), key=lambda place: -len(words[place]))
        for place in longest_first[: max(2, len(words) // 3)]:
            words[place] = _misspell(words[place], rng)
    clear = question.clean_question or question.question
    return replace(question, question=" ".join(words), clean_question=clear)


def _misspell(word: str, rng: random.Random) -> str:
    if len(word) < 4:
        return word
    i = rng.randrange(1, len(word) - 2)
    swapped = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    missing = word[:i] + word[i + 1 :]
    doubled = word[:i] + word[i] + word[i:]
    return rng.choice([swapped, missing, doubled])


def repeat_words(answer: str, rng: random.Random) -> str:
    """Corrupt a right answer by repetition (Table 9 of the paper)."""
    text = CITATION.sub("", answer).strip()
    citations = "".join(f"[{number}]" for number in CITATION.findall(answer))
    last_word = text.split()[-1]
    stuttering = " ".join([text, *[last_word] * rng.randint(2, 4)])
    listing = ", ".join([text] * rng.randint(3, 4))
    return rng.choice([stuttering, listing]) + citations


def move_citations(answer: str, right: Sequence[int], n: int, rng: random.Random) -> str:
    """Corrupt a right answer by citing wrong references (Table 8 of the paper)."""
    wrong = [number for number in range(1, n + 1) if number not in right]
    cited = rng.sample(wrong, min(len(wrong), rng.randint(1, 2)))
    return CITATION.sub("", answer).strip() + "".join(f"[{number}]" for number in sorted(cited))


def balance(examples: Sequence[Example], size: int) -> list[Example]:
    """Choose at most `size` examples; in every set and wording, half of them are judged true.

    Of the false ones, half have a revised question, if there are enough of both kinds.
    """
    rng = random.Random(SEED)
    shuffled = sorted(rng.sample(list(examples), len(examples)), key=_set_and_wording)
    chosen = []
    for _, group in groupby(shuffled, key=_set_and_wording):
        members = list(group)
        true = [example for example in members if example.is_true]
        false = [example for example in members if not example.is_true]
        revised = [example for example in false if example.revised_question]
        unrevised = [example for example in false if not example.revised_question]
        share = round(size * len(members) / len(examples))
        half = min(len(true), len(false), share // 2)
        n_revised = min(len(revised), max(half // 2, half - len(unrevised)))
        n_unrevised = half - n_revised
        chosen += true[:half] + revised[:n_revised] + unrevised[:n_unrevised]
    return rng.sample(chosen, len(chosen))


def _set_and_wording(example: Example) -> tuple[str, str]:
    is_broken = example.kind == "broken wording"
    return example.question.dataset, "broken wording" if is_broken else example.question.form


# Samples: what the adapters learn.


def verify_samples(examples: Sequence[Example], with_chain: bool, layout: str) -> list[Sample]:
    """Make samples of the verification task; w/o chain, only the revised question (Table 5)."""
    samples = []
    for number, example in enumerate(examples):
        question = example.question
        prompt = prompts.build_verify(question.question, example.passages, example.answer, layout)
        unfinished = is_unfinished(example, with_chain)
        target = prompts.verdict_parts(example.annotation, with_chain, unfinished)
        samples.append(Sample(f"{question.id}-{number}", "verify", prompt, target, unfinished))
    return samples


def is_unfinished(example: Example, with_chain: bool) -> bool:
    """Return whether the end of the verdict is unknown: a needed revised question that is missing.

    Without the chain, an empty revised question means "true", so no false verdict may end with one.
    """
    if with_chain:
        return example.lacks_revision
    return not example.is_true and not example.revised_question


def rewrite_samples(examples: Sequence[Example]) -> list[Sample]:
    """Make samples for Start-Revise's rewriter: the revised question, or the question unchanged.

    A question stays unchanged if its answers were right; this teaches when not to rewrite.
    """
    rewritten: dict[str, str] = {}
    for example in examples:
        question = example.question.question
        if example.lacks_revision:
            continue
        if example.revised_question:
            rewritten[question] = example.revised_question
        else:
            rewritten.setdefault(question, question)
    samples = []
    for number, (question, target) in enumerate(rewritten.items()):
        prompt = prompts.build_from_question("rewrite", question)
        samples.append(Sample(f"rewrite-{number}", "answer", prompt, (target,)))
    return samples


def make_samples(
    sources: Sequence[Source], chosen: Sequence[Example], mixture: str, layout: str
) -> dict[str, list[Sample]]:
    """Make what each adapter learns; plain retrieval (rag) learns all answers in every mixture."""
    answers = []
    for source in sources:
        answers += answer_samples(source, source.questions, layout)
    answers_to_mix = answers
    to_verify = chosen
    if mixture != "all":
        learnt_half = seed_halves(mixture)["seed-1"]
        learnt = []  # what the seed model learnt
        for source in sources:
            learnt += answer_samples(source, halve(source.questions)[learnt_half], layout)
        # The paper keeps the size of D: verdicts take the place of the other half's answers.
        to_verify = chosen[: len(answers) - len(learnt)]
        if mixture == "paper":
            answers_to_mix = learnt
    return {
        "rag": answers,
        "cov": answers_to_mix + verify_samples(to_verify, True, layout),
        "cov-direct": answers_to_mix + verify_samples(to_verify, False, layout),
        "rewrite": rewrite_samples(to_verify),
    }


@dataclass(frozen=True)
class D2:
    """The verification data D2′."""

    examples: list[Example]  # all annotated examples
    chosen: list[Example]  # those that are learnt: balanced
    n_failed: int  # questions whose search found no supporting passage
    n_revised: int  # of these, questions with a revised question that works
    forms: Counter[str]  # how often each form of a revised question works

    @property
    def summary(self) -> str:
        """What was found, in two lines."""
        forms = ", ".join(f"{form} {n}" for form, n in self.forms.most_common())
        return (
            f"{self.n_failed} questions found no supporting passage\n"
            f"{self.n_revised} of them have a revised question; its possible forms: {forms}"
        )


def make_d2(
    sources: Sequence[Source],
    seed_readers: Iterable[tuple[int, Answer]],
    write: Write,
    *,
    k: int,
    verify_share: float,
    annotate: Annotate = annotate_by_rules,
) -> D2:
    """Make D2′: examples with natural errors, their verdicts, and a balanced choice of them.

    `seed_readers` are pairs: the half that a seed model learnt from (0 or 1), and the function with
    which it answers the other half. `write` is the base model, which writes candidates for revised
    questions. D2′ has at most `verify_share` times as many samples as D has questions.
    """
    examples_by_source = []
    for half_learnt, answer in seed_readers:
        for source in sources:
            other_half = halve(source.questions)[1 - half_learnt]
            examples_by_source.append((source, make_examples(source, other_half, answer, k)))

    failures = [find_failures(examples) for _, examples in examples_by_source]
    candidates = [
        find_revisions(failed, write, source.search)
        for failed, (source, _) in zip(failures, examples_by_source)
    ]
    forms: Counter[str] = Counter()
    for by_question in candidates:
        for by_form in by_question.values():
            forms.update(by_form.keys())

    annotated = []
    for (source, examples), by_question in zip(examples_by_source, candidates):
        revisions = {
            question: choose_revision(by_form, forms) for question, by_form in by_question.items()
        }
        annotated += annotate(examples, revisions, source.search)

    n_questions = sum(len(source.questions) for source in sources)
    chosen = balance(annotated, round(verify_share * n_questions))
    if not chosen:
        raise ValueError(explain_empty(annotated))
    n_failed = sum(len(failed) for failed in failures)
    n_revised = sum(len(by_question) for by_question in candidates)
    return D2(annotated, chosen, n_failed, n_revised, forms)


def explain_empty(annotated: Sequence[Example]) -> str:
    """Return the sentence that says why no example can be learnt."""
    n_right = sum(example.is_true for example in annotated)
    return (
        f"D2' is empty: {n_right} of the seed models' {len(annotated)} answers are right, but "
        "both right and wrong answers are needed; raise n_train_questions or epochs"
    )
