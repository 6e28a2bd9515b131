"""A chat from its first message to its end: sends, shows, asks, stops."""

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
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from paddock.cli.chat_commands import HELP, session_note
from paddock.cli.chat_input import Keyboard, decide
from paddock.cli.chat_view import JsonView, PlainView, TerminalView, View, print_history
from paddock.cli.client import Client
from paddock.cli.context import Cli
from paddock.cli.failure import FAILED, INTERRUPTED, CliError, Refused, UsageProblem
from paddock.cli.run_follow import Reach, events_at
from paddock.cli.run_server import Servers
from paddock.cli.session import SESSIONS, find_session, path_of

WAITS = 3
"""Exit code when somebody has to decide first."""
_LARGEST = 20 * 2**20
_REPLAYED = 20
_PAGE = 1000
_OVER = ("done", "cancelled", "failed")


async def converse(
    cli: Cli,
    message: str | None,
    settings: Mapping[str, Any],
    *,
    resume: str | None,
    attach: Sequence[str],
    once: bool,
    people: bool,
) -> int:
    """Talk until the person leaves, or for one answer."""
    content = await asyncio.to_thread(_content, message or "", attach)
    async with Servers(cli) as servers:
        client = await servers.find()
        session = await _session(client, settings, resume)
        reach = Reach(client, lambda: servers.find(view.note))
        talk = Talk(reach, session, people)
        view: View = TerminalView(talk.locate) if people else JsonView(cli.out) if cli.as_json else PlainView(cli.out)
        async with talk.listening(view):
            if once:
                return await talk.once(content)
            if resume:
                print_history(cli.out, (await client.items(path_of(session, "/messages")))[-_REPLAYED:])
            return await talk.go_on(content, Keyboard(cli.data / "chat-history"))


class Talk:
    """One session as it is shown here, and what is said in it from here."""

    def __init__(self, reach: Reach, session: str, people: bool) -> None:
        self._reach = reach
        self._session = session
        self._people = people
        self._view: View
        self._news: asyncio.Queue[Mapping[str, Any] | BaseException] = asyncio.Queue()
        self._sending = asyncio.Lock()
        """Held until the server has said which message is ours, so that it is not shown a second time."""
        self._asked: dict[str, Mapping[str, Any]] = {}
        self._folder: Path | None = None
        self._errands: set[asyncio.Task[None]] = set()
        self._state = "idle"
        self._stopping = False
        """Whether the turn was cancelled from here, so that nothing it asks is asked any more."""

    @asynccontextmanager
    async def listening(self, view: View) -> AsyncIterator[None]:
        self._view = view
        after = await self._end()
        found = await self._reach.ask("GET", path_of(self._session, "/approvals"), params={"state": "pending"})
        self._asked = {str(each["id"]): each for each in found["items"]}
        self._state = str((await self._reach.ask("GET", path_of(self._session)))["state"])
        pump = asyncio.create_task(self._pump(after))
        try:
            yield
        finally:
            pump.cancel()
            await asyncio.gather(pump, *self._errands, return_exceptions=True)

    async def once(self, content: Sequence[Mapping[str, Any]]) -> int:
        """Say one thing and wait for what comes of it."""
        await self._send(content)
        with self._view.working():
            state = await self._until_over(stop_at_questions=True)
        if state == "waiting":
            self._view.note(f"it waits for a decision; give it with: paddock chat --resume {self._session}")
            return WAITS
        return 0 if state == "done" else INTERRUPTED if state == "left" else FAILED

    async def go_on(self, content: Sequence[Mapping[str, Any]], keyboard: Keyboard) -> int:
        """Talk until the person leaves."""
        self._view.note(f"session {self._session}; /help says what you can do", "dim")
        try:
            if content:
                await self._send(content)
                self._state = "running"
            while True:
                if self._asked or self._state != "idle":
                    try:
                        if not await self._work(keyboard):
                            return self._leave()
                    except Refused as error:
                        self._view.note(str(error), "red")
                    self._state = "idle"
                try:
                    line = (await keyboard.line()).strip()
                except KeyboardInterrupt:
                    self._view.note("(ctrl-d leaves)")
                    continue
                except EOFError:
                    return self._leave()
                if line and not await self._said(line):
                    return self._leave()
        finally:
            keyboard.close()

    def _leave(self) -> int:
        self._view.note(f"\nbye; come back with: paddock chat --resume {self._session}")
        return 0

    async def _said(self, line: str) -> bool:
        """What a line means; False when it means to leave."""
        word, _, rest = line.partition(" ")
        try:
            match word:
                case "/quit" | "/exit":
                    return False
                case "/help" | "/?":
                    self._view.note(HELP)
                case "/title" if rest.strip():
                    await self._reach.ask("PATCH", path_of(self._session), json={"title": rest.strip()})
                case "/continue":
                    await self._reach.ask("POST", path_of(self._session, "/continue"))
                    self._state = "running"
                case _ if (note := await session_note(self._reach, self._session, word, rest.strip())) is not None:
                    self._view.note(note)
                case _ if word.startswith("/") and "/" not in word[1:] and word[1:].isalpha():
                    self._view.note(f"there is no {word}; /help says what there is")
                case _:
                    await self._send([{"type": "text", "text": line}])
                    self._state = "running"
        except (Refused, CliError) as error:
            self._view.note(str(error), "red")
        return True

    async def _work(self, keyboard: Keyboard) -> bool:
        """Show what the agent does until its turn is over, and ask what it asks; False when the person leaves."""
        self._stopping = False
        while True:
            while self._asked and not self._stopping:
                if not await self._decide(keyboard):
                    return False
            with self._view.working(), self._typing():
                state = await self._until_over()
            if state == "left":
                return False
            if state != "asked":
                return True

    async def _decide(self, keyboard: Keyboard) -> bool:
        approval = self._asked.pop(next(iter(self._asked)))
        if isinstance(self._view, TerminalView):
            self._view.know(approval)
        try:
            decision = await decide(approval, keyboard.line, self._view.note)
        except EOFError:
            self._asked[str(approval["id"])] = approval
            return False
        except KeyboardInterrupt:
            self._view.note("")  # The prompt has no end of line yet.
            self._cancel()
            return True
        try:
            await self._reach.client.post(path_of(self._session, "/resume"), {"decisions": [decision]})
        except Refused as error:
            if error.status == 400:
                self._asked[str(approval["id"])] = approval
            self._view.note(str(error), "red")
        return True

    async def _until_over(self, *, stop_at_questions: bool = False) -> str:
        """How the turn ends: `done`, `cancelled`, `failed`; `asked` or `waiting` for decisions; `left` at ctrl-c."""
        with self._interruptible() as left:
            while True:
                event = await self._next(left)
                if event is None:
                    return "left"
                self._view.tell(event)
                data: Mapping[str, Any] = event.get("data") or {}
                match event.get("type"):
                    case "approval.required":
                        approval = data["approval"]
                        self._asked[str(approval["id"])] = approval
                        if not stop_at_questions and not self._stopping:
                            return "asked"
                    case "approval.decided" | "approval.expired":
                        self._asked.pop(str(data.get("approval_id")), None)
                    case "turn.ended" if data.get("state") in _OVER:
                        self._asked.clear()
                        return str(data["state"])
                    case "session.state" | "turn.ended" if data.get("state") == "waiting":
                        if stop_at_questions and self._asked:
                            return "waiting"
                    case "session.deleted":
                        raise CliError("somebody has deleted the session")

    async def _next(self, left: asyncio.Event) -> Mapping[str, Any] | None:
        getting = asyncio.ensure_future(self._news.get())
        leaving = asyncio.ensure_future(left.wait())
        try:
            await asyncio.wait((getting, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                return None
            found = getting.result()
        finally:
            getting.cancel()
            leaving.cancel()
        if isinstance(found, BaseException):
            raise found
        async with self._sending:
            return found

    def _interruptible(self) -> _Interrupts:
        return _Interrupts(self._cancel, pressed=self._stopping)

    def _cancel(self) -> None:
        self._stopping = True
        self._view.note("stopping it … (ctrl-c again leaves)")
        self._errand(self._ask_quietly("POST", "/cancel"))

    def _typing(self) -> _Typing:
        return _Typing(lambda line: self._errand(self._steer(line)))

    async def _steer(self, line: str) -> None:
        try:
            await self._send([{"type": "text", "text": line}])
        except CliError as error:
            self._view.note(str(error), "red")

    async def _ask_quietly(self, method: str, below: str) -> None:
        try:
            await self._reach.client.ask(method, path_of(self._session, below))
        except CliError as error:
            self._view.note(str(error), "red")

    def _errand(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _send(self, content: Sequence[Mapping[str, Any]]) -> None:
        async with self._sending:
            kept = await self._reach.ask(
                "POST",
                path_of(self._session, "/messages"),
                json={"content": list(content)},
                headers={"Idempotency-Key": secrets.token_hex(16)},
            )
            if isinstance(self._view, TerminalView):
                self._view.mine(str(kept["id"]))

    async def _pump(self, after: int) -> None:
        try:
            async for event in events_at(self._reach, path_of(self._session, "/events"), after):
                self._news.put_nowait(event)
        except CliError as error:
            self._news.put_nowait(error)

    async def _end(self) -> int:
        """The number of the newest event."""
        after = 0
        while True:
            query, headers = {"after": str(after), "limit": str(_PAGE)}, {"Accept": "application/json"}
            page = await self._reach.ask("GET", path_of(self._session, "/events"), params=query, headers=headers)
            after = int(page["next"])
            if len(page["items"]) < _PAGE:
                return after

    def locate(self, sha: str, name: str, mime: str) -> str:
        """Where a file of the session is put on this machine."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="paddock-chat-"))
        ending = mimetypes.guess_extension(mime) or ""
        safe = "".join(letter for letter in Path(name).name if letter.isalnum() or letter in "._- ").strip(". ")
        path = self._folder / (f"{sha[:8]}-{safe[-80:]}" if safe else f"{sha[:12]}{ending}")
        if not path.exists():
            path.touch(mode=0o600)
            self._errand(self._fetch(sha, path))
        return str(path)

    async def _fetch(self, sha: str, path: Path) -> None:
        try:
            async with self._reach.client.request("GET", path_of(self._session, f"/files/{sha}")) as answer:
                content = await answer.content.read(-1)
            await asyncio.to_thread(path.write_bytes, content)
        except (CliError, OSError) as error:
            self._view.note(f"{path.name} could not be fetched: {error}", "red")


class _Interrupts:
    """Ctrl-c while it is held: once stops the agent, twice leaves."""

    def __init__(self, first: Callable[[], None], *, pressed: bool) -> None:
        self._first = first
        self._left = asyncio.Event()
        self._pressed = pressed

    def __enter__(self) -> asyncio.Event:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._press)
        return self._left

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    def _press(self) -> None:
        if self._pressed:
            self._left.set()
        else:
            self._pressed = True
            self._first()


class _Typing:
    """Lines that are typed while the agent works."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def __enter__(self) -> None:
        terminal = sys.stdin.fileno()
        self._before = termios.tcgetattr(terminal)
        quiet = termios.tcgetattr(terminal)
        quiet[3] &= ~termios.ECHOCTL  # Or a `^C` stands in the middle of what is drawn.
        termios.tcsetattr(terminal, termios.TCSANOW, quiet)
        asyncio.get_running_loop().add_reader(terminal, self._read)

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._before)

    def _read(self) -> None:
        # From the terminal itself: what Python's own reader took ahead, the next prompt would not see.
        typed = os.read(sys.stdin.fileno(), 65536)
        if not typed:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        for line in typed.decode(errors="replace").splitlines():
            if line.strip():
                self._say(line.strip())


def _content(message: str, attach: Sequence[str]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = [{"type": "text", "text": message}] if message.strip() else []
    for each in attach:
        path = Path(each)
        try:
            if path.stat().st_size > _LARGEST:
                raise UsageProblem(f"{each} is larger than {_LARGEST // 2**20} MiB")
            data = path.read_bytes()
        except OSError as error:
            raise UsageProblem(f"{each} cannot be read: {error.strerror}") from None
        mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        kind = "image" if mime.startswith("image/") else "file"
        content.append({"type": kind, "name": path.name, "mime": mime, "data": base64.b64encode(data).decode()})
    return content


async def _session(client: Client, settings: Mapping[str, Any], resume: str | None) -> str:
    if resume is None:
        return str((await client.post(SESSIONS, dict(settings)))["id"])
    session = await find_session(client, resume)
    if settings:
        await client.ask("PATCH", path_of(session), json=dict(settings))
    return session
