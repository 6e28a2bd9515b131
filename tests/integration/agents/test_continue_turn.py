"""Turns that were stopped, copied or killed, and how the agent continues."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agents.chat_client import CODE, SERVER_SIDE, Chat, call, check, check_order, questions, scripted
from tests.support.server import Server, eventually, run_server

SLEEPS = [
    {"say": "I sleep now, for a good long while, and then wake up again."},
    call("code_run_shell_command", command="sleep 300"),
]
SLEEPER = {"pace": "100ms", "rules": [{"when": {"last": "sleep for me"}, "do": SLEEPS}], "turns": [{"say": "Heard."}]}
TALKER = {"rules": [{"when": {"last": "Go on from"}, "do": [{"say": "I go on."}]}], "otherwise": {"say": "Done."}}
SLOW = {"pace": "200ms", "turns": [{"say": " ".join(f"word{number}" for number in range(500))}]}
FREE = {"kinds": ["code"], "policy": {"allow_all": ["code"]}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("going")
    llm = scripted(directory, sleeper=SLEEPER, talker=TALKER, slow=SLOW)
    with run_server(directory, {"llm": llm, "kinds": CODE}) as running:
        yield running


def asked(chat: Chat) -> list[Any]:
    """Return the last model request without the system prompt."""
    return [str(message["content"]) for message in questions(chat)[-1][1:]]


@pytest.mark.parametrize("engine", SERVER_SIDE)
@pytest.mark.parametrize("moment", ["message.delta", "call.running"])
def test_what_was_written_in_a_turn_that_is_cancelled_is_read_in_the_next(
    server: Server, engine: str, moment: str
) -> None:
    with server.client() as client:
        chat = Chat.begin(client, model="sleeper", agent=engine, **FREE)
        chat.say("sleep for me")
        chat.until(lambda event: event["type"] == moment)
        assert chat.say("And buy a pelican.")["turn"] == 1
        if moment == "message.delta":
            chat.until(lambda event: event["type"] == "call.running")
        assert client.post(f"{chat.path}/cancel").status_code == 200
        assert chat.until_over() == "cancelled"
        chat.say("Well?")
        assert chat.until_over() == "done"
        told = asked(chat)
        assert told.count("And buy a pelican.") == 1 and told[-1] == "Well?"
        check(chat)
        assert client.delete(chat.path).status_code == 204


@pytest.mark.parametrize("engine", SERVER_SIDE)
def test_a_copy_goes_on_after_its_last_turn(server: Server, engine: str) -> None:
    with server.client() as client:
        chat = Chat.begin(client, model="talker", agent=engine, kinds=[])
        chat.say("Say that you are done.")
        assert chat.until_over() == "done"
        fork = client.post(f"{chat.path}/fork", json={}).json()
        bundle = client.get(f"{chat.path}/export").content
        imported = client.post("/v1/sessions/import", content=bundle).json()
        for session in (fork["id"], imported["id"], chat.id):
            copy = Chat(client, session)
            copy.imported = len(copy.all()) if session == imported["id"] else 0
            assert client.post(f"{copy.path}/continue").status_code == 202
            copy.until(lambda event: event["type"] == "turn.started" and event["data"]["cause"] == "continue")
            assert copy.until_over() == "done"
            assert asked(copy) == ["Say that you are done.", "Done.", "[note] Go on from where you were."]
            assert copy.answers()[-1] == "I go on." and copy.now()["turn"] == 2
            said = client.get(f"{copy.path}/messages").json()["items"]
            assert [message["role"] for message in said] == ["user", "assistant", "note", "assistant"]


@pytest.mark.parametrize("engine", SERVER_SIDE)
def test_a_message_that_was_cut_by_a_crash_is_ended_at_the_next_start(server: Server, engine: str) -> None:
    with server.client() as client:
        chat = Chat.begin(client, model="slow", agent=engine, kinds=[])
        chat.say("Talk.")
        begun = chat.until(lambda event: event["type"] == "message.delta")["data"]["message_id"]
    server.stop(signal.SIGKILL)
    server.start()
    with server.client() as client:
        chat = chat.at(client)
        assert client.post(f"{chat.path}/cancel").status_code == 200
        assert chat.until_over() == "cancelled"
        (ended,) = [each for each in chat.told("message.ended") if each["message_id"] == begun]
        assert ended["cut"] == "restart" and ended["text"].startswith("word0")
        check_order(chat.all())


def test_nothing_is_left_of_a_session_that_is_deleted(server: Server) -> None:
    with server.client() as client:
        chat = Chat.begin(client, model="sleeper", agent="langgraph", **FREE)
        chat.say("sleep for me, pelican")
        chat.until(lambda event: event["type"] == "call.running")
        sandbox = eventually(lambda: chat.now()["sandboxes"].get("code"))
        volumes = server.data / "volumes"
        mine = [path for path in volumes.rglob("*") if chat.id in path.name]
        assert mine
        assert client.delete(chat.path).status_code == 204
        assert not any(path.exists() for path in mine)
        assert client.get(f"/v1/sandboxes/{sandbox}").status_code == 404
        headers = {"Accept": "application/json"}
        told, after = [], 0
        while page := client.get("/v1/events", params={"after": after, "limit": 1000}, headers=headers).json()["items"]:
            told += [event for event in page if event["stream"] == f"session/{chat.id}"]
            after = page[-1]["sequence"]
        assert [event["type"] for event in told] == ["session.deleted"]
