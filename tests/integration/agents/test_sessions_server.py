"""Sessions on a real server: kills, export, import, forks and search."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import httpx
import pytest

from tests.integration.agents.chat_client import Chat, check_order, scripted
from tests.support.server import Server, eventually, run_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("sessions")
    quick = {"turns": [{"say": "Pelicans are birds."}], "otherwise": {"say": "Nothing to add."}}
    slow = {"turns": [[{"say": "I think about "}, {"stall": "3s"}, {"say": "pelicans."}]], "pace": "5ms"}
    settings = {"llm": scripted(directory, quick=quick, slow=slow), "chat": {"kinds": ["code"]}}
    with run_server(directory, settings) as running:
        yield running


def test_turn_ends_after_server_kill_during_message(server: Server) -> None:
    with server.client() as client:
        chat = Chat.create(client, model="slow")
        chat.send_message("What are pelicans?")
        chat.wait_for_event(lambda event: event["type"] == "message.delta")
        server.stop(signal.SIGKILL)
    server.start()
    with server.client() as client:
        check_resumed_turn(Chat(client, chat.id))


def check_resumed_turn(chat: Chat) -> None:
    assert chat.wait_for_turn_end() == "done"
    events = chat.list_events()
    check_order(events)
    turns = [event["data"].get("cause") for event in events if event["type"] == "turn.started"]
    assert turns == ["message", "restart"]
    messages = chat.client.get(f"{chat.path}/messages").json()["items"]
    assert [message["role"] for message in messages if not message.get("cut")] == ["user", "assistant"]
    assert messages[-1]["content"][0]["text"] == "I think about pelicans."
    assert eventually(lambda: chat.load_session()["state"] == "idle")


def test_session_is_exported_imported_forked_and_found(server: Server) -> None:
    with server.client() as client:
        check_export_import_fork(client)


def check_export_import_fork(client: httpx.Client) -> None:
    chat = Chat.create(client, model="quick", title="Birds")
    first = chat.send_message("Tell me of pelicans")
    assert chat.wait_for_turn_end() == "done"
    bundle = client.get(f"{chat.path}/export").content
    response = client.post("/v1/sessions/import", content=bundle)
    assert response.status_code == 201, response.text
    copy = Chat(client, response.json()["id"])
    original_events, copied_events = chat.list_events(), copy.list_events()
    assert [(event["type"], event["number"]) for event in copied_events] == [
        (event["type"], event["number"]) for event in original_events
    ]
    messages = client.get(f"{copy.path}/messages").json()["items"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    fork = client.post(f"{copy.path}/fork", json={"message": first["id"], "title": "Again"}).json()
    assert fork["origin"] == {"session": copy.id, "message": first["id"]} and fork["title"] == "Again"
    hits = client.get("/v1/sessions/search", params={"q": "are BIRDS"}).json()["items"]
    assert {chat.id, copy.id} <= {hit["session"] for hit in hits} and fork["id"] not in {h["session"] for h in hits}
    for session in (copy.id, fork["id"]):
        continued = Chat(client, session)
        continued.send_message("Go on")
        ended = continued.wait_for_event(lambda event: event["type"] == "turn.ended" and event["data"]["turn"] == 2)
        assert ended["data"]["state"] == "done"
    assert client.post("/v1/sessions/import", content=b"nonsense").status_code == 400
    for session in (chat.id, copy.id, fork["id"]):
        assert client.delete(f"/v1/sessions/{session}").status_code == 204
        assert client.get(f"/v1/sessions/{session}").status_code == 404
