"""A user's own data: documents in a folder, questions in a table."""

import time

import pytest
from conftest import write_jsonl
from matplotlib import rc_context
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from covrag_lite.config import Config
from covrag_lite.data import documents, load_passages, load_questions
from covrag_lite.data.documents import (
    LINE_LENGTH,
    PASSAGE_LENGTH,
    cut_lines,
    html_to_text,
    split_text,
)
from covrag_lite.data.missing import DataMissing
from covrag_lite.engine import weights
from covrag_lite.retrieval import load_retriever

QUESTIONS = """question,answer
When was the harbour dug?,1743
"Who, in Velm, keeps it?",Tova Rask | Rask
"""


def write_pdf(path, pages):
    """A PDF file with one line per page."""
    with rc_context({"pdf.use14corefonts": True}), PdfPages(path) as file:
        for text in pages:
            figure = Figure()
            figure.text(0.1, 0.5, text)
            file.savefig(figure)


@pytest.fixture
def folder(tmp_path):
    pages = ["The harbour of Velm was dug in 1743.", "Its keeper is Tova Rask."]
    write_pdf(tmp_path / "harbour.pdf", pages)
    (tmp_path / "notes").mkdir()
    kites = "# Kites\n\nThe kite fair is in May.\n\n# Otters\n\nOtters sleep.\n"
    (tmp_path / "notes" / "kites.md").write_text(kites)
    paragraphs = [f"Paragraph {i}. " + "It rained in Velm. " * 20 for i in range(4)]
    (tmp_path / "long.txt").write_text("\n\n".join(paragraphs))
    (tmp_path / "README.md").write_text("what this folder is")
    (tmp_path / "questions.csv").write_text(QUESTIONS)
    return tmp_path


def own(folder):
    return Config().change(data=str(folder), k=2, n_questions=0)


# Documents.


def test_the_title_of_a_passage_names_its_file_and_page(folder):
    titles = {passage.title for passage in load_passages(own(folder))}
    assert titles == {"harbour.pdf, page 1", "harbour.pdf, page 2", "notes/kites.md", "long.txt"}


def test_passages_have_different_ids(folder):
    passages = load_passages(own(folder))
    assert len({passage.id for passage in passages}) == len(passages)


def test_passages_end_with_paragraphs(folder):
    texts = [p.text for p in load_passages(own(folder)) if p.title == "long.txt"]
    assert [text[:12] for text in texts] == [f"Paragraph {i}." for i in range(4)]


def test_passages_are_at_most_a_hundred_words_long(folder):
    assert max(len(p.text) for p in load_passages(own(folder))) <= PASSAGE_LENGTH


def test_a_page_of_a_pdf_can_be_retrieved(folder):
    search = load_retriever(own(folder).retrieval, load_passages(own(folder)))
    assert search(["keeper of the harbour"])[0][0].title == "harbour.pdf, page 2"


def test_a_pdf_page_without_text_is_named(folder):
    write_pdf(folder / "scan.pdf", ["One page.", ""])
    with pytest.warns(UserWarning, match="scan.pdf, page 2: no text; scanned pages need"):
        load_passages(own(folder))


PAGE = """<html><head><title>Velm</title><style>p {color: red}</style>
<script>if (1 < 2) write("no")</script></head>
<body><h1>The  harbour</h1><p>It was dug in
<b>1743</b> &amp; is deep.<br>Still<ul><li>boats<li>cranes</ul></body></html>"""


def test_an_html_page_becomes_paragraphs_without_tags_and_scripts():
    paragraphs = ["Velm", "The harbour", "It was dug in 1743 & is deep.\nStill", "boats", "cranes"]
    assert html_to_text(PAGE).split("\n\n") == paragraphs


@pytest.mark.parametrize(
    "tag", "title h1 h2 li p div section article blockquote pre tr dt dd figcaption".split()
)
def test_an_element_of_its_own_line_does_not_join_its_neighbours_words(tag):
    page = f"before<{tag}>inside</{tag}>after"
    assert html_to_text(page).split() == ["before", "inside", "after"]


def test_text_after_an_unclosed_drawing_is_not_read_but_text_before_it_is():
    assert html_to_text("<p>Velm<svg><text>a line") == "Velm"


@pytest.mark.parametrize("tag", ["caption", "dd", "dt", "figcaption", "h2", "li", "p", "tr", "div"])
def test_an_element_with_text_of_its_own_is_a_paragraph(tag):
    assert html_to_text(f"one<{tag}>two</{tag}>three").split("\n\n") == ["one", "two", "three"]


@pytest.mark.parametrize("name", ["page.html", "page.htm", "PAGE.HTML"])
def test_html_files_are_documents(tmp_path, name):
    (tmp_path / name).write_text(PAGE)
    (passage,) = load_passages(own(tmp_path))
    assert passage.title == name
    assert "It was dug in 1743 & is deep." in passage.text


def test_a_text_of_five_megabytes_in_one_line_is_split_in_seconds():
    text = "It rained in Velm. " * 260_000
    start = time.process_time()
    pieces = split_text(text)
    assert time.process_time() - start < 60  # 4 s; without cutting the line first, minutes
    assert max(len(piece) for piece in pieces) <= PASSAGE_LENGTH


def test_cutting_a_long_line_loses_no_word():
    line = "It rained in Velm. " * 6000
    assert cut_lines(line).split() == line.split()


def test_a_long_line_without_spaces_is_cut():
    parts = cut_lines("x" * 2 * LINE_LENGTH + "y").split("\n\n")
    assert [len(part) for part in parts] == [LINE_LENGTH, LINE_LENGTH, 1]


@pytest.mark.parametrize(
    "text",
    [
        "x " * (LINE_LENGTH // 2),
        "It rained in Velm. " * 2000 + "\n" + "It rained. " * 3000,
        "a\r\nb\x0cc\u2028d\n" * 10_000,
    ],
)
def test_a_text_without_very_long_lines_is_not_changed_before_it_is_split(text):
    assert cut_lines(text) == text


# Questions.


def test_questions_come_from_a_table(folder):
    first, second = load_questions(own(folder))
    assert first.question == "When was the harbour dug?"
    assert second.question == "Who, in Velm, keeps it?"
    assert first.dataset == "questions"
    assert first.id != second.id


def test_several_answers_are_separated_by_bars(folder):
    first, second = load_questions(own(folder))
    assert first.answers == ("1743",)
    assert second.answers == ("Tova Rask", "Rask")


LATIN = "question,answer\nWho?,Ada\nWhere?,Orléans\n".encode("latin-1")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"question;answer\na;b\n", "questions.csv, line 1: no columns answer and question"),
        (b"question,answer\nWho?,Ada\nWhere?,\n", "questions.csv, line 3: missing answers"),
        (b"question,answer\n", "questions.csv is empty"),
        (LATIN, "questions.csv, line 3: not UTF-8; save the file in that encoding"),
        (b"question,answer\nWho?,Ada\n" + b"x" * 200_000, "questions.csv, line 3: field larger"),
    ],
)
def test_a_table_that_cannot_be_read_is_named_with_its_line(folder, data, sentence):
    (folder / "questions.csv").write_bytes(data)
    with pytest.raises(ValueError, match=sentence):
        load_questions(own(folder))


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("cut.pdf", b"%PDF-1.4\nnothing", "cut.pdf cannot be read as PDF"),
        ("latin.txt", "one\ntwo\nné".encode("latin-1"), "latin.txt, line 3: not UTF-8"),
        ("latin.html", "<p>\nné".encode("latin-1"), "latin.html, line 2: not UTF-8"),
        ("corpus.jsonl", '{"id": "é"}'.encode("latin-1"), "corpus.jsonl, line 1: not UTF-8"),
        ("corpus.jsonl.gz", b"\x1f\x8b\x08\x00cut", "corpus.jsonl.gz is damaged"),
    ],
)
def test_a_document_that_cannot_be_read_is_named(folder, name, data, sentence):
    (folder / name).write_bytes(data)
    with pytest.raises(ValueError, match=sentence):
        load_passages(own(folder))


def test_a_damaged_pdf_is_described_by_one_sentence(folder, caplog):
    (folder / "cut.pdf").write_bytes(b"not a pdf")
    with pytest.raises(ValueError, match="cannot be read as PDF"):
        load_passages(own(folder))
    assert caplog.get_records("call") == []


def test_two_passages_with_the_same_id_are_named_with_both_lines(tmp_path):
    rows = [{"id": identity, "text": "Velm."} for identity in ("a", "b", "a")]
    write_jsonl(tmp_path / "corpus.jsonl", rows)
    sentence = "corpus.jsonl, line 3: the id 'a' is already used in line 1; give each passage"
    with pytest.raises(ValueError, match=sentence):
        load_passages(own(tmp_path))


# What a folder lacks.


def test_an_empty_folder_has_no_questions(tmp_path):
    sentence = "has no test questions; add questions.csv with the columns question and answer"
    with pytest.raises(DataMissing, match=sentence):
        load_questions(own(tmp_path))


def test_a_folder_without_questions_can_still_be_searched(folder):
    (folder / "questions.csv").unlink()
    with pytest.raises(DataMissing, match="has no test questions"):
        load_questions(own(folder))
    assert load_passages(own(folder))


def test_an_empty_folder_has_no_passages(tmp_path):
    with pytest.raises(DataMissing, match="neither corpus.jsonl nor documents"):
        load_passages(own(tmp_path))


def test_a_folder_with_fewer_than_k_passages_is_refused(tmp_path):
    (tmp_path / "one.txt").write_text("It rained in Velm.")
    passages = load_passages(own(tmp_path))
    with pytest.raises(ValueError, match="has 1 passages, fewer than k = 2; lower k"):
        load_retriever(own(tmp_path).retrieval, passages)


# Passages that are kept for the next start.


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder whose passages are kept, however fast they were read."""
    monkeypatch.setattr(weights, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(documents, "WORTH_KEEPING", -1.0)
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "otters.txt").write_text("Otters sleep.")
    documents.read_documents(folder)
    return folder


def test_unchanged_documents_are_read_once(kept, monkeypatch):
    monkeypatch.setattr(documents, "split_document", None)
    assert [p.text for p in documents.read_documents(kept)] == ["Otters sleep."]


def test_a_changed_document_is_read_again(kept):
    (kept / "otters.txt").write_text("Otters swim, and sleep.")
    assert [p.text for p in documents.read_documents(kept)] == ["Otters swim, and sleep."]


def test_a_removed_document_is_not_found_again(kept):
    (kept / "kites.txt").write_text("Kites fly.")
    documents.read_documents(kept)
    (kept / "kites.txt").unlink()
    assert [p.title for p in documents.read_documents(kept)] == ["otters.txt"]


def test_the_second_start_warns_of_pages_without_text_too(kept):
    write_pdf(kept / "scan.pdf", [""])
    for _ in range(2):
        with pytest.warns(UserWarning, match="page 1: no text"):
            documents.read_documents(kept)


def test_a_folder_is_read_although_nothing_can_be_kept(kept, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(weights, "CACHE", tmp_path / "file")
    assert len(documents.read_documents(kept)) == 1
