"""Recorded requests of agent programs can be translated to every format and are valid for the official SDKs.

`requests/` has the first and the second request of a run of each program, with shortened prose; tests/clis/
record_agent_requests.py records them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming
from google.genai import types as gemini
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import BaseModel, TypeAdapter

from paddock.llm.formats.neutral import MessageRole, ModelRequest, ModelText, ModelToolCall, ModelToolResult
from paddock.llm.formats.registry import FORMATS

RECORDED = {path.stem: json.loads(path.read_text()) for path in sorted(Path(__file__).with_name("requests").iterdir())}
CLIENTS = sorted(RECORDED)
GOAL = "Write first.txt and second.txt, please."
COMMAND = "printf 'one\\ttwo '\\''three'\\'' \"four\"\\n' > first.txt && echo first-is-there"
SHAPES: dict[str, Any] = {
    "openai-chat": TypeAdapter(CompletionCreateParamsStreaming),
    "openai-responses": TypeAdapter(ResponseCreateParamsStreaming),
    "anthropic": TypeAdapter(MessageCreateParamsStreaming),
}

EXTENSIONS = {
    # Servers that return reasoning expect it back.
    "openai-chat": re.compile(r"messages\.\d+\.reasoning_content$"),
    # Added by codex.
    "openai-responses": re.compile(r"^\.client_metadata$"),
    # Older models accept these; schemas are free-form.
    "anthropic": re.compile(r"^\.(temperature|top_p|top_k)$|\.input_schema\."),
}
"""Fields that are valid although the official SDKs do not define them."""


def recorded(client: str, turn: str) -> ModelRequest:
    """Return a parsed request of a program; the second is recorded as the difference to the first."""
    found = RECORDED[client]
    body = found["first"] if turn == "first" else {**found["first"], **found["then"]}
    form = FORMATS[found["format"]]
    return form.read_request(json.dumps(body).encode(), model="some-model", stream=True)


def parts(request: ModelRequest, kind: type[Any]) -> list[Any]:
    return [part for message in request.messages for part in message.parts if isinstance(part, kind)]


@pytest.mark.parametrize("client", CLIENTS)
def test_first_request_is_parsed(client: str) -> None:
    request = recorded(client, "first")
    assert request.stream
    assert any(part.text.strip('"') == GOAL for part in parts(request, ModelText))
    assert any(message.role is MessageRole.SYSTEM for message in request.messages)
    assert len(request.tools) >= 5
    assert all(tool.parameters is None or tool.parameters.get("type") == "object" for tool in request.tools)


@pytest.mark.parametrize("client", CLIENTS)
def test_second_request_is_parsed(client: str) -> None:
    request = recorded(client, "second")
    (call,) = parts(request, ModelToolCall)
    (result,) = parts(request, ModelToolResult)
    assert COMMAND in json.loads(call.arguments).values()
    assert result.call_id == call.id
    assert "first-is-there" in result.content[0].text
    assert "I look around and write the first file." in [part.text for part in parts(request, ModelText)]


@pytest.mark.parametrize("turn", ["first", "second"])
@pytest.mark.parametrize("target", sorted(FORMATS))
@pytest.mark.parametrize("client", CLIENTS)
def test_every_format_can_express_the_request(client: str, target: str, turn: str) -> None:
    request = recorded(client, turn)
    written = json.loads(FORMATS[target].write_request(request))
    if target == "gemini":
        assert_known_to_gemini(written)
        return
    if target == "openai-responses":
        # The SDK requires fields that only stored messages have; the service accepts messages without them.
        assistant_items = [item for item in written["input"] if item.get("role") == "assistant"]
        for number, item in enumerate(item for item in assistant_items if isinstance(item["content"], list)):
            item.update(id=f"msg_{number}", status="completed")
            item["content"] = [{"annotations": [], **part} for part in item["content"]]
        for number, item in enumerate(item for item in written["input"] if item["type"] == "reasoning"):
            item.setdefault("id", f"rs_{number}")
    strange = unknown(written, plain(SHAPES[target].validate_python(written)))
    assert [field for field in strange if not EXTENSIONS[target].search(field)] == []


@pytest.mark.parametrize("turn", ["first", "second"])
@pytest.mark.parametrize("target", sorted(FORMATS))
@pytest.mark.parametrize("client", CLIENTS)
def test_translation_preserves_tools_calls_and_results(client: str, target: str, turn: str) -> None:
    request = recorded(client, turn)
    before = recorded(client, turn)
    again = FORMATS[target].read_request(FORMATS[target].write_request(request), model="some-model", stream=True)
    assert [tool.name for tool in again.tools] == [tool.name for tool in before.tools]
    assert [required(tool.parameters) for tool in again.tools] == [required(tool.parameters) for tool in before.tools]
    calls = [(call.name, json.loads(call.arguments)) for call in parts(before, ModelToolCall)]
    assert [(call.name, json.loads(call.arguments)) for call in parts(again, ModelToolCall)] == calls
    results = [[piece.text for piece in result.content] for result in parts(before, ModelToolResult)]
    assert [[piece.text for piece in result.content] for result in parts(again, ModelToolResult)] == results
    assert [result.call_id for result in parts(again, ModelToolResult)] == [
        call.id for call in parts(again, ModelToolCall)
    ]
    texts = "\n".join(part.text for part in parts(again, ModelText))
    assert all(part.text in texts for part in parts(before, ModelText))


def required(schema: Mapping[str, Any] | None) -> list[str]:
    return sorted((schema or {}).get("required", []))


def plain(value: Any) -> Any:
    """Convert parsed SDK objects to plain data; lists are validated only during iteration."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | Iterator) or type(value).__name__ == "ValidatorIterator":
        return [plain(each) for each in value]
    return value


def unknown(written: Any, understood: Any, field_path: str = "") -> list[str]:
    """Return the fields of a document that an SDK does not define."""
    if isinstance(written, dict) and isinstance(understood, dict):
        missing = [f"{field_path}.{key}" for key in written if key not in understood]
        return missing + [
            each
            for key in written
            if key in understood
            for each in unknown(written[key], understood[key], f"{field_path}.{key}")
        ]
    if isinstance(written, list) and isinstance(understood, list):
        assert len(written) == len(understood)
        pairs = enumerate(zip(written, understood, strict=True))
        return [each for number, (ours, theirs) in pairs for each in unknown(ours, theirs, f"{field_path}.{number}")]
    return []


def assert_known_to_gemini(written: dict[str, Any]) -> None:
    """Validate with the SDK's models, which reject unknown fields."""
    known: dict[str, tuple[type[BaseModel], bool]] = {
        "contents": (gemini.Content, True),
        "tools": (gemini.Tool, True),
        "systemInstruction": (gemini.Content, False),
        "generationConfig": (gemini.GenerationConfig, False),
        "toolConfig": (gemini.ToolConfig, False),
        "safetySettings": (gemini.SafetySetting, True),
    }
    for field, value in written.items():
        model, many = known[field]
        for each in value if many else [value]:
            model.model_validate(each)
