"""Comparisons of systems over all test questions: the paper's main claim, recorded as "claim".

pairs          which systems are compared, and the names of the baselines computed for it
baselines      two readers, and query expansion on some questions only
differences    paired differences: computed, tested and written
first_answers  how well verdicts judge first answers, and what the second search gives
picture        gains over RAG (trained) as a forest plot
table          the table of all of these
"""
