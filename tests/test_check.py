"""The check: recorded numbers follow from the predictions, and a changed number is found."""

import json
import lzma
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from conftest import write_jsonl
from toy_project import find

from covrag_lite.check import Report, check, tables
from covrag_lite.check import __main__ as command
from covrag_lite.check.compare import compare_lines, describe_words
from covrag_lite.check.pages import check_pages
from covrag_lite.check.tables import Rebuilt, build_figures, try_to_load
from covrag_lite.config import ROOT
from covrag_lite.data import load_questions
from covrag_lite.data.missing import DataMissing
from covrag_lite.files import read_packed
from covrag_lite.runs.recorded import load_or_outcomes
from covrag_lite.tables import TABLES
from covrag_lite.tables.table import Table


@pytest.fixture
def judged(project, tmp_path):
    """A copy of the project with Tables 2 and 3 only, which halves the time of a check."""
    return shutil.copytree(
        project, tmp_path / "copy", ignore=shutil.ignore_patterns("table6.*", "runs")
    )


@pytest.fixture
def alone(judged):
    """A copy of the project with Table 2 only."""
    for file in judged.glob("results/toy/table3.*"):
        file.unlink()
    return judged


def test_every_number_of_an_untouched_record_follows(project):
    report = check(project)
    assert report.differences == []


def test_everything_in_an_untouched_record_is_checked(project):
    assert check(project).notes == []


def test_a_page_is_filled_with_facts(project):
    page = (project / "README.md").read_text()
    assert re.search(r"CoV-RAG answers [\d.]+ % of 8,\n\+0 of 8 points more", page)


@pytest.fixture
def with_old_facts(alone):
    """A project with facts that no code builds any more, used by a page."""
    (alone / "results" / "toy" / "gone.facts.json").write_text('{"gain": "+1.5"}')
    template = alone / "README.template.md"
    template.write_text(template.read_text() + "Formerly {toy/gone | gain}.\n")
    page = alone / "README.md"
    page.write_text(page.read_text() + "Formerly +1.6.\n")
    return alone


def test_facts_that_nothing_builds_are_compared_with_pages(with_old_facts):
    (difference,) = check(with_old_facts).differences
    assert difference.endswith("recorded +1.6., recomputed +1.5.")


def test_facts_that_nothing_builds_are_noted(with_old_facts):
    (note,) = check(with_old_facts).notes
    reason = "taken as recorded, because nothing here builds it"
    assert note == f"results/toy/gone.facts.json: {reason}"


def test_facts_of_a_table_that_was_not_built_again_are_a_difference(alone):
    (alone / "results" / "toy" / "claim.facts.json").write_text('{"gain": "+1.5"}')
    (difference,) = check(alone).differences
    sentence = "its table was not built again from any recorded run"
    assert difference == f"results/toy/claim.facts.json: {sentence}"


def test_one_altered_prediction_is_found(judged, tmp_path):
    run = find(judged, "table2")
    file = run.file("predictions.jsonl.xz")
    lines = [json.loads(line) for line in read_packed(file).splitlines()]
    gold = {question.id: question.answers[0] for question in load_questions(run.config)}
    lasts = [
        (gold[line["id"]], line["rounds"][line["systems"]["CoV-RAG"][0][-1]]) for line in lines
    ]
    right, wrong = next((right, last) for right, last in lasts if right not in last["answer"])
    wrong["answer"] = right
    file.write_bytes(lzma.compress(write_jsonl(tmp_path / "lines", lines).read_bytes()))
    ends = (
        "table2.csv",
        "table2.md",
        "table2.facts.json",
        "table3.csv",
        "table3.md",
        "table3.facts.json",
        "table3.verdicts.jsonl",
    )
    assert {line.split(",")[0] for line in check(judged).differences} == {
        "README.md",
        *(f"results/toy/{end}" for end in ends),
    }


def alter(file, was, now):
    file.write_text(file.read_text().replace(was, now))


def differences_without_lines(root):
    """The differences of a check, without the numbers of lines."""
    return [re.sub(r", line \d+", "", line) for line in check(root).differences]


def test_an_altered_number_of_a_page_is_found(alone):
    share = json.loads(find(alone, "table2").file("facts.json").read_text())["CoV-RAG average"]
    alter(alone / "README.md", f"answers {share} %", "answers 99.9 %")
    assert differences_without_lines(alone) == [f"README.md: recorded 99.9, recomputed {share}"]


def test_a_page_is_written_again_with_the_right_number(alone):
    page = alone / "README.md"
    before = page.read_text()
    alter(page, "+0 of 8", "+7 of 8")
    check(alone, write=True)
    assert page.read_text() == before


def test_an_altered_fact_is_found(alone):
    file = find(alone, "table2").file("facts.json")
    name = "CoV-RAG average n"
    fact = f'"{name}": "{json.loads(file.read_text())[name]}",'
    alter(file, fact, f'"{name}": "9",')
    assert differences_without_lines(alone) == [
        f'results/toy/table2.facts.json: recorded "{name}": "9",, recomputed {fact}'
    ]


def test_an_altered_row_of_a_table_is_found(alone):
    file = find(alone, "table2").file("csv")
    row = re.search("^table2,entity,RAG,.*,raw,.*$", file.read_text(), re.MULTILINE)[0]
    alter(file, row, f"{row}77")
    assert differences_without_lines(alone) == [
        f"results/toy/table2.csv: recorded {row}77, recomputed {row}"
    ]


def test_an_additional_row_of_a_table_is_found_with_its_line(alone):
    file = find(alone, "table2").file("csv")
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines, lines[-1]]) + "\n")
    assert check(alone).differences == [
        f"results/toy/table2.csv, line {len(lines) + 1}: recorded {lines[-1]}, recomputed nothing"
    ]


@pytest.fixture
def misaligned(alone):
    """A project with an altered table."""
    alter(find(alone, "table2").file("csv"), "table2,entity,RAG,", "table2 ,entity,RAG,")
    return alone


def test_writing_pages_leaves_a_recorded_table_as_it_is(misaligned):
    file = find(misaligned, "table2").file("csv")
    before = file.read_text()
    assert check(misaligned, write=True).differences != []
    assert file.read_text() == before


def test_a_rebuild_replaces_a_recorded_table(misaligned):
    assert check(misaligned, rebuild=True).differences == []
    assert "table2 ," not in find(misaligned, "table2").file("csv").read_text()


@pytest.mark.parametrize("altered, status", [(False, 0), (True, 1)])
def test_the_command_fails_if_something_differs(alone, altered, status, monkeypatch, capsys):
    if altered:
        alter(alone / "README.md", "+0 of 8", "+7 of 8")
    monkeypatch.setattr(command, "check", lambda **options: check(alone, **options))
    monkeypatch.setattr(command, "find", lambda: [find(alone, "table2")])
    with pytest.raises(SystemExit) as ended:
        command.main([])
    assert ended.value.code == status
    last_line = capsys.readouterr().out.splitlines()[-1]
    result = "1 differences" if altered else "every number follows"
    assert last_line == f"1 recorded runs scored again: {result}"


def test_a_damaged_manifest_ends_the_command_with_a_sentence(alone, monkeypatch):
    file = find(alone, "table2").file("manifest.json")
    file.write_text(file.read_text()[:100])
    monkeypatch.setattr(command, "check", lambda **options: check(alone, **options))
    with pytest.raises(SystemExit, match="check: .*table2.manifest.json is damaged"):
        command.main([])


# The rubric's verdicts are computed again; a served judge's are kept, and its table must follow.
@pytest.mark.parametrize(
    "judge, ends",
    [("rubric (proxy)", {"verdicts.jsonl"}), ("endpoint:toy", {"csv", "md", "facts.json"})],
)
def test_a_score_that_no_judge_gave_is_found(judged, judge, ends):
    file = find(judged, "table3").file("verdicts.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    altered = next(row for row in rows if row["judge"] == judge)
    altered["scores"]["conciseness"]["CoV-RAG"] = 0.0
    write_jsonl(file, rows)
    assert {line.split(",")[0] for line in check(judged).differences} == {
        f"results/toy/table3.{end}" for end in ends
    }


def failures(run, root):
    """What is said about a run that cannot be loaded: differences, and notes."""
    rebuilt = Rebuilt()
    assert try_to_load(run, root, rebuilt) is None
    return rebuilt.differences, rebuilt.notes


BASES = [
    "table2.predictions.jsonl.xz",
    "table3.verdicts.jsonl",
    "table6.backwards.predictions.jsonl.xz",
]


@pytest.mark.parametrize("name", BASES)
def test_a_missing_file_of_a_record_is_a_difference(project, name, tmp_path):
    root = shutil.copytree(project, tmp_path / "copy")
    run = find(root, name.partition(".")[0])
    (run.folder / name).unlink()
    sentence = f"{name} is missing; restore it, or run it again"
    manifest = f"results/toy/{run.table}.manifest.json"
    assert failures(run, root) == ([f"{manifest}: {sentence}"], [])


@pytest.mark.parametrize("name", [name for name in BASES if name.endswith(".xz")])
def test_a_torn_file_of_a_record_is_a_difference(project, name, tmp_path):
    root = shutil.copytree(project, tmp_path / "copy")
    run = find(root, name.partition(".")[0])
    file = run.folder / name
    file.write_bytes(file.read_bytes()[:-20])
    (difference,), _ = failures(run, root)
    assert f"{file} is damaged" in difference


def test_missing_data_is_noted(alone, monkeypatch):
    def load_basis(run):
        raise DataMissing("there is no folder /questions")

    monkeypatch.setattr(tables, "load_basis", load_basis)
    sentence = "not checked, because its data is missing: there is no folder /questions"
    manifest = "results/toy/table2.manifest.json"
    assert failures(find(alone, "table2"), alone) == ([], [f"{manifest}: {sentence}"])


def test_a_run_that_no_table_builds_is_noted(alone):
    run = find(alone, "table2")
    for end in ("manifest.json", "predictions.jsonl.xz"):
        shutil.copy(run.file(end), run.folder / f"gone.{end}")
    assert check(alone).notes == [
        "results/toy/gone.manifest.json: not checked, because nothing here builds gone"
    ]


def test_changed_data_is_a_difference(alone):
    file = find(alone, "table2").file("manifest.json")
    alter(file, '"seed": 1', '"seed": 2')
    (difference,), _ = failures(find(alone, "table2"), alone)
    changed = "its data has changed: questions: this configuration has other data than the run"
    assert f"results/toy/table2.manifest.json: {changed}" in difference


def test_a_page_may_only_name_facts_of_recorded_runs(tmp_path):
    text = "# Toy\n{toy/table2 | GPT-9 average} %\n{gone/table2 | RAG average}\n"
    (tmp_path / "README.template.md").write_text(text)
    assert check_pages(tmp_path, {"toy/table2": {"RAG average": "9"}}, write=True) == [
        "the template of README.md: {toy/table2 | GPT-9 average} is not a fact of a recorded run",
        "the template of README.md: {gone/table2 | RAG average} is not a fact of a recorded run",
    ]
    assert (tmp_path / "README.md").read_text() == text  # the values are not invented


FACTS = {"toy/table2": {"n": "8"}}


@pytest.fixture
def notebook(tmp_path):
    """A notebook with a code cell, and a text cell whose number differs from its template."""
    template = ["Text.\n", "{toy/table2 | n} questions"]
    code = {"cell_type": "code", "metadata": {}, "source": template}
    prose = {"cell_type": "markdown", "metadata": {"template": template}}
    prose["source"] = ["Text.\n", "9 questions"]
    file = tmp_path / "notebooks" / "toy.ipynb"
    file.parent.mkdir()
    file.write_text(json.dumps({"cells": [code, prose]}))
    return file


def test_the_text_of_a_notebook_is_compared(notebook, tmp_path):
    assert check_pages(tmp_path, FACTS, write=False) == [
        "notebooks/toy.ipynb, cell 1, line 2: recorded 9, recomputed 8"
    ]


def test_the_text_of_a_notebook_is_filled_and_its_code_is_not(notebook, tmp_path):
    before = json.loads(notebook.read_text())["cells"]
    check_pages(tmp_path, FACTS, write=True)
    after = json.loads(notebook.read_text())["cells"]
    assert after == [before[0], before[1] | {"source": ["Text.\n", "8 questions"]}]
    assert check_pages(tmp_path, FACTS, write=False) == []


def count(predictions, run):
    rows = pd.DataFrame({"what": ["predictions"], "value": [len(predictions)]})
    return Table(run.table, rows, facts={"predictions": str(len(predictions))})


def test_a_table_is_one_file_and_one_entry(alone, monkeypatch):
    monkeypatch.setitem(
        sys.modules, "counting", SimpleNamespace(load=load_or_outcomes, build=count)
    )
    monkeypatch.setitem(TABLES, "counted", "counting")
    run = find(alone, "table2")
    for end in ("manifest.json", "predictions.jsonl.xz"):
        shutil.copy(run.file(end), run.folder / f"counted.{end}")
    (run.folder / "counted.csv").write_text("what,value\npredictions,25\n")
    (alone / "results" / "README.template.md").write_text(
        "{toy/counted | predictions} predictions\n"
    )
    change = "recorded predictions,25, recomputed predictions,24"
    assert check(alone, write=True).differences == [f"results/toy/counted.csv, line 2: {change}"]
    assert (alone / "results" / "README.md").read_text() == "24 predictions\n"


def test_the_picture_of_the_method_shows_a_recorded_run():
    assert (ROOT / tables.PICTURED.with_suffix(".manifest.json")).exists()


@pytest.fixture(scope="module")
def figures():
    """The figures and tables of speed, built from the records."""
    return {place.as_posix(): table for place, table in build_figures(ROOT)}


def test_figures_and_tables_of_speed_are_built_again(figures):
    assert set(figures) == {
        "figures/embedded/figure4",
        "figures/embedded/speed",
        "figures/embedded/training",
        "results/speed-cpu/speed",
        "results/speed-engines/speed",
        "results/speed-h200/speed",
    }


# How a difference is described.


@pytest.mark.parametrize(
    "recorded, rebuilt, text",
    [
        ("n = 8 of 9", "n = 7 of 8", "recorded 8, recomputed 7; recorded 9, recomputed 8"),
        ("n = 8", "m = 8 of 9", "recorded n = 8, recomputed m = 8 of 9"),
    ],
)
def test_lines_are_compared_word_by_word_if_they_have_as_many_words(recorded, rebuilt, text):
    assert describe_words(recorded, rebuilt) == text


def test_a_line_that_is_missing_or_new_is_compared_with_nothing():
    assert list(compare_lines("a\nb\nc", "a\nc\nd")) == [(2, "b", "nothing"), (4, "nothing", "d")]


def test_lines_after_a_changed_one_are_numbered_as_they_are_recorded():
    assert list(compare_lines("a\nb\nc\nd", "x\nb\nc\ny")) == [(1, "a", "x"), (4, "d", "y")]


# Pages and files.


def test_a_page_that_is_missing_differs_from_its_template(tmp_path):
    (tmp_path / "README.template.md").write_text("{toy/table2 | n} questions\n")
    assert check_pages(tmp_path, FACTS, write=False) == [
        "README.md, line 1: recorded nothing, recomputed 8 questions"
    ]


def test_pages_of_the_results_are_compared(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "main.template.md").write_text("{toy/table2 | n} questions\n")
    (tmp_path / "results" / "main.md").write_text("9 questions\n")
    assert check_pages(tmp_path, FACTS, write=False) == [
        "results/main.md, line 1: recorded 9, recomputed 8"
    ]


def toy_table(drawn):
    """A table with one row, a fact and two pictures; what is drawn is listed."""
    rows = pd.DataFrame({"what": ["questions"], "value": [8]})
    plots = {"png": drawn.append, "other.png": drawn.append}
    return Table("toy", rows, facts={"n": "8"}, plots=plots)


@pytest.fixture
def recorded_files(tmp_path):
    """A folder with altered files of the toy table and one of its two pictures."""
    (tmp_path / "toy.csv").write_text("what,value\nquestions,9\n")
    (tmp_path / "toy.facts.json").write_text('{\n"n": "9"\n}\n')
    (tmp_path / "toy.png").write_bytes(b"old")
    return tmp_path


@pytest.mark.parametrize(
    "write_facts, rebuild, differing",
    [
        (False, False, ["toy.csv", "toy.facts.json"]),
        (True, False, ["toy.csv"]),
        (True, True, []),
    ],
)
def test_facts_are_written_before_they_are_compared_and_tables_only_rebuilt(
    recorded_files, write_facts, rebuild, differing
):
    built = {Path("toy"): toy_table([])}
    compared = tables.compare_tables(recorded_files, built, write_facts, rebuild)
    assert [line.partition(",")[0] for line in compared.differences] == differing


def test_a_rebuild_draws_the_pictures_that_are_recorded(recorded_files):
    drawn = []
    built = {Path("toy"): toy_table(drawn)}
    tables.compare_tables(recorded_files, built, write_facts=True, rebuild=False)
    assert drawn == []
    tables.compare_tables(recorded_files, built, write_facts=True, rebuild=True)
    assert drawn == [recorded_files / "toy.png"]


def test_a_table_that_is_not_recorded_is_noted_and_not_written(tmp_path):
    built = {Path("toy"): toy_table([])}
    compared = tables.compare_tables(tmp_path, built, write_facts=False, rebuild=True)
    assert compared.notes == ["toy.csv: not recorded", "toy.facts.json: not recorded"]
    assert list(tmp_path.iterdir()) == []


def test_facts_that_are_not_recorded_are_written(tmp_path):
    tables.compare_tables(tmp_path, {Path("toy"): toy_table([])}, write_facts=True, rebuild=False)
    assert json.loads((tmp_path / "toy.facts.json").read_text()) == {"n": "8"}


def test_recorded_tables_and_pictures_that_nothing_builds_are_listed(tmp_path):
    for name in ("results/a/toy.csv", "results/a/toy.png", "results/a/gone.csv", "results/a/x.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "figures" / "embedded").mkdir(parents=True)
    (tmp_path / "figures" / "embedded" / "gone.png").touch()
    unchecked = tables.list_unchecked(tmp_path, {Path("results/a/toy"): toy_table([])})
    assert unchecked == [
        "results/a/gone.csv: not checked, because it cannot be built from the records",
        "figures/embedded/gone.png: not checked, because it cannot be built from the records",
    ]


def test_a_table_that_could_not_be_built_for_a_known_reason_is_no_difference(tmp_path):
    (tmp_path / "results").mkdir()
    for name in ("table2", "unknown"):
        (tmp_path / "results" / f"{name}.facts.json").write_text("{}")
    noted = Rebuilt(notes=["results/table2.manifest.json: not checked, because its data is gone"])
    assert tables.list_unbuilt(tmp_path, noted) == []
    assert len(tables.list_unbuilt(tmp_path, Rebuilt())) == 1


def test_facts_are_those_that_are_built_before_those_that_are_recorded(tmp_path):
    folder = tmp_path / "results" / "a"
    folder.mkdir(parents=True)
    for name in ("toy", "gone"):
        (folder / f"{name}.facts.json").write_text('{"n": "9"}')
    facts, notes = tables.load_facts(tmp_path, {Path("results/a/toy"): toy_table([])})
    assert facts["a/toy"] == {"n": "8"}
    assert facts["a/gone"] == {"n": "9"}
    assert facts["paper/table2"]["CoV-RAG Llama2-13b nq"] == "66.0"
    assert [note.partition(":")[0] for note in notes] == ["results/a/gone.facts.json"]


@pytest.mark.parametrize(
    "error, sentence",
    [
        (KeyError("k"), "its record cannot be read: KeyError('k')"),
        (ValueError("no number"), "its record cannot be read: ValueError('no number')"),
        (FileNotFoundError("no folder"), "no folder is missing; restore it, or run it again"),
    ],
)
def test_a_record_that_cannot_be_read_is_a_difference(alone, monkeypatch, error, sentence):
    def load_basis(run):
        raise error

    monkeypatch.setattr(tables, "load_basis", load_basis)
    manifest = "results/toy/table2.manifest.json"
    assert failures(find(alone, "table2"), alone) == ([f"{manifest}: {sentence}"], [])


# Runs that are shown together.


def add_run(together, folder, table, root=Path("/project")):
    """Add a run without predictions; return whether it is shown only together with others."""
    config = SimpleNamespace(model=SimpleNamespace(model="small"))
    run = SimpleNamespace(folder=root / "results" / folder, table=table, config=config)
    return together.add(run, root, [])


def test_training_runs_of_one_backbone_are_shown_together():
    together = tables.Together()
    assert add_run(together, "real/large/seed-1", "claim")
    assert add_run(together, "real/large/seed-2", "claim")
    assert add_run(together, "real/large/mixture/paper/seed-3", "mixture")
    assert {str(folder): list(seeds) for folder, seeds in together.seeds.items()} == {
        "results/real/large": ["1", "2"]
    }
    assert {str(folder): list(arms) for folder, arms in together.arms.items()} == {
        "results/real/large/mixture": [("paper", "3")]
    }


def test_other_runs_are_shown_alone():
    together = tables.Together()
    assert not add_run(together, "claim-toy", "claim")
    assert not add_run(together, "real/large/seed-1", "table2")
    assert together == tables.Together()


def test_a_run_on_own_documents_is_shown_alone_and_with_others():
    together = tables.Together()
    assert not add_run(together, "own-squad-small", "table2")
    ((name, (model, _)),) = together.own.items()
    assert (name, model) == ("own-squad-small", "small")


def test_own_documents_are_next_to_the_readers_of_real_questions(monkeypatch):
    together = tables.Together(own={"own-squad-small": ("small", None)})
    for folder in ("results/real/large", "results/claim-toy"):
        together.seeds[Path(folder)] = {"1": folder}
    monkeypatch.setattr(tables, "build_seeds", lambda frames: "claim")
    monkeypatch.setattr(tables.own_documents, "build", lambda own, readers: readers)
    built = dict(together.build(Path("/nowhere")))
    assert built[tables.own_documents.PLACE] == {"large": {"1": "results/real/large"}}
    assert Path("results/real/large/claim") in built


def test_a_mixture_is_next_to_the_readers_of_its_backbone(monkeypatch):
    backbone = Path("results/real/large")
    together = tables.Together(seeds={backbone: {"1": "reader"}}, arms={backbone / "mixture": "a"})
    monkeypatch.setattr(tables, "build_seeds", lambda frames: "claim")
    monkeypatch.setattr(tables.mixture, "build_arms", lambda arms, readers: (arms, readers))
    built = dict(together.build(Path("/nowhere")))
    assert built[backbone / "mixture" / "mixture"] == ("a", {"1": "reader"})


def test_without_recorded_figures_none_is_built(tmp_path):
    assert list(build_figures(tmp_path)) == []


def test_pictures_of_speed_are_of_the_record_that_has_them(figures):
    assert figures["results/speed-h200/speed"].plots == {}
    assert set(figures["figures/embedded/speed"].plots) == {"training.png", "losses.png"}


# The command.


@pytest.mark.parametrize(
    "words, options",
    [
        ([], (False, False)),
        (["--write"], (True, False)),
        (["--rebuild"], (True, True)),
    ],
)
def test_the_command_writes_what_it_is_told_to(words, options, monkeypatch):
    asked = []

    def checked(write, rebuild):
        asked.append((write, rebuild))
        return Report([], [])

    monkeypatch.setattr(command, "check", checked)
    monkeypatch.setattr(command, "find", lambda: [])
    with pytest.raises(SystemExit):
        command.main(words)
    assert asked == [options]


def test_the_command_prints_notes_and_differences_and_counts_runs_of_tables(monkeypatch, capsys):
    runs = [SimpleNamespace(table="table2"), SimpleNamespace(table="gone")]
    monkeypatch.setattr(command, "check", lambda **options: Report(["a difference"], ["a note"]))
    monkeypatch.setattr(command, "find", lambda: runs)
    with pytest.raises(SystemExit):
        command.main([])
    assert capsys.readouterr().out.splitlines() == [
        *["a note", "a difference", "1 recorded runs scored again: 1 differences"]
    ]


@pytest.mark.parametrize("data", ["questions", "passages"])
def test_changed_data_of_judged_answers_is_a_difference(judged, data):
    file = find(judged, "table3").file("manifest.json")
    manifest = json.loads(file.read_text())
    manifest["data"][data]["sha256"] = "another"
    file.write_text(json.dumps(manifest))
    (difference,), _ = failures(find(judged, "table3"), judged)
    changed = f"its data has changed: {data}: "
    assert difference.startswith(f"results/toy/table3.manifest.json: {changed}")
