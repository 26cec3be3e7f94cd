"""How tables and figures of speed call models and settings; the records keep their own names."""

MODEL_LABELS = {"smollm2": "SmolLM2-135M", "1.5b": "1.5B", "7b": "7B", "13b": "13B"}
# Each part of a recorded setting, and its label. A longer part comes before those that it contains.
SETTING_LABELS = (
    ("plain, prepared by peft", "plain, fp32 as in peft's guide"),
    ("plain, once more", "plain, measured again"),
    ("packed alone", "plain + packing"),
    ("unpacked", "16-bit weights"),
    ("all kept", "activations kept"),
    ("quarter kept", "a quarter of activations kept"),
    ("16k", "rows of 16,384"),
    ("8k", "rows of 8,192"),
    ("4k", "rows of 4,096"),
    ("2k", "rows of 2,048"),
    ("ours away leanest", "ours, offloaded, rows of 2,048"),
    ("ours away", "ours, offloaded"),
    ("no graph", "no CUDA graph"),
)


def label_setting(name: str) -> str:
    """Return the label of a recorded setting.

    >>> label_setting("ours, unpacked, all kept, 8k")
    'ours, 16-bit weights, activations kept, rows of 8,192'
    """
    for part, label in SETTING_LABELS:
        name = name.replace(part, label)
    return name


def label_model(shape: str) -> str:
    """Return the label of a recorded model shape."""
    return MODEL_LABELS.get(shape, shape)
