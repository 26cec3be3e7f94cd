"""One style for all figures: one colour per system, intervals on values, the paper as diamonds."""

import io
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pandas as pd

from covrag_lite.files import write_bytes

if TYPE_CHECKING:  # other modules refer to these types through this one
    from IPython.display import Image
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OTHER = "#777777"  # the colour of everything that is not a system
DARK = "#333333"  # the colour of intervals
DIAMOND = dict(marker="D", ls="none", mfc="white", mec="black")  # a value of the paper
THE_PAPER = "the paper (larger models,\nweb search)"


def style(font_scale: float = 1, context: str = "talk") -> tuple[ModuleType, ModuleType]:
    """Import matplotlib.pyplot and seaborn, set the style of all figures, and return both."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    # By default seaborn takes Arial where it is installed; matplotlib brings this font along.
    sns.set_theme(style="whitegrid", context=context, font="DejaVu Sans", font_scale=font_scale)
    return plt, sns


def draw_intervals(axes: "Axes", x: list[float], rows: pd.DataFrame) -> None:
    """Draw the intervals of the rows of a long table."""
    span = [rows.value - rows.low, rows.high - rows.value]
    axes.errorbar(x, rows.value, span, fmt="none", ecolor=DARK, elinewidth=1.5, capsize=3)


def save_picture(figure: "Figure", path: Path) -> "Figure":
    """Save a figure in 256 colours, without a version, so that equal figures have equal bytes."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110, metadata={"Software": None})
    image = Image.open(drawn).convert("RGB")
    packed = io.BytesIO()
    # A third of the bytes.
    image.quantize(256, dither=Image.Dither.NONE).save(packed, "png", optimize=True)
    write_bytes(path, packed.getvalue())
    return figure


def to_image(figure: "Figure") -> "Image":
    """Return a figure as a picture that a notebook shows with or without a plotting backend."""
    from IPython.display import Image

    file = io.BytesIO()
    figure.savefig(file, format="png")
    return Image(file.getvalue(), format="png")
