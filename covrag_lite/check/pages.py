"""Pages with numbers: each is filled from its template and compared.

The template of a page is <page>.template.md next to it; that of a notebook cell is under the key
"template" of its metadata. There, `{folder/table | name}` is replaced by a fact of that run under
results/, and `{paper/table2 | row column}` by a number of the paper.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from covrag_lite.check.compare import compare_lines, describe_words
from covrag_lite.files import write_json, write_text

FACT = re.compile(r"\{([^{}|]+) \| ([^{}]+)\}")
Facts = Mapping[str, Mapping[str, str]]  # of every run, by its folder and table


def check_pages(root: Path, facts: Facts, write: bool) -> list[str]:
    """List the differences between pages and filled templates; `write` replaces the pages."""
    differences = []
    for template in [*root.glob("*.template.md"), *sorted(root.glob("results/*.template.md"))]:
        differences += check_page(root, template, facts, write)
    for notebook in sorted(root.glob("notebooks/*.ipynb")):
        differences += check_notebook(root, notebook, facts, write)
    return differences


def check_page(root: Path, template: Path, facts: Facts, write: bool) -> list[str]:
    """Compare one page with its template, or replace it."""
    page = template.with_name(template.name.replace(".template", ""))
    name = str(page.relative_to(root))
    filled, differences = fill(template.read_text(), facts, name)
    if write:
        write_text(page, filled)
        return differences
    recorded = page.read_text() if page.exists() else ""
    return differences + describe_lines(name, recorded, filled)


def check_notebook(root: Path, path: Path, facts: Facts, write: bool) -> list[str]:
    """Compare the cells of a notebook that have templates, or replace them."""
    notebook = json.loads(path.read_text())
    differences = []
    for number, cell in enumerate(notebook["cells"]):
        template = cell.get("metadata", {}).get("template")
        if template is None:
            continue
        name = f"{path.relative_to(root)}, cell {number}"
        filled, unknown = fill("".join(template), facts, name)
        differences += unknown
        if not write:
            differences += describe_lines(name, "".join(cell["source"]), filled)
        cell["source"] = filled.splitlines(keepends=True)
    if write:
        write_json(path, notebook)
    return differences


def fill(template: str, facts: Facts, name: str) -> tuple[str, list[str]]:
    """Fill a template with facts; an unknown fact stays as it is, and a sentence names it."""
    unknown = []

    def look_up(match: re.Match) -> str:
        run, fact = match.groups()
        if fact in facts.get(run, {}):
            return facts[run][fact]
        unknown.append(f"the template of {name}: {match[0]} is not a fact of a recorded run")
        return match[0]

    return FACT.sub(look_up, template), unknown


def describe_lines(name: str, recorded: str, filled: str) -> list[str]:
    """Describe the lines of a page that differ from its filled template."""
    sentences = []
    for number, old_line, new_line in compare_lines(recorded, filled):
        sentences.append(f"{name}, line {number}: {describe_words(old_line, new_line)}")
    return sentences
