"""Talking to `inside`, the daemon in every box, over its socket.

What comes back is from a box, and a box is not to be trusted: sizes are bounded, waits have limits, and nothing is
taken for more than data.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from paddock.errors import BoxGone, BoxTimeout, InvalidInput, NotFound
from paddock.model.sandbox import Address

TOKEN_HEADER = "X-EXECD-ACCESS-TOKEN"  # noqa: S105
MAX_ANSWER = 16 * 2**20
MAX_LINE = 4 * 2**20
MAX_WORD = 2**20
"""Largest answer to a question about the box itself, which is read as JSON."""
MAX_MESSAGE = 2000
MAX_INTERIM = 8
"""Most answers of 100 and up before the real one."""
QUICK = 30.0
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


class _Answer(aiohttp.ClientResponse):
    """An answer that comes to the point.

    aiohttp reads any number of interim ones without a pause, and nobody else would be served meanwhile.
    """

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        assert protocol is not None
        read = protocol.read
        left = MAX_INTERIM

        async def read_a_few() -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise HttpProcessingError(message="too many interim answers")
            return await read()

        protocol.read = read_a_few  # type: ignore[method-assign]
        try:
            return await super().start(connection)
        except BaseException:
            _abort(connection)
            raise
        finally:
            protocol.read = read  # type: ignore[method-assign]


class Inside:
    """A client of one box's daemon. Use as an async context manager, or call `close`.

    Raises `BoxGone` when nothing listens any more, `BoxTimeout` when nothing comes back, `NotFound` and
    `InvalidInput` for what the daemon refuses.
    """

    def __init__(self, address: Address) -> None:
        connector: aiohttp.BaseConnector
        if address.socket is not None:
            connector = aiohttp.UnixConnector(str(address.socket), limit=0)
            self._base = URL("http://inside")
        else:
            connector = aiohttp.TCPConnector(limit=0)
            self._base = URL(f"http://{address.host}:{address.port}")
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={TOKEN_HEADER: address.token},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=QUICK),
            read_bufsize=2**20,
            response_class=_Answer,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def ping(self, timeout: float = QUICK) -> None:
        await self._ask("GET", "/ping", timeout=timeout)

    async def state(self, timeout: float = QUICK) -> dict[str, Any]:
        """What the daemon says of itself: entrypoint, running commands, when it was last used."""
        return _object(await self._ask("GET", "/paddock/state", timeout=timeout))

    async def metrics(self) -> dict[str, Any]:
        return _object(await self._ask("GET", "/metrics"))

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
            async for document in _documents(answer):
                if document.get("type") == "init":
                    return str(document.get("text"))
        raise BoxGone("the box took the command but gave it no id")

    async def status(self, command_id: str) -> dict[str, Any]:
        return _object(await self._ask("GET", f"/command/status/{command_id}"))

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
            return await _read(answer, limit)

    @asynccontextmanager
    async def open_file(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read a file of any size in pieces."""
        async with self.request("GET", "/files/download", params={"path": path}) as answer:
            yield _pieces(answer)

    async def write_file(self, path: str, content: bytes | AsyncIterable[bytes], *, mode: int = 644) -> None:
        """Write a file, whole or not at all. `mode` is in decimal digits that read as octal, as execd has it."""
        with aiohttp.MultipartWriter("form-data") as form:
            metadata = form.append_json({"path": path, "mode": mode})
            metadata.set_content_disposition("form-data", name="metadata", filename="metadata")
            file = form.append(content)
            file.set_content_disposition("form-data", name="file", filename="file")
        await self._ask("POST", "/files/upload", data=form, timeout=None)

    async def get_archive(self, path: str) -> AsyncIterator[bytes]:
        """A directory or file as a tar stream."""
        async with self.request("GET", "/archive", params={"path": path}) as answer:
            async for piece in _pieces(answer):
                yield piece

    async def put_archive(self, path: str, content: bytes | AsyncIterable[bytes]) -> None:
        """Unpack a tar stream below a directory of the box."""
        await self._ask("PUT", "/archive", params={"path": path}, data=content, timeout=None)

    @asynccontextmanager
    async def websocket(
        self, path: str, *, raw: bool = False, **arguments: Any
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A conversation with the daemon, or below `/proxy` with a program; with `raw`, `path` is sent as it is."""
        try:
            async with self._session.ws_connect(
                self._url(path, raw), autoping=False, max_msg_size=MAX_ANSWER, **arguments
            ) as ws:
                yield ws
        except aiohttp.WSServerHandshakeError as error:
            raise _refusal(error.status, error.message) from error
        except aiohttp.ClientConnectionError as error:
            raise BoxGone("the box has ended") from error

    @asynccontextmanager
    async def request(
        self, method: str, path: str, *, raw: bool = False, headers: CIMultiDict[str] | None = None, **arguments: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One exchange with the daemon; unless `raw`, an answer of 400 and up is raised.

        With `raw`, `path` is sent byte for byte, with its query.
        """
        try:
            async with self._session.request(
                method, self._url(path, raw), headers=headers, allow_redirects=False, **arguments
            ) as answer:
                if answer.status >= 400 and not raw:
                    raise _refusal(answer.status, (await _read(answer, MAX_LINE)).decode(errors="replace"))
                try:
                    yield answer
                except BaseException:
                    _abort(answer.connection)
                    raise
        except aiohttp.ClientConnectionError as error:
            raise BoxGone("the box does not answer any more") from error
        except TimeoutError as error:
            raise BoxTimeout() from error
        except aiohttp.ClientPayloadError as error:
            raise BoxGone("the box broke off in the middle of an answer") from error
        except aiohttp.ClientError as error:
            raise BoxGone("the box answers nonsense") from error

    def _url(self, path: str, raw: bool = False) -> URL:
        if raw:  # Joining would resolve `..` and empty segments, which mean something to the program that gets them.
            where, _, query = path.partition("?")
            authority = self._base.authority
            return URL.build(scheme="http", authority=authority, path=where, query_string=query, encoded=True)
        return self._base.join(URL(path, encoded=True)) if "%" in path else self._base.join(URL(path))

    async def _ask(self, method: str, path: str, *, timeout: float | None = QUICK, **arguments: Any) -> bytes:
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self.request(method, path, timeout=limit, **arguments) as answer:
            return await _read(answer, MAX_WORD)


def _abort(connection: Connection | None) -> None:
    """Break off at once: closing would wait until the box has read what was sent, and it may never do that."""
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


async def _read(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    content = bytearray()
    async for piece in answer.content.iter_any():
        content += piece
        if len(content) > limit:
            raise InvalidInput(f"the box's answer is larger than {limit} bytes")
    return bytes(content)


async def _pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async for piece in answer.content.iter_any():
        yield piece


async def _documents(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of an event stream, which are bare and parted by empty lines."""
    rest = bytearray()
    async for piece in answer.content.iter_any():
        seen = len(rest)  # Only what is new is searched: a box may send an event byte by byte.
        rest += piece
        while (end := rest.find(b"\n", seen)) >= 0:
            line, seen = bytes(rest[:end]), 0
            del rest[: end + 1]
            if line:
                yield _object(line)
        if len(rest) > MAX_LINE:
            raise BoxGone("the box sends an endless event")


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[Output | Ended]:
    finished = False
    async for document in _documents(answer):
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


def _object(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BoxGone("the box answers nonsense") from error
    if not isinstance(document, dict):
        raise BoxGone("the box answers nonsense")
    return document


def _refusal(status: int, body: str) -> InvalidInput | NotFound | BoxTimeout:
    try:
        message = str(json.loads(body).get("message", body))
    except (ValueError, AttributeError, RecursionError):
        message = body
    message = message[:MAX_MESSAGE]
    return NotFound(message) if status == 404 else InvalidInput(message)
