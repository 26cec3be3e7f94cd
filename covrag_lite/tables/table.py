"""A table or figure: its rows, notes, facts and pictures, and the files that it is saved to."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from covrag_lite.files import write_text

Plot = Callable[[Path], object]  # draws into a file


@dataclass(frozen=True)
class Table:
    """A table or figure, ready to be shown and saved.

    Files are named after the table, with an end such as "csv" or "facts.json".

        >>> rows = pd.DataFrame({"system": ["RAG"], "value": [50.0]})
        >>> sorted(Table("demo", rows, {"Accuracy": rows}).files)
        ['csv', 'md']
    """

    name: str
    rows: pd.DataFrame  # the long form, one value per row
    parts: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # as people read it, by heading
    notes: Sequence[str] = ()  # shown below it
    # Numbers that prose may use, as it writes them.
    facts: Mapping[str, str] = field(default_factory=dict)
    plots: Mapping[str, Plot] = field(default_factory=dict)  # pictures by the ends of their files
    other_files: Mapping[str, str] = field(default_factory=dict)  # texts by the ends of their files
    digits: int | None = 2  # of the CSV file's values; None writes them as they are

    @property
    def text(self) -> str:
        """Parts and notes as Markdown."""
        texts = [f"{heading}\n\n{to_markdown(part)}" for heading, part in self.parts.items()]
        texts.append("\n".join(f"- {line}" for line in self.notes))
        return "\n\n".join(texts) + "\n"

    def part(self, words: str) -> pd.DataFrame:
        """Return the first part whose heading has these words."""
        return next(part for heading, part in self.parts.items() if words in heading)

    @property
    def files(self) -> dict[str, str]:
        """The text files of this table, by the ends of their names."""
        texts = dict(self.other_files)
        if len(self.rows):
            form = None if self.digits is None else f"%.{self.digits}f"
            texts["csv"] = self.rows.to_csv(index=False, float_format=form, lineterminator="\n")
        if self.parts:
            texts["md"] = self.text
        if self.facts:
            texts["facts.json"] = json.dumps(dict(self.facts), indent=0, ensure_ascii=False) + "\n"
        return texts

    def save(self, folder: Path, draw: bool = True) -> str:
        """Write the text files and, if `draw` is true, the pictures; return the Markdown text."""
        folder.mkdir(parents=True, exist_ok=True)
        for end, text in self.files.items():
            write_text(folder / f"{self.name}.{end}", text)
        if draw:
            for end, plot in self.plots.items():
                plot(folder / f"{self.name}.{end}")
        return self.text


def to_markdown(frame: pd.DataFrame) -> str:
    """Return a frame as an aligned Markdown table."""
    rows = [[str(name) for name in frame.columns]]
    for row in frame.itertuples(index=False):
        rows.append([str(value) for value in row])
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        lines.append(f"| {' | '.join(cells)} |")
    rule = "|".join("-" * (width + 2) for width in widths)
    lines.insert(1, f"|{rule}|")
    return "\n".join(lines)
