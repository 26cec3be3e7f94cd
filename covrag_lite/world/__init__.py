"""The embedded data: a fictional world made from a seed, with questions about it."""
