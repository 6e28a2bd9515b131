"""Terminals over WebSocket: binary frames carry bytes, JSON frames carry everything else."""

from __future__ import annotations

import json
import struct
import threading
import time

from ..box import Box
from ..errors import ApiError, invalid
from ..fields import optional
from ..http import Reply, Request, Takeover, Wire, json_reply
from ..terminals import Terminal
from ..wire import Disconnected
from ..ws import BINARY, PING, PING_INTERVAL, TEXT, Closed, WebSocket, check_upgrade

STDIN, REPLAY = 0x00, 0x03
FLOOD, LARGE_PIECE, GATHERING = 4 * 1024, 64 * 1024, 0.002
"""After a piece of this size, the next one waits until it is large, though not longer than these seconds."""


def create(box: Box, request: Request) -> Reply:
    document = request.json_object()
    command = optional(document, "command", str) or ""
    if "\0" in command:
        raise invalid("'command' must not contain NUL")
    cwd = optional(document, "cwd", str) or ""
    return json_reply(_document(box.terminals.create(cwd, command, optional(document, "id", str))))


def list_all(box: Box, request: Request) -> Reply:
    return json_reply({"terminals": [_document(terminal) for terminal in box.terminals.all()]})


def status(box: Box, request: Request) -> Reply:
    return json_reply(_document(box.terminals.get(request.params["id"])))


def delete(box: Box, request: Request) -> Reply:
    box.terminals.delete(request.params["id"])
    return Reply(200)


def attach(box: Box, request: Request) -> Reply:
    terminal = box.terminals.get(request.params["id"])
    check_upgrade(request)
    takeover = request.query("takeover") == "1"
    since = request.query_int("since", 0) or 0
    attachment = _Attachment(terminal, request, since)
    if not terminal.acquire(attachment.evict, takeover):
        raise ApiError(409, "ALREADY_CONNECTED", f"another client is connected to terminal {terminal.id}")
    return Takeover(attachment.run)


def _document(terminal: Terminal) -> dict[str, object]:
    return {
        "session_id": terminal.id,
        "running": terminal.running,
        "output_offset": terminal.output.end,
        "launch_attempted": terminal.child is not None or terminal.launch_failed,
        "launch_failed": terminal.launch_failed,
        "exit_code": terminal.child.exit_code if terminal.child is not None else None,
        "cols": terminal.columns,
        "rows": terminal.rows,
    }


class _Attachment:
    """One client on one terminal."""

    def __init__(self, terminal: Terminal, request: Request, since: int) -> None:
        self._terminal = terminal
        self._request = request
        self._since = since
        self._socket: WebSocket | None = None
        self._fresh = False
        self._over = threading.Event()

    def evict(self, code: int, reason: str) -> None:
        """Leave the terminal, also when the client does not read any more."""
        self._over.set()
        if self._socket is not None:
            self._socket.close(code, reason, lock_timeout=0.2)
            self._socket.abort()

    def run(self, wire: Wire) -> None:
        sender: threading.Thread | None = None
        try:
            socket = self._socket = WebSocket(wire, self._request)
            if self._over.is_set() or not self._start(socket):
                return
            sender = threading.Thread(target=self._send_output, args=(socket,), daemon=True)
            sender.start()
            while True:
                self._handle(socket, *socket.receive())
        except (Closed, Disconnected, OSError):
            pass
        finally:
            self._over.set()
            self._terminal.report_progress(-1)
            if sender is not None:
                sender.join(5.0)
            self._terminal.release()

    def _start(self, socket: WebSocket) -> bool:
        try:
            self._fresh = self._terminal.start(pty=self._request.query("pty") != "0")
        except (OSError, ApiError) as error:
            _send_json(socket, type="error", code="START_FAILED", error=str(error))
            socket.close()
            return False
        return True

    def _send_output(self, socket: WebSocket) -> None:
        terminal = self._terminal
        try:
            position = 0 if self._fresh else self._replay(socket, self._since)
            mode = "pty" if terminal.is_pty else "pipe"
            _send_json(socket, type="connected", session_id=terminal.id, mode=mode, offset=position)
            ping_at = time.monotonic() + PING_INTERVAL
            flooded = False
            while not self._over.is_set():
                if flooded:
                    terminal.output.wait_beyond(position + LARGE_PIECE, GATHERING, self._over)
                patience = max(0.0, ping_at - time.monotonic())
                more = terminal.output.wait_beyond(position, patience, self._over)
                first, pieces = terminal.output.since(position)
                if first > position:
                    position = self._replay(socket, first)
                    continue
                flooded = sum(len(data) for _, data in pieces) >= FLOOD
                for stream, data in pieces:
                    socket.send(BINARY, bytes((stream,)) + data)
                    position += len(data)
                    terminal.report_progress(position)
                if not more:
                    return self._finish(socket)
                # Also in the midst of output: a client that only reads has nothing else to answer.
                if time.monotonic() >= ping_at and not self._over.is_set():
                    socket.send(PING, b"")
                    ping_at = time.monotonic() + PING_INTERVAL
        except (Disconnected, OSError):
            socket.abort()

    def _replay(self, socket: WebSocket, since: int) -> int:
        first, pieces = self._terminal.output.since(since)
        data = b"".join(piece for _, piece in pieces)
        if data:
            socket.send(BINARY, struct.pack("!BQ", REPLAY, first) + data)
        return first + len(data)

    def _finish(self, socket: WebSocket) -> None:
        child = self._terminal.child
        _send_json(socket, type="exit", exit_code=child.exit_code if child is not None else None)
        socket.close(reason="process exited")
        socket.stop_receiving()

    def _handle(self, socket: WebSocket, kind: int, message: bytes) -> None:
        if kind == BINARY:
            if message[:1] == bytes((STDIN,)):
                self._input(socket, message[1:])
        elif kind == TEXT:
            self._control(socket, message)

    def _control(self, socket: WebSocket, message: bytes) -> None:
        try:
            frame = json.loads(message)
            kind = frame["type"]
            if kind == "stdin":
                self._input(socket, str(frame["data"]).encode())
            elif kind == "resize":
                self._terminal.resize(int(frame["cols"]), int(frame["rows"]))
            elif kind == "signal":
                if not self._terminal.signal(str(frame["signal"])):
                    raise ValueError(f"no signal {frame['signal']!r}")
            elif kind == "ping":
                _send_json(socket, type="pong")
            else:
                raise ValueError(f"unknown frame type {kind!r}")
        except (ValueError, KeyError, TypeError, struct.error) as error:
            _send_json(socket, type="error", code="INVALID_FRAME", error=str(error))

    def _input(self, socket: WebSocket, data: bytes) -> None:
        try:
            self._terminal.write(data, self._over)
        except OSError as error:
            _send_json(socket, type="error", code="STDIN_WRITE_FAILED", error=str(error))


def _send_json(socket: WebSocket, **frame: object) -> None:
    socket.send(TEXT, json.dumps(frame).encode())
