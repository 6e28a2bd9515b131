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
from tests.integration.agents.test_message_writer import stuck

pytestmark = pytest.mark.anyio
COSTLY = {"turns": [[{"say": "Hi."}, {"usage": {"input": 60, "output": 40}}]]}
SANDBOX = "sb-1"
OWNED: Mapping[str, Any] = {"sandboxes": {"code": SANDBOX}}


@dataclass
class Sandbox:
    """Where a program in a sandbox asks."""

    client: httpx.AsyncClient

    async def ask(self) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json={"model": "m", "messages": [user_message("Hello.")]})


@asynccontextmanager
async def boxed(here: ModelHarness, session: str, tenant: str = TENANT) -> AsyncIterator[Sandbox]:
    """A sandbox that belongs to a session, as far as the proxy can tell."""
    terms = ApiKeyTerms(sandbox=SANDBOX, session=session)
    _, secret = await here.keys.create("box", tenant, [Scope.LLM_USE], terms=terms)
    path = here.config.data / "box.sock"
    listener = await here.door.listen_unix(path, tag=SANDBOX)
    try:
        async with httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(path)),
            base_url="http://box",
            headers={"Authorization": f"Bearer {secret}"},
        ) as client:
            yield Sandbox(client)
    finally:
        await listener.close()


@asynccontextmanager
async def counted(data: Path, **more: Any) -> AsyncIterator[tuple[ModelHarness, SandboxSpending]]:
    async with open_model_harness(data, {"m": COSTLY}, **more) as here:
        spending = SandboxSpending(here.store, here.events, here.config.chat.budget)
        here.gateway.spending_accounts.append(spending)
        yield here, spending
        await spending.close()


async def used(here: ModelHarness, session: Session) -> SessionUsage:
    return (await here.book.get(session.id)).usage


async def test_it_counts_for_the_session_beside_what_its_engine_asks(tmp_path: Path) -> None:
    async with counted(tmp_path) as (here, spending):
        session = await here.session("m", **OWNED)
        async with boxed(here, session.id) as sandbox:
            await asyncio.gather(here.ask(session, [user_message("Hi.")]), *(sandbox.ask() for _ in range(5)))
        await spending.close()
        assert await used(here, session) == SessionUsage(requests=6, input_tokens=360, output_tokens=240, cost=0.0)
        changes = [event.data["usage"] for event in await here.told(session) if event.type == "usage.changed"]
        told = [usage["input_tokens"] for usage in changes]
        assert told == sorted(told) and told[-1] == 360


async def test_a_budget_that_is_spent_is_so_for_everybody_until_it_is_raised(tmp_path: Path) -> None:
    async with counted(tmp_path) as (here, spending):
        session = await here.session("m", budget=150, **OWNED)
        async with boxed(here, session.id) as sandbox:
            assert [(await sandbox.ask()).status_code for _ in range(4)] == [200, 200, 402, 402], (
                "what is left is let in"
            )
            await spending.close()
            refused = await sandbox.ask()
            assert refused.status_code == 402
            assert "200 of its 150 tokens" in refused.json()["error"]["message"]
            with pytest.raises(QuotaExceeded, match="200 of its 150"):
                await here.ask(session, [user_message("Hi.")])
            changes = {"budget": 1000}
            await here.store.write(lambda c: SessionStore.update_session(c, session.id, changes, session.changed_at))
            assert (await sandbox.ask()).status_code == 200
        await spending.close()
        found = await here.book.get(session.id)
        assert found.usage.requests == 3, "what is refused took nothing"
        assert found.changed_at == session.changed_at, "nobody has done anything in it"


async def test_sessions_without_a_budget_have_that_of_the_server(tmp_path: Path) -> None:
    async with counted(tmp_path, chat={"budget": 100}) as (here, spending):
        session = await here.session("m", **OWNED)
        async with boxed(here, session.id) as sandbox:
            assert (await sandbox.ask()).status_code == 200
            await spending.close()
            assert (await sandbox.ask()).status_code == 402


@pytest.mark.parametrize("whose", ["another tenant's", "nobody's", "somebody else's sandbox"])
async def test_who_only_names_a_session_neither_uses_nor_has_its_budget(tmp_path: Path, whose: str) -> None:
    async with counted(tmp_path) as (here, spending):
        owned = {} if whose == "somebody else's sandbox" else OWNED
        session = await here.session("m", budget=1, **owned)
        tenant = "them" if whose == "another tenant's" else TENANT
        name = "ses-never" if whose == "nobody's" else session.id
        async with boxed(here, name, tenant) as sandbox:
            for _ in range(2):
                assert (await sandbox.ask()).status_code == 200
        await spending.close()
        assert await used(here, session) == SessionUsage()


async def test_a_slow_disk_keeps_nobody_waiting_loses_nothing_and_is_no_way_round(tmp_path: Path) -> None:
    async with counted(tmp_path) as (here, spending):
        session = await here.session("m", budget=300, **OWNED)
        async with boxed(here, session.id) as sandbox:
            assert (await sandbox.ask()).status_code == 200
            await spending.close()
            async with asyncio.timeout(10):
                with stuck(here):
                    assert [(await sandbox.ask()).status_code for _ in range(5)] == [200, 200, 402, 402, 402]
        await spending.close()
        assert (await used(here, session)).requests == 3


@pytest.mark.parametrize("problem", [Unavailable("the disk is full"), RuntimeError("nobody thought of this")])
async def test_what_could_not_be_written_counts_and_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    async with counted(tmp_path) as (here, spending):
        session = await here.session("m", budget=300, **OWNED)

        def refuse(*_: Any) -> Any:
            raise problem

        async with boxed(here, session.id) as sandbox:
            with monkeypatch.context() as full:
                full.setattr(SessionStore, "update_session", refuse)
                assert [(await sandbox.ask()).status_code for _ in range(5)] == [200, 200, 200, 402, 402]
                await spending.close()
            assert (await used(here, session)).requests == 0
        await spending.close()
        assert (await used(here, session)).requests == 3
