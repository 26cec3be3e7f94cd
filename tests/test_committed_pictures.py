"""Every committed picture is drawn again from the records, and is the same pixel by pixel.

After an intended change, `python -m covrag_lite.check --rebuild` replaces the committed pictures.
"""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.image import imread

from covrag_lite.config import ROOT
from covrag_lite.runs.recorded import find_under, load_or_outcomes
from covrag_lite.tables import (
    backbones,
    figure4,
    lesson,
    method_picture,
    table4,
    table5,
    table6,
    training_data,
)
from covrag_lite.tables.accuracy_picture import build_title, plot_accuracy
from covrag_lite.tables.comparisons import picture
from covrag_lite.tables.paper_comparison import COMPLETE_SEED, REAL
from covrag_lite.tables.speed import plots

EMBEDDED = ROOT / "figures" / "embedded"
RESULTS = ROOT / "results"
CLEARLY = 0.1  # of the range of a colour
FEW_PIXELS = 20  # that another machine may round differently


def find_run(folder, table):
    (run,) = (run for run in find_under(folder) if run.table == table)
    return run


def count_differing_pixels(draw, committed, folder):
    """Draw a picture in this folder, and count the pixels that clearly differ."""
    path = folder / committed.name
    draw(path)
    pyplot.close("all")
    drawn, expected = imread(path), imread(committed)
    assert drawn.shape == expected.shape
    return int((np.abs(drawn - expected).max(axis=-1) > CLEARLY).sum())


@pytest.mark.parametrize("end", ["data.png", "losses.png"])
def test_the_pictures_of_training_are_the_committed_ones(end, tmp_path):
    draw = training_data.build().plots[end]
    assert count_differing_pixels(draw, EMBEDDED / f"training.{end}", tmp_path) <= FEW_PIXELS


@pytest.mark.parametrize("end", ["training.png", "losses.png"])
def test_the_pictures_of_speed_are_the_committed_ones(end, tmp_path):
    draw = plots.list_plots(RESULTS / plots.COMMITTED)[end]
    assert count_differing_pixels(draw, EMBEDDED / f"speed.{end}", tmp_path) <= FEW_PIXELS


def test_figure_4_is_the_committed_one(tmp_path):
    draw = figure4.build_figure4(backbones.load(ROOT)).plots["png"]
    assert count_differing_pixels(draw, EMBEDDED / "figure4.png", tmp_path) <= FEW_PIXELS


def test_the_picture_of_the_method_is_the_committed_one(tmp_path):
    predictions = load_or_outcomes(find_run(RESULTS / lesson.RECORDS["table2"], "table2"))
    draw = method_picture.build(predictions).plots["png"]
    assert count_differing_pixels(draw, EMBEDDED / "method.png", tmp_path) <= FEW_PIXELS


def test_the_picture_of_the_comparisons_is_the_committed_one(tmp_path):
    rows = pd.read_csv(RESULTS / REAL / "claim.csv", dtype={"seed": str})
    draw = partial(picture.plot, rows)
    assert count_differing_pixels(draw, RESULTS / REAL / "claim.png", tmp_path) <= FEW_PIXELS


def test_the_picture_of_table_2_is_the_committed_one(tmp_path):
    run = find_run(RESULTS / COMPLETE_SEED, "table2")
    long = pd.read_csv(run.file("csv"))
    draw = partial(plot_accuracy, long, build_title("table2", run.config, long))
    assert count_differing_pixels(draw, run.file("png"), tmp_path) <= FEW_PIXELS


@pytest.mark.parametrize("table", [table4, table5, table6], ids=lambda table: table.__name__)
def test_the_picture_of_a_default_run_is_the_committed_one(table, tmp_path):
    run = find_run(EMBEDDED, table.__name__.rpartition(".")[2])
    load = getattr(table, "load", load_or_outcomes)
    draw = table.build(load(run), run).plots["png"]
    assert count_differing_pixels(draw, run.file("png"), tmp_path) <= FEW_PIXELS
