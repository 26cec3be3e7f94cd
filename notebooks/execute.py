"""Execute notebooks in place with default parameters and store clean outputs: `make notebooks`.

    python notebooks/execute.py                  # all of them, about 15 minutes on two slow cores
    python notebooks/execute.py table4 figure4   # some of them

Readers on a code host then see tables and figures. What is stored is the same on every run: no
timings, execution counts, progress bars or widget state. Cells tagged `recorded` depend on recorded
runs only, and tests/test_stored_outputs.py compares them; cells tagged `live` show one sample from
the embedded model, whose texts may differ between processors; cells tagged `reveal` are stored
without output, so that a class can guess first.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from covrag_lite.commands.engine import ENCRYPTED

FOLDER = Path(__file__).resolve().parent
WITHOUT_OUTPUTS = {"hosted"}  # starts a whole replication on a rented GPU
RECORDED_ONLY = {
    "train",
    "train_related",
    "speed",
}  # their live cells take half an hour, or measure time
FIRST = ("table2",)  # the other tables reuse what it writes to the journal
KEPT_METADATA = {"tags", "template"}
WIDGET = "application/vnd.jupyter.widget-view+json"
TIMED_LINE = re.compile(r"^cost: .*\n?", re.MULTILINE)  # seconds and tokens of this very run


def execute(path: Path) -> None:
    """Run one notebook from the project's root and replace its outputs."""
    notebook = nbformat.read(path, as_version=4)
    sources = [cell.source for cell in notebook.cells]
    for cell in notebook.cells:
        if path.stem in RECORDED_ONLY and "live" in cell.metadata.get("tags", []):
            cell.source = ""
    resources = {"metadata": {"path": str(FOLDER.parent)}}
    client = NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources=resources, config=ENCRYPTED
    )
    client.execute()
    for cell, source in zip(notebook.cells, sources):
        cell.source = source
    clean(notebook)
    path.write_text(
        nbformat.writes(notebook, indent=1, ensure_ascii=False).rstrip("\n") + "\n",
        encoding="utf-8",
    )


def clean(notebook: nbformat.NotebookNode) -> None:
    """Remove from a notebook everything that differs between two runs of the same code."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": kernel, "language_info": {"name": "python"}}
    )
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {
            name: value for name, value in cell.metadata.items() if name in KEPT_METADATA
        }
        if cell.cell_type == "code":
            cell.execution_count = None
            hidden = "reveal" in cell.metadata.get("tags", [])
            outputs = [output for output in map(clean_output, cell.outputs) if output]
            cell.outputs = [] if hidden else join_prints(outputs)


def join_prints(outputs: Sequence[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Outputs in which printed text is in one piece: a kernel splits it at random."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        if joined and output.output_type == joined[-1].output_type == "stream":
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def clean_output(output: nbformat.NotebookNode) -> nbformat.NotebookNode | None:
    """Return an output without counts, timings and local paths; None for progress and widgets."""
    if output.output_type == "stream":
        output.text = TIMED_LINE.sub("", output.text).replace(f"{FOLDER.parent}/", "")
        return output if output.name == "stdout" and output.text.strip() else None
    if WIDGET in output.get("data", {}):
        return None
    if output.output_type == "execute_result":
        output.execution_count = None
    return output


def main(names: Sequence[str]) -> None:
    """Execute the named notebooks, or all that store outputs."""
    paths = {
        path.stem: path
        for path in sorted(FOLDER.glob("*.ipynb"))
        if path.stem not in WITHOUT_OUTPUTS
    }
    unknown = set(names) - set(paths)
    if unknown:
        sys.exit(
            f"notebooks/execute.py: {', '.join(unknown)} not found; use some of {', '.join(paths)}"
        )
    for name in sorted(names or paths, key=lambda name: (name not in FIRST, name)):
        print(f"executing {name}", flush=True)
        execute(paths[name])


if __name__ == "__main__":
    main(sys.argv[1:])
