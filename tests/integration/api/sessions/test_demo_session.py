"""The demonstration chat: a scripted model without provider key, everything else real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.agents.chat_client import Chat
from tests.support.screen_images import share_screen_images
from tests.support.server import DAEMON_PORT, Server, eventually, run_server

DEMO_FILES = ("visitors.csv", "chart.svg", "report.md")


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"kinds": {"code": {"image": "host"}}}


def wait_for_approval(chat: Chat) -> dict[str, Any]:
    approvals: list[dict[str, Any]] = eventually(
        lambda: chat.client.get("/v1/approvals", params={"session": chat.id, "state": "pending"}).json()["items"]
    )
    return approvals[0]


def decide_approval(chat: Chat, action: str) -> None:
    approval = wait_for_approval(chat)
    decision = {"approval": approval["id"], "digest": approval["digest"], "action": action}
    response = chat.client.post(f"{chat.path}/resume", json={"decisions": [decision]})
    assert response.status_code == 200, response.text
    eventually(lambda: chat.load_session()["state"] == "idle", 60)


def last_reply(chat: Chat) -> str:
    reply = chat.client.get(f"{chat.path}/messages").json()["items"][-1]
    assert reply["role"] == "assistant"
    return str(reply["content"][0]["text"])


def session_file_names(chat: Chat) -> set[str]:
    """Return the names of the session's files."""
    messages = chat.client.get(f"{chat.path}/messages", params={"pageSize": 100}).json()["items"]
    return {part["name"] for message in messages for part in message["content"] if part["type"] == "file"}


def read_workspace_file(client: httpx.Client, chat: Chat, name: str) -> str:
    (sandbox,) = chat.load_session()["sandboxes"].values()
    path = f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/files/download"
    response = client.get(path, params={"path": f"/workspace/{name}"})
    assert response.status_code == 200, response.text
    return response.text


def test_server_without_providers_marks_scripted_replies(client: httpx.Client) -> None:
    models = client.get("/v1/server").json()["models"]
    assert models["items"] == [{"name": "demo", "provider": "demo", "kind": "script", "script": True}]
    assert (models["default"], models["real"], models["demo"]) == ("demo", False, True)
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hello."}]}
    response = client.post("/v1/chat/completions", json=body)
    assert response.headers["X-Paddock-Script"] == "demo"
    assert "I am a script" in response.json()["choices"][0]["message"]["content"]
    missing = client.post("/v1/chat/completions", json={**body, "model": "claude-x"})
    assert missing.status_code == 404 and "ANTHROPIC_API_KEY" in missing.json()["error"]["message"]


@pytest.mark.parametrize(("language", "done"), [("en", "more than doubled"), ("zh", "翻了一番多")])
def test_demo_runs_from_plan_to_report(client: httpx.Client, language: str, done: str) -> None:
    response = client.post("/v1/demo", json={"language": language})
    assert response.status_code == 201, response.text
    demo = response.json()
    assert (demo["kind"], demo["image"], demo["built"], demo["script"]) == ("code", "host", True, True)
    chat = Chat(client, demo["session"])
    approval = wait_for_approval(chat)
    assert approval["name"] == "code_run_shell_command" and approval["arguments"] == {
        "command": "python3 chart.py > chart.svg"
    }
    assert approval["summary"]["text"] == (
        "Run the Python script /workspace/chart.py in sandbox code. Writes /workspace/chart.svg."
    )
    messages = client.get(f"{chat.path}/messages", params={"pageSize": 100}).json()["items"]
    announced = [part["text"] for message in messages for part in message["content"] if part["type"] == "text"]
    without_approval, one_approval = (
        ("needs no approval", "only approval") if language == "en" else ("无需批准", "只需批准")
    )
    assert all(any(words in text for text in announced) for words in (without_approval, one_approval))
    decide_approval(chat, "approve")
    assert len(client.get("/v1/approvals", params={"session": chat.id}).json()["items"]) == 1
    assert done in last_reply(chat) and "](/workspace/chart.svg)" in last_reply(chat)
    assert "chart.svg" in session_file_names(chat)
    assert {step["state"] for step in chat.load_session()["plan"]} == {"done"}
    assert "Dunmore,460,640,980" in read_workspace_file(client, chat, "visitors.csv")
    assert "+113%" in read_workspace_file(client, chat, "chart.svg")
    assert "| **Dunmore** | **+113%** |" in read_workspace_file(client, chat, "report.md")
    again = client.post("/v1/demo", json={"language": language}).json()
    assert again["session"] == chat.id and chat.load_session()["turn"] == 1
    chat.send_message("Thanks, great!" if language == "en" else "谢谢!")
    eventually(lambda: chat.load_session()["turn"] == 2 and chat.load_session()["state"] == "idle")
    assert last_reply(chat).startswith("You are welcome." if language == "en" else "不客气")
    client.delete(chat.path)
    assert client.post("/v1/demo", json={"language": language, "begin": False}).json()["session"] != chat.id


def test_demo_accepts_a_rejection_and_further_questions(client: httpx.Client) -> None:
    chat = Chat(client, client.post("/v1/demo", json={"again": True}).json()["session"])
    decide_approval(chat, "reject")
    reply = last_reply(chat)
    assert "I did not run the script" in reply and "Say **demonstration**" in reply
    assert "rejected this call" not in reply and "Do not" not in reply
    assert [step["state"] for step in chat.load_session()["plan"]] == ["done", "dropped", "dropped", "dropped"]
    chat.send_message("Show me the report.")
    eventually(lambda: chat.load_session()["turn"] == 2 and chat.load_session()["state"] == "idle")
    assert "I could not read a report" in last_reply(chat)
    chat.send_message("What is the meaning of life?")
    eventually(lambda: chat.load_session()["turn"] == 3 and chat.load_session()["state"] == "idle")
    assert "I am a **script**" in last_reply(chat) and "meaning of life" in last_reply(chat)
    chat.send_message("Then the demonstration, please.")
    decide_approval(chat, "approve")
    assert "more than doubled" in last_reply(chat)
    chat.send_message("Show me the report.")
    eventually(lambda: chat.load_session()["turn"] == 5 and chat.load_session()["state"] == "idle")
    assert "Visitors, 2023 to 2025" in last_reply(chat)
    client.delete(chat.path)


@pytest.mark.parametrize(("language", "done"), [("en", "more than doubled"), ("zh", "翻了一番多")])
def test_demo_continues_after_a_takeover(client: httpx.Client, language: str, done: str) -> None:
    chat = Chat(client, client.post("/v1/demo", json={"language": language, "again": True}).json()["session"])
    approval = wait_for_approval(chat)
    (sandbox,) = chat.load_session()["sandboxes"].values()
    taken = client.post(f"/v1/sandboxes/{sandbox}/input", json={"viewer": "ada", "name": "Ada"})
    assert taken.status_code == 200, taken.text
    decision = {"approval": approval["id"], "digest": approval["digest"], "action": "approve"}
    assert client.post(f"{chat.path}/resume", json={"decisions": [decision]}).status_code == 200
    eventually(lambda: chat.load_session()["state"] == "parked")
    client.delete(f"/v1/sandboxes/{sandbox}/input", params={"viewer": "ada"})
    eventually(lambda: chat.load_session()["state"] == "idle", 60)
    messages = client.get(f"{chat.path}/messages", params={"pageSize": 100}).json()["items"]
    assert [message["role"] for message in messages].count("note") == 1
    assert done in last_reply(chat) and "chart.svg" in session_file_names(chat)
    assert "| **Dunmore** | **+113%** |" in read_workspace_file(client, chat, "report.md")
    client.delete(chat.path)


def test_each_key_has_its_own_demo(server: Server, client: httpx.Client) -> None:
    key = client.post("/v1/keys", json={"name": "ada", "scopes": ["sessions:write"]}).json()
    mine = client.post("/v1/demo", json={"begin": False}).json()["session"]
    with server.client(key["secret"]) as ada:
        assert ada.post("/v1/demo", json={"begin": False}).json()["session"] != mine
    looks = client.post("/v1/keys", json={"name": "eyes", "scopes": ["sessions:read"]}).json()["secret"]
    with server.client(looks) as reader:
        assert reader.post("/v1/demo").status_code == 403


@pytest.fixture(scope="module")
def desktop_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("desks")
    share_screen_images(directory / "data", "desktop")
    with run_server(directory) as running:
        yield running


@pytest.mark.slow
def test_demo_opens_its_report_on_a_desktop(desktop_server: Server) -> None:
    with desktop_server.client() as client:
        demo = client.post("/v1/demo").json()
        assert (demo["kind"], demo["image"], demo["built"]) == ("linux", "desktop", True)
        chat = Chat(client, demo["session"])
        decide_approval(chat, "approve")
        assert "more than doubled" in last_reply(chat)
        (sandbox,) = chat.load_session()["sandboxes"].values()
        windows = client.post(f"/v1/sandboxes/{sandbox}/tools/list_windows", json={}).text
        assert "report.md" in windows
        client.delete(chat.path)


def test_no_demo_with_configured_providers(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("turns: [{say: Hello}]")
    llm = {"providers": {"own": {"kind": "script", "file": str(tmp_path / "s.yaml")}}, "models": {"own": "own"}}
    with run_server(tmp_path, {"llm": llm}) as server, server.client() as client:
        response = client.post("/v1/demo")
        assert (response.status_code, response.json()["code"]) == (400, "UNSUPPORTED")
        assert client.get("/v1/server").json()["models"]["demo"] is False


def test_demo_chat_lists_models_once_one_is_connected(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("turns: [{say: Hello}]")
    providers = {"own": {"kind": "script", "file": str(tmp_path / "s.yaml")}}
    with run_server(tmp_path) as server:
        with server.client() as client:
            chat = Chat.create(client, model="demo", kinds=[])
        server.stop()
        connected = Server(server.data, {"llm": {"providers": providers, "models": {"own": "own"}}}).start()
        try:
            with connected.client() as client:
                chat = chat.on_server(client)
                chat.send_message("Hello")
                error = chat.wait_for_event(lambda event: event["type"] == "turn.error")["data"]
        finally:
            connected.stop()
    assert error["code"] == "MODEL_NOT_FOUND"
    assert error["message"] == "There is no model 'demo'. Models: own."
