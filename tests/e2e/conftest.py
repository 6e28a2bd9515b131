"""A server for all tests, and sandboxes in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.cli_driver import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("e2e") / "data")
    server.up()
    yield server
    server.run("sandbox", "rm", "--all", "--yes")
    assert server.down() == 0


@pytest.fixture(scope="session")
def sandbox(server: Server) -> str:
    """A sandbox for tests that leave it as it was."""
    return server.text("sandbox", "create", "--image", "host", "--name", "shared")


@pytest.fixture
def own_sandbox(server: Server) -> Iterator[str]:
    """A sandbox for one test alone."""
    made = server.text("sandbox", "create", "--image", "host")
    yield made
    server.run("sandbox", "rm", made)
