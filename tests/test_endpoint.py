"""The endpoint and the teacher, tested with a local server that fails in many ways."""

import json
import math
import re
import time
import traceback
from itertools import pairwise
from types import SimpleNamespace

import jsonschema
import pytest
from toy_web import reply, serve

from covrag_lite import config, oracle, prompts
from covrag_lite.engine import load_engine
from covrag_lite.engine.endpoint import Endpoint, EndpointError
from covrag_lite.engine.journal import Journal
from covrag_lite.engine.served_tokens import verdict_probabilities
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.engine.verdict_forms import json_schema
from covrag_lite.records import SCORES
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.manifest import build_manifest
from covrag_lite.systems import evaluate
from covrag_lite.training import annotators

KEY = "sk-secret-0123456789abcdef"
TRUE = prompts.render_verdict((0.9, 0.9, 0.9, 0.9, 0.1, 0.9), "true", "Needless?")
FALSE = prompts.render_verdict(
    (0.1, 0.1, 0.1, 0.1, 0.9, 0.9), "false", "Where was Edith Marrow born?"
)


def message(content, refusal=None, finish="stop"):
    """A chat completion as JSON."""
    text = {"role": "assistant", "content": content, "refusal": refusal}
    about = {"id": "1", "object": "chat.completion", "created": 1, "model": "toy"}
    used = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    return about | {
        "usage": used,
        "choices": [{"index": 0, "finish_reason": finish, "message": text}],
    }


def say(content, status="200 OK", **headers):
    body = content if isinstance(content, bytes) else json.dumps(content)
    return reply(body, "application/json", status, Connection="close", **headers)


WRONG = '{"1": {"reference_correctness": 7}, "3": "perhaps"}'
# Replies of a server to any request; with None, it closes the connection.
WAYS = {
    "busy": say({"error": {"message": "too many requests"}}, "429 Busy", Retry_After="0.4"),
    "broken": say({"error": {"message": f"no luck with Bearer {KEY}"}}, "500 Broken"),
    "broken_briefly": say(b"", "503 Broken", Retry_After_Ms="10"),
    "half": say(message(TRUE[: len(TRUE) // 2], finish="length")),
    "cut": say(message("never whole"))[:-20],
    "wrong": say(message(WRONG)),
    "refusal": say(message(None, refusal="I cannot judge this.")),
    "dropped": b"",
    "page": say(b"<html>welcome</html>"),
    "strange": say({"choices": []}),
    "locked": say(
        {"error": {"message": f"Incorrect API key provided: {KEY[:6]}***{KEY[-4:]}"}}, "401 Locked"
    ),
}


def write_by_task(prompt):
    """The default reply of the server's model to a prompt."""
    return FALSE if prompts.VERIFY_MARKER in prompt else "Edith Marrow[1]"


@pytest.fixture
def server(monkeypatch):
    """A server that replies from a script: one entry per request; the last entry is repeated."""
    server = SimpleNamespace(script=["good"], write=write_by_task, pause=0, asked=[])

    def answer(connection, path):
        body = json.loads(site.current.body)
        with site.lock:
            server.asked.append((time.monotonic(), body))
            way = server.script.pop(0) if len(server.script) > 1 else server.script[0]
        site.wait(0.8 if way == "slow" else server.pause)
        content = server.write(body["messages"][0]["content"])
        written = say(message(content) | {"model": body["model"]})
        if way == "no_schema" and {"response_format", "structured_outputs"} & set(body):
            written = say({"error": {"message": "verdicts are not forced"}}, "400 Unknown")
        connection.sendall(WAYS.get(way, written))

    with serve({"/v1/chat/completions": answer}) as site:
        server.site = site
        server.port = site.port
        monkeypatch.setenv("OPENAI_BASE_URL", site.url("/v1"))
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


def connect(retries=2, timeout=5.0, at_once=2):
    endpoint = Endpoint(config.Model(model="endpoint:toy"), retries, timeout)
    endpoint.at_once = at_once
    return endpoint


def ask(endpoint, *questions):
    return [completion.text for completion in endpoint.complete(questions, 9)]


def verify(endpoint, *questions):
    return [completion.text for completion in endpoint.fill(questions, prompts.SCHEMA, 32)]


def write(endpoint, questions, path):
    """Answer questions through the journal."""
    return TaskModel(endpoint.settings, endpoint, Journal(path)).write("answer", questions, 9)


@pytest.fixture
def search(passages):
    return load_retriever(config.Retrieval(k=2), passages)


@pytest.fixture
def examples(questions, search):
    passages = map(tuple, search([question.question for question in questions[:3]]))
    answers = [f"Edith Marrow[{number}]" for number in (1, 2, 3)]
    return [oracle.Example(*parts, "seed answer") for parts in zip(questions, passages, answers)]


def spoken(error):
    """Everything that an error can show: message, traceback and chained errors."""
    texts = []
    while error:
        texts += [repr(error), str(vars(error)), "".join(traceback.format_exception(error))]
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


# Systems behind an endpoint.


@pytest.fixture
def two_rounds(server, tmp_path, questions, passages):
    """CoV-RAG over two questions behind an endpoint: its predictions, and what it used."""
    settings = config.Config().change(model="endpoint:toy", k=2, runs=str(tmp_path))
    resources = evaluate.load_resources(settings, passages)
    predictions = evaluate.run_system("CoV-RAG", settings, resources, questions[:2])
    return SimpleNamespace(predictions=predictions, resources=resources, settings=settings)


def test_a_system_runs_behind_an_endpoint(two_rounds):
    assert isinstance(two_rounds.resources.model, Endpoint)
    answers = [prediction.answer for prediction in two_rounds.predictions]
    assert answers == ["Edith Marrow[1]"] * 2


def test_a_system_behind_an_endpoint_revises_questions(two_rounds):
    first, second = two_rounds.predictions[0].rounds
    assert first.verdict.judgment == "false"
    assert second.query == "Where was Edith Marrow born?"


def test_every_request_is_greedy(two_rounds, server):
    assert {body["temperature"] for _, body in server.asked} == {0}


def test_every_request_names_the_model(two_rounds, server):
    assert {body["model"] for _, body in server.asked} == {"toy"}


def test_only_verifications_request_a_schema(two_rounds, server):
    for _, body in server.asked:
        is_verification = prompts.VERIFY_MARKER in body["messages"][0]["content"]
        assert ("response_format" in body) == is_verification


def test_the_manifest_does_not_contain_the_key(two_rounds, questions, passages):
    manifest = build_manifest(
        two_rounds.settings,
        two_rounds.resources.model,
        1.0,
        questions=questions,
        passages=passages,
    )
    assert KEY not in json.dumps(manifest)


# The requested schema.


@pytest.mark.parametrize("parts", [prompts.SCHEMA, prompts.DIRECT])
def test_the_requested_schema_is_the_one_that_is_parsed(parts):
    text = "".join(prompts.fill_schema(parts, [0.25] * 6, "unclear", "Who?"))
    jsonschema.validate(json.loads(text), json_schema(parts))


@pytest.mark.parametrize(
    "old, new", [('"4"', '"5"'), ("true", "maybe"), ("0.90", "1.90"), (" }", ', "5": 1 }')]
)
def test_the_requested_schema_allows_nothing_else(old, new):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(TRUE.replace(old, new)), json_schema(prompts.SCHEMA))


# Failures.


@pytest.mark.parametrize(
    "script, n_requests",
    [
        (["broken", "broken", "good"], 3),
        (["cut", "good"], 2),
        (["dropped", "good"], 2),
        (["busy", "good"], 2),
    ],
)
def test_a_request_that_may_succeed_is_repeated(server, script, n_requests):
    server.script = script
    assert ask(connect(), "who?") == ["Edith Marrow[1]"]
    assert len(server.asked) == n_requests


@pytest.mark.parametrize("script", [["broken", "broken", "good"], ["busy", "good"]])
def test_repeated_requests_wait_ever_longer_or_as_the_server_demands(server, script):
    server.script = script
    ask(connect(), "who?")
    times = [time for time, _ in server.asked]
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits[0] > 0.3
    assert waits == sorted(waits)


@pytest.mark.parametrize(
    "way, message, n_requests",
    [
        ("broken_briefly", "status 503", 3),
        ("busy", "status 429, .*too many requests", 3),
        ("page", "not a chat completion", 1),
        ("strange", "not a chat completion", 1),
        ("locked", r"refused the key in OPENAI_API_KEY \(status 401\)", 1),
        ("dropped", "the connection failed; start the server", 3),
        ("slow", "no answer within 0.3 s", 3),
    ],
)
def test_retries_end_in_an_error_that_says_what_happened(server, way, message, n_requests):
    server.script = [way]
    with pytest.raises(EndpointError, match=f"'toy' at 127.0.0.1:{server.port}/v1: .*{message}"):
        ask(connect(timeout=0.3 if way == "slow" else 5.0), "who?")
    assert len(server.asked) == n_requests


def test_an_error_says_that_finished_texts_are_kept(server):
    server.script = ["broken_briefly"]
    with pytest.raises(EndpointError, match="finished texts are kept, and the same command"):
        ask(connect(retries=0), "who?")


def test_an_address_without_its_protocol_is_an_error_with_its_cure(server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000/v1")
    with pytest.raises(EndpointError, match="set OPENAI_BASE_URL to its address, http://"):
        ask(connect(retries=0), "who?")


def test_a_missing_key_is_an_error_that_names_the_variables(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    message = "a key in OPENAI_API_KEY .* and the server's address in OPENAI_BASE_URL"
    with pytest.raises(ValueError, match=message):
        load_engine(config.Model(model="endpoint:toy"))


# Several requests at a time.


@pytest.fixture
def twelve(server, tmp_path):
    """Twelve texts written with at most three requests at a time."""
    server.write = str.upper
    server.pause = 0.05
    return write(connect(at_once=3), "abcdefghijkl", tmp_path / "journal.jsonl")


def test_texts_come_in_the_order_of_their_prompts(twelve):
    assert twelve == list("ABCDEFGHIJKL")


def test_no_more_requests_run_than_allowed(twelve, server):
    assert 1 < server.site.most_at_once <= 3


def test_every_prompt_is_requested_once(twelve, server):
    assert len(server.asked) == 12


@pytest.fixture
def stopped(server, tmp_path):
    """The journal of a run whose fourth request fails, and its prompts."""
    path = tmp_path / "journal.jsonl"
    server.script = ["good", "good", "good", "broken_briefly", "good"]
    questions = [f"who is {i}?" for i in range(8)]
    with pytest.raises(EndpointError, match="503"):
        write(connect(retries=0), questions, path)
    return path, questions


def test_answers_before_a_failure_are_journaled_at_once(stopped):
    path, _ = stopped
    # Earlier ones, and the one that ran at the same time as the failed one.
    assert 3 <= len(Journal(path).texts) <= 5


def test_only_missing_answers_are_requested_again(stopped, server):
    path, questions = stopped
    n_journaled = len(Journal(path).texts)
    server.script = ["good"]
    server.asked = []
    assert len(write(connect(), questions, path)) == 8
    assert len(server.asked) == 8 - n_journaled


# Verdicts.


def test_a_text_that_is_no_verdict_is_data(server):
    server.script = ["half", "wrong", "refusal"]
    texts = verify(connect(), "is it?", "and this?", "and that?")
    assert texts == [TRUE[: len(TRUE) // 2].strip(), WRONG, "I cannot judge this."]


@pytest.mark.parametrize("way", ["half", "wrong", "refusal"])
def test_a_text_that_is_no_verdict_is_not_parsed(server, way):
    server.script = [way]
    (text,) = verify(connect(), "is it?")
    assert not prompts.parse_verdict(text).parsed


@pytest.fixture
def no_schema(server):
    """An endpoint whose server has refused schemas once."""
    server.script = ["no_schema"]
    endpoint = connect()
    message = "verdicts are not forced, because the server refuses response_format"
    with pytest.warns(UserWarning, match=message):
        assert verify(endpoint, "is it?") == ["Edith Marrow[1]"]
    return endpoint


def test_fields_that_may_be_refused_are_left_out_one_after_another(no_schema, server):
    sent = [("logprobs" in body, "response_format" in body) for _, body in server.asked]
    assert sent == [(True, True), (False, True), (True, False)]


def test_a_server_without_schemas_is_counted_as_a_fallback(no_schema):
    assert no_schema.used["fallback: verdicts are not forced"] == 1


def test_a_field_that_was_refused_is_not_sent_again(no_schema, server):
    server.asked = []
    verify(no_schema, "is it?", "and this?")
    assert len(server.asked) == 2
    assert not [body for _, body in server.asked if "response_format" in body]


def test_a_field_that_was_not_refused_is_still_sent(no_schema, server):
    server.asked = []
    verify(no_schema, "is it?")
    assert "logprobs" in server.asked[0][1]


# Probabilities.


def with_probabilities(text, chances, size=1):
    """A message split into tokens of equal length; some tokens have alternatives."""
    tokens = []
    for start in range(0, len(text), size):
        token = text[start : start + size]
        alternatives = chances.get(start, {token: 1.0})
        top = [
            {"token": other, "logprob": math.log(p), "bytes": None}
            for other, p in alternatives.items()
        ]
        log = math.log(alternatives[token])
        tokens.append({"token": token, "logprob": log, "bytes": None, "top_logprobs": top})
    reply = message(text)
    reply["choices"][0]["logprobs"] = {"content": tokens, "refusal": None}
    return say(reply)


def complete_one(server, reply):
    WAYS["reply"] = reply
    server.script = ["reply"]
    return connect().complete(["is it?"], 9)[0]


def fill_one(server, reply):
    WAYS["reply"] = reply
    server.script = ["reply"]
    return connect().fill(["is it?"], prompts.SCHEMA, 32)[0].probabilities


def test_the_likelihood_of_an_answer_is_the_mean_of_its_tokens(server):
    reply = with_probabilities("No", {0: {"N": 0.5}, 1: {"o": 0.25, "a": 0.75}})
    likelihood = round(1.5 * math.log(0.5), 5)
    assert complete_one(server, reply) == ("No", {"likelihood": likelihood})


def test_without_probabilities_the_likelihood_is_unknown(server):
    assert connect().complete(["is it?"], 9)[0].probabilities is None


@pytest.fixture
def scores(server):
    """The expected scores of a verdict with alternatives in its first score only."""
    place = TRUE.index("0.90")
    alternatives = {
        place: {"0": 0.8, "1": 0.1, " ": 0.1},
        place + 2: {"9": 0.4, "5": 0.4, '"': 0.2},
    }
    return fill_one(server, with_probabilities(TRUE, alternatives))


def test_a_score_is_expected_digit_by_digit(scores):
    # Among what is allowed: 1/9 for a 1, and 8/9 for a 0 with 7 tenths on average.
    assert scores["reference_correctness"] == pytest.approx(1 / 9 + 8 / 9 * 0.7, abs=1e-5)


def test_a_score_that_is_certain_is_expected_as_written(scores):
    assert scores["bias"] == 0.1


def test_every_score_has_an_expectation(scores):
    assert list(scores) == [*SCORES, "true", "empty"]


def test_a_score_of_one_has_no_decimals(server):
    text = TRUE.replace("0.90", "1.00", 1)
    place = text.index("1.00")
    reply = with_probabilities(text, {place: {"1": 0.75, "0": 0.25}})
    assert fill_one(server, reply)["reference_correctness"] == 0.75


def test_numbers_in_longer_tokens_have_no_expectation(server):
    probabilities = fill_one(server, with_probabilities(TRUE, {}, size=4)) or {}
    assert not set(probabilities) & set(SCORES)


def test_the_judgment_is_as_probable_as_its_first_letters(server):
    place = TRUE.index('"true"') + 1
    chances = {place: {"t": 0.3, "f": 0.5, "un": 0.1, "x": 0.1}}
    probabilities = fill_one(server, with_probabilities(TRUE, chances))
    assert probabilities["true"] == pytest.approx(0.3 / 0.9, abs=1e-5)


def tokens_of(*parts):
    """Tokens as a server reports them: each a text, or a text with its alternatives."""
    tokens = []
    for part in parts:
        chances = part if isinstance(part, dict) else {part: 1.0}
        top = [SimpleNamespace(token=token, logprob=math.log(p)) for token, p in chances.items()]
        tokens.append(SimpleNamespace(token=top[0].token, logprob=top[0].logprob, top_logprobs=top))
    return tokens


@pytest.mark.parametrize(
    "tokens, empty",
    [
        (('{ "', '4":', {' ""': 0.6, ' "': 0.2, " Who": 0.2}, " }"), 0.75),
        (('{ "', '4":', {' "': 0.6, ' ""': 0.2, ' "W': 0.2}, "Who", '"'), 0.2),
        (('{"4":', " ", {'""': 0.6, '"': 0.4}, "}"), 0.6),  # another spacing
        (('{"4":', {' "': 1.0}, {'"': 0.9, "Who": 0.1}, "}"), 0.9),  # one mark after the other
        (('{"4": "', "Who", '"'), None),  # no token begins at the mark
        (('{ "1":', " 0.95"), None),
    ],
)
def test_an_empty_revised_question_is_as_probable_as_its_marks(tokens, empty):
    probabilities = verdict_probabilities(tokens_of(*tokens))
    assert probabilities.get("empty") == (empty and pytest.approx(empty, abs=1e-5))


# Adapters.


@pytest.fixture
def served(server):
    """An endpoint with adapters."""
    return Endpoint(config.Model(model="endpoint:toy", adapters="served"))


def test_a_served_adapter_is_requested_by_its_name(served, server):
    ask(served.with_adapter("rag"), "who?")
    assert server.asked[0][1]["model"] == "rag"


def test_no_adapter_is_the_base_even_of_a_view_with_one(served, server):
    ask(served.with_adapter("rag").with_adapter(""), "who?")
    assert server.asked[0][1]["model"] == "toy"


def test_the_base_of_served_adapters_is_requested_by_its_own_name(served, server):
    served.with_adapter("rag")
    ask(served, "who?")
    assert server.asked[0][1]["model"] == "toy"


def test_without_served_adapters_the_base_model_answers(server):
    ask(connect().with_adapter("rag"), "who?")
    assert server.asked[0][1]["model"] == "toy"


def test_an_adapter_that_the_server_ignores_is_an_error(served, server):
    WAYS["base"] = say(message("Edith Marrow[1]"))  # from "toy"
    server.script = ["base"]
    with pytest.raises(EndpointError, match="'rag' was requested, but 'toy' replied"):
        ask(served.with_adapter("rag"), "who?")


def test_a_served_adapter_writes_verdicts_spaced_as_it_learnt_them(served, server):
    served.with_adapter("cov").fill(["is it?"], prompts.SCHEMA, 32)
    (_, body) = server.asked[-1]
    assert "response_format" not in body
    assert re.fullmatch(body["structured_outputs"]["regex"], TRUE)


def test_a_server_that_refuses_expressions_lets_an_adapter_write_freely(served, server):
    server.script = ["no_schema"]
    with pytest.warns(UserWarning, match="verdicts are not forced"):
        served.with_adapter("cov").fill(["is it?"], prompts.SCHEMA, 32)
    (_, body) = server.asked[-1]
    assert "structured_outputs" not in body
    assert "logprobs" in body


def test_a_served_adapter_has_its_own_fingerprint(served):
    assert served.with_adapter("rag").fingerprint == f"{served.fingerprint}+rag"


def test_a_served_adapter_has_the_weights_of_its_base(served):
    assert served.with_adapter("rag").weights_hash == served.fingerprint


def test_all_adapters_are_counted_together(served):
    ask(served.with_adapter("rag"), "who?")
    ask(served, "who?")
    assert served.used["requests"] == 2
    assert served.used["prompt_tokens"] == 200


def test_a_sample_is_requested_with_a_seed(server):
    connect().complete(["who?"], 9, sample=3)
    body = server.asked[0][1]
    assert (body["temperature"], body["seed"]) == (1, 3)


# Fingerprints and the key.


def test_a_fingerprint_does_not_depend_on_keys(server, monkeypatch):
    first = connect().fingerprint
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://me:{KEY}@127.0.0.1:{server.port}/v1?key={KEY}")
    assert connect().fingerprint == first


def test_the_name_of_a_server_contains_no_key(server, monkeypatch):
    address = f"127.0.0.1:{server.port}"
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://me:{KEY}@{address}/v1?key={KEY}")
    assert connect().server == f"{address}/v1"


def test_another_model_has_another_fingerprint(server):
    other = Endpoint(config.Model(model="endpoint:other"))
    assert other.fingerprint != connect().fingerprint


@pytest.fixture
def shown(server, examples, search, tmp_path, capsys):
    """Everything that a user can see of a teacher whose server fails in many ways."""
    endpoint = connect(retries=0)
    endpoint.client.timeout = 0.3
    journal_path = tmp_path / "journal.jsonl"
    teacher = TaskModel(endpoint.settings, endpoint, Journal(journal_path))
    texts = []
    for way in ("broken", "locked", "slow", "dropped", "no_schema"):
        server.script = [way]
        try:
            annotators.annotate_with_teacher(examples, teacher, search)
        except EndpointError as error:
            texts.append(spoken(error))
    assert len(texts) == 4
    texts += [repr(endpoint), str(vars(endpoint)), journal_path.read_text(), *capsys.readouterr()]
    return "".join(texts)


@pytest.mark.filterwarnings("ignore:verdicts are not forced")
@pytest.mark.parametrize("part", [KEY, KEY[:6], KEY[-4:]])
def test_nothing_shows_the_key_or_a_part_of_it(shown, part):
    assert part not in shown


@pytest.mark.filterwarnings("ignore:verdicts are not forced")
def test_the_rest_of_a_servers_message_is_shown(shown):
    assert "no luck with Bearer …" in shown


# The teacher.


@pytest.fixture
def annotated(server, examples, search, tmp_path, capsys):
    """Three examples annotated by a teacher that refuses to judge the first one."""
    first = '"answer": Edith Marrow[1]'
    server.write = lambda prompt: "I would rather not." if first in prompt else FALSE
    settings = config.Config().change(annotator="endpoint:toy", runs=str(tmp_path))
    return annotators.load_annotator(settings)(examples, {}, search)


def test_examples_without_a_verdict_are_left_out(annotated):
    assert [example.question.id for example in annotated] == ["q2", "q3"]


def test_annotated_examples_have_parsed_verdicts(annotated):
    assert all(example.verdict.parsed for example in annotated)


def test_examples_without_a_verdict_are_counted(annotated, capsys):
    assert "annotated 2 of 3 examples" in capsys.readouterr().out


def test_the_teacher_gets_strict_instructions(annotated, server):
    for _, body in server.asked:
        assert annotators.STRICT in body["messages"][0]["content"]


def test_the_teachers_verdicts_are_forced(annotated, server):
    assert all("response_format" in body for _, body in server.asked)


NEEDLESS = TRUE.replace("Needless?", "Where was Edith Marrow born?")


@pytest.fixture
def try_revision(questions, passages):
    """Returns an example whose revised question was tried with the retriever."""
    search = load_retriever(config.Retrieval(k=1), passages)

    def try_one(question, passage, text):
        verdict = prompts.parse_verdict(text)
        example = oracle.Example(
            questions[question], (passages[passage],), "x", "seed answer", verdict
        )
        return example, annotators.try_revisions([example], search)[0]

    return try_one


def test_a_revised_question_that_finds_the_answer_is_kept(try_revision):
    before, after = try_revision(1, 5, FALSE)
    assert after == before
    assert after.revised_question == "Where was Edith Marrow born?"


@pytest.mark.parametrize(
    "question, passage, text",
    [
        (2, 5, FALSE),  # finds where she was born, not how long the river is
        (1, 1, FALSE),  # its passage already supports the answer
        (1, 5, NEEDLESS),  # the answer is judged to be true
    ],
)
def test_a_revised_question_that_does_not_help_is_dropped(try_revision, question, passage, text):
    _, after = try_revision(question, passage, text)
    assert after.revised_question == ""


def test_without_its_revised_question_a_verdict_keeps_its_text(try_revision):
    before, after = try_revision(2, 5, FALSE)
    assert after.verdict.text == before.verdict.text


def test_without_its_revised_question_a_verdict_keeps_its_judgment(try_revision):
    _, after = try_revision(1, 5, NEEDLESS)
    assert after.verdict.judgment == "true"
