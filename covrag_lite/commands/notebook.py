"""Run a notebook with papermill, so that a mistake never costs the last good copy.

Without an output path, papermill itself stops or waits for standard input. Here
`papermill notebooks/table2.ipynb` writes the executed copy to runs/executed/table2.ipynb.
Parameters are checked before the kernel starts. The run writes to a file of its own, which takes
the name of the copy at the end; a failed run leaves `<name>.failed.ipynb` next to it.
"""

import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from covrag_lite.commands.messages import (
    INTERRUPTED_STATUS,
    describe_error,
    fail,
    is_caused,
)
from covrag_lite.config import ROOT, Config, from_notebook
from covrag_lite.files import explained
from covrag_lite.loader import need
from covrag_lite.systems import find_system

# A notebook reads its parameters with one of these functions: line in a cell -> its module.
PARAMETER_READERS = {
    "from covrag_lite.config import": "covrag_lite.config",
    "from benchmarks.options import": "benchmarks.options",
}


def papermill() -> None:
    """Run papermill's own command."""
    run_notebook(sys.argv[1:], "papermill")


def run_notebook(words: Sequence[str], command_name: str) -> None:
    """Run papermill with these arguments; messages begin with the command that was typed."""
    # jsonschema would load a grammar for web addresses: 3 seconds on a slow core, for nothing.
    sys.modules.setdefault("rfc3987_syntax", None)
    from papermill.cli import papermill as command

    words = list(words)
    options = command.make_context(command_name, list(words), resilient_parsing=True).params
    notebook = options.get("notebook_path")
    if not notebook or options.get("help_notebook") or not Path(notebook).is_file():
        command.main(args=words, prog_name=command_name)
        return
    checked = check_parameters(Path(notebook), options, command_name)
    given_output = options.get("output_path")
    if given_output and not is_local_file(given_output):
        command.main(args=words, prog_name=command_name)
        return
    output = Path(given_output or ROOT / "runs" / "executed" / Path(notebook).name)
    running = output.with_name(f"{output.stem}.running-{os.getpid()}.ipynb")
    if given_output:
        place = words.index(given_output, words.index(notebook) + 1)
        words[place] = str(running)
    else:
        words.insert(words.index(notebook) + 1, str(running))
    if not options.get("engine"):
        from covrag_lite.commands import engine

        words += ["--engine", engine.register()]
    prepare_output(running, output, command_name)
    try:
        with tidy_log(running, output, checked):
            execute(command, words, command_name, running, output)
    finally:
        running.unlink(missing_ok=True)


def is_local_file(path: str) -> bool:
    """Return whether papermill writes to a file here: not to standard output or an address."""
    return path != "-" and "://" not in path


def check_parameters(notebook: Path, options: dict[str, Any], command_name: str) -> bool:
    """Stop at an unknown parameter or a wrong type before the kernel starts.

    The value says whether the parameters were checked: those of other projects are not.
    """
    from papermill.cli import _resolve_type

    values = {name: _resolve_type(value) for name, value in options.get("parameters") or ()}
    values |= dict(options.get("parameters_raw") or ())
    if not values:
        return False
    text = notebook.read_text(encoding="utf-8")
    modules = [
        module
        for line, module in PARAMETER_READERS.items()
        if line in text and is_reader(line, text)
    ]
    if not modules:  # a notebook of another project, or one with parameters of its own
        return False
    try:
        read_parameters = from_notebook
        if modules[0] != "covrag_lite.config":
            read_parameters = need(modules[0]).from_notebook
        parameters = read_parameters(values)
        if isinstance(parameters, Config):
            check_systems(parameters)
    except ValueError as error:
        fail(command_name, str(error))
    return True


def check_systems(config: Config) -> None:
    """Raise an error if a parameter names a system that does not exist."""
    for name in (*config.chain.systems, *config.related.related_systems):
        find_system(name)


def is_reader(line: str, text: str) -> bool:
    """Return whether a notebook's import line with this beginning names `from_notebook`."""
    start = text.index(line)
    return "from_notebook" in text[start:].partition("\\n")[0]


def prepare_output(running: Path, output: Path, command_name: str) -> None:
    """Create the folder and an empty file for the run, so that a full path fails at once."""
    try:
        if output.is_dir():
            raise IsADirectoryError(0, "it is a folder", str(output))
        output.parent.mkdir(parents=True, exist_ok=True)
        running.touch()
    except OSError as error:
        cure = "give another path after the notebook's name"
        reason = error.strerror or "no such folder"
        fail(command_name, f"the executed copy {output} cannot be written: {reason}; {cure}")


def execute(
    command: Any, words: Sequence[str], command_name: str, running: Path, output: Path
) -> None:
    """Run papermill; the copy of a successful run gets its name, that of a failed run another."""
    import click
    from papermill.exceptions import PapermillExecutionError

    try:
        with explained(output):
            command.main(args=list(words), prog_name=command_name, standalone_mode=False)
            if running.stat().st_size:
                write_output_path(running, output)
                running.replace(output)
                print(f"executed copy: {output}", file=sys.stderr)
    except click.ClickException as error:  # such as an unknown option
        error.show()
        sys.exit(error.exit_code)
    except PapermillExecutionError as error:
        traceback_place = describe_failed(running, output)
        if not is_caused(error.ename):
            print(f"{command_name}: {traceback_place}", file=sys.stderr)
            raise
        fail(command_name, f"{error.evalue}\n({traceback_place})", status=1)
    except OSError as error:
        fail(command_name, f"{describe_error(error)} ({describe_failed(running, output)})")
    except (KeyboardInterrupt, click.Abort):
        fail(command_name, f"interrupted ({describe_failed(running, output)})", INTERRUPTED_STATUS)


def describe_failed(running: Path, output: Path) -> str:
    """Keep the copy of a failed run next to the last good copy, and return where both are."""
    if not running.exists() or running.stat().st_size == 0:
        return "no cell has run"
    failed = output.with_name(f"{output.stem}.failed.ipynb")
    running.replace(failed)
    last_good = f"; {output} is unchanged" if output.exists() else ""
    return f"the failed copy is {failed}{last_good}"


def write_output_path(running: Path, output: Path) -> None:
    """Replace the temporary path in the metadata that papermill writes."""
    notebook = json.loads(running.read_text(encoding="utf-8"))
    notebook["metadata"].get("papermill", {})["output_path"] = str(output)
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    running.write_text(text + "\n", encoding="utf-8")


@contextmanager
def tidy_log(running: Path, output: Path, checked: bool) -> Iterator[None]:
    """Let papermill's log name the copy, not the temporary file, and write nothing into its bar.

    If the parameters were checked, papermill does not call those unknown that no cell sets.
    """
    hidden = ("Executing notebook", "Passed unknown parameter")[: 1 + checked]

    def tidy(record: logging.LogRecord) -> bool:
        record.msg = str(record.msg).replace(running.name, output.name)
        return not record.msg.startswith(hidden)

    log = logging.getLogger("papermill")
    log.addFilter(tidy)
    try:
        yield
    finally:
        log.removeFilter(tidy)
