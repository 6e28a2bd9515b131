"""One connection to a terminal in a sandbox, shared by all its viewers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import aiohttp
import structlog

from paddock.errors import NotFound, PaddockError, SandboxTimeout
from paddock.live.terminal.scrollback import REPLAY, STDERR, STDIN, STDOUT, SharedScrollback
from paddock.live.terminal.terminal_viewer import TerminalSize, TerminalViewer
from paddock.model.screens import InputControlHolder
from paddock.sandbox.daemon.client import DaemonClient

if TYPE_CHECKING:
    from paddock.live.terminal.registry import InputAccess

MAX_AHEAD = 2**18
"""Bytes by which the program may be ahead of the fastest viewer before it is held back."""
STALL_TIMEOUT = 2.0
"""Seconds after which a stalled viewer no longer causes back-pressure."""
LINGER = 3.0
"""Seconds the connection stays open without viewers: most reconnect at once."""
OPEN_TIMEOUT = 15.0
SEND_TIMEOUT = 5.0
INPUT_CHUNK = 2**14
"""Bytes of input sent in one message."""
PING_INTERVAL = 20.0
MAX_OFFSET = 2**52
"""Largest output offset accepted from a sandbox; JavaScript numbers are exact up to here."""
MAX_ATTEMPTS = 8
CLOSE_TAKEN_OVER = 4001
log = structlog.get_logger()


class SharedTerminal:
    """Stays attached to the terminal, reconnecting as needed, until it ends or has no viewers.

    Back-pressure on the program comes from the fastest viewer only; stalled viewers are ignored.
    """

    def __init__(
        self,
        sandbox_id: str,
        name: str,
        inside: DaemonClient,
        leases: InputAccess,
        *,
        is_sandbox_running: Callable[[], Awaitable[bool]],
        on_exit: Callable[[int | None, str], Awaitable[None]],
        on_detached: Callable[[SharedTerminal], None],
        on_input: Callable[[str, bytes], None] = lambda viewer_id, data: None,
        first_size: TerminalSize | None = None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.name = name
        self.scrollback = SharedScrollback()
        self.viewers: list[TerminalViewer] = []
        self.final_message: Mapping[str, Any] | None = None
        """Last message for viewers, set once no more output will come."""
        self.end_reason = "exited"
        """Reason reported when the program ends."""
        self._inside = inside
        self._leases = leases
        self._is_sandbox_running = is_sandbox_running
        self._on_exit = on_exit
        self._on_detached = on_detached
        self._on_input = on_input
        self._size: TerminalSize | None = None
        self._first_size = first_size
        """Size with which the shell starts, if it does not run yet."""
        self._active_viewer: TerminalViewer | None = None
        """The viewer that typed last; the terminal has the size of that viewer's window."""
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._attached = asyncio.Event()
        self._progress = asyncio.Event()
        self._send_lock = asyncio.Lock()
        self._attach_result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._detach_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Future[Any]] = set()

    @property
    def is_over(self) -> bool:
        return self.final_message is not None or (self._task is not None and self._task.done())

    async def open(self) -> None:
        """Attach to the terminal. Raises the error that prevents it."""
        self._task = asyncio.create_task(self._run(), name=f"terminal {self.sandbox_id} {self.name}")
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                await asyncio.shield(self._attach_result)
        except TimeoutError:
            await self.close()
            raise SandboxTimeout("the terminal does not answer") from None
        except BaseException:
            await self.close()
            raise

    def add_viewer(self, viewer_id: str, *, since: int, size: TerminalSize | None, may_type: bool) -> TerminalViewer:
        if self._detach_timer is not None:
            self._detach_timer.cancel()
            self._detach_timer = None
        lease = self._leases.track_connection(self.sandbox_id, viewer_id)
        lease.__enter__()
        viewer = TerminalViewer(self, viewer_id, lease, since=since, size=size, may_type=may_type)
        self.viewers.append(viewer)
        if self._active_viewer is None and may_type and self.holder_blocking(viewer) is None:
            self._active_viewer = viewer
            if size is not None:
                self._spawn(self._apply_size(size))
        return viewer

    def remove_viewer(self, viewer: TerminalViewer) -> None:
        if viewer in self.viewers:
            self.viewers.remove(viewer)
        if self._active_viewer is viewer:
            self._active_viewer = None
        self._progress.set()
        if not self.viewers and self._detach_timer is None:
            self._detach_timer = asyncio.get_running_loop().call_later(LINGER, self._detach_if_unused)

    def connected_message(self) -> Mapping[str, Any]:
        holder = self._leases.input_holder(self.sandbox_id)
        return {
            "type": "connected",
            "session_id": self.name,
            "name": self.name,
            "mode": "pty",
            "offset": self.scrollback.end,
            "held": None if holder is None else {"by": holder.name, "viewer": holder.viewer},
            **({} if self._size is None else {"cols": self._size.columns, "rows": self._size.rows}),
        }

    def holder_blocking(self, viewer: TerminalViewer) -> InputControlHolder | None:
        """Return the lease holder that keeps this viewer from typing, if any."""
        if self._leases.may_send_input(self.sandbox_id, viewer.viewer_id):
            return None
        return self._leases.input_holder(self.sandbox_id)

    async def send_input(self, viewer: TerminalViewer, data: bytes) -> bool:
        """Send a viewer's input to the terminal; return False when the terminal does not accept it."""
        self._on_input(viewer.viewer_id, data)
        if self._active_viewer is not viewer:
            self._active_viewer = viewer
            if viewer.size is not None and viewer.size != self._size:
                await self._apply_size(viewer.size)
        view = memoryview(data)
        while view:
            if not await self._send(bytes((STDIN,)) + view[:INPUT_CHUNK]):
                return False
            view = view[INPUT_CHUNK:]
        return True

    async def resize_viewer(self, viewer: TerminalViewer, size: TerminalSize) -> None:
        """Record a viewer's window size; the terminal follows the viewer that types."""
        viewer.size = size
        if self._active_viewer is None and self.holder_blocking(viewer) is None:
            self._active_viewer = viewer
        if self._active_viewer is viewer and self.holder_blocking(viewer) is None:
            await self._apply_size(size)

    async def send_signal(self, viewer: TerminalViewer, name: str) -> None:
        await self._send(json.dumps({"type": "signal", "signal": name}))

    def note_viewer_progress(self) -> None:
        """Wake the output reader: a viewer has consumed output."""
        self._progress.set()

    def finish(self, message: Mapping[str, Any]) -> None:
        """Set the final message and wake all viewers."""
        if self.final_message is None:
            self.final_message = message
        if not self._attach_result.done():
            self._attach_result.set_result(None)
        for viewer in self.viewers:
            viewer.wake_reader()
        self._on_detached(self)

    async def record_exit(self, exit_code: int | None) -> None:
        """Report the end of the program to viewers and listeners, once."""
        if self.final_message is None:
            self.finish({"type": "exit", "exit_code": exit_code, "reason": self.end_reason})
            await self._on_exit(exit_code, self.end_reason)

    async def close(self) -> None:
        """Detach; the terminal keeps running."""
        if self._detach_timer is not None:
            self._detach_timer.cancel()
        self.finish({"type": "closed", "reason": "the server is stopping"})
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _detach_if_unused(self) -> None:
        if not self.viewers:
            self._on_detached(self)
            if self._task is not None:
                self._task.cancel()

    async def _run(self) -> None:
        failed = 0
        try:
            while self.final_message is None:
                attached_at = asyncio.get_running_loop().time()
                try:
                    await self._attach()
                except NotFound:
                    self._fail_open(NotFound(f"there is no terminal {self.name}"))
                    return self.finish({"type": "closed", "reason": "the terminal no longer exists"})
                except (PaddockError, aiohttp.ClientError, OSError) as error:
                    if not self._attach_result.done():
                        return self._fail_open(error)
                if self.final_message is not None:
                    return None
                failed = failed + 1 if asyncio.get_running_loop().time() - attached_at < 1.0 else 0
                if not await self._is_sandbox_running():
                    return self.finish({"type": "closed", "reason": "the sandbox has ended"})
                if failed >= MAX_ATTEMPTS:
                    return self.finish({"type": "closed", "reason": "the connection to the sandbox was lost"})
                await asyncio.sleep(min(1.0, 0.05 * 2**failed))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.exception("terminal connection failed", sandbox=self.sandbox_id, terminal=self.name)
            self._fail_open(error)
            self.finish({"type": "closed", "reason": "internal error; see the server's log"})
        finally:
            self._socket = None
        return None

    def _fail_open(self, error: BaseException) -> None:
        if not self._attach_result.done():
            self._attach_result.set_exception(error)

    async def _attach(self) -> None:
        path = f"/pty/{self.name}/ws?since={self.scrollback.end}&takeover=1"
        if self._first_size is not None:
            path += f"&cols={self._first_size.columns}&rows={self._first_size.rows}"
        async with self._inside.websocket(path) as socket:
            ping_task = asyncio.create_task(_send_pings(socket))
            try:
                await self._read(socket)
            finally:
                self._socket = None
                self._attached.clear()
                ping_task.cancel()
                await asyncio.gather(ping_task, return_exceptions=True)

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            message = await socket.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                self._append_output(message.data)
                for viewer in self.viewers:
                    viewer.wake_reader()
                if self.viewers:
                    await self._wait_for_viewers()
            elif message.type is aiohttp.WSMsgType.TEXT:
                if await self._handle_daemon_message(socket, message.data):
                    return
            elif message.type is aiohttp.WSMsgType.PING:
                await socket.pong(message.data)
            elif message.type is not aiohttp.WSMsgType.PONG:
                if socket.close_code == CLOSE_TAKEN_OVER:
                    self.finish({"type": "closed", "reason": "another client has attached to this terminal"})
                return

    def _append_output(self, frame: bytes) -> None:
        kind = frame[0] if frame else None
        if kind == STDOUT:
            self.scrollback.append(frame)
        elif kind == STDERR:
            self.scrollback.append(bytes((STDOUT,)) + frame[1:])
        elif kind == REPLAY and len(frame) >= 9 and (first := int.from_bytes(frame[1:9], "big")) <= MAX_OFFSET:
            self.scrollback.load_replay(first, frame[9:])

    async def _handle_daemon_message(self, socket: aiohttp.ClientWebSocketResponse, text: str) -> bool:
        """Handle a control message of the daemon; return whether it was the last one."""
        try:
            message = json.loads(text)
            kind = message["type"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        if kind == "connected":
            self._socket = socket
            self._attached.set()
            if not self._attach_result.done():
                self._attach_result.set_result(None)
            elif self._size is not None:
                await self._apply_size(self._size, again=True)
        elif kind == "exit":
            code = message.get("exit_code")
            code = code if isinstance(code, int) and abs(code) < 2**31 else None
            await self.record_exit(code)
            return True
        elif kind == "error":
            error_message = {
                "type": "error",
                "code": str(message.get("code"))[:40],
                "error": str(message.get("error"))[:200],
            }
            if error_message["code"] == "START_FAILED":
                self.finish(error_message)
                return True
            for viewer in self.viewers:
                viewer.queue_message(error_message)
        return False

    async def _wait_for_viewers(self) -> None:
        """Apply back-pressure from the fastest viewer; ignore stalled viewers."""
        loop = asyncio.get_running_loop()
        while self.viewers:
            now = loop.time()
            wait_seconds = 0.0
            for viewer in self.viewers:
                if viewer.started and self.scrollback.end - viewer.position < MAX_AHEAD:
                    return
                wait_seconds = max(wait_seconds, viewer.advanced_at + STALL_TIMEOUT - now)
            if wait_seconds <= 0:
                return
            self._progress.clear()
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._progress.wait()
            except TimeoutError:
                pass

    async def _apply_size(self, size: TerminalSize, again: bool = False) -> None:
        if size == self._size and not again:
            return
        self._size = size
        await self._send(json.dumps({"type": "resize", "cols": size.columns, "rows": size.rows}))
        for viewer in self.viewers:
            viewer.queue_message({"type": "size", "cols": size.columns, "rows": size.rows})

    async def _send(self, message: bytes | str) -> bool:
        """Send a message to the sandbox, in order; drop it if the sandbox does not accept it in time."""
        try:
            async with asyncio.timeout(SEND_TIMEOUT):
                async with self._send_lock:
                    await self._attached.wait()
                    socket = self._socket
                    if socket is None:
                        return False
                    if isinstance(message, bytes):
                        await socket.send_bytes(message)
                    else:
                        await socket.send_str(message)
                    return True
        except (TimeoutError, aiohttp.ClientError, ConnectionError):
            return False

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _send_pings(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Ping regularly: the daemon disconnects silent clients."""
    while True:
        await asyncio.sleep(PING_INTERVAL)
        await socket.ping()
