"""What a peer, an engine or a machine says when it cannot: its failure is a result like any other."""


def tell_failure(error: Exception, limit: int = 200) -> str:
    """The kind of an error and its first line; the kind alone where it says nothing."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:limit]}" if lines else type(error).__name__
