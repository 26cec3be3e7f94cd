"""Run several systems over the same questions, and measure what each of them costs."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from covrag_lite.config import Config
from covrag_lite.plugins.related.heads import find_head
from covrag_lite.plugins.related.meter import Meter
from covrag_lite.plugins.related.names import HEADS
from covrag_lite.records import Prediction, Question
from covrag_lite.systems import evaluate
from covrag_lite.systems.evaluate import Resources


def run(
    config: Config, resources: Resources, questions: Sequence[Question]
) -> tuple[list[Prediction], pd.DataFrame]:
    """Run every configured system; returns predictions, and one row of mean costs per system."""
    names = config.chain.systems
    for head in HEADS:  # the table needs both heads
        find_head(config, head)
    for name in names:  # run without questions first, to find missing parts early
        evaluate.run_system(name, config, resources, [])
    predictions: list[Prediction] = []
    costs = []
    for name in names:
        meter = Meter()
        metered = replace(resources, meter=meter)
        predictions += evaluate.run_system(name, config, metered, questions)
        costs.append(meter.row(name, len(questions)))
    return predictions, pd.DataFrame(costs)
