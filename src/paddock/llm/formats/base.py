"""Interface of a wire format: requests, answers, streams, errors and token counts.

Readers are strict about required fields and ignore unknown ones. A field without a neutral equivalent is dropped with a
note if the answer stays correct without it; otherwise the request is rejected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from paddock.errors import InvalidInput
from paddock.llm.formats.neutral import ModelAnswer, ModelFailure, ModelRequest, StreamEvent
from paddock.llm.formats.provider_errors import parse_provider_error


class UntranslatableRequest(InvalidInput):
    """The request needs a feature that the target format does not have."""

    code = "UNTRANSLATABLE"


class BrokenModelStream(Exception):
    """A provider's stream or answer is incomplete or malformed; the client must see an error."""


class ModelStreamReader(ABC):
    """Parser of a provider's byte stream, split at any position, into stream events."""

    @abstractmethod
    def feed(self, data: bytes) -> list[StreamEvent]:
        """Parse more bytes. Raises `BrokenModelStream` for malformed data and for events larger than 16 MiB."""

    @abstractmethod
    def close(self) -> list[StreamEvent]:
        """Finish at the end of the bytes. Raises `BrokenModelStream` unless the stream finished or failed properly."""


class ModelStreamWriter(ABC):
    """Encoder of stream events as the client's byte stream."""

    @abstractmethod
    def write(self, event: StreamEvent) -> bytes:
        """Return the bytes for one event, possibly none."""

    def ping(self) -> bytes:
        """Return a keep-alive that clients ignore."""
        return b": ping\n\n"


class WireFormat(ABC):
    """One wire format: parses requests and answers, and writes them."""

    name: ClassVar[str]

    @abstractmethod
    def read_request(self, body: bytes, *, model: str | None = None, stream: bool | None = None) -> ModelRequest:
        """Parse a client's request. Pass `model` and `stream` for formats that have them in the URL.

        Raises `InvalidInput` naming the invalid field.
        """

    @abstractmethod
    def write_request(self, request: ModelRequest) -> bytes:
        """Encode a request for a provider, noting omissions. Raises `UntranslatableRequest`."""

    @abstractmethod
    def read_answer(self, body: bytes) -> ModelAnswer:
        """Parse a provider's complete answer. Raises `BrokenModelStream` for malformed data."""

    @abstractmethod
    def write_answer(self, answer: ModelAnswer, request: ModelRequest | None = None) -> bytes:
        """Encode a complete answer; `request` restores the client's own tool names."""

    @abstractmethod
    def new_stream_reader(self) -> ModelStreamReader: ...

    @abstractmethod
    def new_stream_writer(self, request: ModelRequest) -> ModelStreamWriter:
        """Return a stream writer with the options of the client's request, such as whether to include usage."""

    def read_failure(self, status: int, body: bytes) -> ModelFailure:
        """Parse a provider's error response: JSON of any provider, HTML, or an empty body."""
        return parse_provider_error(status, body)

    @abstractmethod
    def write_failure(self, failure: ModelFailure) -> bytes: ...

    def write_token_count_request(self, request: ModelRequest) -> bytes:
        """Encode a token-counting request; `read_request` parses the same body.

        Raises `UntranslatableRequest` if the format cannot count tokens.
        """
        raise UntranslatableRequest(f"the format {self.name} cannot request token counts; use another format")

    def read_token_count(self, body: bytes) -> int:
        """Parse the answer to a token-counting request. Raises `BrokenModelStream` for malformed data."""
        raise BrokenModelStream(f"the format {self.name} cannot report token counts")

    def write_token_count(self, tokens: int) -> bytes:
        """Encode the answer to a token-counting request. May raise `UntranslatableRequest`."""
        raise UntranslatableRequest(f"the format {self.name} cannot report token counts; use another format")
