"""The paper's own annotator (Section 2.3, Step 2): a larger model behind an endpoint writes the verdicts of D2′.

The paper asked GPT-4 and found 93 % of a sample right. Here every usable verdict is compared with the oracle of
`synthesis`, which knows the gold answers. What the teacher cannot label is left out and counted, never labelled by us.
`notebooks/train.ipynb` calls `load_annotator`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd

from covrag_lite import metrics
from covrag_lite.completion import complete
from covrag_lite.config import Config
from covrag_lite.engine.endpoint import PREFIX, VERDICT_TOKENS, Endpoint, EndpointError
from covrag_lite.oracle import Example, annotate, supporting
from covrag_lite.prompts import build_verify, parse_verdict
from covrag_lite.records import Search, Verdict
from covrag_lite.runs.journal import Journal

STRICT = (
    "Be a strict examiner: judge by the criteria and the references alone, use the whole range from 0 to 1, "
    "and call an answer true only if it is right, supported by the references it cites, and free of repetition."
)
# Who writes the verdicts of D2′: examples, better questions by the text that was asked, and the search to try others.
Annotate = Callable[[Sequence[Example], Mapping[str, str], Search], list[Example]]
AGAIN = "An earlier attempt at this could not be read. Write the JSON object of the format alone, with all of its keys."


def load_annotator(config: Config, journal: Journal) -> Annotate:
    """The function that writes the verdicts of D2′: the oracle, or a teacher whose agreement with it is printed."""
    annotator = config.synthesis.annotator
    if annotator == "oracle":
        return annotate
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
    asked = []
    for one in examples:
        prompt = build_verify(one.question.question, one.passages, one.answer)
        asked.append(f"{prompt}\n{STRICT}")
    verdicts = _ask("annotate", asked, endpoint, journal)
    unread = [i for i, verdict in enumerate(verdicts) if not verdict.parsed]
    asked_again = [f"{asked[i]}\n{AGAIN}" for i in unread]
    second = _ask("annotate-again", asked_again, endpoint, journal)
    for i, verdict in zip(unread, second):
        verdicts[i] = verdict
    labelled = [replace(one, verdict=verdict) for one, verdict in zip(examples, verdicts) if verdict.parsed]
    print(
        f"the teacher labelled {len(labelled)} of {len(examples)} examples "
        f"({len(unread)} asked for again, {len(examples) - len(labelled)} left out as unreadable)"
    )
    return try_revisions(labelled, search)


def _ask(stage: str, texts: Sequence[str], endpoint: Endpoint, journal: Journal) -> list[Verdict]:
    """Verdicts through the journal; an error says how much of the work the journal holds."""
    # `complete` calls `generate` for every stage but "verify", and a teacher writes verdicts whatever the stage's name.
    judge = SimpleNamespace(
        fingerprint=endpoint.fingerprint,
        device=endpoint.device,
        config=endpoint.config,
        generate=endpoint.write_verdicts,
        bill=endpoint.bill,
    )
    limit = VERDICT_TOKENS + endpoint.config.max_revised_tokens
    try:
        written = complete(stage, texts, limit, judge, journal)
    except EndpointError as error:
        raise EndpointError(
            f"{error}; {len(journal.texts)} texts are journaled in {journal.path.name}: run again to go on from there"
        ) from None
    return [parse_verdict(text) for text in written]


def try_revisions(examples: Sequence[Example], search: Search) -> list[Example]:
    """The examples without revised questions that do not help.

    A revised question helps if it finds a supporting reference where none was found; a true answer needs none.
    """
    wanted = [i for i, one in enumerate(examples) if _may_need_revision(one)]
    revised = [examples[i].verdict.revised_question for i in wanted]
    found = search(revised) if wanted else []
    helpful = {i for i, passages in zip(wanted, found) if supporting(examples[i].question, passages)}
    made = []
    for i, one in enumerate(examples):
        without = replace(one, verdict=replace(one.verdict, revised_question=""))
        made.append(one if i in helpful else without)
    return made


def _may_need_revision(one: Example) -> bool:
    """Whether an example has a revised question for an answer that is not true and has no supporting reference."""
    if not one.verdict.revised_question or one.verdict.judgment == "true":
        return False
    return not supporting(one.question, one.passages)


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
    kinds = dict.fromkeys(kind for kind, _ in pairs)  # each once, in order
    rows = {}
    for kind in ["all", *kinds]:
        same = [agreed for name, agreed in pairs if kind in ("all", name)]
        low, high = metrics.wilson(sum(same), len(same))
        share = sum(same) / len(same) if same else float("nan")
        rows[kind] = {"n": len(same), "agreed": sum(same), "share": share, "low": low, "high": high}
    _print_agreement(rows["all"])
    return pd.DataFrame.from_dict(rows, orient="index").astype({"n": int, "agreed": int})


def _print_agreement(total: dict[str, float]) -> None:
    """One sentence on the agreement in all, beside the paper's."""
    said = f"the teacher's judgment is the gold one in {total['agreed']} of n = {total['n']} examples"
    if total["n"]:
        interval = f"{100 * total['low']:.1f} to {100 * total['high']:.1f}"
        said += f": {100 * total['share']:.1f} % (95 % interval {interval}; the paper: 93 %)"
    print(said)
