"""From a page's address to its main text: fetched as robots.txt allows, extracted, and made plain.

Text is plain when nothing in it can pass for a part of a prompt, a tag or a special token.
"""

import json
import re
import subprocess
import sys
import threading
import time
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from urllib.parse import urljoin, urlsplit

from protego import Protego

import covrag_lite.retrieval.web.fetch as fetch
from covrag_lite.retrieval.web.fetch import BUSY, PageError, Reply, check_status, normalize

NAME = "covrag_lite"  # our user agent in a robots.txt
TYPES = ("text/html", "application/xhtml+xml", "text/plain")
REDIRECTS = (301, 302, 303, 307, 308)
ROBOTS_SIZE = 500_000  # characters of a robots.txt; RFC 9309 wants at least that many to be read
ROBOTS_WORK = 1_000_000  # user agents times lines in it, the parser's worst case
SECONDS = 20  # of CPU time for extracting one page's text; an ordinary one takes a tenth of a second
# A page can be built to keep a parser busy for hours or to break it, so trafilatura runs in a process with little
# memory, which the system kills when a page takes too long. It reads a page a line; -I keeps our folders off its path.
EXTRACTOR = """
import json, resource, signal, sys
import trafilatura
resource.setrlimit(resource.RLIMIT_AS, (2 * 1024**3, 2 * 1024**3))
print("ready", flush=True)
for line in sys.stdin:
    signal.setitimer(signal.ITIMER_PROF, float(sys.argv[1]))
    found = trafilatura.bare_extraction(json.loads(line), include_comments=False, with_metadata=True)
    print(json.dumps([found.title or "", found.text or ""] if found else ["", ""]), flush=True)
"""
LONGEST_TEXT = 400_000  # characters
LONGEST_TITLE = 150
# What stands between the parts of a prompt, of its JSON and of a tokenizer's special tokens.
STRUCTURE = str.maketrans({"\\": "/", '"': "'", "{": "(", "}": ")", "`": "'"})
# Nothing is taken out without something in its place, so that no mark arises from the pieces of another.
MARKS = (
    (re.compile(r"\[\d+\]"), " "),  # reference marks, which are the prompt's own
    (re.compile(r"<(?=\S)"), "‹"),  # tags and special tokens
    (re.compile(r"#(?=[\w\s-]{0,40}task)", re.I), "*"),  # task markers
    (re.compile(r"\[(?=/?INST)", re.I), "("),
    (re.compile(r"\b(reference|question|answer|verdict|rewritten|sentence|terms)\s*:", re.I), r"\1 -"),
)
INVISIBLE = ("Cc", "Cf", "Co", "Cs", "Cn")  # control, format (bidi and zero-width too), private, surrogate, unassigned
CHARSET = re.compile(rb"charset\s*=\s*[\"']?([\w-]+)", re.I)
# Those of the web; Python knows further ones that are no character sets.
CHARSETS = re.compile(
    r"utf-?8|utf-?16(le|be)?|(us-)?ascii|iso-?8859-\d+|windows-\d+|koi8-[ru]|gb\w+|big5|shift_jis|euc-\w+"
)


class Crawler:
    """Fetches pages, one at a time of each host; remembers the hosts' robots.txt and when they were last asked."""

    def __init__(self):
        self.locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self.robots: dict[str, Protego] = {}
        self.asked: dict[str, float] = {}

    def fetch(self, url: str) -> Reply | PageError:
        """Fetch a page of text, after redirects and further tries; return the error where it cannot be had."""

        def once() -> Reply:
            reply = self.follow(url, TYPES, obey=True)
            check_status(reply)
            return reply

        try:
            with self.locks[urlsplit(normalize(url)).netloc]:
                return fetch.retry(once)
        except PageError as error:
            return error

    def follow(self, url: str, types: Iterable[str] | None, obey: bool) -> Reply:
        """Follow redirects to a reply; each is checked as the first address was."""
        url = normalize(url)
        for _ in range(fetch.LIMITS.redirects + 1):
            pause = self.check_robots(url) if obey else 0.0
            self.wait(urlsplit(url).netloc, max(pause, fetch.LIMITS.pause))
            reply = fetch.request(url, types)
            if reply.status not in REDIRECTS:
                return reply
            url = normalize(reply.headers.get("location", ""), url)
        raise PageError(f"it redirects more than {fetch.LIMITS.redirects} times")

    def wait(self, host: str, pause: float) -> None:
        """Sleep until this host may be asked again."""
        left = self.asked.get(host, 0.0) + pause - time.monotonic()
        if host in self.asked and left > 0:
            time.sleep(left)
        self.asked[host] = time.monotonic()

    def check_robots(self, url: str) -> float:
        """Return the pause that the host's robots.txt asks for; refuse a page that it forbids."""
        robots = self.load_robots(url)
        if not robots.can_fetch(url, NAME):
            raise PageError("its robots.txt does not allow it")
        pause = robots.crawl_delay(NAME) or 0.0
        if pause > fetch.LIMITS.longest_pause:
            raise PageError(f"its robots.txt asks for {pause:g} s between two pages")
        return pause

    def load_robots(self, url: str) -> Protego:
        """Load the host's robots.txt: a missing one allows all, an unreachable one forbids all (RFC 9309)."""
        home = urljoin(url, "/robots.txt")
        if home not in self.robots:
            reply = self.follow(home, None, obey=False)
            if reply.status in BUSY:
                check_status(reply)
            text = reply.body.decode("utf-8", "replace") if reply.status == 200 else ""
            if len(text) > ROBOTS_SIZE or text.lower().count("agent") * text.count("\n") > ROBOTS_WORK:
                raise PageError("its robots.txt is too long to be read")
            self.robots[home] = Protego.parse(text)
        return self.robots[home]


def read_pages(replies: Sequence[Reply | PageError]) -> list[tuple[str, str] | PageError]:
    """Read each page's title and main text, a paragraph a line, or say why there is none."""
    decoded = [decode(reply) if isinstance(reply, Reply) else reply for reply in replies]
    is_html = [isinstance(text, str) and reply.type != "text/plain" for text, reply in zip(decoded, replies)]
    extracted = iter(extract([text for text, html in zip(decoded, is_html) if html]))
    return [make_plain(next(extracted) if html else text) for text, html in zip(decoded, is_html)]


def decode(reply: Reply) -> str | PageError:
    """Decode a page by its header's character set, else by its head's, else as UTF-8."""
    told = CHARSET.search(reply.headers.get("content-type", "").encode()) or CHARSET.search(reply.body[:1024])
    charset = told[1].decode("ascii", "replace").lower() if told else ""
    charset = charset if CHARSETS.fullmatch(charset) else "utf-8"
    if reply.body.startswith(b"%PDF-") or b"\0" in reply.body[:1000] and "utf-16" not in charset:
        return PageError("it says that it is text, but it is not")
    try:
        return reply.body.decode(charset, "replace")
    except LookupError:
        return reply.body.decode("utf-8", "replace")


def extract(pages: Sequence[str]) -> list[tuple[str, str] | PageError]:
    """Extract the title and main text of each HTML page; a page that takes too long, or breaks the parser, is left."""
    made: list[tuple[str, str] | PageError] = []
    while len(made) < len(pages):
        lines = "".join(f"{json.dumps(page)}\n" for page in pages[len(made) :])
        command = [sys.executable, "-I", "-c", EXTRACTOR, str(SECONDS)]
        done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="ascii")
        ready, *written = done.stdout.split("\n")[:-1] or [""]
        if not ready:
            raise RuntimeError("the process that reads pages does not start; is trafilatura installed as env/ pins it?")
        made += [tuple(json.loads(line)) for line in written]
        if len(made) < len(pages):
            made.append(PageError(f"its main text could not be extracted, at least not within {SECONDS:g} s"))
    return made


def make_plain(found: tuple[str, str] | str | PageError) -> tuple[str, str] | PageError:
    """Clean a page's title and text; plain text has no title."""
    if isinstance(found, PageError):
        return found
    title, text = ("", found) if isinstance(found, str) else found
    lines = [clean(line) for line in text[:LONGEST_TEXT].splitlines()]
    text = "\n".join(line for line in lines if line)
    return (clean(title)[:LONGEST_TITLE], text) if text else PageError("it has no main text")


def clean(text: str) -> str:
    """Put a text on one line, without invisible characters and without marks of a prompt, a tag or a token."""
    text = " ".join(text.split())
    text = "".join(letter for letter in text if unicodedata.category(letter) not in INVISIBLE)
    text = text.translate(STRUCTURE)
    for pattern, replacement in MARKS:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())
