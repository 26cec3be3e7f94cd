"""Table 3: answers ranked by five criteria, where the paper had GPT-4 score them.

A question enters a criterion's ranks only if the judge scored every ranked answer to it; the notes
count the other questions.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import pandas as pd

import covrag_lite.tables.paper as paper
from covrag_lite.config import Config
from covrag_lite.engine.endpoint import PREFIX, Endpoint
from covrag_lite.engine.journal import Journal
from covrag_lite.judging.answers import Answers, load_answered, load_answers
from covrag_lite.judging.rubric import PROXY, judge_by_rubric
from covrag_lite.judging.served import EXAMPLE_SCORE, judge_by_endpoint
from covrag_lite.records import Question
from covrag_lite.runs.recorded import Recorded, check_data, load_or_outcomes
from covrag_lite.systems import find_system
from covrag_lite.tables.accuracy import wide
from covrag_lite.tables.accuracy_picture import plot_accuracy
from covrag_lite.tables.agreement import (
    HEADING,
    agreement_facts,
    compare_scores,
    format_agreement,
)
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.labels import label_of, label_of_judge, with_labels
from covrag_lite.tables.ranks import (
    HIGH_QUALITY,
    RANK,
    RANK_COLUMNS,
    compare_ranked,
    label_criterion,
    rank_table,
    score_frame,
)
from covrag_lite.tables.table import Table

RECORDED = "table3-rubric"  # the recorded run of the fictional world, under results/
RUBRIC = "rubric"  # the value of the parameter `judges`
# Shown wherever the paper's ranks are next to the rubric's.
WARNING = "a proxy judge on other questions, not comparable with the paper's GPT-4 ranks"
MEASURE_LABELS = {
    RANK: "mean rank [95 % interval], 1 is best, tied answers share the best place",
    HIGH_QUALITY: "high-quality answers in % [95 % interval]",
}
DIGITS = {RANK: (2, 2), HIGH_QUALITY: (1, 1)}  # of values and of intervals


def load(run: Recorded) -> tuple[Answers, list[dict]]:
    """Load the judged answers and the recorded verdicts; without the data only outcomes and ids."""
    return load_or_outcomes(run, load_judged, load_judged_outcomes)


def load_judged(run: Recorded) -> tuple[Answers, list[dict]]:
    """Load the judged answers with their texts, and the recorded verdicts."""
    # Only the judging parameters count: the others had no effect, and their defaults may change.
    answers = load_answers(Config(judging=run.config.judging), run.root)
    check_data(run, questions=answers.questions, passages=answers.passages)
    return answers, read_verdicts(run)


def load_judged_outcomes(run: Recorded) -> tuple[Answers, list[dict]]:
    """Load the judged answers without the data, and the recorded verdicts."""
    return load_answered(run.config, run.root), read_verdicts(run)


def read_verdicts(run: Recorded) -> list[dict]:
    """Read the recorded verdicts of a run."""
    lines = run.file("verdicts.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def build(basis: tuple[Answers, list[dict]], run: Recorded) -> Table:
    """Build Table 3 from the judged answers and verdicts; where it can, the rubric judges again."""
    answers, recorded_verdicts = basis
    verdicts = judge(run.config, answers, recorded_verdicts)
    scores = score_frame(verdicts, answers)
    long = rank_table(scores)
    comparisons = compare_ranked(scores)
    agreement = compare_scores(scores, answers)
    parts = {}
    for name, (measure, heading) in product(dict.fromkeys(long.judge), MEASURE_LABELS.items()):
        ranks = wide_ranks(long, name, measure).reset_index()
        parts[f"By {label_of_judge(name)}: {heading}"] = ranks
    parts[HEADING] = format_agreement(agreement)
    if PROXY in set(long.judge):
        heading = f"The paper's ranks next to the rubric's: {WARNING}"
        parts[heading] = flat_columns(next_to_paper(long))
    parts["Pairs of systems on the same questions"] = with_labels(comparisons)
    rows = long.assign(table="table3")[["table", *RANK_COLUMNS]]
    facts = rank_facts(long, comparisons) | agreement_facts(agreement)
    plots = {"png": plot_quality(long, len(answers.questions))}
    files = {"verdicts.jsonl": "".join(f"{json.dumps(verdict)}\n" for verdict in verdicts)}
    return Table("table3", rows, parts, notes(scores), facts, plots, files, digits=3)


def judge(
    config: Config,
    answers: Answers,
    recorded_verdicts: Sequence[dict] | None = None,
    by_rubric: Callable[[Answers], list[dict]] = judge_by_rubric,
    by_endpoint: Callable[[Endpoint, Answers, Journal], list[dict]] = judge_by_endpoint,
) -> list[dict]:
    """Return every configured judge's verdicts.

    A served judge's recorded verdicts are used again, and so are the rubric's if the texts that it
    compares are missing.
    """
    verdicts = []
    for name in dict.fromkeys(config.judging.judges):
        if name == RUBRIC and (answers.has_texts or recorded_verdicts is None):
            verdicts += by_rubric(answers)
        elif name != RUBRIC and not name.startswith(PREFIX):
            raise ValueError(f"unknown judge {name!r}: use {RUBRIC!r} or '{PREFIX}<model>'")
        elif recorded_verdicts is not None:
            recorded_name = PROXY if name == RUBRIC else name
            verdicts += [v for v in recorded_verdicts if v["judge"] == recorded_name]
        else:
            endpoint = Endpoint(replace(config.model, model=name))
            verdicts += by_endpoint(endpoint, answers, Journal(config.journal()))
    return verdicts


def explain(answers: Answers, verdicts: Sequence[dict]) -> tuple[Question, pd.DataFrame]:
    """Return the first question with the most different answers, and the first judge's scores."""
    group = max(answers.groups, key=count_distinct)
    question = next(iter(group.values())).question
    verdict = next(verdict for verdict in verdicts if verdict["id"] == question.id)
    table = pd.DataFrame(verdict["scores"]).rename(columns=label_criterion).rename_axis("system")
    table.insert(0, "answer", [group[system].answer for system in table.index])
    return question, with_labels(table)


def count_distinct(group: Mapping) -> int:
    """Count the different answers to a question."""
    return len({prediction.answer for prediction in group.values()})


def plot_quality(long: pd.DataFrame, n: int) -> partial:
    """Return the function that plots the shares of high-quality answers by the first judge."""
    name = long.judge.iloc[0]
    quality = long[(long.measure == HIGH_QUALITY) & (long.judge == name)]
    quality = quality.assign(metric=quality.criterion.map(label_criterion))
    title = f"Table 3: high-quality answers by {label_of_judge(name)}, n = {n} questions"
    return partial(plot_accuracy, quality, title, metric=None)


def wide_ranks(long: pd.DataFrame, judge: str, measure: str) -> pd.DataFrame:
    """Return one judge's table as people read it: a row per system, a column per criterion."""
    rows = long[(long.judge == judge) & (long.measure == measure)]
    rows = rows.assign(metric=rows.criterion.map(label_criterion))
    return with_labels(wide(rows, None, DIGITS[measure]).rename_axis(columns=None))


def next_to_paper(long: pd.DataFrame) -> pd.DataFrame:
    """Return the rubric's mean ranks, and GPT-4's under the paper's names of the systems.

    They are not comparable: the judges, the questions and the length of the answers differ.
    """
    ranks = long[(long.judge == PROXY) & (long.measure == RANK)]
    ranks = ranks.pivot(index="criterion", columns="system", values="value")
    ranks = ranks.loc[list(dict.fromkeys(long.criterion))]
    columns = {}
    for system in dict.fromkeys(long.system):
        paper_name = find_system(system).paper["table3"]
        paper_ranks = paper.load_paper()["table3"]["rows"][paper_name]
        columns[label_of(system), RUBRIC] = ranks[system]
        columns[label_of(system), f"{paper_name}, GPT-4"] = pd.Series(paper_ranks, dtype=float)
    table = pd.DataFrame(columns, index=ranks.index).map(lambda rank: f"{rank:.2f}")
    return table.replace("nan", "–").rename(index=label_criterion)


def flat_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Return `next_to_paper` with one row of headers, as Markdown needs it."""
    headers = []
    for system, judge_name in table:
        headers.append(f"{system}, {judge_name}" if judge_name == RUBRIC else judge_name)
    return table.set_axis(headers, axis=1).reset_index()


def rank_facts(long: pd.DataFrame, comparisons: pd.DataFrame) -> dict[str, str]:
    """Return mean ranks, shares of high quality and pairs of systems as facts, by judge."""
    rows = long.assign(criterion=long.criterion.map(label_criterion))
    name = "{judge} {system} {criterion}"
    ranks = rows[rows.measure == RANK]
    facts = facts_of_rows(ranks, name, {"rank": "{value:.2f}", "n": "{n}"})
    interval = {"rank interval": "[{low:.2f}–{high:.2f}]"}
    facts |= facts_of_rows(ranks.dropna(subset="low"), name, interval)
    forms = {"high quality": "{value:.1f}"}
    facts |= facts_of_rows(rows[rows.measure == HIGH_QUALITY], name, forms)
    forms = {"better": "{better}", "tied": "{tied}", "worse": "{worse}", "p": "{sign test p}"}
    return facts | facts_of_rows(comparisons, "{judge} {comparison} {criterion}", forms)


def notes(scores: pd.DataFrame) -> list[str]:
    """Return the notes under a table of ranks: missing scores, and citations without ranks."""
    lines = []
    for name, rows in scores.groupby("judge", sort=False):
        judge_name = label_of_judge(name)
        missing = f"{rows.score.isna().sum()} of {len(rows)} scores are missing"
        lines.append(
            f"{judge_name}: {missing} (an unreadable reply, or a gold answer that cannot be"
            " compared); such a question is left out of that criterion."
        )
        for system in dict.fromkeys(rows[~rows.ranked].system):
            citations = f"the citations of {label_of(system)} are not ranked"
            lines.append(
                f"{judge_name}: {citations}, because its references differ from the others'."
            )
        if name == PROXY:
            lines.append(
                f"{judge_name}: its correctness is the gold answer's rule itself, so it agrees "
                "with the gold answers by construction."
            )
        else:
            copied = (rows.score == EXAMPLE_SCORE).sum()
            lines.append(
                f"{judge_name}: {copied} of {rows.score.notna().sum()} scores repeat the "
                f"{EXAMPLE_SCORE} of the form that a reply fills in."
            )
    return lines
