"""Sample streams and answers of providers, byte for byte, with unusual spacing and unknown fields."""

from __future__ import annotations

import json
from typing import Any

CHAT_WHOLE = (
    b'{ "id":"chatcmpl-1","object":"chat.completion", "created":1,"model":"upstream-model",\n'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"Hello \\u4f60\xe5\xa5\xbd"},'
    b'"finish_reason":"stop","future":{"a":[1.0,2e3]}}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7},"unknown":null}'
)
ANTHROPIC_WHOLE = (
    b'{"id":"msg_1","type":"message","role":"assistant","model":"upstream-model","content":[{"type":"text","text":"Hello"}],'
    b'"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":2},"container":null }'
)
RESPONSES_WHOLE = json.dumps(
    {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "upstream-model",
        "output": [
            {
                "type": "message",
                "id": "msg_1",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
            }
        ],
        "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
        "surprise": {"x": 1},
    }
).encode()
GEMINI_WHOLE = (
    b'{"candidates":[{"content":{"parts":[{"text":"Hello"}],"role":"model"},"finishReason":"STOP","index":0}],\n'
    b'"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":2,"totalTokenCount":7},"modelVersion":"upstream-model"}'
)
WHOLE = {
    "openai-chat": CHAT_WHOLE,
    "openai-responses": RESPONSES_WHOLE,
    "anthropic": ANTHROPIC_WHOLE,
    "gemini": GEMINI_WHOLE,
}


def _event(document: dict[str, Any], name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(document)}\n\n".encode()


def _chat(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    document = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "upstream-model"}
    return _event({**document, "choices": [choice], "new_field": "x"})


CHAT_STREAM = [
    b": a comment first\n\n",
    _chat({"role": "assistant", "content": ""}),
    _chat({"content": "Hel"}),
    _chat({"content": "lo"})[:20],
    _chat({"content": "lo"})[20:] + _chat({}, "stop"),
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"upstream-model","choices":[],'
    b'"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}\r\n\r\n',
    b"data: [DONE]\n\n",
]
ANTHROPIC_STREAM = [
    _event(
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "upstream-model",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 5, "output_tokens": 1},
            },
        },
        "message_start",
    ),
    _event(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        "content_block_start",
    ),
    _event({"type": "ping"}, "ping"),
    _event(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        "content_block_delta",
    ),
    _event({"type": "from_the_future"}, "from_the_future"),
    _event({"type": "content_block_stop", "index": 0}, "content_block_stop"),
    _event(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 2},
        },
        "message_delta",
    ),
    _event({"type": "message_stop"}, "message_stop"),
]
_ITEM = {"type": "message", "id": "msg_1", "status": "in_progress", "role": "assistant", "content": []}
_DONE = json.loads(RESPONSES_WHOLE)
_TEXT = {"item_id": "msg_1", "output_index": 0, "content_index": 0}


def _responses(number: int, kind: str, **fields: Any) -> bytes:
    return _event({"type": kind, "sequence_number": number, **fields}, kind)


RESPONSES_STREAM = [
    _responses(0, "response.created", response={**_DONE, "status": "in_progress", "output": [], "usage": None}),
    _responses(1, "response.output_item.added", output_index=0, item=_ITEM),
    _responses(2, "response.content_part.added", **_TEXT, part={"type": "output_text", "text": "", "annotations": []}),
    _responses(3, "response.output_text.delta", **_TEXT, delta="Hello"),
    _responses(4, "response.output_text.done", **_TEXT, text="Hello"),
    _responses(5, "response.content_part.done", **_TEXT, part=_DONE["output"][0]["content"][0]),
    _responses(6, "response.output_item.done", output_index=0, item=_DONE["output"][0]),
    _responses(7, "response.completed", response=_DONE),
]
GEMINI_STREAM = [
    _event({"candidates": [{"content": {"parts": [{"text": "Hel"}], "role": "model"}, "index": 0}]}),
    _event(
        {
            "candidates": [
                {"content": {"parts": [{"text": "lo"}], "role": "model"}, "finishReason": "STOP", "index": 0}
            ],
            "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7},
            "modelVersion": "upstream-model",
        }
    ),
]
STREAM = {
    "openai-chat": CHAT_STREAM,
    "openai-responses": RESPONSES_STREAM,
    "anthropic": ANTHROPIC_STREAM,
    "gemini": GEMINI_STREAM,
}
MODELS = {
    "openai-chat": "chat-model",
    "openai-responses": "responses-model",
    "anthropic": "anthropic-model",
    "gemini": "gemini-model",
}
"""The test server's model for each format of its provider."""
PATHS = {"openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses", "anthropic": "/v1/messages"}


def request(format: str, model: str, *, stream: bool = False, text: str = "Hi") -> tuple[str, dict[str, Any]]:
    """Return path and body of a simple request."""
    if format == "gemini":
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/v1beta/models/{model}:{method}", {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    fields: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    if format == "openai-responses":
        fields = {"input": [{"role": "user", "content": text}]}
    elif format == "anthropic":
        fields["max_tokens"] = 100
    return PATHS[format], {"model": model, **({"stream": True} if stream else {}), **fields}
