"""Plug-in: the retriever `engine`, full-text search in LanceDB."""

from covrag_lite.loader import register

register("retriever", "engine", "covrag_lite.plugins.lance.retriever")
