"""Documents of a folder (.txt, .md, .html, .pdf), split into passages."""

import re
import warnings
from html.parser import HTMLParser
from pathlib import Path

from covrag_lite.data.rows import decode
from covrag_lite.records import Passage

ENDS = (".txt", ".md", ".html", ".htm", ".pdf")
PASSAGE_LENGTH = 700  # characters of a passage at most: about a hundred words
# The splitter's time grows with the square of a line's length: a longer line is cut first.
LINE_LENGTH = 50_000

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
    passages = []
    for path in sorted(folder.rglob("*")):
        is_readme = path.stem.lower() == "readme"
        if path.suffix.lower() in ENDS and not is_readme and path.is_file():
            passages += split_document(path, path.relative_to(folder).as_posix())
    return passages


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

    pages = []
    try:
        for number, page in enumerate(PdfReader(path).pages, 1):
            pages.append((f", page {number}", page.extract_text()))
    except (PyPdfError, ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as PDF: {' '.join(str(error).split())}") from None
    empty = "".join(page for page, text in pages if not text.strip())
    if empty:
        cure = "scanned pages need text recognition (OCR) first"
        warnings.warn(f"{path}{empty}: no text; {cure}", stacklevel=2)
    return pages


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
