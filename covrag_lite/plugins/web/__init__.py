"""Plug-in: the retriever `web`, web search with saved results."""

from covrag_lite.loader import register

register("corpus-free retriever", "web", "covrag_lite.plugins.web.retriever")
