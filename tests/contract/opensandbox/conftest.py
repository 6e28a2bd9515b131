"""One server for all of OpenSandbox's clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opensandbox.config import ConnectionConfig

from tests.support.server import Server, run_server

IMAGE = "host"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    shared = tmp_path_factory.mktemp("shared")
    (shared / "hello").write_text("from the host\n")
    settings = {"sandboxes": {"allowed_host_paths": [str(shared)]}}
    with run_server(tmp_path_factory.mktemp("paddock"), settings) as running:
        yield running


@pytest.fixture(params=["direct", "proxied"])
def connection(request: pytest.FixtureRequest, server: Server) -> ConnectionConfig:
    """How the SDK speaks to boxes: by their own ports, or through the server."""
    return ConnectionConfig(domain=server.domain, api_key=server.key, use_server_proxy=request.param == "proxied")
