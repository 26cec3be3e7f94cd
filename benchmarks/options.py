"""The parameters of notebooks/speed.ipynb, beside those of covrag_lite.config."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from covrag_lite.config import Config, Run, read_parameters


@dataclass(frozen=True)
class Options:
    """What the notebook measures."""

    shapes: tuple[str, ...] = ("tiny",)  # "tiny" runs anywhere; "smollm2", "7b", "13b" (random weights) want a GPU
    speed_seconds: float = 60.0  # after which no further way of training, or of answering, is begun
    speed_ways: tuple[str, ...] = ("ours", "plain", "trl + Liger", "Unsloth", "trl")  # of training: peers.WAYS
    speed_parts: tuple[str, ...] = ("plain", "rounds")  # of answering: inference.PARTS
    speed_questions: int = 1  # questions that are answered and verified; a few hundred on a GPU
    recorded: str = "speed-h200"  # the folder under results/ that is shown beside what is measured here
    config: Config = field(default_factory=Config)  # the model, the data, and where results go


def from_notebook(names: Mapping[str, object]) -> Options:
    """The options a notebook's globals ask for; every plain value among them must be a parameter."""
    own = asdict(Options())
    del own["config"]
    given = read_parameters(names, own | Config().flat())
    chosen = {name: given.pop(name) for name in own if name in given}
    config = Config().change(**given)
    if own | chosen != own and config.run.name == Run().name:
        config = config.change(name="custom")  # only the defaults write to figures/embedded
    return Options(**chosen, config=config)
