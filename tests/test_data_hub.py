"""Public sets by name, read from local files with the same call that reads the hub."""

import gzip
import io
from contextlib import contextmanager, redirect_stdout
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

PAPER_SETS = ("nq", "webq", "mintaka", "triviaqa")


@pytest.fixture(autouse=True, scope="module")
def datasets_cache(tmp_path_factory):
    """A folder in which `datasets` stores what it reads in these tests."""
    datasets.disable_progress_bars()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield


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


def build_rows(name, column="answers", n=12):
    """Distinct questions of one kind, with answers in the format of the set on the hub."""
    rows = []
    for i in range(n):
        row_id = f"{name} {i}"
        row = {"id": row_id, "question_id": row_id, "question": f"Where is {row_id}?"}
        rows.append(row | format_answers(column, "south" if i % 2 else "north"))
    return rows


def format_answers(column, answer):
    """The answer in the column of a set, which may contain a text, a list, or names and values."""
    variants = [answer, answer.upper()]
    if column == "answerText":
        return {column: answer}
    if column == "value":
        return {"answer": {"value": answer, "aliases": variants}}
    return {column: variants}


def write_sets(root):
    """The paper's four sets, with the files and columns that they have on the hub."""
    lakes = {split: build_rows(f"{split} lake", "answer") for split in data.SPLITS}
    write_set(root / "nq/nq_open", lakes)
    quiz = {split: build_rows(f"{split} quiz", "value") for split in data.SPLITS}
    with_duplicates = {split: rows + rows[:2] for split, rows in quiz.items()}
    write_set(root / "triviaqa/rc.nocontext", with_duplicates)
    towns = {split: build_rows(f"{split} town") for split in ("train", "test")}
    write_set(root / "webq/data", towns)
    for split in data.SPLITS:
        hills = build_rows(f"{split} hill", "answerText")
        write_parquet(root / f"mintaka/en/{split}/0000.parquet", hills)


@pytest.fixture(scope="module")
def public_files(tmp_path_factory):
    """The five known sets as local folders, and a corpus."""
    root = tmp_path_factory.mktemp("public")
    write_sets(root / "hub")
    cited = {"answer": "There.[1]", "references": ["It is there.", "It is old."]}
    for split in data.SPLITS:
        rows = [row | cited for row in build_rows(f"{split} web", n=4)]
        write_jsonl(root / f"hub/webglm/data/{split}.jsonl", rows)
    passages = [{"id": f"p{i}", "title": "T", "text": f"text {i}"} for i in range(6)]
    write_jsonl(root / "corpus.jsonl", passages)
    return root


@contextmanager
def replace_entries(entries):
    """Replace the descriptions of all known sets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "load_entries", lambda: entries)
        yield


@contextmanager
def replace_hub(root):
    """Read the known sets from local folders; yields a configuration of all their questions."""
    entries = {}
    for name, entry in hub.load_entries().items():
        entries[name] = replace(entry, id=str(root / "hub" / name))
    config = Config().change(data="hub", n_questions=0, sampling="random")
    with replace_entries(entries):
        yield config.change(corpus=str(root / "corpus.jsonl"))


@pytest.fixture
def public(public_files):
    """A configuration of the five known sets, which are local folders."""
    with replace_hub(public_files) as config:
        yield config


@contextmanager
def replace_by_one_set(folder, **parameters):
    """Make a folder's set the only known one; yields a configuration of its questions."""
    splits = {name: name for name in data.SPLITS}
    entry = hub.Entry(str(folder), "question", ("answers",), row_id="id", splits=splits)
    with replace_entries({Path(folder).name: entry}):
        yield from_notebook({"data": "hub", "n_questions": 0, **parameters})


def load_only_set(folder, **parameters):
    with replace_by_one_set(folder, **parameters) as config:
        return data.load_questions(config)


def texts(questions):
    return {normalise(question.question) for question in questions}


# The descriptions of the known sets.


def test_the_known_sets_are_the_papers_four_sets_before_webglm():
    assert list(hub.load_entries()) == ["nq", "webq", "mintaka", "triviaqa", "webglm"]


@pytest.mark.parametrize("field", ["revision", "licence", "paper_sample", "defects"])
def test_every_known_set_is_described(field):
    assert all(getattr(entry, field) for entry in hub.load_entries().values())


def test_the_number_of_training_questions_of_every_known_set_is_recorded():
    assert all(entry.rows["train"] for entry in hub.load_entries().values())


def test_all_sets_are_pinned_to_a_commit_except_two_whose_commits_are_unknown():
    entries = hub.load_entries()
    unpinned = {name for name, entry in entries.items() if len(entry.revision) != 40}
    assert unpinned == {"mintaka", "webglm"}  # hub.toml says so


# The paper's four sets.


@pytest.fixture(scope="module")
def public_questions(public_files):
    """The test questions of each set."""
    with replace_hub(public_files) as config:
        questions = data.load_questions(config)
    return {name: [q for q in questions if q.dataset == name] for name in PAPER_SETS}


def test_the_sets_with_test_questions_are_the_papers(public):
    assert data.choose_sets(public) == PAPER_SETS


@pytest.mark.parametrize("dataset", PAPER_SETS)
def test_of_duplicate_questions_one_is_kept(public_questions, dataset):
    assert len(public_questions[dataset]) == 12


@pytest.mark.parametrize(
    "dataset, row_id", [("mintaka", "test hill 1"), ("triviaqa", "validation quiz 1")]
)
def test_a_question_has_the_id_of_its_row(public_questions, dataset, row_id):
    assert public_questions[dataset][1].id == row_id


def test_a_question_without_an_id_gets_set_split_with_row_number(public_questions):
    assert public_questions["nq"][1].id == "nq-validation-1"


def test_the_validation_split_of_nq_is_for_testing(public_questions):
    assert public_questions["nq"][1].question == "Where is validation lake 1?"


@pytest.mark.parametrize(
    "dataset, answers",
    [
        ("nq", ("south", "SOUTH")),
        ("webq", ("south", "SOUTH")),
        ("triviaqa", ("south", "SOUTH")),
        ("mintaka", ("south",)),
    ],
)
def test_gold_answers_are_read_in_the_format_of_the_set(public_questions, dataset, answers):
    assert public_questions[dataset][1].answers == answers


@pytest.fixture(scope="module")
def texts_by_split(public_files):
    """For each set, the texts of its questions in each split."""
    by_split = {}
    with replace_hub(public_files) as config:
        for name in PAPER_SETS:
            of_set = config.change(datasets=(name,))
            splits = [data.load_questions(of_set.change(split=split)) for split in data.SPLITS]
            by_split[name] = [texts(questions) for questions in splits]
    return by_split


@pytest.mark.parametrize("dataset", PAPER_SETS)
def test_every_split_of_a_set_has_questions(texts_by_split, dataset):
    assert all(texts_by_split[dataset])


@pytest.mark.parametrize("dataset", PAPER_SETS)
def test_the_splits_of_a_set_share_no_question(texts_by_split, dataset):
    splits = texts_by_split[dataset]
    assert len(set.union(*splits)) == sum(map(len, splits))


def test_a_tenth_of_the_training_questions_is_for_validation_without_a_split_of_its_own(public):
    held_out = data.load_questions(public.change(datasets=("nq",), split="validation"))
    assert len(held_out) == 1


def test_the_questions_for_validation_are_held_out_of_the_training_questions(texts_by_split):
    _, held_out, _ = texts_by_split["nq"]
    assert held_out < {f"where is train lake {i}" for i in range(12)}


def test_a_validation_split_is_used_whole(public):
    questions = data.load_questions(public.change(datasets=("mintaka",), split="validation"))
    assert [question.id for question in questions] == [f"validation hill {i}" for i in range(12)]


# Cited answers.


def test_cited_answers_are_not_for_validation(public):
    webglm = public.change(datasets=("webglm",), split="validation")
    assert data.load_questions(webglm) == []


def test_cited_answers_are_not_for_testing(public):
    reason = "webglm has cited answers, which are only for training; set split to 'train'"
    with pytest.raises(ValueError, match=reason):
        data.load_questions(public.change(datasets=("webglm",)))


@pytest.fixture(scope="module")
def sources_with_output(public_files):
    """The training questions of every set, and what loading them prints."""
    printed = io.StringIO()
    with replace_hub(public_files) as config, redirect_stdout(printed):
        sources = load_sources(config.change(n_train_questions=0, k=2))
    return sources, printed.getvalue()


def test_every_set_is_a_source_of_training_questions(sources_with_output):
    sources, _ = sources_with_output
    assert [len(source.questions) for source in sources] == [11, 11, 12, 11, 4]


def test_a_question_with_a_cited_answer_finds_its_own_references(sources_with_output):
    sources, _ = sources_with_output
    webglm = sources[-1]
    (references,) = webglm.search([webglm.questions[0].question])
    assert [passage.text for passage in references] == ["It is there.", "It is old."]


def test_references_with_the_same_text_belong_to_different_questions(sources_with_output):
    sources, _ = sources_with_output
    webglm = sources[-1]
    last = webglm.questions[-1]
    (references,) = webglm.search([last.question])
    assert tuple(passage.id for passage in references) == last.gold_passages


def test_training_questions_are_counted_as_different_from_those_of_other_splits(
    sources_with_output,
):
    _, printed = sources_with_output
    different = "49 different training questions, none of them among"
    assert f"{different} 15 for validation and 48 for test" in printed


# Random samples.


@pytest.fixture(scope="module")
def large_set(tmp_path_factory):
    """The folder of a set of 500 questions."""
    folder = tmp_path_factory.mktemp("large") / "set"
    write_jsonl(folder / "test.jsonl", build_rows("river", n=500))
    return folder


@pytest.fixture(scope="module")
def whole_set(large_set):
    return load_only_set(large_set, sample=0)


@pytest.fixture(scope="module")
def default_sample(large_set):
    return load_only_set(large_set)


def test_sample_0_is_every_question_of_a_set(whole_set):
    assert len(whole_set) == 500


def test_a_sample_has_400_questions_by_default(default_sample):
    assert len(default_sample) == 400


def test_a_sample_keeps_the_order_of_the_set(default_sample, whole_set):
    sampled = set(default_sample)
    assert default_sample == [question for question in whole_set if question in sampled]


def test_a_sample_is_not_the_beginning_of_the_set(default_sample, whole_set):
    assert default_sample != whole_set[:400]


def test_a_sample_is_the_same_each_time(default_sample, large_set):
    assert load_only_set(large_set) == default_sample


def test_a_sample_larger_than_the_set_is_the_set(large_set):
    assert len(load_only_set(large_set, sample=501)) == 500


def test_a_negative_sample_is_an_error(large_set):
    with pytest.raises(ValueError, match="sample is -1, but must be 0"):
        load_only_set(large_set, sample=-1)


# The paper's own questions.


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


def test_the_papers_own_questions_are_selected_in_the_papers_order(paper_list):
    config = paper_list("where is VALIDATION lake 7", "Where is validation lake 2?")
    selected = data.load_questions(config)
    assert [question.id for question in selected] == ["nq-validation-7", "nq-validation-2"]


def test_the_papers_questions_are_counted(paper_list, capsys):
    config = paper_list("where is VALIDATION lake 7", "Where is validation lake 2?")
    data.load_questions(config)
    assert capsys.readouterr().out == "nq: 2 of the paper's 2 test questions found\n"


def test_a_question_that_the_paper_repeats_is_repeated_under_another_id(paper_list):
    lake = "Where is validation lake 7?"
    selected = data.load_questions(paper_list(lake, lake))
    assert [question.id for question in selected] == ["nq-validation-7", "nq-validation-7#2"]


def test_a_question_that_the_paper_repeats_has_the_same_answers(paper_list):
    lake = "Where is validation lake 7?"
    first, second = data.load_questions(paper_list(lake, lake))
    assert first.answers == second.answers


def test_other_questions_of_the_paper_are_used_if_some_are_missing(paper_list):
    config = paper_list("Where is validation lake 7?", "Where is the sea?")
    assert [question.id for question in data.load_questions(config)] == ["nq-validation-7"]


def test_missing_questions_of_the_paper_are_counted(paper_list, capsys):
    data.load_questions(paper_list("Where is validation lake 7?", "Where is the sea?"))
    left_out = "nq: 1 of the paper's 2 test questions found; the other 1 are left out"
    assert left_out in capsys.readouterr().out


def test_a_set_without_any_of_the_papers_questions_is_an_error_with_a_cure(paper_list):
    with pytest.raises(ValueError, match="none of the paper's; set sampling to 'random'"):
        data.load_questions(paper_list("Where is the sea?"))


LAKES = [f"Where is validation lake {i}?" for i in range(5)]


def test_a_smaller_sample_has_its_size(paper_list):
    config = paper_list(*LAKES)
    assert len(data.load_questions(config.change(sample=3))) == 3


def test_a_smaller_sample_is_drawn_from_the_papers_questions(paper_list):
    config = paper_list(*LAKES)
    drawn = data.load_questions(config.change(sample=3))
    assert texts(drawn) < {normalise(lake) for lake in LAKES}


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


@pytest.mark.parametrize("dataset", ["nq", "webq"])
def test_the_committed_list_has_400_questions_of_a_set(dataset):
    assert len(paper_questions.load_hashes(dataset)) == 400


@pytest.mark.parametrize("dataset, n_distinct", [("nq", 393), ("webq", 381)])
def test_the_committed_list_repeats_questions_as_the_paper_does(dataset, n_distinct):
    assert len(set(paper_questions.load_hashes(dataset))) == n_distinct


@pytest.mark.parametrize("dataset", ["nq", "webq"])
def test_a_hash_in_the_committed_list_has_16_digits(dataset):
    assert {len(digits) for digits in paper_questions.load_hashes(dataset)} == {16}


def test_the_hash_of_a_question_stays_as_it_is_in_the_committed_list():
    assert paper_questions.hash_question("where is lake 1") == "bd275c4fb0b8a9a1"


def test_the_hash_of_a_question_ignores_capitals_with_punctuation():
    written = paper_questions.hash_question("Where is Lake 1?")
    assert written == paper_questions.hash_question("where is lake 1")


def test_questions_whose_gold_normalises_to_nothing_stay(tmp_path):
    golds = [["south"], ["south"], ["---"], ["---"], None]
    rows = [row | {"answers": gold} for row, gold in zip(build_rows("river"), golds)]
    write_jsonl(tmp_path / "set/test.jsonl", rows)
    with replace_by_one_set(tmp_path / "set") as config:
        assert len(data.load_questions(config)) == 5


# Corpora.

PASSAGES = [{"id": f"p{i}", "title": f"T{i}", "text": f"text {i}", "source": "s"} for i in range(4)]


def corpus_of(name):
    return Config().change(data="hub", corpus=str(name))


@pytest.fixture
def jsonl_corpus(tmp_path):
    return write_jsonl(tmp_path / "a.jsonl", PASSAGES)


def test_a_corpus_of_jsonl_keeps_its_ids(jsonl_corpus):
    passages = data.load_passages(corpus_of(jsonl_corpus))
    assert [passage.id for passage in passages] == ["p0", "p1", "p2", "p3"]


def test_a_corpus_of_jsonl_keeps_its_texts(jsonl_corpus):
    passages = data.load_passages(corpus_of(jsonl_corpus))
    assert {passage.text for passage in passages} == {row["text"] for row in PASSAGES}


def test_a_corpus_of_jsonl_keeps_its_titles(jsonl_corpus):
    assert data.load_passages(corpus_of(jsonl_corpus))[0].title == "T0"


def test_a_packed_corpus_is_the_same_as_the_plain_one(jsonl_corpus, tmp_path):
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(jsonl_corpus.read_bytes()))
    plain = data.load_passages(corpus_of(jsonl_corpus))
    assert data.load_passages(corpus_of(packed)) == plain


@pytest.mark.parametrize(
    "rows, sentence",
    [([], "empty"), ([{"id": "a", "title": "", "text": None}], "line 1: missing text")],
)
def test_a_corpus_without_text_is_an_error(rows, sentence, tmp_path):
    corpus = write_jsonl(tmp_path / "c.jsonl", rows)
    with pytest.raises(ValueError, match=sentence):
        data.load_passages(corpus_of(corpus))


def test_an_unknown_corpus_is_an_error_with_the_allowed_ones():
    allowed = "use nq-wikipedia, wikipedia-dpr .in data/corpora.toml. or a .jsonl"
    with pytest.raises(FileNotFoundError, match=allowed):
        data.load_passages(corpus_of("hub:someone/set"))


WIKI = [Passage(str(i), "" if i else "T", f"text {i}") for i in range(25)]


@pytest.fixture(scope="module")
def wiki_folder(tmp_path_factory):
    """A corpus as on the hub; it has one passage less than its description says."""
    folder = tmp_path_factory.mktemp("corpora") / "wiki"
    rows = [{"_id": i, "title": None if i else "T", "text": f"text {i}"} for i in range(25)]
    write_parquet(folder / "corpus/corpus/0.parquet", rows)
    return folder


@pytest.fixture
def wiki(wiki_folder, monkeypatch):
    """The corpus, opened by its name and read in blocks of ten passages."""
    entry = replace(hub.load_corpora()["nq-wikipedia"], id=str(wiki_folder), passages=26)
    monkeypatch.setattr(hub, "load_corpora", lambda: {"wiki": entry})
    monkeypatch.setattr(hub, "BLOCK", 10)
    with pytest.warns(UserWarning, match="corpus 'wiki' has 25 passages, not 26"):
        corpus = data.load_passages(corpus_of("wiki"))
    yield corpus
    hub.open_corpus.cache_clear()


def test_a_named_corpus_that_was_cut_off_is_opened_with_a_warning(wiki):
    assert len(wiki) == 25


def test_a_named_corpus_is_opened_once(wiki):
    assert data.load_passages(corpus_of("wiki")) is wiki


def test_a_named_corpus_is_read_whole(wiki):
    assert list(wiki) == WIKI


@pytest.mark.parametrize("place", [3, 24])
def test_a_passage_of_a_named_corpus_is_read_by_its_place(wiki, place):
    assert wiki[place] == WIKI[place]


def test_neighbouring_passages_of_a_named_corpus_are_read_across_blocks(wiki):
    assert wiki[8:12] == WIKI[8:12]


def test_the_digest_of_a_named_corpus_is_that_of_its_passages(wiki):
    assert digest(wiki) == digest(WIKI)


def test_a_named_corpus_knows_its_digest(wiki):
    assert hub.open_corpus("wiki").sha256 == digest(wiki)


# What cannot be read.


def test_an_empty_file_is_an_error(tmp_path):
    write_jsonl(tmp_path / "empty/test.jsonl", [])
    with pytest.raises(ValueError, match="empty' cannot be read: "):
        load_only_set(tmp_path / "empty")


def test_an_empty_question_is_an_error_with_its_row(tmp_path):
    write_jsonl(tmp_path / "blank/test.jsonl", [{"id": 1, "question": " ", "answers": "E"}])
    with pytest.raises(ValueError, match="row 0: the question is empty"):
        load_only_set(tmp_path / "blank")


def test_a_script_is_an_error(tmp_path):
    (tmp_path / "script").mkdir()
    (tmp_path / "script/script.py").write_text("raise SystemExit")
    with pytest.raises(ValueError, match="cannot be read: .*scripts are no longer supported"):
        load_only_set(tmp_path / "script")


def test_no_code_allows_a_script():
    sources = [path.read_text() for path in Path(hub.__file__).parent.glob("*.py")]
    assert not any("trust_remote_code" in source for source in sources)


@pytest.mark.parametrize("parameters", [{}, {"n_questions": 0}])
def test_a_set_that_was_never_downloaded_is_missing_without_a_network(parameters, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    cure = "there is no network.*local folder.*HF_HUB_OFFLINE=1"
    with replace_by_one_set("someone/set"), pytest.raises(DataMissing, match=cure):
        data.load_questions(Config().change(data="hub", **parameters))
