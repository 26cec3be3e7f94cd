"""Does every recorded number follow from the recorded predictions? The command behind `make check`.

Every recorded table is built again, without a model, and compared number by number. So are the numbers in README.md,
on the pages of results/ and in the notebooks' prose. Each page has a template: <page>.template.md next to it, or the
key "template" in a notebook cell's metadata. There, `{folder/table | name}` is replaced by a fact of that run under
results/, and `{paper/table2 | row column}` by a number of the paper.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from importlib import import_module
from itertools import zip_longest
from pathlib import Path

import pandas as pd

from covrag_lite.config import ROOT
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Recorded, find
from covrag_lite.tables import (
    TABLES,
    Table,
    claim,
    figure4,
    find_table,
    lesson,
    load_basis,
    method_picture,
    mixture,
    pictures,
)
from covrag_lite.tables.paper import paper_facts

EMBEDDED = Path("figures", "embedded")
FACT = re.compile(r"\{([^{}|]+) \| ([^{}]+)\}")
Facts = Mapping[str, Mapping[str, str]]  # of every run, by its folder and table


def check(root: Path = ROOT, write: bool = False, rebuild: bool = False) -> tuple[list[str], list[str]]:
    """Every difference between what is recorded and what can be built again, and what could not be compared.

    `write` puts facts and filled pages in place; `rebuild` also replaces recorded tables and pictures, which is right
    after a change of their form and wrong after an unexplained change of a number.
    """
    wrong, notes = [], []
    tables = dict(build_tables(root, wrong, notes))
    made = set()
    for place, table in tables.items():
        own = {end: root / place.parent / f"{table.name}.{end}" for end in ("csv", *table.files, *table.plots)}
        made |= set(own.values())
        for end, text in table.files.items():
            name = own[end].relative_to(root)
            if rebuild and own[end].exists() or write and end == "facts.json":
                own[end].write_text(text)
            if not own[end].exists():
                notes.append(f"{name}: not recorded")
                continue
            for number, was, now in compare_lines(own[end].read_text(), text):
                wrong.append(f"{name}, line {number}: recorded {was}, recomputed {now}")
        for end, plot in table.plots.items():
            if rebuild and own[end].exists():
                plot(own[end])
    for file in [*sorted(root.glob("results/**/*")), *sorted(root.glob("figures/embedded/*"))]:
        if file.suffix in (".csv", ".png") and file not in made:
            notes.append(f"{file.relative_to(root)}: not checked, because it cannot be built from the records")
    facts = {place.as_posix().removeprefix("results/"): table.facts for place, table in tables.items()} | paper_facts()
    for file in sorted(root.glob("results/**/*.facts.json")):
        place = file.relative_to(root / "results").as_posix().removesuffix(".facts.json")
        if place not in facts:
            facts[place] = json.loads(file.read_text())
            notes.append(f"{file.relative_to(root)}: taken as recorded, because nothing here builds it")
    return wrong + check_pages(root, facts, write), notes


def build_tables(root: Path, wrong: list[str], notes: list[str]) -> Iterator[tuple[Path, Table]]:
    """Build every recorded table and figure; yields its place under the root with it."""
    shown = Path("results", lesson.RECORDS["table2"], "table2")  # in the picture of the method
    seeds: dict[Path, dict[str, pd.DataFrame]] = {}
    arms: dict[Path, dict[tuple[str, str], pd.DataFrame]] = {}
    for run in find(root):
        basis, folder = try_to_load(run, root, wrong, notes), run.folder.relative_to(root)
        if basis is None:
            continue
        if run.table == "claim" and folder.name.startswith("seed-"):  # shown together with its backbone's other seeds
            seeds.setdefault(folder.parent, {})[folder.name.removeprefix("seed-")] = to_frame(basis)
        elif run.table == "mixture":
            arm = folder.parent.name, folder.name.removeprefix("seed-")
            arms.setdefault(folder.parent.parent, {})[arm] = to_frame(basis)
        else:
            yield folder / run.table, find_table(run.table).build(basis, run)
        if folder / run.table == shown and (root / EMBEDDED / "method.md").exists():
            yield EMBEDDED / "method", method_picture.build(basis)
    for folder, frames in seeds.items():
        yield folder / "claim", claim.build_seeds(frames)
    for folder, frames in arms.items():  # beside the readers of its backbone
        yield folder / "mixture", mixture.build_arms(frames, seeds[folder.parent])
    if (root / EMBEDDED / "figure4.csv").exists():
        yield EMBEDDED / "figure4", figure4.build(figure4.load(root))
    if (root / EMBEDDED / "training.data.png").exists():
        yield EMBEDDED / "training", pictures.build_training()
    for folder in sorted((root / "results").glob("speed-*")):
        table = import_module("benchmarks.report").build(folder)
        yield folder.relative_to(root) / "speed", replace(table, plots={})
        if table.plots and (root / EMBEDDED).exists():
            yield EMBEDDED / "speed", Table("speed", pd.DataFrame(), plots=table.plots)


def try_to_load(run: Recorded, root: Path, wrong: list[str], notes: list[str]) -> object | None:
    """What a run's table is built from, or None and a line that says why it is not available."""
    name = run.file("manifest.json").relative_to(root)
    if run.table not in TABLES:
        notes.append(f"{name}: not checked, because nothing here builds {run.table}")
        return None
    try:
        return load_basis(run)
    except FileNotFoundError as error:
        if error.filename:  # a file of the record itself
            wrong.append(f"{name}: not checked, {Path(error.filename).name} is missing")
        else:  # data that cannot be shipped, in words
            notes.append(f"{name}: not checked, {error}")
    except (KeyError, ValueError) as error:
        wrong.append(f"{name}: {error!r}")
    return None


def check_pages(root: Path, facts: Facts, write: bool) -> list[str]:
    """Every difference between the pages and their filled templates; `write` replaces the pages."""
    wrong: list[str] = []

    def compare(name: str, recorded: str, template: str) -> str:
        filled = fill(template, facts, name, wrong)
        pairs = compare_lines(filled if write else recorded, filled)
        wrong.extend(f"{name}, line {number}: {tell_words(was, now)}" for number, was, now in pairs)
        return filled

    for template in [*root.glob("*.template.md"), *sorted(root.glob("results/*.template.md"))]:
        page = template.with_name(template.name.replace(".template", ""))
        recorded = page.read_text() if page.exists() else ""
        filled = compare(str(page.relative_to(root)), recorded, template.read_text())
        if write:
            page.write_text(filled)
    for path in sorted(root.glob("notebooks/*.ipynb")):
        notebook = json.loads(path.read_text())
        for number, cell in enumerate(notebook["cells"]):
            if "template" in cell.get("metadata", {}):
                texts = ("".join(cell["source"]), "".join(cell["metadata"]["template"]))
                cell["source"] = compare(f"{path.relative_to(root)}, cell {number}", *texts).splitlines(keepends=True)
        if write:
            path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    return wrong


def fill(template: str, facts: Facts, name: str, wrong: list[str]) -> str:
    """A template with its facts filled in; an unknown fact stays as it is and is reported."""

    def look_up(match: re.Match) -> str:
        run, fact = match.groups()
        if fact not in facts.get(run, {}):
            wrong.append(f"the template of {name}: {match[0]} is not a fact of a recorded run")
        return facts.get(run, {}).get(fact, match[0])

    return FACT.sub(look_up, template)


def compare_lines(recorded: str, made: str) -> Iterator[tuple[int, str, str]]:
    """Each line that differs: its number, the recorded and the rebuilt text, or "nothing" where there is none."""
    was, now = recorded.splitlines(), made.splitlines()
    for tag, start, end, *span in SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
        pairs = zip_longest(was[start:end], now[slice(*span)], fillvalue="nothing")
        yield from ((number, *pair) for number, pair in enumerate(pairs, start + 1) if tag != "equal")


def tell_words(was: str, now: str) -> str:
    """The words in which two lines of equal length differ; otherwise both lines whole."""
    a, b = was.split(), now.split()
    words = [pair for pair in zip(a, b) if pair[0] != pair[1]] if len(a) == len(b) else []
    return "; ".join(f"recorded {one}, recomputed {other}" for one, other in words or [(was, now)])


def main(words: Sequence[str] | None = None) -> None:
    """The command: print what differs, and fail if something does; with --write fill the pages in."""
    parser = argparse.ArgumentParser(description="Does every recorded number follow from the recorded predictions?")
    parser.add_argument("--write", action="store_true", help="write facts, and the pages filled from them")
    parser.add_argument("--rebuild", action="store_true", help="also replace recorded tables and pictures")
    options = parser.parse_args(words)
    wrong, notes = check(write=options.write or options.rebuild, rebuild=options.rebuild)
    verdict = f"{len(wrong)} differences" if wrong else "every number follows"
    scored = sum(run.table in TABLES for run in find())
    print("\n".join([*notes, *wrong, f"{scored} recorded runs scored again: {verdict}"]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
