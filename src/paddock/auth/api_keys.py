"""API keys: create, authenticate, list, revoke."""

from __future__ import annotations

import asyncio
import hmac
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from paddock.auth.key_secrets import (
    generate_key_secret,
    hash_key_secret,
    key_secret_prefix,
    looks_like_key_secret,
    read_key_secret_file,
    write_key_secret_file,
)
from paddock.errors import Forbidden, InvalidInput, Unauthorized, Unavailable
from paddock.model.keys import DEFAULT_TENANT, SESSION_KEY, ApiKey, ApiKeyTerms, Principal, Scope
from paddock.store.key_store import ApiKeyStore

LOCAL_KEY_NAME = "local"
_CACHE_SIZE = 1024
_CACHE_TTL = timedelta(seconds=5)
"""Longest time that a revocation by another process, or by a cancelled caller, goes unnoticed."""
_LAST_USED_RESOLUTION = timedelta(minutes=1)
_UNLIMITED_SCOPES = frozenset({Scope.ADMIN, Scope.KEYS_ADMIN, Scope.SANDBOXES_WRITE, Scope.RUNS_WRITE})
"""Scopes that allow creating keys, sandboxes or runs, which would use models outside this key's limits."""


class ApiKeys:
    """The API keys of all tenants. A server has one instance, so that revocations take effect at once."""

    def __init__(self, store: ApiKeyStore, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._store = store
        self._now = now
        self._cache: OrderedDict[str, tuple[ApiKey, datetime]] = OrderedDict()
        self.changes = 0
        """Incremented whenever keys are revoked or extended; cached keys from before may be outdated."""

    async def create(
        self,
        name: str,
        tenant: str = DEFAULT_TENANT,
        scopes: Iterable[Scope] = (Scope.SANDBOXES_WRITE,),
        expires_at: datetime | None = None,
        *,
        terms: ApiKeyTerms | None = None,
        granted_by: Principal | None = None,
        owner: str | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key and return it with its secret, which is not stored.

        A key cannot grant more than its holder has: with `granted_by`, raises `Forbidden` for scopes or a tenant the
        holder lacks. `owner` is the subject whose sandbox or session the key is for. Raises `InvalidInput` for a key
        that could never be used, or whose `terms` are contradictory.
        """
        now = self._now()
        wanted = frozenset(scopes)
        if granted_by:
            check_key_grant(granted_by, tenant, wanted)
            if name.startswith(SESSION_KEY):
                raise InvalidInput(f"Names that begin with {SESSION_KEY!r} are for keys that the server makes itself.")
        if not wanted:
            raise InvalidInput("A key needs at least one scope.")
        if expires_at is not None and (expires_at.tzinfo is None or expires_at <= now):
            raise InvalidInput("A key must expire in the future, at a time with a time zone.")
        terms = terms or ApiKeyTerms()
        _check_terms(terms, wanted)
        secret = generate_key_secret()
        try:
            key = ApiKey(
                id=f"key-{uuid.uuid4().hex[:16]}",
                name=name,
                tenant=tenant,
                scopes=wanted,
                prefix=key_secret_prefix(secret),
                created_at=now,
                expires_at=expires_at,
                owner=owner,
                **dict(terms),
            )
        except ValueError:
            raise InvalidInput(
                "A key's name has 1 to 100 characters, a tenant's up to 63 letters, digits, dots, dashes, underscores."
            ) from None
        return await self._store.insert(key, hash_key_secret(secret)), secret

    async def authenticate(self, secret: str) -> Principal:
        """Return the principal of a secret. Raises `Unauthorized`, without details for unknown secrets."""
        key = await self.find_by_secret(secret)
        if key.sandbox is not None:
            raise Unauthorized(f"The key {key.name} is for model requests from within sandbox {key.sandbox} only.")
        return Principal.of(key)

    async def confirm_usable(self, principal: Principal) -> ApiKey:
        """Return the principal's key. Raises `Unauthorized` if it has been revoked or has expired since."""
        key = await self._store.get(principal.key_id, None)
        if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= self._now()):
            raise Unauthorized(f"The key {key.name} is no longer valid; use another.")
        return key

    async def find_by_secret(self, secret: str) -> ApiKey:
        """Return the usable key with this secret. Raises `Unauthorized`."""
        if not looks_like_key_secret(secret):
            raise Unauthorized("This is not an API key of this server; use one that `paddock key create` printed.")
        hashed = hash_key_secret(secret)
        now = self._now()
        key = self._get_cached(hashed, now) or await self._load_key(secret, hashed, now)
        if key is None:
            raise Unauthorized("This is not an API key of this server; use one that `paddock key create` printed.")
        if key.revoked_at is not None:
            raise Unauthorized(f"The key {key.name} has been revoked; use another.")
        if key.expires_at is not None and key.expires_at <= now:
            raise Unauthorized(f"The key {key.name} has expired; make another.")
        if key.last_used_at is None or now - key.last_used_at >= _LAST_USED_RESOLUTION:
            await self._record_use(key, hashed, now)
        return key

    async def get(self, key_id: str, tenant: str | None = None) -> ApiKey:
        """Return one key. Raises `NotFound`, also for another tenant's."""
        return await self._store.get(key_id, tenant)

    async def revoke(self, key_id: str, tenant: str | None = None) -> ApiKey:
        """Revoke a key, effective immediately. Idempotent.

        Raises `NotFound`, also for another tenant's key.
        """
        try:
            return await self._store.revoke(key_id, self._now(), tenant)
        finally:
            # Also when cancelled: the key may have been revoked nevertheless.
            self._drop_from_cache(lambda key: key.id == key_id)

    async def revoke_for_sandbox(self, sandbox_id: str) -> int:
        """Revoke all keys of a sandbox and return their number. Idempotent."""
        try:
            return await self._store.revoke_for_sandbox(sandbox_id, self._now())
        finally:
            self._drop_from_cache(lambda key: key.sandbox == sandbox_id)

    async def revoke_for_sessions(self) -> int:
        """Revoke all model keys of chat sessions and return their number. Idempotent."""
        try:
            return await self._store.revoke_for_sessions(self._now())
        finally:
            self._drop_from_cache(lambda key: key.session is not None)

    async def extend_for_sandbox(self, sandbox_id: str, expires_at: datetime) -> None:
        """Change the expiry of a sandbox's keys."""
        try:
            await self._store.prolong_for_sandbox(sandbox_id, expires_at)
        finally:
            self._drop_from_cache(lambda key: key.sandbox == sandbox_id)

    async def sandbox_ids(self) -> Sequence[str]:
        """Return ids of sandboxes with an unrevoked key."""
        return await self._store.sandboxes()

    async def delete_old_revoked(self, older_than: timedelta) -> int:
        """Delete keys of sandboxes and sessions that were revoked long ago; return their number."""
        return await self._store.delete_revoked_of_sandboxes(self._now() - older_than)

    async def list(self, tenant: str | None = None, sandbox: str | None = None) -> Sequence[ApiKey]:
        """Return the keys of a tenant, or of all tenants, including revoked and expired ones.

        Keys of sandboxes come and go with them: they are listed only for the given `sandbox`. Model keys of chat
        sessions are not listed.
        """
        return await self._store.list(tenant, sandbox)

    async def any_usable(self) -> bool:
        """Return whether any key would be accepted now, except keys of sandboxes and chat sessions."""
        return await self._store.count_usable(self._now()) > 0

    async def ensure_local_key(self, path: Path) -> str | None:
        """Return the secret of this machine's command line, kept in a file; create it if no key could create others.

        A new key is created if the file was lost. `None` if the local key was revoked or never existed, and another
        key administers the server.
        """
        secret = await asyncio.to_thread(read_key_secret_file, path)
        if secret and await self._is_accepted(secret):
            return secret
        lost = [key for key in await self.list(DEFAULT_TENANT) if key.name == LOCAL_KEY_NAME and key.revoked_at is None]
        if not lost and await self._has_administrator():
            return None
        for key in lost:
            await self.revoke(key.id)
        _, secret = await self.create(LOCAL_KEY_NAME, DEFAULT_TENANT, [Scope.ADMIN])
        await asyncio.to_thread(write_key_secret_file, path, secret)
        return secret

    async def _has_administrator(self) -> bool:
        """Return whether there is a usable key that can create keys for the default tenant."""
        now = self._now()
        return any(
            Scope.ADMIN in key.scopes or (Scope.KEYS_ADMIN in key.scopes and key.tenant == DEFAULT_TENANT)
            for key in await self.list()
            if key.revoked_at is None and (key.expires_at is None or key.expires_at > now)
        )

    async def _is_accepted(self, secret: str) -> bool:
        try:
            await self.authenticate(secret)
        except Unauthorized:
            return False
        return True

    def _get_cached(self, hashed: str, now: datetime) -> ApiKey | None:
        key, read_at = self._cache.get(hashed, (None, now))
        return key if now - read_at < _CACHE_TTL else None

    async def _load_key(self, secret: str, hashed: str, now: datetime) -> ApiKey | None:
        changes = self.changes
        for key, stored in await self._store.find_by_prefix(key_secret_prefix(secret)):
            if hmac.compare_digest(stored, hashed):
                # Do not cache a key that was read before a revocation.
                if changes == self.changes:
                    self._cache_key(hashed, key, now)
                return key
        return None

    async def _record_use(self, key: ApiKey, hashed: str, now: datetime) -> None:
        if hashed in self._cache:
            _, read_at = self._cache[hashed]
            self._cache_key(hashed, key.model_copy(update={"last_used_at": now}), read_at)
        try:
            await self._store.record_use(key.id, now)
        except Unavailable:
            pass  # A full disk must not lock users out.

    def _drop_from_cache(self, matches: Callable[[ApiKey], bool]) -> None:
        self.changes += 1
        for hashed in [hashed for hashed, (key, _) in self._cache.items() if matches(key)]:
            del self._cache[hashed]

    def _cache_key(self, hashed: str, key: ApiKey, read_at: datetime) -> None:
        self._cache[hashed] = key, read_at
        self._cache.move_to_end(hashed)
        if len(self._cache) > _CACHE_SIZE:
            self._cache.popitem(last=False)


def check_key_grant(granted_by: Principal, tenant: str, scopes: frozenset[Scope]) -> None:
    """Raise `Forbidden` for scopes or a tenant that the principal may not grant."""
    granted_by.require(Scope.KEYS_ADMIN)
    if tenant != granted_by.tenant and not granted_by.allows(Scope.ADMIN):
        raise Forbidden("This key can make keys for its own tenant only.")
    missing = sorted(scope for scope in scopes if not granted_by.allows(scope))
    if missing:
        raise Forbidden(f"This key lacks {', '.join(missing)}, so it cannot grant it.")


def _check_terms(terms: ApiKeyTerms, scopes: frozenset[Scope]) -> None:
    if terms.sandbox is not None and scopes != {Scope.LLM_USE}:
        raise InvalidInput("A key of a sandbox has the scope llm:use and no other.")
    if terms.bounded and (missing := sorted(scopes & _UNLIMITED_SCOPES)):
        raise InvalidInput(
            f"A key with models, a budget or limits cannot have {', '.join(missing)}, which would bypass them; "
            "give it llm:use."
        )
    if terms.bounded and Scope.LLM_USE not in scopes:
        raise InvalidInput("Models, a budget and limits are for keys with the scope llm:use; give it that.")
