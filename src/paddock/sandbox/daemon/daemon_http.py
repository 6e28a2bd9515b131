"""HTTP and WebSocket requests to a sandbox's daemon.

Replies come from an untrusted sandbox: sizes and waits are bounded, and content is treated as data only.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from paddock.errors import (
    DiskFull,
    InvalidInput,
    NotFound,
    PaddockError,
    SandboxError,
    SandboxGone,
    SandboxTimeout,
    Unavailable,
)
from paddock.model.sandbox import DaemonAddress
from paddock.sandbox.base import TOKEN_HEADER
from paddock.sandbox.daemon.untrusted_json import JsonTooCostly, decode_json, decode_long_json

MAX_REPLY_BYTES = 16 * 2**20
MAX_LINE_BYTES = 4 * 2**20
MAX_JSON_REPLY_BYTES = 2**20
"""Maximum bytes of a JSON reply."""
MAX_ERROR_MESSAGE_LENGTH = 2000
MAX_INTERIM_REPLIES = 8
"""Maximum number of 1xx replies before the final one."""
QUICK_TIMEOUT = 30.0
READ_SLICE_SECONDS = 0.002
"""Seconds of uninterrupted reading before yielding to the event loop."""
CLOSE_SECONDS = 2.0
_FULL_BACKLOG = frozenset({errno.EAGAIN, errno.ENOTCONN})
"""Errors of connecting to a daemon with too many waiting connections; asyncio notices it only when it sends."""


class EventLoopYielder:
    """Yields to the event loop regularly, because available data is read without waiting and may never end."""

    def __init__(self, rest: float = 0.0) -> None:
        """`rest` is the pause after each slice, as a multiple of the slice."""
        self._rest = rest * READ_SLICE_SECONDS
        self.restart_slice()

    def restart_slice(self) -> None:
        """Restart the slice after a wait, which already yielded."""
        self._since = time.perf_counter()

    async def yield_if_due(self) -> None:
        if time.perf_counter() - self._since > READ_SLICE_SECONDS:
            await asyncio.sleep(self._rest)
            self.restart_slice()


class _Conversation(aiohttp.ClientWebSocketResponse):
    """A WebSocket with bounded reading and closing."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._yielder = EventLoopYielder()
        self._socket_connection = self._conn

    async def receive(self, timeout: float | None = None) -> aiohttp.WSMessage:
        await self._yielder.yield_if_due()
        return await super().receive(timeout)

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        # aiohttp reads until the peer's close frame unless the close code is known.
        self._close_code = self._close_code or code
        transport = None if self._socket_connection is None else self._socket_connection.transport
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                return await super().close(code=code, message=message)
        except TimeoutError:
            return True
        finally:
            # Closing would wait until the sandbox has read everything, which may be never.
            if isinstance(transport, asyncio.WriteTransport) and transport.get_write_buffer_size():
                transport.abort()


class _Answer(aiohttp.ClientResponse):
    """A response that limits interim replies.

    aiohttp reads any number of 1xx replies without yielding.
    """

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        assert protocol is not None
        read = protocol.read
        left = MAX_INTERIM_REPLIES

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


class DaemonConnection:
    """A connection to one sandbox's daemon. Use as an async context manager, or call `close`.

    Raises `SandboxGone` if nothing listens, `SandboxTimeout` without an answer, `NotFound` and `InvalidInput` for
    refused requests.
    """

    def __init__(self, address: DaemonAddress) -> None:
        self._address = address
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
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=QUICK_TIMEOUT),
            read_bufsize=2**20,
            response_class=_Answer,
            ws_response_class=_Conversation,
        )
        self._answers: set[aiohttp.ClientResponse] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        # Closing a session does not wake readers of open responses, which would wait for ever.
        for answer in self._answers:
            answer.content.set_exception(aiohttp.ClientConnectionError("closed"))
        await self._session.close()

    @asynccontextmanager
    async def websocket(
        self, path: str, *, raw: bool = False, **arguments: Any
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket to the daemon, or below `/proxy` to a program; with `raw`, `path` is sent unchanged."""
        try:
            async with self._session.ws_connect(
                self._url(path, raw), autoping=False, max_msg_size=MAX_REPLY_BYTES, **arguments
            ) as ws:
                yield ws
        except aiohttp.WSServerHandshakeError as error:
            raise daemon_error_from_reply(error.status, error.message) from error
        except aiohttp.ClientConnectionError as error:
            raise _connection_failure(error, "the sandbox has ended") from error

    @asynccontextmanager
    async def request(
        self, method: str, path: str, *, raw: bool = False, headers: CIMultiDict[str] | None = None, **arguments: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request to the daemon; unless `raw`, status 400 and above raises.

        With `raw`, `path` and its query are sent byte for byte.
        """
        if self._session.closed:
            raise SandboxGone("the sandbox has ended")
        try:
            async with self._session.request(
                method, self._url(path, raw), headers=headers, allow_redirects=False, **arguments
            ) as answer:
                if answer.status >= 400 and not raw:
                    raise daemon_error_from_reply(
                        answer.status, (await read_bounded_body(answer, MAX_JSON_REPLY_BYTES)).decode(errors="replace")
                    )
                self._answers.add(answer)
                try:
                    yield answer
                except BaseException:
                    _abort(answer.connection)
                    raise
                finally:
                    self._answers.discard(answer)
        except aiohttp.ClientConnectionError as error:
            raise _connection_failure(error, "the sandbox no longer answers") from error
        except TimeoutError as error:
            raise SandboxTimeout() from error
        except aiohttp.ClientPayloadError as error:
            raise SandboxGone("the sandbox closed the connection in the middle of a reply") from error
        except aiohttp.ClientError as error:
            raise SandboxGone("the sandbox sent an invalid reply") from error

    def _url(self, path: str, raw: bool = False) -> URL:
        if raw:  # Joining would resolve `..` and empty segments, which the target program may need.
            raw_path, _, query = path.partition("?")
            authority = self._base.authority
            return URL.build(scheme="http", authority=authority, path=raw_path, query_string=query, encoded=True)
        return self._base.join(URL(path, encoded=True)) if "%" in path else self._base.join(URL(path))

    async def _ask(self, method: str, path: str, *, timeout: float | None = QUICK_TIMEOUT, **arguments: Any) -> bytes:
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self.request(method, path, timeout=limit, **arguments) as answer:
            return await read_bounded_body(answer, MAX_JSON_REPLY_BYTES)


def _connection_failure(error: aiohttp.ClientConnectionError, gone_message: str) -> PaddockError:
    """Distinguish a busy daemon from a missing one."""
    if isinstance(error, aiohttp.ClientOSError) and error.errno in _FULL_BACKLOG:
        return Unavailable("the sandbox has too many open connections; close some, or try again in a moment")
    return SandboxGone(gone_message)


def _abort(connection: Connection | None) -> None:
    """Abort the connection; a close would wait until the sandbox has read everything."""
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


async def read_bounded_body(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    content = bytearray()
    async for piece in answer.content.iter_any():
        content += piece
        if len(content) > limit:
            raise InvalidInput(f"the sandbox's reply is larger than {limit} bytes")
    return bytes(content)


async def read_body_chunks(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async for piece in answer.content.iter_any():
        yield piece


class BoundedLineSplitter:
    """Splits a stream into lines; searches only new bytes, because a sandbox may send single bytes."""

    def __init__(self) -> None:
        self.rest = bytearray()
        """Unfinished line."""

    def add(self, piece: bytes) -> Iterator[bytes]:
        """Return the lines completed by this chunk."""
        seen = len(self.rest)
        self.rest += piece
        while (end := self.rest.find(b"\n", seen)) >= 0:
            line, seen = bytes(self.rest[:end]), 0
            del self.rest[: end + 1]
            yield line


async def read_json_lines(
    answer: aiohttp.ClientResponse, yielder: EventLoopYielder | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Yield JSON objects that are separated by empty lines."""
    lines, yielder = BoundedLineSplitter(), yielder or EventLoopYielder()
    async for piece in answer.content.iter_any():
        yielder.restart_slice()
        for line in lines.add(piece):
            await yielder.yield_if_due()
            if line:
                yield await parse_long_json_object(line)
        if len(lines.rest) > MAX_LINE_BYTES:
            raise SandboxGone("the sandbox sent an oversized event")


def parse_json_object(content: bytes) -> dict[str, Any]:
    """Parse an object of at most 1 MiB. Raises `SandboxGone`."""
    try:
        return _require_object(decode_json(content))
    except JsonTooCostly as error:
        raise SandboxGone(f"the sandbox sent {error}") from error
    except (ValueError, RecursionError) as error:
        raise SandboxGone("the sandbox sent an invalid reply") from error


async def parse_long_json_object(content: bytes) -> dict[str, Any]:
    """Parse an object of any size without holding the event loop for long. Raises `SandboxGone`."""
    try:
        return _require_object(await decode_long_json(content))
    except JsonTooCostly as error:
        raise SandboxGone(f"the sandbox sent {error}") from error
    except (ValueError, RecursionError) as error:
        raise SandboxGone("the sandbox sent an invalid reply") from error


def _require_object(document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise SandboxGone("the sandbox sent an invalid reply")
    return document


def daemon_error_from_reply(status: int, body: str) -> PaddockError:
    """Return the error for a daemon's reply with status 400 or above, of at most 1 MiB."""
    try:
        message = str(decode_json(body.encode(errors="replace")).get("message", body))
    except (ValueError, AttributeError, RecursionError):
        message = body
    kinds: dict[int, type[PaddockError]] = {404: NotFound, 502: SandboxError, 503: Unavailable, 507: DiskFull}
    return kinds.get(status, InvalidInput)(message[:MAX_ERROR_MESSAGE_LENGTH])
