"""Network policies and connections of sandboxes through the API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from paddock.model.network import ConnectionRecord, ConnectionRefusal
from paddock.store.connection_store import ConnectionStore
from paddock.store.database import Store
from tests.integration.api.conftest import create_sandbox
from tests.support.server import Server, run_server

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SIDECAR_PORT = 18080


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    kinds = {"worker": {"image": "host", "network": ["allow git", {"allow": "*.example.com", "ports": 443}]}}
    return {"kinds": kinds, "network": {"default": "allow pypi.org:443"}}


@pytest.fixture
def sandbox(client: httpx.Client) -> Iterator[str]:
    created = create_sandbox(client, network="none")
    yield created
    client.delete(f"/v1/sandboxes/{created}")


def policy_of(client: httpx.Client, sandbox: str) -> list[str]:
    policy: list[str] = client.get(f"/v1/sandboxes/{sandbox}/network").raise_for_status().json()["policy"]
    assert client.get(f"/v1/sandboxes/{sandbox}").json()["network"] == policy
    return policy


@pytest.mark.parametrize(
    ("body", "policy"),
    [
        ({}, ["allow pypi.org:443"]),
        ({"network": None}, ["allow pypi.org:443"]),
        ({"extensions": {"paddock.kind": "worker"}}, ["allow git", "allow *.example.com:443"]),
        ({"extensions": {"paddock.kind": "worker"}, "network": "none"}, []),
        ({"network": "packages"}, ["allow packages"]),
        ({"network": [{"deny": ["a.org", "B.org"]}, "open"]}, ["deny a.org", "deny b.org", "allow open"]),
        ({"networkPolicy": {}}, []),
        ({"networkPolicy": {"defaultAction": "allow"}}, ["allow open"]),
    ],
)
def test_policy_is_the_requests_own_or_the_kinds_or_the_default(
    client: httpx.Client, body: dict[str, Any], policy: list[str]
) -> None:
    sandbox = create_sandbox(client, **body)
    assert policy_of(client, sandbox) == policy
    client.delete(f"/v1/sandboxes/{sandbox}")


def test_kinds_name_their_policy(client: httpx.Client) -> None:
    kinds = {kind["name"]: kind["network"] for kind in client.get("/v1/kinds").json()["items"]}
    assert kinds["worker"] == ["allow git", "allow *.example.com:443"]
    assert kinds["browser"] == kinds["mobile"] == ["allow web"]
    assert kinds["code"] == ["allow pypi.org:443"]


def test_policy_is_replaced_and_patched(client: httpx.Client, sandbox: str) -> None:
    path = f"/v1/sandboxes/{sandbox}/network"
    replaced = client.put(path, json={"policy": ["*.example.com:443", "deny 10.0.0.0/8"]}).json()
    assert replaced["policy"] == ["allow *.example.com:443", "deny 10.0.0.0/8"]
    assert replaced["openConnections"] == 0 and replaced["effective"] == replaced["policy"]
    patched = client.patch(path, json={"allow": ["git"], "deny": ["bad.example.com"], "remove": ["10.0.0.0/8"]})
    assert patched.json()["policy"] == ["deny bad.example.com", "allow git", "allow *.example.com:443"]
    client.patch(path, json={"remove": ["*.example.com"]}).raise_for_status()
    assert policy_of(client, sandbox) == ["deny bad.example.com", "allow git"]
    changes = [
        event["data"]["policy"]
        for event in client.get(f"/v1/sandboxes/{sandbox}/events", headers={"Accept": "application/json"}).json()[
            "items"
        ]
        if event["type"] == "network.changed"
    ]
    assert len(changes) == 3 and changes[-1] == ["deny bad.example.com", "allow git"]


@pytest.mark.parametrize(
    ("method", "body", "words"),
    [
        ("PUT", {}, "policy"),
        ("PUT", {"policy": "allow a:b:c"}, "rule 'allow a:b:c'"),
        ("PATCH", {"allow": ["10.0.0.1/8"]}, "write 10.0.0.0/8"),
        ("PATCH", {"allow": ["a.org"], "deny": ["A.org"]}, "a.org is in both allow and deny"),
        ("PATCH", {"alow": ["a.org"]}, "alow"),
    ],
)
def test_invalid_policies_are_refused_with_the_reason(
    client: httpx.Client, sandbox: str, method: str, body: dict[str, Any], words: str
) -> None:
    response = client.request(method, f"/v1/sandboxes/{sandbox}/network", json=body)
    assert response.status_code == 400 and words in response.json()["message"]
    assert policy_of(client, sandbox) == []


def test_policy_survives_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    with run_server(tmp_path_factory.mktemp("restart")) as server:
        with server.client() as client:
            sandbox = create_sandbox(client, network="web")
            client.patch(f"/v1/sandboxes/{sandbox}/network", json={"deny": ["a.org"]}).raise_for_status()
        server.stop()
        server.start()
        with server.client() as client:
            assert policy_of(client, sandbox) == ["deny a.org", "allow web"]


def test_sidecar_answers_like_that_of_opensandbox(client: httpx.Client, sandbox: str) -> None:
    sidecar = f"/v1/sandboxes/{sandbox}/proxy/{SIDECAR_PORT}"
    empty = client.get(f"{sidecar}/policy").json()
    assert (empty["status"], empty["mode"], empty["enforcementMode"]) == ("ok", "deny_all", "relay")
    assert empty["policy"] == {"defaultAction": "deny", "egress": []}
    policy = {"defaultAction": "allow", "egress": [{"action": "deny", "target": "x.org"}]}
    for method in ("POST", "PUT"):
        replaced = client.request(method, f"{sidecar}/policy", json=policy).json()
        assert (replaced["mode"], replaced["policy"]) == ("enforcing", policy)
    patched = client.patch(f"{sidecar}/policy", json=[{"action": "allow", "target": "y.org"}]).json()
    assert [rule["target"] for rule in patched["policy"]["egress"]] == ["y.org", "x.org"]
    deleted = client.request("DELETE", f"{sidecar}/policy", json=["x.org", "y.org", "z.org"]).json()
    assert (deleted["mode"], policy_of(client, sandbox)) == ("allow_all", ["allow open"])
    assert client.post(f"{sidecar}/policy").json()["mode"] == "deny_all"
    for bad in ({"content": b"{"}, {"json": [{"action": "allow", "target": "a b"}]}, {"json": [{"action": "ask"}]}):
        assert client.patch(f"{sidecar}/policy", **bad).status_code == 400
    disabled = client.get(f"{sidecar}/credential-vault")
    assert (disabled.status_code, disabled.json()["code"]) == (412, "VAULT_DISABLED")
    assert client.get(f"{sidecar}/other").status_code == 404


def test_endpoint_of_the_sidecar_has_a_token_of_its_own(server: Server, client: httpx.Client, sandbox: str) -> None:
    tokens = [
        client.get(f"/v1/sandboxes/{sandbox}/endpoints/{port}").json()["headers"]["X-EXECD-ACCESS-TOKEN"]
        for port in (44772, SIDECAR_PORT)
    ]
    sidecar = f"/v1/sandboxes/{sandbox}/proxy/{SIDECAR_PORT}"
    for token, status in zip(tokens, (401, 200), strict=True):
        with server.client("", **{"X-EXECD-ACCESS-TOKEN": token}) as holder:
            assert holder.put(f"{sidecar}/policy", json={}).status_code == status
    with server.client("", **{"X-EXECD-ACCESS-TOKEN": tokens[1]}) as holder:
        assert holder.get(f"/v1/sandboxes/{sandbox}/proxy/44772/ping").status_code == 401


def test_connections_are_listed_newest_first(server: Server, client: httpx.Client, sandbox: str) -> None:
    records = [
        ConnectionRecord(
            id=f"net-{n}-{sandbox}",
            sandbox=sandbox,
            tenant="default",
            started_at=START + timedelta(seconds=n),
            duration=1.23456,
            name="example.com",
            address="93.184.216.34" if n % 2 else None,
            port=443,
            sent=100,
            received=2000,
            allowed=bool(n % 2),
            refusal=None if n % 2 else ConnectionRefusal.NO_RULE,
        )
        for n in range(4)
    ]

    async def store_records() -> None:
        async with await Store.open(server.data / "paddock.db") as store:
            await store.write(ConnectionStore.insert_work(records))

    asyncio.run(store_records())
    path = f"/v1/sandboxes/{sandbox}/connections"
    first = client.get(path, params={"limit": 3}).json()
    assert [item["id"] for item in first["items"]] == [record.id for record in records[:0:-1]]
    assert first["items"][0] == {
        "id": records[3].id,
        "startedAt": "2026-01-02T03:04:08Z",
        "seconds": 1.235,
        "name": "example.com",
        "address": "93.184.216.34",
        "port": 443,
        "sentBytes": 100,
        "receivedBytes": 2000,
        "decision": "allowed",
        "open": False,
    }
    assert first["items"][1]["decision"] == "denied" and first["items"][1]["refusal"] == "no_rule"
    assert first["totals"] == [
        {"host": "example.com", "port": 443, "connections": 4, "denied": 2, "sentBytes": 400, "receivedBytes": 8000}
    ]
    rest = client.get(path, params={"before": first["next"]}).json()
    assert [item["id"] for item in rest["items"]] == [records[0].id] and rest.keys() == {"items"}
    denied = client.get(path, params={"decision": "denied"}).json()["items"]
    assert [item["id"] for item in denied] == [records[2].id, records[0].id]
    assert client.get(path, params={"open": True}).json()["items"] == []
    for wrong in ({"decision": "maybe"}, {"before": "net-x"}, {"limit": 0}):
        assert client.get(path, params=wrong).status_code == 400
    client.delete(f"/v1/sandboxes/{sandbox}").raise_for_status()
    assert len(client.get(path).json()["items"]) == 4
    assert client.get("/v1/sandboxes/sb-none/connections").status_code == 404
    stranger = client.post("/v1/keys", json={"name": "stranger", "tenant": "strangers"}).json()["secret"]
    with server.client(stranger) as foreign:
        assert foreign.get(path).status_code == 404
