"""How two runs differ: in parameters, weights and data that can change a result."""

from collections.abc import Collection, Mapping
from dataclasses import fields

from covrag_lite import config

# Parameters that change no result: they set speed, place or the choice of systems. Adapters and
# snapshots are compared by their hashes.
IMMATERIAL = {
    "device",
    "adapters",
    "systems",
    "free_every",
    "retrievers",
    "live",
    "snapshot",
    "n_learnt",
    "related_systems",
}
CONCERNS = (
    config.World,
    config.Data,
    config.Model,
    config.Retrieval,
    config.Chain,
    config.Judging,
    config.Related,
)
# Parameters that may differ between two runs of the same model and data: a run may use only some of
# the questions, and the judges do not change the answers.
OTHERWISE_ALIKE = {"n_questions", *(parameter.name for parameter in fields(config.Judging))}
# Hashes in a manifest, by what they belong to.
HASHES = {
    "the weights of the model": "model_sha256",
    "the weights of the encoder": "encoder_sha256",
    "the frozen results of the web": "snapshots",
}


def changed(now: Mapping, recorded: Mapping) -> list[str]:
    """List everything that differs between two manifests and can change a result."""
    differences = changed_parameters(
        config.from_manifest(now["parameters"]), config.from_manifest(recorded["parameters"])
    )
    adapters = now["adapters"]
    recorded_adapters = recorded["adapters"]
    # Only adapters that both runs used can be compared.
    for name in sorted(adapters.keys() & recorded_adapters.keys()):
        if adapters[name] != recorded_adapters[name]:
            differences.append(f"the adapter {name}")
    if bool(adapters) != bool(recorded_adapters):
        differences.append("having adapters")
    for what, name in HASHES.items():
        if now.get(name) != recorded.get(name):
            differences.append(what)
    return differences or changed_data(now["data"], recorded["data"])


def changed_data(now: Mapping[str, dict], recorded: Mapping[str, dict]) -> list[str]:
    """List the parts of the data that differ."""
    return [f"the {name}" for name in now if now[name] != recorded.get(name)]


def changed_parameters(
    now: config.Config, recorded: config.Config, but: Collection[str] = ()
) -> list[str]:
    """List the parameters, with both values, that differ and can change a result, except `but`."""
    values = now.flat()
    recorded_values = recorded.flat()
    differences = []
    for name in material_parameters():
        value = values[name]
        recorded_value = recorded_values[name]
        if name in but or value == recorded_value:
            continue
        # "all" may mean the same sets as a list; the hash of the questions decides.
        if name == "datasets" and config.ALL in (value, recorded_value):
            continue
        differences.append(f"{name} ({value!r}, recorded {recorded_value!r})")
    return differences


def material_parameters() -> list[str]:
    """List the parameters that can change a recorded result."""
    names = []
    for concern in CONCERNS:
        names += [parameter.name for parameter in fields(concern)]
    return [name for name in names if name not in IMMATERIAL]
