"""The plan of a replication: from replication.toml and the command line, and kept in plan.json."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from covrag_lite.config import (
    ALL,
    Config,
    Model,
    Related,
    from_manifest,
    from_notebook,
    resolve,
)
from covrag_lite.data import kind_of
from covrag_lite.files import read_json, write_json
from covrag_lite.parameters import typed
from covrag_lite.systems import find_system

SETTINGS = Path(__file__).with_name("replication.toml")
PLAN = "plan.json"  # in the folder of a replication
# Parameters of related.ipynb, unused by the stages.
RELATED = [parameter.name for parameter in fields(Related)]
# Parameters that the stages set themselves, and what to use instead.
OF_STAGES = {
    "adapters": "every seed uses the adapters that it has trained",
    "adapters_out": "adapters are written to the seed's folder; set runs",
    "datasets": "set train_sets, test_sets or claim_sets",
    "methods": "name the adapters to train with --stages",
    "name": "results are written to the seed's folder; set runs",
    "training_seed": "name the seeds with --seeds",
}


@dataclass(frozen=True)
class Plan:
    """What to run: the parameters of all stages, and how these differ."""

    backbone: str
    config: Config
    settings: Mapping[str, object]
    seed: int
    # The licence, gate and shape of the model, if replication.toml has them.
    card: Mapping[str, object] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Return the folder of this backbone; all seeds share its training data."""
        return resolve(self.config.run.runs) / self.backbone

    @property
    def results(self) -> Path:
        """Return the folder of this seed's adapters and tables."""
        return self.folder / f"seed-{self.seed}"

    @property
    def first(self) -> bool:
        """Is this the first seed, which runs all stages? The others repeat some of them."""
        return self.seed == self.settings["seeds"][0]

    def training(self) -> Config:
        """Return the parameters of training."""
        folder = f"{self.config.run.runs}/{self.backbone}/seed-{self.seed}"
        return self.config.change(
            adapters_out=f"{folder}/adapters",
            training_seed=self.seed,
            datasets=self.choose("train"),
            name=self.backbone,
        )

    def testing(self, sets: str = "test", **changes: object) -> Config:
        """Return the parameters of a table over these sets."""
        training = self.training()
        testing = training.change(
            datasets=self.choose(sets),
            adapters=training.training.adapters_out,
            name=f"{self.backbone}/seed-{self.seed}",
        )
        return testing.change(**changes)

    def choose(self, split: str) -> tuple[str, ...]:
        """Return those sets of this split that the data has."""
        wanted = self.settings[f"{split}_sets"]
        if wanted == ALL:
            return ALL
        split_of_data = "test" if split == "claim" else split
        available = kind_of(self.config).sets(self.config, split_of_data)
        chosen = tuple(name for name in wanted if name in available)
        if not chosen:
            sets = ", ".join(wanted)
            raise ValueError(f"the data has none of the {split} sets {sets}; set {split}_sets")
        return chosen


def load_plans(
    backbone: str, changes: Mapping[str, object], seeds: Sequence[int] = ()
) -> list[Plan]:
    """Return one plan per seed of a backbone, with these changes of parameters and settings.

    A backbone is a name in replication.toml, a hub id, a folder or a .gguf file.
    """
    defaults = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
    name, of_backbone = find_backbone(backbone, defaults["backbones"])
    of_backbone.pop("card", None)
    settings = defaults["plan"] | of_backbone.pop("plan", {})
    for setting, value in settings.items():
        if isinstance(value, list):
            settings[setting] = tuple(value)
    parameters = defaults["parameters"] | of_backbone
    for changed, value in changes.items():
        if changed in OF_STAGES:
            raise ValueError(f"{changed} has no effect in a replication: {OF_STAGES[changed]}")
        if changed in settings:
            settings[changed] = typed(changed, value, settings[changed])
        else:
            parameters[changed] = value
    for system in (*settings["table2"], *settings["claim"]):
        find_system(system)  # a misspelt name fails now, not after hours of training
    if parameters["data"] == "hub":
        parameters = defaults["hub"] | parameters
    config = from_notebook(parameters)
    card = find_card(defaults["backbones"], config.model.model)
    return [Plan(name, config, settings, seed, card) for seed in seeds or settings["seeds"]]


def find_backbone(backbone: str, backbones: Mapping[str, dict]) -> tuple[str, dict]:
    """Return the name of a backbone and its entry in replication.toml, with its model."""
    if backbone in backbones:
        return backbone, dict(backbones[backbone])
    is_path = backbone.endswith(".gguf") or resolve(backbone).is_dir()
    if "/" not in backbone and not is_path:
        names = f"one of {', '.join(backbones)} in {SETTINGS.name}"
        cure = "a hub id (<organisation>/<name>), a local folder and a .gguf file work too"
        raise ValueError(f"backbone {backbone!r} is not {names}; {cure}")
    name = Model(backbone).short.lower()
    without_revision = backbone.partition("@")[0]
    for entry in backbones.values():
        if entry["model"] == without_revision:
            return name, entry | {"model": backbone}
    return name, {"model": backbone}


def find_card(backbones: Mapping[str, Mapping], model: str) -> Mapping[str, object]:
    """Return the licence, gate and shape of a model, which `-p model` may have changed."""
    model_id = model.partition("@")[0]
    for entry in backbones.values():
        if entry["model"] == model_id:
            return entry.get("card", {})
    return {}


def save_plan(plan: Plan) -> None:
    """Save the parameters of a replication, unless it has already made something with others."""
    path = plan.folder / PLAN
    if path.exists() and is_started(plan):
        return
    plan.folder.mkdir(parents=True, exist_ok=True)
    write_json(path, {"parameters": plan.config.flat(), "plan": plan.settings})


def is_started(plan: Plan) -> bool:
    """Has this replication made any file? A command that failed before has not started it."""
    for file in plan.folder.rglob("*"):
        if file.is_file() and file.name != PLAN:
            return True
    return False


def refuse_changes(plan: Plan) -> None:
    """Raise an error if a started replication has other parameters in its plan.json."""
    started = read_json(plan.folder / PLAN)
    before = as_json(from_manifest(started["parameters"]).flat() | started["plan"])
    after = as_json(plan.config.flat() | plan.settings)
    changes = []
    for name, value in after.items():
        # A setting that the earlier version did not have cannot differ.
        if name not in RELATED and name in before and before[name] != value:
            changes.append(f"{name} was {before[name]!r} and is {value!r}")
    if changes:
        what = f"{plan.folder} was started with other parameters: {', '.join(changes)}"
        raise ValueError(f"{what}; use the same, or set runs to another folder with -p")


def as_json(values: Mapping[str, object]) -> dict[str, object]:
    """Return values as a JSON file would contain them, with lists for tuples."""
    return json.loads(json.dumps(values))
