"""Each recorded table and picture made anew into another folder, from what its run recorded."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name

import pandas as pd

from covrag_lite import config
from covrag_lite.judging import judges, ranking
from covrag_lite.judging.answers import Answers, load_answers
from covrag_lite.records import Prediction
from covrag_lite.runs.choice import choose
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Recorded, check_data, load_or_outcomes, load_searches
from covrag_lite.tables import accuracy as tables
from covrag_lite.tables import figure4 as sizes
from covrag_lite.tables import live, pictures, sigma
from covrag_lite.tables import table5 as ablation
from covrag_lite.tables import table6 as retrieval
from covrag_lite.tables.world import knob_effects


def load_basis(run: Recorded, root: Path) -> object:
    """What a run's table is made from: predictions, for Table 6 by retriever; for Table 3 answers and verdicts."""
    if run.table == "table6":
        return load_searches(run)
    if run.table == "related":
        return resolve_name("covrag_lite.related.table:load")(run)
    if run.table != "table3":
        return load_or_outcomes(run)
    if not run.config.judging.predictions:
        raise FileNotFoundError("as the systems ran anew for it and their answers are not recorded")
    # Of its parameters those of judging alone: the others were without effect, and their defaults may have changed.
    answers = load_answers(config.Config(judging=run.config.judging), root)
    check_data(run, questions=answers.questions, passages=answers.passages)
    return answers, judges.load_verdicts(run.file("verdicts.jsonl"))


def make_related(run: Recorded, frame: pd.DataFrame, folder: Path) -> None:
    """The table and the picture of related systems."""
    resolve_name("covrag_lite.related.table:save")(run, frame, folder)


def make_accuracy(run: Recorded, predictions: Sequence[Prediction], folder: Path) -> None:
    """Table 2 or 4 and its picture."""
    frame = to_frame(predictions)  # in the order in which they ran, as the notes under the table stand
    long = tables.accuracy_table(frame, run.table)
    tables.save_table(folder, run.table, long, tables.compare(frame), tables.notes(frame))
    picture = folder / f"{run.table}.png"
    if run.table == "table2":
        live.plot(run.manifest, *load_larger(run), frame, picture)
    else:
        pictures.plot_accuracy(long, tables.title(run.table, run.config, long), picture)


def load_larger(run: Recorded) -> tuple[Recorded | None, pd.DataFrame]:
    """The record that a sample was answered beside, and its frame; nothing where the run is no sample of one."""
    larger = choose(run.config, run.root)
    if larger is None or larger.n <= run.n:
        return None, pd.DataFrame()
    return larger, to_frame(load_basis(larger, run.root))


def make_chain(run: Recorded, predictions: Sequence[Prediction], folder: Path) -> None:
    """Table 5 and its picture."""
    long = ablation.chain_table(predictions)
    rules, judged = ablation.policies(predictions), ablation.judges_of(predictions)
    gains = ablation.gains_of(predictions)
    ablation.save_chain(folder, long, rules, judged, gains, ablation.chain_notes(predictions))
    pictures.plot_accuracy(long, tables.title("table5", run.config, long), folder / "table5.png", None)


def make_ranks(run: Recorded, basis: tuple[Answers, pd.DataFrame], folder: Path) -> None:
    """Table 3 and its picture, from the judged answers and the recorded verdicts; the rubric judges anew."""
    answers, known = basis
    scores = judges.judge(run.config, answers, known)
    long = ranking.rank_table(scores, "table3")
    compared, agreement = ranking.compare_ranked(scores), ranking.agreement_table(scores)
    ranking.save_ranks(folder, "table3", long, compared, agreement, ranking.notes(scores))
    judges.save_verdicts(folder / "table3.verdicts.jsonl", scores)
    pictures.plot_ranks(long, ranking.title(run.config, answers), folder / "table3.png")


def make_rules(run: Recorded, predictions: Sequence[Prediction], folder: Path) -> None:
    """What each rule for σ gives on validation questions."""
    sigma.save_rules(folder, sigma.cross_validate_sigma(predictions)[1])


def make_retrieval(run: Recorded, searches: dict[str, list[Prediction]], folder: Path) -> None:
    """Table 6 and its pictures, with the part that is searched without a model."""
    frame = retrieval.join_retrievers(searches)
    own, without = frame[frame.system == "CoV-RAG"], frame[frame.system == "clean wording"]
    revised, clean = retrieval.retrieval_table(own), retrieval.retrieval_table(without)
    retrieval.save(folder, revised, clean, retrieval.notes(own))
    pictures.plot_retrieval(revised, retrieval.title(run.config), folder / "table6.png")
    pictures.plot_clean_wording(clean, folder / "table6.clean.png")


def make_sizes(root: Path, bases: Mapping[Path, object], folder: Path) -> None:
    """Figure 4, from the runs on real questions."""
    if sizes.PLACE in bases:
        sizes.save(folder, sizes.size_table(bases[sizes.PLACE]))


def make_world(root: Path, bases: Mapping[Path, object], folder: Path) -> None:
    """What the world's knobs do, from the world."""
    effects = knob_effects(config.Config())
    pictures.plot_knobs(effects, folder / "world.png")
    effects.to_csv(folder / "world.csv", index=False, float_format="%.2f")


def make_speed(root: Path, bases: Mapping[Path, object], folder: Path) -> None:
    """The pictures of the recorded speed."""
    importlib.import_module("benchmarks.report").plots(root, folder)


MAKE = {
    "table2": make_accuracy,
    "table3": make_ranks,
    "table4": make_accuracy,
    "table5": make_chain,
    "table6": make_retrieval,
    "related": make_related,
    "sigma": make_rules,
}
# Those of figures/embedded that are no table's; `bases` holds what prose may tell of, by its place.
FIGURES = {"figure4": make_sizes, "world": make_world, "speed.training": make_speed}
