"""What was measured on backbones of several sizes (Figure 4), from the comparisons of each.

The values are those of results/real/<backbone>/claim.json and claim.facts.json, which `make check`
rebuilds. The size of each backbone is in backbones.toml.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pandas as pd

import covrag_lite.tables.paper as paper
from covrag_lite import config
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.pairs import BASELINE, OURS, POOLED
from covrag_lite.tables.labels import label_of

REAL = Path("results", "real")
MEAN = "mean"  # in place of a seed: the mean of several training runs, or the only one
PAPER_FORM = "CoV-RAG over RAG trained"  # one model answers and verifies
SECOND_ROUND = "CoV-RAG over its first answer"
OUR_FORM = "two adapters over RAG trained"
GAINS = {  # from, to
    OUR_FORM: (BASELINE, OURS),
    PAPER_FORM: (BASELINE, names.COV_RAG),
    SECOND_ROUND: (names.COV_RAG_S, names.COV_RAG),
}
# A system -> the gain of which it is one side, and which side: so all three are of the same seeds.
ACCURACIES = {
    names.RAG_TRAINED: (PAPER_FORM, "accuracy_from"),
    names.COV_RAG_S: (SECOND_ROUND, "accuracy_from"),
    names.COV_RAG: (PAPER_FORM, "accuracy_to"),
}
AREAS = {  # how an answer is scored -> how the fact of a seed ends
    "judge": "AUROC",
    "likelihood": "AUROC of the likelihood",
    "both": "AUROC of both, weighed",
}
COLUMNS = ("backbone", "parameters", "measure", "what", "seed", "value", "low", "high")
NUMBER = re.compile(r"-?[\d.]+")
LABELS = {  # of what is measured, where people read it
    OUR_FORM: "Two adapters − RAG (trained)",
    PAPER_FORM: "CoV-RAG − RAG (trained)",
    SECOND_ROUND: "CoV-RAG − its first answer",
    "judge": "verifier's score",
    "likelihood": "answer's likelihood",
    "both": "both (likelihood + 3 × score)",
}
PAPER_SYSTEMS = {names.RAG_TRAINED: "WebGLM", names.COV_RAG: "CoV-RAG"}  # ours -> the paper's


@cache
def load_backbones() -> dict[str, dict]:
    """Return label, hub id and number of parameters of every backbone."""
    return tomllib.loads(Path(__file__).with_name("backbones.toml").read_text(encoding="utf-8"))


def load(root: Path = config.ROOT) -> pd.DataFrame:
    """Return one row per backbone, measure, what is measured and seed, by size."""
    files = {file.parent.name: file for file in (root / REAL).glob("*/claim.json")}
    sizes = {backbone: load_backbones()[backbone]["parameters"] for backbone in files}
    question_hashes = set()
    rows = []
    for backbone in sorted(files, key=sizes.get):
        file = files[backbone]
        for path in file.parent.glob("seed-*/claim.manifest.json"):
            manifest = json.loads(path.read_text())
            question_hashes.add(manifest["data"]["questions"]["sha256"])
        comparisons = json.loads(file.read_text())
        facts = json.loads(file.with_suffix(".facts.json").read_text())
        for row in _values(comparisons, facts):
            rows.append((backbone, sizes[backbone], *row))
    if len(question_hashes) > 1:
        raise ValueError(
            f"the runs of {', '.join(files)} have different questions; Figure 4 needs the same ones"
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def _values(comparisons: list[dict], facts: dict[str, str]) -> Iterator[tuple]:
    """Return accuracies, AUROCs and gains, by seed and as means; a mean gain has its interval."""
    by_gain = {what: _with_mean(comparisons, pair) for what, pair in GAINS.items()}
    for what, (gain, side) in ACCURACIES.items():
        for seed, row in by_gain[gain]:
            yield "accuracy", what, seed, row[side], None, None
    seeds = sorted({row["seed"] for row in comparisons} - {POOLED})
    for what, name in AREAS.items():
        areas = []
        for seed in seeds:
            area = facts.get(f"judge of {names.RAG_TRAINED} {seed} {name}", "")
            value, low, high = _parse_area(area)
            if value is not None:
                areas.append(value)
                yield "AUROC", what, seed, value, low, high
        if areas:
            yield "AUROC", what, MEAN, sum(areas) / len(areas), None, None
    for what, rows in by_gain.items():
        for seed, row in rows:
            yield "gain", what, seed, row["difference"], row["low"], row["high"]


def _parse_area(text: str) -> tuple[float | None, float | None, float | None]:
    """Parse an AUROC with its interval, if it has one; None for each number that is missing."""
    numbers = [float(number) for number in NUMBER.findall(text)]
    value, low, high = (numbers + [None, None, None])[:3]
    return value, low, high


def _with_mean(comparisons: list[dict], pair: tuple[str, str]) -> list[tuple[str, dict]]:
    """Return the rows of one comparison by seed, and last the mean.

    The mean is the pooled row, or else that of the seed with the most questions.
    """
    of_pair = [row for row in comparisons if (row["from"], row["to"]) == pair]
    rows = [(row["seed"], row) for row in of_pair if row["seed"] != POOLED]
    main = sorted(of_pair, key=lambda row: (row["seed"] == POOLED, row["n"]))
    return rows + [(MEAN, row) for row in main[-1:]]


def load_paper_backbones() -> pd.DataFrame:
    """Return the averages of WebGLM (our RAG trained) and CoV-RAG in the paper's Table 2."""
    average = paper.load_table("table2").average
    rows = [row for row in average.index if row.startswith("CoV-RAG ")]
    backbones = [row.removeprefix("CoV-RAG ") for row in rows]
    columns = {}
    for ours, theirs in PAPER_SYSTEMS.items():
        columns[ours] = [average[f"{theirs} {backbone}"] for backbone in backbones]
    return pd.DataFrame(columns, index=backbones)


def label(what: str) -> str:
    """Return how a series is called where people read it."""
    return LABELS.get(what, label_of(what))


def short_label(backbone: str) -> str:
    """Return the name of a backbone in one line."""
    return load_backbones()[backbone]["label"].replace("\n", " ")
