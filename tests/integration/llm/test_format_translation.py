"""Client and provider with different formats each get their own."""

from __future__ import annotations

import httpx
import pytest

from paddock.llm.formats.answer_events import StreamedAnswerBuilder
from paddock.llm.formats.neutral import FinishReason, ModelText
from paddock.llm.formats.neutral import ModelAnswer as Neutral
from paddock.llm.formats.registry import FORMATS
from tests.integration.llm.provider_samples import MODELS, STREAM, WHOLE, request
from tests.support.fake_provider import FakeProvider, PlannedResponse, json_response, sse_response

PAIRS = [(client, provider) for client in sorted(FORMATS) for provider in sorted(FORMATS) if client != provider]


def check(answer: Neutral, requested_model: str) -> None:
    assert [part.text for part in answer.parts if isinstance(part, ModelText)] == ["Hello"]
    assert answer.finish is FinishReason.STOP
    assert answer.usage is not None and (answer.usage.input, answer.usage.output) == (5, 2)
    assert requested_model in (answer.model, "")


@pytest.mark.parametrize(("format", "provider"), PAIRS)
def test_whole_answer_is_translated(client: httpx.Client, fake: FakeProvider, format: str, provider: str) -> None:
    body = WHOLE[provider].replace(" \\u4f60\xe5\xa5\xbd".encode("latin-1"), b"")
    fake.always_respond(PlannedResponse(pieces=[body]))
    path, request_body = request(format, MODELS[provider], text="What is new?")
    answer = client.post(path, json=request_body)
    assert answer.status_code == 200, answer.text
    check(FORMATS[format].read_answer(answer.content), MODELS[provider])
    upstream_request = FORMATS[provider].read_request(fake.received[0].body, model="upstream-model", stream=False)
    assert upstream_request.model == "upstream-model" and upstream_request.messages[-1].parts == [
        ModelText("What is new?")
    ]


@pytest.mark.parametrize(("format", "provider"), PAIRS)
def test_stream_is_translated(client: httpx.Client, fake: FakeProvider, format: str, provider: str) -> None:
    fake.always_respond(sse_response(STREAM[provider]))
    path, request_body = request(format, MODELS[provider], stream=True)
    answer = client.post(path, json=request_body)
    assert answer.status_code == 200, answer.text
    reader, collector = FORMATS[format].new_stream_reader(), StreamedAnswerBuilder()
    for event in [*reader.feed(answer.content), *reader.close()]:
        collector.add(event)
    assert collector.complete
    chat_without_usage = format == "openai-chat"
    if chat_without_usage:
        assert collector.answer.usage is None
        collector.answer.usage = FORMATS[provider].read_answer(WHOLE[provider]).usage
    check(collector.answer, MODELS[provider])


def test_gemini_client_can_request_a_json_array(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(sse_response(STREAM["anthropic"]))
    _, request_body = request("gemini", "anthropic-model")
    answer = client.post("/v1beta/models/anthropic-model:streamGenerateContent", json=request_body)
    parts = answer.json()
    assert isinstance(parts, list) and answer.headers["content-type"] == "application/json"
    assert "Hello" in answer.text and parts[-1]["candidates"][0]["finishReason"] == "STOP"


@pytest.mark.parametrize(("format", "provider"), PAIRS)
def test_errors_use_the_clients_format(client: httpx.Client, fake: FakeProvider, format: str, provider: str) -> None:
    fake.always_respond(json_response({"error": {"message": "no such thing", "type": "not_found_error"}}, 404))
    path, request_body = request(format, MODELS[provider])
    answer = client.post(path, json=request_body)
    assert answer.status_code == 404
    assert "no such thing" in FORMATS[format].read_failure(404, answer.content).message
    assert answer.headers["x-should-retry"] == "false"


def test_pings_are_sent_while_the_provider_is_silent(client: httpx.Client, fake: FakeProvider) -> None:
    pieces = STREAM["openai-chat"]
    fake.always_respond(sse_response(pieces[:3] + [b": keeps the stall limit away\n\n"] * 2 + pieces[3:], pause=0.3))
    path, request_body = request("anthropic", "chat-model", stream=True)
    answer = client.post(path, json=request_body)
    assert "event: ping" in answer.text and answer.text.rstrip().endswith("}")
    assert "message_stop" in answer.text
