"""The whole replication on one backbone, with one command: `python -m covrag_lite.replication`."""
