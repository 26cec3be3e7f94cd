"""What is recorded must follow from the recorded predictions: `make check` scores them again and compares every number.

Where the README tells of a recorded run, its prose stands in the run's `<table>.claims.md`, with a name in braces for
every number; `--write` fills it in. No model is needed.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from covrag_lite import ablation, config, evaluation, report
from covrag_lite.recorded import KEY, Recorded, backbones, find, load
from covrag_lite.records import Prediction

BLOCK = re.compile(r"(<!-- made from (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
FIGURE4 = Path("figures/embedded/figure4.csv")


def make_accuracy(run: Recorded, predictions: Sequence[Prediction], folder: Path) -> None:
    """An accuracy table and its picture, from predictions, in another folder."""
    frame = evaluation.to_frame(sorted(predictions, key=lambda p: list(report.PALETTE).index(p.system)))
    long = report.accuracy_table(frame, run.table)
    report.save_table(folder, run.table, long, report.compare(frame), report.notes(frame))
    report.plot_accuracy(long, report.title(run.table, run.config, long), folder / f"{run.table}.png")


def make_chain(run: Recorded, predictions: Sequence[Prediction], folder: Path) -> None:
    """Table 5 and its picture likewise."""
    long = ablation.chain_table(predictions)
    report.save_chain(folder, long, ablation.policies(predictions), ablation.chain_notes(predictions))
    report.plot_accuracy(long, report.title("table5", run.config, long), folder / "table5.png", None)


MAKE = {"table2": make_accuracy, "table4": make_accuracy, "table5": make_chain}  # how each table follows from predictions


def check(root: Path = config.ROOT, write: bool = False) -> tuple[list[str], list[str]]:
    """Every difference between what is recorded and what the predictions give, and what could not be compared."""
    wrong, notes, loaded = [], [], {}
    with tempfile.TemporaryDirectory() as place:
        for number, run in enumerate(find(root)):
            name = run.file("predictions.jsonl").relative_to(root)
            if run.table not in MAKE:
                notes.append(f"{name}: not checked, as nothing here makes {run.table} from predictions")
                continue
            try:
                loaded[run.folder.relative_to(root) / run.table] = predictions = load(run)
            except FileNotFoundError as error:  # data that cannot be shipped
                notes.append(f"{name}: not checked, {error}")
                continue
            except (ValueError, KeyError) as error:
                wrong.append(f"{name}: {error if isinstance(error, ValueError) else f'{error} is not in the data'}")
                continue
            made = Path(place) / str(number)
            MAKE[run.table](run, predictions, made)
            for file in sorted(made.iterdir()):
                recorded = run.folder / file.name
                if not recorded.exists():
                    notes.append(f"{recorded.relative_to(root)}: not recorded")
                elif file.suffix == ".csv":
                    wrong += (f"{recorded.relative_to(root)}, {line}" for line in compare_csv(recorded, file))
                elif file.suffix == ".md":
                    wrong += (f"{recorded.relative_to(root)}, {line}" for line in compare_text(recorded.read_text(), file.read_text()))
                elif recorded.read_bytes() != file.read_bytes():
                    notes.append(f"{recorded.relative_to(root)}: drawn, but not to the same bytes (fonts and versions differ)")
        if (root / FIGURE4).exists():
            backbones(root).to_csv(Path(place) / "figure4.csv", index=False, float_format="%.2f")
            wrong += (f"{FIGURE4}, {line}" for line in compare_csv(root / FIGURE4, Path(place) / "figure4.csv"))
    return wrong + check_readme(root, loaded, write), notes


def compare_csv(recorded: Path, made: Path) -> Iterator[str]:
    """A line for each cell that differs."""
    old, new = (pd.read_csv(file, dtype=str, keep_default_na=False).set_index(["backbone", *KEY]) for file in (recorded, made))
    for key in dict.fromkeys([*old.index, *new.index]):
        if key not in old.index or key not in new.index:
            yield f"{' / '.join(key)}: {'not recorded, but recomputed' if key in new.index else 'recorded, but not recomputed'}"
            continue
        for column in new.columns:
            was, now = old.loc[key].get(column, "nothing"), new.loc[key, column]
            if was != now:
                yield f"{' / '.join(key)}, {column}: recorded {was}, recomputed {now}"


def compare_text(recorded: str, made: str) -> Iterator[str]:
    """A line for each line that differs, with the words in which it does."""
    old, new = recorded.splitlines(), made.splitlines()
    for number in range(max(len(old), len(new))):
        was, now = (lines[number] if number < len(lines) else "" for lines in (old, new))
        if was != now:
            words = [(a, b) for a, b in zip(was.split(), now.split()) if a != b] if len(was.split()) == len(now.split()) else [(was, now)]
            yield f"line {number + 1}: " + "; ".join(f"recorded {a}, recomputed {b}" for a, b in words or [(was, now)])


def check_readme(root: Path, loaded: dict[Path, list[Prediction]], write: bool) -> list[str]:
    """The README's blocks against their prose filled with what the predictions give; `write` puts these in their place."""
    readme, wrong = root / "README.md", []
    text = readme.read_text() if readme.exists() else ""

    def block(match: re.Match) -> str:
        source, start = match[2], text[: match.start(3)].count("\n")
        key = Path(source.removesuffix(".claims.md"))
        if key not in loaded:
            wrong.append(f"README.md, line {start}: made from {source}, but no predictions of that run can be scored")
            return match[0]
        try:
            filled = (root / source).read_text().format_map(facts(loaded[key]))
        except KeyError as error:
            wrong.append(f"{source}: {error} is no number of that run")
            return match[0]
        if not write:
            wrong.extend(re.sub(r"^line (\d+)", lambda m: f"README.md, line {start + int(m[1])}", line) for line in compare_text(match[3], filled))
        return match[1] + filled + match[4]

    filled, used = BLOCK.sub(block, text), {match[2] for match in BLOCK.finditer(text)}
    claims = [str(file.relative_to(root)) for file in sorted((root / "results").glob("**/*.claims.md"))]
    wrong += [f"README.md: nothing is made from {name}" for name in claims if name not in used]
    if write:
        readme.write_text(filled)
    return wrong


def facts(predictions: Sequence[Prediction]) -> dict[str, str]:
    """Every number that prose may use of a run, by its name, as prose writes it."""
    frame = evaluation.to_frame(predictions)
    minus = lambda value: str(value).replace("-", "−")
    made = {}
    for row in report.accuracy_table(frame, "table2").query("metric == 'normalised'").itertuples():
        made |= {f"{row.system} {row.dataset}": f"{row.value:.1f}", f"{row.system} {row.dataset} interval": f"[{row.low:.0f}–{row.high:.0f}]",
                 f"{row.system} {row.dataset} n": str(row.n)}
    for name, metric, n, difference, interval, gained, lost, p in report.compare(frame).itertuples(index=False):
        if metric == "normalised":
            made |= {f"{name} points": difference.lstrip("+-"), f"{name} interval": minus(interval), f"{name} p": p, f"{name} gained": str(gained), f"{name} lost": str(lost)}
    failed = {system: ablation.off_question(predictions, system) for system in frame.system.unique() if system.startswith("Start-Revise")}
    made |= {f"{system} off the question": str(counts[0]) for system, counts in failed.items() if counts}
    for system, rows in frame[frame.verdicts > 0].groupby("system"):
        changed = rows[rows.revised & rows.normalised.notna()]
        made |= {f"{system} revised": str(len(changed)), f"{system} helped": str((changed.normalised.astype(bool) & ~changed.first_normalised.astype(bool)).sum()),
                 f"{system} hurt": str((~changed.normalised.astype(bool) & changed.first_normalised.astype(bool)).sum())}
        made[f"{system} majority"] = f"{100 * max(share := rows.first_normalised.dropna().mean(), 1 - share):.1f}"
        for part, n, _, before, after, delta, interval in report.reference_delta(frame, system).itertuples(index=False):
            made |= {f"{system} {part} n": str(n), f"{system} {part} before": before, f"{system} {part} after": after,
                     f"{system} {part} delta": minus(delta), f"{system} {part} interval": minus(interval)}
    for row in ablation.chain_table(predictions).itertuples():
        made |= {f"{row.system} {row.metric}": f"{row.value:.1f}", f"{row.system} {row.metric} interval": minus(f"[{row.low:.1f}, {row.high:.1f}]"),
                 f"{row.system} {row.metric} n": str(row.n)}
    return made


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m covrag_lite.check", description=__doc__.splitlines()[0])
    words.add_argument("--write", action="store_true", help="put the recomputed numbers into the README's blocks")
    wrong, notes = check(write=words.parse_args().write)
    print("\n".join([*notes, *wrong, f"{len(find())} recorded runs scored again: " + (f"{len(wrong)} differences" if wrong else "every number follows")]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
