"""Bytes are relayed unchanged if client and provider use the same format."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.integration.llm.conftest import PROVIDER_KEY
from tests.integration.llm.provider_samples import MODELS, STREAM, WHOLE, request
from tests.support.fake_provider import FakeProvider, PlannedResponse, json_response, sse_response

FORMATS = sorted(WHOLE)


@pytest.mark.parametrize("format", FORMATS)
def test_whole_answer_is_byte_identical(client: httpx.Client, fake: FakeProvider, format: str) -> None:
    fake.always_respond(
        PlannedResponse(pieces=[WHOLE[format]], headers=[("X-Unheard-Of", "kept"), ("Set-Cookie", "a=b")])
    )
    path, body = request(format, MODELS[format])
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.content == WHOLE[format]
    assert answer.headers["x-unheard-of"] == "kept" and "set-cookie" not in answer.headers
    assert answer.headers["x-paddock-exchange"].startswith("ex-")


@pytest.mark.parametrize("format", FORMATS)
def test_stream_is_byte_identical(client: httpx.Client, fake: FakeProvider, format: str) -> None:
    fake.always_respond(sse_response(STREAM[format], pause=0.002))
    path, body = request(format, MODELS[format], stream=True)
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.content == b"".join(STREAM[format])


def test_pieces_are_relayed_immediately(client: httpx.Client, fake: FakeProvider) -> None:
    pieces = STREAM["anthropic"]
    fake.always_respond(sse_response(pieces, pause=0.05))
    path, body = request("anthropic", "anthropic-model", stream=True)
    with client.stream("POST", path, json=body) as answer:
        came = [piece for piece in answer.iter_raw() if piece]
    assert b"".join(came) == b"".join(pieces)
    assert len(came) >= len(pieces) - 2


@pytest.mark.parametrize("format", FORMATS)
def test_request_body_is_byte_identical(client: httpx.Client, fake: FakeProvider, format: str) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE[format]]))
    path, body = request(format, MODELS[format])
    # The alias is the only thing that changes.
    raw = json.dumps({**body, "unknown": {"deep": [1.50, "\u00e9"]}}, indent=1, ensure_ascii=False).encode()
    headers = {"anthropic-beta": "one,two", "x-mine": "yes", "content-type": "application/json"}
    client.post(path, content=raw, headers=headers)
    got = fake.received[0]
    assert got.document == {**json.loads(raw), **({"model": "upstream-model"} if "model" in body else {})}
    assert b"1.50" not in raw or b"1.50" in got.body
    assert got.header("x-mine") == "yes" and got.header("anthropic-beta") == "one,two"
    assert "/v1beta/models/upstream-model:" in got.target or format != "gemini"


def test_request_with_provider_model_name_is_unchanged(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]]))
    raw = b'{ "messages" : [ {"role":"user","content":"x"} ],\n\t"model":"same-name","unknown":1.0 }'
    client.post("/v1/chat/completions", content=raw)
    assert fake.received[0].body == raw


@pytest.mark.parametrize(
    ("format", "header"), [("openai-chat", "authorization"), ("anthropic", "x-api-key"), ("gemini", "x-goog-api-key")]
)
def test_provider_receives_only_its_own_key(client: httpx.Client, fake: FakeProvider, format: str, header: str) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE[format]]))
    path, body = request(format, MODELS[format])
    client.post(path, json=body)
    got = fake.received[0]
    assert PROVIDER_KEY in (got.header(header) or "")
    own = client.headers["authorization"].removeprefix("Bearer ")
    assert own not in str(got.headers) and own not in got.target
    assert got.header("accept-encoding") in (None, "identity")


def test_model_pattern_forwards_the_wildcard_match(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]]))
    path, body = request("openai-chat", "wild-horse")
    assert client.post(path, json=body).status_code == 200
    assert fake.received[0].document["model"] == "tamed-horse"


def test_provider_and_model_can_be_named_directly(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]]))
    path, body = request("openai-chat", "chat/vendor/thing")
    assert client.post(path, json=body).status_code == 200
    assert fake.received[0].document["model"] == "vendor/thing"


def test_defaults_and_overrides_are_set(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]]))
    path, body = request("openai-chat", "set")
    client.post(path, json={**body, "max_tokens": 999, "top_p": 0.1})
    got = fake.received[0]
    assert got.document == {**body, "model": "upstream-model", "temperature": 0.5, "max_tokens": 7}
    assert got.header("x-team") == "blue"
    path, body = request("anthropic", "set")
    client.post(path, json=body)
    got = fake.received[1]
    assert got.document["temperature"] == 0.5 and got.document["max_tokens"] == 7


def test_whole_answer_is_streamed_if_server_ignores_stream(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]]))
    path, body = request("openai-chat", "chat-model", stream=True)
    answer = client.post(path, json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.rstrip().endswith("data: [DONE]") and "Hello" in answer.text


def test_provider_error_message_is_relayed(client: httpx.Client, fake: FakeProvider) -> None:
    document = {"error": {"message": "too long", "type": "invalid_request_error", "odd": True}}
    fake.always_respond(json_response(document, 400, headers=[("x-request-id", "req_1")]))
    path, body = request("openai-chat", "chat-model")
    answer = client.post(path, json=body)
    assert answer.status_code == 400 and answer.json() == document
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("format", ["anthropic", "openai-chat"])
def test_configured_headers_replace_client_headers(client: httpx.Client, fake: FakeProvider, format: str) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["anthropic"]]))
    path, body = request(format, "with-headers")
    headers = {"User-Agent": "client/1", "anthropic-beta": "one,two", "x-mine": "yes"}
    assert client.post(path, json=body, headers=headers).status_code == 200
    received = [(name.lower(), value) for name, value in fake.received[0].headers]
    assert [value for name, value in received if name == "user-agent"] == ["mine"]
    assert [value for name, value in received if name == "anthropic-beta"] == ["configured"]
    assert (("x-mine", "yes") in received) == (format == "anthropic")
