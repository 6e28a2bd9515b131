"""Authentication of requests by key and socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddock.auth.api_keys import ApiKeys
from paddock.errors import Forbidden, Unauthorized
from paddock.llm.exchange import ModelCaller
from paddock.llm.metering.key_authentication import KeyAuthenticator, KeyHolder, compile_model_pattern
from paddock.model.keys import ApiKey, ApiKeyTerms, KeyBudget, KeyRateLimits, Scope
from paddock.store.database import Store
from paddock.store.key_store import ApiKeyStore

pytestmark = pytest.mark.anyio
START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def moment(self) -> datetime:
        return self.now

    def seconds(self) -> float:
        return self.now.timestamp()


class CountingKeyStore(ApiKeyStore):
    """Counts how often the database is asked."""

    count = 0

    async def find_by_prefix(self, prefix: str) -> Sequence[tuple[ApiKey, str]]:
        self.count += 1
        return await super().find_by_prefix(prefix)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CountingKeyStore]:
    async with await Store.open(tmp_path / "p.db") as opened:
        yield CountingKeyStore(opened)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(store: CountingKeyStore, clock: Clock) -> ApiKeys:
    return ApiKeys(store, clock.moment)


@pytest.fixture
def callers(keys: ApiKeys, clock: Clock) -> KeyAuthenticator:
    return KeyAuthenticator(keys, clock.seconds)


async def key_of(keys: ApiKeys, sandbox: str | None = None, **terms: object) -> str:
    _, secret = await keys.create(
        "k", "acme", [Scope.LLM_USE], terms=ApiKeyTerms.model_validate({"sandbox": sandbox, **terms})
    )
    return secret


async def test_holder_has_all_fields_of_the_key(keys: ApiKeys, callers: KeyAuthenticator) -> None:
    terms = ApiKeyTerms(
        run="run-1",
        session="s-1",
        user="ann@example.org",
        models=("gpt-*", "claude"),
        budget=KeyBudget(tokens=5),
        limits=KeyRateLimits(concurrency=2),
    )
    key, secret = await keys.create("k", "acme", [Scope.LLM_USE], START + timedelta(hours=1), terms=terms)
    holder = await callers.identify(secret, None)
    assert holder.caller == ModelCaller("acme", key.id, None, "run-1", "s-1", "ann@example.org", "user:ann@example.org")
    assert (holder.budget, holder.limits, holder.expires_at) == (
        KeyBudget(tokens=5),
        KeyRateLimits(concurrency=2),
        START.timestamp() + 3600,
    )
    assert [holder.allows(name) for name in ("gpt-5", "claude", "claude-2", "my-gpt-5")] == [True, True, False, False]


async def test_key_without_restrictions_may_use_all_models(keys: ApiKeys, callers: KeyAuthenticator) -> None:
    holder = await callers.identify(await key_of(keys), None)
    assert holder.budget is None and holder.expires_at is None and holder.allows("anything")


async def test_sandbox_must_use_its_own_key_on_its_own_socket(keys: ApiKeys, callers: KeyAuthenticator) -> None:
    own = await key_of(keys, "sb-1")
    assert (await callers.identify(own, "sb-1")).caller.sandbox == "sb-1"
    for secret, tag in ((own, "sb-2"), (own, None), (await key_of(keys), "sb-1"), (await key_of(keys, "sb-2"), "sb-1")):
        for _ in range(2):  # Once looked up, and once cached.
            with pytest.raises(Unauthorized, match=r"only from within it|not a key of this sandbox"):
                await callers.identify(secret, tag)


async def test_sandbox_key_is_refused_elsewhere(keys: ApiKeys) -> None:
    with pytest.raises(Unauthorized, match="from within sandbox sb-1 only"):
        await keys.authenticate(await key_of(keys, "sb-1"))


@pytest.mark.parametrize("secret", [None, "", "sk-ant-123", "pdk_x", "é\udcff", "pdk_" + "A" * 43])
async def test_invalid_keys_are_refused(callers: KeyAuthenticator, secret: str | None) -> None:
    with pytest.raises(Unauthorized):
        await callers.identify(secret, None)


async def test_model_use_requires_scope(keys: ApiKeys, callers: KeyAuthenticator) -> None:
    _, reader = await keys.create("r", scopes=[Scope.LLM_READ, Scope.SANDBOXES_WRITE])
    with pytest.raises(Forbidden, match="llm:use"):
        await callers.identify(reader, None)
    _, admin = await keys.create("a", scopes=[Scope.ADMIN])
    assert (await callers.identify(admin, None)).allows("x")


async def test_cached_key_needs_no_database_query(
    keys: ApiKeys, callers: KeyAuthenticator, store: CountingKeyStore
) -> None:
    secret = await key_of(keys)
    first = await callers.identify(secret, None)
    before = store.count
    assert all([await callers.identify(secret, None) is first for _ in range(100)])
    assert store.count == before


async def test_revocation_applies_at_once(keys: ApiKeys, callers: KeyAuthenticator) -> None:
    remaining_key = await key_of(keys)
    revoked_key = await key_of(keys, "sb-1")
    for secret, tag in ((remaining_key, None), (revoked_key, "sb-1")):
        await callers.identify(secret, tag)
    assert await keys.revoke_for_sandbox("sb-1") == 1
    with pytest.raises(Unauthorized, match="revoked"):
        await callers.identify(revoked_key, "sb-1")
    await callers.identify(remaining_key, None)
    assert await keys.revoke_for_sandbox("sb-1") == 0


async def test_revocation_during_key_lookup_is_not_undone(
    keys: ApiKeys, callers: KeyAuthenticator, store: CountingKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = await key_of(keys, "sb-1")
    find_by_prefix = store.find_by_prefix

    async def revoke_after_read(prefix: str) -> Sequence[tuple[ApiKey, str]]:
        found = await find_by_prefix(prefix)
        await keys.revoke_for_sandbox("sb-1")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(store, "find_by_prefix", revoke_after_read)
        await callers.identify(secret, "sb-1")
    with pytest.raises(Unauthorized):
        await callers.identify(secret, "sb-1")


async def test_revocation_by_another_process_applies_within_seconds(
    keys: ApiKeys, callers: KeyAuthenticator, store: CountingKeyStore, clock: Clock
) -> None:
    secret = await key_of(keys, "sb-1")
    await callers.identify(secret, "sb-1")
    await ApiKeys(store, clock.moment).revoke_for_sandbox("sb-1")
    clock.now += timedelta(seconds=5)
    with pytest.raises(Unauthorized, match="revoked"):
        await callers.identify(secret, "sb-1")


async def test_expiry_applies_at_once_and_can_be_extended(
    keys: ApiKeys, callers: KeyAuthenticator, clock: Clock
) -> None:
    terms = ApiKeyTerms(sandbox="sb-1")
    _, secret = await keys.create("k", "acme", [Scope.LLM_USE], START + timedelta(seconds=2), terms=terms)
    await callers.identify(secret, "sb-1")
    clock.now += timedelta(seconds=2)
    with pytest.raises(Unauthorized, match="expired"):
        await callers.identify(secret, "sb-1")
    await keys.extend_for_sandbox("sb-1", START + timedelta(seconds=9))
    await callers.identify(secret, "sb-1")


async def test_key_cache_is_bounded(keys: ApiKeys, callers: KeyAuthenticator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.llm.metering.key_authentication.MAX_CACHED_KEYS", 3)
    secrets = [await key_of(keys) for _ in range(8)]
    await asyncio.gather(*(callers.identify(secret, None) for secret in secrets))
    assert len(callers._known) == 3


def test_model_patterns() -> None:
    pattern = compile_model_pattern(["gpt-*", "a*b*c", "*/mini", "x.y"])
    assert pattern
    for name in ("gpt-", "gpt-5\n", "abc", "a--b-c-c", "openai/mini", "x.y"):
        assert pattern.fullmatch(name), name
    for name in ("gpt", "acb", "ab", "mini", "xzy", "", "x.yy"):
        assert not pattern.fullmatch(name), name
    assert compile_model_pattern([]) is None
    assert KeyHolder(ModelCaller("t", "k")).allows("")


def test_matching_any_name_is_quick() -> None:
    pattern = compile_model_pattern(["*a" * 90 + "*b"])
    assert pattern
    began = time.perf_counter()
    assert not pattern.fullmatch("a" * 100_000)
    assert time.perf_counter() - began < 2.0
