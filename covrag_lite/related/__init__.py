"""Related systems on the same questions and passages: CRAG, A²R, FaVe and query expansion.

RRR and CoQ appear in recorded tables only.
"""
