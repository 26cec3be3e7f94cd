"""Table 3: ranks of answers by five criteria, where the paper had GPT-4 score them, and systems two by two.

A question enters a criterion's ranks only if the judge scored every ranked answer to it; the notes count the others.
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
from covrag_lite.records import Question
from covrag_lite.runs.recorded import Recorded, check_data
from covrag_lite.tables import Table, accuracy
from covrag_lite.tables.accuracy import PAIRS
from covrag_lite.tables.labels import format_p
from covrag_lite.tables.paper import find_values

MEASURES = {
    "rank": "mean rank, tied answers share the best place: ours [95 % interval] (the paper, by GPT-4)",
    "high quality": "high-quality answers in %: ours [95 % interval]",
}
SCORES = ["judge", "dataset", "id", "system", "criterion", "score", "ranked"]
LONG = ["judge", "criterion", "system", "measure", "n", "value", "low", "high", "paper"]


def load(run: Recorded) -> tuple[Answers, list[dict]]:
    """The judged answers, and the recorded verdicts."""
    # Of its parameters those of judging alone: the others were without effect, and their defaults may have changed.
    answers = judging.load_answers(Config(judging=run.config.judging), run.root)
    check_data(run, questions=answers.questions, passages=answers.passages)
    return answers, [json.loads(line) for line in run.file("verdicts.jsonl").read_text().splitlines()]


def build(basis: tuple[Answers, list[dict]], run: Recorded) -> Table:
    """Table 3, from the judged answers and the served judges' verdicts; the rubric judges anew."""
    answers, known = basis
    verdicts = judge(run.config, answers, known)
    scores = to_frame(verdicts, answers)
    long = rank_table(scores)
    parts = {}
    for name, (measure, heading) in product(dict.fromkeys(long.judge), MEASURES.items()):
        parts[f"By {name}: {heading}"] = wide_ranks(long, name, measure).reset_index()
    parts["Systems two by two on the same questions"] = compare_ranked(scores)
    quality = long[(long.measure == "high quality") & (long.judge == long.judge.iloc[0])]
    quality = quality.assign(metric=quality.criterion.str.replace("_", " "))
    title = f"Table 3: high-quality answers by {quality.judge.iloc[0]}, n = {len(answers.questions)} questions"
    plot = partial(accuracy.plot_accuracy, quality, title, metric=None)
    rows = long.assign(table="table3")[["table", *LONG]]
    files = {"verdicts.jsonl": "".join(f"{json.dumps(verdict)}\n" for verdict in verdicts)}
    return Table("table3", rows, parts, notes(scores), plots={"png": plot}, other_files=files, digits=3)


def judge(config: Config, answers: Answers, known: Sequence[dict] | None = None) -> list[dict]:
    """Every configured judge's verdicts; a served judge is not asked where its verdicts are known."""
    made = []
    for name in dict.fromkeys(config.judging.judges):
        if name == "rubric":
            made += judging.by_rubric(answers)
        elif not name.startswith(PREFIX):
            raise ValueError(f"judge {name!r} is not known; use 'rubric' or '{PREFIX}<model>'")
        elif known is not None:
            made += [verdict for verdict in known if verdict["judge"] == name]
        else:
            endpoint = Endpoint(replace(config.model, model=name))
            made += judging.by_endpoint(endpoint, answers, Journal(config.journal()))
    return made


def explain(answers: Answers, verdicts: Sequence[dict]) -> tuple[Question, pd.DataFrame]:
    """The first question with the most different answers, and a frame of these with the first judge's scores."""
    group = max(answers.groups, key=lambda group: len({p.answer for p in group.values()}))
    question = next(iter(group.values())).question
    table = pd.DataFrame(next(verdict["scores"] for verdict in verdicts if verdict["id"] == question.id))
    table.insert(0, "answer", [group[system].answer for system in table.index])
    return question, table


def to_frame(verdicts: Sequence[dict], answers: Answers) -> pd.DataFrame:
    """A row a judge, question, system and criterion; citations of systems with other references are not ranked."""
    rows = []
    for one in verdicts:
        for criterion, given in one["scores"].items():
            for system, score in given.items():
                ranked = criterion != "citation_accuracy" or system in answers.cited_together
                rows.append((one["judge"], one["dataset"], one["id"], system, criterion, score, ranked))
    return pd.DataFrame(rows, columns=SCORES).astype({"score": float})


def ranked_scores(scores: pd.DataFrame, judge: str, criterion: str) -> pd.DataFrame:
    """What is ranked, a row a question and a column a system, the higher the better; questions that lack none."""
    rows = scores[(scores.judge == judge) & (scores.criterion == criterion) & scores.ranked]
    table = rows.pivot(index="id", columns="system", values="score").dropna()[list(dict.fromkeys(rows.system))]
    return -table if criterion == "bias" else table


def rank_table(scores: pd.DataFrame) -> pd.DataFrame:
    """The long form of Table 3: a row a judge, criterion, system and measure, with n, interval and the paper's rank."""
    long = []
    for (judge, criterion), rows in scores.groupby(["judge", "criterion"], sort=False):
        table = ranked_scores(scores, judge, criterion)
        places = rankdata(-table.to_numpy(), method="min", axis=1)  # (questions, systems)
        for system, own in zip(table, places.T):
            known = find_values("table3", system, rows.dataset.unique()).get(criterion)
            long.append((judge, criterion, system, "rank", len(own), *metrics.mean_bootstrap(own), known))
        for system, own in rows.groupby("system", sort=False):
            score = own.score.dropna()
            # High quality as the arXiv version of the paper has it.
            passed = {"bias": score < 0.3, "conciseness": score > 0.5}.get(criterion, score == 1)
            long.append((judge, criterion, system, "high quality", len(score), *accuracy.share(passed), None))
    return pd.DataFrame(long, columns=LONG).astype({"paper": float})


def wide_ranks(long: pd.DataFrame, judge: str, measure: str) -> pd.DataFrame:
    """One judge's table as a person reads it: a row a system, a column a criterion."""
    rows = long[(long.judge == judge) & (long.measure == measure)].assign(metric=long.criterion)
    return accuracy.wide(rows, None, (1, 1) if measure == "high quality" else (2, 2))


def compare_ranked(scores: pd.DataFrame) -> pd.DataFrame:
    """Systems two by two: how often the second one's answer is better, as good or worse, and the exact sign test."""
    compared = []
    for judge, criterion in scores[["judge", "criterion"]].drop_duplicates().itertuples(index=False):
        table = ranked_scores(scores, judge, criterion)
        about = {"judge": judge, "comparison": "", "criterion": criterion, "n": len(table)}
        for a, b in PAIRS:
            if a in table and b in table:
                won, lost, p = metrics.mcnemar(table[b] < table[a], table[b] > table[a])
                told = {"better": won, "tied": len(table) - won - lost, "worse": lost, "sign test p": format_p(p)}
                compared.append(about | {"comparison": f"{a} → {b}"} | told)
    return pd.DataFrame(compared)


def notes(scores: pd.DataFrame) -> list[str]:
    """The lines under a table of ranks: what has no score, and whose citations are not ranked."""
    lines = []
    for judge, rows in scores.groupby("judge", sort=False):
        lines.append(
            f"{judge}: {rows.score.isna().sum()} of {len(rows)} scores are missing (a reply that could not be read, "
            f"or gold that cannot be compared); such a question is left out of that criterion."
        )
        why = "because its references are not always the others'"
        unranked = dict.fromkeys(rows[~rows.ranked].system)
        lines += [f"{judge}: the citations of {system} are not ranked, {why}." for system in unranked]
    return lines
