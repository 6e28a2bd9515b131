"""Logins end with their key, after idle time, and at their maximum age."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddock.auth.api_keys import ApiKeys
from paddock.auth.logins import MAX_AGE, MAX_FAILED_ATTEMPTS, MAX_IDLE, MAX_PER_KEY, BrowserLogins, NewBrowserLogin
from paddock.errors import QuotaExceeded, Unauthorized
from paddock.model.keys import ApiKeyTerms, Principal, Scope
from paddock.store.database import Store
from paddock.store.key_store import ApiKeyStore
from paddock.store.login_store import LoginStore

pytestmark = pytest.mark.anyio
LOCAL_ADDRESS = "127.0.0.1"
MINUTE = timedelta(minutes=1)


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "p.db") as opened:
        yield opened


@pytest.fixture
def keys(store: Store, clock: Clock) -> ApiKeys:
    return ApiKeys(ApiKeyStore(store), clock)


@pytest.fixture
def logins(store: Store, keys: ApiKeys, clock: Clock) -> BrowserLogins:
    return BrowserLogins(keys, LoginStore(store), clock)


def principal_and_secrets(opened: NewBrowserLogin) -> tuple[Principal, tuple[str, str]]:
    return opened.principal, (opened.cookie, opened.proof)


async def test_login_has_the_rights_of_its_key(keys: ApiKeys, logins: BrowserLogins) -> None:
    key, secret = await keys.create("ada", "acme", [Scope.RUNS_READ])
    logged_in, session = principal_and_secrets(await logins.log_in_with_key(secret, LOCAL_ADDRESS))
    seen = await logins.authenticate(*session)
    assert seen == logged_in
    assert seen == Principal(
        tenant="acme", key_id=key.id, scopes=frozenset({Scope.RUNS_READ}), name=key.name, login=logged_in.login
    )
    assert not any(half in str(logged_in) for half in session)


async def test_login_survives_restarts_and_no_secret_is_stored(
    keys: ApiKeys, logins: BrowserLogins, store: Store, clock: Clock, tmp_path: Path
) -> None:
    _, secret = await keys.create("ada")
    _, session = principal_and_secrets(await logins.log_in_with_key(secret, LOCAL_ADDRESS))
    later = BrowserLogins(ApiKeys(ApiKeyStore(store), clock), LoginStore(store), clock)
    assert (await later.authenticate(*session)).key_id
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("p.db*"))
    assert not any(half.encode() in kept for half in session)


@pytest.mark.parametrize("cached", [False, True])
async def test_login_ends_when_its_key_is_revoked(keys: ApiKeys, logins: BrowserLogins, cached: bool) -> None:
    key, secret = await keys.create("ada")
    principal, session = principal_and_secrets(await logins.log_in_with_key(secret, LOCAL_ADDRESS))
    if cached:
        await logins.authenticate(*session)
    await keys.revoke(key.id)
    with pytest.raises(Unauthorized):
        await logins.authenticate(*session)
    with pytest.raises(Unauthorized):
        await logins.confirm_usable(principal)


async def test_login_ends_when_its_key_expires(keys: ApiKeys, logins: BrowserLogins, clock: Clock) -> None:
    _, secret = await keys.create("ada", expires_at=clock.now + timedelta(seconds=3))
    _, session = principal_and_secrets(await logins.log_in_with_key(secret, LOCAL_ADDRESS))
    await logins.authenticate(*session)
    clock.now += timedelta(seconds=3)
    with pytest.raises(Unauthorized, match="expired"):
        await logins.authenticate(*session)


async def test_idle_login_ends_and_used_login_lasts(keys: ApiKeys, logins: BrowserLogins, clock: Clock) -> None:
    _, secret = await keys.create("ada")
    _, session = principal_and_secrets(await logins.log_in_with_key(secret, LOCAL_ADDRESS))
    for _ in range(3):
        clock.now += MAX_IDLE - MINUTE
        await logins.authenticate(*session)
    clock.now += MAX_IDLE
    with pytest.raises(Unauthorized):
        await logins.authenticate(*session)


async def test_login_ends_at_its_maximum_age(keys: ApiKeys, logins: BrowserLogins, clock: Clock) -> None:
    _, secret = await keys.create("ada")
    _, session = principal_and_secrets(await logins.log_in_with_key(secret, LOCAL_ADDRESS))
    end = clock.now + MAX_AGE
    while clock.now + MAX_IDLE / 2 < end:
        clock.now += MAX_IDLE / 2
        await logins.authenticate(*session)
    clock.now = end
    with pytest.raises(Unauthorized):
        await logins.authenticate(*session)


async def test_logout_ends_this_login_only(keys: ApiKeys, logins: BrowserLogins) -> None:
    _, secret = await keys.create("ada")
    current, first = principal_and_secrets(await logins.log_in_with_key(secret, LOCAL_ADDRESS))
    _, second = principal_and_secrets(await logins.log_in_with_key(secret, LOCAL_ADDRESS))
    await logins.authenticate(*first)
    await logins.log_out(current)
    with pytest.raises(Unauthorized):
        await logins.authenticate(*first)
    assert "no longer signed in" in await logins.wait_until_invalid(current)
    assert (await logins.authenticate(*second)).login != current.login
    assert (await keys.authenticate(secret)).login is None


async def test_least_recently_used_login_is_dropped(keys: ApiKeys, logins: BrowserLogins, clock: Clock) -> None:
    _, secret = await keys.create("ada")
    _, other = await keys.create("bob")
    _, bobs = principal_and_secrets(await logins.log_in_with_key(other, LOCAL_ADDRESS))
    made = []
    for _ in range(MAX_PER_KEY + 1):
        clock.now += timedelta(seconds=1)
        made.append(principal_and_secrets(await logins.log_in_with_key(secret, LOCAL_ADDRESS))[1])
    with pytest.raises(Unauthorized):
        await logins.authenticate(*made[0])
    for session in (made[1], made[-1], bobs):
        await logins.authenticate(*session)


async def test_failed_attempts_are_rate_limited(keys: ApiKeys, logins: BrowserLogins, clock: Clock) -> None:
    _, secret = await keys.create("ada")
    for attempt in range(MAX_FAILED_ATTEMPTS):
        with pytest.raises(Unauthorized):
            await (
                logins.log_in_with_key("pdk_wrong", LOCAL_ADDRESS)
                if attempt % 2
                else logins.log_in_with_code("pdc_wrong", LOCAL_ADDRESS)
            )
    with pytest.raises(QuotaExceeded):
        await logins.log_in_with_key(secret, LOCAL_ADDRESS)
    await logins.log_in_with_key(secret, "10.0.0.9")
    clock.now += MINUTE
    await logins.log_in_with_key(secret, LOCAL_ADDRESS)


async def test_login_code_works_once_and_ends_with_its_key(keys: ApiKeys, logins: BrowserLogins, clock: Clock) -> None:
    key, secret = await keys.create("ada")
    principal = await keys.authenticate(secret)
    code = logins.codes.issue(principal).secret
    _, session = principal_and_secrets(await logins.log_in_with_code(code, LOCAL_ADDRESS))
    assert (await logins.authenticate(*session)).key_id == key.id
    with pytest.raises(Unauthorized, match="used"):
        await logins.log_in_with_code(code, LOCAL_ADDRESS)
    late, revoked = logins.codes.issue(principal).secret, logins.codes.issue(principal).secret
    clock.now += timedelta(minutes=2)
    with pytest.raises(Unauthorized, match="expired"):
        await logins.log_in_with_code(late, LOCAL_ADDRESS)
    revoked = logins.codes.issue(principal).secret
    await keys.revoke(key.id)
    with pytest.raises(Unauthorized):
        await logins.log_in_with_code(revoked, LOCAL_ADDRESS)


async def test_sandbox_key_cannot_log_in(keys: ApiKeys, logins: BrowserLogins) -> None:
    _, secret = await keys.create("box", scopes=[Scope.LLM_USE], terms=ApiKeyTerms(sandbox="sb-1"))
    with pytest.raises(Unauthorized):
        await logins.log_in_with_key(secret, LOCAL_ADDRESS)


@pytest.mark.parametrize("nonsense", ["", "x", "pds_", "pds_" + "0" * 43, "pdk_" + "0" * 43, "ä" * 300])
async def test_invalid_cookies_are_refused(logins: BrowserLogins, nonsense: str) -> None:
    with pytest.raises(Unauthorized):
        await logins.authenticate(nonsense, nonsense)


async def test_cookie_or_proof_alone_is_refused(keys: ApiKeys, logins: BrowserLogins) -> None:
    """Cookies are sent to other ports of the host, too."""
    _, secret = await keys.create("ada")
    one, other = (
        await logins.log_in_with_key(secret, LOCAL_ADDRESS),
        await logins.log_in_with_key(secret, LOCAL_ADDRESS),
    )
    for cookie, proof in ((one.cookie, other.proof), (one.cookie, ""), (one.cookie, "1"), (one.proof, one.cookie)):
        with pytest.raises(Unauthorized):
            await logins.authenticate(cookie, proof)
    assert (await logins.authenticate(one.cookie, one.proof)).login == one.principal.login
