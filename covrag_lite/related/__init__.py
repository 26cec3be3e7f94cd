"""CoV-RAG's neighbours (CRAG, A²R, FaVe, RRR): everything that only they need."""
