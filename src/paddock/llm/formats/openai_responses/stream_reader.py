"""Parse streams of the Responses API."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from paddock.llm.formats.base import BrokenModelStream
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
)
from paddock.llm.formats.openai_responses.answer import (
    read_responses_answer_usage,
    read_responses_content_piece,
    read_responses_finish_reason,
)
from paddock.llm.formats.openai_responses.request_reader import read_reasoning_item, read_responses_tool_call
from paddock.llm.formats.openai_shared import new_prefixed_id
from paddock.llm.formats.provider_errors import find_error_in_json
from paddock.llm.formats.sse import EventStreamReader

_TextualPart = ModelText | ModelThinking | ModelRefusal
_PREFIX = "response."


@dataclass(slots=True)
class _OpenCall:
    part: int
    custom: bool
    arguments: list[str] = field(default_factory=list)
    ended: bool = False


class _DeltaEvent(msgspec.Struct):
    type: str
    delta: str
    output_index: int
    content_index: int = 0


_decode = msgspec.json.Decoder(_DeltaEvent).decode


class ResponsesStreamReader(EventStreamReader):
    """Stream reader for the Responses API; tolerates servers that send only complete items."""

    def __init__(self) -> None:
        super().__init__()
        self._started = False
        self._done = False
        self._parts = 0
        self._open: tuple[str, int] | None = None
        """The open text or thought: its key in the stream, and the index of its part."""
        self._started_texts: set[str] = set()
        self._calls: dict[str, _OpenCall] = {}
        self._open_calls: dict[str, None] = {}
        """Keys of calls that have not ended, in order."""
        self._new_paragraph: set[str] = set()
        """Thoughts whose next text starts a new paragraph."""
        self._thought_source: dict[str, str] = {}
        self._has_refusal = False

    def _parse_delta_fast(self, piece: bytes) -> AnswerPartDelta | None:
        """Parse a delta of the open text or arguments, the most frequent event; `None` for all others."""
        if self._done or b'.delta"' not in piece[:80]:
            return None
        try:
            found = _decode(piece)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        if not found.delta:
            return None
        if found.type == "response.output_text.delta":
            if self._open is not None and self._open[0] == f"{found.output_index}/{found.content_index}":
                return AnswerPartDelta(self._open[1], found.delta)
        elif found.type == "response.function_call_arguments.delta":
            call = self._calls.get(str(found.output_index))
            if call is not None and not call.ended:
                call.arguments.append(found.delta)
                return AnswerPartDelta(call.part, found.delta)
        return None

    def close(self) -> list[StreamEvent]:
        events = [event for sent in self._events.close() for event in self._read_event(sent.data, sent.name)]
        if not self._done:
            raise BrokenModelStream("the stream ended before the answer was complete")
        return events

    def _read_event(self, data: str | bytes, name: str = "") -> list[StreamEvent]:
        data = data.strip()
        if self._done or not data or data in ("[DONE]", b"[DONE]"):
            return []
        fields = parse_answer_body(data)
        kind = fields.optional_text("type") or name
        if kind == "error" or (not kind.startswith(_PREFIX) and fields.get("error")):
            return self._fail(fields)
        if not kind.startswith(_PREFIX):
            return []
        kind = kind.removeprefix(_PREFIX)
        if kind in ("failed", "cancelled"):
            return self._fail(fields.optional_object("response") or fields)
        events: list[StreamEvent] = []
        response = fields.optional_object("response")
        if not self._started:
            self._started = True
            head = response.value if response is not None else {}
            events.append(
                AnswerStreamStarted(str(head.get("id") or new_prefixed_id("resp_")), str(head.get("model") or ""))
            )
        if kind in ("completed", "incomplete", "done"):
            return events + self._finish(response or fields.object("response"))
        return events + self._read_typed_event(kind, fields)

    def _fail(self, fields: JsonFields) -> list[StreamEvent]:
        self._done = True
        received = fields.value if fields.get("error") or fields.get("message") else {}
        return [
            AnswerStreamFailed(
                find_error_in_json(received) or ModelFailure(502, "the provider failed without a message")
            )
        ]

    def _read_typed_event(self, kind: str, fields: JsonFields) -> list[StreamEvent]:
        key = _item_key(fields)
        match kind:
            case "output_item.added":
                item = fields.object("item")
                is_call = item.get("type") in ("function_call", "custom_tool_call")
                return self._start_call(key, item) if is_call else []
            case "output_item.done":
                return self._complete_item(key, fields.object("item"))
            case "output_text.delta":
                return self._add_text(_content_key(key, fields), ModelText, fields.text("delta"))
            case "refusal.delta":
                return self._add_text(_content_key(key, fields), ModelRefusal, fields.text("delta"))
            case "output_text.done":
                return self._complete_text(_content_key(key, fields), ModelText, fields.optional_text("text") or "")
            case "refusal.done":
                return self._complete_text(
                    _content_key(key, fields), ModelRefusal, fields.optional_text("refusal") or ""
                )
            case "reasoning_summary_part.added":
                if key in self._started_texts:
                    self._new_paragraph.add(key)
                return []
            case "reasoning_summary_text.delta" | "reasoning_text.delta":
                return self._add_thought(key, kind, fields.text("delta"))
            case "function_call_arguments.delta":
                return self._add_arguments(key, fields.text("delta"))
            case "function_call_arguments.done":
                return self._complete_arguments(key, fields.optional_text("arguments") or "")
            case _:
                return []

    def _next_index(self) -> int:
        self._parts += 1
        return self._parts - 1

    def _add_text(self, text_key: str, kind: type[_TextualPart], text: str) -> list[StreamEvent]:
        if not text:
            return []
        events: list[StreamEvent] = []
        if self._open is None or self._open[0] != text_key:
            events += self._end_all_parts()
            self._open = (text_key, self._next_index())
            events.append(AnswerPartStarted(self._open[1], kind("")))
            self._has_refusal = self._has_refusal or kind is ModelRefusal
        self._started_texts.add(text_key)
        return [*events, AnswerPartDelta(self._open[1], text)]

    def _complete_text(self, text_key: str, kind: type[_TextualPart], text: str) -> list[StreamEvent]:
        events = self._add_text(text_key, kind, text) if text_key not in self._started_texts else []
        if self._open is not None and self._open[0] == text_key:
            events += self._end_text_part()
        return events

    def _add_thought(self, key: str, source: str, text: str) -> list[StreamEvent]:
        # A model may send its thoughts and a summary of them; only the first of the two is used.
        if not text or self._thought_source.setdefault(key, source) != source:
            return []
        if key in self._new_paragraph:
            self._new_paragraph.discard(key)
            text = f"\n\n{text}"
        return self._add_text(key, ModelThinking, text)

    def _end_text_part(self) -> list[StreamEvent]:
        if self._open is None:
            return []
        part = self._open[1]
        self._open = None
        return [AnswerPartEnded(part)]

    def _end_all_parts(self) -> list[StreamEvent]:
        events = self._end_text_part()
        for key in [*self._open_calls]:
            events += self._end_call(key)
        return events

    def _start_call(self, key: str, item: JsonFields) -> list[StreamEvent]:
        if key in self._calls:
            return []
        events = self._end_text_part()
        call = read_responses_tool_call(item)
        self._calls[key] = _OpenCall(self._next_index(), item.get("type") == "custom_tool_call")
        self._open_calls[key] = None
        return [*events, AnswerPartStarted(self._calls[key].part, ModelToolCall(call.id, call.name, ""))]

    def _add_arguments(self, key: str, text: str) -> list[StreamEvent]:
        call = self._calls.get(key)
        if call is None or call.ended:
            raise BrokenModelStream("the stream has arguments of a call that is not open")
        if not text:
            return []
        call.arguments.append(text)
        return [AnswerPartDelta(call.part, text)]

    def _complete_arguments(self, key: str, arguments: str) -> list[StreamEvent]:
        """Add the remaining part of the complete arguments."""
        call = self._calls.get(key)
        if call is None or call.ended:
            return []
        received = "".join(call.arguments)
        call.arguments = [received] if received else []
        if not arguments.startswith(received):
            return []
        return self._add_arguments(key, arguments[len(received) :])

    def _end_call(self, key: str) -> list[StreamEvent]:
        call = self._calls[key]
        if call.ended:
            return []
        events = self._add_arguments(key, "{}") if not call.arguments else []
        call.ended = True
        del self._open_calls[key]
        return [*events, AnswerPartEnded(call.part)]

    def _complete_item(self, key: str, item: JsonFields) -> list[StreamEvent]:
        match item.get("type"):
            case "message":
                events: list[StreamEvent] = []
                for index, piece in enumerate(item.objects("content")):
                    part = read_responses_content_piece(piece)
                    if part is not None:
                        events += self._complete_text(f"{key}/{index}", type(part), part.text)
                return events
            case "reasoning":
                return self._complete_thought(key, item)
            case "function_call" | "custom_tool_call":
                events = self._start_call(key, item)
                return (
                    events
                    + self._complete_arguments(key, read_responses_tool_call(item).arguments)
                    + self._end_call(key)
                )
            case _:
                return []

    def _complete_thought(self, key: str, item: JsonFields) -> list[StreamEvent]:
        thought = read_reasoning_item(item)
        if thought is None:
            return self._complete_text(key, ModelThinking, "")
        events: list[StreamEvent] = []
        if key not in self._started_texts:
            events += self._end_all_parts()
            self._started_texts.add(key)
            self._open = (key, self._next_index())
            events.append(AnswerPartStarted(self._open[1], ModelThinking(redacted=thought.redacted)))
            if thought.text:
                events.append(AnswerPartDelta(self._open[1], thought.text))
        if self._open is not None and self._open[0] == key:
            if thought.signature is not None:
                events.append(AnswerPartSigned(self._open[1], thought.signature))
            events += self._end_text_part()
        return events

    def _finish(self, response: JsonFields) -> list[StreamEvent]:
        self._done = True
        events: list[StreamEvent] = []
        if not self._parts:
            for index, item in enumerate(response.objects("output")):
                events += self._complete_item(str(index), item)
        events += self._end_all_parts()
        finish = read_responses_finish_reason(response, calls=bool(self._calls), refusal=self._has_refusal)
        return [*events, AnswerStreamFinished(finish, read_responses_answer_usage(response))]


def _item_key(fields: JsonFields) -> str:
    """Return the key of the item of an event."""
    index = fields.get("output_index")
    return str(index if index is not None else fields.get("item_id"))


def _content_key(key: str, fields: JsonFields) -> str:
    return f"{key}/{fields.get('content_index') or 0}"
