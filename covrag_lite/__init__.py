"""covrag_lite: a replication of CoV-RAG for one consumer GPU, or a CPU.

The paper is "Retrieving, Rethinking and Revising: The Chain-of-Verification Can Improve Retrieval
Augmented Generation". Start with `notebooks/table2.ipynb`; `method.py` contains Algorithm 1.
"""

__version__ = "0.1.0"
