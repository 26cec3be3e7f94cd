"""The pages whose numbers come from recorded runs: README.md, those of results/, and the notebooks' prose.

Each page has one template: <page>.template.md beside it, or the key "template" in a notebook cell's metadata. In it
`{folder/table | name}` stands for a fact of that run, by its folder under results/.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from covrag_lite.check.compare import compare_text

FACT = re.compile(r"\{([^{}|]+) \| ([^{}]+)\}")
Facts = Mapping[str, Mapping[str, str]]  # of every run, by its folder and table


def check_pages(root: Path, facts: Facts, write: bool) -> list[str]:
    """Every difference between the pages and their templates filled in; to write puts the latter in place."""
    wrong: list[str] = []
    for template in [*root.glob("*.template.md"), *sorted(root.glob("results/*.template.md"))]:
        page = template.with_name(template.name.replace(".template", ""))
        name = str(page.relative_to(root))
        filled = fill(template.read_text(), facts, name, wrong)
        if write:
            page.write_text(filled)
        wrong += [f"{name}, {line}" for line in compare_text(page.read_text() if page.exists() else "", filled)]
    for path in sorted(root.glob("notebooks/*.ipynb")):
        name = str(path.relative_to(root))
        try:
            notebook = json.loads(path.read_text())
        except ValueError as error:
            wrong.append(f"{name}: not a notebook ({error})")
            continue
        for number, cell in enumerate(notebook["cells"]):
            if "template" in cell.get("metadata", {}):
                place = f"{name}, cell {number}"
                filled = fill("".join(cell["metadata"]["template"]), facts, place, wrong)
                if write:
                    cell["source"] = filled.splitlines(keepends=True)
                wrong += [f"{place}, {line}" for line in compare_text("".join(cell["source"]), filled)]
        if write:
            path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    return wrong


def fill(template: str, facts: Facts, name: str, wrong: list[str]) -> str:
    """A template with its facts; one that is not known stays as it is, and is named."""

    def look_up(match: re.Match) -> str:
        run, fact = match.groups()
        value = facts.get(run, {}).get(fact)
        if value is None:
            line = template[: match.start()].count("\n") + 1
            why = f"{fact!r} is no fact of {run}" if run in facts else f"no run {run} can be scored"
            wrong.append(f"the template of {name}, line {line}: {why}")
        return match[0] if value is None else value

    return FACT.sub(look_up, template)
