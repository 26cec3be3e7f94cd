"""What several training seeds of one backbone agree on: the same tables' comparisons, seed by seed and on average.

Questions are what is resampled: intervals tell of other questions, the spread between seeds of other trainings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.records import Prediction
from covrag_lite.runs.outcomes import outcome_of, to_frame
from covrag_lite.tables import Table, verifier
from covrag_lite.tables.accuracy import minus, with_interval
from covrag_lite.tables.table5 import CHAINS, cut

PAIRS = (
    ("RAG trained", "CoV-RAG-S"),
    ("RAG trained", "CoV-RAG"),
    ("CoV-RAG-S", "CoV-RAG"),
    ("RAG trained", "CoV-RAG, likelier answer"),
    ("CoV-RAG-S", "CoV-RAG, likelier answer"),
)
MEAN = "mean"  # in the place of a seed
COLUMNS = ("what", "seed", "n", "value", "low", "high", "gained", "lost", "p")


@dataclass(frozen=True)
class Seeds:
    """The predictions of one backbone's training seeds: of Table 2, and of Table 5 where it was run."""

    table2: Mapping[str, Sequence[Prediction]]
    table5: Mapping[str, Sequence[Prediction]]

    @cached_property
    def frames(self) -> dict[str, pd.DataFrame]:
        """Table 2's predictions as frames."""
        return {seed: to_frame(made) for seed, made in self.table2.items()}


def gather(bases: Mapping[Path, object]) -> dict[Path, Seeds]:
    """Predictions by <folder>/seed-<n>/<table>, as one for each folder that holds Table 2 of at least two seeds."""
    found = {}
    for place, predictions in bases.items():
        name, _, seed = place.parent.name.partition("-")
        if name == "seed" and place.name in ("table2", "table5"):
            tables_of = found.setdefault(place.parent.parent, {"table2": {}, "table5": {}})
            tables_of[place.name][seed] = predictions
    return {folder: Seeds(**by_table) for folder, by_table in found.items() if len(by_table["table2"]) > 1}


def build(seeds: Seeds) -> Table:
    """The seeds beside each other."""
    long = comparisons(seeds)
    shown = pd.DataFrame(
        {
            "what": long.what,
            "seed": long.seed,
            "n": long.n,
            "difference": [f"{value:+.1f}" for value in long.value],
            "95 % interval": [f"[{low:+.1f}, {high:+.1f}]" for low, high in zip(long.low, long.high)],
            "gained": long.gained.astype(object).fillna(""),
            "lost": long.lost.astype(object).fillna(""),
            "McNemar p": ["" if pd.isna(p) else f"{p:.3f}" for p in long.p],
        }
    )
    shares, judged, alike = accuracies(seeds), judges(seeds), unrevised(seeds)
    parts = {
        "Accuracy in %, normalised, all questions together": shares.reset_index(),
        "Comparisons on the same questions, in points": shown,
        "CoV-RAG's judge": judged,
    }
    if len(alike):
        parts["Right first answers above wrong ones by the chance that no question is revised"] = alike
    return Table("seeds", long, parts, facts=facts(shares, shown, judged, alike))


def facts(shares: pd.DataFrame, shown: pd.DataFrame, judged: pd.DataFrame, alike: pd.DataFrame) -> dict[str, str]:
    """Accuracies, comparisons and the judge, seed by seed and on average."""
    made = {f"{system} {name}": f"{value:.1f}" for system, row in shares.iterrows() for name, value in row.items()}
    for row in shown.to_dict("records"):
        name = f"{row['what'].replace(':', '')} {row['seed']}"
        made |= {f"{name} points": minus(row["difference"]), f"{name} n": str(row["n"])}
        made[f"{name} interval"] = minus(row["95 % interval"])
        if row["seed"] != MEAN:
            made |= {f"{name} {end}": str(row[end]) for end in ("gained", "lost")} | {f"{name} p": row["McNemar p"]}
    for row in judged.to_dict("records"):
        name = f"judge {row.pop('questions')} {row.pop('seed')}"
        made |= {f"{name} {column}": str(value) for column, value in row.items()}
    return made | {f"{row.system} {row.seed} unrevised AUROC": row.AUROC for row in alike.itertuples()}


def comparisons(seeds: Seeds) -> pd.DataFrame:
    """Every comparison, in points: a row a seed, and one for their mean on the questions that all of them have."""
    made = []
    for what, by_seed in compared(seeds).items():
        if any(both.empty for both in by_seed.values()):
            continue
        for seed, both in by_seed.items():
            points = [100 * value for value in metrics.paired_bootstrap(both.a, both.b)]
            made.append((what, seed, len(both), *points, *metrics.mcnemar(both.a, both.b)))
        if len(by_seed) > 1:
            difference = pd.DataFrame({seed: both.b.astype(float) - both.a for seed, both in by_seed.items()})
            means = difference.dropna().mean(axis=1)
            points = [100 * value for value in metrics.mean_bootstrap(means)]
            made.append((what, MEAN, len(means), *points, None, None, None))
    return pd.DataFrame(made, columns=COLUMNS).astype({"gained": "Int64", "lost": "Int64"})


def compared(seeds: Seeds) -> dict[str, dict[str, pd.DataFrame]]:
    """What is compared, and for each seed both sides, a and b, as a value a question."""
    frames, made = seeds.frames, {}
    for pair in PAIRS:
        sides = {seed: of_pair(frame, pair, "normalised") for seed, frame in frames.items()}
        made[f"answer right: {pair[0]} → {pair[1]}"] = sides
    for name, column in (("an answer", "found"), ("a gold passage", "gold")):
        sides = {seed: of_searches(frame, column) for seed, frame in frames.items()}
        made[f"{name} in the top 5: first → second search"] = sides
    chains = {seed: judge(to_frame([cut(p, 2) for p in own])) for seed, own in seeds.table5.items()}
    for name, column in (("first answer", "first_normalised"), ("last answer", "normalised"), ("judgment", "judged")):
        sides = {seed: of_pair(frame, CHAINS, column) for seed, frame in chains.items()}
        made[f"{name} right: {CHAINS[0]} → {CHAINS[1]}"] = sides
    return made


def judge(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with a column that says where the judgment is right."""
    known = frame.first_normalised.notna() & frame.judgment.fillna("").ne("")
    right = frame.judgment.eq("true") == frame.first_normalised.eq(True)
    return frame.assign(judged=right.where(known, None))


def of_pair(frame: pd.DataFrame, pair: Sequence[str], column: str) -> pd.DataFrame:
    """Two systems' values of one column on the same questions; nothing where one of them was not run."""
    table = frame[frame.system.isin(pair)].pivot(index="id", columns="system", values=column).dropna()
    return table.reindex(columns=list(pair)).dropna().astype(bool).set_axis(["a", "b"], axis=1)


def of_searches(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """What CoV-RAG found by its first and by its last search."""
    known = (frame.system == "CoV-RAG") & frame.normalised.notna() & frame[f"{column}_first"].notna()
    table = frame[known].set_index("id")[[f"{column}_first", f"{column}_last"]]
    return table.astype(bool).set_axis(["a", "b"], axis=1)


def accuracies(seeds: Seeds) -> pd.DataFrame:
    """Every system's accuracy by seed, over all questions together, their mean, and how far the seeds lie apart."""
    columns = {}
    for seed, frame in seeds.frames.items():
        right = frame.dropna(subset="normalised").astype({"normalised": float})
        columns[f"seed {seed}"] = 100 * right.groupby("system", sort=False).normalised.mean()
    table = pd.DataFrame(columns)
    return table.assign(mean=table.mean(axis=1), spread=table.max(axis=1) - table.min(axis=1)).round(1)


def judges(seeds: Seeds) -> pd.DataFrame:
    """CoV-RAG's judge by seed and set."""
    tables = []
    for seed, frame in seeds.frames.items():
        table = verifier.judge_table(frame, groups=lambda rows: [("all", rows), *rows.groupby("dataset", sort=False)])
        tables.append(table.drop(columns=["right", "wording"]))  # no real question is known to be badly put
        tables[-1].insert(1, "seed", seed)
    return pd.concat(tables).sort_values("questions", kind="stable", ignore_index=True)


def unrevised(seeds: Seeds) -> pd.DataFrame:
    """How well the chance that no question is revised, the one score both have, orders first answers in Table 5."""
    rows = []
    for seed, predictions in seeds.table5.items():
        for system in CHAINS:
            own = [p for p in predictions if p.system == system and p.rounds[0].verdict is not None]
            chances = [(p.rounds[0].verdict.probabilities or {}).get("empty") for p in own]
            known = pd.DataFrame({"chance": chances, "right": [outcome_of(p).normalised for p in own]}).dropna()
            if len(known):
                area = metrics.auroc(known.chance, known.right.astype(bool))
                rows.append((system, seed, len(known), with_interval("{:.2f}", *area)))
    return pd.DataFrame(rows, columns=["system", "seed", "n", "AUROC"])
