"""Hand-made frames of outcomes for the tests of comparisons, and rows of the tables of them."""

import pandas as pd


def make_frame(right, sets):
    """Return a frame of several systems on the same questions, from each one's 0s and 1s.

    `sets` has the question set of each question. A right answer gets a high verifier score and a
    high combined score; every answer is trusted and has the likelihood -0.1.
    """
    rows = []
    for system, values in right.items():
        for number, (value, dataset) in enumerate(zip(values, sets)):
            rows.append(make_row(system, dataset, number, bool(value)))
    return pd.DataFrame(rows)


def make_row(system, dataset, number, is_right):
    return {
        "system": system,
        "dataset": dataset,
        "id": f"{dataset}-{number}",
        "whole": is_right,
        "first_whole": is_right,
        "judgment": "true",
        "verifier_score": 0.9 if is_right else 0.2,
        "likelihood": -0.1,
        "first_weight": 2.6 if is_right else 0.5,
        "weight": 2.6 if is_right else 0.5,
        "words_first": True,
        "words_last": True,
        "revised": False,
    }


def row_of(table, heading, **values):
    """The row of a table's part in which these columns have these values."""
    part = table.part(heading)
    for name, value in values.items():
        part = part[part[name.replace("_", " ")] == value]
    (row,) = part.to_dict("records")
    return row
