"""The parameters of notebooks/speed.ipynb, in addition to those of covrag_lite.config."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from covrag_lite.config import Config, Run, read_parameters


@dataclass(frozen=True)
class Options:
    """What the notebook measures."""

    # "tiny" runs anywhere; "smollm2", "7b" and "13b" (random weights) need a GPU.
    shapes: tuple[str, ...] = ("tiny",)
    speed_seconds: float = 60.0  # no new method is started after this time, in each section
    # Training methods of methods.METHODS.
    speed_ways: tuple[str, ...] = ("ours", "plain", "trl + Liger", "Unsloth", "trl")
    speed_parts: tuple[str, ...] = ("plain", "rounds")  # parts of answering: inference.PARTS
    speed_questions: int = 1  # questions to answer and verify; a few hundred on a GPU
    recorded: str = "speed-h200"  # the folder under results/ that is shown next to live numbers
    config: Config = field(default_factory=Config)  # the model, the data, and where results go


def from_notebook(names: Mapping[str, object]) -> Options:
    """Read the options from a notebook's globals; every plain value must be a parameter."""
    defaults = asdict(Options())
    del defaults["config"]
    parameters = read_parameters(names, defaults | Config().flat())
    chosen = {name: parameters.pop(name) for name in defaults if name in parameters}
    config = Config().change(**parameters)
    if defaults | chosen != defaults and config.run.name == Run().name:
        config = config.change(name="custom")  # these are not the default options
    return Options(**chosen, config=config)
