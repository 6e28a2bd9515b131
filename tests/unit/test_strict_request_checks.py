"""The strict fake providers refuse what the real ones refuse."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.strict_request_checks import (
    OPENAI_FIELDS,
    ZHIPU_FIELDS,
    chat_completions_problem,
    generate_content_problem,
    messages_problem,
)

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
LIST_WITHOUT_ITEMS = {"type": "object", "properties": {"a": {"type": "array"}}}


def chat_body(name: str = "read", schema: Any = SCHEMA, **more: Any) -> dict[str, Any]:
    tool = {"type": "function", "function": {"name": name, "parameters": schema}}
    return {"model": "gpt-5.1", "messages": [], "tools": [tool], **more}


def anthropic_body(name: str = "read", schema: Any = SCHEMA, **more: Any) -> dict[str, Any]:
    tool = {"name": name, "input_schema": schema}
    return {"model": "claude-sonnet-4-5", "messages": [], "max_tokens": 9, "tools": [tool], **more}


def gemini_body(name: str = "read", field: Any = None, **more: Any) -> dict[str, Any]:
    properties = {"path": {"type": "STRING"} if field is None else field}
    function = {"name": name, "parameters": {"type": "OBJECT", "properties": properties}}
    return {"contents": [], "tools": [{"functionDeclarations": [function]}], **more}


def test_ordinary_requests_are_accepted() -> None:
    assert chat_completions_problem(chat_body(stream=True, stream_options={}), OPENAI_FIELDS) is None
    assert messages_problem(anthropic_body(system="x", thinking={})) is None
    assert generate_content_problem(gemini_body(generationConfig={"temperature": 1})) is None
    assert generate_content_problem(gemini_body(field={"type": "OBJECT"})) is None
    assert generate_content_problem({"contents": []}) is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (chat_body(top_k=3), "top_k"),
        (chat_body(max_tokens=3), "max_completion_tokens"),
        (chat_body("read.file"), "does not match pattern"),
        (chat_body("x" * 65), "does not match pattern"),
        (chat_body("读"), "does not match pattern"),
        (chat_body(schema={"type": "string"}), "object"),
        (chat_body(schema={}), "object"),
        (chat_body(schema={**SCHEMA, "anyOf": []}), "anyOf at the top level"),
        (chat_body(schema=LIST_WITHOUT_ITEMS), "array schema missing items"),
        (chat_body(tools=[*chat_body()["tools"] * 2]), "unique"),
        (chat_body(tools=[]), "empty array"),
        ({"model": "gpt-5.1", "messages": [], "tool_choice": "auto"}, "tool_choice"),
    ],
)
def test_openai_refuses(body: dict[str, Any], words: str) -> None:
    assert words in (chat_completions_problem(body, OPENAI_FIELDS) or "")


def test_each_compatible_provider_has_its_own_fields() -> None:
    assert "reasoning_effort" in (chat_completions_problem(chat_body(reasoning_effort="low"), ZHIPU_FIELDS) or "")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (anthropic_body(stop=["x"]), "stop: Extra inputs"),
        (anthropic_body(max_tokens=0), "max_tokens: Field required"),
        (anthropic_body("read.file"), "does not match pattern"),
        (anthropic_body(schema={}), "object"),
        (anthropic_body(tools=[{"name": "read"}]), "input_schema: Field required"),
        (anthropic_body(tools=[], tool_choice={"type": "auto"}), "tool_choice"),
    ],
)
def test_anthropic_refuses(body: dict[str, Any], words: str) -> None:
    assert words in (messages_problem(body) or "")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (gemini_body(stream=True), "stream"),
        (gemini_body(generationConfig={"max_tokens": 1}), "max_tokens"),
        (gemini_body("1st"), "Invalid function name"),
        (gemini_body(field={"type": "STRING", "const": "a"}), "const"),
        (gemini_body(field={"type": ["STRING", "NULL"]}), "invalid value"),
        (gemini_body(field={"type": "string"}), "invalid value"),
        (gemini_body(field={}), "schema type field"),
        (gemini_body(field={"type": "OBJECT", "additionalProperties": False}), "additionalProperties"),
        (gemini_body(tools=[{"functionDeclarations": [{"name": "a", "parameters": {"type": "OBJECT"}}]}]), "non-empty"),
        (gemini_body(field={"type": "STRING", "properties": {"a": {"type": "STRING"}}}), "only allowed for OBJECT"),
        (gemini_body(field={"anyOf": [{"type": "STRING"}], "items": {"type": "STRING"}}), "only allowed for ARRAY"),
        (gemini_body(field={"type": "ARRAY"}), "missing field"),
        (gemini_body(field={"type": "ARRAY", "items": {"type": "STRING", "$ref": "#"}}), "$ref"),
        (gemini_body(field={"type": "INTEGER", "enum": [1]}), "only allowed for STRING"),
        (gemini_body(field={"type": "STRING", "format": "uri"}), "only 'enum' and 'date-time'"),
    ],
)
def test_gemini_refuses(body: dict[str, Any], words: str) -> None:
    assert words in (generate_content_problem(body) or "")
