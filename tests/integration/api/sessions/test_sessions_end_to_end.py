"""Chat sessions of a real server, with an agent in a sandbox and a scripted model."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
from ag_ui.core import Event, EventType
from pydantic import TypeAdapter
from websockets.sync.client import connect

from paddock.model.session_schema import session_event_schema
from tests.integration.api.sessions.scripted_chat_server import TIMEOUT, data_lines, event_documents
from tests.support.server import Server, eventually, run_server

LOOK_SCRIPT = {
    "turns": [
        [{"say": "I will look."}, {"call": {"tool": "code_run_shell_command", "arguments": {"command": "echo 6*7"}}}],
        {"say": "It says {{ tool.output }}."},
    ],
    "each_prompt": True,
}
SSE, JSON = {"Accept": "text/event-stream"}, {"Accept": "application/json"}
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
VIEWERS, MEASURED_SECONDS = 200, 4.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("paddock")
    script = directory / "look.yaml"
    script.write_text(json.dumps(LOOK_SCRIPT))
    settings = {
        "sandboxes": {"min_free_disk": 0},
        "kinds": {"code": {"image": "host"}},
        "llm": {"providers": {"look": {"kind": "script", "file": str(script)}}, "models": {"look": "look"}},
    }
    with run_server(directory, settings) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as http_client:
        yield http_client


def create_session(client: httpx.Client, **body: Any) -> str:
    response = client.post("/v1/sessions", json=body)
    assert response.status_code == 201, response.text
    return f"/v1/sessions/{response.json()['id']}"


def send_message(client: httpx.Client, path: str, **body: Any) -> list[dict[str, Any]]:
    """Send a message and return the events until its turn ends."""
    with client.stream("POST", f"{path}/messages", json=body, headers=SSE) as response:
        assert response.status_code == 200, response.read()
        return list(event_documents(response))


def test_approved_call_runs_and_session_is_exported(client: httpx.Client) -> None:
    path = create_session(client)
    events = send_message(client, path, text="Look.")
    assert events[0]["type"] == "message.received" and events[-1]["data"] == {"turn": 1, "state": "waiting"}
    (approval,) = client.get(f"{path}/approvals", params={"state": "pending"}).json()["items"]
    decision = {"approval": approval["id"], "digest": approval["digest"], "action": "approve"}
    assert client.post(f"{path}/resume", json={"decisions": [decision]}).status_code == 200
    with client.stream("GET", f"{path}/events", headers={"Last-Event-ID": str(events[-1]["number"])}) as answer:
        for event in event_documents(answer):
            if event["type"] == "turn.ended":
                break
    assert event["data"]["state"] == "done"
    messages = client.get(f"{path}/messages").json()["items"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[-1]["content"][0]["text"] == "It says 6*7."
    page = client.get(f"{path}/events", params={"limit": 1000}, headers=JSON).json()
    validator = jsonschema_rs.validator_for(session_event_schema())
    for event in page["items"]:
        validator.validate(event)
    assert client.get(path).json()["usage"]["requests"] == 2
    bundle = client.get(f"{path}/export").content
    opened = client.post("/v1/sessions/import", content=bundle)
    assert opened.status_code == 201, opened.text
    again = client.get(f"/v1/sessions/{opened.json()['id']}/messages").json()["items"]
    assert [message["content"] for message in again] == [message["content"] for message in messages]
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404


def test_image_attachment_is_stored_and_served(client: httpx.Client) -> None:
    path = create_session(client, policy={"allow_all": ["*"]})
    part = {"type": "file", "name": "dot.png", "data": base64.b64encode(PICTURE).decode()}
    events = send_message(client, path, content=[{"type": "text", "text": "See."}, part])
    image = events[0]["data"]["message"]["content"][1]
    assert (image["type"], image["mime"], image["size"]) == ("image", "image/png", len(PICTURE))
    shown = client.get(f"{path}/files/{image['file']}")
    assert shown.content == PICTURE and shown.headers["Content-Type"] == "image/png"
    wrong = client.post(f"{path}/messages", json={"content": [{"type": "file", "name": "x", "data": "%%%"}]})
    assert wrong.status_code == 400 and "Base64" in wrong.json()["message"]


@pytest.mark.parametrize(
    ("body", "word"), [({"agent": "nobody"}, "agent"), ({"model": "none"}, "model"), ({"kinds": ["toaster"]}, "kind")]
)
def test_missing_agents_and_models_are_reported(client: httpx.Client, body: dict[str, Any], word: str) -> None:
    response = client.post("/v1/sessions", json=body)
    assert response.status_code == 400 and f"there is no {word}" in response.json()["message"].lower()
    if word != "agent":
        assert client.patch(create_session(client), json=body).status_code == 400


def test_agui_front_end_resumes_an_approval(client: httpx.Client) -> None:
    adapter: TypeAdapter[Event] = TypeAdapter(Event)

    def run(**more: Any) -> list[Any]:
        body = {"threadId": "thread-1", "runId": "run-1", "messages": [], "tools": [], "context": [], **more}
        with client.stream("POST", "/v1/agui", json=body) as response:
            assert response.status_code == 200, response.read()
            return [adapter.validate_json(line) for line in data_lines(response)]

    events = run(messages=[{"id": "1", "role": "user", "content": "Look."}])
    (interrupt,) = events[-1].outcome.interrupts
    assert interrupt.tool_call_id in [event.tool_call_id for event in events if event.type is EventType.TOOL_CALL_START]
    entry = {"interruptId": interrupt.id, "status": "resolved", "payload": {"action": "approve"}}
    rest = run(runId="run-2", resume=[entry])
    (result,) = [event for event in rest if event.type is EventType.TOOL_CALL_RESULT]
    assert (result.tool_call_id, result.content) == (interrupt.tool_call_id, "6*7")
    text = "".join(event.delta for event in rest if event.type is EventType.TEXT_MESSAGE_CONTENT)
    assert text == "It says 6*7." and rest[-1].outcome.type == "success"


def test_websocket_accepts_a_ticket(server: Server, client: httpx.Client) -> None:
    path = create_session(client, policy={"allow_all": ["*"]})
    ticket = client.post("/v1/tickets", json={"path": f"{path}/ws"}).json()["ticket"]
    with connect(f"ws://{server.domain}{path}/ws?ticket={ticket}", open_timeout=TIMEOUT, proxy=None) as ws:
        ws.send(json.dumps({"type": "message", "text": "Look."}))
        while (event := json.loads(ws.recv(TIMEOUT)))["type"] != "turn.ended":
            pass
    assert event["data"]["state"] == "done"


@pytest.mark.slow
def test_many_viewers_are_cheap(server: Server, client: httpx.Client) -> None:
    path = create_session(client)
    assert server.process is not None
    process = server.process.pid

    def cpu() -> float:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    limits = httpx.Limits(max_connections=VIEWERS + 1)
    headers = {"Authorization": f"Bearer {server.key}", **SSE}
    with ExitStack() as held:
        many = held.enter_context(
            httpx.Client(base_url=server.url, headers=headers, limits=limits, timeout=TIMEOUT, trust_env=False)
        )
        for _ in range(VIEWERS):
            answer = held.enter_context(many.stream("GET", f"{path}/events"))
            assert next(data_lines(answer))
        before, started = cpu(), time.monotonic()
        eventually(lambda: time.monotonic() - started > MEASURED_SECONDS)
        share = (cpu() - before) / (time.monotonic() - started)
    assert share < 0.05, f"{VIEWERS} idle viewers take {share:.1%} of a core"
