"""Requests of the official SDKs, translated to every other format and validated by the types of its SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as AnthropicParams
from google import genai
from google.genai import types
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as ChatParams
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as ResponsesParams
from pydantic import BaseModel, TypeAdapter

from paddock.llm.formats.neutral import (
    FinishReason,
    MessageRole,
    ModelAnswer,
    ModelMedia,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ModelToolResult,
)
from paddock.llm.formats.registry import FORMATS

from .sdk_upstream import MODELS, Upstream, upstream

PNG = "iVBORw0KGgo="
PDF = "JVBERi0xLjQK"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


class City(BaseModel):
    name: str
    people: int | None = None


@pytest.fixture(scope="module")
def up() -> Iterator[Upstream]:
    with upstream() as server:
        yield server


def reset_upstream(up: Upstream) -> Upstream:
    up.requests, up.answers = [], [ModelAnswer("id", "m", [ModelText('{"name":"Rome","people":3}')], FinishReason.STOP)]
    return up


def from_anthropic(up: Upstream) -> ModelRequest:
    image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    document: Any = {
        "type": "document",
        "title": "a.pdf",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
    }
    mark: Any = {"type": "ephemeral"}
    messages: Any = [
        {"role": "user", "content": [image, document, {"type": "text", "text": "What is it?", "cache_control": mark}]},
        {"role": "system", "content": "Today is Sunday."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "look", "signature": "c2VhbA=="},
                {"type": "redacted_thinking", "data": "c2Vhbg=="},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": 1}},
                {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {"a": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "one"}, image]},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "two", "is_error": True},
                {"type": "text", "text": "And?", "cache_control": mark},
            ],
        },
    ]
    tools: Any = [
        {"name": "look", "description": "Looks.", "input_schema": SCHEMA, "cache_control": mark},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    with anthropic.Anthropic(base_url=reset_upstream(up).url, api_key="k", max_retries=0) as sdk:
        sdk.beta.messages.create(
            model="unknown-model",
            max_tokens=4000,
            system=[{"type": "text", "text": "Be brief.", "cache_control": mark}],
            messages=messages,
            tools=tools,
            thinking={"type": "adaptive"},
            output_config={"effort": "high"},
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            metadata={"user_id": "u"},
            betas=["context-management-2025-06-27"],
        )
    return up.request()


def from_chat(up: Upstream) -> ModelRequest:
    calls: Any = [
        {"id": name, "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}} for name in ("c1", "c2")
    ]
    image: Any = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}}
    file: Any = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}
    with openai.OpenAI(base_url=f"{reset_upstream(up).url}/v1", api_key="k", max_retries=0) as sdk:
        sdk.chat.completions.parse(
            model="m",
            messages=[
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [image, file, {"type": "text", "text": "What is it?"}]},
                {"role": "system", "content": "Today is Sunday."},
                {"role": "assistant", "content": "I look.", "tool_calls": calls},
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "one"}]},
                {"role": "tool", "tool_call_id": "c2", "content": "two"},
                {"role": "user", "content": "And?"},
            ],
            tools=[{"type": "function", "function": {"name": "look", "parameters": SCHEMA, "strict": True}}],
            parallel_tool_calls=False,
            reasoning_effort="low",
            max_completion_tokens=4000,
            response_format=City,
            user="u",
        )
    return up.request()


def from_responses(up: Upstream) -> ModelRequest:
    image: Any = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "low"}
    file: Any = {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    items: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [image, file, {"type": "input_text", "text": "What is it?"}]},
        {"role": "system", "content": "Today is Sunday."},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2Vhbg=="},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": '{"a":2}'},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "one"}, image]},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
        {"role": "user", "content": "And?"},
    ]
    tools: Any = [
        {"type": "function", "name": "look", "parameters": SCHEMA, "strict": False},
        {"type": "web_search"},
        {"type": "custom", "name": "patch", "description": "Patches."},
    ]
    with openai.OpenAI(base_url=f"{reset_upstream(up).url}/v1", api_key="k", max_retries=0) as sdk:
        sdk.responses.parse(
            model="m",
            input=items,
            tools=tools,
            store=False,
            include=["reasoning.encrypted_content"],
            reasoning={"effort": "high", "summary": "auto"},
            max_output_tokens=4000,
            text_format=City,
        )
    return up.request()


def from_gemini(up: Upstream) -> ModelRequest:
    image = types.Part.from_bytes(data=b"\x89PNG", mime_type="image/png")
    file = types.Part.from_bytes(data=b"%PDF-1.4\n", mime_type="application/pdf")
    call = types.Part(
        function_call=types.FunctionCall(name="look", args={"a": 1}), thought_signature=b"\xff\xfe seal \x00"
    )
    again = types.Part(function_call=types.FunctionCall(name="look", args={"a": 2}))
    sdk = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=reset_upstream(up).url))
    sdk.models.generate_content(
        model="gemini-3-pro",
        contents=[
            types.Content(role="user", parts=[image, file, types.Part(text="What is it?")]),
            types.Content(role="user", parts=[types.Part(text="Today is Sunday.")]),
            types.Content(role="model", parts=[types.Part(text="I look."), call, again]),
            types.Content(
                role="user",
                parts=[
                    types.Part.from_function_response(name="look", response={"output": "one"}),
                    types.Part.from_function_response(name="look", response={"error": "two"}),
                    types.Part(text="And?"),
                ],
            ),
        ],
        config=types.GenerateContentConfig(
            system_instruction="Be brief.",
            tools=[
                types.Tool(
                    function_declarations=[types.FunctionDeclaration(name="look", parameters_json_schema=SCHEMA)]
                )
            ],
            thinking_config=types.ThinkingConfig(thinking_budget=2048, include_thoughts=True),
            max_output_tokens=4000,
            temperature=0.5,
            response_mime_type="application/json",
            response_schema=City,
        ),
    )
    sdk.close()
    return up.request()


SOURCES = {
    "anthropic": from_anthropic,
    "openai-chat": from_chat,
    "openai-responses": from_responses,
    "gemini": from_gemini,
}


def consume_iterables(value: Any) -> Any:
    """Iterate over all nested values, because pydantic validates iterables lazily."""
    if isinstance(value, str | bytes | int | float | bool) or value is None:
        return value
    if isinstance(value, dict):
        return {name: consume_iterables(inner) for name, inner in value.items()}
    return [consume_iterables(inner) for inner in value]


def check_gemini(body: dict[str, Any]) -> None:
    for content in body["contents"]:
        types.Content.model_validate(content)
    for tool in body.get("tools", ()):
        types.Tool.model_validate(tool)
    types.Content.model_validate(body["systemInstruction"])
    types.GenerationConfig.model_validate(body["generationConfig"])


def check_request_types(provider: str, body: dict[str, Any]) -> None:
    for item in body.get("input", ()):
        if item["type"] == "reasoning":
            # The types require an ID; the API does not, and rejects one that does not belong to the signature.
            item.setdefault("id", "rs_1")
    kinds = {"anthropic": AnthropicParams, "openai-chat": ChatParams, "openai-responses": ResponsesParams}
    if provider == "gemini":
        check_gemini(body)
    else:
        adapter: TypeAdapter[Any] = TypeAdapter(kinds[provider])
        consume_iterables(adapter.validate_python(body))


def message_texts(request: ModelRequest) -> list[str]:
    """Return the content of a conversation in order, independent of its structure."""
    found: list[str] = []
    for message in request.messages:
        for part in message.parts:
            match part:
                case ModelText():
                    found.append(part.text)
                case ModelMedia():
                    found.append(part.kind)
                case ModelToolCall():
                    found.append(f"{part.name}{json.loads(part.arguments)}")
                case ModelToolResult():
                    found += [piece.text for piece in part.content if isinstance(piece, ModelText)]
    return found


WORDS = ["Be brief.", "image", "document", "What is it?", "Today is Sunday.", "I look.", "look{", "one", "two", "And?"]


@pytest.mark.parametrize("provider", FORMATS)
@pytest.mark.parametrize("source", SOURCES)
def test_sdk_requests_reach_every_provider(up: Upstream, source: str, provider: str) -> None:
    request = SOURCES[source](up)
    request.model = MODELS[provider]
    body = json.loads(FORMATS[provider].write_request(request))
    check_request_types(provider, body)
    arrived = FORMATS[provider].read_request(json.dumps(body).encode(), model=MODELS[provider])
    everything = "\n".join(message_texts(arrived))
    for word in WORDS:
        assert word in everything, f"{word} is lost"
    assert everything.index("Be brief.") < everything.index("What is it?") < everything.index("I look.")
    assert everything.index("one") < everything.index("two") < everything.index("And?")
    calls = [part for message in arrived.messages for part in message.parts if isinstance(part, ModelToolCall)]
    results = [part for message in arrived.messages for part in message.parts if isinstance(part, ModelToolResult)]
    assert [part.call_id for part in results] == [part.id for part in calls]
    assert len(calls) == 2
    assert "look" in [tool.name for tool in arrived.tools]
    assert arrived.max_tokens == 4000
    sealed = [
        part
        for message in arrived.messages
        for part in message.parts
        if isinstance(part, ModelThinking) and (part.signature or part.redacted)
    ]
    assert bool(sealed) == (source == provider and source in ("anthropic", "openai-responses"))
    if source != "anthropic":
        assert arrived.json_schema is not None or provider == "anthropic"


def test_gemini_signatures_survive_the_sdk(up: Upstream) -> None:
    request = from_gemini(up)
    body = json.loads(FORMATS["gemini"].write_request(request))
    [call, _] = [part for content in body["contents"] for part in content["parts"] if "functionCall" in part]
    assert types.Part.model_validate(call).thought_signature == b"\xff\xfe seal \x00"


@pytest.mark.parametrize("provider", FORMATS)
def test_googles_sdk_calls_functions_automatically(up: Upstream, provider: str) -> None:
    reset_upstream(up)
    up.provider = provider
    up.answers = [
        ModelAnswer("i1", "m", [ModelToolCall("c1", "weather", '{"city":{"name":"Rome"}}')], FinishReason.TOOLS),
        ModelAnswer("i2", "m", [ModelText("Sunny.")], FinishReason.STOP),
    ]
    requested_cities: list[City] = []

    def weather(city: City) -> str:
        """Tells the weather.

        Args:
            city: where
        """
        requested_cities.append(city)
        return "sun"

    sdk = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=up.url))
    chat = sdk.chats.create(model="m", config=types.GenerateContentConfig(tools=[weather]))
    assert chat.send_message("How is the weather in Rome?").text == "Sunny."
    sdk.close()
    up.provider = None
    assert [city.name for city in requested_cities] == ["Rome"]
    schema = up.request(0).tools[0].parameters or {}
    assert schema["properties"]["city"]["properties"]["name"]["type"] == "string"
    [result] = [
        part for message in up.request().messages for part in message.parts if isinstance(part, ModelToolResult)
    ]
    assert result.content == [ModelText("sun")]


def test_system_messages_move_to_supported_positions(up: Upstream) -> None:
    request = from_anthropic(up)
    for model, roles in (
        ("gpt-5", ["system", "user", "system", "assistant", "tool", "tool", "user"]),
        ("qwen3-max", ["system", "user", "user", "assistant", "tool", "tool", "user"]),
    ):
        request.model = model
        sent = json.loads(FORMATS["openai-chat"].write_request(request))
        assert [message["role"] for message in sent["messages"]] == roles
    assert [message.role for message in request.messages].count(MessageRole.SYSTEM) == 2
