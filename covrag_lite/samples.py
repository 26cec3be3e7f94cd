"""Training samples as a file, so that a stage of training can begin where another ended."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from covrag_lite.records import Sample
from covrag_lite.runs.outcomes import read_gzip


def save_samples(path: Path, samples: Sequence[Sample]) -> None:
    """Samples as gzipped JSONL, whole or not there."""
    lines = "".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in samples)
    making = path.with_suffix(".part")
    making.write_bytes(gzip.compress(lines.encode(), 1, mtime=0))
    making.rename(path)


def load_samples(path: Path) -> list[Sample]:
    """The samples that `save_samples` wrote."""
    try:
        rows = [json.loads(line) for line in read_gzip(path).splitlines()]
    except ValueError as error:
        raise ValueError(f"{error}: remove {path}, and run the stage data again") from None
    return [Sample(**row | {"target": tuple(row["target"])}) for row in rows]
