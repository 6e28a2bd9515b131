"""WebSocket clients of terminals and screen grids."""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.support.server import Server

TIMEOUT_SECONDS = 60.0
MAX_MATCH_SIZE = 1000
"""Longest match of a pattern, in bytes."""


class WebSocketClient:
    """A WebSocket to the server, with the unread messages received so far."""

    def __init__(self, server: Server, path: str, *, key: str | None = None, **query: object) -> None:
        address = f"ws://{server.domain}{path}?" + "&".join(f"{name}={value}" for name, value in query.items())
        headers = {"Authorization": f"Bearer {server.key if key is None else key}"}
        self._resources = ExitStack()
        self.socket: ClientConnection = self._resources.enter_context(
            connect(
                address,
                additional_headers=headers,
                max_size=None,
                compression=None,
                proxy=None,
                open_timeout=TIMEOUT_SECONDS,
            )
        )
        self.messages: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._resources.close()

    def send_json(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def wait_for_message(self, kind: str, **wanted: Any) -> dict[str, Any]:
        """Read until a message of this type with these fields arrives, and return it."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            for message in self.messages:
                if message["type"] == kind and wanted.items() <= message.items():
                    self.messages.remove(message)
                    return message
            self.read(deadline)

    def read(self, deadline: float) -> None:
        message = self.socket.recv(timeout=max(0.0, deadline - time.monotonic()))
        if isinstance(message, str):
            self.messages.append(json.loads(message))
        else:
            self.handle_binary(message)

    def handle_binary(self, message: bytes) -> None:
        raise NotImplementedError

    def read_until_closed(self) -> int:
        """Read until the server closes the connection; return the close code."""
        try:
            while True:
                self.read(time.monotonic() + TIMEOUT_SECONDS)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else 1006


class TerminalClient(WebSocketClient):
    """A client of a terminal WebSocket."""

    def __init__(self, server: Server, sandbox_id: str, *, key: str | None = None, **query: object) -> None:
        self.received_output = bytearray()
        self.position = int(str(query.get("since", 0)))
        self.replays: list[tuple[int, bytes]] = []
        super().__init__(server, f"/v1/sandboxes/{sandbox_id}/terminal", key=key, **query)

    def handle_binary(self, message: bytes) -> None:
        if message[0] == 3:
            first, data = int.from_bytes(message[1:9], "big"), message[9:]
            self.replays.append((first, data))
            self.position = first + len(data)
        else:
            assert message[0] == 1
            data = message[1:]
            self.position += len(data)
        self.received_output += data

    def type(self, text: str) -> None:
        self.socket.send(b"\0" + text.encode())

    def expect(self, pattern: str) -> None:
        """Read until the output matches, and drop it up to the end of the match."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        searched_to = 0
        wanted = re.compile(pattern.encode())
        # Output is searched only once: there may be megabytes of it.
        while not (found := wanted.search(self.received_output, max(0, searched_to - MAX_MATCH_SIZE))):
            searched_to = len(self.received_output)
            self.read(deadline)
        del self.received_output[: found.end()]

    def run(self, command: str, pattern: str) -> None:
        self.type(f"{command}\r")
        self.expect(pattern)
