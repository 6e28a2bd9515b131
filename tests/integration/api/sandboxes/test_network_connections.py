"""Programs in sandboxes reach what the policy allows, and every connection is recorded."""

from __future__ import annotations

import io
import json
import shlex
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import create_sandbox
from tests.support.server import eventually, run_in_sandbox

HOST = "files.example"
BODY = b"x" * 50_000


class FileHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def target() -> Iterator[int]:
    """Port of an HTTP server that the operator lets sandboxes reach as files.example."""
    with ThreadingHTTPServer(("127.0.0.1", 0), FileHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def settings(target: int) -> dict[str, Any]:
    return {"network": {"hosts": {HOST: "127.0.0.1"}, "private_targets": [f"{HOST}:{target}"]}}


def fetch_command(target: int) -> str:
    """Return a command that prints the size of the file, or that the connection was refused."""
    code = (
        "import urllib.request as r\n"
        f"try: print(len(r.urlopen('http://{HOST}:{target}/', timeout=10).read()))\n"
        "except OSError: print('refused')"
    )
    return f"python3 -c {shlex.quote(code)}"


def fetch(client: httpx.Client, sandbox: str, target: int) -> str:
    return run_in_sandbox(client, sandbox, fetch_command(target))[0]


def connections(client: httpx.Client, sandbox: str, **query: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get(f"/v1/sandboxes/{sandbox}/connections", params=query).json()["items"]
    return items


def test_allowed_and_denied_connections_are_recorded(client: httpx.Client, target: int) -> None:
    sandbox = create_sandbox(client, network="none")
    assert fetch(client, sandbox, target) == "refused"
    (denied,) = eventually(lambda: connections(client, sandbox, decision="denied"))
    assert (denied["name"], denied["port"], denied["refusal"]) == (HOST, target, "no_rule")
    assert f"allow {HOST}:{target}" in denied["message"]
    client.patch(f"/v1/sandboxes/{sandbox}/network", json={"allow": [f"{HOST}:{target}"]}).raise_for_status()
    assert fetch(client, sandbox, target) == str(len(BODY))
    (allowed,) = eventually(lambda: connections(client, sandbox, decision="allowed", open="false"))
    assert allowed["rule"] == f"allow {HOST}:{target}" and allowed["address"] == "127.0.0.1"
    assert allowed["receivedBytes"] > len(BODY) and allowed["sentBytes"] > 0
    page = client.get(f"/v1/sandboxes/{sandbox}/connections").json()
    (total,) = page["totals"]
    assert (total["host"], total["connections"], total["denied"]) == (HOST, 2, 1)
    events = client.get(f"/v1/sandboxes/{sandbox}/events", headers={"Accept": "application/json"}).json()["items"]
    assert [event["data"]["allowed"] for event in events if event["type"] == "network.connection"] == [False, True]
    client.delete(f"/v1/sandboxes/{sandbox}")
    assert len(connections(client, sandbox)) == 2


def test_changed_policy_closes_open_connections(client: httpx.Client, target: int) -> None:
    sandbox = create_sandbox(client, network=[f"{HOST}:{target}"])
    code = f"import socket; c = socket.create_connection(('{HOST}', {target})); print('end', c.recv(1))"
    entry = {"command": f'python3 -c "{code}"', "background": True}
    client.post(f"/v1/sandboxes/{sandbox}/proxy/44772/command", json=entry).raise_for_status()
    (opened,) = eventually(lambda: connections(client, sandbox, open="true"))
    assert client.get(f"/v1/sandboxes/{sandbox}/network").json()["openConnections"] == 1
    client.put(f"/v1/sandboxes/{sandbox}/network", json={"policy": "none"}).raise_for_status()
    (ended,) = eventually(lambda: connections(client, sandbox, open="false"))
    assert (ended["id"], ended["refusal"]) == (opened["id"], "policy_changed")
    client.delete(f"/v1/sandboxes/{sandbox}")


def test_run_folder_has_the_connections_of_the_run(client: httpx.Client, target: int) -> None:
    task = {"name": "net", "goal": "Fetch.", "image": "host", "entrypoint": fetch_command(target)}
    task["network"] = f"allow {HOST}:{target}"
    run = client.post("/v1/runs", json={"task": task}).raise_for_status().json()["runs"][0]["id"]
    eventually(lambda: client.get(f"/v1/runs/{run}").json()["state"] == "succeeded", timeout=60)
    archive = client.get(f"/v1/runs/{run}/archive", params={"format": "tar"}).content
    with tarfile.open(fileobj=io.BytesIO(archive)) as folder:
        (name,) = [name for name in folder.getnames() if name.endswith("network.jsonl")]
        file = folder.extractfile(name)
        assert file is not None
        (line,) = file.read().splitlines()
    connection = json.loads(line)
    assert (connection["name"], connection["port"], connection["allowed"]) == (HOST, target, True)
    assert connection["attempt"] == 1 and connection["received"] > len(BODY)
