"""Random mutants change what a program means and nothing else; few are listed as equivalent."""

import json
import sys
from itertools import chain

import pytest

from covrag_lite.config import ROOT

sys.path.insert(0, str(ROOT / "tests" / "mutants"))

import mutate  # noqa: E402
import run  # noqa: E402
import selection  # noqa: E402


def changed(text):
    """Return every changed text of a small module."""
    source = text.encode()
    mutants = chain.from_iterable(mutate.find_sites("toy.py", text))
    return {mutant.apply(source).decode() for mutant in mutants}


@pytest.mark.parametrize(
    "before, after",
    [
        ("a < b", "a <= b"),
        ("a in b", "a not in b"),
        ("a - b", "a + b"),
        ("(a + b) * c", "(a + b) / c"),
        ("a and b", "a or b"),
        ("a and b", "b"),
        ("not a", "a"),
        ("f(0.5)", "f(1.0)"),
        ("f(3)", "f(2)"),
        ("f(True)", "f(False)"),
        ("f(a, b)", "f(b, a)"),
        ("f(a, key=b)", "f(a)"),
        ("a if b else c", "a if not (b) else c"),
        ("if a:\n    return_()", "if not (a):\n    return_()"),
        ("min(a, b)", "max(a, b)"),
        ("a[:n]", "a[n:]"),
        ("a[n:]", "a[:n]"),
        ("a[-1]", "a[1]"),
        ("[x for x in y if x.ok]", "[x for x in y if True]"),
        ("a.save()", "pass"),
        ('with_adapter("rag")', 'with_adapter("cov")'),
        ('load("test")', 'load("validation")'),
        ('row["first"] + row["final"]', 'row["final"] + row["final"]'),
        ("run(names.RAG, names.COV_RAG)", "run(names.COV_RAG, names.COV_RAG)"),
    ],
)
def test_a_change_of_meaning_is_a_mutant(before, after):
    assert after in changed(before)


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring."""',
        'print("a", 3)',
        'raise ValueError(f"{a + 1} is too large")',
        'warnings.warn("slow", stacklevel=2)',
        "import a, b",
        "a: int",
        'text = "A sentence, as it is shown."',
    ],
)
def test_wording_is_not_changed(text):
    assert changed(text) == set()


def test_the_look_of_a_figure_is_not_changed():
    assert changed("plot(x, linewidth=2, color='red')") == {"pass"}


def test_a_guard_can_be_dropped():
    text = "def f(a):\n    if a:\n        raise ValueError\n"
    assert text.replace("if a", "if False") in changed(text)


def test_a_key_does_not_depend_on_the_line():
    (before,) = mutate.find_sites("toy.py", "a < b")
    (after,) = mutate.find_sites("toy.py", "\n\na < b")
    assert [mutant.key for mutant in before] == [mutant.key for mutant in after]


def test_equal_changes_of_a_function_have_different_keys():
    mutants = chain.from_iterable(mutate.find_sites("toy.py", "a < b\na < b"))
    keys = [mutant.key for mutant in mutants]
    assert len(keys) == len(set(keys))


def test_the_same_seed_draws_the_same_mutants():
    pool = run.load_pool("metrics")
    assert run.draw(pool, 5, "a") == run.draw(pool, 5, "a")


def small_project(root, **tests):
    """Write a package of two modules, one of which imports the other, and test files."""
    (root / "covrag_lite").mkdir()
    (root / "tests").mkdir()
    (root / "covrag_lite" / "inner.py").write_text("")
    (root / "covrag_lite" / "outer.py").write_text("from covrag_lite import inner")
    for name, imported in {**dict.fromkeys(selection.HELPERS), **tests}.items():
        text = f"import covrag_lite.{imported}" if imported else ""
        (root / "tests" / f"{name}.py").write_text(text)


def chosen(root, seconds, limit=60):
    return selection.choose_tests("covrag_lite/inner.py", root, seconds, limit)


def test_the_nearest_and_fastest_tests_come_first(tmp_path):
    small_project(tmp_path, test_far="outer", test_slow="inner", test_fast="inner")
    seconds = {"test_far.py": 2.0, "test_slow.py": 5.0, "test_fast.py": 1.0}
    assert chosen(tmp_path, seconds) == ["test_fast.py", "test_slow.py", "test_far.py"]


def test_tests_that_do_not_import_a_module_are_not_run_for_it(tmp_path):
    small_project(tmp_path, test_other=None, test_near="inner")
    assert chosen(tmp_path, {}) == ["test_near.py"]


def test_the_test_that_runs_notebooks_is_chosen_for_what_their_recorded_cells_import(tmp_path):
    small_project(tmp_path, test_stored_outputs=None)
    cells = [
        {"metadata": {"tags": [tag]}, "source": [f"import covrag_lite.{module}"]}
        for tag, module in (("recorded", "inner"), ("live", "outer"))
    ]
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "toy.ipynb").write_text(json.dumps({"cells": cells}))
    assert chosen(tmp_path, {}) == ["test_stored_outputs.py"]
    assert selection.choose_tests("covrag_lite/outer.py", tmp_path, {}, 60) == []


def test_a_test_file_that_was_never_timed_is_tried_early(tmp_path):
    small_project(tmp_path, test_new="inner", test_old="inner")
    assert chosen(tmp_path, {"test_old.py": 4.0}, limit=4) == ["test_new.py"]


def test_the_test_file_named_after_a_module_comes_first(tmp_path):
    small_project(tmp_path, test_fast="inner", test_inner="inner")
    seconds = {"test_fast.py": 1.0, "test_inner.py": 9.0}
    assert chosen(tmp_path, seconds) == ["test_inner.py", "test_fast.py"]


def test_the_check_comes_after_all_test_files():
    tests = ["test_near.py", "test_slow.py", run.CHECK]
    seconds = {"test_near.py": 11.0, "test_slow.py": 5.0}
    rounds = [run.next_tests(tests, n_passed, seconds) for n_passed in range(3)]
    assert rounds == [["test_near.py"], ["test_slow.py"], [run.CHECK]]


@pytest.mark.parametrize(
    "module, reached", [("metrics", True), ("tables/table2", True), ("qlora", False)]
)
def test_the_check_is_run_for_modules_that_it_imports(module, reached):
    assert selection.check_reaches(f"covrag_lite/{module}.py", ROOT) == reached


@pytest.mark.parametrize("cost, last", [(70.0, run.CHECK), (-1.0, "test_a.py")])
def test_a_check_that_fails_without_a_mutant_judges_none(monkeypatch, cost, last):
    monkeypatch.setattr(run, "choose_tests", lambda *asked: ["test_a.py"])
    monkeypatch.setattr(run, "check_reaches", lambda *asked: True)
    monkeypatch.setattr(run, "stamp", lambda name: 1.0)
    monkeypatch.setattr(run, "load_seconds", lambda: {"test_a.py": 1.0, "#test_a.py": 1.0})
    monkeypatch.setattr(run, "measure_tests", lambda workers, tests: dict.fromkeys(tests, cost))
    mutant = next(chain.from_iterable(mutate.find_sites("toy.py", "a < b")))
    (task,) = run.plan_tasks([mutant], workers=None, limit=10)
    assert task.tests[-1] == last


@pytest.fixture(scope="module")
def every_mutant():
    """All mutants of the package."""
    mutants = []
    for path in sorted((ROOT / "covrag_lite").rglob("*.py")):
        sites = mutate.find_sites(str(path.relative_to(ROOT)), path.read_text())
        mutants += chain.from_iterable(sites)
    return mutants


def test_every_exception_still_matches_a_mutant(every_mutant):
    unmatched = []
    for entry in run.EXCEPTIONS["equivalent"]:
        if not any(run.matches(entry, mutant) for mutant in every_mutant):
            unmatched.append(entry)
    assert unmatched == []


def test_every_file_that_is_left_out_exists():
    assert [file for file in run.EXCEPTIONS["skipped"] if not (ROOT / file).exists()] == []


def test_at_most_a_tenth_of_all_mutants_is_listed_as_equivalent(every_mutant):
    listed = [mutant for mutant in every_mutant if run.is_equivalent(mutant)]
    assert len(listed) <= 0.1 * len(every_mutant)


def test_a_copy_holds_every_module(tmp_path):
    copy = run.copy_project(tmp_path / "copy")
    modules = {path.relative_to(ROOT) for path in (ROOT / "covrag_lite").rglob("*.py")}
    assert modules == {path.relative_to(copy) for path in (copy / "covrag_lite").rglob("*.py")}


def test_core_and_rest_are_all_modules_and_share_none():
    names = ["method", "tables/method_picture"]
    assert [run.is_chosen(name, "core") for name in names] == [True, False]
    assert [run.is_chosen(name, "rest") for name in names] == [False, True]
