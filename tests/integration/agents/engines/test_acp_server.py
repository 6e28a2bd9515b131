"""Chats with real agent programs on a real server: turns, approvals, and servers that are killed meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.agents.chat_client import Chat, check_order, scripted, text_of
from tests.integration.runs.agent_images import share_images
from tests.support.server import Server, run_server

# The first builds the images, where they are not there yet.
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
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    directory = tmp_path_factory.mktemp(request.param)
    share_images(directory / "data", [f"agent-{request.param}"])
    settings = {"llm": scripted(directory, one=SCRIPT), "sandboxes": {"min_free_disk": 0}}
    with run_server(directory, settings) as server:
        yield server, request.param


def deeds(chat: Chat) -> list[str]:
    """Return the commands run in the agent's sandbox."""
    sandbox = chat.now()["sandboxes"]["code"]
    answer = chat.client.post(f"/v1/sandboxes/{sandbox}/tools/read_file", json={"path": "/workspace/deeds"})
    return text_of(answer.json()).split()


def approve(approval: Any) -> dict[str, str]:
    return {"action": "approve"}


def test_a_chat_of_two_turns_with_an_approval_between(place: tuple[Server, str]) -> None:
    server, agent = place
    with server.client() as client:
        chat = Chat.begin(client, agent=agent, model="one")
        chat.say("Write it.")
        assert chat.until_over(approve) == "done"
        approval = chat.told("approval.required")[0]["approval"]
        assert "deeds" in str(approval["arguments"]) and approval["kind"] == "code"
        assert [data["state"] for data in chat.told("approval.decided")] == ["approved"]
        assert chat.answers() == ["I will write it.", "It is written."] and deeds(chat) == ["one"]
        tools = [{"name": "paint", "description": "Paint the page."}]
        said = {"id": "2", "role": "user", "content": "Thank you."}
        body = {"threadId": chat.id, "runId": "run", "messages": [said], "tools": tools}
        told = client.post("/v1/agui", json=body).text
        assert '"name": "tools.ignored", "value": {"tools": ["paint"]' in told and "RUN_FINISHED" in told
        assert chat.until_over(approve) == "done"
        assert chat.answers()[-1] == "You are welcome."
        check_order(chat.all())
        messages = client.get(f"{chat.path}/messages").json()["items"]
        assert next(each["role"] for each in messages if each["role"] != "tool") == "user"
        exchanges = client.get("/v1/exchanges", params={"session": chat.id}).json()["items"]
        assert len(exchanges) >= 3, "what it asked is kept under the session"
        usage = chat.now()["usage"]
        assert usage["requests"] >= 3 and usage["input_tokens"] > 0 and usage["output_tokens"] > 0
        assert chat.told("usage.changed")[-1]["usage"] == usage
        assert client.delete(chat.path).status_code == 204


def test_what_is_rejected_is_not_done(place: tuple[Server, str]) -> None:
    server, agent = place
    with server.client() as client:
        chat = Chat.begin(client, agent=agent, model="one")
        chat.say("Write it.")
        assert chat.until_over(lambda approval: {"action": "reject", "reason": "not today"}) in ("done", "cancelled")
        assert "one" not in deeds(chat)
        check_order(chat.all())
        assert client.delete(chat.path).status_code == 204


def test_a_budget_that_is_used_up_can_be_raised(place: tuple[Server, str]) -> None:
    server, agent = place
    with server.client() as client:
        chat = Chat.begin(client, agent=agent, model="one", budget=1)
        chat.say("Write it.")
        chat.until_over(approve)
        sandbox = chat.now()["sandboxes"]["code"]
        chat.say("Go on.")
        assert chat.until_over(approve) == "failed"
        assert "of its 1 tokens" in chat.told("turn.error")[-1]["message"]
        assert client.patch(chat.path, json={"budget": 10**9}).status_code == 200
        chat.say("Now write it.")
        assert chat.until_over(approve) == "done"
        assert deeds(chat) == ["one"] and chat.now()["sandboxes"]["code"] == sandbox
        check_order(chat.all())
        assert client.delete(chat.path).status_code == 204


# Every other moment is in the checks of engines, which are quicker.
@pytest.mark.parametrize("moment", ["message.started", "approval.decided"])
def test_the_server_is_killed(place: tuple[Server, str], moment: str) -> None:
    server, agent = place
    with server.client() as client:
        chat = Chat.begin(client, agent=agent, model="one")
        chat.say("Write it.")
        if moment == "approval.decided":
            asked = chat.until(lambda event: event["type"] == "approval.required")["data"]["approval"]
            assert chat.decide(approve(asked), of=asked).status_code == 200
        chat.until(lambda event: event["type"] == moment)
    server.stop(signal.SIGKILL)
    server.start()
    with server.client() as client:
        chat = chat.at(client)
        for approval in client.get(f"{chat.path}/approvals", params={"state": "pending"}).json()["items"]:
            assert chat.decide(approve(approval), of=approval).status_code == 200
        assert chat.until_over(approve) == "done"
        check_order(chat.all())
        assert deeds(chat).count("one") == 1, "done once, whatever happened"
        chat.say("Thank you.")
        assert chat.until_over(approve) == "done"
        assert client.delete(chat.path).status_code == 204
