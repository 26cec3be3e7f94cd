"""Which recorded run is shown for a configuration: notebooks/table2 opens with it, notebooks/browse looks into it."""

from dataclasses import fields
from pathlib import Path

from covrag_lite import config
from covrag_lite.runs.recorded import Recorded, backbone, find
from covrag_lite.tables.reproduction import changed_parameters

# Parameters in which a recorded run may differ and still be of the same model and data: a run may ask some of its
# questions, and who judges its answers changes none of them.
OTHERWISE_ALIKE = {"n_questions", *(f.name for f in fields(config.Judging))}


def choose(asked: config.Config, root: Path = config.ROOT, table: str = "table2") -> Recorded | None:
    """The recorded run that the parameter `record` names; None for "none", and where "auto" finds none."""
    wanted = asked.run.record
    if wanted == "none":
        return None
    runs = {}
    for run in find(root):
        if run.table == table and run.has_predictions and run.folder.is_relative_to(root / "results"):
            runs[str(run.folder.relative_to(root / "results"))] = run
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
    data = "the embedded world" if run.config.data.data == "world" else Path(run.config.data.data).name
    machine = hardware["gpu"] or f"{hardware['cores']} {hardware['machine']} cores"
    return (
        f"{run.folder.relative_to(root)}: {backbone(run)} on {run.n} questions of {data}, "
        f"recorded on {machine} at {manifest['commit'][:7]} in {manifest['wall_seconds']:.0f} s"
    )
