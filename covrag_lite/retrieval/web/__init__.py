"""Search on the web in two stages, as the paper and WebGLM do it: a provider finds pages, their passages are ranked.

A query's result comes from the `snapshot`; what is not there is searched for only if `live` is "yes", and then frozen
(`live`): `providers` find pages, `visiting` fetches them with manners over a `connection` that the guard of `addresses`
lets through, `extraction` and `pages` make passages of them. The dense retriever ranks these. There is no corpus.
"""

from collections.abc import Sequence

from covrag_lite import config
from covrag_lite.engine import weights
from covrag_lite.records import Passage, Search
from covrag_lite.retrieval import dense
from covrag_lite.retrieval.web.errors import SearchError, show
from covrag_lite.retrieval.web.live import go_live
from covrag_lite.retrieval.web.providers import PROVIDERS
from covrag_lite.retrieval.web.snapshot import Result, Snapshot, is_expired


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """The search over frozen results and, if allowed, the web; where pages hold little, it finds fewer than k."""
    check(settings)
    snapshot = open_snapshot(settings)
    known: dict[str, list[Passage]] = {}

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        new = [query for query in dict.fromkeys(queries) if query not in known]
        for result in obtain(new, snapshot, settings):
            known[result.query] = rank(result, settings)
        return [known[query] for query in queries]

    return search


def check(settings: config.Retrieval) -> None:
    """An error where a setting is none of those allowed; the encoder is looked for now, not after a thousand pages."""
    if provider_of(settings) not in PROVIDERS:
        raise ValueError(f"provider {provider_of(settings)!r} is not known; use one of {', '.join(PROVIDERS)}")
    for name in ("live", "private_pages"):
        if getattr(settings, name) not in ("yes", "no"):
            raise ValueError(f"{name} is {getattr(settings, name)!r}; use 'yes' or 'no'")
    if settings.n_pages < 1 or settings.max_age < 0:
        raise ValueError(
            f"n_pages is {settings.n_pages} and must be at least 1; max_age is {settings.max_age}, at least 0"
        )
    weights.find_encoder(settings.encoder)


def provider_of(settings: config.Retrieval) -> str:
    """The provider: that of a retriever called web-<provider>, else the parameter's."""
    return settings.retriever.partition("-")[2] or settings.provider


def open_snapshot(settings: config.Retrieval) -> Snapshot:
    """The frozen results of the configured provider."""
    return Snapshot(config.resolve(settings.snapshot), provider_of(settings))


def obtain(queries: Sequence[str], snapshot: Snapshot, settings: config.Retrieval) -> list[Result]:
    """The queries' results in their order; those that are not frozen yet, or no longer good, are searched for live."""
    results = {query: snapshot.load(query) for query in queries}
    missing = {query: why for query, result in results.items() if (why := lacks(result, settings))}
    if missing and settings.live == "no":
        first, why = next(iter(missing.items()))
        raise SearchError(
            f"web search ({snapshot.provider}): {len(missing)} of {len(queries)} queries lack a frozen result: "
            f"{show(first)} {why} {snapshot.folder}; live search is off: allow it with -p live yes"
        )
    if missing:
        results |= {result.query: result for result in go_live(list(missing), snapshot, settings)}
    if queries:
        print(tell(list(results.values()), len(missing), settings))
    return list(results.values())


def lacks(result: Result | None, settings: config.Retrieval) -> str:
    """Why a frozen result will not do; empty where it does."""
    if result is None:
        return "is not in"
    if result.asked < settings.n_pages:
        return f"has {result.asked} pages, fewer than n_pages = {settings.n_pages}, in"
    return f"is older than max_age = {settings.max_age} days in" if is_expired(result, settings.max_age) else ""


def tell(results: Sequence[Result], live: int, settings: config.Retrieval) -> str:
    """Where the results came from, and what is missing in them."""
    dates = sorted(result.date[:10] for result in results)
    pages = [page for result in results for page in result.pages]
    failed = sum(bool(page.failed) for page in pages)
    empty = sum(not result.passages() for result in results)
    return (
        f"web search ({provider_of(settings)}): {len(results) - live} queries from the snapshot {settings.snapshot}, "
        f"{live} searched for live and frozen there, dated {dates[0]} to {dates[-1]}; {failed} of {len(pages)} pages "
        f"could not be had, {empty} queries found no passage"
    )


def rank(result: Result, settings: config.Retrieval) -> list[Passage]:
    """The k passages nearest to the query."""
    found = result.passages(settings.n_pages)
    return dense.load(found, settings)([result.query])[0] if found else []
