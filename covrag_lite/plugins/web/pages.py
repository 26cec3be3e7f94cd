"""From a page's bytes to its main text: decoded, extracted and cleaned.

In a cleaned text, nothing can be mistaken for a part of a prompt, a tag or a special token.
"""

import json
import re
import subprocess
import sys
import unicodedata
from collections.abc import Mapping, Sequence

from httpx2 import Response

from covrag_lite.plugins.web.fetch import PageError

SECONDS = 20  # of CPU time for extracting one page's text; usually it takes a tenth of a second
# A page can be built to keep a parser busy for hours, or to crash it. So trafilatura runs in a
# process with little memory, which is killed if a page takes too long. It reads one page per line,
# its type and its bytes, and decodes it by the character set in the HTTP header, or else in the
# HTML head, or else as UTF-8. -I keeps our folders off its path.
EXTRACTOR = r"""
import json, re, resource, signal, sys
import trafilatura
resource.setrlimit(resource.RLIMIT_AS, (2 * 1024**3, 2 * 1024**3))
print("ready", flush=True)
for line in sys.stdin:
    signal.setitimer(signal.ITIMER_PROF, float(sys.argv[1]))
    kind, body = json.loads(line)
    declared = re.search("charset\\s*=\\s*[\"']?([\\w-]+)", kind + body[:1024], re.I)
    try:
        text = body.encode("latin-1").decode(declared[1] if declared else "utf-8", "replace")
    except LookupError:
        text = body.encode("latin-1").decode("utf-8", "replace")
    title_and_text = ["", text]
    if not kind.lower().startswith("text/plain"):
        page = trafilatura.bare_extraction(text, include_comments=False, with_metadata=True)
        title_and_text = [page.title or "", page.text or ""] if page else ["", ""]
    print(json.dumps(title_and_text), flush=True)
"""
LONGEST_TEXT = 400_000  # characters
LONGEST_TITLE = 150
# Characters that structure a prompt, its JSON and a tokenizer's special tokens.
STRUCTURE = str.maketrans({"\\": "/", '"': "'", "{": "(", "}": ")", "`": "'"})
# Marks are replaced, never only removed, so that their surroundings cannot form a new mark.
MARKS = (
    (re.compile(r"\[\d+\]"), " "),  # reference marks, which belong to the prompt
    (re.compile(r"<(?=\S)"), "‹"),  # tags and special tokens
    (re.compile(r"#(?=[\w\s-]{0,40}task)", re.I), "*"),  # task markers
    (re.compile(r"\[(?=/?INST)", re.I), "("),
    (
        re.compile(r"\b(reference|question|answer|verdict|rewritten|sentence|terms)\s*:", re.I),
        r"\1 -",
    ),
)
# Control, format (including bidi and zero-width), private use, surrogate, unassigned.
INVISIBLE = ("Cc", "Cf", "Co", "Cs", "Cn")


def read_pages(
    titles: Mapping[str, str], replies: Sequence[Response | PageError]
) -> list[dict[str, str]]:
    """Read each page: url, title (or the provider's), main text, and why it `failed`, if it did.

    The text has one paragraph per line.
    """
    extracted = iter(extract([reply for reply in replies if isinstance(reply, Response)]))
    pages = []
    for (url, provider_title), reply in zip(titles.items(), replies):
        page = reply if isinstance(reply, PageError) else next(extracted)
        if isinstance(page, PageError):
            pages.append({"url": url, "title": "", "text": "", "failed": str(page)})
            continue
        title, text = clean_page(*page)
        title = title or clean(provider_title)
        failed = "" if text else "it has no main text"
        pages.append({"url": url, "title": title[:LONGEST_TITLE], "text": text, "failed": failed})
    return pages


def clean_page(title: str, text: str) -> tuple[str, str]:
    """Clean the title and every line of the text; empty lines are dropped."""
    lines = [clean(line) for line in text[:LONGEST_TEXT].splitlines()]
    return clean(title), "\n".join(line for line in lines if line)


def extract(replies: Sequence[Response]) -> list[tuple[str, str] | PageError]:
    """Extract each page's title and main text; a PageError if it is too slow or crashes."""
    pages = []
    for reply in replies:
        content_type = reply.headers.get("content-type", "")
        pages.append(json.dumps((content_type, reply.content.decode("latin-1"))))
    extracted: list[tuple[str, str] | PageError] = []
    while len(extracted) < len(pages):
        extracted += extract_some(pages[len(extracted) :])
        if len(extracted) < len(pages):  # the process ended at this page
            cause = "its main text could not be extracted"
            extracted.append(PageError(f"{cause}, at least not within {SECONDS:g} s"))
    return extracted


def extract_some(pages: Sequence[str]) -> list[tuple[str, str]]:
    """Extract pages in a process of their own, as far as it comes."""
    process = subprocess.run(
        [sys.executable, "-I", "-c", EXTRACTOR, str(SECONDS)],
        input="".join(f"{page}\n" for page in pages),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="ascii",
    )
    ready, *results = process.stdout.split("\n")[:-1] or [""]
    if not ready:
        cause = "the process that reads pages does not start"
        raise RuntimeError(f"{cause}; install trafilatura with `make setup-all`")
    return [tuple(json.loads(result)) for result in results]


def clean(text: str) -> str:
    """Put a text on one line, without invisible characters and marks of prompts, tags or tokens."""
    text = " ".join(text.split())
    text = "".join(letter for letter in text if unicodedata.category(letter) not in INVISIBLE)
    text = text.translate(STRUCTURE)
    for pattern, replacement in MARKS:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())
