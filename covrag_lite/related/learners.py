"""What related systems need trained, into the folder of the adapters; of these, Rewrite-Retrieve-Read's rewriter.

RRR (Ma et al. 2023; in the paper's Table 2) warms a small model up, then runs PPO on the reader's score. Ours samples
rewrites, lets the reader answer from what each of them finds, and learns those with the highest reward by QLoRA: one
step of expert iteration, with the same signal and no critic. The reader has learnt from the same questions, so it may
answer some that a search would have lost.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from covrag_lite import metrics, prompts, recipe
from covrag_lite.config import Config, migrate, resolve
from covrag_lite.engine.interface import load_engine
from covrag_lite.plan import Plan, tell_changes
from covrag_lite.records import Question, Sample, Search
from covrag_lite.related import heads
from covrag_lite.related.relevance import ABOUT
from covrag_lite.related.tools import HEADS, lacks
from covrag_lite.runs.journal import Journal
from covrag_lite.runs.manifest import find_commit, save_manifest
from covrag_lite.sources import Source, load_sources
from covrag_lite.synthesis import is_right, supporting, tidy
from covrag_lite.systems import find_system
from covrag_lite.task_model import TaskModel

REWRITES = 4  # sampled a question, for the reader to reward
HIT = 0.5  # of the reward for finding the answer, whatever the reader makes of it
REWRITER = "rewrite-reward"
STEP_TOKENS = 2048  # between two updates: a rewrite with its prompt is some 70 tokens, and there are a thousand
EPOCHS = 2
LEARNT = ("learners", "tune", "n_learnt")  # the parameters of the stage learners
COMPARED = ("related_systems", "n_questions", "entailment")  # and of the stage related


def propose(questions: Sequence[str], rewriter: TaskModel) -> list[list[str]]:
    """Candidates for each question, itself first: the likeliest rewrite, samples, key terms, question and guess."""
    asked = [prompts.build_alone("rewrite", one) for one in questions]
    limit = rewriter.settings.max_revised_tokens
    written = [rewriter.write("rewrite", asked, limit, number) for number in (None, *range(REWRITES))]
    guesses, terms = rewriter.guess(questions), rewriter.name_terms(questions)
    made = []
    for question, guess, some, *rewrites in zip(questions, guesses, terms, *written):
        every = [question, *map(tidy, rewrites), tidy(some), tidy(f"{question.rstrip('? ')}? {guess}")]
        made.append([one for one in dict.fromkeys(every) if one])
    return made


def rewards(
    questions: Sequence[Question], candidates: Sequence[Sequence[str]], search: Search, reader: TaskModel
) -> list[list[float]]:
    """What the reader makes of each candidate: 1 for a right answer, and a half for a passage that states it."""
    flat = [(question, one) for question, many in zip(questions, candidates) for one in many]
    found = search([one for _, one in flat])
    answers = reader.answer([question.question for question, _ in flat], found)
    values = []
    for (question, _), passages, answer in zip(flat, found, answers):
        values.append(float(is_right(answer, question)) + HIT * bool(supporting(question, passages)))
    left = iter(values)
    return [[next(left) for _ in many] for many in candidates]


def choose(candidates: Sequence[str], values: Sequence[float]) -> str | None:
    """The best candidate, of equals the first, so the question itself unless one is better; None where all fail."""
    best = max(range(len(values)), key=lambda place: values[place])
    return candidates[best] if values[best] else None


def reward_samples(sources: Sequence[Source], rewriter: TaskModel, reader: TaskModel) -> list[Sample]:
    """What the rewriter learns: for each question that some candidate answers, the one that does it best."""
    samples = []
    for source in sources:
        questions = [one for one in source.questions if not metrics.is_defective(one.answers)]
        candidates = propose([one.question for one in questions], rewriter)
        values = rewards(questions, candidates, source.search, reader)
        for question, best in zip(questions, map(choose, candidates, values)):
            if best:
                prompt = prompts.build_alone("rewrite", question.question)
                samples.append(Sample(question.id, "answer", prompt, (best,)))
    if not samples:
        raise ValueError("no rewrite was rewarded: the reader answers none of these questions; learn from more of them")
    return samples


def train_rewriter(config: Config) -> pd.DataFrame:
    """Train the rewriter into `adapters_out`, with the adapter `rag` as its reader; returns its losses.

    Its steps are small, so that a thousand samples are many of them.
    """
    model, journal = load_engine(config.model, config.training.execution), Journal(config.journal())
    reader = TaskModel(config.model, model.with_adapter("rag"), journal)
    rewriter = TaskModel(config.model, model.with_adapter(""), journal)
    sources = load_sources(config.change(n_train_questions=config.related.a_fifth))
    samples = reward_samples(sources, rewriter, reader)
    changed = sum(sample.prompt != prompts.build_alone("rewrite", sample.target[0]) for sample in samples)
    print(f"{len(samples)} rewarded rewrites, {changed} of them other than the question itself", flush=True)
    own = config.change(step_tokens=STEP_TOKENS, pack_tokens=STEP_TOKENS, epochs=EPOCHS)
    return recipe.train_adapter(own, REWRITER, samples)


def train(config: Config, name: str) -> pd.DataFrame:
    """Train a learner into `adapters_out`; a head's quality on validation questions, or the rewriter's losses."""
    if name not in (*HEADS, "rewriter"):
        raise ValueError(f"learner {name!r} is not known; use some of {', '.join(HEADS)}, rewriter")
    return train_rewriter(config) if name == "rewriter" else heads.train(config, name)


def train_stage(plan: Plan) -> None:
    """The stage `learners`: each tells of itself among the results, and `plan.learnt` says that all is done."""
    config = plan.learning()
    if "rewriter" in config.related.learners and "rag" in lacks(find_system("RAG trained"), config):
        raise FileNotFoundError(f"the rewriter's reader is the adapter 'rag': {plan.tell_stages(['rag'])}")
    settings = {name: config.flat()[name] for name in LEARNT}
    for name in config.related.learners:
        told = plan.results / f"train.{name}.json"
        if is_done(config, name, told):
            print(f"{name}: done already", flush=True)
            continue
        report = train(config, name)
        print(f"{name}\n{report.tail(5).to_string(index=False)}", flush=True)
        if name == "rewriter":
            report.to_csv(told.with_suffix(".losses.csv"), index=False, float_format="%.4g")
        save_manifest(told, {"parameters": settings} | json.loads(manifest_of(config, name).read_text()))
    plan.learnt.parent.mkdir(parents=True, exist_ok=True)
    save_manifest(plan.learnt, {**find_commit(), "parameters": settings})


def manifest_of(config: Config, name: str) -> Path:
    """The file that a learner's training ends with."""
    folder = resolve(config.training.adapters_out)
    return folder / REWRITER / "manifest.json" if name == "rewriter" else folder / name / ABOUT


def is_done(config: Config, name: str, told: Path) -> bool:
    """Was it trained with these settings, and is it still there?"""
    if not told.exists() or not manifest_of(config, name).exists():
        return False
    was, now = json.loads(told.read_text())["parameters"], config.flat()
    return all(was.get(one) == now[one] for one in ("tune", "n_learnt"))


def hold_to(plan: Plan) -> None:
    """Refuse other parameters than those with which a stage was done; one that was begun only may go on with others."""
    table = plan.results / "related.md"
    stages = ((plan.learnt, plan.learnt, LEARNT), (table, table.with_suffix(".manifest.json"), COMPARED))
    for done, record, names in stages:
        if done.exists():
            recorded = migrate(json.loads(record.read_text())["parameters"])
            was, now = ({name: one[name] for name in names} for one in (recorded, plan.comparing().flat()))
            told = tell_changes(was, now)
            if told:
                raise ValueError(f"{done} was made with other parameters: {told}; take those, or remove that file")
