"""Client of the daemon in a sandbox."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp

from paddock.errors import SandboxGone
from paddock.sandbox.daemon.daemon_http import (
    MAX_REPLY_BYTES,
    QUICK_TIMEOUT,
    parse_json_object,
    read_body_chunks,
    read_bounded_body,
    read_json_lines,
)
from paddock.sandbox.daemon.screen_client import ScreenClient

__all__ = [
    "ENTRYPOINT",
    "QUICK_TIMEOUT",
    "CommandEnded",
    "CommandOutputChunk",
    "CommandResult",
    "DaemonClient",
    "SandboxCommand",
]

MAX_LISTENING_PORTS = 256
ENTRYPOINT = "entrypoint"
"""Command id of a sandbox's entrypoint."""


@dataclass(frozen=True)
class CommandOutputChunk:
    """A chunk of raw command output."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    cursor: int | None = None


@dataclass(frozen=True)
class CommandEnded:
    """End of a command. `reason` is set if it did not exit by itself."""

    exit_code: int
    reason: str = ""


@dataclass
class CommandResult:
    """Output and end of a finished command."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    reason: str = ""


@dataclass(frozen=True)
class SandboxCommand:
    """A command to run in a sandbox."""

    command: str | Sequence[str]
    """Shell text, or an argument list."""
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    stdin: str | None = None
    user: str | int | None = None
    """Name or id of the user to run it as, in a sandbox in root mode."""

    def document(self, **more: Any) -> dict[str, Any]:
        words = {"command": self.command} if isinstance(self.command, str) else {"argv": list(self.command)}
        body: dict[str, Any] = {**words, "envs": dict(self.env), **more}
        if self.cwd is not None:
            body["cwd"] = self.cwd
        if self.timeout is not None:
            body["timeout"] = int(self.timeout * 1000)
        if self.stdin is not None:
            body["stdin"] = self.stdin
        if self.user is not None:
            body["user" if isinstance(self.user, str) else "uid"] = self.user
        return body


class DaemonClient(ScreenClient):
    """A client of one sandbox's daemon. Use as an async context manager, or call `close`.

    Raises `SandboxGone` if nothing listens, `SandboxTimeout` without an answer, `NotFound` and `InvalidInput` for
    refused requests.
    """

    async def ping(self, timeout: float = QUICK_TIMEOUT) -> None:
        await self._ask("GET", "/ping", timeout=timeout)

    async def state(self, timeout: float = QUICK_TIMEOUT) -> dict[str, Any]:
        """Return the daemon's status: entrypoint, running commands, time of last use."""
        return parse_json_object(await self._ask("GET", "/paddock/state", timeout=timeout))

    async def listening_ports(self) -> Sequence[int]:
        """Return the TCP ports on which programs in the sandbox listen, in ascending order."""
        ports = parse_json_object(await self._ask("GET", "/paddock/ports")).get("ports")
        if not isinstance(ports, list):
            raise SandboxGone("the sandbox sent an invalid reply")
        return sorted({each for each in ports if type(each) is int and 0 < each < 65536})[:MAX_LISTENING_PORTS]

    async def metrics(self) -> dict[str, Any]:
        return parse_json_object(await self._ask("GET", "/metrics"))

    async def claim(self, env: Mapping[str, str], entrypoint: Sequence[str] | None) -> None:
        """Claim a pool sandbox for its owner. Works once."""
        body = {"env": dict(env), "entrypoint": list(entrypoint) if entrypoint else None}
        await self._ask("POST", "/paddock/claim", json=body)

    async def run(self, command: SandboxCommand | str, *, limit: int = MAX_REPLY_BYTES) -> CommandResult:
        """Run a command and return its output, at most `limit` bytes per stream."""
        result = CommandResult(exit_code=-1)
        async for event in self.stream(command):
            if isinstance(event, CommandEnded):
                result.exit_code, result.reason = event.exit_code, event.reason
            elif event.stream == "stdout":
                result.stdout += event.data[: max(0, limit - len(result.stdout))]
            else:
                result.stderr += event.data[: max(0, limit - len(result.stderr))]
        return result

    async def stream(self, command: SandboxCommand | str) -> AsyncIterator[CommandOutputChunk | CommandEnded]:
        """Run a command and yield its output live; the last item is its end."""
        if isinstance(command, str):
            command = SandboxCommand(command)
        async with self.request("POST", "/command", json=command.document(raw=True)) as answer:
            async for event in _events(answer):
                yield event

    async def start(
        self, command: SandboxCommand | str, *, id: str | None = None, timeout: float = QUICK_TIMEOUT
    ) -> str:
        """Start a background command and return its id.

        With the caller's own `id`, repeated requests start it once.
        """
        if isinstance(command, str):
            command = SandboxCommand(command)
        body = command.document(background=True, raw=True) | ({} if id is None else {"id": id})
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self.request("POST", "/command", json=body, timeout=limit) as answer:
            async for document in read_json_lines(answer):
                if document.get("type") == "init":
                    return str(document.get("text"))
        raise SandboxGone("the sandbox's daemon returned no command id")

    async def status(self, command_id: str) -> dict[str, Any]:
        return parse_json_object(await self._ask("GET", f"/command/status/{command_id}"))

    async def interrupt(self, command_id: str) -> None:
        await self._ask("DELETE", "/command", params={"id": command_id})

    async def signal(self, command_id: str, name: str) -> None:
        """Send a signal, such as `INT`, to a command's process group."""
        await self._ask("DELETE", "/command", params={"id": command_id, "signal": name})

    async def follow(
        self, command_id: str, cursor: int = 0, *, whole: bool = False
    ) -> AsyncGenerator[CommandOutputChunk | CommandEnded, None]:
        """Yield the output of a background command from `cursor` until its end.

        Chunks end at line breaks; with `whole` they are larger and faster.
        """
        query = {"cursor": str(cursor), "follow": "1", "whole": "1" if whole else "0"}
        async with self.request("GET", f"/command/{command_id}/logs", params=query) as answer:
            async for event in _events(answer):
                yield event

    async def read_file(self, path: str, *, limit: int = MAX_REPLY_BYTES) -> bytes:
        async with self.request("GET", "/files/download", params={"path": path}) as answer:
            return await read_bounded_body(answer, limit)

    @asynccontextmanager
    async def open_file(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read a file of any size in chunks."""
        async with self.request("GET", "/files/download", params={"path": path}) as answer:
            yield read_body_chunks(answer)

    async def write_file(self, path: str, content: bytes | AsyncIterable[bytes], *, mode: int = 644) -> None:
        """Write a file atomically. `mode` is decimal digits read as octal, as in execd."""
        with aiohttp.MultipartWriter("form-data") as form:
            metadata = form.append_json({"path": path, "mode": mode})
            metadata.set_content_disposition("form-data", name="metadata", filename="metadata")
            file = form.append(content)
            file.set_content_disposition("form-data", name="file", filename="file")
        await self._ask("POST", "/files/upload", data=form, timeout=None)

    async def about(self, path: str) -> dict[str, Any]:
        """Return type, size and mode of a path without following links. Raises `NotFound`."""
        found = parse_json_object(await self._ask("GET", "/files/info", params={"path": path}))
        described = next(iter(found.values()), None)
        if not isinstance(described, dict):
            raise SandboxGone("the sandbox sent an invalid reply")
        return described

    async def remove_file(self, path: str) -> None:
        await self._ask("DELETE", "/files", params={"path": path})

    async def remove_directory(self, path: str) -> None:
        """Remove a directory recursively."""
        await self._ask("DELETE", "/directories", params={"path": path})

    async def get_archive(self, path: str) -> AsyncGenerator[bytes, None]:
        """Return a directory or file as a tar stream."""
        async with self.request("GET", "/archive", params={"path": path}) as answer:
            async for piece in read_body_chunks(answer):
                yield piece

    async def put_archive(self, path: str, content: bytes | AsyncIterable[bytes]) -> None:
        """Unpack a tar stream below a directory of the sandbox."""
        await self._ask("PUT", "/archive", params={"path": path}, data=content, timeout=None)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[CommandOutputChunk | CommandEnded]:
    finished = False
    async for document in read_json_lines(answer):
        kind = document.get("type")
        if kind in ("stdout", "stderr"):
            yield CommandOutputChunk(kind, _data(document), _number(document.get("cursor")))
        elif kind == "error":
            finished = True
            yield _ended(document.get("error"))
        elif kind == "execution_complete":
            finished = True
            yield CommandEnded(0)
    if not finished:
        raise SandboxGone("the sandbox ended before the command")


def _data(document: Mapping[str, Any]) -> bytes:
    exact = document.get("data")
    try:
        data = base64.b64decode(exact) if exact else str(document.get("text", "")).encode(errors="surrogatepass")
    except (ValueError, TypeError) as error:
        raise SandboxGone("the sandbox sent an invalid reply") from error
    return data + (b"\n" if document.get("eol") else b"")


def _number(value: object) -> int | None:
    try:
        return int(value) if isinstance(value, (int, str)) else None
    except ValueError:
        return None


def _ended(error: object) -> CommandEnded:
    if not isinstance(error, dict):
        return CommandEnded(1)
    code = _number(error.get("evalue"))
    traceback = error.get("traceback")
    return CommandEnded(
        1 if code is None else code, str(traceback[0]) if isinstance(traceback, list) and traceback else ""
    )
