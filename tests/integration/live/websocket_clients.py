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

PATIENCE = 60.0
LONGEST = 1000
"""Bytes that a test looks for at once."""


class WebSocketClient:
    """A WebSocket of the server, with everything that came so far."""

    def __init__(self, server: Server, path: str, *, key: str | None = None, **query: object) -> None:
        address = f"ws://{server.domain}{path}?" + "&".join(f"{name}={value}" for name, value in query.items())
        headers = {"Authorization": f"Bearer {server.key if key is None else key}"}
        self._held = ExitStack()
        self.socket: ClientConnection = self._held.enter_context(
            connect(
                address, additional_headers=headers, max_size=None, compression=None, proxy=None, open_timeout=PATIENCE
            )
        )
        self.words: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._held.close()

    def say(self, **word: Any) -> None:
        self.socket.send(json.dumps(word))

    def word(self, kind: str, **wanted: Any) -> dict[str, Any]:
        """Read until a message of that type has come."""
        deadline = time.monotonic() + PATIENCE
        while True:
            for word in self.words:
                if word["type"] == kind and wanted.items() <= word.items():
                    self.words.remove(word)
                    return word
            self.read(deadline)

    def read(self, deadline: float) -> None:
        message = self.socket.recv(timeout=max(0.0, deadline - time.monotonic()))
        if isinstance(message, str):
            self.words.append(json.loads(message))
        else:
            self.take(message)

    def take(self, message: bytes) -> None:
        raise NotImplementedError

    def read_to_the_end(self) -> int:
        """Read until the server closes the connection, and say with which code."""
        try:
            while True:
                self.read(time.monotonic() + PATIENCE)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else 1006


class TerminalClient(WebSocketClient):
    """A client of a terminal WebSocket."""

    def __init__(self, server: Server, sandbox_id: str, *, key: str | None = None, **query: object) -> None:
        self.shown = bytearray()
        self.position = int(str(query.get("since", 0)))
        self.replays: list[tuple[int, bytes]] = []
        super().__init__(server, f"/v1/sandboxes/{sandbox_id}/terminal", key=key, **query)

    def take(self, message: bytes) -> None:
        if message[0] == 3:
            first, data = int.from_bytes(message[1:9], "big"), message[9:]
            self.replays.append((first, data))
            self.position = first + len(data)
        else:
            assert message[0] == 1
            data = message[1:]
            self.position += len(data)
        self.shown += data

    def type(self, text: str) -> None:
        self.socket.send(b"\0" + text.encode())

    def expect(self, pattern: str) -> None:
        """Read until it has been shown, and forget what came before."""
        deadline = time.monotonic() + PATIENCE
        looked = 0
        wanted = re.compile(pattern.encode())
        # What has been looked through is not looked through again: there may be megabytes of it.
        while not (found := wanted.search(self.shown, max(0, looked - LONGEST))):
            looked = len(self.shown)
            self.read(deadline)
        del self.shown[: found.end()]

    def run(self, command: str, pattern: str) -> None:
        self.type(f"{command}\r")
        self.expect(pattern)
