"""Related systems over the same questions and passages: CRAG, A²R, FaVe, query expansion; RRR's and CoQ's rows."""
