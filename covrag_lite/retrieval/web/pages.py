"""From a page's bytes to its main text: decoded, extracted, and made plain.

Text is plain when nothing in it can pass for a part of a prompt, a tag or a special token.
"""

import json
import re
import subprocess
import sys
import unicodedata
from collections.abc import Mapping, Sequence

from httpx2 import Response

from covrag_lite.retrieval.web.fetch import PageError

SECONDS = 20  # of CPU time for extracting one page's text; an ordinary one takes a tenth of a second
# A page can be built to keep a parser busy for hours or to break it, so trafilatura runs in a process with little
# memory, which the system kills when a page takes too long. It reads a page a line, its type and its bytes, and decodes
# it by its header's character set, else by its head's, else as UTF-8. -I keeps our folders off its path.
EXTRACTOR = r"""
import json, re, resource, signal, sys
import trafilatura
resource.setrlimit(resource.RLIMIT_AS, (2 * 1024**3, 2 * 1024**3))
print("ready", flush=True)
for line in sys.stdin:
    signal.setitimer(signal.ITIMER_PROF, float(sys.argv[1]))
    kind, body = json.loads(line)
    told = re.search("charset\\s*=\\s*[\"']?([\\w-]+)", kind + body[:1024], re.I)
    try:
        text = body.encode("latin-1").decode(told[1] if told else "utf-8", "replace")
    except LookupError:
        text = body.encode("latin-1").decode("utf-8", "replace")
    found = ["", text]
    if not kind.lower().startswith("text/plain"):
        page = trafilatura.bare_extraction(text, include_comments=False, with_metadata=True)
        found = [page.title or "", page.text or ""] if page else ["", ""]
    print(json.dumps(found), flush=True)
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


def read_pages(titles: Mapping[str, str], replies: Sequence[Response | PageError]) -> list[dict[str, str]]:
    """Read each page's url, title (or the provider's) and main text, a paragraph a line, or why it has `failed`."""
    pages, found = [], iter(extract([reply for reply in replies if isinstance(reply, Response)]))
    for (url, known_as), reply in zip(titles.items(), replies):
        page = reply if isinstance(reply, PageError) else next(found)
        title, text, failed = "", "", str(page)
        if not isinstance(page, PageError):
            lines = [clean(line) for line in page[1][:LONGEST_TEXT].splitlines()]
            title, text = clean(page[0]) or clean(known_as), "\n".join(line for line in lines if line)
            failed = "" if text else "it has no main text"
        pages.append({"url": url, "title": title[:LONGEST_TITLE], "text": text, "failed": failed})
    return pages


def extract(replies: Sequence[Response]) -> list[tuple[str, str] | PageError]:
    """Extract the title and main text of each page; one that takes too long, or breaks the parser, is left."""
    pages = [(reply.headers.get("content-type", ""), reply.content.decode("latin-1")) for reply in replies]
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


def clean(text: str) -> str:
    """Put a text on one line, without invisible characters and without marks of a prompt, a tag or a token."""
    text = " ".join(text.split())
    text = "".join(letter for letter in text if unicodedata.category(letter) not in INVISIBLE)
    text = text.translate(STRUCTURE)
    for pattern, replacement in MARKS:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())
