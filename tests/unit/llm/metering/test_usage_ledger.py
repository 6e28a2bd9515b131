from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from paddock.api.http import error_responses
from paddock.api.http.authorization import PRINCIPAL_SCOPE_KEY
from paddock.api.llm import usage
from paddock.errors import InvalidInput, PaddockError
from paddock.llm.exchange import Exchange, ExchangeOutcome, ModelCaller
from paddock.llm.formats.neutral import TokenUsage
from paddock.llm.metering.usage_ledger import KeyTotals, UsageLedger
from paddock.model.keys import Principal, Scope
from paddock.store.database import Store
from paddock.store.model_exchanges.usage_store import UsageTally

pytestmark = pytest.mark.anyio
FIRST = date(2026, 3, 1)
NEVER = 3600.0
"""An interval that no test waits for."""


def an_exchange(day: int = 1, tenant: str = "t", key: str = "k", sandbox: str | None = None, **fields: Any) -> Exchange:
    at = datetime(2026, 3, day, 23, 59, 59, tzinfo=UTC).timestamp()
    given: dict[str, Any] = {
        "model": "m",
        "route": "m",
        "provider": "p",
        "usage": TokenUsage(10, 5, 4, 3, 2),
        "cost": 0.5,
    }
    return Exchange(
        "ex-1", at, ModelCaller(tenant, key, sandbox), "openai-chat", "generate", request=b"{}", **(given | fields)
    )


@asynccontextmanager
async def a_ledger(path: Path, every: float = NEVER) -> AsyncIterator[UsageLedger]:
    async with await Store.open(path / "p.db") as store:
        ledger = await UsageLedger.open(store, every=every)
        try:
            yield ledger
        finally:
            await ledger.close()


async def test_counts_are_visible_before_and_after_the_write(tmp_path: Path) -> None:
    expected = UsageTally(3, 0, 0, 30, 15, 12, 9, 6, 1.5, 0, 0)
    async with a_ledger(tmp_path) as ledger:
        for _ in range(3):
            ledger.count_exchange(an_exchange())
        (row,) = await ledger.query("t")
        assert row.tally == expected
    async with a_ledger(tmp_path) as ledger:
        (row,) = await ledger.query("t")
        assert row.tally == expected
        ledger.count_exchange(an_exchange())
        (row,) = await ledger.query("t")
        assert row.tally.requests == 4


async def test_sums_are_grouped_by_dimensions(tmp_path: Path) -> None:
    async with a_ledger(tmp_path, 0.01) as ledger:
        for number in range(40):
            where: dict[str, Any] = {
                "day": 1 + number % 2,
                "key": f"k{number % 4}",
                "sandbox": "s" if number % 5 else None,
            }
            ledger.count_exchange(an_exchange(**where, model=f"m{number % 3}"))
            if number % 10 == 0:
                await asyncio.sleep(0.02)  # so that some is written and some is not
        by_day = await ledger.query("t", {"day"})
        assert [(row.day, row.tally.requests) for row in by_day] == [(FIRST, 20), (date(2026, 3, 2), 20)]
        both = await ledger.query("t", {"key_id", "day"}, filters={"model": "m0"})
        assert [(row.day, row.key_id) for row in both] == sorted((row.day, row.key_id) for row in both)
        assert sum(row.tally.requests for row in both) == 14
        sandboxes = await ledger.query("t", {"sandbox"})
        assert [(row.sandbox, row.tally.requests) for row in sandboxes] == [(None, 8), ("s", 32)]
        (row,) = await ledger.query("t", since=date(2026, 3, 2), until=date(2026, 3, 2))
        assert row.tally.requests == 20
        assert await ledger.query("t", {"day"}, since=date(2026, 3, 3)) == []
        (nothing,) = await ledger.query("t", until=date(2026, 2, 28))
        assert nothing.tally == UsageTally()


async def test_tenants_are_separated(tmp_path: Path) -> None:
    async with a_ledger(tmp_path) as ledger:
        ledger.count_exchange(an_exchange(tenant="one"))
        ledger.count_exchange(an_exchange(tenant="two"))
        (row,) = await ledger.query("one")
        assert row.tally.requests == 1
        rows = await ledger.query(None, {"tenant"})
        assert [row.tenant for row in rows] == ["one", "two"]


async def test_unknown_costs_are_counted(tmp_path: Path) -> None:
    async with a_ledger(tmp_path) as ledger:
        ledger.count_exchange(an_exchange(cost=None))
        ledger.count_exchange(an_exchange(cost=None, provider_kind="script"))
        ledger.count_exchange(an_exchange(estimated=True))
        ledger.count_exchange(an_exchange(outcome=ExchangeOutcome.CUT))
        ledger.count_exchange(an_exchange(outcome=ExchangeOutcome.CLIENT_GONE))
        ledger.count_exchange(an_exchange(outcome=ExchangeOutcome.FAILED, usage=None, cost=None))
        ledger.count_exchange(an_exchange(outcome=ExchangeOutcome.REFUSED, usage=None, cost=None))
        (row,) = await ledger.query("t")
        tally = row.tally
        assert (tally.requests, tally.errors, tally.refused) == (7, 3, 1)
        assert (tally.unpriced, tally.estimated, tally.cost) == (1, 1, 1.5)


async def test_invented_model_names_are_not_stored(tmp_path: Path) -> None:
    async with a_ledger(tmp_path) as ledger:
        for number in range(5):
            ledger.count_exchange(
                an_exchange(model=f"made-up-{number}", route=None, outcome=ExchangeOutcome.REFUSED, usage=None)
            )
        ledger.count_exchange(an_exchange(model="x-" + "\ud800" + "y" * 500, route="x-*"))
        rows = await ledger.query("t", {"model"})
        assert [(row.model, row.tally.requests) for row in rows] == [(None, 5), ("x-?" + "y" * 197, 1)]
    async with a_ledger(tmp_path) as ledger:
        assert len(await ledger.query("t", {"model"})) == 2


async def test_usage_counts_under_the_requested_model_name(tmp_path: Path) -> None:
    async with a_ledger(tmp_path) as ledger:
        ledger.count_exchange(an_exchange(model="a", route="a"))
        ledger.count_exchange(an_exchange(model="a", route="b"))
        ledger.count_exchange(an_exchange(model="a", route="b", outcome=ExchangeOutcome.FAILED, usage=None))
        ledger.count_exchange(an_exchange(model="a", route="a", outcome=ExchangeOutcome.REFUSED, usage=None))
        ledger.count_exchange(an_exchange(model="g-foo", route="g-*", outcome=ExchangeOutcome.FAILED, usage=None))
        rows = await ledger.query("t", {"model"})
        assert [(row.model, row.tally.requests, row.tally.errors, row.tally.refused) for row in rows] == [
            ("a", 4, 2, 1),
            ("g-foo", 1, 1, 0),
        ]


async def test_patterns_cannot_fill_the_table_with_names(tmp_path: Path) -> None:
    async with a_ledger(tmp_path) as ledger:
        ledger.count_exchange(an_exchange(model="g-good", route="g-*", outcome=ExchangeOutcome.FAILED, usage=None))
        for number in range(1500):
            ledger.count_exchange(
                an_exchange(model=f"g-{number}", route="g-*", outcome=ExchangeOutcome.FAILED, usage=None)
            )
        ledger.count_exchange(an_exchange(model="g-good", route="g-*"))
        rows = await ledger.query("t", {"model"})
        counts = {row.model: row.tally.requests for row in rows}
        assert len(rows) == 1001 and counts[None] == 501 and counts["g-good"] == 2


async def test_implausible_counts_are_ignored(tmp_path: Path) -> None:
    async with a_ledger(tmp_path) as ledger:
        ledger.count_exchange(an_exchange(usage=TokenUsage(10**40, 1)))
        ledger.count_exchange(an_exchange(usage=TokenUsage(1, 1, 10**40, 10**40, 10**40)))
        (row,) = await ledger.query("t")
        assert row.tally.requests == 2 and row.tally.input == 1 and row.tally.cache_read == 1
    async with a_ledger(tmp_path) as ledger:
        assert (await ledger.query("t"))[0].tally == row.tally


async def test_a_key_has_totals_for_its_budget(tmp_path: Path) -> None:
    async with a_ledger(tmp_path) as ledger:
        assert await ledger.totals_of_key("k") == KeyTotals(0, 0, 0.0)
        ledger.count_exchange(an_exchange(1))
        ledger.count_exchange(an_exchange(2, model="other"))
        ledger.count_exchange(an_exchange(key="other"))
        ledger.count_exchange(an_exchange(outcome=ExchangeOutcome.REFUSED, usage=None, cost=None))
        assert await ledger.totals_of_key("k") == KeyTotals(2, 30, 1.0)


async def test_two_servers_add_to_the_same_sums(tmp_path: Path) -> None:
    async with a_ledger(tmp_path) as one, a_ledger(tmp_path) as other:
        for _ in range(3):
            one.count_exchange(an_exchange())
            other.count_exchange(an_exchange())
    async with a_ledger(tmp_path) as ledger:
        (row,) = await ledger.query("t")
        assert row.tally.requests == 6 and row.tally.cost == 3.0


async def test_concurrent_counting_and_writing_is_exact(tmp_path: Path) -> None:
    async with a_ledger(tmp_path, 0.001) as ledger:
        for number in range(300):
            ledger.count_exchange(an_exchange())
            (row,) = await ledger.query("t")
            assert row.tally.requests == number + 1


async def test_failed_writes_are_retried(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "p.db") as store:
        ledger = await UsageLedger.open(store, every=0.005)
        await store.write(lambda connection: connection.execute(text("ALTER TABLE usage RENAME TO hidden")).rowcount)
        ledger.count_exchange(an_exchange())
        await asyncio.sleep(0.05)
        ledger.count_exchange(an_exchange())
        await store.write(lambda connection: connection.execute(text("ALTER TABLE hidden RENAME TO usage")).rowcount)
        (row,) = await ledger.query("t")
        assert row.tally.requests == 2
        await ledger.close()
    async with a_ledger(tmp_path) as ledger:
        assert (await ledger.query("t"))[0].tally.requests == 2


async def test_invalid_query_is_refused(tmp_path: Path) -> None:
    async with a_ledger(tmp_path) as ledger:
        with pytest.raises(InvalidInput, match="unknown usage dimension 'colour'"):
            await ledger.query("t", {"colour"})
        for number in range(10_001):
            ledger.count_exchange(an_exchange(model=f"m{number}"))
        with pytest.raises(InvalidInput, match="more than 10000 rows"):
            await ledger.query("t", {"model"})


CHILD = """
import asyncio, sys
from paddock.llm.exchange import Exchange, ModelCaller
from paddock.llm.metering.usage_ledger import UsageLedger
from paddock.store.database import Store

async def main():
    store = await Store.open(sys.argv[1])
    ledger = await UsageLedger.open(store, every=0.01)
    ledger.count_exchange(Exchange("ex", 0.0, ModelCaller("t", "k"), "openai-chat", "generate", "m", b"", route="m"))
    while ledger._waiting or ledger._writing.locked():
        await asyncio.sleep(0.001)
    print("written", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_written_sums_survive_a_crash(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, tmp_path / "p.db"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "written\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    async with a_ledger(tmp_path) as ledger:
        assert (await ledger.query("t"))[0].tally.requests == 1


@asynccontextmanager
async def a_client(ledger: UsageLedger | None, *scopes: Scope, tenant: str = "t") -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    app.include_router(usage.create_router(cast(Any, SimpleNamespace(ledger=ledger))))
    app.add_exception_handler(PaddockError, error_responses.handle_paddock_error)
    principal = Principal(tenant=tenant, key_id="k", scopes=frozenset(scopes))

    async def known(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await app({**scope, PRINCIPAL_SCOPE_KEY: principal}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(known), base_url="http://test") as client:
        yield client


async def test_usage_over_http(tmp_path: Path) -> None:
    async with a_ledger(tmp_path) as ledger, a_client(ledger, Scope.LLM_READ) as client:
        ledger.count_exchange(an_exchange(1, sandbox="s1"))
        ledger.count_exchange(an_exchange(2, cost=None))
        ledger.count_exchange(an_exchange(tenant="other"))
        answer = (await client.get("/v1/usage", params={"by": "day,model"})).json()
        assert [(item["day"], item["model"], item["costKnown"]) for item in answer["items"]] == [
            ("2026-03-01", "m", True),
            ("2026-03-02", "m", False),
        ]
        assert answer["items"][0]["cacheRead"] == 4 and "key" not in answer["items"][0]
        assert answer["total"]["requests"] == 2 and answer["total"]["unpriced"] == 1
        answer = (await client.get("/v1/usage", params={"by": "key", "sandbox": "s1", "since": "2026-03-01"})).json()
        assert [(item["key"], item["requests"]) for item in answer["items"]] == [("k", 1)]
        answer = (await client.get("/v1/usage", params={"by": "", "tenant": "other"})).json()
        assert answer["total"]["requests"] == 2
        refused = await client.get("/v1/usage", params={"by": "day,colour"})
        assert refused.status_code == 400 and "no 'colour'; known are: tenant, day, key" in refused.json()["message"]
    async with a_ledger(tmp_path) as ledger, a_client(ledger, Scope.ADMIN, tenant="root") as client:
        answer = (await client.get("/v1/usage", params={"by": "tenant"})).json()
        assert [item["tenant"] for item in answer["items"]] == ["other", "t"]
        assert (await client.get("/v1/usage", params={"tenant": "other"})).json()["total"]["requests"] == 1
    async with a_ledger(tmp_path) as ledger, a_client(ledger, Scope.SANDBOXES_WRITE) as client:
        assert (await client.get("/v1/usage")).status_code == 403
