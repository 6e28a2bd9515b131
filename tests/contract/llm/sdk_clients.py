"""Clients of the official SDKs that hold a conversation as their documentation shows."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
from google import genai
from google.genai import types

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@dataclass
class SdkAnswer:
    """An answer as parsed by the SDK."""

    text: str
    calls: list[tuple[str, dict[str, Any]]]
    final: Any = None


class Client(ABC):
    """A conversation through one SDK with a single tool."""

    form: str

    def __init__(self, url: str) -> None:
        self.url = url
        self.start()
        self.open()

    def start(self, tool: str = "look") -> None:
        """Start a new conversation with a tool of this name."""
        self.tool = tool
        self.history: list[Any] = []

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def ask(self, text: str, *, stream: bool) -> SdkAnswer: ...

    @abstractmethod
    def give_results(self, result: str, *, stream: bool) -> SdkAnswer:
        """Answer all calls with the same result and request the next answer."""


class AnthropicClient(Client):
    form = "anthropic"

    def open(self) -> None:
        self.sdk = anthropic.Anthropic(base_url=self.url, api_key="k", max_retries=0)

    def close(self) -> None:
        self.sdk.close()

    def ask(self, text: str, *, stream: bool) -> SdkAnswer:
        self.history.append({"role": "user", "content": text})
        return self._go(stream)

    def give_results(self, result: str, *, stream: bool) -> SdkAnswer:
        calls = [block for block in self.history[-1]["content"] if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": result} for call in calls]
        self.history.append({"role": "user", "content": results})
        return self._go(stream)

    def _go(self, stream: bool) -> SdkAnswer:
        tools: Any = [{"name": self.tool, "description": "Looks.", "input_schema": SCHEMA}]
        request_arguments: dict[str, Any] = {"model": "m", "max_tokens": 4000, "messages": self.history, "tools": tools}
        if stream:
            with self.sdk.messages.stream(**request_arguments) as events:
                final = events.get_final_message()
        else:
            final = self.sdk.messages.create(**request_arguments)
        self.history.append({"role": "assistant", "content": final.content})
        text = "".join(block.text for block in final.content if block.type == "text")
        calls = [(block.name, block.input) for block in final.content if block.type == "tool_use"]
        return SdkAnswer(text, calls, final)


class ChatClient(Client):
    form = "openai-chat"

    def open(self) -> None:
        self.sdk = openai.OpenAI(base_url=f"{self.url}/v1", api_key="k", max_retries=0)

    def close(self) -> None:
        self.sdk.close()

    def ask(self, text: str, *, stream: bool) -> SdkAnswer:
        self.history.append({"role": "user", "content": text})
        return self._go(stream)

    def give_results(self, result: str, *, stream: bool) -> SdkAnswer:
        for call in self.history[-1]["tool_calls"]:
            self.history.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return self._go(stream)

    def _go(self, stream: bool) -> SdkAnswer:
        tools: Any = [{"type": "function", "function": {"name": self.tool, "parameters": SCHEMA}}]
        request_arguments: dict[str, Any] = {"model": "m", "messages": self.history, "tools": tools}
        final: Any
        if stream:
            with self.sdk.chat.completions.stream(
                **request_arguments, stream_options={"include_usage": True}
            ) as events:
                final = events.get_final_completion()
        else:
            final = self.sdk.chat.completions.create(**request_arguments)
        message = final.choices[0].message
        self.history.append(message.to_dict())
        calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or []]
        return SdkAnswer(message.content or "", calls, final)


class ResponsesClient(Client):
    form = "openai-responses"

    def open(self) -> None:
        self.sdk = openai.OpenAI(base_url=f"{self.url}/v1", api_key="k", max_retries=0)

    def close(self) -> None:
        self.sdk.close()

    def ask(self, text: str, *, stream: bool) -> SdkAnswer:
        self.history.append({"role": "user", "content": text})
        return self._go(stream)

    def give_results(self, result: str, *, stream: bool) -> SdkAnswer:
        calls = [item for item in self.history if not isinstance(item, dict) and item.type == "function_call"]
        for call in calls:
            self.history.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
        return self._go(stream)

    def _go(self, stream: bool) -> SdkAnswer:
        tools: Any = [{"type": "function", "name": self.tool, "parameters": SCHEMA, "strict": False}]
        request_arguments: dict[str, Any] = {"model": "m", "input": self.history, "tools": tools, "store": False}
        request_arguments["include"] = ["reasoning.encrypted_content"]
        if stream:
            final: Any = None
            with self.sdk.responses.stream(**request_arguments) as events:
                for event in events:
                    # The SDK's own helper does not support truncated answers.
                    final = getattr(event, "response", final)
        else:
            final = self.sdk.responses.create(**request_arguments)
        self.history += final.output
        calls = [(item.name, json.loads(item.arguments)) for item in final.output if item.type == "function_call"]
        return SdkAnswer(final.output_text, calls, final)


class GeminiClient(Client):
    form = "gemini"

    def open(self) -> None:
        self.sdk = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=self.url))

    def close(self) -> None:
        self.sdk.close()

    def ask(self, text: str, *, stream: bool) -> SdkAnswer:
        self.history.append(types.Content(role="user", parts=[types.Part(text=text)]))
        return self._go(stream)

    def give_results(self, result: str, *, stream: bool) -> SdkAnswer:
        calls = [part.function_call for part in self.history[-1].parts if part.function_call]
        parts = [
            types.Part(
                function_response=types.FunctionResponse(id=call.id, name=call.name, response={"output": result})
            )
            for call in calls
        ]
        self.history.append(types.Content(role="user", parts=parts))
        return self._go(stream)

    def _go(self, stream: bool) -> SdkAnswer:
        tool = types.FunctionDeclaration(name=self.tool, description="Looks.", parameters_json_schema=SCHEMA)
        config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[tool])])
        parts: list[types.Part] = []
        final: Any = None
        if stream:
            for final in self.sdk.models.generate_content_stream(model="m", contents=self.history, config=config):
                parts += final.candidates[0].content.parts
        else:
            final = self.sdk.models.generate_content(model="m", contents=self.history, config=config)
            parts = final.candidates[0].content.parts
        # As Google's own CLI does: thoughts are shown, but not kept.
        sent_back_parts = [part for part in parts if not part.thought and (part.text != "" or part.thought_signature)]
        self.history.append(types.Content(role="model", parts=sent_back_parts))
        text = "".join(part.text for part in parts if part.text and not part.thought)
        calls = [(part.function_call.name or "", part.function_call.args or {}) for part in parts if part.function_call]
        return SdkAnswer(text, calls, final)


CLIENTS: list[type[Client]] = [ChatClient, ResponsesClient, AnthropicClient, GeminiClient]
