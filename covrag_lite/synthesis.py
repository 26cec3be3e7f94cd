"""Synthesis of the training data (Section 2.3): answers to learn, and D2′, the verdicts to learn.

The data D contains questions with gold answers. The paper splits it into the halves D1 and D2. A
seed model trained on D1 answers the questions of D2. D2′ contains verdicts on these answers, and on
synthetic errors. We rely mainly on natural errors:

- Two seed models, each trained on one half, answer the other half. They read the retrieved passages
  and, for some questions, deeper passages that do not contain the answer.
- Each wrong answer from deeper passages is also paired with the retrieved passages, which do
  contain the right answer. The verifier must therefore read the answer, not only the passages.
- A minority has synthetic errors (repetition, wrong citations) or a question with broken wording.
- In every question set, and for every form of wording (`Question.form`), half of the answers are
  right. So neither the set nor the wording reveals the verdict.

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

SEED = 1  # of all random choices in this module; `training_seed` does not change it
UNSUPPORTED_SHARE = 0.25  # share of answer samples without a supporting passage, so no citation
BROKEN_SHARE = 0.2  # share of D's questions that are also asked with broken wording
CORRUPTED_SHARE = 0.1  # share of right answers that are also corrupted: repetition, wrong citations


# Answers to learn, from one half of D for a seed model, or from all of it.


def halve(questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """Split D into two random halves, D1 and D2."""
    shuffled = random.Random(SEED).sample(list(questions), len(questions))
    middle = len(shuffled) // 2
    return shuffled[:middle], shuffled[middle:]


# What an adapter that verifies learns; `config.Synthesis.mixture` describes each.
MIXTURES = ("all", "paper", "paper+answers")


def seed_halves(mixture: str) -> dict[str, int]:
    """Return the names of the seed models, each with the half of D that it learns from: 0 or 1.

    A seed model answers the other half. The paper has one seed model.
    """
    if mixture not in MIXTURES:
        raise ValueError(f"mixture {mixture!r} is not known; use one of {', '.join(MIXTURES)}")
    return {"seed-1": 0, "seed-2": 1} if mixture == "all" else {"seed-1": 0}


def answer_samples(source: Source, questions: Sequence[Question], layout: str) -> list[Sample]:
    """Make samples of the answering task, by WebGLM's recipe.

    At most `UNSUPPORTED_SHARE` of them have no supporting passage.
    """
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
        # A gold answer that already cites its references is supported by them.
        has_support = supporting(question, passages) or CITATION.search(question.answers[0])
        if has_support:
            supported.append(sample)
        else:
            unsupported.append(sample)

    most_unsupported = round(len(supported) * UNSUPPORTED_SHARE / (1 - UNSUPPORTED_SHARE))
    n_unsupported = min(most_unsupported, len(unsupported))
    return supported + rng.sample(unsupported, n_unsupported)


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
    """Make the examples of D2′ before annotation: a seed model's answers, some of them corrupted.

    `answer` is the seed model, `questions` are those of the half that it did not learn from, and
    `k` is the number of passages that it reads.
    """
    rng = random.Random(SEED)
    deep = dict(zip(questions, source.deep([question.question for question in questions])))

    tasks = []  # (question, passages, kind)
    for question in questions:
        tasks.append((question, tuple(deep[question][:k]), "retrieved"))
    for question in questions:
        passages = deeper_passages(question, deep[question], k)
        if passages:
            tasks.append((question, passages, "deeper passages"))
    # Only clear questions get broken wording: two-hop questions, and those that are broken already,
    # would become impossible to understand.
    clear = [question for question in questions if question.form == "well put"]
    chosen = rng.sample(clear, round(BROKEN_SHARE * len(clear)))
    broken = [break_question(question, rng) for question in chosen]
    results = source.search([question.question for question in broken])
    for question, retrieved_passages in zip(broken, results):
        tasks.append((question, tuple(retrieved_passages), "broken wording"))

    x = [question.question for question, _, _ in tasks]
    answers = answer(x, [passages for _, passages, _ in tasks])
    examples = [
        Example(question, passages, text, kind)
        for (question, passages, kind), text in zip(tasks, answers)
    ]
    retrieved = [example for example in examples if example.kind == "retrieved"]
    return examples + cross(examples, deep, k) + corrupt(retrieved, rng)


def deeper_passages(question: Question, deep: Sequence[Passage], k: int) -> tuple[Passage, ...]:
    """Return the first k passages of a ranking that do not contain the answer.

    If the first k of the ranking do not contain it either, or too few passages are left, return ().
    """
    supporting_numbers = supporting(question, deep)
    others = [p for number, p in enumerate(deep, 1) if number not in supporting_numbers]
    is_retrieved = bool(supporting_numbers) and min(supporting_numbers) <= k
    if not is_retrieved or len(others) < k:
        return ()
    return tuple(others[:k])


def cross(
    examples: Sequence[Example], deep: Mapping[Question, Sequence[Passage]], k: int
) -> list[Example]:
    """Pair the wrong answers from deeper passages with the retrieved passages.

    These contain the right answer, because only such questions have deeper passages.
    """
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
        # Drop the last one or two words, and the end of the word before them.
        words = words[: -rng.randint(1, 2)]
        last = words[-1]
        words[-1] = last[: max(3, len(last) * 2 // 3)]
    else:
        # Misspell the longest third of the words, but at least two.
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


def move_citations(answer: str, right: Sequence[int], n_passages: int, rng: random.Random) -> str:
    """Corrupt a right answer by citing one or two wrong references (Table 8 of the paper).

    `right` are the numbers of the references that support the answer.
    """
    wrong = [number for number in range(1, n_passages + 1) if number not in right]
    cited = rng.sample(wrong, min(len(wrong), rng.randint(1, 2)))
    text = CITATION.sub("", answer).strip()
    return text + "".join(f"[{number}]" for number in sorted(cited))


def balance(examples: Sequence[Example], size: int) -> list[Example]:
    """Choose at most `size` examples; in every set and wording, half of them are judged true.

    A group, namely a set and wording, gets its share of `size` as far as it has enough true and
    false examples. Of the false ones, half have a revised question, or as near to half as possible.
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
        group_size = round(size * len(members) / len(examples))
        half = min(len(true), len(false), group_size // 2)
        # Half of the false ones are revised: more if there are too few others, fewer if there are
        # too few revised ones.
        n_wanted = max(half // 2, half - len(unrevised))
        n_revised = min(len(revised), n_wanted)
        n_unrevised = half - n_revised
        chosen += true[:half] + revised[:n_revised] + unrevised[:n_unrevised]
    return rng.sample(chosen, len(chosen))


def _set_and_wording(example: Example) -> tuple[str, str]:
    wording = example.question.form
    if example.kind == "broken wording":  # its question was well put before we broke it
        wording = "broken wording"
    return example.question.dataset, wording


# Samples: what the adapters learn.


def verify_samples(examples: Sequence[Example], with_chain: bool, layout: str) -> list[Sample]:
    """Make samples of the verification task: a verdict on each example's answer.

    Without the chain (Table 5), the verdict is only the revised question.
    """
    samples = []
    for number, example in enumerate(examples):
        question = example.question
        prompt = prompts.build_verify(question.question, example.passages, example.answer, layout)
        unfinished = is_unfinished(example, with_chain)
        target = prompts.verdict_parts(example.annotation, with_chain, unfinished)
        samples.append(Sample(f"{question.id}-{number}", "verify", prompt, target, unfinished))
    return samples


def is_unfinished(example: Example, with_chain: bool) -> bool:
    """Return whether the verdict needs a revised question but none is known.

    With the chain, it needs one if the answer is wrong and no passage supports the right one.
    Without the chain, every wrong answer needs one, because an empty one means "true".
    """
    if with_chain:
        return example.lacks_revision
    return not example.is_true and not example.revised_question


def rewrite_samples(examples: Sequence[Example]) -> list[Sample]:
    """Make samples for Start-Revise's rewriter: the revised question, or the question unchanged.

    A question stays unchanged if one of its examples needs no revised question and no other has
    one; this teaches when not to rewrite.
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
    """Make the samples of each adapter, by its name.

    "rag" answers. "cov" answers and verifies, and "cov-direct" does so without the chain. "rewrite"
    is the rewriter of Start-Revise. `mixture` decides what all but "rag" learn; see `MIXTURES`.
    """
    answers = []
    for source in sources:
        answers += answer_samples(source, source.questions, layout)
    answers_to_mix = answers
    to_verify = chosen
    if mixture != "all":
        seed_half = seed_halves(mixture)["seed-1"]
        seed_answers = []  # what the seed model learnt
        for source in sources:
            seed_answers += answer_samples(source, halve(source.questions)[seed_half], layout)
        # The paper keeps the size of D: verdicts take the place of the other half's answers.
        to_verify = chosen[: len(answers) - len(seed_answers)]
        if mixture == "paper":
            answers_to_mix = seed_answers
    return {
        "rag": answers,
        "cov": answers_to_mix + verify_samples(to_verify, with_chain=True, layout=layout),
        "cov-direct": answers_to_mix + verify_samples(to_verify, with_chain=False, layout=layout),
        "rewrite": rewrite_samples(to_verify),
    }


@dataclass(frozen=True)
class D2:
    """The verification data D2′."""

    examples: list[Example]  # all annotated examples
    chosen: list[Example]  # a balanced choice of them, which is learnt
    n_failed: int  # number of questions whose search found no supporting passage
    n_revised: int  # number of these with a revised question that works
    forms: Counter[str]  # for how many questions each form of a revised question works

    @property
    def summary(self) -> str:
        """How many searches failed, and which forms of a revised question work, in two lines."""
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
    which it answers the other half. `write` is the base model, which helps to write revised
    questions. At most `verify_share` times as many examples are chosen as D has questions.
    """
    groups = answer_other_halves(sources, seed_readers, k)

    # The questions of each group whose search failed, and their revised questions that work.
    failures_of_groups = []
    revisions_of_groups = []
    for source, examples in groups:
        failures = find_failures(examples)
        failures_of_groups.append(failures)
        revisions_of_groups.append(find_revisions(failures, write, source.search))
    forms: Counter[str] = Counter()
    for revisions in revisions_of_groups:
        for candidates in revisions.values():
            forms.update(candidates.keys())

    annotated = []
    for (source, examples), revisions in zip(groups, revisions_of_groups):
        chosen_revisions = {}
        for question, candidates in revisions.items():
            chosen_revisions[question] = choose_revision(candidates, forms)
        annotated += annotate(examples, chosen_revisions, source.search)

    n_questions = sum(len(source.questions) for source in sources)
    chosen = balance(annotated, round(verify_share * n_questions))
    if not chosen:
        raise ValueError(explain_empty(annotated))
    n_failed = sum(len(failures) for failures in failures_of_groups)
    n_revised = sum(len(revisions) for revisions in revisions_of_groups)
    return D2(annotated, chosen, n_failed, n_revised, forms)


def answer_other_halves(
    sources: Sequence[Source], seed_readers: Iterable[tuple[int, Answer]], k: int
) -> list[tuple[Source, list[Example]]]:
    """Return one group of examples for each seed model and source.

    No seed model is in memory afterwards, when the base model is loaded.
    """
    groups = []
    for half_learnt, answer in seed_readers:
        for source in sources:
            other_half = halve(source.questions)[1 - half_learnt]
            groups.append((source, make_examples(source, other_half, answer, k)))
    return groups


def explain_empty(annotated: Sequence[Example]) -> str:
    """Return the sentence that says why no example can be learnt."""
    n_right = sum(example.is_true for example in annotated)
    return (
        f"D2' is empty: {n_right} of the seed models' {len(annotated)} answers are right, but "
        "both right and wrong answers are needed; raise n_train_questions or epochs"
    )
