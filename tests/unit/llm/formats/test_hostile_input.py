"""Malformed input of clients and providers raises a clear error and never crashes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import InvalidInput
from paddock.llm.formats.anthropic import AnthropicFormat
from paddock.llm.formats.base import BrokenModelStream, WireFormat
from paddock.llm.formats.gemini import GeminiFormat
from paddock.llm.formats.neutral import ModelRequest
from paddock.llm.formats.registry import FORMATS

REQUESTS: dict[str, Any] = {
    "anthropic": {
        "model": "m",
        "system": [{"type": "text", "text": "x"}],
        "messages": [
            {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x/a"}}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "x", "signature": "paddock:gemini:x"},
                    {"type": "tool_use", "id": "a", "name": "b", "input": {}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]},
        ],
        "tools": [{"name": "b", "input_schema": {"type": "object", "properties": {"a": {"enum": ["x"]}}}}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 1},
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "x"}]},
        "contents": [
            {"role": "model", "parts": [{"functionCall": {"name": "a", "args": {}}}]},
            {"parts": [{"functionResponse": {"name": "a", "response": {"output": "x"}}}]},
            {"parts": [{"fileData": {"mimeType": "image/png", "fileUri": "https://[/a.png"}}]},
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "a",
                        "parameters": {
                            "type": "OBJECT",
                            "required": ["x"],
                            "allOf": [{"properties": {}}],
                            "properties": {"x": {"anyOf": [{"type": "STRING"}], "nullable": True, "enum": ["a"]}},
                        },
                    }
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a"]}},
        "generationConfig": {"thinkingConfig": {"thinkingBudget": 5}, "stopSequences": ["x"]},
    },
}
ANSWERS: dict[str, Any] = {
    "anthropic": {
        "type": "message_start",
        "id": "x",
        "content": [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "a", "name": "b", "input": {}}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1},
        "message": {"id": "x", "usage": {"input_tokens": 1}},
    },
    "gemini": {
        "candidates": [
            {"content": {"parts": [{"text": "x"}, {"functionCall": {"name": "a"}}]}, "finishReason": "STOP"}
        ],
        "usageMetadata": {"promptTokenCount": 1},
        "promptFeedback": {"blockReason": "SAFETY"},
    },
}
JUNK: list[Any] = [None, True, 7, -1.5, "", "x", [], [[]], {}, {"a": None}, [None], ["x"], [{}]]


def _field_paths(value: Any) -> list[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [field for key in keys for field in _field_paths(value[key])]


def _with_wrong_field(whole: Any, where: int, junk: Any) -> bytes:
    whole = json.loads(json.dumps(whole))
    field_paths = _field_paths(whole)
    holder, key = field_paths[where % len(field_paths)]
    holder[key] = junk
    return json.dumps(whole).encode()


@pytest.mark.parametrize("source", [AnthropicFormat(), GeminiFormat()], ids=lambda source: source.name)
@settings(max_examples=50, deadline=None)
@given(where=st.integers(0, 99), junk=st.sampled_from(JUNK))
def test_one_wrong_field_is_named_or_ignored(source: WireFormat, where: int, junk: Any) -> None:
    check(source, where, junk)


def check(source: WireFormat, where: int, junk: Any) -> None:
    """Parse the input; only errors of the contract may be raised."""
    try:
        request = source.read_request(_with_wrong_field(REQUESTS[source.name], where, junk), model="m", stream=False)
        for target in FORMATS.values():
            target.write_request(request)
    except InvalidInput:
        pass
    data = _with_wrong_field(ANSWERS[source.name], where, junk)
    try:
        answer = source.read_answer(data)
        for target in FORMATS.values():
            target.write_answer(answer)
    except BrokenModelStream:
        pass
    reader = source.new_stream_reader()
    try:
        events = reader.feed(b"data: " + data + b"\n\n")
        for target in FORMATS.values():
            writer = target.new_stream_writer(ModelRequest("m", [], stream=True))
            for event in events:
                writer.write(event)
        reader.close()
    except BrokenModelStream:
        pass
    assert source.read_failure(500, data).message
