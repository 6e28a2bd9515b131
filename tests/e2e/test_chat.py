"""`paddock chat` and `paddock session`, as people and programs use them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli_driver import Server
from tests.e2e.test_shell import TerminalWindow

SCRIPTS: dict[str, Any] = {
    "plain": {"each_prompt": True, "turns": [{"say": "Six times seven is **42**."}]},
    "command": {
        "turns": [
            [
                {"say": "I will look."},
                {"call": {"tool": "code_run_shell_command", "arguments": {"command": "echo 6*7 is $((6 * 7))"}}},
            ],
            {"say": "It said: {{ tool.output }}"},
        ],
        "otherwise": {"say": "Gladly."},
    },
    "question": {
        "turns": [
            {"call": {"tool": "ask_user", "arguments": {"question": "Which one?", "choices": ["red", "green"]}}},
            {"say": "You want {{ tool.output }}."},
        ]
    },
    "slow": {"pace": "50ms", "each_prompt": True, "turns": [{"say": "on and on " * 300}]},
    "broken": {"turns": [{"fail": {"status": 400, "message": "I do not like this."}}], "otherwise": {"say": "Well."}},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("chat")
    providers = {}
    for name, script in SCRIPTS.items():
        path = directory / f"{name}.yaml"
        path.write_text(json.dumps(script))
        providers[name] = {"kind": "script", "file": str(path), "retries": 0}
    llm = {"environment": False, "providers": providers, "models": {name: name for name in SCRIPTS}}
    data = directory / "data"
    data.mkdir(mode=0o700)
    (directory / "paddock.yaml").write_text(json.dumps({"llm": llm, "kinds": {"code": {"image": "host"}}}))
    made = Server(data)
    made.env["PADDOCK_CONFIG"] = str(directory / "paddock.yaml")
    made.up()
    yield made
    for session in made.json("session", "list"):
        made.run("session", "rm", session["id"])
    assert made.down() == 0


def one_answer(server: Server, model: str, *words: str) -> str:
    """The id of a session in which one thing was said and answered."""
    told = server.text("chat", "Go ahead.", "--model", model, "--json", *words)
    return str(json.loads(told.splitlines()[0])["stream"]).removeprefix("session/")


def test_an_answer_in_a_pipe(server: Server) -> None:
    done = server.run("chat", "--model", "plain", stdin=b"What is six times seven?")
    assert (done.returncode, done.stdout.decode().strip()) == (0, "Six times seven is **42**.")


def test_every_event_for_programs(server: Server) -> None:
    done = server.run("chat", "Go ahead.", "--model", "plain", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and events[-1]["data"] == {"turn": 1, "state": "done"}
    numbers = [event["number"] for event in events]
    assert numbers == sorted(set(numbers))


def test_in_a_pipe_nobody_decides(server: Server) -> None:
    done = server.run("chat", "Go ahead.", "--model", "command")
    assert done.returncode == 3
    assert b"an approval is pending" in done.stderr and b"paddock chat --resume ses-" in done.stderr


def test_nothing_is_asked_where_all_is_allowed(server: Server) -> None:
    done = server.run("chat", "Go ahead.", "--model", "command", "--allow", "code")
    assert done.returncode == 0 and b"6*7 is 42" in done.stdout


def test_a_turn_that_fails(server: Server) -> None:
    done = server.run("chat", "Go ahead.", "--model", "broken")
    assert done.returncode == 1 and b"I do not like this." in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("chat", "Hello.", "--model", "no-such"), b"no-such"),
        (("chat", "Hello.", "--agent", "nobody"), b"langgraph"),
        (("chat", "Hello.", "--kind", "toaster"), b"toaster"),
        (("chat", "Hello.", "--resume", "ses-0000"), b"paddock session list"),
        (("chat", "Hello.", "--attach", "/no/such/file"), b"/no/such/file"),
        (("chat",), b"the message is empty"),
        (("session", "show", "0000"), b"there is no session"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(server: Server, words: tuple[str, ...], told: bytes) -> None:
    done = server.run(*words)
    assert done.returncode in (1, 2) and told in done.stderr and b"Traceback" not in done.stderr


def test_a_person_approves_and_goes_on(server: Server) -> None:
    window = TerminalWindow(server, "chat", "Go ahead.", "--model", "command")
    try:
        window.expect("The agent wants to use code_run_shell_command")
        window.expect(r"command: echo 6\*7")
        window.expect("es, .a.lways this tool, .e.dit")
        window.type("y\n")
        window.expect("6.7 is 42")
        window.expect("It said")
        window.expect("you>")
        window.type("Thank you.\n")
        window.expect("Gladly")
        window.expect("you>")
        window.type("/quit\n")
        window.expect("continue with: paddock chat --resume ses-")
        assert window.process.wait(60) == 0
    finally:
        window.close()


def test_a_person_says_no_and_why(server: Server) -> None:
    window = TerminalWindow(server, "chat", "Go ahead.", "--model", "command")
    try:
        window.expect("say no and why")
        window.type("no, it is too late for that\n")
        window.expect("It said: A person rejected")
        window.expect("you>")
        window.type("\x04")
        assert window.process.wait(60) == 0
    finally:
        window.close()


def test_a_person_answers_by_number(server: Server) -> None:
    window = TerminalWindow(server, "chat", "Go ahead.", "--model", "question")
    try:
        window.expect("Which one")
        window.expect("2. green")
        window.expect("your answer")
        window.type("2\n")
        window.expect("You want green")
        window.expect("you>")
    finally:
        window.close()


def test_ctrl_c_stops_the_turn_and_not_the_chat(server: Server) -> None:
    window = TerminalWindow(server, "chat", "Go ahead.", "--model", "slow")
    try:
        window.expect("on and on")
        window.process.send_signal(signal.SIGINT)
        window.expect("cancelled")
        window.expect("you>")
        assert window.process.poll() is None
        window.type("\x04")
        assert window.process.wait(60) == 0
    finally:
        window.close()


def test_ctrl_c_at_an_approval_stops_the_turn_and_not_the_chat(server: Server) -> None:
    window = TerminalWindow(server, "chat", "Go ahead.", "--model", "command")
    try:
        window.expect("say no and why")
        window.interrupt_prompt()
        window.expect("code_run_shell_command withdrawn")
        window.expect("the turn was cancelled")
        window.expect("you>")
        window.type("What did it say?\n")
        window.expect("It said: This call no longer needs a decision")
        window.expect("you>")
        window.type("\x04")
        assert window.process.wait(60) == 0
    finally:
        window.close()
    [approval] = server.json("session", "approvals", "last")
    assert approval["state"] == "withdrawn"


def test_a_call_that_waited_for_somebody_is_named_when_they_come_back(server: Server) -> None:
    assert server.run("chat", "Go ahead.", "--model", "command").returncode == 3
    window = TerminalWindow(server, "chat", "--resume", "last")
    try:
        window.expect("say no and why")
        window.type("y\n")
        window.expect("  code_run_shell_command approved by local")
        window.expect("you>")
    finally:
        window.close()


def test_what_is_typed_meanwhile_is_read(server: Server) -> None:
    window = TerminalWindow(server, "chat", "Go ahead.", "--model", "slow")
    try:
        window.expect("on and on")
        window.type("Make it short.\n")
        window.expect("the agent will read this before its next step")
        window.process.send_signal(signal.SIGINT)
        window.expect("you>")
    finally:
        window.close()


def test_a_session_is_shown_renamed_forked_and_removed(server: Server) -> None:
    session = one_answer(server, "plain")
    assert session in server.text("session", "list")
    shown = server.text("session", "show", session)
    assert "user: Go ahead." in shown and "assistant: Six times seven is **42**." in shown
    server.text("session", "rename", session, "The quarterly report")
    assert "The quarterly report" in server.text("session", "list")
    fork = server.text("session", "fork", session.removeprefix("ses-")[:12])
    assert "Six times seven" in server.text("session", "show", fork)
    done = server.run("chat", "Once more.", "--resume", fork, "--model", "plain")
    assert done.returncode == 0 and b"42" in done.stdout
    server.text("session", "rm", session, fork)
    assert session not in server.text("session", "list")


def test_the_last_session_need_not_be_named(server: Server, tmp_path: Path) -> None:
    session = one_answer(server, "plain")
    assert server.json("session", "show", "last")["id"] == session
    assert server.json("session", "approvals", "last") == []
    assert server.json("session", "rename", "last", "The latest")["title"] == "The latest"
    server.text("session", "export", "last", "-o", str(tmp_path / "kept.paddock"))
    fork = server.text("session", "fork", "last")
    assert server.json("session", "rm", "last", "last") == [{"id": fork}]
    assert session in server.text("session", "list")


def test_words_are_found(server: Server) -> None:
    session = one_answer(server, "plain")
    found = server.json("session", "search", "times seven")
    assert session in [item["session"] for item in found]
    assert session in server.text("session", "search", "times seven")
    assert server.text("session", "search", "rhinoceros") == "No matches."


def test_a_session_goes_through_a_file(server: Server, tmp_path: Path) -> None:
    session = one_answer(server, "command", "--allow", "code")
    server.text("session", "export", session, "-o", str(tmp_path / "kept.paddock"))
    copy = server.text("session", "import", str(tmp_path / "kept.paddock"))
    assert copy != session and "6*7 is 42" in server.text("session", "show", copy)
    (tmp_path / "broken.paddock").write_bytes((tmp_path / "kept.paddock").read_bytes()[:100])
    assert server.run("session", "import", str(tmp_path / "broken.paddock")).returncode == 1


def test_who_decided_what(server: Server) -> None:
    server.run("chat", "Go ahead.", "--model", "command", "--json")
    session = server.json("session", "list")[0]["id"]
    listed = server.text("session", "approvals", session)
    assert "pending" in listed and "code_run_shell_command" in listed
    assert "pending approval: code_run_shell_command" in server.text("session", "show", session)


def test_a_file_goes_along(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    session = one_answer(server, "plain", "--attach", str(tmp_path / "data.csv"))
    assert "data.csv" in server.text("session", "show", session)


def test_what_an_agent_says_does_not_steer_the_terminal(server: Server, tmp_path: Path) -> None:
    (tmp_path / "evil\x1b]0;owned\x07.txt").write_text("x")
    session = one_answer(server, "plain", "--attach", str(tmp_path / "evil\x1b]0;owned\x07.txt"))
    assert "\x1b" not in server.text("session", "show", session)
