"""A server without direct endpoints: ports of sandboxes are reachable only through its proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import create_sandbox
from tests.support.server import Server

DIRECT_PORTS = range(32_200, 32_300)
TCP_LISTEN = "0A"


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"sandboxes": {"direct_endpoints": False, "port_range": f"{DIRECT_PORTS[0]}-{DIRECT_PORTS[-1]}"}}


def listening_ports() -> list[int]:
    """Return ports of the range that are listening on this machine."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    sockets = [line.split() for line in lines]
    found = [int(fields[1].rpartition(":")[2], 16) for fields in sockets if fields[3] == TCP_LISTEN]
    return [port for port in found if port in DIRECT_PORTS]


@pytest.mark.parametrize("port", [8000, 44772])
def test_without_direct_endpoints_no_port_is_opened(server: Server, client: httpx.Client, port: int) -> None:
    sandbox = create_sandbox(client)
    for query in ("", "?use_server_proxy=true"):
        found = client.get(f"/v1/sandboxes/{sandbox}/endpoints/{port}{query}").json()["endpoint"]
        assert found == f"{server.domain}/v1/sandboxes/{sandbox}/proxy/{port}"
    assert listening_ports() == []
