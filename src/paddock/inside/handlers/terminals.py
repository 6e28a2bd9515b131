"""Handlers for terminals over WebSocket: binary frames carry bytes, JSON text frames carry control messages."""

from __future__ import annotations

import json
import struct
import threading
import time

from ..daemon import Daemon
from ..errors import ApiError, invalid_body_error
from ..exec.terminals import ShellTerminal
from ..http.buffered_socket import PeerDisconnected
from ..http.http11 import BufferedSocket, HttpReply, IncomingRequest, RawConnectionReply, json_reply
from ..http.json_fields import optional_json_field
from ..http.websocket import BINARY, PING, PING_INTERVAL, TEXT, WebSocket, WebSocketClosed, check_websocket_upgrade

STDIN, REPLAY = 0x00, 0x03
FLOOD_BYTES, GATHERED_BYTES, GATHER_SECONDS = 4 * 1024, 64 * 1024, 0.002
"""After FLOOD_BYTES bytes at once, output is gathered up to GATHERED_BYTES bytes for at most GATHER_SECONDS seconds."""


def create_terminal(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    document = request.json_object()
    command = optional_json_field(document, "command", str) or ""
    if "\0" in command:
        raise invalid_body_error("'command' must not contain NUL")
    cwd = optional_json_field(document, "cwd", str) or ""
    return json_reply(
        _terminal_document(daemon.terminals.create(cwd, command, optional_json_field(document, "id", str)))
    )


def list_terminals(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    return json_reply({"terminals": [_terminal_document(terminal) for terminal in daemon.terminals.list_terminals()]})


def get_terminal(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    return json_reply(_terminal_document(daemon.terminals.get(request.params["id"])))


def delete_terminal(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    daemon.terminals.delete(request.params["id"])
    return HttpReply(200)


def attach_to_terminal(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    terminal = daemon.terminals.get(request.params["id"])
    check_websocket_upgrade(request)
    takeover = request.query("takeover") == "1"
    since = request.query_int("since", 0) or 0
    client_connection = _TerminalClient(terminal, request, since)
    if not terminal.attach_client(client_connection.evict, takeover):
        raise ApiError(409, "ALREADY_CONNECTED", f"another client is connected to terminal {terminal.id}")
    return RawConnectionReply(client_connection.run)


def _terminal_document(terminal: ShellTerminal) -> dict[str, object]:
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


class _TerminalClient:
    """One client connected to one terminal."""

    def __init__(self, terminal: ShellTerminal, request: IncomingRequest, since: int) -> None:
        self._terminal = terminal
        self._request = request
        self._since = since
        self._socket: WebSocket | None = None
        self._started_here = False
        self._closed = threading.Event()

    def evict(self, code: int, reason: str) -> None:
        """Disconnect the client, even if it does not read."""
        self._closed.set()
        if self._socket is not None:
            self._socket.close(code, reason, lock_timeout=0.2)
            self._socket.abort()

    def run(self, client: BufferedSocket) -> None:
        sender: threading.Thread | None = None
        try:
            socket = self._socket = WebSocket(client, self._request)
            if self._closed.is_set() or not self._start(socket):
                return
            sender = threading.Thread(target=self._send_output, args=(socket,), daemon=True)
            sender.start()
            while True:
                self._handle_message(socket, *socket.receive())
        except (WebSocketClosed, PeerDisconnected, OSError):
            pass
        finally:
            self._closed.set()
            self._terminal.report_progress(-1)
            if sender is not None:
                sender.join(5.0)
            self._terminal.detach_client()

    def _start(self, socket: WebSocket) -> bool:
        try:
            columns, rows = self._request.query_int("cols", None), self._request.query_int("rows", None)
            size = (columns, rows) if columns is not None and rows is not None else None
            self._started_here = self._terminal.start(pty=self._request.query("pty") != "0", size=size)
        except (OSError, ApiError) as error:
            _send_json(socket, type="error", code="START_FAILED", error=str(error))
            socket.close()
            return False
        return True

    def _send_output(self, socket: WebSocket) -> None:
        terminal = self._terminal
        try:
            position = 0 if self._started_here else self._replay(socket, self._since)
            mode = "pty" if terminal.is_pty else "pipe"
            _send_json(socket, type="connected", session_id=terminal.id, mode=mode, offset=position)
            ping_at = time.monotonic() + PING_INTERVAL
            flooded = False
            while not self._closed.is_set():
                if flooded:
                    terminal.output.wait_beyond(position + GATHERED_BYTES, GATHER_SECONDS, self._closed)
                timeout = max(0.0, ping_at - time.monotonic())
                more = terminal.output.wait_beyond(position, timeout, self._closed)
                first, pieces = terminal.output.output_since(position)
                if first > position:
                    position = self._replay(socket, first)
                    continue
                flooded = sum(len(data) for _, data in pieces) >= FLOOD_BYTES
                for stream, data in pieces:
                    socket.send(BINARY, bytes((stream,)) + data)
                    position += len(data)
                    terminal.report_progress(position)
                if not more:
                    return self._finish(socket)
                # Ping also during output: a client that only reads sends nothing else.
                if time.monotonic() >= ping_at and not self._closed.is_set():
                    socket.send(PING, b"")
                    ping_at = time.monotonic() + PING_INTERVAL
        except (PeerDisconnected, OSError):
            socket.abort()

    def _replay(self, socket: WebSocket, since: int) -> int:
        first, pieces = self._terminal.output.output_since(since)
        data = b"".join(piece for _, piece in pieces)
        if data:
            socket.send(BINARY, struct.pack("!BQ", REPLAY, first) + data)
        return first + len(data)

    def _finish(self, socket: WebSocket) -> None:
        child = self._terminal.child
        _send_json(socket, type="exit", exit_code=child.exit_code if child is not None else None)
        socket.close(reason="process exited")
        socket.stop_receiving()

    def _handle_message(self, socket: WebSocket, kind: int, message: bytes) -> None:
        if kind == BINARY:
            if message[:1] == bytes((STDIN,)):
                self._write_input(socket, message[1:])
        elif kind == TEXT:
            self._handle_control(socket, message)

    def _handle_control(self, socket: WebSocket, message: bytes) -> None:
        try:
            frame = json.loads(message)
            kind = frame["type"]
            if kind == "stdin":
                self._write_input(socket, str(frame["data"]).encode())
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

    def _write_input(self, socket: WebSocket, data: bytes) -> None:
        try:
            self._terminal.write(data, self._closed)
        except OSError as error:
            _send_json(socket, type="error", code="STDIN_WRITE_FAILED", error=str(error))


def _send_json(socket: WebSocket, **frame: object) -> None:
    socket.send(TEXT, json.dumps(frame).encode())
