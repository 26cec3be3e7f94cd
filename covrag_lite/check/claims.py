"""The numbers in README.md, in results/README.md and in the notebooks' prose, filled in from recorded runs.

A block between `<!-- made from results/<run>/<table>.claims.md -->` and `<!-- end -->` is that file's prose, with a
name in braces for every number: of that run or, with a folder's name before it, of another.
"""

import json
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from covrag_lite.check.compare import compare_text
from covrag_lite.check.facts import Basis, facts

BLOCK = re.compile(r"(<!-- made from (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
SOURCE = re.compile(r"<!-- made from (\S+) -->")
DOCUMENTS = ("README.md", "results/README.md")
Numbers = dict[Path, Callable[[], dict[str, str]]]  # a run -> what gives its numbers, computed when first asked for


def check_documents(root: Path, bases: dict[Path, Basis], write: bool) -> list[str]:
    """Every difference between the documents' blocks and their prose filled in; `write` puts the latter in place."""

    @cache  # several blocks tell of one run
    def compute(run: Path) -> dict[str, str]:
        return facts(bases[run])

    numbers = {run: partial(compute, run) for run in bases}
    wrong, used = [], set()
    for path in find_documents(root):
        text = path.read_text()
        one = check_notebook if path.suffix == ".ipynb" else check_blocks
        filled = one(str(path.relative_to(root)), text, root, numbers, wrong, write)
        used |= set(SOURCE.findall(text))
        if write:
            path.write_text(filled)
    for file in sorted((root / "results").glob("**/*.claims.md")):
        name = str(file.relative_to(root))
        if name not in used:
            wrong.append(f"{', '.join(DOCUMENTS)} and the notebooks: nothing is made from {name}")
    return wrong


def find_documents(root: Path) -> list[Path]:
    """What may have blocks."""
    return [path for path in map(root.joinpath, DOCUMENTS) if path.exists()] + sorted(root.glob("notebooks/*.ipynb"))


def check_notebook(document: str, text: str, root: Path, numbers: Numbers, wrong: list[str], write: bool) -> str:
    """A notebook with the blocks of its prose filled in, else as it is."""
    try:
        notebook = json.loads(text)
    except ValueError as error:
        wrong.append(f"{document}: not a notebook ({error})")
        return text
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "markdown":
            source = "".join(cell["source"])
            filled = check_blocks(f"{document}, cell {number}", source, root, numbers, wrong, write)
            if filled != source:
                cell["source"] = filled.splitlines(keepends=True)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def check_blocks(document: str, text: str, root: Path, numbers: Numbers, wrong: list[str], write: bool) -> str:
    """One document with its blocks filled in; what differs is added to `wrong`, unless it is to be written."""

    def fill_block(match: re.Match) -> str:
        source = match[2]
        start = text[: match.start(3)].count("\n")
        try:
            filled = fill(root, source, numbers)
        except LookupError as error:
            wrong.append(f"{document}, line {start}: {error.args[0]}")
            return match[0]
        if not write:
            for line in compare_text(match[3], filled):
                place, _, rest = line.removeprefix("line ").partition(":")
                wrong.append(f"{document}, line {start + int(place)}:{rest}")
        return match[1] + filled + match[4]

    return BLOCK.sub(fill_block, text)


def fill(root: Path, source: str, numbers: Numbers) -> str:
    """A run's prose with its numbers."""
    place = Path(source)
    run = place.parent / place.name.partition(".")[0]  # a run may have several files of prose: table2.judge.claims.md
    if run not in numbers:
        raise LookupError(f"made from {source}, but no predictions of that run can be scored")
    prose = (root / source).read_text()
    told = dict(numbers[run]())
    for other, compute in numbers.items():
        if f"{{{other.parent.name} " in prose:
            told |= {f"{other.parent.name} {name}": value for name, value in compute().items()}
    try:
        return prose.format_map(told)
    except KeyError as error:
        raise LookupError(f"{source}: {error} is no number of that run") from None
