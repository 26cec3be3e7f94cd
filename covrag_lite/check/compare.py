"""How a recorded text differs from the same text built again."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import zip_longest


def compare_lines(recorded: str, rebuilt: str) -> Iterator[tuple[int, str, str]]:
    """Yield each line that differs: its number, the recorded line and the rebuilt one.

    Where one of them has no such line, the other is compared with "nothing".
    """
    old = recorded.splitlines()
    new = rebuilt.splitlines()
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        pairs = zip_longest(old[old_start:old_end], new[new_start:new_end], fillvalue="nothing")
        for number, (old_line, new_line) in enumerate(pairs, old_start + 1):
            yield number, old_line, new_line


def describe_words(recorded: str, rebuilt: str) -> str:
    """Return the words in which two lines of equal length differ; otherwise both whole lines."""
    old = recorded.split()
    new = rebuilt.split()
    differing = []
    if len(old) == len(new):
        differing = [pair for pair in zip(old, new) if pair[0] != pair[1]]
    pairs = differing or [(recorded, rebuilt)]
    return "; ".join(f"recorded {before}, recomputed {after}" for before, after in pairs)
