"""One exchange at a time with `inside`, the daemon in every box.

What comes back is from a box, and a box is not to be trusted: sizes are bounded, waits have limits, and nothing is
taken for more than data.
"""

from __future__ import annotations

import asyncio
import errno
import json
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

from paddock.errors import BoxError, BoxGone, BoxTimeout, DiskFull, InvalidInput, NotFound, PaddockError, Unavailable
from paddock.model.sandbox import Address
from paddock.sandbox.base import TOKEN_HEADER

MAX_ANSWER = 16 * 2**20
MAX_LINE = 4 * 2**20
MAX_WORD = 2**20
"""Largest answer to a question about the box itself, which is read as JSON."""
MAX_MESSAGE = 2000
MAX_INTERIM = 8
"""Most answers of 100 and up before the real one."""
MOST_VALUES = 250_000
"""Most values in a document, about: reading JSON is done at once, and a few megabytes of `[]` take seconds."""
QUICK = 30.0
TURN = 0.002
"""Seconds for which what is at hand is read before others have their turn."""
GOODBYE = 2.0


class Turns:
    """Lets others have theirs: what has come already is read without a wait, and of that a box may have ever more."""

    def __init__(self, rest: float = 0.0) -> None:
        """`rest` is how long to pause after each turn, as a multiple of one."""
        self._rest = rest * TURN
        self.begin()

    def begin(self) -> None:
        """There was a wait, and so others had their turn."""
        self._since = time.perf_counter()

    async def give(self) -> None:
        if time.perf_counter() - self._since > TURN:
            await asyncio.sleep(self._rest)
            self.begin()


class _Conversation(aiohttp.ClientWebSocketResponse):
    """A WebSocket on which nobody is kept busy for ever, neither with reading nor with saying goodbye."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._turns = Turns()
        self._way = self._conn

    async def receive(self, timeout: float | None = None) -> aiohttp.WSMessage:
        await self._turns.give()
        return await super().receive(timeout)

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        # aiohttp reads on until the box says goodbye too, unless it is known how this ended.
        self._close_code = self._close_code or code
        transport = None if self._way is None else self._way.transport
        try:
            async with asyncio.timeout(GOODBYE):
                return await super().close(code=code, message=message)
        except TimeoutError:
            return True
        finally:
            # A closed one would stay until the box has read what was sent, and it may never do that.
            if isinstance(transport, asyncio.WriteTransport) and transport.get_write_buffer_size():
                transport.abort()


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


class Exchange:
    """A way to one box's daemon. Use as an async context manager, or call `close`.

    Raises `BoxGone` when nothing listens any more, `BoxTimeout` when nothing comes back, `NotFound` and
    `InvalidInput` for what the daemon refuses.
    """

    def __init__(self, address: Address) -> None:
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
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=QUICK),
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
        # A closed session forgets whoever is in the middle of an answer, and they would wait for ever.
        for answer in self._answers:
            answer.content.set_exception(aiohttp.ClientConnectionError("closed"))
        await self._session.close()

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
            raise refusal(error.status, error.message) from error
        except aiohttp.ClientConnectionError as error:
            raise _unconnected(error, "the box has ended") from error

    @asynccontextmanager
    async def request(
        self, method: str, path: str, *, raw: bool = False, headers: CIMultiDict[str] | None = None, **arguments: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One exchange with the daemon; unless `raw`, an answer of 400 and up is raised.

        With `raw`, `path` is sent byte for byte, with its query.
        """
        if self._session.closed:
            raise BoxGone("the box has ended")
        try:
            async with self._session.request(
                method, self._url(path, raw), headers=headers, allow_redirects=False, **arguments
            ) as answer:
                if answer.status >= 400 and not raw:
                    raise refusal(answer.status, (await read_bounded(answer, MAX_LINE)).decode(errors="replace"))
                self._answers.add(answer)
                try:
                    yield answer
                except BaseException:
                    _abort(answer.connection)
                    raise
                finally:
                    self._answers.discard(answer)
        except aiohttp.ClientConnectionError as error:
            raise _unconnected(error, "the box does not answer any more") from error
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
            return await read_bounded(answer, MAX_WORD)


def _unconnected(error: aiohttp.ClientConnectionError, gone: str) -> PaddockError:
    """Tell a daemon that is there but has no room from one that is not there."""
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno == errno.EAGAIN:
        return Unavailable("the sandbox has too many open connections; close some, or try again in a moment")
    return BoxGone(gone)


def _abort(connection: Connection | None) -> None:
    """Break off at once: closing would wait until the box has read what was sent, and it may never do that."""
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


async def read_bounded(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    content = bytearray()
    async for piece in answer.content.iter_any():
        content += piece
        if len(content) > limit:
            raise InvalidInput(f"the box's answer is larger than {limit} bytes")
    return bytes(content)


async def pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async for piece in answer.content.iter_any():
        yield piece


class Lines:
    """A stream in lines. Only what is new is searched: a box may send a line byte by byte."""

    def __init__(self) -> None:
        self.rest = bytearray()
        """What has come of a line that has not ended."""

    def add(self, piece: bytes) -> Iterator[bytes]:
        """The lines that end in this."""
        seen = len(self.rest)
        self.rest += piece
        while (end := self.rest.find(b"\n", seen)) >= 0:
            line, seen = bytes(self.rest[:end]), 0
            del self.rest[: end + 1]
            yield line


async def documents(answer: aiohttp.ClientResponse, turns: Turns | None = None) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of an event stream, which are bare and parted by empty lines."""
    lines, turns = Lines(), turns or Turns()
    async for piece in answer.content.iter_any():
        turns.begin()
        for line in lines.add(piece):
            await turns.give()
            if line:
                yield as_object(line)
        if len(lines.rest) > MAX_LINE:
            raise BoxGone("the box sends an endless event")


def crowded(content: bytes) -> bool:
    """Whether JSON has more values in it than anybody has a use for. What is in strings counts too."""
    return sum(map(content.count, (b"[", b"{", b","))) > MOST_VALUES


def as_object(content: bytes) -> dict[str, Any]:
    if crowded(content):
        raise BoxGone("the box answers with more than anybody can read")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BoxGone("the box answers nonsense") from error
    if not isinstance(document, dict):
        raise BoxGone("the box answers nonsense")
    return document


def refusal(status: int, body: str) -> PaddockError:
    """What a daemon's answer of 400 and up means: the asker's mistake, unless it says that something is broken."""
    try:
        message = str(json.loads(body).get("message", body))
    except (ValueError, AttributeError, RecursionError):
        message = body
    kinds: dict[int, type[PaddockError]] = {404: NotFound, 502: BoxError, 503: Unavailable, 507: DiskFull}
    return kinds.get(status, InvalidInput)(message[:MAX_MESSAGE])
