"""Benchmarks of speed and memory in training and answering, against plain and other libraries."""
