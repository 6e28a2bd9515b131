"""API keys: made, checked, listed, revoked."""

from __future__ import annotations

import asyncio
import hmac
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from paddock.auth.secrets import digest, looks_like_secret, new_secret, read_secret, shown_prefix, write_secret
from paddock.errors import Forbidden, InvalidInput, Unauthorized, Unavailable
from paddock.model.keys import DEFAULT_TENANT, SESSION_KEY, Key, Principal, Scope, Terms
from paddock.store.keys import KeyStore

LOCAL_KEY = "local"
_CACHED = 1024
_CACHED_FOR = timedelta(seconds=5)
"""Bounds how long a revocation that happened elsewhere, or whose caller was cancelled, goes unseen."""
_USE_NOTED_EVERY = timedelta(minutes=1)
_OUTSIDE = frozenset({Scope.ADMIN, Scope.KEYS_ADMIN, Scope.SANDBOXES_WRITE, Scope.RUNS_WRITE})
"""With these a key could make other keys, sandboxes with keys, or runs, that ask models without its bounds."""


class Keys:
    """The keys of all tenants. One server has one of these, so that revoking is seen at once."""

    def __init__(self, store: KeyStore, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._store = store
        self._now = now
        self._cache: OrderedDict[str, tuple[Key, datetime]] = OrderedDict()
        self.changes = 0
        """Grows whenever keys stop working or work longer; what was known of keys before that may be wrong."""

    async def create(
        self,
        name: str,
        tenant: str = DEFAULT_TENANT,
        scopes: Iterable[Scope] = (Scope.SANDBOXES_WRITE,),
        expires_at: datetime | None = None,
        *,
        terms: Terms | None = None,
        granted_by: Principal | None = None,
        owner: str | None = None,
    ) -> tuple[Key, str]:
        """Make a key. The secret is returned here and never again.

        A key cannot grant more than its holder has: with `granted_by`, raises `Forbidden` for scopes or a tenant that
        are not theirs. `owner` is the subject whose sandbox or session the key is for. Raises `InvalidInput` for a key
        that could never be used, or whose `terms` lead nowhere.
        """
        now = self._now()
        wanted = frozenset(scopes)
        if granted_by:
            check_grant(granted_by, tenant, wanted)
            if name.startswith(SESSION_KEY):
                raise InvalidInput(f"Names that begin with {SESSION_KEY!r} are for keys that the server makes itself.")
        if not wanted:
            raise InvalidInput("A key needs at least one scope.")
        if expires_at is not None and (expires_at.tzinfo is None or expires_at <= now):
            raise InvalidInput("A key must expire in the future, at a time with a time zone.")
        terms = terms or Terms()
        _check_terms(terms, wanted)
        secret = new_secret()
        try:
            key = Key(
                id=f"key-{uuid.uuid4().hex[:16]}",
                name=name,
                tenant=tenant,
                scopes=wanted,
                prefix=shown_prefix(secret),
                created_at=now,
                expires_at=expires_at,
                owner=owner,
                **dict(terms),
            )
        except ValueError:
            raise InvalidInput(
                "A key's name has 1 to 100 characters, a tenant's up to 63 letters, digits, dots, dashes, underscores."
            ) from None
        return await self._store.insert(key, digest(secret)), secret

    async def authenticate(self, secret: str) -> Principal:
        """Who holds this secret. Raises `Unauthorized`, saying no more than that for secrets that were never ours."""
        key = await self.find(secret)
        if key.sandbox is not None:
            raise Unauthorized(f"The key {key.name} is for asking models from within sandbox {key.sandbox} only.")
        return Principal.of(key)

    async def confirm(self, principal: Principal) -> Key:
        """The key that somebody was let in with. Raises `Unauthorized` if it has stopped working since."""
        key = await self._store.get(principal.key_id, None)
        if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= self._now()):
            raise Unauthorized(f"The key {key.name} works no more; use another.")
        return key

    async def find(self, secret: str) -> Key:
        """The key that has this secret, if it works anywhere. Raises `Unauthorized`."""
        if not looks_like_secret(secret):
            raise Unauthorized("This is not an API key of this server; use one that `paddock key create` printed.")
        hashed = digest(secret)
        now = self._now()
        key = self._cached(hashed, now) or await self._find(secret, hashed, now)
        if key is None:
            raise Unauthorized("This is not an API key of this server; use one that `paddock key create` printed.")
        if key.revoked_at is not None:
            raise Unauthorized(f"The key {key.name} has been revoked; use another.")
        if key.expires_at is not None and key.expires_at <= now:
            raise Unauthorized(f"The key {key.name} has expired; make another.")
        if key.last_used_at is None or now - key.last_used_at >= _USE_NOTED_EVERY:
            await self._note_use(key, hashed, now)
        return key

    async def get(self, key_id: str, tenant: str | None = None) -> Key:
        """One key. Raises `NotFound`, also for another tenant's."""
        return await self._store.get(key_id, tenant)

    async def revoke(self, key_id: str, tenant: str | None = None) -> Key:
        """Stop a key from working, from now on. Idempotent. Raises `NotFound`, also for another tenant's key."""
        try:
            return await self._store.revoke(key_id, self._now(), tenant)
        finally:
            # Also when cancelled: the key may be revoked all the same.
            self._forget(lambda key: key.id == key_id)

    async def revoke_for_sandbox(self, sandbox_id: str) -> int:
        """Stop all keys of a sandbox from working, and say how many did. Idempotent."""
        try:
            return await self._store.revoke_for_sandbox(sandbox_id, self._now())
        finally:
            self._forget(lambda key: key.sandbox == sandbox_id)

    async def revoke_for_sessions(self) -> int:
        """Stop all keys that chat sessions ask with from working, and say how many did. Idempotent."""
        try:
            return await self._store.revoke_for_sessions(self._now())
        finally:
            self._forget(lambda key: key.session is not None)

    async def prolong_for_sandbox(self, sandbox_id: str, expires_at: datetime) -> None:
        """Let the keys of a sandbox work until another time."""
        try:
            await self._store.prolong_for_sandbox(sandbox_id, expires_at)
        finally:
            self._forget(lambda key: key.sandbox == sandbox_id)

    async def sandboxes(self) -> Sequence[str]:
        """Ids of sandboxes that have a key which is not revoked."""
        return await self._store.sandboxes()

    async def forget_sandboxes(self, older_than: timedelta) -> int:
        """Forget keys of sandboxes and chat sessions that were revoked long ago, and say how many."""
        return await self._store.forget_sandboxes(self._now() - older_than)

    async def list(self, tenant: str | None = None, sandbox: str | None = None) -> Sequence[Key]:
        """Keys of a tenant, or of all, revoked and expired ones too.

        Those of sandboxes come and go with them; they are listed only for the sandbox that is asked for. Those that
        chat sessions ask with are not listed.
        """
        return await self._store.list(tenant, sandbox)

    async def exist(self) -> bool:
        """Whether any key would be accepted now, other than from within a sandbox or a chat session."""
        return await self._store.count_usable(self._now()) > 0

    async def ensure_local_key(self, path: Path) -> str | None:
        """The secret for the command line on this machine, kept in a file, made if no key could make others.

        Made anew when the file was lost. `None` when the owner has revoked it, or never had it, and administers the
        server with another key.
        """
        secret = await asyncio.to_thread(read_secret, path)
        if secret and await self._accepts(secret):
            return secret
        lost = [key for key in await self.list(DEFAULT_TENANT) if key.name == LOCAL_KEY and key.revoked_at is None]
        if not lost and await self._administered():
            return None
        for key in lost:
            await self.revoke(key.id)
        _, secret = await self.create(LOCAL_KEY, DEFAULT_TENANT, [Scope.ADMIN])
        await asyncio.to_thread(write_secret, path, secret)
        return secret

    async def _administered(self) -> bool:
        """Whether somebody holds a key that works and with which this machine's owner could make others."""
        now = self._now()
        return any(
            Scope.ADMIN in key.scopes or (Scope.KEYS_ADMIN in key.scopes and key.tenant == DEFAULT_TENANT)
            for key in await self.list()
            if key.revoked_at is None and (key.expires_at is None or key.expires_at > now)
        )

    async def _accepts(self, secret: str) -> bool:
        try:
            await self.authenticate(secret)
        except Unauthorized:
            return False
        return True

    def _cached(self, hashed: str, now: datetime) -> Key | None:
        key, read_at = self._cache.get(hashed, (None, now))
        return key if now - read_at < _CACHED_FOR else None

    async def _find(self, secret: str, hashed: str, now: datetime) -> Key | None:
        changes = self.changes
        for key, stored in await self._store.by_prefix(shown_prefix(secret)):
            if hmac.compare_digest(stored, hashed):
                # What was read before a revocation must not outlive it.
                if changes == self.changes:
                    self._remember(hashed, key, now)
                return key
        return None

    async def _note_use(self, key: Key, hashed: str, now: datetime) -> None:
        if hashed in self._cache:
            _, read_at = self._cache[hashed]
            self._remember(hashed, key.model_copy(update={"last_used_at": now}), read_at)
        try:
            await self._store.used(key.id, now)
        except Unavailable:
            pass  # a full disk must not lock people out

    def _forget(self, concerned: Callable[[Key], bool]) -> None:
        self.changes += 1
        for hashed in [hashed for hashed, (key, _) in self._cache.items() if concerned(key)]:
            del self._cache[hashed]

    def _remember(self, hashed: str, key: Key, read_at: datetime) -> None:
        self._cache[hashed] = key, read_at
        self._cache.move_to_end(hashed)
        if len(self._cache) > _CACHED:
            self._cache.popitem(last=False)


def check_grant(granted_by: Principal, tenant: str, scopes: frozenset[Scope]) -> None:
    """Raise `Forbidden` for what somebody may not grant."""
    granted_by.require(Scope.KEYS_ADMIN)
    if tenant != granted_by.tenant and not granted_by.allows(Scope.ADMIN):
        raise Forbidden("This key can make keys for its own tenant only.")
    beyond = sorted(scope for scope in scopes if not granted_by.allows(scope))
    if beyond:
        raise Forbidden(f"This key lacks {', '.join(beyond)}, so it cannot grant it.")


def _check_terms(terms: Terms, scopes: frozenset[Scope]) -> None:
    if terms.sandbox is not None and scopes != {Scope.LLM_USE}:
        raise InvalidInput("A key of a sandbox has the scope llm:use and no other.")
    if terms.bounded and (beyond := sorted(scopes & _OUTSIDE)):
        raise InvalidInput(
            f"A key with models, a budget or limits cannot have {', '.join(beyond)}, which leads around them; "
            "give it llm:use."
        )
    if terms.bounded and Scope.LLM_USE not in scopes:
        raise InvalidInput("Models, a budget and limits are for keys with the scope llm:use; give it that.")
