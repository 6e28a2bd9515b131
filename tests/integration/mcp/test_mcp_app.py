"""MCP clients at the main port of a real server: `/mcp/NAME`, `/mcp` and `/mcp/sets/NAME`."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.mcp_edge_client import BOTH, stateless_headers, stateless_message
from tests.support.server import Server, eventually, run_server

from .upstream_servers import Servers, mcp_servers

ADD = {"name": "add", "arguments": {"a": 2, "b": 40}}
WAIT = {"name": "wait", "arguments": {}}


@pytest.fixture(scope="module")
def upstreams() -> Iterator[Servers]:
    with mcp_servers() as servers:
        yield servers


@pytest.fixture(scope="module")
def server(upstreams: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("mcp"), settings_for(upstreams)) as server:
        yield server


@pytest.fixture(autouse=True)
def _fresh(upstreams: Servers) -> None:
    upstreams.seen.clear()
    upstreams.proceed.clear()
    upstreams.client_left.clear()


def settings_for(upstreams: Servers) -> dict[str, Any]:
    servers = [
        {"name": "calc", "url": upstreams.calculator},
        {"name": "gone", "url": "http://127.0.0.1:9/mcp"},
        {"name": "theirs", "url": upstreams.calculator, "access": {"tenants": ["others"]}},
    ]
    sets = [{"name": "sums", "servers": {"calc": {"allow": ["add"], "rename": {"add": "plus"}}}}]
    return {"mcp": {"allow": ["127.0.0.1"], "servers": servers, "sets": sets}}


def call(client: httpx.Client, path: str, params: dict[str, Any], **headers: str) -> httpx.Response:
    sent = stateless_headers("tools/call", params) | headers
    return client.post(path, json=stateless_message("tools/call", params), headers=sent)


def text_of(response: httpx.Response) -> str:
    return str(response.json()["result"]["content"][0]["text"])


def error_of(response: httpx.Response) -> str:
    return str(response.json()["error"]["message"])


def test_servers_sets_and_all_servers_answer(server: Server) -> None:
    with server.client() as client:
        assert text_of(call(client, "/mcp/calc", ADD)) == "42"
        assert text_of(call(client, "/mcp/calc/", ADD)) == "42"
        assert text_of(call(client, "/mcp/sets/sums", {**ADD, "name": "plus"})) == "42"
        assert text_of(call(client, "/mcp", {**ADD, "name": "calc_add"})) == "42"
        assert "x-request-id" in call(client, "/mcp/calc", ADD).headers


def test_keys_are_those_of_the_api(server: Server) -> None:
    with server.client("") as nobody:
        refused = call(nobody, "/mcp/calc", ADD)
        assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
        assert refused.json()["jsonrpc"] == "2.0" and "Send an API key" in error_of(refused)
        assert call(nobody, "/mcp/calc", ADD, **{"OPEN-SANDBOX-API-KEY": server.key}).status_code == 200
    with server.client() as client:
        secrets = [
            client.post("/v1/keys", json={"name": scope, "scopes": [scope]}).json()["secret"]
            for scope in ("mcp:use", "mcp:write", "sandboxes:write")
        ]
    for secret, status in zip(secrets, (200, 200, 403), strict=True):
        with server.client(secret) as client:
            response = call(client, "/mcp/calc", ADD)
            assert response.status_code == status
    assert "lacks the scope mcp:use" in error_of(response)


def test_programs_start_only_for_keys_that_may_use_sandboxes(server: Server) -> None:
    with server.client() as client:
        secret = client.post("/v1/keys", json={"name": "tools", "scopes": ["mcp:use"]}).json()["secret"]
        assert call(client, "/mcp/calc?sandbox=sb-nothing", ADD).status_code == 404
    with server.client(secret) as client:
        refused = call(client, "/mcp/calc?sandbox=sb-nothing", ADD)
        assert refused.status_code == 403 and "lacks the scope sandboxes:write" in error_of(refused)


def test_unknown_denied_and_broken_servers_say_why(server: Server) -> None:
    with server.client() as client:
        for path, status, reason in (
            ("/mcp/nothing", 404, "There is no MCP server 'nothing'"),
            ("/mcp/sets/nothing", 404, "There is no set"),
            ("/mcp/theirs", 403, "theirs"),
            ("/mcp/gone", 502, "gone"),
        ):
            response = call(client, path, ADD)
            assert response.status_code == status and reason in error_of(response), response.text


def test_web_pages_are_refused(server: Server, upstreams: Servers) -> None:
    with server.client() as client:
        response = call(client, "/mcp/calc", ADD, Origin="http://evil.example")
        assert response.status_code == 403 and "Web pages" in error_of(response)
        assert call(client, "/mcp/calc", ADD, Host="evil.example", Origin="http://evil.example").status_code == 421
        assert not upstreams.seen
        assert call(client, "/mcp/calc", ADD, Origin=server.url).status_code == 200


@pytest.mark.parametrize("length", ["declared", "chunked"])
def test_bodies_of_a_hundred_megabytes_are_refused(server: Server, upstreams: Servers, length: str) -> None:
    headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
    size = 100 << 20
    connection = http.client.HTTPConnection(server.domain, timeout=30)
    connection.putrequest("POST", "/mcp/calc")
    for name, value in headers.items():
        connection.putheader(name, value)
    chunked = length == "chunked"
    connection.putheader(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(size))))
    connection.endheaders()
    chunk = b"x" * (1 << 20)
    try:
        for _ in range(100):
            connection.send(b"100000\r\n" + chunk + b"\r\n" if chunked else chunk)
    except OSError:
        pass  # The server has answered, and closed the connection.
    try:
        assert connection.getresponse().status == 413
    except OSError:
        pass  # The response was lost with the connection.
    connection.close()
    with server.client() as client:
        assert text_of(call(client, "/mcp/calc", ADD)) == "42"


def test_disconnect_cancels_the_call_at_the_server(server: Server, upstreams: Servers) -> None:
    with server.client() as client:
        message = stateless_message("tools/call", WAIT, progressToken=1)
        headers = stateless_headers("tools/call", WAIT)
        with client.stream("POST", "/mcp/calc", json=message, headers=headers) as response:
            assert "progress" in next(line for line in response.iter_lines() if line.startswith("data:"))
            assert not upstreams.client_left.is_set()
        eventually(upstreams.client_left.is_set)


def test_spoofed_headers_decide_nothing(server: Server, upstreams: Servers) -> None:
    with server.client() as client:
        response = call(client, "/mcp/sets/sums", {"name": "count"}, **{"Mcp-Name": "plus"})
        assert response.status_code == 400 and response.json()["error"]["code"] == -32020
        assert call(client, "/mcp/sets/sums", {"name": "calc_count"}).status_code != 200
        assert not [each for each in upstreams.seen if each["headers"].get("mcp-name")]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.anyio
async def test_the_sdk_uses_the_gateway(server: Server, mode: Literal["auto", "legacy"]) -> None:
    async with sdk_client(server, "/mcp/calc", mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"add", "count", "wait"}
        done: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            done.append(progress)

        result = await client.call_tool("count", {"to": 3}, progress_callback=on_progress)
        assert not result.is_error and done == [1, 2, 3]
        results = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": 1}) for n in range(20)))
        assert [each.content[0].text for each in results] == [str(n + 1) for n in range(20)]  # type: ignore[union-attr]


@asynccontextmanager
async def sdk_client(server: Server, path: str, mode: Literal["auto", "legacy"]) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {server.key}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as connection,
        Client(streamable_http_client(f"{server.url}{path}", http_client=connection), mode=mode) as client,
    ):
        yield client


def test_killed_gateway_ends_calls_and_repeats_none(upstreams: Servers, tmp_path: Path) -> None:
    """Of 200 calls under way, each ends with its result or with a broken connection, and reaches the server once."""
    count = 200

    def one(server: Server, number: int) -> str:
        params = {"name": "count", "arguments": {"to": 1}} if number % 2 else WAIT
        connection = http.client.HTTPConnection(server.domain, timeout=30)
        headers = stateless_headers("tools/call", params) | {"Authorization": f"Bearer {server.key}", "accept": BOTH}
        try:
            body = json.dumps(stateless_message("tools/call", params, number))
            connection.request("POST", "/mcp/calc", body, headers)
            answer = connection.getresponse().read()
            return "result" if b'"result"' in answer else "cut"
        except (OSError, http.client.HTTPException):
            return "broken"
        finally:
            connection.close()

    def calls_seen() -> int:
        return sum(each["headers"].get("mcp-method") == "tools/call" for each in upstreams.seen)

    server = Server(tmp_path / "data", settings_for(upstreams)).start()
    key = server.key
    with ThreadPoolExecutor(count) as pool:
        under_way = [pool.submit(one, server, number) for number in range(count)]
        eventually(lambda: calls_seen() >= count // 2)
        server.stop(signal.SIGKILL)
        outcomes = [each.result(60) for each in under_way]
    assert set(outcomes) <= {"result", "cut", "broken"} and outcomes.count("broken") + outcomes.count("cut") > 0
    assert calls_seen() <= count
    seen = calls_seen()
    restarted = Server(server.data, settings_for(upstreams)).start()
    try:
        assert restarted.key == key
        with restarted.client() as client:
            assert text_of(call(client, "/mcp/calc", ADD)) == "42"
        assert calls_seen() == seen + 1  # Nothing of the killed gateway is repeated.
    finally:
        restarted.stop()


def test_open_subscriptions_do_not_delay_the_end_of_the_server(upstreams: Servers, tmp_path: Path) -> None:
    settings = settings_for(upstreams) | {"server": {"shutdown_grace": 60}}
    server = Server(tmp_path / "data", settings).start()
    wanted = {"notifications": {"toolsListChanged": True}}
    with server.client() as client:
        message = stateless_message("subscriptions/listen", wanted)
        headers = stateless_headers("subscriptions/listen", wanted)
        with client.stream("POST", "/mcp/calc", json=message, headers=headers) as response:
            events = (json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: "))
            assert next(events)["method"] == "notifications/subscriptions/acknowledged"
            assert server.stop(timeout=20) == 0
            assert [event["result"]["resultType"] for event in events] == ["complete"]
