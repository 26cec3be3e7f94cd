"""Recorded speed (results/speed-*): its records, facts, tables and figures, and what a run costs.

The measurements themselves are in the folder `benchmarks`.
"""
