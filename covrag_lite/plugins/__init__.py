"""Plug-ins: they import the package, and the package finds them by name (`loader.plugins`)."""
