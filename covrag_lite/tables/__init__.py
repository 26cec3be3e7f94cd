"""Tables and figures, one module each; `build` makes a `Table` from recorded predictions."""

from types import ModuleType

from covrag_lite.loader import need, plugins
from covrag_lite.runs.recorded import Recorded, load_or_outcomes

# Built from one recorded run each: build(load_basis(run), run).
TABLES = {
    "table2": "covrag_lite.tables.table2",
    "table3": "covrag_lite.tables.table3",
    "table4": "covrag_lite.tables.table4",
    "table5": "covrag_lite.tables.table5",
    "table6": "covrag_lite.tables.table6",
    "table18": "covrag_lite.tables.table18",
    "sigma": "covrag_lite.tables.sigma",
    "claim": "covrag_lite.tables.comparisons.table",
    "mixture": "covrag_lite.tables.mixture",
    "blocks": "covrag_lite.tables.blocks",
    "ceiling": "covrag_lite.tables.ceiling",
    "informed": "covrag_lite.tables.informed",
    "citations": "covrag_lite.tables.citations",
    "first_search": "covrag_lite.tables.first_search",
    "two_hop": "covrag_lite.tables.two_hop",
    "fused_reader": "covrag_lite.tables.fused_reader",
}


def all_tables() -> dict[str, str]:
    """Return the module of every table by its name: those listed here, then those of plug-ins."""
    return {**TABLES, **plugins("table")}


def find_table(name: str) -> ModuleType:
    """Return the module that builds a table."""
    return need(all_tables()[name])


def load_basis(run: Recorded) -> object:
    """Load what a run's table is built from: by its module's own `load`, else the predictions."""
    load = getattr(find_table(run.table), "load", load_or_outcomes)
    return load(run)
