"""What is known of an exchange with a model, apart from what was said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Summary:
    """One exchange as lists show it."""

    number: int
    """Its place in the order of writing; grows, never reused, may have gaps."""
    id: str
    """Sorts by time."""
    tenant: str
    key_id: str
    sandbox: str | None
    run: str | None
    session: str | None
    user: str | None
    at: float
    """When it began, in seconds since 1970."""
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
    """Bytes of the request as it came."""
    response_size: int
    preview: str | None = None
    """The beginning of the newest message of the request."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which exchanges are meant; `None` leaves a question open."""

    number: int | None = None
    """Its place in the order of writing."""
    sandbox: str | None = None
    run: str | None = None
    session: str | None = None
    user: str | None = None
    key: str | None = None
    model: str | None = None
    """As it was asked for, or the provider's name for it."""
    provider: str | None = None
    conversation: str | None = None
    outcome: str | None = None
    status: int | None = None
    since: float | None = None
    """Those that began then or later."""
    until: float | None = None
    """Those that began before."""
    text: str | None = None
    """Words, "phrases" and begin* that were said."""


@dataclass(slots=True)
class Piece:
    """Something that is stored once however often it is said."""

    digest: bytes
    """Sixteen bytes that stand for `raw`."""
    raw: bytes
    packed: bytes | None
    """`raw` as it is stored; `None` where it was stored before, as far as is known."""


@dataclass(slots=True)
class Fresh:
    """An exchange on its way into the store."""

    row: tuple[object, ...]
    """The fields of its summary but the number, as columns; an empty text or -1 where there is nothing."""
    prompt: list[Piece]
    """Whose it is, what the model is told besides the conversation, and how the request is put together."""
    thread: list[Piece]
    """Whose it is, and the messages of the conversation."""
    response: bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """An exchange with all that was said, packed."""

    summary: Summary
    prompt: Sequence[bytes]
    thread: Sequence[bytes]
    response: bytes
    fresh: int = 0
    """How many of the last messages nobody had sent before in this place."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an exchange stands in the tree of conversations."""

    summary: Summary
    prompt: int
    thread: int


@dataclass(frozen=True, slots=True)
class Tree:
    """Exchanges and the tree of messages they are in."""

    places: Sequence[Place]
    """Oldest first."""
    turns: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Parent and message of each turn; a parent of 0 is none."""
    messages: Mapping[int, bytes] = field(default_factory=dict)
    """Packed."""
