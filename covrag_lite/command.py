"""The `papermill` command of this environment: papermill's own, except that the output path may be left out.

Papermill refuses a missing output path on a terminal, and without one takes the notebook for an output and waits for
standard input. Here `papermill notebooks/table2.ipynb` writes the executed copy to runs/executed/table2.ipynb.
"""

import sys
from pathlib import Path

from covrag_lite.config import ROOT


def papermill() -> None:
    """Run papermill, with an output path put in where only a notebook was given."""
    # jsonschema would load a grammar of web addresses, which takes 3 seconds of a slow core and checks nothing here.
    sys.modules.setdefault("rfc3987_syntax", None)
    from papermill.cli import papermill as command

    words = sys.argv[1:]
    given = command.make_context("papermill", list(words), resilient_parsing=True).params
    notebook = given.get("notebook_path")
    if notebook and not given.get("output_path") and not given.get("help_notebook") and Path(notebook).is_file():
        output = ROOT / "runs" / "executed" / Path(notebook).name
        output.parent.mkdir(parents=True, exist_ok=True)
        words.insert(words.index(notebook) + 1, str(output))
        print(f"executed copy: {output}", file=sys.stderr)
    command.main(args=words, prog_name="papermill")
