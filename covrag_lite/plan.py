"""The plan of a replication: from replication.toml and the command line, and kept in plan.json."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from covrag_lite.config import ALL, Config, Model, Related, from_manifest, from_notebook, resolve, typed
from covrag_lite.data import kind_of
from covrag_lite.runs.manifest import save_manifest
from covrag_lite.systems import find_system

SETTINGS = Path(__file__).with_name("replication.toml")
RELATED = [f.name for f in fields(Related)]  # parameters of related.ipynb, unused by the stages


@dataclass(frozen=True)
class Plan:
    """What to run: the parameters of all stages, and how these differ."""

    backbone: str
    config: Config
    settings: Mapping[str, object]
    seed: int
    # The licence, gate and shape of the backbone, if replication.toml has them.
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
        home = f"{self.config.run.runs}/{self.backbone}/seed-{self.seed}"
        own = self.config.change(adapters_out=f"{home}/adapters", training_seed=self.seed)
        return own.change(datasets=self.choose("train"), name=self.backbone)

    def testing(self, sets: str = "test", **changes: object) -> Config:
        """Return the parameters of a table over these sets."""
        own = self.training()
        own = own.change(datasets=self.choose(sets), adapters=own.training.adapters_out)
        return own.change(name=f"{self.backbone}/seed-{self.seed}", **changes)

    def choose(self, split: str) -> tuple[str, ...]:
        """Return those sets of this split that the data has."""
        wanted = self.settings[f"{split}_sets"]
        if wanted == ALL:
            return ALL
        there = kind_of(self.config).sets(self.config, "test" if split == "claim" else split)
        chosen = tuple(name for name in wanted if name in there)
        if not chosen:
            sets = ", ".join(wanted)
            raise ValueError(f"the data has none of the {split} sets {sets}; set {split}_sets")
        return chosen


def load_plans(backbone: str, given: Mapping[str, object], seeds: Sequence[int] = ()) -> list[Plan]:
    """Return one plan per seed of a backbone, with the given parameters.

    A backbone is a name in replication.toml, a hub id, a folder or a .gguf file.
    """
    settings = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
    name, known = backbone, settings["backbones"]
    if backbone in known:
        own = known[backbone]
    elif "/" in backbone or backbone.endswith(".gguf") or resolve(backbone).is_dir():
        own = next((one for one in known.values() if one["model"] == backbone.partition("@")[0]), {})
        name, own = Model(backbone).short.lower(), own | {"model": backbone}
    else:
        cure = "a hub id (<organisation>/<name>), a local folder and a .gguf file work too"
        names = f"one of {', '.join(known)} in {SETTINGS.name}"
        raise ValueError(f"backbone {backbone!r} is not {names}; {cure}")
    card = own.pop("card", {})
    plan = settings["plan"] | own.pop("plan", {})
    plan = {name: tuple(value) if isinstance(value, list) else value for name, value in plan.items()}
    plan |= {name: typed(name, value, plan[name]) for name, value in given.items() if name in plan}
    for system in (*plan["table2"], *plan["claim"]):
        find_system(system)  # a misspelt name fails now, not after hours of training
    parameters = settings["parameters"] | own | {name: value for name, value in given.items() if name not in plan}
    config = from_notebook((settings["hub"] if parameters["data"] == "hub" else {}) | parameters)
    return [Plan(name, config, plan, seed, card) for seed in seeds or plan["seeds"]]


def hold_to(plan: Plan) -> None:
    """Save the parameters of a new replication, or refuse changes to those of a started one."""
    path = plan.folder / "plan.json"
    made = [file for file in plan.folder.rglob("*") if file.is_file() and file != path]
    # A command that failed before it made anything has not started.
    if not path.exists() or not made:
        plan.folder.mkdir(parents=True, exist_ok=True)
        save_manifest(path, {"parameters": plan.config.flat(), "plan": plan.settings})
    begun = json.loads(path.read_text())
    both = (from_manifest(begun["parameters"]).flat() | begun["plan"], plan.config.flat() | plan.settings)
    before, after = (json.loads(json.dumps(one)) for one in both)
    # Parameters that the earlier version did not have cannot differ.
    changed = [name for name in after if name not in RELATED and before.get(name, after[name]) != after[name]]
    if changed:
        told = ", ".join(f"{name} was {before[name]!r} and is {after[name]!r}" for name in changed)
        started = f"{plan.folder} was started with other parameters"
        raise ValueError(f"{started}: {told}; use the same, or set runs to another folder with -p")
