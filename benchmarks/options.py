"""Lists on a command line, checked where they are read, so that a slip of the pen ends in a sentence."""

import argparse
from collections.abc import Callable, Collection


def some_of(known: Collection[str], separator: str = ",") -> Callable[[str], list[str]]:
    """A reader of names that must be known."""

    def read(text: str) -> list[str]:
        names = [name.strip() for name in text.split(separator)]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not known; use some of {f'{separator} '.join(known)}")
        return names

    return read


def numbers(kind: type[int] | type[float]) -> Callable[[str], list]:
    """A reader of numbers above 0."""

    def read(text: str) -> list:
        try:
            made = [kind(part) for part in text.split(",")]
        except ValueError:
            made = []
        if not made or min(made) <= 0:
            whole = "whole numbers" if kind is int else "numbers"
            raise argparse.ArgumentTypeError(f"{text!r} is not understood; give {whole} above 0, joined by commas")
        return made

    return read


def pairs(text: str) -> dict[str, str]:
    """Values by their names, as name=value joined by commas."""
    parts = [part.partition("=") for part in text.split(",") if part]
    if not all(name and value for name, _, value in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not understood; give name=value, joined by commas")
    return {name: value for name, _, value in parts}
