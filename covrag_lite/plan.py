"""What `replication` is to run, from replication.toml and the command line, and what it was begun with."""

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
RELATED = [f.name for f in fields(Related)]  # parameters of related.ipynb, and of no stage


@dataclass(frozen=True)
class Plan:
    """What is to be run: the parameters of all stages, and how they differ."""

    backbone: str
    config: Config
    settings: Mapping[str, object]
    seed: int
    card: Mapping[str, object] = field(default_factory=dict)  # licence, gate and shape, where replication.toml has them

    @property
    def folder(self) -> Path:
        """Where this backbone's work lies; the training data are the same for all seeds."""
        return resolve(self.config.run.runs) / self.backbone

    @property
    def results(self) -> Path:
        """Where this seed's adapters and tables go."""
        return self.folder / f"seed-{self.seed}"

    @property
    def first(self) -> bool:
        """Is this the seed with which everything is run? The others repeat what a seed may change."""
        return self.seed == self.settings["seeds"][0]

    def training(self) -> Config:
        """The parameters of training."""
        home = f"{self.config.run.runs}/{self.backbone}/seed-{self.seed}"
        own = self.config.change(adapters_out=f"{home}/adapters", training_seed=self.seed)
        return own.change(datasets=self.choose("train"), name=self.backbone)

    def testing(self, sets: str = "test", **changes: object) -> Config:
        """The parameters of a table over these sets."""
        own = self.training()
        own = own.change(datasets=self.choose(sets), adapters=own.training.adapters_out)
        return own.change(name=f"{self.backbone}/seed-{self.seed}", **changes)

    def choose(self, split: str) -> tuple[str, ...]:
        """The sets of this split that the data has."""
        wanted = self.settings[f"{split}_sets"]
        if wanted == ALL:
            return ALL
        there = kind_of(self.config).sets(self.config, "test" if split == "claim" else split)
        chosen = tuple(name for name in wanted if name in there)
        if not chosen:
            raise ValueError(f"the data has none of the {split} sets {', '.join(wanted)}")
        return chosen


def load_plans(backbone: str, given: Mapping[str, object], seeds: Sequence[int] = ()) -> list[Plan]:
    """A plan for each seed of a backbone (a name in replication.toml, a hub id, a folder) with the given parameters."""
    settings = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
    name, known = backbone, settings["backbones"]
    if backbone in known:
        own = known[backbone]
    elif "/" in backbone or backbone.endswith(".gguf") or resolve(backbone).is_dir():
        own = next((one for one in known.values() if one["model"] == backbone.partition("@")[0]), {})
        name, own = Model(backbone).short.lower(), own | {"model": backbone}
    else:
        cure = "a hub id, <organisation>/<name>, and a local folder work too"
        raise ValueError(f"backbone {backbone!r} is not one of {', '.join(known)} in {SETTINGS.name}; {cure}")
    card = own.pop("card", {})
    plan = settings["plan"] | own.pop("plan", {})
    plan = {name: tuple(value) if isinstance(value, list) else value for name, value in plan.items()}
    plan |= {name: typed(name, value, plan[name]) for name, value in given.items() if name in plan}
    for system in (*plan["table2"], *plan["claim"]):
        find_system(system)  # a slip of the pen is named before hours of training, and not after
    parameters = settings["parameters"] | own | {name: value for name, value in given.items() if name not in plan}
    config = from_notebook((settings["hub"] if parameters["data"] == "hub" else {}) | parameters)
    return [Plan(name, config, plan, seed, card) for seed in seeds or plan["seeds"]]


def hold_to(plan: Plan) -> None:
    """Write down what the work was begun with, or refuse what differs from that: half of each would be neither."""
    path = plan.folder / "plan.json"
    made = [file for file in plan.folder.rglob("*") if file.is_file() and file != path]
    if not path.exists() or not made:  # a command that failed before anything was made has begun nothing
        plan.folder.mkdir(parents=True, exist_ok=True)
        save_manifest(path, {"parameters": plan.config.flat(), "plan": plan.settings})
    begun = json.loads(path.read_text())
    both = (from_manifest(begun["parameters"]).flat() | begun["plan"], plan.config.flat() | plan.settings)
    before, after = (json.loads(json.dumps(one)) for one in both)
    # What the version that began it did not know cannot differ.
    changed = [name for name in after if name not in RELATED and before.get(name, after[name]) != after[name]]
    if changed:
        told = ", ".join(f"{name} was {before[name]!r} and is {after[name]!r}" for name in changed)
        raise ValueError(f"{plan.folder} was begun with other parameters: {told}; take those, or another -p runs")
