"""Calls that wait for input of the client between its request and the repeated request."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from paddock.mcp.protocol import CallContext
from paddock.mcp.upstreams.sessions.pending_calls import PendingCall

MAX_SUSPENDED = 1_000
MAX_SUSPENDED_PER_CALLER = 32
SUSPENSION_TIME = 600.0
"""Seconds a client has to repeat its request."""
_STATE_PREFIX = "paddock-call:"


class CallOwner(Protocol):
    """The session in which a call runs."""

    def abandon(self, call: PendingCall, reason: str) -> None:
        """Cancel a call on the server."""
        ...


@dataclass(frozen=True, slots=True)
class SuspendedCall:
    owner: CallOwner
    call: PendingCall
    digest: bytes
    """Of the request, which must be repeated unchanged."""
    timer: asyncio.TimerHandle


class SuspendedCalls:
    """Suspended calls of one server by their `requestState`. Each state is valid once, for its caller and request."""

    def __init__(self, lifetime: float = SUSPENSION_TIME) -> None:
        self._lifetime = lifetime
        self._calls: dict[str, SuspendedCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def suspend(self, owner: CallOwner, call: PendingCall, digest: bytes) -> str | None:
        """Keep a call; return its `requestState`, or None if too many calls are suspended."""
        identity = _identity(call.context)
        own = sum(_identity(each.call.context) == identity for each in self._calls.values())
        if len(self._calls) >= MAX_SUSPENDED or own >= MAX_SUSPENDED_PER_CALLER:
            return None
        state = _STATE_PREFIX + secrets.token_urlsafe(24)
        timer = asyncio.get_running_loop().call_later(self._lifetime, self._expire, state)
        self._calls[state] = SuspendedCall(owner, call, digest, timer)
        return state

    def resume(self, state: str, context: CallContext, digest: bytes) -> SuspendedCall | None:
        """Take a call; None if it is unknown, over, of another caller or for another request."""
        found = self._calls.get(state)
        if found is None or _identity(found.call.context) != _identity(context) or found.digest != digest:
            return None
        del self._calls[state]
        found.timer.cancel()
        return found

    def drop(self, is_dropped: Callable[[SuspendedCall], bool]) -> None:
        """Forget calls of ended sessions."""
        for state in [state for state, each in self._calls.items() if is_dropped(each)]:
            self._calls.pop(state).timer.cancel()

    def _expire(self, state: str) -> None:
        found = self._calls.pop(state, None)
        if found is not None:
            found.owner.abandon(found.call, "the client did not answer in time")


def _identity(context: CallContext) -> tuple[str | None, ...]:
    return context.tenant, context.caller, context.client_session, context.sandbox, context.session
