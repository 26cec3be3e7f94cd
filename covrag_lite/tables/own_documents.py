"""What to expect on own documents: small folders, and the same questions in the large test.

A folder results/own-<documents>-<model>... has a recorded run of `covrag eval` on the documents of
some test questions. In the large test, trained readers answered the same questions from all of its
passages. There the search is harder, so their accuracy is a lower bound for the small folder.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.systems.names import RAG_TRAINED
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.intervals import share
from covrag_lite.tables.labels import label_of
from covrag_lite.tables.table import Table

PLACE = Path("results", "own-documents", "own_documents")
START = "own-"  # how the folder of such a run begins
NOTE = (
    "Right: the normalised answer contains a gold answer. For a reader with several training runs "
    "it is the mean over runs, with a bootstrap interval over questions."
)
COLUMNS = ["documents", "model", "system", "searched", "n", "right", "low", "high"]
# What is searched; in the large test also without the questions whose answer was not found.
FOLDER = "the folder"
COMMON = "the folder, questions of all its runs"
LARGE = "the large test"
FOUND = "the large test, where a passage read contains the answer"


def is_own(folder: Path) -> bool:
    """Return whether a recorded run is one on own documents."""
    return folder.name.startswith(START) and folder.name != PLACE.parent.name


def build(
    runs: Mapping[str, tuple[str, pd.DataFrame]], readers: Mapping[str, Mapping[str, pd.DataFrame]]
) -> Table:
    """Build the table from runs, each with its model, and from readers by backbone and seed."""
    rows = []
    questions = {}
    common = {}  # the questions that every run on these documents answered
    for name, (_, frame) in runs.items():
        documents = name.split("-")[1]
        questions.setdefault(documents, set()).update(frame.id)
        common[documents] = common.get(documents, set(frame.id)) & set(frame.id)
    for name, (model, frame) in runs.items():
        documents = name.split("-")[1]
        for system, answers in frame.groupby("system", sort=False):
            run = (documents, model, label_of(system))
            rows.append((*run, FOLDER, *estimate(answers.normalised.astype(float))))
            shared = answers[answers.id.isin(common[documents])]
            if len(shared) and common[documents] != questions[documents]:
                rows.append((*run, COMMON, *estimate(shared.normalised.astype(float))))
    for documents, ids in questions.items():
        for backbone, frames in readers.items():
            by_seed = list_answers(frames, ids)
            if not any(map(len, by_seed.values())):
                continue  # the large test of this backbone has other questions
            check_answers(by_seed, ids, f"{documents}, {backbone}")
            for searched, right in read_in_large_test(by_seed):
                reader = (documents, backbone, label_of(RAG_TRAINED), searched)
                rows.append((*reader, *estimate(right)))
    table = pd.DataFrame(rows, columns=COLUMNS)
    forms = {"right": "{right:.1f}", "interval": "[{low:.0f}–{high:.0f}]", "n": "{n}"}
    facts = facts_of_rows(table, "{documents} {model}, {system}, {searched}:", forms)
    shown = table[COLUMNS[:5]].assign(
        right=[f"{row.right:.1f} [{row.low:.0f}–{row.high:.0f}]" for row in table.itertuples()]
    )
    return Table(PLACE.name, table, {"Right answers in %": shown}, [NOTE], facts)


def list_answers(
    frames: Mapping[str, pd.DataFrame], ids: Collection[str]
) -> dict[str, pd.DataFrame]:
    """Return the answers of each training run of a reader to these questions."""
    by_seed = {}
    for seed, frame in frames.items():
        by_seed[seed] = frame[(frame.system == RAG_TRAINED) & frame.id.isin(ids)]
    return by_seed


def check_answers(by_seed: Mapping[str, pd.DataFrame], ids: Collection[str], reader: str) -> None:
    """Raise an error unless each training run of a reader answered each question once."""
    for seed, of_seed in by_seed.items():
        counts = of_seed.id.value_counts().reindex(sorted(ids), fill_value=0)
        wrong = counts[counts != 1]
        if len(wrong):
            raise ValueError(
                f"own documents ({reader}): seed {seed} must answer each of {len(ids)} questions "
                f"once, but has {wrong.iloc[0]} answers to {wrong.index[0]!r}; "
                "record its other answers, or leave this seed out"
            )


def read_in_large_test(by_seed: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, pd.Series]]:
    """Yield how often each question is answered correctly, over all training runs of a reader."""
    answers = pd.concat(by_seed.values())
    answers = answers.assign(right=answers.normalised.astype(float))
    found = answers[answers.found_first.astype(bool)]
    for searched, chosen in ((LARGE, answers), (FOUND, found)):
        if len(chosen):
            yield searched, chosen.groupby("id").right.mean()


def estimate(right: pd.Series) -> tuple[int, float, float, float]:
    """Return the number of questions, and the share of right answers in % with its interval."""
    if right.isin((0.0, 1.0)).all():
        return len(right), *share(right.astype(bool))
    mean, low, high = metrics.mean_bootstrap(right.to_numpy())
    return len(right), 100 * mean, 100 * low, 100 * high
