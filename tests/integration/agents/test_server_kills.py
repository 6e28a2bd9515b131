"""The server is killed between any two events of a turn, and continues it after its restart."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.agents.chat_client import CODE, SERVER_SIDE, Chat, call, check_order, scripted, text_of
from tests.support.server import Server, run_server

ONE, TWO = "echo one >> /workspace/deeds; echo did one", "echo two >> /workspace/deeds; echo did two"
SCRIPT = {
    "pace": "2ms",
    "turns": [
        [
            {"think": "Two things are to be done."},
            {"say": "I will do both, one beside the other, and then tell you how it went."},
            call("code_run_shell_command", command=ONE),
            call("code_run_shell_command", command=TWO),
        ],
        [{"say": "Now I look."}, call("code_read_file", path="/workspace/deeds")],
        {"say": "Both are done."},
        {"say": "You are welcome."},
    ],
}
LOST = "running when the server stopped"
PARTS, INTERVAL = 2, 9
"""Number of tests that share the kill points, and distance between two kill points."""


@pytest.fixture(scope="module", params=SERVER_SIDE)
def server_and_engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, str]]:
    directory: Path = tmp_path_factory.mktemp(request.param)
    with run_server(directory, {"llm": scripted(directory, two=SCRIPT), "kinds": CODE}) as server:
        yield server, request.param


def approve_pending(chat: Chat) -> None:
    """Approve everything in the list of pending approvals."""
    pending = chat.client.get(f"{chat.path}/approvals", params={"state": "pending"}).json()["items"]
    for approval in pending:
        response = chat.decide({"action": "approve"}, approval=approval)
        assert response.status_code in (200, 409), response.text


def run_to_end(chat: Chat) -> str:
    """Approve all calls until the turn ends, and return its state."""
    approve_pending(chat)
    return chat.wait_for_turn_end(lambda approval: {"action": "approve"})


def until_number(chat: Chat, number: int) -> bool:
    """Run until the event with this number; return False if the turn ended before."""
    for event in chat.follow():
        if event["type"] == "approval.required":
            chat.decide({"action": "approve"}, approval=event["data"]["approval"])
        if event["number"] >= number:
            return True
        if event["type"] == "turn.ended" and event["data"]["state"] == "done":
            return False
    raise AssertionError("the stream ended")


def check(chat: Chat) -> None:
    """Check that nothing is lost, emitted twice or run twice."""
    check_order(chat.list_events())
    results = list(chat.events_of("call.result"))
    commands = _texts(chat, "code_run_shell_command")
    assert len(results) == 3 and len(commands) == 2
    sandbox = chat.load_session()["sandboxes"]["code"]
    response = chat.client.post(f"/v1/sandboxes/{sandbox}/tools/read_file", json={"path": "/workspace/deeds"}).json()
    done_words = text_of(response).split()
    for word, result_text in (("one", commands[0]), ("two", commands[1])):
        assert done_words.count(word) <= 1, f"{word} was done {done_words.count(word)} times: {result_text}"
        assert done_words.count(word) == 1 or LOST in result_text
    assert chat.reply_texts()[-1] == "Both are done."


def _texts(chat: Chat, tool: str) -> list[str]:
    ids = [data["call"]["id"] for data in chat.events_of("call.ready") if data["call"]["name"] == tool]
    texts = {data["call_id"]: text_of(data["result"]) for data in chat.events_of("call.result")}
    return sorted((texts[each] for each in ids), key=lambda text: "two" in text)


@pytest.mark.parametrize("part", range(PARTS))
def test_killed_between_any_two_events(server_and_engine: tuple[Server, str], part: int) -> None:
    server, engine = server_and_engine
    with server.client() as client:
        undisturbed = start_chat(client, engine)
        assert run_to_end(undisturbed) == "done"
        check(undisturbed)
        total = len(undisturbed.seen_events)
        client.delete(undisturbed.path)
    kill_count = 0
    moments = range(3 + part, total, PARTS * INTERVAL)
    for number in moments:
        with server.client() as client:
            chat = start_chat(client, engine)
            kill_count += until_number(chat, number)
        server.stop(signal.SIGKILL)
        server.start()
        with server.client() as client:
            chat = chat.on_server(client)
            if not _is_turn_done(chat.seen_events):
                assert run_to_end(chat) == "done", (number, chat.seen_events[-5:])
            check(chat)
            client.delete(chat.path)
    assert kill_count > len(moments) // 2, (kill_count, total)


def test_pending_approvals_survive_server_kills(server_and_engine: tuple[Server, str]) -> None:
    """Pending approvals survive a restart, and count once."""
    server, engine = server_and_engine
    with server.client() as client:
        chat = start_chat(client, engine)
        approvals = [
            chat.wait_for_event(lambda event: event["type"] == "approval.required")["data"]["approval"]
            for _ in range(2)
        ]
    server.stop(signal.SIGKILL)
    server.start()
    with server.client() as client:
        chat = chat.on_server(client)
        pending = client.get(f"{chat.path}/approvals", params={"state": "pending"}).json()["items"]
        assert {each["id"] for each in pending} == {each["id"] for each in approvals}
        assert chat.decide({"action": "approve"}, approval=approvals[1]).status_code == 200
        assert chat.decide({"action": "approve"}, approval=approvals[1]).status_code == 409
    server.stop(signal.SIGKILL)
    server.start()
    with server.client() as client:
        chat = chat.on_server(client)
        assert chat.decide({"action": "reject", "reason": "not today"}, approval=approvals[0]).status_code == 200
        assert chat.wait_for_turn_end() == "done"
        result_texts = [text_of(data["result"]) for data in chat.events_of("call.result")]
        assert any("not today" in text for text in result_texts)
        check_order(chat.list_events())
        client.delete(chat.path)


def start_chat(client: httpx.Client, engine: str) -> Chat:
    chat = Chat.create(client, agent=engine, model="two", kinds=["code"])
    chat.send_message("Do both.")
    return chat


def _is_turn_done(events: list[dict[str, Any]]) -> bool:
    last: Mapping[str, Any] = next((each for each in reversed(events) if each["type"] == "turn.ended"), {})
    return bool(last) and last["data"]["state"] == "done"
