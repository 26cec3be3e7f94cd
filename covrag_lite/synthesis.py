"""The paper's training data (Section 2.3): answers to learn for L_RAG, and D2′, verdicts on answers, for L_CoV.

The paper halves D, lets a seed model trained on D1 answer D2, and adds errors made by hand. Ours are natural errors
first: two seed models, each trained on one half, answer the other, over what was retrieved and over deeper passages
without the answer. Errors made by hand and broken wording are minorities. Right and wrong are balanced within every set
and wording, so that neither tells the verdict.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import pandas as pd

from covrag_lite import prompts
from covrag_lite.config import Config
from covrag_lite.corruption import break_question, move_citations, repeat_words
from covrag_lite.oracle import Example, is_right, supporting
from covrag_lite.records import CITATION, Passage, Question, Sample
from covrag_lite.runs.outcomes import form_of
from covrag_lite.sources import Source
from covrag_lite.tools import Answer

# Where an example of D2′ comes from.
KINDS = ("retrieved", "deeper passages", "broken wording", "repetition", "wrong citation")


def halve(questions: Sequence[Question], seed: int) -> tuple[list[Question], list[Question]]:
    """Two random halves of D."""
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


def answer_samples(source: Source, questions: Sequence[Question], config: Config) -> list[Sample]:
    """The answering task, L_RAG's samples, as in WebGLM's recipe; some questions must be answered from memory."""
    rng = random.Random(config.synthesis.synthesis_seed)
    by_id = {p.id: p for p in source.passages}
    supported, others = [], []
    for question, found in zip(questions, source.search([q.question for q in questions])):
        shown = with_gold(question, found, by_id, rng)
        prompt = prompts.build_answer(question.question, shown, config.model.layout)
        sample = Sample(question.id, "answer", prompt, (gold_answer(question, shown),))
        reads = supporting(question, shown) or CITATION.search(question.answers[0])
        (supported if reads else others).append(sample)
    share = config.synthesis.unsupported
    room = round(len(supported) * share / (1 - share))
    return supported + rng.sample(others, min(room, len(others)))


def make_examples(source: Source, questions: Sequence[Question], answer: Answer, config: Config) -> list[Example]:
    """D2′ before annotation: the seed model's answers, and a minority of answers spoilt by hand."""
    settings = config.synthesis
    rng = random.Random(settings.synthesis_seed)
    found = source.deep([q.question for q in questions])
    k = config.retrieval.k
    asked = [(q, tuple(passages[:k]), "retrieved") for q, passages in zip(questions, found)]
    for question, passages in zip(questions, found):
        held = set(supporting(question, passages))
        without = [p for i, p in enumerate(passages, 1) if i not in held]
        if held and min(held) <= k <= len(without):
            asked.append((question, tuple(without[:k]), "deeper passages"))
    # What is broken already, or needs two steps, cannot be broken further and still be guessed.
    whole = [q for q in questions if form_of(q.kind) == "well put"]
    broken = [break_question(q, rng) for q in rng.sample(whole, round(settings.broken * len(whole)))]
    for question, passages in zip(broken, source.search([q.question for q in broken])):
        asked.append((question, tuple(passages), "broken wording"))
    answers = answer([q.question for q, _, _ in asked], [passages for _, passages, _ in asked])
    made = [Example(*one[:2], text, one[2]) for one, text in zip(asked, answers)]
    return made + spoil(made[: len(questions)], settings.spoilt, rng)


def spoil(examples: Sequence[Example], share: float, rng: random.Random) -> list[Example]:
    """Some right answers spoilt by repetition, some with citations that point elsewhere."""
    right = [one for one in examples if one.answer and is_right(one.answer, one.question)]
    made = []
    for one in rng.sample(right, round(share * len(right))):
        places = supporting(one.question, one.passages)
        if rng.random() < 0.5 or not 0 < len(places) < len(one.passages):
            made.append(replace(one, answer=repeat_words(one.answer, rng), kind="repetition"))
        else:
            moved = move_citations(one.answer, places, len(one.passages), rng)
            made.append(replace(one, answer=moved, kind="wrong citation"))
    return made


def find_failures(examples: Sequence[Example]) -> dict[str, Example]:
    """The examples whose own search found no passage that states the answer, by the text they were asked in."""
    searched = [one for one in examples if one.kind in ("retrieved", "broken wording")]
    failed = [one for one in searched if not supporting(one.question, one.passages)]
    return {one.question.question: one for one in failed}


def wording(one: Example) -> str:
    """How the example's question is put."""
    return "broken wording" if one.kind == "broken wording" else form_of(one.question.kind)


def balance(examples: Sequence[Example], size: int, seed: int) -> list[Example]:
    """At most `size` examples, as many judged true as false within every set and wording.

    Of the false ones those with a revision come first, since they are few and teach most.
    """
    rng = random.Random(seed)
    mixed = sorted(rng.sample(list(examples), len(examples)), key=_stratum)
    chosen = []
    for _, group in groupby(mixed, key=_stratum):
        members = list(group)
        true = [one for one in members if one.verdict.judgment == "true"]
        false = [one for one in members if one.verdict.judgment != "true"]
        false.sort(key=lambda one: not one.verdict.revised_question)
        half = min(len(true), len(false), round(size * len(members) / len(examples)) // 2)
        revised = sum(bool(one.verdict.revised_question) for one in false)
        n_revised = min(revised, max(half // 2, half - (len(false) - revised)))
        chosen += true[:half] + false[:n_revised] + false[revised : revised + half - n_revised]
    return rng.sample(chosen, len(chosen))


def _stratum(one: Example) -> tuple[str, str]:
    return one.question.dataset, wording(one)


def verify_samples(examples: Sequence[Example], with_chain: bool = True, layout: str = "paper") -> list[Sample]:
    """The verification task, L_CoV's samples; without the chain the target is the revised question alone (Table 5)."""
    made = []
    for number, one in enumerate(examples):
        prompt = prompts.build_verify(one.question.question, one.passages, one.answer, layout)
        # Without the chain an empty revised question would call the answer true, so one is begun for every false one.
        unfinished = one.lacks_revision or not with_chain and one.verdict.judgment != "true"
        unfinished = unfinished and not one.verdict.revised_question
        parts = prompts.open_parts if unfinished else prompts.verdict_parts
        target = parts(one.verdict, with_chain)
        made.append(Sample(f"{one.question.id}-{number}", "verify", prompt, target, unfinished))
    return made


def rewrite_samples(examples: Sequence[Example]) -> list[Sample]:
    """Start-Revise's task from the same verdicts: a question's revision, or the question itself where it has none."""
    revised = {}
    for one in examples:
        asked = one.question.question
        if not one.lacks_revision:
            revised[asked] = one.verdict.revised_question or revised.get(asked, asked)
    made = []
    for number, (asked, new) in enumerate(revised.items()):
        made.append(Sample(f"rewrite-{number}", "answer", prompts.build_rewrite(asked), (new,)))
    return made


def composition(examples: Sequence[Example]) -> pd.DataFrame:
    """What D2′ is made of (Figure 3): examples by origin, judgment and revision."""
    columns = ["kind", "judgment", "revision"]
    rows = []
    for one in examples:
        revision = "revised" if one.verdict.revised_question else "not known" if one.lacks_revision else "not revised"
        rows.append((one.kind, one.verdict.judgment, revision))
    counts = pd.DataFrame(rows, columns=columns).value_counts().rename("n").reset_index()
    return counts.sort_values(columns, ignore_index=True)
