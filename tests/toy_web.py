"""Websites on loopback whose replies are written byte by byte, so that they can misbehave."""

import json
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from covrag_lite.plugins.web import fetch, retriever

# No pauses; enough time for a well-behaved server on a busy machine.
QUICK = {"SILENCE": 20.0, "TOTAL": 60.0, "SIZE": 20_000, "PAUSE": 0.0}


def open_loopback(monkeypatch):
    """Let the guard accept loopback addresses, and skip the pauses between requests."""
    for name, value in QUICK.items():
        monkeypatch.setattr(fetch, name, value)
    monkeypatch.setattr(fetch, "is_public", lambda address: True)
    monkeypatch.setattr(retriever, "SEARCH_PAUSE", 0.0)


class Site:
    """Pages by path: bytes, or a function that gets the connection and the request."""

    def __init__(self, pages):
        self.pages = pages
        self.requests = []  # (method, path, headers, body) of each
        self.current = threading.local()  # for each connection, the body of its request
        self.lock = threading.Lock()
        self.under_way = self.most_at_once = 0

    @property
    def paths(self):
        return [path for _, path, _, _ in self.requests]

    def url(self, path="/", host="127.0.0.1"):
        return f"http://{host}:{self.port}{path}"

    def answer(self, request):
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        self.current.body = body
        self.requests.append((request.command, request.path, request.headers, body))
        page = self.pages.get(request.path.partition("?")[0], status(404))
        if callable(page):
            page(request.connection, request.path)
        else:
            request.connection.sendall(page)

    def wait(self, seconds):
        """Delay a request, and count how many requests run at the same time."""
        with self.lock:
            self.under_way += 1
            self.most_at_once = max(self.most_at_once, self.under_way)
        time.sleep(seconds)
        with self.lock:
            self.under_way -= 1


@contextmanager
def serve(pages):
    """A running site."""
    site = Site(pages)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            with suppress(OSError):  # the other side has had enough
                site.answer(self)

        do_POST = do_GET

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield site
        finally:
            server.shutdown()


def reply(body, kind="text/html; charset=utf-8", status="200 OK", **headers):
    """A complete, well-formed reply."""
    body = body.encode() if isinstance(body, str) else body
    fields = {"Content-Type": kind, "Content-Length": str(len(body))}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{name}: {value}\r\n" for name, value in fields.items() if value is not None]
    return f"HTTP/1.1 {status}\r\n{''.join(lines)}\r\n".encode() + body


def status(code, **headers):
    return reply("no", status=f"{code} Because", **headers)


def redirect(url):
    return status(302, Location=url)


def page(*paragraphs, title="A page"):
    """An HTML page with these paragraphs."""
    body = "".join(f"<p>{text}</p>" for text in paragraphs)
    return f"<html><head><title>{title}</title></head><body><article>{body}</article></body></html>"


def searxng(results):
    """A page that replies as SearXNG does, from a dictionary of queries to addresses."""

    def answer(connection, path):
        query = parse_qs(urlsplit(path).query)["q"][0]
        rows = [{"url": url, "title": f"Title of {url}"} for url in results.get(query, [])]
        connection.sendall(reply(json.dumps({"query": query, "results": rows}), "application/json"))

    return answer
