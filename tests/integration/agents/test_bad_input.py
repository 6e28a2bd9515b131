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

LARGEST = 2**20
PATIENCE = 20.0
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
    with server.client() as made:
        yield made


@pytest.fixture(params=SERVER_SIDE)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ask(client: httpx.Client, route: tuple[str, str, Any], session: str, names: dict[str, str]) -> httpx.Response:
    method, path, body = route
    written = json.dumps(body)
    for name, value in names.items():
        path, written = path.replace(name, value), written.replace(name, value)
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    content = written if body is not None else None
    return client.request(method, f"/v1/sessions/{session}{path}", content=content, headers=headers)


def socket_status(server: Server, session: str, key: str) -> int:
    address = f"{server.url.replace('http', 'ws')}/v1/sessions/{session}/ws"
    headers = {"Authorization": f"Bearer {key}"}
    with pytest.raises(InvalidStatus) as refused, connect(address, additional_headers=headers, proxy=None):
        pass
    return refused.value.response.status_code


def asked(chat: Chat) -> dict[str, Any]:
    """Return the next pending approval."""
    approval: dict[str, Any] = chat.until(lambda event: event["type"] == "approval.required")["data"]["approval"]
    return approval


@pytest.mark.parametrize(
    ("wanted", "there"),
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
def test_what_is_not_there_is_told_with_what_there_is(
    client: httpx.Client, wanted: dict[str, Any], there: list[str]
) -> None:
    before = len(client.get("/v1/sessions").json()["items"])
    answer = client.post("/v1/sessions", json=wanted)
    assert answer.status_code == 400, answer.text
    assert all(word in answer.json()["message"] for word in there), answer.text
    assert len(client.get("/v1/sessions").json()["items"]) == before
    chat = Chat.begin(client, model="plain")
    was = chat.now()
    assert client.patch(chat.path, json=wanted).status_code == 400
    assert chat.now() == was


def test_a_session_that_does_not_exist_is_nowhere(server: Server, client: httpx.Client) -> None:
    for session in ("ses-0000000000000000", "nonsense", "%00", "a" * 500):
        for route in ROUTES:
            answer = ask(client, route, session, {"SHA": SHA})
            assert answer.status_code == 404, (route, session, answer.text)
            assert answer.json()["code"] in ("SESSION_NOT_FOUND", "NOT_FOUND"), answer.text
    assert socket_status(server, "ses-0000000000000000", server.key) == 404


def test_somebody_elses_session_does_not_exist(server: Server, client: httpx.Client) -> None:
    """Even with the right approval, digest and file name, nothing is found or changed."""
    chat = Chat.begin(client, model="command", title="Secret pelicans")
    data = base64.b64encode(b"pelicans").decode()
    parts = [{"type": "text", "text": "Pelicans"}, {"type": "file", "name": "p.txt", "data": data}]
    sent = client.post(f"{chat.path}/messages", json={"content": parts}).json()
    approval = asked(chat)
    chat.until(lambda event: event["type"] == "turn.ended")
    names = {"APPROVAL": approval["id"], "DIGEST": approval["digest"], "SHA": sent["content"][1]["file"]}
    before, events = chat.now(), chat.all()
    secret = client.post("/v1/keys", json={"name": "stranger", "tenant": "other", "scopes": SCOPES}).json()["secret"]
    with server.client(secret) as stranger:
        for route in ROUTES:
            answer = ask(stranger, route, chat.id, names)
            missing = ask(stranger, route, "ses-0000000000000000", names)
            assert answer.status_code == 404, (route, answer.text)
            assert answer.json()["message"].replace(chat.id, "") == missing.json()["message"].replace(
                "ses-0000000000000000", ""
            ), "it cannot be told from one that does not exist"
        assert socket_status(server, chat.id, secret) == 404
        for path in ("/v1/sessions", "/v1/approvals", "/v1/sessions/search?q=pelicans", "/v1/sandboxes"):
            assert stranger.get(path).json()["items"] == [], path
        run = {"threadId": chat.id, "runId": "r", "messages": [{"id": "1", "role": "user", "content": "Hello?"}]}
        assert f'"session": "{chat.id}"' not in stranger.post("/v1/agui", json=run).text, "it is a thread of their own"
    assert (chat.now(), chat.all()) == (before, events)
    assert ask(client, ROUTES[-1], chat.id, names).content == b"pelicans"
    assert chat.decide({"action": "reject"}, of=approval).status_code == 200
    assert chat.until_over() == "done"
    check(chat)


def test_a_message_that_is_too_long_is_refused_and_not_kept(server: Server, client: httpx.Client) -> None:
    chat = Chat.begin(client, model="plain")
    before = chat.all()
    half = {"type": "text", "text": "x" * (LARGEST // 2 + 1)}
    for body in ({"text": "x" * (LARGEST + 1)}, {"content": [half, half]}, {"text": "日" * (LARGEST + 1)}):
        answer = client.post(f"{chat.path}/messages", json=body)
        assert 400 <= answer.status_code < 500, answer.text[:500]
        assert len(answer.text) < 1000, "it is not sent back"
    address = f"{server.url.replace('http', 'ws')}{chat.path}/ws"
    headers = {"Authorization": f"Bearer {server.key}"}
    with connect(address, additional_headers=headers, proxy=None) as socket:
        socket.send(json.dumps({"type": "message", "id": "1", "text": "x" * (LARGEST + 1)}))
        while (answered := json.loads(socket.recv(PATIENCE)))["type"] != "error":
            assert answered["type"] != "ack"
    assert chat.all() == before and client.get(f"{chat.path}/messages").json()["items"] == []
    chat.say("x" * LARGEST)
    assert chat.until_over() == "done"
    check(chat)


@pytest.mark.parametrize(
    "body", [{}, {"text": ""}, {"text": " \n"}, {"content": []}, {"text": 1}, {"text": "a", "b": 1}]
)
def test_a_message_that_says_nothing_is_refused(client: httpx.Client, body: dict[str, Any]) -> None:
    chat = Chat.begin(client, model="plain")
    answer = client.post(f"{chat.path}/messages", json=body)
    assert answer.status_code == 400, answer.text
    assert client.post(f"{chat.path}/messages", content=b'{"text": ').status_code == 400
    assert [event["type"] for event in chat.all()] == ["session.created"]


def test_decisions_that_do_not_fit_change_nothing(client: httpx.Client, engine: str) -> None:
    chat, other = (Chat.begin(client, agent=engine, model="two") for _ in range(2))
    for each in (chat, other):
        each.say("Do both.")
    mine, theirs = [[asked(each) for _ in range(2)] for each in (chat, other)]
    chat.until(lambda event: event["type"] == "turn.ended")
    first, second = mine
    before = chat.all()
    yes = {"action": "approve"}
    wrong: list[tuple[dict[str, Any], dict[str, Any], int]] = [
        ({**yes, "digest": second["digest"]}, first, 409),
        ({**yes, "digest": "0" * 64}, first, 409),
        ({**yes, "approval": "approval-0"}, first, 404),
        (yes, theirs[0], 404),
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
    for decision, approval, status in wrong:
        answer = chat.decide(decision, of=approval)
        assert answer.status_code == status, (decision, answer.text)
    good = {"approval": first["id"], "digest": first["digest"], "action": "approve"}
    bad = {"approval": second["id"], "digest": first["digest"], "action": "approve"}
    for decisions in ([good, bad], [good, good], []):
        assert client.post(f"{chat.path}/resume", json={"decisions": decisions}).status_code in (400, 409)
    assert chat.all() == before, "all or nothing"
    assert chat.decide(yes, of=first).status_code == 200
    again = chat.decide({"action": "reject"}, of=first)
    assert again.status_code == 409 and "local" in again.json()["message"]
    edit = {"action": "edit", "arguments": {"command": "echo three"}}
    assert chat.decide(edit, of=second).status_code == 200
    assert chat.until_over() == "done"
    assert chat.decide(yes, of=second).status_code == 409, "after the turn too"
    texts = [text_of(data["result"]) for data in chat.told("call.result")]
    assert any("one" in text for text in texts) and any("three" in text for text in texts)
    assert not any("two" in text for text in texts)
    check(chat)
    assert client.post(f"{other.path}/cancel").status_code == 200
    assert other.decide(yes, of=theirs[0]).status_code == 409
    check_order(other.all())


def test_a_message_while_a_decision_is_awaited_is_read_after_it(client: httpx.Client, engine: str) -> None:
    chat = Chat.begin(client, agent=engine, model="command")
    chat.say("Do it.")
    approval = asked(chat)
    chat.until(lambda event: event["type"] == "turn.ended")
    sent = chat.say("And mind the gap.")
    assert chat.now()["state"] == "waiting"
    assert chat.until(lambda event: event["type"] == "message.received")["data"]["waits"]
    assert chat.decide({"action": "approve"}, of=approval).status_code == 200
    assert chat.until_over() == "done"
    assert sent["id"] in [message["id"] for message in client.get(f"{chat.path}/messages").json()["items"]]
    first, second, *_ = questions(chat)
    assert not any("mind the gap" in str(message["content"]) for message in first)
    assert [message["role"] for message in second][-2:] == ["tool", "user"]
    assert second[-1]["content"] == "And mind the gap."
    check(chat)


def test_what_nobody_decides_expires(tmp_path: Path, engine: str) -> None:
    llm = scripted(tmp_path, command=COMMAND)
    with (
        run_server(tmp_path, {"llm": llm, "kinds": CODE, "chat": {"approval_time": 1}}) as server,
        server.client() as me,
    ):
        chat = Chat.begin(me, agent=engine, model="command")
        chat.say("Do it.")
        approval = asked(chat)
        expired = chat.until(lambda event: event["type"] == "approval.expired")
        assert expired["data"]["approval_id"] == approval["id"]
        late = chat.decide({"action": "approve"}, of=approval)
        assert late.status_code == 409 and "expired" in late.json()["message"]
        assert chat.until_over() == "done"
        result = chat.results()["code_run_shell_command"]
        assert result["refused"] and "Nobody decided" in text_of(result)
        assert "Nobody decided" in chat.answers()[-1], "the model is told"
        assert chat.now()["sandboxes"] == {}, "nothing was run"
        check(chat)
