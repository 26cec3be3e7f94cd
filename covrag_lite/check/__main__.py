"""The command `python -m covrag_lite.check`, which is also `make check`."""

import argparse
import sys
from collections.abc import Sequence

from covrag_lite.check import check
from covrag_lite.files import RecordDamaged, describe_error
from covrag_lite.runs.recorded import find
from covrag_lite.tables import all_tables


def main(words: Sequence[str] | None = None) -> None:
    """Print what differs; the exit status is 1 if something does."""
    parser = argparse.ArgumentParser(
        description="Does every recorded number follow from the recorded predictions?"
    )
    about_write = "write facts, and the pages filled from them"
    parser.add_argument("--write", action="store_true", help=about_write)
    about_rebuild = "also replace recorded tables and pictures"
    parser.add_argument("--rebuild", action="store_true", help=about_rebuild)
    options = parser.parse_args(words)
    try:
        report = check(write=options.write or options.rebuild, rebuild=options.rebuild)
        n_scored = sum(run.table in all_tables() for run in find())
    except (RecordDamaged, OSError) as error:
        sys.exit(f"check: {describe_error(error)}")
    n_differences = len(report.differences)
    result = f"{n_differences} differences" if n_differences else "every number follows"
    for line in [*report.notes, *report.differences]:
        print(line)
    print(f"{n_scored} recorded runs scored again: {result}")
    sys.exit(n_differences > 0)


if __name__ == "__main__":
    main()
