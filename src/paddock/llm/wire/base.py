"""HTTP as the gateway sees it, whichever server or client carries it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""In the order they came, names in lower case."""


@dataclass(slots=True)
class HttpRequest:
    """A whole request. `path` is as it was sent, without the query and not decoded."""

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes
    tag: str | None = None
    """What the listener it came through is called, such as the id of the sandbox it belongs to."""

    _first: dict[bytes, bytes] | None = None

    @property
    def first(self) -> dict[bytes, bytes]:
        """The first value of each header."""
        if self._first is None:
            self._first = dict(reversed(self.headers))
        return self._first

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, given in lower case."""
        return self.first.get(name)


class Reply(ABC):
    """Where the answer to one request goes.

    When the client goes away, the task that answers is cancelled.
    """

    pushes = False
    """Whether `push` can be used instead of `write`, which is cheaper."""
    started = False
    """Whether the head has been sent, so that an error can no longer be told by its status."""

    @abstractmethod
    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send an answer in one piece. Sets the length itself."""

    @abstractmethod
    async def start(self, status: int, headers: Headers) -> None:
        """Send the head of an answer whose length nobody knows."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Send some of the body at once; waits while the client reads more slowly than this writes."""

    def push(self, data: bytes) -> bool:
        """Send some of the body at once, and say whether there is room for more; only where `pushes`."""
        raise NotImplementedError

    async def drained(self) -> None:
        """Wait until there is room again; only where `pushes`."""
        raise NotImplementedError

    @abstractmethod
    async def end(self) -> None:
        """The answer is complete."""

    @abstractmethod
    def abort(self) -> None:
        """Break the connection, so that the client cannot take what it has for a whole answer."""


Handler: TypeAlias = Callable[[HttpRequest, Reply], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds."""

    connect: float = 10.0
    first_byte: float = 600.0
    """From the request's last byte until the head of the answer."""
    stall: float = 120.0
    """Between two pieces of the answer."""


class UpstreamError(Exception):
    """An upstream did not answer, or not to the end. The message says no more than a client may read."""

    retryable = True
    """Whether asking again may help."""


class CannotConnect(UpstreamError):
    """Nothing could be sent: no such name, refused, unreachable, or too slow to connect."""


class TlsFailed(UpstreamError):
    """The upstream could not prove who it is."""

    retryable = False


class TimedOut(UpstreamError):
    """The upstream took too long to begin, or paused for too long."""


class Broken(UpstreamError):
    """The connection ended early, or what came is not HTTP."""
