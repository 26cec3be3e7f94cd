"""What is recorded must follow from what it was made from: `make check` scores the recorded predictions again and compares every number.

Where the README tells of a recorded run, its prose stands in the run's `<table>.claims.md`, with a name in braces for
every number, of that run or, with a folder's name before it, of another; `--write` fills it in. No model is needed, and no judge: a served one's recorded verdicts are ranked again.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from covrag_lite import config, data, evaluation
from covrag_lite.judging import judges, ranking
from covrag_lite.records import Prediction
from covrag_lite.report import ablation, pictures, retrieval, tables
from covrag_lite.report.recorded import KEY, Recorded, backbones, check_data, find, load, load_searches
from covrag_lite.speed import report

BLOCK = re.compile(r"(<!-- made from (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def make_accuracy(run: Recorded, predictions: Sequence[Prediction], folder: Path) -> None:
    """An accuracy table and its picture, from predictions, in another folder."""
    frame = evaluation.to_frame(predictions)  # in the order in which they ran, as the notes under the table stand
    long = tables.accuracy_table(frame, run.table)
    tables.save_table(folder, run.table, long, tables.compare(frame), tables.notes(frame))
    pictures.plot_accuracy(long, tables.title(run.table, run.config, long), folder / f"{run.table}.png")


def make_chain(run: Recorded, predictions: Sequence[Prediction], folder: Path) -> None:
    """Table 5 and its picture likewise."""
    long = ablation.chain_table(predictions)
    tables.save_chain(folder, long, ablation.policies(predictions), ablation.chain_notes(predictions))
    pictures.plot_accuracy(long, tables.title("table5", run.config, long), folder / "table5.png", None)


def make_ranks(run: Recorded, basis: tuple[judges.Answers, pd.DataFrame], folder: Path) -> None:
    """Table 3 and its picture likewise, from the answers that were judged and the recorded verdicts; the rubric judges anew."""
    answers, known = basis
    scores = judges.judge(run.config, answers, known)
    long = ranking.rank_table(scores, "table3")
    ranking.save_ranks(
        folder, "table3", long, ranking.compare_ranked(scores), ranking.agreement_table(scores), ranking.notes(scores)
    )
    judges.save_verdicts(folder / "table3.verdicts.jsonl", scores)
    pictures.plot_ranks(long, ranking.title(run.config, answers), folder / "table3.png")


def searched(searches: dict[str, list[Prediction]]) -> pd.DataFrame:
    """Table 6's predictions as one frame, with their retriever."""
    return pd.concat(
        [evaluation.to_frame(made).assign(retriever=name) for name, made in searches.items()], ignore_index=True
    )


def make_retrieval(run: Recorded, searches: dict[str, list[Prediction]], folder: Path) -> None:
    """Table 6 and its pictures likewise, with the part that is searched without a model."""
    frame = searched(searches)
    revised, clean = (
        retrieval.retrieval_table(frame[frame.system == system]) for system in ("CoV-RAG", "clean wording")
    )
    retrieval.save(folder, revised, clean, retrieval.notes(frame[frame.system == "CoV-RAG"]))
    for table, names, end in ((revised, retrieval.ITERATIONS, "png"), (clean, retrieval.WORDINGS, "clean.png")):
        retrieval.plot_retrieval(table, retrieval.title(run.config, names), folder / f"table6.{end}", names)


def make_backbones(root: Path, folder: Path) -> None:
    """Figure 4, from the recorded runs."""
    long = backbones(root)
    pictures.plot_backbones(long, folder / "figure4.png")
    long.to_csv(folder / "figure4.csv", index=False, float_format="%.2f")


def make_world(root: Path, folder: Path) -> None:
    """What the world's knobs do, from the world."""
    effects = data.knob_effects(config.Config())
    pictures.plot_knobs(effects, folder / "world.png")
    effects.to_csv(folder / "world.csv", index=False, float_format="%.2f")


def make_speed(root: Path, folder: Path) -> None:
    """The picture of the recorded speed, from its measurements."""
    frame, machine = report.load_speed(root / "results" / config.Speed().recorded / "training.json")
    report.plot_speed(frame, report.title(machine), folder / "speed.training.png")


MAKE = {
    "table2": make_accuracy,
    "table3": make_ranks,
    "table4": make_accuracy,
    "table5": make_chain,
    "table6": make_retrieval,
}
FIGURES = {
    "figure4": make_backbones,
    "world": make_world,
    "speed.training": make_speed,
}  # those of figures/embedded that are no table's


def load_basis(run: Recorded, root: Path) -> object:
    """What a run's table is made from: predictions; for Table 3 the judged answers and the verdicts, for Table 6 predictions by their retriever."""
    if run.table != "table3":
        return load_searches(run) if run.table == "table6" else load(run)
    if not run.config.judging.predictions:
        raise FileNotFoundError("as the systems ran anew for it and their answers are not recorded")
    answers = judges.load_answers(run.config, root)
    check_data(run, questions=answers.questions, passages=answers.passages)
    return answers, judges.load_verdicts(run.file("verdicts.jsonl"))


def check(root: Path = config.ROOT, write: bool = False) -> tuple[list[str], list[str]]:
    """Every difference between what is recorded and what can be made anew, and what could not be compared."""
    wrong, notes, loaded, made, embedded = [], [], {}, {}, root / "figures" / "embedded"
    with tempfile.TemporaryDirectory() as place:
        new_folder = lambda: Path(tempfile.mkdtemp(dir=place))
        for run in find(root):
            name = run.file("manifest.json").relative_to(root)
            if run.table not in MAKE:
                notes.append(f"{name}: not checked, as nothing here makes {run.table}")
                continue
            try:
                basis = load_basis(run, root)
            except (
                FileNotFoundError
            ) as error:  # of the record, by its name; or of data that cannot be shipped, in words
                (wrong if error.filename else notes).append(
                    f"{name}: not checked, {f'{Path(error.filename).name} is missing' if error.filename else error}"
                )
                continue
            except (ValueError, KeyError) as error:
                wrong.append(f"{name}: {error if isinstance(error, ValueError) else f'{error} is not in the data'}")
                continue
            if run.table != "table3":
                loaded[run.folder.relative_to(root) / run.table] = basis
            MAKE[run.table](run, basis, folder := new_folder())
            made |= {run.folder / file.name: file for file in sorted(folder.iterdir())}
            plt.close("all")
        for name, make in FIGURES.items():
            if (embedded / f"{name}.png").exists():
                make(root, folder := new_folder())
                made |= {embedded / file.name: file for file in sorted(folder.iterdir())}
        for recorded, file in made.items():
            name = recorded.relative_to(root)
            if not recorded.exists():
                notes.append(f"{name}: not recorded")
            elif file.suffix == ".png":
                notes += (
                    [f"{name}: drawn, but not to the same bytes (fonts and versions differ)"]
                    if recorded.read_bytes() != file.read_bytes()
                    else []
                )
            else:
                differences = (
                    compare_csv(recorded, file)
                    if file.suffix == ".csv"
                    else compare_text(recorded.read_text(), file.read_text())
                )
                wrong += (f"{name}, {line}" for line in differences)
        plt.close("all")
    others = [
        file
        for place in ("results", "figures")
        for file in sorted((root / place).glob("**/*"))
        if file.suffix in (".csv", ".png") and file.parent.name != "custom"
    ]
    notes += [
        f"{file.relative_to(root)}: not checked, as it cannot be made from what is recorded"
        for file in others
        if file not in made
    ]
    loaded |= {folder.relative_to(root) / "speed": folder for folder in sorted((root / "results").glob("speed-*"))}
    return wrong + check_readme(root, loaded, write), notes


def compare_csv(recorded: Path, made: Path) -> Iterator[str]:
    """A line for each cell that differs."""
    tables = [pd.read_csv(file, dtype=str, keep_default_na=False) for file in (recorded, made)]
    key = [name for name in KEY if name in tables[1]]
    old, new = (
        {tuple(row.get(name, "nothing") for name in key): row for row in table.to_dict("records")} for table in tables
    )
    assert len(new) == len(tables[1]), f"{', '.join(key)} do not tell the rows of {made.name} apart"
    if len(old) < len(tables[0]):
        yield "a cell is recorded twice"
    for place in dict.fromkeys([*old, *new]):
        if place not in old or place not in new:
            yield f"{' / '.join(place)}: {'not recorded, but recomputed' if place in new else 'recorded, but not recomputed'}"
            continue
        for column, now in new[place].items():
            if (was := old[place].get(column, "nothing")) != now:
                yield f"{' / '.join(place)}, {column}: recorded {was}, recomputed {now}"


def compare_text(recorded: str, made: str) -> Iterator[str]:
    """A line for each line that differs, with the words in which it does."""
    old, new = recorded.splitlines(), made.splitlines()
    for number in range(max(len(old), len(new))):
        was, now = (lines[number] if number < len(lines) else "" for lines in (old, new))
        if was != now:
            words = (
                [(a, b) for a, b in zip(was.split(), now.split()) if a != b]
                if len(was.split()) == len(now.split())
                else [(was, now)]
            )
            yield f"line {number + 1}: " + "; ".join(f"recorded {a}, recomputed {b}" for a, b in words or [(was, now)])


def check_readme(
    root: Path, loaded: dict[Path, list[Prediction] | dict[str, list[Prediction]]], write: bool
) -> list[str]:
    """The README's blocks against their prose filled with what the predictions give; `write` puts these in their place."""
    readme, wrong = root / "README.md", []
    text = readme.read_text() if readme.exists() else ""

    def block(match: re.Match) -> str:
        source, start = match[2], text[: match.start(3)].count("\n")
        key = Path(source.removesuffix(".claims.md"))
        if key not in loaded:
            wrong.append(f"README.md, line {start}: made from {source}, but no predictions of that run can be scored")
            return match[0]
        prose = (root / source).read_text()
        others = {
            f"{other.parent.name} {name}": value
            for other in loaded
            if f"{{{other.parent.name} " in prose
            for name, value in facts(loaded[other]).items()
        }
        try:
            filled = prose.format_map(others | facts(loaded[key]))
        except KeyError as error:
            wrong.append(f"{source}: {error} is no number of that run")
            return match[0]
        if not write:
            wrong.extend(
                re.sub(r"^line (\d+)", lambda m: f"README.md, line {start + int(m[1])}", line)
                for line in compare_text(match[3], filled)
            )
        return match[1] + filled + match[4]

    filled, used = BLOCK.sub(block, text), {match[2] for match in BLOCK.finditer(text)}
    claims = [str(file.relative_to(root)) for file in sorted((root / "results").glob("**/*.claims.md"))]
    wrong += [f"README.md: nothing is made from {name}" for name in claims if name not in used]
    if write:
        readme.write_text(filled)
    return wrong


def facts(predictions: Sequence[Prediction] | dict[str, list[Prediction]] | Path) -> dict[str, str]:
    """Every number that prose may use of a run, by its name, as prose writes it."""
    if isinstance(predictions, Path):  # measured, not predicted
        return report.facts(predictions)
    minus = lambda value: str(value).replace("-", "−")
    made = {}
    if isinstance(predictions, dict):  # Table 6: what each retriever found before and after CoV-RAG's revision
        frame = searched(predictions)
        for row in retrieval.retrieval_table(frame[frame.system == "CoV-RAG"]).dropna(subset="n").itertuples():
            name = f"{row.retriever} {row.questions} {row.measure}"
            made |= {
                f"{name} n": f"{row.n:.0f}",
                f"{name} before": f"{row.first:.1f}",
                f"{name} after": f"{row.last:.1f}",
                f"{name} delta": minus(f"{row.delta:+.1f}"),
                f"{name} interval": minus(f"[{row.delta_low:+.1f}, {row.delta_high:+.1f}]"),
            }
        return made
    frame = evaluation.to_frame(predictions)
    for row in (
        tables.accuracy_table(frame[frame.system.isin(tables.PALETTE)], "table2")
        .query("metric == 'normalised'")
        .itertuples()
    ):
        made |= {
            f"{row.system} {row.dataset}": f"{row.value:.1f}",
            f"{row.system} {row.dataset} interval": f"[{row.low:.0f}–{row.high:.0f}]",
            f"{row.system} {row.dataset} n": str(row.n),
        }
    for name, metric, n, difference, interval, gained, lost, p in tables.compare(frame).itertuples(index=False):
        if metric == "normalised":
            made |= {
                f"{name} points": difference.lstrip("+-"),
                f"{name} interval": minus(interval),
                f"{name} p": p,
                f"{name} gained": str(gained),
                f"{name} lost": str(lost),
            }
    failed = {
        system: ablation.off_question(predictions, system)
        for system in frame.system.unique()
        if system.startswith("Start-Revise")
    }
    made |= {f"{system} off the question": str(counts[0]) for system, counts in failed.items() if counts}
    for system in failed:
        changed = [p.question for p in predictions if p.system == system and p.rounds[0].query != p.question.question]
        made |= {
            f"{system} rewritten": str(len(changed)),
            f"{system} rewritten broken wording": str(sum("+" in question.kind for question in changed)),
        }
    made |= {
        f"{system} gold": f"{100 * found.mean():.1f}"
        for system, found in frame.dropna(subset="gold_last").groupby("system").gold_last
    }
    for system, rows in frame[frame.verdicts > 0].groupby("system"):
        made |= {f"{system} judged {judgment}": str(n) for judgment, n in rows.judgment.value_counts().items()}
        changed = rows[rows.revised & rows.normalised.notna()]
        made |= {
            f"{system} revised": str(len(changed)),
            f"{system} helped": str((changed.normalised.astype(bool) & ~changed.first_normalised.astype(bool)).sum()),
            f"{system} hurt": str((~changed.normalised.astype(bool) & changed.first_normalised.astype(bool)).sum()),
        }
        made[f"{system} majority"] = f"{100 * max(share := rows.first_normalised.dropna().mean(), 1 - share):.1f}"
        for part, n, _, before, after, delta, interval in tables.reference_delta(frame, system).itertuples(index=False):
            made |= {
                f"{system} {part} n": str(n),
                f"{system} {part} before": before,
                f"{system} {part} after": after,
                f"{system} {part} delta": minus(delta),
                f"{system} {part} interval": minus(interval),
            }
    for row in ablation.chain_table(predictions).itertuples():
        made |= {
            f"{row.system} {row.metric}": f"{row.value:.1f}",
            f"{row.system} {row.metric} interval": minus(f"[{row.low:.1f}, {row.high:.1f}]"),
            f"{row.system} {row.metric} n": str(row.n),
        }
    for row in ablation.policies(predictions).itertuples() if "CoV-RAG" in frame.system.values else ():
        rule = row.rule.partition(":")[0]  # a colon in braces would begin a format
        made |= {
            f"{rule} accuracy": f"{row.accuracy:.1f}",
            f"{rule} helped": str(row.helped),
            f"{rule} hurt": str(row.hurt),
        }
    return made


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m covrag_lite.check", description=__doc__.splitlines()[0])
    words.add_argument("--write", action="store_true", help="put the recomputed numbers into the README's blocks")
    wrong, notes = check(write=words.parse_args().write)
    print(
        "\n".join(
            [
                *notes,
                *wrong,
                f"{len(find())} recorded runs scored again: "
                + (f"{len(wrong)} differences" if wrong else "every number follows"),
            ]
        )
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
