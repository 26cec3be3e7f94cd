"""Values from notebooks and the command line, converted to parameters.

It stops at an unknown name or a wrong type, because papermill only warns about them.
"""

import difflib
import re
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any

# Finds the names that a line of a notebook cell assigns to.
ASSIGNED = re.compile(r"^(\w[\w, ]*?)(?::[^=\n]*)?=(?!=)", re.MULTILINE)
PLAIN = (bool, int, float, str, list, tuple, types.NoneType)  # types that a parameter may have
READ = "from_notebook("  # in the cell that reads the parameters
# How an error describes one value of a type, and several.
DESCRIPTIONS = {
    str: ("text", "names"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
}


class ParameterError(ValueError):
    """A parameter with an unknown name or an invalid value.

    A notebook shows its message only, without a traceback.
    """

    def _render_traceback_(self) -> list[str]:  # called by IPython
        return [f"ParameterError: {self}"]


def read_parameters(names: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, object]:
    """Read the parameters among a notebook's globals, each converted to the type of its default.

    Plain values are numbers, texts, lists and None; one whose name is no parameter raises an error.
    """
    parameters = {}
    variables = own_variables(names.get("In", ()), defaults)
    for name, value in names.items():
        is_ipythons = name.startswith("_") or name in ("In", "Out")
        if is_ipythons or name in variables or not isinstance(value, PLAIN):
            continue
        if name not in defaults:
            raise unknown_parameter(name, defaults)
        parameters[name] = typed(name, value, defaults[name])
    return parameters


def unknown_parameter(name: str, defaults: Collection[str]) -> ParameterError:
    """Return the error for an unknown parameter, with the names that are most similar."""
    similar = difflib.get_close_matches(name, defaults, n=3, cutoff=0)
    *first, last = [repr(match) for match in similar]
    return ParameterError(
        f"{name!r} is not a parameter; did you mean {', '.join(first)} or {last}? "
        "covrag_lite/config.py describes all parameters. (If it is a variable of your own, "
        "start its name with an underscore.)"
    )


def own_variables(cells: Sequence[str], parameters: Collection[str]) -> set[str]:
    """Find the variables that a notebook computed before its cells were run a second time.

    These plain values are no parameters. A cell that sets a parameter, or that calls no function,
    counts as a parameters cell, so a misspelt name there is still refused.
    """
    computed: set[str] = set()
    in_parameters_cells: set[str] = set()
    if sum(READ in cell for cell in cells) < 2:
        return computed
    for cell in cells:
        names: set[str] = set()
        for targets in ASSIGNED.findall(cell):
            names.update(name.strip() for name in targets.split(","))
        sets_parameters = names & set(parameters) and READ not in cell
        if "(" not in cell or sets_parameters:
            in_parameters_cells |= names
        else:
            computed |= names
    return computed - in_parameters_cells


def typed(name: str, value: Any, default: Any) -> object:
    """Convert a value to the type of its default.

    Text is parsed. For a tuple, give a list, or text such as "a,b"; separate names that contain a
    comma by semicolons.
    """
    if isinstance(default, tuple):
        return typed_list(name, value, default)
    kind = type(default)
    try:
        return convert(value, kind)
    except (TypeError, ValueError):
        wanted, _ = DESCRIPTIONS[kind]
        raise wrong_type(name, value, wanted, default) from None


def typed_list(name: str, value: Any, default: tuple) -> tuple:
    """Convert a list, or a text with separators, to a tuple of the type of its default."""
    kind = type(default[0])
    values = split_names(value) if isinstance(value, str) else value
    try:
        converted = tuple(convert(part, kind) for part in values)
        if converted:
            return converted
    except (TypeError, ValueError):
        pass
    _, several = DESCRIPTIONS[kind]
    wanted = f"a list of {several}, or {several} separated by commas"
    raise wrong_type(name, value, wanted, default)


def split_names(text: str) -> list[str]:
    """Split a text at semicolons if it has some, else at commas."""
    separator = ";" if ";" in text else ","
    return [part.strip() for part in text.split(separator) if part.strip()]


def convert(value: Any, kind: type) -> Any:
    """Convert a value to a type; TypeError if it has another type, ValueError if it does not parse.

    Types are compared exactly, because True is no number.
    """
    allowed = {str, kind, int} if kind is float else {str, kind}
    if type(value) not in allowed:
        raise TypeError(f"{value!r} is not {kind.__name__}")
    return kind(value)


def wrong_type(name: str, value: Any, wanted: str, default: Any) -> ParameterError:
    """Return the error for a value of a wrong type."""
    return ParameterError(
        f"parameter {name!r} is {value!r}, but must be {wanted}, such as {default!r}"
    )
