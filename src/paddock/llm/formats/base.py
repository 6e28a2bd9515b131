"""What every wire format can do.

Reading is strict about what is needed and lenient about the rest: unknown fields are ignored, and whatever cannot be
said in the neutral form is either dropped with a note, when an answer without it is still right, or refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from paddock.errors import InvalidInput
from paddock.llm.formats.failures import any_failure
from paddock.llm.neutral import Answer, Event, Failure, Request


class Untranslatable(InvalidInput):
    """The request asks for something the other side has no word for."""

    code = "UNTRANSLATABLE"


class BrokenStream(Exception):
    """A provider's stream ended early or makes no sense; the client's must not end as if all were well."""


class StreamReader(ABC):
    """Turns a provider's stream of bytes, however it is cut, into events."""

    @abstractmethod
    def feed(self, data: bytes) -> list[Event]:
        """Take more bytes. Raises `BrokenStream` for nonsense, and for an event larger than 16 MiB."""

    @abstractmethod
    def close(self) -> list[Event]:
        """The bytes have ended. Raises `BrokenStream` unless a `Finished` or `Failed` event was among them."""


class StreamWriter(ABC):
    """Turns events into a client's stream of bytes."""

    @abstractmethod
    def write(self, event: Event) -> bytes:
        """What to send for this event; may be nothing. After `Finished` or `Failed` the stream is complete."""

    def ping(self) -> bytes:
        """Something that keeps the connection alive and that clients ignore."""
        return b": ping\n\n"


class Format(ABC):
    """One wire format, both ways."""

    name: ClassVar[str]

    @abstractmethod
    def read_request(self, body: bytes, *, model: str | None = None, stream: bool | None = None) -> Request:
        """Read a client's request. `model` and `stream` are given where the format has them in its address.

        Raises `InvalidInput` naming the field that is wrong.
        """

    @abstractmethod
    def write_request(self, request: Request) -> bytes:
        """Say a request in this format. Raises `Untranslatable`; adds to `request.notes` what it leaves out."""

    @abstractmethod
    def read_answer(self, body: bytes) -> Answer:
        """Read a provider's whole answer. Raises `BrokenStream` for nonsense."""

    @abstractmethod
    def write_answer(self, answer: Answer, request: Request | None = None) -> bytes:
        """Say a whole answer in this format, to the client that made this request where that makes a difference."""

    @abstractmethod
    def reader(self) -> StreamReader: ...

    @abstractmethod
    def writer(self, request: Request) -> StreamWriter:
        """A writer for the answer to this request, which says whether the client wants usage and the like."""

    def read_failure(self, status: int, body: bytes) -> Failure:
        """Read a provider's error, whatever it is: JSON in its shape, in another's, HTML or nothing."""
        return any_failure(status, body)

    @abstractmethod
    def write_failure(self, failure: Failure) -> bytes: ...

    def write_count_request(self, request: Request) -> bytes:
        """Ask how many tokens the request has, a question that `read_request` reads.

        Raises `Untranslatable` where the format has no such question.
        """
        raise Untranslatable(f"the format {self.name} has no way to ask for the number of tokens")

    def read_count(self, body: bytes) -> int:
        """Read a provider's answer to that. Raises `BrokenStream` for nonsense."""
        raise BrokenStream(f"the format {self.name} has no way to tell the number of tokens")

    def write_count(self, tokens: int) -> bytes:
        """Tell a client how many tokens its request has. Raises `Untranslatable` like the question."""
        raise Untranslatable(f"the format {self.name} has no way to tell the number of tokens")
