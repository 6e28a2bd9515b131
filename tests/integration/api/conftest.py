"""A server per test file, and clients with different keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.support.server import Server, run_server

MakeSandbox = Callable[..., str]


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """Configuration of the test file's server."""
    return {}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, Any]) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("paddock"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    """A client with the administrator's key."""
    with server.client() as http_client:
        yield http_client


@pytest.fixture(scope="module")
def stranger(server: Server, client: httpx.Client) -> Iterator[httpx.Client]:
    """A client of another tenant."""
    secret = client.post("/v1/keys", json={"name": "stranger", "tenant": "other"}).json()["secret"]
    with server.client(secret) as http_client:
        yield http_client


def create_sandbox(client: httpx.Client, **body: Any) -> str:
    response = client.post("/v1/sandboxes", json=body)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> Iterator[str]:
    """A sandbox for tests that do not change it."""
    sandbox_id = create_sandbox(client)
    yield sandbox_id
    client.delete(f"/v1/sandboxes/{sandbox_id}")
