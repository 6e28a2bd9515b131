"""Terminal control sequences and invisible text of hostile models and sandboxes have no effect."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from paddock.cli.chat.approval_prompt import describe_approval
from paddock.cli.chat.chat_views import JsonChatView, PlainChatView, TerminalChatView, print_message_history
from paddock.cli.output.command_output import CommandOutput

STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\x07\x1bPq\x1b\\\u202e"
HIDDEN = {
    "written over": "rm -rf . #\recho hello",
    "in a title": "echo \x1b]0;; rm -rf . ;\x07 hello",
    "in a colour": "echo \x1b[8m; rm -rf .\x1b[0m",
    "turned round": "echo \u202e. fr- mr\u202c",
    "without width": "r\u200bm -rf .",
    "in other spaces": "rm\u00a0-rf\u2003.",
    "after a page": "echo hello\x0c\x0brm -rf .",
    "in another line": "echo hello\u2028rm -rf .",
    "half a character": "rm \ud800",
}


def approval(**fields: Any) -> dict[str, Any]:
    return {"id": "a", "digest": "d", "type": "call", "name": "code_run_shell_command", "arguments": {}, **fields}


@pytest.mark.parametrize("how", HIDDEN)
def test_invisible_characters_in_approvals_are_shown(how: str) -> None:
    command = HIDDEN[how]
    (_, shown) = describe_approval(approval(arguments={"command": command})).split("\n")
    assert shown.isprintable()
    written = shown.removeprefix("  command: ")
    assert written.encode("ascii", "backslashreplace").decode("unicode_escape") == command


def test_a_value_cannot_pass_for_another_argument_or_another_tool() -> None:
    text = describe_approval(
        approval(name="code_x\n  command: ls", arguments={"content": "a\n  command: ls\n", "x\n  command": "ls"})
    )
    assert [line for line in text.split("\n") if line.startswith("  command: ")] == []


def test_the_summary_is_shown_before_the_full_call() -> None:
    summary = {"text": "Run rm in sandbox code.", "effects": ["deletes", "runs"], "agent_words": "Only\na look"}
    text = describe_approval(approval(arguments={"command": "rm -rf x"}, summary=summary))
    assert text.split("\n")[1:] == [
        "  Run rm in sandbox code.",
        "  [deletes, runs a program]",
        "  the agent says: Only a look",
        "  command: rm -rf x",
    ]


@pytest.fixture
def screen() -> tuple[TerminalChatView, io.StringIO]:
    view, written = TerminalChatView(lambda sha, name, mime: f"/tmp/{sha}"), io.StringIO()
    view._console = Console(file=written, force_terminal=True, width=80, highlight=False, markup=False, emoji=False)
    return view, written


def happened(text: str) -> list[dict[str, Any]]:
    content = [{"type": "text", "text": text}, {"type": "file", "file": "0" * 64, "name": text, "mime": text}]
    call = {"id": "c", "name": text, "arguments": {text: text}}
    message = {"id": "m", "role": "note", "by": text, "content": content, "cut": text, "calls": [call]}
    data: dict[str, dict[str, Any]] = {
        "message.received": {"message": message},
        "thought.delta": {"text": text},
        "thought.ended": {},
        "message.delta": {"text": f"# {text}\n\n* {text}\n\n```\n{text}\n```\n\n{text}"},
        "message.ended": {"text": text, "cut": text},
        "call.ready": {"call": call},
        "call.running": {"call_id": "c"},
        "call.output": {"call_id": "c", "text": text},
        "call.result": {"call_id": "c", "result": {"content": content}},
        "plan.changed": {"steps": [{"title": text, "state": text}]},
        "approval.decided": {"call_id": "c", "state": text, "by": text, "reason": text},
        "session.sandbox": {"kind": text, "state": "broken", "reason": text},
        "session.desktop": {"kind": text, "state": "taken", "by": text},
        "turn.error": {"message": text},
    }
    return [{"type": kind, "data": each} for kind, each in data.items()]


def test_control_characters_in_chats_are_replaced(screen: tuple[TerminalChatView, io.StringIO]) -> None:
    view, written = screen
    for event in happened(f"before{STEERING}after"):
        view.show_event(event)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", written.getvalue())
    assert "before" in shown and "after" in shown
    assert not re.findall(r"[^\n -~\u00a0-\u1fff\u2010-\u2027\u2030-\uffff]|[\u202a-\u202e]", shown)


def test_links_show_their_address(screen: tuple[TerminalChatView, io.StringIO]) -> None:
    view, written = screen
    view.show_event({"type": "message.delta", "data": {"text": "[https://bank.example](https://thief.example)\n\n"}})
    assert "\x1b]8" not in written.getvalue()
    assert "https://thief.example" in written.getvalue()


def test_piped_and_json_output_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    for view in (PlainChatView(CommandOutput(False)), JsonChatView(CommandOutput(True))):
        for event in happened(f"before{STEERING}after"):
            view.show_event(event)
        view.print_note(f"before{STEERING}after")
    print_message_history(CommandOutput(False), [happened(f"before{STEERING}after")[0]["data"]["message"]])
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert text and not re.findall(r"[^\n -~\u00a0-\uffff]", text)
