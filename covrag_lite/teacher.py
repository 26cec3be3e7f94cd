"""The paper's own annotator (Section 2.3, Step 2): a larger model behind an endpoint writes the verdicts of D2′.

The paper asked GPT-4 and found 93 % of a sample right. Here every usable verdict is compared with the oracle of
`synthesis`, which knows the gold answers. What the teacher cannot label is left out and counted, never labelled by us.
"""

from collections.abc import Sequence
from dataclasses import replace

from covrag_lite import metrics
from covrag_lite.config import Config
from covrag_lite.engine.endpoint import PREFIX, Endpoint
from covrag_lite.prompts import build_verify, parse_verdict
from covrag_lite.records import Search
from covrag_lite.runs.journal import Journal
from covrag_lite.synthesis import Annotate, Example, judge, supporting
from covrag_lite.task_model import TaskModel

STRICT = (
    "Be a strict examiner: judge by the criteria and the references alone, use the whole range from 0 to 1, "
    "and call an answer true only if it is right, supported by the references it cites, and free of repetition."
)


def load_annotator(config: Config, journal: Journal) -> Annotate:
    """The function that lets a served model write the verdicts of D2′."""
    annotator = config.synthesis.annotator
    if not annotator.startswith(PREFIX):
        raise ValueError(f"annotator {annotator!r} is not known; use 'oracle' or '{PREFIX}<model>'")
    settings = replace(config.model, model=annotator, verdicts="forced")
    teacher = TaskModel(settings, Endpoint(settings), journal)
    return lambda examples, revisions, search: annotate_with_teacher(examples, teacher, search)


def annotate_with_teacher(examples: Sequence[Example], teacher: TaskModel, search: Search) -> list[Example]:
    """The examples with the teacher's verdicts, without those that cannot be read; what it agrees on is printed."""
    asked = [f"{build_verify(one.question.question, one.passages, one.answer)}\n{STRICT}" for one in examples]
    verdicts = [parse_verdict(text) for text in teacher.write("verify", asked, teacher.settings.max_revised_tokens)]
    labelled = [replace(one, verdict=verdict) for one, verdict in zip(examples, verdicts) if verdict.parsed]
    print(f"the teacher labelled {len(labelled)} of {len(examples)} examples; the others could not be read")
    print(agreement(labelled))
    return try_revisions(labelled, search)


def try_revisions(examples: Sequence[Example], search: Search) -> list[Example]:
    """Take away the revised questions that do not help.

    A revised question helps if it finds a supporting reference where none was found; a true answer needs none.
    """
    needed = [one.verdict.judgment != "true" and not supporting(one.question, one.passages) for one in examples]
    tried = [one.verdict.revised_question if need else "" for one, need in zip(examples, needed)]
    found = dict(zip(filter(None, tried), search(list(filter(None, tried)))))
    made = []
    for one, revised in zip(examples, tried):
        helps = revised and supporting(one.question, found[revised])
        made.append(one if helps else replace(one, verdict=replace(one.verdict, revised_question="")))
    return made


def agreement(labelled: Sequence[Example]) -> str:
    """A sentence on how many judgments are the oracle's; "unclear" agrees with neither "true" nor "false"."""
    n, same = len(labelled), sum(one.verdict.judgment == judge(one, "").judgment for one in labelled)
    low, high = (100 * end for end in metrics.wilson(same, n))
    share = f"{100 * same / max(1, n):.1f} % (95 % interval {low:.1f} to {high:.1f}; the paper: 93 %)"
    return f"the teacher's judgment is the gold one in {same} of n = {n} examples: {share}"
