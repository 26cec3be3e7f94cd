"""Table 3: answers ranked by five criteria, where the paper had GPT-4 score them.

A question enters a criterion's ranks only if the judge scored every ranked answer to it; the notes
count the other questions.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import pandas as pd
from scipy.stats import rankdata

from covrag_lite import judging, metrics
from covrag_lite.config import Config
from covrag_lite.engine.endpoint import PREFIX, Endpoint
from covrag_lite.journal import Journal
from covrag_lite.judging import Answers
from covrag_lite.labels import format_p, label_of, with_labels
from covrag_lite.records import Question
from covrag_lite.runs.recorded import Recorded, check_data
from covrag_lite.systems import SYSTEMS
from covrag_lite.tables import Table, accuracy, paper
from covrag_lite.tables.accuracy import PAIRS

RECORDED = "table3-rubric"  # the recorded run under results/
# Shown wherever the paper's ranks are next to the rubric's.
WARNING = "a proxy judge on other questions, not comparable with the paper's GPT-4 ranks"
MEASURES = {
    "rank": "mean rank [95 % interval], 1 is best, tied answers share the best place",
    "high quality": "high-quality answers in % [95 % interval]",
}
SCORES = ["judge", "dataset", "id", "system", "criterion", "score", "ranked"]
LONG = ["judge", "criterion", "system", "measure", "n", "value", "low", "high", "paper"]


def load(run: Recorded) -> tuple[Answers, list[dict]]:
    """The judged answers and the recorded verdicts."""
    # Only the judging parameters count: the others had no effect, and their defaults may change.
    answers = judging.load_answers(Config(judging=run.config.judging), run.root)
    check_data(run, questions=answers.questions, passages=answers.passages)
    lines = run.file("verdicts.jsonl").read_text().splitlines()
    return answers, [json.loads(line) for line in lines]


def build(basis: tuple[Answers, list[dict]], run: Recorded) -> Table:
    """Table 3 from the judged answers and a served judge's verdicts; the rubric judges again."""
    answers, verdicts = basis
    verdicts = judge(run.config, answers, verdicts)
    scores = to_frame(verdicts, answers)
    long, comparison = rank_table(scores), compare_ranked(scores)
    parts = {}
    for name, (measure, heading) in product(dict.fromkeys(long.judge), MEASURES.items()):
        parts[f"By {name}: {heading}"] = with_labels(wide_ranks(long, name, measure)).reset_index()
    if judging.PROXY in set(long.judge):
        heading = f"The paper's ranks next to the rubric's: {WARNING}"
        parts[heading] = flat_columns(next_to_paper(long))
    parts["Pairs of systems on the same questions"] = with_labels(comparison)
    quality = long[(long.measure == "high quality") & (long.judge == long.judge.iloc[0])]
    quality = quality.assign(metric=quality.criterion.map(label_criterion))
    n = len(answers.questions)
    title = f"Table 3: high-quality answers by {quality.judge.iloc[0]}, n = {n} questions"
    plot = partial(accuracy.plot_accuracy, quality, title, metric=None)
    rows = long.assign(table="table3")[["table", *LONG]]
    files = {"verdicts.jsonl": "".join(f"{json.dumps(verdict)}\n" for verdict in verdicts)}
    told = facts(long, comparison)
    return Table("table3", rows, parts, notes(scores), told, {"png": plot}, files, digits=3)


def judge(config: Config, answers: Answers, recorded: Sequence[dict] | None = None) -> list[dict]:
    """Every configured judge's verdicts; a served judge's recorded ones are used again."""
    verdicts = []
    for name in dict.fromkeys(config.judging.judges):
        if name == "rubric":
            verdicts += judging.by_rubric(answers)
        elif not name.startswith(PREFIX):
            raise ValueError(f"unknown judge {name!r}: use 'rubric' or '{PREFIX}<model>'")
        elif recorded is not None:
            verdicts += [verdict for verdict in recorded if verdict["judge"] == name]
        else:
            endpoint = Endpoint(replace(config.model, model=name))
            verdicts += judging.by_endpoint(endpoint, answers, Journal(config.journal()))
    return verdicts


def explain(answers: Answers, verdicts: Sequence[dict]) -> tuple[Question, pd.DataFrame]:
    """The first question with the most different answers, and the first judge's scores of them."""
    group = max(answers.groups, key=lambda group: len({p.answer for p in group.values()}))
    question = next(iter(group.values())).question
    scores = next(verdict["scores"] for verdict in verdicts if verdict["id"] == question.id)
    table = pd.DataFrame(scores).rename(columns=label_criterion).rename_axis("system")
    table.insert(0, "answer", [group[system].answer for system in table.index])
    return question, table


def label_criterion(criterion: str) -> str:
    """How tables call a criterion."""
    return criterion.replace("_", " ")


def to_frame(verdicts: Sequence[dict], answers: Answers) -> pd.DataFrame:
    """One row per judge, question, system and criterion.

    Citations are ranked only among systems that saw the same references.
    """
    rows = []
    for verdict in verdicts:
        about = (verdict["judge"], verdict["dataset"], verdict["id"])
        for criterion, scores in verdict["scores"].items():
            for system, score in scores.items():
                ranked = criterion != "citation_accuracy" or system in answers.cited_together
                rows.append((*about, system, criterion, score, ranked))
    return pd.DataFrame(rows, columns=SCORES).astype({"score": float})


def ranked_scores(scores: pd.DataFrame, judge: str, criterion: str) -> pd.DataFrame:
    """The ranked scores, one row per question and one column per system; higher is better.

    Only questions with a score for every ranked system.
    """
    rows = scores[(scores.judge == judge) & (scores.criterion == criterion) & scores.ranked]
    table = rows.pivot(index="id", columns="system", values="score").dropna()
    table = table[list(dict.fromkeys(rows.system))]
    return -table if criterion == "bias" else table


def rank_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Table 3 in long form: one row per judge, criterion, system and measure."""
    long = []
    for (judge, criterion), rows in scores.groupby(["judge", "criterion"], sort=False):
        table = ranked_scores(scores, judge, criterion)
        places = rankdata(-table.to_numpy(), method="min", axis=1)  # (questions, systems)
        for system, ranks in zip(table, places.T):
            values = paper.find_values("table3", system, rows.dataset.unique())
            row = (judge, criterion, system, "rank", len(ranks), *metrics.mean_bootstrap(ranks))
            long.append((*row, values.get(criterion)))
        for system, answers in rows.groupby("system", sort=False):
            score = answers.score.dropna()
            # The thresholds of high quality are those of the paper's arXiv version.
            passed = {"bias": score < 0.3, "conciseness": score > 0.5}.get(criterion, score == 1)
            row = (judge, criterion, system, "high quality", len(score), *accuracy.share(passed))
            long.append((*row, None))
    return pd.DataFrame(long, columns=LONG).astype({"paper": float})


def wide_ranks(long: pd.DataFrame, judge: str, measure: str) -> pd.DataFrame:
    """One judge's table as a person reads it: one row per system, one column per criterion."""
    rows = long[(long.judge == judge) & (long.measure == measure)]
    rows = rows.assign(metric=rows.criterion.map(label_criterion))
    table = accuracy.wide(rows, None, (1, 1) if measure == "high quality" else (2, 2))
    return table.rename_axis(columns=None)


def next_to_paper(long: pd.DataFrame) -> pd.DataFrame:
    """The rubric's mean ranks, and GPT-4's under the paper's names of the systems.

    They are not comparable: the judges, the questions and the length of the answers differ.
    """
    ours = long[(long.judge == judging.PROXY) & (long.measure == "rank")]
    ours = ours.pivot(index="criterion", columns="system", values="value")
    ours = ours.loc[list(dict.fromkeys(long.criterion))]
    columns = {}
    for system in dict.fromkeys(long.system):
        name = SYSTEMS[system].paper["table3"]
        ranks = paper.load_paper()["table3"]["rows"][name]
        columns[label_of(system), "rubric"] = ours[system]
        columns[label_of(system), f"{name}, GPT-4"] = pd.Series(ranks, dtype=float)
    table = pd.DataFrame(columns, index=ours.index).map(lambda rank: f"{rank:.2f}")
    return table.replace("nan", "–").rename(index=label_criterion)


def flat_columns(table: pd.DataFrame) -> pd.DataFrame:
    """`next_to_paper` with one row of headers, as Markdown needs it."""
    headers = [f"{system}, {judge}" if judge == "rubric" else judge for system, judge in table]
    return table.set_axis(headers, axis=1).reset_index()


def compare_ranked(scores: pd.DataFrame) -> pd.DataFrame:
    """Pairs of systems: how often the second answer is better, tied or worse, and the sign test."""
    rows = []
    judged = scores[["judge", "criterion"]].drop_duplicates()
    for judge, criterion in judged.itertuples(index=False):
        table = ranked_scores(scores, judge, criterion)
        for a, b in PAIRS:
            if a in table and b in table:
                won, lost, p = metrics.mcnemar(table[b] < table[a], table[b] > table[a])
                tied = len(table) - won - lost
                about = (judge, f"{a} → {b}", label_criterion(criterion), len(table))
                rows.append((*about, won, tied, lost, format_p(p)))
    counts = ["better", "tied", "worse", "sign test p"]
    return pd.DataFrame(rows, columns=["judge", "comparison", "criterion", "n", *counts])


def facts(long: pd.DataFrame, comparison: pd.DataFrame) -> dict[str, str]:
    """Mean ranks, shares of high quality and pairs of systems, by judge."""
    rows = long.assign(criterion=long.criterion.map(label_criterion))
    ranks, quality = (rows[rows.measure == measure] for measure in MEASURES)
    name = "{judge} {system} {criterion}"
    forms = {"rank": "{value:.2f}", "rank interval": "[{low:.2f}–{high:.2f}]", "n": "{n}"}
    told = accuracy.tell_rows(ranks, name, forms)
    told |= accuracy.tell_rows(quality, name, {"high quality": "{value:.1f}"})
    forms = {word: f"{{{word}}}" for word in ("better", "tied", "worse")}
    forms["p"] = "{sign test p}"
    return told | accuracy.tell_rows(comparison, "{judge} {comparison} {criterion}", forms)


def notes(scores: pd.DataFrame) -> list[str]:
    """The lines under a table of ranks: missing scores, and whose citations are not ranked."""
    lines = []
    for judge, rows in scores.groupby("judge", sort=False):
        missing = f"{rows.score.isna().sum()} of {len(rows)} scores are missing"
        lines.append(
            f"{judge}: {missing} (an unreadable reply, or a gold answer that cannot be compared);"
            " such a question is left out of that criterion."
        )
        for system in dict.fromkeys(rows[~rows.ranked].system):
            citations = f"the citations of {label_of(system)} are not ranked"
            lines.append(f"{judge}: {citations}, because its references differ from the others'.")
    return lines
