"""The paper's training data (Section 2.3): from D to D1 for answering and D2′ for verifying.

D is halved; a seed model trained on D1 answers D2's questions; three kinds of negatives are added; an annotator writes
the verdicts: `oracle`, which knows gold answers and passages, or `teacher`, which asks a larger model.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from covrag_lite import prompts
from covrag_lite.config import Config
from covrag_lite.records import CITATION, Passage, Question, Sample, Search
from covrag_lite.systems.tools import Answer
from covrag_lite.training.oracle import Example, annotate, supporting
from covrag_lite.training.sources import Source
from covrag_lite.training.spoiling import break_question, move_citations, repeat_words

# Where an example of D2′ comes from.
KINDS = ("seed answer", "gold answer", "repetition", "wrong citation", "bad query")


def halve(questions: Sequence[Question], seed: int) -> tuple[list[Question], list[Question]]:
    """D1 and D2: two random halves of D."""
    mixed = random.Random(seed).sample(list(questions), len(questions))
    return mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]


def gold_answer(question: Question, passages: Sequence[Passage]) -> str:
    """The right answer with its citations; data that has cited answers keeps them as they are."""
    if CITATION.search(question.answers[0]):
        return question.answers[0]
    return question.answers[0] + "".join(f"[{i}]" for i in supporting(question, passages))


def with_gold(
    question: Question, found: Sequence[Passage], by_id: dict[str, Passage], rng: random.Random
) -> list[Passage]:
    """The retrieved passages, a gold one put among them where none was found: the task is to read, not to guess."""
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
    """The answering task, L_RAG's samples, as in WebGLM's recipe; questions that no reference answers are left out."""
    rng = random.Random(seed)
    by_id = {p.id: p for p in passages}
    made = []
    for question, found in zip(questions, search([q.question for q in questions])):
        shown = with_gold(question, found, by_id, rng)
        if supporting(question, shown) or CITATION.search(question.answers[0]):
            prompt = prompts.build_answer(question.question, shown, layout)
            made.append(Sample(question.id, "answer", prompt, (gold_answer(question, shown),)))
    return made


def verify_samples(examples: Sequence[Example], with_chain: bool = True, layout: str = "paper") -> list[Sample]:
    """The verification task, L_CoV's samples; without the chain the target is the revised question alone (Table 5)."""
    made = []
    for number, one in enumerate(examples):
        prompt = prompts.build_verify(one.question.question, one.passages, one.answer, layout)
        target = prompts.verdict_parts(one.verdict, with_chain)
        made.append(Sample(f"{one.question.id}-{number}", "verify", prompt, target))
    return made


def rewrite_samples(examples: Sequence[Example]) -> list[Sample]:
    """Start-Revise's task from the same verdicts: a question's revision, or the question itself where it has none."""
    revised = {}
    for one in examples:
        asked = one.question.question
        revised[asked] = one.verdict.revised_question or revised.get(asked, asked)
    made = []
    for number, (asked, new) in enumerate(revised.items()):
        made.append(Sample(f"rewrite-{number}", "answer", prompts.build_rewrite(asked), (new,)))
    return made


def make_examples(questions: Sequence[Question], search: Search, answer: Answer, seed: int) -> list[Example]:
    """D2′ before annotation: the seed model's answers to D2 and to broken queries, gold answers, and spoilt ones."""
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
                moved = move_citations(good, right, len(one.passages), rng)
                made.append(replace(one, answer=moved, kind="wrong citation"))
    return made


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
    columns = ["kind", "judgment", "revision"]
    rows = []
    for one in examples:
        revision = "revised" if one.verdict.revised_question else "not revised"
        rows.append((one.kind, one.verdict.judgment, revision))
    counts = pd.DataFrame(rows, columns=columns).value_counts().rename("n").reset_index()
    return counts.sort_values(columns, ignore_index=True)


def answer_halves(sources: Sequence[Source], seed: int, layout: str = "paper") -> tuple[list[Sample], list[Sample]]:
    """The answering samples of D1 and of D2, over all sources."""
    halves = ([], [])
    for source in sources:
        for samples, questions in zip(halves, halve(source.questions, seed)):
            samples += answer_samples(questions, source.passages, source.search, seed, layout)
    return halves


def verification_data(
    config: Config, sources: Sequence[Source], answer: Answer, annotate_with: Callable = annotate
) -> tuple[list[Example], list[Example]]:
    """D2′ annotated, whole and then balanced; `answer` is the seed model's answering."""
    seed = config.synthesis.synthesis_seed
    every, chosen = [], []
    for source in sources:
        d2 = halve(source.questions, seed)[1]
        answered = make_examples(d2, source.search, answer, seed)
        examples = annotate_with(answered, source.search)
        every += examples
        chosen += balance(examples, round(config.synthesis.verify_share * len(d2)), seed)
    return every, chosen
