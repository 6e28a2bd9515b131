from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from paddock.errors import InvalidInput
from paddock.llm.formats.anthropic import AnthropicFormat
from paddock.llm.formats.base import BrokenModelStream, UntranslatableRequest
from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerPartEnded,
    AnswerPartSigned,
    AnswerPartStarted,
    AnswerStreamFailed,
    AnswerStreamFinished,
    AnswerStreamStarted,
    FinishReason,
    MessageRole,
    ModelAnswer,
    ModelFailure,
    ModelMedia,
    ModelMessage,
    ModelRefusal,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ModelToolResult,
    ReasoningEffort,
    StreamEvent,
    TokenUsage,
    ToolChoice,
    ToolDefinition,
)

from .stream_helpers import answer_from_valid_events, answer_to_small_events, read_in_pieces, write_events

FORMAT = AnthropicFormat()
MARK = {"type": "ephemeral"}
HELLO = [{"role": "user", "content": "Hello"}]


def read_body(**fields: Any) -> ModelRequest:
    body = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": HELLO} | fields
    return FORMAT.read_request(json.dumps(body).encode())


def write_body(request: ModelRequest) -> Any:
    return json.loads(FORMAT.write_request(request))


def ask(model: str = "claude-sonnet-4-5", **fields: Any) -> ModelRequest:
    defaults: dict[str, Any] = {
        "messages": [ModelMessage(MessageRole.USER, [ModelText("Hello")])],
        "max_tokens": 20_000,
    }
    return ModelRequest(model=model, **(defaults | fields))


def test_reads_claude_code_request() -> None:
    request = read_body(
        model="paddock-model",
        stream=True,
        system=[
            {"type": "text", "text": "You are an agent."},
            {"type": "text", "text": "Rules.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "Make a file.", "cache_control": MARK}]},
            {"role": "system", "content": "Today is Sunday."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Use Write.", "signature": "c2ln"},
                    {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {"path": "a"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "Read", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_2",
                        "is_error": True,
                        "content": [
                            {"type": "text", "text": "no"},
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                        ],
                    },
                ],
            },
        ],
        tools=[{"name": "Write", "description": "Writes", "input_schema": {"type": "object"}, "cache_control": MARK}],
        thinking={"type": "adaptive"},
        output_config={"effort": "medium"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        metadata={"user_id": "u1"},
    )
    assert request.model == "paddock-model" and request.stream and request.user == "u1"
    assert request.messages == [
        ModelMessage(MessageRole.SYSTEM, [ModelText("You are an agent."), ModelText("Rules.", cached=True)]),
        ModelMessage(MessageRole.USER, [ModelText("Make a file.", cached=True)]),
        ModelMessage(MessageRole.SYSTEM, [ModelText("Today is Sunday.")]),
        ModelMessage(
            MessageRole.ASSISTANT,
            [
                ModelThinking("Use Write.", "c2ln"),
                ModelToolCall("toolu_1", "Write", '{"path":"a"}'),
                ModelToolCall("toolu_2", "Read", "{}"),
            ],
        ),
        ModelMessage(
            MessageRole.USER,
            [
                ModelToolResult("toolu_1", [ModelText("done")]),
                ModelToolResult("toolu_2", [ModelText("no"), ModelMedia("image", "image/png", "AA==")], is_error=True),
            ],
        ),
    ]
    assert request.tools == [ToolDefinition("Write", "Writes", {"type": "object"}, cached=True)]
    assert request.effort is ReasoningEffort.MEDIUM
    assert request.notes == ["`context_management` is supported only by Anthropic's API"]


def test_reads_a_request_to_count_tokens() -> None:
    request = FORMAT.read_request(json.dumps({"model": "m", "messages": HELLO}).encode())
    assert request.max_tokens is None and not request.stream


@pytest.mark.parametrize(
    ("block", "parts"),
    [
        ({"type": "text", "text": "a"}, [ModelText("a")]),
        ({"type": "image", "source": {"type": "url", "url": "https://x/y"}}, [ModelMedia("image", url="https://x/y")]),
        (
            {
                "type": "document",
                "title": "t.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="},
            },
            [ModelMedia("document", "application/pdf", "AA==", name="t.pdf")],
        ),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
            [ModelMedia("document", "text/plain", base64.b64encode(b"hi").decode())],
        ),
        ({"type": "redacted_thinking", "data": "zzz"}, [ModelThinking(redacted="zzz")]),
        ({"type": "thinking", "thinking": "", "signature": ""}, [ModelThinking()]),
        (
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference", "tool_name": "Read"}]},
            [ModelToolResult("a", [ModelText("Read")])],
        ),
        ({"type": "tool_result", "tool_use_id": "a"}, [ModelToolResult("a", [])]),
        ({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, []),
        ({"type": "from_the_future"}, []),
    ],
)
def test_reads_blocks(block: dict[str, Any], parts: list[Any]) -> None:
    assert read_body(messages=[{"role": "user", "content": [block]}]).messages[0].parts == parts


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"thinking_budget": 2000, "effort": None}),
        ({"thinking": {"type": "disabled"}}, {"effort": ReasoningEffort.NONE}),
        ({"thinking": {"type": "adaptive"}}, {"effort": ReasoningEffort.HIGH}),
        ({"output_config": {"effort": "max"}}, {"effort": ReasoningEffort.MAX}),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"a": 1}}}}, {"json_schema": {"a": 1}}),
        ({"output_format": {"type": "json_schema", "schema": {"a": 1}}}, {"json_schema": {"a": 1}}),
        ({"tool_choice": {"type": "any"}}, {"tool_choice": ToolChoice.ANY}),
        ({"tool_choice": {"type": "tool", "name": "x"}}, {"tool_choice": ToolChoice.NAMED, "tool_name": "x"}),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, {"parallel_tools": False}),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, {"tools": []}),
        ({"stop_sequences": ["X"], "top_k": 3, "temperature": 0.5}, {"stop": ["X"], "top_k": 3, "temperature": 0.5}),
    ],
)
def test_reads_settings(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    request = read_body(**fields)
    assert {name: getattr(request, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"messages": []}, InvalidInput, "messages should have at least one message"),
        ({"messages": [{"role": "bot", "content": "x"}]}, InvalidInput, r"messages\[0\].role should be"),
        ({"messages": [{"role": "user"}]}, InvalidInput, r"messages\[0\].content is missing"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, InvalidInput, r"content\[0\].text is miss"),
        ({"max_tokens": "many"}, InvalidInput, "max_tokens should be a whole number"),
        ({"thinking": {"type": 7}}, InvalidInput, "thinking.type should be"),
        (
            {
                "tools": [{"type": "web_search_20250305", "name": "web_search"}],
                "tool_choice": {"type": "tool", "name": "web_search"},
            },
            UntranslatableRequest,
            "forces `web_search`",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]},
            UntranslatableRequest,
            "send it as base64 or url",
        ),
    ],
)
def test_refuses_invalid_requests(fields: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_body(**fields)


def test_writes_alternating_turns_with_results_first() -> None:
    body = write_body(
        ask(
            messages=[
                ModelMessage(MessageRole.SYSTEM, [ModelText("Rules.")]),
                ModelMessage(MessageRole.USER, [ModelText("Go"), ModelText("")]),
                ModelMessage(MessageRole.ASSISTANT, [ModelText("ok")]),
                ModelMessage(
                    MessageRole.ASSISTANT,
                    [ModelToolCall("functions.a:0", "a", '{"x":1}'), ModelToolCall("c2", "b", "oops")],
                ),
                ModelMessage(MessageRole.SYSTEM, [ModelText("Hurry.")]),
                ModelMessage(MessageRole.USER, [ModelToolResult("functions.a:0", [ModelText("1")])]),
                ModelMessage(MessageRole.USER, [ModelToolResult("c2", [], is_error=True)]),
            ]
        )
    )
    assert body["system"] == "Rules."
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Go"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "ok"},
                {"type": "tool_use", "id": "functions_a_0", "name": "a", "input": {"x": 1}},
                {"type": "tool_use", "id": "c2", "name": "b", "input": {"arguments": "oops"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "functions_a_0", "content": [{"type": "text", "text": "1"}]},
                {"type": "tool_result", "tool_use_id": "c2", "is_error": True},
                {"type": "text", "text": "<system>\nHurry.\n</system>"},
            ],
        },
    ]


CALLED = [
    ModelMessage(MessageRole.USER, [ModelText("Go")]),
    ModelMessage(MessageRole.ASSISTANT, [ModelToolCall("c", "a", "{}")]),
    ModelMessage(MessageRole.USER, [ModelToolResult("c", [ModelText("1")])]),
]
A_TOOL = [ToolDefinition("a", parameters={"type": "object"})]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ask(max_tokens=None), {"max_tokens": 32_000}),
        (ask("claude-3-haiku-20240307", max_tokens=None), {"max_tokens": 4096}),
        (ask("claude-3-5-sonnet-latest", max_tokens=None), {"max_tokens": 8192}),
        (ask(effort=ReasoningEffort.LOW), {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        (ask(effort=ReasoningEffort.HIGH, max_tokens=5000), {"thinking": {"type": "enabled", "budget_tokens": 4999}}),
        (ask(effort=ReasoningEffort.HIGH, max_tokens=500), {"thinking": None}),
        (ask(effort=ReasoningEffort.NONE), {"thinking": {"type": "disabled"}}),
        (ask(effort=ReasoningEffort.LOW, messages=CALLED), {"thinking": None}),
        (ask(effort=ReasoningEffort.LOW, tools=A_TOOL, tool_choice=ToolChoice.ANY), {"thinking": None}),
        (
            ask("claude-opus-4-6", effort=ReasoningEffort.LOW, messages=CALLED, temperature=0.3),
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}, "temperature": None},
        ),
        (ask("claude-opus-4-7", thinking_budget=9000), {"output_config": {"effort": "medium"}}),
        (
            ask("claude-sonnet-5", effort=ReasoningEffort.NONE, temperature=0, top_k=1),
            {"thinking": None, "temperature": None, "top_k": None},
        ),
        (ask(temperature=1.7), {"temperature": 1}),
        (ask(temperature=0.5, top_p=0.5), {"temperature": 0.5, "top_p": None}),
        (ask(seed=1, json_mode=True), {"seed": None}),
        (ask(tools=A_TOOL, parallel_tools=False), {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
        (
            ask("claude-sonnet-4-20250514", json_schema={"type": "object"}),
            {
                "output_config": None,
                "system": 'Answer with nothing but JSON that is valid under this JSON Schema:\n{"type": "object"}',
            },
        ),
    ],
)
def test_writes_settings(request_: ModelRequest, expected: dict[str, Any]) -> None:
    body = write_body(request_)
    assert {name: body.get(name) for name in expected} == expected


def test_unsigned_thinking_is_noted() -> None:
    request = ask(
        messages=[
            ModelMessage(MessageRole.USER, [ModelText("a")]),
            ModelMessage(MessageRole.ASSISTANT, [ModelThinking("hm"), ModelText("b")]),
        ]
    )
    assert write_body(request)["messages"][1]["content"] == [{"type": "text", "text": "b"}]
    assert any("without a signature" in note for note in request.notes)


@pytest.mark.parametrize(
    "media", [ModelMedia("audio", "audio/wav", "AA=="), ModelMedia("document", "application/zip", "AA==")]
)
def test_refuses_to_write_unsupported_requests(media: ModelMedia) -> None:
    with pytest.raises(UntranslatableRequest):
        write_body(ask(messages=[ModelMessage(MessageRole.USER, [media])]))


def test_lone_system_prompt_becomes_user_message() -> None:
    body = write_body(ask(messages=[ModelMessage(MessageRole.SYSTEM, [ModelText("Say hi")])]))
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Say hi"}]}]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("tool_use", FinishReason.TOOLS),
        ("refusal", FinishReason.REFUSAL),
        ("pause_turn", FinishReason.PAUSED),
    ],
)
def test_stop_reasons(reason: str, finish: FinishReason) -> None:
    body = {"id": "m", "model": "c", "content": [], "stop_reason": reason}
    answer = FORMAT.read_answer(json.dumps(body).encode())
    assert answer.finish is finish
    assert json.loads(FORMAT.write_answer(answer))["stop_reason"] == reason


def test_input_tokens_include_cached_tokens() -> None:
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 7,
    }
    body = {"id": "m", "model": "c", "content": [], "stop_reason": "end_turn", "usage": usage}
    answer = FORMAT.read_answer(json.dumps(body).encode())
    assert answer.usage == TokenUsage(input=125, output=7, cache_read=100, cache_write=20)
    assert json.loads(FORMAT.write_answer(answer))["usage"] == usage


def test_call_signature_is_written_as_thought() -> None:
    answer = ModelAnswer("m", "g", [ModelToolCall("c", "a", "{}", signature="S")], FinishReason.TOOLS)
    expected = [ModelThinking(signature="S"), ModelToolCall("c", "a", "{}")]
    assert FORMAT.read_answer(FORMAT.write_answer(answer)).parts == expected
    streamed = answer_from_valid_events(
        read_in_pieces(
            FORMAT.new_stream_reader(), write_events(FORMAT.new_stream_writer(ask()), answer_to_small_events(answer))
        )
    )
    assert isinstance(streamed, ModelAnswer) and streamed.parts == expected


def test_overlapping_calls_are_written_sequentially() -> None:
    events: list[StreamEvent] = [
        AnswerStreamStarted("m", "x"),
        AnswerPartStarted(0, ModelToolCall("a", "a", "")),
        AnswerPartStarted(1, ModelToolCall("b", "b", "")),
        AnswerPartDelta(1, "{}"),
        AnswerPartDelta(0, '{"x"'),
        AnswerPartEnded(1),
        AnswerPartDelta(0, ":1}"),
        AnswerStreamFinished(FinishReason.TOOLS),
    ]
    data = write_events(FORMAT.new_stream_writer(ask()), events)
    kinds = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")]
    blocks = [(kind["type"][14:], kind["index"]) for kind in kinds if "index" in kind]
    assert [index for _, index in blocks] == sorted(index for _, index in blocks)
    answer = answer_from_valid_events(read_in_pieces(FORMAT.new_stream_reader(), data))
    assert isinstance(answer, ModelAnswer) and answer.parts == [
        ModelToolCall("a", "a", '{"x":1}'),
        ModelToolCall("b", "b", "{}"),
    ]


STREAM = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",'
    b'"model":"claude-x","content":[],"usage":{"input_tokens":3,"cache_read_input_tokens":7,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":'
    b'"server_tool_use","id":"s","name":"web_search","input":{}}}\n\n'
    b'event: ping\ndata: {"type":"ping"}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta",'
    b'"partial_json":"{}"}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use",'
    b'"id":"t","name":"now","input":{}}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":1}\n\n'
)
END = (
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"tool_use"},'
    b'"usage":{"output_tokens":9}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


def test_reads_provider_stream() -> None:
    assert answer_from_valid_events(read_in_pieces(FORMAT.new_stream_reader(), STREAM + END)) == ModelAnswer(
        "msg_1", "claude-x", [ModelToolCall("t", "now", "{}")], FinishReason.TOOLS, None, TokenUsage(10, 9, 7)
    )


@pytest.mark.parametrize("data", [b"", STREAM, STREAM + END[:-40], b"data: nonsense\n\n", b'data: {"type":"x"}\n\n'])
def test_an_incomplete_stream_is_an_error(data: bytes) -> None:
    with pytest.raises(BrokenModelStream):
        read_in_pieces(FORMAT.new_stream_reader(), data)


def sent(*events: dict[str, Any]) -> list[StreamEvent]:
    start = {"type": "message_start", "message": {"id": "m", "model": "c"}}
    reader = FORMAT.new_stream_reader()
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in (start, *events))
    return [*reader.feed(data), *reader.close()]


def test_a_signature_in_pieces_is_joined() -> None:
    deltas = [{"type": "thinking_delta", "thinking": "Hm."}]
    deltas += [{"type": "signature_delta", "signature": piece} for piece in ("AAA", "", "BBB")]
    events = sent(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )
    assert events[1:-1] == [
        AnswerPartStarted(0, ModelThinking()),
        AnswerPartDelta(0, "Hm."),
        AnswerPartSigned(0, "AAABBB"),
        AnswerPartEnded(0),
    ]


@pytest.mark.parametrize(
    "later",
    [
        {"usage": {"output_tokens": 3}},
        {"delta": {}, "usage": {"output_tokens": 3}},
        {"delta": {"stop_reason": None, "stop_sequence": None}, "usage": {"output_tokens": 3}},
    ],
)
def test_later_usage_event_keeps_the_stop_reason(later: dict[str, Any]) -> None:
    why = {"type": "message_delta", "delta": {"stop_reason": "max_tokens", "stop_sequence": "X"}}
    more = {"type": "message_delta", **later}
    for deltas in ([why, more], [more, why]):
        assert sent(*deltas, {"type": "message_stop"})[-1] == AnswerStreamFinished(
            FinishReason.LENGTH, TokenUsage(0, 3), "X"
        )


def test_a_stream_with_usage_only_has_no_stop_reason() -> None:
    with pytest.raises(BrokenModelStream, match="without a stop reason"):
        sent({"type": "message_delta", "usage": {"output_tokens": 3}}, {"type": "message_stop"})


def test_reasoning_tokens_of_a_stream_are_reported() -> None:
    details = {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 7}}
    later = {"type": "message_delta", "usage": {"output_tokens": 9, "output_tokens_details": None}}
    events = sent(
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": details},
        later,
        {"type": "message_stop"},
    )
    assert events[-1] == AnswerStreamFinished(FinishReason.STOP, TokenUsage(0, 9, reasoning=7))


@pytest.mark.parametrize("system", [[], [ModelMessage(MessageRole.SYSTEM, [ModelText("Be brief.")])]])
def test_a_conversation_of_only_whitespace_is_refused(system: list[ModelMessage]) -> None:
    with pytest.raises(UntranslatableRequest, match="at least one message that is not empty"):
        write_body(ask(messages=[*system, ModelMessage(MessageRole.USER, [ModelText(" \n")])]))


def test_an_error_in_the_stream_is_a_failure() -> None:
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    [*_, last] = read_in_pieces(FORMAT.new_stream_reader(), STREAM + error)
    assert last == AnswerStreamFailed(ModelFailure(529, "Overloaded", "overloaded_error"))
    assert read_in_pieces(FORMAT.new_stream_reader(), FORMAT.new_stream_writer(ask()).write(last)) == [last]


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (429, b'{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}', "rate_limit_error", "slow"),
        (401, b'{"error":{"message":"bad key","code":"invalid_api_key"}}', "authentication_error", "bad key"),
        (502, b"<html><head><title>502</title></head><body>Bad Gateway</body></html>", "api_error", "502 Bad Gateway"),
        (503, b"", "overloaded_error", "the provider answered 503 without a message"),
        (400, b'{"detail":"no"}', "invalid_request_error", "no"),
    ],
)
def test_reads_failures(status: int, body: bytes, kind: str, message: str) -> None:
    failure = FORMAT.read_failure(status, body)
    assert (failure.status, failure.kind, failure.message) == (status, kind, message)


def test_writes_failures() -> None:
    assert json.loads(FORMAT.write_failure(ModelFailure(404, "no such model", "not_found_error"))) == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "no such model"},
        "request_id": None,
    }


def test_a_refusal_is_written_as_text() -> None:
    answer = ModelAnswer("m", "g", [ModelRefusal("No.")], FinishReason.REFUSAL)
    assert FORMAT.read_answer(FORMAT.write_answer(answer)).parts == [ModelText("No.")]
