"""Sandboxes die, people stop, steer, fork and delete, and servers stop while an agent works. Through HTTP."""

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
    with server.client() as made:
        yield made


@pytest.fixture(params=SERVER_SIDE)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def begin(client: httpx.Client, engine: str, model: str) -> Chat:
    kinds = ["code", "other"] if model in ("boxes", "apart") else ["code"]
    return Chat.begin(client, agent=engine, model=model, kinds=kinds, policy={"allow_all": ["*"]})


def sandbox_id(chat: Chat, kind: str = "code") -> str:
    return str(eventually(lambda: chat.now()["sandboxes"].get(kind, "")))


def begun(chat: Chat, kind: str = "code") -> str:
    """Wait until the long command has started, and return the sandbox id."""
    sandbox = sandbox_id(chat, kind)
    eventually(lambda: run_in_sandbox(chat.client, sandbox, "test -e /workspace/begun")[1] == 0)
    return sandbox


def let_go(chat: Chat, kind: str = "code") -> None:
    run_in_sandbox(chat.client, sandbox_id(chat, kind), "touch /workspace/go")


def users(question: list[dict[str, Any]]) -> list[str]:
    return [str(message["content"]) for message in question if message["role"] == "user"]


def said(chat: Chat) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chat.client.get(f"{chat.path}/messages").json()["items"]
    return found


def test_a_sandbox_that_dies_is_made_anew_and_the_other_is_left_alone(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "boxes")
    chat.say("Work in both.")
    first, other = begun(chat), sandbox_id(chat, "other")
    assert client.delete(f"/v1/sandboxes/{first}").status_code == 204
    assert chat.until_over() == "done"
    results = [text_of(data["result"]) for data in chat.told("call.result")]
    assert any("sandbox was lost" in text for text in results), results
    last = next(text for text in results if "kept" in text)
    assert "new code sandbox was created" in last and "/tmp/b" in last and "lost\n" not in last
    assert sum(text.strip() == "here" for text in results) == 2
    sandboxes = chat.now()["sandboxes"]
    assert sandboxes["code"] != first and sandboxes["other"] == other
    check(chat)
    assert client.delete(chat.path).status_code == 204


def test_a_sandbox_whose_programs_are_all_killed_goes_on(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "boxes")
    chat.say("Work in both.")
    first = begun(chat)
    # A command that kills all processes gets no reply.
    with suppress(AssertionError, httpx.HTTPError):
        run_in_sandbox(client, first, "kill -9 -1")
    assert chat.until_over() == "done"
    results = [text_of(data["result"]) for data in chat.told("call.result")]
    assert any("It may or may not have been done" in text for text in results), results
    assert any("kept\nlost" in text for text in results), "its files are as they were"
    assert chat.now()["sandboxes"]["code"] == first
    check(chat)
    assert client.delete(chat.path).status_code == 204


def test_two_sandboxes_work_side_by_side(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "apart")
    chat.say("Work in both.")
    assert begun(chat, "code") != begun(chat, "other"), "both are at it"
    for kind in ("other", "code"):
        let_go(chat, kind)
    assert chat.until_over() == "done"
    assert [text_of(data["result"]).strip() for data in chat.told("call.result")] == ["went", "went"]
    check(chat)
    assert client.delete(chat.path).status_code == 204


def test_cancelled_in_the_middle_of_a_word(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "talking")
    chat.say("Count.")
    chat.until(lambda event: event["type"] == "message.delta")
    assert client.post(f"{chat.path}/cancel").json()["state"] == "idle"
    assert chat.until_over() == "cancelled"
    assert client.post(f"{chat.path}/cancel").status_code == 200, "again does no harm"
    cut = said(chat)[-1]
    assert cut["cut"] == "cancelled" and LONG.startswith(cut["content"][0]["text"])
    chat.say("Stop counting.")
    assert chat.until_over() == "done"
    assert chat.answers()[-1] == "You said: Stop counting."
    assert users(questions(chat)[-1]) == ["Count.", "Stop counting."]
    check(chat)


def test_cancelled_in_the_middle_of_a_command(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "waiting")
    chat.say("Wait.")
    sandbox = begun(chat)
    assert client.post(f"{chat.path}/cancel").json()["state"] == "idle"
    assert chat.until_over() == "cancelled"
    result = chat.results()[SHELL]
    assert result["failed"] and "cancelled" in text_of(result)
    chat.say("Go on.")
    assert chat.until_over() == "done"
    assert "cancelled" in chat.answers()[-1], "the model is told what became of it"
    assert chat.now()["sandboxes"]["code"] == sandbox
    check(chat)
    assert client.delete(chat.path).status_code == 204


def test_what_is_written_while_it_works_is_read_before_the_next_question(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "waiting")
    chat.say("Wait.")
    begun(chat)
    for text in ("Mind the gap.", "And the doors."):
        chat.say(text)
    let_go(chat)
    assert chat.until_over() == "done"
    first, second = questions(chat)
    assert users(first) == ["Wait."]
    assert [message["role"] for message in second][-3:] == ["tool", "user", "user"]
    assert users(second) == ["Wait.", "Mind the gap.", "And the doors."]
    check(chat)
    assert client.delete(chat.path).status_code == 204


def test_ten_sessions_at_once_do_not_mix(server: Server) -> None:
    def talk(number: int) -> None:
        with server.client() as client:
            chat = begin(client, SERVER_SIDE[number % 2], "own")
            mine = f"word{number}"
            chat.say(mine)
            assert chat.until_over() == "done"
            assert chat.answers()[-1].strip() == f"For {mine}: {mine}"
            assert {event["stream"] for event in chat.all()} == {f"session/{chat.id}"}
            written = str([questions(chat), chat.all(), said(chat)])
            assert not any(f"word{other}" in written for other in range(10) if other != number)
            check(chat)
            assert client.delete(chat.path).status_code == 204

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(talk, range(10)))


def test_a_fork_and_its_origin_go_on_apart(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "plain")
    for text in ("What are pelicans?", "And herons?"):
        chat.say(text)
        assert chat.until_over() == "done"
    answer = said(chat)[1]
    made = client.post(f"{chat.path}/fork", json={"message": answer["id"]})
    assert made.status_code == 201, made.text
    fork = Chat(client, made.json()["id"])
    fork.seen = fork.all()
    fork.imported = len(fork.seen)
    assert [message["role"] for message in said(fork)] == ["user", "assistant"]
    fork.say("And storks?")
    chat.say("And gulls?")
    for each, words in ((fork, "And storks?"), (chat, "And gulls?")):
        assert each.until_over() == "done"
        assert each.answers()[-1] == f"You said: {words}"
    assert users(questions(fork)[-1]) == ["What are pelicans?", "And storks?"]
    assert users(questions(chat)[-1]) == ["What are pelicans?", "And herons?", "And gulls?"]
    assert client.delete(chat.path).status_code == 204
    fork.say("And now?")
    assert fork.until_over() == "done"
    check(fork)
    missing = client.post(f"{fork.path}/fork", json={"message": "msg-0"})
    assert missing.status_code == 404


def test_an_export_goes_on_elsewhere(server: Server, tmp_path: Path) -> None:
    settings = {"llm": scripted(tmp_path, **SCRIPTS), "kinds": KINDS}
    with server.client() as here, run_server(tmp_path, settings) as elsewhere, elsewhere.client() as there:
        for engine in SERVER_SIDE:
            chat = begin(here, engine, "own")
            chat.say("pelicans")
            assert chat.until_over() == "done"
            bundle = here.get(f"{chat.path}/export").content
            assert here.delete(chat.path).status_code == 204
            made = there.post("/v1/sessions/import", content=bundle)
            assert made.status_code == 201, made.text
            copy = Chat(there, made.json()["id"])
            copy.seen = copy.all()
            copy.imported = len(copy.seen)
            copy.say("And herons?")
            assert copy.until_over() == "done"
            assert copy.answers()[-1] == "You said: And herons?"
            last = questions(copy)[-1]
            assert users(last) == ["pelicans", "And herons?"]
            assert any("For pelicans" in str(message["content"]) for message in last)
            check(copy)
        for broken in (bundle[: len(bundle) // 2], b"", b"\x1f\x8b" + b"x" * 100):
            assert there.post("/v1/sessions/import", content=broken).status_code == 400


@pytest.mark.parametrize("model", ["waiting", "talking"])
def test_a_session_that_is_deleted_while_it_works_leaves_nothing(server: Server, engine: str, model: str) -> None:
    with server.client() as client:
        chat = begin(client, engine, model)
        chat.say("Begin.")
        if model == "waiting":
            begun(chat)
        else:
            chat.until(lambda event: event["type"] == "message.delta")
        assert client.delete(chat.path).status_code == 204
        assert client.get(chat.path).status_code == 404
        sandboxes = client.get("/v1/sandboxes", params={"pageSize": 200}).json()["items"]
        assert not [each for each in sandboxes if each.get("metadata", {}).get("session") == chat.id]
        assert client.get("/v1/approvals").json()["items"] == []
    assert not [path for path in server.data.rglob(f"*{chat.id}*") if path.exists()]
    assert rows(server, chat.id) == set()


def rows(server: Server, session: str) -> set[str]:
    """Return tables with rows of a session, except events, exchanges and keys."""
    kept = {"events", "streams", "exchanges", "keys"}
    found: set[str] = set()
    with closing(sqlite3.connect(f"file:{server.data / 'paddock.db'}?mode=ro", uri=True)) as database:
        plain = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        tables = [name for (name,) in database.execute(plain)]
        for table in tables:
            if any(session in str(row) for row in database.execute(f'SELECT * FROM "{table}"')):
                found.add(table)
    return found - kept


def test_a_server_that_is_stopped_goes_on_when_it_is_back(server: Server, engine: str) -> None:
    with server.client() as client:
        talking, waiting = (begin(client, engine, model) for model in ("talking", "waiting"))
        for chat in (talking, waiting):
            chat.say("Begin.")
        begun(waiting)
        talking.until(lambda event: event["type"] == "message.delta")
    assert server.stop() == 0
    server.start()
    with server.client() as client:
        talking, waiting = (Chat(client, chat.id) for chat in (talking, waiting))
        assert talking.until_over() == "done"
        assert talking.answers()[-1] == LONG
        check_order(talking.all())
        assert waiting.until_over() == "done"
        assert "running when the server stopped" in text_of(waiting.results()[SHELL])
        assert len(waiting.told("call.result")) == 1, "it was not run again"
        for chat in (talking, waiting):
            chat.say("And now?")
            assert chat.until_over() == "done"
            check(chat)
            assert client.delete(chat.path).status_code == 204
