"""Writing a stream of the Responses API, and with the same words a whole answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from paddock.llm.collect import answer_events
from paddock.llm.formats.base import StreamWriter
from paddock.llm.formats.fields import to_bytes
from paddock.llm.formats.names import client_names
from paddock.llm.formats.notes import note
from paddock.llm.formats.openai_responses.item_ids import item_id
from paddock.llm.formats.openai_responses.tools import custom_input, words_of
from paddock.llm.formats.openai_shared import error_code, new_id, write_usage
from paddock.llm.formats.seals import OPENAI, written
from paddock.llm.formats.sse import event_bytes
from paddock.llm.neutral import (
    Answer,
    Delta,
    Event,
    Failed,
    Failure,
    Finish,
    Finished,
    Media,
    PartEnded,
    PartStarted,
    Refusal,
    Request,
    Signed,
    Started,
    Text,
    Thinking,
    ToolCall,
    Usage,
)


@dataclass(slots=True)
class _Open:
    """A part being written: its item, where that stands, and the part's place in it."""

    item: dict[str, Any]
    output_index: int
    content_index: int
    pieces: list[str]
    head: bytes = b""
    """How every piece of a text begins."""

    @property
    def place(self) -> dict[str, Any]:
        return {"item_id": self.item["id"], "output_index": self.output_index}

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def write_answer(answer: Answer, request: Request | None = None) -> dict[str, Any]:
    writer = ResponsesWriter(request)
    for event in answer_events(answer):
        writer.write(event)
    for part in answer.parts:
        if isinstance(part, Media):
            note(answer.notes, f"{part.kind}: the Responses API answers in text only")
    return writer.response


class ResponsesWriter(StreamWriter):
    def __init__(self, request: Request | None) -> None:
        self._words = words_of(request)
        self._names = client_names(request)
        self._exchange = request.exchange if request is not None else None
        self._sequence = 0
        self._output: list[dict[str, Any]] = []
        self._message: tuple[int, dict[str, Any]] | None = None
        """The message being written, which may hold several texts."""
        self._open: dict[int, _Open] = {}
        self._refused = False
        self._usage: Usage | None = None
        self.response: dict[str, Any] = {}
        """The answer as far as it is written."""

    def write(self, event: Event) -> bytes:
        match event:
            case Delta():
                return self._more(event.index, event.text)
            case Started():
                return self._start(event)
            case PartStarted():
                return self._start_part(event)
            case Signed():
                part = self._open.get(event.index)
                if part is not None and part.item["type"] == "reasoning":
                    part.item["encrypted_content"] = written(event.signature, OPENAI)
                return b""
            case PartEnded():
                return self._end_part(event.index)
            case Finished():
                return self._finish(event)
            case Failed():
                return self._fail(event.failure)

    def _new_id(self, prefix: str) -> str:
        """Return the id of the item that is added next."""
        return item_id(prefix, self._exchange, len(self._output))

    def _thought(self, seal: str | None) -> dict[str, Any]:
        return {"type": "reasoning", "id": self._new_id("rs_"), "summary": [], "encrypted_content": seal}

    def _emit(self, kind: str, **fields: Any) -> bytes:
        written = event_bytes({"type": kind, **fields, "sequence_number": self._sequence}, kind)
        self._sequence += 1
        return written

    def _start(self, event: Started) -> bytes:
        self._usage = event.usage
        self.response = {
            "id": event.id or new_id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": None,
            "model": event.model,
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": None,
            "user": None,
            "metadata": {},
        }
        created = self._emit("response.created", response=self.response)
        return created + self._emit("response.in_progress", response=self.response)

    def _add(self, item: dict[str, Any]) -> tuple[int, bytes]:
        self._output.append(item)
        index = len(self._output) - 1
        return index, self._emit("response.output_item.added", output_index=index, item=item)

    def _start_part(self, event: PartStarted) -> bytes:
        match event.part:
            case Text(text=text):
                said = self._start_content(event.index, {"type": "output_text", "text": "", "annotations": []})
            case Refusal(text=text):
                self._refused = True
                said = self._start_content(event.index, {"type": "refusal", "refusal": ""})
            case Thinking(text=text, signature=signature, redacted=redacted):
                seal = written(redacted, OPENAI, redacted=True) if redacted is not None else None
                said = self._start_item(event.index, self._thought(written(signature, OPENAI) if signature else seal))
            case ToolCall(arguments=text, signature=signature):
                said = self._seal(written(signature, OPENAI)) if signature else b""
                said += self._start_item(event.index, self._call(event.part))
            case _:
                return b""
        return said + self._more(event.index, text)

    def _seal(self, seal: str) -> bytes:
        """The seal of the call that follows, which has no field for it: clients send such items back in their place."""
        said = self._end_message()
        index, added = self._add(self._thought(seal))
        return said + added + self._emit("response.output_item.done", output_index=index, item=self._output[index])

    def _start_item(self, part: int, item: dict[str, Any]) -> bytes:
        written = self._end_message()
        index, added = self._add(item)
        self._open[part] = _Open(item, index, 0, [])
        return written + added

    def _call(self, call: ToolCall) -> dict[str, Any]:
        call = replace(call, name=self._names.get(call.name, call.name))
        if call.name in self._words.custom:
            item = {"type": "custom_tool_call", "id": self._new_id("ctc_"), "call_id": call.id, "name": call.name}
            return {**item, "input": "", "status": "in_progress"}
        item = {"type": "function_call", "id": self._new_id("fc_"), "call_id": call.id, "name": call.name}
        if call.name in self._words.namespaced:
            item["namespace"], item["name"] = self._words.namespaced[call.name]
        return {**item, "arguments": "", "status": "in_progress"}

    def _start_content(self, part: int, content: dict[str, Any]) -> bytes:
        written = b""
        if self._message is None:
            item: dict[str, Any] = {
                "type": "message",
                "id": self._new_id("msg_"),
                "status": "in_progress",
                "role": "assistant",
                "content": [],
            }
            index, written = self._add(item)
            self._message = (index, item)
        index, item = self._message
        contents: list[dict[str, Any]] = item["content"]
        contents.append(content)
        opened = _Open(item, index, len(contents) - 1, [])
        self._open[part] = opened
        added = self._emit(
            "response.content_part.added", **opened.place, content_index=opened.content_index, part=content
        )
        return written + added

    def _more(self, index: int, text: str) -> bytes:
        part = self._open.get(index)
        if part is None or not text:
            return b""
        first = not part.pieces
        part.pieces.append(text)
        match part.item["type"]:
            case "message":
                return self._quick(part, text)
            case "reasoning":
                written = b""
                if first:
                    blank = {"type": "summary_text", "text": ""}
                    written = self._emit(
                        "response.reasoning_summary_part.added", **part.place, summary_index=0, part=blank
                    )
                return written + self._emit(
                    "response.reasoning_summary_text.delta", **part.place, summary_index=0, delta=text
                )
            case "function_call":
                return self._emit("response.function_call_arguments.delta", **part.place, delta=text)
            case _:
                # A custom tool's input can only be told when the arguments that hold it are whole.
                return b""

    def _quick(self, part: _Open, text: str) -> bytes:
        """More of a text: most of a stream, so that all but the text itself is made only once."""
        if not part.head:
            kind = part.item["content"][part.content_index]["type"]
            more: dict[str, Any] = {**part.place, "content_index": part.content_index}
            if kind == "output_text":
                more["logprobs"] = []
            start = to_bytes({"type": f"response.{kind}.delta", **more})[:-1]
            part.head = f"event: response.{kind}.delta\ndata: ".encode() + start + b',"delta":'
        number = self._sequence
        self._sequence += 1
        return b'%b%b,"sequence_number":%d}\n\n' % (part.head, to_bytes(text), number)

    def _end_part(self, index: int) -> bytes:
        part = self._open.pop(index, None)
        if part is None:
            return b""
        item, text = part.item, part.text
        match item["type"]:
            case "message":
                return self._end_content(part)
            case "reasoning":
                written = self._end_summary(part) if text else b""
            case "function_call":
                item["arguments"], item["status"] = text or "{}", "completed"
                written = self._emit(
                    "response.function_call_arguments.done",
                    **part.place,
                    name=item["name"],
                    arguments=item["arguments"],
                )
            case _:
                item["input"], item["status"] = custom_input(text), "completed"
                written = self._emit("response.custom_tool_call_input.delta", **part.place, delta=item["input"])
                written += self._emit("response.custom_tool_call_input.done", **part.place, input=item["input"])
        return written + self._emit("response.output_item.done", output_index=part.output_index, item=item)

    def _end_summary(self, part: _Open) -> bytes:
        summary = {"type": "summary_text", "text": part.text}
        part.item["summary"].append(summary)
        done = self._emit("response.reasoning_summary_text.done", **part.place, summary_index=0, text=part.text)
        return done + self._emit("response.reasoning_summary_part.done", **part.place, summary_index=0, part=summary)

    def _end_content(self, part: _Open) -> bytes:
        content: dict[str, Any] = part.item["content"][part.content_index]
        place = {**part.place, "content_index": part.content_index}
        if content["type"] == "output_text":
            content["text"] = part.text
            done = self._emit("response.output_text.done", **place, text=part.text, logprobs=[])
        else:
            content["refusal"] = part.text
            done = self._emit("response.refusal.done", **place, refusal=part.text)
        return done + self._emit("response.content_part.done", **place, part=content)

    def _end_message(self) -> bytes:
        if self._message is None:
            return b""
        index, item = self._message
        self._message = None
        written = b"".join(self._end_part(part) for part in [*self._open] if self._open[part].item is item)
        item["status"] = "completed"
        return written + self._emit("response.output_item.done", output_index=index, item=item)

    def _finish(self, event: Finished) -> bytes:
        written = self._end_message() + b"".join(self._end_part(part) for part in [*self._open])
        usage = event.usage or self._usage
        self.response["output"] = self._output
        if usage is not None:
            self.response["usage"] = write_usage(usage, prompt="input_tokens", completion="output_tokens")
        reason = None
        if event.finish == Finish.LENGTH:
            reason = "max_output_tokens"
        elif event.finish == Finish.FILTERED or (event.finish == Finish.REFUSAL and not self._refused):
            reason = "content_filter"
        if reason is None:
            self.response["status"] = "completed"
            return written + self._emit("response.completed", response=self.response)
        self.response["status"] = "incomplete"
        self.response["incomplete_details"] = {"reason": reason}
        return written + self._emit("response.incomplete", response=self.response)

    def _fail(self, failure: Failure) -> bytes:
        written = b"" if self.response else self._start(Started("", ""))
        self.response["status"] = "failed"
        self.response["output"] = self._output
        self.response["error"] = {"code": error_code(failure) or "server_error", "message": failure.message}
        return written + self._emit("response.failed", response=self.response)
