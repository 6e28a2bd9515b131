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


def last_question(chat: Chat) -> list[Any]:
    """Return the last model request without the system prompt."""
    return [str(message["content"]) for message in questions(chat)[-1][1:]]


@pytest.mark.parametrize("engine", SERVER_SIDE)
@pytest.mark.parametrize("moment", ["message.delta", "call.running"])
def test_message_during_cancelled_turn_is_read_in_next_turn(server: Server, engine: str, moment: str) -> None:
    with server.client() as client:
        chat = Chat.create(client, model="sleeper", agent=engine, **FREE)
        chat.send_message("sleep for me")
        chat.wait_for_event(lambda event: event["type"] == moment)
        assert chat.send_message("And buy a pelican.")["turn"] == 1
        if moment == "message.delta":
            chat.wait_for_event(lambda event: event["type"] == "call.running")
        assert client.post(f"{chat.path}/cancel").status_code == 200
        assert chat.wait_for_turn_end() == "cancelled"
        chat.send_message("Well?")
        assert chat.wait_for_turn_end() == "done"
        texts = last_question(chat)
        assert texts.count("And buy a pelican.") == 1 and texts[-1] == "Well?"
        check(chat)
        assert client.delete(chat.path).status_code == 204


@pytest.mark.parametrize("engine", SERVER_SIDE)
def test_fork_and_import_can_be_continued(server: Server, engine: str) -> None:
    with server.client() as client:
        chat = Chat.create(client, model="talker", agent=engine, kinds=[])
        chat.send_message("Say that you are done.")
        assert chat.wait_for_turn_end() == "done"
        fork = client.post(f"{chat.path}/fork", json={}).json()
        bundle = client.get(f"{chat.path}/export").content
        imported = client.post("/v1/sessions/import", content=bundle).json()
        for session in (fork["id"], imported["id"], chat.id):
            copy = Chat(client, session)
            copy.imported_event_count = len(copy.list_events()) if session == imported["id"] else 0
            assert client.post(f"{copy.path}/continue").status_code == 202
            copy.wait_for_event(lambda event: event["type"] == "turn.started" and event["data"]["cause"] == "continue")
            assert copy.wait_for_turn_end() == "done"
            assert last_question(copy) == ["Say that you are done.", "Done.", "[note] Go on from where you were."]
            assert copy.reply_texts()[-1] == "I go on." and copy.load_session()["turn"] == 2
            messages = client.get(f"{copy.path}/messages").json()["items"]
            assert [message["role"] for message in messages] == ["user", "assistant", "note", "assistant"]


@pytest.mark.parametrize("engine", SERVER_SIDE)
def test_message_cut_by_crash_is_ended_after_restart(server: Server, engine: str) -> None:
    with server.client() as client:
        chat = Chat.create(client, model="slow", agent=engine, kinds=[])
        chat.send_message("Talk.")
        message_id = chat.wait_for_event(lambda event: event["type"] == "message.delta")["data"]["message_id"]
    server.stop(signal.SIGKILL)
    server.start()
    with server.client() as client:
        chat = chat.on_server(client)
        assert client.post(f"{chat.path}/cancel").status_code == 200
        assert chat.wait_for_turn_end() == "cancelled"
        (ended,) = [each for each in chat.events_of("message.ended") if each["message_id"] == message_id]
        assert ended["cut"] == "restart" and ended["text"].startswith("word0")
        check_order(chat.list_events())


def test_deleted_session_leaves_nothing(server: Server) -> None:
    with server.client() as client:
        chat = Chat.create(client, model="sleeper", agent="langgraph", **FREE)
        chat.send_message("sleep for me, pelican")
        chat.wait_for_event(lambda event: event["type"] == "call.running")
        sandbox = eventually(lambda: chat.load_session()["sandboxes"].get("code"))
        volumes = server.data / "volumes"
        session_volumes = [path for path in volumes.rglob("*") if chat.id in path.name]
        assert session_volumes
        assert client.delete(chat.path).status_code == 204
        assert not any(path.exists() for path in session_volumes)
        assert client.get(f"/v1/sandboxes/{sandbox}").status_code == 404
        headers = {"Accept": "application/json"}
        events, after = [], 0
        while page := client.get("/v1/events", params={"after": after, "limit": 1000}, headers=headers).json()["items"]:
            events += [event for event in page if event["stream"] == f"session/{chat.id}"]
            after = page[-1]["sequence"]
        assert [event["type"] for event in events] == ["session.deleted"]
