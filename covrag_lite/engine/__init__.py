"""Engines that write texts behind the protocol of `interface`, and that train adapters."""
