"""Connects the local terminal to a terminal in a sandbox."""

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

from paddock.cli.connection.server_client import ServerClient
from paddock.cli.output.errors import ConnectionLost, NoServerError, RequestRefused
from paddock.cli.output.formatting import sanitize_text
from paddock.cli.sandbox.remote_command import TRANSIENT_CODES

STDIN_FRAME, STDOUT_FRAME, STDERR_FRAME, REPLAY_FRAME = 0, 1, 2, 3
CLOSE_TAKEN_OVER = 4001
RECONNECT_SECONDS = 30.0
NOTICE_SECONDS = 10.0
_ALTERNATE_SCREEN = re.compile(rb"\x1b\[\?(?:1049|1047|47)([hl])")
_TERMINAL_QUERIES = re.compile(
    rb"\x1b\[[>=?]?[0-9;]*[cn]|\x1b\[\?u"  # device attributes, cursor position, keyboard mode
    rb"|\x1b\[\??[0-9;]*\$p|\x1b\[>[0-9;]*q|\x1b\[(?:1[1-9]|2[01])t"  # modes, version, sizes
    rb"|\x1b\][0-9;]+;\?(?:\x07|\x1b\\)|\x1bP[+$]q[^\x1b]*\x1b\\"  # colours, capabilities
)
"""Queries of programs, which a terminal answers as if the user had typed the answer."""


class EscapeSequenceDetector:
    """Finds `~.` at the start of a typed line; `~~` there stands for one `~`."""

    def __init__(self) -> None:
        self._line_start = True
        self._tilde = False

    def feed(self, typed: bytes) -> tuple[bytes, bool]:
        """Return the bytes to forward, and whether to detach."""
        forwarded = bytearray()
        for byte in typed:
            character = bytes((byte,))
            if self._tilde:
                self._tilde = False
                if character == b".":
                    return bytes(forwarded), True
                if character != b"~":
                    forwarded += b"~"
                forwarded += character
                self._line_start = character in b"\r\n"
            elif self._line_start and character == b"~":
                self._tilde = True
            else:
                forwarded += character
                self._line_start = character in b"\r\n\x03\x04"
        return bytes(forwarded), False


class InputHolderNotice:
    """Tells the user that another person controls the terminal: first in words, then by the bell."""

    def __init__(self) -> None:
        self._last: tuple[str, float] | None = None
        self._whole_screen = False

    def observe_output(self, output: bytes) -> None:
        """Track whether a program uses the alternate screen, where a notice would damage the display."""
        for found in _ALTERNATE_SCREEN.finditer(output):
            self._whole_screen = found[1] == b"h"

    def rejected_input_notice(self, holder: str, now: float) -> bytes:
        """Return what to print when typed input was rejected."""
        known = self._last is not None and self._last[0] == holder and now - self._last[1] < NOTICE_SECONDS
        if known or self._whole_screen:
            return b"\a"
        self._last = (holder, now)
        return f"\a\r\n[{sanitize_text(holder)} has control; your input is ignored]\r\n".encode()


class TerminalSession:
    """A session in a terminal of a sandbox; survives a restart of the server."""

    def __init__(self, client: ServerClient, path: str, **query: str) -> None:
        """`path` is the WebSocket's path; `query` is sent with each connection."""
        self._client = client
        self._path = path
        self._query = query
        self._position = 0
        self._escape = EscapeSequenceDetector()
        self._typed: asyncio.Queue[bytes] = asyncio.Queue()
        self._connected_at = 0.0
        self._notice = InputHolderNotice()

    async def run(self) -> int | None:
        """Run until the terminal ends. Returns its exit code, or None after detaching."""
        before = termios.tcgetattr(sys.stdin)
        loop = asyncio.get_running_loop()
        sizes = asyncio.Event()
        loop.add_signal_handler(signal.SIGWINCH, sizes.set)
        stop = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, lambda: stop.cancel() if stop else None)
        loop.add_reader(sys.stdin.fileno(), self._read_input)
        try:
            tty.setraw(sys.stdin)
            return await self._run_with_reconnects(sizes)
        except asyncio.CancelledError:
            return None
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for number in (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)

    async def _run_with_reconnects(self, sizes: asyncio.Event) -> int | None:
        last_seen = time.monotonic()
        while True:
            try:
                return await self._run_connection(sizes)
            except (ConnectionLost, NoServerError, RequestRefused) as error:
                if isinstance(error, RequestRefused) and error.server_code not in TRANSIENT_CODES:
                    raise
                last_seen = max(last_seen, self._connected_at)
                if time.monotonic() - last_seen > RECONNECT_SECONDS:
                    raise
                await asyncio.sleep(0.25)

    async def _run_connection(self, sizes: asyncio.Event) -> int | None:
        async with self._client.open_websocket(self._path, since=str(self._position), **self._query) as ws:
            self._connected_at = time.monotonic()
            sizes.set()
            tasks = [
                asyncio.ensure_future(self._show_output(ws)),
                asyncio.ensure_future(self._send_input(ws)),
                asyncio.ensure_future(_send_sizes(ws, sizes)),
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

    async def _show_output(self, ws: Any) -> int | None:
        async for message in ws:
            if isinstance(message.data, bytes):
                self._write_frame(message.data)
                continue
            frame = json.loads(message.data)
            if frame.get("type") == "exit":
                return int(frame.get("exit_code") or 0)
            if frame.get("type") == "held":
                self._write(self._notice.rejected_input_notice(str(frame.get("by")), time.monotonic()))
            if frame.get("type") == "connected" and isinstance(held := frame.get("held"), dict):
                self._write(self._notice.rejected_input_notice(str(held.get("by")), time.monotonic()))
            if frame.get("type") == "error" and frame.get("code") == "START_FAILED":
                raise RequestRefused(500, "START_FAILED", str(frame.get("error")))
        if ws.close_code == CLOSE_TAKEN_OVER:
            raise RequestRefused(409, "TAKEN_OVER", "another client attached to this terminal")
        raise ConnectionLost("the connection to the terminal was lost")

    def _write_frame(self, frame: bytes) -> None:
        if frame[0] == REPLAY_FRAME:
            first, data = int.from_bytes(frame[1:9], "big"), frame[9:]
            self._position = first + len(data)
            data = strip_terminal_queries(data)
        elif frame[0] in (STDOUT_FRAME, STDERR_FRAME):
            data = frame[1:]
            self._position += len(data)
        else:
            return
        self._notice.observe_output(data)
        self._write(data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(sys.stdout.fileno(), view) :]

    async def _send_input(self, ws: Any) -> None:
        while True:
            typed = await self._typed.get()
            forwarded, left = self._escape.feed(typed)
            if forwarded:
                await ws.send_bytes(bytes((STDIN_FRAME,)) + forwarded)
            if left or not typed:
                return

    def _read_input(self) -> None:
        try:
            self._typed.put_nowait(os.read(sys.stdin.fileno(), 64 * 1024))
        except OSError:
            self._typed.put_nowait(b"")


def strip_terminal_queries(replayed: bytes) -> bytes:
    """Remove terminal queries from replayed output: their answers would be typed into the shell."""
    return _TERMINAL_QUERIES.sub(b"", replayed)


async def _send_sizes(ws: Any, sizes: asyncio.Event) -> None:
    while True:
        await sizes.wait()
        sizes.clear()
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        if columns and rows:
            await ws.send_str(json.dumps({"type": "resize", "cols": columns, "rows": rows}))
