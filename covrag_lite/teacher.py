"""The paper's own annotator (Section 2.3, Step 2): a larger model behind an endpoint writes the verdicts of D2′.

The paper asked GPT-4 and found 93 % of a sample right. Here every usable verdict is compared with the oracle of
`synthesis`, which knows the gold answers. What the teacher cannot label is left out and counted, never labelled by us.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config
from covrag_lite.engine.endpoint import PREFIX, VERDICT_TOKENS, Endpoint, EndpointError
from covrag_lite.prompts import SCHEMA, build_verify, parse_verdict
from covrag_lite.records import Search, Verdict
from covrag_lite.runs.journal import Journal, keys_of
from covrag_lite.synthesis import Annotate, Example, annotate, supporting
from covrag_lite.task_model import write_journaled

STRICT = (
    "Be a strict examiner: judge by the criteria and the references alone, use the whole range from 0 to 1, "
    "and call an answer true only if it is right, supported by the references it cites, and free of repetition."
)
AGAIN = "An earlier attempt at this could not be read. Write the JSON object of the format alone, with all of its keys."


def load_annotator(config: Config, journal: Journal) -> Annotate:
    """The function that lets a served model write the verdicts of D2′; its agreement with the oracle is printed."""
    annotator = config.synthesis.annotator
    if not annotator.startswith(PREFIX):
        raise ValueError(f"annotator {annotator!r} is not known; use 'oracle' or '{PREFIX}<model>'")
    endpoint = Endpoint(replace(config.model, model=annotator))

    def ask(examples: Sequence[Example], revisions: Mapping[str, str], search: Search) -> list[Example]:
        labelled = annotate_with_teacher(examples, endpoint, journal, search)
        agreement(labelled, annotate(examples, revisions))
        return labelled

    return ask


def annotate_with_teacher(
    examples: Sequence[Example], endpoint: Endpoint, journal: Journal, search: Search
) -> list[Example]:
    """The examples with the teacher's verdicts; those without a readable one, even when asked again, are left out."""
    asked = [f"{build_verify(one.question.question, one.passages, one.answer)}\n{STRICT}" for one in examples]
    verdicts = _ask("annotate", asked, endpoint, journal)
    unread = [i for i, verdict in enumerate(verdicts) if not verdict.parsed]
    for i, verdict in zip(unread, _ask("annotate-again", [f"{asked[i]}\n{AGAIN}" for i in unread], endpoint, journal)):
        verdicts[i] = verdict
    labelled = [replace(one, verdict=verdict) for one, verdict in zip(examples, verdicts) if verdict.parsed]
    print(
        f"the teacher labelled {len(labelled)} of {len(examples)} examples "
        f"({len(unread)} asked for again, {len(examples) - len(labelled)} left out as unreadable)"
    )
    return try_revisions(labelled, search)


def _ask(stage: str, texts: Sequence[str], endpoint: Endpoint, journal: Journal) -> list[Verdict]:
    """Verdicts through the journal; an error says how much of the work the journal holds."""
    revised = endpoint.settings.max_revised_tokens
    limit = VERDICT_TOKENS + revised
    keys = keys_of(stage, texts, limit, endpoint)
    fill = partial(endpoint.fill, schema=SCHEMA, max_tokens=revised)
    try:
        made = write_journaled(stage, keys, texts, fill, limit, endpoint, journal)
    except EndpointError as error:
        raise EndpointError(
            f"{error}; {len(journal.texts)} texts are journaled in {journal.path.name}: run again to go on from there"
        ) from None
    return [parse_verdict(one.text) for one in made]


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


def agreement(by_teacher: Sequence[Example], by_oracle: Sequence[Example]) -> pd.DataFrame:
    """How many judgments are the same among the examples that both labelled, in all and by kind.

    "unclear" agrees with neither "true" nor "false".
    """
    gold = {replace(one, verdict=None): one.verdict.judgment for one in by_oracle}
    pairs = []  # of each example: its kind, and whether the judgments are the same
    for one in by_teacher:
        bare = replace(one, verdict=None)
        if bare in gold:
            pairs.append((one.kind, one.verdict.judgment == gold[bare]))
    rows = {}
    for kind in dict.fromkeys(["all", *(kind for kind, _ in pairs)]):
        same = [agreed for name, agreed in pairs if kind in ("all", name)]
        low, high = metrics.wilson(sum(same), len(same))
        share = sum(same) / len(same) if same else float("nan")
        rows[kind] = {"n": len(same), "agreed": sum(same), "share": share, "low": low, "high": high}
    total = rows["all"]
    said = f"the teacher's judgment is the gold one in {total['agreed']} of n = {total['n']} examples"
    if total["n"]:
        interval = f"{100 * total['low']:.1f} to {100 * total['high']:.1f}"
        said += f": {100 * total['share']:.1f} % (95 % interval {interval}; the paper: 93 %)"
    print(said)
    return pd.DataFrame.from_dict(rows, orient="index").astype({"n": int, "agreed": int})
