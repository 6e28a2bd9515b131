"""Conversations with tools through the official SDKs, written as their users do."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import anthropic
import openai
from google import genai
from google.genai import types


def _picture() -> bytes:
    """Return the smallest PNG image: one grey pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\x80")) + chunk(b"IEND", b"")


PICTURE = _picture()
PICTURE_TEXT = base64.b64encode(PICTURE).decode()


@dataclass(frozen=True)
class ClientTool:
    """A tool of the client: its definition and its implementation."""

    description: str
    schema: dict[str, Any]
    act: Callable[..., str | bytes]
    """Returns a text or an image."""


TOOLS = {
    "get_weather": ClientTool(
        "Tells the weather of a city.",
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        lambda city: f"{city}: 7 degrees",
    ),
    "take_picture": ClientTool("Takes a picture.", {"type": "object", "properties": {}}, lambda: PICTURE),
}


@dataclass(frozen=True)
class SdkToolCall:
    """A tool call as parsed by the SDK."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass
class SdkAnswer:
    """An answer as parsed by the SDK."""

    text: str
    calls: list[SdkToolCall] = field(default_factory=list)
    thought: str = ""
    finish: str = ""
    tokens: tuple[int, int] = (0, 0)
    """Tokens of the prompt and of the answer."""


class SdkConversation(ABC):
    """One conversation through one SDK."""

    form: str

    def __init__(self, url: str, key: str, model: str) -> None:
        self.url = url
        self.key = key
        self.model = model
        self.history: list[Any] = []
        self.sdk = cast(Any, self.open())

    @abstractmethod
    def open(self) -> object: ...

    def close(self) -> None:
        self.sdk.close()

    @abstractmethod
    def prompt(self, text: str) -> None: ...

    @abstractmethod
    def ask(self, *, stream: bool) -> SdkAnswer: ...

    @abstractmethod
    def results(self, results: list[tuple[SdkToolCall, str | bytes]]) -> None: ...

    def run(self, text: str, *, stream: bool) -> list[SdkAnswer]:
        """Send the prompt, run the called tools and continue until the model makes no more calls."""
        self.prompt(text)
        answers: list[SdkAnswer] = []
        for _ in range(6):
            answer = self.ask(stream=stream)
            answers.append(answer)
            if not answer.calls:
                return answers
            self.results([(call, TOOLS[call.name].act(**call.arguments)) for call in answer.calls])
        raise AssertionError("the conversation does not come to an end")


class ChatConversation(SdkConversation):
    form = "openai-chat"

    def open(self) -> object:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=0)

    def prompt(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def ask(self, *, stream: bool) -> SdkAnswer:
        tools = [
            {"type": "function", "function": {"name": name, "description": tool.description, "parameters": tool.schema}}
            for name, tool in TOOLS.items()
        ]
        request_arguments = {"model": self.model, "messages": self.history, "tools": tools}
        if stream:
            with self.sdk.chat.completions.stream(
                **request_arguments, stream_options={"include_usage": True}
            ) as events:
                for _ in events:
                    pass
                final = events.get_final_completion()
        else:
            final = self.sdk.chat.completions.create(**request_arguments)
        (choice,) = final.choices
        self.history.append(choice.message.to_dict())
        calls = [
            SdkToolCall(call.id, call.function.name, json.loads(call.function.arguments))
            for call in choice.message.tool_calls or []
        ]
        thought = getattr(choice.message, "reasoning_content", None) or ""
        tokens = (final.usage.prompt_tokens, final.usage.completion_tokens)
        return SdkAnswer(choice.message.content or "", calls, thought, choice.finish_reason, tokens)

    def results(self, results: list[tuple[SdkToolCall, str | bytes]]) -> None:
        for call, result in results:
            content: Any = result
            if isinstance(result, bytes):
                picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE_TEXT}"}}
                content = [{"type": "text", "text": "a picture"}, picture]
            self.history.append({"role": "tool", "tool_call_id": call.id, "content": content})


class ResponsesConversation(SdkConversation):
    form = "openai-responses"

    def open(self) -> object:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=0)

    def prompt(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def ask(self, *, stream: bool) -> SdkAnswer:
        tools = [
            {"type": "function", "name": name, "description": tool.description, "parameters": tool.schema}
            for name, tool in TOOLS.items()
        ]
        request_arguments = {"model": self.model, "input": self.history, "tools": tools, "store": False}
        request_arguments["include"] = ["reasoning.encrypted_content"]
        if stream:
            with self.sdk.responses.stream(**request_arguments) as events:
                for _ in events:
                    pass
                final = events.get_final_response()
        else:
            final = self.sdk.responses.create(**request_arguments)
        self.history += final.output
        calls = [
            SdkToolCall(item.call_id, item.name, json.loads(item.arguments))
            for item in final.output
            if item.type == "function_call"
        ]
        thoughts = [item for item in final.output if item.type == "reasoning"]
        thought = "".join(piece.text for item in thoughts for piece in [*item.summary, *(item.content or [])])
        tokens = (final.usage.input_tokens, final.usage.output_tokens)
        return SdkAnswer(final.output_text, calls, thought, final.status, tokens)

    def results(self, results: list[tuple[SdkToolCall, str | bytes]]) -> None:
        for call, result in results:
            output: Any = result
            if isinstance(result, bytes):
                output = [{"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE_TEXT}"}]
            self.history.append({"type": "function_call_output", "call_id": call.id, "output": output})


class AnthropicConversation(SdkConversation):
    form = "anthropic"

    def open(self) -> object:
        return anthropic.Anthropic(base_url=self.url, api_key=self.key, max_retries=0)

    def prompt(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def ask(self, *, stream: bool) -> SdkAnswer:
        tools = [
            {"name": name, "description": tool.description, "input_schema": tool.schema} for name, tool in TOOLS.items()
        ]
        request_arguments = {"model": self.model, "max_tokens": 2000, "messages": self.history, "tools": tools}
        if stream:
            with self.sdk.messages.stream(**request_arguments) as events:
                for _ in events:
                    pass
                final = events.get_final_message()
        else:
            final = self.sdk.messages.create(**request_arguments)
        self.history.append({"role": "assistant", "content": final.content})
        calls = [SdkToolCall(block.id, block.name, block.input) for block in final.content if block.type == "tool_use"]
        text = "".join(block.text for block in final.content if block.type == "text")
        thought = "".join(block.thinking for block in final.content if block.type == "thinking")
        return SdkAnswer(text, calls, thought, final.stop_reason, (final.usage.input_tokens, final.usage.output_tokens))

    def results(self, results: list[tuple[SdkToolCall, str | bytes]]) -> None:
        content: list[Any] = []
        for call, result in results:
            result_content: Any = result
            if isinstance(result, bytes):
                source = {"type": "base64", "media_type": "image/png", "data": PICTURE_TEXT}
                result_content = [{"type": "image", "source": source}]
            content.append({"type": "tool_result", "tool_use_id": call.id, "content": result_content})
        self.history.append({"role": "user", "content": content})


class GeminiConversation(SdkConversation):
    form = "gemini"

    def open(self) -> object:
        return genai.Client(api_key=self.key, http_options=types.HttpOptions(base_url=self.url))

    def prompt(self, text: str) -> None:
        self.history.append(types.Content(role="user", parts=[types.Part(text=text)]))

    def ask(self, *, stream: bool) -> SdkAnswer:
        declared = [
            types.FunctionDeclaration(name=name, description=tool.description, parameters_json_schema=tool.schema)
            for name, tool in TOOLS.items()
        ]
        config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=declared)])
        request_arguments = {"model": self.model, "contents": self.history, "config": config}
        pieces = list(self.sdk.models.generate_content_stream(**request_arguments)) if stream else []
        final = pieces[-1] if stream else self.sdk.models.generate_content(**request_arguments)
        parts: list[types.Part] = [
            part for piece in pieces or [final] for part in cast(Any, piece).candidates[0].content.parts or []
        ]
        self.history.append(types.Content(role="model", parts=parts))
        called = [part.function_call for part in parts if part.function_call is not None]
        calls = [SdkToolCall(call.id or "", call.name or "", dict(call.args or {})) for call in called]
        text = "".join(part.text for part in parts if part.text and not part.thought)
        thought = "".join(part.text for part in parts if part.text and part.thought)
        usage = final.usage_metadata
        tokens = (usage.prompt_token_count, usage.candidates_token_count)
        return SdkAnswer(text, calls, thought, final.candidates[0].finish_reason.value, tokens)

    def results(self, results: list[tuple[SdkToolCall, str | bytes]]) -> None:
        parts: list[types.Part] = []
        for call, result in results:
            pictures = None
            if isinstance(result, bytes):
                blob = types.FunctionResponseBlob(mime_type="image/png", data=result)
                pictures = [types.FunctionResponsePart(inline_data=blob)]
            result_content = {"output": result if isinstance(result, str) else "a picture"}
            answer = types.FunctionResponse(id=call.id or None, name=call.name, response=result_content, parts=pictures)
            parts.append(types.Part(function_response=answer))
        self.history.append(types.Content(role="user", parts=parts))


SDK_CONVERSATIONS: dict[str, type[SdkConversation]] = {
    kind.form: kind for kind in (ChatConversation, ResponsesConversation, AnthropicConversation, GeminiConversation)
}


@contextmanager
def sdk_conversation(form: str, url: str, key: str, model: str) -> Iterator[SdkConversation]:
    conversation = SDK_CONVERSATIONS[form](url, key, model)
    try:
        yield conversation
    finally:
        conversation.close()
