"""Tables and figures, one module each: `build` gives rows, notes, facts and a picture of what was recorded."""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pandas as pd

from covrag_lite.runs.recorded import Recorded, load_or_outcomes

OWN = ("table2", "table3", "table4", "table5", "table6", "sigma", "claim", "mixture")
# Made from one recorded run each: build(load_basis(run), run).
TABLES = {name: f"covrag_lite.tables.{name}" for name in OWN} | {"related": "covrag_lite.related.table"}
Plot = Callable[[Path], object]  # draws into a file


@dataclass(frozen=True)
class Table:
    """A table or figure, ready to be shown and saved."""

    name: str
    rows: pd.DataFrame  # the long form, one value a row
    parts: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # as people read it, by heading
    notes: Sequence[str] = ()  # shown below it
    facts: Mapping[str, str] = field(default_factory=dict)  # numbers that prose may use, as it writes them
    plots: Mapping[str, Plot] = field(default_factory=dict)  # pictures by the ends of their files
    other_files: Mapping[str, str] = field(default_factory=dict)  # texts by the ends of their files
    digits: int | None = 2  # of the CSV file's values; None writes them as they are

    @property
    def text(self) -> str:
        """Parts and notes as Markdown."""
        texts = [f"{heading}\n\n{to_markdown(part)}" for heading, part in self.parts.items()]
        return "\n\n".join([*texts, "\n".join(f"- {line}" for line in self.notes)]) + "\n"

    def part(self, words: str) -> pd.DataFrame:
        """The first part whose heading has these words."""
        return next(part for heading, part in self.parts.items() if words in heading)

    @property
    def files(self) -> dict[str, str]:
        """The text files of this table, by the ends of their names."""
        made, form = dict(self.other_files), None if self.digits is None else f"%.{self.digits}f"
        if len(self.rows):
            made["csv"] = self.rows.to_csv(index=False, float_format=form, lineterminator="\n")
        if self.parts:
            made["md"] = self.text
        if self.facts:
            made["facts.json"] = json.dumps(dict(self.facts), indent=0, ensure_ascii=False) + "\n"
        return made

    def save(self, folder: Path, draw: bool = True) -> str:
        """Write `<name>.csv`, `.md`, `.facts.json` and, to draw, `.png`; returns the Markdown text."""
        folder.mkdir(parents=True, exist_ok=True)
        for end, text in self.files.items():
            (folder / f"{self.name}.{end}").write_text(text)
        for end, plot in self.plots.items() if draw else ():
            plot(folder / f"{self.name}.{end}")
        return self.text


def find_table(name: str) -> ModuleType:
    """The module that builds a table."""
    return importlib.import_module(TABLES[name])


def load_basis(run: Recorded) -> object:
    """What a run's table is made from: by its module's own `load`, else the predictions."""
    return getattr(find_table(run.table), "load", load_or_outcomes)(run)


def to_markdown(frame: pd.DataFrame) -> str:
    """A frame as an aligned Markdown table."""
    cells = [[str(name) for name in frame.columns]]
    cells += [[str(value) for value in row] for row in frame.itertuples(index=False)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])
