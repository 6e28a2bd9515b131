"""Talking to `inside`, the daemon in every box, over its socket."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp

from paddock.errors import BoxGone
from paddock.sandbox.exchange import MAX_ANSWER, QUICK, as_object, documents, pieces, read_bounded
from paddock.sandbox.screen_client import ScreenClient

__all__ = ["ENTRYPOINT", "QUICK", "Command", "Ended", "Inside", "Output", "Result"]

ENTRYPOINT = "entrypoint"
"""The id under which `inside` runs a box's entrypoint."""


@dataclass(frozen=True)
class Output:
    """A piece of what a command wrote, byte for byte."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    cursor: int | None = None


@dataclass(frozen=True)
class Ended:
    """A command's end. `reason` is set when it did not end by itself."""

    exit_code: int
    reason: str = ""


@dataclass
class Result:
    """All of a command that has ended."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    reason: str = ""


@dataclass(frozen=True)
class Command:
    """Something to run in a box."""

    command: str | Sequence[str]
    """Shell text, or a list of words that no shell sees."""
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    stdin: str | None = None

    def document(self, **more: Any) -> dict[str, Any]:
        words = {"command": self.command} if isinstance(self.command, str) else {"argv": list(self.command)}
        body: dict[str, Any] = {**words, "envs": dict(self.env), **more}
        if self.cwd is not None:
            body["cwd"] = self.cwd
        if self.timeout is not None:
            body["timeout"] = int(self.timeout * 1000)
        if self.stdin is not None:
            body["stdin"] = self.stdin
        return body


class Inside(ScreenClient):
    """A client of one box's daemon. Use as an async context manager, or call `close`.

    Raises `BoxGone` when nothing listens any more, `BoxTimeout` when nothing comes back, `NotFound` and
    `InvalidInput` for what the daemon refuses.
    """

    async def ping(self, timeout: float = QUICK) -> None:
        await self._ask("GET", "/ping", timeout=timeout)

    async def state(self, timeout: float = QUICK) -> dict[str, Any]:
        """What the daemon says of itself: entrypoint, running commands, when it was last used."""
        return as_object(await self._ask("GET", "/paddock/state", timeout=timeout))

    async def metrics(self) -> dict[str, Any]:
        return as_object(await self._ask("GET", "/metrics"))

    async def claim(self, env: Mapping[str, str], entrypoint: Sequence[str] | None) -> None:
        """Make a box that was started ahead of need somebody's. Works once."""
        body = {"env": dict(env), "entrypoint": list(entrypoint) if entrypoint else None}
        await self._ask("POST", "/paddock/claim", json=body)

    async def run(self, command: Command | str, *, limit: int = MAX_ANSWER) -> Result:
        """Run a command to its end, keeping at most `limit` bytes of each stream."""
        result = Result(exit_code=-1)
        async for event in self.stream(command):
            if isinstance(event, Ended):
                result.exit_code, result.reason = event.exit_code, event.reason
            elif event.stream == "stdout":
                result.stdout += event.data[: max(0, limit - len(result.stdout))]
            else:
                result.stderr += event.data[: max(0, limit - len(result.stderr))]
        return result

    async def stream(self, command: Command | str) -> AsyncIterator[Output | Ended]:
        """Run a command and yield what it writes as it comes; the last item is its end."""
        if isinstance(command, str):
            command = Command(command)
        async with self.request("POST", "/command", json=command.document(raw=True)) as answer:
            async for event in _events(answer):
                yield event

    async def start(self, command: Command | str, *, id: str | None = None, timeout: float = QUICK) -> str:
        """Start a command that goes on by itself, and return its id.

        With an `id` of the caller's own it is started once, however often that is asked for.
        """
        if isinstance(command, str):
            command = Command(command)
        body = command.document(background=True, raw=True) | ({} if id is None else {"id": id})
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self.request("POST", "/command", json=body, timeout=limit) as answer:
            async for document in documents(answer):
                if document.get("type") == "init":
                    return str(document.get("text"))
        raise BoxGone("the box took the command but gave it no id")

    async def status(self, command_id: str) -> dict[str, Any]:
        return as_object(await self._ask("GET", f"/command/status/{command_id}"))

    async def interrupt(self, command_id: str) -> None:
        await self._ask("DELETE", "/command", params={"id": command_id})

    async def signal(self, command_id: str, name: str) -> None:
        """Pass a signal, such as `INT`, on to a command's process group."""
        await self._ask("DELETE", "/command", params={"id": command_id, "signal": name})

    async def follow(
        self, command_id: str, cursor: int = 0, *, whole: bool = False
    ) -> AsyncGenerator[Output | Ended, None]:
        """Yield what a background command wrote since `cursor` and goes on writing, until its end.

        Pieces end where lines do, unless they are wanted `whole`, which is quicker.
        """
        query = {"cursor": str(cursor), "follow": "1", "whole": "1" if whole else "0"}
        async with self.request("GET", f"/command/{command_id}/logs", params=query) as answer:
            async for event in _events(answer):
                yield event

    async def read_file(self, path: str, *, limit: int = MAX_ANSWER) -> bytes:
        async with self.request("GET", "/files/download", params={"path": path}) as answer:
            return await read_bounded(answer, limit)

    @asynccontextmanager
    async def open_file(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read a file of any size in pieces."""
        async with self.request("GET", "/files/download", params={"path": path}) as answer:
            yield pieces(answer)

    async def write_file(self, path: str, content: bytes | AsyncIterable[bytes], *, mode: int = 644) -> None:
        """Write a file, whole or not at all. `mode` is in decimal digits that read as octal, as execd has it."""
        with aiohttp.MultipartWriter("form-data") as form:
            metadata = form.append_json({"path": path, "mode": mode})
            metadata.set_content_disposition("form-data", name="metadata", filename="metadata")
            file = form.append(content)
            file.set_content_disposition("form-data", name="file", filename="file")
        await self._ask("POST", "/files/upload", data=form, timeout=None)

    async def about(self, path: str) -> dict[str, Any]:
        """What a file or directory is: type, size, mode. A link is told of as such. Raises `NotFound`."""
        found = as_object(await self._ask("GET", "/files/info", params={"path": path}))
        described = next(iter(found.values()), None)
        if not isinstance(described, dict):
            raise BoxGone("the box answers nonsense")
        return described

    async def remove_file(self, path: str) -> None:
        await self._ask("DELETE", "/files", params={"path": path})

    async def remove_directory(self, path: str) -> None:
        """Remove a directory with all that is in it."""
        await self._ask("DELETE", "/directories", params={"path": path})

    async def get_archive(self, path: str) -> AsyncGenerator[bytes, None]:
        """A directory or file as a tar stream."""
        async with self.request("GET", "/archive", params={"path": path}) as answer:
            async for piece in pieces(answer):
                yield piece

    async def put_archive(self, path: str, content: bytes | AsyncIterable[bytes]) -> None:
        """Unpack a tar stream below a directory of the box."""
        await self._ask("PUT", "/archive", params={"path": path}, data=content, timeout=None)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[Output | Ended]:
    finished = False
    async for document in documents(answer):
        kind = document.get("type")
        if kind in ("stdout", "stderr"):
            yield Output(kind, _data(document), _number(document.get("cursor")))
        elif kind == "error":
            finished = True
            yield _ended(document.get("error"))
        elif kind == "execution_complete":
            finished = True
            yield Ended(0)
    if not finished:
        raise BoxGone("the box ended before the command did")


def _data(document: Mapping[str, Any]) -> bytes:
    exact = document.get("data")
    try:
        data = base64.b64decode(exact) if exact else str(document.get("text", "")).encode(errors="surrogatepass")
    except (ValueError, TypeError) as error:
        raise BoxGone("the box answers nonsense") from error
    return data + (b"\n" if document.get("eol") else b"")


def _number(value: object) -> int | None:
    try:
        return int(value) if isinstance(value, (int, str)) else None
    except ValueError:
        return None


def _ended(error: object) -> Ended:
    if not isinstance(error, dict):
        return Ended(1)
    code = _number(error.get("evalue"))
    traceback = error.get("traceback")
    return Ended(1 if code is None else code, str(traceback[0]) if isinstance(traceback, list) and traceback else "")
