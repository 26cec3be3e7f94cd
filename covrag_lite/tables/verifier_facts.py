"""Facts of every system that verifies: its judge, its trust, its revisions and its limits."""

import pandas as pd

from covrag_lite import metrics
from covrag_lite.tables.facts import facts_of, facts_of_rows
from covrag_lite.tables.failures import bounds, failure_table
from covrag_lite.tables.paired import count_changes
from covrag_lite.tables.verifier import judge_table, trust_table


def verifier_facts(frame: pd.DataFrame) -> dict[str, str]:
    """Return the facts of all systems that verify."""
    facts = {}
    for system, rows in frame.groupby("system"):
        if rows.verdicts.any():
            facts |= _facts_of_system(system, rows)
    return facts


def _facts_of_system(system: str, rows: pd.DataFrame) -> dict[str, str]:
    """Return the facts of one system."""
    judges = judge_table(rows, system, by_set=True).rename(columns={"n": "judged n"})
    facts = facts_of_rows(judges, f"{system} {{questions}}")
    for answer in ("right", "wrong"):
        forms = {"": f"{{{answer}:.1f}}", "n": f"{{n {answer}}}"}
        name = f"{system} trusted {{passages}} {answer}"
        facts |= facts_of_rows(trust_table(rows, system), name, forms)
    facts |= facts_of(system, _changes(rows))
    kinds = failure_table(rows, system).rename(columns={"95 % interval": "interval"})
    facts |= facts_of_rows(kinds, f"{system} kind {{questions}}")
    limits = {name: f"{value:.1f}" for name, value in bounds(rows, system).items()}
    return facts | facts_of(system, limits)


def _changes(rows: pd.DataFrame) -> dict[str, int]:
    """Count revised questions, those helped and hurt, and how the second search's finds differ."""
    revised, helped, hurt = count_changes(rows[rows.verdicts > 0])
    scored = rows[rows.normalised.notna()]
    found_first = scored.found_first.astype(bool)
    found_last = scored.found_last.astype(bool)
    found_only_last, found_only_first, _ = metrics.mcnemar(found_first, found_last)
    return {
        "revised": revised,
        "helped": helped,
        "hurt": hurt,
        "found anew": found_only_last,
        "found no more": found_only_first,
    }
