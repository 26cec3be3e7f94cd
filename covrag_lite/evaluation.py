"""Running systems over questions: the model behind a journal, every system of a table, one tidy frame, one manifest."""

import copy
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

from covrag_lite import chain, metrics, prompts
from covrag_lite.config import ROOT, Config, resolve
from covrag_lite.data import digest
from covrag_lite.journal import Journal
from covrag_lite.model.completion import complete, complete_both, keys_of, probabilities_of
from covrag_lite.records import Passage, Prediction, Question, Round, Verdict
from covrag_lite.retrieval import load_retriever

# Every system: its method in chain.py, and the trained adapter it runs with ("" is the bare model).
SYSTEMS = {
    "closed-book": ("closed_book", ""),
    "RAG": ("rag", ""),
    "Start-Revise": ("start_revise", ""),
    "CoV-RAG untrained": ("cov_rag", ""),
    "RAG trained": ("rag", "rag"),
    "CoV-RAG-S": ("rag", "cov"),
    "CoV-RAG": ("cov_rag", "cov"),
    "CoV-RAG thresholds": ("cov_rag", "cov"),
    "CoV-RAG w/o chain": ("cov_rag", "cov-direct"),
    "Start-Revise trained": ("start_revise", "cov"),
    "CoV-RAG shuffled": ("shuffled", "cov"),
    "CoV-RAG free": ("free", "cov"),
    "CoV-RAG w/o chain free": ("free", "cov-direct"),
}
REWRITER = "rewrite"  # the adapter that rewrites for "Start-Revise trained"


@dataclass(frozen=True)
class Tools:
    """What the systems of chain.py are handed: functions over batches, journaled where a model answers."""

    search: Callable
    answer: Callable
    verify: Callable
    rewrite: Callable
    closed_book: Callable
    model: object
    journal: Journal


def load_tools(config: Config, passages: Sequence[Passage], model=None) -> Tools:
    """Retriever, model and journal, bound to the functions a system needs; a test hands in a scripted model."""
    from covrag_lite.model.local import load_model

    search = load_retriever(config.retrieval, passages)
    return bind(
        config,
        search,
        model or load_model(config.model),
        Journal(resolve(config.run.runs) / config.run.name / "journal.jsonl"),
    )


def bind(config: Config, search: Callable, model, journal: Journal) -> Tools:
    """The functions of one model, or of one view of it with an adapter."""
    write = lambda stage, texts, limit: complete(stage, texts, limit, model, journal)
    limit, revised, layout = config.model.max_answer_tokens, config.model.max_revised_tokens, config.model.layout

    def verify(x: Sequence[str], k: Sequence, y: Sequence[str]) -> list[Verdict]:
        asked = [prompts.build_verify(*one, layout) for one in zip(x, k, y)]
        texts = write("verify", asked, revised)
        return [
            prompts.parse_verdict(text, model.schema, chances)
            for text, chances in zip(texts, probabilities_of(asked, revised, model, journal))
        ]

    return Tools(
        search=search,
        answer=lambda x, k: write("answer", [prompts.build_answer(*one, layout) for one in zip(x, k)], limit),
        verify=verify,
        rewrite=lambda x: write("rewrite", list(map(prompts.build_rewrite, x)), revised),
        closed_book=lambda x: write("closed-book", list(map(prompts.build_closed_book, x)), limit),
        model=model,
        journal=journal,
    )


def choose_sigma(name: str, config: Config, model) -> chain.Sigma:
    """σ of a system: as configured, except that "CoV-RAG thresholds" always takes thresholds, its adapter's own where it has some."""
    rule = "thresholds" if name == "CoV-RAG thresholds" else config.chain.sigma
    if rule not in ("revision", "thresholds"):
        raise ValueError(f"sigma {rule!r} is not known; use 'revision' or 'thresholds'")
    fitted = model.adapter / "sigma.json" if model.adapter else None
    if rule == "thresholds":
        return chain.by_thresholds(**(json.loads(fitted.read_text()) if fitted and fitted.exists() else {}))
    return chain.by_revision


def run_system(name: str, config: Config, tools: Tools, questions: Sequence[Question]) -> list[Prediction]:
    """One system over the questions, with its adapter."""
    if name not in SYSTEMS:
        raise ValueError(f"system {name!r} is not known; use some of {', '.join(SYSTEMS)}")
    if config.chain.max_rounds < 1:
        raise ValueError(f"max_rounds is {config.chain.max_rounds}; 1 answers once, 2 is the paper's")
    method, adapter = SYSTEMS[name]
    model = tools.model.with_adapter(adapter)
    own = bind(config, tools.search, model, tools.journal)
    if method == "closed_book":
        made = chain.closed_book(questions, own.closed_book, name=name)
    elif method == "start_revise":
        # Where the one that answers was trained, so is the one that rewrites, on the same revised questions.
        rewriter = bind(config, tools.search, tools.model.with_adapter(REWRITER if adapter else ""), tools.journal)
        made = chain.start_revise(questions, own.search, own.answer, rewriter.rewrite, name=name)
    elif method == "free":  # verdicts as the model writes them, for the format rate; nothing is searched again
        view = copy.copy(model)
        view.config = replace(model.config, verdicts="free")
        own = bind(config, tools.search, view, tools.journal)
        made = chain.cov_rag(questions, own.search, own.answer, own.verify, sigma=lambda verdict: False, name=name)
    elif method == "shuffled":  # a control: every revised question searches for another question
        made = chain.cov_rag(
            questions, own.search, own.answer, lambda *told: chain.shuffle_revisions(own.verify(*told)), name=name
        )
    else:
        rounds = config.chain.max_rounds if method == "cov_rag" else 1
        made = chain.cov_rag(
            questions,
            own.search,
            own.answer,
            own.verify,
            max_rounds=rounds,
            sigma=choose_sigma(name, config, model),
            name=name,
        )
    backbone = f"{config.model.model}+{adapter}" if adapter and model.adapter else config.model.model
    return [replace(prediction, backbone=backbone) for prediction in made]


def run(config: Config, tools: Tools, questions: Sequence[Question]) -> list[Prediction]:
    """Every configured system over the questions; equal prompts are computed once, whichever system asks first."""
    for adapter in dict.fromkeys(
        adapter
        for method, adapter in (SYSTEMS[name] for name in config.chain.systems if name in SYSTEMS)
        if method in ("cov_rag", "shuffled")
    ):
        foresee(config, tools, adapter, questions)
    return [prediction for name in config.chain.systems for prediction in run_system(name, config, tools, questions)]


def foresee(config: Config, tools: Tools, adapter: str, questions: Sequence[Question]) -> None:
    """First answers and the verdicts on them in one go, where the layout lets the verdict go on from what the answer has read."""
    model = tools.model.with_adapter(adapter)
    if (
        config.model.layout != "shared"
        or config.model.verdicts == "free"
        or config.chain.max_rounds == 1
        or model.device == "endpoint"
    ):
        return
    x = [question.question for question in questions]
    k = tools.search(x)
    thens = [lambda answer, one=one: prompts.build_verify(*one, answer, "shared") for one in zip(x, k)]
    complete_both(
        [prompts.build_answer(*one, "shared") for one in zip(x, k)],
        thens,
        config.model.max_answer_tokens,
        config.model.max_revised_tokens,
        model,
        tools.journal,
    )


def estimate(config: Config, tools: Tools, questions: Sequence[Question]) -> str:
    """A sentence on the time and memory that `run` will take, from timing an answer outside the journal."""
    x = [question.question for question in questions]
    asked = [prompts.build_answer(*one, config.model.layout) for one in zip(x, tools.search(x))]
    keys = keys_of("answer", asked, config.model.max_answer_tokens, tools.model)
    left = sum(key not in tools.journal for key in keys.values())
    if not left:
        return f"the first answers to all {len(x)} questions are journaled: only what is missing after them is computed"
    getattr(tools.model, "quick_network", None)  # loading is not answering
    start = time.perf_counter()
    sample = asked[
        : 32 if tools.model.device == "cuda" else 1
    ]  # a GPU takes hardly longer for a batch than for one; an endpoint may cost money
    tools.model.generate(sample, config.model.max_answer_tokens)
    answer = (time.perf_counter() - start) / len(sample)
    # closed-book, RAG, Start-Revise, RAG trained and at worst every second round want an answer each; CoV-RAG's verdict takes as long as two.
    return (
        f"{left} of {len(x)} questions to do: at most {left * 7 * answer / 60:.0f} min ({answer:.1f} s an answer here, less in full batches), "
        f"{peak_memory():.1f} GB of memory so far"
    )


def to_frame(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """One row a question and system: the tidy frame that every table and picture is made from."""
    rows = []
    for p in predictions:
        verdicts = [one.verdict for one in p.rounds if one.verdict]
        rows.append(
            dict(
                system=p.system,
                backbone=p.backbone,
                dataset=p.question.dataset,
                id=p.question.id,
                kind=p.question.kind,
                answer=p.answer,
                raw=metrics.score(p.answer, p.question.answers, "raw"),
                normalised=metrics.score(p.answer, p.question.answers, "normalised"),
                first_normalised=metrics.score(p.rounds[0].answer, p.question.answers, "normalised"),
                gold_first=metrics.holds_gold(p.rounds[0].passages, p.question.gold_passages),
                gold_last=metrics.holds_gold(p.rounds[-1].passages, p.question.gold_passages),
                found_first=metrics.holds_answer(p.rounds[0].passages, p.question.answers),
                found_last=metrics.holds_answer(p.rounds[-1].passages, p.question.answers),
                verdicts=len(verdicts),
                unparsed=sum(not verdict.parsed for verdict in verdicts),
                judgment=verdicts[0].judgment if verdicts else None,
                revised=p.revised,
                query=p.rounds[-1].query,
            )
        )
    return pd.DataFrame(rows)


def save_predictions(path: Path, predictions: Sequence[Prediction]) -> None:
    """Per-question outcomes as JSONL: ids and what the model wrote, none of the data's own text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        for p in predictions:
            rounds = [
                {
                    "query": one.query if one.query != p.question.question else None,
                    "passages": [passage.id for passage in one.passages],
                    "answer": one.answer,
                    "verdict": one.verdict.text if one.verdict else None,
                }
                | ({"probabilities": one.verdict.probabilities} if one.verdict and one.verdict.probabilities else {})
                for one in p.rounds
            ]
            file.write(
                json.dumps(
                    {"system": p.system, "dataset": p.question.dataset, "id": p.question.id, "rounds": rounds},
                    ensure_ascii=False,
                )
                + "\n"
            )


def load_predictions(
    path: Path, questions: Sequence[Question], passages: Sequence[Passage], backbone: str = ""
) -> list[Prediction]:
    """Recorded predictions with their questions and passages put back, to be scored again without a model."""
    asked, known, made = {q.id: q for q in questions}, {p.id: p for p in passages}, []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        question, adapter = (
            asked[row["id"]],
            (SYSTEMS | {"clean wording": ("", "")})[row["system"]][1],
        )  # that one is searched without a model, for Table 6
        schema = prompts.DIRECT if adapter == "cov-direct" else prompts.SCHEMA
        rounds = tuple(
            Round(
                question.question if one["query"] is None else one["query"],
                tuple(known[i] for i in one["passages"]),
                one["answer"],
                prompts.parse_verdict(one["verdict"], schema, one.get("probabilities")) if one["verdict"] else None,
            )
            for one in row["rounds"]
        )
        made.append(Prediction(question, row["system"], rounds, f"{backbone}+{adapter}" if adapter else backbone))
    return made


def peak_memory() -> float:
    """The most memory this process has held, in GB: of the GPU where one was used, else of the machine."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 1e9
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def manifest(config: Config, model, seconds: float, **data: Sequence) -> dict:
    """Where a result comes from: code, versions, weights, data, machine, and what it cost."""
    git = lambda *words: subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()
    packages = (
        "torch",
        "transformers",
        "peft",
        "bitsandbytes",
        "bm25s",
        "sentence-transformers",
        "numpy",
        "scipy",
        "pandas",
    )
    torch = sys.modules.get("torch")
    gpu = torch.cuda.get_device_name() if torch and model.device == "cuda" else None
    told = os.environ.get("COVRAG_COMMIT")  # a copy without its history, or with another, is told its commit
    commit = None if told else git("rev-parse", "--verify", "-q", "HEAD")
    return {
        "commit": told or commit or "unknown",
        "modified": bool(git("status", "--porcelain", "--", "covrag_lite", "notebooks")) if commit else None,
        "parameters": config.flat(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "model_sha256": model.base.weights_hash,
        "adapters": adapter_hashes(config, model),
        "data": {name: {"n": len(rows), "sha256": digest(rows)} for name, rows in data.items()},
        "hardware": {"machine": platform.machine(), "cores": os.cpu_count(), "gpu": gpu},
        "wall_seconds": round(seconds, 1),
        "peak_memory_gb": round(peak_memory(), 2),
    }


def adapter_hashes(config: Config, model) -> dict[str, str]:
    """The adapters that the configured systems ran with, by the hash of their weights: the same wherever they lie."""
    ran = [SYSTEMS[system] for system in config.chain.systems]
    names = {adapter for _, adapter in ran} | {
        REWRITER for method, adapter in ran if method == "start_revise" and adapter
    }
    views = {name: model.with_adapter(name) for name in sorted(names - {""})}
    return {name: view.fingerprint.partition("+")[2] for name, view in views.items() if view.adapter}


def save_manifest(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def cross_validate_sigma(predictions: Sequence[Prediction], folds: int = 5) -> tuple[dict, pd.DataFrame]:
    """Thresholds for σ that give the best accuracy on these predictions of CoV-RAG, and what each rule gives on questions it was not chosen on."""
    scored = [p for p in predictions if p.rounds[0].verdict and not metrics.is_defective(p.question.answers)]
    right = np.array(
        [
            [metrics.score(one.answer, p.question.answers, "normalised") for one in (p.rounds[0], p.rounds[-1])]
            for p in scored
        ]
    )
    low, high = (0.1, 0.27, 0.5, 0.75, 1.01), (-0.01, 0.25, 0.5, 0.7, 0.9)
    grid = [
        dict(reference=a, correctness=b, truthfulness=c, bias=d)
        for a in low[::-1]
        for b in low[::-1]
        for c in low[::-1]
        for d in high
    ]
    fires = np.array([[chain.by_thresholds(**one)(p.rounds[0].verdict) and p.revised for p in scored] for one in grid])
    outcome = np.where(fires, right[:, 1], right[:, 0])  # (settings, questions)
    fold = np.arange(len(scored)) % folds
    held_out = np.concatenate([outcome[outcome[:, fold != f].mean(1).argmax(), fold == f] for f in range(folds)])
    best = int(outcome.mean(1).argmax())  # the first of equals, which is the least strict
    rules = {
        "never search again": right[:, 0],
        "revised question present": right[:, 1],
        "thresholds, held out": held_out,
    }
    rows = [
        (name, len(values), 100 * values.mean(), *(100 * v for v in metrics.wilson(int(values.sum()), len(values))))
        for name, values in rules.items()
    ]
    searches = [0, int(sum(p.revised for p in scored)), int(fires[best].sum())]
    return grid[best], pd.DataFrame(rows, columns=["σ", "n", "accuracy", "low", "high"]).round(1).assign(
        searches=searches
    )
