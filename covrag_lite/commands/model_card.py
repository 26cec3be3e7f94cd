"""The model card of an exported adapter, filled from its manifest and from recorded runs."""

import tomllib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from string import Template

import pandas as pd

from covrag_lite import prompts
from covrag_lite.config import ALL, ROOT, Config, resolve
from covrag_lite.data import hub
from covrag_lite.engine.weights import MODELS, hash_files
from covrag_lite.files import read_json
from covrag_lite.records import Passage
from covrag_lite.replication.plan import SETTINGS, find_card
from covrag_lite.runs.frame import to_frame
from covrag_lite.runs.recorded import Recorded, find, find_in, load_or_outcomes
from covrag_lite.systems import find_system
from covrag_lite.systems.names import RAG
from covrag_lite.tables.intervals import share, with_interval
from covrag_lite.tables.labels import SET_LABELS, label_of

TEMPLATE = Path(__file__).with_name("model_card.md")
TASKS = {
    "rag": "answers questions from retrieved passages, with citations",
    "cov": "answers questions from retrieved passages and verifies such answers: six scores, a "
    "judgment and a revised question",
    "cov-direct": "answers questions from retrieved passages and verifies such answers without "
    "scores: its verdict is a revised question, or none",
    "rewrite": "rewrites a question before the first search (the baseline Start-Revise)",
}
# Recorded runs of whole systems; of two equal ones, the last.
RECORDED_TABLES = ("claim", "table2")
# The names that the hub has for licences.
LICENCE_IDS = {"Apache-2.0": "apache-2.0", "Llama 2": "llama2", "Llama 3.1": "llama3.1"}
NOT_RECORDED = "not recorded: fill this in before you publish the adapter"
QUESTION = "Who wrote Emma?"
PASSAGES = (Passage("1", "Emma", "Emma is a novel by Jane Austen, published in 1815."),)


@dataclass(frozen=True)
class Base:
    """The base model of an adapter."""

    id: str  # on the hub
    licence: str = "see its page on the hub"


def find_base(model: str, base: str = "") -> Base:
    """Return the base model's id and licence; a file or folder needs the id from the user."""
    backbones = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))["backbones"]
    name = model.removeprefix("plain:")
    is_local = name.endswith(".gguf") or Path(name).is_absolute() or resolve(name).exists()
    card = find_card(backbones, base or name)
    hub_id = base or card.get("hub_id") or name
    if not base and (not name or is_local or name in MODELS and "hub_id" not in card):
        cure = "give the id that it has on the hub, as in --base Qwen/Qwen2.5-0.5B-Instruct"
        raise ValueError(f"the base model {model!r} is a file or folder of this machine; {cure}")
    return Base(hub_id, card.get("licence", Base.licence))


def build_card(
    adapter: Path, model: str, base: str = "", data_licence: str = "", has_chat: bool = True
) -> str:
    """Return the text of the model card."""
    found_base = find_base(model, base)
    manifest_file = adapter / "manifest.json"
    manifest = read_json(manifest_file) if manifest_file.exists() else {}
    data, known_licence = describe_data(manifest)
    licence = data_licence or known_licence
    is_free = licence == "Apache-2.0"
    values = {
        "name": adapter.name,
        "task": TASKS.get(adapter.name, "was trained for a task of its own"),
        "base": found_base.id.partition("@")[0],
        "base_licence": found_base.licence,
        "licence_id": LICENCE_IDS.get(found_base.licence, "other") if is_free else "other",
        "data": data,
        "data_licence": licence,
        "accuracy": describe_accuracy(adapter),
        "version": version("covrag_lite"),
        **describe_use(adapter.name, manifest, has_chat),
        **describe_training(manifest),
    }
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(values)


def describe_data(manifest: dict) -> tuple[str, str]:
    """Return a description of the training data without paths, and its licence."""
    parameters = manifest.get("parameters", {})
    kind = parameters.get("data", "")
    names = tuple(parameters.get("datasets", ()))
    if kind == "world":
        return "the fictional world of covrag_lite, generated from a seed", "Apache-2.0"
    if kind == "hub":
        entries = hub.load_entries()
        used = [name for name in entries if names in ((), ALL) or name in names]
        described = ", ".join(f"{name} ({entries[name].id})" for name in used)
        return described, "; ".join(f"{name}: {entries[name].licence}" for name in used)
    sets = ", ".join(name for name in names if names != ALL)
    return f"a folder with question sets{': ' if sets else ''}{sets}", NOT_RECORDED


def describe_use(name: str, manifest: dict, has_chat: bool) -> dict[str, object]:
    """Return the parts of the example code that depend on the adapter and on its base model."""
    parameters = Config().flat() | manifest.get("parameters", {})
    limit = parameters["max_answer_tokens"]
    prompt = prompts.build_answer(QUESTION, PASSAGES, parameters["layout"])
    if name == "rewrite":
        limit = parameters["max_revised_tokens"]
        prompt = prompts.build_from_question("rewrite", QUESTION)
    load = "model = AutoPeftModelForCausalLM.from_pretrained(folder)"
    if parameters["quantize"] == "nf4":
        load = (
            "# It was trained with the base model in 4 bits; for the same here, give also\n"
            "# quantization_config=BitsAndBytesConfig(load_in_4bit=True,\n"
            '# bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)\n' + load
        )
    encode = 'inputs = tokenizer(prompt, return_tensors="pt")'
    if has_chat:
        encode = (
            'turns = [{"role": "user", "content": prompt}]\n'
            "text = tokenizer.apply_chat_template(turns, tokenize=False, "
            "add_generation_prompt=True)\n"
            'inputs = tokenizer(text, add_special_tokens=False, return_tensors="pt")'
        )
    return {"prompt": prompt, "max_tokens": limit, "load": load, "encode": encode}


def describe_training(manifest: dict) -> dict[str, str]:
    """Return how the adapter was trained; "not recorded" without a manifest."""
    if not manifest:
        names = ("base_weights", "samples", "settings", "machine", "commit")
        return dict.fromkeys(names, "not recorded")
    parameters = manifest["parameters"]
    names = ("epochs", "learning_rate", "verify_weight", "lora_rank", "quantize", "layout")
    settings = ", ".join(f"{name} {parameters[name]}" for name in names if name in parameters)
    hardware = manifest["hardware"]
    machine = hardware["gpu"] or f"{hardware['cores']} CPU cores"
    samples = manifest["data"]["samples"]
    form = manifest.get("weights") or "its own safetensors"
    return {
        "base_weights": f"read from {form.partition(';')[0]}; SHA-256 {manifest['model_sha256']}…",
        "samples": f"{samples['n']:,} (SHA-256 {samples['sha256']}…)",
        "settings": f"{settings}, seed {parameters['training_seed']}",
        "machine": f"{machine}, {manifest['wall_seconds']:.0f} s, "
        f"{manifest['peak_memory_gb']:.1f} GB",
        "commit": manifest["commit"],
    }


def describe_accuracy(adapter: Path) -> str:
    """Return a table of all systems with this adapter in the largest recorded run."""
    run = find_run(adapter)
    if run is None:
        return "No recorded run has used these weights."
    frame = to_frame(load_or_outcomes(run))
    systems = []
    for system in frame.system.unique():
        if system == RAG or adapter.name in find_system(system).adapters:
            systems.append(system)
    sets = ", ".join(SET_LABELS.get(name, name) for name in frame.dataset.unique())
    if run.config.data.data == "world":
        sets = f"{sets}, all about covrag_lite's fictional world, not about real things"
    lines = [
        "Share of answers that contain a gold answer (case and punctuation do not count), with its",
        f"95 % interval, from covrag_lite's recorded run `{describe_place(run)}`. Test questions:",
        f"{sets}. Other forms of the base model's weights can give other answers.",
        "",
        "| system | n | accuracy, % |",
        "| --- | --- | --- |",
    ]
    for system in systems:
        lines.append(accuracy_row(label_of(system), frame[frame.system == system]))
    return "\n".join(lines)


def accuracy_row(label: str, rows: pd.DataFrame) -> str:
    """Return one row of the table of accuracies; questions without a usable answer do not count."""
    right = rows.normalised.dropna().astype(bool).tolist()
    return f"| {label} | {len(right):,} | {with_interval('{:.1f}', *share(right))} |"


def find_run(adapter: Path) -> Recorded | None:
    """Return the largest run of whole systems with exactly these weights, if there is one."""
    weights = hash_files(sorted(adapter.glob("adapter_model*.safetensors")))
    runs = []
    # A replication has its tables next to its folder of adapters.
    for run in [*find(ROOT), *find_in(adapter.parent.parent)]:
        if run.table in RECORDED_TABLES and run.manifest["adapters"].get(adapter.name) == weights:
            runs.append(run)
    return max(runs, key=lambda run: (run.n, RECORDED_TABLES.index(run.table)), default=None)


def describe_place(run: Recorded) -> str:
    """Return the folder of a run, without the path to the clone or to a user's folder."""
    if run.folder.is_relative_to(ROOT):
        return run.folder.relative_to(ROOT).as_posix()
    return run.folder.name
