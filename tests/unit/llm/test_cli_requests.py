"""What the agent programs really send can be said in every format, and in words the makers' own libraries know.

`requests/` holds the first and the second request of a run of each, with their prose shortened; tests/clis/record.py
records them.
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

from paddock.llm.formats.registry import FORMATS
from paddock.llm.neutral import Request, Role, Text, ToolCall, ToolResult

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
    # Servers that think aloud want their thoughts back.
    "openai-chat": re.compile(r"messages\.\d+\.reasoning_content$"),
    # What codex itself adds.
    "openai-responses": re.compile(r"^\.client_metadata$"),
    # Older models take these still; and a schema is a schema.
    "anthropic": re.compile(r"^\.(temperature|top_p|top_k)$|\.input_schema\."),
}
"""What may be said although the makers' libraries have no word for it."""


def recorded(client: str, turn: str) -> Request:
    """A program's request, read; the second is recorded as what differs from the first."""
    found = RECORDED[client]
    body = found["first"] if turn == "first" else {**found["first"], **found["then"]}
    form = FORMATS[found["format"]]
    return form.read_request(json.dumps(body).encode(), model="some-model", stream=True)


def parts(request: Request, kind: type[Any]) -> list[Any]:
    return [part for message in request.messages for part in message.parts if isinstance(part, kind)]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_first_request_is_understood(client: str) -> None:
    request = recorded(client, "first")
    assert request.stream
    assert any(part.text.strip('"') == GOAL for part in parts(request, Text))
    assert any(message.role is Role.SYSTEM for message in request.messages)
    assert len(request.tools) >= 5
    assert all(tool.parameters is None or tool.parameters.get("type") == "object" for tool in request.tools)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_second_request_is_understood(client: str) -> None:
    request = recorded(client, "second")
    (call,) = parts(request, ToolCall)
    (result,) = parts(request, ToolResult)
    assert COMMAND in json.loads(call.arguments).values()
    assert result.call_id == call.id
    assert "first-is-there" in result.content[0].text
    assert "I look around and write the first file." in [part.text for part in parts(request, Text)]


@pytest.mark.parametrize("turn", ["first", "second"])
@pytest.mark.parametrize("target", sorted(FORMATS))
@pytest.mark.parametrize("client", CLIENTS)
def test_every_format_has_words_for_it(client: str, target: str, turn: str) -> None:
    request = recorded(client, turn)
    written = json.loads(FORMATS[target].write_request(request))
    if target == "gemini":
        assert_known_to_gemini(written)
        return
    if target == "openai-responses":
        # The library wants what only stored messages have; the service takes them without, as codex sends them.
        said = [item for item in written["input"] if item.get("role") == "assistant"]
        for number, item in enumerate(item for item in said if isinstance(item["content"], list)):
            item.update(id=f"msg_{number}", status="completed")
            item["content"] = [{"annotations": [], **part} for part in item["content"]]
        for number, item in enumerate(item for item in written["input"] if item["type"] == "reasoning"):
            item.setdefault("id", f"rs_{number}")
    strange = unknown(written, plain(SHAPES[target].validate_python(written)))
    assert [field for field in strange if not EXTENSIONS[target].search(field)] == []


@pytest.mark.parametrize("turn", ["first", "second"])
@pytest.mark.parametrize("target", sorted(FORMATS))
@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_that_matters_is_lost_on_the_way(client: str, target: str, turn: str) -> None:
    request = recorded(client, turn)
    before = recorded(client, turn)
    again = FORMATS[target].read_request(FORMATS[target].write_request(request), model="some-model", stream=True)
    assert [tool.name for tool in again.tools] == [tool.name for tool in before.tools]
    assert [required(tool.parameters) for tool in again.tools] == [required(tool.parameters) for tool in before.tools]
    calls = [(call.name, json.loads(call.arguments)) for call in parts(before, ToolCall)]
    assert [(call.name, json.loads(call.arguments)) for call in parts(again, ToolCall)] == calls
    results = [[piece.text for piece in result.content] for result in parts(before, ToolResult)]
    assert [[piece.text for piece in result.content] for result in parts(again, ToolResult)] == results
    assert [result.call_id for result in parts(again, ToolResult)] == [call.id for call in parts(again, ToolCall)]
    texts = "\n".join(part.text for part in parts(again, Text))
    assert all(part.text in texts for part in parts(before, Text))


def required(schema: Mapping[str, Any] | None) -> list[str]:
    return sorted((schema or {}).get("required", []))


def plain(value: Any) -> Any:
    """What a library understood of a document; it looks into lists only when they are gone through."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | Iterator) or type(value).__name__ == "ValidatorIterator":
        return [plain(each) for each in value]
    return value


def unknown(written: Any, understood: Any, place: str = "") -> list[str]:
    """The fields of a document that a library has no word for."""
    if isinstance(written, dict) and isinstance(understood, dict):
        missing = [f"{place}.{key}" for key in written if key not in understood]
        return missing + [
            each
            for key in written
            if key in understood
            for each in unknown(written[key], understood[key], f"{place}.{key}")
        ]
    if isinstance(written, list) and isinstance(understood, list):
        assert len(written) == len(understood)
        pairs = enumerate(zip(written, understood, strict=True))
        return [each for number, (ours, theirs) in pairs for each in unknown(ours, theirs, f"{place}.{number}")]
    return []


def assert_known_to_gemini(written: dict[str, Any]) -> None:
    """The library's models refuse fields they do not know."""
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
