"""Related systems over the same questions, passages and reader: CRAG, A²R and FaVe; of RRR and CoQ the recorded rows.

Everything that only they need is here: the systems, their prompts, what they need trained, and the table. `systems`,
`evaluate` and `replication` look it up by name.
"""

from collections.abc import Sequence

from covrag_lite.method import Tools
from covrag_lite.records import Prediction, Question


def recorded_only(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Stands for a system that is a row of recorded tables and whose code, or training, has gone."""
    raise ValueError(f"the system {tools.name} is in recorded tables only; leave it out of the systems to run")
