"""The commands of this package: `covrag`, and a `papermill` that needs no output path.

Without an output path, papermill itself stops or waits for standard input. Here
`papermill notebooks/table2.ipynb` writes the executed copy to runs/executed/table2.ipynb.
"""

import builtins
import difflib
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from covrag_lite.config import ROOT

USAGE = """usage:
  covrag <notebook> [-p <parameter> <value> ...]  run a notebook; the copy goes to runs/executed/
  covrag replicate <backbone> [...]               run the whole replication on one backbone
                                                  (covrag replicate --help lists the options)
  covrag check [--write]                          compute every recorded number again and compare
notebooks: """
MODULES = {"replicate": "covrag_lite.replication", "check": "covrag_lite.check"}
CAUSED = (ValueError, OSError, MemoryError)  # errors that a user can cause: no traceback is shown
OURS = ("ParameterError", "SearchError", "EndpointError")  # the same for these


def covrag() -> None:
    """Run a notebook or a module by its name; an unknown name gives one sentence and status 2."""
    notebooks = {file.stem: file for file in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    word, words = next(iter(sys.argv[1:]), "--help"), sys.argv[2:]
    if word in notebooks:
        papermill([str(notebooks[word]), *words], "covrag")
    elif word in MODULES:
        sys.argv[0] = f"covrag {word}"  # argparse begins its messages with this name
        import_module(MODULES[word]).main(words)
    elif word in ("-h", "--help"):
        none = "none here; install from a clone with pip install --editable ."
        print(USAGE + (", ".join(notebooks) or none))
    else:
        near = difflib.get_close_matches(word, [*MODULES, *notebooks], n=1, cutoff=0) or ["--help"]
        message = f"covrag: {word!r} is not known; did you mean {near[0]!r}?"
        print(f"{message} (covrag --help lists all)", file=sys.stderr)
        sys.exit(2)


def papermill(words: Sequence[str] | None = None, name: str = "papermill") -> None:
    """Run papermill, with an output path added if none is given; messages begin with `name`."""
    # jsonschema would load a grammar for web addresses: 3 seconds on a slow core, for nothing.
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
