"""Files of training samples: gzipped JSONL, one sample per line."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from covrag_lite.files import read_rows, write_bytes
from covrag_lite.records import Sample


def save_samples(path: Path, samples: Sequence[Sample]) -> None:
    """Write samples as gzipped JSONL; the file appears only when it is complete."""
    lines = [json.dumps(asdict(sample), ensure_ascii=False) + "\n" for sample in samples]
    write_bytes(path, gzip.compress("".join(lines).encode(), 1, mtime=0))


def load_samples(path: Path) -> list[Sample]:
    """Read samples that `save_samples` wrote."""
    samples = []
    for row in read_rows(path):
        row["target"] = tuple(row["target"])
        samples.append(Sample(**row))
    return samples
