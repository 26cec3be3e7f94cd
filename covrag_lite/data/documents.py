"""Documents of a folder (.txt, .md, .html, .pdf), split into passages.

The passages of a folder that takes long to read are kept in the cache. They are read from there
until a document is added, removed or changed.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import logging
import re
import time
import warnings
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from pathlib import Path

from covrag_lite.data.rows import decode
from covrag_lite.engine import weights
from covrag_lite.engine.progress import track
from covrag_lite.files import write_text
from covrag_lite.records import Passage

ENDS = (".txt", ".md", ".html", ".htm", ".pdf")
PASSAGE_LENGTH = 700  # characters of a passage at most: about a hundred words
# The splitter's time grows with the square of a line's length: a longer line is cut first.
LINE_LENGTH = 50_000
WORTH_KEEPING = 2.0  # seconds; the passages of a folder that takes longer to read are kept
LONG = 100  # documents, or pages of a PDF, from which there is a progress bar
READER_PACKAGES = ("semantic-text-splitter", "pypdf")  # packages that passages depend on

# Of an HTML page: elements without text to read, and those that begin a new paragraph.
UNREAD = {"script", "style", "template", "noscript", "svg"}
PARAGRAPHS = {
    *("address", "article", "aside", "blockquote", "body", "caption", "dd", "div", "dl", "dt"),
    *("figcaption", "figure", "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr"),
    *("li", "main", "nav", "ol", "p", "pre", "section", "table", "title", "tr", "ul"),
}
CELLS = {"td", "th"}
BREAKS = re.compile(r"[ \n]*\n[ \n]*")


def read_documents(folder: Path) -> list[Passage]:
    """Split all documents in the folder and its subfolders into passages, except README files."""
    files = list_documents(folder)
    state = hash_files(files)
    path = str(folder.resolve())
    place = weights.CACHE / "documents" / f"{hashlib.sha256(path.encode()).hexdigest()[:16]}.jsonl"
    kept = load_kept(place, state)
    if kept is not None:
        return kept
    start = time.perf_counter()
    passages: list[Passage] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for file in show_progress(files, "read", "document"):
            passages += split_document(file, file.relative_to(folder).as_posix())
    messages = [str(warning.message) for warning in caught]
    repeat_warnings(messages)
    if time.perf_counter() - start > WORTH_KEEPING:
        with contextlib.suppress(OSError):  # such as a full disk: the next start is slower, no more
            keep(place, state, messages, passages)
    return passages


def list_documents(folder: Path) -> list[Path]:
    """Return the paths of all documents in the folder and its subfolders."""
    files = []
    for path in sorted(folder.rglob("*")):
        is_readme = path.stem.lower() == "readme"
        if path.suffix.lower() in ENDS and not is_readme and path.is_file():
            files.append(path)
    return files


def hash_files(files: Sequence[Path]) -> str:
    """Return a hash that changes with any document, and with the code that reads them."""
    content = hashlib.sha256(Path(__file__).read_bytes())
    for package in READER_PACKAGES:
        content.update(importlib.metadata.version(package).encode())
    for file in files:
        status = file.stat()
        content.update(f"\0{file}\0{status.st_size}\0{status.st_mtime_ns}".encode())
    return content.hexdigest()


def load_kept(place: Path, state: str) -> list[Passage] | None:
    """Return the passages that were kept, with their warnings; None if the documents changed."""
    if not place.exists():
        return None
    with open(place, encoding="utf-8") as file:
        first = json.loads(file.readline())
        if first["state"] != state:
            return None
        repeat_warnings(first["warnings"])
        return [Passage(*json.loads(line)) for line in file]


def keep(place: Path, state: str, messages: Sequence[str], passages: Sequence[Passage]) -> None:
    """Write the passages of a folder to the cache, in place of its former ones."""
    rows = [json.dumps({"state": state, "warnings": messages})]
    rows += [json.dumps([passage.id, passage.title, passage.text]) for passage in passages]
    place.parent.mkdir(parents=True, exist_ok=True)
    write_text(place, "\n".join(rows) + "\n")


def repeat_warnings(messages: Sequence[str]) -> None:
    """Issue warnings on documents, such as on pages without text."""
    for message in messages:
        warnings.warn(message, stacklevel=2)


def split_document(path: Path, name: str) -> list[Passage]:
    """Split one document into passages; the title is its name, with the page of a PDF."""
    passages = []
    for page, text in read_pages(path):
        for piece in split_text(text, suffix=path.suffix):
            passages.append(Passage(f"{name}#{len(passages) + 1}", f"{name}{page}", piece))
    return passages


def split_text(text: str, longest: int = PASSAGE_LENGTH, suffix: str = ".txt") -> list[str]:
    """Split a text into pieces of at most `longest` characters, each on one line."""
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

    splitter = MarkdownSplitter if suffix.lower() == ".md" else TextSplitter
    chunks = splitter(longest).chunks(cut_lines(text))
    return [" ".join(chunk.split()) for chunk in chunks if chunk.strip()]


def cut_lines(text: str) -> str:
    """Cut very long lines into paragraphs, at spaces if possible; other lines stay as they are."""
    if len(text) <= LINE_LENGTH:
        return text
    return "".join(cut_line(line) for line in text.splitlines(keepends=True))


def cut_line(line: str) -> str:
    """Cut a very long line into paragraphs of at most LINE_LENGTH characters."""
    parts = []
    start = 0
    while len(line) - start > LINE_LENGTH:
        space = line.rfind(" ", start, start + LINE_LENGTH)
        end = space + 1 if space > start else start + LINE_LENGTH
        parts.append(line[start:end])
        start = end
    parts.append(line[start:])
    return "\n\n".join(parts)


def read_pages(path: Path) -> list[tuple[str, str]]:
    """Return the pages of a document as the ends of their titles and their texts."""
    suffix = path.suffix.lower()
    if suffix == ".pdf":
        return read_pdf(path)
    text = decode(path)
    if suffix in (".html", ".htm"):
        text = html_to_text(text)
    return [("", text)]


def read_pdf(path: Path) -> list[tuple[str, str]]:
    """Read a PDF page by page; warn about pages without text."""
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it writes a line per repaired mistake
    pages = []
    try:
        every_page = show_progress(PdfReader(path).pages, f"read {path.name}", "page")
        for number, page in enumerate(every_page, 1):
            pages.append((f", page {number}", page.extract_text()))
    except (PyPdfError, ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as PDF: {' '.join(str(error).split())}") from None
    empty = "".join(page for page, text in pages if not text.strip())
    if empty:
        cure = "scanned pages need text recognition (OCR) first"
        warnings.warn(f"{path}{empty}: no text; {cure}", stacklevel=2)
    return pages


def show_progress(items: Sequence, what: str, unit: str) -> Iterable:
    """Show the progress through many documents, or through the pages of a long one."""
    return items if len(items) < LONG else track(items, what, unit, total=len(items))


class PageText(HTMLParser):
    """The text of an HTML page, in paragraphs."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.unread: list[str] = []  # the open elements that are not read

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a new paragraph, line or cell."""
        if tag in UNREAD:
            self.unread.append(tag)
        self.separate(tag)

    def handle_endtag(self, tag: str) -> None:
        """End a paragraph, or an element that is not read."""
        if tag in self.unread:
            del self.unread[self.unread.index(tag) :]
        self.separate(tag)

    def handle_data(self, data: str) -> None:
        """Add text; in HTML, a line break within a text is only a space."""
        if not self.unread:
            self.parts.append(re.sub(r"\s+", " ", data))

    def separate(self, tag: str) -> None:
        """Add the white space that an element stands for."""
        if tag in PARAGRAPHS:
            self.parts.append("\n\n")
        elif tag == "br":
            self.parts.append("\n")
        elif tag in CELLS:
            self.parts.append(" ")


def html_to_text(page: str) -> str:
    """Return the text of an HTML page, without tags, scripts and styles."""
    parser = PageText()
    parser.feed(page)
    parser.close()
    text = re.sub(r" +", " ", "".join(parser.parts))
    # Several breaks are one paragraph.
    return BREAKS.sub(lambda match: "\n\n" if match[0].count("\n") > 1 else "\n", text).strip()
