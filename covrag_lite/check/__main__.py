"""`python -m covrag_lite.check`: compare, print what differs, and fail if something does."""

import argparse
import sys

from covrag_lite.check import check
from covrag_lite.runs.recorded import find


def main() -> None:
    """Check everything that is recorded, or with --write fill the pages in."""
    parser = argparse.ArgumentParser(
        prog="python -m covrag_lite.check", description="Does everything recorded follow from what it was made from?"
    )
    parser.add_argument("--write", action="store_true", help="write facts, and the pages that are filled from them")
    asked = parser.parse_args()
    wrong, notes = check(write=asked.write)
    verdict = f"{len(wrong)} differences" if wrong else "every number follows"
    print("\n".join([*notes, *wrong, f"{len(find())} recorded runs scored again: {verdict}"]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
