"""A chat session over WebSocket, compared with server-sent events and JSON pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from paddock.api.http.uvicorn_protocols import SocketTakeover
from paddock.api.sessions import session_websocket
from paddock.model.session_events import MessageDelta, SessionEvent, TurnEnded, TurnError
from paddock.model.sessions import Session
from tests.integration.api.sessions.scripted_chat_server import (
    TIMEOUT,
    ScriptedChatServer,
    data_lines,
    finish_turn,
    run_scripted_chat_server,
)
from tests.support.server import eventually

MANY_EVENTS = 300
TEXTS = st.text(max_size=40) | st.sampled_from(["a\nb", "data: x\n\n", "日本 🦆", "\ud83d", "\u2028", ""])


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedChatServer]:
    with run_scripted_chat_server(tmp_path_factory.mktemp("paddock")) as running:
        yield running


@pytest.fixture
def client(chat: ScriptedChatServer) -> Iterator[httpx.Client]:
    chat.sessions.turn_script = finish_turn
    with chat.client() as made:
        yield made


def create_session(chat: ScriptedChatServer) -> Session:
    return chat.run_in_server_loop(chat.sessions.get("default", chat.create_session()))


def emit_texts(chat: ScriptedChatServer, session: Session, texts: list[str]) -> None:
    chat.run_in_server_loop(chat.sessions.emit(session, *(MessageDelta(message_id="m", text=text) for text in texts)))


def send_command(ws: ClientConnection, **frame: Any) -> dict[str, Any]:
    """Send a frame and wait for its acknowledgement or error between the events."""
    ws.send(json.dumps(frame))
    return receive_reply(ws)


def receive_reply(ws: ClientConnection) -> dict[str, Any]:
    while True:
        found: dict[str, Any] = json.loads(ws.recv(TIMEOUT))
        if found["type"] in ("ack", "error", "pong"):
            return found


def test_events_and_commands_share_one_websocket(chat: ScriptedChatServer, client: httpx.Client) -> None:
    session = create_session(chat)
    with chat.connect(session.id) as ws:
        assert json.loads(ws.recv(TIMEOUT))["type"] == "session.created"
        assert send_command(ws, type="ping") == {"type": "pong"}
        acknowledgement = send_command(ws, type="message", text="Hello.", id="one")
        assert acknowledgement["type"] == "ack" and acknowledgement["id"] == "one" and acknowledgement["turn"] == 1
        assert send_command(ws, type="message", text="Hello.", id="one")["message"] == acknowledgement["message"]
        eventually(lambda: client.get(f"/v1/sessions/{session.id}").json()["state"] == "idle")
        chat.sessions.turn_script = lambda session, turn: []
        assert send_command(ws, type="message", content=[{"type": "text", "text": "Again."}])["turn"] == 2
        assert send_command(ws, type="cancel", id="stop") == {"type": "ack", "state": "idle", "id": "stop"}
        chat.sessions.turn_script = lambda session, turn: [
            chat.sessions.require_approval(session, turn, "call-1"),
            TurnEnded(turn=turn, state="waiting"),
        ]
        assert send_command(ws, type="continue")["state"] == "running"
        while (event := json.loads(ws.recv(TIMEOUT)))["type"] != "approval.required":
            pass
        approval = event["data"]["approval"]
        while json.loads(ws.recv(TIMEOUT))["type"] != "turn.ended":
            pass
        chat.sessions.turn_script = finish_turn
        decision = {"approval": approval["id"], "digest": approval["digest"], "action": "reject", "reason": "no"}
        decided = send_command(ws, type="resume", decisions=[decision])
        assert decided["approvals"] == [{"id": approval["id"], "state": "rejected"}]
    texts = [item["content"][0]["text"] for item in client.get(f"/v1/sessions/{session.id}/messages").json()["items"]]
    assert texts == ["Hello.", "Again."]


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"type": "dance"}',
        '{"text": "a"}',
        '{"type": "message"}',
        '{"type": "message", "text": 5}',
        '{"type": "message", "text": "a", "more": 1}',
        '{"type": "message", "text": "a", "id": 7}',
        '{"type": "resume", "decisions": []}',
        '{"type": "resume", "decisions": [{"approval": "x", "digest": "y", "action": "dance"}]}',
        b"\x00\x01",
    ],
)
def test_invalid_frames_are_refused(chat: ScriptedChatServer, frame: str | bytes) -> None:
    session = create_session(chat)
    with chat.connect(session.id, after=1) as ws:
        ws.send(frame)
        refused = receive_reply(ws)
        assert refused["type"] == "error" and refused["code"] == "INVALID_FRAME" and refused["message"]
        assert send_command(ws, type="ping") == {"type": "pong"}


def test_refusals_name_their_frame(chat: ScriptedChatServer) -> None:
    with chat.connect(create_session(chat).id) as ws:
        decision = {"approval": "apr-none", "digest": "0", "action": "approve"}
        refused = send_command(ws, type="resume", decisions=[decision], id="seven")
        assert (refused["code"], refused["id"]) == ("NOT_FOUND", "seven")


def test_read_only_key_cannot_send(chat: ScriptedChatServer, client: httpx.Client) -> None:
    session = create_session(chat)
    secret = client.post("/v1/keys", json={"name": "reader", "scopes": ["sessions:read"]}).json()["secret"]
    with chat.connect(session.id, key=secret) as ws:
        assert json.loads(ws.recv(TIMEOUT))["type"] == "session.created"
        assert send_command(ws, type="message", text="Hello.")["code"] == "FORBIDDEN"
        assert send_command(ws, type="ping") == {"type": "pong"}


def test_unauthorized_websockets_are_refused(chat: ScriptedChatServer, client: httpx.Client) -> None:
    session = create_session(chat)
    other = {"name": "stranger", "tenant": "other", "scopes": ["sessions:write"]}
    stranger = client.post("/v1/keys", json=other).json()["secret"]
    unfit = client.post("/v1/keys", json={"name": "runs", "scopes": ["runs:write"]}).json()["secret"]
    cases: list[tuple[int, str, dict[str, Any]]] = [
        (404, session.id, {"key": stranger}),
        (404, "ses-0000000000000000", {}),
        (403, session.id, {"key": unfit}),
        (401, session.id, {"key": "pk-wrong"}),
        (400, session.id, {"after": "-1"}),
        (400, session.id, {"after": "x"}),
    ]
    for status, of, more in cases:
        with pytest.raises(InvalidStatus) as caught:
            chat.connect(of, **more)
        assert caught.value.response.status_code == status, (of, more)


def test_websocket_closes_when_the_session_is_deleted(chat: ScriptedChatServer, client: httpx.Client) -> None:
    session = create_session(chat)
    with chat.connect(session.id, after=1) as ws:
        client.delete(f"/v1/sessions/{session.id}")
        assert json.loads(ws.recv(TIMEOUT))["type"] == "session.deleted"
        with pytest.raises(ConnectionClosed) as caught:
            ws.recv(TIMEOUT)
        assert caught.value.rcvd is not None and caught.value.rcvd.code == 1000


def test_slow_client_is_disconnected_and_can_resume(chat: ScriptedChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_websocket, "SEND_TIMEOUT", 0.3)
    given_up: list[int] = []
    close = session_websocket.SessionWebSocketConnection.close

    async def noted(connection: session_websocket.SessionWebSocketConnection, code: int, reason: str) -> None:
        given_up.append(code)
        await close(connection, code, reason)

    monkeypatch.setattr(session_websocket.SessionWebSocketConnection, "close", noted)
    session = create_session(chat)
    # The client library stops reading once this many messages are unread.
    with chat.connect(session.id, waiting=1) as ws:
        emit_texts(chat, session, ["x" * 100_000] * MANY_EVENTS)
        assert eventually(lambda: given_up) == [1013]
        seen, closed = 0, None
        while closed is None:
            try:
                seen = json.loads(ws.recv(TIMEOUT))["number"]
            except ConnectionClosed as error:
                closed = error.rcvd
                break
    assert closed is not None and closed.code == 1013 and closed.reason == f"too slow; reconnect with after={seen}"
    assert seen < MANY_EVENTS
    monkeypatch.undo()
    with chat.connect(session.id, after=seen) as ws:
        numbers = [json.loads(ws.recv(TIMEOUT))["number"] for _ in range(MANY_EVENTS + 1 - seen)]
    assert numbers == list(range(seen + 1, MANY_EVENTS + 2))


def test_nonreading_client_is_aborted(chat: ScriptedChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_websocket, "SEND_TIMEOUT", 0.2)
    monkeypatch.setattr(session_websocket, "CLOSE_TIMEOUT", 0.2)
    ended: list[bool] = []
    abort = SocketTakeover.abort

    def noted(take: SocketTakeover) -> None:
        abort(take)
        ended.append(True)

    monkeypatch.setattr(SocketTakeover, "abort", noted)
    session = create_session(chat)
    emit_texts(chat, session, ["x" * 100_000] * MANY_EVENTS)
    with chat.connect(session.id, waiting=1) as ws:
        eventually(lambda: ended)
        closed: list[ConnectionClosed] = []
        while not closed:
            try:
                ws.recv(TIMEOUT)
            except ConnectionClosed as error:
                closed.append(error)
    assert closed[0].rcvd is None


class EventFollower:
    """A client that reconnects and collects the exact text of its events."""

    def __init__(self, chat: ScriptedChatServer, client: httpx.Client, session: str) -> None:
        self._chat = chat
        self._client = client
        self._session = session
        self.seen: list[str] = []

    @property
    def _cursor(self) -> int:
        return int(json.loads(self.seen[-1])["number"]) if self.seen else 0

    def by_stream(self, many: int, by_header: bool) -> None:
        how: dict[str, Any] = {"params": {"after": self._cursor}}
        if by_header:
            how = {"headers": {"Last-Event-ID": str(self._cursor)}}
        with self._client.stream("GET", f"/v1/sessions/{self._session}/events", **how) as answer:
            self.seen += islice(data_lines(answer), many)

    def by_socket(self, many: int) -> None:
        with self._chat.connect(self._session, after=self._cursor) as ws:
            for _ in range(many):
                frame = ws.recv(TIMEOUT)
                assert isinstance(frame, str)
                self.seen.append(frame)

    def by_pages(self, size: int) -> None:
        while True:
            response = self._client.get(
                f"/v1/sessions/{self._session}/events",
                params={"after": self._cursor, "limit": size},
                headers={"Accept": "application/json"},
            )
            items = split_items(response.text)
            self.seen += items
            if len(items) < size:
                return


def split_items(page: str) -> list[str]:
    """Return the exact texts of a page's items."""
    inner = page.removeprefix('{"items":[').rpartition('],"next":')[0]
    items, position, decoder = [], 0, json.JSONDecoder()
    while position < len(inner):
        _, end = decoder.raw_decode(inner, position)
        items.append(inner[position:end])
        position = end + 1
    return items


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_reconnecting_clients_receive_the_same_events(chat: ScriptedChatServer, data: st.DataObject) -> None:
    with chat.client() as client:
        session = create_session(chat)
        streamed, socketed, mixed = (EventFollower(chat, client, session.id) for _ in range(3))
        there = 1
        for _ in range(data.draw(st.integers(1, 5))):
            texts = data.draw(st.lists(TEXTS, max_size=6))
            emit_texts(chat, session, texts)
            there += len(texts)
            for follower in (streamed, socketed, mixed):
                many = data.draw(st.integers(0, there - len(follower.seen)))
                if follower is streamed or (follower is mixed and data.draw(st.booleans())):
                    follower.by_stream(many, data.draw(st.booleans()))
                else:
                    follower.by_socket(many)
        streamed.by_stream(there - len(streamed.seen), True)
        socketed.by_socket(there - len(socketed.seen))
        mixed.by_pages(data.draw(st.integers(1, 10)))
        paged = EventFollower(chat, client, session.id)
        paged.by_pages(data.draw(st.integers(1, 10)))
    assert [json.loads(each)["number"] for each in paged.seen] == list(range(1, there + 1))
    assert streamed.seen == socketed.seen == mixed.seen == paged.seen


def test_many_followers_receive_all_events(chat: ScriptedChatServer) -> None:
    session = create_session(chat)
    error: SessionEvent = TurnError(code="X", message="y")
    with ExitStack() as held:
        sockets = [held.enter_context(chat.connect(session.id, after=1)) for _ in range(20)]
        chat.run_in_server_loop(chat.sessions.emit(session, error))
        frames = {ws.recv(TIMEOUT) for ws in sockets}
    assert len(frames) == 1 and json.loads(frames.pop())["data"]["code"] == "X"
