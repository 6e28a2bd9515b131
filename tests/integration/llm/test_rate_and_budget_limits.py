"""Clients that exceed their rate limits or budgets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.llm.provider_samples import STREAM, WHOLE, request
from tests.support.fake_provider import FakeProvider, PlannedResponse, json_response, sse_response
from tests.support.server import Server, eventually

LAST_EVENTS = {
    "openai-chat": ["[DONE]"],
    "openai-responses": ["event: response.completed"],
    "anthropic": ["event: message_stop"],
    "gemini": ['"finishReason"', '"finishReason" :'],
}
OUTPUT_TOKENS = re.compile(rb'("(?:completion_tokens|output_tokens|candidatesTokenCount)": ?)\d+')
GOOD = PlannedResponse(pieces=[WHOLE["openai-chat"]])


@pytest.fixture
def frugal(server: Server, client: httpx.Client) -> Iterator[httpx.Client]:
    """A key with a budget of 10,000 tokens."""
    body = {"name": "frugal", "scopes": ["llm:use"], "budget": {"tokens": 10_000}}
    secret = client.post("/v1/keys", json=body).json()["secret"]
    with server.client(secret) as made:
        yield made


def test_disconnecting_client_is_charged_for_the_prompt(frugal: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(before=10))
    path, body = request("openai-chat", "chat-model", text="word " * 20_000)
    with pytest.raises(httpx.ReadTimeout):
        frugal.post(path, json=body, timeout=0.3)
    eventually(lambda: fake.disconnects == 1)
    fake.always_respond(GOOD)
    path, body = request("openai-chat", "chat-model")
    eventually(lambda: frugal.post(path, json=body).status_code == 402)


@pytest.mark.parametrize("model", ["own", "translated"])
@pytest.mark.parametrize("format", sorted(STREAM))
def test_stream_is_charged_before_its_client_can_ask_again(
    server: Server, client: httpx.Client, fake: FakeProvider, format: str, model: str
) -> None:
    body = {"name": "quick", "scopes": ["llm:use"], "budget": {"tokens": 1000}}
    secret = client.post("/v1/keys", json=body).json()["secret"]
    provider_format = format if model == "own" else "anthropic" if format == "openai-chat" else "openai-chat"
    # The provider's connection stays open after the last event, which is where clients stop to read.
    pieces = [OUTPUT_TOKENS.sub(rb"\g<1>2000", piece) for piece in STREAM[provider_format]]
    fake.always_respond(sse_response(pieces, hold=10))
    path, asked = request(format, f"{provider_format.removeprefix('openai-')}-model", stream=True)
    with server.client(secret) as quick, quick.stream("POST", path, json=asked) as answer:
        received = ""
        for text in answer.iter_text():
            received += text
            if any(end in received for end in LAST_EVENTS[format]):
                break
        assert answer.status_code == 200
        with server.client(secret) as next_client:
            assert next_client.post(path, json=asked).status_code == 402


def test_failing_model_does_not_block_others_of_its_provider(client: httpx.Client, fake: FakeProvider) -> None:
    def script(received: Any) -> PlannedResponse:
        return json_response({"error": "x"}, 500) if received.document["model"] == "tamed-boom" else GOOD

    fake.script = script
    path, boom = request("openai-chat", "wild-boom")
    _, good = request("openai-chat", "wild-good")
    assert {client.post(path, json=boom).status_code for _ in range(12)} == {500, 503}
    assert {client.post(path, json=good).status_code for _ in range(3)} == {200}


def test_parsed_requests_with_too_many_values_are_refused(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(GOOD)
    messages = [{"role": "user", "content": "x"}] * 60_000
    body = {"model": "chat-model", "max_tokens": 5, "messages": messages}
    answer = client.post("/v1/messages", json=body)
    assert answer.status_code == 413 and "too many" in answer.json()["error"]["message"]
    # An estimate looks at parts of a long request only.
    long = {**body, "messages": [{"role": "user", "content": "two words " * 40_000}]}
    answer = client.post("/v1/messages/count_tokens", json=long)
    assert answer.status_code == 200 and answer.headers["x-paddock-estimated"] == "true"
    assert 90_000 < answer.json()["input_tokens"] < 110_000
    assert client.post("/v1/chat/completions", json=body).status_code == 200


def test_lone_surrogates_do_not_affect_other_requests(client: httpx.Client, fake: FakeProvider) -> None:
    def script(received: Any) -> PlannedResponse:
        if "odd" in received.body.decode():
            return PlannedResponse(status=400, pieces=[b'{"error": {"message": "cut \\ud83d", "type": "x"}}'])
        return GOOD

    fake.script = script
    exchange_ids = []
    for number in range(6):
        path, body = request("openai-chat", "chat-model", text="odd" if number == 3 else f"even {number}")
        exchange_ids.append(client.post(path, json=body).headers["x-paddock-exchange"])
    for exchange_id in exchange_ids:
        assert client.get(f"/v1/exchanges/{exchange_id}").status_code == 200
    assert client.get("/v1/llm").json()["archive"]["lost"] == 0


def test_key_in_the_query_is_not_forwarded(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["anthropic"]]))
    path, body = request("anthropic", "anthropic-model")
    client.post(f"{path}?beta=true&key=pdk_secret", json=body)
    assert fake.received[0].target == "/v1/messages?beta=true"
