"""Records of model exchanges: list rows, filters, and the packed content as it is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ExchangeSummary:
    """List row of an exchange."""

    number: int
    """Position in the order of writing; grows, never reused, may have gaps."""
    id: str
    """Sorts by time."""
    tenant: str
    key_id: str
    sandbox: str | None
    run: str | None
    session: str | None
    user: str | None
    at: float
    """Start time in seconds since 1970."""
    format: str
    operation: str
    model: str
    stream: bool
    client: str
    conversation: str | None
    route: str | None
    provider: str | None
    provider_kind: str | None
    provider_model: str | None
    provider_format: str | None
    status: int
    outcome: str
    error: str | None
    input: int | None
    output: int | None
    cache_read: int | None
    cache_write: int | None
    reasoning: int | None
    estimated: bool
    cost: float | None
    first_byte: float | None
    total: float
    retries: int
    notes: Sequence[str]
    request_size: int
    """Bytes of the request as received."""
    response_size: int
    preview: str | None = None
    """Beginning of the newest message of the request."""


@dataclass(frozen=True, slots=True)
class StoredExchangeAnswer:
    """The compressed response of an exchange."""

    id: str
    stream: bool
    response_size: int
    """Bytes of the response as sent to the client."""
    response: bytes


@dataclass(frozen=True, slots=True)
class ExchangeFilters:
    """Filters of exchanges; `None` matches everything."""

    number: int | None = None
    """Position in the order of writing."""
    sandbox: str | None = None
    run: str | None = None
    session: str | None = None
    user: str | None = None
    key: str | None = None
    model: str | None = None
    """The requested name, or the provider's name."""
    provider: str | None = None
    conversation: str | None = None
    outcome: str | None = None
    status: int | None = None
    since: float | None = None
    """Inclusive lower bound of the start time."""
    until: float | None = None
    """Exclusive upper bound of the start time."""
    text: str | None = None
    """Full-text query: words, "phrases" and prefix*."""


@dataclass(slots=True)
class SharedExchangeContent:
    """Content that is stored once and shared by exchanges."""

    digest: bytes
    """Digest of `raw`, sixteen bytes."""
    raw: bytes
    packed: bytes | None
    """Compressed `raw`; `None` if it is known to be stored already."""


@dataclass(slots=True)
class NewExchange:
    """An exchange that is about to be stored."""

    row: tuple[object, ...]
    """Columns of the summary without the number; empty text or -1 stand for missing values."""
    prompt: list[SharedExchangeContent]
    """Owner, request fields besides the conversation, and the layout of the request."""
    thread: list[SharedExchangeContent]
    """Owner, and the messages of the conversation."""
    response: bytes


@dataclass(frozen=True, slots=True)
class StoredExchange:
    """An exchange with its content, compressed."""

    summary: ExchangeSummary
    prompt: Sequence[bytes]
    thread: Sequence[bytes]
    response: bytes
    new_messages: int = 0
    """Number of trailing messages that no earlier exchange of this conversation contains."""


@dataclass(frozen=True, slots=True)
class ExchangePosition:
    """Position of an exchange in the tree of conversations."""

    summary: ExchangeSummary
    prompt: int
    thread: int


@dataclass(frozen=True, slots=True)
class ConversationTree:
    """Exchanges and the tree of their messages."""

    positions: Sequence[ExchangePosition]
    """Oldest first."""
    turns: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Parent and message of each turn; parent 0 marks a root."""
    messages: Mapping[int, bytes] = field(default_factory=dict)
    """Compressed messages by id."""
