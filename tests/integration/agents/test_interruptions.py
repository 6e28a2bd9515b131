"""Interruptions over HTTP: sandboxes end, users cancel, fork and delete, and servers stop while an agent works."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

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
from tests.support.server import Server, eventually, run_in_sandbox, run_server

SHELL, OTHER = "code_run_shell_command", "other_run_shell_command"
KINDS = {**CODE, "other": {"image": "host", "title": "Another", "description": "A second computer."}}
WAIT = "touch /workspace/begun; until [ -e /workspace/go ]; do sleep 0.05; done; echo went"
LONG = "one two three four five six seven eight nine ten " * 40
ECHO = {"say": "You said: {{ prompt }}"}
SCRIPTS: dict[str, Any] = {
    "boxes": {
        "turns": [
            [call(SHELL, command="echo kept > a; echo lost > /tmp/b"), call(OTHER, command="echo here > /tmp/c")],
            [call(SHELL, command="touch begun; sleep 60"), call(OTHER, command="cat /tmp/c")],
            [call(SHELL, command="cat a; cat /tmp/b"), call(OTHER, command="cat /tmp/c")],
            {"say": "It says: {{ tool.output }}"},
        ]
    },
    "apart": {
        "turns": [
            [call(SHELL, command=WAIT), call(OTHER, command=WAIT)],
            {"say": "It says: {{ tool.output }}"},
        ]
    },
    "waiting": {"turns": [[call(SHELL, command=WAIT)], {"say": "It says: {{ tool.output }}"}], "otherwise": ECHO},
    "talking": {"pace": "20ms", "turns": [{"say": LONG}], "otherwise": ECHO},
    "own": {
        "turns": [
            [{"say": "I look."}, call(SHELL, command="echo {{ prompt }} >> mine; cat mine")],
            {"say": "For {{ prompt }}: {{ tool.output }}"},
        ],
        "otherwise": ECHO,
    },
    "plain": {"turns": [{"say": "Pelicans are birds."}], "otherwise": ECHO},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("interruptions")
    with run_server(directory, {"llm": scripted(directory, **SCRIPTS), "kinds": KINDS}) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as response:
        yield response


@pytest.fixture(params=SERVER_SIDE)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def begin(client: httpx.Client, engine: str, model: str) -> Chat:
    kinds = ["code", "other"] if model in ("boxes", "apart") else ["code"]
    return Chat.create(client, agent=engine, model=model, kinds=kinds, policy={"allow_all": ["*"]})


def sandbox_id(chat: Chat, kind: str = "code") -> str:
    return str(eventually(lambda: chat.load_session()["sandboxes"].get(kind, "")))


def wait_until_started(chat: Chat, kind: str = "code") -> str:
    """Wait until the long command has started, and return the sandbox id."""
    sandbox = sandbox_id(chat, kind)
    eventually(lambda: run_in_sandbox(chat.client, sandbox, "test -e /workspace/begun")[1] == 0)
    return sandbox


def release_command(chat: Chat, kind: str = "code") -> None:
    run_in_sandbox(chat.client, sandbox_id(chat, kind), "touch /workspace/go")


def user_texts(question: list[dict[str, Any]]) -> list[str]:
    return [str(message["content"]) for message in question if message["role"] == "user"]


def list_messages(chat: Chat) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = chat.client.get(f"{chat.path}/messages").json()["items"]
    return messages


def test_deleted_sandbox_is_replaced_and_the_other_one_stays(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "boxes")
    chat.send_message("Work in both.")
    first, other = wait_until_started(chat), sandbox_id(chat, "other")
    assert client.delete(f"/v1/sandboxes/{first}").status_code == 204
    assert chat.wait_for_turn_end() == "done"
    results = [text_of(data["result"]) for data in chat.events_of("call.result")]
    assert any("sandbox was lost" in text for text in results), results
    last = next(text for text in results if "kept" in text)
    assert "new code sandbox was created" in last and "/tmp/b" in last and "lost\n" not in last
    assert sum(text.strip() == "here" for text in results) == 2
    sandboxes = chat.load_session()["sandboxes"]
    assert sandboxes["code"] != first and sandboxes["other"] == other
    check(chat)
    assert client.delete(chat.path).status_code == 204


def test_sandbox_survives_kill_of_all_its_processes(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "boxes")
    chat.send_message("Work in both.")
    first = wait_until_started(chat)
    # A command that kills all processes gets no reply.
    with suppress(AssertionError, httpx.HTTPError):
        run_in_sandbox(client, first, "kill -9 -1")
    assert chat.wait_for_turn_end() == "done"
    results = [text_of(data["result"]) for data in chat.events_of("call.result")]
    assert any("It may or may not have been done" in text for text in results), results
    assert any("kept\nlost" in text for text in results), "its files are as they were"
    assert chat.load_session()["sandboxes"]["code"] == first
    check(chat)
    assert client.delete(chat.path).status_code == 204


def test_two_sandboxes_work_concurrently(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "apart")
    chat.send_message("Work in both.")
    assert wait_until_started(chat, "code") != wait_until_started(chat, "other"), "both are at it"
    for kind in ("other", "code"):
        release_command(chat, kind)
    assert chat.wait_for_turn_end() == "done"
    assert [text_of(data["result"]).strip() for data in chat.events_of("call.result")] == ["went", "went"]
    check(chat)
    assert client.delete(chat.path).status_code == 204


def test_turn_cancelled_during_a_message(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "talking")
    chat.send_message("Count.")
    chat.wait_for_event(lambda event: event["type"] == "message.delta")
    assert client.post(f"{chat.path}/cancel").json()["state"] == "idle"
    assert chat.wait_for_turn_end() == "cancelled"
    assert client.post(f"{chat.path}/cancel").status_code == 200, "again does no harm"
    cut = list_messages(chat)[-1]
    assert cut["cut"] == "cancelled" and LONG.startswith(cut["content"][0]["text"])
    chat.send_message("Stop counting.")
    assert chat.wait_for_turn_end() == "done"
    assert chat.reply_texts()[-1] == "You said: Stop counting."
    assert user_texts(questions(chat)[-1]) == ["Count.", "Stop counting."]
    check(chat)


def test_turn_cancelled_during_a_command(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "waiting")
    chat.send_message("Wait.")
    sandbox = wait_until_started(chat)
    assert client.post(f"{chat.path}/cancel").json()["state"] == "idle"
    assert chat.wait_for_turn_end() == "cancelled"
    result = chat.results_by_tool()[SHELL]
    assert result["failed"] and "cancelled" in text_of(result)
    chat.send_message("Go on.")
    assert chat.wait_for_turn_end() == "done"
    assert "cancelled" in chat.reply_texts()[-1], "the model gets the result"
    assert chat.load_session()["sandboxes"]["code"] == sandbox
    check(chat)
    assert client.delete(chat.path).status_code == 204


def test_messages_during_turn_are_read_before_next_question(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "waiting")
    chat.send_message("Wait.")
    wait_until_started(chat)
    for text in ("Mind the gap.", "And the doors."):
        chat.send_message(text)
    release_command(chat)
    assert chat.wait_for_turn_end() == "done"
    first, second = questions(chat)
    assert user_texts(first) == ["Wait."]
    assert [message["role"] for message in second][-3:] == ["tool", "user", "user"]
    assert user_texts(second) == ["Wait.", "Mind the gap.", "And the doors."]
    check(chat)
    assert client.delete(chat.path).status_code == 204


def test_ten_concurrent_sessions_do_not_mix(server: Server) -> None:
    def run_chat(number: int) -> None:
        with server.client() as client:
            chat = begin(client, SERVER_SIDE[number % 2], "own")
            own_word = f"word{number}"
            chat.send_message(own_word)
            assert chat.wait_for_turn_end() == "done"
            assert chat.reply_texts()[-1].strip() == f"For {own_word}: {own_word}"
            assert {event["stream"] for event in chat.list_events()} == {f"session/{chat.id}"}
            everything = str([questions(chat), chat.list_events(), list_messages(chat)])
            assert not any(f"word{other}" in everything for other in range(10) if other != number)
            check(chat)
            assert client.delete(chat.path).status_code == 204

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(run_chat, range(10)))


def test_fork_and_origin_continue_independently(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "plain")
    for text in ("What are pelicans?", "And herons?"):
        chat.send_message(text)
        assert chat.wait_for_turn_end() == "done"
    reply = list_messages(chat)[1]
    response = client.post(f"{chat.path}/fork", json={"message": reply["id"]})
    assert response.status_code == 201, response.text
    fork = Chat(client, response.json()["id"])
    fork.seen_events = fork.list_events()
    fork.imported_event_count = len(fork.seen_events)
    assert [message["role"] for message in list_messages(fork)] == ["user", "assistant"]
    fork.send_message("And storks?")
    chat.send_message("And gulls?")
    for each, words in ((fork, "And storks?"), (chat, "And gulls?")):
        assert each.wait_for_turn_end() == "done"
        assert each.reply_texts()[-1] == f"You said: {words}"
    assert user_texts(questions(fork)[-1]) == ["What are pelicans?", "And storks?"]
    assert user_texts(questions(chat)[-1]) == ["What are pelicans?", "And herons?", "And gulls?"]
    assert client.delete(chat.path).status_code == 204
    fork.send_message("And now?")
    assert fork.wait_for_turn_end() == "done"
    check(fork)
    missing = client.post(f"{fork.path}/fork", json={"message": "msg-0"})
    assert missing.status_code == 404


def test_exported_session_continues_on_another_server(server: Server, tmp_path: Path) -> None:
    settings = {"llm": scripted(tmp_path, **SCRIPTS), "kinds": KINDS}
    with (
        server.client() as first_client,
        run_server(tmp_path, settings) as second_server,
        second_server.client() as second_client,
    ):
        for engine in SERVER_SIDE:
            chat = begin(first_client, engine, "own")
            chat.send_message("pelicans")
            assert chat.wait_for_turn_end() == "done"
            bundle = first_client.get(f"{chat.path}/export").content
            assert first_client.delete(chat.path).status_code == 204
            response = second_client.post("/v1/sessions/import", content=bundle)
            assert response.status_code == 201, response.text
            copy = Chat(second_client, response.json()["id"])
            copy.seen_events = copy.list_events()
            copy.imported_event_count = len(copy.seen_events)
            copy.send_message("And herons?")
            assert copy.wait_for_turn_end() == "done"
            assert copy.reply_texts()[-1] == "You said: And herons?"
            last = questions(copy)[-1]
            assert user_texts(last) == ["pelicans", "And herons?"]
            assert any("For pelicans" in str(message["content"]) for message in last)
            check(copy)
        for broken in (bundle[: len(bundle) // 2], b"", b"\x1f\x8b" + b"x" * 100):
            assert second_client.post("/v1/sessions/import", content=broken).status_code == 400


@pytest.mark.parametrize("model", ["waiting", "talking"])
def test_session_deleted_during_turn_leaves_nothing(server: Server, engine: str, model: str) -> None:
    with server.client() as client:
        chat = begin(client, engine, model)
        chat.send_message("Begin.")
        if model == "waiting":
            wait_until_started(chat)
        else:
            chat.wait_for_event(lambda event: event["type"] == "message.delta")
        assert client.delete(chat.path).status_code == 204
        assert client.get(chat.path).status_code == 404
        sandboxes = client.get("/v1/sandboxes", params={"pageSize": 200}).json()["items"]
        assert not [each for each in sandboxes if each.get("metadata", {}).get("session") == chat.id]
        assert client.get("/v1/approvals").json()["items"] == []
    assert not [path for path in server.data.rglob(f"*{chat.id}*") if path.exists()]
    assert tables_with_rows(server, chat.id) == set()


def tables_with_rows(server: Server, session: str) -> set[str]:
    """Return tables with rows of a session, except events, exchanges and keys."""
    allowed = {"events", "streams", "exchanges", "keys"}
    tables_found: set[str] = set()
    with closing(sqlite3.connect(f"file:{server.data / 'paddock.db'}?mode=ro", uri=True)) as database:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        tables = [name for (name,) in database.execute(query)]
        for table in tables:
            if any(session in str(row) for row in database.execute(f'SELECT * FROM "{table}"')):
                tables_found.add(table)
    return tables_found - allowed


def test_turns_continue_after_server_restart(server: Server, engine: str) -> None:
    with server.client() as client:
        replying, waiting = (begin(client, engine, model) for model in ("talking", "waiting"))
        for chat in (replying, waiting):
            chat.send_message("Begin.")
        wait_until_started(waiting)
        replying.wait_for_event(lambda event: event["type"] == "message.delta")
    assert server.stop() == 0
    server.start()
    with server.client() as client:
        replying, waiting = (Chat(client, chat.id) for chat in (replying, waiting))
        assert replying.wait_for_turn_end() == "done"
        assert replying.reply_texts()[-1] == LONG
        check_order(replying.list_events())
        assert waiting.wait_for_turn_end() == "done"
        assert "running when the server stopped" in text_of(waiting.results_by_tool()[SHELL])
        assert len(waiting.events_of("call.result")) == 1, "it was not run again"
        for chat in (replying, waiting):
            chat.send_message("And now?")
            assert chat.wait_for_turn_end() == "done"
            check(chat)
            assert client.delete(chat.path).status_code == 204
