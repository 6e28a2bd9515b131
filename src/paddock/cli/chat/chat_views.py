"""Views of a chat: the agent's messages, thoughts and calls, in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.padding import Padding
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from paddock.cli.output.agent_text import clean_terminal_line, clean_terminal_text, summarize_tool_arguments
from paddock.cli.output.command_output import CommandOutput
from paddock.cli.output.formatting import format_build_step

RESULT_LINES = 6
_MAX_OUTPUT_CHARACTERS = 4096
"""Characters kept of a running call's output."""
_MAX_NAMES_CHARACTERS = 100
_FRAMES_PER_SECOND = 12
_PLAN_MARKS = {"pending": "☐", "running": "▸", "done": "☑", "dropped": "☒"}
_TOOLS_WITH_OWN_VIEW = ("update_plan", "ask_user")
"""Tools with a view of their own (plan, question) instead of the call."""
LocateFile = Callable[[str, str, str], str]
"""Returns the local path of a session's file, by SHA-256, name and type."""


class ChatView(Protocol):
    """Shows a chat's events."""

    def show_event(self, event: Mapping[str, Any]) -> None: ...
    def show_working(self) -> AbstractContextManager[Any]:
        """Return a context manager that is entered while the agent works."""
        ...

    def print_note(self, text: str, style: str = "dim") -> None: ...


class JsonChatView:
    """Prints every event as a line of JSON."""

    def __init__(self, out: CommandOutput) -> None:
        self._out = out

    def show_event(self, event: Mapping[str, Any]) -> None:
        self._out.print_json_line(event)

    def show_working(self) -> AbstractContextManager[Any]:
        from contextlib import nullcontext

        return nullcontext()

    def print_note(self, text: str, style: str = "dim") -> None:
        sys.stderr.write(f"{clean_terminal_text(text)}\n")


class PlainChatView(JsonChatView):
    """Prints the agent's messages for a pipe, and its calls on standard error."""

    def show_event(self, event: Mapping[str, Any]) -> None:
        data = event.get("data") or {}
        match event.get("type"):
            case "message.ended" if str(data.get("text") or "").strip():
                self._out.print_line(clean_terminal_text(data["text"]).strip())
            case "call.ready":
                call = data.get("call") or {}
                self.print_note(
                    f"{clean_terminal_line(str(call.get('name')))} {summarize_tool_arguments(call.get('arguments'))}"[
                        :200
                    ]
                )
            case "turn.error":
                self.print_note(f"error: {clean_terminal_line(str(data.get('message')))}")


class TerminalChatView:
    """Shows the chat on a terminal: finished parts are printed, growing parts are drawn live below."""

    def __init__(self, locate_file: LocateFile) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._locate_file = locate_file
        self._live: Live | None = None
        self._message_text = ""
        self._thought_text = ""
        self._starting_sandbox = ""
        """Status of a starting sandbox."""
        self._calls: dict[str, str] = {}
        self._call_output: dict[str, str] = {}
        """Output of running calls, by call id."""
        self._own_messages: set[str] = set()
        self._rejected_calls: set[str] = set()
        """Calls whose decision was shown; the text of their results is for the model."""

    def mark_own_message(self, message_id: str) -> None:
        """Mark a message as typed in this terminal, so that it is not shown again."""
        self._own_messages.add(message_id)

    def remember_call(self, approval: Mapping[str, Any]) -> None:
        """Remember a call's name, which may be older than the events seen."""
        self._calls[str(approval.get("call_id"))] = str(approval.get("name"))

    def show_working(self) -> AbstractContextManager[Any]:
        return _LiveArea(self)

    def print_note(self, text: str, style: str = "dim") -> None:
        self._print(Text(clean_terminal_text(text), style=style))

    def show_event(self, event: Mapping[str, Any]) -> None:
        data: Mapping[str, Any] = event.get("data") or {}
        match event.get("type"):
            case "message.received":
                self._show_message(data.get("message") or {}, bool(data.get("waits")))
            case "thought.delta":
                self._thought_text += str(data.get("text") or "")
            case "thought.ended":
                self._print_thought()
            case "message.delta":
                self._print_thought()
                self._message_text += str(data.get("text") or "")
                self._print_finished_blocks()
            case "message.ended":
                self._print_thought()
                self._print_message(data.get("cut"))
            case "call.ready":
                call = data.get("call") or {}
                self._calls[str(call.get("id"))] = str(call.get("name"))
                if call.get("name") not in _TOOLS_WITH_OWN_VIEW:
                    self._print(_render_call(str(call.get("name")), call.get("arguments")))
            case "call.running":
                self._call_output[str(data.get("call_id"))] = ""
            case "call.output" if (call_id := str(data.get("call_id"))) in self._call_output:
                self._call_output[call_id] = (self._call_output[call_id] + str(data.get("text") or ""))[
                    -_MAX_OUTPUT_CHARACTERS:
                ]
            case "call.result":
                self._call_output.pop(str(data.get("call_id")), None)
                result = data.get("result") or {}
                rejected = bool(result.get("refused")) and str(data.get("call_id")) in self._rejected_calls
                own_view = self._calls.get(str(data.get("call_id"))) in _TOOLS_WITH_OWN_VIEW
                if not rejected and (not own_view or result.get("failed")):
                    self._print(self._render_result(result))
            case "plan.changed":
                self._print(_render_plan(data.get("steps") or []))
            case "approval.decided" | "approval.expired":
                self._show_decision(str(event.get("type")), data)
            case kind:
                if kind == "turn.ended":
                    self._call_output.clear()
                self._print_event_note(str(kind), data)
        self._draw()

    def _print_event_note(self, kind: str, data: Mapping[str, Any]) -> None:
        match kind:
            case "session.sandbox":
                phrases = {
                    "starting": "is starting",
                    "ready": "is ready",
                    "broken": "is broken",
                    "released": "was removed",
                }
                state = str(data.get("state"))
                reason = f": {data['reason']}" if data.get("reason") else ""
                if state != "starting":
                    self.print_note(f"the {data.get('kind')} sandbox {phrases.get(state, state)}{reason}")
                self._starting_sandbox = _describe_starting_sandbox(data) if state == "starting" else ""
            case "session.desktop":
                phrases = {"taken": "took control", "handed_back": "handed back control"}
                if data.get("state") in phrases:
                    self.print_note(
                        f"{data.get('by') or 'a person'} {phrases[str(data['state'])]} of {data.get('kind')}"
                    )
            case "session.compacted":
                self.print_note(f"{data.get('messages')} earlier messages were summarized")
            case "turn.error":
                self.print_note(f"error: {data.get('message')}", "red")
            case "turn.ended" if data.get("state") in ("cancelled", "failed"):
                self.print_note(
                    f"the turn was {'cancelled' if data['state'] == 'cancelled' else 'aborted by an error'}"
                )

    def _show_message(self, message: Mapping[str, Any], is_waiting: bool) -> None:
        if str(message.get("id")) in self._own_messages:
            if is_waiting:
                self.print_note("the agent will read this before its next step")
            return
        text = _join_message_text(message)
        author = "note" if message.get("role") == "note" else str(message.get("by") or "another person")
        self._print(Text.assemble((f"{clean_terminal_line(author)}: ", "bold"), clean_terminal_text(text)))

    def _show_decision(self, kind: str, data: Mapping[str, Any]) -> None:
        name = clean_terminal_line(self._calls.get(str(data.get("call_id")), "the call"))
        state = "expired" if kind == "approval.expired" else str(data.get("state"))
        if state in ("expired", "rejected"):
            self._rejected_calls.add(str(data.get("call_id")))
        by = f" by {clean_terminal_line(str(data['by']))}" if data.get("by") else ""
        reason = f": {clean_terminal_line(str(data['reason']))}" if data.get("reason") else ""
        self.print_note(f"  {name} {state}{by}{reason}"[:300])

    def _render_result(self, result: Mapping[str, Any]) -> RenderableType:
        failed = bool(result.get("failed") or result.get("refused"))
        lines: list[str] = []
        for part in result.get("content") or []:
            if part.get("type") == "text":
                lines += clean_terminal_text(str(part.get("text") or "")).rstrip().splitlines()
            else:
                path = self._locate_file(
                    str(part.get("file")), str(part.get("name") or ""), str(part.get("mime") or "")
                )
                lines.append(f"[{part.get('type')}] {path}")
        shown_lines = lines[:RESULT_LINES]
        if len(lines) > RESULT_LINES:
            shown_lines.append(f"… {len(lines) - RESULT_LINES} more lines")
        body = Text("\n".join(shown_lines) or "(no output)", style="red" if failed else "dim", overflow="fold")
        return Padding(body, (0, 0, 1, 4))

    def _print_thought(self) -> None:
        thought, self._thought_text = self._thought_text.strip(), ""
        if thought:
            self._print(Padding(Text(clean_terminal_text(thought), style="dim italic"), (0, 0, 1, 2)))

    def _print_message(self, cut: object) -> None:
        text, self._message_text = self._message_text.strip(), ""
        if text:
            self._print(Padding(_markdown(text), (0, 0, 1, 0)))
        if cut:
            self.print_note(f"[{clean_terminal_line(str(cut))}]")

    def _print_finished_blocks(self) -> None:
        """Print finished paragraphs, so that long answers scroll."""
        end = find_last_markdown_block_end(self._message_text)
        if end:
            finished, self._message_text = self._message_text[:end], self._message_text[end:]
            self._print(Padding(_markdown(finished), (0, 0, 1, 0)))

    def _print(self, renderable: RenderableType) -> None:
        self._console.print(renderable)

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(self._render_live_area())

    def _render_live_area(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self._thought_text.strip():
            parts.append(Padding(Text(clean_terminal_text(self._thought_text), style="dim italic"), (0, 0, 0, 2)))
        if self._message_text.strip():
            parts.append(_markdown(self._message_text))
        for output in self._call_output.values():
            if lines := clean_terminal_text(output).rstrip().splitlines()[-RESULT_LINES:]:
                parts.append(Padding(Text("\n".join(lines), style="dim", overflow="fold"), (0, 0, 0, 4)))
        if not self._thought_text.strip() and not self._message_text.strip():
            parts.append(Spinner("dots", Text(f"{self._describe_activity()} (Ctrl-C to stop)", style="dim")))
        return _LastLines(Group(*parts))

    def _describe_activity(self) -> str:
        """Return the starting sandbox, the running calls, or `thinking`."""
        names = [self._calls.get(call, "") for call in self._call_output]
        running_names = ", ".join(
            clean_terminal_line(name) for name in names if name and name not in _TOOLS_WITH_OWN_VIEW
        )
        return self._starting_sandbox or (
            f"running: {running_names[:_MAX_NAMES_CHARACTERS]} …" if running_names else "thinking"
        )


class _LiveArea(AbstractContextManager[None]):
    def __init__(self, view: TerminalChatView) -> None:
        self._view = view

    def __enter__(self) -> None:
        view = self._view
        view._starting_sandbox = ""
        view._live = Live(
            view._render_live_area(),
            console=view._console,
            transient=True,
            refresh_per_second=_FRAMES_PER_SECOND,
            redirect_stderr=False,
        )
        view._live.start()

    def __exit__(self, *_: object) -> None:
        live, self._view._live = self._view._live, None
        if live is not None:
            live.stop()


class _LastLines:
    """Renders only the last lines that fit on the screen, because a terminal cannot redraw scrolled lines."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._content, options, pad=False)
        for line in lines[-max(1, console.height - 4) :]:
            yield from line
            yield Segment.line()


def _markdown(text: str) -> Markdown:
    # No terminal hyperlinks: they could hide an address other than the one shown.
    return Markdown(clean_terminal_text(text), hyperlinks=False)


def find_last_markdown_block_end(text: str) -> int:
    """Return the end of the last finished Markdown block."""
    end = position = 0
    in_code_block = False
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        position += len(line)
        if stripped.startswith(("```", "~~~")):
            in_code_block = not in_code_block
        # A list that continues after an empty line is printed as two lists.
        if not stripped and not in_code_block and line.endswith("\n"):
            end = position
    return end


def _render_call(name: str, arguments: object) -> RenderableType:
    return Text.assemble(
        ("⏵ ", "cyan"), (clean_terminal_line(name), "bold cyan"), " ", (summarize_tool_arguments(arguments)[:500], "")
    )


def _describe_starting_sandbox(data: Mapping[str, Any]) -> str:
    """Describe what a starting sandbox is waiting for."""
    build = data.get("building")
    if not build:
        return f"waiting for a {data.get('kind')} sandbox"
    step = format_build_step(build, str(build.get("step") or "starting"))
    return clean_terminal_line(f"building the image {build.get('image')}: {step}")


def _render_plan(steps: Iterable[Mapping[str, Any]]) -> RenderableType:
    lines = [
        Text(
            f"  {_PLAN_MARKS.get(str(step.get('state')), '☐')} {clean_terminal_line(str(step.get('title')))}",
            style="dim" if step.get("state") in ("done", "dropped") else "",
        )
        for step in steps
    ]
    return Padding(Group(Text("plan", style="bold"), *lines), (0, 0, 1, 0))


def _join_message_text(message: Mapping[str, Any]) -> str:
    return "\n".join(
        str(part.get("text")) if part.get("type") == "text" else f"[{part.get('type')} {part.get('name') or ''}]"
        for part in message.get("content") or []
    )


def print_message_history(out: CommandOutput, messages: Iterable[Mapping[str, Any]]) -> None:
    """Print past messages in short form."""
    for message in messages:
        role = str(message.get("role"))
        text = clean_terminal_text(_join_message_text(message)).strip()
        if role == "tool":
            first_line, *more_lines = text.splitlines() or ["(no output)"]
            out.print_line(f"    {first_line[:200]}{f'  … {len(more_lines)} more lines' if more_lines else ''}")
            continue
        if text or message.get("cut"):
            cut = f" [{clean_terminal_line(str(message['cut']))}]" if message.get("cut") else ""
            out.print_line(f"{role}: {text}{cut}")
        for call in message.get("calls") or []:
            arguments = summarize_tool_arguments(call.get("arguments"))[:200]
            out.print_line(f"  ⏵ {clean_terminal_line(str(call.get('name')))} {arguments}")
