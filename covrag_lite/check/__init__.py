"""The check: does every recorded number follow from the recorded predictions?

Every recorded table is built again, without a model, and compared line by line: see tables.py. So
are the numbers in README.md, on the pages of results/ and in the notebooks' text: see pages.py.
"""

from dataclasses import dataclass
from pathlib import Path

from covrag_lite.check.pages import check_pages
from covrag_lite.check.tables import (
    build_tables,
    compare_tables,
    list_unbuilt,
    list_unchecked,
    load_facts,
)
from covrag_lite.config import ROOT


@dataclass(frozen=True)
class Report:
    """What a check has found, one sentence each."""

    differences: list[str]
    notes: list[str]  # what could not be compared


def check(root: Path = ROOT, write: bool = False, rebuild: bool = False) -> Report:
    """Compare what is recorded with what can be built again.

    `write` writes facts and filled pages; `rebuild` also replaces recorded tables and pictures,
    which is right after a change of their form and wrong after an unexplained change of a number.
    """
    rebuilt = build_tables(root)
    compared = compare_tables(root, rebuilt.tables, write or rebuild, rebuild)
    facts, taken = load_facts(root, rebuilt.tables)
    differences = [
        *rebuilt.differences,
        *compared.differences,
        *list_unbuilt(root, rebuilt),
        *check_pages(root, facts, write or rebuild),
    ]
    unchecked = list_unchecked(root, rebuilt.tables)
    return Report(differences, [*rebuilt.notes, *compared.notes, *unchecked, *taken])
