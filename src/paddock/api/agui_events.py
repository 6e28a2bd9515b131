"""What happens in a session, in the words of AG-UI 1.0."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from paddock.agents.client_tools import is_client_call
from paddock.model.events import Event, EventType
from paddock.model.sessions import Approval, Session

VERSION = "1.0"
Said = dict[str, Any]


class Run:
    """Translates the events of one run. What a run has begun it ends: messages, calls and steps."""

    def __init__(
        self, thread: str, run: str, session: Session, *, known_results: Collection[str] = frozenset()
    ) -> None:
        """`known_results` are ids of the calls whose results the client sent itself."""
        self._names = {"threadId": thread, "runId": run}
        self._session = session
        self._known_results = known_results
        self.own: str | None = None
        """The message that the client sent and need not be told."""
        self.ignored_tools: Sequence[str] = ()
        """Names of the client's tools that the session's agent cannot call."""
        self._steps: list[str] = []
        self._texts: list[str] = []
        self._thoughts: dict[str, str] = {}
        self._calls: dict[str, bool] = {}
        """Calls that are being written, and whether any of their arguments were told."""
        self._spoken: set[str] = set()
        self._thought_count = 0
        self._fault: Mapping[str, Any] = {}

    def begin(self) -> Iterator[Said]:
        yield {"type": "RUN_STARTED", **self._names, "protocolVersion": VERSION}
        plan = [step.model_dump(mode="json") for step in self._session.plan]
        if self.ignored_tools:
            about = f"the agent {self._session.agent} has only tools of its own"
            yield {
                "type": "CUSTOM",
                "name": "tools.ignored",
                "value": {"tools": [*self.ignored_tools], "reason": about},
            }
        yield {"type": "STATE_SNAPSHOT", "snapshot": {"session": self._session.id, "plan": plan}}

    def tell(self, event: Event) -> Iterator[Said]:
        """One event; of those that AG-UI has no word for, as a custom one."""
        moment = int(event.at.timestamp() * 1000)
        for each in self._told(event.type, event.data):
            yield {**each, "timestamp": moment}

    def _told(self, kind: EventType, data: Mapping[str, Any]) -> Iterator[Said]:
        match kind:
            case EventType.MESSAGE_STARTED | EventType.TURN_STARTED | EventType.TURN_ENDED | EventType.SESSION_DELETED:
                pass
            case EventType.MESSAGE_RECEIVED:
                yield from self._received(data)
            case EventType.MESSAGE_DELTA | EventType.MESSAGE_ENDED:
                yield from self._speech(kind, data)
            case EventType.THOUGHT_STARTED | EventType.THOUGHT_DELTA | EventType.THOUGHT_ENDED:
                yield from self._thought(kind, str(data["message_id"]), str(data.get("text", "")))
            case EventType.CALL_STARTED | EventType.CALL_DELTA | EventType.CALL_READY:
                yield from self._call(kind, data)
            case EventType.CALL_RESULT:
                if str(data["call_id"]) not in self._known_results:
                    yield self._result(str(data["call_id"]), data["result"])
            case EventType.STEP_STARTED:
                name = _step(data)
                if name not in self._steps:
                    self._steps.append(name)
                    yield {"type": "STEP_STARTED", "stepName": name}
            case EventType.STEP_ENDED:
                # Its end does not say whose step it was.
                found = next((name for name in self._steps if name.split(" ")[0] == _step(data)), None)
                if found is not None:
                    self._steps.remove(found)
                    yield {"type": "STEP_FINISHED", "stepName": found}
            case EventType.PLAN_CHANGED:
                yield {
                    "type": "STATE_DELTA",
                    "delta": [{"op": "replace", "path": "/plan", "value": data["steps"]}],
                }
            case EventType.APPROVAL_REQUIRED if is_client_call(Approval.model_validate(data["approval"])):
                pass
            case EventType.TURN_ERROR:
                self._fault = data
                yield _custom(kind, data)
            case _:
                yield _custom(kind, data)

    def done(self) -> Iterator[Said]:
        yield from self._rest()
        yield {"type": "RUN_FINISHED", **self._names, "outcome": {"type": "success"}}

    def cancelled(self) -> Iterator[Said]:
        yield from self._rest()
        yield {"type": "RUN_FINISHED", **self._names, "outcome": {"type": "cancelled"}}

    def interrupted(self, pending: Sequence[Approval]) -> Iterator[Said]:
        """The next run answers these, each by its id, in its `resume`."""
        yield from self._rest()
        outcome = {"type": "interrupt", "interrupts": [interrupt(approval) for approval in pending]}
        yield {"type": "RUN_FINISHED", **self._names, "outcome": outcome}

    def failed(self, reason: str | None = None, code: str | None = None) -> Iterator[Said]:
        yield from self._rest()
        message = reason or str(self._fault.get("message") or "the turn failed")
        yield {"type": "RUN_ERROR", "message": message, "code": code or str(self._fault.get("code") or "TURN_FAILED")}

    def _rest(self) -> Iterator[Said]:
        for thought in list(self._thoughts):
            yield from self._thought(EventType.THOUGHT_ENDED, thought, "")
        for message in self._texts:
            yield {"type": "TEXT_MESSAGE_END", "messageId": message}
        for call in self._calls:
            yield {"type": "TOOL_CALL_END", "toolCallId": call}
        for step in reversed(self._steps):
            yield {"type": "STEP_FINISHED", "stepName": step}
        self._texts, self._calls, self._steps = [], {}, []

    def _received(self, data: Mapping[str, Any]) -> Iterator[Said]:
        message = data["message"]
        if message["id"] == self.own:
            return
        text = "\n".join(part["text"] for part in message["content"] if part["type"] == "text")
        if message["role"] != "user" or not text:
            yield _custom(EventType.MESSAGE_RECEIVED, data)
            return
        yield {"type": "TEXT_MESSAGE_START", "messageId": message["id"], "role": "user"}
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message["id"], "delta": text}
        yield {"type": "TEXT_MESSAGE_END", "messageId": message["id"]}

    def _speech(self, kind: EventType, data: Mapping[str, Any]) -> Iterator[Said]:
        message, text = str(data["message_id"]), str(data["text"])
        if text and message not in self._texts and (kind is EventType.MESSAGE_DELTA or message not in self._spoken):
            self._texts.append(message)
            self._spoken.add(message)
            yield {"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"}
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": text}
        elif kind is EventType.MESSAGE_DELTA and text:
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": text}
        if kind is EventType.MESSAGE_ENDED and message in self._texts:
            self._texts.remove(message)
            yield {"type": "TEXT_MESSAGE_END", "messageId": message}

    def _thought(self, kind: EventType, message: str, text: str) -> Iterator[Said]:
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

    def _call(self, kind: EventType, data: Mapping[str, Any]) -> Iterator[Said]:
        call = data["call"] if kind is EventType.CALL_READY else {"id": data["call_id"], "name": data.get("name", "")}
        known = str(call["id"])
        if known not in self._calls and kind is not EventType.CALL_DELTA:
            self._calls[known] = False
            parent = {"parentMessageId": data["message_id"]} if "message_id" in data else {}
            yield {"type": "TOOL_CALL_START", "toolCallId": known, "toolCallName": call["name"], **parent}
        if kind is EventType.CALL_DELTA and known in self._calls:
            self._calls[known] = True
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": known, "delta": data["text"]}
        if kind is EventType.CALL_READY:
            if not self._calls.pop(known):
                written = call.get("malformed") or json.dumps(call.get("arguments") or {}, ensure_ascii=False)
                yield {"type": "TOOL_CALL_ARGS", "toolCallId": known, "delta": written}
            yield {"type": "TOOL_CALL_END", "toolCallId": known}

    def _result(self, call: str, result: Mapping[str, Any]) -> Said:
        content = result["content"]
        told: str | list[Said] = "\n".join(part["text"] for part in content if part["type"] == "text")
        if any(part["type"] != "text" for part in content):
            told = [self._part(part) for part in content]
        known = {"messageId": f"{call}-result", "toolCallId": call}
        return {"type": "TOOL_CALL_RESULT", **known, "content": told, "role": "tool"}

    def _part(self, part: Mapping[str, Any]) -> Said:
        if part["type"] == "text":
            return {"type": "text", "text": part["text"]}
        place = f"/v1/sessions/{self._session.id}/files/{part['file']}"
        source = {"type": "url", "value": place, "mimeType": part["mime"]}
        return {"type": "image" if part["type"] == "image" else "document", "source": source}


def interrupt(approval: Approval) -> Said:
    """What waits for a person. `metadata` has what this server says of it by itself."""
    said: Said = {
        "id": approval.id,
        "reason": "question" if approval.type == "question" else "approval",
        "message": approval.question or f"May it use {approval.name}?",
        "toolCallId": approval.call_id,
        "responseSchema": _answers(approval),
        "metadata": approval.model_dump(mode="json", exclude_none=True),
    }
    if approval.expires_at is not None:
        said["expiresAt"] = approval.expires_at.isoformat().replace("+00:00", "Z")
    return said


def _answers(approval: Approval) -> Said:
    properties: Said = {"action": {"enum": list(approval.actions)}}
    if "edit" in approval.actions:
        properties["arguments"] = {"type": "object"}
    if "answer" in approval.actions:
        properties["answer"] = {"type": "string"}
    if "reject" in approval.actions:
        properties["reason"] = {"type": "string"}
    if "approve" in approval.actions:
        properties["always"] = {"enum": ["call", "tool"]}
    return {"type": "object", "properties": properties, "required": ["action"]}


def _custom(kind: EventType, data: Mapping[str, Any]) -> Said:
    return {"type": "CUSTOM", "name": str(kind), "value": dict(data)}


def _step(data: Mapping[str, Any]) -> str:
    by = f" {data['by']}" if data.get("by") else ""
    return f"{data['turn']}.{data['step']}{by}"
