import gzip
import json

import pytest

from covrag_lite.config import Config, Data
from covrag_lite.data import digest, load_passages, load_questions


def folder(tmp_path, rows, corpus=None):
    (tmp_path / "nq.jsonl").write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    if corpus:
        with gzip.open(tmp_path / "corpus.jsonl.gz", "wt") as file:
            file.write("\n".join(map(json.dumps, corpus)))
    return Config(data=Data(data=str(tmp_path), datasets=("nq",), n_questions=0))


ROW = {"id": "a", "question": "who?", "answers": ["Edith"], "gold_passage": "p1"}


def test_a_folder_gives_questions_and_passages(tmp_path):
    config = folder(tmp_path, [ROW, {**ROW, "id": "b"}], [{"id": "p1", "title": "T", "text": "Edith."}])
    questions = load_questions(config)
    assert (
        [q.id for q in questions] == ["a", "b"]
        and questions[0].gold_passages == ("p1",)
        and questions[0].answers == ("Edith",)
    )
    assert load_passages(config)[0].text == "Edith."
    assert digest(questions) == digest(load_questions(config)) != digest(questions[:1])


@pytest.mark.parametrize(
    "rows, sentence",
    [
        ([ROW, '{"id": "b", '], "nq.jsonl, line 2: not JSON"),
        ([ROW, {"id": "b", "question": "who?"}], "nq.jsonl, line 2: has no answers"),
        ([ROW, "[1]"], "line 2: has no id and no question"),
        ([{**ROW, "answers": "Edith"}], "line 1: answers must be a list of strings"),
        ([ROW, ROW], "line 2: the id 'a' stands already on line 1"),
        ([], "nq.jsonl is empty"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path, rows, sentence):
    with pytest.raises(ValueError, match=sentence.replace("[", r"\[")):
        load_questions(folder(tmp_path, rows))


def test_missing_things_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="neither 'world' nor a folder"):
        load_questions(Config(data=Data(data=str(tmp_path / "nowhere"))))
    config = folder(tmp_path, [ROW])
    with pytest.raises(FileNotFoundError, match="no corpus.jsonl"):
        load_passages(config)
    with pytest.raises(FileNotFoundError, match="'squad' is not known.*sets there: nq"):
        load_questions(Config(data=Data(data=str(tmp_path), datasets=("squad",))))
    for wrong in (Data(n_questions=-1), Data(datasets=("nq", "nq"))):
        with pytest.raises(ValueError, match="must not be negative .* no set twice"):
            load_questions(Config(data=wrong))
    with pytest.raises(ValueError, match="squad"):
        load_questions(Config(data=Data(datasets=("squad",))))


def test_gold_that_normalises_to_nothing_is_kept_with_a_warning(tmp_path):
    with pytest.warns(UserWarning, match="line 1: the answers .* normalise to nothing"):
        assert len(load_questions(folder(tmp_path, [{**ROW, "answers": ["---"]}]))) == 1
