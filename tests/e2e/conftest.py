"""A server shared by all tests, and sandboxes in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.cli_driver import PaddockCliServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockCliServer]:
    server = PaddockCliServer(tmp_path_factory.mktemp("e2e") / "data")
    server.start_server()
    yield server
    server.run("sandbox", "rm", "--all", "--yes")
    assert server.stop_server() == 0


@pytest.fixture(scope="session")
def sandbox(server: PaddockCliServer) -> str:
    """A shared sandbox for tests that do not change it."""
    return server.output("sandbox", "create", "--image", "host", "--name", "shared")


@pytest.fixture
def own_sandbox(server: PaddockCliServer) -> Iterator[str]:
    """A sandbox for a single test."""
    sandbox_id = server.output("sandbox", "create", "--image", "host")
    yield sandbox_id
    server.run("sandbox", "rm", sandbox_id)
