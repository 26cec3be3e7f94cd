"""What is recorded must follow from the recorded predictions: `make check` scores them again and compares every number.

A recorded run is `<table>.predictions.jsonl` with `<table>.manifest.json`, the table's .csv and .md, its picture and,
where the README tells of it, `<table>.claims.md`: the prose with a name in braces for every number. No model is needed.
"""

import argparse
import json
import math
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pandas as pd

from covrag_lite import ablation, config, evaluation, report
from covrag_lite.data import digest, load_passages, load_questions
from covrag_lite.records import Prediction

BLOCK = re.compile(r"(<!-- made from (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
KEY = ["dataset", "system", "metric"]
FIGURE4 = Path("figures/embedded/figure4.csv")
# Parameters that change no number: how fast, where, which of the systems; adapters are told apart by their hash.
IMMATERIAL = {"batch_size", "device", "adapters", "systems", "positions", "chains", "free_every"}


@dataclass(frozen=True)
class Recorded:
    """One recorded run of one table."""

    folder: Path
    table: str
    manifest: dict

    def file(self, end: str) -> Path:
        return self.folder / f"{self.table}.{end}"

    @property
    def config(self) -> config.Config:
        return config.from_notebook(self.manifest["parameters"])


def find(root: Path = config.ROOT) -> list[Recorded]:
    """Every recorded run under results/ and figures/."""
    files = [file for place in ("results", "figures") for file in sorted((root / place).glob("**/*.predictions.jsonl"))]
    names = [file.name.removesuffix(".predictions.jsonl") for file in files]
    return [Recorded(file.parent, name, json.loads((file.parent / f"{name}.manifest.json").read_text())) for file, name in zip(files, names)]


def load(run: Recorded) -> list[Prediction]:
    """The run's predictions, with the questions and passages of its configuration put back."""
    asked = run.config
    questions, passages = load_questions(asked), load_passages(asked)
    for name, rows in (("questions", questions), ("passages", passages)):
        if digest(rows) != run.manifest["data"][name]["sha256"]:
            raise ValueError(f"the {name} of this configuration are no longer those of the run: recorded {run.manifest['data'][name]['sha256']}, now {digest(rows)}")
    made = evaluation.load_predictions(run.file("predictions.jsonl"), questions, passages, asked.model.model)
    bare = {system for system, (_, adapter) in evaluation.SYSTEMS.items() if adapter not in run.manifest.get("adapters", {adapter})}
    return [replace(p, backbone=asked.model.model) if p.system in bare else p for p in made]  # systems that ran without their adapter


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


def listing(root: Path = config.ROOT) -> pd.DataFrame:
    """The recorded runs: what was run on what, and how long it took."""
    rows = [(str(run.folder.relative_to(root)), run.table, backbone(run), run.manifest["data"]["questions"]["n"], run.manifest["hardware"]["gpu"] or run.manifest["hardware"]["machine"],
             run.manifest["commit"][:7], run.manifest["wall_seconds"]) for run in find(root)]
    return pd.DataFrame(rows, columns=["folder", "table", "backbone", "questions", "machine", "commit", "seconds"])


def backbone(run: Recorded) -> str:
    """The model's name, and how its weights are kept where that is not 4 bits."""
    asked = run.config.model
    return Path(asked.model).name + ("" if asked.quantize == "nf4" else f" {asked.quantize}")


def largest(*systems: str, root: Path = config.ROOT) -> dict[str, Recorded]:
    """Of each backbone the recorded run of these systems on the world's test questions that has the most of them."""
    best: dict[str, Recorded] = {}
    size = lambda run: run.manifest["data"]["questions"]["n"]
    for run in find(root):
        name, asked = backbone(run), run.config.data
        if {*systems} <= {*run.manifest["parameters"]["systems"]} and (asked.data, asked.split) == ("world", "test") and (name not in best or size(run) > size(best[name])):
            best[name] = run
    return best


def backbones(root: Path = config.ROOT) -> pd.DataFrame:
    """Figure 4's numbers: WebGLM's recipe, CoV-RAG-S and CoV-RAG on every backbone with a recorded run of the three."""
    systems, rows = ("RAG trained", "CoV-RAG-S", "CoV-RAG"), []
    for name, run in largest(*systems, root=root).items():
        long = report.accuracy_table(evaluation.to_frame(load(run)), "figure4").assign(backbone=name, paper=float("nan"))
        rows.append(long[(long.metric == "normalised") & (long.dataset == "average") & long.system.isin(systems)])
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()


def reproduction(long: pd.DataFrame, manifest: dict, root: Path = config.ROOT) -> pd.DataFrame | None:
    """A new long table beside the recorded one of the same configuration, cell by cell; where there is none, the nearest is named."""
    rivals = []
    for run in find(root):
        recorded = pd.read_csv(run.file("csv"))
        both = long.merge(recorded, on=KEY, suffixes=("", "_recorded"))
        if len(both) and run.folder.is_relative_to(root / "results"):
            rivals.append((changed(manifest, run.manifest), -len(both), str(run.file("csv").relative_to(root)), both, run.manifest))
    if not rivals:
        print("no recorded run has any of these cells")
        return None
    differs, _, name, both, recorded = min(rivals, key=lambda rival: (len(rival[0]), rival[1], rival[2]))
    if differs:
        print(f"no recorded run has this configuration; the nearest, {name}, differs in {'; '.join(differs)}")
        return None
    if "adapters" not in recorded:
        print(f"that run's manifest names its adapters by their folder, {recorded['parameters']['adapters']!r}, not by a hash: that they are today's is not certain")
    both["verdict"] = [verdict(row) for row in both.itertuples()]
    print(f"beside {name}: " + ", ".join(f"{word} {(both.verdict == word).sum()}" for word in ("OK", "within noise", "DIFFERS")) + f" of {len(both)} cells")
    return both[[*KEY, "n", "value", "n_recorded", "value_recorded", "low_recorded", "high_recorded", "verdict"]].round(2)


def verdict(row) -> str:
    """OK where the value is the recorded one; within noise where the interval of the difference, from both n, holds zero."""
    gap = row.value - row.value_recorded
    if row.n == row.n_recorded and abs(gap) < 0.0051:  # recorded with two decimals
        return "OK"
    up, down = math.hypot(row.high - row.value, row.value_recorded - row.low_recorded), math.hypot(row.value - row.low, row.high_recorded - row.value_recorded)
    return "within noise" if gap - down <= 0 <= gap + up else "DIFFERS"


def changed(now: dict, recorded: dict) -> list[str]:
    """What differs between two runs' manifests of all that can change a number."""
    concerns = (config.World, config.Data, config.Model, config.Retrieval, config.Chain)
    defaults = json.loads(json.dumps(config.Config().flat()))
    a, b = (defaults | json.loads(json.dumps(one["parameters"])) for one in (now, recorded))
    differs = [f"{f.name} ({a[f.name]!r}, recorded {b[f.name]!r})" for concern in concerns for f in fields(concern)
               if f.name not in IMMATERIAL and a[f.name] != b[f.name]]
    if "adapters" in recorded:  # by hash; of two tables' runs only the adapters that both used can be compared
        shared = sorted(now["adapters"].keys() & recorded["adapters"].keys())
        differs += [f"the adapter {name}" for name in shared if now["adapters"][name] != recorded["adapters"][name]]
        differs += ["having adapters"] if bool(now["adapters"]) != bool(recorded["adapters"]) else []
    differs += ["the weights"] if now["model_sha256"] != recorded["model_sha256"] else []
    return differs or [f"the {name}" for name in now["data"] if now["data"][name] != recorded["data"].get(name)]


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m covrag_lite.check", description=__doc__.splitlines()[0])
    words.add_argument("--write", action="store_true", help="put the recomputed numbers into the README's blocks")
    wrong, notes = check(write=words.parse_args().write)
    print("\n".join([*notes, *wrong, f"{len(find())} recorded runs scored again: " + (f"{len(wrong)} differences" if wrong else "every number follows")]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
