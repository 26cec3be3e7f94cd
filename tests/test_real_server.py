"""The endpoint, the judge and the teacher against llama.cpp's server with the embedded model."""

import json

import jsonschema
import pytest

pytest.importorskip(
    "xllamacpp", reason="xllamacpp (llama.cpp's server) is not installed: run make setup-all"
)

from benchmarks.llama_server import LlamaServer
from covrag_lite import prompts
from covrag_lite.config import Config, Model
from covrag_lite.engine import load_engine
from covrag_lite.engine.endpoint import Endpoint, EndpointError
from covrag_lite.engine.journal import Journal
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.engine.verdict_forms import json_schema
from covrag_lite.engine.weights import find_model
from covrag_lite.judging.answers import Answers
from covrag_lite.judging.criteria import CRITERIA
from covrag_lite.judging.served import judge_by_endpoint
from covrag_lite.oracle import Example
from covrag_lite.records import SCORES, Prediction, Round
from covrag_lite.systems import evaluate
from covrag_lite.training import annotators

MODEL = "endpoint:smollm2-135m"
PROMPT = "Write the numbers from one to nine."
PATIENCE = 600  # seconds until a reply begins: other tests run at the same time


@pytest.fixture(scope="module")
def llama():
    # One thread: on a busy machine several would wait for each other.
    with LlamaServer(find_model("smollm2-135m"), threads=1, slots=2) as server:
        yield server


def connect(patch, server):
    """Let endpoints use this server."""
    patch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    patch.setenv("OPENAI_API_KEY", "any")
    patch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(autouse=True)
def address(llama, monkeypatch):
    connect(monkeypatch, llama)


@pytest.fixture
def endpoint():
    return Endpoint(Model(model=MODEL), retries=0, timeout=PATIENCE)


@pytest.fixture(scope="module")
def local():
    """The same weights in our own engine, without a second quantisation."""
    return load_engine(Model(adapters="none", quantize="none", device="cpu"))


def test_a_completion_has_a_text_and_the_likelihood_of_its_tokens(endpoint):
    [completion] = endpoint.complete([PROMPT], 8)
    assert completion.text
    assert completion.probabilities["likelihood"] < 0


def test_the_server_reads_as_many_tokens_as_our_engine(endpoint, local):
    endpoint.complete([PROMPT], 1)
    [(n_read, _)] = local.count_tokens([PROMPT], [""])
    assert endpoint.used["prompt_tokens"] == n_read


def test_the_same_number_gives_the_same_sample(endpoint):
    first, second = (endpoint.complete([PROMPT], 4, sample=3)[0].text for _ in range(2))
    assert first == second


def test_different_numbers_give_different_samples(endpoint):
    samples = {endpoint.complete([PROMPT], 4, sample=number)[0].text for number in range(3)}
    assert len(samples) > 1


def test_a_prompt_beyond_the_servers_context_is_an_error_that_names_both_lengths(endpoint):
    with pytest.raises(EndpointError, match="status 400, .*exceeds the available context size"):
        endpoint.complete(["word " * 5000], 2)


@pytest.fixture(scope="module")
def verdict_prompt():
    from conftest import BORN

    from covrag_lite.records import Passage

    passage = Passage("p1", "Edith Marrow", "Edith Marrow was born in Stonebridge in 1861.")
    return prompts.build_verify(BORN, [passage], "Stonebridge[1]")


@pytest.fixture(scope="module")
def judge(llama):
    """An endpoint that all tests of the verdict share."""
    with pytest.MonkeyPatch.context() as patch:
        connect(patch, llama)
        return Endpoint(Model(model=MODEL), retries=0, timeout=PATIENCE)


@pytest.fixture(scope="module")
def verdict(judge, verdict_prompt):
    """A verdict written by the server; it takes most of this file's time."""
    [completion] = judge.fill([verdict_prompt], prompts.SCHEMA, 16)
    return completion


def test_no_field_of_a_request_for_a_verdict_is_refused(judge, verdict):
    assert judge.refused == set()
    assert not any(name.startswith("fallback") for name in judge.used)


def test_a_verdict_follows_the_json_schema(verdict):
    jsonschema.validate(json.loads(verdict.text), json_schema(prompts.SCHEMA))


def test_a_forced_verdict_parses(verdict):
    assert prompts.parse_verdict(verdict.text, prompts.SCHEMA, verdict.probabilities).parsed


def test_the_expected_scores_are_those_of_our_engine(verdict, verdict_prompt, local):
    [ours] = local.fill([verdict_prompt], prompts.SCHEMA, 16)
    expected = {name: ours.probabilities[name] for name in SCORES}
    served = {name: verdict.probabilities[name] for name in SCORES}
    # llama.cpp rounds activations to 8 bits; the largest difference seen is 0.006.
    assert served == pytest.approx(expected, abs=0.05)


def test_a_verdict_without_scores_follows_its_schema_too(endpoint, verdict_prompt):
    [completion] = endpoint.fill([verdict_prompt], prompts.DIRECT, 8)
    jsonschema.validate(json.loads(completion.text), json_schema(prompts.DIRECT))


def test_an_adapter_that_the_server_does_not_know_is_an_error():
    served = Endpoint(Model(model=MODEL, adapters="served"), retries=0, timeout=PATIENCE)
    with pytest.raises(EndpointError, match="adapter 'rag' was requested, but .* replied; serve"):
        served.with_adapter("rag").complete([PROMPT], 1)


def test_systems_without_an_adapter_run_with_served_adapters(tmp_path, questions, passages):
    config = Config().change(
        model=MODEL, adapters="served", k=1, max_answer_tokens=4, runs=str(tmp_path)
    )
    resources = evaluate.load_resources(config, passages)
    predictions = evaluate.run_system("RAG", config, resources, questions[:2])
    assert all(prediction.answer for prediction in predictions)


def test_the_base_model_runs_the_chain_of_verification(tmp_path, questions, passages):
    settings = {"model": MODEL, "adapters": "none", "k": 1, "runs": str(tmp_path)}
    config = Config().change(max_answer_tokens=4, max_revised_tokens=8, **settings)
    resources = evaluate.load_resources(config, passages)
    [prediction] = evaluate.run_system("CoV-RAG", config, resources, questions[:1])
    assert prediction.rounds[0].verdict.parsed


def test_the_judge_scores_every_answer_or_records_that_its_reply_did_not_parse(
    endpoint, tmp_path, questions, passages, monkeypatch
):
    monkeypatch.setattr("covrag_lite.judging.served.REPLY_TOKENS", 16)
    question = questions[0]
    group = {
        system: Prediction(system, question, (Round(question.question, (passages[0],), answer),))
        for system, answer in {"RAG": "Edith Marrow[1]", "CoV-RAG": "nobody"}.items()
    }
    journal = Journal(tmp_path / "journal.jsonl")
    [verdict] = judge_by_endpoint(endpoint, Answers([question], [group], passages), journal)
    assert set(verdict["scores"]) == set(CRITERIA)
    assert verdict["scores"]["correctness"] == {"RAG": None, "CoV-RAG": None}


def test_the_teacher_annotates_with_forced_verdicts(tmp_path, questions, passages, capsys):
    config = Config().change(annotator=MODEL, max_revised_tokens=8, runs=str(tmp_path))
    annotate = annotators.load_annotator(config)
    example = Example(questions[0], (passages[0],), "Edith Marrow[1]", "seed answer")
    [annotated] = annotate([example], {}, lambda queries: [[] for _ in queries])
    assert annotated.verdict.parsed
    assert "the teacher annotated 1 of 1 examples" in capsys.readouterr().out


class KillingJournal(Journal):
    """A journal that kills the server after a number of texts."""

    def __init__(self, path, server, n_texts):
        super().__init__(path)
        self.server = server
        self.n_left = n_texts

    def add(self, stage, texts):
        super().add(stage, texts)
        self.n_left -= 1
        if self.n_left == 0:
            self.server.kill()


@pytest.fixture
def stopped(llama, endpoint, tmp_path):
    """The error of a run whose server died after two of four texts; the server runs again."""
    endpoint.at_once = 1
    journal = KillingJournal(tmp_path / "journal.jsonl", llama, 2)
    with pytest.raises(EndpointError) as error:
        TaskModel(endpoint.settings, endpoint, journal).write("closed-book", list("abcd"), 2)
    llama.start()
    return str(error.value)


def test_a_server_that_dies_is_an_error_that_says_what_to_do(stopped):
    assert "the connection failed; start the server if it has stopped" in stopped
    assert "finished texts are kept, and the same command continues" in stopped


def test_texts_from_before_the_server_died_are_in_the_journal(stopped, tmp_path):
    assert len(Journal(tmp_path / "journal.jsonl").texts) == 2


def test_a_restarted_server_writes_only_the_missing_texts(stopped, endpoint, tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    again = Endpoint(endpoint.settings, retries=0, timeout=PATIENCE)
    texts = TaskModel(again.settings, again, journal).write("closed-book", list("abcd"), 2)
    assert len(texts) == 4
    assert again.used["requests"] == 2
