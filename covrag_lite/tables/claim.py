"""The paper's main claim as paired differences over all test questions: by training seed, pooled, and by set.

Each row compares two systems on the same questions with the same seeds, in points of whole-word accuracy. It holds
both accuracies, so that every difference is read next to its own baseline, and the minimum detectable effect at 80 %
power. Pooled over seeds, a question counts once, by its mean: seeds repeat the training, not the question.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.labels import format_p, label_of_set
from covrag_lite.records import Prediction
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import Table, pictures
from covrag_lite.tables.accuracy import facts_of, with_labels
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
# Baselines without a verifier: of two seeds' answers, the one with the higher likelihood (computed post hoc).
TWO = "two readers, every query expanded"  # of EXPANDED's answers
PLAIN_TWO = "two plain readers, one search"  # of RAG trained's answers
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
    ("RAG trained", TWO),
    (EXPANDED, TWO, CHOSEN),
    ("RAG trained", PLAIN_TWO, BEST),
    (PLAIN_TWO, DIRECT),
    ("RAG trained", WHERE_DOUBTED, DIRECT),
    ("RAG trained", WHERE_UNLIKELY, WHERE_DOUBTED),
    ("RAG trained", ITERATED, DIRECT),
    ("RAG trained", "CoV-RAG w/o chain, two adapters"),
    ("CoV-RAG, two adapters, likelier answer", DIRECT_LIKELIER),
    ("CoV-RAG, two adapters", "CoV-RAG w/o chain, two adapters"),
)
COMPARISONS = [pair for chain in CHAINS for pair in pairwise(chain)]
# What the picture shows: comparisons with RAG trained over all questions, with their labels and kinds.
VERIFIED, UNVERIFIED, REPLACED = "with a verifier", "without a verifier", "verifier, but its search is replaced"
COLOURS = {VERIFIED: "#2e8b57", UNVERIFIED: "#e0893a", REPLACED: "#777777"}
FOREST = {
    "CoV-RAG": ("CoV-RAG, one model, our mixture", VERIFIED),
    BEST: ("CoV-RAG, two adapters", VERIFIED),
    DIRECT: ("CoV-RAG, two adapters, no scores", VERIFIED),
    CHOSEN: ("query expansion + verifier choice", VERIFIED),
    EXPANDED: ("query expansion", UNVERIFIED),
    TWO: ("query expansion, two readers (post hoc)", UNVERIFIED),
    PLAIN_TWO: ("two readers, one search (post hoc)", UNVERIFIED),
    NEXT: ("two adapters, next five passages", REPLACED),
    SHUFFLED: ("two adapters, another question's search", REPLACED),
}
BY_SET = (BEST, EXPANDED)  # what the second panel shows set by set
JUDGED = {  # systems that verify -> whose first answers
    "CoV-RAG, two adapters": "RAG trained",
    "CoV-RAG": "CoV-RAG-S",
    "CoV-RAG w/o chain, two adapters": "RAG trained, w/o chain",
}
ENDS = {"difference": "", "95 % interval": "interval", "detectable": "visible"}  # of facts, by column
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
        "Paired differences over all questions, in points": with_labels(shown(whole)),
        "The same by set": with_labels(shown(by_set)),
        "How well the verifier judges first answers": judged,
        "The second search, with the paper's rule that the last answer counts": searched,
    }
    columns = ["difference", "95 % interval", "p", "detectable", "n", "gained", "lost", "from, %", "to, %"]
    facts = facts_of_rows("", shown(whole).assign(n=[f"{n:,}" for n in whole.n])[["comparison", "seed", *columns]])
    facts |= facts_of_rows("", shown(by_set)[["comparison", "set", "seed", *columns[:2], "n", *columns[-2:]]])
    facts |= facts_of_rows("judge of", judged) | facts_of_rows("search of", searched)
    listed = whole.drop(columns="set").astype(object).where(whole.notna(), None).to_dict("records")  # JSON has no NaN
    files = {"json": json.dumps(listed, indent=1, ensure_ascii=False) + "\n"}
    notes = [
        f"Accuracy ({METRIC}): a gold answer occurs in the answer as whole words. "
        '"From" and "to" are the accuracies of the two systems on the same questions and seeds.'
    ]
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
    add_two_readers(tables, frames)
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


def add_two_readers(tables: Mapping[str, pd.DataFrame], frames: Mapping[str, pd.DataFrame]) -> None:
    """Add to each seed's outcomes what two readers without a verifier reach, its own and another seed's.

    Expanded queries are the same for both seeds of a pair, so seeds are paired two by two. Plain readers all read
    the same passages: each seed is paired with the next one, the last with the first.
    """
    expanded = [seed for seed in tables if EXPANDED in tables[seed]]
    for pair in zip(expanded[::2], expanded[1::2]):
        chosen = choose_likelier(EXPANDED, "kept_likelihood", *(frames[seed] for seed in pair))
        for seed in pair:
            tables[seed][TWO] = chosen
    plain = [seed for seed in tables if "RAG trained" in tables[seed]]
    for seed, other in zip(plain, plain[1:] + plain[:1]):
        if seed != other:
            tables[seed][PLAIN_TWO] = choose_likelier("RAG trained", "likelihood", frames[seed], frames[other])


def choose_likelier(system: str, likelihood: str, *frames: pd.DataFrame) -> pd.Series:
    """Whether that of two seeds' answers which its reader gives the higher likelihood is right."""
    answers = []
    for frame in frames:
        rows = frame[(frame.system == system) & frame[METRIC].notna()].set_index(["dataset", "id"])
        answers.append(rows[[METRIC, likelihood]].astype(float))
    first, second = answers[0].align(answers[1], join="inner", axis=0)
    return first[METRIC].where(~(second[likelihood] > first[likelihood]), second[METRIC])


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
    """One comparison on the questions that all of these seeds answered."""
    common = reduce(pd.Index.intersection, (table.index for table in tables))
    differences = np.array([(table[b] - table[a]).loc[common] for table in tables])  # (seeds, questions)
    means = differences.mean(axis=0)
    value, low, high = (round(100 * number, 3) for number in metrics.difference_interval(means))
    before, after = (np.mean([table[system].loc[common].mean() for table in tables]) for system in (a, b))
    row = {"from": a, "to": b, "set": name, "seed": seed, "n": len(common)}
    row |= {"accuracy_from": round(100 * before, 3), "accuracy_to": round(100 * after, 3)}
    row |= {"difference": value, "low": low, "high": high}
    row |= {"gained": int((differences > 0).sum()), "lost": int((differences < 0).sum())}
    return row | {"p": float(f"{sign_flip(means):.2g}"), "smallest_visible": round(visible(means), 3)}


def sign_flip(differences: np.ndarray) -> float:
    """The exact two-sided p of a paired difference: how often flipping each question's sign at random gives as much.

    With one seed this is McNemar's exact test; with several, a question's difference is its mean over them.
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
    """How well verdicts separate right from wrong first answers, next to the likelihood and the majority."""
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
            row = {"answers of": name, "set": label_of_set(dataset), "seed": seed, "n": len(some)}
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
    table = pd.DataFrame(
        {
            "comparison": rows["from"] + " → " + rows.to,
            "set": rows.set.map(label_of_set),
            "seed": rows.seed,
            "n": rows.n,
            "from, %": rows.accuracy_from.map("{:.1f}".format),
            "to, %": rows.accuracy_to.map("{:.1f}".format),
            "difference": rows.difference.map("{:+.1f}".format),
            "95 % interval": [format_span(low, high) for low, high in zip(rows.low, rows.high)],
            "gained": rows.gained,
            "lost": rows.lost,
            "p": rows.p.map(format_p),
            "detectable": ["–" if pd.isna(value) else f"{value:.1f}" for value in rows.smallest_visible],
        }
    )
    return table if (rows.set != EVERY).any() else table.drop(columns="set")


def format_span(low: float, high: float) -> str:
    """An interval in points; a dash where too few questions differ for one."""
    return "–" if pd.isna(low) else f"[{low:+.1f}, {high:+.1f}]"


def facts_of_rows(head: str, rows: pd.DataFrame) -> dict[str, str]:
    """Every number of these rows as a fact, named by comparison, set (if any) and seed."""
    made = {}
    for row in rows.rename(columns=ENDS).to_dict("records"):
        about = head, row.pop(rows.columns[0]), row.pop("set", EVERY), row.pop("seed")
        made |= facts_of(" ".join(word for word in about if word not in ("", EVERY)), row)
    return made


def plot(rows: pd.DataFrame, path: Path) -> "pictures.Figure":
    """A forest plot of gains over RAG trained: each system over all questions, and two of them set by set."""
    plt, _ = pictures.style(0.85)
    over_rag = rows[rows["from"] == "RAG trained"]
    whole = over_rag[over_rag.set == EVERY]
    systems = [system for system in FOREST if (whole.to == system).any()]
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(13.5, 1.6 + 0.6 * len(systems)), layout="constrained", width_ratios=(4, 3)
    )
    ticks = []
    for place, system in enumerate(systems):
        label, kind = FOREST[system]
        of_system = whole[whole.to == system]
        mean = of_system.iloc[-1]  # pooled, or the only seed
        single = of_system[of_system.seed != POOLED]
        draw_gain(left, mean, -place, COLOURS[kind])
        if len(single) > 1:
            left.plot(single.difference, [-place - 0.28] * len(single), "o", color=COLOURS[kind], ms=4, alpha=0.6)
        seeds = "1 seed" if len(single) == 1 else f"{len(single)} seeds"
        ticks.append(f"{label}\n{seeds}, n = {mean.n:,}")
    left.set_yticks(-np.arange(len(systems)), ticks)
    for kind, colour in COLOURS.items():
        if any(FOREST[system][1] == kind for system in systems):
            left.plot([], [], "D", color=colour, label=kind)
    left.legend(loc="upper center", bbox_to_anchor=(0.3, -0.1), ncol=1, frameon=False)
    draw_by_set(right, over_rag)
    left.set_title("All questions", size=14)
    right.set_title("By question set", size=14)
    figure.suptitle("Points of accuracy above RAG (trained), with 95 % intervals (small dots: single seeds)", size=14)
    return pictures.save_picture(figure, path)


def draw_by_set(axes: "pictures.Axes", over_rag: pd.DataFrame) -> None:
    """The gains of the systems of `BY_SET`, one row per question set."""
    names = []
    for number, system in enumerate(BY_SET):
        of_system = over_rag[(over_rag.to == system) & (over_rag.set != EVERY)]
        if of_system.empty:
            continue
        of_system = of_system[of_system.seed == of_system.seed.iloc[-1]]  # pooled, or the only seed
        label, kind = FOREST[system]
        names = names or [f"{label_of_set(row.set)} ({row.n:,})" for row in of_system.itertuples()]
        for place, row in enumerate(of_system.itertuples()):
            draw_gain(axes, row, -place + 0.17 - 0.34 * number, COLOURS[kind], size=40)
        axes.plot([], [], "D", color=COLOURS[kind], label=label)
    axes.set_yticks(-np.arange(len(names)), names)
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.1), ncol=1, frameon=False)


def draw_gain(axes: "pictures.Axes", row: pd.Series, place: float, colour: str, size: int = 81) -> None:
    """One difference with its interval."""
    axes.hlines([place], row.low, row.high, colour, lw=3)
    axes.scatter([row.difference], [place], c=colour, marker="D", s=size, zorder=3)
    axes.axvline(0, color=pictures.DARK, lw=1)
