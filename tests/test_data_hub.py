"""Public sets by name, read from local files with the same call that reads the hub."""

import gzip
from dataclasses import replace
from pathlib import Path

import datasets
import pytest
from conftest import write_jsonl

from covrag_lite import data
from covrag_lite.config import Config, from_notebook
from covrag_lite.data import hub, paper_questions
from covrag_lite.data.missing import DataMissing
from covrag_lite.metrics import normalise
from covrag_lite.records import Passage, digest
from covrag_lite.training.sources import load_sources


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def write_parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_list(rows).to_parquet(path)


def write_set(folder, splits):
    """Write a set's splits as Parquet files, named as on the hub, with the card that lists them."""
    name = "default" if folder.name == "data" else folder.name
    card = f"---\nconfigs:\n- config_name: {name}\n  data_files:\n"
    for split, rows in splits.items():
        write_parquet(folder / f"{split}-00000-of-00001.parquet", rows)
        card += f"  - split: {split}\n    path: {folder.name}/{split}-*\n"
    (folder.parent / "README.md").write_text(f"{card}---\n")


def ask(name, column="answers", n=12):
    """Distinct questions of one kind, with answers in the format of the set on the hub."""
    shaped = {"answerText": str, "value": lambda x: {"value": x, "aliases": [x, x.upper()]}}
    shape, answers = (
        shaped.get(column, lambda x: [x, x.upper()]),
        "answer" if column == "value" else column,
    )
    names = [f"{name} {i}" for i in range(n)]
    ids = [{"id": one, "question_id": one, "question": f"Where is {one}?"} for one in names]
    return [row | {answers: shape("south" if i % 2 else "north")} for i, row in enumerate(ids)]


def write_sets(root):
    """The paper's four sets, with the files and columns that they have on the hub."""
    write_set(root / "nq/nq_open", {split: ask(f"{split} lake", "answer") for split in data.SPLITS})
    quiz = {split: ask(f"{split} quiz", "value") for split in data.SPLITS}
    write_set(
        root / "triviaqa/rc.nocontext", {split: rows + rows[:2] for split, rows in quiz.items()}
    )
    write_set(root / "webq/data", {split: ask(f"{split} town") for split in ("train", "test")})
    for split in data.SPLITS:
        write_parquet(root / f"mintaka/en/{split}/0000.parquet", ask(f"{split} hill", "answerText"))


@pytest.fixture
def public(tmp_path, monkeypatch):
    """The five known sets as local folders."""
    root = tmp_path / "hub"
    write_sets(root)
    cited = {"answer": "There.[1]", "references": ["It is there.", "It is old."]}
    for split in data.SPLITS:
        write_jsonl(
            root / f"webglm/data/{split}.jsonl", [row | cited for row in ask(f"{split} web", n=4)]
        )
    entries = {
        name: replace(entry, id=str(root / name)) for name, entry in hub.load_entries().items()
    }
    monkeypatch.setattr(hub, "load_entries", lambda: entries)
    write_jsonl(
        tmp_path / "corpus.jsonl",
        [{"id": f"p{i}", "title": "T", "text": f"text {i}"} for i in range(6)],
    )
    config = Config().change(data="hub", n_questions=0, sampling="random")
    return config.change(corpus=str(tmp_path / "corpus.jsonl"))


@pytest.fixture
def own_set(monkeypatch):
    """A function that makes a folder's set the only known one."""

    def describe(place, **parameters):
        splits = {name: name for name in data.SPLITS}
        entry = hub.Entry(str(place), "question", ("answers",), row_id="id", splits=splits)
        monkeypatch.setattr(hub, "load_entries", lambda: {Path(place).name: entry})
        return from_notebook({"data": "hub", "n_questions": 0, **parameters})

    return describe


def texts(questions):
    return {normalise(one.question) for one in questions}


def test_every_known_set_says_where_it_is_from():
    entries = hub.load_entries()
    assert list(entries) == ["nq", "webq", "mintaka", "triviaqa", "webglm"]
    assert all(
        one.rows["train"] and one.revision and one.licence and one.paper_sample and one.defects
        for one in entries.values()
    )
    unpinned = {name for name, entry in entries.items() if len(entry.revision) != 40}
    assert unpinned == {
        "mintaka",
        "webglm",
    }  # the commits of these could not be looked up; hub.toml says so


def test_the_papers_four_sets_are_read_in_the_shapes_they_have_on_the_hub(public):
    asked = data.load_questions(public)
    assert data.choose_sets(public) == ("nq", "webq", "mintaka", "triviaqa")
    by_set = {
        name: [one for one in asked if one.dataset == name] for name in data.choose_sets(public)
    }
    assert [len(rows) for rows in by_set.values()] == [12] * 4  # of duplicates, one is kept
    nq, webq, mintaka, triviaqa = (rows[1] for rows in by_set.values())
    assert (nq.id, nq.question) == (
        "nq-validation-1",
        "Where is validation lake 1?",
    )  # no ids, and no other test split
    assert nq.answers == webq.answers == triviaqa.answers == ("south", "SOUTH")
    assert (mintaka.id, mintaka.answers, triviaqa.id) == (
        "test hill 1",
        ("south",),
        "validation quiz 1",
    )


def test_the_splits_of_every_set_share_no_question(public):
    for name in data.choose_sets(public):
        one = public.change(datasets=(name,))
        parts = [texts(data.load_questions(one.change(split=split))) for split in data.SPLITS]
        assert all(parts) and len(set.union(*parts)) == sum(map(len, parts)), name
    held_out = data.load_questions(public.change(datasets=("nq",), split="validation"))
    assert len(held_out) == 1 and texts(held_out) < {
        f"where is train lake {i}" for i in range(12)
    }  # a tenth
    own = data.load_questions(public.change(datasets=("mintaka",), split="validation"))
    assert [one.id for one in own] == [f"validation hill {i}" for i in range(12)]


def test_cited_answers_are_to_learn_from_only_and_find_their_own_references(public, capsys):
    webglm = public.change(datasets=("webglm",))
    assert data.load_questions(webglm.change(split="validation")) == []
    with pytest.raises(
        ValueError,
        match="webglm has cited answers, which are only for training; set split to 'train'",
    ):
        data.load_questions(webglm)
    sources = load_sources(public.change(n_train_questions=0, k=2))
    assert [len(source.questions) for source in sources] == [
        11,
        11,
        12,
        11,
        4,
    ]  # every set, and webglm last
    cited = sources[-1]
    assert [p.text for p in cited.search([cited.questions[0].question])[0]] == [
        "It is there.",
        "It is old.",
    ]
    counted = (
        "49 different training questions, none of them among 15 for validation and 48 for test"
    )
    assert counted in capsys.readouterr().out


def test_the_sample_is_always_the_same_and_keeps_the_order(tmp_path, own_set):
    write_jsonl(tmp_path / "set/test.jsonl", ask("river", n=500))
    every = data.load_questions(own_set(tmp_path / "set", sample=0))
    drawn = data.load_questions(own_set(tmp_path / "set"))
    assert len(every) == 500 and len(drawn) == 400
    assert drawn == [one for one in every if one in set(drawn)] != every[:400]
    assert drawn == data.load_questions(own_set(tmp_path / "set"))
    assert len(data.load_questions(own_set(tmp_path / "set", sample=501))) == 500
    with pytest.raises(ValueError, match="sample is -1, but must be 0"):
        data.load_questions(own_set(tmp_path / "set", sample=-1))


@pytest.fixture
def paper_list(public, monkeypatch, tmp_path):
    """A function that replaces the list of the paper's questions by these of nq."""

    def write(*questions):
        lines = [f"nq {paper_questions.hash_question(question)}\n" for question in questions]
        file = tmp_path / "paper_questions.txt"
        file.write_text("# a comment\n" + "".join(lines))
        monkeypatch.setattr(paper_questions, "FILE", file)
        paper_questions.report.cache_clear()
        return public.change(datasets=("nq",), sampling="paper", sample=len(lines))

    return write


def test_the_papers_own_questions_are_selected_in_the_papers_order(paper_list, capsys):
    config = paper_list("where is VALIDATION lake 7", "Where is validation lake 2?")
    selected = data.load_questions(config)
    assert [question.id for question in selected] == ["nq-validation-7", "nq-validation-2"]
    assert capsys.readouterr().out == "nq: 2 of the paper's 2 test questions found\n"


def test_a_question_that_the_paper_repeats_is_repeated_under_another_id(paper_list):
    lake = "Where is validation lake 7?"
    selected = data.load_questions(paper_list(lake, lake))
    assert [question.id for question in selected] == ["nq-validation-7", "nq-validation-7#2"]
    assert selected[0].answers == selected[1].answers


def test_missing_questions_of_the_paper_are_counted_and_the_others_used(paper_list, capsys):
    config = paper_list("Where is validation lake 7?", "Where is the sea?")
    assert [question.id for question in data.load_questions(config)] == ["nq-validation-7"]
    left_out = "nq: 1 of the paper's 2 test questions found; the other 1 are left out"
    assert left_out in capsys.readouterr().out


def test_a_set_without_any_of_the_papers_questions_is_an_error_with_a_cure(paper_list):
    with pytest.raises(ValueError, match="none of the paper's; set sampling to 'random'"):
        data.load_questions(paper_list("Where is the sea?"))


def test_a_smaller_sample_is_drawn_from_the_papers_questions(paper_list):
    lakes = [f"Where is validation lake {i}?" for i in range(5)]
    config = paper_list(*lakes)
    drawn = data.load_questions(config.change(sample=3))
    assert len(drawn) == 3
    assert texts(drawn) < {normalise(lake) for lake in lakes}


def test_a_larger_sample_than_the_papers_is_an_error_with_a_cure(paper_list):
    config = paper_list("Where is validation lake 7?").change(sample=2)
    cure = "the paper has 1 of 'nq'; set sample to 1 or less, or sampling to 'random'"
    with pytest.raises(ValueError, match=cure):
        data.load_questions(config)


def test_sample_0_is_every_question_also_of_a_set_with_the_papers_list(paper_list):
    config = paper_list("Where is validation lake 7?").change(sample=0)
    assert len(data.load_questions(config)) == 12


def test_a_random_sample_needs_no_question_of_the_paper(paper_list):
    config = paper_list("Where is the sea?").change(sampling="random", sample=4)
    assert len(data.load_questions(config)) == 4


def test_sets_without_the_papers_list_are_sampled_at_random(paper_list):
    config = paper_list("Where is validation lake 7?").change(datasets=("webq",), sample=4)
    assert len(data.load_questions(config)) == 4


def test_an_unknown_way_of_sampling_is_an_error_with_the_allowed_values(public):
    with pytest.raises(ValueError, match="sampling is 'first', but must be 'paper' or 'random'"):
        data.load_questions(public.change(sampling="first"))


@pytest.mark.parametrize("dataset, n_distinct", [("nq", 393), ("webq", 381)])
def test_the_committed_list_has_400_questions_of_a_set(dataset, n_distinct):
    hashes = paper_questions.load_hashes(dataset)
    assert len(hashes) == 400
    assert len(set(hashes)) == n_distinct
    assert {len(digits) for digits in hashes} == {16}


def test_the_hash_of_a_question_stays_as_it_is_in_the_committed_list():
    plain = paper_questions.hash_question("where is lake 1")
    assert plain == paper_questions.hash_question("Where is Lake 1?") == "bd275c4fb0b8a9a1"


def test_gold_that_normalises_to_nothing_stays_and_is_counted_on_the_card(tmp_path, own_set):
    known = [["south"], ["south"], ["---"], ["---"], None]
    write_jsonl(
        tmp_path / "set/test.jsonl",
        [row | {"answers": one} for row, one in zip(ask("river"), known)],
    )
    card = data.describe_sets(own_set(tmp_path / "set"))["set"]
    assert (card["questions"], card["golds that normalise to nothing"]) == (5, 3)


PASSAGES = [{"id": f"p{i}", "title": f"T{i}", "text": f"text {i}", "source": "s"} for i in range(4)]


def corpus_of(name):
    return Config().change(data="hub", corpus=str(name))


def test_a_corpus_comes_from_jsonl_and_what_cannot_be_one_is_named(tmp_path):
    plain = write_jsonl(tmp_path / "a.jsonl", PASSAGES)
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    made = data.load_passages(corpus_of(plain))
    assert [p.id for p in made] == ["p0", "p1", "p2", "p3"] and data.load_passages(
        corpus_of(packed)
    ) == made
    assert {p.text for p in made} == {row["text"] for row in PASSAGES} and made[0].title == "T0"
    textless = [{"id": "a", "title": "", "text": None}]
    for sentence, rows in {"empty": [], "line 1: missing text": textless}.items():
        with pytest.raises(ValueError, match=sentence):
            data.load_passages(corpus_of(write_jsonl(tmp_path / "c.jsonl", rows)))
    with pytest.raises(
        FileNotFoundError,
        match="use nq-wikipedia, wikipedia-dpr .in data/corpora.toml. or a .jsonl",
    ):
        data.load_passages(corpus_of("hub:someone/set"))


def test_a_named_corpus_is_read_from_disk_whole_and_told_where_it_was_cut(tmp_path, monkeypatch):
    rows = [{"_id": i, "title": None if i else "T", "text": f"text {i}"} for i in range(25)]
    write_parquet(tmp_path / "wiki/corpus/corpus/0.parquet", rows)
    entry = replace(hub.load_corpora()["nq-wikipedia"], id=str(tmp_path / "wiki"), passages=26)
    monkeypatch.setattr(hub, "load_corpora", lambda: {"wiki": entry})
    monkeypatch.setattr(hub, "BLOCK", 10)
    with pytest.warns(UserWarning, match="corpus 'wiki' has 25 passages, not 26"):
        made = data.load_passages(corpus_of("wiki"))
    assert data.load_passages(corpus_of("wiki")) is made  # opened once
    whole = [Passage(str(i), "" if i else "T", f"text {i}") for i in range(25)]
    assert (
        list(made) == whole
        and made[3] == whole[3]
        and made[8:12] == whole[8:12]
        and len(made) == 25
    )
    assert digest(made) == digest(whole) and made[24] == whole[24]
    assert digest(made) == hub.open_corpus("wiki").sha256
    hub.open_corpus.cache_clear()


def test_what_cannot_be_read_is_told_and_a_script_is_never_run(tmp_path, monkeypatch, own_set):
    write_jsonl(tmp_path / "empty/test.jsonl", [])
    write_jsonl(tmp_path / "blank/test.jsonl", [{"id": 1, "question": " ", "answers": "E"}])
    (tmp_path / "script").mkdir()
    (tmp_path / "script/script.py").write_text("raise SystemExit")
    told = {"empty": "empty' cannot be read: ", "blank": "row 0: the question is empty"}
    told |= {"script": "cannot be read: .*scripts are no longer supported"}
    for name, sentence in told.items():
        with pytest.raises(ValueError, match=sentence):
            data.load_questions(own_set(tmp_path / name))
    sources = [path.read_text() for path in Path(hub.__file__).parent.glob("*.py")]
    assert not any("trust_remote_code" in source for source in sources)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    for config in (own_set("someone/set"), Config().change(data="hub")):
        with pytest.raises(
            DataMissing, match="there is no network.*local folder.*HF_HUB_OFFLINE=1"
        ):
            data.load_questions(config)
