"""Writing a stream of Chat Completions."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from paddock.llm.formats.base import StreamWriter
from paddock.llm.formats.fields import to_bytes
from paddock.llm.formats.openai_chat.answer import (
    finish_reason,
    usage_object,
)
from paddock.llm.formats.openai_chat.reasoning import (
    write_details,
)
from paddock.llm.formats.openai_chat.write_request import write_call, write_signature
from paddock.llm.formats.openai_shared import error_object, new_id
from paddock.llm.formats.sse import event_bytes
from paddock.llm.neutral import (
    Delta,
    Event,
    Failed,
    Finished,
    PartStarted,
    Refusal,
    Signed,
    Started,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

_END = b'},"logprobs":null,"finish_reason":null}]}\n\n'


class ChatWriter(StreamWriter):
    def __init__(self, *, include_usage: bool, names: dict[str, str] | None = None) -> None:
        self._include_usage = include_usage
        self._names = names or {}
        self._head: dict[str, Any] = {}
        self._start_bytes = b""
        """How every chunk begins, as far as its delta."""
        self._kinds: dict[int, bytes] = {}
        self._calls: dict[int, int] = {}
        self._thoughts: dict[int, list[str]] = {}
        self._details = 0
        self._refused = False
        self._usage: Usage | None = None

    def write(self, event: Event) -> bytes:
        match event:
            case Delta():
                return self._more(event.index, event.text)
            case Started():
                self._begin(event)
                return self._chunk({"role": "assistant", "content": None})
            case PartStarted():
                return self._start(event)
            case Signed() if event.index in self._calls:
                seal = {"index": self._calls[event.index], "extra_content": write_signature(event.signature)}
                return self._chunk({"tool_calls": [seal]})
            case Signed() if event.index in self._thoughts:
                return self._sealed(Thinking("".join(self._thoughts[event.index]), event.signature))
            case Finished():
                return self._finish(event)
            case Failed():
                return event_bytes({"error": error_object(event.failure)})
            case _:
                return b""

    def _begin(self, event: Started) -> None:
        self._usage = event.usage
        self._head = {
            "id": event.id or new_id("chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": event.model,
        }
        self._start_bytes = b"data: " + to_bytes(self._head)[:-1] + b',"choices":[{"index":0,"delta":'

    def _start(self, event: PartStarted) -> bytes:
        match event.part:
            case ToolCall():
                self._calls[event.index] = len(self._calls)
                name = self._names.get(event.part.name, event.part.name)
                call = {"index": self._calls[event.index], **write_call(replace(event.part, name=name))}
                call["function"]["arguments"] = event.part.arguments
                return self._chunk({"tool_calls": [call]})
            case Text(text=text):
                self._kinds[event.index] = b'{"content":'
            case Thinking(text=text):
                if event.part.redacted is not None:
                    return self._sealed(event.part)
                self._kinds[event.index] = b'{"reasoning_content":'
                self._thoughts[event.index] = []
            case Refusal(text=text):
                self._kinds[event.index] = b'{"refusal":'
                self._refused = True
            case _:
                return b""
        said = self._more(event.index, text)
        if isinstance(event.part, Thinking) and event.part.signature:
            said += self._sealed(event.part)
        return said

    def _more(self, index: int, text: str) -> bytes:
        if not text:
            return b""
        kind = self._kinds.get(index)
        if kind is not None:
            if index in self._thoughts:
                self._thoughts[index].append(text)
            return b"".join((self._start_bytes, kind, to_bytes(text), _END))
        if index in self._calls:
            return self._chunk({"tool_calls": [{"index": self._calls[index], "function": {"arguments": text}}]})
        return b""

    def _sealed(self, thought: Thinking) -> bytes:
        details = write_details([thought], self._details)
        self._details += len(details)
        return self._chunk({"reasoning_details": details}) if details else b""

    def _finish(self, event: Finished) -> bytes:
        reason = finish_reason(event.finish, refusal=self._refused)
        said = b'%b{},"logprobs":null,"finish_reason":"%b"}]}\n\n' % (self._start_bytes, reason.encode())
        usage = event.usage or self._usage
        if self._include_usage and usage is not None:
            said += event_bytes({**self._head, "choices": [], "usage": usage_object(usage)})
        return said + event_bytes("[DONE]")

    def _chunk(self, delta: dict[str, Any]) -> bytes:
        return b"".join((self._start_bytes, to_bytes(delta)[:-1], _END))
