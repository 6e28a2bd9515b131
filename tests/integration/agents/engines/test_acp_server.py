"""Chats with real agent programs on a real server: turns, approvals, and servers that are killed meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.agents.chat_client import Chat, check_order, scripted, text_of
from tests.integration.runs.agent_images import share_images
from tests.support.server import Server, run_server

# The first test builds missing images.
pytestmark = pytest.mark.timeout(1500)

AGENTS = ("claude-code", "qwen-code")
SCRIPT = {
    "turns": [
        [{"say": "I will write it."}, {"shell": "echo one >> /workspace/deeds; echo did one"}],
        {"say": "It is written."},
        {"say": "You are welcome."},
    ]
}


@pytest.fixture(scope="module", params=AGENTS)
def server_and_agent(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, str]]:
    directory = tmp_path_factory.mktemp(request.param)
    share_images(directory / "data", [f"agent-{request.param}"])
    settings = {"llm": scripted(directory, one=SCRIPT), "sandboxes": {"min_free_disk": 0}}
    with run_server(directory, settings) as server:
        yield server, request.param


def commands_run(chat: Chat) -> list[str]:
    """Return the commands run in the agent's sandbox."""
    sandbox = chat.load_session()["sandboxes"]["code"]
    response = chat.client.post(f"/v1/sandboxes/{sandbox}/tools/read_file", json={"path": "/workspace/deeds"})
    return text_of(response.json()).split()


def approve(approval: Any) -> dict[str, str]:
    return {"action": "approve"}


def test_chat_of_two_turns_with_approval(server_and_agent: tuple[Server, str]) -> None:
    server, agent = server_and_agent
    with server.client() as client:
        chat = Chat.create(client, agent=agent, model="one")
        chat.send_message("Write it.")
        assert chat.wait_for_turn_end(approve) == "done"
        approval = chat.events_of("approval.required")[0]["approval"]
        assert "deeds" in str(approval["arguments"]) and approval["kind"] == "code"
        assert [data["state"] for data in chat.events_of("approval.decided")] == ["approved"]
        assert chat.reply_texts() == ["I will write it.", "It is written."] and commands_run(chat) == ["one"]
        tools = [{"name": "paint", "description": "Paint the page."}]
        message = {"id": "2", "role": "user", "content": "Thank you."}
        body = {"threadId": chat.id, "runId": "run", "messages": [message], "tools": tools}
        agui_events = client.post("/v1/agui", json=body).text
        assert '"name": "tools.ignored", "value": {"tools": ["paint"]' in agui_events and "RUN_FINISHED" in agui_events
        assert chat.wait_for_turn_end(approve) == "done"
        assert chat.reply_texts()[-1] == "You are welcome."
        check_order(chat.list_events())
        messages = client.get(f"{chat.path}/messages").json()["items"]
        assert next(each["role"] for each in messages if each["role"] != "tool") == "user"
        exchanges = client.get("/v1/exchanges", params={"session": chat.id}).json()["items"]
        assert len(exchanges) >= 3, "what it asked is kept under the session"
        usage = chat.load_session()["usage"]
        assert usage["requests"] >= 3 and usage["input_tokens"] > 0 and usage["output_tokens"] > 0
        assert chat.events_of("usage.changed")[-1]["usage"] == usage
        assert client.delete(chat.path).status_code == 204


def test_rejected_shell_command_is_not_run(server_and_agent: tuple[Server, str]) -> None:
    server, agent = server_and_agent
    with server.client() as client:
        chat = Chat.create(client, agent=agent, model="one")
        chat.send_message("Write it.")
        assert chat.wait_for_turn_end(lambda approval: {"action": "reject", "reason": "not today"}) in (
            "done",
            "cancelled",
        )
        assert "one" not in commands_run(chat)
        check_order(chat.list_events())
        assert client.delete(chat.path).status_code == 204


def test_exhausted_budget_can_be_raised(server_and_agent: tuple[Server, str]) -> None:
    server, agent = server_and_agent
    with server.client() as client:
        chat = Chat.create(client, agent=agent, model="one", budget=1)
        chat.send_message("Write it.")
        chat.wait_for_turn_end(approve)
        sandbox = chat.load_session()["sandboxes"]["code"]
        chat.send_message("Go on.")
        assert chat.wait_for_turn_end(approve) == "failed"
        assert "of its 1 tokens" in chat.events_of("turn.error")[-1]["message"]
        assert client.patch(chat.path, json={"budget": 10**9}).status_code == 200
        chat.send_message("Now write it.")
        assert chat.wait_for_turn_end(approve) == "done"
        assert commands_run(chat) == ["one"] and chat.load_session()["sandboxes"]["code"] == sandbox
        check_order(chat.list_events())
        assert client.delete(chat.path).status_code == 204


# Every other moment is in the checks of engines, which are quicker.
@pytest.mark.parametrize("moment", ["message.started", "approval.decided"])
def test_chat_survives_kill_of_server(server_and_agent: tuple[Server, str], moment: str) -> None:
    server, agent = server_and_agent
    with server.client() as client:
        chat = Chat.create(client, agent=agent, model="one")
        chat.send_message("Write it.")
        if moment == "approval.decided":
            approval = chat.wait_for_event(lambda event: event["type"] == "approval.required")["data"]["approval"]
            assert chat.decide(approve(approval), approval=approval).status_code == 200
        chat.wait_for_event(lambda event: event["type"] == moment)
    server.stop(signal.SIGKILL)
    server.start()
    with server.client() as client:
        chat = chat.on_server(client)
        for approval in client.get(f"{chat.path}/approvals", params={"state": "pending"}).json()["items"]:
            assert chat.decide(approve(approval), approval=approval).status_code == 200
        assert chat.wait_for_turn_end(approve) == "done"
        check_order(chat.list_events())
        assert commands_run(chat).count("one") == 1, "done once, whatever happened"
        chat.send_message("Thank you.")
        assert chat.wait_for_turn_end(approve) == "done"
        assert client.delete(chat.path).status_code == 204
