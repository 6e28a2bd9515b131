from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import InvalidInput
from paddock.llm.formats.answer_events import answer_from_stream_events, stream_events_from_answer
from paddock.llm.formats.base import BrokenModelStream, UntranslatableRequest
from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerStreamFailed,
    AnswerStreamFinished,
    FinishReason,
    MessagePart,
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
    TokenUsage,
    ToolChoice,
    ToolDefinition,
)
from paddock.llm.formats.openai_chat import OpenAIChatFormat

from . import openai_helpers as cases
from .openai_helpers import body, read_stream, sse

chat = OpenAIChatFormat()


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **fields}


def call_delta(**fields: Any) -> dict[str, Any]:
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return {"tool_calls": [{**fields, "function": function}]}


def test_reads_request_of_a_coding_agent() -> None:
    request = chat.read_request(
        body(
            stream=True,
            stream_options={"include_usage": True},
            max_tokens=8192,
            reasoning_effort="medium",
            enable_thinking=True,
            tools=[{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
            tool_choice="auto",
            messages=[
                {"role": "system", "content": [{"type": "text", "text": "Be good", "cache_control": {}}]},
                {"role": "user", "content": [{"type": "text", "text": "look"}, {
                    "type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
                {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"p":1}'}},
                    {"id": "b", "type": "function", "function": {"name": "read", "arguments": ""}}]},
                {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "A"}]},
                {"role": "tool", "tool_call_id": "b", "content": "B"},
                {"role": "developer", "content": "Be brief"},
            ],
        )
    )  # fmt: skip
    assert request.messages == [
        ModelMessage(MessageRole.SYSTEM, [ModelText("Be good", cached=True)]),
        ModelMessage(MessageRole.USER, [ModelText("look"), ModelMedia("image", "image/png", "AAAA")]),
        ModelMessage(
            MessageRole.ASSISTANT,
            [ModelThinking("hm"), ModelToolCall("a", "read", '{"p":1}'), ModelToolCall("b", "read", "{}")],
        ),
        ModelMessage(
            MessageRole.USER,
            [ModelToolResult("a", [ModelText("A")], "read"), ModelToolResult("b", [ModelText("B")], "read")],
        ),
        ModelMessage(MessageRole.SYSTEM, [ModelText("Be brief")]),
    ]
    assert request.stream and request.max_tokens == 8192 and request.effort == ReasoningEffort.MEDIUM
    assert request.tools == [ToolDefinition("read", None, {"type": "object"})]
    assert request.tool_choice == ToolChoice.AUTO
    sent = json.loads(chat.write_request(request))
    assert sent["enable_thinking"] is True and sent["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": [], "n": 2}, "^n should be 1"),
        ({}, "^messages is missing"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            r"^messages\[0\]\.content\[0\]\.text is miss",
        ),
        ({"messages": [{"role": "cat", "content": ""}]}, r"^messages\[0\]\.role should be"),
        ({"messages": [], "functions": []}, "^functions is deprecated"),
        ({"messages": [], "modalities": ["text", "audio"]}, "^modalities requests audio"),
        ({"messages": [], "tools": [{"type": "custom"}]}, r"^tools\[0\]\.type is 'custom'"),
        ({"messages": [], "reasoning_effort": "wild"}, "^reasoning_effort should be one of"),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
            "file_data is miss",
        ),
        ({"messages": [], "response_format": {"type": "xml"}}, r"^response_format\.type should be"),
    ],
)
def test_error_for_invalid_request_names_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        chat.read_request(body(**fields))


def test_untranslatable_fields_are_noted_for_other_formats_only() -> None:
    request = chat.read_request(body(messages=[], frequency_penalty=1, logprobs=True, metadata={"a": "b"}))
    assert [text.partition(":")[0] for text in request.notes] == ["frequency_penalty", "logprobs"]
    sent = json.loads(chat.write_request(request))
    assert sent["frequency_penalty"] == 1 and "logprobs" not in sent
    assert [text.partition(":")[0] for text in request.notes] == ["logprobs"]


def test_pictures_in_results_follow_the_results_of_all_calls() -> None:
    picture = ModelMedia("image", "image/png", "AAAA")
    messages = [
        ModelMessage(MessageRole.ASSISTANT, [ModelToolCall("a", "look", "{}"), ModelToolCall("b", "look", "{}")]),
        ModelMessage(
            MessageRole.USER, [ModelText("so?"), ModelToolResult("a", [ModelText("here"), picture], is_error=True)]
        ),
        ModelMessage(MessageRole.USER, [ModelToolResult("b", [])]),
        ModelMessage(MessageRole.USER, [ModelText("next")]),
    ]
    request = ModelRequest("m", messages)
    sent = json.loads(chat.write_request(request))["messages"]
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user", "user"]
    assert sent[1]["content"] == "here\n[image: in the next message]"
    assert [part["type"] for part in sent[3]["content"]] == ["text", "image_url", "text"]
    assert sent[4]["content"] == "next"
    assert request.notes == ["is_error: Chat Completions cannot mark a tool result as an error"]


def test_parts_unsupported_by_chat_completions() -> None:
    with pytest.raises(UntranslatableRequest):
        chat.write_request(
            ModelRequest("m", [ModelMessage(MessageRole.USER, [ModelMedia("document", url="https://a/b.pdf")])])
        )
    request = ModelRequest(
        "m", [ModelMessage(MessageRole.USER, [ModelMedia("document", "text/plain", "aGVsbG8=", name="a.txt")])], top_k=3
    )
    assert json.loads(chat.write_request(request))["messages"] == [{"role": "user", "content": "a.txt:\nhello"}]
    assert request.notes == ["top_k: Chat Completions has no such setting"]


@pytest.mark.parametrize(("model", "field"), [("qwen3", "max_tokens"), ("openai/gpt-5.1", "max_completion_tokens")])
def test_the_token_limit_field_depends_on_the_model(model: str, field: str) -> None:
    assert json.loads(chat.write_request(ModelRequest(model, [], max_tokens=5)))[field] == 5


texts = st.builds(ModelText, cases.words)
systems = st.builds(lambda part: ModelMessage(MessageRole.SYSTEM, [part]), texts)
text_or_media: st.SearchStrategy[ModelText | ModelMedia] = st.one_of(texts, cases.images, cases.documents, cases.sounds)
users = st.builds(
    lambda parts: ModelMessage(MessageRole.USER, list(parts)), st.lists(text_or_media, min_size=1, max_size=3)
)


@st.composite
def turns(draw: st.DrawFn, prefix: str, *, openai: bool, first: bool) -> list[ModelMessage]:
    """Only OpenAI's own models accept system messages in the middle; only others accept thoughts."""
    calls: list[MessagePart] = [
        ModelToolCall(f"{prefix}{index}", draw(cases.names), draw(cases.arguments), draw(st.none() | cases.words))
        for index in range(draw(st.integers(0, 3)))
    ]
    thoughts: list[MessagePart] = draw(st.lists(st.builds(ModelThinking, cases.words), max_size=0 if openai else 1))
    answer_texts: list[MessagePart] = draw(st.lists(texts, min_size=0 if calls else 1, max_size=1))
    lead = [draw(systems)] if openai or first else []
    messages = [*lead, draw(users), ModelMessage(MessageRole.ASSISTANT, [*thoughts, *answer_texts, *calls])]
    results: list[MessagePart] = [
        ModelToolResult(call.id, [draw(texts)], call.name) for call in calls if isinstance(call, ModelToolCall)
    ]
    return messages + ([ModelMessage(MessageRole.USER, results)] if results else [])


@st.composite
def requests(draw: st.DrawFn) -> ModelRequest:
    tools = draw(cases.tools)
    choice = draw(st.sampled_from([None, *ToolChoice])) if tools else None
    schema = draw(st.none() | cases.schemas)
    model = draw(st.sampled_from(["m", "gpt-5"]))
    return ModelRequest(
        model=model,
        messages=[
            message
            for index in range(draw(st.integers(0, 2)))
            for message in draw(turns(f"c{index}_", openai=model == "gpt-5", first=index == 0))
        ],
        stream=draw(st.booleans()),
        tools=tools,
        tool_choice=choice,
        tool_name=tools[0].name if choice == ToolChoice.NAMED else None,
        parallel_tools=draw(st.none() | st.booleans()) if tools else None,
        max_tokens=draw(st.none() | cases.counts),
        temperature=draw(st.none() | st.floats(0, 2)) if model == "m" else None,
        top_p=draw(st.none() | st.floats(0, 1)) if model == "m" else None,
        stop=draw(st.lists(cases.words, max_size=2)),
        seed=draw(st.none() | st.integers()),
        effort=draw(st.sampled_from([None, ReasoningEffort.LOW, ReasoningEffort.MEDIUM, ReasoningEffort.HIGH])),
        json_schema=schema,
        json_mode=draw(st.booleans()) if schema is None else False,
        user=draw(st.none() | cases.words),
    )


@settings(max_examples=50, deadline=None)
@given(requests())
def test_requests_survive_a_round_trip(request: ModelRequest) -> None:
    again = chat.read_request(chat.write_request(request))
    again.extra = {}
    assert again == request
    assert request.notes == []


@st.composite
def answers(draw: st.DrawFn) -> ModelAnswer:
    thoughts: list[MessagePart] = draw(st.lists(st.builds(ModelThinking, cases.words), max_size=1))
    answer_texts: list[MessagePart] = draw(st.lists(texts, max_size=1))
    refusals: list[MessagePart] = draw(st.lists(st.builds(ModelRefusal, cases.words), max_size=1))
    signatures = st.none() | cases.words
    calls: list[MessagePart] = draw(
        st.lists(st.builds(ModelToolCall, cases.words, cases.names, cases.arguments, signatures), max_size=3)
    )
    for index, call in enumerate(calls):
        assert isinstance(call, ModelToolCall)
        call.id = f"call_{index}"
    natural = FinishReason.TOOLS if calls else FinishReason.REFUSAL if refusals else FinishReason.STOP
    finish = draw(st.sampled_from([natural, FinishReason.LENGTH, FinishReason.FILTERED]))
    return ModelAnswer(
        "id1", "m", [*thoughts, *answer_texts, *refusals, *calls], finish, usage=draw(st.none() | cases.usages)
    )


@settings(max_examples=50, deadline=None)
@given(answers(), cases.cuts)
def test_answers_survive_a_round_trip_whole_and_streamed(answer: ModelAnswer, positions: list[int]) -> None:
    assert chat.read_answer(chat.write_answer(answer)) == answer
    writer = chat.new_stream_writer(ModelRequest("m", [], extra={"openai-chat": {"include_usage": True}}))
    data = b"".join(writer.write(event) for event in stream_events_from_answer(answer))
    assert data.endswith(b"data: [DONE]\n\n")
    assert answer_from_stream_events(read_stream(chat.new_stream_reader(), cases.split_at(data, positions))) == answer


def test_usage_is_streamed_only_on_request() -> None:
    answer = ModelAnswer("i", "m", [ModelText("hi")], FinishReason.STOP, usage=TokenUsage(3, 4))
    writer = chat.new_stream_writer(ModelRequest("m", []))
    assert b"usage" not in b"".join(writer.write(event) for event in stream_events_from_answer(answer))


DONE = "[DONE]"
STREAMS: dict[str, tuple[list[Any], list[MessagePart], FinishReason]] = {
    "no role, no done": (
        [chunk({"content": "a"}), chunk({"content": "b"}, "stop")],
        [ModelText("ab")],
        FinishReason.STOP,
    ),
    "done without a reason": ([chunk({"content": "a"}), DONE], [ModelText("a")], FinishReason.STOP),
    "reason twice": (
        [chunk({"content": "a"}, "length"), chunk({}, "stop"), DONE],
        [ModelText("a")],
        FinishReason.LENGTH,
    ),
    "reasoning under another name": (
        [chunk({"reasoning": "t"}), chunk({"reasoning": None, "content": "a"}, "stop")],
        [ModelThinking("t"), ModelText("a")],
        FinishReason.STOP,
    ),
    "content as a list": (
        [chunk({"content": [{"type": "text", "text": "a"}]}, "stop")],
        [ModelText("a")],
        FinishReason.STOP,
    ),
    "interleaved calls, stop as reason": (
        [
            chunk(call_delta(index=0, id="x", name="f", arguments="")),
            chunk(call_delta(index=1, id="y", name="g", arguments="[")),
            chunk(call_delta(index=0, arguments="{}")),
            chunk(call_delta(index=1, arguments="]")),
            chunk({}, "stop"),
        ],
        [ModelToolCall("x", "f", "{}"), ModelToolCall("y", "g", "[]")],
        FinishReason.TOOLS,
    ),
    "calls without an index": (
        [
            chunk(call_delta(id="x", name="f", arguments='{"a"')),
            chunk(call_delta(arguments=":1}")),
            chunk(call_delta(id="y", name="f", arguments="{}")),
            chunk({}, "tool_calls"),
        ],
        [ModelToolCall("x", "f", '{"a":1}'), ModelToolCall("y", "f", "{}")],
        FinishReason.TOOLS,
    ),
    "every call with index 0": (
        [chunk(call_delta(index=0, id=i, name="f", arguments="{}")) for i in "xy"] + [chunk({}, "tool_calls")],
        [ModelToolCall("x", "f", "{}"), ModelToolCall("y", "f", "{}")],
        FinishReason.TOOLS,
    ),
    "name and id repeated": (
        [chunk(call_delta(index=0, id="x", name="f", arguments=a)) for a in "{}"] + [chunk({}, "tool_calls")],
        [ModelToolCall("x", "f", "{}")],
        FinishReason.TOOLS,
    ),
    "no arguments": (
        [chunk(call_delta(index=0, id="x", name="f")), chunk({}, "tool_calls")],
        [ModelToolCall("x", "f", "{}")],
        FinishReason.TOOLS,
    ),
    "arguments as an object": (
        [chunk(call_delta(index=0, id="x", name="f", arguments={"a": 1}), "tool_calls")],
        [ModelToolCall("x", "f", '{"a":1}')],
        FinishReason.TOOLS,
    ),
    "text among a call's pieces": (
        [
            chunk(call_delta(index=0, id="x", name="f", arguments="{")),
            chunk({"content": "a"}),
            chunk(call_delta(index=0, arguments="}")),
            chunk({}, "tool_calls"),
        ],
        [ModelToolCall("x", "f", "{}"), ModelText("a")],
        FinishReason.TOOLS,
    ),
    "a whole message": (
        [{"id": "c1", "model": "m", "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}],
        [ModelText("a")],
        FinishReason.STOP,
    ),
}


@pytest.mark.parametrize("case", STREAMS)
def test_streams_of_real_servers(case: str) -> None:
    sent, parts, finish = STREAMS[case]
    answer = answer_from_stream_events(read_stream(chat.new_stream_reader(), [sse(*sent)]))
    assert answer is not None
    assert (answer.id, answer.model, answer.parts, answer.finish) == ("c1", "m", parts, finish)


def test_usage_is_read_after_or_with_finish_reason() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4},
             "completion_tokens_details": {"reasoning_tokens": 2}}  # fmt: skip
    after = sse(chunk({"content": "a"}, "stop"), {"id": "c1", "choices": [], "usage": usage}, DONE)
    within = sse(chunk({"content": "a"}, "stop", usage=usage))
    for data in (after, within):
        last = read_stream(chat.new_stream_reader(), [data])[-1]
        assert last == AnswerStreamFinished(FinishReason.STOP, TokenUsage(9, 5, cache_read=4, reasoning=2))


def test_text_arrives_at_once() -> None:
    assert chat.new_stream_reader().feed(sse(chunk({"role": "assistant", "content": "a"})))[-1] == AnswerPartDelta(
        0, "a"
    )


@pytest.mark.parametrize(
    "data",
    [b"", sse(chunk({"content": "a"})), sse("{garbage"), sse("[]"), sse(DONE), sse({"choices": "x"}), b"<html>oops"],
)
def test_an_incomplete_stream_is_an_error(data: bytes) -> None:
    with pytest.raises(BrokenModelStream):
        read_stream(chat.new_stream_reader(), [data])


def test_an_error_in_the_stream_is_a_failure() -> None:
    error = {"error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}
    events = read_stream(chat.new_stream_reader(), [sse(chunk({"content": "a"}), error)])
    failure = ModelFailure(429, "slow down", "rate_limit_error", "rate_limit_exceeded")
    assert events[-1] == AnswerStreamFailed(failure)
    written = chat.new_stream_writer(ModelRequest("m", [])).write(AnswerStreamFailed(failure))
    assert json.loads(written.removeprefix(b"data: "))["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize(
    ("status", "data", "expected"),
    [
        (401, b'{"error":{"message":"no","type":"x","code":"invalid_api_key"}}',
         ModelFailure(401, "no", "authentication_error", "invalid_api_key")),
        (400, b'{"error":"bad"}', ModelFailure(400, "bad", "invalid_request_error")),
        (404, b'{"detail":"none"}', ModelFailure(404, "none", "not_found_error")),
        (429, b'[{"error":{"code":429,"message":"quota"}}]', ModelFailure(429, "quota", "rate_limit_error")),
        (500, b"oops", ModelFailure(500, "oops", "api_error")),
        (502, b"<html>bad</html>", ModelFailure(502, "bad", "api_error")),
        (503, b"", ModelFailure(503, "the provider answered 503 without a message", "overloaded_error")),
    ],
)  # fmt: skip
def test_error_responses_of_any_shape_are_parsed(status: int, data: bytes, expected: ModelFailure) -> None:
    assert chat.read_failure(status, data) == expected


def test_a_too_long_prompt_has_openais_error_code() -> None:
    failure = ModelFailure(400, "prompt is too long: 9 > 5", "invalid_request_error")
    assert json.loads(chat.write_failure(failure)) == {
        "error": {
            "message": "prompt is too long: 9 > 5",
            "type": "invalid_request_error",
            "param": None,
            "code": "context_length_exceeded",
        }
    }


@pytest.mark.parametrize("data", [b"", b"{}", b'{"choices":[]}', b'{"choices":[{}]}', b'{"error":{"message":"x"}}'])
def test_a_malformed_answer_is_an_error(data: bytes) -> None:
    with pytest.raises(BrokenModelStream):
        chat.read_answer(data)
