"""The verdict's schema as a grammar, for transformers' `generate`: which tokens may come next.

`inference.verdicts` measures our forced decoding against it.
"""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from covrag_lite import prompts

if TYPE_CHECKING:
    from covrag_lite.engine.decoding import Writer
    from covrag_lite.engine.local import LanguageModel


def walk(model: "LanguageModel", writer: "Writer") -> Generator[Sequence[int], int, None]:
    """The schema as a grammar: yields which tokens may come next and is sent the one that came."""
    digits = [writer.ids(str(digit))[0] for digit in range(10)]
    for part in model.schema:
        match part:
            case str():
                for token in writer.ids(part):
                    yield [token]
            case "score", _:
                whole = yield digits[:2]
                decimals = digits if whole == digits[0] else digits[:1]  # nothing is above 1.00
                yield writer.ids(".")
                yield decimals
                yield decimals
            case "judgment", _:
                spelt = [writer.ids(word) for word in prompts.JUDGMENTS]
                by_first = {ids[0]: ids for ids in spelt}
                chosen = yield list(by_first)
                for token in by_first[chosen][1:]:
                    yield [token]
            case "text", _:
                yield from walk_text(model, writer)
    while True:
        yield [model.end_id]


def walk_text(model: "LanguageModel", writer: "Writer") -> Generator[Sequence[int], int, None]:
    """A text in quotes as a grammar; an empty one may be a single token."""
    opening = writer.ids(' "')[0]
    empty = writer.ids(' ""')[0]
    free = (~writer.quoted.forbidden).nonzero().flatten()
    begun = yield [opening, empty]
    if begun != opening:
        return
    for _ in range(model.config.max_revised_tokens):
        token = yield free
        if token in writer.quoted.ends:
            return
    yield writer.ids('"')
