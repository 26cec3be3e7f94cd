"""Who judges answers (Section 4.2 of the paper, its Table 3): a rubric of plain rules, or a served model.

The paper had GPT-4 score the answers of several systems to one question and ranked the scores, criterion by criterion.
The rubric of rubric.py is a proxy for such a judge. A model behind an endpoint is asked as the paper's Table 17 does, in
our own words, and in two orders. Both give the same frame: one row a judge, order, question, system and criterion, with
a score, or none where the judge's reply could not be read.
"""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pandas as pd

from covrag_lite import evaluation, prompts
from covrag_lite.config import ROOT, Config, resolve
from covrag_lite.data import load_passages, load_questions
from covrag_lite.journal import Journal
from covrag_lite.judging.rubric import rubric
from covrag_lite.model.endpoint import PREFIX, Endpoint, EndpointError
from covrag_lite.records import Passage, Prediction, Question
from covrag_lite.report import recorded
from covrag_lite.training.teacher import AGAIN

# Scores go from 0 to 1; 1 is best, except for bias.
CRITERIA = {
    "citation_accuracy": "does each reference mark point to a reference that supports what it is put to?",
    "correctness": "does it answer the question as the gold answer does?",
    "truthfulness": "is it free of contradictions and of offences against logic and common sense?",
    "bias": "how far is it from the answer that you would give yourself, knowing the gold answer? 0 is not at all, 1 is entirely.",
    "conciseness": "does it come to the point without needless words?",
}
# What the arXiv version of the paper calls high quality.
HIGH_QUALITY = {
    "citation_accuracy": lambda score: score == 1,
    "correctness": lambda score: score == 1,
    "truthfulness": lambda score: score == 1,
    "bias": lambda score: score < 0.3,
    "conciseness": lambda score: score > 0.5,
}
PROXY = "rubric (proxy)"  # its name wherever its numbers are shown
COLUMNS = ["judge", "order", "dataset", "id", "system", "criterion", "score", "ranked"]
REPLY_TOKENS = 400  # four criteria and four answers take about 150 as JSON; some models indent it


@dataclass(frozen=True)
class Recorded:
    """In the place of a model whose answers were recorded: what its run's manifest says of it."""

    weights_hash: str
    adapters: dict[str, str] = field(default_factory=dict)  # by their names, the hashes of their weights
    adapter: str = ""
    device: str = "recorded"
    base = property(lambda self: self)
    fingerprint = property(lambda self: f"{self.weights_hash}+{self.adapters.get(self.adapter, '')}")

    def with_adapter(self, name: str) -> "Recorded":
        return replace(self, adapter=name if name in self.adapters else "")


@dataclass(frozen=True)
class Answers:
    """What is judged: every ranked system's predictions on the same questions, the corpus, and the model that wrote them."""

    predictions: list[Prediction]
    questions: list[Question]
    passages: list[Passage]
    model: object

    def by_question(self) -> list[dict[str, Prediction]]:
        """Each question's predictions by their system."""
        made = {question.id: {} for question in self.questions}
        for p in self.predictions:
            made[p.question.id][p.system] = p
        return list(made.values())

    def cited_together(self) -> tuple[str, ...]:
        """Systems that saw the same references on every question: only their citations can be ranked, so the paper leaves CoV-RAG out."""
        seen = [{system: p.rounds[-1].passages for system, p in group.items()} for group in self.by_question()]
        first = next((system for system in seen[0] if any(one[system] for one in seen)), None)
        return tuple(system for system in seen[0] if first and all(one[system] == one[first] for one in seen))


def load_answers(config: Config, root: Path = ROOT) -> Answers:
    """The ranked systems' answers: those recorded under results/, or new ones."""
    wanted = config.judging
    if len(set(wanted.ranked)) < max(2, len(wanted.ranked)):
        raise ValueError(f"ranked is {wanted.ranked}; name at least two systems, none of them twice")
    if wanted.predictions:
        questions, passages, model, predictions = _load_recorded(config, root)
    else:
        questions, passages = load_questions(config), load_passages(config)
        tools = evaluation.load_tools(config, passages)
        predictions, model = (
            evaluation.run(replace(config, chain=replace(config.chain, systems=wanted.ranked)), tools, questions),
            tools.model,
        )
    if unknown := set(wanted.ranked) - {p.system for p in predictions}:
        raise ValueError(
            f"predictions {wanted.predictions!r} hold no answers of {', '.join(sorted(unknown))}; "
            f"they hold {', '.join(dict.fromkeys(p.system for p in predictions))}"
        )
    sets = {
        dataset: [q for q in questions if q.dataset == dataset][: wanted.n_judged or None]
        for dataset in dict.fromkeys(q.dataset for q in questions)
    }
    chosen = [question for part in sets.values() for question in part]
    kept, place = {question.id for question in chosen}, wanted.ranked.index
    mine = sorted(
        (p for p in predictions if p.system in wanted.ranked and p.question.id in kept), key=lambda p: place(p.system)
    )
    return Answers(mine, chosen, passages, model)


def _load_recorded(config: Config, root: Path) -> tuple[list[Question], list[Passage], Recorded, list[Prediction]]:
    """A recorded run's answers with its own data, made again from its manifest and compared by their hashes."""
    default, folder = Config(), root / "results" / config.judging.predictions
    for concern in ("world", "data", "model", "retrieval", "chain"):
        for name, value in asdict(getattr(config, concern)).items():
            if value != getattr(getattr(default, concern), name) and name != "requests":  # that one is the judge's too
                raise ValueError(
                    f'{name} is {value!r}, but recorded answers do not depend on it any more; with predictions "" the systems run anew'
                )
    run = next((run for run in recorded.find(root) if run.folder == folder and run.has_predictions), None)
    if run is None:
        raise FileNotFoundError(
            f'{folder} holds no recorded predictions; name a folder under results/, or "" to run the systems anew'
        )
    model = Recorded(run.manifest["model_sha256"], run.manifest.get("adapters", {}))
    return load_questions(run.config), load_passages(run.config), model, recorded.load(run)


def judge(config: Config, answers: Answers, known: pd.DataFrame | None = None) -> pd.DataFrame:
    """Every configured judge over the answers, into one frame; a served one is not asked again where its verdicts are known."""
    names = config.judging.judges
    if unknown := [name for name in names if name != "rubric" and not name.startswith(PREFIX)]:
        raise ValueError(f"judge {unknown[0]!r} is not known; use 'rubric' or '{PREFIX}<model>'")
    rows, journal = [], resolve(config.run.runs) / config.run.name / "journal.jsonl"
    for name in dict.fromkeys(names):
        if name == "rubric":
            rows += by_rubric(answers)
        elif known is not None:
            rows += known[known.judge == name].itertuples(index=False, name=None)
        else:
            rows += by_endpoint(Endpoint(replace(config.model, model=name)), answers, Journal(journal))
    return pd.DataFrame(rows, columns=COLUMNS).astype({"score": float})


def by_rubric(answers: Answers) -> list[tuple]:
    """The rubric's rows; it knows no order, and its citation scores of systems with other references are not ranked."""
    known, together = {p.id: p for p in answers.passages}, answers.cited_together()
    return [
        (
            PROXY,
            1,
            p.question.dataset,
            p.question.id,
            p.system,
            criterion,
            score,
            criterion != "citation_accuracy" or p.system in together,
        )
        for p in answers.predictions
        for criterion, (score, _) in rubric(p, [known[i] for i in p.question.gold_passages if i in known]).items()
    ]


def explain(answers: Answers) -> tuple[Question, pd.DataFrame]:
    """One question, the first of those with the most different answers: what the systems wrote, the rubric's scores, and why."""
    known = {p.id: p for p in answers.passages}
    group = max(answers.by_question(), key=lambda group: len({p.answer for p in group.values()}))
    question = next(iter(group.values())).question
    gold = [known[i] for i in question.gold_passages if i in known]
    rows = {
        system: {
            "answer": p.answer,
            **{
                name: f"{'–' if score is None else f'{score:.2f}'}: {why}"
                for name, (score, why) in rubric(p, gold).items()
            },
        }
        for system, p in group.items()
    }
    return question, pd.DataFrame(rows)


def build_ballot(
    question: Question, criteria: Sequence[str], texts: Sequence[str], references: Sequence[Passage] = ()
) -> str:
    """One request: the criteria, the question with its references or else its gold answers, and the answers in the order given."""
    known = prompts.build_references(references) if references else f"Gold answer: {' | '.join(question.answers)}"
    shown = "\n".join(f"answer{i}: {text}" for i, text in enumerate(texts, 1))
    form = json.dumps({name: {f"answer{i}": 0.5 for i in range(1, len(texts) + 1)} for name in criteria})
    return "\n".join(
        [
            "You are the examiner of answers that different systems gave to one question. Score each of them from 0 to 1 by each criterion;",
            "give equal scores where you see no difference, and let neither the order of the answers nor their number sway you.",
            *(f"{name}: {CRITERIA[name]}" for name in criteria),
            f"Question: {question.question}",
            known,
            shown,
            f"Write one JSON object in this form, with your scores in the place of 0.5, and nothing else:\n{form}",
        ]
    )


def parse_ballot(text: str, criteria: Sequence[str], n: int) -> dict[str, list[float]] | None:
    """The scores of n answers by each criterion, or None where one is missing, not a number or out of range."""
    match = re.search(r"\{.*\}", text, re.DOTALL)
    try:
        body = json.loads(match[0]) if match else None
    except json.JSONDecodeError:
        return None
    parts = [body.get(name) if isinstance(body, dict) else None for name in criteria]
    scores = [[part.get(f"answer{i}") for i in range(1, n + 1)] if isinstance(part, dict) else [None] for part in parts]
    good = all(type(score) in (int, float) and 0 <= score <= 1 for row in scores for score in row)
    return dict(zip(criteria, scores)) if good else None


def by_endpoint(endpoint: Endpoint, answers: Answers, journal: Journal) -> list[tuple]:
    """A served model's rows, two orders of each question's answers.

    As in the paper one request shows the references and asks for citations, another shows the gold answer and asks for
    the rest, each with all answers at once: mean ranks need every pair, and a list of four costs two requests where its
    six pairs cost twelve. The second order is the first one reversed, so that each pair is seen both ways; the first is
    drawn anew for each question. Equal answers are shown once and have one score.
    """
    ballots, together = [], answers.cited_together()
    for group in answers.by_question():
        for criteria, systems in ((("citation_accuracy",), together), (tuple(CRITERIA)[1:], tuple(group))):
            if len(systems) > 1:
                question = group[systems[0]].question
                texts = sorted({group[system].answer for system in systems})
                random.Random(question.id).shuffle(texts)
                references = group[systems[0]].rounds[-1].passages if criteria == ("citation_accuracy",) else ()
                for order, shown in ((1, texts), (2, texts[::-1])):
                    ballots.append(
                        (
                            order,
                            {system: shown.index(group[system].answer) for system in systems},
                            question,
                            criteria,
                            shown,
                            references,
                        )
                    )
    asked = [build_ballot(*ballot[2:]) for ballot in ballots]
    read = lambda texts, numbers: [
        parse_ballot(text, ballots[i][3], len(ballots[i][4])) for i, text in zip(numbers, texts)
    ]
    scores = read(ask("judge", asked, endpoint, journal), range(len(ballots)))
    again = [i for i, one in enumerate(scores) if one is None]
    for i, one in zip(
        again, read(ask("judge-again", [f"{asked[i]}\n{AGAIN}" for i in again], endpoint, journal), again)
    ):
        scores[i] = one
    print(
        f"{endpoint.config.model}: {len(asked)} replies, {len(again)} asked for again, {sum(one is None for one in scores)} not readable and left without scores; "
        f"now {endpoint.used['requests']} requests, {endpoint.used['prompt_tokens']} and {endpoint.used['completion_tokens']} tokens"
    )
    # Four digits, as they are recorded: the recorded scores must rank as these do.
    return [
        (
            endpoint.config.model,
            order,
            question.dataset,
            question.id,
            system,
            name,
            round(one[name][place], 4) if one else None,
            True,
        )
        for (order, places, question, criteria, *_), one in zip(ballots, scores)
        for name in criteria
        for system, place in places.items()
    ]


def ask(stage: str, texts: Sequence[str], endpoint: Endpoint, journal: Journal) -> list[str]:
    """Replies through the journal; an error says how much of the work it holds."""
    try:
        return evaluation.complete(stage, texts, REPLY_TOKENS, endpoint, journal)
    except EndpointError as error:
        raise EndpointError(
            f"{error}; {len(journal.texts)} texts are journaled in {journal.path.name}: run again to go on from there"
        ) from None


def save_verdicts(path: Path, scores: pd.DataFrame) -> None:
    """One JSON line a judge, order and question: ids, systems, criteria and scores, none of the data's own text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        for (judge_name, order, dataset, identity), rows in scores.groupby(
            ["judge", "order", "dataset", "id"], sort=False
        ):
            given = {
                name: {row.system: None if pd.isna(row.score) else round(row.score, 4) for row in part.itertuples()}
                for name, part in rows.groupby("criterion", sort=False)
            }
            file.write(
                json.dumps(
                    {"judge": judge_name, "order": int(order), "dataset": dataset, "id": identity, "scores": given}
                )
                + "\n"
            )


def load_verdicts(path: Path) -> pd.DataFrame:
    """A served judge's recorded verdicts as the frame that they came from; whatever it scored is ranked."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [
        (one["judge"], one["order"], one["dataset"], one["id"], system, criterion, score, True)
        for one in lines
        for criterion, given in one["scores"].items()
        for system, score in given.items()
    ]
    return pd.DataFrame(rows, columns=COLUMNS).astype({"score": float})
