"""Translate session events into AG-UI 1.0 events."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from paddock.agents.approvals.approval_decisions import is_client_call
from paddock.model.events import EventRecord, EventType
from paddock.model.sessions import Approval, Session

PROTOCOL_VERSION = "1.0"
AguiEvent = dict[str, Any]


class AguiEventTranslator:
    """Translates the events of one run.

    Messages, calls and steps started in a run are also ended in it.
    """

    def __init__(
        self, thread: str, run: str, session: Session, *, known_results: Collection[str] = frozenset()
    ) -> None:
        """`known_results` are ids of calls with results from the client itself."""
        self._run_ids = {"threadId": thread, "runId": run}
        self._session = session
        self._known_results = known_results
        self.own_message: str | None = None
        """Id of the message that the client sent; it is not repeated."""
        self.ignored_tools: Sequence[str] = ()
        """Names of the client's tools that the session's agent cannot call."""
        self._steps: list[str] = []
        self._texts: list[str] = []
        self._thoughts: dict[str, str] = {}
        self._calls: dict[str, bool] = {}
        """Calls being written, and whether any of their arguments were sent."""
        self._started_texts: set[str] = set()
        self._thought_count = 0
        self._turn_error: Mapping[str, Any] = {}

    def start(self) -> Iterator[AguiEvent]:
        yield {"type": "RUN_STARTED", **self._run_ids, "protocolVersion": PROTOCOL_VERSION}
        plan = [step.model_dump(mode="json") for step in self._session.plan]
        if self.ignored_tools:
            reason = f"the agent {self._session.agent} has only tools of its own"
            yield {
                "type": "CUSTOM",
                "name": "tools.ignored",
                "value": {"tools": [*self.ignored_tools], "reason": reason},
            }
        yield {"type": "STATE_SNAPSHOT", "snapshot": {"session": self._session.id, "plan": plan}}

    def translate(self, event: EventRecord) -> Iterator[AguiEvent]:
        """Translate one event; types that AG-UI lacks become custom events."""
        timestamp = int(event.at.timestamp() * 1000)
        for each in self._translate(event.type, event.data):
            yield {**each, "timestamp": timestamp}

    def _translate(self, kind: EventType, data: Mapping[str, Any]) -> Iterator[AguiEvent]:
        match kind:
            case EventType.MESSAGE_STARTED | EventType.TURN_STARTED | EventType.TURN_ENDED | EventType.SESSION_DELETED:
                pass
            case EventType.MESSAGE_RECEIVED:
                yield from self._translate_message(data)
            case EventType.MESSAGE_DELTA | EventType.MESSAGE_ENDED:
                yield from self._translate_text(kind, data)
            case EventType.THOUGHT_STARTED | EventType.THOUGHT_DELTA | EventType.THOUGHT_ENDED:
                yield from self._translate_thought(kind, str(data["message_id"]), str(data.get("text", "")))
            case EventType.CALL_STARTED | EventType.CALL_DELTA | EventType.CALL_READY:
                yield from self._translate_call(kind, data)
            case EventType.CALL_RESULT:
                if str(data["call_id"]) not in self._known_results:
                    yield self._translate_result(str(data["call_id"]), data["result"])
            case EventType.STEP_STARTED:
                name = _step_name(data)
                if name not in self._steps:
                    self._steps.append(name)
                    yield {"type": "STEP_STARTED", "stepName": name}
            case EventType.STEP_ENDED:
                # The end event lacks the agent's name.
                step_name = next((name for name in self._steps if name.split(" ")[0] == _step_name(data)), None)
                if step_name is not None:
                    self._steps.remove(step_name)
                    yield {"type": "STEP_FINISHED", "stepName": step_name}
            case EventType.PLAN_CHANGED:
                yield {
                    "type": "STATE_DELTA",
                    "delta": [{"op": "replace", "path": "/plan", "value": data["steps"]}],
                }
            case EventType.APPROVAL_REQUIRED if is_client_call(Approval.model_validate(data["approval"])):
                pass
            case EventType.TURN_ERROR:
                self._turn_error = data
                yield _custom_event(kind, data)
            case _:
                yield _custom_event(kind, data)

    def finish(self) -> Iterator[AguiEvent]:
        yield from self._end_open_items()
        yield {"type": "RUN_FINISHED", **self._run_ids, "outcome": {"type": "success"}}

    def finish_cancelled(self) -> Iterator[AguiEvent]:
        yield from self._end_open_items()
        yield {"type": "RUN_FINISHED", **self._run_ids, "outcome": {"type": "cancelled"}}

    def finish_interrupted(self, pending: Sequence[Approval]) -> Iterator[AguiEvent]:
        """Finish with interrupts, which the next run answers by id in its `resume`."""
        yield from self._end_open_items()
        outcome = {"type": "interrupt", "interrupts": [to_agui_interrupt(approval) for approval in pending]}
        yield {"type": "RUN_FINISHED", **self._run_ids, "outcome": outcome}

    def finish_failed(self, reason: str | None = None, code: str | None = None) -> Iterator[AguiEvent]:
        yield from self._end_open_items()
        message = reason or str(self._turn_error.get("message") or "the turn failed")
        yield {
            "type": "RUN_ERROR",
            "message": message,
            "code": code or str(self._turn_error.get("code") or "TURN_FAILED"),
        }

    def _end_open_items(self) -> Iterator[AguiEvent]:
        for thought in list(self._thoughts):
            yield from self._translate_thought(EventType.THOUGHT_ENDED, thought, "")
        for message in self._texts:
            yield {"type": "TEXT_MESSAGE_END", "messageId": message}
        for call in self._calls:
            yield {"type": "TOOL_CALL_END", "toolCallId": call}
        for step in reversed(self._steps):
            yield {"type": "STEP_FINISHED", "stepName": step}
        self._texts, self._calls, self._steps = [], {}, []

    def _translate_message(self, data: Mapping[str, Any]) -> Iterator[AguiEvent]:
        message = data["message"]
        if message["id"] == self.own_message:
            return
        text = "\n".join(part["text"] for part in message["content"] if part["type"] == "text")
        if message["role"] != "user" or not text:
            yield _custom_event(EventType.MESSAGE_RECEIVED, data)
            return
        yield {"type": "TEXT_MESSAGE_START", "messageId": message["id"], "role": "user"}
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message["id"], "delta": text}
        yield {"type": "TEXT_MESSAGE_END", "messageId": message["id"]}

    def _translate_text(self, kind: EventType, data: Mapping[str, Any]) -> Iterator[AguiEvent]:
        message, text = str(data["message_id"]), str(data["text"])
        if (
            text
            and message not in self._texts
            and (kind is EventType.MESSAGE_DELTA or message not in self._started_texts)
        ):
            self._texts.append(message)
            self._started_texts.add(message)
            yield {"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"}
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": text}
        elif kind is EventType.MESSAGE_DELTA and text:
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": text}
        if kind is EventType.MESSAGE_ENDED and message in self._texts:
            self._texts.remove(message)
            yield {"type": "TEXT_MESSAGE_END", "messageId": message}

    def _translate_thought(self, kind: EventType, message: str, text: str) -> Iterator[AguiEvent]:
        if kind is not EventType.THOUGHT_ENDED and message not in self._thoughts:
            self._thought_count += 1
            name = self._thoughts[message] = f"{message}-thought-{self._thought_count}"
            yield {"type": "REASONING_START", "messageId": name}
            yield {"type": "REASONING_MESSAGE_START", "messageId": name, "role": "reasoning"}
        if kind is EventType.THOUGHT_DELTA and text:
            yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._thoughts[message], "delta": text}
        if kind is EventType.THOUGHT_ENDED and message in self._thoughts:
            name = self._thoughts.pop(message)
            yield {"type": "REASONING_MESSAGE_END", "messageId": name}
            yield {"type": "REASONING_END", "messageId": name}

    def _translate_call(self, kind: EventType, data: Mapping[str, Any]) -> Iterator[AguiEvent]:
        call = data["call"] if kind is EventType.CALL_READY else {"id": data["call_id"], "name": data.get("name", "")}
        call_id = str(call["id"])
        if call_id not in self._calls and kind is not EventType.CALL_DELTA:
            self._calls[call_id] = False
            parent = {"parentMessageId": data["message_id"]} if "message_id" in data else {}
            yield {"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": call["name"], **parent}
        if kind is EventType.CALL_DELTA and call_id in self._calls:
            self._calls[call_id] = True
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": data["text"]}
        if kind is EventType.CALL_READY:
            if not self._calls.pop(call_id):
                arguments = call.get("malformed") or json.dumps(call.get("arguments") or {}, ensure_ascii=False)
                yield {"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": arguments}
            yield {"type": "TOOL_CALL_END", "toolCallId": call_id}

    def _translate_result(self, call: str, result: Mapping[str, Any]) -> AguiEvent:
        content = result["content"]
        agui_content: str | list[AguiEvent] = "\n".join(part["text"] for part in content if part["type"] == "text")
        if any(part["type"] != "text" for part in content):
            agui_content = [self._translate_part(part) for part in content]
        ids = {"messageId": f"{call}-result", "toolCallId": call}
        return {"type": "TOOL_CALL_RESULT", **ids, "content": agui_content, "role": "tool"}

    def _translate_part(self, part: Mapping[str, Any]) -> AguiEvent:
        if part["type"] == "text":
            return {"type": "text", "text": part["text"]}
        url = f"/v1/sessions/{self._session.id}/files/{part['file']}"
        source = {"type": "url", "value": url, "mimeType": part["mime"]}
        return {"type": "image" if part["type"] == "image" else "document", "source": source}


def to_agui_interrupt(approval: Approval) -> AguiEvent:
    """Convert an approval into an AG-UI interrupt, with the complete approval as `metadata`."""
    result: AguiEvent = {
        "id": approval.id,
        "reason": "question" if approval.type == "question" else "approval",
        "message": approval.question or f"May it use {approval.name}?",
        "toolCallId": approval.call_id,
        "responseSchema": _response_schema(approval),
        "metadata": approval.model_dump(mode="json", exclude_none=True),
    }
    if approval.expires_at is not None:
        result["expiresAt"] = approval.expires_at.isoformat().replace("+00:00", "Z")
    return result


def _response_schema(approval: Approval) -> AguiEvent:
    properties: AguiEvent = {"action": {"enum": list(approval.actions)}}
    if "edit" in approval.actions:
        properties["arguments"] = {"type": "object"}
    if "answer" in approval.actions:
        properties["answer"] = {"type": "string"}
    if "reject" in approval.actions:
        properties["reason"] = {"type": "string"}
    if "approve" in approval.actions:
        properties["always"] = {"enum": ["call", "tool"]}
    return {"type": "object", "properties": properties, "required": ["action"]}


def _custom_event(kind: EventType, data: Mapping[str, Any]) -> AguiEvent:
    return {"type": "CUSTOM", "name": str(kind), "value": dict(data)}


def _step_name(data: Mapping[str, Any]) -> str:
    by = f" {data['by']}" if data.get("by") else ""
    return f"{data['turn']}.{data['step']}{by}"
