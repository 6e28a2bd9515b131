"""Write streams of the Responses API, and complete answers built from the same events."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from paddock.llm.formats.answer_events import stream_events_from_answer
from paddock.llm.formats.base import ModelStreamWriter
from paddock.llm.formats.json_fields import encode_json
from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerPartEnded,
    AnswerPartSigned,
    AnswerPartStarted,
    AnswerStreamFailed,
    AnswerStreamFinished,
    AnswerStreamStarted,
    FinishReason,
    ModelAnswer,
    ModelFailure,
    ModelMedia,
    ModelRefusal,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    StreamEvent,
    TokenUsage,
)
from paddock.llm.formats.openai_responses.item_ids import new_output_item_id
from paddock.llm.formats.openai_responses.tool_conversion import custom_tool_input, get_responses_client_tools
from paddock.llm.formats.openai_shared import new_prefixed_id, openai_error_code, write_openai_usage
from paddock.llm.formats.sse import encode_server_sent_event
from paddock.llm.formats.thought_signatures import OPENAI_FAMILY, format_thought_signature
from paddock.llm.formats.tool_names import map_to_client_tool_names
from paddock.llm.formats.translation_notes import add_translation_note


@dataclass(slots=True)
class _OpenPart:
    """A part that has not ended: its item, the index of the item, and the index of the part in it."""

    item: dict[str, Any]
    output_index: int
    content_index: int
    pieces: list[str]
    head: bytes = b""
    """Prefix of every text delta."""

    @property
    def item_position(self) -> dict[str, Any]:
        return {"item_id": self.item["id"], "output_index": self.output_index}

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def write_responses_answer(answer: ModelAnswer, request: ModelRequest | None = None) -> dict[str, Any]:
    writer = ResponsesStreamWriter(request)
    for event in stream_events_from_answer(answer):
        writer.write(event)
    for part in answer.parts:
        if isinstance(part, ModelMedia):
            add_translation_note(answer.notes, f"{part.kind}: the Responses API answers in text only")
    return writer.response


class ResponsesStreamWriter(ModelStreamWriter):
    def __init__(self, request: ModelRequest | None) -> None:
        self._client_tools = get_responses_client_tools(request)
        self._names = map_to_client_tool_names(request)
        self._exchange = request.exchange if request is not None else None
        self._sequence = 0
        self._output: list[dict[str, Any]] = []
        self._message: tuple[int, dict[str, Any]] | None = None
        """The open message item, which may contain several texts."""
        self._open: dict[int, _OpenPart] = {}
        self._has_refusal = False
        self._usage: TokenUsage | None = None
        self.response: dict[str, Any] = {}
        """The response object as written so far."""

    def write(self, event: StreamEvent) -> bytes:
        match event:
            case AnswerPartDelta():
                return self._continue_part(event.index, event.text)
            case AnswerStreamStarted():
                return self._start(event)
            case AnswerPartStarted():
                return self._start_part(event)
            case AnswerPartSigned():
                part = self._open.get(event.index)
                if part is not None and part.item["type"] == "reasoning":
                    part.item["encrypted_content"] = format_thought_signature(event.signature, OPENAI_FAMILY)
                return b""
            case AnswerPartEnded():
                return self._end_part(event.index)
            case AnswerStreamFinished():
                return self._finish(event)
            case AnswerStreamFailed():
                return self._fail(event.failure)

    def _new_id(self, prefix: str) -> str:
        """Return the ID of the item that is added next."""
        return new_output_item_id(prefix, self._exchange, len(self._output))

    def _reasoning_item(self, encrypted: str | None) -> dict[str, Any]:
        return {"type": "reasoning", "id": self._new_id("rs_"), "summary": [], "encrypted_content": encrypted}

    def _emit(self, kind: str, **fields: Any) -> bytes:
        written = encode_server_sent_event({"type": kind, **fields, "sequence_number": self._sequence}, kind)
        self._sequence += 1
        return written

    def _start(self, event: AnswerStreamStarted) -> bytes:
        self._usage = event.usage
        self.response = {
            "id": event.id or new_prefixed_id("resp_"),
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

    def _add_item(self, item: dict[str, Any]) -> tuple[int, bytes]:
        self._output.append(item)
        index = len(self._output) - 1
        return index, self._emit("response.output_item.added", output_index=index, item=item)

    def _start_part(self, event: AnswerPartStarted) -> bytes:
        match event.part:
            case ModelText(text=text):
                sent = self._start_content(event.index, {"type": "output_text", "text": "", "annotations": []})
            case ModelRefusal(text=text):
                self._has_refusal = True
                sent = self._start_content(event.index, {"type": "refusal", "refusal": ""})
            case ModelThinking(text=text, signature=signature, redacted=redacted):
                encrypted = (
                    format_thought_signature(redacted, OPENAI_FAMILY, redacted=True) if redacted is not None else None
                )
                sent = self._start_item(
                    event.index,
                    self._reasoning_item(
                        format_thought_signature(signature, OPENAI_FAMILY) if signature else encrypted
                    ),
                )
            case ModelToolCall(arguments=text, signature=signature):
                sent = self._signature_item(format_thought_signature(signature, OPENAI_FAMILY)) if signature else b""
                sent += self._start_item(event.index, self._call_item(event.part))
            case _:
                return b""
        return sent + self._continue_part(event.index, text)

    def _signature_item(self, encrypted: str) -> bytes:
        """Write the signature of the next call as a reasoning item, which clients send back."""
        sent = self._end_message()
        index, added = self._add_item(self._reasoning_item(encrypted))
        return sent + added + self._emit("response.output_item.done", output_index=index, item=self._output[index])

    def _start_item(self, part: int, item: dict[str, Any]) -> bytes:
        written = self._end_message()
        index, added = self._add_item(item)
        self._open[part] = _OpenPart(item, index, 0, [])
        return written + added

    def _call_item(self, call: ModelToolCall) -> dict[str, Any]:
        call = replace(call, name=self._names.get(call.name, call.name))
        if call.name in self._client_tools.custom:
            item = {"type": "custom_tool_call", "id": self._new_id("ctc_"), "call_id": call.id, "name": call.name}
            return {**item, "input": "", "status": "in_progress"}
        item = {"type": "function_call", "id": self._new_id("fc_"), "call_id": call.id, "name": call.name}
        if call.name in self._client_tools.namespaced:
            item["namespace"], item["name"] = self._client_tools.namespaced[call.name]
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
            index, written = self._add_item(item)
            self._message = (index, item)
        index, item = self._message
        contents: list[dict[str, Any]] = item["content"]
        contents.append(content)
        opened = _OpenPart(item, index, len(contents) - 1, [])
        self._open[part] = opened
        added = self._emit(
            "response.content_part.added", **opened.item_position, content_index=opened.content_index, part=content
        )
        return written + added

    def _continue_part(self, index: int, text: str) -> bytes:
        part = self._open.get(index)
        if part is None or not text:
            return b""
        first = not part.pieces
        part.pieces.append(text)
        match part.item["type"]:
            case "message":
                return self._encode_text_delta(part, text)
            case "reasoning":
                written = b""
                if first:
                    blank = {"type": "summary_text", "text": ""}
                    written = self._emit(
                        "response.reasoning_summary_part.added", **part.item_position, summary_index=0, part=blank
                    )
                return written + self._emit(
                    "response.reasoning_summary_text.delta", **part.item_position, summary_index=0, delta=text
                )
            case "function_call":
                return self._emit("response.function_call_arguments.delta", **part.item_position, delta=text)
            case _:
                # The input of a custom tool can be extracted only from complete arguments.
                return b""

    def _encode_text_delta(self, part: _OpenPart, text: str) -> bytes:
        """Encode a text delta. The rest of the event is encoded only once, because these are most of a stream."""
        if not part.head:
            kind = part.item["content"][part.content_index]["type"]
            more: dict[str, Any] = {**part.item_position, "content_index": part.content_index}
            if kind == "output_text":
                more["logprobs"] = []
            start = encode_json({"type": f"response.{kind}.delta", **more})[:-1]
            part.head = f"event: response.{kind}.delta\ndata: ".encode() + start + b',"delta":'
        number = self._sequence
        self._sequence += 1
        return b'%b%b,"sequence_number":%d}\n\n' % (part.head, encode_json(text), number)

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
                    **part.item_position,
                    name=item["name"],
                    arguments=item["arguments"],
                )
            case _:
                item["input"], item["status"] = custom_tool_input(text), "completed"
                written = self._emit("response.custom_tool_call_input.delta", **part.item_position, delta=item["input"])
                written += self._emit("response.custom_tool_call_input.done", **part.item_position, input=item["input"])
        return written + self._emit("response.output_item.done", output_index=part.output_index, item=item)

    def _end_summary(self, part: _OpenPart) -> bytes:
        summary = {"type": "summary_text", "text": part.text}
        part.item["summary"].append(summary)
        done = self._emit("response.reasoning_summary_text.done", **part.item_position, summary_index=0, text=part.text)
        return done + self._emit(
            "response.reasoning_summary_part.done", **part.item_position, summary_index=0, part=summary
        )

    def _end_content(self, part: _OpenPart) -> bytes:
        content: dict[str, Any] = part.item["content"][part.content_index]
        item_position = {**part.item_position, "content_index": part.content_index}
        if content["type"] == "output_text":
            content["text"] = part.text
            done = self._emit("response.output_text.done", **item_position, text=part.text, logprobs=[])
        else:
            content["refusal"] = part.text
            done = self._emit("response.refusal.done", **item_position, refusal=part.text)
        return done + self._emit("response.content_part.done", **item_position, part=content)

    def _end_message(self) -> bytes:
        if self._message is None:
            return b""
        index, item = self._message
        self._message = None
        written = b"".join(self._end_part(part) for part in [*self._open] if self._open[part].item is item)
        item["status"] = "completed"
        return written + self._emit("response.output_item.done", output_index=index, item=item)

    def _finish(self, event: AnswerStreamFinished) -> bytes:
        written = self._end_message() + b"".join(self._end_part(part) for part in [*self._open])
        usage = event.usage or self._usage
        self.response["output"] = self._output
        if usage is not None:
            self.response["usage"] = write_openai_usage(usage, prompt="input_tokens", completion="output_tokens")
        reason = None
        if event.finish == FinishReason.LENGTH:
            reason = "max_output_tokens"
        elif event.finish == FinishReason.FILTERED or (event.finish == FinishReason.REFUSAL and not self._has_refusal):
            reason = "content_filter"
        if reason is None:
            self.response["status"] = "completed"
            return written + self._emit("response.completed", response=self.response)
        self.response["status"] = "incomplete"
        self.response["incomplete_details"] = {"reason": reason}
        return written + self._emit("response.incomplete", response=self.response)

    def _fail(self, failure: ModelFailure) -> bytes:
        written = b"" if self.response else self._start(AnswerStreamStarted("", ""))
        self.response["status"] = "failed"
        self.response["output"] = self._output
        self.response["error"] = {"code": openai_error_code(failure) or "server_error", "message": failure.message}
        return written + self._emit("response.failed", response=self.response)
