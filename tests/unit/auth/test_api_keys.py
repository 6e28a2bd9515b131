from __future__ import annotations

import stat
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddock.auth.api_keys import ApiKeys
from paddock.auth.key_secrets import generate_key_secret
from paddock.auth.network_exposure import check_network_exposure
from paddock.errors import ConfigError, Forbidden, InvalidInput, NotFound, Unauthorized, Unavailable
from paddock.model.keys import ApiKey, ApiKeyTerms, KeyBudget, KeyRateLimits, Principal, Scope
from paddock.store.database import Store
from paddock.store.key_store import ApiKeyStore

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def forward(self, **by: float) -> None:
        self.time += timedelta(**by)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ApiKeyStore]:
    async with await Store.open(tmp_path / "p.db") as opened:
        yield ApiKeyStore(opened)


@pytest.fixture
def keys(store: ApiKeyStore, clock: Clock) -> ApiKeys:
    return ApiKeys(store, clock)


async def test_key_authenticates_with_its_tenant_and_scopes(keys: ApiKeys) -> None:
    key, secret = await keys.create("ci", "acme", [Scope.SANDBOXES_READ])
    assert secret.startswith(key.prefix)
    assert len(secret) == 47
    expected = Principal(tenant="acme", key_id=key.id, scopes=frozenset([Scope.SANDBOXES_READ]), name=key.name)
    assert await keys.authenticate(secret) == expected
    assert await keys.authenticate(secret) == expected


async def test_secret_is_not_stored_on_disk(keys: ApiKeys, tmp_path: Path) -> None:
    _, secret = await keys.create("ci")
    await keys.authenticate(secret)
    content = b"".join(path.read_bytes() for path in (tmp_path / "p.db", tmp_path / "p.db-wal"))
    assert b"pdk_" in content
    assert secret.encode() not in content
    assert secret[12:].encode() not in content


async def test_wrong_secrets_are_refused(keys: ApiKeys) -> None:
    _, secret = await keys.create("ci")
    other = "0" if secret[-1] != "0" else "1"
    for wrong in (
        "",
        "pdk_",
        secret[:-1],
        secret[:-1] + other,
        secret + "x",
        secret[4:],
        generate_key_secret(),
        secret + "\n",
        "é",
    ):
        with pytest.raises(Unauthorized, match="not an API key"):
            await keys.authenticate(wrong)


async def test_revoked_key_is_refused_at_once_and_forever(keys: ApiKeys, store: ApiKeyStore, clock: Clock) -> None:
    key, secret = await keys.create("ci")
    await keys.authenticate(secret)
    revoked = await keys.revoke(key.id)
    with pytest.raises(Unauthorized, match="ci has been revoked"):
        await keys.authenticate(secret)
    clock.forward(days=1)
    assert (await keys.revoke(key.id)).revoked_at == revoked.revoked_at
    with pytest.raises(Unauthorized):
        await ApiKeys(store, clock).authenticate(secret)


async def test_revoking_during_authentication_is_not_undone_by_the_cache(
    keys: ApiKeys, store: ApiKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, secret = await keys.create("ci")
    find_by_prefix = store.find_by_prefix

    async def read_just_before_the_revocation(prefix: str) -> Sequence[tuple[ApiKey, str]]:
        found = await find_by_prefix(prefix)
        await keys.revoke(key.id)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(store, "find_by_prefix", read_just_before_the_revocation)
        await keys.authenticate(secret)
    with pytest.raises(Unauthorized):
        await keys.authenticate(secret)


async def test_revocation_by_other_process_is_seen_within_seconds(
    keys: ApiKeys, store: ApiKeyStore, clock: Clock
) -> None:
    key, secret = await keys.create("ci")
    await keys.authenticate(secret)
    await ApiKeys(store, clock).revoke(key.id)
    clock.forward(seconds=5)
    with pytest.raises(Unauthorized):
        await keys.authenticate(secret)


async def test_expired_key_is_refused_even_if_cached(keys: ApiKeys, clock: Clock) -> None:
    _, secret = await keys.create("ci", expires_at=clock() + timedelta(seconds=2))
    await keys.authenticate(secret)
    clock.forward(seconds=2)
    with pytest.raises(Unauthorized, match="expired"):
        await keys.authenticate(secret)
    assert not await keys.any_usable()


async def test_last_use_is_recorded_at_most_once_a_minute(keys: ApiKeys, clock: Clock) -> None:
    key, secret = await keys.create("ci")
    first = clock()

    async def last_used() -> datetime | None:
        await keys.authenticate(secret)
        return next(one.last_used_at for one in await keys.list() if one.id == key.id)

    assert await last_used() == first
    clock.forward(seconds=59)
    assert await last_used() == first
    clock.forward(seconds=1)
    assert await last_used() == clock()


async def test_full_disk_does_not_block_authentication(
    keys: ApiKeys, store: ApiKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, secret = await keys.create("ci")

    async def full(*_: object) -> None:
        raise Unavailable("full")

    monkeypatch.setattr(store, "record_use", full)
    assert (await keys.authenticate(secret)).tenant == "default"


async def test_tenants_do_not_see_or_revoke_each_others_keys(keys: ApiKeys, store: ApiKeyStore) -> None:
    mine, _ = await keys.create("a", "one")
    other, secret = await keys.create("a", "two")
    assert await keys.list("one") == [mine]
    with pytest.raises(NotFound):
        await keys.revoke(other.id, tenant="one")
    await keys.authenticate(secret)
    with pytest.raises(NotFound):
        await store.get(other.id, "one")
    assert [tenant.name for tenant in await store.tenants()] == ["one", "two"]


async def test_key_holder_cannot_grant_missing_scopes(keys: ApiKeys) -> None:
    def principal(*scopes: Scope) -> Principal:
        return Principal(tenant="one", key_id="k", scopes=frozenset(scopes))

    manager = principal(Scope.KEYS_ADMIN, Scope.SANDBOXES_WRITE)
    await keys.create("ok", "one", [Scope.SANDBOXES_READ], granted_by=manager)
    with pytest.raises(Forbidden, match="lacks admin"):
        await keys.create("no", "one", [Scope.ADMIN], granted_by=manager)
    with pytest.raises(Forbidden, match="own tenant"):
        await keys.create("no", "two", [Scope.SANDBOXES_READ], granted_by=manager)
    with pytest.raises(Forbidden, match="keys:admin"):
        await keys.create("no", "one", [Scope.SANDBOXES_READ], granted_by=principal(Scope.SANDBOXES_WRITE))
    await keys.create("ok", "two", [Scope.ADMIN], granted_by=principal(Scope.ADMIN))


def test_scope_includes_expected_scopes() -> None:
    def allows(held: Scope, requested: Scope) -> bool:
        return Principal(tenant="t", key_id="k", scopes=frozenset([held])).allows(requested)

    assert all(allows(Scope.ADMIN, scope) for scope in Scope)
    assert allows(Scope.SANDBOXES_WRITE, Scope.SANDBOXES_READ)
    assert not allows(Scope.SANDBOXES_READ, Scope.SANDBOXES_WRITE)
    assert allows(Scope.RUNS_WRITE, Scope.RUNS_READ)
    assert not allows(Scope.RUNS_READ, Scope.RUNS_WRITE)
    assert not allows(Scope.SANDBOXES_WRITE, Scope.RUNS_READ)
    assert not allows(Scope.KEYS_ADMIN, Scope.ADMIN)


async def test_contradictory_keys_are_refused(keys: ApiKeys, clock: Clock) -> None:
    with pytest.raises(InvalidInput, match="scope"):
        await keys.create("ci", scopes=[])
    with pytest.raises(InvalidInput, match="future"):
        await keys.create("ci", expires_at=clock())
    with pytest.raises(InvalidInput, match="name"):
        await keys.create("")
    with pytest.raises(InvalidInput, match="tenant"):
        await keys.create("ci", "../etc")


async def test_key_terms_are_stored(keys: ApiKeys, store: ApiKeyStore) -> None:
    terms = ApiKeyTerms(
        run="run-1",
        session="s:1",
        user="ann+x@example.org",
        models=("gpt-*", "a/b"),
        budget=KeyBudget(requests=1, cost=0.25),
        limits=KeyRateLimits(tokens_per_minute=9),
    )
    key, _ = await keys.create("k", "acme", [Scope.LLM_USE, Scope.LLM_READ], terms=terms)
    again = await store.get(key.id)
    assert again == key
    assert {name: getattr(again, name) for name in ApiKeyTerms.model_fields} == dict(terms)
    plain, _ = await keys.create("plain")
    assert not (await keys.get(plain.id)).bounded


@pytest.mark.parametrize("scope", [Scope.SANDBOXES_WRITE, Scope.RUNS_WRITE, Scope.KEYS_ADMIN, Scope.ADMIN])
async def test_scopes_that_bypass_limits_are_refused(keys: ApiKeys, scope: Scope) -> None:
    for terms in (
        ApiKeyTerms(models=("x",)),
        ApiKeyTerms(budget=KeyBudget(tokens=1)),
        ApiKeyTerms(limits=KeyRateLimits(concurrency=1)),
    ):
        with pytest.raises(InvalidInput, match=f"cannot have {scope}"):
            await keys.create("k", scopes=[Scope.LLM_USE, scope], terms=terms)
        with pytest.raises(InvalidInput, match="llm:use"):
            await keys.create("k", scopes=[Scope.SANDBOXES_READ], terms=terms)
    await keys.create("k", scopes=[Scope.LLM_USE, scope], terms=ApiKeyTerms(user="ann"))


async def test_sandbox_key_only_authenticates_model_requests(keys: ApiKeys) -> None:
    with pytest.raises(InvalidInput, match="no other"):
        await keys.create("k", scopes=[Scope.LLM_USE, Scope.LLM_READ], terms=ApiKeyTerms(sandbox="sb-1"))
    _, secret = await keys.create("k", scopes=[Scope.LLM_USE], terms=ApiKeyTerms(sandbox="sb-1"))
    with pytest.raises(Unauthorized, match="within sandbox sb-1 only"):
        await keys.authenticate(secret)


async def test_sandbox_keys_are_listed_with_their_sandbox_only(keys: ApiKeys, clock: Clock) -> None:
    _, first = await keys.create("k", "acme", [Scope.LLM_USE], terms=ApiKeyTerms(sandbox="sb-1"))
    other, _ = await keys.create("k", "acme", [Scope.LLM_USE], terms=ApiKeyTerms(sandbox="sb-2"))
    assert not await keys.any_usable()
    assert await keys.list() == []
    assert [key.sandbox for key in await keys.list("acme", "sb-1")] == ["sb-1"]
    assert await keys.list("other", "sb-1") == []
    assert sorted(await keys.sandbox_ids()) == ["sb-1", "sb-2"]
    await keys.find_by_secret(first)
    assert await keys.revoke_for_sandbox("sb-1") == 1
    with pytest.raises(Unauthorized, match="revoked"):
        await keys.find_by_secret(first)
    assert await keys.sandbox_ids() == ["sb-2"]
    clock.forward(hours=2)
    assert await keys.delete_old_revoked(timedelta(hours=1)) == 1
    assert await keys.list(sandbox="sb-1") == []
    assert (await keys.get(other.id)).revoked_at is None


async def test_session_keys_are_not_listed(keys: ApiKeys, clock: Clock) -> None:
    key, secret = await keys.create("chat session ses-1", "acme", [Scope.LLM_USE], terms=ApiKeyTerms(session="ses-1"))
    assert not await keys.any_usable() and await keys.list() == []
    own, _ = await keys.create("mine", "acme", [Scope.LLM_USE], terms=ApiKeyTerms(session="ses-1"))
    assert await keys.any_usable() and [each.id for each in await keys.list("acme")] == [own.id]
    await keys.find_by_secret(secret)
    assert await keys.revoke_for_sessions() == 1
    with pytest.raises(Unauthorized, match="revoked"):
        await keys.find_by_secret(secret)
    assert await keys.delete_old_revoked(timedelta(hours=1)) == 0
    clock.forward(hours=2)
    assert await keys.delete_old_revoked(timedelta(hours=1)) == 1
    with pytest.raises(NotFound):
        await keys.get(key.id)
    assert (await keys.get(own.id)).revoked_at is None


async def test_names_of_session_keys_are_reserved(keys: ApiKeys) -> None:
    admin = Principal(tenant="default", key_id="k", scopes=frozenset({Scope.ADMIN}))
    with pytest.raises(InvalidInput, match="server makes itself"):
        await keys.create("chat session ses-1", granted_by=admin)


async def test_local_key_is_created_once(keys: ApiKeys, store: ApiKeyStore, clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "data/local.key"
    secret = await keys.ensure_local_key(path)
    assert secret
    assert path.read_text() == f"{secret}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["local.key"]
    assert (await keys.authenticate(secret)).allows(Scope.ADMIN)
    assert await ApiKeys(store, clock).ensure_local_key(path) == secret
    assert len(await keys.list()) == 1


async def test_lost_local_key_is_replaced_and_revoked(keys: ApiKeys, tmp_path: Path) -> None:
    path = tmp_path / "local.key"
    first = await keys.ensure_local_key(path)
    path.write_bytes(b"\xff\xfe")
    second = await keys.ensure_local_key(path)
    assert first
    assert second
    assert first != second
    with pytest.raises(Unauthorized):
        await keys.authenticate(first)


async def test_revoked_local_key_is_not_replaced(keys: ApiKeys, tmp_path: Path) -> None:
    path = tmp_path / "local.key"
    await keys.ensure_local_key(path)
    await keys.create("mine", scopes=[Scope.ADMIN])
    await keys.revoke(next(key.id for key in await keys.list() if key.name == "local"))
    assert await keys.ensure_local_key(path) is None


@pytest.mark.parametrize(
    ("scope", "tenant", "is_made"),
    [
        (Scope.LLM_USE, "default", True),
        (Scope.SANDBOXES_WRITE, "default", True),
        (Scope.KEYS_ADMIN, "acme", True),
        (Scope.KEYS_ADMIN, "default", False),
        (Scope.ADMIN, "acme", False),
    ],
)
async def test_local_key_is_created_unless_another_key_can_create_keys(
    keys: ApiKeys, tmp_path: Path, scope: Scope, tenant: str, is_made: bool
) -> None:
    """An owner is not locked out by a key without rights to create others."""
    await keys.create("laptop", tenant, [scope])
    assert (await keys.ensure_local_key(tmp_path / "local.key") is not None) is is_made


async def test_expired_administrator_key_does_not_count(keys: ApiKeys, clock: Clock, tmp_path: Path) -> None:
    ended, _ = await keys.create("ended", scopes=[Scope.ADMIN])
    await keys.revoke(ended.id)
    await keys.create("short", scopes=[Scope.ADMIN], expires_at=clock() + timedelta(hours=1))
    assert await keys.ensure_local_key(tmp_path / "local.key") is None
    clock.forward(hours=2)
    assert await keys.ensure_local_key(tmp_path / "local.key")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback_address_needs_no_key(host: str) -> None:
    check_network_exposure(host, has_keys=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.5", "example.org", "localhost.example.org"])
def test_other_addresses_need_a_key(host: str) -> None:
    check_network_exposure(host, has_keys=True)
    with pytest.raises(ConfigError, match="paddock key create"):
        check_network_exposure(host, has_keys=False)
