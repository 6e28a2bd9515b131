"""Logins: as long as their key, their use and their month last."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddock.auth.keys import Keys
from paddock.auth.logins import IDLE, LIFE, MOST, WRONG, Logins, Opened
from paddock.errors import QuotaExceeded, Unauthorized
from paddock.model.keys import Principal, Scope, Terms
from paddock.store.database import Store
from paddock.store.keys import KeyStore
from paddock.store.logins import LoginStore

pytestmark = pytest.mark.anyio
HERE = "127.0.0.1"
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
def keys(store: Store, clock: Clock) -> Keys:
    return Keys(KeyStore(store), clock)


@pytest.fixture
def logins(store: Store, keys: Keys, clock: Clock) -> Logins:
    return Logins(keys, LoginStore(store), clock)


def halves(opened: Opened) -> tuple[Principal, tuple[str, str]]:
    return opened.principal, (opened.cookie, opened.proof)


async def test_a_login_is_its_key(keys: Keys, logins: Logins) -> None:
    key, secret = await keys.create("ada", "acme", [Scope.RUNS_READ])
    begun, session = halves(await logins.by_key(secret, HERE))
    seen = await logins.authenticate(*session)
    assert seen == begun
    assert seen == Principal(
        tenant="acme", key_id=key.id, scopes=frozenset({Scope.RUNS_READ}), name=key.name, login=begun.login
    )
    assert not any(half in str(begun) for half in session)


async def test_it_outlives_the_server_but_no_secret_is_kept(
    keys: Keys, logins: Logins, store: Store, clock: Clock, tmp_path: Path
) -> None:
    _, secret = await keys.create("ada")
    _, session = halves(await logins.by_key(secret, HERE))
    later = Logins(Keys(KeyStore(store), clock), LoginStore(store), clock)
    assert (await later.authenticate(*session)).key_id
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("p.db*"))
    assert not any(half.encode() in kept for half in session)


@pytest.mark.parametrize("cached", [False, True])
async def test_it_dies_with_its_key(keys: Keys, logins: Logins, cached: bool) -> None:
    key, secret = await keys.create("ada")
    principal, session = halves(await logins.by_key(secret, HERE))
    if cached:
        await logins.authenticate(*session)
    await keys.revoke(key.id)
    with pytest.raises(Unauthorized):
        await logins.authenticate(*session)
    with pytest.raises(Unauthorized):
        await logins.confirm(principal)


async def test_it_expires_with_its_key(keys: Keys, logins: Logins, clock: Clock) -> None:
    _, secret = await keys.create("ada", expires_at=clock.now + timedelta(seconds=3))
    _, session = halves(await logins.by_key(secret, HERE))
    await logins.authenticate(*session)
    clock.now += timedelta(seconds=3)
    with pytest.raises(Unauthorized, match="expired"):
        await logins.authenticate(*session)


async def test_unused_it_ends_and_used_it_goes_on(keys: Keys, logins: Logins, clock: Clock) -> None:
    _, secret = await keys.create("ada")
    _, session = halves(await logins.by_key(secret, HERE))
    for _ in range(3):
        clock.now += IDLE - MINUTE
        await logins.authenticate(*session)
    clock.now += IDLE
    with pytest.raises(Unauthorized):
        await logins.authenticate(*session)


async def test_after_its_life_it_ends_however_much_it_is_used(keys: Keys, logins: Logins, clock: Clock) -> None:
    _, secret = await keys.create("ada")
    _, session = halves(await logins.by_key(secret, HERE))
    end = clock.now + LIFE
    while clock.now + IDLE / 2 < end:
        clock.now += IDLE / 2
        await logins.authenticate(*session)
    clock.now = end
    with pytest.raises(Unauthorized):
        await logins.authenticate(*session)


async def test_logging_out_ends_this_one_only(keys: Keys, logins: Logins) -> None:
    _, secret = await keys.create("ada")
    here, first = halves(await logins.by_key(secret, HERE))
    _, second = halves(await logins.by_key(secret, HERE))
    await logins.authenticate(*first)
    await logins.end(here)
    with pytest.raises(Unauthorized):
        await logins.authenticate(*first)
    assert "not signed in" in await logins.stopped(here)
    assert (await logins.authenticate(*second)).login != here.login
    assert (await keys.authenticate(secret)).login is None


async def test_the_oldest_of_too_many_makes_room(keys: Keys, logins: Logins, clock: Clock) -> None:
    _, secret = await keys.create("ada")
    _, other = await keys.create("bob")
    _, bobs = halves(await logins.by_key(other, HERE))
    made = []
    for _ in range(MOST + 1):
        clock.now += timedelta(seconds=1)
        made.append(halves(await logins.by_key(secret, HERE))[1])
    with pytest.raises(Unauthorized):
        await logins.authenticate(*made[0])
    for session in (made[1], made[-1], bobs):
        await logins.authenticate(*session)


async def test_wrong_keys_are_answered_for_a_while_only(keys: Keys, logins: Logins, clock: Clock) -> None:
    _, secret = await keys.create("ada")
    for attempt in range(WRONG):
        with pytest.raises(Unauthorized):
            await (logins.by_key("pdk_wrong", HERE) if attempt % 2 else logins.by_code("pdc_wrong", HERE))
    with pytest.raises(QuotaExceeded):
        await logins.by_key(secret, HERE)
    await logins.by_key(secret, "10.0.0.9")
    clock.now += MINUTE
    await logins.by_key(secret, HERE)


async def test_a_code_works_once_and_not_after_its_key(keys: Keys, logins: Logins, clock: Clock) -> None:
    key, secret = await keys.create("ada")
    principal = await keys.authenticate(secret)
    code = logins.codes.issue(principal).secret
    _, session = halves(await logins.by_code(code, HERE))
    assert (await logins.authenticate(*session)).key_id == key.id
    with pytest.raises(Unauthorized, match="used"):
        await logins.by_code(code, HERE)
    late, revoked = logins.codes.issue(principal).secret, logins.codes.issue(principal).secret
    clock.now += timedelta(minutes=2)
    with pytest.raises(Unauthorized, match="expired"):
        await logins.by_code(late, HERE)
    revoked = logins.codes.issue(principal).secret
    await keys.revoke(key.id)
    with pytest.raises(Unauthorized):
        await logins.by_code(revoked, HERE)


async def test_a_sandboxs_key_logs_nobody_in(keys: Keys, logins: Logins) -> None:
    _, secret = await keys.create("box", scopes=[Scope.LLM_USE], terms=Terms(sandbox="sb-1"))
    with pytest.raises(Unauthorized):
        await logins.by_key(secret, HERE)


@pytest.mark.parametrize("nonsense", ["", "x", "pds_", "pds_" + "0" * 43, "pdk_" + "0" * 43, "ä" * 300])
async def test_nonsense_is_nobody(logins: Logins, nonsense: str) -> None:
    with pytest.raises(Unauthorized):
        await logins.authenticate(nonsense, nonsense)


async def test_a_half_is_nothing(keys: Keys, logins: Logins) -> None:
    """Cookies are sent to other ports of the host, too."""
    _, secret = await keys.create("ada")
    one, other = await logins.by_key(secret, HERE), await logins.by_key(secret, HERE)
    for cookie, proof in ((one.cookie, other.proof), (one.cookie, ""), (one.cookie, "1"), (one.proof, one.cookie)):
        with pytest.raises(Unauthorized):
            await logins.authenticate(cookie, proof)
    assert (await logins.authenticate(one.cookie, one.proof)).login == one.principal.login
