"""The paper's training data (Section 2.3): from D to D1 for answering and D2′ for verifying.

D is halved; a seed model trained on D1 answers D2's questions; three kinds of negatives are added; an annotator writes
the verdicts. The annotator here is an oracle that knows gold answers and passages; `teacher` asks a larger model.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from covrag_lite import metrics, prompts
from covrag_lite.config import Config
from covrag_lite.data import Source
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import CITATION, Passage, Question, Sample, Verdict

KINDS = (
    "seed answer",
    "gold answer",
    "repetition",
    "wrong citation",
    "bad query",
)  # where an example of D2′ comes from
Search = Callable[[Sequence[str]], list[list[Passage]]]


@dataclass(frozen=True)
class Example:
    """A question, what was retrieved for it, an answer, and what the annotator says of it."""

    question: Question
    passages: tuple[Passage, ...]
    answer: str
    kind: str
    verdict: Verdict | None = None


def halve(questions: Sequence[Question], seed: int) -> tuple[list[Question], list[Question]]:
    """D1 and D2: two random halves of D."""
    mixed = random.Random(seed).sample(list(questions), len(questions))
    return mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]


def supporting(question: Question, passages: Sequence[Passage]) -> list[int]:
    """The numbers of the references that state the answer: the gold ones where they are known, else those that hold its words."""
    if question.gold_passages:
        return [i for i, p in enumerate(passages, 1) if p.id in question.gold_passages]
    return [i for i, p in enumerate(passages, 1) if metrics.score(p.text, question.answers, "normalised")]


def gold_answer(question: Question, passages: Sequence[Passage]) -> str:
    """The right answer with its citations; data that has cited answers keeps them as they are."""
    if CITATION.search(question.answers[0]):
        return question.answers[0]
    return question.answers[0] + "".join(f"[{i}]" for i in supporting(question, passages))


def with_gold(
    question: Question, found: Sequence[Passage], by_id: dict[str, Passage], rng: random.Random
) -> list[Passage]:
    """The retrieved passages, with a gold one put in a random place where none was found: the task is to read, not to guess."""
    passages = list(found)
    known = [by_id[identity] for identity in question.gold_passages if identity in by_id]
    missing = [p for p in known if p not in passages]
    if missing and not supporting(question, passages):
        for place, p in zip(rng.sample(range(len(passages)), min(len(missing), len(passages))), missing):
            passages[place] = p
    return passages


def answer_samples(
    questions: Sequence[Question], passages: Sequence[Passage], search: Search, seed: int, layout: str = "paper"
) -> list[Sample]:
    """The answering task over these questions: L_RAG's samples, as in WebGLM's recipe. Questions without a reference that answers them are left out."""
    rng, by_id = random.Random(seed), {p.id: p for p in passages}
    made = []
    for question, found in zip(questions, search([q.question for q in questions])):
        shown = with_gold(question, found, by_id, rng)
        if supporting(question, shown) or CITATION.search(question.answers[0]):
            made.append(
                Sample(
                    question.id,
                    "answer",
                    prompts.build_answer(question.question, shown, layout),
                    (gold_answer(question, shown),),
                )
            )
    return made


def verify_samples(examples: Sequence[Example], with_chain: bool = True, layout: str = "paper") -> list[Sample]:
    """The verification task: L_CoV's samples. Without the chain the model writes the revised question alone (Table 5)."""
    made = []
    for number, one in enumerate(examples):
        prompt = prompts.build_verify(one.question.question, one.passages, one.answer, layout)
        made.append(
            Sample(f"{one.question.id}-{number}", "verify", prompt, prompts.verdict_parts(one.verdict, with_chain))
        )
    return made


def rewrite_samples(examples: Sequence[Example]) -> list[Sample]:
    """Start-Revise's task from the same verdicts, without what was retrieved: the question's revision, or itself where it has none."""
    revised = {}
    for one in examples:
        asked = one.question.question
        revised[asked] = one.verdict.revised_question or revised.get(asked, asked)
    return [
        Sample(f"rewrite-{number}", "answer", prompts.build_rewrite(asked), (new,))
        for number, (asked, new) in enumerate(revised.items())
    ]


def break_question(question: Question, rng: random.Random) -> Question:
    """The same question as a hurried user types it: letters swapped in its longest words, or the end missing."""
    words = question.question.rstrip("?. ").split()
    if rng.random() < 0.35 and len(words) > 4:
        words = words[: -rng.randint(1, 2)]
        words[-1] = words[-1][: max(3, len(words[-1]) * 2 // 3)]
    else:
        for place in sorted(range(len(words)), key=lambda i: -len(words[i]))[: max(2, len(words) // 3)]:
            words[place] = _typo(words[place], rng)
    return replace(question, question=" ".join(words), clean_question=question.clean_question or question.question)


def _typo(word: str, rng: random.Random) -> str:
    if len(word) < 4:
        return word
    i = rng.randrange(1, len(word) - 2)
    return rng.choice(
        [word[:i] + word[i + 1] + word[i] + word[i + 2 :], word[:i] + word[i + 1 :], word[:i] + word[i] + word[i:]]
    )


def repeat_words(answer: str, rng: random.Random) -> str:
    """A right answer spoilt by repetition (the paper's Table 9)."""
    body, marks = CITATION.sub("", answer).strip(), "".join(f"[{n}]" for n in CITATION.findall(answer))
    last = body.split()[-1]
    return rng.choice([" ".join([body, *[last] * rng.randint(2, 4)]), ", ".join([body] * rng.randint(3, 4))]) + marks


def move_citations(answer: str, right: Sequence[int], n: int, rng: random.Random) -> str:
    """A right answer whose citations point elsewhere (the paper's Table 8)."""
    wrong = [i for i in range(1, n + 1) if i not in right]
    return CITATION.sub("", answer).strip() + "".join(
        f"[{i}]" for i in sorted(rng.sample(wrong, min(len(wrong), rng.randint(1, 2))))
    )


def make_examples(questions: Sequence[Question], search: Search, answer: Callable, seed: int) -> list[Example]:
    """D2′ before annotation: the seed model's answers to D2 and to broken queries, D2's own answers, and these spoilt by hand."""
    rng = random.Random(seed)
    # What is broken already, or needs two steps, cannot be broken further and still be guessed. Twice each: retrieval
    # errors are what the judge must see most, and the seed model's own are too few.
    broken = [break_question(q, rng) for _ in range(2) for q in questions if "+" not in q.kind and q.kind != "two-hop"]
    made = []
    for kind, asked in (("seed answer", list(questions)), ("bad query", broken)):
        x = [q.question for q in asked]
        k = search(x)
        made += [Example(q, tuple(ps), y, kind) for q, ps, y in zip(asked, k, answer(x, k))]
    for one in made[: len(questions)]:
        right = supporting(one.question, one.passages)
        if right:
            good = gold_answer(one.question, one.passages)
            made.append(replace(one, answer=good, kind="gold answer"))
            if rng.random() < 0.5:
                made.append(replace(one, answer=repeat_words(good, rng), kind="repetition"))
            elif len(right) < len(one.passages):
                made.append(
                    replace(one, answer=move_citations(good, right, len(one.passages), rng), kind="wrong citation")
                )
    return made


def is_repetitive(answer: str) -> bool:
    """Does a word, or a run of words, come three times in a row?"""
    words = metrics.normalise(answer).split()
    return any(
        words[i : i + size] == words[i + size : i + 2 * size] == words[i + 2 * size : i + 3 * size]
        for size in range(1, len(words) // 3 + 1)
        for i in range(len(words) - 3 * size + 1)
    )


def is_right(answer: str, question: Question) -> bool:
    """Right by the normalised rule; a gold answer of whole sentences must share most of its words with the answer instead."""
    gold = metrics.normalise(question.answers[0]).split()
    if len(gold) <= 12:
        return bool(metrics.score(answer, question.answers, "normalised"))
    said = metrics.normalise(answer).split()
    shared = len(set(gold) & set(said))
    return bool(shared) and 2 * shared / (len(set(gold)) + len(set(said))) >= 0.5


def judge(one: Example, search: Search) -> Verdict:
    """The oracle's verdict by the criteria of Table 1; each score is high or low by a rule that gold can settle."""
    right_places = supporting(one.question, one.passages)
    cited = [int(mark) for mark in CITATION.findall(one.answer)]
    citation = sum(mark in right_places for mark in cited) / len(cited) if cited else 0.0
    right, repetitive = is_right(one.answer, one.question), is_repetitive(one.answer)
    said = metrics.normalise(one.answer)
    grounded = (
        bool(said) and any(said in metrics.normalise(p.text) for p in one.passages) or right and bool(right_places)
    )
    true = right and not repetitive and citation >= 0.5
    scores = (
        0.95 if right_places else 0.05,
        0.95 if right else 0.05,
        round(0.05 + 0.9 * citation, 2),
        0.35 if repetitive else 0.95 if right else 0.45 if grounded else 0.15,
        0.05 if grounded and right else 0.55 if grounded else 0.95,
        0.05 if repetitive else 0.95 if len(one.answer.split()) <= 30 else 0.5,
    )
    revised = "" if true or right_places else better_question(one.question, one.passages, search)
    return parse_verdict(render_verdict(scores, "true" if true else "false", revised))


def better_question(question: Question, passages: Sequence[Passage], search: Search) -> str:
    """The well-put question, if the retriever finds with it what it did not find before; else nothing."""
    candidate = question.clean_question
    if not candidate or candidate == question.question:
        return ""
    if question.kind == "two-hop":  # the second step can be asked for only once the first one was found
        seen = set(metrics.normalise(" ".join([question.question, *(p.text for p in passages)])).split())
        names = [word for word in re.findall(r"[A-Z]\w+", candidate)[1:]]
        if not all(metrics.normalise(name) in seen for name in names):
            return ""
    return candidate if supporting(question, search([candidate])[0]) else ""


def annotate(examples: Sequence[Example], search: Search) -> list[Example]:
    """Every example with the oracle's verdict."""
    return [replace(one, verdict=judge(one, search)) for one in examples]


def balance(examples: Sequence[Example], size: int, seed: int) -> list[Example]:
    """At most `size` examples, half judged true and half false, the false ones spread over what is wrong with them."""
    rng = random.Random(seed)
    mixed = rng.sample(list(examples), len(examples))
    true = [one for one in mixed if one.verdict.judgment == "true"]
    revised = [one for one in mixed if one.verdict.judgment != "true" and one.verdict.revised_question]
    other = [one for one in mixed if one.verdict.judgment != "true" and not one.verdict.revised_question]
    half = min(size // 2, len(true), len(revised) + len(other))
    n_revised = min(len(revised), max(half * 3 // 4, half - len(other)))  # the errors the method can repair, above all
    chosen = true[:half] + revised[:n_revised] + other[: half - n_revised]
    return rng.sample(chosen, len(chosen))


def composition(examples: Sequence[Example]) -> pd.DataFrame:
    """What D2′ is made of (Figure 3): examples by origin, judgment and revision."""
    rows = [
        (one.kind, one.verdict.judgment, "revised" if one.verdict.revised_question else "not revised")
        for one in examples
    ]
    frame = pd.DataFrame(rows, columns=["kind", "judgment", "revision"])
    return (
        frame.value_counts().rename("n").reset_index().sort_values(["kind", "judgment", "revision"], ignore_index=True)
    )


def answer_halves(sources: Sequence[Source], seed: int, layout: str = "paper") -> tuple[list[Sample], list[Sample]]:
    """The answering samples of D1 and of D2, over all sources."""
    halves = ([], [])
    for source in sources:
        for samples, questions in zip(halves, halve(source.questions, seed)):
            samples += answer_samples(questions, source.passages, source.search, seed, layout)
    return halves


def verification_data(
    config: Config, sources: Sequence[Source], answer_with: Callable, annotate_with: Callable = annotate
) -> tuple[list[Example], list[Example]]:
    """D2′ annotated, whole and then balanced; `answer_with(source)` is the seed model's answering over that source."""
    settings, every, chosen = config.synthesis, [], []
    for source in sources:
        d2 = halve(source.questions, settings.synthesis_seed)[1]
        examples = annotate_with(
            make_examples(d2, source.search, answer_with(source), settings.synthesis_seed), source.search
        )
        every += examples
        chosen += balance(examples, round(settings.verify_share * len(d2)), settings.synthesis_seed)
    return every, chosen
