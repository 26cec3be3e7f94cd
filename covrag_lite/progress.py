"""Progress of long loops: a bar in a terminal or notebook, otherwise one line at the end."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator

from tqdm.auto import tqdm


def track(
    iterable: Iterable, what: str, unit: str, total: int, done: int = 0, state: Callable[[], str] | None = None
) -> Iterator:
    """Yield every item and show the progress.

    `done` of the `total` steps were made earlier. `state()` returns a text to show, e.g. the loss.
    """
    watched = is_watched()
    start, made = time.perf_counter(), 0
    with tqdm(desc=what, unit=unit, total=total, initial=done, disable=not watched or done == total) as bar:
        for item in iterable:
            yield item
            made += 1
            if state:
                bar.set_postfix_str(state())
            bar.update()
    # A loop that is stopped by an error or an interruption prints no line.
    if made and not watched:
        ending = f", {state()}" if state else ""
        print(f"{what}: {made} × {unit} in {time.perf_counter() - start:.0f} s{ending}", file=sys.stderr)


def is_watched() -> bool:
    """Return whether a progress bar can be redrawn in place: in a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
