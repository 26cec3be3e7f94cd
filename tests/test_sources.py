"""D: whatever the data's shape, nothing is learnt from that is validated or tested on."""

import json

import pytest

from covrag_lite.config import Config
from covrag_lite.data import load_questions
from covrag_lite.metrics import normalise
from covrag_lite.sources import load_sources
from covrag_lite.synthesis import answer_samples

CITED = {"question": "who?", "answer": "Edith wrote it [1].", "references": ["Edith wrote it.", "Nobody knows."]}
PLAIN = {"id": "0", "question": "who wrote it?", "answers": ["Edith"]}


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))


@pytest.fixture
def folder(tmp_path):
    """A folder with ten training questions and a corpus."""
    rows = [{**PLAIN, "id": str(i), "question": f"Who wrote book {i}?"} for i in range(10)]
    write(tmp_path / "train_plain.jsonl", rows)
    write(tmp_path / "corpus.jsonl", [{"id": str(i), "title": "", "text": f"Edith wrote it {i}."} for i in range(6)])
    return tmp_path


def learning_from(folder):
    return Config().change(data=str(folder), n_train_questions=0)


def test_every_shape_of_data_becomes_a_source(folder):
    write(folder / "train_cited.jsonl", [{**CITED, "question": f"who {i}?"} for i in range(5)])
    cited, plain = load_sources(learning_from(folder))
    assert [p.text for p in cited.search(["who 3?"])[0]] == CITED["references"]  # its own references
    samples = answer_samples(cited, cited.questions, Config())
    assert samples[0].target == ("Edith wrote it [1].",)
    assert len(plain.questions) == 9  # one is held out for validation
    samples = answer_samples(plain, plain.questions, Config())
    assert samples[0].target[0].startswith("Edith[")


def test_a_question_of_the_world_that_sounds_like_a_test_question_is_not_learnt_from():
    config = Config().change(n_train_questions=0, seed=7)
    asked = load_questions(config.change(split="test", n_questions=0))
    learnt = load_questions(config.change(split="train", n_questions=0))
    alike = {normalise(q.question) for q in asked} & {normalise(q.question) for q in learnt}
    assert alike == {"how long is the river bracken"}  # cut off, of two rivers of that name
    (source,) = load_sources(config)
    assert not {normalise(q.question) for q in source.questions} & alike
    assert len(source.questions) == len(learnt) - 1


def test_the_splits_are_told_in_a_sentence(folder, capsys):
    write(folder / "quiz.jsonl", [{**PLAIN, "question": "Who am I?"}])
    load_sources(learning_from(folder))
    told = "9 different questions to learn from, none of them among 1 for validation and 1 for test"
    assert told in capsys.readouterr().out
