"""Our terminal joined to one in a box."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import termios
import time
import tty
from typing import Any

from paddock.cli.client import Client
from paddock.cli.execution import PASSING
from paddock.cli.failure import ConnectionLost, NoServer, Refused
from paddock.cli.output import plain

STDIN, STDOUT, STDERR, REPLAY = 0, 1, 2, 3
TAKEN_OVER = 4001
RECONNECT_SECONDS = 30.0
NOTICE_SECONDS = 10.0
_WHOLE_SCREEN = re.compile(rb"\x1b\[\?(?:1049|1047|47)([hl])")
_QUESTIONS = re.compile(
    rb"\x1b\[[>=?]?[0-9;]*[cn]|\x1b\[\?u"  # what it is, where its cursor is, how it reads keys
    rb"|\x1b\[\??[0-9;]*\$p|\x1b\[>[0-9;]*q|\x1b\[(?:1[1-9]|2[01])t"  # its modes, version, sizes
    rb"|\x1b\][0-9;]+;\?(?:\x07|\x1b\\)|\x1bP[+$]q[^\x1b]*\x1b\\"  # its colours, capabilities
)
"""What programs ask a terminal, which it answers as if somebody had typed the answer."""


class Escape:
    """Finds `~.` at the start of a line in what is typed. `~~` there stands for one `~`."""

    def __init__(self) -> None:
        self._line_start = True
        self._tilde = False

    def feed(self, typed: bytes) -> tuple[bytes, bool]:
        """What to pass on, and whether to leave."""
        passed = bytearray()
        for byte in typed:
            letter = bytes((byte,))
            if self._tilde:
                self._tilde = False
                if letter == b".":
                    return bytes(passed), True
                if letter != b"~":
                    passed += b"~"
                passed += letter
                self._line_start = letter in b"\r\n"
            elif self._line_start and letter == b"~":
                self._tilde = True
            else:
                passed += letter
                self._line_start = letter in b"\r\n\x03\x04"
        return bytes(passed), False


class Notice:
    """Tells who types that somebody else has the input: in words at first, and then by the bell."""

    def __init__(self) -> None:
        self._last: tuple[str, float] | None = None
        self._whole_screen = False

    def shown(self, output: bytes) -> None:
        """Learn from output whether a program has the whole screen, which a line of ours would spoil."""
        for found in _WHOLE_SCREEN.finditer(output):
            self._whole_screen = found[1] == b"h"

    def typed(self, holder: str, now: float) -> bytes:
        """What to show when something was typed in vain."""
        known = self._last is not None and self._last[0] == holder and now - self._last[1] < NOTICE_SECONDS
        if known or self._whole_screen:
            return b"\a"
        self._last = (holder, now)
        return f"\a\r\n[{plain(holder)} has control; what you type goes nowhere]\r\n".encode()


class Terminal:
    """One session in a terminal of a box; survives a restart of the server."""

    def __init__(self, client: Client, path: str, **query: str) -> None:
        """`path` is that of the WebSocket, and `query` goes with it each time."""
        self._client = client
        self._path = path
        self._query = query
        self._position = 0
        self._escape = Escape()
        self._typed: asyncio.Queue[bytes] = asyncio.Queue()
        self._connected_at = 0.0
        self._notice = Notice()

    async def run(self) -> int | None:
        """Show it until it ends. Returns its exit code, or None when it was left running."""
        before = termios.tcgetattr(sys.stdin)
        loop = asyncio.get_running_loop()
        sizes = asyncio.Event()
        loop.add_signal_handler(signal.SIGWINCH, sizes.set)
        stop = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, lambda: stop.cancel() if stop else None)
        loop.add_reader(sys.stdin.fileno(), self._read)
        try:
            tty.setraw(sys.stdin)
            return await self._stay(sizes)
        except asyncio.CancelledError:
            return None
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for number in (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)

    async def _stay(self, sizes: asyncio.Event) -> int | None:
        last_seen = time.monotonic()
        while True:
            try:
                return await self._connect(sizes)
            except (ConnectionLost, NoServer, Refused) as error:
                if isinstance(error, Refused) and error.server_code not in PASSING:
                    raise
                last_seen = max(last_seen, self._connected_at)
                if time.monotonic() - last_seen > RECONNECT_SECONDS:
                    raise
                await asyncio.sleep(0.25)

    async def _connect(self, sizes: asyncio.Event) -> int | None:
        async with self._client.websocket(self._path, since=str(self._position), **self._query) as ws:
            self._connected_at = time.monotonic()
            sizes.set()
            tasks = [
                asyncio.ensure_future(self._show(ws)),
                asyncio.ensure_future(self._type(ws)),
                asyncio.ensure_future(_resize(ws, sizes)),
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                first = next(iter(done))
                return first.result()
            finally:
                self._connected_at = time.monotonic()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _show(self, ws: Any) -> int | None:
        async for message in ws:
            if isinstance(message.data, bytes):
                self._output(message.data)
                continue
            frame = json.loads(message.data)
            if frame.get("type") == "exit":
                return int(frame.get("exit_code") or 0)
            if frame.get("type") == "held":
                self._write(self._notice.typed(str(frame.get("by")), time.monotonic()))
            if frame.get("type") == "connected" and isinstance(held := frame.get("held"), dict):
                self._write(self._notice.typed(str(held.get("by")), time.monotonic()))
            if frame.get("type") == "error" and frame.get("code") == "START_FAILED":
                raise Refused(500, "START_FAILED", str(frame.get("error")))
        if ws.close_code == TAKEN_OVER:
            raise Refused(409, "TAKEN_OVER", "somebody else has attached to this terminal")
        raise ConnectionLost("the connection to the terminal broke off")

    def _output(self, frame: bytes) -> None:
        if frame[0] == REPLAY:
            first, data = int.from_bytes(frame[1:9], "big"), frame[9:]
            self._position = first + len(data)
            data = without_questions(data)
        elif frame[0] in (STDOUT, STDERR):
            data = frame[1:]
            self._position += len(data)
        else:
            return
        self._notice.shown(data)
        self._write(data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(sys.stdout.fileno(), view) :]

    async def _type(self, ws: Any) -> None:
        while True:
            typed = await self._typed.get()
            passed, left = self._escape.feed(typed)
            if passed:
                await ws.send_bytes(bytes((STDIN,)) + passed)
            if left or not typed:
                return

    def _read(self) -> None:
        try:
            self._typed.put_nowait(os.read(sys.stdin.fileno(), 64 * 1024))
        except OSError:
            self._typed.put_nowait(b"")


def without_questions(replayed: bytes) -> bytes:
    """Output shown again, without questions: nobody waits for the answers now, and a shell would run them."""
    return _QUESTIONS.sub(b"", replayed)


async def _resize(ws: Any, sizes: asyncio.Event) -> None:
    while True:
        await sizes.wait()
        sizes.clear()
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        if columns and rows:
            await ws.send_str(json.dumps({"type": "resize", "cols": columns, "rows": rows}))
