"""`covrag html`: the notebooks as pages that need neither Jupyter nor a network.

The pages show the stored outputs. The last cell of the browse notebook, whose output is too large
to be stored, gets its page of all recorded questions. A notebook for a class has cells tagged
`reveal`, which are stored without output: it is executed, and these outputs open with a click.
"""

import argparse
import copy
import difflib
import re
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

import nbformat

from covrag_lite.commands import browse
from covrag_lite.commands.engine import ENCRYPTED
from covrag_lite.commands.messages import Parser, plain_messages
from covrag_lite.config import ROOT, expand_home
from covrag_lite.files import write_text
from covrag_lite.loader import need

PROG = "covrag html"
WITHOUT_OUTPUTS = ("hosted",)  # it starts a run on a rented GPU, and stores no outputs
REVEAL = "reveal"  # the tag of cells whose output a class guesses first
LIVE = "live"  # the tag of cells that need a running kernel, such as a slider
INTERACTIVE = "browse_page.build_page("  # in the cell whose output is not stored
# nbconvert's pages load these from other servers: math, diagrams and widgets, which we do not use.
REMOTE_SCRIPT = re.compile(r'<script[^>]*\bsrc="https?://[^"]*"[^>]*>\s*</script>')
MODULE_SCRIPT = re.compile(r'<script type="module">.*?</script>', re.DOTALL)
MATH_SETTINGS = re.compile(
    r"<!-- MathJax configuration -->.*?<!-- End of mathjax[^>]*-->", re.DOTALL
)
NOTEBOOK_LINK = re.compile(r'href="([\w-]+)\.ipynb(#[^"]*)?"')
INDEX = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>covrag_lite</title>
<style>body {{ font: 16px/1.6 system-ui, sans-serif; max-width: 45em; margin: 2em auto; }}</style>
</head>
<body>
<h1>covrag_lite: the notebooks with their stored results</h1>
<ul>
{items}
</ul>
</body>
</html>
"""


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = build_parser().parse_args(words)
    with plain_messages(PROG):
        folder = expand_home(options.out).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        notebooks = choose_notebooks(options.names)
        titles = {}
        for path in notebooks:
            print(f"{PROG}: {path.stem}", file=sys.stderr)
            notebook = nbformat.read(path, as_version=4)
            titles[path.stem] = title_of(notebook)
            write_text(folder / f"{path.stem}.html", export(notebook, path))
        write_text(folder / "index.html", build_index(titles))
        print(folder / "index.html")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command's arguments."""
    parser = Parser(
        PROG, description="Write the notebooks, with their stored outputs, as standalone pages."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NOTEBOOK", help="names such as lesson; default: all"
    )
    parser.add_argument("--out", default=str(ROOT / "html"), help="a folder; default: %(default)s")
    return parser


def choose_notebooks(names: Sequence[str]) -> list[Path]:
    """Return the notebooks of these names, or all with stored outputs."""
    notebooks = {
        path.stem: path
        for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
        if path.stem not in WITHOUT_OUTPUTS
    }
    if not notebooks:
        raise FileNotFoundError(f"there are no notebooks in {ROOT / 'notebooks'}")
    for name in names:
        if name not in notebooks:
            nearest = difflib.get_close_matches(name, notebooks, n=1, cutoff=0)[0]
            raise ValueError(f"{name!r} is not a notebook with outputs; did you mean {nearest!r}?")
    return [notebooks[name] for name in names] or list(notebooks.values())


def export(notebook: nbformat.NotebookNode, path: Path) -> str:
    """Return a notebook as a page without links to scripts elsewhere."""
    exporter = need("nbconvert").HTMLExporter(template_name="lab", embed_images=True)
    add_interactive_page(notebook)
    add_hidden_outputs(notebook, path)
    resources = {"metadata": {"name": title_of(notebook), "path": str(path.parent)}}
    page, _ = exporter.from_notebook_node(notebook, resources)
    for pattern in (MATH_SETTINGS, REMOTE_SCRIPT, MODULE_SCRIPT):
        page = pattern.sub("", page)
    return NOTEBOOK_LINK.sub(link_page, page)


def add_interactive_page(notebook: nbformat.NotebookNode) -> None:
    """Give the cell that shows all recorded questions its output."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and INTERACTIVE in cell.source and not cell.outputs:
            fragment = browse.build_fragment(browse.find_run(""))
            data = {"text/html": fragment}
            cell.outputs = [nbformat.v4.new_output("display_data", data)]


def add_hidden_outputs(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Execute a notebook that hides outputs, and add these."""
    hidden = [number for number, cell in enumerate(notebook.cells) if is_hidden(cell)]
    if not hidden:
        return
    executed = copy.deepcopy(notebook)
    place = {"metadata": {"path": str(path.parent)}}
    run = need("nbclient").NotebookClient
    run(executed, kernel_name="python3", resources=place, config=ENCRYPTED).execute()
    for number in hidden:
        notebook.cells[number].outputs = executed.cells[number].outputs


def is_hidden(cell: nbformat.NotebookNode) -> bool:
    """Return whether a page needs the output of this cell, which is not stored."""
    tags = cell.metadata.get("tags", [])
    return REVEAL in tags and LIVE not in tags and not cell.outputs


def link_page(match: re.Match) -> str:
    """Return the link to another notebook as a link to its page."""
    name, fragment = match.groups(default="")
    if name in WITHOUT_OUTPUTS:
        return f'href="../notebooks/{name}.ipynb{fragment}"'
    return f'href="{name}.html{fragment}"'


def title_of(notebook: nbformat.NotebookNode) -> str:
    """Return the title of a notebook: the first line of its first cell."""
    return notebook.cells[0].source.partition("\n")[0].lstrip("# ")


def build_index(titles: dict[str, str]) -> str:
    """Return a page that links all others."""
    items = []
    for name, title in titles.items():
        items.append(f'<li><a href="{name}.html">{escape(title)}</a></li>')
    return INDEX.format(items="\n".join(items))
