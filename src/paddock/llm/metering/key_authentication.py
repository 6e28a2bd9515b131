"""Authenticate requests by their API key and the socket they came through."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from paddock.auth.api_keys import ApiKeys
from paddock.config.wildcards import wildcard_source
from paddock.errors import Forbidden, Unauthorized
from paddock.llm.exchange import ModelCaller
from paddock.model.keys import ApiKey, KeyBudget, KeyRateLimits, Scope

MAX_CACHED_KEYS = 4096
CACHE_SECONDS = 5.0
"""Seconds; bounds how long a revocation by another process goes unnoticed."""
NO_KEY_MESSAGE = "Send an API key, as `Authorization: Bearer KEY`, `x-api-key: KEY` or `x-goog-api-key: KEY`."
_UNBOUNDED = KeyBudget()


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """The caller that a key belongs to, with its models, limits and budget."""

    caller: ModelCaller
    models: tuple[str, ...] = ()
    """Allowed model names with `*` as wildcard; empty allows all."""
    limits: KeyRateLimits = KeyRateLimits()
    budget: KeyBudget | None = None
    """`None` if unlimited."""
    expires_at: float | None = None
    """Seconds since 1970."""
    _allowed: re.Pattern[str] | None = field(default=None, repr=False, compare=False)

    def allows(self, model: str) -> bool:
        """Return whether the key may use a model of this name."""
        return self._allowed is None or self._allowed.fullmatch(model) is not None


class KeyAuthenticator:
    """Looks up keys. Cheap for a recently used key: one hash and one dictionary lookup."""

    def __init__(self, keys: ApiKeys, clock: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[KeyHolder, float]] = OrderedDict()
        self._changes = keys.changes

    async def identify(self, secret: str | None, tag: str | None) -> KeyHolder:
        """Return the holder of a key used on the socket of sandbox `tag`, or on a shared port if that is `None`.

        A sandbox must use its own key, and its key works nowhere else: a sandbox has no other route to the proxy, so a
        key used elsewhere has leaked. Raises `Unauthorized`, and `Forbidden` for a key without the scope `llm:use`.
        """
        if not secret:
            raise Unauthorized(NO_KEY_MESSAGE)
        keys = self._keys
        if self._changes != keys.changes:
            self._known.clear()
            self._changes = keys.changes
        hashed = sha256(secret.encode(errors="replace")).digest()
        known = self._known.get(hashed)
        now = self._clock()
        if known is not None and 0 <= now - known[1] < CACHE_SECONDS:
            holder = known[0]
            if holder.expires_at is not None and holder.expires_at <= now:
                raise Unauthorized("This key has expired; use another.")
        else:
            holder = await self._look_up(secret, hashed, now)
        if holder.caller.sandbox != tag:
            raise Unauthorized(_wrong_origin_message(holder, tag))
        return holder

    async def _look_up(self, secret: str, hashed: bytes, now: float) -> KeyHolder:
        changes = self._keys.changes
        holder = key_holder_from_key(await self._keys.find_by_secret(secret))
        # Do not cache a key that was read before a revocation.
        if changes == self._keys.changes == self._changes:
            self._known[hashed] = holder, now
            self._known.move_to_end(hashed)
            if len(self._known) > MAX_CACHED_KEYS:
                self._known.popitem(last=False)
        return holder


def key_holder_from_key(key: ApiKey) -> KeyHolder:
    """Return the holder described by a key. Raises `Forbidden` if the key may not use models."""
    if not key.scopes & {Scope.LLM_USE, Scope.ADMIN}:
        raise Forbidden(f"This key lacks the scope {Scope.LLM_USE}; use one that has it.")
    return KeyHolder(
        caller=ModelCaller(key.tenant, key.id, key.sandbox, key.run, key.session, key.user, key.subject),
        models=key.models,
        limits=key.limits,
        budget=key.budget if key.budget != _UNBOUNDED else None,
        expires_at=key.expires_at.timestamp() if key.expires_at else None,
        _allowed=compile_model_pattern(key.models),
    )


def compile_model_pattern(models: Iterable[str]) -> re.Pattern[str] | None:
    """Compile a pattern for these model names, with `*` as wildcard; `None` if there are no names."""
    joined = "|".join(map(wildcard_source, models))
    return re.compile(joined, re.DOTALL) if joined else None


def _wrong_origin_message(holder: KeyHolder, tag: str | None) -> str:
    if tag is None:
        return f"This key is for sandbox {holder.caller.sandbox} and works only from within it."
    return "This is not a key of this sandbox; use the one in PADDOCK_LLM_KEY."
