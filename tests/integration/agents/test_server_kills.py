"""The server is killed while an agent works, between every two things that happen, and goes on where it was."""

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
PARTS, EVERY = 2, 9
"""Tests that share the moments at which the server is killed, and how many moments they leave out between two."""


@pytest.fixture(scope="module", params=SERVER_SIDE)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    directory: Path = tmp_path_factory.mktemp(request.param)
    with run_server(directory, {"llm": scripted(directory, two=SCRIPT), "kinds": CODE}) as server:
        yield server, request.param


def approve(chat: Chat) -> None:
    """Approve everything in the list of pending approvals."""
    waiting = chat.client.get(f"{chat.path}/approvals", params={"state": "pending"}).json()["items"]
    for approval in waiting:
        answer = chat.decide({"action": "approve"}, of=approval)
        assert answer.status_code in (200, 409), answer.text


def finish(chat: Chat) -> str:
    """Work until the turn is over, approving what is asked."""
    approve(chat)
    return chat.until_over(lambda approval: {"action": "approve"})


def until_number(chat: Chat, number: int) -> bool:
    """Go on until an event of this number; False if the turn was over before."""
    for event in chat.follow():
        if event["type"] == "approval.required":
            chat.decide({"action": "approve"}, of=event["data"]["approval"])
        if event["number"] >= number:
            return True
        if event["type"] == "turn.ended" and event["data"]["state"] == "done":
            return False
    raise AssertionError("the stream ended")


def check(chat: Chat) -> None:
    """Nothing is lost, nothing is told twice, and nothing was done twice."""
    check_order(chat.all())
    results = list(chat.told("call.result"))
    commands = _texts(chat, "code_run_shell_command")
    assert len(results) == 3 and len(commands) == 2
    sandbox = chat.now()["sandboxes"]["code"]
    answer = chat.client.post(f"/v1/sandboxes/{sandbox}/tools/read_file", json={"path": "/workspace/deeds"}).json()
    deeds = text_of(answer).split()
    for word, said in (("one", commands[0]), ("two", commands[1])):
        assert deeds.count(word) <= 1, f"{word} was done {deeds.count(word)} times: {said}"
        assert deeds.count(word) == 1 or LOST in said
    assert chat.answers()[-1] == "Both are done."


def _texts(chat: Chat, tool: str) -> list[str]:
    ids = [data["call"]["id"] for data in chat.told("call.ready") if data["call"]["name"] == tool]
    found = {data["call_id"]: text_of(data["result"]) for data in chat.told("call.result")}
    return sorted((found[each] for each in ids), key=lambda said: "two" in said)


@pytest.mark.parametrize("part", range(PARTS))
def test_killed_between_any_two_events(place: tuple[Server, str], part: int) -> None:
    server, engine = place
    with server.client() as client:
        undisturbed = begin(client, engine)
        assert finish(undisturbed) == "done"
        check(undisturbed)
        total = len(undisturbed.seen)
        client.delete(undisturbed.path)
    killed = 0
    moments = range(3 + part, total, PARTS * EVERY)
    for number in moments:
        with server.client() as client:
            chat = begin(client, engine)
            killed += until_number(chat, number)
        server.stop(signal.SIGKILL)
        server.start()
        with server.client() as client:
            chat = chat.at(client)
            if not _over(chat.seen):
                assert finish(chat) == "done", (number, chat.seen[-5:])
            check(chat)
            client.delete(chat.path)
    assert killed > len(moments) // 2, (killed, total)


def test_a_decision_waits_for_the_server(place: tuple[Server, str]) -> None:
    """Pending approvals survive a restart, and count once."""
    server, engine = place
    with server.client() as client:
        chat = begin(client, engine)
        asked = [chat.until(lambda event: event["type"] == "approval.required")["data"]["approval"] for _ in range(2)]
    server.stop(signal.SIGKILL)
    server.start()
    with server.client() as client:
        chat = chat.at(client)
        waiting = client.get(f"{chat.path}/approvals", params={"state": "pending"}).json()["items"]
        assert {each["id"] for each in waiting} == {each["id"] for each in asked}
        assert chat.decide({"action": "approve"}, of=asked[1]).status_code == 200
        assert chat.decide({"action": "approve"}, of=asked[1]).status_code == 409
    server.stop(signal.SIGKILL)
    server.start()
    with server.client() as client:
        chat = chat.at(client)
        assert chat.decide({"action": "reject", "reason": "not today"}, of=asked[0]).status_code == 200
        assert chat.until_over() == "done"
        said = [text_of(data["result"]) for data in chat.told("call.result")]
        assert any("not today" in text for text in said)
        check_order(chat.all())
        client.delete(chat.path)


def begin(client: httpx.Client, engine: str) -> Chat:
    chat = Chat.begin(client, agent=engine, model="two", kinds=["code"])
    chat.say("Do both.")
    return chat


def _over(events: list[dict[str, Any]]) -> bool:
    last: Mapping[str, Any] = next((each for each in reversed(events) if each["type"] == "turn.ended"), {})
    return bool(last) and last["data"]["state"] == "done"
