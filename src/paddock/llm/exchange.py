"""One request to a model and its answer: what the gateway knows of it when it is over, and hands to the archive."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum

from paddock.llm.neutral import Usage

MOST_TOKENS = 2**40
"""No request takes more; a provider that says so must not spoil the sums."""


class Outcome(StrEnum):
    OK = "ok"
    REFUSED = "refused"
    """Paddock itself said no: bad request, unknown model, limit, budget."""
    FAILED = "failed"
    """No provider answered, or one answered with an error."""
    CUT = "cut"
    """The answer broke off."""
    CLIENT_GONE = "client_gone"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. All but the tenant and the key may be unknown."""

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
    """When it began, in seconds since 1970."""
    caller: Caller
    format: str
    """The client's: the `name` of one of `paddock.llm.formats`."""
    operation: str
    """`generate`, `count_tokens` or `embed`."""
    model: str
    """As it was asked for."""
    request: bytes
    """The client's body as it came."""
    stream: bool = False
    client: str = ""
    """Its User-Agent."""
    conversation: str | None = None
    """What the client itself calls the conversation, where it sends a session id."""
    trace_parent: str | None = None
    """The client's `traceparent` header."""
    route: str | None = None
    """The name in `llm.models` that it matched."""
    provider: str | None = None
    provider_kind: str | None = None
    """`script` and `replay` mark answers that no model gave."""
    provider_model: str | None = None
    provider_format: str | None = None
    answered_model: str | None = None
    """What the provider called its model in a translated answer; the client is told `model`."""
    status: int = 0
    """What the client was told."""
    outcome: Outcome = Outcome.OK
    error: str | None = None
    response: list[tuple[float, bytes]] = field(default_factory=list)
    """The body as the client got it: seconds since `at`, and the bytes that came then."""
    usage: Usage | None = None
    estimated: bool = False
    """Whether `usage` is a guess, because the provider gave none."""
    cost: float | None = None
    """In US dollars; `None` where no price is known."""
    first_byte: float | None = None
    """Seconds since `at`."""
    total: float = 0.0
    retries: int = 0
    notes: list[str] = field(default_factory=list)
    """What translation left out, what was retried, which fallback answered."""


class ExchangeIds:
    """Makes ids that sort by time to the microsecond, and that nobody can guess."""

    def __init__(self) -> None:
        self._random = b""

    def new(self, now: float) -> str:
        """An id for an exchange that begins now, in seconds since 1970."""
        if not self._random:
            # Asking the kernel for each would take longer than all the rest.
            self._random = os.urandom(6 * 512)
        rest, self._random = self._random[:6], self._random[6:]
        return f"ex-{int(now * 1_000_000):014x}{rest.hex()}"
