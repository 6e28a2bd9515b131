"""A provider on loopback that responds for every model, in the formats of OpenAI and Anthropic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.fake_provider import (
    FakeProvider,
    PlannedResponse,
    ReceivedRequest,
    json_response,
    run_fake_provider,
    sse_response,
)

TEXT = "Hello from the provider."
MODELS = ("gpt-5", "gpt-5-mini", "gpt-5.1", "claude-sonnet-4-5", "claude-haiku-4-5")


@contextmanager
def run_docs_provider() -> Iterator[FakeProvider]:
    with run_fake_provider(respond) as server:
        yield server


def respond(request: ReceivedRequest) -> PlannedResponse:
    if request.method == "GET":
        return json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in MODELS]})
    document = request.document
    anthropic = request.target.startswith("/v1/messages")
    if anthropic and document.get("stream"):
        return sse_response(
            [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in _message_events()]
        )
    if anthropic:
        return json_response(_message([{"type": "text", "text": TEXT}]))
    if document.get("stream"):
        chunks = [_chunk({"role": "assistant", "content": TEXT}), _chunk({}, "stop")]
        return sse_response([*(f"data: {json.dumps(each)}\n\n".encode() for each in chunks), b"data: [DONE]\n\n"])
    choice = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
    return json_response({**_chunk({}), "object": "chat.completion", "choices": [choice]})


def _chunk(delta: dict[str, str], reason: str | None = None) -> dict[str, object]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "gpt-5",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        "usage": {"prompt_tokens": 8, "completion_tokens": 5, "total_tokens": 13},
    }


def _message(content: list[dict[str, str]]) -> dict[str, object]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": content,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 8, "output_tokens": 5},
    }


def _message_events() -> list[dict[str, object]]:
    return [
        {"type": "message_start", "message": {**_message([]), "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
