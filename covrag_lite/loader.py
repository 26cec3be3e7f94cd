"""Finds modules by name, so that a run imports only what it uses.

Parts of the package are listed where they belong, as a name and a module. Plug-ins are the modules
in `plugins/`: each registers what it adds, and nothing else in the package names it.

Example:
    register("retriever", "web", "covrag_lite.plugins.web.retriever")  # in the plug-in
    plugins("retriever")["web"]                                        # where retrievers are chosen
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

PLUGINS = "covrag_lite.plugins"
_registered: dict[str, dict[str, Any]] = defaultdict(dict)


def register(kind: str, name: str, part: object) -> None:
    """Add a part of a kind ("retriever", "system", "table") under this name."""
    _registered[kind][name] = part


def plugins(kind: str) -> Mapping[str, Any]:
    """Return what all plug-ins have registered of a kind, by name."""
    _import_plugins()
    return _registered[kind]


@cache
def _import_plugins() -> None:
    folder = import_module(PLUGINS)
    for plugin in iter_modules(folder.__path__, f"{PLUGINS}."):
        import_module(plugin.name)


def need(module: str) -> ModuleType:
    """Import a module that only some runs need; if a package is missing, say how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed; install it with `make setup-all`, or with "
            "pip install -r env/requirements-all.txt",
            name=error.name,
        ) from None
