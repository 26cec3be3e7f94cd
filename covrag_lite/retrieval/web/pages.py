"""From a page to passages: its main text, freed of whatever could pass for something else than text, in paragraphs.

Passages have WebGLM's size: paragraphs of 50 to 1,200 characters, without reference marks. Where WebGLM cuts off a
longer paragraph, we go on in a further passage.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterator

from covrag_lite.records import Passage
from covrag_lite.retrieval.web.connection import Reply
from covrag_lite.retrieval.web.errors import PageError
from covrag_lite.retrieval.web.extraction import Extractor

SHORTEST, LONGEST = 50, 1200  # characters of a passage
MOST = 200  # passages of a page
TEXT = 400_000  # characters of a page's main text that are kept
TITLE = 150  # characters of a title
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
CHARSET = re.compile(rb"charset\s*=\s*[\"']?([\w-]+)", re.I)
CHARSETS = re.compile(
    r"utf-?8|utf-?16(le|be)?|(us-)?ascii|iso-?8859-\d+|windows-\d+|koi8-[ru]|gb\w+|big5|shift_jis|euc-\w+"
)
DROPPED = (
    "Cc",
    "Cf",
    "Co",
    "Cs",
    "Cn",
)  # control and format characters (bidi and zero-width ones too), and no characters


def read_page(reply: Reply, extractor: Extractor) -> tuple[str, str]:
    """A page's title and main text, a paragraph a line."""
    if reply.body.startswith(b"%PDF-") or b"\0" in reply.body[:1000] and "utf-16" not in charset(reply):
        raise PageError("it says that it is text, but it is not")
    html = reply.body.decode(charset(reply), "replace")
    found = ("", html) if reply.type == "text/plain" else extractor.extract(html)
    if found is None:
        raise PageError(f"its main text could not be extracted, at least not within {extractor.seconds:g} s")
    title, text = found
    lines = [clean(line) for line in text[:TEXT].splitlines()]
    text = "\n".join(line for line in lines if line)
    if not text:
        raise PageError("it has no main text")
    return clean(title)[:TITLE], text


def charset(reply: Reply) -> str:
    """The page's encoding by its header, else by its head; UTF-8 where none is named, or one the web does not use."""
    told = CHARSET.search(reply.headers.get("content-type", "").encode()) or CHARSET.search(reply.body[:1024])
    name = told[1].decode("ascii", "replace").lower() if told else ""
    if not CHARSETS.fullmatch(name):
        return "utf-8"
    try:
        "".encode(name)
    except LookupError:
        return "utf-8"
    return name


def clean(text: str) -> str:
    """The text on one line: no invisible character, nothing that looks like a part of a prompt, a tag or a marker."""
    text = " ".join(text.split())
    text = "".join(letter for letter in text if unicodedata.category(letter) not in DROPPED)
    text = text.translate(STRUCTURE)
    for pattern, replacement in MARKS:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())


def split(text: str) -> list[str]:
    """The paragraphs of a text as passages; what is too short to say something is left out."""
    pieces = [piece for line in text.splitlines() for piece in _pieces(line)]
    return [piece for piece in pieces if len(piece) >= SHORTEST][:MOST]


def _pieces(line: str) -> Iterator[str]:
    """A paragraph in pieces of at most LONGEST characters, cut after a sentence where there is one, else at a space."""
    while len(line) > LONGEST:
        ends = [match.end() for match in re.finditer(r"[.!?]\s", line[:LONGEST])]
        at = ends[-1] if ends else line.rfind(" ", SHORTEST, LONGEST)
        at = at if at > 0 else LONGEST
        yield line[:at].strip()
        line = line[at:].strip()
    yield line


def to_passages(url: str, title: str, text: str) -> list[Passage]:
    """A page's passages; the id is the hash of address and text, so that the same id is the same passage."""
    made = []
    for piece in split(text):
        key = hashlib.sha256(f"{url}\n{title}\n{piece}".encode()).hexdigest()[:16]
        made.append(Passage(f"web-{key}", title, piece))
    return made
