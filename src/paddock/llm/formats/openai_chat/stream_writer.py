"""Write Chat Completions streams."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from paddock.llm.formats.base import ModelStreamWriter
from paddock.llm.formats.json_fields import encode_json
from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerPartSigned,
    AnswerPartStarted,
    AnswerStreamFailed,
    AnswerStreamFinished,
    AnswerStreamStarted,
    ModelRefusal,
    ModelText,
    ModelThinking,
    ModelToolCall,
    StreamEvent,
    TokenUsage,
)
from paddock.llm.formats.openai_chat.answer import (
    write_chat_answer_usage,
    write_chat_finish_reason,
)
from paddock.llm.formats.openai_chat.reasoning import (
    write_reasoning_details,
)
from paddock.llm.formats.openai_chat.request_writer import write_chat_call_signature, write_chat_tool_call
from paddock.llm.formats.openai_shared import new_prefixed_id, openai_error_object
from paddock.llm.formats.sse import encode_server_sent_event

_CHUNK_SUFFIX = b'},"logprobs":null,"finish_reason":null}]}\n\n'


class ChatStreamWriter(ModelStreamWriter):
    def __init__(self, *, include_usage: bool, names: dict[str, str] | None = None) -> None:
        self._include_usage = include_usage
        self._names = names or {}
        self._chunk_fields: dict[str, Any] = {}
        self._chunk_prefix = b""
        """Prefix of every chunk, up to its delta."""
        self._delta_prefixes: dict[int, bytes] = {}
        self._call_indexes: dict[int, int] = {}
        self._thoughts: dict[int, list[str]] = {}
        self._details_count = 0
        self._has_refusal = False
        self._usage: TokenUsage | None = None

    def write(self, event: StreamEvent) -> bytes:
        match event:
            case AnswerPartDelta():
                return self._continue_part(event.index, event.text)
            case AnswerStreamStarted():
                self._start_stream(event)
                return self._chunk({"role": "assistant", "content": None})
            case AnswerPartStarted():
                return self._start_part(event)
            case AnswerPartSigned() if event.index in self._call_indexes:
                signature_delta = {
                    "index": self._call_indexes[event.index],
                    "extra_content": write_chat_call_signature(event.signature),
                }
                return self._chunk({"tool_calls": [signature_delta]})
            case AnswerPartSigned() if event.index in self._thoughts:
                return self._encode_details(ModelThinking("".join(self._thoughts[event.index]), event.signature))
            case AnswerStreamFinished():
                return self._finish(event)
            case AnswerStreamFailed():
                return encode_server_sent_event({"error": openai_error_object(event.failure)})
            case _:
                return b""

    def _start_stream(self, event: AnswerStreamStarted) -> None:
        self._usage = event.usage
        self._chunk_fields = {
            "id": event.id or new_prefixed_id("chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": event.model,
        }
        self._chunk_prefix = b"data: " + encode_json(self._chunk_fields)[:-1] + b',"choices":[{"index":0,"delta":'

    def _start_part(self, event: AnswerPartStarted) -> bytes:
        match event.part:
            case ModelToolCall():
                self._call_indexes[event.index] = len(self._call_indexes)
                name = self._names.get(event.part.name, event.part.name)
                call = {
                    "index": self._call_indexes[event.index],
                    **write_chat_tool_call(replace(event.part, name=name)),
                }
                call["function"]["arguments"] = event.part.arguments
                return self._chunk({"tool_calls": [call]})
            case ModelText(text=text):
                self._delta_prefixes[event.index] = b'{"content":'
            case ModelThinking(text=text):
                if event.part.redacted is not None:
                    return self._encode_details(event.part)
                self._delta_prefixes[event.index] = b'{"reasoning_content":'
                self._thoughts[event.index] = []
            case ModelRefusal(text=text):
                self._delta_prefixes[event.index] = b'{"refusal":'
                self._has_refusal = True
            case _:
                return b""
        sent = self._continue_part(event.index, text)
        if isinstance(event.part, ModelThinking) and event.part.signature:
            sent += self._encode_details(event.part)
        return sent

    def _continue_part(self, index: int, text: str) -> bytes:
        if not text:
            return b""
        kind = self._delta_prefixes.get(index)
        if kind is not None:
            if index in self._thoughts:
                self._thoughts[index].append(text)
            return b"".join((self._chunk_prefix, kind, encode_json(text), _CHUNK_SUFFIX))
        if index in self._call_indexes:
            return self._chunk({"tool_calls": [{"index": self._call_indexes[index], "function": {"arguments": text}}]})
        return b""

    def _encode_details(self, thought: ModelThinking) -> bytes:
        details = write_reasoning_details([thought], self._details_count)
        self._details_count += len(details)
        return self._chunk({"reasoning_details": details}) if details else b""

    def _finish(self, event: AnswerStreamFinished) -> bytes:
        reason = write_chat_finish_reason(event.finish, refusal=self._has_refusal)
        sent = b'%b{},"logprobs":null,"finish_reason":"%b"}]}\n\n' % (self._chunk_prefix, reason.encode())
        usage = event.usage or self._usage
        if self._include_usage and usage is not None:
            sent += encode_server_sent_event(
                {**self._chunk_fields, "choices": [], "usage": write_chat_answer_usage(usage)}
            )
        return sent + encode_server_sent_event("[DONE]")

    def _chunk(self, delta: dict[str, Any]) -> bytes:
        return b"".join((self._chunk_prefix, encode_json(delta)[:-1], _CHUNK_SUFFIX))
