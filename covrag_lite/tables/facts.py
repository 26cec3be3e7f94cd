"""Facts: numbers with names, as prose writes them. Pages and notebooks are filled from them."""

from collections.abc import Mapping

import pandas as pd


def minus(text: str) -> str:
    """Return a number with a proper minus sign."""
    return text.replace("-", "−")


def facts_of(name: str, values: Mapping[str, object]) -> dict[str, str]:
    """Return facts whose names have a common beginning; an empty key adds nothing to the name."""
    facts = {}
    for end, value in values.items():
        facts[f"{name} {end}".strip()] = minus(str(value))
    return facts


def facts_of_rows(
    rows: pd.DataFrame, name: str, forms: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return facts of every row.

    `name` and each text of `forms` may contain the row's columns in braces; a form's key ends the
    fact's name. Without forms every column except the first is a fact, as it is.
    """
    if forms is None:
        forms = {column: f"{{{column}}}" for column in rows.columns[1:]}
    facts = {}
    for row in rows.to_dict("records"):
        values = {end: form.format(**row) for end, form in forms.items()}
        facts |= facts_of(name.format(**row), values)
    return facts
