"""Whether everything recorded follows from what it was made from: `make check`.

Every recorded table and picture is made anew, without a model, and compared number by number; so are the numbers in
README.md and results/README.md. A served judge's recorded verdicts are ranked again, trainings are only named.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import matplotlib.pyplot as plt

from covrag_lite.check.claims import check_documents
from covrag_lite.check.compare import compare_file
from covrag_lite.check.remake import FIGURES, MAKE, load_basis
from covrag_lite.config import ROOT
from covrag_lite.runs.recorded import Recorded, find
from covrag_lite.tables import figure4 as sizes
from covrag_lite.tables import seeds
from covrag_lite.tables.figure4 import Sizes


def check(root: Path = ROOT, write: bool = False) -> tuple[list[str], list[str]]:
    """Every difference between what is recorded and what can be made anew, and what could not be compared."""
    wrong, notes = [], []
    bases = {}  # what prose may tell of, by its place under the root
    made = {}  # a recorded file -> the same file made anew
    with tempfile.TemporaryDirectory() as place:
        for run in find(root):
            basis = try_to_load(run, root, wrong, notes)
            if basis is not None:
                if run.table != "table3":  # prose tells of predictions, not of ranks
                    bases[run.folder.relative_to(root) / run.table] = basis
                folder = Path(tempfile.mkdtemp(dir=place))
                MAKE[run.table](run, basis, folder)
                made |= {run.folder / file.name: file for file in sorted(folder.iterdir())}
                plt.close("all")
        for part, by_seed in seeds.gather(bases).items():
            bases[part / "seeds"] = by_seed
            folder = Path(tempfile.mkdtemp(dir=place))
            seeds.save(folder, by_seed)
            made |= {root / part / file.name: file for file in sorted(folder.iterdir())}
        bases |= gather_sizes(bases, wrong)
        for name, make in FIGURES.items():
            embedded = root / "figures" / "embedded"
            if (embedded / f"{name}.png").exists():
                folder = Path(tempfile.mkdtemp(dir=place))
                make(root, bases, folder)
                made |= {embedded / file.name: file for file in sorted(folder.iterdir())}
                plt.close("all")
        for recorded, file in made.items():
            differences, remarks = compare_file(recorded, file)
            name = recorded.relative_to(root)
            wrong += [f"{name}, {line}" for line in differences]
            notes += [f"{name}: {line}" for line in remarks]
    for file in recorded_files(root):
        if file not in made:
            notes.append(f"{file.relative_to(root)}: not checked, as it cannot be made from what is recorded")
    for folder in sorted((root / "results").glob("speed-*")):
        place = folder.relative_to(root)
        bases |= {place / "speed": folder, place / "cost": folder}
    return wrong + check_documents(root, bases, write), notes


def try_to_load(run: Recorded, root: Path, wrong: list[str], notes: list[str]) -> object | None:
    """What a run's table is made from, or None and a line that says why it cannot be had."""
    name = run.file("manifest.json").relative_to(root)
    if run.table not in MAKE:
        notes.append(f"{name}: not checked, as nothing here makes {run.table}")
        return None
    try:
        return load_basis(run, root)
    except FileNotFoundError as error:
        if error.filename:  # a file of the record itself
            wrong.append(f"{name}: not checked, {Path(error.filename).name} is missing")
        else:  # data that cannot be shipped, in words
            notes.append(f"{name}: not checked, {error}")
    except KeyError as error:
        wrong.append(f"{name}: {error} is not in the data")
    except ValueError as error:
        wrong.append(f"{name}: {error}")
    return None


def gather_sizes(bases: Mapping[Path, object], wrong: list[str]) -> dict[Path, Sizes]:
    """What Figure 4 is made from, by its place; a line in `wrong` where the runs do not belong in one figure."""
    try:
        by_size = sizes.gather(bases)
    except ValueError as error:
        wrong.append(f"{sizes.PLACE}: {error}")
        return {}
    return {sizes.PLACE: by_size} if by_size.frames else {}


def recorded_files(root: Path) -> Iterator[Path]:
    """Every table and picture that lies under results/ or figures/, but for figures/custom."""
    for place in ("results", "figures"):
        for file in sorted((root / place).glob("**/*")):
            if file.suffix in (".csv", ".png") and file.parent.name != "custom":
                yield file
