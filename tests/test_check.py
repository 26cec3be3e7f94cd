"""What is recorded follows from the predictions, and a number that was changed by hand is found."""

import json
import re
import shutil
from dataclasses import replace

import pandas as pd
import pytest

from covrag_lite import check, evaluation
from covrag_lite.config import ROOT, Config, Data, Judging, Retrieval, Run, World
from covrag_lite.data import load_passages, load_questions
from covrag_lite.journal import Journal
from covrag_lite.judging import judges
from covrag_lite.report import ablation, recorded, tables
from covrag_lite.retrieval import load_retriever, search_twice

CLAIMS = "CoV-RAG answers {CoV-RAG average} % of {CoV-RAG average n}, {CoV-RAG-S → CoV-RAG points} points more.\n"


@pytest.fixture(scope="module", autouse=True)
def undrawn():
    """Pictures are laid out and not drawn, which would take most of the time; test_report draws them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", lambda figure, path, **_: path.write_bytes(b"drawn"))
        yield


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project folder with a scripted model's Tables 2 and 6 over a small world, its answers judged, and a README that tells of it."""
    from conftest import ScriptedModel

    root = tmp_path_factory.mktemp("project")
    systems = ("RAG", "CoV-RAG", "CoV-RAG-S")  # in another order than the table's
    config = Config(
        world=World(n_passages=1000, n_test=4),
        data=Data(n_questions=2),
        run=Run(runs=str(root / "runs")),
        retrieval=Retrieval(retrievers=("bm25", "backwards")),
    ).with_chain(systems=systems)
    questions, passages = load_questions(config), load_passages(config)
    model = ScriptedModel(config.model)
    model.generate = lambda prompts, limit: [questions[i % 3].answers[0] for i, _ in enumerate(prompts)]
    tools = evaluation.bind(
        config, load_retriever(config.retrieval, passages), model, Journal(root / "runs" / "journal.jsonl")
    )
    run = recorded.Recorded(
        root / "results" / "toy",
        "table2",
        evaluation.manifest(config, model, 1.0, questions=questions, passages=passages),
    )
    predictions = evaluation.run(config, tools, questions)
    evaluation.save_predictions(run.file("predictions.jsonl"), predictions)
    evaluation.save_manifest(run.file("manifest.json"), run.manifest)
    check.make_accuracy(run, predictions, run.folder)
    run.file("claims.md").write_text(CLAIMS)
    judge_answers(root, Config(judging=Judging(predictions="toy", ranked=systems, judges=("rubric", "endpoint:toy"))))
    search_passages(root, config, tools, questions, passages)
    (root / "README.md").write_text(
        "# Toy\n\n<!-- made from results/toy/table2.claims.md -->\n<!-- end -->\n\nAnd 12 more.\n"
    )
    assert check.check(root, write=True)[0] == []
    return root


def judge_answers(root, config):
    """A recorded Table 3 of these answers, by the rubric and by a served judge that likes the last system best."""
    answers = judges.load_answers(config, root)
    known = pd.DataFrame(
        [
            (
                "endpoint:toy",
                order,
                p.question.dataset,
                p.question.id,
                p.system,
                criterion,
                0.2 * (p.system == "CoV-RAG"),
                True,
            )
            for order in (1, 2)
            for p in answers.predictions
            for criterion in judges.CRITERIA
        ],
        columns=judges.COLUMNS,
    )
    run = recorded.Recorded(
        root / "results" / "toy",
        "table3",
        evaluation.manifest(config, answers.model, 1.0, questions=answers.questions, passages=answers.passages),
    )
    judges.save_verdicts(run.file("verdicts.jsonl"), judges.judge(config, answers, known))
    evaluation.save_manifest(run.file("manifest.json"), run.manifest)
    check.make_ranks(run, (answers, known), run.folder)


def search_passages(root, config, tools, questions, passages):
    """A recorded Table 6: BM25, and a retriever that reads the questions backwards."""
    every, asked = (
        load_questions(replace(config, data=replace(config.data, n_questions=0))),
        [q for q in questions if q.dataset in ("nq", "webq")],
    )
    searches = {"bm25": tools.search, "backwards": lambda queries: tools.search([query[::-1] for query in queries])}
    run = recorded.Recorded(
        root / "results" / "toy",
        "table6",
        evaluation.manifest(config, tools.model, 1.0, questions=asked, every=every, passages=passages),
    )
    made = {
        name: evaluation.run_system("CoV-RAG", config, replace(tools, search=search), asked)
        + search_twice(every, search)
        for name, search in searches.items()
    }
    for name in made:
        evaluation.save_predictions(run.file(f"{name}.predictions.jsonl"), made[name])
    evaluation.save_manifest(run.file("manifest.json"), run.manifest)
    check.make_retrieval(run, made, run.folder)


@pytest.fixture
def copy(project, tmp_path):
    shutil.copytree(project, tmp_path / "copy")
    return tmp_path / "copy"


def test_an_untouched_record_follows_to_the_last_number(copy):
    assert check.check(copy) == ([], [])
    assert re.search(r"CoV-RAG answers [\d.]+ % of 8, 0.0 points more", (copy / "README.md").read_text())


def test_a_record_follows_in_whatever_order_its_systems_ran(copy):
    run = next(run for run in recorded.find(copy) if run.table == "table2")
    frame = evaluation.to_frame(recorded.load(run))
    tables.save_table(
        run.folder, "table2", tables.accuracy_table(frame, "table2"), tables.compare(frame), tables.notes(frame)
    )  # as the notebook does
    assert list(frame.system.unique()) == ["RAG", "CoV-RAG", "CoV-RAG-S"] and check.check(copy)[0] == []


def test_one_altered_prediction_is_found(copy):
    file = copy / "results" / "toy" / "table2.predictions.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    wanted = {q.id: q.answers[0] for q in load_questions(recorded.find(copy)[0].config)}
    wrong = next(
        row for row in rows if row["system"] == "CoV-RAG" and wanted[row["id"]] not in row["rounds"][-1]["answer"]
    )
    wrong["rounds"][-1]["answer"] = wanted[wrong["id"]]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines, _ = check.check(copy)
    assert {line.split(",")[0] for line in lines} == {
        "README.md",
        *(
            f"results/toy/{name}"
            for name in ("table2.csv", "table2.md", "table3.csv", "table3.md", "table3.verdicts.jsonl")
        ),
    }


def test_one_altered_readme_number_is_found_with_both_values(copy):
    readme = copy / "README.md"
    was = re.search(r"answers ([\d.]+) %", readme.read_text())[1]
    readme.write_text(readme.read_text().replace(f"answers {was} %", "answers 99.9 %"))
    assert check.check(copy)[0] == [f"README.md, line 4: recorded 99.9, recomputed {was}"]


def test_one_altered_csv_value_is_found_by_its_cell(copy):
    file = copy / "results" / "toy" / "table2.csv"
    table = pd.read_csv(file)
    row = table.index[(table.system == "RAG") & (table.dataset == "webq") & (table.metric == "raw")][0]
    was, table.loc[row, "value"] = table.loc[row, "value"], 77.0
    table.to_csv(file, index=False, float_format="%.2f")
    assert check.check(copy)[0] == [
        f"results/toy/table2.csv, smollm2-135m / webq / RAG / raw, value: recorded 77.00, recomputed {was:.2f}"
    ]
    table.loc[row, "value"] = was
    pd.concat([table, table[:1]]).to_csv(file, index=False, float_format="%.2f")
    assert check.check(copy)[0] == ["results/toy/table2.csv, a cell is recorded twice"]


@pytest.mark.parametrize(
    "judge, ends", [("rubric (proxy)", {"verdicts.jsonl"}), ("endpoint:toy", {"csv", "md"})]
)  # the rubric scores again; a served judge's table does not follow
def test_a_score_that_no_judge_gave_is_found(copy, judge, ends):
    file = copy / "results" / "toy" / "table3.verdicts.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    next(row for row in rows if row["judge"] == judge)["scores"]["conciseness"]["CoV-RAG"] = 0.0
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert {line.split(",")[0] for line in check.check(copy)[0]} == {f"results/toy/table3.{end}" for end in ends}


def test_a_passage_that_was_not_found_is_found_missing_in_both_parts_of_table_6(copy):
    file = copy / "results" / "toy" / "table6.bm25.predictions.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert {row["system"] for row in rows} == {"CoV-RAG", "clean wording"} and not any(
        q.clean_question in file.read_text() for q in load_questions(recorded.find(copy)[0].config)
    )
    for row in rows:
        row["rounds"][0]["passages"] = []
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [line for line in check.check(copy)[0] if line.startswith("results/toy/table6.csv")]
    assert {line.split(", ")[1].split(" / ")[0] for line in lines} == {"CoV-RAG", "clean wording"} and all(
        "/ bm25 /" in line for line in lines
    )


@pytest.mark.parametrize(
    "file, table",
    [
        ("table2.predictions.jsonl", "table2"),
        ("table3.verdicts.jsonl", "table3"),
        ("table6.backwards.predictions.jsonl", "table6"),
    ],
)
def test_what_a_table_was_made_from_cannot_be_left_out(copy, file, table):
    (copy / "results" / "toy" / file).unlink()
    assert f"results/toy/{table}.manifest.json: not checked, {file} is missing" in check.check(copy)[0]


def test_what_nothing_can_make_anew_is_said(copy):
    (copy / "results" / "toy" / "losses.csv").write_text("step,loss\n1,2.0\n")
    assert check.check(copy) == (
        [],
        ["results/toy/losses.csv: not checked, as it cannot be made from what is recorded"],
    )


def test_prose_may_only_name_numbers_of_its_run(copy):
    (copy / "results" / "toy" / "table2.claims.md").write_text("{GPT-9 average} %\n")
    assert check.check(copy)[0] == ["results/toy/table2.claims.md: 'GPT-9 average' is no number of that run"]


def test_prose_may_name_what_a_retriever_found_and_a_number_of_another_run(copy):
    folder = copy / "results" / "toy"
    (folder / "table6.claims.md").write_text(
        "{bm25 all gold passage before} to {bm25 all gold passage after} % of {bm25 all gold passage n}; {toy CoV-RAG average} % right\n"
    )
    (copy / "README.md").write_text(
        (copy / "README.md").read_text() + "\n<!-- made from results/toy/table6.claims.md -->\n<!-- end -->\n"
    )
    assert check.check(copy, write=True)[0] == []
    found, right = pd.read_csv(folder / "table6.csv"), pd.read_csv(folder / "table2.csv")
    row = found[
        (found.revision == "CoV-RAG")
        & (found.questions == "all")
        & (found.retriever == "bm25")
        & (found.measure == "gold passage")
    ].iloc[0]
    average = right[
        (right.system == "CoV-RAG") & (right.dataset == "average") & (right.metric == "normalised")
    ].value.item()
    assert (
        f"{row['first']:.1f} to {row['last']:.1f} % of {row.n:.0f}; {average:.1f} % right\n"
        in (copy / "README.md").read_text()
    )


def test_prose_may_name_what_was_judged_what_was_found_and_what_each_rule_gives(copy):
    run = next(run for run in recorded.find(copy) if run.table == "table2")
    made, frame = (
        check.facts(predictions := recorded.load(run)),
        evaluation.to_frame(recorded.load(run)).query("system == 'CoV-RAG'"),
    )
    assert int(made.get("CoV-RAG judged true", 0)) + int(made.get("CoV-RAG judged false", 0)) == len(frame)
    assert made["CoV-RAG gold"] == f"{100 * frame.gold_last.mean():.1f}"
    rules = ablation.policies(predictions).set_index("rule").accuracy
    rewritten = replace(
        predictions[0], system="Start-Revise", rounds=(replace(predictions[0].rounds[0], query="anew"),)
    )
    assert check.facts([rewritten])["Start-Revise rewritten"] == "1"
    assert (
        made["oracle accuracy"] == f"{rules['oracle: the better of 2']:.1f}"
        and made["never revise accuracy"] == made["CoV-RAG-S average"]
    )


def test_a_backbone_is_told_by_its_weights_and_its_layout(copy):
    run = next(run for run in recorded.find(copy) if run.table == "table2")
    name = lambda **parameters: recorded.backbone(
        replace(run, manifest=run.manifest | {"parameters": run.manifest["parameters"] | parameters})
    )
    assert name() == "smollm2-135m" and name(quantize="int8") == "smollm2-135m, int8"
    assert (
        name(quantize="none") == "smollm2-135m, unquantised" and name(layout="shared") == "smollm2-135m, shared layout"
    )


def test_a_block_cannot_be_left_out_of_the_readme(copy):
    (copy / "README.md").write_text("CoV-RAG answers 99.9 %\n")
    assert check.check(copy)[0] == ["README.md: nothing is made from results/toy/table2.claims.md"]


def test_other_data_than_the_recorded_is_no_basis_for_a_score(copy):
    file = copy / "results" / "toy" / "table2.manifest.json"
    file.write_text(file.read_text().replace('"seed": 1', '"seed": 2'))
    assert "the questions of this configuration are no longer those of the run" in check.check(copy)[0][0]


def test_a_new_table_is_held_against_the_recorded_one_of_its_configuration(copy, capsys):
    run = recorded.find(copy)[0]
    long = tables.accuracy_table(evaluation.to_frame(recorded.load(run)), "table2")
    assert set(recorded.reproduction(long, run.manifest, copy).verdict) == {"OK"}
    near, far = (
        long.assign(value=long.value + 0.1),
        long.assign(value=long.value + 90, low=long.low + 90, high=long.high + 90),
    )
    assert set(recorded.reproduction(near, run.manifest, copy).verdict) == {"within noise"}
    assert "DIFFERS" in set(recorded.reproduction(far, run.manifest, copy).verdict)
    faster = run.manifest | {
        "parameters": run.manifest["parameters"] | {"batch_tokens": 99, "device": "cuda", "name": "mine"}
    }
    assert len(recorded.reproduction(long, faster, copy)) == len(long)
    capsys.readouterr()
    other = run.manifest | {"parameters": run.manifest["parameters"] | {"k": 3}}
    assert recorded.reproduction(long, other, copy) is None
    assert "nearest, results/toy/table2.csv, differs in k (3, recorded 5)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "table, cells", [("table3", {"judge": "endpoint:toy"}), ("table6", {"retriever": "bm25", "measure": "answer"})]
)
def test_tables_of_other_columns_are_held_against_the_recorded_ones_too(copy, table, cells):
    run = next(run for run in recorded.find(copy) if run.table == table)
    long = pd.read_csv(run.file("csv"))
    made = recorded.reproduction(long, run.manifest, copy)
    assert set(made.verdict) == {"OK"} and len(made) == (3 * long.n.notna().sum() if table == "table6" else len(long))
    chosen = (long[list(cells)] == list(cells.values())).all(axis=1) & long.n.notna()
    name = "last" if table == "table6" else "value"
    long.loc[
        chosen, [name, *(column for column in long if column in ("low", "high", f"{name}_low", f"{name}_high"))]
    ] += 99
    made = recorded.reproduction(long, run.manifest, copy)
    assert (made.verdict == "DIFFERS").sum() == chosen.sum() and set(
        made[made.verdict == "DIFFERS"][list(cells)[0]]
    ) == {list(cells.values())[0]}


def test_an_adapter_is_told_by_its_weights_and_not_by_its_folder(copy, capsys):
    run = recorded.find(copy)[0]
    here, there = run.manifest | {"adapters": {"cov": "aa"}}, run.manifest | {"adapters": {"cov": "bb", "rag": "cc"}}
    assert recorded.changed(here, there) == ["the adapter cov"]
    moved = {**here, "parameters": here["parameters"] | {"adapters": "elsewhere"}}
    assert recorded.changed(moved, here | {"adapters": {"cov": "aa", "rag": "cc"}}) == []
    assert (
        recorded.changed(here, {name: value for name, value in run.manifest.items() if name != "adapters"}) == []
    )  # not known: said in words


def test_every_number_this_project_records_follows_from_its_predictions():
    assert check.check(ROOT)[0] == []
