"""Systems of one picture can be told apart by their colours, also with colour blindness."""

from itertools import combinations, product

import numpy as np
from matplotlib.colors import to_rgb

from covrag_lite.config import Related
from covrag_lite.replication.plan import load_plans
from covrag_lite.systems import palette
from covrag_lite.tables import chain, second_answers, table4

SMALLEST_DISTANCE = 10  # in CIELAB
# Machado, Oliveira and Fernandes (2009): linear RGB for three kinds of colour blindness.
VIEWS = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
TO_XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])


def to_lab(colour: str, view: list[list[float]]) -> np.ndarray:
    """A colour in CIELAB, where distances approximate what the eye sees."""
    value = np.array(to_rgb(colour))
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(np.array(view) @ linear, 0, 1) / (0.9505, 1, 1.089)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def pictures():
    """The systems of each picture."""
    for name in ("smollm2-135m", "smollm2-135m-world"):
        plan = load_plans(name, {"data": "world"})[0]
        yield plan.settings["table2"]
        yield plan.settings["claim"]
    yield Related().related_systems
    yield table4.POSITIONS
    yield (*chain.CHAINS, second_answers.CONTROL)


def test_systems_of_one_picture_differ_for_every_kind_of_eye():
    for systems, (view, cones) in product(pictures(), VIEWS.items()):
        with_colour = [name for name in systems if name in palette()]
        for first, second in combinations(with_colour, 2):
            colours = [to_lab(palette()[name], cones) for name in (first, second)]
            distance = np.linalg.norm(colours[0] - colours[1])
            assert distance > SMALLEST_DISTANCE, (first, second, view)
