"""A chat as it is shown: what the agent says, thinks and does, in the order it happens."""

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

from paddock.cli.output import Output
from paddock.cli.run_progress import arguments_of, one_line, tidy

RESULT_LINES = 6
_MOST_OUTPUT = 4096
"""Letters that are kept of what a running call says."""
_LONGEST_NAMES = 100
_FRAMES = 12
_MARKS = {"pending": "☐", "running": "▸", "done": "☑", "dropped": "☒"}
_SHOWN_OTHERWISE = ("update_plan", "ask_user")
"""Tools of which people see the plan, or the question."""
Locate = Callable[[str, str, str], str]
"""Says where a file of the session is, by its SHA-256, name and type."""


class View(Protocol):
    """Whoever is shown a chat."""

    def tell(self, event: Mapping[str, Any]) -> None: ...
    def working(self) -> AbstractContextManager[Any]:
        """Held while the agent works."""
        ...

    def note(self, text: str, style: str = "dim") -> None: ...


class JsonView:
    """Every event on a line of its own, for programs."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def tell(self, event: Mapping[str, Any]) -> None:
        self._out.event(event)

    def working(self) -> AbstractContextManager[Any]:
        from contextlib import nullcontext

        return nullcontext()

    def note(self, text: str, style: str = "dim") -> None:
        sys.stderr.write(f"{tidy(text)}\n")


class PlainView(JsonView):
    """Only what the agent says, for pipes; what it does goes to standard error."""

    def tell(self, event: Mapping[str, Any]) -> None:
        data = event.get("data") or {}
        match event.get("type"):
            case "message.ended" if str(data.get("text") or "").strip():
                self._out.line(tidy(data["text"]).strip())
            case "call.ready":
                call = data.get("call") or {}
                self.note(f"{one_line(str(call.get('name')))} {arguments_of(call.get('arguments'))}"[:200])
            case "turn.error":
                self.note(f"error: {one_line(str(data.get('message')))}")


class TerminalView:
    """The chat on a terminal. What is finished is printed and stays; what grows is drawn below it."""

    def __init__(self, locate: Locate) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._locate = locate
        self._live: Live | None = None
        self._speech = ""
        self._thought = ""
        self._starting = ""
        """What a sandbox that starts waits for."""
        self._calls: dict[str, str] = {}
        self._output: dict[str, str] = {}
        """Of the calls that run."""
        self._own: set[str] = set()

    def mine(self, message_id: str) -> None:
        """A message that was typed here, and need not be shown again."""
        self._own.add(message_id)

    def know(self, approval: Mapping[str, Any]) -> None:
        """A call that is decided on here, and may have been made before anybody looked."""
        self._calls[str(approval.get("call_id"))] = str(approval.get("name"))

    def working(self) -> AbstractContextManager[Any]:
        return _Working(self)

    def note(self, text: str, style: str = "dim") -> None:
        self._print(Text(tidy(text), style=style))

    def tell(self, event: Mapping[str, Any]) -> None:
        data: Mapping[str, Any] = event.get("data") or {}
        match event.get("type"):
            case "message.received":
                self._received(data.get("message") or {}, bool(data.get("waits")))
            case "thought.delta":
                self._thought += str(data.get("text") or "")
            case "thought.ended":
                self._end_thought()
            case "message.delta":
                self._end_thought()
                self._speech += str(data.get("text") or "")
                self._print_whole_blocks()
            case "message.ended":
                self._end_thought()
                self._end_speech(data.get("cut"))
            case "call.ready":
                call = data.get("call") or {}
                self._calls[str(call.get("id"))] = str(call.get("name"))
                if call.get("name") not in _SHOWN_OTHERWISE:
                    self._print(_call(str(call.get("name")), call.get("arguments")))
            case "call.running":
                self._output[str(data.get("call_id"))] = ""
            case "call.output" if (known := str(data.get("call_id"))) in self._output:
                self._output[known] = (self._output[known] + str(data.get("text") or ""))[-_MOST_OUTPUT:]
            case "call.result":
                self._output.pop(str(data.get("call_id")), None)
                result = data.get("result") or {}
                if self._calls.get(str(data.get("call_id"))) not in _SHOWN_OTHERWISE or result.get("failed"):
                    self._print(self._result(result))
            case "plan.changed":
                self._print(_plan(data.get("steps") or []))
            case "approval.decided" | "approval.expired":
                self._decided(str(event.get("type")), data)
            case kind:
                if kind == "turn.ended":
                    self._output.clear()
                self._note_of(str(kind), data)
        self._draw()

    def _note_of(self, kind: str, data: Mapping[str, Any]) -> None:
        match kind:
            case "session.sandbox":
                words = {"starting": "is being made", "ready": "is ready", "broken": "is broken", "released": "is gone"}
                state = str(data.get("state"))
                reason = f": {data['reason']}" if data.get("reason") else ""
                if state != "starting":
                    self.note(f"the {data.get('kind')} sandbox {words.get(state, state)}{reason}")
                self._starting = _starting(data) if state == "starting" else ""
            case "session.desktop":
                words = {"taken": "has the mouse", "handed_back": "has handed the mouse back"}
                if data.get("state") in words:
                    self.note(f"{data.get('by') or 'somebody'} {words[str(data['state'])]} of {data.get('kind')}")
            case "session.compacted":
                self.note(f"{data.get('messages')} earlier messages were summed up")
            case "turn.error":
                self.note(f"error: {data.get('message')}", "red")
            case "turn.ended" if data.get("state") in ("cancelled", "failed"):
                self.note(f"the turn was {'cancelled' if data['state'] == 'cancelled' else 'broken off'}")

    def _received(self, message: Mapping[str, Any], waits: bool) -> None:
        if str(message.get("id")) in self._own:
            if waits:
                self.note("it reads this before its next step")
            return
        text = _text_of(message)
        who = "note" if message.get("role") == "note" else str(message.get("by") or "somebody else")
        self._print(Text.assemble((f"{one_line(who)}: ", "bold"), tidy(text)))

    def _decided(self, kind: str, data: Mapping[str, Any]) -> None:
        name = one_line(self._calls.get(str(data.get("call_id")), "the call"))
        state = "expired" if kind == "approval.expired" else str(data.get("state"))
        by = f" by {one_line(str(data['by']))}" if data.get("by") else ""
        reason = f": {one_line(str(data['reason']))}" if data.get("reason") else ""
        self.note(f"  {name} {state}{by}{reason}"[:300])

    def _result(self, result: Mapping[str, Any]) -> RenderableType:
        failed = bool(result.get("failed") or result.get("refused"))
        lines: list[str] = []
        for part in result.get("content") or []:
            if part.get("type") == "text":
                lines += tidy(str(part.get("text") or "")).rstrip().splitlines()
            else:
                where = self._locate(str(part.get("file")), str(part.get("name") or ""), str(part.get("mime") or ""))
                lines.append(f"[{part.get('type')}] {where}")
        shown = lines[:RESULT_LINES]
        if len(lines) > RESULT_LINES:
            shown.append(f"… {len(lines) - RESULT_LINES} more lines")
        body = Text("\n".join(shown) or "(nothing)", style="red" if failed else "dim", overflow="fold")
        return Padding(body, (0, 0, 1, 4))

    def _end_thought(self) -> None:
        thought, self._thought = self._thought.strip(), ""
        if thought:
            self._print(Padding(Text(tidy(thought), style="dim italic"), (0, 0, 1, 2)))

    def _end_speech(self, cut: object) -> None:
        speech, self._speech = self._speech.strip(), ""
        if speech:
            self._print(Padding(_markdown(speech), (0, 0, 1, 0)))
        if cut:
            self.note(f"[{one_line(str(cut))}]")

    def _print_whole_blocks(self) -> None:
        """Paragraphs that are over are printed for good, so that long answers scroll as they should."""
        end = last_block_end(self._speech)
        if end:
            whole, self._speech = self._speech[:end], self._speech[end:]
            self._print(Padding(_markdown(whole), (0, 0, 1, 0)))

    def _print(self, thing: RenderableType) -> None:
        self._console.print(thing)

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(self._growing())

    def _growing(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self._thought.strip():
            parts.append(Padding(Text(tidy(self._thought), style="dim italic"), (0, 0, 0, 2)))
        if self._speech.strip():
            parts.append(_markdown(self._speech))
        for output in self._output.values():
            if lines := tidy(output).rstrip().splitlines()[-RESULT_LINES:]:
                parts.append(Padding(Text("\n".join(lines), style="dim", overflow="fold"), (0, 0, 0, 4)))
        if not self._thought.strip() and not self._speech.strip():
            parts.append(Spinner("dots", Text(f"{self._state()} (ctrl-c stops it)", style="dim")))
        return _Tail(Group(*parts))

    def _state(self) -> str:
        """Name the sandbox that starts, the calls that run, or neither."""
        names = [self._calls.get(call, "") for call in self._output]
        running = ", ".join(one_line(name) for name in names if name and name not in _SHOWN_OTHERWISE)
        return self._starting or (f"running: {running[:_LONGEST_NAMES]} …" if running else "thinking")


class _Working(AbstractContextManager[None]):
    def __init__(self, view: TerminalView) -> None:
        self._view = view

    def __enter__(self) -> None:
        view = self._view
        view._starting = ""
        view._live = Live(
            view._growing(), console=view._console, transient=True, refresh_per_second=_FRAMES, redirect_stderr=False
        )
        view._live.start()

    def __exit__(self, *_: object) -> None:
        live, self._view._live = self._view._live, None
        if live is not None:
            live.stop()


class _Tail:
    """The last lines of what does not fit on the screen, which a terminal could not take back."""

    def __init__(self, whole: RenderableType) -> None:
        self._whole = whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._whole, options, pad=False)
        for line in lines[-max(1, console.height - 4) :]:
            yield from line
            yield Segment.line()


def _markdown(text: str) -> Markdown:
    # Addresses are shown: behind a link of the terminal there may be another than its words say.
    return Markdown(tidy(text), hyperlinks=False)


def last_block_end(text: str) -> int:
    """Where the last block of Markdown ends that nothing can be added to."""
    end = place = 0
    fenced = False
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        place += len(line)
        if stripped.startswith(("```", "~~~")):
            fenced = not fenced
        # A list may go on after an empty line; the rest of it is then printed as another.
        if not stripped and not fenced and line.endswith("\n"):
            end = place
    return end


def _call(name: str, arguments: object) -> RenderableType:
    return Text.assemble(("⏵ ", "cyan"), (one_line(name), "bold cyan"), " ", (arguments_of(arguments)[:500], ""))


def _starting(data: Mapping[str, Any]) -> str:
    """What a sandbox that is being made waits for."""
    building = data.get("building")
    if not building:
        return f"waiting for a {data.get('kind')} sandbox"
    share = building.get("fraction")
    return f"building the image {building.get('image')}{'' if share is None else f', {share:.0%}'}"


def _plan(steps: Iterable[Mapping[str, Any]]) -> RenderableType:
    lines = [
        Text(
            f"  {_MARKS.get(str(step.get('state')), '☐')} {one_line(str(step.get('title')))}",
            style="dim" if step.get("state") in ("done", "dropped") else "",
        )
        for step in steps
    ]
    return Padding(Group(Text("plan", style="bold"), *lines), (0, 0, 1, 0))


def _text_of(message: Mapping[str, Any]) -> str:
    return "\n".join(
        str(part.get("text")) if part.get("type") == "text" else f"[{part.get('type')} {part.get('name') or ''}]"
        for part in message.get("content") or []
    )


def print_history(out: Output, messages: Iterable[Mapping[str, Any]]) -> None:
    """What was said, in short."""
    for message in messages:
        role = str(message.get("role"))
        text = tidy(_text_of(message)).strip()
        if role == "tool":
            first, *more = text.splitlines() or ["(nothing)"]
            out.line(f"    {first[:200]}{f'  … {len(more)} more lines' if more else ''}")
            continue
        if text or message.get("cut"):
            cut = f" [{one_line(str(message['cut']))}]" if message.get("cut") else ""
            out.line(f"{role}: {text}{cut}")
        for call in message.get("calls") or []:
            out.line(f"  ⏵ {one_line(str(call.get('name')))} {arguments_of(call.get('arguments'))[:200]}")
