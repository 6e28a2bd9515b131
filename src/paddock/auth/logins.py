"""Browsers that are logged in: a key is shown once, and a cookie and a proof stand for it afterwards."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from paddock.auth.keys import Keys
from paddock.auth.secrets import digest
from paddock.auth.tickets import Codes
from paddock.errors import NotFound, PaddockError, QuotaExceeded, Unauthorized, Unavailable
from paddock.model.keys import Key, Login, Principal
from paddock.store.logins import LoginStore

PREFIX = "pds_"
IDLE = timedelta(hours=12)
LIFE = timedelta(days=30)
MOST = 100
"""Browsers that one key may be logged in with; the one that was used longest ago makes room."""
WRONG = 10
WITHIN = timedelta(minutes=1)
"""So many wrong keys or codes may come from one address within so long."""
_CACHED = 1024
_CACHED_FOR = timedelta(seconds=5)
_USE_NOTED_EVERY = timedelta(minutes=1)
_ADDRESSES = 10_000
_LOOK = 0.5
_LOOKS = 30
_OVER = "You are not signed in any more; sign in again."


@dataclass(frozen=True)
class _Known:
    login: Login
    key: Key
    read_at: datetime
    changes: int


@dataclass(frozen=True)
class Opened:
    """A login that has just begun. Neither half is worth anything without the other."""

    principal: Principal
    cookie: str
    proof: str


class Logins:
    """The logins of all keys. They are kept, so that a server that starts anew logs nobody out."""

    def __init__(self, keys: Keys, store: LoginStore, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._keys = keys
        self._store = store
        self._now = now
        self._cache: OrderedDict[str, _Known] = OrderedDict()
        self._wrong: OrderedDict[str, list[datetime]] = OrderedDict()
        self.codes = Codes(now)
        self.changes = 0
        """Grows whenever somebody logs out."""

    async def by_key(self, secret: str, address: str) -> Opened:
        """Log in with a key from a client's address.

        Raises `Unauthorized`, and `QuotaExceeded` for an address that many wrong keys came from.
        """
        self.check_patience(address)
        try:
            principal = await self._keys.authenticate(secret)
        except Unauthorized:
            self._note_wrong(address)
            raise
        return await self._begin(principal)

    async def by_code(self, code: str, address: str) -> Opened:
        """Log in with a code that stands for a key once. Raises as `by_key` does."""
        self.check_patience(address)
        try:
            principal = self.codes.redeem(code, "")
            await self._keys.confirm(principal)
        except Unauthorized:
            self._note_wrong(address)
            raise
        return await self._begin(principal)

    async def _begin(self, principal: Principal) -> Opened:
        now = self._now()
        cookie, proof = PREFIX + secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        login = Login(digest=_digest(cookie, proof), key_id=principal.key_id, created_at=now, used_at=now)
        await self._store.forget(now - LIFE, now - IDLE)
        await self._store.insert(login, MOST)
        return Opened(principal.model_copy(update={"login": login.digest}), cookie, proof)

    async def authenticate(self, cookie: str, proof: str) -> Principal:
        """Who both halves stand for. Raises `Unauthorized`, also once the key works no more."""
        if not cookie.startswith(PREFIX):
            raise Unauthorized(_OVER)
        hashed, now = _digest(cookie, proof), self._now()
        known = self._cached(hashed, now) or await self._find(hashed, now)
        login, key = known.login, known.key
        if key.expires_at is not None and key.expires_at <= now:
            raise Unauthorized(f"The key {key.name} has expired; sign in with another.")
        if now - login.used_at >= _USE_NOTED_EVERY:
            await self._note_use(known, now)
        return Principal.of(key, hashed)

    async def end(self, principal: Principal) -> None:
        """Log out; what was opened by this login ends. Idempotent."""
        if principal.login is None:
            return
        try:
            await self._store.delete(principal.login)
        finally:
            # Also when cancelled: it may be gone all the same.
            self.changes += 1
            self._cache.pop(principal.login, None)

    async def confirm(self, principal: Principal) -> None:
        """Raise `Unauthorized` if the key, or the login, that somebody was let in with works no more."""
        await self._keys.confirm(principal)
        if principal.login is not None and not self._holds(await self._store.get(principal.login), self._now()):
            raise Unauthorized(_OVER)

    async def stopped(self, principal: Principal) -> str:
        """Wait until the key, or the login, that somebody was let in with works no more, and say so."""
        while True:
            changes = (self._keys.changes, self.changes)
            try:
                await self.confirm(principal)
            except Unauthorized as error:
                return error.message
            except NotFound:
                return "The key is no more; use another."
            except PaddockError:
                pass  # What cannot be asked now is asked again.
            # What ends by this server shows at once; time and other processes are asked now and then.
            for _ in range(_LOOKS):
                await asyncio.sleep(_LOOK)
                if (self._keys.changes, self.changes) != changes:
                    break

    def _holds(self, login: Login | None, now: datetime) -> bool:
        return login is not None and now - login.created_at < LIFE and now - login.used_at < IDLE

    def _cached(self, hashed: str, now: datetime) -> _Known | None:
        known = self._cache.get(hashed)
        fresh = known is not None and known.changes == self._keys.changes and now - known.read_at < _CACHED_FOR
        return known if fresh else None

    async def _find(self, hashed: str, now: datetime) -> _Known:
        changes, ended = self._keys.changes, self.changes
        login = await self._store.get(hashed)
        if login is None or not self._holds(login, now):
            raise Unauthorized(_OVER)
        try:
            principal = Principal(tenant="", key_id=login.key_id, scopes=frozenset())
            key = await self._keys.confirm(principal)
        except NotFound:
            raise Unauthorized(_OVER) from None
        known = _Known(login, key, now, changes)
        if ended == self.changes:
            self._remember(known)
        return known

    async def _note_use(self, known: _Known, now: datetime) -> None:
        login = known.login.model_copy(update={"used_at": now})
        if login.digest in self._cache:
            self._remember(_Known(login, known.key, known.read_at, known.changes))
        try:
            await self._store.used(login.digest, now)
        except Unavailable:
            pass  # a full disk must not lock people out

    def _remember(self, known: _Known) -> None:
        self._cache[known.login.digest] = known
        self._cache.move_to_end(known.login.digest)
        if len(self._cache) > _CACHED:
            self._cache.popitem(last=False)

    def check_patience(self, address: str) -> None:
        """Raise `QuotaExceeded` for an address that many wrong keys came from."""
        recent = [at for at in self._wrong.get(address, ()) if self._now() - at < WITHIN]
        if len(recent) >= WRONG:
            raise QuotaExceeded(f"{WRONG} wrong keys came from {address} within a minute; wait a minute")

    def _note_wrong(self, address: str) -> None:
        recent = [at for at in self._wrong.pop(address, []) if self._now() - at < WITHIN]
        self._wrong[address] = [*recent, self._now()][-WRONG:]
        if len(self._wrong) > _ADDRESSES:
            self._wrong.popitem(last=False)


def _digest(cookie: str, proof: str) -> str:
    return digest(f"{cookie} {proof}")
