"""The one client of a terminal in a box, for all who watch it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import aiohttp
import structlog

from paddock.errors import BoxTimeout, NotFound, PaddockError
from paddock.live.scroll import REPLAY, STDERR, STDIN, STDOUT, Scroll
from paddock.live.seat import Seat, Size
from paddock.model.screens import Holder
from paddock.sandbox.client import Inside

if TYPE_CHECKING:
    from paddock.live.terminals import InputLease

AHEAD = 2**18
"""Bytes that the program may be ahead of the viewer who keeps up best; beyond that it waits."""
STUCK = 2.0
"""Seconds after which a viewer who takes nothing does not hold the program up any more."""
LINGER = 3.0
"""Seconds that a hub stays when its last viewer has gone: most come back at once."""
OPEN_WITHIN = 15.0
TYPED_WITHIN = 5.0
PIECE = 2**14
"""Bytes of input passed on at a time."""
STILL_HERE = 20.0
FARTHEST = 2**52
"""The last offset that a box may claim to be at: no terminal has shown that much, and browsers count that far."""
TRIES = 8
TAKEN_OVER = 4001
log = structlog.get_logger()


class Hub:
    """Stays attached, also when the connection breaks, until the terminal ends or nobody watches.

    The program in the terminal is slowed down by the viewer who keeps up best, by no other, and by nobody who is stuck.
    """

    def __init__(
        self,
        sandbox_id: str,
        name: str,
        inside: Inside,
        leases: InputLease,
        *,
        running: Callable[[], Awaitable[bool]],
        ended: Callable[[int | None, str], Awaitable[None]],
        left: Callable[[Hub], None],
        typed: Callable[[str, bytes], None] = lambda viewer, data: None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.name = name
        self.scroll = Scroll()
        self.seats: list[Seat] = []
        self.last_word: Mapping[str, Any] | None = None
        """What viewers are told last, once there is nothing more to come."""
        self.end_reason = "exited"
        """What it is put down to when the program ends."""
        self._inside = inside
        self._leases = leases
        self._running = running
        self._ended = ended
        self._left = left
        self._typed = typed
        self._size: Size | None = None
        self._active: Seat | None = None
        """The one whose window the terminal is as large as: who typed last."""
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._attached = asyncio.Event()
        self._moved = asyncio.Event()
        self._typing = asyncio.Lock()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._work: asyncio.Task[None] | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Future[Any]] = set()

    @property
    def over(self) -> bool:
        return self.last_word is not None or (self._work is not None and self._work.done())

    async def open(self) -> None:
        """Attach. Raises what keeps it from that."""
        self._work = asyncio.create_task(self._run(), name=f"terminal {self.sandbox_id} {self.name}")
        try:
            async with asyncio.timeout(OPEN_WITHIN):
                await asyncio.shield(self._opened)
        except TimeoutError:
            await self.close()
            raise BoxTimeout("the terminal does not answer") from None
        except BaseException:
            await self.close()
            raise

    def join(self, viewer: str, *, since: int, size: Size | None, may_type: bool) -> Seat:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        lease = self._leases.attach(self.sandbox_id, viewer)
        lease.__enter__()
        seat = Seat(self, viewer, lease, since=since, size=size, may_type=may_type)
        self.seats.append(seat)
        if self._active is None and may_type and self.held_from(seat) is None:
            self._active = seat
            if size is not None:
                self._later(self._apply(size))
        return seat

    def leave(self, seat: Seat) -> None:
        if seat in self.seats:
            self.seats.remove(seat)
        if self._active is seat:
            self._active = None
        self._moved.set()
        if not self.seats and self._leaving is None:
            self._leaving = asyncio.get_running_loop().call_later(LINGER, self._go)

    def welcome(self) -> Mapping[str, Any]:
        holder = self._leases.holder(self.sandbox_id)
        return {
            "type": "connected",
            "session_id": self.name,
            "name": self.name,
            "mode": "pty",
            "offset": self.scroll.end,
            "held": None if holder is None else {"by": holder.name, "viewer": holder.viewer},
            **({} if self._size is None else {"cols": self._size.columns, "rows": self._size.rows}),
        }

    def held_from(self, seat: Seat) -> Holder | None:
        """Who keeps this viewer from typing, if anybody does."""
        if self._leases.allows(self.sandbox_id, seat.viewer):
            return None
        return self._leases.holder(self.sandbox_id)

    async def type(self, seat: Seat, data: bytes) -> bool:
        """Pass on what a viewer typed; False when the terminal does not take it."""
        self._typed(seat.viewer, data)
        if self._active is not seat:
            self._active = seat
            if seat.size is not None and seat.size != self._size:
                await self._apply(seat.size)
        view = memoryview(data)
        while view:
            if not await self._send(bytes((STDIN,)) + view[:PIECE]):
                return False
            view = view[PIECE:]
        return True

    async def resize(self, seat: Seat, size: Size) -> None:
        """Note how large a viewer's window is; the terminal follows the one who types."""
        seat.size = size
        if self._active is None and self.held_from(seat) is None:
            self._active = seat
        if self._active is seat and self.held_from(seat) is None:
            await self._apply(size)

    async def signal(self, seat: Seat, name: str) -> None:
        await self._send(json.dumps({"type": "signal", "signal": name}))

    def moved(self) -> None:
        """A viewer has taken something."""
        self._moved.set()

    def finish(self, word: Mapping[str, Any]) -> None:
        """There is nothing more to come."""
        if self.last_word is None:
            self.last_word = word
        if not self._opened.done():
            self._opened.set_result(None)
        for seat in self.seats:
            seat.wake()
        self._left(self)

    async def exited(self, exit_code: int | None) -> None:
        """The program has ended; tell everybody, once."""
        if self.last_word is None:
            self.finish({"type": "exit", "exit_code": exit_code, "reason": self.end_reason})
            await self._ended(exit_code, self.end_reason)

    async def close(self) -> None:
        """Detach. The terminal goes on."""
        if self._leaving is not None:
            self._leaving.cancel()
        self.finish({"type": "closed", "reason": "the server is stopping"})
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    def _go(self) -> None:
        if not self.seats:
            self._left(self)
            if self._work is not None:
                self._work.cancel()

    async def _run(self) -> None:
        failed = 0
        try:
            while self.last_word is None:
                attached_at = asyncio.get_running_loop().time()
                try:
                    await self._attach()
                except NotFound:
                    self._fail(NotFound(f"there is no terminal {self.name}"))
                    return self.finish({"type": "closed", "reason": "the terminal is no more"})
                except (PaddockError, aiohttp.ClientError, OSError) as error:
                    if not self._opened.done():
                        return self._fail(error)
                if self.last_word is not None:
                    return None
                failed = failed + 1 if asyncio.get_running_loop().time() - attached_at < 1.0 else 0
                if not await self._running():
                    return self.finish({"type": "closed", "reason": "the sandbox has ended"})
                if failed >= TRIES:
                    return self.finish({"type": "closed", "reason": "the connection to the box broke off"})
                await asyncio.sleep(min(1.0, 0.05 * 2**failed))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.exception("a terminal failed", sandbox=self.sandbox_id, terminal=self.name)
            self._fail(error)
            self.finish({"type": "closed", "reason": "something went wrong here; the server's log says more"})
        finally:
            self._socket = None
        return None

    def _fail(self, error: BaseException) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)

    async def _attach(self) -> None:
        path = f"/pty/{self.name}/ws?since={self.scroll.end}&takeover=1"
        async with self._inside.websocket(path) as socket:
            beating = asyncio.create_task(_beat(socket))
            try:
                await self._read(socket)
            finally:
                self._socket = None
                self._attached.clear()
                beating.cancel()
                await asyncio.gather(beating, return_exceptions=True)

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            message = await socket.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                self._output(message.data)
                for seat in self.seats:
                    seat.wake()
                if self.seats:
                    await self._wait_for_viewers()
            elif message.type is aiohttp.WSMsgType.TEXT:
                if await self._heed(socket, message.data):
                    return
            elif message.type is aiohttp.WSMsgType.PING:
                await socket.pong(message.data)
            elif message.type is not aiohttp.WSMsgType.PONG:
                if socket.close_code == TAKEN_OVER:
                    self.finish({"type": "closed", "reason": "somebody else has attached to this terminal"})
                return

    def _output(self, frame: bytes) -> None:
        kind = frame[0] if frame else None
        if kind == STDOUT:
            self.scroll.append(frame)
        elif kind == STDERR:
            self.scroll.append(bytes((STDOUT,)) + frame[1:])
        elif kind == REPLAY and len(frame) >= 9 and (first := int.from_bytes(frame[1:9], "big")) <= FARTHEST:
            self.scroll.load(first, frame[9:])

    async def _heed(self, socket: aiohttp.ClientWebSocketResponse, text: str) -> bool:
        """Act on a word of the daemon; whether it was the last."""
        try:
            word = json.loads(text)
            kind = word["type"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        if kind == "connected":
            self._socket = socket
            self._attached.set()
            if not self._opened.done():
                self._opened.set_result(None)
            elif self._size is not None:
                await self._apply(self._size, again=True)
        elif kind == "exit":
            code = word.get("exit_code")
            code = code if isinstance(code, int) and abs(code) < 2**31 else None
            await self.exited(code)
            return True
        elif kind == "error":
            told = {"type": "error", "code": str(word.get("code"))[:40], "error": str(word.get("error"))[:200]}
            if told["code"] == "START_FAILED":
                self.finish(told)
                return True
            for seat in self.seats:
                seat.tell(told)
        return False

    async def _wait_for_viewers(self) -> None:
        """Hold the program up while even the quickest viewer lags, but for nobody who has stopped taking anything."""
        loop = asyncio.get_running_loop()
        while self.seats:
            now = loop.time()
            patience = 0.0
            for seat in self.seats:
                if seat.started and self.scroll.end - seat.position < AHEAD:
                    return
                patience = max(patience, seat.moved_at + STUCK - now)
            if patience <= 0:
                return
            self._moved.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._moved.wait()
            except TimeoutError:
                pass

    async def _apply(self, size: Size, again: bool = False) -> None:
        if size == self._size and not again:
            return
        self._size = size
        await self._send(json.dumps({"type": "resize", "cols": size.columns, "rows": size.rows}))
        for seat in self.seats:
            seat.tell({"type": "size", "cols": size.columns, "rows": size.rows})

    async def _send(self, message: bytes | str) -> bool:
        """Pass something on to the box, in order; what it does not take in time is dropped."""
        try:
            async with asyncio.timeout(TYPED_WITHIN):
                async with self._typing:
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

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _beat(socket: aiohttp.ClientWebSocketResponse) -> None:
    """The daemon lets go of clients that it does not hear from."""
    while True:
        await asyncio.sleep(STILL_HERE)
        await socket.ping()
