"""The read-only API of a data directory returns the server's responses and changes nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from paddock.cli.connection.data_directory_client import DataDirectoryClient
from paddock.cli.connection.server_address import has_running_server
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import NoServerError, RequestRefused
from paddock.errors import Unavailable
from paddock.store.data_lock import DataDirectoryLock
from paddock.store.database import Store
from tests.support.server import Server, delete_all_sandboxes, eventually

TASK: Mapping[str, Any] = {
    "name": "short",
    "goal": "Say hello.",
    "image": "host",
    "entrypoint": "echo hello; echo a > a.txt",
    "deliverables": ["a.txt"],
}
API_PATHS = (
    "/v1/runs",
    "/v1/runs?state=failed",
    "/v1/runs/{run}",
    "/v1/runs/{run}/logs/agent.out",
    "/v1/runs/{run}/deliverables/a.txt",
    "/v1/runs/nothing",
    "/v1/sandboxes",
    "/v1/sandboxes?metadata=name%3Ddesk",
    "/v1/sandboxes/{sandbox}",
    "/v1/sandboxes/{sandbox}/conversations",
    "/v1/snapshots",
    "/v1/pools",
    "/v1/kinds",
    "/v1/recordings",
    "/v1/sessions",
    "/v1/sessions/search?q=hello",
    "/v1/sessions/{session}",
    "/v1/sessions/{session}/messages",
    "/v1/sessions/{session}/approvals",
    "/v1/exchanges",
    "/v1/usage?by=model",
    "/v1/keys",
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


async def _create_database(data: Path) -> None:
    await (await Store.open(data / "paddock.db")).close()


async def _key_subject(data: Path) -> str:
    async with DataDirectoryClient(CliContext(data=str(data))) as client:
        return (await client._reader._parts.principal()).subject


async def read_responses(data: Path, paths: Mapping[str, str]) -> dict[str, tuple[int, bytes]]:
    responses: dict[str, tuple[int, bytes]] = {}
    async with DataDirectoryClient(CliContext(data=str(data))) as client:
        for name, path in paths.items():
            try:
                async with client.request("GET", path) as response:
                    responses[name] = (response.status, await response.content.read())
            except RequestRefused as error:
                responses[name] = (error.status, error.server_code.encode())
    return responses


def test_read_only_api_matches_the_server(data: Path) -> None:
    server = Server(data).start()
    with server.client() as client:
        handle = client.post("/v1/sandboxes", json={"image": {"uri": "host"}, "name": "desk"}).json()["id"]
        client.post(f"/v1/sandboxes/{handle}/snapshots", json={"name": "kept"})
        pool = {
            "name": "none",
            "capacitySpec": {"bufferMax": 0},
            "template": {"spec": {"containers": [{"image": "host"}]}},
        }
        assert client.post("/v1/pools", json=pool).status_code == 201
        session = client.post("/v1/sessions", json={"title": "hello"}).json()["id"]
        run = client.post("/v1/runs", json={"task": TASK}).json()["runs"][0]["id"]
        eventually(lambda: client.get(f"/v1/runs/{run}").json()["state"] == "succeeded", 60)
        eventually(lambda: client.get("/v1/snapshots").json()["items"][0]["status"]["state"] == "Ready")
        paths = {path: path.format(run=run, sandbox=handle, session=session) for path in API_PATHS}
        owner = next(key["id"] for key in client.get("/v1/keys").json()["items"] if key["name"] == "local")
        assert asyncio.run(_key_subject(data)) == owner
        before = {}
        for name, path in paths.items():
            response = client.get(path)
            refused = response.status_code >= 300
            before[name] = (response.status_code, response.json()["code"].encode() if refused else response.content)
    beside = asyncio.run(read_responses(data, paths))
    assert server.stop() == 0
    with DataDirectoryLock.acquire(data):  # As held by a server that is starting.
        alone = asyncio.run(read_responses(data, paths))
    for name in API_PATHS:
        assert beside[name] == before[name], name
        assert alone[name] == before[name], name
    assert not has_running_server(data)
    server.start()
    delete_all_sandboxes(server)
    server.stop()


def test_unused_data_directory_stays_empty(data: Path) -> None:
    responses = asyncio.run(
        read_responses(data, {path: path for path in ("/v1/runs", "/v1/sandboxes", "/v1/sessions")})
    )
    assert [json.loads(body)["items"] for _, body in responses.values()] == [[], [], []]
    assert not data.exists()


@pytest.mark.parametrize("command", ["sandbox list", "runs list", "session list", "llm log"])
def test_commands_import_only_required_modules(data: Path, command: str) -> None:
    asyncio.run(_create_database(data))
    words = [sys.executable, "-X", "importtime", "-m", "paddock", *command.split(), "--data", str(data), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "paddock.read_only_api" in loaded
    assert not loaded & {"aiohttp", "alembic", "uvicorn", "sqlalchemy.dialects.postgresql", "paddock.app"}
    assert not loaded & {
        "paddock.llm.gateway.gateway",
        "paddock.runs.execution.run_executor",
        "paddock.runs.execution.stage_operations",
        "paddock.agents.tools.session_sandboxes",
    }


def test_read_only_api_cannot_write(data: Path) -> None:
    async def write() -> None:
        await _create_database(data)
        async with await Store.open_to_read(data / "paddock.db") as store:
            await store.write(lambda connection: connection.exec_driver_sql("DELETE FROM sandboxes").rowcount)

    with pytest.raises(Unavailable):
        asyncio.run(write())

    async def post() -> None:
        async with DataDirectoryClient(CliContext(data=str(data))) as client:
            await client.post("/v1/sandboxes", {})

    with pytest.raises(NoServerError, match="paddock serve"):
        asyncio.run(post())
