"""The contract of providers: take a request in one of their wire formats, and answer in the same format.

Providers over HTTP and local ones (`script`, `replay`) look alike to the gateway, which relays bytes when the client
uses the same format and translates otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from paddock.errors import InvalidInput
from paddock.llm.exchange import ModelCaller
from paddock.llm.formats.model_list import ModelListEntry
from paddock.llm.wire.base import Headers, UpstreamResponse


@dataclass(slots=True)
class ProviderRequest:
    """A request to a provider."""

    format: str
    operation: str
    """`generate`, `count_tokens` or `embed`."""
    model: str
    """The provider's own name of the model."""
    body: bytes
    """In `format`, with the provider's model name if the format has a field for it."""
    stream: bool
    caller: ModelCaller
    headers: Headers = field(default_factory=list)
    """Forwarded client headers, and the headers that the route adds."""
    query: str = ""
    requested_model: str = ""
    """The model name that the client sent."""
    conversation: str | None = None
    """The client's own id of the conversation."""
    method: str = ""
    """Gemini's method name, if the client's path had one."""
    exchange: str | None = None
    """The id of the exchange this request belongs to."""
    array: bool = False
    """Whether a Gemini stream is to be one JSON array rather than server-sent events."""


class UnsupportedByProvider(InvalidInput):
    """The provider does not support this operation."""

    code = "UNSUITABLE"


class ModelListFailed(Exception):
    """The provider returned no usable list of models. The message says why, for people."""


class ProviderKeyRefused(ModelListFailed):
    """The provider refused the key it is configured with."""

    def __init__(self, status: int) -> None:
        super().__init__(f"it refused its key (status {status})")
        self.status = status


def is_bad_key_response(status: int, body: bytes) -> bool:
    """Return whether a response refuses the key by status 400, as Google's API does."""
    return status == 400 and b"API_KEY_INVALID" in body


class Provider(ABC):
    """One configured provider."""

    kind: ClassVar[str]

    def __init__(self, name: str, formats: tuple[str, ...]) -> None:
        self.name = name
        self.formats = formats
        """Supported wire formats, the preferred one first."""
        self.secrets: tuple[bytes, ...] = ()
        """Keys and header values that must be removed if a response quotes them."""

    @abstractmethod
    async def send(self, request: ProviderRequest) -> UpstreamResponse:
        """Send a request, and return when the head of the response is there, of any status. Raises `UpstreamError`."""

    async def list_models(self) -> Sequence[ModelListEntry] | None:
        """Return the provider's models by its own names; `None` if it has no way to list them.

        Raises `ProviderKeyRefused`, `ModelListFailed` and `UpstreamError`.
        """
        return None

    async def close(self) -> None:  # noqa: B027 - most hold no connections
        """Close connections."""
