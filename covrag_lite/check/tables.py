"""Recorded tables and figures: each is built again from its records and compared."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from covrag_lite.check.compare import compare_lines
from covrag_lite.config import ROOT
from covrag_lite.data.missing import DataMissing
from covrag_lite.files import RecordDamaged, write_text
from covrag_lite.runs.frame import to_frame
from covrag_lite.runs.recorded import DataChanged, Recorded, find
from covrag_lite.tables import (
    all_tables,
    answer_length,
    answerable,
    backbones,
    blocks,
    figure4,
    find_table,
    lesson,
    load_basis,
    method_picture,
    mixture,
    own_documents,
    training_data,
)
from covrag_lite.tables.comparisons.table import build_seeds
from covrag_lite.tables.paper import paper_facts
from covrag_lite.tables.speed import report as speed_report
from covrag_lite.tables.table import Table

EMBEDDED = Path("figures", "embedded")
PICTURED = Path("results", lesson.RECORDS["table2"], "table2")  # in the picture of the method
SEED_FOLDER = "seed-"  # how the folder of one training run begins

Tables = Mapping[Path, Table]  # by their places under the root: folder and name


@dataclass(frozen=True)
class Rebuilt:
    """Tables that were built again, and sentences about what could not be built."""

    tables: dict[Path, Table] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Together:
    """Runs shown together: those of one backbone, on own documents, or with long answers."""

    seeds: dict[Path, dict[str, pd.DataFrame]] = field(default_factory=dict)
    arms: dict[Path, dict[tuple[str, str], pd.DataFrame]] = field(default_factory=dict)
    blocks: dict[Path, dict[str, pd.DataFrame]] = field(default_factory=dict)
    own: dict[str, tuple[str, pd.DataFrame]] = field(default_factory=dict)
    lengths: dict[Path, dict[str, pd.DataFrame]] = field(default_factory=dict)

    def add(self, run: Recorded, root: Path, predictions: object) -> bool:
        """Add a run, unless its table shows it alone; return whether it was added."""
        folder = run.folder.relative_to(root)
        seed = folder.name.removeprefix(SEED_FOLDER)
        if run.table == "claim" and folder.name.startswith(SEED_FOLDER):
            self.seeds.setdefault(folder.parent, {})[seed] = to_frame(predictions)
            return True
        if run.table == "mixture":
            arms = self.arms.setdefault(folder.parent.parent, {})
            arms[folder.parent.name, seed] = to_frame(predictions)
            return True
        if run.table == "blocks":
            answers = blocks.list_answers(seed, predictions)
            self.blocks.setdefault(folder.parent, {})[seed] = answers
            return True
        if run.table == "citations" and folder.parent.name == answer_length.FOLDER:
            self.lengths.setdefault(folder.parent, {})[folder.name] = predictions
        if own_documents.is_own(folder):  # which is also shown alone
            self.own[folder.name] = (run.config.model.model, to_frame(predictions))
        return False

    def build(self, root: Path) -> Iterator[tuple[Path, Table]]:
        """Build the tables of these runs."""
        for folder, frames in self.seeds.items():
            yield folder / "claim", build_seeds(frames)
            ids = root / folder / "answerable" / answerable.FILE
            if ids.exists():
                arms = self.arms.get(folder / "mixture", {})
                table = answerable.build(frames, arms, answerable.load_ids(ids))
                yield folder / "answerable" / "answerable", table
        for folder, frames in self.arms.items():  # next to the readers of the same backbone
            yield folder / "mixture", mixture.build_arms(frames, self.seeds[folder.parent])
        for folder, answers in self.blocks.items():
            yield folder / "blocks", blocks.build_seeds(answers)
        for folder, counts in self.lengths.items():
            yield folder / "answer_length", answer_length.build(counts)
        if self.own:
            readers = {
                folder.name: frames
                for folder, frames in self.seeds.items()
                if folder.parent == backbones.REAL
            }
            yield own_documents.PLACE, own_documents.build(self.own, readers)


def build_tables(root: Path = ROOT) -> Rebuilt:
    """Build every recorded table and figure."""
    rebuilt = Rebuilt()
    together = Together()
    for run in find(root):
        basis = try_to_load(run, root, rebuilt)
        if basis is None:
            continue
        place = run.folder.relative_to(root) / run.table
        if not together.add(run, root, basis):
            rebuilt.tables[place] = find_table(run.table).build(basis, run)
        if place == PICTURED and (root / EMBEDDED / "method.md").exists():
            rebuilt.tables[EMBEDDED / "method"] = method_picture.build(basis)
    rebuilt.tables.update(together.build(root))
    rebuilt.tables.update(build_figures(root))
    return rebuilt


def build_figures(root: Path) -> Iterator[tuple[Path, Table]]:
    """Build what is not made from one recorded run: figures, and the tables of speed."""
    embedded = root / EMBEDDED
    if (embedded / "figure4.csv").exists():
        yield EMBEDDED / "figure4", figure4.build_figure4(backbones.load(root))
    if (embedded / "training.data.png").exists():
        yield EMBEDDED / "training", training_data.build()
    for folder in sorted((root / "results").glob("speed-*")):
        table = speed_report.build(folder)
        yield folder.relative_to(root) / "speed", replace(table, plots={})
        if table.plots and embedded.exists():
            yield EMBEDDED / "speed", Table("speed", pd.DataFrame(), plots=table.plots)


def try_to_load(run: Recorded, root: Path, rebuilt: Rebuilt) -> object | None:
    """Load what a run's table is built from; if that fails, say why in `rebuilt`."""
    name = run.file("manifest.json").relative_to(root)
    if run.table not in all_tables():
        rebuilt.notes.append(f"{name}: not checked, because nothing here builds {run.table}")
        return None
    try:
        return load_basis(run)
    except DataMissing as error:
        rebuilt.notes.append(f"{name}: not checked, because its data is missing: {error}")
    except FileNotFoundError as error:
        missing = Path(error.filename).name if error.filename else error
        rebuilt.differences.append(f"{name}: {missing} is missing; restore it, or run it again")
    except RecordDamaged as error:
        rebuilt.differences.append(f"{name}: {error}")
    except DataChanged as error:
        rebuilt.differences.append(f"{name}: its data has changed: {error}")
    except (KeyError, ValueError) as error:
        rebuilt.differences.append(f"{name}: its record cannot be read: {error!r}")
    return None


def compare_tables(root: Path, tables: Tables, write_facts: bool, rebuild: bool) -> Rebuilt:
    """Compare the files of these tables with the recorded ones.

    `write_facts` replaces the files of facts first; `rebuild` replaces all recorded files.
    """
    compared = Rebuilt()
    for place, table in tables.items():
        for end, text in table.files.items():
            file = root / place.parent / f"{table.name}.{end}"
            is_facts = end == "facts.json"
            if rebuild and file.exists() or write_facts and is_facts:
                write_text(file, text)
            name = file.relative_to(root)
            if not file.exists():
                compared.notes.append(f"{name}: not recorded")
                continue
            for number, old_line, new_line in compare_lines(file.read_text(), text):
                change = f"recorded {old_line}, recomputed {new_line}"
                compared.differences.append(f"{name}, line {number}: {change}")
        for end, plot in table.plots.items():
            file = root / place.parent / f"{table.name}.{end}"
            if rebuild and file.exists():
                plot(file)
    return compared


def list_unchecked(root: Path, tables: Tables) -> list[str]:
    """List the recorded tables and pictures that no table builds."""
    checked = set()
    for place, table in tables.items():
        for end in ("csv", *table.files, *table.plots):
            checked.add(root / place.parent / f"{table.name}.{end}")
    notes = []
    files = [*sorted(root.glob("results/**/*")), *sorted(root.glob("figures/embedded/*"))]
    for file in files:
        if file.suffix in (".csv", ".png") and file not in checked:
            reason = "it cannot be built from the records"
            notes.append(f"{file.relative_to(root)}: not checked, because {reason}")
    return notes


def list_unbuilt(root: Path, rebuilt: Rebuilt) -> list[str]:
    """List recorded facts of tables that were not built again, although no note says why."""
    noted = {note.partition(":")[0] for note in rebuilt.notes}
    differences = []
    for file in sorted(root.glob("results/**/*.facts.json")):
        name = file.relative_to(root).as_posix()
        place = Path(name.removesuffix(".facts.json"))
        is_ours = place.name in all_tables() and f"{place}.manifest.json" not in noted
        if is_ours and place not in rebuilt.tables:
            differences.append(f"{name}: its table was not built again from any recorded run")
    return differences


def load_facts(root: Path, tables: Tables) -> tuple[dict[str, Mapping[str, str]], list[str]]:
    """Load the facts that pages may use, with notes on those that are taken as recorded."""
    facts = {}
    for place, table in tables.items():
        facts[place.as_posix().removeprefix("results/")] = table.facts
    facts |= paper_facts()
    notes = []
    for file in sorted(root.glob("results/**/*.facts.json")):
        place = file.relative_to(root / "results").as_posix().removesuffix(".facts.json")
        if place not in facts:
            facts[place] = json.loads(file.read_text())
            reason = "because nothing here builds it"
            notes.append(f"{file.relative_to(root)}: taken as recorded, {reason}")
    return facts, notes
