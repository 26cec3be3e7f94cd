"""What CoV-RAG's neighbours need trained, into the folder of the adapters: the stage `learners` of `replication`.

A learner that is done is not trained again, unless with other settings. One that was killed begins anew; the rewriter
goes on from the journal and from its last checkpoint.
"""

import json
from pathlib import Path

from covrag_lite.config import Config, resolve
from covrag_lite.related import heads, rewards
from covrag_lite.related.relevance import ABOUT
from covrag_lite.runs.manifest import find_commit, save_manifest

HEAD = ("tune", "n_learnt", "n_validated")  # the settings that a head depends on
REWRITER = ("n_rewarded", "n_rewrites")


def train(config: Config, results: Path, learnt: Path) -> None:
    """Every configured learner; what each tells of itself goes to the results, and `learnt` says that all is done."""
    for name in config.related.learners:
        told = results / f"train.{name}.json"
        if is_done(config, name, told):
            print(f"{name}: done already", flush=True)
        elif name == "rewriter":
            train_rewriter(config, told)
        else:
            train_head(config, name, told)
    settings = {name: value for name, value in config.flat().items() if name in ("learners", *HEAD, *REWRITER)}
    learnt.parent.mkdir(parents=True, exist_ok=True)
    save_manifest(learnt, {**find_commit(), "parameters": settings})


def is_done(config: Config, name: str, told: Path) -> bool:
    """Was it trained with these settings, and is it still there?"""
    folder = resolve(config.training.adapters_out)
    file = folder / rewards.NAME / "adapter_config.json" if name == "rewriter" else folder / name / ABOUT
    if not told.exists() or not file.exists():
        return False
    was, now = json.loads(told.read_text())["parameters"], config.flat()
    return all(was.get(one) == now[one] for one in (REWRITER if name == "rewriter" else HEAD))


def train_head(config: Config, name: str, told: Path) -> None:
    """The evaluator or the entailment proxy, and how good it is on validation questions."""
    report = heads.train(config, name)
    print(f"{name}, on validation questions\n{report.to_string(index=False)}", flush=True)
    about = json.loads((resolve(config.training.adapters_out) / name / ABOUT).read_text())
    settings = {one: value for one, value in config.flat().items() if one in HEAD}
    save_manifest(told, about | {"parameters": settings})


def train_rewriter(config: Config, told: Path) -> None:
    """RRR's rewriter, with its losses."""
    losses, sentence = rewards.train(config)
    print(sentence, flush=True)
    losses.to_csv(told.with_suffix(".losses.csv"), index=False, float_format="%.4g")
    told.write_bytes((resolve(config.training.adapters_out) / rewards.NAME / "manifest.json").read_bytes())
