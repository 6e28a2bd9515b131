"""Browser logins: after a key or code was shown once, a cookie and a proof replace it."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from paddock.auth.api_keys import ApiKeys
from paddock.auth.key_secrets import hash_key_secret
from paddock.auth.tickets import OneTimeLoginCodes
from paddock.errors import NotFound, PaddockError, QuotaExceeded, Unauthorized, Unavailable
from paddock.model.keys import ApiKey, BrowserLogin, Principal
from paddock.store.login_store import LoginStore

COOKIE_PREFIX = "pds_"
MAX_IDLE = timedelta(hours=12)
MAX_AGE = timedelta(days=30)
MAX_PER_KEY = 100
"""Logins per key; the least recently used one is dropped."""
MAX_FAILED_ATTEMPTS = 10
FAILED_ATTEMPTS_WINDOW = timedelta(minutes=1)
"""Window in which one address may send that many wrong keys or codes."""
_CACHE_SIZE = 1024
_CACHE_TTL = timedelta(seconds=5)
_LAST_USED_RESOLUTION = timedelta(minutes=1)
_MAX_ADDRESSES = 10_000
_POLL_SECONDS = 0.5
_POLLS_PER_CHECK = 30
_SIGNED_OUT = "You are no longer signed in; sign in again."


@dataclass(frozen=True)
class _CachedLogin:
    login: BrowserLogin
    key: ApiKey
    read_at: datetime
    changes: int


@dataclass(frozen=True)
class NewBrowserLogin:
    """A new login. Cookie and proof are worthless without each other."""

    principal: Principal
    cookie: str
    proof: str


class BrowserLogins:
    """The logins of all keys, stored in the database so that they survive restarts."""

    def __init__(
        self, keys: ApiKeys, store: LoginStore, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._keys = keys
        self._store = store
        self._now = now
        self._cache: OrderedDict[str, _CachedLogin] = OrderedDict()
        self._failed_attempts: OrderedDict[str, list[datetime]] = OrderedDict()
        self.codes = OneTimeLoginCodes(now)
        self.changes = 0
        """Incremented at each logout."""

    async def log_in_with_key(self, secret: str, address: str) -> NewBrowserLogin:
        """Log in with a key, from a client's address.

        Raises `Unauthorized`, and `QuotaExceeded` for an address with too many failed attempts.
        """
        self.check_failed_attempts(address)
        try:
            principal = await self._keys.authenticate(secret)
        except Unauthorized:
            self._record_failed_attempt(address)
            raise
        return await self._create_login(principal)

    async def log_in_with_code(self, code: str, address: str) -> NewBrowserLogin:
        """Log in with a one-time code. Raises like `log_in_with_key`."""
        self.check_failed_attempts(address)
        try:
            principal = self.codes.redeem(code, "")
            await self._keys.confirm_usable(principal)
        except Unauthorized:
            self._record_failed_attempt(address)
            raise
        return await self._create_login(principal)

    async def _create_login(self, principal: Principal) -> NewBrowserLogin:
        now = self._now()
        cookie, proof = COOKIE_PREFIX + secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        login = BrowserLogin(digest=_hash_login(cookie, proof), key_id=principal.key_id, created_at=now, used_at=now)
        await self._store.delete_expired(now - MAX_AGE, now - MAX_IDLE)
        await self._store.insert(login, MAX_PER_KEY)
        return NewBrowserLogin(principal.model_copy(update={"login": login.digest}), cookie, proof)

    async def authenticate(self, cookie: str, proof: str) -> Principal:
        """Return the principal of a cookie and its proof.

        Raises `Unauthorized`, also if the key is no longer valid.
        """
        if not cookie.startswith(COOKIE_PREFIX):
            raise Unauthorized(_SIGNED_OUT)
        hashed, now = _hash_login(cookie, proof), self._now()
        cached = self._get_cached(hashed, now) or await self._load_login(hashed, now)
        login, key = cached.login, cached.key
        if key.expires_at is not None and key.expires_at <= now:
            raise Unauthorized(f"The key {key.name} has expired; sign in with another.")
        if now - login.used_at >= _LAST_USED_RESOLUTION:
            await self._record_use(cached, now)
        return Principal.of(key, hashed)

    async def log_out(self, principal: Principal) -> None:
        """Log out and close what this login opened. Idempotent."""
        if principal.login is None:
            return
        try:
            await self._store.delete(principal.login)
        finally:
            # Also when cancelled: the login may have been deleted nevertheless.
            self.changes += 1
            self._cache.pop(principal.login, None)

    async def confirm_usable(self, principal: Principal) -> None:
        """Raise `Unauthorized` if the principal's key or login is no longer valid."""
        await self._keys.confirm_usable(principal)
        if principal.login is not None and not self._is_valid(await self._store.get(principal.login), self._now()):
            raise Unauthorized(_SIGNED_OUT)

    async def wait_until_invalid(self, principal: Principal) -> str:
        """Wait until the principal's key or login becomes invalid, and return the reason."""
        while True:
            changes = (self._keys.changes, self.changes)
            try:
                await self.confirm_usable(principal)
            except Unauthorized as error:
                return error.message
            except NotFound:
                return "The key has been deleted; use another."
            except PaddockError:
                pass  # The check is repeated.
            # Changes by this server are noticed at once; expiry and other processes by polling.
            for _ in range(_POLLS_PER_CHECK):
                await asyncio.sleep(_POLL_SECONDS)
                if (self._keys.changes, self.changes) != changes:
                    break

    def _is_valid(self, login: BrowserLogin | None, now: datetime) -> bool:
        return login is not None and now - login.created_at < MAX_AGE and now - login.used_at < MAX_IDLE

    def _get_cached(self, hashed: str, now: datetime) -> _CachedLogin | None:
        cached = self._cache.get(hashed)
        is_current = cached is not None and cached.changes == self._keys.changes and now - cached.read_at < _CACHE_TTL
        return cached if is_current else None

    async def _load_login(self, hashed: str, now: datetime) -> _CachedLogin:
        changes, ended = self._keys.changes, self.changes
        login = await self._store.get(hashed)
        if login is None or not self._is_valid(login, now):
            raise Unauthorized(_SIGNED_OUT)
        try:
            principal = Principal(tenant="", key_id=login.key_id, scopes=frozenset())
            key = await self._keys.confirm_usable(principal)
        except NotFound:
            raise Unauthorized(_SIGNED_OUT) from None
        cached = _CachedLogin(login, key, now, changes)
        if ended == self.changes:
            self._cache_login(cached)
        return cached

    async def _record_use(self, cached: _CachedLogin, now: datetime) -> None:
        login = cached.login.model_copy(update={"used_at": now})
        if login.digest in self._cache:
            self._cache_login(_CachedLogin(login, cached.key, cached.read_at, cached.changes))
        try:
            await self._store.record_use(login.digest, now)
        except Unavailable:
            pass  # A full disk must not lock users out.

    def _cache_login(self, cached: _CachedLogin) -> None:
        self._cache[cached.login.digest] = cached
        self._cache.move_to_end(cached.login.digest)
        if len(self._cache) > _CACHE_SIZE:
            self._cache.popitem(last=False)

    def check_failed_attempts(self, address: str) -> None:
        """Raise `QuotaExceeded` for an address with too many failed attempts."""
        recent = [at for at in self._failed_attempts.get(address, ()) if self._now() - at < FAILED_ATTEMPTS_WINDOW]
        if len(recent) >= MAX_FAILED_ATTEMPTS:
            raise QuotaExceeded(f"{MAX_FAILED_ATTEMPTS} wrong keys came from {address} within a minute; wait a minute")

    def _record_failed_attempt(self, address: str) -> None:
        recent = [at for at in self._failed_attempts.pop(address, []) if self._now() - at < FAILED_ATTEMPTS_WINDOW]
        self._failed_attempts[address] = [*recent, self._now()][-MAX_FAILED_ATTEMPTS:]
        if len(self._failed_attempts) > _MAX_ADDRESSES:
            self._failed_attempts.popitem(last=False)


def _hash_login(cookie: str, proof: str) -> str:
    return hash_key_secret(f"{cookie} {proof}")
