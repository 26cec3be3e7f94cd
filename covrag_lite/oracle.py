"""The oracle that annotates D2′ (Section 2.3, Step 2): verdicts by rules, and revised questions.

The paper asks GPT-4. Our oracle knows the gold answers and gold passages, so its verdicts follow
from rules. A revised question must be found: several candidates are tried, and one is used only if
the retriever finds a supporting passage with it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from covrag_lite import metrics, prompts
from covrag_lite.method import Write
from covrag_lite.records import CITATION, Passage, Question, Search, Verdict


@dataclass(frozen=True)
class Example:
    """A question, its passages and an answer, with the annotator's verdict once there is one."""

    question: Question
    passages: tuple[Passage, ...]
    answer: str
    # Origin of the passages and the answer: "retrieved", "deeper passages", "broken wording",
    # "crossed answer", "repetition" or "wrong citation" (`synthesis.make_examples`).
    kind: str
    verdict: Verdict | None = None

    @property
    def is_true(self) -> bool:
        """Whether the annotator judged the answer to be true."""
        return self.annotation.judgment == "true"

    @property
    def revised_question(self) -> str:
        """The annotator's revised question; "" if there is none."""
        return self.annotation.revised_question

    @property
    def annotation(self) -> Verdict:
        """The verdict; an error if the example is not annotated yet."""
        if self.verdict is None:
            raise ValueError(f"the example of question {self.question.id!r} is not annotated")
        return self.verdict

    @property
    def lacks_revision(self) -> bool:
        """Whether a revised question is needed but not known.

        It is needed if the answer is wrong and no passage supports the right one.
        """
        if self.is_true or self.revised_question:
            return False
        return not supporting(self.question, self.passages)


# An annotator, which writes the verdicts of D2′. It takes examples, their revised questions by
# question text, and a search with which it can test revised questions of its own. It returns the
# examples with their verdicts.
Annotate = Callable[[Sequence[Example], Mapping[str, str], Search], list[Example]]


# Verdicts.


def annotate_by_rules(
    examples: Sequence[Example], revisions: Mapping[str, str], search: Search | None = None
) -> list[Example]:
    """Add the oracle's verdict to every example; `revisions` maps a question to its revised one.

    `search` is not used: the revised questions have been tested already.
    """
    annotated = []
    for example in examples:
        revised_question = revisions.get(example.question.question, "")
        annotated.append(replace(example, verdict=judge(example, revised_question)))
    return annotated


# The highest and the lowest score that the oracle gives. The functions below give scores between
# them too, for cases in between, such as a wrong answer that a passage does contain.
HIGH = 0.95
LOW = 0.05


def judge(example: Example, revised_question: str) -> Verdict:
    """Return the oracle's verdict by the criteria of the paper's Table 1.

    The judgment is about the answer only and never "unclear". Wrong citations lower only the
    citation score; in the paper's Table 8 they also make the answer false. A revised question is
    given if the answer is wrong and no passage supports the right one.
    """
    question = example.question
    supporting_numbers = supporting(question, example.passages)
    is_supported = bool(supporting_numbers)
    right = is_right(example.answer, question)
    repetitive = is_repetitive(example.answer)
    # A right answer with a supporting passage is grounded even if it is not in there verbatim.
    grounded = is_grounded(example.answer, example.passages) or (right and is_supported)

    scores = (
        HIGH if is_supported else LOW,  # reference_correctness
        HIGH if right else LOW,  # correctness
        citation_accuracy(example.answer, supporting_numbers),
        truthfulness(right, grounded, repetitive),
        bias(right, grounded),
        conciseness(example.answer, repetitive),
    )
    is_true = right and not repetitive
    judgment = "true" if is_true else "false"
    needs_revision = not is_true and not is_supported
    if not needs_revision:
        revised_question = ""
    # Written and parsed again, so that its scores are rounded as in the training data.
    text = prompts.render_verdict(scores, judgment, revised_question)
    return prompts.parse_verdict(text)


def citation_accuracy(answer: str, supporting_numbers: Sequence[int]) -> float:
    """Score the share of citations whose reference supports the gold answer.

    An answer without citations has the lowest score.
    """
    cited = [int(number) for number in CITATION.findall(answer)]
    if not cited:
        return LOW
    share = sum(number in supporting_numbers for number in cited) / len(cited)
    return round(LOW + 0.9 * share, 2)  # from LOW to HIGH


def truthfulness(right: bool, grounded: bool, repetitive: bool) -> float:
    """Score whether the answer makes sense: 0.95 if right, 0.45 if wrong but grounded, else 0.15.

    A repetitive answer has 0.35, right or wrong.
    """
    if repetitive:
        return 0.35
    if right:
        return HIGH
    return 0.45 if grounded else 0.15


def bias(right: bool, grounded: bool) -> float:
    """Score how far the answer departs from the references, where 0 is not at all.

    An answer that is not grounded has 0.95, a grounded one 0.05 if right and 0.55 if wrong.
    """
    if not grounded:
        return HIGH
    return LOW if right else 0.55


def conciseness(answer: str, repetitive: bool) -> float:
    """Score whether the answer comes to the point."""
    if repetitive:
        return LOW
    return HIGH if len(answer.split()) <= 30 else 0.5


def supporting(question: Question, passages: Sequence[Passage]) -> list[int]:
    """Return the numbers of the references that state the right answer, counted from 1.

    These are the gold passages if they are known, else the passages that contain a gold answer.
    """
    if question.gold_passages:
        return [n for n, passage in enumerate(passages, 1) if passage.id in question.gold_passages]
    return [
        n
        for n, passage in enumerate(passages, 1)
        if metrics.holds_answer([passage], question.answers, "whole")
    ]


def is_right(answer: str, question: Question) -> bool:
    """Return whether an answer contains a gold answer in whole words.

    If the first gold answer has more than 12 words, it need not be contained: the F1 score of the
    words that it shares with the answer must be at least 0.5.
    """
    gold = metrics.normalise(question.answers[0]).split()
    if len(gold) <= 12:
        return bool(metrics.score(answer, question.answers, "whole"))
    gold_words = set(gold)
    answer_words = set(metrics.normalise(answer).split())
    n_shared = len(gold_words & answer_words)
    f1 = 2 * n_shared / (len(gold_words) + len(answer_words))
    return f1 >= 0.5


def is_grounded(answer: str, passages: Sequence[Passage]) -> bool:
    """Return whether a passage contains the whole answer, verbatim after normalising."""
    normalised = metrics.normalise(answer)
    if not normalised:
        return False
    return any(normalised in metrics.normalise(passage.text) for passage in passages)


# One or more whole words, three times in a row.
THREE_TIMES = re.compile(r"(?<!\S)(\S+(?: \S+)*?) \1 \1(?!\S)")


def is_repetitive(answer: str) -> bool:
    """Return whether a word, or several words, occur three times in a row."""
    return bool(THREE_TIMES.search(metrics.normalise(answer)))


# Revised questions. For each question whose search failed, we build candidates in several forms,
# such as the question followed by a guess. A candidate works if its search finds a supporting
# passage. If several work, we take the one whose form works for most questions, so that the revised
# questions of the training data are similar.

MAX_WORDS = 40  # of a revised question
N_TITLES = 3  # number of passages whose titles are tried in a revised question
CLEAN_FORM = "the question well put"  # is taken whenever it works
FORMS_WITHOUT_QUESTION = ("a guess alone", "key terms alone")  # are taken if no other form works

Candidates = dict[str, str]  # a form -> the revised question in that form


def find_failures(examples: Sequence[Example]) -> dict[str, Example]:
    """Return, by question text, the examples whose search found no supporting passage.

    Examples of other kinds are skipped: their passages are not what a search returned first, or
    they repeat the passages of a "retrieved" example.
    """
    failures = {}
    for example in examples:
        was_searched = example.kind in ("retrieved", "broken wording")
        if was_searched and not supporting(example.question, example.passages):
            failures[example.question.question] = example
    return failures


def find_revisions(
    failures: Mapping[str, Example], write: Write, search: Search
) -> dict[str, Candidates]:
    """Return, by question text, the candidates whose search finds a supporting passage."""
    questions = list(failures)
    written_guesses = write("guess", questions)
    written_terms = write("terms", questions)
    written_options = write("options", questions)

    attempts = []  # (question text, form, candidate)
    written = zip(questions, written_guesses, written_terms, written_options)
    for question, guess, terms, options in written:
        candidates = propose(failures[question], guess, terms, options)
        for form, candidate in candidates.items():
            attempts.append((question, form, candidate))

    working: dict[str, Candidates] = {}
    results = search([candidate for _, _, candidate in attempts])
    for (question, form, candidate), passages in zip(attempts, results):
        if supporting(failures[question].question, passages):
            working.setdefault(question, {})[form] = candidate
    return working


def propose(example: Example, guess: str, terms: str, options: str) -> Candidates:
    """Return the candidates for a revised question, by form.

    `guess`, `terms` and `options` are texts of the base model. Candidates that are empty or equal
    to the question are left out.
    """
    question = example.question.question.rstrip("? ")
    answer = CITATION.sub("", example.answer).strip()
    guess = first_line(guess)
    terms = first_line(terms)
    options = first_line(options)

    # What each form appends to the question.
    additions = {
        "guess and answer": f"{guess} {answer}" if guess and answer else "",
        "guess": guess,
        "answer": answer,
        "guess and options": f"{guess} {options}" if guess and options else "",
        "options": options,
        "key terms": terms,
    }
    for n, passage in enumerate(example.passages[:N_TITLES], 1):
        additions[f"title {n}"] = passage.title

    candidates = {CLEAN_FORM: clean_wording(example.question, example.passages)}
    for form, addition in additions.items():
        candidates[form] = f"{question}? {addition}" if addition else ""
    guess_alone, terms_alone = FORMS_WITHOUT_QUESTION
    candidates[guess_alone] = guess
    candidates[terms_alone] = terms

    tidied = {form: tidy(text) for form, text in candidates.items()}
    return {form: text for form, text in tidied.items() if text and text != tidy(question)}


def first_line(text: str) -> str:
    """Return the first line of a text that a model wrote."""
    return text.strip().split("\n")[0]


def clean_wording(question: Question, passages: Sequence[Passage]) -> str:
    """Return the question in clear wording; "" if that is unknown or no model could write it.

    For two-hop, stale and contradicted questions, the clear wording may contain a name or number
    that the model can know only from a passage. It is then used only if all its names and numbers
    are in the question or in the passages.
    """
    if question.failure in ("two-hop", "stale", "contradiction"):
        texts = [question.question, *(passage.text for passage in passages)]
        words_seen = set(metrics.normalise(" ".join(texts)).split())
        names_and_numbers = re.findall(r"[A-Z][\w'’-]*|\d+", question.clean_question)
        needed = names_and_numbers[1:]  # the first is the capitalised word that begins the question
        if not all(metrics.normalise(name) in words_seen for name in needed):
            return ""
    return question.clean_question


def tidy(text: str) -> str:
    """Return one line without quotes and backslashes, no word more than twice, at most 40 words."""
    letters = [letter if letter.isprintable() and letter not in '"\\' else " " for letter in text]
    words = metrics.at_most_twice("".join(letters))
    return " ".join(words[:MAX_WORDS])


def choose_revision(candidates: Candidates, counts: Mapping[str, int]) -> str:
    """Choose the candidate whose form works for most questions; `counts` says for how many.

    Clear wording comes first; forms without the question itself come last.
    """

    def rank(form: str) -> tuple[bool, bool, int]:
        """Return a key by which the preferred form is the smallest."""
        return form != CLEAN_FORM, form in FORMS_WITHOUT_QUESTION, -counts[form]

    return candidates[min(candidates, key=rank)]
