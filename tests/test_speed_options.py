"""A slip on the command line of a measurement ends in a sentence, before anything is measured."""

import importlib
import sys

import pytest

SLIPS = [
    ("peers", ["--ways", "ours,nonsense"], "'nonsense' is not known; use some of ours, trl + Liger, Unsloth"),
    ("peers", ["--samples", "short rows"], "'short rows' is not known; use some of "),
    ("peers", ["--libraries", "unsloth"], "'unsloth' is not understood; give name=value"),
    ("retrieving", ["--passages", "ten"], "'ten' is not understood; give whole numbers above 0, joined by commas"),
    ("retrieving", ["--passages", "1000,0"], "'1000,0' is not understood"),
    ("retrieving", ["--kinds", "letters"], "'letters' is not known; use some of words, vectors"),
    ("retrieving", ["--engines", "grep"], "'grep' is not known; use some of "),
    ("holding", ["--cards", "big"], "'big' is not understood; give numbers above 0"),
    ("holding", ["--shapes", "tiny,9b"], "'9b' is not known; use some of "),
    ("inference", ["--parts", "graphs,speed"], "'speed' is not known; use some of verdicts, batches"),
]


@pytest.mark.parametrize("module, words, sentence", SLIPS)
def test_a_slip_is_told_in_a_sentence(module, words, sentence, monkeypatch, capsys):
    main = importlib.import_module(f"benchmarks.{module}").main
    monkeypatch.setattr(sys, "argv", [module, *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


def test_lists_are_read_as_they_are_meant():
    from benchmarks import options

    assert options.some_of(["a b", "c"], ";")("c; a b") == ["c", "a b"]
    assert options.numbers(int)("10,1000") == [10, 1000]
    assert options.numbers(float)("12,7.5") == [12.0, 7.5]
    assert options.pairs("") == {} and options.pairs("a=/x,b=y=z") == {"a": "/x", "b": "y=z"}
