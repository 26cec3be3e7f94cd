"""`covrag browse [RUN]`: a page with every question of a run, step by step, also of own runs."""

import argparse
import difflib
import html
import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from covrag_lite.commands.messages import Parser, plain_messages
from covrag_lite.config import ROOT, Config, expand_home
from covrag_lite.files import write_text
from covrag_lite.runs.frame import to_frame
from covrag_lite.runs.recorded import (
    DataChanged,
    Recorded,
    choose,
    describe_run,
    find_in,
    load_or_outcomes,
)

PROG = "covrag browse"
PLACES = ("figures", "results", "runs")  # folders of the clone that contain runs
PREFERRED = ("table2", "claim")  # tables whose predictions are shown, if a folder has several
DOCUMENT = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>:root {{ --browse-height: max(420px, calc(100vh - 165px)); }}</style></head>
<body>
{page}
</body>
</html>
"""


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = build_parser().parse_args(words)
    with plain_messages(PROG):
        run = find_run(options.run)
        output = Path(options.out) if options.out else default_output(run)
        page = build_page(run)
        output.parent.mkdir(parents=True, exist_ok=True)
        write_text(output, page)
        print(f"{output.resolve()}: {describe(run)}")
        if not options.no_open and has_screen():
            webbrowser.open(output.resolve().as_uri())


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command's arguments."""
    parser = Parser(
        PROG, description="Write a page with every question of a run, and open it in a browser."
    )
    parser.add_argument(
        "run",
        nargs="?",
        default="",
        metavar="RUN",
        help="the name of a run, such as that of covrag eval, or its folder; default: the recorded "
        "run of the shipped adapters",
    )
    parser.add_argument(
        "--out", default="", help="the file to write; default: html/browse-RUN.html"
    )
    parser.add_argument("--no-open", action="store_true", help="only write the page")
    return parser


def find_run(name: str, root: Path = ROOT) -> Recorded:
    """Find a run by its name or folder; an empty name is the recorded run of the defaults."""
    if not name:
        run = choose(Config(), root)
        if run is None:
            raise FileNotFoundError(f"{root / 'results'} has no recorded run; name one")
        return run
    candidates = [expand_home(name), *(root / place / name for place in PLACES)]
    folders = [folder.resolve() for folder in candidates if folder.is_dir()]
    for folder in folders:
        runs = [run for run in runs_in(folder) if run.predictions().exists()]
        if runs:
            return min(runs, key=preference)
    names = list_runs(root)
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    problem = "has no recorded answers" if folders else "is not a run"
    raise FileNotFoundError(f"{name!r} {problem}{hint}")


def runs_in(folder: Path) -> list[Recorded]:
    """Return the runs that lie directly in a folder, which may be outside of the clone."""
    root = ROOT if folder.is_relative_to(ROOT) else folder.parent
    return find_in(folder, root)


def preference(run: Recorded) -> tuple[int, str]:
    """Return a key that sorts the runs of a folder: those with answers of many systems first."""
    rank = PREFERRED.index(run.table) if run.table in PREFERRED else len(PREFERRED)
    return rank, run.table


def list_runs(root: Path) -> list[str]:
    """Return the names of all runs in the clone whose answers were recorded."""
    names = []
    for place in PLACES:
        for file in sorted((root / place).glob("**/*.predictions.jsonl.xz")):
            names.append(file.parent.relative_to(root / place).as_posix())
    return list(dict.fromkeys(names))


def default_output(run: Recorded, root: Path = ROOT) -> Path:
    """Return the file of a run's page: html/browse-<run>.html, in the clone."""
    parts = run.folder.relative_to(run.root).parts
    name = "-".join(parts[1:] if parts[0] in PLACES else parts)
    return root / "html" / f"browse-{name}.html"


def describe(run: Recorded) -> str:
    """Return what a page shows, in one sentence; also its title."""
    return f"{run.table}, {describe_run(run)}"


def build_page(run: Recorded) -> str:
    """Return the page of a run as a document of its own."""
    title = html.escape(describe(run))
    return DOCUMENT.format(title=title, page=build_fragment(run))


def build_fragment(run: Recorded) -> str:
    """Return the page of a run as a part of a document."""
    from covrag_lite.tables.browse_page import build_page as build_interactive

    try:
        predictions = load_or_outcomes(run)
    except DataChanged as error:
        changed = error.args[0].partition(":")[0]
        raise ValueError(
            f"the {changed} of {run.folder} have changed since the run; run it again, for example "
            f"with covrag eval {run.config.data.data} --name {run.folder.name}"
        ) from None
    return build_interactive(predictions, to_frame(predictions), describe(run))


def has_screen() -> bool:
    """Return whether a browser can open a window; a text browser would take the terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
