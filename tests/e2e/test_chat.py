"""`paddock chat` and `paddock session` on terminals and in pipes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli_driver import PaddockCliServer
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
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockCliServer]:
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
    server = PaddockCliServer(data)
    server.env["PADDOCK_CONFIG"] = str(directory / "paddock.yaml")
    server.start_server()
    yield server
    for session in server.json_output("session", "list"):
        server.run("session", "rm", session["id"])
    assert server.stop_server() == 0


def create_answered_session(server: PaddockCliServer, model: str, *arguments: str) -> str:
    """Create a session with one message and its reply, and return its id."""
    output = server.output("chat", "Go ahead.", "--model", model, "--json", *arguments)
    return str(json.loads(output.splitlines()[0])["stream"]).removeprefix("session/")


def test_chat_in_a_pipe_prints_the_reply(server: PaddockCliServer) -> None:
    result = server.run("chat", "--model", "plain", stdin=b"What is six times seven?")
    assert (result.returncode, result.stdout.decode().strip()) == (0, "Six times seven is **42**.")


def test_json_chat_prints_every_event(server: PaddockCliServer) -> None:
    result = server.run("chat", "Go ahead.", "--model", "plain", "--json")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 0 and events[-1]["data"] == {"turn": 1, "state": "done"}
    numbers = [event["number"] for event in events]
    assert numbers == sorted(set(numbers))


def test_chat_in_a_pipe_leaves_approval_pending(server: PaddockCliServer) -> None:
    result = server.run("chat", "Go ahead.", "--model", "command")
    assert result.returncode == 3
    assert b"an approval is pending" in result.stderr and b"paddock chat --resume ses-" in result.stderr


def test_allowed_kind_needs_no_approval(server: PaddockCliServer) -> None:
    result = server.run("chat", "Go ahead.", "--model", "command", "--allow", "code")
    assert result.returncode == 0 and b"6*7 is 42" in result.stdout


def test_failed_turn_exits_with_its_reason(server: PaddockCliServer) -> None:
    result = server.run("chat", "Go ahead.", "--model", "broken")
    assert result.returncode == 1 and b"I do not like this." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
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
def test_impossible_chat_requests_print_a_short_error(
    server: PaddockCliServer, arguments: tuple[str, ...], message: bytes
) -> None:
    result = server.run(*arguments)
    assert result.returncode in (1, 2) and message in result.stderr and b"Traceback" not in result.stderr


def test_approved_call_runs_and_chat_continues(server: PaddockCliServer) -> None:
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


def test_rejection_reason_reaches_the_agent(server: PaddockCliServer) -> None:
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


def test_question_is_answered_by_number(server: PaddockCliServer) -> None:
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


def test_ctrl_c_stops_turn_but_not_chat(server: PaddockCliServer) -> None:
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


def test_ctrl_c_at_approval_stops_turn_but_not_chat(server: PaddockCliServer) -> None:
    window = TerminalWindow(server, "chat", "Go ahead.", "--model", "command")
    try:
        window.expect("say no and why")
        window.process.send_signal(signal.SIGINT)
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
    [approval] = server.json_output("session", "approvals", "last")
    assert approval["state"] == "withdrawn"


def test_resumed_chat_names_the_waiting_call(server: PaddockCliServer) -> None:
    assert server.run("chat", "Go ahead.", "--model", "command").returncode == 3
    window = TerminalWindow(server, "chat", "--resume", "last")
    try:
        window.expect("say no and why")
        window.type("y\n")
        window.expect("  code_run_shell_command approved by local")
        window.expect("you>")
    finally:
        window.close()


def test_message_typed_during_a_turn_is_queued(server: PaddockCliServer) -> None:
    window = TerminalWindow(server, "chat", "Go ahead.", "--model", "slow")
    try:
        window.expect("on and on")
        window.type("Make it short.\n")
        window.expect("the agent will read this before its next step")
        window.process.send_signal(signal.SIGINT)
        window.expect("you>")
    finally:
        window.close()


def test_session_is_shown_renamed_forked_and_removed(server: PaddockCliServer) -> None:
    session = create_answered_session(server, "plain")
    assert session in server.output("session", "list")
    shown = server.output("session", "show", session)
    assert "user: Go ahead." in shown and "assistant: Six times seven is **42**." in shown
    server.output("session", "rename", session, "The quarterly report")
    assert "The quarterly report" in server.output("session", "list")
    fork = server.output("session", "fork", session.removeprefix("ses-")[:12])
    assert "Six times seven" in server.output("session", "show", fork)
    result = server.run("chat", "Once more.", "--resume", fork, "--model", "plain")
    assert result.returncode == 0 and b"42" in result.stdout
    server.output("session", "rm", session, fork)
    assert session not in server.output("session", "list")


def test_last_refers_to_the_latest_session(server: PaddockCliServer, tmp_path: Path) -> None:
    session = create_answered_session(server, "plain")
    assert server.json_output("session", "show", "last")["id"] == session
    assert server.json_output("session", "approvals", "last") == []
    assert server.json_output("session", "rename", "last", "The latest")["title"] == "The latest"
    server.output("session", "export", "last", "-o", str(tmp_path / "kept.paddock"))
    fork = server.output("session", "fork", "last")
    assert server.json_output("session", "rm", "last", "last") == [{"id": fork}]
    assert session in server.output("session", "list")


def test_session_search_finds_words(server: PaddockCliServer) -> None:
    session = create_answered_session(server, "plain")
    found = server.json_output("session", "search", "times seven")
    assert session in [item["session"] for item in found]
    assert session in server.output("session", "search", "times seven")
    assert server.output("session", "search", "rhinoceros") == "No matches."


def test_session_is_exported_and_imported(server: PaddockCliServer, tmp_path: Path) -> None:
    session = create_answered_session(server, "command", "--allow", "code")
    server.output("session", "export", session, "-o", str(tmp_path / "kept.paddock"))
    copy = server.output("session", "import", str(tmp_path / "kept.paddock"))
    assert copy != session and "6*7 is 42" in server.output("session", "show", copy)
    (tmp_path / "broken.paddock").write_bytes((tmp_path / "kept.paddock").read_bytes()[:100])
    assert server.run("session", "import", str(tmp_path / "broken.paddock")).returncode == 1


def test_approvals_of_a_session_are_listed(server: PaddockCliServer) -> None:
    server.run("chat", "Go ahead.", "--model", "command", "--json")
    session = server.json_output("session", "list")[0]["id"]
    listed = server.output("session", "approvals", session)
    assert "pending" in listed and "code_run_shell_command" in listed
    assert "pending approval: code_run_shell_command" in server.output("session", "show", session)


def test_attached_file_is_sent_with_the_message(server: PaddockCliServer, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    session = create_answered_session(server, "plain", "--attach", str(tmp_path / "data.csv"))
    assert "data.csv" in server.output("session", "show", session)


def test_control_characters_of_file_names_are_not_printed(server: PaddockCliServer, tmp_path: Path) -> None:
    (tmp_path / "evil\x1b]0;owned\x07.txt").write_text("x")
    session = create_answered_session(server, "plain", "--attach", str(tmp_path / "evil\x1b]0;owned\x07.txt"))
    assert "\x1b" not in server.output("session", "show", session)
