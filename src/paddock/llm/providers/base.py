"""What every provider can do: take a request in one of the wire formats it speaks, and answer in the same.

A provider over HTTP and one that answers by itself (`script`, `replay`) look alike to the gateway, which relays bytes
when the client speaks the same format and translates when it does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from paddock.errors import InvalidInput
from paddock.llm.exchange import Caller
from paddock.llm.formats.models import Listed
from paddock.llm.wire.base import Headers


@dataclass(slots=True)
class Ask:
    """A request to a provider."""

    format: str
    operation: str
    """`generate`, `count_tokens` or `embed`."""
    model: str
    """The provider's own name for it."""
    body: bytes
    """In `format`, with the provider's model name in it where the format has one."""
    stream: bool
    caller: Caller
    headers: Headers = field(default_factory=list)
    """What of the client's headers is passed on, and what the route adds."""
    query: str = ""
    asked: str = ""
    """The model as the client asked for it."""
    conversation: str | None = None
    """What the client calls the conversation."""
    method: str = ""
    """Gemini's own name for what is asked, where the client gave it."""
    exchange: str | None = None
    """The id of the exchange this request belongs to."""
    array: bool = False
    """Whether a Gemini stream is wanted as one JSON array, not as server-sent events."""


class Unsuitable(InvalidInput):
    """The provider cannot do what is asked."""

    code = "UNSUITABLE"


class ListFailed(Exception):
    """The provider has no usable list of models. The message says why, for people."""


class KeyRefused(ListFailed):
    """The provider refused the key it is configured with."""

    def __init__(self, status: int) -> None:
        super().__init__(f"it refused its key (status {status})")
        self.status = status


def says_bad_key(status: int, body: bytes) -> bool:
    """Whether an answer of status 400 is about the key, which is how Google refuses one."""
    return status == 400 and b"API_KEY_INVALID" in body


Sink: TypeAlias = Callable[[bytes], bool]
"""Takes a piece, and says whether there is room for more."""


class Answered(ABC):
    """A provider's answer, from its head on. Must be closed, whether it was read to the end or not."""

    status: int
    headers: Headers

    @abstractmethod
    async def read(self) -> bytes:
        """The whole body. Raises `UpstreamError`; `Broken` when it is longer than 256 MiB."""

    @abstractmethod
    async def piece(self) -> bytes:
        """The next bytes of the body as they come; nothing at its end. Raises `UpstreamError`."""

    async def pour(self, sink: Sink, drained: Callable[[], Awaitable[None]]) -> None:
        """Hand the rest of the body to `sink`, piece by piece as it comes; waits for `drained` when that is full.

        Cheaper than asking for each piece. Raises `UpstreamError`, and what the sink raises.
        """
        while piece := await self.piece():
            if not sink(piece):
                await drained()

    @abstractmethod
    def close(self) -> None:
        """Stop reading; the provider learns that nobody listens any more. Idempotent."""


class Provider(ABC):
    """One configured provider."""

    kind: ClassVar[str]

    def __init__(self, name: str, formats: tuple[str, ...]) -> None:
        self.name = name
        self.formats = formats
        """The wire formats it takes, the preferred one first."""
        self.secrets: tuple[bytes, ...] = ()
        """What it is told and no client may learn, should it quote that."""

    @abstractmethod
    async def send(self, ask: Ask) -> Answered:
        """Ask, and return once the head of the answer is there, whatever its status. Raises `UpstreamError`."""

    async def list_models(self) -> Sequence[Listed] | None:
        """The models the provider says it has, by its own names; `None` if it cannot be asked.

        Raises `KeyRefused`, `ListFailed` and `UpstreamError`.
        """
        return None

    async def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of connections."""
