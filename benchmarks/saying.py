"""What a peer, an engine or a machine says when it cannot: its failure is a result like any other."""


def tell_failure(error: BaseException, limit: int = 200) -> str:
    """The kind of an error and its first line; the kind alone where it says nothing."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:limit]}" if lines else type(error).__name__


def tell_root(error: BaseException) -> str:
    """The same, of the shortage of memory behind an error where there is one: it breaks a graph, which says another."""
    from covrag_lite.engine.prepare import FULL

    behind: BaseException | None = error
    while behind is not None:
        if FULL.search(str(behind)):
            return tell_failure(behind)
        behind = behind.__cause__ or behind.__context__
    return tell_failure(error)


def last_words(said: str, limit: int = 300) -> str:
    """The last line that a process wrote before it died."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:limit] if lines else "it ended without a word"
