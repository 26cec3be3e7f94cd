"""A corpus as a table of LanceDB: connected to by its address, filled in a stream, checked against the corpus's hash.

`engine` calls `open_index`. Each batch is one commit and batches come in the corpus's order, so a build that was
killed goes on behind the last whole batch. The passages themselves stay with the corpus: the table holds the stems of
each, as BM25 sees them, and its row.
"""

import contextlib
import fcntl
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from covrag_lite.data import digest
from covrag_lite.records import Passage
from covrag_lite.retrieval import bm25
from covrag_lite.runs.progress import track

if TYPE_CHECKING:
    from lancedb import DBConnection
    from lancedb.table import Table

PACKAGE = "lancedb==0.40.0"
BATCH = 10_000  # passages in a commit: what a kill loses at most
# Object stores, where any number of machines read one copy, and the environment variables that hold their keys.
STORES = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
CLUSTERS = ("http", "https", "db")
SECONDS = 60  # without an answer, after which a request is repeated
RETRIES = 4
INDEX_HOURS = 12  # that a cluster may take to index
REFUSED = re.compile(r"\b(401|403)\b|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|Unauthorized|Forbidden")
MISSING = re.compile(r"\b404\b|NoSuchBucket|NoSuchContainer")
SILENT = re.compile(r"connect|error sending request|timed? ?out|dns|lookup", re.IGNORECASE)


class EngineError(RuntimeError):
    """The engine cannot be reached, refuses us, or holds something else; what was indexed before is not lost."""


def open_index(address: str, passages: Sequence[Passage]) -> "Table":
    """The index of these passages at this address: built where it is not there, completed where it is half built."""
    base = connect(address)
    with alone(address), reaching(address):
        check_corpus(base, address, passages)
        table = base.create_table("passages", schema=schema(), exist_ok=True)
        fill(table, passages)
        n_rows = table.count_rows()
        if n_rows != len(passages):
            raise EngineError(
                f"the index at {address} has {n_rows:,} rows for {len(passages):,} passages, as if two processes had "
                f"built it at once; delete it and run again"
            )
        make_searchable(table)
    return table


def connect(address: str) -> "DBConnection":
    """The database at a folder, in an object store or in a cluster; keys come from the environment alone."""
    if importlib.util.find_spec("lancedb") is None:
        raise ImportError(f"the retriever 'engine' needs LanceDB: pip install {PACKAGE}")
    import lancedb

    parts = urlsplit(address)
    if parts.scheme and parts.scheme not in (*STORES, *CLUSTERS):
        raise ValueError(
            f"engine_address {address!r} is not known; give a folder, {', '.join(f'{s}://…' for s in STORES)} "
            f"(an object store), or https://host/database (a LanceDB cluster)"
        )
    if parts.username or parts.password or parts.query:
        raise ValueError("engine_address must hold no key, because manifests keep it; keys come from the environment")
    with reaching(address):
        if parts.scheme not in CLUSTERS:
            return lancedb.connect(address, storage_options=patience() if parts.scheme else None)
        key = os.environ.get("LANCEDB_API_KEY")
        if not key:
            raise EngineError(f"the cluster at {address} needs a key in the environment variable LANCEDB_API_KEY")
        is_cloud = parts.scheme == "db"
        return lancedb.connect(
            address if is_cloud else f"db://{parts.path.strip('/') or 'covrag_lite'}",
            api_key=key,
            host_override=None if is_cloud else f"{parts.scheme}://{parts.netloc}",
            client_config={
                "retry_config": {"retries": RETRIES, "connect_retries": RETRIES, "read_retries": RETRIES},
                "timeout_config": {"connect_timeout": SECONDS / 6, "read_timeout": SECONDS},
            },
        )


def patience() -> dict[str, str]:
    """How long an object store is waited for, and how often asked."""
    return {
        "connect_timeout": f"{SECONDS // 6}s",
        "timeout": f"{SECONDS}s",
        "client_max_retries": f"{RETRIES}",
        "client_retry_timeout": f"{SECONDS}",
    }


@contextlib.contextmanager
def reaching(address: str | Path) -> Iterator[None]:
    """The engine's long messages as one sentence each."""
    try:
        yield
    except EngineError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise EngineError(describe(str(address), error)) from None


def describe(address: str, error: Exception) -> str:
    """What happened, and what to do."""
    said = " ".join(str(error).split())
    status = getattr(error, "status_code", None)
    if status in (401, 403) or REFUSED.search(said):
        keys = STORES.get(urlsplit(address).scheme, "LANCEDB_API_KEY")
        return f"the engine at {address} refused the key; set the environment's {keys} to one that it knows"
    if status == 404 or MISSING.search(said):
        return f"there is no bucket or database at {address}; make it first, or correct engine_address"
    if urlsplit(address).scheme and SILENT.search(said):
        return f"no engine answers at {address}; check engine_address and the network (what was indexed before is kept)"
    return f"the engine at {address} failed: {said[:200]}"


@contextlib.contextmanager
def alone(address: str) -> Iterator[None]:
    """Only one process at a time builds an index in a folder; a cluster has no lock, so its rows are counted."""
    if urlsplit(address).scheme:
        yield
        return
    with open(Path(address) / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # let go by the system when a process is killed
        yield


def schema() -> object:
    """A row of the corpus and its stems, split by blanks."""
    import pyarrow as pa

    return pa.schema([("row", pa.int64()), ("words", pa.string())])


def check_corpus(base: "DBConnection", address: str, passages: Sequence[Passage]) -> None:
    """Stop where the address holds the index of another corpus, or of other stems; note ours where it holds none."""
    import pyarrow as pa

    ours = {"corpus": digest(passages), "stems": bm25.name_stems()}
    empty = pa.schema([(name, pa.string()) for name in ours])
    about = base.create_table("about", schema=empty, exist_ok=True)
    if about.count_rows() == 0:
        about.add(pa.Table.from_pylist([ours], schema=empty))
        return
    known = about.search().limit(1).to_list()[0]
    for name, value in ours.items():
        if known[name] != value:
            raise EngineError(
                f"the index at {address} is of another corpus or of other stems ({name} {known[name]!r}, here "
                f"{value!r}); give another engine_address, or delete that index"
            )


def fill(table: "Table", passages: Sequence[Passage]) -> None:
    """Add the passages that the table does not hold yet."""
    import pyarrow as pa

    done = table.count_rows()
    starts = range(done, len(passages), BATCH)
    n_done = -(-done // BATCH)
    for start in track(starts, "index", "batch", total=n_done + len(starts), done=n_done):
        block = passages[start : start + BATCH]
        words = [" ".join(stems) for stems in bm25.tokenise(f"{p.title} {p.text}" for p in block)]
        rows = range(start, start + len(block))
        table.add(pa.table({"row": list(rows), "words": words}, schema=table.schema))


def make_searchable(table: "Table") -> None:
    """Index the stems where they are not indexed, or not all of them."""
    from lancedb.index import FTS

    made = {index.name: index for index in table.list_indices()}
    if "words_idx" in made and table.index_stats("words_idx").num_unindexed_rows == 0:
        return
    as_they_are = FTS(
        base_tokenizer="whitespace",
        max_token_length=None,
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
    )
    table.create_index("words", config=as_they_are, wait_timeout=timedelta(hours=INDEX_HOURS))
