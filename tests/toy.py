"""A toy with known answers: seven questions, six passages and a scripted model.

Prompts are written out here and not built with `covrag_lite.prompts`. The model knows no other
prompt, so a prompt with a missing word or passage gets no answer.
"""

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

from conftest import ScriptedModel, write_jsonl

from covrag_lite.config import Config
from covrag_lite.engine.interface import Completion
from covrag_lite.engine.journal import Journal
from covrag_lite.prompts import DIRECT
from covrag_lite.records import Passage, Question
from covrag_lite.systems.evaluate import Resources

SYSTEMS = (
    "closed-book",
    "RAG",
    "RAG trained",
    "CoV-RAG w/o chain",
    "CoV-RAG-S",
    "Start-Revise trained",
    "CoV-RAG thresholds",
    "CoV-RAG",
    "CoV-RAG, likelier answer",
)
PASSAGES = {
    "a": Passage("a", "Harbour Lamp", "The Harbour Lamp is a novel of 1829 by Ada Voss."),
    "b": Passage("b", "Ada Voss", "Ada Voss was born in Stell."),
    "c": Passage("c", "Stell", "Stell is a town of 4,200 people."),
    "d": Passage("d", "Bridge", "The bridge of Stell is 71 metres long."),
    "e": Passage("e", "Fair", "The fair is held on St John's Eve."),
    "f": Passage("f", "Keeper", "The lamp is kept by Mira Toll."),
}
# Revised questions.
BORN = "Where was Ada Voss born?"
DAY = "What day is the fair on?"
KEEPER = "Who is the keeper of the lamp?"
QUESTIONS = [
    Question("q1", "one", "who wrote the harbour lamp", ("Ada Voss", "A. Voss"), ("a",)),
    Question("q2", "one", "wher was ada vos born", ("Stell",), ("b",), BORN, "birthplace+misspelt"),
    Question("q3", "one", "how long is the bridge?", ("seventy-one metres", "71 metres"), ("d",)),
    Question("q4", "one", "when is the fair", ("St John's Eve",), ("e",)),
    Question("q5", "two", "how many lamps", ("2",)),
    Question("q6", "two", "what is it?", ("---",)),  # normalises to nothing
    Question("q7", "two", "who keeps the lamp", ("Mira Toll", "M. Toll"), ("f",)),
]
TEXTS = {question.id: question.question for question in QUESTIONS}
# What the search finds: the ids of two passages per query.
FOUND = dict(zip(TEXTS.values(), ("ac", "cd", "de", "ec", "ab", "cd", "ce"))) | {
    BORN: "ba",
    DAY: "cd",
    KEEPER: "fa",
}

# What each adapter answers, by question and passages, with the likelihood of the answer.
COV = {
    ("q1", "ac"): ("Ada Voss[1]", -0.1),
    ("q2", "cd"): ("Mere[1]", -0.9),
    ("q2", "ba"): ("Stell[1]", -0.4),
    ("q3", "de"): ("It is 71 metres long.[1]", -0.2),
    ("q4", "ec"): ("St John’s Eve[1]", -0.3),
    ("q4", "cd"): ("May[2]", -0.7),
    ("q5", "ab"): ("1829[1]", -0.5),
    ("q6", "cd"): ("a town", -0.6),
    ("q7", "ce"): ("Ada Voss[1]", -0.8),
    ("q7", "fa"): ("MIRA TOLL[1]", -0.35),
}
OTHERS = {
    "": {"q3": "71 metres[1]"},
    "rag": {"q1": "Ada Voss[1]", "q3": "71 metres[1]"},
    "cov-direct": {"q1": "A. Voss[1]", ("q2", "ba"): "Stell[1]"},
}
# The verdicts of `cov` on its answers: six scores, judgment, revised question; then P(true),
# P(empty) and the expected correctness and reference score.
HIGH = (0.95, 0.95, 0.95, 0.95, 0.05, 0.95)
LOW = (0.05, 0.05, 0.05, 0.45, 0.95, 0.95)
MIXED = (0.95, 0.05, 0.95, 0.45, 0.55, 0.95)
TRUTHFUL = (0.05, 0.05, 0.05, 0.95, 0.95, 0.95)  # truthfulness above 0.92
UNBIASED = (0.05, 0.05, 0.05, 0.45, 0.55, 0.95)  # bias not above 0.7
VERDICTS = {
    ("q1", "ac"): (HIGH, "true", "", 0.9, 0.97, 0.95, 0.9),
    ("q2", "cd"): (LOW, "false", BORN, 0.2, 0.1, 0.3, 0.2),
    ("q3", "de"): (MIXED, "unclear", "", 0.4, 0.8, 0.6, 0.7),
    ("q4", "ec"): (TRUTHFUL, "false", DAY, 0.3, 0.3, 0.2, 0.4),
    ("q5", "ab"): (HIGH, "true", "", 0.6, 0.9, 0.7, 0.8),
    ("q6", "cd"): (LOW, "false", "", 0.1, 0.6, 0.1, 0.1),
    ("q7", "ce"): (UNBIASED, "false", KEEPER, 0.15, 0.2, 0.25, 0.3),
    # For second answers, if there is a third round.
    ("q2", "ba"): (HIGH, "true", "", 0.95, 0.9, 0.9, 0.9),
    ("q4", "cd"): (HIGH, "true", "", 0.7, 0.8, 0.8, 0.6),
    ("q7", "fa"): (HIGH, "true", "", 0.85, 0.9, 0.9, 0.9),
}

CRITERIA = """An answer is scored from 0 to 1 by five criteria.
correctness: does it answer the question rightly?
citation_accuracy: do its reference marks point to the references that support it?
truthfulness: is it free of contradictions and of offences against logic and common sense?
bias: does it depart from what the references say? 0 is not at all, 1 is entirely.
conciseness: does it come to the point without needless words?
"""
STEPS = """You are the examiner of this answer. Do four things in order.
1. Score how well the reference fits the question.
2. Score the answer by the five criteria.
3. Judge the answer: true, false or unclear.
4. If it is not true, put the question anew so that a search finds better references: \
a full question, names spelt right, ending with a question mark. If it is true, leave this empty.
Output format example:
{ "1": { "reference_correctness": 0.90 }, "2": { "correctness": 1.00, "citation_accuracy": 0.80, \
"truthfulness": 0.70, "bias": 0.80, "conciseness": 0.90 }, "3": "true", "4": "" }"""


REWRITE = "Rewrite this as one clear question for a search engine. Give only the question.\\"


def references(ids):
    return f"Reference [1]: {PASSAGES[ids[0]].text}\\Reference [2]: {PASSAGES[ids[1]].text}"


def answer_prompt(text, ids, layout="paper"):
    if layout == "shared":
        shared = f"{CRITERIA}{STEPS}\n{references(ids)}\\Question: {text}\\"
        return f"{shared}#Question-Answering-in-Context-Task#Answer:"
    return f"#Question-Answering-in-Context-Task#{references(ids)}\\Question: {text}\\Answer:"


def verify_prompt(text, ids, answer, layout="paper"):
    if layout == "shared":
        shared = f"{CRITERIA}{STEPS}\n{references(ids)}\\Question: {text}\\"
        return f"{shared}#verification-Task#Answer: {answer}\\Verdict:"
    triple = f'{{ "question": {text}, "answer": {answer}, "reference": {references(ids)} }}'
    return f"#verification-Task#{CRITERIA}{triple}\n{STEPS}"


def write_verdict(scores, judgment, revised):
    a, b, c, d, e, f = (f"{score:.2f}" for score in scores)
    return (
        f'{{ "1": {{ "reference_correctness": {a} }}, "2": {{ "correctness": {b}, '
        f'"citation_accuracy": {c}, "truthfulness": {d}, "bias": {e}, "conciseness": {f} }}, '
        f'"3": "{judgment}", "4": "{revised}" }}'
    )


class Actor(ScriptedModel):
    """A model that knows each prompt by heart and logs which adapter was asked what."""

    def __init__(self, settings, name="", log=None, used=None):
        super().__init__(settings)
        self.name = name
        self.log = [] if log is None else log
        self.used = Counter() if used is None else used
        self.adapter = Path("/nowhere") / name if name else None
        self.fingerprint = f"scripted+{name}" if name else "scripted"
        # The base model was trained on neither layout.
        layout = settings.layout if name else "paper"
        self.parts = {}  # what a prompt is about: question, passages and, to verify, the answer
        for question_id, text in TEXTS.items():
            for ids in set(FOUND.values()):
                about = (question_id, ids)
                self.parts[answer_prompt(text, ids, layout)] = about
                for answer in self.answers_to_verify(question_id, ids):
                    self.parts[verify_prompt(text, ids, answer, layout)] = about

    def with_adapter(self, name):
        return Actor(self.settings, name, self.log, self.used)

    def answers_to_verify(self, question_id, ids):
        """Its own answer; `cov` may also verify an answer of `rag`."""
        answers = {self.say(question_id, ids)[0]}
        if self.name == "cov":
            answers.add(OTHERS["rag"].get(question_id, "Mere[2]"))
        return answers

    def say(self, question_id, ids):
        """The answer to a question, and its likelihood."""
        if self.name == "cov":
            return COV.get((question_id, ids), ("", 0.0))
        answers = OTHERS.get(self.name, {})
        answer = answers.get((question_id, ids)) or answers.get(question_id, "Mere[2]")
        return answer, -2.0

    def complete(self, prompts, max_tokens, sample=None):
        self.used.update(
            requests=len(prompts),
            prompt_tokens=100 * len(prompts),
            completion_tokens=10 * len(prompts),
        )
        return [self.complete_one(prompt) for prompt in prompts]

    def complete_one(self, prompt):
        question = prompt.split("\\Question: ")[-1]
        question = question.removesuffix("\\Rewritten:").removesuffix("\\Answer:")
        if prompt.startswith(REWRITE):
            self.log.append((self.name, "rewrite", question))
            return Completion(BORN if question == TEXTS["q2"] else "")
        if prompt == f"Answer the question in a few words.\\Question: {question}\\Answer:":
            self.log.append((self.name, "recall", question))
            return Completion("Mere")
        question_id, ids = self.parts[prompt]
        self.log.append((self.name, "answer", question_id, ids))
        text, likelihood = self.say(question_id, ids)
        return Completion(text, {"likelihood": likelihood})

    def fill(self, prompts, schema, max_tokens):
        return [self.fill_one(prompt, schema) for prompt in prompts]

    def fill_one(self, prompt, schema):
        question_id, ids = self.parts[prompt]
        self.log.append((self.name, "verify", question_id, ids))
        if schema is None:
            return Completion(self.write_freely(question_id, ids))
        if schema is DIRECT:
            revised = BORN if (question_id, ids) == ("q2", "cd") else ""
            return Completion(f'{{ "4": "{revised}" }}', {"empty": 0.25 if revised else 0.75})
        *fields, true, empty, correctness, reference = VERDICTS[question_id, ids]
        probabilities = {"true": true, "empty": empty}
        expected = {"correctness": correctness, "reference_correctness": reference}
        return Completion(write_verdict(*fields), probabilities | expected)

    def write_freely(self, question_id, ids):
        """A verdict without forced decoding: only the first question's follows the schema."""
        if question_id != "q1":
            return "It is fine."
        scores, judgment, revised, *_ = VERDICTS[question_id, ids]
        return write_verdict(scores, judgment, revised)


def search(queries):
    return [[PASSAGES[passage_id] for passage_id in FOUND[query]] for query in queries]


def stage(folder, **changes):
    """A configuration, and resources with scripted model and search and a new journal."""
    config = Config().change(k=2, runs=str(folder), **changes)
    return config, Resources(search, Actor(config.model), Journal(config.journal()))


def write_library(folder):
    """The data as files: two of the paper's sets, and the corpus. Returns the folder."""
    rows = {"nq": QUESTIONS[:4], "webq": QUESTIONS[4:], "corpus": PASSAGES.values()}
    for name, records in rows.items():
        write_jsonl(folder / f"{name}.jsonl", map(asdict, records))
    return folder


def change_library(folder, name):
    """Give the last record of one of these files another id."""
    file = folder / f"{name}.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    records[-1]["id"] = "another"
    write_jsonl(file, records)


def of_public_sets(predictions):
    """The predictions, relabelled as two of the paper's sets."""
    sets = {"one": "nq", "two": "webq"}
    return [
        replace(p, question=replace(p.question, dataset=sets[p.question.dataset]))
        for p in predictions
    ]
