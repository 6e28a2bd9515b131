"""HTTP requests, responses and errors as the gateway sees them, independent of the server or client in use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Name and value pairs in the order received, names in lower case."""


@dataclass(slots=True)
class HttpRequest:
    """A complete request. `path` is as sent, without the query and not percent-decoded."""

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes
    tag: str | None = None
    """Tag of the listener that accepted the request, such as the id of the sandbox it belongs to."""

    _first: dict[bytes, bytes] | None = None

    @property
    def first_values(self) -> dict[bytes, bytes]:
        """The first value of each header."""
        if self._first is None:
            self._first = dict(reversed(self.headers))
        return self._first

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, given in lower case."""
        return self.first_values.get(name)


class ResponseWriter(ABC):
    """Writes the response to one request.

    When the client disconnects, the task that handles the request is cancelled.
    """

    pushes = False
    """Whether `push` can be used in place of `write`; it is cheaper."""
    started = False
    """Whether the head has been sent, after which an error can no longer be reported by a status."""

    @abstractmethod
    async def send(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole response. Sets the length itself."""

    @abstractmethod
    async def start(self, status: int, headers: Headers) -> None:
        """Send the head of a response of unknown length."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Send some of the body; waits while the client reads more slowly than this writes."""

    def push(self, data: bytes) -> bool:
        """Send some of the body without waiting, and return whether more can be sent; only if `pushes`."""
        raise NotImplementedError

    async def wait_drained(self) -> None:
        """Wait until more can be pushed; only if `pushes`."""
        raise NotImplementedError

    @abstractmethod
    async def end(self) -> None:
        """Complete the response."""

    @abstractmethod
    def abort(self) -> None:
        """Break the connection, so that the client cannot mistake a partial response for a complete one."""


Handler: TypeAlias = Callable[[HttpRequest, ResponseWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class UpstreamTimeouts:
    """Time limits of a request to an upstream, in seconds."""

    connect: float = 10.0
    first_byte: float = 600.0
    """From the last byte of the request to the head of the response."""
    stall: float = 120.0
    """Between two pieces of the response."""


PieceSink: TypeAlias = Callable[[bytes], bool]
"""Takes a piece, and returns whether it can take more."""


class UpstreamResponse(ABC):
    """A provider's response from its head on. Must be closed, even after it was read to the end."""

    status: int
    headers: Headers

    @abstractmethod
    async def read(self) -> bytes:
        """Return the whole body. Raises `UpstreamError`; `UpstreamBroken` if it is longer than 256 MiB."""

    @abstractmethod
    async def read_piece(self) -> bytes:
        """Return the next bytes of the body as they arrive; empty at its end. Raises `UpstreamError`."""

    async def pipe_to(self, sink: PieceSink, drained: Callable[[], Awaitable[None]]) -> None:
        """Pass the rest of the body to `sink` piece by piece as it arrives; wait for `drained` when the sink is full.

        Cheaper than reading each piece. Raises `UpstreamError` and the errors of the sink.
        """
        while piece := await self.read_piece():
            if not sink(piece):
                await drained()

    @abstractmethod
    def close(self) -> None:
        """Stop reading and close the request to the provider. Idempotent."""


class UpstreamError(Exception):
    """An upstream did not answer completely. The message is safe to show to clients."""

    retryable = True
    """Whether a retry may succeed."""


class UpstreamUnreachable(UpstreamError):
    """Connecting failed: unknown name, refused, unreachable or too slow. No byte was sent."""


class UpstreamTlsFailed(UpstreamError):
    """The TLS handshake failed or the upstream's certificate is not trusted."""

    retryable = False


class UpstreamProxyFailed(UpstreamError):
    """The proxy refused the connection or could not be reached. The message names its setting, not its address."""

    def __init__(self, message: str, address: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.address = address
        """Address of the proxy without credentials; not for sandboxes."""
        self.retryable = retryable


class UpstreamTimedOut(UpstreamError):
    """The upstream took too long to start or continue its response."""


class UpstreamBroken(UpstreamError):
    """The connection ended early, or the upstream sent something other than HTTP."""
