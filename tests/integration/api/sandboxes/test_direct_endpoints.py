"""Servers without and with direct endpoints: ports of sandboxes behind the proxy, or on the loopback too."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from paddock.errors import Unavailable
from paddock.model.sandbox import DaemonAddress
from paddock.sandbox.daemon.client import DaemonClient
from tests.integration.api.conftest import create_sandbox
from tests.support.server import DAEMON_PORT, Server, run_in_sandbox, run_server

DIRECT_PORTS = range(32_200, 32_300)
OTHER_DIRECT_PORTS = range(32_300, 32_400)
HALF_OPEN_CONNECTIONS = 600
TCP_LISTEN = "0A"


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"sandboxes": {"direct_endpoints": False, "port_range": f"{DIRECT_PORTS[0]}-{DIRECT_PORTS[-1]}"}}


@pytest.fixture(scope="module")
def direct_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with defaults and a port range that no other server on this machine uses."""
    ports = f"{OTHER_DIRECT_PORTS[0]}-{OTHER_DIRECT_PORTS[-1]}"
    with run_server(tmp_path_factory.mktemp("direct"), {"sandboxes": {"port_range": ports}}) as running:
        yield running


def listening_ports(ports: range) -> list[int]:
    """Return ports of the range that are listening on this machine."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    sockets = [line.split() for line in lines]
    found = [int(fields[1].rpartition(":")[2], 16) for fields in sockets if fields[3] == TCP_LISTEN]
    return [port for port in found if port in ports]


@pytest.mark.parametrize("port", [8000, 44772])
def test_without_direct_endpoints_no_port_is_opened(server: Server, client: httpx.Client, port: int) -> None:
    sandbox = create_sandbox(client)
    for query in ("", "?use_server_proxy=true"):
        found = client.get(f"/v1/sandboxes/{sandbox}/endpoints/{port}{query}").json()["endpoint"]
        assert found == f"{server.domain}/v1/sandboxes/{sandbox}/proxy/{port}"
    assert listening_ports(DIRECT_PORTS) == []


def test_endpoint_through_the_proxy_opens_no_port(direct_server: Server) -> None:
    with direct_server.client() as client:
        sandbox = create_sandbox(client)
        for port in (8000, DAEMON_PORT):
            path = f"/v1/sandboxes/{sandbox}/endpoints/{port}"
            proxied = client.get(path, params={"use_server_proxy": "true"}).json()["endpoint"]
            assert proxied == f"{direct_server.domain}/v1/sandboxes/{sandbox}/proxy/{port}"
            assert listening_ports(OTHER_DIRECT_PORTS) == []
        direct = client.get(path).json()["endpoint"]
        assert listening_ports(OTHER_DIRECT_PORTS) == [int(direct.rpartition(":")[2])]
        client.delete(f"/v1/sandboxes/{sandbox}")


def test_half_open_direct_connections_do_not_keep_the_server_out(direct_server: Server) -> None:
    with direct_server.client() as client, ExitStack() as held:
        sandbox = create_sandbox(client)
        endpoint = client.get(f"/v1/sandboxes/{sandbox}/endpoints/{DAEMON_PORT}").json()["endpoint"]
        host, port = endpoint.split(":")
        for _ in range(HALF_OPEN_CONNECTIONS):
            raw = held.enter_context(socket.create_connection((host, int(port)), timeout=30))
            raw.sendall(b"GET /ping HT")
        for _ in range(5):
            assert run_in_sandbox(client, sandbox, "echo here") == ("here", 0)
        client.delete(f"/v1/sandboxes/{sandbox}")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_full_backlog_of_a_daemon_is_a_temporary_error(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "inside.sock"

    async def ping() -> None:
        async with DaemonClient(DaemonAddress(token="x", socket=path)) as inside:
            with pytest.raises(Unavailable, match="too many open connections"):
                await inside.ping()
            with pytest.raises(Unavailable, match="too many open connections"):
                async with inside.websocket("/x"):
                    pass

    with ExitStack() as held:
        listener = held.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(0)
        error = 0
        while not error:
            waiting = held.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            error = waiting.connect_ex(str(path))
        assert error == errno.EAGAIN
        run(ping())
