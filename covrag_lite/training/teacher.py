"""The paper's own annotator (Section 2.3, Step 2): a larger model behind an endpoint writes the verdicts of D2′.

The paper asked GPT-4 and found 93 % of a sample right. Here every usable verdict is compared with the oracle of
`synthesis`, which knows gold; what the teacher cannot label is left out and counted, never labelled by us.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config
from covrag_lite.journal import Journal
from covrag_lite.model.completion import complete
from covrag_lite.model.endpoint import PREFIX, VERDICT_TOKENS, Endpoint, EndpointError
from covrag_lite.prompts import build_verify, parse_verdict
from covrag_lite.records import Verdict
from covrag_lite.training.synthesis import Example, Search, annotate, supporting

STRICT = (
    "Be a strict examiner: judge by the criteria and the references alone, use the whole range from 0 to 1, "
    "and call an answer true only if it is right, supported by the references it cites, and free of repetition."
)
AGAIN = "An earlier attempt at this could not be read. Write the JSON object of the format alone, with all of its keys."


def load_annotator(config: Config, journal: Journal) -> Callable[[Sequence[Example], Search], list[Example]]:
    """Who writes the verdicts of D2′: the oracle, or a teacher whose agreement with the oracle is printed."""
    if config.synthesis.annotator == "oracle":
        return annotate
    if not config.synthesis.annotator.startswith(PREFIX):
        raise ValueError(f"annotator {config.synthesis.annotator!r} is not known; use 'oracle' or '{PREFIX}<model>'")
    endpoint = Endpoint(replace(config.model, model=config.synthesis.annotator))

    def ask(examples: Sequence[Example], search: Search) -> list[Example]:
        labelled = annotate_with_teacher(examples, endpoint, journal, search)
        agreement(labelled, annotate(examples, search))
        return labelled

    return ask


def annotate_with_teacher(
    examples: Sequence[Example], endpoint: Endpoint, journal: Journal, search: Search
) -> list[Example]:
    """The examples with the teacher's verdicts; those it gave no readable verdict, even when asked again, are left out and counted."""
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
    """Verdicts through the journal; an error says how much of the work it holds."""
    # `complete` calls `generate` for every stage but "verify", and a teacher is to write verdicts whatever the stage's name.
    judge = SimpleNamespace(
        fingerprint=endpoint.fingerprint,
        device=endpoint.device,
        config=endpoint.config,
        generate=endpoint.write_verdicts,
        bill=endpoint.bill,
    )
    try:
        written = complete(stage, texts, VERDICT_TOKENS + endpoint.config.max_revised_tokens, judge, journal)
    except EndpointError as error:
        raise EndpointError(
            f"{error}; {len(journal.texts)} texts are journaled in {journal.path.name}: run again to go on from there"
        ) from None
    return list(map(parse_verdict, written))


def try_revisions(examples: Sequence[Example], search: Search) -> list[Example]:
    """The examples with only those revised questions that find a supporting reference where none was found; a true answer has none."""
    wanted = [
        i
        for i, one in enumerate(examples)
        if one.verdict.revised_question
        and one.verdict.judgment != "true"
        and not supporting(one.question, one.passages)
    ]
    found = search([examples[i].verdict.revised_question for i in wanted]) if wanted else []
    helpful = {i for i, passages in zip(wanted, found) if supporting(examples[i].question, passages)}
    return [
        one if i in helpful else replace(one, verdict=replace(one.verdict, revised_question=""))
        for i, one in enumerate(examples)
    ]


def agreement(by_teacher: Sequence[Example], by_oracle: Sequence[Example]) -> pd.DataFrame:
    """On how many of the examples that both labelled the judgments are the same, in all and by kind; "unclear" agrees with neither side."""
    gold = {replace(one, verdict=None): one.verdict.judgment for one in by_oracle}
    pairs = [
        (one.kind, one.verdict.judgment == gold[replace(one, verdict=None)])
        for one in by_teacher
        if replace(one, verdict=None) in gold
    ]
    rows = {}
    for kind in ["all", *dict.fromkeys(kind for kind, _ in pairs)]:
        same = [agreed for name, agreed in pairs if kind in ("all", name)]
        low, high = metrics.wilson(sum(same), len(same))
        rows[kind] = {
            "n": len(same),
            "agreed": sum(same),
            "share": sum(same) / len(same) if same else float("nan"),
            "low": low,
            "high": high,
        }
    total = rows["all"]
    print(
        f"the teacher's judgment is the gold one in {total['agreed']} of n = {total['n']} examples"
        + (
            f": {100 * total['share']:.1f} % (95 % interval {100 * total['low']:.1f} to {100 * total['high']:.1f}; the paper: 93 %)"
            if pairs
            else ""
        )
    )
    return pd.DataFrame.from_dict(rows, orient="index").astype({"n": int, "agreed": int})
