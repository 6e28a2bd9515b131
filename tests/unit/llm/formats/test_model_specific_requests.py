"""Requests differ by model and server: reasoning, sampling, limits and schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddock.errors import InvalidInput
from paddock.llm.formats.answer_events import answer_from_stream_events
from paddock.llm.formats.base import BrokenModelStream, UntranslatableRequest, WireFormat
from paddock.llm.formats.neutral import (
    MessageRole,
    ModelFailure,
    ModelMedia,
    ModelMessage,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ProviderSignature,
    ReasoningEffort,
    ToolChoice,
    ToolDefinition,
)
from paddock.llm.formats.registry import FORMATS

from .openai_helpers import sse
from .test_openai_chat import chunk

HELLO = ModelMessage(MessageRole.USER, [ModelText("Hello")])


def sent(form: str, model: str = "m", dialect: str | None = None, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    request = ModelRequest(model, [HELLO], **fields)
    if dialect is not None:
        request.extra["thinking_dialect"] = dialect
    return json.loads(FORMATS[form].write_request(request)), request.notes


@pytest.mark.parametrize(
    ("dialect", "fields", "expected"),
    [
        ("effort", {"effort": ReasoningEffort.LOW}, {"reasoning_effort": "low"}),
        ("effort", {"thinking_budget": 20_000}, {"reasoning_effort": "high"}),
        ("enable_thinking", {"effort": ReasoningEffort.NONE}, {"enable_thinking": False}),
        ("enable_thinking", {"effort": ReasoningEffort.HIGH}, {"enable_thinking": True}),
        ("enable_thinking", {"effort": ReasoningEffort.LOW}, {"enable_thinking": True, "thinking_budget": 4096}),
        ("enable_thinking", {"thinking_budget": 999_999}, {"enable_thinking": True, "thinking_budget": 32_768}),
        ("enable_thinking", {"top_k": 5}, {"top_k": 5}),
        ("enable_thinking", {"effort": ReasoningEffort.HIGH, "json_mode": True}, {"enable_thinking": False}),
        ("type", {"effort": ReasoningEffort.MINIMAL}, {"thinking": {"type": "enabled"}}),
        ("type", {"thinking_budget": 0}, {"thinking": {"type": "disabled"}}),
        ("none", {"effort": ReasoningEffort.HIGH}, {}),
        ("enable_thinking", {}, {}),
        ("type", {}, {}),
    ],
)
def test_reasoning_is_requested_in_the_servers_dialect(dialect: str, fields: Any, expected: dict[str, Any]) -> None:
    body, _ = sent("openai-chat", dialect=dialect, **fields)
    for name in ("model", "messages", "response_format"):
        body.pop(name, None)
    assert body == expected


def test_thinking_is_off_without_a_stream_for_streaming_only_models() -> None:
    assert sent("openai-chat", "qwen3-32b", "enable_thinking")[0]["enable_thinking"] is False
    assert "enable_thinking" not in sent("openai-chat", "qwen3-32b", "enable_thinking", stream=True)[0]
    assert "enable_thinking" not in sent("openai-chat", "qwen-plus", "enable_thinking")[0]


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        ("gpt-4o", ReasoningEffort.HIGH, None),
        ("gpt-5", ReasoningEffort.NONE, "minimal"),
        ("gpt-5", ReasoningEffort.MAX, "high"),
        ("gpt-5.2", ReasoningEffort.NONE, "none"),
        ("gpt-5.2", ReasoningEffort.MAX, "xhigh"),
        ("gpt-5.2", ReasoningEffort.MINIMAL, "low"),
        ("o3", ReasoningEffort.NONE, "low"),
        ("qwen3", ReasoningEffort.XHIGH, "high"),
        ("qwen3", ReasoningEffort.NONE, "none"),
    ],
)
@pytest.mark.parametrize("form", ["openai-chat", "openai-responses"])
def test_efforts_are_mapped_to_supported_ones(
    form: str, model: str, effort: ReasoningEffort, expected: str | None
) -> None:
    body, notes = sent(form, model, effort=effort)
    found = body.get("reasoning_effort") if form == "openai-chat" else body.get("reasoning", {}).get("effort")
    assert found == expected
    assert bool(notes) == (expected != effort)


def test_reasoning_models_get_no_temperature() -> None:
    for form in ("openai-chat", "openai-responses"):
        body, notes = sent(form, "gpt-5", temperature=0.2)
        assert "temperature" not in body and notes
        assert sent(form, "gpt-5", temperature=1.0)[0]["temperature"] == 1
        assert sent(form, "gpt-5.2", temperature=0.2)[0]["temperature"] == 0.2
        assert sent(form, "gpt-4o", temperature=0.2)[0]["temperature"] == 0.2


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        ("claude-3-haiku-20240307", None, 4096),
        ("claude-3-5-sonnet-latest", 64_000, 8192),
        ("claude-opus-4-1", 64_000, 32_000),
        ("claude-opus-4-5", 64_000, 64_000),
        ("claude-sonnet-4-5", None, 32_000),
        ("glm-5", None, 32_000),
    ],
)
def test_max_tokens_is_limited_to_the_models_maximum(model: str, given: int | None, expected: int) -> None:
    body, notes = sent("anthropic", model, max_tokens=given)
    assert body["max_tokens"] == expected
    assert bool(notes) == (given != expected)


@pytest.mark.parametrize(
    ("model", "fields", "thinking", "effort"),
    [
        ("claude-sonnet-4-5", {"effort": ReasoningEffort.MAX}, {"type": "enabled", "budget_tokens": 9999}, None),
        ("claude-opus-4-6", {"effort": ReasoningEffort.MAX}, {"type": "adaptive"}, "max"),
        ("claude-sonnet-4-6", {"effort": ReasoningEffort.XHIGH}, {"type": "adaptive"}, "high"),
        ("claude-opus-4-7", {"effort": ReasoningEffort.XHIGH}, {"type": "adaptive"}, "xhigh"),
        ("claude-sonnet-4-5", {"effort": ReasoningEffort.LOW, "tool_choice": ToolChoice.ANY}, None, None),
    ],
)
def test_thinking_mode_fits_the_claude_version(model: str, fields: Any, thinking: Any, effort: str | None) -> None:
    body, _ = sent("anthropic", model, max_tokens=10_000, temperature=0.3, tools=[ToolDefinition("f")], **fields)
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == effort
    assert ("temperature" in body) == (thinking is None)


def test_anthropic_schemas_forbid_additional_properties() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}}
    body, _ = sent("anthropic", "claude-opus-4-5", max_tokens=9, json_schema=schema)
    written = body["output_config"]["format"]["schema"]
    assert written["additionalProperties"] is False
    assert written["properties"]["a"]["items"] == {"type": "object", "additionalProperties": False}
    assert "additionalProperties" not in schema


def test_max_output_tokens_is_raised_to_the_minimum() -> None:
    body, notes = sent("openai-responses", max_tokens=1)
    assert body["max_output_tokens"] == 16 and notes


@pytest.mark.parametrize(("form", "field"), [("openai-chat", "image_url"), ("openai-responses", "detail")])
def test_image_detail_is_kept(form: str, field: str) -> None:
    picture = ModelMedia("image", "image/png", "AAAA", detail="low")
    request = ModelRequest("m", [ModelMessage(MessageRole.USER, [picture, ModelText("x")])])
    again = FORMATS[form].read_request(FORMATS[form].write_request(request))
    assert again.messages[0].parts[0] == picture
    # The other formats have no such setting, and need no note.
    FORMATS["anthropic"].write_request(request)
    FORMATS["gemini"].write_request(request)
    assert not [text for text in request.notes if "detail" in text]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_are_read_from_all_known_fields(name: str) -> None:
    reader = FORMATS["openai-chat"].new_stream_reader()
    events = reader.feed(
        sse(*[chunk({name: text}) for text in ("I ", "think")], chunk({"content": "So"}), chunk({}, "stop"))
    )
    answer = answer_from_stream_events(events + reader.close())
    assert answer is not None and answer.parts == [ModelThinking("I think"), ModelText("So")]


def test_openrouter_reasoning_details_are_preserved() -> None:
    pieces = [
        chunk({"reasoning": "I ", "reasoning_details": [{"type": "reasoning.text", "text": "I ", "index": 0}]}),
        chunk({"reasoning": "do", "reasoning_details": [{"type": "reasoning.text", "text": "do", "index": 0}]}),
        chunk({"reasoning_details": [{"type": "reasoning.text", "signature": "S", "index": 0}]}),
        chunk({"content": "So"}),
        chunk({}, "stop"),
    ]
    reader = FORMATS["openai-chat"].new_stream_reader()
    answer = answer_from_stream_events(reader.feed(sse(*pieces)) + reader.close())
    assert answer is not None
    [thought, text] = answer.parts
    assert isinstance(thought, ModelThinking) and isinstance(thought.signature, ProviderSignature)
    assert (thought.text, thought.signature.maker, text) == ("I do", "openai-chat", ModelText("So"))
    # An Anthropic client sends it back, and the server gets its own field.
    content = json.loads(FORMATS["anthropic"].write_answer(answer))["content"]
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": content}]}
    request = FORMATS["anthropic"].read_request(json.dumps(body).encode())
    again = json.loads(FORMATS["openai-chat"].write_request(request))["messages"][1]
    assert again["reasoning_details"] == [{"type": "reasoning.text", "text": "I do", "index": 0, "signature": "S"}]
    assert again["reasoning"] == "I do"


def test_call_signatures_are_sent_only_to_gemini() -> None:
    call = ModelToolCall("c", "f", "{}", ProviderSignature("S", "gemini"))
    for model, is_kept in (("google/gemini-3-pro", True), ("gpt-5", False)):
        request = ModelRequest(model, [HELLO, ModelMessage(MessageRole.ASSISTANT, [call])])
        assert (b"S" in FORMATS["openai-chat"].write_request(request).partition(b"extra_content")[2]) == is_kept


COUNTED: list[WireFormat] = [FORMATS["anthropic"], FORMATS["gemini"]]


@pytest.mark.parametrize("form", COUNTED, ids=lambda form: form.name)
def test_tokens_are_counted(form: WireFormat) -> None:
    request = ModelRequest(
        "m", [HELLO], tools=[ToolDefinition("f", "F", {"type": "object", "properties": {"a": {}}})], temperature=1
    )
    body = form.write_token_count_request(request)
    assert not {"max_tokens", "stream", "temperature", "store", "max_output_tokens"} & json.loads(body).keys()
    again = form.read_request(body, model="m")
    assert again.messages == [HELLO]
    assert [tool.name for tool in again.tools] == ["f"]
    assert form.read_token_count(form.write_token_count(7)) == 7
    for junk in (b"", b"[]", b"{}", b'{"input_tokens":"x","totalTokens":"x"}'):
        with pytest.raises(BrokenModelStream):
            form.read_token_count(junk)


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses"])
def test_openai_does_not_count_tokens(format: str) -> None:
    with pytest.raises(UntranslatableRequest):
        FORMATS[format].write_token_count_request(ModelRequest("m", [HELLO]))


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (401, b'{"error":{"message":"no","type":"invalid_request_error","code":"x"}}', "authentication_error"),
        (400, b'{"error":{"message":"no","details":[{"reason":"API_KEY_INVALID"}]}}', "authentication_error"),
        (500, b'{"type":"error","error":{"type":"overloaded_error","message":"no"}}', "overloaded_error"),
        (500, b'{"error":{"type":"invalid_request_error","message":"no"}}', "api_error"),
        (400, b'{"code":"x","message":"no"}', "invalid_request_error"),
        (429, b'[{"error":{"code":429,"message":"no","status":"RESOURCE_EXHAUSTED"}}]', "rate_limit_error"),
        (422, b'{"detail":"no"}', "invalid_request_error"),
        (404, b"no", "not_found_error"),
        (502, b"<html><style>x{}</style><h1>no</h1></html>", "api_error"),
    ],
)  # fmt: skip
def test_errors_of_any_shape_are_read_alike(form: WireFormat, status: int, body: bytes, expected: str) -> None:
    failure = form.read_failure(status, body)
    assert (failure.status, failure.message, failure.kind) == (status, "no", expected)
    again = form.read_failure(status, form.write_failure(ModelFailure(status, "no", expected)))
    assert (again.message, again.kind) == ("no", expected) or status in (400, 500)


def test_hosted_tools_are_left_out() -> None:
    body = {"model": "m", "messages": [], "tools": [{"type": "web_search"}]}
    request = FORMATS["openai-chat"].read_request(json.dumps(body).encode())
    assert request.tools == [] and request.notes
    body["tools"] = [{"type": "custom", "custom": {"name": "x"}}]
    with pytest.raises(InvalidInput, match="only function tools"):
        FORMATS["openai-chat"].read_request(json.dumps(body).encode())
