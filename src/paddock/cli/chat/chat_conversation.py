"""Runs a chat: sends messages, shows events, asks for approvals and stops turns."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
import os
import secrets
import signal
import sys
import tempfile
import termios
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from paddock.cli.chat.approval_prompt import ask_for_approval_decision
from paddock.cli.chat.chat_views import ChatView, JsonChatView, PlainChatView, TerminalChatView, print_message_history
from paddock.cli.chat.line_editor import TerminalLineEditor
from paddock.cli.chat.session_commands import SESSIONS_PATH, find_session_id, session_api_path
from paddock.cli.chat.slash_commands import SLASH_COMMAND_HELP, run_slash_command
from paddock.cli.connection.reconnecting_client import ReconnectingClient, follow_server_events
from paddock.cli.connection.server_client import ServerClient
from paddock.cli.connection.server_finder import ServerFinder
from paddock.cli.framework.context import CliContext
from paddock.cli.output.agent_text import clean_terminal_line
from paddock.cli.output.errors import EXIT_FAILED, EXIT_INTERRUPTED, CliError, RequestRefused, UsageError

WAITING_EXIT_CODE = 3
"""Exit code while an approval is pending."""
_MAX_ATTACHMENT_BYTES = 20 * 2**20
_SHOWN_HISTORY = 20
_PAGE = 1000
_END_STATES = ("done", "cancelled", "failed")


async def run_chat_conversation(
    cli: CliContext,
    message: str | None,
    settings: Mapping[str, Any],
    *,
    resume: str | None,
    attach: Sequence[str],
    once: bool,
    interactive: bool,
) -> int:
    """Run a chat until the user exits, or for one answer."""
    content = await asyncio.to_thread(_build_message_content, message or "", attach)
    async with ServerFinder(cli) as servers:
        client = await servers.find_client()
        session = await _open_session(client, settings, resume)
        reconnecting_client = ReconnectingClient(client, lambda: servers.find_client(view.print_note))
        conversation = ChatConversation(reconnecting_client, session, interactive)
        view: ChatView = (
            TerminalChatView(conversation.local_file_path)
            if interactive
            else JsonChatView(cli.out)
            if cli.as_json
            else PlainChatView(cli.out)
        )
        async with conversation.follow_session(view):
            if once:
                return await conversation.answer_once(content)
            if resume:
                print_message_history(
                    cli.out, (await client.list_all(session_api_path(session, "/messages")))[-_SHOWN_HISTORY:]
                )
            return await conversation.chat_until_quit(content, TerminalLineEditor(cli.data_directory / "chat-history"))


class ChatConversation:
    """A session in this terminal: shows its events and sends the user's messages."""

    def __init__(self, client: ReconnectingClient, session: str, interactive: bool) -> None:
        self._client = client
        self._session = session
        self._interactive = interactive
        self._view: ChatView
        self._events: asyncio.Queue[Mapping[str, Any] | BaseException] = asyncio.Queue()
        self._send_lock = asyncio.Lock()
        """Held until the id of the own message is known, so that the message is not shown twice."""
        self._pending_approvals: dict[str, Mapping[str, Any]] = {}
        self._folder: Path | None = None
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._state = "idle"
        self._stopping = False
        """Whether the user cancelled the turn, so that its approvals are not shown any more."""

    @asynccontextmanager
    async def follow_session(self, view: ChatView) -> AsyncIterator[None]:
        self._view = view
        after = await self._newest_event_number()
        approvals = await self._client.request_json(
            "GET", session_api_path(self._session, "/approvals"), params={"state": "pending"}
        )
        self._pending_approvals = {str(each["id"]): each for each in approvals["items"]}
        self._state = str((await self._client.request_json("GET", session_api_path(self._session)))["state"])
        queue_task = asyncio.create_task(self._queue_events(after))
        try:
            yield
        finally:
            queue_task.cancel()
            await asyncio.gather(queue_task, *self._background_tasks, return_exceptions=True)

    async def answer_once(self, content: Sequence[Mapping[str, Any]]) -> int:
        """Send one message and wait for the end of the turn."""
        await self._send_message(content)
        with self._view.show_working():
            state = await self._wait_for_turn_end(stop_at_questions=True)
        if state == "waiting":
            self._view.print_note(f"an approval is pending; decide with: paddock chat --resume {self._session}")
            return WAITING_EXIT_CODE
        return 0 if state == "done" else EXIT_INTERRUPTED if state == "left" else EXIT_FAILED

    async def chat_until_quit(self, content: Sequence[Mapping[str, Any]], line_editor: TerminalLineEditor) -> int:
        """Chat until the user exits."""
        self._view.print_note(f"session {self._session}; /help lists the commands", "dim")
        self._view.print_note(await self._describe_session(), "dim")
        try:
            if content:
                await self._send_message(content)
                self._state = "running"
            while True:
                if self._pending_approvals or self._state != "idle":
                    try:
                        if not await self._show_turn(line_editor):
                            return self._print_goodbye()
                    except RequestRefused as error:
                        self._view.print_note(str(error), "red")
                    self._state = "idle"
                try:
                    line = (await line_editor.read_line()).strip()
                except KeyboardInterrupt:
                    self._view.print_note("(Ctrl-D exits)")
                    continue
                except EOFError:
                    return self._print_goodbye()
                if line and not await self._process_line(line):
                    return self._print_goodbye()
        finally:
            line_editor.close()

    async def _describe_session(self) -> str:
        """Describe the session's agent, model and kinds of sandbox in a line."""
        session = await self._client.request_json("GET", session_api_path(self._session))
        provider_kind = None
        with suppress(RequestRefused):  # The key may not read models.
            found = await self._client.request_json("GET", "/v1/llm")
            provider_kind = find_provider_kind(found, str(session["model"]))
        return describe_session_start(session, provider_kind)

    def _print_goodbye(self) -> int:
        self._view.print_note(f"\nbye; continue with: paddock chat --resume {self._session}")
        return 0

    async def _process_line(self, line: str) -> bool:
        """Handle a typed line; return False to exit."""
        command, _, rest = line.partition(" ")
        try:
            match command:
                case "/quit" | "/exit":
                    return False
                case "/help" | "/?":
                    self._view.print_note(SLASH_COMMAND_HELP)
                case "/title" if rest.strip():
                    await self._client.request_json(
                        "PATCH", session_api_path(self._session), json={"title": rest.strip()}
                    )
                case "/continue":
                    await self._client.request_json("POST", session_api_path(self._session, "/continue"))
                    self._state = "running"
                case _ if (
                    note := await run_slash_command(self._client, self._session, command, rest.strip())
                ) is not None:
                    self._view.print_note(note)
                case _ if command.startswith("/") and "/" not in command[1:] and command[1:].isalpha():
                    self._view.print_note(f"unknown command {command}; /help lists the commands")
                case _:
                    await self._send_message([{"type": "text", "text": line}])
                    self._state = "running"
        except UsageError as error:
            self._view.print_note("\n".join(filter(None, (str(error), error.hint))), "red")
        except (RequestRefused, CliError) as error:
            self._view.print_note(str(error), "red")
        return True

    async def _show_turn(self, line_editor: TerminalLineEditor) -> bool:
        """Show the turn until it ends and ask for approvals; return False if the user exits."""
        self._stopping = False
        while True:
            while self._pending_approvals and not self._stopping:
                if not await self._decide_approval(line_editor):
                    return False
            with self._view.show_working(), self._accept_typed_lines():
                state = await self._wait_for_turn_end()
            if state == "left":
                return False
            if state != "approval":
                return True

    async def _decide_approval(self, line_editor: TerminalLineEditor) -> bool:
        approval = self._pending_approvals.pop(next(iter(self._pending_approvals)))
        if isinstance(self._view, TerminalChatView):
            self._view.remember_call(approval)
        try:
            decision = await ask_for_approval_decision(approval, line_editor.read_line, self._view.print_note)
        except EOFError:
            self._pending_approvals[str(approval["id"])] = approval
            return False
        except KeyboardInterrupt:
            self._view.print_note("")  # The prompt has no line end yet.
            self._cancel_turn()
            return True
        try:
            await self._client.client.post(session_api_path(self._session, "/resume"), {"decisions": [decision]})
        except RequestRefused as error:
            if error.status == 400:
                self._pending_approvals[str(approval["id"])] = approval
            self._view.print_note(str(error), "red")
        return True

    async def _wait_for_turn_end(self, *, stop_at_questions: bool = False) -> str:
        """Return how the turn ends: `done`, `cancelled`, `failed`, `approval`, `waiting`, or `left` after Ctrl-C."""
        with self._handle_interrupts() as exit_requested:
            while True:
                event = await self._next_event(exit_requested)
                if event is None:
                    return "left"
                self._view.show_event(event)
                data: Mapping[str, Any] = event.get("data") or {}
                match event.get("type"):
                    case "approval.required":
                        approval = data["approval"]
                        self._pending_approvals[str(approval["id"])] = approval
                        if not stop_at_questions and not self._stopping:
                            return "approval"
                    case "approval.decided" | "approval.expired":
                        self._pending_approvals.pop(str(data.get("approval_id")), None)
                    case "turn.ended" if data.get("state") in _END_STATES:
                        self._pending_approvals.clear()
                        return str(data["state"])
                    case "session.state" | "turn.ended" if data.get("state") == "waiting":
                        if stop_at_questions and self._pending_approvals:
                            return "waiting"
                    case "session.deleted":
                        raise CliError("the session was deleted")

    async def _next_event(self, exit_requested: asyncio.Event) -> Mapping[str, Any] | None:
        event_task = asyncio.ensure_future(self._events.get())
        exit_task = asyncio.ensure_future(exit_requested.wait())
        try:
            await asyncio.wait((event_task, exit_task), return_when=asyncio.FIRST_COMPLETED)
            if not event_task.done():
                return None
            event = event_task.result()
        finally:
            event_task.cancel()
            exit_task.cancel()
        if isinstance(event, BaseException):
            raise event
        async with self._send_lock:
            return event

    def _handle_interrupts(self) -> _InterruptHandler:
        return _InterruptHandler(self._cancel_turn, pressed=self._stopping)

    def _cancel_turn(self) -> None:
        self._stopping = True
        self._view.print_note("stopping … (press Ctrl-C again to exit)")
        self._start_background_task(self._request_and_print_errors("POST", "/cancel"))

    def _accept_typed_lines(self) -> _TypedLineReader:
        return _TypedLineReader(lambda line: self._start_background_task(self._send_typed_line(line)))

    async def _send_typed_line(self, line: str) -> None:
        try:
            await self._send_message([{"type": "text", "text": line}])
        except CliError as error:
            self._view.print_note(str(error), "red")

    async def _request_and_print_errors(self, method: str, below: str) -> None:
        try:
            await self._client.client.request_json(method, session_api_path(self._session, below))
        except CliError as error:
            self._view.print_note(str(error), "red")

    def _start_background_task(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    async def _send_message(self, content: Sequence[Mapping[str, Any]]) -> None:
        async with self._send_lock:
            stored = await self._client.request_json(
                "POST",
                session_api_path(self._session, "/messages"),
                json={"content": list(content)},
                headers={"Idempotency-Key": secrets.token_hex(16)},
            )
            if isinstance(self._view, TerminalChatView):
                self._view.mark_own_message(str(stored["id"]))

    async def _queue_events(self, after: int) -> None:
        try:
            async for event in follow_server_events(self._client, session_api_path(self._session, "/events"), after):
                self._events.put_nowait(event)
        except CliError as error:
            self._events.put_nowait(error)

    async def _newest_event_number(self) -> int:
        """Return the number of the newest event."""
        after = 0
        while True:
            query, headers = {"after": str(after), "limit": str(_PAGE)}, {"Accept": "application/json"}
            page = await self._client.request_json(
                "GET", session_api_path(self._session, "/events"), params=query, headers=headers
            )
            after = int(page["next"])
            if len(page["items"]) < _PAGE:
                return after

    def local_file_path(self, sha: str, name: str, mime: str) -> str:
        """Return the local path of a session's file and start downloading it."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="paddock-chat-"))
        extension = mimetypes.guess_extension(mime) or ""
        safe_name = "".join(
            character for character in Path(name).name if character.isalnum() or character in "._- "
        ).strip(". ")
        path = self._folder / (f"{sha[:8]}-{safe_name[-80:]}" if safe_name else f"{sha[:12]}{extension}")
        if not path.exists():
            path.touch(mode=0o600)
            self._start_background_task(self._fetch_file(sha, path))
        return str(path)

    async def _fetch_file(self, sha: str, path: Path) -> None:
        try:
            async with self._client.client.request("GET", session_api_path(self._session, f"/files/{sha}")) as response:
                content = await response.content.read(-1)
            await asyncio.to_thread(path.write_bytes, content)
        except (CliError, OSError) as error:
            self._view.print_note(f"could not download {path.name}: {error}", "red")


class _InterruptHandler:
    """Handles Ctrl-C while entered: the first stops the agent, the second exits."""

    def __init__(self, on_first_press: Callable[[], None], *, pressed: bool) -> None:
        self._on_first_press = on_first_press
        self._exit_requested = asyncio.Event()
        self._pressed = pressed

    def __enter__(self) -> asyncio.Event:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._press)
        return self._exit_requested

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    def _press(self) -> None:
        if self._pressed:
            self._exit_requested.set()
        else:
            self._pressed = True
            self._on_first_press()


class _TypedLineReader:
    """Reads lines typed while the agent works."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line

    def __enter__(self) -> None:
        terminal = sys.stdin.fileno()
        self._before = termios.tcgetattr(terminal)
        quiet = termios.tcgetattr(terminal)
        quiet[3] &= ~termios.ECHOCTL  # Keeps `^C` out of the live display.
        termios.tcsetattr(terminal, termios.TCSANOW, quiet)
        asyncio.get_running_loop().add_reader(terminal, self._read)

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._before)

    def _read(self) -> None:
        # Read the descriptor directly: input buffered by `sys.stdin` would be lost to the next prompt.
        typed = os.read(sys.stdin.fileno(), 65536)
        if not typed:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        for line in typed.decode(errors="replace").splitlines():
            if line.strip():
                self._on_line(line.strip())


def _build_message_content(message: str, attach: Sequence[str]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = [{"type": "text", "text": message}] if message.strip() else []
    for each in attach:
        path = Path(each)
        try:
            if path.stat().st_size > _MAX_ATTACHMENT_BYTES:
                raise UsageError(f"{each} is larger than {_MAX_ATTACHMENT_BYTES // 2**20} MiB")
            data = path.read_bytes()
        except OSError as error:
            raise UsageError(f"{each} cannot be read: {error.strerror}") from None
        mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        kind = "image" if mime.startswith("image/") else "file"
        content.append({"type": kind, "name": path.name, "mime": mime, "data": base64.b64encode(data).decode()})
    return content


def find_provider_kind(found: Mapping[str, Any], model: str) -> str | None:
    """Return the kind of the provider of a model in a `GET /v1/llm` response, if it is listed."""
    provider = next((each["provider"] for each in found["models"] if each["name"] == model), model.partition("/")[0])
    return next((str(each["kind"]) for each in found["providers"] if each["name"] == provider), None)


def describe_session_start(session: Mapping[str, Any], provider_kind: str | None) -> str:
    """Return the line below the id of a chat: agent, model and kinds of sandbox."""
    notes = {"script": " (a script, no model)", "replay": " (a recording, no model)"}
    kinds = list(session.get("kinds") or [])
    parts = [f"agent {session.get('agent')}", f"model {session.get('model')}{notes.get(provider_kind or '', '')}"]
    parts += [f"{'kind' if len(kinds) == 1 else 'kinds'} {', '.join(kinds)}"] if kinds else []
    return clean_terminal_line(", ".join(parts))


async def _open_session(client: ServerClient, settings: Mapping[str, Any], resume: str | None) -> str:
    if resume is None:
        return str((await client.post(SESSIONS_PATH, dict(settings)))["id"])
    session = await find_session_id(client, resume)
    if settings:
        await client.request_json("PATCH", session_api_path(session), json=dict(settings))
    return session
