"""Parse Chat Completions streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from paddock.llm.formats.base import BrokenModelStream
from paddock.llm.formats.call_arguments import call_arguments_text
from paddock.llm.formats.json_fields import JsonFields, parse_answer_body
from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerPartEnded,
    AnswerPartSigned,
    AnswerPartStarted,
    AnswerStreamFailed,
    AnswerStreamFinished,
    AnswerStreamStarted,
    ModelFailure,
    ModelRefusal,
    ModelText,
    ModelThinking,
    ModelToolCall,
    StreamEvent,
    TokenUsage,
)
from paddock.llm.formats.openai_chat.answer import (
    CHAT_FAILED_FINISH_REASONS,
    read_chat_answer_usage,
    read_chat_content_text,
    read_chat_finish_reason,
)
from paddock.llm.formats.openai_chat.reasoning import (
    ReasoningDetails,
    join_reasoning_details_text,
    read_reasoning_details,
    read_reasoning_text,
    reasoning_details_signature,
    split_redacted_thoughts,
)
from paddock.llm.formats.openai_chat.request_reader import read_chat_call_signature
from paddock.llm.formats.openai_shared import new_prefixed_id
from paddock.llm.formats.provider_errors import find_error_in_json
from paddock.llm.formats.sse import EventStreamReader


@dataclass(slots=True)
class _OpenCall:
    id: str = ""
    name: str = ""
    part: int | None = None
    waiting: list[str] = field(default_factory=list)
    """Arguments received before the name."""
    empty: bool = True
    signature: str | None = None


class _FunctionDelta(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(msgspec.Struct):
    function: _FunctionDelta
    index: int | None = None
    id: str | None = None
    extra_content: Any = None


class _MessageDelta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_CallDelta] | None = None
    refusal: Any = None
    reasoning: str | None = None
    reasoning_details: Any = None


class _ChoiceDelta(msgspec.Struct):
    delta: _MessageDelta
    index: int = 0
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_ChoiceDelta]
    error: Any = None
    usage: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


class ChatStreamReader(EventStreamReader):
    def __init__(self) -> None:
        super().__init__()
        self._started = False
        self._done = False
        self._parts = 0
        self._open: tuple[int, type[ModelText | ModelThinking | ModelRefusal]] | None = None
        self._calls: list[_OpenCall] = []
        self._calls_by_index: dict[int, _OpenCall] = {}
        self._calls_by_id: dict[str, _OpenCall] = {}
        self._texts_after_calls: list[tuple[type[ModelText | ModelThinking | ModelRefusal], list[str]]] = []
        self._details = ReasoningDetails()
        """Details of the open thought."""
        self._has_reasoning_text = False
        self._reason: str | None = None
        self._has_refusal = False
        self._usage: TokenUsage | None = None

    def _parse_delta_fast(self, piece: bytes) -> AnswerPartDelta | None:
        """Parse a chunk that only continues the open part, the most frequent kind; `None` for all others."""
        if self._done or (self._open is None and not self._calls):
            return None
        try:
            found = _decode(piece)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        if len(found.choices) != 1 or found.error or found.usage:
            return None
        choice = found.choices[0]
        delta = choice.delta
        if choice.finish_reason or choice.index or delta.refusal or delta.reasoning_details:
            return None
        thought = delta.reasoning_content or delta.reasoning
        if delta.tool_calls:
            return self._parse_call_delta_fast(delta.tool_calls) if not (delta.content or thought) else None
        if self._open is None or self._calls:
            return None
        index, kind = self._open
        if kind is ModelText and delta.content and not thought:
            return AnswerPartDelta(index, delta.content)
        if kind is ModelThinking and thought and not delta.content:
            return AnswerPartDelta(index, thought)
        return None

    def _parse_call_delta_fast(self, pieces: list[_CallDelta]) -> AnswerPartDelta | None:
        """Parse a chunk that only continues the arguments of an open call."""
        piece = pieces[0]
        if len(pieces) != 1 or piece.id or piece.index is None or piece.extra_content:
            return None
        call = self._calls_by_index.get(piece.index)
        if call is None or call.part is None or piece.function.name or not piece.function.arguments:
            return None
        call.empty = False
        return AnswerPartDelta(call.part, piece.function.arguments)

    def close(self) -> list[StreamEvent]:
        events = [event for sent in self._events.close() for event in self._read_event(sent.data)]
        if not self._done:
            if self._reason is None:
                raise BrokenModelStream("the stream ended before the answer was complete")
            events += self._finish()
        return events

    def _read_event(self, data: str | bytes, name: str = "") -> list[StreamEvent]:
        data = data.strip()
        if self._done or not data:
            return []
        if data in ("[DONE]", b"[DONE]"):
            if not self._started:
                raise BrokenModelStream("the stream ended without an answer")
            return self._finish()
        fields = parse_answer_body(data)
        if fields.get("error") or (fields.get("object") == "error"):
            failure = find_error_in_json(fields.value) or ModelFailure(502, "the provider failed without a message")
            return self._fail(failure)
        events: list[StreamEvent] = []
        if not self._started:
            self._started = True
            events.append(
                AnswerStreamStarted(
                    fields.optional_text("id") or new_prefixed_id("chatcmpl-"), fields.optional_text("model") or ""
                )
            )
        self._usage = read_chat_answer_usage(fields) or self._usage
        for choice in fields.objects("choices"):
            if choice.get("index") not in (None, 0):
                continue
            delta = choice.optional_object("delta") or choice.optional_object("message")
            if delta is not None:
                events += self._read_delta(delta)
            reason = choice.optional_text("finish_reason")
            if reason in CHAT_FAILED_FINISH_REASONS:
                return events + self._fail(ModelFailure(503, f"the provider ended the answer with {reason}"))
            self._reason = self._reason or reason or None
        return events

    def _fail(self, failure: ModelFailure) -> list[StreamEvent]:
        self._done = True
        return [AnswerStreamFailed(failure)]

    def _read_delta(self, delta: JsonFields) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        details = read_reasoning_details(delta)
        thought = read_reasoning_text(delta)
        self._has_reasoning_text = self._has_reasoning_text or bool(thought)
        if not self._has_reasoning_text:
            # Servers that send the text in both fields repeat it.
            thought = join_reasoning_details_text(details)
        if thought:
            events += self._add_text(ModelThinking, thought)
        redacted, details = split_redacted_thoughts(details)
        for each in redacted if not self._calls else ():
            events += [
                *self._end_text_part(),
                AnswerPartStarted(self._parts, each),
                AnswerPartEnded(self._next_index()),
            ]
        if details:
            if (
                reasoning_details_signature(details)
                and not self._calls
                and (self._open is None or self._open[1] is not ModelThinking)
            ):
                events += self._start_text_part(ModelThinking)
            self._details.add(details)
        text = read_chat_content_text(delta)
        if text:
            events += self._add_text(ModelText, text)
        refusal = delta.optional_text("refusal")
        if refusal:
            self._has_refusal = True
            events += self._add_text(ModelRefusal, refusal)
        for call in delta.objects("tool_calls"):
            events += self._read_call_delta(call)
        return events

    def _add_text(self, kind: type[ModelText | ModelThinking | ModelRefusal], text: str) -> list[StreamEvent]:
        if self._calls:
            # Open calls may still continue, and text must not interleave with them: it waits until they end.
            if not self._texts_after_calls or self._texts_after_calls[-1][0] is not kind:
                self._texts_after_calls.append((kind, []))
            self._texts_after_calls[-1][1].append(text)
            return []
        events: list[StreamEvent] = []
        if self._open is None or self._open[1] is not kind:
            events += self._start_text_part(kind)
        assert self._open is not None
        events.append(AnswerPartDelta(self._open[0], text))
        return events

    def _start_text_part(self, kind: type[ModelText | ModelThinking | ModelRefusal]) -> list[StreamEvent]:
        events = self._end_text_part()
        self._open = (self._parts, kind)
        return [*events, AnswerPartStarted(self._next_index(), kind(""))]

    def _end_text_part(self) -> list[StreamEvent]:
        if self._open is None:
            return []
        index, kind = self._open
        self._open = None
        signature = None
        if kind is ModelThinking:
            signature = reasoning_details_signature(self._details.merged())
            self._details = ReasoningDetails()
        return (
            [AnswerPartSigned(index, signature), AnswerPartEnded(index)]
            if signature is not None
            else [AnswerPartEnded(index)]
        )

    def _next_index(self) -> int:
        self._parts += 1
        return self._parts - 1

    def _read_call_delta(self, delta: JsonFields) -> list[StreamEvent]:
        function = delta.optional_object("function")
        name = (function.optional_text("name") if function is not None else None) or ""
        call = self._find_call(delta, name)
        call.id = call.id or delta.optional_text("id") or ""
        self._calls_by_id.setdefault(call.id, call)
        call.name = call.name or name
        call.signature = read_chat_call_signature(delta) or call.signature
        arguments = call_arguments_text(function.get("arguments")) if function is not None else ""
        events: list[StreamEvent] = []
        if call.part is None:
            call.waiting.append(arguments)
            if not call.name:
                return []
            events += self._end_text_part()
            call.id = call.id or new_prefixed_id("call_")
            call.part = self._next_index()
            events.append(AnswerPartStarted(call.part, ModelToolCall(call.id, call.name, "", call.signature)))
            call.signature = None
            arguments = "".join(call.waiting)
        if arguments:
            call.empty = False
            events.append(AnswerPartDelta(call.part, arguments))
        return events

    def _find_call(self, delta: JsonFields, name: str) -> _OpenCall:
        """Find the call of a piece. Some servers send no index, the same index for all, or an ID only once."""
        call_id, index = delta.optional_text("id") or "", delta.optional_integer("index")
        if index is not None:
            known = self._calls_by_index.get(index)
            if known is not None and not (call_id and name and known.id and call_id != known.id):
                return known
        else:
            if call_id and call_id in self._calls_by_id:
                return self._calls_by_id[call_id]
            if self._calls and not call_id and not name:
                return self._calls[-1]
        call = _OpenCall()
        self._calls.append(call)
        if index is not None:
            self._calls_by_index[index] = call
        return call

    def _finish(self) -> list[StreamEvent]:
        self._done = True
        events = self._end_text_part()
        for call in self._calls:
            if call.part is None:
                raise BrokenModelStream("a call in the stream has no name")
            if call.empty:
                events.append(AnswerPartDelta(call.part, "{}"))
            if call.signature is not None:
                events.append(AnswerPartSigned(call.part, call.signature))
            events.append(AnswerPartEnded(call.part))
        for kind, texts in self._texts_after_calls:
            index = self._next_index()
            events += [
                AnswerPartStarted(index, kind("")),
                AnswerPartDelta(index, "".join(texts)),
                AnswerPartEnded(index),
            ]
        finish = read_chat_finish_reason(self._reason, calls=bool(self._calls), refusal=self._has_refusal)
        return [*events, AnswerStreamFinished(finish, self._usage)]
