"""Engines: run a language model through the protocol in `interface`, and train its adapters."""
