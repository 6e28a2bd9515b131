"""Who asks, by the key that a request shows and the way it came."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from paddock.auth.keys import Keys
from paddock.errors import Forbidden, Unauthorized
from paddock.llm.exchange import Caller
from paddock.model.keys import Budget, Key, Rates, Scope

REMEMBERED = 4096
REMEMBERED_FOR = 5.0
"""Seconds; bounds how long a revocation that happened in another process goes unseen."""
NO_KEY = "Send an API key, as `Authorization: Bearer KEY`, `x-api-key: KEY` or `x-goog-api-key: KEY`."
_UNBOUNDED = Budget()


@dataclass(frozen=True, slots=True)
class Holder:
    """Whoever shows a key, and what it may ask."""

    caller: Caller
    models: tuple[str, ...] = ()
    """Names of models, `*` standing for anything; none allows all."""
    limits: Rates = Rates()
    budget: Budget | None = None
    """`None` where nothing is bounded."""
    expires_at: float | None = None
    """Seconds since 1970."""
    _allowed: re.Pattern[str] | None = field(default=None, repr=False, compare=False)

    def allows(self, model: str) -> bool:
        """Whether it may ask for a model of this name."""
        return self._allowed is None or self._allowed.fullmatch(model) is not None


class Callers:
    """Finds out who asks. Cheap for a key that was seen a moment ago: one hash and one look into a dictionary."""

    def __init__(self, keys: Keys, clock: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[Holder, float]] = OrderedDict()
        self._changes = keys.changes

    async def identify(self, secret: str | None, tag: str | None) -> Holder:
        """The holder of a key, shown on the socket of the sandbox `tag`, or on a port for everybody if that is `None`.

        A sandbox must show a key of its own. And its key works nowhere else: a sandbox has no other way to the proxy,
        so a key that turns up elsewhere has got out of it. Raises `Unauthorized`, and `Forbidden` for a key without
        the scope `llm:use`.
        """
        if not secret:
            raise Unauthorized(NO_KEY)
        keys = self._keys
        if self._changes != keys.changes:
            self._known.clear()
            self._changes = keys.changes
        hashed = sha256(secret.encode(errors="replace")).digest()
        known = self._known.get(hashed)
        now = self._clock()
        if known is not None and 0 <= now - known[1] < REMEMBERED_FOR:
            holder = known[0]
            if holder.expires_at is not None and holder.expires_at <= now:
                raise Unauthorized("This key has expired; use another.")
        else:
            holder = await self._find(secret, hashed, now)
        if holder.caller.sandbox != tag:
            raise Unauthorized(_out_of_place(holder, tag))
        return holder

    async def _find(self, secret: str, hashed: bytes, now: float) -> Holder:
        changes = self._keys.changes
        holder = holder_of(await self._keys.find(secret))
        # What was read before a revocation must not outlive it.
        if changes == self._keys.changes == self._changes:
            self._known[hashed] = holder, now
            self._known.move_to_end(hashed)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return holder


def holder_of(key: Key) -> Holder:
    """What a key says of its holder. Raises `Forbidden` if it may not ask models."""
    if not key.scopes & {Scope.LLM_USE, Scope.ADMIN}:
        raise Forbidden(f"This key lacks the scope {Scope.LLM_USE}; use one that has it.")
    return Holder(
        caller=Caller(key.tenant, key.id, key.sandbox, key.run, key.session, key.user, key.subject),
        models=key.models,
        limits=key.limits,
        budget=key.budget if key.budget != _UNBOUNDED else None,
        expires_at=key.expires_at.timestamp() if key.expires_at else None,
        _allowed=pattern_of(key.models),
    )


def pattern_of(models: Iterable[str]) -> re.Pattern[str] | None:
    """What matches names of these models, in which `*` stands for anything; nothing if there are none."""
    joined = "|".join(map(_shape, models))
    return re.compile(joined, re.DOTALL) if joined else None


def _shape(model: str) -> str:
    first, *others = map(re.escape, model.split("*"))
    if not others:
        return first
    # Each piece is taken where it first fits and never tried elsewhere, so that no name takes long to match.
    return first + "".join(f"(?>.*?{piece})" for piece in others[:-1]) + ".*" + others[-1]


def _out_of_place(holder: Holder, tag: str | None) -> str:
    if tag is None:
        return f"This key is for sandbox {holder.caller.sandbox} and works only from within it."
    return "This is not a key of this sandbox; use the one in PADDOCK_LLM_KEY."
