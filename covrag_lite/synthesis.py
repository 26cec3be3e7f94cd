"""Synthesis of the training data (Section 2.3): answer samples for L_RAG, and D2′ for L_CoV.

D2′ contains verdicts on answers. The paper splits D into halves, lets a seed model trained on D1
answer the questions of D2, and adds synthetic errors. We rely mainly on natural errors:

- Two seed models, each trained on one half, answer the other half. They read the retrieved passages
  and, for some questions, deeper passages that do not contain the answer.
- Each wrong answer from deeper passages is also paired with the retrieved passages, which do
  contain the right answer. The verifier must therefore read the answer, not only the passages.
- A minority has synthetic errors (repetition, wrong citations) or a question with broken wording.
- Within every set and wording, half of the answers are right, so neither reveals the verdict.

`make_d2`, at the end of the file, calls these steps in order.
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

SEED = 1  # random seed for the halves, the corruption and the balancing
UNSUPPORTED = 0.25  # share of answer samples without a supporting passage (no citation)
BROKEN = 0.2  # share of D's questions that are also asked with broken wording
CORRUPTED = 0.1  # share of right answers that are also corrupted: repetition, wrong citations

# One or more whole words, three times in a row.
THRICE = re.compile(r"(?<!\S)(\S+(?: \S+)*?) \1 \1(?!\S)")
LONGEST = 40  # maximum length of a revised question in words
MIXTURES = ("all", "paper", "paper+answers")
TITLES = 3  # number of passages whose titles are tried in a revised question
CLEAN = "the question well put"  # the preferred form of a revised question
BARE = ("a guess alone", "key terms alone")  # forms without the question itself; the last choice

Candidates = dict[str, str]  # a form -> the revised question in that form


@dataclass(frozen=True)
class Example:
    """A question, its passages and an answer, with the annotator's verdict once there is one."""

    question: Question
    passages: tuple[Passage, ...]
    answer: str
    kind: str  # origin of the answer: "retrieved", "deeper passages", "crossed answer" …
    verdict: Verdict | None = None

    @property
    def lacks_revision(self) -> bool:
        """Whether a wrong answer has neither a supporting passage nor a known revised question."""
        wrong = self.verdict.judgment != "true" and not self.verdict.revised_question
        return wrong and not supporting(self.question, self.passages)


# An annotator writes the verdicts of D2′: examples, revised questions by the question's text, and a
# search to try other ones -> examples with verdicts.
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
    """Return the numbers of the references that state the answer.

    These are the gold passages if they are known, else the passages that contain a gold answer.
    """
    if question.gold_passages:
        return [i for i, p in enumerate(passages, 1) if p.id in question.gold_passages]
    return [i for i, p in enumerate(passages, 1) if metrics.holds_answer([p], question.answers, "whole")]


def answer_samples(source: Source, questions: Sequence[Question], config: Config) -> list[Sample]:
    """Make samples of the answering task (WebGLM's recipe); a share has no supporting passage."""
    rng, supported, others = random.Random(SEED), [], []
    gold = {identity for question in questions for identity in question.gold_passages}
    # A corpus may have millions of passages; keep only the gold ones.
    by_id = {p.id: p for p in source.passages if p.id in gold} if gold else {}
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
    """Return the retrieved passages; if none is gold, gold passages replace some of them.

    The sample then teaches the model to read the answer, not to guess it.
    """
    passages = list(found)
    missing = [by_id[identity] for identity in question.gold_passages if identity in by_id]
    if missing and not supporting(question, passages):
        for place, p in zip(rng.sample(range(len(passages)), min(len(missing), len(passages))), missing):
            passages[place] = p
    return passages


def gold_answer(question: Question, passages: Sequence[Passage]) -> str:
    """Return the gold answer with citations; an answer that already has citations is kept."""
    if CITATION.search(question.answers[0]):
        return question.answers[0]
    return question.answers[0] + "".join(f"[{i}]" for i in supporting(question, passages))


def make_examples(source: Source, questions: Sequence[Question], answer: Answer, config: Config) -> list[Example]:
    """Make the examples of D2′ before annotation: seed model answers and some corrupted answers."""
    rng = random.Random(SEED)
    found = source.deep([q.question for q in questions])
    k = config.retrieval.k
    asked = [(q, tuple(passages[:k]), "retrieved") for q, passages in zip(questions, found)]
    for question, passages in zip(questions, found):
        held = set(supporting(question, passages))
        without = [p for i, p in enumerate(passages, 1) if i not in held]
        if held and min(held) <= k <= len(without):
            asked.append((question, tuple(without[:k]), "deeper passages"))
    # Two-hop questions, and those already broken, would become impossible to understand.
    whole = [q for q in questions if form_of(q.kind) == "well put"]
    broken = [break_question(q, rng) for q in rng.sample(whole, round(BROKEN * len(whole)))]
    for question, passages in zip(broken, source.search([q.question for q in broken])):
        asked.append((question, tuple(passages), "broken wording"))
    answers = answer([q.question for q, _, _ in asked], [passages for _, passages, _ in asked])
    made = [Example(*one[:2], text, one[2]) for one, text in zip(asked, answers)]
    return made + cross(made, dict(zip(questions, found)), k) + corrupt(made[: len(questions)], rng)


def cross(examples: Sequence[Example], found: Mapping[Question, Sequence[Passage]], k: int) -> list[Example]:
    """Pair the wrong answers from deeper passages with the retrieved passages of the question."""
    wrong = [one for one in examples if one.kind == "deeper passages" and not is_right(one.answer, one.question)]
    return [replace(one, passages=tuple(found[one.question][:k]), kind="crossed answer") for one in wrong]


def corrupt(examples: Sequence[Example], rng: random.Random) -> list[Example]:
    """Copy some right answers and corrupt them by repetition or by wrong citations."""
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
    """Return the question as typed in a hurry: misspelt long words, or the end missing."""
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
    """Corrupt a right answer by repetition (Table 9 of the paper)."""
    body = CITATION.sub("", answer).strip()
    marks = "".join(f"[{n}]" for n in CITATION.findall(answer))
    last = body.split()[-1]
    stuttering = " ".join([body, *[last] * rng.randint(2, 4)])
    listing = ", ".join([body] * rng.randint(3, 4))
    return rng.choice([stuttering, listing]) + marks


def move_citations(answer: str, right: Sequence[int], n: int, rng: random.Random) -> str:
    """Corrupt a right answer by citing wrong references (Table 8 of the paper)."""
    wrong = [i for i in range(1, n + 1) if i not in right]
    chosen = rng.sample(wrong, min(len(wrong), rng.randint(1, 2)))
    return CITATION.sub("", answer).strip() + "".join(f"[{i}]" for i in sorted(chosen))


# The oracle annotator: rules that use gold answers and gold passages. The paper uses GPT-4.


def annotate(examples: Sequence[Example], revisions: Mapping[str, str], search: Search | None = None) -> list[Example]:
    """Add the oracle's verdict to every example; `revisions` maps a question to its revised one."""
    return [replace(one, verdict=judge(one, revisions.get(one.question.question, ""))) for one in examples]


def judge(one: Example, revised: str) -> Verdict:
    """Return the oracle's verdict by the criteria of the paper's Table 1.

    The judgment is about the answer only; citations have a score of their own. A revised question
    is given if the answer is wrong and no passage supports the right one.
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
    """Return whether an answer contains a gold answer in whole words.

    For a gold answer of more than 12 words, the F1 overlap of their words must be at least 0.5.
    """
    gold = metrics.normalise(question.answers[0]).split()
    if len(gold) <= 12:
        return bool(metrics.score(answer, question.answers, "whole"))
    said = metrics.normalise(answer).split()
    shared = len(set(gold) & set(said))
    return bool(shared) and 2 * shared / (len(set(gold)) + len(set(said))) >= 0.5


def is_grounded(answer: str, passages: Sequence[Passage]) -> bool:
    """Return whether a passage contains the answer's words in the same order."""
    said = metrics.normalise(answer)
    return bool(said) and any(said in metrics.normalise(passage.text) for passage in passages)


def is_repetitive(answer: str) -> bool:
    """Return whether a word, or several words, occur three times in a row."""
    return bool(THRICE.search(metrics.normalise(answer)))


# Revised questions. In the paper, the annotator writes them. Ours are candidates of several forms;
# one is used only if the retriever finds a supporting passage with it. If several work, we take the
# form that works most often, so that the revised questions of the training data are similar.


def find_failures(examples: Sequence[Example]) -> dict[str, Example]:
    """Return, by question text, the examples whose search found no supporting passage."""
    searched = [one for one in examples if one.kind in ("retrieved", "broken wording")]
    return {one.question.question: one for one in searched if not supporting(one.question, one.passages)}


def find_revisions(failed: Mapping[str, Example], author: TaskModel, search: Search) -> dict[str, Candidates]:
    """Return, by question text, the candidates whose search finds a supporting passage."""
    asked = list(failed)
    texts = [author.write_alone(task, asked) for task in ("guess", "terms", "options")]
    tried = []  # (question text, form, candidate)
    for text, *said in zip(asked, *texts):
        tried += [(text, form, candidate) for form, candidate in propose(failed[text], *said).items()]
    kept: dict[str, Candidates] = {}
    for (text, form, candidate), passages in zip(tried, search([candidate for *_, candidate in tried])):
        if supporting(failed[text].question, passages):
            kept.setdefault(text, {})[form] = candidate
    return kept


def propose(one: Example, guess: str, terms: str, options: str) -> Candidates:
    """Return the candidates for a revised question by their form; drop those that add nothing."""
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
    """Return the question in clear wording, if that is known and could be written by the model.

    For two-hop, stale and contradicted questions, it may contain a name or number that the model
    could not know. It is then used only if the question or a passage contains them all.
    """
    if failure_of(question.kind) in ("two-hop", "stale", "contradiction"):
        seen = set(metrics.normalise(" ".join([question.question, *(p.text for p in passages)])).split())
        names = re.findall(r"[A-Z][\w'’-]*|\d+", question.clean_question)[1:]
        if not all(metrics.normalise(name) in seen for name in names):
            return ""
    return question.clean_question


def tidy(text: str) -> str:
    """Return one line without quotes and backslashes, no word more than twice, at most 40 words."""
    plain = "".join(letter if letter.isprintable() and letter not in '"\\' else " " for letter in text)
    return " ".join(metrics.at_most_twice(plain)[:LONGEST])


def choose(candidates: Candidates, counts: Mapping[str, int]) -> str:
    """Choose the candidate whose form works most often.

    Clear wording comes first; forms without the question itself come last.
    """
    return candidates[min(candidates, key=lambda form: (form != CLEAN, form in BARE, -counts[form]))]


def balance(examples: Sequence[Example], size: int) -> list[Example]:
    """Choose at most `size` examples; in every set and wording, half of them are judged true.

    Of the false ones, those with a revised question are preferred: they are rare and most useful.
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
    """Return the example's question set and how the question is worded."""
    return one.question.dataset, "broken wording" if one.kind == "broken wording" else form_of(one.question.kind)


def verify_samples(examples: Sequence[Example], with_chain: bool = True, layout: str = "paper") -> list[Sample]:
    """Make samples of the verification task; w/o chain, only the revised question (Table 5)."""
    made = []
    for number, one in enumerate(examples):
        prompt = prompts.build_verify(one.question.question, one.passages, one.answer, layout)
        # Without the chain, an empty revised question means "true"; a false answer gets an
        # unfinished one instead.
        unfinished = one.lacks_revision or not with_chain and one.verdict.judgment != "true"
        unfinished = unfinished and not one.verdict.revised_question
        target = prompts.verdict_parts(one.verdict, with_chain, unfinished)
        made.append(Sample(f"{one.question.id}-{number}", "verify", prompt, target, unfinished))
    return made


def rewrite_samples(examples: Sequence[Example]) -> list[Sample]:
    """Make samples for Start-Revise's rewriter: the revised question, or the question unchanged."""
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
    """Make D2′; returns all examples, and the balanced ones.

    `load` returns the model with the adapter of the given name; "" is the base model.
    """
    every = []
    for name, learnt in reversed(seed_halves(config).items()):  # each answers the other half
        seed_model = load(name)
        for source in sources:
            half = halve(source.questions)[1 - learnt]
            every.append((source, make_examples(source, half, seed_model.answer, config)))
    bare = load("")
    failed = [find_failures(examples) for _, examples in every]
    found = [find_revisions(one, bare, source.search) for one, (source, _) in zip(failed, every)]
    counts = Counter(form for one in found for candidates in one.values() for form in candidates)
    forms = ", ".join(f"{form} {n}" for form, n in counts.most_common())
    n_failed, n_revised = sum(map(len, failed)), sum(map(len, found))
    print(f"{n_failed} questions found no supporting passage")
    print(f"{n_revised} of them have a revised question; its possible forms: {forms}")
    whole = []
    for (source, examples), one in zip(every, found):
        revisions = {text: choose(candidates, counts) for text, candidates in one.items()}
        whole += annotate(examples, revisions, source.search)
    n_questions = sum(len(source.questions) for source in sources)
    chosen = balance(whole, round(config.synthesis.verify_share * n_questions))
    if not chosen:
        right = sum(one.verdict.judgment == "true" for one in whole)
        raise ValueError(
            f"D2' is empty: {right} of the seed models' {len(whole)} answers are right, but both "
            "right and wrong answers are needed; raise n_train_questions or epochs"
        )
    return whole, chosen
