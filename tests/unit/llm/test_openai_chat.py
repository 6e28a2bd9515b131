from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import InvalidInput
from paddock.llm.collect import answer_events, collect
from paddock.llm.formats.base import BrokenStream, Untranslatable
from paddock.llm.formats.openai_chat import OpenAIChat
from paddock.llm.neutral import (
    Answer,
    Delta,
    Effort,
    Failed,
    Failure,
    Finish,
    Finished,
    Media,
    Message,
    Part,
    Refusal,
    Request,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)

from . import openai_cases as cases
from .openai_cases import body, read_stream, sse

chat = OpenAIChat()


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **fields}


def call_delta(**fields: Any) -> dict[str, Any]:
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return {"tool_calls": [{**fields, "function": function}]}


def test_a_request_as_coding_agents_send_it() -> None:
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
        Message(Role.SYSTEM, [Text("Be good", cached=True)]),
        Message(Role.USER, [Text("look"), Media("image", "image/png", "AAAA")]),
        Message(Role.ASSISTANT, [Thinking("hm"), ToolCall("a", "read", '{"p":1}'), ToolCall("b", "read", "{}")]),
        Message(Role.USER, [ToolResult("a", [Text("A")], "read"), ToolResult("b", [Text("B")], "read")]),
        Message(Role.SYSTEM, [Text("Be brief")]),
    ]
    assert request.stream and request.max_tokens == 8192 and request.effort == Effort.MEDIUM
    assert request.tools == [Tool("read", None, {"type": "object"})]
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
        ({"messages": [], "functions": []}, "^functions is the old form"),
        ({"messages": [], "modalities": ["text", "audio"]}, "^modalities asks for sound"),
        ({"messages": [], "tools": [{"type": "custom"}]}, r"^tools\[0\]\.type is 'custom'"),
        ({"messages": [], "reasoning_effort": "wild"}, "^reasoning_effort should be one of"),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
            "file_data is miss",
        ),
        ({"messages": [], "response_format": {"type": "xml"}}, r"^response_format\.type should be"),
    ],
)
def test_a_wrong_request_is_refused_with_the_field_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        chat.read_request(body(**fields))


def test_fields_that_others_cannot_say_are_noted_unless_the_provider_speaks_chat_too() -> None:
    request = chat.read_request(body(messages=[], frequency_penalty=1, logprobs=True, metadata={"a": "b"}))
    assert [text.partition(":")[0] for text in request.notes] == ["frequency_penalty", "logprobs"]
    sent = json.loads(chat.write_request(request))
    assert sent["frequency_penalty"] == 1 and "logprobs" not in sent
    assert [text.partition(":")[0] for text in request.notes] == ["logprobs"]


def test_pictures_in_results_follow_the_results_of_all_calls() -> None:
    picture = Media("image", "image/png", "AAAA")
    messages = [
        Message(Role.ASSISTANT, [ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}")]),
        Message(Role.USER, [Text("so?"), ToolResult("a", [Text("here"), picture], is_error=True)]),
        Message(Role.USER, [ToolResult("b", [])]),
        Message(Role.USER, [Text("next")]),
    ]
    request = Request("m", messages)
    sent = json.loads(chat.write_request(request))["messages"]
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user", "user"]
    assert sent[1]["content"] == "here\n[image: in the next message]"
    assert [part["type"] for part in sent[3]["content"]] == ["text", "image_url", "text"]
    assert sent[4]["content"] == "next"
    assert request.notes == ["is_error: Chat Completions has no word for it in a tool's result"]


def test_what_has_no_word_in_chat() -> None:
    with pytest.raises(Untranslatable):
        chat.write_request(Request("m", [Message(Role.USER, [Media("document", url="https://a/b.pdf")])]))
    request = Request("m", [Message(Role.USER, [Media("document", "text/plain", "aGVsbG8=", name="a.txt")])], top_k=3)
    assert json.loads(chat.write_request(request))["messages"] == [{"role": "user", "content": "a.txt:\nhello"}]
    assert request.notes == ["top_k: Chat Completions has no word for it"]


@pytest.mark.parametrize(("model", "field"), [("qwen3", "max_tokens"), ("openai/gpt-5.1", "max_completion_tokens")])
def test_the_limit_is_named_as_the_model_wants_it(model: str, field: str) -> None:
    assert json.loads(chat.write_request(Request(model, [], max_tokens=5)))[field] == 5


texts = st.builds(Text, cases.words)
systems = st.builds(lambda part: Message(Role.SYSTEM, [part]), texts)
said: st.SearchStrategy[Text | Media] = st.one_of(texts, cases.images, cases.documents, cases.sounds)
users = st.builds(lambda parts: Message(Role.USER, list(parts)), st.lists(said, min_size=1, max_size=3))


@st.composite
def turns(draw: st.DrawFn, prefix: str, *, openai: bool, first: bool) -> list[Message]:
    """Only OpenAI's own models take system messages in the middle, and only others take thoughts."""
    calls: list[Part] = [
        ToolCall(f"{prefix}{index}", draw(cases.names), draw(cases.arguments), draw(st.none() | cases.words))
        for index in range(draw(st.integers(0, 3)))
    ]
    thoughts: list[Part] = draw(st.lists(st.builds(Thinking, cases.words), max_size=0 if openai else 1))
    spoken: list[Part] = draw(st.lists(texts, min_size=0 if calls else 1, max_size=1))
    lead = [draw(systems)] if openai or first else []
    messages = [*lead, draw(users), Message(Role.ASSISTANT, [*thoughts, *spoken, *calls])]
    results: list[Part] = [
        ToolResult(call.id, [draw(texts)], call.name) for call in calls if isinstance(call, ToolCall)
    ]
    return messages + ([Message(Role.USER, results)] if results else [])


@st.composite
def requests(draw: st.DrawFn) -> Request:
    tools = draw(cases.tools)
    choice = draw(st.sampled_from([None, *ToolChoice])) if tools else None
    schema = draw(st.none() | cases.schemas)
    model = draw(st.sampled_from(["m", "gpt-5"]))
    return Request(
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
        effort=draw(st.sampled_from([None, Effort.LOW, Effort.MEDIUM, Effort.HIGH])),
        json_schema=schema,
        json_mode=draw(st.booleans()) if schema is None else False,
        user=draw(st.none() | cases.words),
    )


@settings(max_examples=50, deadline=None)
@given(requests())
def test_a_request_comes_back_as_it_went(request: Request) -> None:
    again = chat.read_request(chat.write_request(request))
    again.extra = {}
    assert again == request
    assert request.notes == []


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    thoughts: list[Part] = draw(st.lists(st.builds(Thinking, cases.words), max_size=1))
    spoken: list[Part] = draw(st.lists(texts, max_size=1))
    refusals: list[Part] = draw(st.lists(st.builds(Refusal, cases.words), max_size=1))
    seals = st.none() | cases.words
    calls: list[Part] = draw(
        st.lists(st.builds(ToolCall, cases.words, cases.names, cases.arguments, seals), max_size=3)
    )
    for index, call in enumerate(calls):
        assert isinstance(call, ToolCall)
        call.id = f"call_{index}"
    natural = Finish.TOOLS if calls else Finish.REFUSAL if refusals else Finish.STOP
    finish = draw(st.sampled_from([natural, Finish.LENGTH, Finish.FILTERED]))
    return Answer("id1", "m", [*thoughts, *spoken, *refusals, *calls], finish, usage=draw(st.none() | cases.usages))


@settings(max_examples=50, deadline=None)
@given(answers(), cases.cuts)
def test_an_answer_comes_back_as_it_went_whole_or_streamed(answer: Answer, places: list[int]) -> None:
    assert chat.read_answer(chat.write_answer(answer)) == answer
    writer = chat.writer(Request("m", [], extra={"openai-chat": {"include_usage": True}}))
    data = b"".join(writer.write(event) for event in answer_events(answer))
    assert data.endswith(b"data: [DONE]\n\n")
    assert collect(read_stream(chat.reader(), cases.cut(data, places))) == answer


def test_usage_is_streamed_only_to_clients_that_asked() -> None:
    answer = Answer("i", "m", [Text("hi")], Finish.STOP, usage=Usage(3, 4))
    writer = chat.writer(Request("m", []))
    assert b"usage" not in b"".join(writer.write(event) for event in answer_events(answer))


DONE = "[DONE]"
STREAMS: dict[str, tuple[list[Any], list[Part], Finish]] = {
    "no role, no done": ([chunk({"content": "a"}), chunk({"content": "b"}, "stop")], [Text("ab")], Finish.STOP),
    "done without a reason": ([chunk({"content": "a"}), DONE], [Text("a")], Finish.STOP),
    "reason twice": ([chunk({"content": "a"}, "length"), chunk({}, "stop"), DONE], [Text("a")], Finish.LENGTH),
    "reasoning under another name": (
        [chunk({"reasoning": "t"}), chunk({"reasoning": None, "content": "a"}, "stop")],
        [Thinking("t"), Text("a")],
        Finish.STOP,
    ),
    "content as a list": ([chunk({"content": [{"type": "text", "text": "a"}]}, "stop")], [Text("a")], Finish.STOP),
    "interleaved calls, stop as reason": (
        [
            chunk(call_delta(index=0, id="x", name="f", arguments="")),
            chunk(call_delta(index=1, id="y", name="g", arguments="[")),
            chunk(call_delta(index=0, arguments="{}")),
            chunk(call_delta(index=1, arguments="]")),
            chunk({}, "stop"),
        ],
        [ToolCall("x", "f", "{}"), ToolCall("y", "g", "[]")],
        Finish.TOOLS,
    ),
    "calls without an index": (
        [
            chunk(call_delta(id="x", name="f", arguments='{"a"')),
            chunk(call_delta(arguments=":1}")),
            chunk(call_delta(id="y", name="f", arguments="{}")),
            chunk({}, "tool_calls"),
        ],
        [ToolCall("x", "f", '{"a":1}'), ToolCall("y", "f", "{}")],
        Finish.TOOLS,
    ),
    "every call with index 0": (
        [chunk(call_delta(index=0, id=i, name="f", arguments="{}")) for i in "xy"] + [chunk({}, "tool_calls")],
        [ToolCall("x", "f", "{}"), ToolCall("y", "f", "{}")],
        Finish.TOOLS,
    ),
    "name and id repeated": (
        [chunk(call_delta(index=0, id="x", name="f", arguments=a)) for a in "{}"] + [chunk({}, "tool_calls")],
        [ToolCall("x", "f", "{}")],
        Finish.TOOLS,
    ),
    "no arguments": (
        [chunk(call_delta(index=0, id="x", name="f")), chunk({}, "tool_calls")],
        [ToolCall("x", "f", "{}")],
        Finish.TOOLS,
    ),
    "arguments as an object": (
        [chunk(call_delta(index=0, id="x", name="f", arguments={"a": 1}), "tool_calls")],
        [ToolCall("x", "f", '{"a":1}')],
        Finish.TOOLS,
    ),
    "text among a call's pieces": (
        [
            chunk(call_delta(index=0, id="x", name="f", arguments="{")),
            chunk({"content": "a"}),
            chunk(call_delta(index=0, arguments="}")),
            chunk({}, "tool_calls"),
        ],
        [ToolCall("x", "f", "{}"), Text("a")],
        Finish.TOOLS,
    ),
    "a whole message": (
        [{"id": "c1", "model": "m", "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}],
        [Text("a")],
        Finish.STOP,
    ),
}


@pytest.mark.parametrize("case", STREAMS)
def test_streams_as_they_are_met(case: str) -> None:
    sent, parts, finish = STREAMS[case]
    answer = collect(read_stream(chat.reader(), [sse(*sent)]))
    assert answer is not None
    assert (answer.id, answer.model, answer.parts, answer.finish) == ("c1", "m", parts, finish)


def test_usage_comes_after_the_reason_or_with_it() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4},
             "completion_tokens_details": {"reasoning_tokens": 2}}  # fmt: skip
    after = sse(chunk({"content": "a"}, "stop"), {"id": "c1", "choices": [], "usage": usage}, DONE)
    within = sse(chunk({"content": "a"}, "stop", usage=usage))
    for data in (after, within):
        last = read_stream(chat.reader(), [data])[-1]
        assert last == Finished(Finish.STOP, Usage(9, 5, cache_read=4, reasoning=2))


def test_text_arrives_at_once() -> None:
    assert chat.reader().feed(sse(chunk({"role": "assistant", "content": "a"})))[-1] == Delta(0, "a")


@pytest.mark.parametrize(
    "data",
    [b"", sse(chunk({"content": "a"})), sse("{garbage"), sse("[]"), sse(DONE), sse({"choices": "x"}), b"<html>oops"],
)
def test_a_stream_that_does_not_end_properly_is_broken(data: bytes) -> None:
    with pytest.raises(BrokenStream):
        read_stream(chat.reader(), [data])


def test_an_error_in_the_stream_is_told() -> None:
    error = {"error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}
    events = read_stream(chat.reader(), [sse(chunk({"content": "a"}), error)])
    failure = Failure(429, "slow down", "rate_limit_error", "rate_limit_exceeded")
    assert events[-1] == Failed(failure)
    written = chat.writer(Request("m", [])).write(Failed(failure))
    assert json.loads(written.removeprefix(b"data: "))["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize(
    ("status", "data", "expected"),
    [
        (401, b'{"error":{"message":"no","type":"x","code":"invalid_api_key"}}',
         Failure(401, "no", "authentication_error", "invalid_api_key")),
        (400, b'{"error":"bad"}', Failure(400, "bad", "invalid_request_error")),
        (404, b'{"detail":"none"}', Failure(404, "none", "not_found_error")),
        (429, b'[{"error":{"code":429,"message":"quota"}}]', Failure(429, "quota", "rate_limit_error")),
        (500, b"oops", Failure(500, "oops", "api_error")),
        (502, b"<html>bad</html>", Failure(502, "bad", "api_error")),
        (503, b"", Failure(503, "the provider answered 503 without saying why", "overloaded_error")),
    ],
)  # fmt: skip
def test_failures_are_read_whatever_they_are(status: int, data: bytes, expected: Failure) -> None:
    assert chat.read_failure(status, data) == expected


def test_a_prompt_that_is_too_long_is_told_in_openais_words() -> None:
    failure = Failure(400, "prompt is too long: 9 > 5", "invalid_request_error")
    assert json.loads(chat.write_failure(failure)) == {
        "error": {
            "message": "prompt is too long: 9 > 5",
            "type": "invalid_request_error",
            "param": None,
            "code": "context_length_exceeded",
        }
    }


@pytest.mark.parametrize("data", [b"", b"{}", b'{"choices":[]}', b'{"choices":[{}]}', b'{"error":{"message":"x"}}'])
def test_an_answer_that_makes_no_sense_is_broken(data: bytes) -> None:
    with pytest.raises(BrokenStream):
        chat.read_answer(data)
