"""Progress of long loops: a bar in a terminal or notebook, otherwise one line at the end."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from tqdm import std
from tqdm.auto import tqdm

# If this environment variable is set, a notebook writes its bars as text to stderr, where the
# command that runs it reads them. In JupyterLab bars are widgets.
TEXT_BARS = "COVRAG_TEXT_BARS"
TEXT_BAR = {"bar_format": "{desc}: {n_fmt}/{total_fmt} {unit}, {remaining} left{postfix}"}


def track(
    iterable: Iterable,
    what: str,
    unit: str,
    total: int,
    done: int = 0,
    state: Callable[[], str] | None = None,
) -> Iterator:
    """Yield every item and show the progress.

    `done` of the `total` steps were made earlier. `state()` returns a text to show, e.g. the loss.
    """
    watched = is_watched()
    n_items = 0
    start = time.perf_counter()
    is_hidden = not watched or done == total
    is_text = "ipykernel" in sys.modules and bool(os.environ.get(TEXT_BARS))
    new_bar = std.tqdm if is_text else tqdm
    form = TEXT_BAR if is_text else {}
    with (
        new_bar(desc=what, unit=unit, total=total, initial=done, disable=is_hidden, **form) as bar,
        ticking(bar),
    ):
        for item in iterable:
            yield item
            n_items += 1
            if state:
                bar.set_postfix_str(state())
            bar.update()
    # A loop that is stopped by an error or an interruption prints no line.
    if n_items and not watched:
        seconds = time.perf_counter() - start
        ending = f", {state()}" if state else ""
        print(f"{what}: {count(n_items, unit)} in {seconds:.0f} s{ending}", file=sys.stderr)


def count(n: int, noun: str) -> str:
    """Return a number with its noun, such as "3 documents" or "1,200 batches"."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


@contextmanager
def ticking(bar: std.tqdm, seconds: float = 1.0) -> Iterator[None]:
    """Draw a bar again every second in a terminal: its clock shows that a long step runs."""
    stopped = Event()

    def tick() -> None:
        while not stopped.wait(seconds):
            bar.refresh()

    clock = Thread(target=tick, daemon=True)
    if sys.stderr.isatty():
        clock.start()
    try:
        yield
    finally:
        stopped.set()
        if clock.is_alive():
            clock.join()


def is_watched() -> bool:
    """Return whether a progress bar can be redrawn in place: in a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
