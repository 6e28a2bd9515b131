"""A server without direct endpoints: clients reach ports of sandboxes through its proxy only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import create
from tests.support.server import Server

PORTS = range(32_200, 32_300)
LISTENING = "0A"


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"sandboxes": {"direct_endpoints": False, "port_range": f"{PORTS[0]}-{PORTS[-1]}"}}


def listening() -> list[int]:
    """Ports of the range that something on this machine listens on."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    sockets = [line.split() for line in lines]
    found = [int(fields[1].rpartition(":")[2], 16) for fields in sockets if fields[3] == LISTENING]
    return [port for port in found if port in PORTS]


@pytest.mark.parametrize("port", [8000, 44772])
def test_without_direct_endpoints_no_port_is_opened(server: Server, client: httpx.Client, port: int) -> None:
    sandbox = create(client)
    for query in ("", "?use_server_proxy=true"):
        found = client.get(f"/v1/sandboxes/{sandbox}/endpoints/{port}{query}").json()["endpoint"]
        assert found == f"{server.domain}/v1/sandboxes/{sandbox}/proxy/{port}"
    assert listening() == []
