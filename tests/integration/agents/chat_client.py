"""Chats with agents on a real server, driven over HTTP as any client would."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.support.server import eventually

END_STATES = ("done", "cancelled", "failed")
SERVER_SIDE = ("langgraph", "agentscope")
"""Engines that use Paddock's tools."""
CODE = {"code": {"image": "host"}}
"""Kinds whose `code` sandbox needs no image build."""


def scripted(directory: Path, **scripts: Any) -> dict[str, Any]:
    """Return server settings with one scripted model per script."""
    providers, models = {}, {}
    for name, script in scripts.items():
        path = directory / f"{name}.yaml"
        path.write_text(json.dumps(script))
        providers[name] = {"kind": "script", "file": str(path), "retries": 0}
        models[name] = name
    return {"providers": providers, "models": models}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """Return a step of a script in which the model calls a tool."""
    return {"call": {"tool": tool, "arguments": arguments}}


class Chat:
    """One session and its events."""

    def __init__(self, client: httpx.Client, session: str) -> None:
        self.client = client
        self.id = session
        self.seen_events: list[dict[str, Any]] = []
        self.imported_event_count = 0
        """Number of events that the session had when it was imported."""

    @classmethod
    def create(cls, client: httpx.Client, **settings: Any) -> Chat:
        response = client.post("/v1/sessions", json=settings)
        assert response.status_code == 201, response.text
        return cls(client, response.json()["id"])

    @property
    def path(self) -> str:
        return f"/v1/sessions/{self.id}"

    def on_server(self, client: httpx.Client) -> Chat:
        """Return the same session on a restarted server."""
        chat = Chat(client, self.id)
        chat.seen_events = list(self.seen_events)
        return chat

    def load_session(self) -> dict[str, Any]:
        response = self.client.get(self.path)
        assert response.status_code == 200, response.text
        session: dict[str, Any] = response.json()
        return session

    def send_message(self, text: str, **fields: Any) -> dict[str, Any]:
        response = self.client.post(f"{self.path}/messages", json={"text": text, **fields})
        assert response.status_code == 202, response.text
        message: dict[str, Any] = response.json()
        return message

    def list_events(self) -> list[dict[str, Any]]:
        """Return all events, read in pages."""
        events: list[dict[str, Any]] = []
        while True:
            query = {"after": len(events), "limit": 1000}
            response = self.client.get(f"{self.path}/events", params=query, headers={"Accept": "application/json"})
            assert response.status_code == 200, response.text
            page = response.json()["items"]
            if not page:
                return events
            events += page

    def follow(self, after: int | None = None) -> Iterator[dict[str, Any]]:
        """Follow new events as they happen."""
        start = len(self.seen_events) if after is None else after
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(start)}
        with self.client.stream("GET", f"{self.path}/events", headers=headers) as response:
            assert response.status_code == 200
            for line in _lines(response.iter_text()):
                if line.startswith("data: "):
                    event = json.loads(line[6:])
                    if after is None:
                        self.seen_events.append(event)
                    yield event

    def wait_for_event(self, condition: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
        """Return the next event that matches."""
        for event in self.follow():
            if condition(event):
                return event
        raise AssertionError("the stream ended")

    def wait_for_turn_end(self, decide: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None) -> str:
        """Wait for the end of the turn and return its state; `decide` handles approvals meanwhile."""
        while True:
            event = self.wait_for_event(
                lambda event: event["type"] in ("approval.required", "turn.ended", "turn.error")
            )
            data = event["data"]
            if event["type"] == "approval.required" and decide is not None:
                self.decide(decide(data["approval"]), approval=data["approval"])
            elif event["type"] == "turn.ended" and data["state"] in END_STATES:
                return str(data["state"])

    def decide(self, decision: Mapping[str, Any], *, approval: Mapping[str, Any]) -> httpx.Response:
        body = {"decisions": [{"approval": approval["id"], "digest": approval["digest"], **decision}]}
        return self.client.post(f"{self.path}/resume", json=body)

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        return [event["data"] for event in self.seen_events if event["type"] == kind]

    def reply_texts(self) -> list[str]:
        """Return the texts of the agent."""
        return [data["text"] for data in self.events_of("message.ended") if data["text"]]

    def results_by_tool(self) -> dict[str, dict[str, Any]]:
        """Return results by tool name; of repeated calls, the last one."""
        names = {data["call"]["id"]: data["call"]["name"] for data in self.events_of("call.ready")}
        return {names[data["call_id"]]: data["result"] for data in self.events_of("call.result")}


def _lines(pieces: Iterator[str]) -> Iterator[str]:
    """Split lines as server-sent events define them; httpx also splits at other characters."""
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + piece).split("\n")
        yield from lines


def text_of(result: Mapping[str, Any]) -> str:
    return "\n".join(part["text"] for part in result["content"] if part["type"] == "text")


def check_order(events: Sequence[Mapping[str, Any]]) -> None:
    """Check the order of a session's events, which must hold even after crashes."""
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    open_messages: set[str] = set()
    ended: set[str] = set()
    ready: set[str] = set()
    running: set[str] = set()
    settled: set[str] = set()
    for event in events:
        data = event["data"]
        match event["type"]:
            case "message.started":
                assert data["message_id"] not in open_messages | ended
                open_messages.add(data["message_id"])
            case "message.delta":
                assert data["message_id"] in open_messages
            case "message.ended":
                assert data["message_id"] in open_messages, "ended twice, or never started"
                open_messages.remove(data["message_id"])
                ended.add(data["message_id"])
            case "call.ready":
                assert data["call"]["id"] not in ready, "emitted twice"
                ready.add(data["call"]["id"])
            case "call.running":
                running.add(data["call_id"])
            case "call.output":
                assert data["call_id"] in running - settled, "output of a call that does not run"
            case "call.result":
                assert data["call_id"] in ready - settled, "a result without its call, or a second one"
                settled.add(data["call_id"])
    assert not open_messages, "a message has no end"
    assert ready == settled, "a call has no result"


def questions(chat: Chat) -> list[list[dict[str, Any]]]:
    """Return the messages of all model requests of a session, from the server's archive."""
    return [document["messages"] for document in model_requests(chat)]


def model_requests(chat: Chat) -> list[dict[str, Any]]:
    """Return the model requests of a session, oldest first, from the server's archive."""
    started = sum(event["type"] == "step.started" for event in chat.list_events()[chat.imported_event_count :])

    def archived() -> list[dict[str, Any]]:
        query: dict[str, str | int] = {"session": chat.id, "limit": 500}
        items: list[dict[str, Any]] = chat.client.get("/v1/exchanges", params=query).json()["items"]
        return items if len(items) >= started else []

    if not started:
        return []
    items = sorted(eventually(archived), key=lambda item: int(item["number"]))
    return [chat.client.get(f"/v1/exchanges/{item['id']}", params={"raw": "request"}).json() for item in items]


def check_question(messages: Sequence[Mapping[str, Any]]) -> None:
    """Check the rules that providers enforce on conversations."""
    assert messages[0]["role"] == "system"
    assert messages[-1]["role"] in ("user", "tool"), "there is nothing to answer"
    open_calls: list[str] = []
    for message in messages[1:]:
        role, content = message["role"], message.get("content")
        if role == "tool":
            assert message["tool_call_id"] in open_calls, "a result without its call, or a second one"
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls, "a message precedes the result of a call"
        assert role in ("user", "assistant")
        calls = message.get("tool_calls") or []
        assert content or calls, f"a message of the {role} is empty"
        assert all(isinstance(json.loads(each["function"]["arguments"]), dict) for each in calls)
        open_calls = [each["id"] for each in calls]
        assert len(set(open_calls)) == len(open_calls)
    assert not open_calls, "a call has no result"


def check(chat: Chat) -> None:
    """Check events and model requests of a session after its turn."""
    check_order(chat.list_events())
    for question in questions(chat):
        check_question(question)
