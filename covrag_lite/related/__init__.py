"""Related systems over the same questions, passages and reader: CRAG, A²R, FaVe and RRR.

Everything that only they need is here: the systems, their prompts, what they need trained, and the table. `systems`,
`evaluate` and `replication` look it up by name.
"""


def recorded_only(*_: object) -> None:
    """Stands for the chain of queries, a row of recorded tables whose code has gone."""
    raise ValueError("the system CoQ is in recorded tables only; leave it out of the systems to run")
