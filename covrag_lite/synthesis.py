"""The paper's training data (Section 2.3): answers to learn for L_RAG, and D2′, verdicts on answers, for L_CoV.

The paper halves D, lets a seed model trained on D1 answer D2, and adds errors made by hand. Ours are natural errors
first: two seed models, each trained on one half, answer the other, over what was retrieved and over deeper passages
without the answer. A wrong answer from there is also put beside the passages that hold the right one, so that a judge
has to read the answer. Errors made by hand and broken wording are minorities. Right and wrong are balanced within every
set and wording, so that neither tells the verdict. `make_d2`, at the end, is the table of contents.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from covrag_lite import metrics, prompts
from covrag_lite.config import Config
from covrag_lite.method import Answer
from covrag_lite.records import CITATION, Passage, Question, Sample, Search, Verdict
from covrag_lite.runs.outcomes import failure_of, form_of
from covrag_lite.sources import Source
from covrag_lite.task_model import TaskModel

SEED = 1  # of the halves, the corruption and the balancing
UNSUPPORTED = 0.25  # share of D's answers for which no passage was found: from memory, without a citation
BROKEN = 0.2  # share of D's questions that are also asked with broken wording
CORRUPTED = 0.1  # share of D's right answers that are also corrupted by hand: repetitions, wrong citations

THRICE = re.compile(r"(?<!\S)(\S+(?: \S+)*?) \1 \1(?!\S)")  # a run of whole words three times in a row
LONGEST = 40  # words of a revised question
MIXTURES = ("all", "paper", "paper+answers")
TITLES = 3  # passages whose titles are tried
CLEAN = "the question well put"  # a form that goes before all others
BARE = ("a guess alone", "key terms alone")  # forms that drop the question, and with it what it had found

Candidates = dict[str, str]  # a form -> the revised question in that form


@dataclass(frozen=True)
class Example:
    """A question, what was retrieved for it, an answer, and what the annotator says of it."""

    question: Question
    passages: tuple[Passage, ...]
    answer: str
    kind: str  # where it comes from: "retrieved", "deeper passages", "crossed answer" …
    verdict: Verdict | None = None

    @property
    def lacks_revision(self) -> bool:
        """Is the answer wrong for want of a passage, and no better question known?"""
        wrong = self.verdict.judgment != "true" and not self.verdict.revised_question
        return wrong and not supporting(self.question, self.passages)


# Who writes the verdicts of D2′: examples, better questions by the text that was asked, and the search to try others.
Annotate = Callable[[Sequence[Example], Mapping[str, str], Search], list[Example]]


def halve(questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """Split D into two random halves."""
    mixed = random.Random(SEED).sample(list(questions), len(questions))
    return mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]


def seed_halves(config: Config) -> dict[str, int]:
    """The seed models, each with the half of D that it learns from; it answers the other. The paper has one of them."""
    mixture = config.synthesis.mixture
    if mixture not in MIXTURES:
        raise ValueError(f"mixture {mixture!r} is not known; use one of {', '.join(MIXTURES)}")
    return {"seed-1": 0, "seed-2": 1} if mixture == "all" else {"seed-1": 0}


def supporting(question: Question, passages: Sequence[Passage]) -> list[int]:
    """The numbers of the references that state the answer: the gold ones where known, else those with its words."""
    if question.gold_passages:
        return [i for i, p in enumerate(passages, 1) if p.id in question.gold_passages]
    return [i for i, p in enumerate(passages, 1) if metrics.holds_answer([p], question.answers, "whole")]


def answer_samples(source: Source, questions: Sequence[Question], config: Config) -> list[Sample]:
    """Make samples of the answering task, as in WebGLM's recipe; some questions must be answered from memory."""
    rng, supported, others = random.Random(SEED), [], []
    gold = {identity for question in questions for identity in question.gold_passages}
    by_id = {p.id: p for p in source.passages if p.id in gold} if gold else {}  # there may be millions
    for question, found in zip(questions, source.search([q.question for q in questions])):
        shown = with_gold(question, found, by_id, rng)
        prompt = prompts.build_answer(question.question, shown, config.model.layout)
        sample = Sample(question.id, "answer", prompt, (gold_answer(question, shown),))
        reads = supporting(question, shown) or CITATION.search(question.answers[0])
        (supported if reads else others).append(sample)
    room = round(len(supported) * UNSUPPORTED / (1 - UNSUPPORTED))
    return supported + rng.sample(others, min(room, len(others)))


def with_gold(
    question: Question, found: Sequence[Passage], by_id: dict[str, Passage], rng: random.Random
) -> list[Passage]:
    """The retrieved passages, a gold one put among them where none was found: the task is to read, not to guess."""
    passages = list(found)
    missing = [by_id[identity] for identity in question.gold_passages if identity in by_id]
    if missing and not supporting(question, passages):
        for place, p in zip(rng.sample(range(len(passages)), min(len(missing), len(passages))), missing):
            passages[place] = p
    return passages


def gold_answer(question: Question, passages: Sequence[Passage]) -> str:
    """The right answer with its citations; data that has cited answers keeps them as they are."""
    if CITATION.search(question.answers[0]):
        return question.answers[0]
    return question.answers[0] + "".join(f"[{i}]" for i in supporting(question, passages))


def make_examples(source: Source, questions: Sequence[Question], answer: Answer, config: Config) -> list[Example]:
    """D2′ before annotation: the seed model's answers, and a minority of answers corrupted by hand."""
    rng = random.Random(SEED)
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
    broken = [break_question(q, rng) for q in rng.sample(whole, round(BROKEN * len(whole)))]
    for question, passages in zip(broken, source.search([q.question for q in broken])):
        asked.append((question, tuple(passages), "broken wording"))
    answers = answer([q.question for q, _, _ in asked], [passages for _, passages, _ in asked])
    made = [Example(*one[:2], text, one[2]) for one, text in zip(asked, answers)]
    return made + cross(made, dict(zip(questions, found)), k) + corrupt(made[: len(questions)], rng)


def cross(examples: Sequence[Example], found: Mapping[Question, Sequence[Passage]], k: int) -> list[Example]:
    """The wrong answers that were read from deeper passages, beside the retrieved ones, which hold the right answer."""
    wrong = [one for one in examples if one.kind == "deeper passages" and not is_right(one.answer, one.question)]
    return [replace(one, passages=tuple(found[one.question][:k]), kind="crossed answer") for one in wrong]


def corrupt(examples: Sequence[Example], rng: random.Random) -> list[Example]:
    """Some right answers again, corrupted by repetition or by citations that point elsewhere."""
    right = [one for one in examples if one.answer and is_right(one.answer, one.question)]
    made = []
    for one in rng.sample(right, round(CORRUPTED * len(right))):
        places = supporting(one.question, one.passages)
        if rng.random() < 0.5 or not 0 < len(places) < len(one.passages):
            made.append(replace(one, answer=repeat_words(one.answer, rng), kind="repetition"))
        else:
            moved = move_citations(one.answer, places, len(one.passages), rng)
            made.append(replace(one, answer=moved, kind="wrong citation"))
    return made


def break_question(question: Question, rng: random.Random) -> Question:
    """The same question as a hurried user types it: letters swapped in its longest words, or the end missing."""
    words = question.question.rstrip("?. ").split()
    if rng.random() < 0.35 and len(words) > 4:
        words = words[: -rng.randint(1, 2)]
        words[-1] = words[-1][: max(3, len(words[-1]) * 2 // 3)]
    else:
        longest_first = sorted(range(len(words)), key=lambda i: -len(words[i]))
        for place in longest_first[: max(2, len(words) // 3)]:
            words[place] = _typo(words[place], rng)
    return replace(question, question=" ".join(words), clean_question=question.clean_question or question.question)


def _typo(word: str, rng: random.Random) -> str:
    if len(word) < 4:
        return word
    i = rng.randrange(1, len(word) - 2)
    swapped = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    missing = word[:i] + word[i + 1 :]
    doubled = word[:i] + word[i] + word[i:]
    return rng.choice([swapped, missing, doubled])


def repeat_words(answer: str, rng: random.Random) -> str:
    """Corrupt a right answer by repetition (the paper's Table 9)."""
    body = CITATION.sub("", answer).strip()
    marks = "".join(f"[{n}]" for n in CITATION.findall(answer))
    last = body.split()[-1]
    stuttering = " ".join([body, *[last] * rng.randint(2, 4)])
    listing = ", ".join([body] * rng.randint(3, 4))
    return rng.choice([stuttering, listing]) + marks


def move_citations(answer: str, right: Sequence[int], n: int, rng: random.Random) -> str:
    """Corrupt a right answer's citations: they point elsewhere (the paper's Table 8)."""
    wrong = [i for i in range(1, n + 1) if i not in right]
    chosen = rng.sample(wrong, min(len(wrong), rng.randint(1, 2)))
    return CITATION.sub("", answer).strip() + "".join(f"[{i}]" for i in sorted(chosen))


# The oracle knows gold answers and passages (the paper asked GPT-4) and writes verdicts by rules.


def annotate(examples: Sequence[Example], revisions: Mapping[str, str], search: Search | None = None) -> list[Example]:
    """Give every example the oracle's verdict; `revisions` has better questions by the text that was asked."""
    return [replace(one, verdict=judge(one, revisions.get(one.question.question, ""))) for one in examples]


def judge(one: Example, revised: str) -> Verdict:
    """The oracle's verdict by the criteria of the paper's Table 1; a right answer, or one that could be read, stays.

    The judgment is about the answer alone. Where its citations point has a score of its own.
    """
    right_places = supporting(one.question, one.passages)
    cited = [int(mark) for mark in CITATION.findall(one.answer)]
    citation = sum(mark in right_places for mark in cited) / len(cited) if cited else 0.0
    right = is_right(one.answer, one.question)
    repetitive = is_repetitive(one.answer)
    grounded = is_grounded(one.answer, one.passages) or right and bool(right_places)
    true = right and not repetitive
    scores = (
        0.95 if right_places else 0.05,
        0.95 if right else 0.05,
        round(0.05 + 0.9 * citation, 2),
        0.35 if repetitive else 0.95 if right else 0.45 if grounded else 0.15,
        0.05 if grounded and right else 0.55 if grounded else 0.95,
        0.05 if repetitive else 0.95 if len(one.answer.split()) <= 30 else 0.5,
    )
    keeps = true or bool(right_places)
    text = prompts.render_verdict(scores, "true" if true else "false", "" if keeps else revised)
    return prompts.parse_verdict(text)


def is_right(answer: str, question: Question) -> bool:
    """Is it right in whole words? A gold answer of whole sentences must share most of its words instead."""
    gold = metrics.normalise(question.answers[0]).split()
    if len(gold) <= 12:
        return bool(metrics.score(answer, question.answers, "whole"))
    said = metrics.normalise(answer).split()
    shared = len(set(gold) & set(said))
    return bool(shared) and 2 * shared / (len(set(gold)) + len(set(said))) >= 0.5


def is_grounded(answer: str, passages: Sequence[Passage]) -> bool:
    """Do the answer's words stand in a passage, one after the other?"""
    said = metrics.normalise(answer)
    return bool(said) and any(said in metrics.normalise(passage.text) for passage in passages)


def is_repetitive(answer: str) -> bool:
    """Does a word, or a run of words, come three times in a row?"""
    return bool(THRICE.search(metrics.normalise(answer)))


# Revised questions that the retriever rewards. The paper's annotator writes the revised question. Ours may be anything
# a search engine takes, and counts only if the retriever finds with it what it missed before. Of several the one in
# the form that finds most is taken, so that what is to be learnt looks alike.


def find_failures(examples: Sequence[Example]) -> dict[str, Example]:
    """The examples whose own search found no passage that states the answer, by the text they were asked in."""
    searched = [one for one in examples if one.kind in ("retrieved", "broken wording")]
    return {one.question.question: one for one in searched if not supporting(one.question, one.passages)}


def find_revisions(failed: Mapping[str, Example], author: TaskModel, search: Search) -> dict[str, Candidates]:
    """For each question that missed, by the text it was asked in, the candidates that find what states the answer."""
    asked = list(failed)
    texts = [author.write_alone(task, asked) for task in ("guess", "terms", "options")]
    tried = []  # the text it was asked in, a form, the candidate
    for text, *said in zip(asked, *texts):
        tried += [(text, form, candidate) for form, candidate in propose(failed[text], *said).items()]
    kept: dict[str, Candidates] = {}
    for (text, form, candidate), passages in zip(tried, search([candidate for *_, candidate in tried])):
        if supporting(failed[text].question, passages):
            kept.setdefault(text, {})[form] = candidate
    return kept


def propose(one: Example, guess: str, terms: str, options: str) -> Candidates:
    """Every candidate by its form; what says nothing beyond the question is none."""
    asked = one.question.question.rstrip("? ")
    answer = CITATION.sub("", one.answer).strip()
    guess, terms, options = (text.strip().split("\n")[0] for text in (guess, terms, options))
    behind = {
        "guess and answer": f"{guess} {answer}" if guess and answer else "",
        "guess": guess,
        "answer": answer,
        "guess and options": f"{guess} {options}" if guess and options else "",
        "options": options,
        "key terms": terms,
    }
    behind |= {f"title {i}": passage.title for i, passage in enumerate(one.passages[:TITLES], 1)}
    made = {CLEAN: clean_wording(one.question, one.passages)}
    made |= {form: f"{asked}? {text}" if text else "" for form, text in behind.items()}
    made |= dict(zip(BARE, (guess, terms)))
    tidied = {form: tidy(text) for form, text in made.items()}
    return {form: text for form, text in tidied.items() if text and text != tidy(asked)}


def clean_wording(question: Question, passages: Sequence[Passage]) -> str:
    """The well-put question where it is known and could be: names, years and records it adds must have been read.

    A two-hop question's first step, or a newer account or a better source that a passage points at, may not be found.
    """
    if failure_of(question.kind) in ("two-hop", "stale", "contradiction"):
        seen = set(metrics.normalise(" ".join([question.question, *(p.text for p in passages)])).split())
        names = re.findall(r"[A-Z][\w'’-]*|\d+", question.clean_question)[1:]
        if not all(metrics.normalise(name) in seen for name in names):
            return ""
    return question.clean_question


def tidy(text: str) -> str:
    """One line without what JSON has to escape, no word more than twice, of a length that a model may write."""
    plain = "".join(letter if letter.isprintable() and letter not in '"\\' else " " for letter in text)
    return " ".join(metrics.at_most_twice(plain)[:LONGEST])


def choose(candidates: Candidates, counts: Mapping[str, int]) -> str:
    """The candidate in the form that finds most; before all the well-put question, last what drops the question."""
    return candidates[min(candidates, key=lambda form: (form != CLEAN, form in BARE, -counts[form]))]


def balance(examples: Sequence[Example], size: int) -> list[Example]:
    """At most `size` examples, as many judged true as false within every set and wording.

    Of the false ones those with a revision come first, since they are few and teach most.
    """
    rng = random.Random(SEED)
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
    """Its set, and how its question is put."""
    return one.question.dataset, "broken wording" if one.kind == "broken wording" else form_of(one.question.kind)


def verify_samples(examples: Sequence[Example], with_chain: bool = True, layout: str = "paper") -> list[Sample]:
    """Make samples of the verification task; without the chain the target is the revised question alone (Table 5)."""
    made = []
    for number, one in enumerate(examples):
        prompt = prompts.build_verify(one.question.question, one.passages, one.answer, layout)
        # Without the chain an empty revised question would call the answer true, so one is begun for every false one.
        unfinished = one.lacks_revision or not with_chain and one.verdict.judgment != "true"
        unfinished = unfinished and not one.verdict.revised_question
        target = prompts.verdict_parts(one.verdict, with_chain, unfinished)
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
        made.append(Sample(f"rewrite-{number}", "answer", prompts.build_alone("rewrite", asked), (new,)))
    return made


def make_samples(config: Config, sources: Sequence[Source], chosen: Sequence[Example]) -> dict[str, list[Sample]]:
    """What each method learns, in the mixture of the settings; plain retrieval learns all answers in every one."""
    mixture, layout, learnt, verified = config.synthesis.mixture, config.model.layout, [], chosen
    answers = [sample for one in sources for sample in answer_samples(one, one.questions, config)]
    if mixture != "all":  # what the seed model has learnt, and as many verdicts as it lacks of D's answers
        for source in sources:
            learnt += answer_samples(source, halve(source.questions)[0], config)
        verified = chosen[: len(answers) - len(learnt)]
    beside = learnt if mixture == "paper" else answers
    return {
        "rag": answers,
        "cov": beside + verify_samples(verified, True, layout),
        "cov-direct": beside + verify_samples(verified, False, layout),
        "rewrite": rewrite_samples(verified),
    }


def make_d2(
    config: Config, sources: Sequence[Source], load: Callable[[str], TaskModel], annotate: Annotate = annotate
) -> tuple[list[Example], list[Example]]:
    """Make D2′, whole and balanced; `load` gives the model with the adapter of that name, bare for ""."""
    every = []
    for name, learnt in reversed(seed_halves(config).items()):
        seed_model = load(name)
        for source in sources:
            half = halve(source.questions)[1 - learnt]
            every.append((source, make_examples(source, half, seed_model.answer, config)))
    bare = load("")
    failed = [find_failures(examples) for _, examples in every]
    found = [find_revisions(one, bare, source.search) for one, (source, _) in zip(failed, every)]
    counts = Counter(form for one in found for candidates in one.values() for form in candidates)
    forms = ", ".join(f"{form} {n}" for form, n in counts.most_common())
    print(f"{sum(map(len, found))} of {sum(map(len, failed))} questions that found nothing have a revised one: {forms}")
    whole = []
    for (source, examples), one in zip(every, found):
        revisions = {text: choose(candidates, counts) for text, candidates in one.items()}
        whole += annotate(examples, revisions, source.search)
    n_questions = sum(len(source.questions) for source in sources)
    chosen = balance(whole, round(config.synthesis.verify_share * n_questions))
    if not chosen:
        right = sum(one.verdict.judgment == "true" for one in whole)
        told = f"D2' is empty: {right} of the seed models' {len(whole)} answers are right"
        raise ValueError(f"{told}, and as many must be wrong; train on more questions, or for more epochs")
    return whole, chosen
