"""Related systems over the same questions, passages and reader: CRAG, A²R, FaVe, query expansion; RRR's and CoQ's rows.

Everything that only they need is here: the systems, their prompts, what they need trained, and the table. `systems`,
`evaluate` and `replication` look it up by name.
"""
