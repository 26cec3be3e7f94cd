"""Plain text for a terminal: paragraphs, lists of passages, and tables whose cells wrap."""

import re
import shutil
import textwrap
from collections.abc import Sequence

NARROWEST = 80
WIDEST = 120
UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"
SHORT = 10  # a column of this width or less is never wrapped
LONG_WORD = 24  # a longer word, such as the name of a file, may be broken
GAP = "  "  # between the columns of a table


def screen_width() -> int:
    """Return the columns to use: those of the terminal, within limits that read well."""
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((NARROWEST, 24)).columns)) - 1


def clean(text: str) -> str:
    """Return a text on one line, without characters that would control the terminal."""
    letters = [c if c.isprintable() or c.isspace() else UNPRINTABLE for c in text]
    return " ".join("".join(letters).split())


def paragraph(text: str, indent: str = "", first: str | None = None) -> str:
    """Return a text in lines that fit; `first` begins the first line instead of the indent."""
    return textwrap.fill(
        clean(text),
        screen_width(),
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def separate_citations(answer: str) -> str:
    """Return an answer with a space before each citation: "19 euros[2]" becomes "19 euros [2]"."""
    return re.sub(r"\s*(\[\d+\])", r" \1", answer).strip()


def table(header: Sequence[str], rows: Sequence[Sequence[str]], shares: Sequence[int]) -> str:
    """Return a table whose cells wrap; `shares` divide the width among the columns.

    A column gets no more than it needs, and the others share the rest.
    """
    cells = [[clean(cell) for cell in row] for row in [header, *rows]]
    widths = divide_width(cells, shares)
    rule = GAP.join("-" * width for width in widths)
    lines = [*wrap_row(cells[0], widths), rule]
    for row in cells[1:]:
        wrapped = wrap_row(row, widths)
        lines += wrapped
        if any(len(wrap_row(other, widths)) > 1 for other in cells[1:]):
            lines.append("")
    return "\n".join(lines).rstrip()


def divide_width(cells: Sequence[Sequence[str]], shares: Sequence[int]) -> list[int]:
    """Return the width of each column."""
    needed = [max(map(len, column)) for column in zip(*cells)]
    room = screen_width() - len(GAP) * (len(needed) - 1)
    widths = [width if width <= SHORT else 0 for width in needed]
    room -= sum(widths)
    waiting = {i for i, width in enumerate(widths) if width == 0}
    while waiting:
        unit = room / sum(shares[i] for i in waiting)
        satisfied = {i for i in waiting if needed[i] <= shares[i] * unit}
        for i in satisfied or waiting:
            widths[i] = needed[i] if satisfied else int(shares[i] * unit)
        if not satisfied:
            break
        room -= sum(needed[i] for i in satisfied)
        waiting -= satisfied
    return keep_words(widths, cells)


def keep_words(widths: Sequence[int], cells: Sequence[Sequence[str]]) -> list[int]:
    """Widen columns that would break a word, at the cost of the widest ones."""
    words = [[word for cell in column for word in cell.split()] for column in zip(*cells)]
    least = [max((min(len(word), LONG_WORD) for word in column), default=0) for column in words]
    kept = list(widths)
    for i, width in enumerate(least):
        while kept[i] < width:
            spare = [kept[other] - least[other] for other in range(len(kept))]
            widest = spare.index(max(spare))
            if spare[widest] <= 0:
                break
            kept[widest] -= 1
            kept[i] += 1
    return kept


def wrap_row(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Return the lines of one row."""
    columns = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths)]
    height = max(map(len, columns))
    lines = []
    for number in range(height):
        parts = [
            (column[number] if number < len(column) else "").ljust(width)
            for column, width in zip(columns, widths)
        ]
        lines.append(GAP.join(parts).rstrip())
    return lines
