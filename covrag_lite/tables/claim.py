"""The paper's claim as paired differences over all test questions: by training seed, pooled, and by set.

A difference is of two systems on the same questions, in points of accuracy in whole words. Beside each stands the
smallest difference that its test would have shown in four of five tries. Pooled over seeds a question counts once, by
its mean: seeds repeat the training, not the question.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.records import Prediction
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import Table, pictures
from covrag_lite.tables.accuracy import facts_of, minus, name_of
from covrag_lite.tables.verifier import tell_area

METRIC = "whole"
POOLED = "pooled"  # in the place of a seed
EVERY = "all"  # in the place of a set
BEST = "CoV-RAG, two adapters, weighed answer"  # which form counts was chosen on validation questions
SHUFFLED = "CoV-RAG, two adapters, another question's search"
NEXT = "CoV-RAG, two adapters, the next passages"  # controls: BEST without its own search
DIRECT = "CoV-RAG w/o chain, two adapters, weighed answer"  # BEST with verdicts that have no scores
DIRECT_LIKELIER = "CoV-RAG w/o chain, two adapters, likelier answer"
DIRECT_NEXT = "CoV-RAG w/o chain, two adapters, the next passages, likelier answer"  # their control
# Controls that verify nothing, and one of these taken only where a verifier, or as often the likelihood, asks for it.
EXPANDED, ITERATED = "RAG trained, every query expanded by guesses", "RAG trained, every query expanded by its answer"
CHOSEN = f"{EXPANDED}, weighed answer"  # the first of them, with a verifier that only chooses between its two answers
WHERE_DOUBTED = "queries expanded where the verifier doubts"
WHERE_UNLIKELY = "queries expanded where answers are unlikely"
TWO = "two readers, every query expanded"  # of EXPANDED's answers in two trainings the likelier one
# Two readers: of a system's answer, the first one or the one it keeps, and CoV-RAG's first one that which weighs more.
CONTROL, READ_ON, BOTH = "two readers, one search", "two readers, the next passages", "two readers, two searches"
READERS = {CONTROL: ("CoV-RAG, two adapters", "first_"), READ_ON: (NEXT, ""), BOTH: (BEST, "")}
CHAINS = (  # each system is compared with the next, the one expected to be worse first
    ("RAG trained", BEST),
    *(("RAG trained", control, BEST) for control in (SHUFFLED, NEXT, CONTROL, READ_ON)),
    ("RAG trained", BOTH),
    (READ_ON, BOTH),
    ("RAG trained", "CoV-RAG, two adapters, likelier answer"),
    ("RAG trained", "CoV-RAG, two adapters"),
    ("RAG trained", "CoV-RAG"),
    ("RAG trained", "CoV-RAG-S", "CoV-RAG"),
    ("CoV-RAG-S", "CoV-RAG, likelier answer"),
    ("RAG trained", DIRECT),
    (BEST, DIRECT),
    ("RAG trained", DIRECT_NEXT, DIRECT_LIKELIER),
    ("RAG trained", DIRECT_LIKELIER),
    ("RAG trained", EXPANDED, DIRECT_LIKELIER),
    (EXPANDED, DIRECT, CHOSEN),
    (EXPANDED, BEST),
    ("RAG trained", CHOSEN),
    (EXPANDED, CHOSEN),
    (EXPANDED, TWO, CHOSEN),
    ("RAG trained", WHERE_DOUBTED, DIRECT),
    ("RAG trained", WHERE_UNLIKELY, WHERE_DOUBTED),
    ("RAG trained", ITERATED, DIRECT),
    ("RAG trained", "CoV-RAG w/o chain, two adapters"),
    ("CoV-RAG, two adapters, likelier answer", DIRECT_LIKELIER),
    ("CoV-RAG, two adapters", "CoV-RAG w/o chain, two adapters"),
)
COMPARISONS = [pair for chain in CHAINS for pair in pairwise(chain)]
FOREST = {  # what the picture shows, over all questions and by set
    ("RAG trained", BEST): "two adapters: one reads, one verifies",
    ("RAG trained", DIRECT): "the same, verdicts without scores",
    ("RAG trained", "CoV-RAG"): "one model for both, as in the paper",
    ("CoV-RAG-S", "CoV-RAG"): "that model over its own first answer",
    ("RAG trained", SHUFFLED): "control: another question's search",
    ("RAG trained", NEXT): "control: the next passages, no revision",
    ("RAG trained", EXPANDED): "control: every query expanded, no verdict",
    ("RAG trained", CHOSEN): "the same, a verifier chooses",
    ("RAG trained", CONTROL): "control: a second reader, no second search",
    ("RAG trained", READ_ON): "control: a second reader, the next passages",
}
JUDGED = {  # systems that verify -> whose first answers
    "CoV-RAG, two adapters": "RAG trained",
    "CoV-RAG": "CoV-RAG-S",
    "CoV-RAG w/o chain, two adapters": "RAG trained, w/o chain",
}
ENDS = {"difference": "", "95 % interval": "interval", "smallest visible": "visible"}  # of facts, by column
TRUST = 0.8  # the expected correctness above which trusting an answer is right most often on validation questions


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """The claim with one training seed."""
    return build_seeds({str(run.config.training.training_seed): to_frame(predictions)})


def build_seeds(frames: Mapping[str, pd.DataFrame]) -> Table:
    """The claim with every training seed that was run, and pooled where these are several."""
    rows = compare_systems(frames)
    last = rows.groupby(["from", "to"]).seed.transform("last")  # pooled where a comparison has several seeds
    whole, by_set = rows[rows.set == EVERY], rows[(rows.set != EVERY) & (rows.seed == last)]
    judged, searched = (
        pd.DataFrame([row for seed, frame in frames.items() for row in tell(frame, seed)])
        for tell in (judge_rows, search_rows)
    )
    parts = {
        "Paired differences over all questions, in points": shown(whole),
        "The same by set": shown(by_set),
        "The judge of first answers": judged,
        "The second search, by the paper's rule that its answer counts": searched,
    }
    told = ["difference", "95 % interval", "p", "smallest visible", "n", "gained", "lost"]
    facts = facts_of_rows("", shown(whole).assign(n=[f"{n:,}" for n in whole.n])[["comparison", "seed", *told]])
    facts |= facts_of_rows("", shown(by_set)[["comparison", "set", "seed", *told[:2]]])
    facts |= facts_of_rows("judge of", judged) | facts_of_rows("search of", searched)
    listed = whole.drop(columns="set").astype(object).where(whole.notna(), None).to_dict("records")  # JSON has no NaN
    files = {"json": json.dumps(listed, indent=1, ensure_ascii=False) + "\n"}
    notes = [f"Accuracy is {METRIC}: a gold answer stands in the answer in whole words."]
    return Table("claim", rows, parts, notes, facts, {"png": partial(plot, rows)}, files, digits=4)


def compare_systems(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Every comparison by seed and pooled, over all questions and by set."""
    tables = {}
    for seed, frame in frames.items():
        known = frame[frame[METRIC].notna()]
        tables[seed] = known.pivot(index=["dataset", "id"], columns="system", values=METRIC).astype(float)
        for name, (system, which) in READERS.items():
            if {system, "CoV-RAG"} <= set(tables[seed]):
                tables[seed][name] = choose_reader(known, system, which)
        if {EXPANDED, DIRECT} <= set(tables[seed]):
            tables[seed] = tables[seed].assign(**expand_some(known))
    expanded = [seed for seed in tables if EXPANDED in tables[seed]]
    for pair in zip(expanded[::2], expanded[1::2]):
        likelier = choose_training(*(frames[seed] for seed in pair))
        for seed in pair:
            tables[seed][TWO] = likelier
    made = []
    for a, b in COMPARISONS:
        sides = {seed: table[[a, b]].dropna() for seed, table in tables.items() if {a, b} <= set(table)}
        if not sides:
            continue
        for name in (EVERY, *sides[min(sides)].index.unique("dataset")):
            own = {seed: table if name == EVERY else table.loc[[name]] for seed, table in sides.items()}
            rows = [difference(a, b, name, seed, [table]) for seed, table in own.items()]
            made += rows + ([difference(a, b, name, POOLED, list(own.values()))] if len(own) > 1 else [])
    return pd.DataFrame(made)


def choose_reader(frame: pd.DataFrame, system: str, which: str) -> pd.Series:
    """Whether the heavier of a system's answer and CoV-RAG's first answer is right."""
    one, other = (frame[frame.system == name].set_index(["dataset", "id"]).sort_index() for name in (system, "CoV-RAG"))
    heavier = other.first_weight.astype(float) > one[f"{which}weight"].astype(float)  # False where one is not known
    return one[f"{which}whole"].astype(float).where(~heavier, other.first_whole.astype(float))


def choose_training(*frames: pd.DataFrame) -> pd.Series:
    """Whether the likelier of two trainings' answers is right, where every query is expanded."""
    own = (frame[(frame.system == EXPANDED) & frame[METRIC].notna()].set_index(["dataset", "id"]) for frame in frames)
    one, other = (part[[METRIC, "kept_likelihood"]].astype(float) for part in own)
    return one[METRIC].where(~(other.kept_likelihood > one.kept_likelihood), other[METRIC])


def expand_some(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """Whether answers are right if queries are expanded only where the verifier asks, or as often by likelihood."""
    first, expanded, verified = (
        frame[frame.system == name].set_index(["dataset", "id"]).sort_index()
        for name in ("RAG trained", EXPANDED, DIRECT)
    )
    doubted = verified.revised.astype(bool)
    unlikely = first.likelihood.astype(float).rank(method="first") <= doubted.sum()
    places = {WHERE_DOUBTED: doubted, WHERE_UNLIKELY: unlikely}
    return {name: expanded.whole.astype(float).where(some, first.whole.astype(float)) for name, some in places.items()}


def trust_in(rows: pd.DataFrame) -> pd.Series:
    """How surely first answers are held for right, as `method.trust` has it."""
    return rows.expected_correctness.astype(float).fillna(rows.unrevised.astype(float))


def difference(a: str, b: str, name: str, seed: str, tables: Sequence[pd.DataFrame]) -> dict:
    """One comparison on the questions that all of these trainings answered."""
    common = reduce(pd.Index.intersection, (table.index for table in tables))
    differences = np.array([(table[b] - table[a]).loc[common] for table in tables])  # (trainings, questions)
    means = differences.mean(axis=0)
    value, low, high = (round(100 * one, 3) for one in metrics.mean_bootstrap(means))
    row = {"from": a, "to": b, "set": name, "seed": seed, "n": len(common)}
    row |= {"difference": value, "low": low, "high": high}
    row |= {"gained": int((differences > 0).sum()), "lost": int((differences < 0).sum())}
    return row | {"p": float(f"{sign_flip(means):.2g}"), "smallest_visible": round(visible(means), 3)}


def sign_flip(differences: np.ndarray) -> float:
    """The exact two-sided p of a paired difference: how often flipping each question's sign at random gives as much.

    With one training it is McNemar's exact test; with several a question's difference is its mean over them.
    """
    # As whole numbers of the smallest step, a half or a third as a mean of seeds has them.
    multiples = (differences * step for step in range(1, 13))
    steps = next(one.round().astype(int) for one in multiples if np.allclose(one, one.round(), atol=1e-7))
    observed = abs(steps.sum())
    sizes, counts = np.unique(np.abs(steps[steps != 0]), return_counts=True)
    if not len(sizes):
        return 1.0
    reach = int((sizes * counts).sum())
    length = 1 << (2 * reach + 1).bit_length()
    turns = 2 * np.pi * np.arange(length // 2 + 1) / length
    transform = np.prod([np.cos(size * turns) ** count for size, count in zip(sizes, counts)], axis=0)
    chances = np.fft.irfft(transform, length)  # of every sum, negative ones at the end
    inside = chances[:observed].sum() + chances[length - observed + 1 :].sum() if observed else 0.0
    return float(min(1.0, max(1 - inside, 1e-12)))  # what is smaller is lost in rounding


def visible(means: np.ndarray) -> float:
    """The smallest difference, in points, that these questions show with 80 % power at p < 0.05."""
    if set(np.unique(means)) <= {-1.0, 0.0, 1.0}:
        return metrics.smallest_visible(int((means > 0).sum()), int((means < 0).sum()), len(means))
    return float(100 * (1.96 + 0.8416) * means.std(ddof=1) / len(means) ** 0.5)


def judge_rows(frame: pd.DataFrame, seed: str) -> Iterator[dict]:
    """How well verdicts on first answers tell right from wrong, beside the answer's likelihood and the majority."""
    for system, name, own in first_answers(frame):
        for dataset in (EVERY, *own.dataset.unique()) if "two" in system else (EVERY,):
            some = own if dataset == EVERY else own[own.dataset == dataset]
            right, trusted = some.first_whole.astype(bool), some.judgment == "true"
            beside_gold = some[~right & (some.words_first == True)]  # noqa: E712 (it may be None)
            told = {
                "right": (trusted == right).mean(),
                f"right, trusting from {TRUST}": ((trust_in(some) >= TRUST) == right).mean(),
                "majority": max(right.mean(), 1 - right.mean()),
                "right ones trusted": trusted[right].mean(),
                "wrong ones trusted": trusted[~right].mean(),
                "wrong ones beside an answer trusted": (beside_gold.judgment == "true").mean(),
            }
            areas = {"AUROC": trust_in(some), "AUROC of the likelihood": some.likelihood}
            areas["AUROC of both, weighed"] = some.first_weight
            row = {"answers of": name, "set": name_of(dataset), "seed": seed, "n": len(some)}
            row |= {key: tell_area(scores, right, "{:.3f}") for key, scores in areas.items()}
            yield row | {key: f"{100 * share:.1f}" for key, share in told.items()}


def search_rows(frame: pd.DataFrame, seed: str) -> Iterator[dict]:
    """What the second search finds, what comes of it, and what a perfect choice between both answers would give."""
    for _, name, own in first_answers(frame):
        first, last = own.first_whole.astype(bool), own.whole.astype(bool)
        told = {
            "searched again": own.revised,
            "an answer in the first passages": own.words_first,
            "in the last": own.words_last,
            "first answer right": first,
            "last": last,
            "the better of both": first | last,
        }
        row = {"answers of": name, "set": EVERY, "seed": seed, "n": len(own)}
        yield row | {key: f"{100 * values.astype(float).mean():.1f}" for key, values in told.items()}


def first_answers(frame: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Each system whose first answers were verified, whose answers these are, and its rows."""
    for system, name in JUDGED.items():
        own = frame[(frame.system == system) & frame.first_whole.notna() & trust_in(frame).notna()]
        if not own.empty:
            yield system, name, own


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Comparisons as people read them."""
    forms = {"comparison": "{from} → {to}", "set": "{set}", "seed": "{seed}", "n": "{n}"}
    forms |= {"difference": "{difference:+.1f}", "95 % interval": "[{low:+.1f}, {high:+.1f}]", "gained": "{gained}"}
    forms |= {"lost": "{lost}", "p": "{p}", "smallest visible": "{smallest_visible:.1f}"}
    told = rows.assign(p=[f"{p:.4f}" if p >= 0.0001 else "< 0.0001" for p in rows.p], set=rows.set.map(name_of))
    made = [{name: form.format(**row) for name, form in forms.items()} for row in told.to_dict("records")]
    return pd.DataFrame(made) if (rows.set != EVERY).any() else pd.DataFrame(made).drop(columns="set")


def facts_of_rows(head: str, rows: pd.DataFrame) -> dict[str, str]:
    """Every number of these rows, named by what it is of, by its set if it is of one, and by the training."""
    made = {}
    for row in rows.rename(columns=ENDS).to_dict("records"):
        about = head, row.pop(rows.columns[0]), row.pop("set", EVERY), row.pop("seed")
        made |= facts_of(" ".join(word for word in about if word not in ("", EVERY)), row)
    return made


def plot(rows: pd.DataFrame, path: Path) -> "pictures.Figure":
    """A forest plot: each comparison over all questions, trainings and their mean, and the first one by set."""
    plt, _ = pictures.style(0.85)
    own = {told: rows[(rows["from"] == a) & (rows.to == b)] for (a, b), told in FOREST.items()}
    own = {told: part[part.set == EVERY] for told, part in own.items() if len(part)}
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.4, 5.4), layout="constrained", width_ratios=(3, 2))
    seeds = {told: whole[whole.seed != POOLED].difference for told, whole in own.items()}
    means = pd.DataFrame([whole.iloc[-1] for whole in own.values()])  # the only training is its own mean
    colours = ["#8a5a2b" if "control" in told else "#1b3a5c" for told in own]
    fewer = [f"; n = {n:,}" if n < means.n.max() else "" for n in means.n]
    draw_rows(left, means, [f"{told} ({len(one)}{n})" for (told, one), n in zip(seeds.items(), fewer)], colours, "D")
    for place, one in enumerate(seeds.values()):
        if len(one) > 1:
            left.plot(one, [-place - 0.3] * len(one), "o", color="#5b8fd0", ms=5)
    first = means.iloc[0]
    by_set = rows[(rows["from"] == first["from"]) & (rows.to == first.to) & (rows.set != EVERY)]
    by_set = by_set[by_set.seed == first.seed]
    draw_rows(right, by_set, [f"{name_of(row.set)} ({row.n:,})" for row in by_set.itertuples()], "#5a5a5a", "o")
    left.set_title("all questions (number of trainings)", size=14)
    right.set_title("the first row, by set", size=14)
    figure.supxlabel("points of accuracy above RAG trained, with 95 % intervals; dots: single trainings", size=14)
    over_rag = means[means["from"] == "RAG trained"].set_index("to").difference
    says = {BEST: "{} points with a verifier", EXPANDED: "{} with none and every query expanded"}
    told = [text.format(minus(f"{over_rag[name]:+.1f}")) for name, text in says.items() if name in over_rag]
    figure.suptitle(": ".join(["What the second round is worth", *([", ".join(told)] if told else [])]), size=14)
    return pictures.save_picture(figure, path)


def draw_rows(axes: "pictures.Axes", rows: pd.DataFrame, labels: list[str], colours: object, mark: str) -> None:
    """Differences with their intervals, one below the other."""
    places = -np.arange(len(rows))
    axes.hlines(places, rows.low, rows.high, colours, lw=3)
    axes.scatter(rows.difference, places, c=colours, marker=mark, s=81, zorder=3)
    axes.set_yticks(places, labels)
    axes.axvline(0, color=pictures.DARK, lw=1)
