"""Invalid and unauthorized requests over HTTP to a real server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.integration.agents.chat_client import (
    CODE,
    SERVER_SIDE,
    Chat,
    call,
    check,
    check_order,
    questions,
    scripted,
    text_of,
)
from tests.support.server import Server, run_server

MAX_MESSAGE_CHARACTERS = 2**20
RECEIVE_TIMEOUT = 20.0
PLAIN = {"turns": [{"say": "Hello."}]}
COMMAND = {
    "turns": [
        [{"say": "I run it."}, call("code_run_shell_command", command="echo ran >> /workspace/deeds; cat deeds")],
        {"say": "It says: {{ tool.output }}"},
    ],
    "otherwise": {"say": "You said: {{ prompt }}"},
}
TWO = {
    "turns": [
        [call("code_run_shell_command", command="echo one"), call("code_run_shell_command", command="echo two")],
        {"say": "It says: {{ tool.output }}"},
    ],
}
SCOPES = ["sessions:read", "sessions:write", "sandboxes:read"]
SHA = "0" * 64
ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "", None),
    ("PATCH", "", {"title": "mine"}),
    ("DELETE", "", None),
    ("GET", "/messages", None),
    ("POST", "/messages", {"text": "Hello?"}),
    ("GET", "/events", None),
    ("POST", "/resume", {"decisions": [{"approval": "APPROVAL", "digest": "DIGEST", "action": "approve"}]}),
    ("POST", "/cancel", None),
    ("POST", "/continue", None),
    ("POST", "/fork", {}),
    ("GET", "/export", None),
    ("GET", "/approvals", None),
    ("GET", "/files/SHA", None),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("input")
    llm = scripted(directory, plain=PLAIN, command=COMMAND, two=TWO)
    with run_server(directory, {"llm": llm, "kinds": CODE}) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(params=SERVER_SIDE)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def send_request(
    client: httpx.Client, route: tuple[str, str, Any], session: str, replacements: dict[str, str]
) -> httpx.Response:
    method, path, body = route
    body_json = json.dumps(body)
    for name, value in replacements.items():
        path, body_json = path.replace(name, value), body_json.replace(name, value)
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    content = body_json if body is not None else None
    return client.request(method, f"/v1/sessions/{session}{path}", content=content, headers=headers)


def socket_status(server: Server, session: str, key: str) -> int:
    address = f"{server.url.replace('http', 'ws')}/v1/sessions/{session}/ws"
    headers = {"Authorization": f"Bearer {key}"}
    with pytest.raises(InvalidStatus) as raised, connect(address, additional_headers=headers, proxy=None):
        pass
    return raised.value.response.status_code


def next_approval(chat: Chat) -> dict[str, Any]:
    """Return the next pending approval."""
    approval: dict[str, Any] = chat.wait_for_event(lambda event: event["type"] == "approval.required")["data"][
        "approval"
    ]
    return approval


@pytest.mark.parametrize(
    ("settings", "expected_words"),
    [
        ({"agent": "toaster"}, ["toaster", "langgraph", "agentscope", "claude-code"]),
        ({"model": "gpt-0"}, ["There is no model 'gpt-0'. Models: ", "plain", "command"]),
        ({"kinds": ["toaster"]}, ["toaster", "code", "linux", "browser"]),
        ({"kinds": ["code", "cod"]}, ["cod", "code"]),
        ({"engine": "langgraph"}, ["engine"]),
        ({"budget": 0}, ["budget"]),
        ({"policy": {"rules": [{"action": "perhaps"}]}}, ["action", "allow", "ask", "deny"]),
        ({"title": "x" * 201}, ["title"]),
    ],
)
def test_error_of_unknown_setting_lists_valid_values(
    client: httpx.Client, settings: dict[str, Any], expected_words: list[str]
) -> None:
    before = len(client.get("/v1/sessions").json()["items"])
    response = client.post("/v1/sessions", json=settings)
    assert response.status_code == 400, response.text
    assert all(word in response.json()["message"] for word in expected_words), response.text
    assert len(client.get("/v1/sessions").json()["items"]) == before
    chat = Chat.create(client, model="plain")
    session_before = chat.load_session()
    assert client.patch(chat.path, json=settings).status_code == 400
    assert chat.load_session() == session_before


def test_unknown_session_is_not_found_on_any_route(server: Server, client: httpx.Client) -> None:
    for session in ("ses-0000000000000000", "nonsense", "%00", "a" * 500):
        for route in ROUTES:
            response = send_request(client, route, session, {"SHA": SHA})
            assert response.status_code == 404, (route, session, response.text)
            assert response.json()["code"] in ("SESSION_NOT_FOUND", "NOT_FOUND"), response.text
    assert socket_status(server, "ses-0000000000000000", server.key) == 404


def test_session_of_another_tenant_is_not_found(server: Server, client: httpx.Client) -> None:
    """Even with the right approval, digest and file name, nothing is found or changed."""
    chat = Chat.create(client, model="command", title="Secret pelicans")
    data = base64.b64encode(b"pelicans").decode()
    parts = [{"type": "text", "text": "Pelicans"}, {"type": "file", "name": "p.txt", "data": data}]
    sent = client.post(f"{chat.path}/messages", json={"content": parts}).json()
    approval = next_approval(chat)
    chat.wait_for_event(lambda event: event["type"] == "turn.ended")
    names = {"APPROVAL": approval["id"], "DIGEST": approval["digest"], "SHA": sent["content"][1]["file"]}
    session_before, events_before = chat.load_session(), chat.list_events()
    secret = client.post("/v1/keys", json={"name": "stranger", "tenant": "other", "scopes": SCOPES}).json()["secret"]
    with server.client(secret) as stranger:
        for route in ROUTES:
            response = send_request(stranger, route, chat.id, names)
            missing = send_request(stranger, route, "ses-0000000000000000", names)
            assert response.status_code == 404, (route, response.text)
            assert response.json()["message"].replace(chat.id, "") == missing.json()["message"].replace(
                "ses-0000000000000000", ""
            ), "it cannot be told from one that does not exist"
        assert socket_status(server, chat.id, secret) == 404
        for path in ("/v1/sessions", "/v1/approvals", "/v1/sessions/search?q=pelicans", "/v1/sandboxes"):
            assert stranger.get(path).json()["items"] == [], path
        run = {"threadId": chat.id, "runId": "r", "messages": [{"id": "1", "role": "user", "content": "Hello?"}]}
        assert f'"session": "{chat.id}"' not in stranger.post("/v1/agui", json=run).text, "it is a thread of their own"
    assert (chat.load_session(), chat.list_events()) == (session_before, events_before)
    assert send_request(client, ROUTES[-1], chat.id, names).content == b"pelicans"
    assert chat.decide({"action": "reject"}, approval=approval).status_code == 200
    assert chat.wait_for_turn_end() == "done"
    check(chat)


def test_too_long_message_is_refused_and_not_stored(server: Server, client: httpx.Client) -> None:
    chat = Chat.create(client, model="plain")
    before = chat.list_events()
    half = {"type": "text", "text": "x" * (MAX_MESSAGE_CHARACTERS // 2 + 1)}
    for body in (
        {"text": "x" * (MAX_MESSAGE_CHARACTERS + 1)},
        {"content": [half, half]},
        {"text": "日" * (MAX_MESSAGE_CHARACTERS + 1)},
    ):
        response = client.post(f"{chat.path}/messages", json=body)
        assert 400 <= response.status_code < 500, response.text[:500]
        assert len(response.text) < 1000, "it is not sent back"
    address = f"{server.url.replace('http', 'ws')}{chat.path}/ws"
    headers = {"Authorization": f"Bearer {server.key}"}
    with connect(address, additional_headers=headers, proxy=None) as socket:
        socket.send(json.dumps({"type": "message", "id": "1", "text": "x" * (MAX_MESSAGE_CHARACTERS + 1)}))
        while (frame := json.loads(socket.recv(RECEIVE_TIMEOUT)))["type"] != "error":
            assert frame["type"] != "ack"
    assert chat.list_events() == before and client.get(f"{chat.path}/messages").json()["items"] == []
    chat.send_message("x" * MAX_MESSAGE_CHARACTERS)
    assert chat.wait_for_turn_end() == "done"
    check(chat)


@pytest.mark.parametrize(
    "body", [{}, {"text": ""}, {"text": " \n"}, {"content": []}, {"text": 1}, {"text": "a", "b": 1}]
)
def test_empty_message_is_refused(client: httpx.Client, body: dict[str, Any]) -> None:
    chat = Chat.create(client, model="plain")
    response = client.post(f"{chat.path}/messages", json=body)
    assert response.status_code == 400, response.text
    assert client.post(f"{chat.path}/messages", content=b'{"text": ').status_code == 400
    assert [event["type"] for event in chat.list_events()] == ["session.created"]


def test_invalid_decisions_change_nothing(client: httpx.Client, engine: str) -> None:
    chat, other = (Chat.create(client, agent=engine, model="two") for _ in range(2))
    for each in (chat, other):
        each.send_message("Do both.")
    own_approvals, other_approvals = [[next_approval(each) for _ in range(2)] for each in (chat, other)]
    chat.wait_for_event(lambda event: event["type"] == "turn.ended")
    first, second = own_approvals
    before = chat.list_events()
    approve = {"action": "approve"}
    invalid: list[tuple[dict[str, Any], dict[str, Any], int]] = [
        ({**approve, "digest": second["digest"]}, first, 409),
        ({**approve, "digest": "0" * 64}, first, 409),
        ({**approve, "approval": "approval-0"}, first, 404),
        (approve, other_approvals[0], 404),
        ({"action": "edit"}, first, 400),
        ({"action": "edit", "arguments": {"command": 7}}, first, 400),
        ({"action": "edit", "arguments": {"command": ["ls"]}}, first, 400),
        ({"action": "edit", "arguments": {}}, first, 400),
        ({"action": "edit", "arguments": {"command": "ls", "colour": "red"}}, first, 400),
        ({"action": "edit", "arguments": "ls"}, first, 400),
        ({"action": "answer"}, first, 400),
        ({"action": "reject", "always": "tool"}, first, 400),
        ({"action": "approve", "arguments": {"command": "ls"}}, first, 400),
        ({"action": "perhaps"}, first, 400),
    ]
    for decision, approval, status in invalid:
        response = chat.decide(decision, approval=approval)
        assert response.status_code == status, (decision, response.text)
    good = {"approval": first["id"], "digest": first["digest"], "action": "approve"}
    bad = {"approval": second["id"], "digest": first["digest"], "action": "approve"}
    for decisions in ([good, bad], [good, good], []):
        assert client.post(f"{chat.path}/resume", json={"decisions": decisions}).status_code in (400, 409)
    assert chat.list_events() == before, "all or nothing"
    assert chat.decide(approve, approval=first).status_code == 200
    repeated = chat.decide({"action": "reject"}, approval=first)
    assert repeated.status_code == 409 and "local" in repeated.json()["message"]
    edit = {"action": "edit", "arguments": {"command": "echo three"}}
    assert chat.decide(edit, approval=second).status_code == 200
    assert chat.wait_for_turn_end() == "done"
    assert chat.decide(approve, approval=second).status_code == 409, "after the turn too"
    texts = [text_of(data["result"]) for data in chat.events_of("call.result")]
    assert any("one" in text for text in texts) and any("three" in text for text in texts)
    assert not any("two" in text for text in texts)
    check(chat)
    assert client.post(f"{other.path}/cancel").status_code == 200
    assert other.decide(approve, approval=other_approvals[0]).status_code == 409
    check_order(other.list_events())


def test_message_during_pending_approval_is_read_after_decision(client: httpx.Client, engine: str) -> None:
    chat = Chat.create(client, agent=engine, model="command")
    chat.send_message("Do it.")
    approval = next_approval(chat)
    chat.wait_for_event(lambda event: event["type"] == "turn.ended")
    sent = chat.send_message("And mind the gap.")
    assert chat.load_session()["state"] == "waiting"
    assert chat.wait_for_event(lambda event: event["type"] == "message.received")["data"]["waits"]
    assert chat.decide({"action": "approve"}, approval=approval).status_code == 200
    assert chat.wait_for_turn_end() == "done"
    assert sent["id"] in [message["id"] for message in client.get(f"{chat.path}/messages").json()["items"]]
    first, second, *_ = questions(chat)
    assert not any("mind the gap" in str(message["content"]) for message in first)
    assert [message["role"] for message in second][-2:] == ["tool", "user"]
    assert second[-1]["content"] == "And mind the gap."
    check(chat)


def test_undecided_approval_expires(tmp_path: Path, engine: str) -> None:
    llm = scripted(tmp_path, command=COMMAND)
    with (
        run_server(tmp_path, {"llm": llm, "kinds": CODE, "chat": {"approval_time": 1}}) as server,
        server.client() as client,
    ):
        chat = Chat.create(client, agent=engine, model="command")
        chat.send_message("Do it.")
        approval = next_approval(chat)
        expired = chat.wait_for_event(lambda event: event["type"] == "approval.expired")
        assert expired["data"]["approval_id"] == approval["id"]
        late_decision = chat.decide({"action": "approve"}, approval=approval)
        assert late_decision.status_code == 409 and "expired" in late_decision.json()["message"]
        assert chat.wait_for_turn_end() == "done"
        result = chat.results_by_tool()["code_run_shell_command"]
        assert result["refused"] and "Nobody decided" in text_of(result)
        assert "Nobody decided" in chat.reply_texts()[-1], "the model gets the reason"
        assert chat.load_session()["sandboxes"] == {}, "nothing was run"
        check(chat)
