"""Who judges answers (Section 4.2 of the paper, its Table 3): a rubric of plain rules, or a served model.

The paper had GPT-4 score the answers of several systems to one question and ranked the scores, criterion by criterion.
The rubric of rubric.py is a proxy for such a judge; ballots.py asks a model behind an endpoint. Both give the same
frame: one row a judge, order, question, system and criterion, with a score, or none where the judge's reply could not
be read. The notebook of Table 3 and `check` call this; `ranking` makes the table from the frame.
"""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd

from covrag_lite.config import Config
from covrag_lite.engine.endpoint import PREFIX, Endpoint
from covrag_lite.judging.answers import Answers
from covrag_lite.judging.ballots import by_endpoint
from covrag_lite.judging.rubric import rubric
from covrag_lite.records import Passage, Question
from covrag_lite.runs.journal import Journal

PROXY = "rubric (proxy)"  # its name wherever its numbers are shown
COLUMNS = ["judge", "order", "dataset", "id", "system", "criterion", "score", "ranked"]


def judge(config: Config, answers: Answers, known: pd.DataFrame | None = None) -> pd.DataFrame:
    """Every configured judge's scores in one frame; a served judge is not asked where its verdicts are known."""
    names = config.judging.judges
    for name in names:
        if name != "rubric" and not name.startswith(PREFIX):
            raise ValueError(f"judge {name!r} is not known; use 'rubric' or '{PREFIX}<model>'")
    rows = []
    for name in dict.fromkeys(names):
        if name == "rubric":
            rows += by_rubric(answers)
        elif known is not None:
            rows += known[known.judge == name].itertuples(index=False, name=None)
        else:
            rows += by_endpoint(Endpoint(replace(config.model, model=name)), answers, Journal(config.journal()))
    return pd.DataFrame(rows, columns=COLUMNS).astype({"score": float})


def by_rubric(answers: Answers) -> list[tuple]:
    """The rubric's rows; it knows no order, and its citation scores of systems with other references are not ranked."""
    corpus = {passage.id: passage for passage in answers.passages}
    together = answers.cited_together()
    rows = []
    for prediction in answers.predictions:
        question, system = prediction.question, prediction.system
        scores = rubric(prediction, _gold_passages(question, corpus))
        for criterion, (score, _) in scores.items():
            ranked = criterion != "citation_accuracy" or system in together
            rows.append((PROXY, 1, question.dataset, question.id, system, criterion, score, ranked))
    return rows


def _gold_passages(question: Question, corpus: dict[str, Passage]) -> list[Passage]:
    return [corpus[i] for i in question.gold_passages if i in corpus]


def explain(answers: Answers) -> tuple[Question, pd.DataFrame]:
    """The first question with the most different answers, and a frame of the answers, the rubric's scores, and why."""
    corpus = {passage.id: passage for passage in answers.passages}
    groups = answers.by_question()
    variety = [len({prediction.answer for prediction in group.values()}) for group in groups]
    group = groups[variety.index(max(variety))]
    question = next(iter(group.values())).question
    gold = _gold_passages(question, corpus)
    columns = {}
    for system, prediction in group.items():
        column = {"answer": prediction.answer}
        for criterion, (score, why) in rubric(prediction, gold).items():
            shown = "–" if score is None else f"{score:.2f}"
            column[criterion] = f"{shown}: {why}"
        columns[system] = column
    return question, pd.DataFrame(columns)


def save_verdicts(path: Path, scores: pd.DataFrame) -> None:
    """One JSON line a judge, order and question: ids, systems, criteria and scores, none of the data's own text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        for key, rows in scores.groupby(["judge", "order", "dataset", "id"], sort=False):
            judge_name, order, dataset, question_id = key
            given: dict[str, dict[str, float | None]] = {}
            for row in rows.itertuples():
                score = None if pd.isna(row.score) else round(row.score, 4)
                given.setdefault(row.criterion, {})[row.system] = score
            line = {"judge": judge_name, "order": int(order), "dataset": dataset, "id": question_id, "scores": given}
            file.write(json.dumps(line) + "\n")


def load_verdicts(path: Path) -> pd.DataFrame:
    """A served judge's recorded verdicts as the frame that they came from; whatever it scored is ranked."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        for criterion, given in one["scores"].items():
            for system, score in given.items():
                rows.append((one["judge"], one["order"], one["dataset"], one["id"], system, criterion, score, True))
    return pd.DataFrame(rows, columns=COLUMNS).astype({"score": float})
