"""Chat sessions over HTTP: requests, responses, errors and event streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import httpx
import pytest

from paddock.model.session_events import MessageDelta, MessageEnded, MessageStarted, SessionEvent, TurnEnded
from paddock.model.sessions import LARGEST_MESSAGE, Session
from tests.integration.api.sessions.scripted_chat_server import (
    ScriptedChatServer,
    event_documents,
    finish_turn,
    run_scripted_chat_server,
)
from tests.support.server import eventually

SSE = {"Accept": "text/event-stream"}
JSON = {"Accept": "application/json"}


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedChatServer]:
    with run_scripted_chat_server(tmp_path_factory.mktemp("paddock"), {"server": {"max_body": 4 * 2**20}}) as running:
        yield running


@pytest.fixture
def client(chat: ScriptedChatServer) -> Iterator[httpx.Client]:
    chat.sessions.turn_script = finish_turn
    with chat.client() as made:
        yield made


@pytest.fixture(scope="module")
def stranger(chat: ScriptedChatServer) -> Iterator[httpx.Client]:
    with chat.client() as client:
        secret = create_key(client, "sessions:write", tenant="other")
    with chat.client(secret) as made:
        yield made


def create_key(client: httpx.Client, *scopes: str, **more: str) -> str:
    response = client.post("/v1/keys", json={"name": "some", "scopes": list(scopes), **more})
    assert response.status_code == 201, response.text
    return str(response.json()["secret"])


def hello_turn(session: Session, turn: int) -> list[SessionEvent]:
    return [
        MessageStarted(message_id="msg-a", turn=turn, step=1),
        MessageDelta(message_id="msg-a", text="Hel"),
        MessageDelta(message_id="msg-a", text="lo."),
        MessageEnded(message_id="msg-a", text="Hello."),
        TurnEnded(turn=turn, state="done"),
    ]


def turn_with_approval(chat: ScriptedChatServer, session: Session, turn: int) -> list[SessionEvent]:
    return [chat.sessions.require_approval(session, turn, f"call-{turn}"), TurnEnded(turn=turn, state="waiting")]


def test_session_lifecycle(client: httpx.Client) -> None:
    made = client.post("/v1/sessions", json={"title": "One", "kinds": ["code"], "policy": {"allow_all": ["code"]}})
    assert made.status_code == 201, made.text
    session = made.json()
    path = f"/v1/sessions/{session['id']}"
    assert session["state"] == "idle" and session["policy"]["allow_all"] == ["code"] and "error" not in session
    assert client.get(path).json() == session
    changed = client.patch(path, json={"title": "Two", "budget": 1000}).json()
    assert (changed["title"], changed["budget"], changed["kinds"]) == ("Two", 1000, ["code"])
    assert client.get("/v1/sessions", params={"q": "Two"}).json()["items"][0]["id"] == session["id"]
    sent = client.post(f"{path}/messages", json={"text": "Find the quince."})
    assert sent.status_code == 202 and sent.json()["turn"] == 1 and sent.json()["by"]
    eventually(lambda: client.get(path).json()["state"] == "idle")
    found = client.get("/v1/sessions/search", params={"q": "quince", "pageSize": 5}).json()["items"]
    assert [(hit["session"], hit["role"], hit["excerpt"]) for hit in found] == [
        (session["id"], "user", "Find the quince.")
    ]
    forked = client.post(f"{path}/fork", json={"message": sent.json()["id"], "title": "Fork"})
    assert forked.status_code == 201 and forked.json()["title"] == "Fork"
    exported = client.get(f"{path}/export")
    assert exported.headers["Content-Disposition"].startswith(f'attachment; filename="{session["id"]}.paddock"')
    imported = client.post("/v1/sessions/import", content=exported.content)
    assert imported.status_code == 201 and imported.json()["title"] == f"{len(exported.content)} bytes"
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404
    assert client.get(f"{path}/events", headers=JSON).status_code == 404


def test_repeated_requests_are_idempotent(client: httpx.Client) -> None:
    again = {"Idempotency-Key": "the same"}
    first, second = (client.post("/v1/sessions", headers=again).json() for _ in range(2))
    assert first["id"] == second["id"]
    path = f"/v1/sessions/{first['id']}/messages"
    message_ids = [client.post(path, json={"text": "Once."}, headers=again).json()["id"] for _ in range(2)]
    assert message_ids[0] == message_ids[1]
    assert len(client.get(path).json()["items"]) == 1


def test_pages_of_sessions_and_messages(client: httpx.Client, chat: ScriptedChatServer, stranger: httpx.Client) -> None:
    made = [stranger.post("/v1/sessions", json={"title": f"{n}"}).json()["id"] for n in range(5)]
    pages = [stranger.get("/v1/sessions", params={"page": n, "pageSize": 2}).json() for n in (1, 2, 3)]
    assert [item["id"] for page in pages for item in page["items"]] == made[::-1]
    assert [page["pagination"]["hasNextPage"] for page in pages] == [True, True, False]
    after = stranger.get(f"/v1/sessions?pageSize=2&before={pages[0]['next']}").json()
    assert [item["id"] for item in after["items"]] == made[1:3][::-1] and "next" not in pages[2]
    path = f"/v1/sessions/{made[0]}/messages"
    for n in range(5):
        assert stranger.post(path, json={"text": f"Message {n}"}).status_code == 202
        eventually(lambda: stranger.get(f"/v1/sessions/{made[0]}").json()["state"] == "idle")
    pages = [stranger.get(path, params={"page": n, "pageSize": 2}).json() for n in (1, 2, 3)]
    assert [item["number"] for page in pages for item in page["items"]] == [1, 2, 3, 4, 5]
    assert [page["pagination"]["hasNextPage"] for page in pages] == [True, True, False]
    rest = stranger.get(path, params={"after": pages[0]["next"]}).json()
    assert [item["number"] for item in rest["items"]] == [3, 4, 5]


def test_message_stream_ends_with_the_turn(client: httpx.Client, chat: ScriptedChatServer) -> None:
    chat.sessions.turn_script = hello_turn
    path = f"/v1/sessions/{chat.create_session()}/messages"
    for turn in (1, 2):
        with client.stream("POST", path, json={"text": "Hello?"}, headers=SSE) as response:
            assert response.status_code == 200
            events = list(event_documents(response))
        assert [event["type"] for event in events] == [
            *("message.received", "turn.started", "message.started"),
            *("message.delta", "message.delta", "message.ended", "turn.ended"),
        ]
        assert events[-1]["data"] == {"turn": turn, "state": "done"}
        assert [event["number"] for event in events] == list(range(events[0]["number"], events[0]["number"] + 7))


def test_repeated_message_stream_replays_its_turn(client: httpx.Client, chat: ScriptedChatServer) -> None:
    chat.sessions.turn_script = hello_turn
    path, again = f"/v1/sessions/{chat.create_session()}/messages", {**SSE, "Idempotency-Key": "k"}
    with client.stream("POST", path, json={"text": "One"}, headers=again) as answer:
        first = list(event_documents(answer))
    assert client.post(path, json={"text": "Two"}).status_code == 202
    with client.stream("POST", path, json={"text": "One"}, headers=again) as answer:
        assert list(event_documents(answer)) == first


def test_approvals_are_decided_once(client: httpx.Client, chat: ScriptedChatServer, stranger: httpx.Client) -> None:
    chat.sessions.turn_script = lambda session, turn: turn_with_approval(chat, session, turn)
    session = chat.create_session()
    path = f"/v1/sessions/{session}"
    with client.stream("POST", f"{path}/messages", json={"text": "Delete it."}, headers=SSE) as answer:
        events = list(event_documents(answer))
    assert events[-1]["data"]["state"] == "waiting"
    approval = events[-2]["data"]["approval"]
    # A message while the turn waits starts nothing, so its stream ends at once.
    with client.stream("POST", f"{path}/messages", json={"text": "Please."}, headers=SSE) as answer:
        assert [event["type"] for event in event_documents(answer)] == ["message.received"]
    pending = client.get(f"{path}/approvals", params={"state": "pending"}).json()["items"]
    assert [each["id"] for each in pending] == [approval["id"]]
    assert approval["id"] in [each["id"] for each in client.get("/v1/approvals").json()["items"]]
    assert stranger.get("/v1/approvals").json()["items"] == []
    decision = {"approval": approval["id"], "digest": approval["digest"], "action": "approve"}
    wrong: list[tuple[Any, int]] = [
        ([], 400),
        ([{**decision, "action": "perhaps"}], 400),
        ([{**decision, "more": 1}], 400),
        ([{"approval": approval["id"]}], 400),
        ([{**decision, "approval": "\ud83d"}], 400),
        ([{**decision, "approval": "apr-none"}], 404),
        ([{**decision, "digest": "0" * 64}], 409),
        ("approve", 400),
    ]
    for decisions, status in wrong:
        body = json.dumps({"decisions": decisions})
        refused = client.post(f"{path}/resume", content=body, headers={"Content-Type": "application/json"})
        assert refused.status_code == status and refused.json()["message"], (decisions, refused.text)
    assert stranger.post(f"{path}/resume", json={"decisions": [decision]}).status_code == 404
    chat.sessions.turn_script = finish_turn
    decided = client.post(f"{path}/resume", json={"decisions": [decision]})
    assert decided.status_code == 200 and decided.json()["items"][0]["state"] == "approved"
    assert client.post(f"{path}/resume", json={"decisions": [decision]}).status_code == 409


def test_turn_is_cancelled_and_continued(client: httpx.Client, chat: ScriptedChatServer) -> None:
    chat.sessions.turn_script = lambda session, turn: []
    path = f"/v1/sessions/{chat.create_session()}"
    client.post(f"{path}/messages", json={"text": "Work."})
    assert client.post(f"{path}/continue").status_code == 409
    stopped = client.post(f"{path}/cancel")
    assert stopped.status_code == 200 and stopped.json()["state"] == "idle"
    assert client.post(f"{path}/cancel").status_code == 200
    going = client.post(f"{path}/continue")
    assert going.status_code == 202 and going.json()["state"] == "running"


def test_session_files_are_never_rendered_as_pages(
    client: httpx.Client, chat: ScriptedChatServer, stranger: httpx.Client
) -> None:
    session = chat.create_session()
    picture = chat.run_in_server_loop(chat.files.store_file(session, b"\x89PNG\r\n\x1a\n....", name="a.png")).file
    page = chat.run_in_server_loop(chat.files.store_file(session, b"<script>alert(1)</script>", name="a.html")).file
    shown = client.get(f"/v1/sessions/{session}/files/{picture}")
    assert shown.headers["Content-Type"] == "image/png" and shown.headers["X-Content-Type-Options"] == "nosniff"
    saved = client.get(f"/v1/sessions/{session}/files/{page}")
    assert saved.content == b"<script>alert(1)</script>"
    assert saved.headers["Content-Type"] == "application/octet-stream"
    assert saved.headers["Content-Disposition"].startswith("attachment")
    assert client.get(f"/v1/sessions/{session}/files/{'0' * 64}").status_code == 404
    assert client.get(f"/v1/sessions/{session}/files/..%2f..%2fx").status_code in (400, 404)
    assert stranger.get(f"/v1/sessions/{session}/files/{picture}").status_code == 404


def test_sessions_of_other_tenants_do_not_exist(
    client: httpx.Client, chat: ScriptedChatServer, stranger: httpx.Client
) -> None:
    session = chat.create_session(title="Mine")
    for of, status in ((session, 404), ("ses-0000000000000000", 404)):
        path = f"/v1/sessions/{of}"
        responses = [
            stranger.get(path),
            stranger.patch(path, json={"title": "Yours"}),
            stranger.delete(path),
            stranger.get(f"{path}/messages"),
            stranger.post(f"{path}/messages", json={"text": "Hello."}),
            stranger.get(f"{path}/events", headers=JSON),
            stranger.get(f"{path}/approvals"),
            stranger.get(f"{path}/export"),
            stranger.post(f"{path}/fork"),
            stranger.post(f"{path}/cancel"),
            stranger.post(f"{path}/continue"),
        ]
        assert {response.status_code for response in responses} == {status}
        assert {response.json()["code"] for response in responses} == {"SESSION_NOT_FOUND"}
    assert client.get(f"/v1/sessions/{session}").json()["title"] == "Mine"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "text"),
        ({"text": "a", "content": [{"type": "text", "text": "b"}]}, "text"),
        ({"content": []}, "content"),
        ({"content": [{"type": "film", "data": ""}]}, "content"),
        ({"content": [{"type": "file"}]}, "data"),
        ({"text": 5}, "text"),
        ({"text": "a\0b"}, "NUL"),
        ({"text": "x" * (LARGEST_MESSAGE + 1)}, "text"),
        ({"test": "a"}, "did you mean text?"),
    ],
)
def test_invalid_messages_are_rejected(client: httpx.Client, chat: ScriptedChatServer, body: Any, word: str) -> None:
    path = f"/v1/sessions/{chat.create_session()}/messages"
    response = client.post(path, json=body)
    assert response.status_code == 400 and response.json()["code"] == "INVALID_INPUT"
    assert word in response.json()["message"] and "\n" not in response.json()["message"]
    assert client.get(path).json()["items"] == []


def test_too_large_or_malformed_bodies_are_rejected(client: httpx.Client, chat: ScriptedChatServer) -> None:
    path = f"/v1/sessions/{chat.create_session()}/messages"
    large = {"content": [{"type": "file", "name": "a", "data": "A" * (5 * 2**20)}]}
    assert client.post(path, json=large).status_code == 413
    assert client.post(path, content=b'{"text": "', headers={"Content-Type": "application/json"}).status_code == 400
    assert client.post("/v1/sessions/import", content=b"x").json()["message"] == "that is no bundle"


@pytest.mark.parametrize(
    "body",
    [
        {"agent": "nobody"},
        {"agent": 5},
        {"kinds": "code"},
        {"kinds": ["x" * 101]},
        {"policy": {"rules": [{"action": "maybe"}]}},
        {"budget": 0},
        {"modell": "gpt-5"},
        {"title": "x" * 201},
    ],
)
def test_invalid_sessions_are_rejected(client: httpx.Client, body: Any) -> None:
    response = client.post("/v1/sessions", json=body)
    assert response.status_code == 400 and response.json()["message"], response.text


def test_session_scopes(client: httpx.Client, chat: ScriptedChatServer) -> None:
    session = chat.create_session()
    with chat.client(create_key(client, "sessions:read")) as reader:
        assert reader.get(f"/v1/sessions/{session}").status_code == 200
        assert reader.get("/v1/approvals").status_code == 200
        responses = [
            reader.post("/v1/sessions"),
            reader.post(f"/v1/sessions/{session}/messages", json={"text": "a"}),
            reader.post(f"/v1/sessions/{session}/resume", json={"decisions": []}),
            reader.post(f"/v1/sessions/{session}/cancel"),
            reader.delete(f"/v1/sessions/{session}"),
            reader.post("/v1/agui", json={"threadId": "t", "runId": "r", "messages": []}),
        ]
        assert {response.status_code for response in responses} == {403}
    with chat.client(create_key(client, "runs:write")) as other:
        assert other.get(f"/v1/sessions/{session}").status_code == 403


def test_unpaired_surrogates_are_streamed(client: httpx.Client, chat: ScriptedChatServer) -> None:
    session = chat.run_in_server_loop(chat.sessions.get("default", chat.create_session()))
    chat.run_in_server_loop(chat.sessions.emit(session, MessageDelta(message_id="m", text="a\ud83d")))
    response = client.get(f"/v1/sessions/{session.id}/events", headers=JSON)
    assert response.json()["items"][-1]["data"]["text"] == "a\ud83d"
    with client.stream("GET", f"/v1/sessions/{session.id}/events", headers=SSE) as stream:
        assert list(islice(event_documents(stream), 2))[-1]["data"]["text"] == "a\ud83d"


def test_followers_receive_session_deletion(client: httpx.Client, chat: ScriptedChatServer) -> None:
    session = chat.create_session()
    with client.stream("GET", f"/v1/sessions/{session}/events", headers=SSE) as stream:
        events = event_documents(stream)
        assert next(events)["type"] == "session.created"
        with chat.client() as other:
            other.delete(f"/v1/sessions/{session}")
        assert [event["type"] for event in events] == ["session.deleted"]
