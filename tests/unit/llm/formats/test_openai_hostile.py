"""Malformed input of OpenAI clients and providers raises a clear error and never crashes."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from paddock.errors import InvalidInput
from paddock.llm.formats.base import BrokenModelStream, WireFormat
from paddock.llm.formats.openai_chat import OpenAIChatFormat
from paddock.llm.formats.openai_responses import OpenAIResponsesFormat
from paddock.llm.formats.registry import FORMATS

from .openai_helpers import read_stream, sse
from .test_openai_chat import call_delta, chunk
from .test_openai_responses import CODEX

JUNK: list[Any] = [None, 0, -1, 1.5, True, "", "x", [], {}, [None], ["x"], [{}], {"type": "x"}, {"x": None}]
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USAGE = {"prompt_tokens": 1, "input_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}}
CHAT = {
    "model": "m",
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/a"}}]},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]},
        {
            "role": "assistant",
            "content": "x",
            "reasoning_content": "y",
            "reasoning_details": [{"type": "reasoning.text", "text": "y", "signature": "paddock:anthropic:s"}],
            "tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": "s"}}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [CALL]}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    "stop": ["x"],
}
CHAT_ANSWER = {
    "id": "x",
    "model": "m",
    "choices": [{"index": 0, "message": {"content": "x", "tool_calls": [CALL]}, "finish_reason": "stop"}],
    "usage": USAGE,
}
ITEMS = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}], "encrypted_content": "s"},
    {"type": "message", "content": [{"type": "output_text", "text": "x"}, {"type": "refusal", "refusal": "x"}]},
    {"type": "function_call", "call_id": "a", "name": "f", "namespace": "n", "arguments": "{}"},
    {"type": "custom_tool_call", "call_id": "b", "name": "g", "input": "x"},
]
RESPONSE = {"id": "r", "model": "m", "status": "completed", "output": ITEMS, "usage": USAGE, "incomplete_details": None}
CHAT_STREAM = [
    chunk({"role": "assistant", "content": "x"}),
    chunk({"content": "y"}),
    chunk({"reasoning": "z", "reasoning_details": [{"type": "reasoning.text", "text": "z", "signature": "s"}]}),
    chunk(call_delta(index=0, id="a", name="f", arguments="{")),
    chunk(call_delta(index=0, arguments="}")),
    chunk({}, "tool_calls", usage=USAGE),
    {"error": {"message": "x", "type": "y", "code": "z"}},
]
RESPONSES_STREAM = [
    {"type": "response.created", "response": {"id": "r", "model": "m"}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "x"},
    {"type": "response.reasoning_summary_text.delta", "output_index": 1, "delta": "x"},
    {"type": "response.output_item.added", "output_index": 2, "item": ITEMS[2]},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{}"},
    *[{"type": "response.output_item.done", "output_index": index, "item": item} for index, item in enumerate(ITEMS)],
    {"type": "response.completed", "response": RESPONSE},
]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from paths(inner, (*path, key))


def corrupted_copies(value: Any) -> Iterator[Any]:
    """Iterate over copies of a value, each with one element replaced by junk."""
    for path in paths(value):
        for junk in JUNK:
            whole = copy.deepcopy(value)
            inner = whole
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = junk
            yield whole


@pytest.mark.parametrize(
    ("form", "good"), [(OpenAIChatFormat(), CHAT), (OpenAIResponsesFormat(), CODEX)], ids=["chat", "responses"]
)
def test_a_corrupted_request_is_parsed_or_refused(form: WireFormat, good: Any) -> None:
    form.write_request(form.read_request(json.dumps(good).encode()))
    for bad in corrupted_copies(good):
        try:
            request = form.read_request(json.dumps(bad).encode())
            request.stop = []
            for other in FORMATS.values():
                other.write_request(request)
        except InvalidInput:
            pass


@pytest.mark.parametrize(
    ("form", "good"),
    [(OpenAIChatFormat(), CHAT_ANSWER), (OpenAIResponsesFormat(), RESPONSE)],
    ids=["chat", "responses"],
)
def test_a_corrupted_answer_is_parsed_or_an_error(form: WireFormat, good: Any) -> None:
    form.write_answer(form.read_answer(json.dumps(good).encode()))
    for bad in corrupted_copies(good):
        data = json.dumps(bad).encode()
        form.read_failure(500, data)
        try:
            form.write_answer(form.read_answer(data))
        except BrokenModelStream:
            pass


@pytest.mark.parametrize(
    ("form", "good"),
    [(OpenAIChatFormat(), CHAT_STREAM), (OpenAIResponsesFormat(), RESPONSES_STREAM)],
    ids=["chat", "responses"],
)
def test_a_corrupted_stream_is_parsed_or_an_error(form: WireFormat, good: Any) -> None:
    read_stream(form.new_stream_reader(), [sse(*good)])
    for bad in corrupted_copies(good):
        try:
            read_stream(form.new_stream_reader(), [sse(*bad)])
        except BrokenModelStream:
            pass


def test_lone_surrogate_in_url_is_accepted() -> None:
    part = {"type": "image_url", "image_url": "data:text/plain,\ud800"}
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [part]}]}).encode()
    assert OpenAIChatFormat().read_request(body).messages
