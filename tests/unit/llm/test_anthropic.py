from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import InvalidInput
from paddock.llm.formats.anthropic import Anthropic
from paddock.llm.formats.base import BrokenStream, Untranslatable
from paddock.llm.neutral import (
    Answer,
    Delta,
    Effort,
    Event,
    Failed,
    Failure,
    Finish,
    Finished,
    Media,
    Message,
    PartEnded,
    PartStarted,
    Refusal,
    Request,
    Role,
    Signed,
    Started,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)

from .streams import answer_of, events_of, read, written

FORMAT = Anthropic()
MARK = {"type": "ephemeral"}
HELLO = [{"role": "user", "content": "Hello"}]


def read_body(**fields: Any) -> Request:
    body = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": HELLO} | fields
    return FORMAT.read_request(json.dumps(body).encode())


def write_body(request: Request) -> Any:
    return json.loads(FORMAT.write_request(request))


def ask(model: str = "claude-sonnet-4-5", **fields: Any) -> Request:
    defaults: dict[str, Any] = {"messages": [Message(Role.USER, [Text("Hello")])], "max_tokens": 20_000}
    return Request(model=model, **(defaults | fields))


def test_reads_what_claude_code_sends() -> None:
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
        Message(Role.SYSTEM, [Text("You are an agent."), Text("Rules.", cached=True)]),
        Message(Role.USER, [Text("Make a file.", cached=True)]),
        Message(Role.SYSTEM, [Text("Today is Sunday.")]),
        Message(
            Role.ASSISTANT,
            [
                Thinking("Use Write.", "c2ln"),
                ToolCall("toolu_1", "Write", '{"path":"a"}'),
                ToolCall("toolu_2", "Read", "{}"),
            ],
        ),
        Message(
            Role.USER,
            [
                ToolResult("toolu_1", [Text("done")]),
                ToolResult("toolu_2", [Text("no"), Media("image", "image/png", "AA==")], is_error=True),
            ],
        ),
    ]
    assert request.tools == [Tool("Write", "Writes", {"type": "object"}, cached=True)]
    assert request.effort is Effort.MEDIUM
    assert request.notes == ["`context_management` means something only to Anthropic's API"]


def test_reads_a_request_to_count_tokens() -> None:
    request = FORMAT.read_request(json.dumps({"model": "m", "messages": HELLO}).encode())
    assert request.max_tokens is None and not request.stream


@pytest.mark.parametrize(
    ("block", "parts"),
    [
        ({"type": "text", "text": "a"}, [Text("a")]),
        ({"type": "image", "source": {"type": "url", "url": "https://x/y"}}, [Media("image", url="https://x/y")]),
        (
            {
                "type": "document",
                "title": "t.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="},
            },
            [Media("document", "application/pdf", "AA==", name="t.pdf")],
        ),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
            [Media("document", "text/plain", base64.b64encode(b"hi").decode())],
        ),
        ({"type": "redacted_thinking", "data": "zzz"}, [Thinking(redacted="zzz")]),
        ({"type": "thinking", "thinking": "", "signature": ""}, [Thinking()]),
        (
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference", "tool_name": "Read"}]},
            [ToolResult("a", [Text("Read")])],
        ),
        ({"type": "tool_result", "tool_use_id": "a"}, [ToolResult("a", [])]),
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
        ({"thinking": {"type": "disabled"}}, {"effort": Effort.NONE}),
        ({"thinking": {"type": "adaptive"}}, {"effort": Effort.HIGH}),
        ({"output_config": {"effort": "max"}}, {"effort": Effort.MAX}),
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
            Untranslatable,
            "forces `web_search`",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]},
            Untranslatable,
            "send it as base64 or url",
        ),
    ],
)
def test_refuses(fields: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_body(**fields)


def test_writes_turns_that_alternate_with_results_first() -> None:
    body = write_body(
        ask(
            messages=[
                Message(Role.SYSTEM, [Text("Rules.")]),
                Message(Role.USER, [Text("Go"), Text("")]),
                Message(Role.ASSISTANT, [Text("ok")]),
                Message(Role.ASSISTANT, [ToolCall("functions.a:0", "a", '{"x":1}'), ToolCall("c2", "b", "oops")]),
                Message(Role.SYSTEM, [Text("Hurry.")]),
                Message(Role.USER, [ToolResult("functions.a:0", [Text("1")])]),
                Message(Role.USER, [ToolResult("c2", [], is_error=True)]),
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
    Message(Role.USER, [Text("Go")]),
    Message(Role.ASSISTANT, [ToolCall("c", "a", "{}")]),
    Message(Role.USER, [ToolResult("c", [Text("1")])]),
]
A_TOOL = [Tool("a", parameters={"type": "object"})]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ask(max_tokens=None), {"max_tokens": 32_000}),
        (ask("claude-3-haiku-20240307", max_tokens=None), {"max_tokens": 4096}),
        (ask("claude-3-5-sonnet-latest", max_tokens=None), {"max_tokens": 8192}),
        (ask(effort=Effort.LOW), {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        (ask(effort=Effort.HIGH, max_tokens=5000), {"thinking": {"type": "enabled", "budget_tokens": 4999}}),
        (ask(effort=Effort.HIGH, max_tokens=500), {"thinking": None}),
        (ask(effort=Effort.NONE), {"thinking": {"type": "disabled"}}),
        (ask(effort=Effort.LOW, messages=CALLED), {"thinking": None}),
        (ask(effort=Effort.LOW, tools=A_TOOL, tool_choice=ToolChoice.ANY), {"thinking": None}),
        (
            ask("claude-opus-4-6", effort=Effort.LOW, messages=CALLED, temperature=0.3),
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}, "temperature": None},
        ),
        (ask("claude-opus-4-7", thinking_budget=9000), {"output_config": {"effort": "medium"}}),
        (
            ask("claude-sonnet-5", effort=Effort.NONE, temperature=0, top_k=1),
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
def test_writes_settings(request_: Request, expected: dict[str, Any]) -> None:
    body = write_body(request_)
    assert {name: body.get(name) for name in expected} == expected


def test_notes_thinking_that_nobody_signed() -> None:
    request = ask(messages=[Message(Role.USER, [Text("a")]), Message(Role.ASSISTANT, [Thinking("hm"), Text("b")])])
    assert write_body(request)["messages"][1]["content"] == [{"type": "text", "text": "b"}]
    assert any("without a signature" in note for note in request.notes)


@pytest.mark.parametrize("media", [Media("audio", "audio/wav", "AA=="), Media("document", "application/zip", "AA==")])
def test_refuses_to_write(media: Media) -> None:
    with pytest.raises(Untranslatable):
        write_body(ask(messages=[Message(Role.USER, [media])]))


def test_a_prompt_of_system_messages_alone_is_said_by_the_user() -> None:
    body = write_body(ask(messages=[Message(Role.SYSTEM, [Text("Say hi")])]))
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Say hi"}]}]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", Finish.STOP),
        ("max_tokens", Finish.LENGTH),
        ("tool_use", Finish.TOOLS),
        ("refusal", Finish.REFUSAL),
        ("pause_turn", Finish.PAUSED),
    ],
)
def test_stop_reasons(reason: str, finish: Finish) -> None:
    body = {"id": "m", "model": "c", "content": [], "stop_reason": reason}
    answer = FORMAT.read_answer(json.dumps(body).encode())
    assert answer.finish is finish
    assert json.loads(FORMAT.write_answer(answer))["stop_reason"] == reason


def test_input_counts_what_came_from_caches() -> None:
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 7,
    }
    body = {"id": "m", "model": "c", "content": [], "stop_reason": "end_turn", "usage": usage}
    answer = FORMAT.read_answer(json.dumps(body).encode())
    assert answer.usage == Usage(input=125, output=7, cache_read=100, cache_write=20)
    assert json.loads(FORMAT.write_answer(answer))["usage"] == usage


def test_the_signature_of_a_call_travels_as_a_thought() -> None:
    answer = Answer("m", "g", [ToolCall("c", "a", "{}", signature="S")], Finish.TOOLS)
    expected = [Thinking(signature="S"), ToolCall("c", "a", "{}")]
    assert FORMAT.read_answer(FORMAT.write_answer(answer)).parts == expected
    streamed = answer_of(read(FORMAT.reader(), written(FORMAT.writer(ask()), events_of(answer))))
    assert isinstance(streamed, Answer) and streamed.parts == expected


def test_calls_that_overlap_are_written_one_after_the_other() -> None:
    events: list[Event] = [
        Started("m", "x"),
        PartStarted(0, ToolCall("a", "a", "")),
        PartStarted(1, ToolCall("b", "b", "")),
        Delta(1, "{}"),
        Delta(0, '{"x"'),
        PartEnded(1),
        Delta(0, ":1}"),
        Finished(Finish.TOOLS),
    ]
    data = written(FORMAT.writer(ask()), events)
    kinds = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")]
    blocks = [(kind["type"][14:], kind["index"]) for kind in kinds if "index" in kind]
    assert [index for _, index in blocks] == sorted(index for _, index in blocks)
    answer = answer_of(read(FORMAT.reader(), data))
    assert isinstance(answer, Answer) and answer.parts == [ToolCall("a", "a", '{"x":1}'), ToolCall("b", "b", "{}")]


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


def test_reads_a_providers_stream() -> None:
    assert answer_of(read(FORMAT.reader(), STREAM + END)) == Answer(
        "msg_1", "claude-x", [ToolCall("t", "now", "{}")], Finish.TOOLS, None, Usage(10, 9, 7)
    )


@pytest.mark.parametrize("data", [b"", STREAM, STREAM + END[:-40], b"data: nonsense\n\n", b'data: {"type":"x"}\n\n'])
def test_a_stream_that_breaks_off_is_broken(data: bytes) -> None:
    with pytest.raises(BrokenStream):
        read(FORMAT.reader(), data)


def sent(*events: dict[str, Any]) -> list[Event]:
    start = {"type": "message_start", "message": {"id": "m", "model": "c"}}
    reader = FORMAT.reader()
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in (start, *events))
    return [*reader.feed(data), *reader.close()]


def test_a_seal_in_pieces_is_told_once_and_whole() -> None:
    deltas = [{"type": "thinking_delta", "thinking": "Hm."}]
    deltas += [{"type": "signature_delta", "signature": piece} for piece in ("AAA", "", "BBB")]
    events = sent(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )
    assert events[1:-1] == [PartStarted(0, Thinking()), Delta(0, "Hm."), Signed(0, "AAABBB"), PartEnded(0)]


@pytest.mark.parametrize(
    "later",
    [
        {"usage": {"output_tokens": 3}},
        {"delta": {}, "usage": {"output_tokens": 3}},
        {"delta": {"stop_reason": None, "stop_sequence": None}, "usage": {"output_tokens": 3}},
    ],
)
def test_a_later_event_about_tokens_does_not_undo_the_stop_reason(later: dict[str, Any]) -> None:
    why = {"type": "message_delta", "delta": {"stop_reason": "max_tokens", "stop_sequence": "X"}}
    more = {"type": "message_delta", **later}
    for deltas in ([why, more], [more, why]):
        assert sent(*deltas, {"type": "message_stop"})[-1] == Finished(Finish.LENGTH, Usage(0, 3), "X")


def test_a_stream_that_tells_only_of_tokens_has_not_said_why_it_ended() -> None:
    with pytest.raises(BrokenStream, match="without a stop reason"):
        sent({"type": "message_delta", "usage": {"output_tokens": 3}}, {"type": "message_stop"})


def test_reasoning_tokens_of_a_stream_are_told() -> None:
    details = {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 7}}
    later = {"type": "message_delta", "usage": {"output_tokens": 9, "output_tokens_details": None}}
    events = sent(
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": details},
        later,
        {"type": "message_stop"},
    )
    assert events[-1] == Finished(Finish.STOP, Usage(0, 9, reasoning=7))


@pytest.mark.parametrize("system", [[], [Message(Role.SYSTEM, [Text("Be brief.")])]])
def test_a_conversation_of_nothing_but_space_is_refused(system: list[Message]) -> None:
    with pytest.raises(Untranslatable, match="at least one message that is not empty"):
        write_body(ask(messages=[*system, Message(Role.USER, [Text(" \n")])]))


def test_an_error_in_the_stream_is_a_failure() -> None:
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    [*_, last] = read(FORMAT.reader(), STREAM + error)
    assert last == Failed(Failure(529, "Overloaded", "overloaded_error"))
    assert read(FORMAT.reader(), FORMAT.writer(ask()).write(last)) == [last]


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (429, b'{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}', "rate_limit_error", "slow"),
        (401, b'{"error":{"message":"bad key","code":"invalid_api_key"}}', "authentication_error", "bad key"),
        (502, b"<html><head><title>502</title></head><body>Bad Gateway</body></html>", "api_error", "502 Bad Gateway"),
        (503, b"", "overloaded_error", "the provider answered 503 without saying why"),
        (400, b'{"detail":"no"}', "invalid_request_error", "no"),
    ],
)
def test_reads_failures(status: int, body: bytes, kind: str, message: str) -> None:
    failure = FORMAT.read_failure(status, body)
    assert (failure.status, failure.kind, failure.message) == (status, kind, message)


def test_writes_failures() -> None:
    assert json.loads(FORMAT.write_failure(Failure(404, "no such model", "not_found_error"))) == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "no such model"},
        "request_id": None,
    }


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_-]{0,11}", fullmatch=True)
ARGUMENTS = st.dictionaries(WORDS, st.none() | st.integers(-9, 9) | WORDS, max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
)
TEXTS = st.builds(Text, WORDS, st.booleans())
DATA = st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode())
MEDIA = st.one_of(
    st.builds(Media, st.just("image"), st.just("image/png"), DATA, cached=st.booleans()),
    st.builds(Media, st.just("image"), url=st.just("https://example.org/a.png")),
    st.builds(Media, st.just("document"), st.just("application/pdf"), DATA, name=st.none() | WORDS),
    WORDS.map(lambda text: Media("document", "text/plain", base64.b64encode(text.encode()).decode())),
)
THOUGHTS = st.builds(Thinking, st.text(max_size=9), WORDS) | st.builds(Thinking, redacted=WORDS)
CALLS = st.builds(ToolCall, NAMES, NAMES, ARGUMENTS, cached=st.booleans())
RESULTS = st.builds(
    ToolResult, NAMES, st.lists(TEXTS | MEDIA, max_size=2), is_error=st.booleans(), cached=st.booleans()
)
TURN = st.tuples(
    st.tuples(st.lists(RESULTS, max_size=2), st.lists(TEXTS | MEDIA, min_size=1, max_size=2)).map(
        lambda lists: Message(Role.USER, [*lists[0], *lists[1]])
    ),
    st.lists(TEXTS | THOUGHTS | CALLS, min_size=1, max_size=3).map(lambda parts: Message(Role.ASSISTANT, [*parts])),
)
CONVERSATIONS = st.builds(
    lambda system, turns: [*system, *(message for turn in turns for message in turn)],
    st.lists(st.lists(TEXTS, min_size=1, max_size=2).map(lambda parts: Message(Role.SYSTEM, [*parts])), max_size=1),
    st.lists(TURN, min_size=1, max_size=2),
)
REQUESTS = st.builds(
    Request,
    model=st.just("claude-sonnet-4-5"),
    messages=CONVERSATIONS,
    stream=st.booleans(),
    tools=st.lists(
        st.builds(
            Tool,
            NAMES,
            st.none() | WORDS,
            st.just({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}),
            st.sampled_from([None, True]),
            st.booleans(),
        ),
        min_size=1,
        max_size=2,
    ),
    tool_choice=st.sampled_from([None, ToolChoice.AUTO, ToolChoice.NONE]),
    max_tokens=st.integers(2000, 9000),
    top_p=st.sampled_from([None, 0.97]),
    stop=st.lists(NAMES, max_size=2),
    thinking_budget=st.sampled_from([None, 1024]),
    json_schema=st.sampled_from([None, {"type": "object", "additionalProperties": False}]),
    user=st.none() | WORDS,
)


@settings(max_examples=50, deadline=None)
@given(REQUESTS)
def test_requests_come_back_as_they_were(request_: Request) -> None:
    again = FORMAT.read_request(FORMAT.write_request(request_))
    assert not request_.notes
    assert again == request_


ANSWERS = st.builds(
    Answer,
    NAMES,
    NAMES,
    st.lists(
        st.one_of(
            st.builds(Text, st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
            st.builds(Thinking, st.text(max_size=9), st.none() | WORDS),
            st.builds(Thinking, redacted=WORDS),
            st.builds(ToolCall, NAMES, NAMES, ARGUMENTS),
        ),
        max_size=4,
    ),
    st.sampled_from([Finish.STOP, Finish.LENGTH, Finish.TOOLS, Finish.REFUSAL, Finish.PAUSED]),
    usage=st.builds(
        lambda new, read, write, out: Usage(new + read + write, out, read, write), *[st.integers(0, 99)] * 4
    ),
)


@settings(max_examples=50, deadline=None)
@given(ANSWERS, st.lists(st.integers(0, 10_000), max_size=6))
def test_answers_come_back_as_they_were_whole_and_streamed(answer: Answer, cuts: list[int]) -> None:
    assert FORMAT.read_answer(FORMAT.write_answer(answer)) == answer
    assert answer_of(read(FORMAT.reader(), written(FORMAT.writer(ask()), events_of(answer)), cuts)) == answer


def test_a_refusal_is_said_as_text() -> None:
    answer = Answer("m", "g", [Refusal("No.")], Finish.REFUSAL)
    assert FORMAT.read_answer(FORMAT.write_answer(answer)).parts == [Text("No.")]
