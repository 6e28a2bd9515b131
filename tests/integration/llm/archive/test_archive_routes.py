"""The archive over HTTP, with the API's own errors and keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError

from paddock.api.http import error_responses
from paddock.api.http.authorization import PRINCIPAL_SCOPE_KEY
from paddock.api.llm import exchanges
from paddock.errors import PaddockError, SandboxNotFound
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.exchange import ExchangeOutcome
from paddock.model.keys import Principal, Scope
from tests.unit.llm.archive.exchange_samples import an_exchange, archive

pytestmark = pytest.mark.anyio


class _Sandboxes:
    async def get(self, tenant: str, sandbox_id: str) -> None:
        if sandbox_id != "sb-silent":
            raise SandboxNotFound(f"There is no sandbox {sandbox_id}.")


@asynccontextmanager
async def served(directory: Path, *scopes: Scope) -> AsyncIterator[tuple[ExchangeArchive, httpx.AsyncClient]]:
    """The API's routes; the header `X-Tenant` selects the tenant."""
    async with archive(directory) as exchange_archive:
        services: Any = SimpleNamespace(archive=exchange_archive, fleet=_Sandboxes())
        app = FastAPI()
        app.include_router(exchanges.create_router(services))
        app.add_exception_handler(PaddockError, error_responses.handle_paddock_error)
        app.add_exception_handler(RequestValidationError, error_responses.handle_validation_error)

        async def with_principal(scope: Any, receive: Any, send: Any) -> None:
            tenant = dict(scope["headers"]).get(b"x-tenant", b"default").decode()
            scope[PRINCIPAL_SCOPE_KEY] = Principal(
                tenant=tenant, key_id="k", scopes=frozenset(scopes or (Scope.LLM_READ,))
            )
            await app(scope, receive, send)

        transport = httpx.ASGITransport(with_principal)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield exchange_archive, client


async def test_list_show_and_raw_bytes_of_exchanges(tmp_path: Path) -> None:
    async with served(tmp_path) as (exchange_archive, client):
        made = [an_exchange(number, answer=["It ", "is ", "four."]) for number in range(5)]
        for exchange in made:
            exchange_archive.enqueue(exchange)
        await exchange_archive.wait_until_searchable()
        page = (await client.get("/v1/exchanges", params={"limit": 3})).json()
        assert [item["id"] for item in page["items"]] == [made[4].id, made[3].id, made[2].id]
        assert page["items"][0]["usage"] == {"input": 3, "output": 2, "cacheRead": 0, "cacheWrite": 0, "reasoning": 0}
        assert page["items"][0]["key"] == "key-1" and page["items"][0]["firstByte"] == 0.25
        assert [item["preview"] for item in page["items"]] == [f"What is two and two? ({n})" for n in (4, 3, 2)]
        rest = (await client.get("/v1/exchanges", params={"cursor": page["next"]})).json()
        assert [item["id"] for item in rest["items"]] == [made[1].id, made[0].id] and "next" not in rest
        found = (
            await client.get("/v1/exchanges", params={"text": '"is four"', "since": "2020-01-01T00:00:00Z"})
        ).json()
        assert len(found["items"]) == 5
        shown = (await client.get(f"/v1/exchanges/{made[0].id}")).json()
        assert shown["messages"][0]["parts"] == [{"type": "text", "text": "What is two and two? (0)"}]
        assert shown["answer"]["parts"] == [{"type": "text", "text": "It is four."}] and len(shown["pieces"]) == 6
        raw_request = await client.get(f"/v1/exchanges/{made[0].id}?raw=request")
        assert raw_request.content == made[0].request and raw_request.headers["content-type"] == "application/json"
        answered = await client.get(f"/v1/exchanges/{made[0].id}?raw=response")
        assert answered.content == b"".join(piece for _, piece in made[0].response)
        assert answered.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "query",
    ["text=", "text=%22", "text=%00", "limit=0", "limit=9999", "cursor=x", "since=yesterday", "status=-1", "outcome=x"],
)
async def test_invalid_queries_are_refused_with_a_reason(tmp_path: Path, query: str) -> None:
    async with served(tmp_path) as (_, client):
        for path in ("/v1/exchanges", "/v1/exchanges/export"):
            if path.endswith("export") and query.split("=")[0] in ("limit", "cursor"):
                continue
            answer = await client.get(f"{path}?{query}")
            assert answer.status_code == 400 and answer.json()["code"] == "INVALID_INPUT", path


async def test_routes_respect_tenants_and_scopes(tmp_path: Path) -> None:
    async with served(tmp_path) as (exchange_archive, client):
        exchange_archive.enqueue(mine := an_exchange(1))
        await exchange_archive.flush()
        other = {"X-Tenant": "other"}
        assert (await client.get("/v1/exchanges", headers=other)).json() == {"items": []}
        assert (await client.get(f"/v1/exchanges/{mine.id}", headers=other)).status_code == 404
        assert (await client.get("/v1/exchanges/export", headers=other)).content == b""
        assert (await client.get("/v1/sandboxes/sb-1/conversations", headers=other)).status_code == 404
        assert (await client.delete(f"/v1/exchanges/{mine.id}")).status_code == 403
    async with served(tmp_path, Scope.SANDBOXES_WRITE) as (_, client):
        for path in ("/v1/exchanges", f"/v1/exchanges/{mine.id}", "/v1/exchanges/export", "/v1/exchanges/events"):
            assert (await client.get(path)).status_code == 403
    async with served(tmp_path, Scope.ADMIN) as (exchange_archive, client):
        assert (await client.delete(f"/v1/exchanges/{mine.id}", headers=other)).status_code == 404
        assert (await client.delete(f"/v1/exchanges/{mine.id}")).status_code == 204
        assert (await client.get(f"/v1/exchanges/{mine.id}")).status_code == 404


async def test_conversations_are_listed_and_exported(tmp_path: Path) -> None:
    async with served(tmp_path) as (exchange_archive, client):
        exchange_archive.enqueue(an_exchange(1, estimated=True))
        exchange_archive.enqueue(an_exchange(2, status=404, outcome=ExchangeOutcome.REFUSED, response=[]))
        await exchange_archive.flush()
        item, refused = (await client.get("/v1/sandboxes/sb-1/conversations")).json()["items"]
        assert (item["turns"], item["estimated"], refused["kind"], refused["turns"]) == (1, True, "side", 0)
        assert item["kind"] == "main" and [message["role"] for message in item["messages"]] == ["user", "assistant"]
        assert (await client.get("/v1/sandboxes/sb-silent/conversations")).json() == {"items": []}
        lines = (await client.get("/v1/exchanges/export", params={"form": "anthropic"})).text.splitlines()
        assert [message["role"] for message in json.loads(lines[0])["messages"]] == ["user", "assistant"]
        every = (await client.get("/v1/exchanges/export", params={"unanswered": "true"})).text.splitlines()
        assert (len(lines), len(every)) == (1, 2)


async def test_lone_surrogates_become_valid_json(tmp_path: Path) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"\\ud800 \\u0000"}],"tools":[{"type":"function",'
    body += b'"function":{"name":"f","parameters":{"maximum":1e999}}}]}'
    async with served(tmp_path) as (exchange_archive, client):
        exchange_archive.enqueue(odd := an_exchange(1, request=body, model="\udcff"))
        await exchange_archive.wait_until_searchable()
        for path in (f"/v1/exchanges/{odd.id}", "/v1/exchanges", "/v1/sandboxes/sb-1/conversations"):
            answer = await client.get(path)
            assert answer.status_code == 200 and answer.json(), path
        assert (await client.get(f"/v1/exchanges/{odd.id}?raw=request")).content == body
        assert (await client.get("/v1/exchanges/export")).status_code == 200


async def test_following_streams_new_exchanges(tmp_path: Path) -> None:
    async with served(tmp_path) as (exchange_archive, _):
        exchange_archive.enqueue(first := an_exchange(1))
        await exchange_archive.flush()
        frames = exchanges._stream_exchanges(exchange_archive, "default", 0, None)
        assert await anext(frames) == b": follows\n\n"
        assert first.id.encode() in await anext(frames)
        upcoming = asyncio.ensure_future(anext(frames))
        exchange_archive.enqueue(an_exchange(2, tenant="other"))
        exchange_archive.enqueue(second := an_exchange(3))
        frame = (await upcoming).decode()
        assert frame.startswith("id: 3\nevent: exchange\n") and second.id in frame
        exchange_archive.stop_following()
        assert [each async for each in frames] == []
