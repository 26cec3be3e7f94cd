"""Every fault patch fits the code. No patch may list this file, which would notice them all."""

import tomllib

from covrag_lite.config import ROOT

FAULTS = {path.stem: tomllib.loads(path.read_text()) for path in (ROOT / "tests" / "faults").glob("*.toml")}


def test_every_fault_can_still_be_put_in_and_is_noticed_by_the_method_alone():
    stale = [name for name, one in FAULTS.items() if (ROOT / one["file"]).read_text().count(one["old"]) != 1]
    assert stale == [] and len(FAULTS) >= 120
    assert not any("tests/test_faults.py" in one["tests"] for one in FAULTS.values())
