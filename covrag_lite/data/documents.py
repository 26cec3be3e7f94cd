"""Passages from a folder of documents: .txt, .md and .pdf files, in pieces of at most about a hundred words.

A piece's title is its file, and its page where it has pages; `semantic_text_splitter` ends pieces at paragraphs and
sentences where it can.
"""

import warnings
from pathlib import Path

from covrag_lite.records import Passage

ENDS = (".txt", ".md", ".pdf")
LONGEST = 700  # characters of a piece: some hundred words


def read_passages(folder: Path) -> list[Passage]:
    """Every document of the folder and its subfolders in pieces, but for a README that tells of the folder itself."""
    made = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in ENDS or path.stem.lower() == "readme" or not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        pieces = [(where, piece) for where, text in read_parts(path) for piece in split(text, suffix=path.suffix)]
        made += [Passage(f"{name}#{n}", f"{name}{where}", piece) for n, (where, piece) in enumerate(pieces, 1)]
    if not made:
        ends = ", ".join(ENDS)
        raise FileNotFoundError(f"{folder} has neither corpus.jsonl nor documents ({ends}) with text; name a corpus")
    return made


def split(text: str, longest: int = LONGEST, suffix: str = ".txt") -> list[str]:
    """A text in pieces of at most so many characters, on one line each."""
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

    splitter = (MarkdownSplitter if suffix.lower() == ".md" else TextSplitter)(longest)
    return [" ".join(piece.split()) for piece in splitter.chunks(text) if piece.strip()]


def read_parts(path: Path) -> list[tuple[str, str]]:
    """The texts of a document: the whole, or page by page with the page's number; PDF pages without any are told."""
    if path.suffix.lower() != ".pdf":
        try:
            return [("", path.read_bytes().decode("utf-8-sig"))]
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise ValueError(f"{path}, line {line}: not UTF-8; save the file in that encoding") from None
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        pages = [(f", page {number}", page.extract_text()) for number, page in enumerate(PdfReader(path).pages, 1)]
    except (PyPdfError, ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as PDF: {' '.join(str(error).split())}") from None
    empty = "".join(where for where, text in pages if not text.strip())
    if empty:
        warnings.warn(f"{path}{empty}: no text; scanned pages need text recognition (OCR) first", stacklevel=2)
    return pages
