"""Model usage of programs in session sandboxes is charged to the session and its budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock.agents.model.sandbox_spending import SandboxSpending
from paddock.errors import QuotaExceeded, Unavailable
from paddock.model.keys import ApiKeyTerms, Scope
from paddock.model.sessions import Session, SessionUsage
from paddock.store.chat_sessions.session_store import SessionStore
from tests.integration.agents.model_harness import TENANT, ModelHarness, open_model_harness, user_message
from tests.integration.agents.test_message_writer import blocked_writes

pytestmark = pytest.mark.anyio
COSTLY = {"turns": [[{"say": "Hi."}, {"usage": {"input": 60, "output": 40}}]]}
SLOW = {"pace": 0.05, "turns": [[{"say": "One word after the other."}, {"usage": {"input": 60, "output": 40}}]]}
SANDBOX = "sb-1"
OWN_SANDBOX: Mapping[str, Any] = {"sandboxes": {"code": SANDBOX}}


@dataclass
class SandboxClient:
    """Model client of a program in a sandbox."""

    client: httpx.AsyncClient

    async def ask(self, text: str = "Hello.", *, stream: bool = False) -> httpx.Response:
        body = {"model": "m", "messages": [user_message(text)], "stream": stream}
        return await self.client.post("/v1/chat/completions", json=body)


@asynccontextmanager
async def open_sandbox_client(
    harness: ModelHarness, session: str, tenant: str = TENANT
) -> AsyncIterator[SandboxClient]:
    """Open a client of a sandbox that claims to belong to a session."""
    terms = ApiKeyTerms(sandbox=SANDBOX, session=session)
    _, secret = await harness.keys.create("box", tenant, [Scope.LLM_USE], terms=terms)
    path = harness.config.data / "box.sock"
    listener = await harness.http_server.listen_unix(path, tag=SANDBOX)
    try:
        async with httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(path)),
            base_url="http://box",
            headers={"Authorization": f"Bearer {secret}"},
        ) as client:
            yield SandboxClient(client)
    finally:
        await listener.close()


@asynccontextmanager
async def open_spending(
    data: Path, script: Mapping[str, Any] = COSTLY, **options: Any
) -> AsyncIterator[tuple[ModelHarness, SandboxSpending]]:
    async with open_model_harness(data, {"m": dict(script)}, **options) as harness:
        spending = SandboxSpending(harness.store, harness.events, harness.config.chat.budget)
        harness.gateway.spending_accounts.append(spending)
        yield harness, spending
        await spending.close()


async def session_usage(harness: ModelHarness, session: Session) -> SessionUsage:
    return (await harness.session_store.get(session.id)).usage


async def test_sandbox_usage_is_added_to_session_usage(tmp_path: Path) -> None:
    async with open_spending(tmp_path) as (harness, spending):
        session = await harness.create_session("m", **OWN_SANDBOX)
        async with open_sandbox_client(harness, session.id) as sandbox:
            await asyncio.gather(harness.ask_model(session, [user_message("Hi.")]), *(sandbox.ask() for _ in range(5)))
        await spending.close()
        assert await session_usage(harness, session) == SessionUsage(
            requests=6, input_tokens=360, output_tokens=240, cost=0.0
        )
        changes = [event.data["usage"] for event in await harness.list_events(session) if event.type == "usage.changed"]
        input_tokens = [usage["input_tokens"] for usage in changes]
        assert input_tokens == sorted(input_tokens) and input_tokens[-1] == 360


async def test_spent_budget_blocks_sandbox_and_engine_until_raised(tmp_path: Path) -> None:
    async with open_spending(tmp_path) as (harness, spending):
        session = await harness.create_session("m", budget=150, **OWN_SANDBOX)
        async with open_sandbox_client(harness, session.id) as sandbox:
            assert [(await sandbox.ask()).status_code for _ in range(4)] == [200, 200, 402, 402], (
                "requests pass while budget is left"
            )
            await spending.close()
            refused = await sandbox.ask()
            assert refused.status_code == 402
            assert "200 of its 150 tokens" in refused.json()["error"]["message"]
            with pytest.raises(QuotaExceeded, match="200 of its 150"):
                await harness.ask_model(session, [user_message("Hi.")])
            changes = {"budget": 1000}
            await harness.store.write(lambda c: SessionStore.update_session(c, session.id, changes, session.changed_at))
            assert (await sandbox.ask()).status_code == 200
        await spending.close()
        session_after = await harness.session_store.get(session.id)
        assert session_after.usage.requests == 3, "refused requests use nothing"
        assert session_after.changed_at == session.changed_at, "usage does not count as activity"


async def test_usage_written_while_the_session_is_read_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_session = SessionStore.get
    async with open_spending(tmp_path) as (harness, spending):
        session = await harness.create_session("m", budget=150, **OWN_SANDBOX)

        async def load_slowly(store: SessionStore, *key: Any) -> Session:
            """Return the session as it was before pending usage was written."""
            loaded = await load_session(store, *key)
            await spending.close()
            return loaded

        async with open_sandbox_client(harness, session.id) as sandbox:
            monkeypatch.setattr(SessionStore, "get", load_slowly)
            async with asyncio.timeout(20):
                assert [(await sandbox.ask()).status_code for _ in range(4)] == [200, 200, 402, 402]


async def test_requests_in_flight_count_towards_the_budget(tmp_path: Path) -> None:
    async with open_spending(tmp_path, SLOW) as (harness, spending):
        session = await harness.create_session("m", budget=300, **OWN_SANDBOX)
        async with open_sandbox_client(harness, session.id) as sandbox, asyncio.timeout(60):
            answers = await asyncio.gather(*(sandbox.ask("word " * 100, stream=True) for _ in range(20)))
            passed = [answer.status_code for answer in answers].count(200)
            assert 3 <= passed <= 5 and {answer.status_code for answer in answers} == {200, 402}
        await spending.close()
        assert (await session_usage(harness, session)).requests == passed


async def test_server_budget_applies_to_sessions_without_one(tmp_path: Path) -> None:
    async with open_spending(tmp_path, chat={"budget": 100}) as (harness, spending):
        session = await harness.create_session("m", **OWN_SANDBOX)
        async with open_sandbox_client(harness, session.id) as sandbox:
            assert (await sandbox.ask()).status_code == 200
            await spending.close()
            assert (await sandbox.ask()).status_code == 402


@pytest.mark.parametrize("claim", ["another tenant's", "nobody's", "somebody else's sandbox"])
async def test_false_session_claim_neither_uses_nor_gets_its_budget(tmp_path: Path, claim: str) -> None:
    async with open_spending(tmp_path) as (harness, spending):
        fields = {} if claim == "somebody else's sandbox" else OWN_SANDBOX
        session = await harness.create_session("m", budget=1, **fields)
        tenant = "them" if claim == "another tenant's" else TENANT
        session_id = "ses-never" if claim == "nobody's" else session.id
        async with open_sandbox_client(harness, session_id, tenant) as sandbox:
            for _ in range(2):
                assert (await sandbox.ask()).status_code == 200
        await spending.close()
        assert await session_usage(harness, session) == SessionUsage()


async def test_slow_disk_neither_blocks_requests_nor_evades_budget(tmp_path: Path) -> None:
    async with open_spending(tmp_path) as (harness, spending):
        session = await harness.create_session("m", budget=300, **OWN_SANDBOX)
        async with open_sandbox_client(harness, session.id) as sandbox:
            assert (await sandbox.ask()).status_code == 200
            await spending.close()
            async with asyncio.timeout(10):
                with blocked_writes(harness):
                    assert [(await sandbox.ask()).status_code for _ in range(5)] == [200, 200, 402, 402, 402]
        await spending.close()
        assert (await session_usage(harness, session)).requests == 3


@pytest.mark.parametrize("problem", [Unavailable("the disk is full"), RuntimeError("nobody thought of this")])
async def test_unwritten_usage_counts_and_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    async with open_spending(tmp_path) as (harness, spending):
        session = await harness.create_session("m", budget=300, **OWN_SANDBOX)

        def fail(*_: Any) -> Any:
            raise problem

        async with open_sandbox_client(harness, session.id) as sandbox:
            with monkeypatch.context() as patched:
                patched.setattr(SessionStore, "update_session", fail)
                assert [(await sandbox.ask()).status_code for _ in range(5)] == [200, 200, 200, 402, 402]
                await spending.close()
            assert (await session_usage(harness, session)).requests == 0
        await spending.close()
        assert (await session_usage(harness, session)).requests == 3
