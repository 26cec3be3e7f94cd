"""How far a long loop has come: a bar where somebody watches, one line in a log where nobody does."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator

from tqdm.auto import tqdm


def track(
    iterable: Iterable, what: str, unit: str, total: int, done: int = 0, state: Callable[[], str] | None = None
) -> Iterator:
    """Yield every item; `done` of the `total` steps were made earlier, and `state` says where things stand."""
    watched = is_watched()
    start, made = time.perf_counter(), 0
    with tqdm(desc=what, unit=unit, total=total, initial=done, disable=not watched or done == total) as bar:
        for item in iterable:
            yield item
            made += 1
            if state:
                bar.set_postfix_str(state())
            bar.update()
    # An error or an interruption never comes this far, so the line is only written for a loop that ended.
    if made and not watched:
        ending = f", {state()}" if state else ""
        print(f"{what}: {made} × {unit} in {time.perf_counter() - start:.0f} s{ending}", file=sys.stderr)


def is_watched() -> bool:
    """Whether a bar can be redrawn in place: in a terminal, or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
