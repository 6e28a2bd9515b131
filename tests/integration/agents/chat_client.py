"""Chats with agents on a real server, driven over HTTP as any client would."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.support.server import eventually

OVER = ("done", "cancelled", "failed")
SERVER_SIDE = ("langgraph", "agentscope")
"""Engines that use Paddock's tools."""
CODE = {"code": {"image": "host"}}
"""Kinds, with a sandbox for code that needs no image to be built."""


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
    """A step of a script: the model uses a tool."""
    return {"call": {"tool": tool, "arguments": arguments}}


class Chat:
    """One session, and what happens in it."""

    def __init__(self, client: httpx.Client, session: str) -> None:
        self.client = client
        self.id = session
        self.seen: list[dict[str, Any]] = []
        self.imported = 0
        """How many events it had when it came from elsewhere."""

    @classmethod
    def begin(cls, client: httpx.Client, **settings: Any) -> Chat:
        answer = client.post("/v1/sessions", json=settings)
        assert answer.status_code == 201, answer.text
        return cls(client, answer.json()["id"])

    @property
    def path(self) -> str:
        return f"/v1/sessions/{self.id}"

    def at(self, client: httpx.Client) -> Chat:
        """Return the same session on a restarted server."""
        moved = Chat(client, self.id)
        moved.seen = list(self.seen)
        return moved

    def now(self) -> dict[str, Any]:
        answer = self.client.get(self.path)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def say(self, text: str, **more: Any) -> dict[str, Any]:
        answer = self.client.post(f"{self.path}/messages", json={"text": text, **more})
        assert answer.status_code == 202, answer.text
        kept: dict[str, Any] = answer.json()
        return kept

    def all(self) -> list[dict[str, Any]]:
        """Every event there is, by pages."""
        found: list[dict[str, Any]] = []
        while True:
            query = {"after": len(found), "limit": 1000}
            answer = self.client.get(f"{self.path}/events", params=query, headers={"Accept": "application/json"})
            assert answer.status_code == 200, answer.text
            page = answer.json()["items"]
            if not page:
                return found
            found += page

    def follow(self, after: int | None = None) -> Iterator[dict[str, Any]]:
        """Follow new events as they happen."""
        begin = len(self.seen) if after is None else after
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(begin)}
        with self.client.stream("GET", f"{self.path}/events", headers=headers) as answer:
            assert answer.status_code == 200
            for line in _lines(answer.iter_text()):
                if line.startswith("data: "):
                    event = json.loads(line[6:])
                    if after is None:
                        self.seen.append(event)
                    yield event

    def until(self, holds: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
        """Return the next event that matches."""
        for event in self.follow():
            if holds(event):
                return event
        raise AssertionError("the stream ended")

    def until_over(self, decide: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None) -> str:
        """Wait for the end of the turn and return its state; `decide` handles approvals meanwhile."""
        while True:
            event = self.until(lambda event: event["type"] in ("approval.required", "turn.ended", "turn.error"))
            data = event["data"]
            if event["type"] == "approval.required" and decide is not None:
                self.decide(decide(data["approval"]), of=data["approval"])
            elif event["type"] == "turn.ended" and data["state"] in OVER:
                return str(data["state"])

    def decide(self, decision: Mapping[str, Any], *, of: Mapping[str, Any]) -> httpx.Response:
        body = {"decisions": [{"approval": of["id"], "digest": of["digest"], **decision}]}
        return self.client.post(f"{self.path}/resume", json=body)

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [event["data"] for event in self.seen if event["type"] == kind]

    def answers(self) -> list[str]:
        """Return the texts of the agent."""
        return [data["text"] for data in self.told("message.ended") if data["text"]]

    def results(self) -> dict[str, dict[str, Any]]:
        """Return results by tool name; of repeated calls, the last one."""
        names = {data["call"]["id"]: data["call"]["name"] for data in self.told("call.ready")}
        return {names[data["call_id"]]: data["result"] for data in self.told("call.result")}


def _lines(pieces: Iterator[str]) -> Iterator[str]:
    """Lines as server-sent events have them; httpx takes other characters for their ends too."""
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + piece).split("\n")
        yield from whole


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
                assert data["message_id"] in open_messages, "ended twice, or never begun"
                open_messages.remove(data["message_id"])
                ended.add(data["message_id"])
            case "call.ready":
                assert data["call"]["id"] not in ready, "told twice"
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
    """The requests of a session to its model, oldest first, from the server's archive."""
    begun = sum(event["type"] == "step.started" for event in chat.all()[chat.imported :])

    def archived() -> list[dict[str, Any]]:
        query: dict[str, str | int] = {"session": chat.id, "limit": 500}
        found: list[dict[str, Any]] = chat.client.get("/v1/exchanges", params=query).json()["items"]
        return found if len(found) >= begun else []

    if not begun:
        return []
    items = sorted(eventually(archived), key=lambda item: int(item["number"]))
    return [chat.client.get(f"/v1/exchanges/{item['id']}", params={"raw": "request"}).json() for item in items]


def check_question(messages: Sequence[Mapping[str, Any]]) -> None:
    """Check the rules that providers enforce on conversations."""
    assert messages[0]["role"] == "system"
    assert messages[-1]["role"] in ("user", "tool"), "there is nothing to answer"
    waiting: list[str] = []
    for message in messages[1:]:
        role, content = message["role"], message.get("content")
        if role == "tool":
            assert message["tool_call_id"] in waiting, "a result without its call, or a second one"
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "something was said before a call had its result"
        assert role in ("user", "assistant")
        calls = message.get("tool_calls") or []
        assert content or calls, f"a message of the {role} is empty"
        assert all(isinstance(json.loads(each["function"]["arguments"]), dict) for each in calls)
        waiting = [each["id"] for each in calls]
        assert len(set(waiting)) == len(waiting)
    assert not waiting, "a call has no result"


def check(chat: Chat) -> None:
    """Check events and model requests of a session after its turn."""
    check_order(chat.all())
    for question in questions(chat):
        check_question(question)
