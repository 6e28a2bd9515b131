from __future__ import annotations

import json
from typing import Any

import pytest

from paddock.errors import InvalidInput
from paddock.llm.formats.anthropic import AnthropicFormat
from paddock.llm.formats.base import BrokenModelStream, UntranslatableRequest
from paddock.llm.formats.gemini import GeminiFormat
from paddock.llm.formats.gemini.schema_conversion import GeminiSchemaWriter, read_gemini_schema
from paddock.llm.formats.neutral import (
    AnswerStreamFailed,
    FinishReason,
    MessageRole,
    ModelAnswer,
    ModelFailure,
    ModelMedia,
    ModelMessage,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ModelToolResult,
    ProviderSignature,
    ReasoningEffort,
    TokenUsage,
    ToolChoice,
    ToolDefinition,
)

from .stream_helpers import answer_from_valid_events, read_in_pieces

FORMAT = GeminiFormat()
HELLO = [{"role": "user", "parts": [{"text": "Hello"}]}]


def read_body(**fields: Any) -> ModelRequest:
    return FORMAT.read_request(json.dumps({"contents": HELLO} | fields).encode(), model="gemini-3-pro", stream=True)


def write_body(request: ModelRequest) -> Any:
    return json.loads(FORMAT.write_request(request))


def ask(model: str = "gemini-2.5-flash", **fields: Any) -> ModelRequest:
    return ModelRequest(model=model, **({"messages": [ModelMessage(MessageRole.USER, [ModelText("Hello")])]} | fields))


def test_reads_gemini_cli_request() -> None:
    request = read_body(
        systemInstruction={"role": "user", "parts": [{"text": "Rules."}]},
        contents=[
            {"role": "user", "parts": [{"text": "Go"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Hm.", "thought": True},
                    {"functionCall": {"name": "read", "args": {"path": "a"}}, "thoughtSignature": "S"},
                    {"functionCall": {"name": "read", "args": {"path": "b"}}},
                    {"functionCall": {"name": "now"}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "own-1", "name": "read", "response": {"output": "A"}}},
                    {"functionResponse": {"name": "now", "response": {"error": "broken"}}},
                    {
                        "functionResponse": {
                            "name": "read",
                            "response": {"lines": 2},
                            "parts": [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}],
                        }
                    },
                ],
            },
        ],
        tools=[
            {
                "functionDeclarations": [
                    {
                        "name": "read",
                        "description": "Reads",
                        "parameters": {"type": "OBJECT", "properties": {"path": {"type": "STRING", "nullable": True}}},
                    },
                    {"name": "now", "description": "Time", "parametersJsonSchema": {"type": "object"}},
                ]
            },
            {"googleSearch": {}},
        ],
        generationConfig={"temperature": 1, "topP": 0.95, "topK": 64, "thinkingConfig": {"thinkingLevel": "HIGH"}},
        safetySettings=[],
    )
    assert request.model == "gemini-3-pro" and request.stream
    assert request.messages == [
        ModelMessage(MessageRole.SYSTEM, [ModelText("Rules.")]),
        ModelMessage(MessageRole.USER, [ModelText("Go")]),
        ModelMessage(
            MessageRole.ASSISTANT,
            [
                ModelThinking("Hm."),
                ModelToolCall("call_0", "read", '{"path":"a"}', "S"),
                ModelToolCall("call_1", "read", '{"path":"b"}'),
                ModelToolCall("call_2", "now", "{}"),
            ],
        ),
        ModelMessage(
            MessageRole.USER,
            [
                ModelToolResult("call_0", [ModelText("A")], "read"),
                ModelToolResult("call_2", [ModelText("broken")], "now", is_error=True),
                ModelToolResult("call_1", [ModelText('{"lines":2}'), ModelMedia("image", "image/png", "AA==")], "read"),
            ],
        ),
    ]
    assert request.tools == [
        ToolDefinition("read", "Reads", {"type": "object", "properties": {"path": {"type": ["string", "null"]}}}),
        ToolDefinition("now", "Time", {"type": "object"}),
    ]
    assert (request.effort, request.top_k) == (ReasoningEffort.HIGH, 64)
    assert any("googleSearch" in note for note in request.notes)


def test_reads_snake_case_field_names() -> None:
    request = read_body(
        system_instruction={"parts": [{"text": "x"}]},
        contents=[{"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": "AA=="}}]}],
        generation_config={"max_output_tokens": 5},
    )
    assert request.messages[0] == ModelMessage(MessageRole.SYSTEM, [ModelText("x")])
    assert request.messages[1].parts == [ModelMedia("image", "image/png", "AA==")]
    assert request.max_tokens == 5


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}, {"effort": ReasoningEffort.NONE}),
        ({"generationConfig": {"thinkingConfig": {"thinkingBudget": -1}}}, {"effort": None, "thinking_budget": None}),
        ({"generationConfig": {"thinkingConfig": {"thinkingBudget": 99}}}, {"thinking_budget": 99}),
        ({"generationConfig": {"responseMimeType": "application/json"}}, {"json_mode": True}),
        (
            {"generationConfig": {"responseMimeType": "application/json", "responseSchema": {"type": "STRING"}}},
            {"json_schema": {"type": "string"}, "json_mode": False},
        ),
        ({"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}, {"tool_choice": ToolChoice.NONE}),
        (
            {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a"]}}},
            {"tool_choice": ToolChoice.NAMED, "tool_name": "a"},
        ),
        (
            {
                "tools": [{"functionDeclarations": [{"name": name} for name in "abc"]}],
                "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a", "b"]}},
            },
            {"tool_choice": ToolChoice.ANY, "tools": [ToolDefinition("a"), ToolDefinition("b")]},
        ),
    ],
)
def test_reads_settings(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    request = read_body(**fields)
    assert {name: getattr(request, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"contents": []}, InvalidInput, "contents should have"),
        ({"contents": [{"role": "bot", "parts": []}]}, InvalidInput, r"contents\[0\].role should be"),
        ({"contents": [{"parts": [{"functionCall": {}}]}]}, InvalidInput, r"parts\[0\].functionCall.name is missing"),
        ({"cachedContent": "cachedContents/1"}, UntranslatableRequest, "cachedContent"),
        ({"generationConfig": {"candidateCount": 2}}, UntranslatableRequest, "candidateCount"),
        (
            {"contents": [{"parts": [{"fileData": {"mimeType": "video/mp4", "fileUri": "x"}}]}]},
            UntranslatableRequest,
            "is a video",
        ),
        (
            {"tools": [{"googleSearch": {}}], "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
            UntranslatableRequest,
            "forces a tool",
        ),
    ],
)
def test_refuses_invalid_requests(fields: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_body(**fields)


LOOP = [
    ModelMessage(MessageRole.USER, [ModelText("Go")]),
    ModelMessage(
        MessageRole.ASSISTANT,
        [ModelThinking("hm", "S"), ModelToolCall("x", "a", '{"n":1}'), ModelToolCall("y", "b", "")],
    ),
    ModelMessage(MessageRole.USER, [ModelToolResult("x", [ModelText("1"), ModelMedia("image", "image/png", "AA==")])]),
    ModelMessage(MessageRole.USER, [ModelToolResult("y", [ModelText("no")], is_error=True)]),
]
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}


def test_writes_calls_and_results_by_name() -> None:
    contents = write_body(ask(messages=LOOP))["contents"]
    assert contents[1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True},
                {"functionCall": {"name": "a", "args": {"n": 1}}, "thoughtSignature": "S"},
                {"functionCall": {"name": "b", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "a", "response": {"output": "1"}}},
                {"functionResponse": {"name": "b", "response": {"error": "no"}}},
                PICTURE,
            ],
        },
    ]


def test_gemini_3_gets_pictures_in_results_and_signed_calls() -> None:
    messages = [
        LOOP[0],
        ModelMessage(MessageRole.ASSISTANT, [ModelToolCall("x", "a", "{}"), ModelToolCall("z", "a", "{}")]),
        LOOP[2],
    ]
    contents = write_body(ask("gemini-3-pro", messages=messages))["contents"]
    signatures = [part.get("thoughtSignature") for part in contents[1]["parts"]]
    assert signatures == ["skip_thought_signature_validator", None]
    assert contents[2]["parts"][0]["functionResponse"]["parts"] == [PICTURE]


def test_a_result_for_an_unknown_call_is_refused() -> None:
    with pytest.raises(UntranslatableRequest, match="follows no call"):
        write_body(ask(messages=[ModelMessage(MessageRole.USER, [ModelToolResult("x", [])])]))


def test_signatures_survive_anthropic_client() -> None:
    answer = ModelAnswer(
        "r",
        "gemini-3-pro",
        [ModelThinking("hm"), ModelToolCall("c", "a", "{}", ProviderSignature("S", "gemini"))],
        FinishReason.TOOLS,
    )
    content = json.loads(AnthropicFormat().write_answer(answer))["content"]
    messages = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "1"}]},
    ]
    body = {"model": "gemini-3-pro", "messages": messages}
    request = AnthropicFormat().read_request(json.dumps(body).encode())
    parts = write_body(request)["contents"][1]["parts"]
    assert parts[-1] == {"functionCall": {"name": "a", "args": {}}, "thoughtSignature": "S"}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ask(max_tokens=9, stop=["X"], seed=3), {"maxOutputTokens": 9, "stopSequences": ["X"], "seed": 3}),
        (ask(effort=ReasoningEffort.LOW), {"thinkingConfig": {"thinkingBudget": 1024, "includeThoughts": True}}),
        (ask(effort=ReasoningEffort.NONE), {"thinkingConfig": {"thinkingBudget": 0, "includeThoughts": False}}),
        (
            ask("gemini-2.5-pro", effort=ReasoningEffort.NONE),
            {"thinkingConfig": {"thinkingBudget": 128, "includeThoughts": True}},
        ),
        (
            ask("gemini-3-pro", effort=ReasoningEffort.NONE),
            {"thinkingConfig": {"thinkingLevel": "low", "includeThoughts": True}},
        ),
        (ask(json_mode=True), {"responseMimeType": "application/json"}),
        (
            ask(json_schema={"type": "string", "$schema": "x"}),
            {"responseMimeType": "application/json", "responseSchema": {"type": "STRING"}},
        ),
    ],
)
def test_writes_settings(request_: ModelRequest, expected: dict[str, Any]) -> None:
    assert write_body(request_)["generationConfig"] == expected


def test_writes_tools() -> None:
    tools = [ToolDefinition("a", "A", {"type": "object", "properties": {"x": {"type": "string"}}}), ToolDefinition("b")]
    body = write_body(ask(tools=tools, tool_choice=ToolChoice.NAMED, tool_name="a"))
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "a",
                    "description": "A",
                    "parameters": {"type": "OBJECT", "properties": {"x": {"type": "STRING"}}},
                },
                {"name": "b", "description": ""},
            ]
        }
    ]
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a"]}}


@pytest.mark.parametrize(
    ("schema", "expected", "dropped"),
    [
        ({"type": ["string", "null"]}, {"type": "STRING", "nullable": True}, set()),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}, set()),
        (
            {"type": ["array", "string"], "items": {"type": "integer"}},
            {"anyOf": [{"type": "ARRAY", "items": {"type": "INTEGER"}}, {"type": "STRING"}]},
            set(),
        ),
        (
            {"type": ["object", "array"], "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {
                "anyOf": [
                    {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["a"]},
                    {"type": "ARRAY", "items": {"type": "STRING"}},
                ]
            },
            set(),
        ),
        ({"items": {"type": "string"}}, {"type": "ARRAY", "items": {"type": "STRING"}}, set()),
        ({"enum": ["", "a"]}, {"type": "STRING", "enum": ["a"]}, {"empty text in an enum"}),
        ({"type": "string", "format": "int32"}, {"type": "STRING"}, {"format int32"}),
        ({"type": "object", "additionalProperties": False}, {"type": "OBJECT"}, {"additionalProperties"}),
        ({"type": "array"}, {"type": "ARRAY", "items": {"type": "STRING"}}, set()),
        ({"const": "x"}, {"type": "STRING", "enum": ["x"]}, set()),
        (
            {"type": "integer", "enum": [1, 2]},
            {"type": "INTEGER", "description": "One of: 1, 2."},
            {"enum of other than strings"},
        ),
        ({"type": "string", "format": "uri"}, {"type": "STRING"}, {"format uri"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"nullable": True, "type": "STRING"}, set()),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer", "minimum": 1}}},
            {"type": "INTEGER", "minimum": 1},
            set(),
        ),
        (
            {
                "type": "object",
                "properties": {"child": {"$ref": "#"}},
                "required": ["child", "ghost"],
            },
            {
                "type": "OBJECT",
                "properties": {
                    "child": {"type": "OBJECT", "properties": {"child": {"type": "OBJECT"}}, "required": ["child"]}
                },
                "required": ["child"],
            },
            {"recursive $ref"},
        ),
        (
            {"allOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["a"]}]},
            {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["a"]},
            set(),
        ),
        ({"$ref": "https://elsewhere"}, {}, {"unresolved $ref"}),
        ({"type": "object", "properties": {"any": True}}, {"type": "OBJECT", "properties": {"any": {}}}, set()),
    ],
)
def test_schemas(schema: dict[str, Any], expected: dict[str, Any], dropped: set[str]) -> None:
    writer = GeminiSchemaWriter()
    assert writer.write(schema) == expected
    assert writer.dropped == dropped


def test_endlessly_growing_schema_is_refused() -> None:
    levels = {str(n): {"properties": {c: {"$ref": f"#/$defs/{n + 1}"} for c in "abcdef"}} for n in range(20)}
    with pytest.raises(UntranslatableRequest, match="more than 10000 parts"):
        GeminiSchemaWriter().write({"$ref": "#/$defs/0", "$defs": levels})


def test_schemas_survive_a_round_trip() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"], "enum": ["x", None]}, "b": {"type": "array", "items": {}}},
        "required": ["a"],
    }
    assert read_gemini_schema(GeminiSchemaWriter().write(schema)) == schema


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", FinishReason.STOP),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("SAFETY", FinishReason.FILTERED),
        ("RECITATION", FinishReason.FILTERED),
        ("OTHER", FinishReason.STOP),
    ],
)
def test_finish_reasons(reason: str, finish: FinishReason) -> None:
    body = json.dumps({"candidates": [{"finishReason": reason}]}).encode()
    assert FORMAT.read_answer(body).finish is finish


def test_a_blocked_prompt_is_filtered() -> None:
    body = json.dumps({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}}).encode()
    assert FORMAT.read_answer(body).finish is FinishReason.FILTERED
    answer = answer_from_valid_events(read_in_pieces(FORMAT.new_stream_reader(), b"data: " + body + b"\n\n"))
    assert (
        isinstance(answer, ModelAnswer)
        and answer.finish is FinishReason.FILTERED
        and answer.usage == TokenUsage(input=4)
    )


PIECES: list[dict[str, Any]] = [
    {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "Let me ", "thought": True}]}}],
        "modelVersion": "gemini-3-pro",
        "responseId": "abc",
        "usageMetadata": {"promptTokenCount": 10},
    },
    {"candidates": [{"content": {"parts": [{"text": "see", "thought": True}]}}]},
    {"candidates": [{"content": {"parts": [{"text": "Look"}]}}]},
    {"candidates": [{"content": {"parts": [{"text": "ing."}, {"executableCode": {"code": "1"}}]}}]},
    {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"functionCall": {"name": "a", "args": {"x": "}"}}, "thoughtSignature": "S"},
                        {"functionCall": {"name": "b"}},
                    ]
                }
            }
        ]
    },
]
LAST = {
    "candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}],
    "usageMetadata": {
        "promptTokenCount": 10,
        "cachedContentTokenCount": 4,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 3,
    },
}
EXPECTED_ANSWER = ModelAnswer(
    "abc",
    "gemini-3-pro",
    [
        ModelThinking("Let me see"),
        ModelText("Looking."),
        ModelToolCall("call_abc_0", "a", '{"x":"}"}', "S"),
        ModelToolCall("call_abc_1", "b", "{}"),
    ],
    FinishReason.TOOLS,
    usage=TokenUsage(input=10, output=8, cache_read=4, reasoning=3),
)


def as_events(pieces: list[dict[str, Any]]) -> bytes:
    return b"".join(b"data: " + json.dumps(piece).encode() + b"\r\n\r\n" for piece in pieces)


def as_array(pieces: list[dict[str, Any]]) -> bytes:
    return json.dumps(pieces, indent=1).encode()


@pytest.mark.parametrize("cut", [1, 7, 1000])
@pytest.mark.parametrize("form", [as_events, as_array])
def test_reads_provider_stream(form: Any, cut: int) -> None:
    data = form([*PIECES, LAST])
    assert (
        answer_from_valid_events(read_in_pieces(FORMAT.new_stream_reader(), data, range(0, len(data), cut)))
        == EXPECTED_ANSWER
    )


@pytest.mark.parametrize("data", [b"", as_events(PIECES), as_array(PIECES), b"data: nonsense\n\n", b"[{]}"])
def test_an_incomplete_stream_is_an_error(data: bytes) -> None:
    with pytest.raises(BrokenModelStream):
        read_in_pieces(FORMAT.new_stream_reader(), data)


@pytest.mark.parametrize("form", [as_events, as_array])
def test_an_error_in_the_stream_is_a_failure(form: Any) -> None:
    error = {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}
    [*_, last] = read_in_pieces(FORMAT.new_stream_reader(), form([*PIECES, error]))
    assert last == AnswerStreamFailed(ModelFailure(503, "busy", "overloaded_error"))


def test_malformed_call_is_a_failure() -> None:
    piece = {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print("}]}
    [*_, last] = read_in_pieces(FORMAT.new_stream_reader(), as_events([piece]))
    assert isinstance(last, AnswerStreamFailed) and "print(" in last.failure.message
    with pytest.raises(BrokenModelStream):
        FORMAT.read_answer(json.dumps(piece).encode())


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, b'{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}', "rate_limit_error"),
        (400, b'[{"error":{"code":400,"message":"slow","status":"INVALID_ARGUMENT"}}]', "invalid_request_error"),
        (400, b'{"error":{"message":"slow","details":[{"reason":"API_KEY_INVALID"}]}}', "authentication_error"),
        (500, b"slow", "api_error"),
    ],
)
def test_reads_failures(status: int, body: bytes, kind: str) -> None:
    assert FORMAT.read_failure(status, body) == ModelFailure(status, "slow", kind)


def test_writes_failures() -> None:
    assert json.loads(FORMAT.write_failure(ModelFailure(429, "slow", "rate_limit_error"))) == {
        "error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}
    }
