"""The exchange: one request to a model with its response, usage and cost, as the gateway hands it to the archive."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum

from paddock.llm.formats.neutral import TokenUsage

MAX_TOKENS = 2**40
"""Upper bound of a request's tokens; larger values are ignored, so that they cannot spoil the sums."""


class ExchangeOutcome(StrEnum):
    OK = "ok"
    REFUSED = "refused"
    """Paddock refused the request: invalid, unknown model, limit, budget."""
    FAILED = "failed"
    """No provider answered, or the answer was an error."""
    CUT = "cut"
    """The answer was cut off."""
    CLIENT_GONE = "client_gone"


@dataclass(frozen=True, slots=True)
class ModelCaller:
    """The sender of a request. All fields but tenant and key are optional."""

    tenant: str
    key_id: str
    sandbox: str | None = None
    run: str | None = None
    session: str | None = None
    user: str | None = None
    subject: str | None = None
    """Owner of the key."""


@dataclass(slots=True)
class Exchange:
    id: str
    """Sorts by time."""
    at: float
    """Start time, in seconds since 1970."""
    caller: ModelCaller
    format: str
    """The client's format: the `name` of one of `paddock.llm.formats`."""
    operation: str
    """`generate`, `count_tokens` or `embed`."""
    model: str
    """The model name that the client sent."""
    request: bytes
    """The client's body, unchanged."""
    stream: bool = False
    client: str = ""
    """The client's User-Agent."""
    conversation: str | None = None
    """The client's own id of the conversation, if it sends one."""
    trace_parent: str | None = None
    """The client's `traceparent` header."""
    route: str | None = None
    """The matching name in `llm.models`."""
    provider: str | None = None
    provider_kind: str | None = None
    """`script` and `replay` mark answers without a model."""
    provider_model: str | None = None
    provider_format: str | None = None
    answered_model: str | None = None
    """The model name in the provider's answer, if translated; the client is shown `model`."""
    status: int = 0
    """The status sent to the client."""
    outcome: ExchangeOutcome = ExchangeOutcome.OK
    error: str | None = None
    response: list[tuple[float, bytes]] = field(default_factory=list)
    """The body as sent to the client: pieces with seconds since `at`."""
    usage: TokenUsage | None = None
    estimated: bool = False
    """Whether `usage` is estimated, because the provider reported none."""
    cost: float | None = None
    """In US dollars; `None` if no price is known."""
    first_byte: float | None = None
    """Seconds since `at`."""
    total: float = 0.0
    retries: int = 0
    notes: list[str] = field(default_factory=list)
    """Remarks: parts dropped in translation, retries, the fallback that answered."""


class ExchangeIdGenerator:
    """Generates unguessable ids that sort by time, to the microsecond."""

    def __init__(self) -> None:
        self._random = b""

    def new_id(self, now: float) -> str:
        """Return an id for an exchange that begins now, in seconds since 1970."""
        if not self._random:
            # Random bytes are read in bulk: one system call per id would dominate the cost.
            self._random = os.urandom(6 * 512)
        rest, self._random = self._random[:6], self._random[6:]
        return f"ex-{int(now * 1_000_000):014x}{rest.hex()}"
