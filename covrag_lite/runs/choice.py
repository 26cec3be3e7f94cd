"""Which recorded run is shown for a configuration, and in what two runs differ."""

import json
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path

from covrag_lite import config
from covrag_lite.runs.recorded import Recorded, backbone, find_under

# Parameters that change no number: how fast, where, which of the systems; adapters and snapshots have their hash.
IMMATERIAL = set(
    "device adapters systems free_every retrievers live snapshot entailment n_learnt related_systems".split()
)
CONCERNS = (config.World, config.Data, config.Model, config.Retrieval, config.Chain, config.Judging, config.Related)
# Parameters in which a recorded run may differ and still be of the same model and data: a run may ask some of its
# questions, and who judges its answers changes none of them.
OTHERWISE_ALIKE = {"n_questions", *(f.name for f in fields(config.Judging))}


def choose(asked: config.Config, root: Path = config.ROOT, table: str = "table2") -> Recorded | None:
    """The recorded run that the parameter `record` names; None for "none", and where "auto" finds none."""
    wanted = asked.run.record
    if wanted == "none":
        return None
    known = [run for run in find_under(root / "results", root) if run.table == table and run.has_predictions]
    runs = {str(run.folder.relative_to(root / "results")): run for run in known}
    if wanted == "auto":
        alike = [run for run in runs.values() if not changed_parameters(asked, run.config, OTHERWISE_ALIKE)]
        return max(alike, key=lambda run: (run.n, run.folder.name), default=None)
    if wanted not in runs:
        raise ValueError(f"record is {wanted!r}, but must be 'auto', 'none' or one of {', '.join(runs)}")
    return runs[wanted]


def tell(run: Recorded | None, root: Path = config.ROOT) -> str:
    """A sentence on what was recorded, where and when."""
    if run is None:
        return "no recorded run of this model and data is shown; record names one of those under results/"
    hardware, manifest = run.manifest["hardware"], run.manifest
    machine = hardware["gpu"] or f"{hardware['cores']} {hardware['machine']} cores"
    return (
        f"{run.folder.relative_to(root)}: {backbone(run)} on {run.n} questions of {name_data(run.config)}, "
        f"recorded on {machine} at {manifest['commit'][:7]} in {manifest['wall_seconds']:.0f} s"
    )


def name_data(asked: config.Config) -> str:
    """How a sentence or a title calls the data."""
    return "the embedded world" if asked.data.data == "world" else Path(asked.data.data).name


def changed(now: dict, recorded: dict) -> list[str]:
    """What differs between two runs' manifests of all that can change a number."""
    differs = changed_parameters(*(config.from_manifest(one["parameters"]) for one in (now, recorded)))
    ours, theirs = now.get("adapters"), recorded.get("adapters")
    if ours is not None and theirs is not None:  # of two tables' runs only adapters that both used can be compared
        differs += [f"the adapter {name}" for name in sorted(ours.keys() & theirs.keys()) if ours[name] != theirs[name]]
        differs += ["having adapters"] if bool(ours) != bool(theirs) else []
    for name in ("model_sha256", "encoder_sha256"):
        if now.get(name) != recorded.get(name):
            differs.append(f"the weights of the {name.partition('_')[0]}")
    if now.get("snapshots") != recorded.get("snapshots"):
        differs.append("the frozen results of the web")
    return differs or [f"the {name}" for name in now["data"] if now["data"][name] != recorded["data"].get(name)]


def changed_parameters(now: config.Config, recorded: config.Config, but: Collection[str] = ()) -> list[str]:
    """The parameters that can change a number and differ, each with its two values; `but` names some to pass over.

    "all" sets may be those that the other run names: whether the questions are the same, their hash tells.
    """
    a, b = (json.loads(json.dumps(one.flat())) for one in (now, recorded))
    differs = []
    for name in [f.name for concern in CONCERNS for f in fields(concern) if f.name not in {*IMMATERIAL, *but}]:
        same_sets = name == "datasets" and list(config.ALL) in (a[name], b[name])
        if a[name] != b[name] and not same_sets:
            differs.append(f"{name} ({a[name]!r}, recorded {b[name]!r})")
    return differs
