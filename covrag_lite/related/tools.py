"""What a neighbour of CoV-RAG needs beside a model: an evaluator, an entailment model, a wider search.

`evaluation.bind` calls `bind_aids` for every system whose entry names such needs; what is missing, a command trains.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from covrag_lite.config import ROOT, Config, Model, Retrieval, resolve
from covrag_lite.data import load_passages
from covrag_lite.data.corpus import read_corpus
from covrag_lite.engine import weights
from covrag_lite.records import Passage, Search
from covrag_lite.related import asking
from covrag_lite.related.aids import Aids, Entail
from covrag_lite.related.relevance import ABOUT, as_entail, as_score, load_rate, read_about
from covrag_lite.retrieval import RETRIEVERS, load_retriever
from covrag_lite.systems import System
from covrag_lite.task_model import TaskModel

DEPTH = 3  # times as many passages of the same corpus, where the wider search has no other
LEARNERS = {"evaluator": "evaluator", "entailment": "entailment", "rewrite-reward": "rewriter"}


def bind_aids(system: System, config: Config, wider: Search, author: TaskModel, rewriter: TaskModel) -> Aids:
    """A neighbour's aids; an error that names the command where something it needs is missing."""
    for name in set(system.needs) - {"evaluator", "entailment"}:
        if not author.model.base.with_adapter(name).adapter:
            raise FileNotFoundError(f"{system.name} needs the adapter {name!r}; {train_with(name, config)}")
    settings = config.related
    found = find_head(config, "evaluator") if "evaluator" in system.needs else None
    return Aids(
        score=as_score(load_rate(found, False)) if found else None,
        thresholds=tuple(read_about(found)["thresholds"]) if found else (0.5, 0.5),
        wider=wider,
        entail=load_entail(config) if "entailment" in system.needs else None,
        name_terms=rewriter.name_terms,
        plan=partial(asking.plan, rewriter, settings.sub_questions),
        follow_up=partial(asking.follow_up, rewriter),
        is_relevant=partial(asking.is_relevant, rewriter),
        feedback=partial(asking.give_feedback, rewriter),
        refine=partial(asking.refine, rewriter),
        sessions=settings.sessions,
        sub_questions=settings.sub_questions,
        refinements=settings.refinements,
    )


def lacks(system: System, config: Config) -> list[str]:
    """What a system needs and the folder of adapters does not have, by name."""
    find = {"evaluator": partial(find_head, kind="evaluator"), "entailment": find_entailment}
    made = []
    for name in sorted({*system.adapters, *system.needs}):
        try:
            if name in find:
                find[name](config)
            elif not (resolve(config.model.adapters) / name / "adapter_config.json").exists():
                made.append(name)
        except FileNotFoundError:
            made.append(name)
    return made


def load_entail(config: Config) -> Entail:
    """Entailment by a model of the hub or a folder, or by our own head, which is a proxy."""
    folder = find_entailment(config)
    return as_entail(load_rate(folder, True), one_by_one=bool(read_about(folder)))  # as ours were trained


def find_entailment(config: Config) -> Path:
    """The folder of the entailment model."""
    wanted = config.related.entailment
    if wanted == "auto" or (resolve(wanted) / ABOUT).exists():
        return find_head(config, "entailment")
    return weights.find_folder(wanted, ())


def find_head(config: Config, kind: str) -> Path:
    """A folder that was trained here: the one that is named, else beside the adapters, else the shipped one.

    What was trained on other data is taken only where it is named.
    """
    wanted = getattr(config.related, kind)
    if wanted != "auto":
        folder = resolve(wanted)
        if not (folder / ABOUT).exists():
            raise FileNotFoundError(f"there is no {kind} in {folder}; {train_with(kind, config)}")
        return folder
    places = [ROOT / "results" / "adapters" / Path(config.retrieval.encoder).name / kind]
    if config.model.adapters not in ("auto", "none"):
        places.insert(0, resolve(config.model.adapters) / kind)
    for folder in places:
        about = read_about(folder)
        if about.get("data") == Path(config.data.data).name and "validation" in about:  # else its training was killed
            return folder
    raise FileNotFoundError(f"no {kind} was trained on {config.data.data!r}; {train_with(kind, config)}")


def train_with(name: str, config: Config) -> str:
    """The command that trains what is missing, into a folder where a further run finds it."""
    shipped = Path("results") / "adapters" / config.model.model
    place, then = config.model.adapters, ""
    if place == "auto" and name not in ("evaluator", "entailment") and (ROOT / shipped).exists():
        place = str(shipped)
    elif place in ("auto", "none"):
        place = config.training.adapters_out
        then = f", and run with -p {name} {place}/{name}"
        if name == "rewrite-reward":
            then = f", and run with -p adapters {place}, where the other adapters must be too"
    given = f" -p data {config.data.data}" if config.data.data != "world" else ""
    if config.model.model != Model().model and name == "rewrite-reward":
        given += f" -p model {config.model.model}"
    if place == config.model.adapters and name == "rewrite-reward":
        given += f" -p adapters {place}"  # where its reader is
    if config.retrieval.encoder != Retrieval().encoder and name != "rewrite-reward":
        given += f" -p encoder {config.retrieval.encoder}"
    command = f"papermill notebooks/train_related.ipynb -p learners {LEARNERS[name]}{given} -p adapters_out {place}"
    return f"train it with: {command}{then}"


def load_wider(config: Config, passages: Sequence[Passage]) -> Search:
    """The search elsewhere: a retriever by its name, corpus files beside ours, or deeper results of the same corpus."""
    wider = config.related.wider
    deep = replace(config.retrieval, k=min(DEPTH * config.retrieval.k, len(passages)))
    if wider in RETRIEVERS:
        return load_retriever(replace(deep, retriever=wider), passages)
    if wider:
        return load_retriever(deep, wider_passages(config, passages))
    return load_retriever(deep, passages)


def wider_passages(config: Config, passages: Sequence[Passage] = ()) -> list[Passage]:
    """All passages that a neighbour may have read: ours, and those of the files that `wider` names."""
    passages = passages or load_passages(config)
    wider = config.related.wider
    further = read_corpus(config.change(corpus=wider)) if wider and wider not in RETRIEVERS else []
    known = {passage.id for passage in passages}
    return [*passages, *(passage for passage in further if passage.id not in known)]
