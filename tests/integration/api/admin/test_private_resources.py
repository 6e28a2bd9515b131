"""Two keys of one tenant: resources of one do not exist for the other until shared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from paddock.live.recording.recording_files import RecordingFiles
from paddock.model.owners import Visibility
from paddock.model.recordings import Recording, RecordingState
from tests.integration.api.conftest import create_sandbox
from tests.integration.mcp.upstream_servers import mcp_servers
from tests.support.server import Server, eventually

SCOPES = [
    "sandboxes:write",
    "runs:write",
    "sessions:write",
    "images:write",
    "llm:use",
    "llm:read",
    "mcp:use",
    "keys:admin",
]
RECORDING = f"rec-{'0' * 16}"
TASK = {"name": "hello", "goal": "Say hello.", "image": "host", "entrypoint": "echo kestrel; echo kestrel > report.md"}
NOTHING_SERVED_MESSAGE = "nothing is served at {}"
JSON = {"Accept": "application/json"}
IN_ONE_HOUR = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
CREDENTIAL = {"value": "secret"}
BINDING = {"match": {"hosts": ["a.example"]}, "auth": {"type": "bearer", "credential": "a"}}
BODIES: dict[str, Any] = {
    "PATCH /v1/sessions/{session_id}": {"title": "mine"},
    "POST /v1/sessions/{session_id}/messages": {"text": "hello"},
    "POST /v1/sessions/{session_id}/resume": {"decisions": [{"approval": "apr-1", "digest": "0", "action": "approve"}]},
    "PATCH /v1/sandboxes/{sandbox_id}": {"visibility": "tenant"},
    "PATCH /v1/runs/{run_id}": {"visibility": "tenant"},
    "PATCH /v1/sandboxes/{sandbox_id}/metadata": {"a": "b"},
    "POST /v1/sandboxes/{sandbox_id}/renew-expiration": {"expiresAt": IN_ONE_HOUR},
    "POST /v1/sandboxes/{sandbox_id}/mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    "POST /v1/sandboxes/{sandbox_id}/input": {"viewer": "tab-1"},
    "PUT /v1/sandboxes/{sandbox_id}/networkpolicy": {},
    "PATCH /v1/sandboxes/{sandbox_id}/networkpolicy": [],
    "DELETE /v1/sandboxes/{sandbox_id}/networkpolicy": [],
    "POST /v1/sandboxes/{sandbox_id}/move": {"from": "/etc/hostname", "to": {"sandbox": "sb-1", "path": "/tmp/a"}},
    "POST /v1/sandboxes/{sandbox_id}/previews": {"port": 8000},
    "PUT /v1/sandboxes/{sandbox_id}/network": {"policy": "none"},
    "POST /v1/sandboxes/{sandbox_id}/vault": {"credentials": [], "bindings": []},
    "PATCH /v1/sandboxes/{sandbox_id}/vault": {"expectedRevision": 1},
    "PUT /v1/sandboxes/{sandbox_id}/vault/credentials/{name}": CREDENTIAL,
    "PUT /v1/sandboxes/{sandbox_id}/vault/bindings/{name}": BINDING,
    "PATCH /v1/sandboxes/{sandbox_id}/network": {"deny": ["a.org"]},
}
OTHER_PARAMETERS = {
    "sha": "0" * 64,
    "port": "8000",
    "name": "agent.out",
    "recording_id": RECORDING,
    "number": "0",
    "path": "report.md",
}
UNOWNED = {"template_id", "pool_name", "build_id", "key_id", "name"}
"""Parameters of resources shared by the tenant or reserved for administrators."""


@dataclass
class OwnedResources:
    """Resources created with the first key."""

    sandbox: str
    session: str
    run: str
    snapshot: str
    exchange: str
    approval: str
    mcp_call: str

    @property
    def ids(self) -> list[str]:
        made = [self.sandbox, self.session, self.run, self.snapshot, self.exchange, self.approval, self.mcp_call]
        return [RECORDING, *made]


@pytest.fixture(scope="module")
def settings() -> Iterator[dict[str, Any]]:
    """Let the demo work in the kind `code`, without an image, and declare an MCP server."""
    with mcp_servers() as upstream:
        mcp = {"allow": ["127.0.0.1"], "servers": [{"name": "calculator", "url": upstream.calculator}]}
        yield {"kinds": {"code": {"image": "host"}}, "mcp": mcp}


def create_key_client(server: Server, admin: httpx.Client, name: str, **more: Any) -> httpx.Client:
    body = {"name": name, "scopes": SCOPES, **more}
    return server.client(admin.post("/v1/keys", json=body).raise_for_status().json()["secret"])


@pytest.fixture(scope="module")
def ann(server: Server, client: httpx.Client) -> Iterator[httpx.Client]:
    with create_key_client(server, client, "ann", user="ann") as http_client:
        yield http_client


@pytest.fixture(scope="module")
def bob(server: Server, client: httpx.Client) -> Iterator[httpx.Client]:
    with create_key_client(server, client, "bob") as http_client:
        yield http_client


@pytest.fixture(scope="module")
def owned(server: Server, ann: httpx.Client) -> OwnedResources:
    sandbox = create_sandbox(ann, extensions={"requestKey": "dev"})
    now = datetime.now(UTC)
    recording = Recording(
        id=RECORDING,
        tenant="default",
        sandbox_id=sandbox,
        subject="user:ann",
        visibility=Visibility.PRIVATE,
        state=RecordingState.STOPPED,
        started_at=now,
        stopped_at=now,
        fps=1,
        quality=50,
    )
    RecordingFiles(server.data / "recordings").create_files(recording).close()
    snapshot = ann.post(f"/v1/sandboxes/{sandbox}/snapshots", json={}).json()["id"]
    run = ann.post("/v1/runs", json={"task": {**TASK, "deliverables": ["report.md"]}}).json()["runs"][0]["id"]
    session = ann.post("/v1/demo", json={}).raise_for_status().json()["session"]
    pending = eventually(lambda: ann.get("/v1/approvals", params={"state": "pending"}).json()["items"], 60)
    exchanges = eventually(lambda: ann.get("/v1/exchanges").json()["items"])
    eventually(lambda: ann.get(f"/v1/runs/{run}").json().get("result"), 60)
    eventually(lambda: ann.get(f"/v1/snapshots/{snapshot}").json()["status"]["state"] == "Ready")
    added = {"tool": "add", "arguments": {"a": 1, "b": 2}}
    ann.post("/v1/mcp/servers/calculator/call", json=added).raise_for_status()
    calls = ann.get("/v1/mcp/calls").json()["items"]
    return OwnedResources(sandbox, session, run, snapshot, exchanges[0]["id"], pending[0]["id"], calls[0]["id"])


def test_routes_hide_resources_of_another_key(ann: httpx.Client, bob: httpx.Client, owned: OwnedResources) -> None:
    own_parameters = {
        "sandbox_id": owned.sandbox,
        "session_id": owned.session,
        "run_id": owned.run,
        "snapshot_id": owned.snapshot,
        "exchange_id": owned.exchange,
        "call_id": owned.mcp_call,
    }
    walked = 0
    wrong: list[str] = []
    for path, operations in bob.get("/openapi.json").json()["paths"].items():
        parameters = set(re.findall(r"\{(\w+)\}", path))
        if not parameters & own_parameters.keys():
            assert parameters <= UNOWNED, f"{path}: add its parameters to the owned or unowned ones"
            continue
        for method, operation in operations.items():
            about = f"{method.upper()} {path}"
            address = path.format(**{**OTHER_PARAMETERS, **own_parameters})
            query = {"viewer": "tab-1"} if any(p["name"] == "viewer" for p in operation.get("parameters", ())) else None
            response = bob.request(method, address, json=BODIES.get(about), headers=JSON, params=query)
            walked += 1
            if about == "POST /v1/sandboxes/{sandbox_id}/mcp":
                assert response.status_code == 404 or "error" in response.json(), response.text
            elif response.status_code != 404 or response.json()["message"] == NOTHING_SERVED_MESSAGE.format(address):
                wrong.append(f"{about}: {response.status_code} {response.text[:200]}")
    assert not wrong, "\n".join(wrong)
    assert ann.get(f"/v1/sandboxes/{owned.sandbox}/recordings/{RECORDING}").status_code == 200
    assert walked > 60
    for address in (f"sandboxes/{owned.sandbox}", f"sessions/{owned.session}", f"runs/{owned.run}"):
        assert ann.get(f"/v1/{address}").json()["visibility"] == "private"


def list_ids(reader: httpx.Client) -> Iterator[tuple[str, str]]:
    for path in (
        "sandboxes?pageSize=200",
        "snapshots",
        "sessions",
        "sessions/search?q=a",
        "approvals",
        "runs",
        "recordings",
        "exchanges?limit=500",
        "exchanges/export",
        "mcp/calls",
        "events?limit=500",
        "server",
        "usage?by=key",
        "usage/series",
    ):
        response = reader.get(f"/v1/{path}", headers=JSON)
        assert response.status_code == 200, response.text
        yield path, response.text


def test_lists_and_searches_hide_resources_of_another_key(
    ann: httpx.Client, bob: httpx.Client, owned: OwnedResources
) -> None:
    mine, theirs = dict(list_ids(ann)), dict(list_ids(bob))
    for path, text in theirs.items():
        assert not [each for each in owned.ids if each in text], path
    for path in (
        "sandboxes?pageSize=200",
        "snapshots",
        "sessions",
        "approvals",
        "runs",
        "recordings",
        "exchanges?limit=500",
    ):
        assert [each for each in owned.ids if each in mine[path]], path
    assert json.loads(mine["events?limit=500"])["items"] and not json.loads(theirs["events?limit=500"])["items"]
    assert json.loads(theirs["server"])["sandboxes"] == {}
    assert json.loads(mine["usage?by=key"])["items"] and not json.loads(theirs["usage?by=key"])["items"]
    assert sum(each["requests"] for each in json.loads(theirs["usage/series"])["items"]) == 0
    with bob.stream("GET", "/v1/events") as stream:
        create_marker = create_sandbox(bob)
        line = next(line for line in stream.iter_lines() if line.startswith("data: "))
        assert json.loads(line.removeprefix("data: "))["stream"] == f"sandbox/{create_marker}"


@pytest.mark.parametrize("path", ["sandboxes/{0}/desktop", "sandboxes/{0}/terminal", "sessions/{1}/ws"])
def test_websockets_refuse_resources_of_another_key(
    server: Server, bob: httpx.Client, owned: OwnedResources, path: str
) -> None:
    path = path.format(owned.sandbox, owned.session)
    ticket = bob.post("/v1/tickets", json={}).json()["ticket"]
    address = f"{server.url.replace('http', 'ws')}/v1/{path}?ticket={ticket}"
    with pytest.raises(InvalidStatus) as refused, connect(address):
        pass
    assert refused.value.response.status_code == 404


def test_proxied_ports_refuse_another_key(bob: httpx.Client, owned: OwnedResources) -> None:
    for port in (44772, 8000, 18080):
        assert bob.get(f"/v1/sandboxes/{owned.sandbox}/proxy/{port}/ping").status_code == 404


def test_screen_grid_hides_sandboxes_of_another_key(server: Server, bob: httpx.Client, owned: OwnedResources) -> None:
    ticket = bob.post("/v1/tickets", json={}).json()["ticket"]
    address = f"{server.url.replace('http', 'ws')}/v1/screens?ticket={ticket}&sandboxes={owned.sandbox}"
    with connect(address) as socket:
        gone = json.loads(socket.recv(timeout=10))
    assert gone["type"] == "gone" and "no sandbox" in gone["reason"]


def test_idempotency_keys_and_thread_names_are_per_owner(
    ann: httpx.Client, bob: httpx.Client, owned: OwnedResources
) -> None:
    assert create_sandbox(ann, extensions={"requestKey": "dev"}) == owned.sandbox
    assert create_sandbox(bob, extensions={"requestKey": "dev"}) != owned.sandbox
    for path, body in (("sessions", {}), ("runs", {"task": TASK})):
        responses = [
            each.post(f"/v1/{path}", json=body, headers={"Idempotency-Key": "once"}).raise_for_status().json()
            for each in (ann, ann, bob)
        ]
        ids = [each["id"] if "id" in each else each["runs"][0]["id"] for each in responses]
        assert ids[0] == ids[1] != ids[2]


def test_snapshot_of_another_key_cannot_start_a_sandbox(bob: httpx.Client, owned: OwnedResources) -> None:
    assert bob.post("/v1/sandboxes", json={"snapshotId": owned.snapshot}).status_code == 404


def test_keys_of_the_owner_and_administrators_see_private_resources(
    server: Server, client: httpx.Client, owned: OwnedResources
) -> None:
    with (
        create_key_client(server, client, "ann's phone", user="ann") as phone,
        create_key_client(server, client, "lead", scopes=[*SCOPES, "tenant:all"]) as lead,
    ):
        for reader in (client, phone, lead):
            assert reader.get(f"/v1/sessions/{owned.session}").status_code == 200
            assert owned.session in reader.get("/v1/sessions").text
            assert owned.sandbox in reader.get("/v1/events?limit=500", headers=JSON).text


def test_resources_can_be_shared_and_made_private_again(ann: httpx.Client, bob: httpx.Client) -> None:
    session = ann.post("/v1/sessions", json={"title": "plan of the heron"}).json()["id"]
    run = ann.post("/v1/runs", json={"task": {**TASK, "entrypoint": "echo begun; sleep 600"}}).json()["runs"][0]["id"]
    inside = eventually(lambda: ann.get(f"/v1/runs/{run}").json().get("sandboxId"), 60)
    own = create_sandbox(ann)
    shared = {f"sessions/{session}": [session], f"runs/{run}": [run, inside], f"sandboxes/{own}": [own]}
    for address, ids in shared.items():
        assert bob.patch(f"/v1/{address}", json={"visibility": "tenant"}).status_code == 404
        changed = ann.patch(f"/v1/{address}", json={"visibility": "tenant"})
        assert changed.status_code == 200 and changed.json()["visibility"] == "tenant", changed.text
        assert "ann" in (changed.json().get("created_by"), changed.json().get("createdBy"))
        feed = bob.get("/v1/events?limit=500", headers=JSON).text
        assert all(each in feed for each in ids)
        assert bob.get(f"/v1/{address}").status_code == 200
        assert bob.patch(f"/v1/{address}", json={"visibility": "private"}).status_code == 403
    assert bob.get(f"/v1/sandboxes/{inside}").status_code == 200
    assert ann.patch(f"/v1/sandboxes/{inside}", json={"visibility": "private"}).status_code == 409
    for address, ids in shared.items():
        assert ann.patch(f"/v1/{address}", json={"visibility": "private"}).status_code == 200
        assert bob.get(f"/v1/{address}").status_code == 404
        feed = bob.get("/v1/events?limit=500", headers=JSON).text
        assert not any(each in feed for each in ids)
    assert bob.get(f"/v1/sandboxes/{inside}").status_code == 404
    ann.post(f"/v1/runs/{run}/cancel", json={"hard": True})
    ann.delete(f"/v1/sessions/{session}")
    eventually(lambda: ann.get("/v1/events?limit=500", headers=JSON).text.count("session.deleted") == 1)
    assert "session.deleted" not in bob.get("/v1/events?limit=500", headers=JSON).text


def test_objects_can_be_shared_from_the_start(ann: httpx.Client, bob: httpx.Client) -> None:
    sandbox = create_sandbox(ann, visibility="tenant")
    session = ann.post("/v1/sessions", json={"visibility": "tenant"}).json()["id"]
    run = ann.post("/v1/runs", json={"task": TASK, "visibility": "tenant"}).json()["runs"][0]["id"]
    for address in (f"sandboxes/{sandbox}", f"sessions/{session}", f"runs/{run}"):
        assert bob.get(f"/v1/{address}").status_code == 200
    assert session in bob.get("/v1/sessions").text


def test_imported_and_forked_sessions_belong_to_their_creator(
    ann: httpx.Client, bob: httpx.Client, owned: OwnedResources
) -> None:
    bundle = ann.get(f"/v1/sessions/{owned.session}/export").content
    imported = bob.post("/v1/sessions/import", content=bundle)
    assert imported.status_code == 201, imported.text
    forked = ann.post(f"/v1/sessions/{owned.session}/fork", json={}).json()
    for maker, other, session in ((bob, ann, imported.json()), (ann, bob, forked)):
        assert maker.get(f"/v1/sessions/{session['id']}").json()["visibility"] == "private"
        assert other.get(f"/v1/sessions/{session['id']}").status_code == 404
        assert session["id"] not in other.get("/v1/events?limit=500", headers=JSON).text
