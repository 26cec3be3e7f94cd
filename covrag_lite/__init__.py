"""covrag_lite: a replication of CoV-RAG (Retrieving, Rethinking and Revising) for one consumer GPU, or none.

Start with `notebooks/table2.ipynb`; `method.py` has the paper's Algorithm 1.
"""

__version__ = "0.1.0"
