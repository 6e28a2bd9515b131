"""Running calls in the terminal view of a chat."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from paddock.cli.chat.chat_conversation import describe_session_start, find_provider_kind
from paddock.cli.chat.chat_views import RESULT_LINES, JsonChatView, PlainChatView, TerminalChatView
from paddock.cli.output.command_output import CommandOutput


class Screen:
    """A terminal, and what is drawn on it now."""

    def __init__(self) -> None:
        self.view = TerminalChatView(lambda sha, name, mime: sha)
        self._written = io.StringIO()
        self.view._console = Console(file=self._written, force_terminal=True, width=80)

    def show_event(self, event: str, /, **data: Any) -> None:
        self.view.show_event({"type": event, "data": data})

    def drawn(self) -> str:
        """Return the live area, which is erased when other output replaces it."""
        shown = io.StringIO()
        Console(file=shown, force_terminal=True, width=80).print(self.view._render_live_area())
        return shown.getvalue()

    def lines(self) -> list[str]:
        return [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", self.drawn()).splitlines()]


@pytest.fixture
def screen() -> Screen:
    made = Screen()
    made.show_event("call.ready", call={"id": "c", "name": "code_run_shell_command", "arguments": {"command": "make"}})
    return made


def test_the_newest_lines_are_drawn_dimmed_until_there_is_a_result(screen: Screen) -> None:
    screen.show_event("call.output", call_id="c", text="before it runs")
    assert len(screen.lines()) == 1
    screen.show_event("call.running", call_id="c")
    for number in range(20):
        screen.show_event("call.output", call_id="c", text=f"line {number}\n")
    *shown, waiting = screen.lines()
    assert shown == [f"line {number}" for number in range(20 - RESULT_LINES, 20)]
    assert "running: code_run_shell_command … (Ctrl-C to stop)" in waiting and "\x1b[2m" in screen.drawn()
    screen.show_event("call.result", call_id="c", result={"content": [{"type": "text", "text": "done"}]})
    screen.show_event("call.output", call_id="c", text="after its end")
    assert len(screen.lines()) == 1 and "thinking" in screen.lines()[0]


def test_image_build_is_shown_with_its_step_and_share() -> None:
    screen = Screen()
    building: dict[str, Any] = {"image": "co\x1b[2Jde", "step": "apt", "fraction": 0.4}
    screen.show_event("session.sandbox", kind="code", state="starting", building=building)
    assert "building the image code: apt, 40%" in " ".join(screen.lines())
    building |= {"step_number": 2, "step_count": 6}
    screen.show_event("session.sandbox", kind="code", state="starting", building=building)
    assert "apt, step 2 of 6, 40%" in " ".join(screen.lines())


def test_rejected_call_shows_the_decision_without_the_text_for_the_model(screen: Screen) -> None:
    screen.show_event("approval.decided", call_id="c", state="rejected", by="ada", reason="too risky")
    text = {"type": "text", "text": "Do not simply repeat it"}
    screen.show_event("call.result", call_id="c", result={"refused": True, "content": [text]})
    written = screen._written.getvalue()
    assert "rejected by ada: too risky" in written and "Do not simply repeat it" not in written


def test_start_of_a_chat_names_agent_model_and_kinds() -> None:
    found = {
        "providers": [{"name": "demo", "kind": "script"}, {"name": "acme", "kind": "openai"}],
        "models": [{"name": "trial", "provider": "demo"}, {"name": "gpt-9", "provider": "acme"}],
    }
    session = {"agent": "langgraph", "model": "trial", "kinds": ["code"]}
    line = describe_session_start(session, find_provider_kind(found, "trial"))
    assert line == "agent langgraph, model trial (a script, no model), kind code"
    session = {"agent": "codex", "model": "gpt-9", "kinds": ["code", "linux"]}
    line = describe_session_start(session, find_provider_kind(found, "gpt-9"))
    assert line == "agent codex, model gpt-9, kinds code, linux"
    assert find_provider_kind(found, "acme/other") == "openai" and find_provider_kind(found, "unknown") is None


def test_concurrent_calls_are_drawn_one_below_the_other(screen: Screen) -> None:
    for name in ("c", "d"):
        screen.show_event("call.running", call_id=name)
    for name in ("c", "d", "c"):
        screen.show_event("call.output", call_id=name, text=f"{name}1 ")
    assert screen.lines()[:2] == ["c1 c1", "d1"]


def test_running_call_is_named_until_all_calls_end(screen: Screen) -> None:
    screen.show_event("call.ready", call={"id": "d", "name": "browser_open", "arguments": {}})
    screen.show_event("session.sandbox", kind="linux", state="starting")
    assert "waiting for a linux sandbox" in screen.lines()[-1]
    screen.show_event("call.running", call_id="c")
    screen.show_event("call.running", call_id="d")
    screen.show_event("session.sandbox", kind="linux", state="ready")
    assert "running: code_run_shell_command, browser_open …" in screen.lines()[-1]
    screen.show_event("call.result", call_id="c", result={"content": []})
    assert "running: browser_open …" in screen.lines()[-1]
    screen.show_event("turn.ended", state="cancelled")
    assert "thinking" in screen.lines()[-1]


def test_control_characters_in_call_output_are_removed(screen: Screen) -> None:
    screen.show_event("call.running", call_id="c")
    screen.show_event("call.output", call_id="c", text="10%\r20%\x1b]0;title\x07\x1b[2J\x1b[1;1H\x9b31m\u202eok\n")
    assert screen.lines()[0].startswith("20%") and screen.lines()[0].endswith("ok")
    assert not re.findall(r"\x1b[^\[]|\x1b\[[0-9;]*[^0-9;m]|[\x07\r\x9b\u202e]", screen.drawn())


def test_kept_call_output_is_bounded(screen: Screen) -> None:
    screen.show_event("call.running", call_id="c")
    for _ in range(100):
        screen.show_event("call.output", call_id="c", text="x" * 1000)
    assert len(screen.view._call_output["c"]) <= 4096


def test_call_output_is_in_json_but_not_in_pipes(capsys: pytest.CaptureFixture[str]) -> None:
    event = {"number": 7, "type": "call.output", "data": {"call_id": "c", "text": "one\n"}}
    JsonChatView(CommandOutput(True)).show_event(event)
    assert '"call.output"' in capsys.readouterr().out
    PlainChatView(CommandOutput(False)).show_event(event)
    assert capsys.readouterr() == ("", "")
