"""Sessions on a real server: killed while it works, exported, imported, forked and found again."""

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


def test_a_turn_ends_although_the_server_is_killed_in_the_middle_of_a_word(server: Server) -> None:
    with server.client() as client:
        chat = Chat.begin(client, model="slow")
        chat.say("What are pelicans?")
        chat.until(lambda event: event["type"] == "message.delta")
        server.stop(signal.SIGKILL)
    server.start()
    with server.client() as client:
        check_it_went_on(Chat(client, chat.id))


def check_it_went_on(chat: Chat) -> None:
    assert chat.until_over() == "done"
    told = chat.all()
    check_order(told)
    turns = [event["data"].get("cause") for event in told if event["type"] == "turn.started"]
    assert turns == ["message", "restart"]
    said = chat.client.get(f"{chat.path}/messages").json()["items"]
    assert [message["role"] for message in said if not message.get("cut")] == ["user", "assistant"]
    assert said[-1]["content"][0]["text"] == "I think about pelicans."
    assert eventually(lambda: chat.now()["state"] == "idle")


def test_a_session_is_exported_imported_forked_and_found(server: Server) -> None:
    with server.client() as client:
        there_and_back(client)


def there_and_back(client: httpx.Client) -> None:
    chat = Chat.begin(client, model="quick", title="Birds")
    first = chat.say("Tell me of pelicans")
    assert chat.until_over() == "done"
    bundle = client.get(f"{chat.path}/export").content
    answer = client.post("/v1/sessions/import", content=bundle)
    assert answer.status_code == 201, answer.text
    copy = Chat(client, answer.json()["id"])
    old, new = chat.all(), copy.all()
    assert [(event["type"], event["number"]) for event in new] == [(event["type"], event["number"]) for event in old]
    messages = client.get(f"{copy.path}/messages").json()["items"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    fork = client.post(f"{copy.path}/fork", json={"message": first["id"], "title": "Again"}).json()
    assert fork["origin"] == {"session": copy.id, "message": first["id"]} and fork["title"] == "Again"
    found = client.get("/v1/sessions/search", params={"q": "are BIRDS"}).json()["items"]
    assert {chat.id, copy.id} <= {hit["session"] for hit in found} and fork["id"] not in {h["session"] for h in found}
    for session in (copy.id, fork["id"]):
        talk = Chat(client, session)
        talk.say("Go on")
        ended = talk.until(lambda event: event["type"] == "turn.ended" and event["data"]["turn"] == 2)
        assert ended["data"]["state"] == "done"
    assert client.post("/v1/sessions/import", content=b"nonsense").status_code == 400
    for session in (chat.id, copy.id, fork["id"]):
        assert client.delete(f"/v1/sessions/{session}").status_code == 204
        assert client.get(f"/v1/sessions/{session}").status_code == 404
