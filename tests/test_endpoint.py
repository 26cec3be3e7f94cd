"""The endpoint and the teacher, tested with a local server that fails in many ways."""

import json
import math
import time
import traceback
from dataclasses import replace
from types import SimpleNamespace

import jsonschema
import pytest
from toy_web import reply, serve

from covrag_lite import config, evaluate, prompts, recipe, synthesis
from covrag_lite.engine.endpoint import Endpoint, EndpointError, json_schema
from covrag_lite.engine.interface import load_engine
from covrag_lite.journal import Journal
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.manifest import build_manifest
from covrag_lite.task_model import TaskModel

KEY = "sk-secret-0123456789abcdef"
TRUE = prompts.render_verdict((0.9, 0.9, 0.9, 0.9, 0.1, 0.9), "true", "Needless?")
FALSE = prompts.render_verdict((0.1, 0.1, 0.1, 0.1, 0.9, 0.9), "false", "Where was Edith Marrow born?")


def message(content, refusal=None, finish="stop"):
    """A chat completion as JSON."""
    said = {"role": "assistant", "content": content, "refusal": refusal}
    about = {"id": "1", "object": "chat.completion", "created": 1, "model": "toy"}
    used = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    return about | {"usage": used, "choices": [{"index": 0, "finish_reason": finish, "message": said}]}


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
    "locked": say({"error": {"message": f"Incorrect API key provided: {KEY[:6]}***{KEY[-4:]}"}}, "401 Locked"),
}


def write_by_task(prompt):
    """The default reply of the server's model to a prompt."""
    return FALSE if prompts.VERIFY_MARKER in prompt else "Edith Marrow[1]"


@pytest.fixture
def server(monkeypatch):
    """A server that replies from a script: one entry per request; the last entry is repeated."""
    server = SimpleNamespace(script=["good"], write=write_by_task, pause=0, asked=[])

    def answer(connection, path):
        body = json.loads(site.own.body)
        with site.lock:
            server.asked.append((time.monotonic(), body))
            way = server.script.pop(0) if len(server.script) > 1 else server.script[0]
        site.wait(0.8 if way == "slow" else server.pause)
        written = say(message(server.write(body["messages"][0]["content"])))
        if way == "no_schema" and "response_format" in body:
            written = say({"error": {"message": "response_format is not supported"}}, "400 Unknown")
        connection.sendall(WAYS.get(way, written))

    with serve({"/v1/chat/completions": answer}) as site:
        server.site, server.port = site, site.port
        monkeypatch.setenv("OPENAI_BASE_URL", site.url("/v1"))
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


def connect(retries=2, timeout=5.0, at_once=2):
    endpoint = Endpoint(config.Model(model="endpoint:toy"), retries, timeout)
    endpoint.at_once = at_once
    return endpoint


def ask(endpoint, *asked):
    return [one.text for one in endpoint.complete(asked, 9)]


def verify(endpoint, *asked):
    return [one.text for one in endpoint.fill(asked, prompts.SCHEMA, 32)]


def write(endpoint, asked, path):
    """Answer questions through the journal."""
    return TaskModel(endpoint.settings, endpoint, Journal(path)).write("answer", asked, 9)


@pytest.fixture
def search(passages):
    return load_retriever(config.Retrieval(k=2), passages)


@pytest.fixture
def examples(questions, search):
    found = map(tuple, search([question.question for question in questions[:3]]))
    answers = [f"Edith Marrow[{number}]" for number in (1, 2, 3)]
    return [synthesis.Example(*one, "seed answer") for one in zip(questions, found, answers)]


def spoken(error):
    """Everything that an error can show: message, traceback and chained errors."""
    texts = []
    while error:
        texts += [repr(error), str(vars(error)), "".join(traceback.format_exception(error))]
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


def test_every_system_runs_behind_an_endpoint_as_behind_a_model(server, tmp_path, questions, passages):
    settings = config.Config().change(model="endpoint:toy", k=2, runs=str(tmp_path))
    resources = evaluate.load_resources(settings, passages)
    predictions = evaluate.run_system("CoV-RAG", settings, resources, questions[:2])
    assert isinstance(resources.model, Endpoint)
    assert [prediction.answer for prediction in predictions] == ["Edith Marrow[1]"] * 2
    first, second = predictions[0].rounds
    assert first.verdict.judgment == "false" and second.query == "Where was Edith Marrow born?"
    for _, body in server.asked:
        is_verification = prompts.VERIFY_MARKER in body["messages"][0]["content"]
        assert body["temperature"] == 0 and body["model"] == "toy"
        assert ("response_format" in body) == is_verification
    manifest = build_manifest(settings, resources.model, 1.0, questions=questions, passages=passages)
    assert KEY not in json.dumps(manifest)


def test_the_schema_asked_for_is_the_one_that_is_parsed():
    for parts in (prompts.SCHEMA, prompts.DIRECT):
        text = "".join(prompts.fill(parts, [0.25] * 6, "unclear", "Who?"))
        jsonschema.validate(json.loads(text), json_schema(parts))
    for bad in (text.replace('"4"', '"5"'), TRUE.replace("true", "maybe"), TRUE.replace("0.90", "1.90")):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(bad), json_schema(prompts.SCHEMA))


@pytest.mark.parametrize(
    "script, requests",
    [(["broken", "broken", "good"], 3), (["cut", "good"], 2), (["dropped", "good"], 2), (["busy", "good"], 2)],
)
def test_what_may_pass_is_tried_again(server, script, requests):
    server.script = script
    assert ask(connect(), "who?") == ["Edith Marrow[1]"] and len(server.asked) == requests
    waits = [b[0] - a[0] for a, b in zip(server.asked, server.asked[1:])]
    assert waits == sorted(waits) and waits[0] > 0.3  # ever longer, or as long as Retry-After asks


@pytest.mark.parametrize(
    "way, said, requests",
    [
        ("broken_briefly", "status 503", 3),
        ("busy", "status 429, .*too many requests", 3),
        ("page", "not a chat completion", 1),
        ("strange", "not a chat completion", 1),
        ("locked", r"refused the key in OPENAI_API_KEY \(status 401\)", 1),
        ("dropped", "the connection failed", 3),
        ("slow", "no answer within 0.3 s", 3),
    ],
)
def test_retries_end_in_an_error_that_says_what_happened(server, way, said, requests):
    server.script = [way]
    with pytest.raises(EndpointError, match=f"'toy' at 127.0.0.1:{server.port}/v1: .*{said}"):
        ask(connect(timeout=0.3 if way == "slow" else 5.0), "who?")
    assert len(server.asked) == requests


def test_texts_come_in_the_order_of_their_prompts_with_no_more_requests_under_way_than_allowed(server, tmp_path):
    server.write, server.pause = str.upper, 0.05
    assert write(connect(at_once=3), "abcdefghijkl", tmp_path / "journal.jsonl") == list("ABCDEFGHIJKL")
    assert 1 < server.site.most_at_once <= 3 and len(server.asked) == 12


def test_a_verdict_that_is_none_is_data(server):
    server.script = ["half", "wrong", "refusal"]
    written = verify(connect(), "is it?", "and this?", "and that?")
    assert written == [TRUE[: len(TRUE) // 2].strip(), WRONG, "I cannot judge this."]
    assert not any(prompts.parse_verdict(one).parsed for one in written)


def test_a_server_without_schemas_is_asked_in_plain_text(server):
    server.script = ["no_schema"]
    endpoint = connect()
    with pytest.warns(UserWarning, match="verdicts are not forced, because the server refuses response_format"):
        assert verify(endpoint, "is it?") == ["Edith Marrow[1]"] and len(server.asked) == 3
    assert endpoint.used["fallback: verdicts are not forced"] == 1
    verify(endpoint.with_adapter("cov"), "is it?", "and this?")
    assert len(server.asked) == 5 and not any("response_format" in body for _, body in server.asked[2:])
    assert all("logprobs" in body for _, body in server.asked[2:])  # it was not to blame


def tell(text, chances, size=1):
    """A message split into tokens of equal length; some tokens have alternatives."""
    made = []
    for start in range(0, len(text), size):
        token = text[start : start + size]
        likely = chances.get(start, {token: 1.0})
        others = [{"token": one, "logprob": math.log(p), "bytes": None} for one, p in likely.items()]
        made.append({"token": token, "logprob": math.log(likely[token]), "bytes": None, "top_logprobs": others})
    told = message(text)
    told["choices"][0]["logprobs"] = {"content": made, "refusal": None}
    return told


def test_an_answers_likelihood_is_the_mean_of_its_tokens_and_scores_are_expected_digit_by_digit(server):
    place = TRUE.index("0.90")  # reference_correctness, the first; all others are certain
    likely = {place: {"0": 0.8, "1": 0.1, " ": 0.1}, place + 2: {"9": 0.4, "5": 0.4, '"': 0.2}}
    WAYS["answer"] = say(tell("No", {0: {"N": 0.5}, 1: {"o": 0.25, "a": 0.75}}))
    WAYS["digits"], WAYS["whole"] = say(tell(TRUE, likely)), say(tell(TRUE, {}, size=4))
    server.script = ["answer", "good", "digits", "whole"]
    answer, untold = connect().complete(["is it?"] * 2, 9)
    assert answer == ("No", {"likelihood": round(1.5 * math.log(0.5), 5)}) and untold.probabilities is None
    digits, whole = connect().fill(["is it?"] * 2, prompts.SCHEMA, 32)
    # Among what is allowed: 1/9 for a 1, and 8/9 for a 0 with 7 tenths on average.
    assert digits.probabilities["reference_correctness"] == pytest.approx(1 / 9 + 8 / 9 * 0.7, abs=1e-5)
    assert digits.probabilities["bias"] == 0.1 and len(digits.probabilities) == 6 and whole.probabilities is None


def test_served_adapters_are_asked_for_by_their_names_and_another_sample_by_a_seed(server):
    endpoint = Endpoint(config.Model(model="endpoint:toy", adapters="served"))
    reader = endpoint.with_adapter("rag")
    ask(reader, "who?"), ask(endpoint, "who?"), ask(connect().with_adapter("rag"), "who?")
    assert [body["model"] for _, body in server.asked] == ["rag", "toy", "toy"]
    assert reader.fingerprint == f"{endpoint.fingerprint}+rag" and reader.weights_hash == endpoint.fingerprint
    assert reader.used is endpoint.used and reader.used["requests"] == 2 and reader.used["prompt_tokens"] == 200
    reader.complete(["who?"], 9, sample=3)
    assert [(body["temperature"], body.get("seed")) for _, body in server.asked] == [*[(0, None)] * 3, (1, 3)]


def test_what_was_answered_before_a_failure_is_journaled_at_once(server, tmp_path):
    path = tmp_path / "journal.jsonl"
    server.script = ["good", "good", "good", "broken_briefly", "good"]
    asked = [f"who is {i}?" for i in range(8)]
    with pytest.raises(EndpointError, match="503"):
        write(connect(retries=0), asked, path)
    had = len(Journal(path).texts)
    assert 3 <= had <= 5  # earlier ones, and the one that ran with the failed one
    server.script, server.asked = ["good"], []
    assert len(write(connect(), asked, path)) == 8 and len(server.asked) == 8 - had


def test_the_fingerprint_knows_server_and_model_but_no_secret_and_what_is_missing_is_named(server, monkeypatch):
    first, address = connect(), f"127.0.0.1:{server.port}"
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://me:{KEY}@{address}/v1?key={KEY}")
    second = connect()
    assert second.fingerprint == first.fingerprint and second.server == f"{address}/v1"
    assert Endpoint(replace(first.settings, model="endpoint:other")).fingerprint != first.fingerprint
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000/v1")
    with pytest.raises(EndpointError, match="set OPENAI_BASE_URL to its address, http://"):
        ask(connect(retries=0), "who?")
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ValueError, match="a key in OPENAI_API_KEY .* and the server's address in OPENAI_BASE_URL"):
        load_engine(first.settings)


def test_nothing_shows_the_key(server, examples, search, tmp_path, capsys):
    endpoint = connect(retries=0)
    endpoint.client.timeout = 0.3
    asked = TaskModel(endpoint.settings, endpoint, Journal(tmp_path / "journal.jsonl"))
    told = []
    for way in ("broken", "locked", "slow", "dropped", "no_schema"):
        server.script = [way]
        try:
            recipe.annotate_with_teacher(examples, asked, search)
        except EndpointError as error:
            told.append(spoken(error))
    journaled = (tmp_path / "journal.jsonl").read_text()
    shown = "".join([*told, repr(endpoint), str(vars(endpoint)), journaled, *capsys.readouterr()])
    assert len(told) == 4 and "no luck with Bearer …" in shown
    assert KEY not in shown and KEY[:6] not in shown and KEY[-4:] not in shown


def test_rubbish_is_left_out_and_counted(server, examples, search, tmp_path, capsys):
    server.write = lambda prompt: "I would rather not." if '"answer": Edith Marrow[1]' in prompt else FALSE
    settings = config.Config().change(annotator="endpoint:toy", runs=str(tmp_path))
    annotate = recipe.load_annotator(settings)
    made = annotate(examples, {}, search)
    assert [one.question.id for one in made] == ["q2", "q3"] and all(one.verdict.parsed for one in made)
    assert "annotated 2 of 3 examples" in capsys.readouterr().out
    for _, body in server.asked:
        assert recipe.STRICT in body["messages"][0]["content"] and "response_format" in body


def test_a_revised_question_stays_only_where_it_finds_what_was_missing(questions, passages):
    needless = TRUE.replace("Needless?", "Where was Edith Marrow born?")
    cases = [
        (questions[1], passages[5], FALSE),
        (questions[2], passages[5], FALSE),  # finds where she was born, not how long the river is
        (questions[1], passages[1], FALSE),  # had it
        (questions[1], passages[5], needless),
    ]
    judged = [synthesis.Example(a, (b,), "x", "seed answer", prompts.parse_verdict(text)) for a, b, text in cases]
    made = recipe.try_revisions(judged, load_retriever(config.Retrieval(k=1), passages))
    assert [one.verdict.revised_question for one in made] == ["Where was Edith Marrow born?", "", "", ""]
    assert made[0] == judged[0] and made[1].verdict.text == judged[1].verdict.text
    assert made[3].verdict.judgment == "true"
