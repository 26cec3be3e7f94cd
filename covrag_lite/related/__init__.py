"""Related systems over the same questions, passages and reader: CRAG, A²R, FaVe, query expansion; RRR's and CoQ's rows."""
