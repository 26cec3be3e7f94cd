"""The commands of this environment: `covrag`, and `papermill` without the need of an output path.

Papermill refuses a missing output path on a terminal, and without one takes the notebook for an output and waits for
standard input. Here `papermill notebooks/table2.ipynb` writes the executed copy to runs/executed/table2.ipynb.
"""

import builtins
import difflib
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from covrag_lite.config import ROOT

USAGE = """usage: covrag <notebook> [-p <parameter> <value> ...]   run it; the executed copy goes to runs/executed/
       covrag replicate <backbone> [...]              everything on one backbone (--help tells more)
       covrag check [--write]                         whether every recorded number follows from what was recorded
notebooks: """
MODULES = {"replicate": "covrag_lite.replication", "check": "covrag_lite.check"}
CAUSED = (ValueError, OSError, MemoryError)  # errors that a user can cause, told in a sentence
OURS = ("ParameterError", "SearchError", "EndpointError")  # so are these


def covrag() -> None:
    """Run a notebook or a module by its name; an unknown word ends in a sentence and status 2."""
    notebooks = {file.stem: file for file in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    word, words = next(iter(sys.argv[1:]), "--help"), sys.argv[2:]
    if word in notebooks:
        papermill([str(notebooks[word]), *words], "covrag")
    elif word in MODULES:
        sys.argv[0] = f"covrag {word}"  # argparse begins its messages with this name
        import_module(MODULES[word]).main(words)
    elif word in ("-h", "--help"):
        print(USAGE + (", ".join(notebooks) or "none here; install from a clone with pip install --editable ."))
    else:
        near = difflib.get_close_matches(word, [*MODULES, *notebooks], n=1, cutoff=0) or ["--help"]
        print(f"covrag: {word!r} is not known; did you mean {near[0]!r}? (covrag --help tells all)", file=sys.stderr)
        sys.exit(2)


def papermill(words: Sequence[str] | None = None, name: str = "papermill") -> None:
    """Run papermill and add an output path if only a notebook was given; messages begin with `name`."""
    # jsonschema would load a grammar of web addresses, which takes 3 seconds of a slow core and checks nothing here.
    sys.modules.setdefault("rfc3987_syntax", None)
    from papermill.cli import papermill as command
    from papermill.exceptions import PapermillExecutionError

    words = list(sys.argv[1:] if words is None else words)
    given = command.make_context("papermill", list(words), resilient_parsing=True).params
    notebook = given.get("notebook_path")
    if notebook and not given.get("output_path") and not given.get("help_notebook") and Path(notebook).is_file():
        output = ROOT / "runs" / "executed" / Path(notebook).name
        output.parent.mkdir(parents=True, exist_ok=True)
        words.insert(words.index(notebook) + 1, str(output))
        print(f"executed copy: {output}", file=sys.stderr)
    try:
        command.main(args=words, prog_name=name)
    except PapermillExecutionError as error:
        if error.ename not in OURS and not issubclass(getattr(builtins, error.ename, Exception), CAUSED):
            raise
        sys.exit(f"{name}: {error.evalue}\n(the executed copy has the traceback)")
