"""A user's own data: documents in a folder, questions in a table."""

import pytest
from matplotlib import rc_context
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from covrag_lite.config import Config
from covrag_lite.data import describe, load_passages, load_questions
from covrag_lite.data.folder import LONGEST
from covrag_lite.retrieval import load_retriever


def write_pdf(path, pages):
    """A PDF file with one line per page."""
    with rc_context({"pdf.use14corefonts": True}), PdfPages(path) as file:
        for text in pages:
            figure = Figure()
            figure.text(0.1, 0.5, text)
            file.savefig(figure)


@pytest.fixture
def folder(tmp_path):
    write_pdf(tmp_path / "harbour.pdf", ["The harbour of Velm was dug in 1743.", "Its keeper is Tova Rask."])
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "kites.md").write_text("# Kites\n\nThe kite fair is in May.\n\n# Otters\n\nOtters sleep.\n")
    (tmp_path / "long.txt").write_text("\n\n".join(f"Paragraph {i}. " + "It rained in Velm. " * 20 for i in range(4)))
    (tmp_path / "README.md").write_text("what this folder is")
    (tmp_path / "questions.csv").write_text(
        'question,answer\nWhen was the harbour dug?,1743\n"Who, in Velm, keeps it?",Tova Rask | Rask\n'
    )
    return tmp_path


def own(folder):
    return Config().change(data=str(folder), k=2, n_questions=0)


def test_documents_become_passages_that_name_their_file_and_page(folder):
    made = load_passages(own(folder))
    titles = [one.title for one in made]
    assert {"harbour.pdf, page 1", "harbour.pdf, page 2", "notes/kites.md"} <= set(titles)
    assert not any("README" in title for title in titles) and len({one.id for one in made}) == len(made)
    long = [one for one in made if one.title == "long.txt"]
    assert len(long) == 4 and all(one.text.startswith("Paragraph") for one in long)  # pieces end with paragraphs
    assert all(len(one.text) <= LONGEST for one in made)
    assert load_retriever(own(folder).retrieval, made)(["keeper of the harbour"])[0][0].title == "harbour.pdf, page 2"


def test_questions_come_from_a_table_with_several_answers_between_bars(folder):
    first, second = load_questions(own(folder))
    assert (first.question, first.answers, first.dataset) == ("When was the harbour dug?", ("1743",), "questions")
    assert (second.question, second.answers) == ("Who, in Velm, keeps it?", ("Tova Rask", "Rask"))
    assert first.id != second.id and describe(own(folder)).loc["questions", "questions"] == 2


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("questions.csv", b"question;answer\na;b\n", "questions.csv, line 1: no column answer and question"),
        ("questions.csv", b"question,answer\nWho?,Ada\nWhere?,\n", "questions.csv, line 3: missing answers"),
        ("questions.csv", b"question,answer\n", "questions.csv is empty"),
        ("cut.pdf", b"%PDF-1.4\nnothing", "cut.pdf cannot be read as PDF"),
        ("latin.txt", "one\ntwo\nné".encode("latin-1"), "latin.txt, line 3: not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(folder, name, data, told):
    (folder / name).write_bytes(data)
    with pytest.raises(ValueError, match=told):
        load_questions(own(folder)), load_passages(own(folder))


def test_a_page_without_text_is_told(folder):
    write_pdf(folder / "scan.pdf", ["One page.", ""])
    with pytest.warns(UserWarning, match="scan.pdf, page 2: no text; scanned pages need"):
        load_passages(own(folder))
