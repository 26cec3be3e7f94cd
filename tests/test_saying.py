"""A peer's failure is told in one line, whatever it raised."""

import pytest

from benchmarks.saying import tell_failure


@pytest.mark.parametrize(
    "error, told",
    [
        (ValueError("no such thing\nand a long reason"), "ValueError: no such thing"),
        (RuntimeError("\n  late  "), "RuntimeError: late"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (AssertionError(""), "AssertionError"),
    ],
)
def test_the_first_line_is_told_and_an_error_without_words_by_its_kind(error, told):
    assert tell_failure(error) == told
