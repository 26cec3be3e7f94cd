"""The command `covrag` and its parts, and a `papermill` that needs no output path.

`covrag --help` lists everything: the commands, one module each, and the notebooks by their names.
"""

import difflib
import json
import sys
from importlib import import_module
from pathlib import Path

from covrag_lite.commands.notebook import papermill, run_notebook
from covrag_lite.config import ROOT

__all__ = ["covrag", "papermill"]

# Name -> the module with its `main(words)`, and one line for --help.
COMMANDS = {
    "ask": ("covrag_lite.commands.ask", "answer questions from a folder of your own documents"),
    "eval": ("covrag_lite.commands.evaluate", "test systems on a folder with questions.csv"),
    "browse": ("covrag_lite.commands.browse", "write a page with every question of a run"),
    "html": ("covrag_lite.commands.html", "write the notebooks as pages that need no Jupyter"),
    "export": ("covrag_lite.commands.export", "write adapters with model cards for the hub"),
    "replicate": ("covrag_lite.replication.__main__", "run the whole replication on one backbone"),
    "check": ("covrag_lite.check.__main__", "compute every recorded number again and compare"),
}
USAGE = """usage: covrag COMMAND ...      (covrag COMMAND --help lists its options)
       covrag NOTEBOOK [-p PARAMETER VALUE ...]

commands:
{commands}

notebooks (the executed copy goes to runs/executed/):
{notebooks}
"""
NO_NOTEBOOKS = "  none here; install from a clone with pip install --editable ."


def covrag() -> None:
    """Run a command or a notebook by its name; an unknown name gives one sentence and status 2."""
    files = sorted((ROOT / "notebooks").glob("*.ipynb"))
    notebooks = {file.stem: file for file in files if file.stem not in COMMANDS}
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    words = sys.argv[2:]
    if name in COMMANDS:
        module, _ = COMMANDS[name]
        sys.argv[0] = f"covrag {name}"  # argparse begins its messages with this name
        import_module(module).main(words)
    elif name in notebooks:
        run_notebook([str(notebooks[name]), *words], f"covrag {name}")
    elif name in ("-h", "--help"):
        print(describe_commands(notebooks), end="")
    else:
        names = [*COMMANDS, *notebooks]
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0) or ["--help"]
        message = f"covrag: {name!r} is not known; did you mean {nearest[0]!r}?"
        print(f"{message} (covrag --help lists all)", file=sys.stderr)
        sys.exit(2)


def describe_commands(notebooks: dict[str, Path]) -> str:
    """Return the text of --help: one line per command and per notebook."""
    commands = [f"  {name:<18}{line}" for name, (_, line) in COMMANDS.items()]
    titles = [f"  {name:<18}{read_title(path)}" for name, path in notebooks.items()]
    return USAGE.format(commands="\n".join(commands), notebooks="\n".join(titles) or NO_NOTEBOOKS)


def read_title(notebook: Path) -> str:
    """Return the title of a notebook: the first line of its first cell."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "".join(cells[0]["source"]).partition("\n")[0].lstrip("# ")
