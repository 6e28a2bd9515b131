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
    AnswerStreamFailed,
    AnswerStreamFinished,
    AnswerStreamStarted,
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
)
from paddock.llm.formats.openai_chat import OpenAIChatFormat
from paddock.llm.formats.openai_responses import OpenAIResponsesFormat

from . import openai_helpers as cases
from .openai_helpers import body, read_stream, sse

responses = OpenAIResponsesFormat()

CODEX = {
    "model": "m",
    "stream": True,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "instructions": "You are Codex",
    "prompt_cache_key": "k",
    "parallel_tool_calls": False,
    "tool_choice": "auto",
    "reasoning": {"effort": "high", "summary": "auto"},
    "text": {"verbosity": "low"},
    "tools": [
        {"type": "function", "name": "shell", "strict": False, "parameters": {"type": "object"}},
        {
            "type": "namespace",
            "name": "mcp__calc",
            "description": "Sums",
            "tools": [{"type": "function", "name": "add", "strict": False, "parameters": {"type": "object"}}],
        },
        {
            "type": "custom",
            "name": "apply_patch",
            "format": {"type": "grammar", "syntax": "lark", "definition": "a: b"},
        },
        {"type": "web_search", "external_web_access": True},
    ],
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Sandboxed"}]},
        {"role": "user", "content": "go"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "seal"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
        {"type": "function_call", "call_id": "a", "namespace": "mcp__calc", "name": "add", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "apply_patch", "input": "*** Begin"},
        {"type": "web_search_call", "status": "completed"},
        {"type": "function_call_output", "call_id": "a", "output": "3"},
        {
            "type": "custom_tool_call_output",
            "call_id": "b",
            "output": [
                {"type": "input_text", "text": "done"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
            ],
        },
    ],
}


def test_reads_codex_request() -> None:
    request = responses.read_request(json.dumps(CODEX).encode())
    assert request.messages == [
        ModelMessage(MessageRole.SYSTEM, [ModelText("You are Codex")]),
        ModelMessage(MessageRole.SYSTEM, [ModelText("Sandboxed")]),
        ModelMessage(MessageRole.USER, [ModelText("go")]),
        ModelMessage(
            MessageRole.ASSISTANT,
            [
                ModelThinking("hm", "seal"),
                ModelText("ok"),
                ModelToolCall("a", "mcp__calc__add", "{}"),
                ModelToolCall("b", "apply_patch", '{"input":"*** Begin"}'),
            ],
        ),
        ModelMessage(
            MessageRole.USER,
            [
                ModelToolResult("a", [ModelText("3")], "mcp__calc__add"),
                ModelToolResult("b", [ModelText("done"), ModelMedia("image", "image/png", "AAAA")], "apply_patch"),
            ],
        ),
    ]
    assert [tool.name for tool in request.tools] == ["shell", "mcp__calc__add", "apply_patch"]
    assert request.effort == ReasoningEffort.HIGH
    assert request.notes == [
        "input web_search_call: only OpenAI runs that tool",
        "tool web_search: only OpenAI runs it",
    ]


def test_codex_request_is_unchanged_for_responses_provider() -> None:
    request = responses.read_request(json.dumps(CODEX).encode())
    sent = json.loads(responses.write_request(request))
    for field in CODEX.keys() - {"input"}:
        assert sent[field] == CODEX[field], field
    again = responses.read_request(json.dumps(sent).encode())
    assert again.messages == request.messages and again.tools == request.tools
    assert {item["type"] for item in sent["input"]} >= {"custom_tool_call", "custom_tool_call_output"}
    assert sent["input"][4]["namespace"] == "mcp__calc"


def test_calls_use_the_clients_own_tools() -> None:
    request = responses.read_request(json.dumps(CODEX).encode())
    patch, add = (
        ModelToolCall("p", "apply_patch", '{"input":"*** Begin"}'),
        ModelToolCall("q", "mcp__calc__add", '{"a":1}'),
    )
    answer = ModelAnswer("r", "m", [patch, add], FinishReason.TOOLS)
    writer = responses.new_stream_writer(request)
    data = b"".join(writer.write(event) for event in stream_events_from_answer(answer))
    for output in (writer.response["output"], json.loads(responses.write_answer(answer, request))["output"]):
        assert (output[0]["type"], output[0]["input"]) == ("custom_tool_call", "*** Begin")
        assert (output[1]["namespace"], output[1]["name"]) == ("mcp__calc", "add")
    assert answer_from_stream_events(read_stream(responses.new_stream_reader(), [data])) == answer


def test_codex_request_is_translated_for_chat_provider() -> None:
    request = responses.read_request(json.dumps(CODEX).encode())
    sent = json.loads(OpenAIChatFormat().write_request(request))
    roles = ["system", "user", "assistant", "tool", "tool", "user"]
    assert [message["role"] for message in sent["messages"]] == roles
    assert sent["messages"][2]["reasoning_content"] == "hm"
    assert "store" not in sent and "include" not in sent and "prompt_cache_key" not in sent


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"input": "a", "previous_response_id": "r"},
            "^previous_response_id cannot be used here: the proxy does not store",
        ),
        ({"input": "a", "conversation": "c"}, "^conversation cannot be used"),
        ({"input": "a", "background": True}, "^background should be false"),
        ({}, "^input is missing"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, r"^input\[0\]\.type is 'item_reference'"),
        ({"input": [{"type": "spell"}]}, r"^input\[0\]\.type is 'spell'"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "image_url is missing"),
        ({"input": "a", "tool_choice": {"type": "web_search"}}, r"^tool_choice\.type is 'web_search'"),
        ({"input": [{"type": "function_call", "name": "x"}]}, r"^input\[0\]\.call_id is missing"),
    ],
)
def test_error_for_invalid_request_names_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        responses.read_request(body(**fields))


def test_settings_unsupported_by_the_responses_api() -> None:
    with pytest.raises(UntranslatableRequest, match="stop"):
        responses.write_request(ModelRequest("m", [], stop=["a"]))
    thought = ModelMessage(MessageRole.ASSISTANT, [ModelThinking("hm"), ModelText("a")])
    request = ModelRequest("m", [thought], seed=1, top_k=2, thinking_budget=10_000)
    sent = json.loads(responses.write_request(request))
    assert [item["type"] for item in sent["input"]] == ["message"]
    assert sent["reasoning"] == {"effort": "medium"} and sent["include"] == ["reasoning.encrypted_content"]
    assert [text.partition(":")[0] for text in request.notes] == ["thinking without a signature", "top_k", "seed"]


texts = st.builds(ModelText, cases.words)
links = st.builds(ModelMedia, st.just("document"), url=st.just("https://example.com/a.pdf"))
text_or_media: st.SearchStrategy[ModelText | ModelMedia] = st.one_of(
    texts, cases.images, cases.documents, cases.sounds, links
)
systems = st.builds(lambda part: ModelMessage(MessageRole.SYSTEM, [part]), texts)
users = st.builds(
    lambda parts: ModelMessage(MessageRole.USER, list(parts)), st.lists(text_or_media, min_size=1, max_size=3)
)
thoughts = st.one_of(st.builds(ModelThinking, st.just("") | cases.words, cases.words))
answer_parts: st.SearchStrategy[MessagePart] = st.one_of(texts, st.builds(ModelRefusal, cases.words), thoughts)


@st.composite
def turns(draw: st.DrawFn, prefix: str = "") -> list[ModelMessage]:
    parts: list[MessagePart] = draw(st.lists(answer_parts, min_size=1, max_size=3))
    calls = [
        ModelToolCall(f"{prefix}{index}", draw(cases.names), draw(cases.arguments))
        for index in range(draw(st.integers(0, 3)))
    ]
    content = st.lists(st.one_of(texts, cases.images, cases.documents), max_size=2)
    results: list[MessagePart] = [ModelToolResult(call.id, list(draw(content)), call.name) for call in calls]
    messages = [draw(systems), draw(users), ModelMessage(MessageRole.ASSISTANT, [*parts, *calls])]
    return messages + ([ModelMessage(MessageRole.USER, results)] if results else [])


@st.composite
def requests(draw: st.DrawFn) -> ModelRequest:
    tools = draw(cases.tools)
    choice = draw(st.sampled_from([None, *ToolChoice])) if tools else None
    schema = draw(st.none() | cases.schemas)
    return ModelRequest(
        model="m",
        messages=[message for index in range(draw(st.integers(0, 2))) for message in draw(turns(f"c{index}_"))],
        stream=draw(st.booleans()),
        tools=tools,
        tool_choice=choice,
        tool_name=tools[0].name if choice == ToolChoice.NAMED else None,
        parallel_tools=draw(st.none() | st.booleans()),
        max_tokens=draw(st.none() | st.integers(16, 10**6)),
        temperature=draw(st.none() | st.floats(0, 2)),
        top_p=draw(st.none() | st.floats(0, 1)),
        effort=draw(
            st.sampled_from(
                [None, ReasoningEffort.NONE, ReasoningEffort.LOW, ReasoningEffort.MEDIUM, ReasoningEffort.HIGH]
            )
        ),
        json_schema=schema,
        json_mode=draw(st.booleans()) if schema is None else False,
        user=draw(st.none() | cases.words),
    )


@settings(max_examples=50, deadline=None)
@given(requests())
def test_requests_survive_a_round_trip(request: ModelRequest) -> None:
    again = responses.read_request(responses.write_request(request))
    again.extra = {}
    assert again == request
    assert request.notes == []


@st.composite
def answers(draw: st.DrawFn) -> ModelAnswer:
    calls = st.builds(ModelToolCall, cases.words, cases.names, cases.arguments)
    either: st.SearchStrategy[MessagePart] = st.one_of(answer_parts, calls, st.builds(ModelThinking, cases.words))
    parts = draw(st.lists(either, max_size=5))
    refused = any(isinstance(part, ModelRefusal) for part in parts)
    called = any(isinstance(part, ModelToolCall) for part in parts)
    natural = FinishReason.TOOLS if called else FinishReason.REFUSAL if refused else FinishReason.STOP
    finish = draw(st.sampled_from([natural, FinishReason.LENGTH, FinishReason.FILTERED]))
    return ModelAnswer("id1", "m", parts, finish, usage=draw(st.none() | cases.usages))


@settings(max_examples=50, deadline=None)
@given(answers(), cases.cuts)
def test_answers_survive_a_round_trip_whole_and_streamed(answer: ModelAnswer, positions: list[int]) -> None:
    assert responses.read_answer(responses.write_answer(answer)) == answer
    writer = responses.new_stream_writer(ModelRequest("m", []))
    data = b"".join(writer.write(event) for event in stream_events_from_answer(answer))
    assert (
        answer_from_stream_events(read_stream(responses.new_stream_reader(), cases.split_at(data, positions))) == answer
    )


def events_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: ")]


def test_stream_has_all_expected_events() -> None:
    parts: list[MessagePart] = [ModelThinking("t", "seal"), ModelText("a"), ModelToolCall("c", "f", "{}")]
    writer = responses.new_stream_writer(ModelRequest("m", []))
    answer = ModelAnswer("r", "m", parts, FinishReason.TOOLS, usage=TokenUsage(5, 3, 2, 0, 1))
    events = events_of(b"".join(writer.write(event) for event in stream_events_from_answer(answer)))
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    final = events[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["reasoning", "message", "function_call"]
    assert final["output"][0]["encrypted_content"] == "seal"
    assert final["usage"] == {
        "input_tokens": 5,
        "output_tokens": 3,
        "total_tokens": 8,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    assert events[0]["response"]["status"] == "in_progress" and final["status"] == "completed"


def test_an_answer_cut_short_is_incomplete() -> None:
    writer = responses.new_stream_writer(ModelRequest("m", []))
    events = events_of(
        writer.write(AnswerStreamStarted("r", "m")) + writer.write(AnswerStreamFinished(FinishReason.LENGTH))
    )
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_failure_before_the_start_ends_the_stream() -> None:
    events = events_of(
        responses.new_stream_writer(ModelRequest("m", [])).write(
            AnswerStreamFailed(ModelFailure(529, "busy", "overloaded_error"))
        )
    )
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.failed"]
    assert events[-1]["response"]["error"] == {"code": "server_is_overloaded", "message": "busy"}


CREATED = {"type": "response.created", "response": {"id": "r", "model": "m"}}
COMPLETED = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}
MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "a"}]}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'}
STREAMS: dict[str, tuple[list[Any], list[MessagePart], FinishReason]] = {
    "items come whole": (
        [
            CREATED,
            {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
            {"type": "response.output_item.done", "output_index": 1, "item": CALL},
            COMPLETED,
        ],
        [ModelText("a"), ModelToolCall("c", "f", '{"a":1}')],
        FinishReason.TOOLS,
    ),
    "all in the last event": (
        [CREATED, {"type": "response.completed", "response": {"status": "completed", "output": [MESSAGE, CALL]}}],
        [ModelText("a"), ModelToolCall("c", "f", '{"a":1}')],
        FinishReason.TOOLS,
    ),
    "deltas without items, then done": (
        [
            CREATED,
            {"type": "response.output_text.delta", "item_id": "x", "delta": "a"},
            {"type": "response.output_text.delta", "item_id": "x", "delta": "b"},
            COMPLETED,
            "[DONE]",
        ],
        [ModelText("ab")],
        FinishReason.STOP,
    ),
    "two paragraphs of summary": (
        [
            CREATED,
            {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0},
            {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "a"},
            {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1},
            {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 1, "delta": "b"},
            {
                "type": "response.output_item.done",
                "output_index": 0,
                "item": {"type": "reasoning", "summary": [{"text": "a"}, {"text": "b"}], "encrypted_content": "s"},
            },
            COMPLETED,
        ],
        [ModelThinking("a\n\nb", "s")],
        FinishReason.STOP,
    ),
    "arguments only when done": (
        [
            CREATED,
            {"type": "response.output_item.added", "output_index": 0, "item": {**CALL, "arguments": ""}},
            {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": '{"a":1}'},
            {"type": "response.output_item.done", "output_index": 0, "item": CALL},
            COMPLETED,
        ],
        [ModelToolCall("c", "f", '{"a":1}')],
        FinishReason.TOOLS,
    ),
    "the provider's own search": (
        [
            CREATED,
            {"type": "response.output_item.added", "output_index": 0, "item": {"type": "web_search_call"}},
            {"type": "response.web_search_call.searching", "output_index": 0},
            {"type": "response.output_item.done", "output_index": 0, "item": {"type": "web_search_call"}},
            {"type": "response.output_item.done", "output_index": 1, "item": MESSAGE},
            COMPLETED,
        ],
        [ModelText("a")],
        FinishReason.STOP,
    ),
}


@pytest.mark.parametrize("case", STREAMS)
def test_streams_of_real_servers(case: str) -> None:
    sent, parts, finish = STREAMS[case]
    answer = answer_from_stream_events(read_stream(responses.new_stream_reader(), [sse(*sent)]))
    assert answer is not None
    assert (answer.id, answer.model, answer.parts, answer.finish) == ("r", "m", parts, finish)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        sse(CREATED),
        sse("{garbage"),
        sse(CREATED, "[DONE]"),
        sse(CREATED, {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{"}),
        sse(CREATED, {"type": "response.output_text.delta", "output_index": 0, "delta": 5}),
    ],
)
def test_an_incomplete_stream_is_an_error(data: bytes) -> None:
    with pytest.raises(BrokenModelStream):
        read_stream(responses.new_stream_reader(), [data])


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "slow"}}},
        {"type": "error", "code": "rate_limit_exceeded", "message": "slow"},
        {"type": "error", "error": {"code": "rate_limit_exceeded", "message": "slow"}},
        {"error": {"code": "rate_limit_exceeded", "message": "slow"}},
    ],
)
def test_an_error_in_the_stream_is_a_failure(event: dict[str, Any]) -> None:
    last = read_stream(responses.new_stream_reader(), [sse(CREATED, event)])[-1]
    assert last == AnswerStreamFailed(ModelFailure(429, "slow", "rate_limit_error", "rate_limit_exceeded"))


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b'{"status":"failed","error":{"message":"x"},"output":[]}', b'{"output":[{"type":"function_call"}]}'],
)
def test_a_malformed_answer_is_an_error(data: bytes) -> None:
    with pytest.raises(BrokenModelStream):
        responses.read_answer(data)
