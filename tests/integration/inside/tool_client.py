"""Client for the tools of one sandbox, over the daemon's socket."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.screen_images import run_screen_sandbox

from .daemon import Answer, Connection


@dataclass(frozen=True)
class ToolClient:
    """Calls tools over a daemon's socket."""

    socket: Path
    token: str

    def ask(self, method: str, target: str, body: Any = None, **headers: str) -> Answer:
        connection = Connection(self.socket, 60.0)
        try:
            self._send(connection, method, target, body, headers)
            with connection.getresponse() as response:
                return Answer(response.status, response.read(), dict(response.getheaders()))
        finally:
            connection.close()

    @contextmanager
    def stream(
        self, target: str, timeout: float = 10.0, *, method: str = "GET", body: Any = None, **headers: str
    ) -> Iterator[http.client.HTTPResponse]:
        connection = Connection(self.socket, timeout)
        response = None
        try:
            self._send(connection, method, target, body, headers)
            response = connection.getresponse()
            yield response
        finally:
            if response is not None:
                response.close()
            connection.close()

    @contextmanager
    def stream_call(self, tool: str, /, **arguments: Any) -> Iterator[Iterator[dict[str, Any]]]:
        """Yield the JSON lines of a streaming call."""
        lines = "application/x-ndjson"
        with self.stream(f"/tools/{tool}", 30.0, method="POST", body=arguments, Accept=lines) as response:
            assert response.status == 200, response.read()
            assert response.getheader("Content-Type") == lines
            yield map(json.loads, response)

    def result(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        answer = self.ask("POST", f"/tools/{tool}", arguments)
        assert answer.status == 200, answer.body
        document: dict[str, Any] = answer.json()
        return document

    def call(self, tool: str, /, **arguments: Any) -> str:
        """Return the text of a call that succeeds."""
        result = self.result(tool, **arguments)
        assert result["isError"] is False, result["content"]
        return text_of(result)

    def data(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the structured content of a call that succeeds."""
        result = self.result(tool, **arguments)
        assert result["isError"] is False, result["content"]
        document: dict[str, Any] = result["structuredContent"]
        return document

    def fails(self, tool: str, /, **arguments: Any) -> str:
        """Return the error text of a call that fails."""
        result = self.result(tool, **arguments)
        assert result["isError"] is True, result["content"]
        return text_of(result)

    def refuses(self, tool: str, /, **arguments: Any) -> str:
        """Return the message that refuses a call's arguments."""
        answer = self.ask("POST", f"/tools/{tool}", arguments)
        assert (answer.status, answer.error()) == (400, "INVALID_ARGUMENTS"), answer.body
        message: str = answer.json()["message"]
        return message

    def shell(self, command: str, **more: Any) -> str:
        """Return the output of a command that succeeds."""
        result = self.data("run_shell_command", command=command, **more)
        assert result["exit_code"] == 0, result
        printed: str = result["stdout"]
        return printed

    def _send(self, connection: Connection, method: str, target: str, body: Any, headers: dict[str, str]) -> None:
        content = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, target, body=content, headers={"X-EXECD-ACCESS-TOKEN": self.token, **names})


@contextmanager
def desktop(directory: Path) -> Iterator[ToolClient]:
    """Run a Linux desktop with window manager and panel, and yield its tools."""
    with run_screen_sandbox(directory, "desktop") as sandbox:
        address = sandbox.backend.daemon_address(sandbox.record)
        assert address.socket is not None
        tools = ToolClient(address.socket, address.token)
        tools.ask("POST", "/paddock/services/start", {})
        tools.call("wait_for_settled_screen", quiet=0.3)
        yield tools


def text_of(result: dict[str, Any]) -> str:
    return "\n".join(part["text"] for part in result["content"] if part["type"] == "text")


def pictures_of(result: dict[str, Any]) -> list[bytes]:
    return [base64.b64decode(part["data"]) for part in result["content"] if part["type"] == "image"]
