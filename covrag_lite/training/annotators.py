"""Who writes the verdicts of D2′ (Section 2.3, Step 2): rules, or a served larger model.

The paper used GPT-4, and 93 % of a sample of its verdicts were right.
"""

from collections.abc import Sequence
from dataclasses import replace

from covrag_lite import metrics
from covrag_lite.config import Config
from covrag_lite.engine import load_engine
from covrag_lite.engine.journal import Journal
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.oracle import Annotate, Example, annotate_by_rules, judge, supporting
from covrag_lite.prompts import build_verify, parse_verdict
from covrag_lite.records import Search
from covrag_lite.training.informed import QUERY_TOKENS, Author, annotate_informed

STRICT = (
    "Be a strict examiner: judge by the criteria and the references alone, use the whole range "
    "from 0 to 1, and call an answer true only if it is right, supported by the references it "
    "cites, and free of repetition."
)


def load_annotator(config: Config) -> Annotate:
    """Return the annotator of D2′: one of two that use gold answers, or a served model."""
    annotator = config.synthesis.annotator
    if annotator == "oracle":
        return annotate_by_rules
    if annotator == "informed":
        author = load_author(config)
        return lambda examples, revisions, search: annotate_informed(
            examples, revisions, search, author
        )
    if not annotator.startswith("endpoint:"):
        allowed = "use 'oracle', 'informed' or 'endpoint:<model>'"
        raise ValueError(f"annotator {annotator!r} is not known; {allowed}")
    settings = replace(config.model, model=annotator, verdicts="forced")
    teacher = TaskModel(settings, load_engine(settings), Journal(config.journal()))
    return lambda examples, revisions, search: annotate_with_teacher(examples, teacher, search)


def load_author(config: Config) -> Author:
    """Return the untuned model, which writes informed revised questions."""
    settings = replace(config.model, adapters="none")
    model = TaskModel(settings, load_engine(settings), Journal(config.journal()))
    return lambda texts: model.write("informed", texts, QUERY_TOKENS)


def annotate_with_teacher(
    examples: Sequence[Example], teacher: TaskModel, search: Search
) -> list[Example]:
    """Add the teacher's verdicts, drop those that do not parse, and print its agreement with gold.

    The judgment "unclear" agrees with neither "true" nor "false".
    """
    prompts = []
    for example in examples:
        task = build_verify(example.question.question, example.passages, example.answer)
        prompts.append(f"{task}\n{STRICT}")
    texts = teacher.write("verify", prompts, teacher.settings.max_revised_tokens)

    annotated = []
    for example, text in zip(examples, texts):
        verdict = parse_verdict(text)
        if verdict.parsed:
            annotated.append(replace(example, verdict=verdict))
    print(f"the teacher annotated {len(annotated)} of {len(examples)}", end=" ")
    print("examples; the others did not parse")
    print(describe_agreement(annotated))
    return try_revisions(annotated, search)


def describe_agreement(annotated: Sequence[Example]) -> str:
    """Describe how often the teacher's judgment is the oracle's, which knows the gold answers."""
    n = len(annotated)
    n_same = 0
    for example in annotated:
        n_same += example.annotation.judgment == judge(example, "").judgment
    low, high = metrics.wilson(n_same, n)
    interval = f"95 % interval {100 * low:.1f} to {100 * high:.1f}; the paper: 93 %"
    share = f"{100 * n_same / max(1, n):.1f} % ({interval})"
    agrees = "the teacher's judgment agrees with the gold answer"
    return f"{agrees} for {n_same} of {n} examples: {share}"


def try_revisions(examples: Sequence[Example], search: Search) -> list[Example]:
    """Remove the revised questions that do not help.

    One helps if the answer is not true, its references do not support the gold answer, and the
    search with the revised question finds a reference that does.
    """
    tried = [example.revised_question if may_revise(example) else "" for example in examples]
    queries = [revised for revised in tried if revised]
    results = dict(zip(queries, search(queries)))
    kept = []
    for example, revised in zip(examples, tried):
        if revised and supporting(example.question, results[revised]):
            kept.append(example)
        else:
            verdict = replace(example.annotation, revised_question="")
            kept.append(replace(example, verdict=verdict))
    return kept


def may_revise(example: Example) -> bool:
    """Return whether a revised question can help: wrong answer, right one not in the passages."""
    return not example.is_true and not supporting(example.question, example.passages)
