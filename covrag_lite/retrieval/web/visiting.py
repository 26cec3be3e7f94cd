"""Fetching with manners: robots.txt is obeyed, a host is asked seldom, a busy server gets a pause and another try."""

import email.utils
import time
from collections.abc import Callable, Iterable
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

from protego import Protego

from covrag_lite.retrieval.web.addresses import tidy
from covrag_lite.retrieval.web.connection import NAME, Limits, Reply, request
from covrag_lite.retrieval.web.errors import PageError, TryAgain

LIMITS = Limits()
TYPES = ("text/html", "application/xhtml+xml", "text/plain")
REDIRECTS = (301, 302, 303, 307, 308)
BUSY = (429, 500, 502, 503, 504)
RULES_SIZE = 500_000  # characters of a robots.txt; RFC 9309 wants at least that many to be read
RULES_WORK = 1_000_000  # agents times lines in it, which is what parsing it takes at worst
Result = TypeVar("Result")


class Visitor:
    """Fetches pages, and remembers of each host its rules and when it was last asked."""

    def __init__(self, private: bool = False, limits: Limits | None = None):
        self.private = private
        self.limits = limits or LIMITS
        self.rules: dict[str, Protego] = {}
        self.asked: dict[str, float] = {}

    def fetch(self, url: str) -> Reply:
        """A page of text, after redirects and further tries."""

        def once() -> Reply:
            reply = self.follow(url, TYPES, obey=True)
            check_status(reply)
            return reply

        return patiently(once, self.limits)

    def follow(self, url: str, types: Iterable[str] | None, obey: bool) -> Reply:
        """The reply behind the redirects, each of them checked like the first address."""
        url = tidy(url)
        for _ in range(self.limits.redirects + 1):
            pause = self.check_rules(url) if obey else 0.0
            self.wait(urlsplit(url).netloc, max(pause, self.limits.pause))
            reply = request(url, self.limits, self.private, types)
            if reply.status not in REDIRECTS:
                return reply
            url = tidy(reply.headers.get("location", ""), url)
        raise PageError(f"it redirects more than {self.limits.redirects} times")

    def wait(self, host: str, pause: float) -> None:
        """Sleep until this host may be asked again."""
        left = self.asked.get(host, 0.0) + pause - time.monotonic()
        if host in self.asked and left > 0:
            time.sleep(left)
        self.asked[host] = time.monotonic()

    def check_rules(self, url: str) -> float:
        """The pause that the host's robots.txt asks for; an error where it forbids the page."""
        rules = self.find_rules(url)
        if not rules.can_fetch(url, NAME):
            raise PageError("its robots.txt does not allow it")
        pause = rules.crawl_delay(NAME) or 0.0
        if pause > self.limits.longest_pause:
            raise PageError(f"its robots.txt asks for {pause:g} s between two pages")
        return pause

    def find_rules(self, url: str) -> Protego:
        """The host's robots.txt: none there allows everything, one that cannot be had forbids everything (RFC 9309)."""
        home = urljoin(url, "/robots.txt")
        if home not in self.rules:
            reply = self.follow(home, None, obey=False)
            if reply.status in BUSY:
                check_status(reply)
            text = reply.body.decode("utf-8", "replace") if reply.status == 200 else ""
            if len(text) > RULES_SIZE or text.lower().count("agent") * text.count("\n") > RULES_WORK:
                raise PageError("its robots.txt is too long to be read")
            self.rules[home] = Protego.parse(text)
        return self.rules[home]


def check_status(reply: Reply) -> None:
    """An error where the server gave no page, with its wish for a pause where another try may help."""
    if reply.status in BUSY:
        raise TryAgain(f"it answered with status {reply.status}", parse_pause(reply.headers.get("retry-after", "")))
    if reply.status != 200:
        raise PageError(f"it answered with status {reply.status}")


def parse_pause(value: str) -> float | None:
    """Retry-After in seconds: a number or a date; None where it is neither."""
    if value.strip().isdigit():
        return float(value)
    try:
        when = email.utils.parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, when - time.time())


def patiently(once: Callable[[], Result], limits: Limits) -> Result:
    """What `once` returns, called again after a pause as often as allowed; a pause that is too long ends it."""
    for number in range(1, limits.tries + 1):
        try:
            return once()
        except TryAgain as error:
            pause = error.pause if error.pause is not None else limits.pause * 2 ** (number - 1)
            if pause > limits.longest_pause:
                raise PageError(f"{error}, and asks to be left alone for {pause:.0f} s") from None
            if number == limits.tries:
                raise PageError(f"{error} (asked {number} times)") from None
        time.sleep(pause)
    raise ValueError(f"tries is {limits.tries}; at least one is needed")
