"""Forced verdicts are guessed and tokenised with little work, and the guesses are the best there are."""

import json
import os.path
import random
from collections import Counter

import pytest

from covrag_lite import config, prompts
from covrag_lite.engine import decoding
from covrag_lite.engine import slots as gaps
from covrag_lite.engine.local import load_model

EMPTY = 60  # a token


def search_all(paths, path):
    """Of all verdicts in the order they came, the one that begins most like `path`; of several the most frequent."""
    seen = Counter(paths)

    def likeness(other):
        return len(os.path.commonprefix([path, other])), seen[other]

    return max(seen, key=likeness)


def test_a_guess_goes_on_like_the_most_frequent_verdict_that_begins_most_alike():
    schema_gaps, _ = gaps.gaps_of(prompts.SCHEMA)
    draw = random.Random(1)
    guesses = gaps.Guesses(schema_gaps)
    paths = [tuple(path) for path in gaps.TYPICAL]
    for _ in range(200):
        path = tuple(draw.choice(gap.choices[:2]) for gap in schema_gaps)
        for end in (0, 1, 2, 5, 19, 20):
            likest = search_all(paths, path[:end])
            expected = list(path[:end])
            for place in range(end, len(schema_gaps)):
                expected.append(gaps.fixed(schema_gaps[place], expected) or likest[place])
            assert guesses.guess(path[:end]) == tuple(expected)
        again = draw.choice([path, *paths])
        guesses.add(again)
        paths.append(again)
    assert len(set(paths)) < len(paths)


def test_a_verdict_that_is_not_whole_is_not_remembered():
    schema_gaps, _ = gaps.gaps_of(prompts.SCHEMA)
    guesses = gaps.Guesses(schema_gaps)
    before = guesses.guess(())
    for _ in range(3):
        guesses.add(("1", "0"))
    assert guesses.guess(()) == before


def test_the_pieces_of_the_schema_are_tokenised_once(tiny_folder, monkeypatch):
    loaded = load_model(config.Model(model=str(tiny_folder), max_revised_tokens=6))
    asked = []
    tokenise = decoding.continue_ids

    def noted(tokenizer, text):
        asked.append(text)
        return tokenise(tokenizer, text)

    monkeypatch.setattr(decoding, "continue_ids", noted)
    loaded.verify(["who wrote it?", "why", "where was it?"])
    assert asked and len(asked) == len(set(asked))
    first = len(asked)
    loaded.verify(["is it " * 9, "when and where?"])
    assert len(asked) < first + 3  # a digit or a judgment that no verdict had before


@pytest.mark.parametrize("schema", [prompts.SCHEMA, prompts.DIRECT])
def test_no_verdict_depends_on_how_far_the_first_pass_looks(tiny_folder, monkeypatch, schema):
    loaded = load_model(config.Model(model=str(tiny_folder), max_revised_tokens=6))
    loaded.schema = schema
    words = "who where why born author lantern river hills kite fair novel copper 1893 town".split()
    draw = random.Random(0)
    asked = [" ".join(draw.choices(words, k=1 + i % 7)) for i in range(40)]
    tokenise = decoding.continue_ids

    def tell_empty(tokenizer, text):
        """The toy's tokenizer begins both alike; here an empty revision has a token of its own."""
        return [EMPTY] if text == gaps.QUOTES[1] else tokenise(tokenizer, text)

    monkeypatch.setattr(decoding, "continue_ids", tell_empty)
    written = []
    for telling in (1, 2, 5, 20):
        monkeypatch.setattr(decoding, "TELLING", telling)
        written.append([text for text, _ in loaded.judge(asked)])
    assert written[0] == written[1] == written[2] == written[3]
    revised = [json.loads(text)["4"] for text in written[0]]
    assert 0 < revised.count("") < 40
