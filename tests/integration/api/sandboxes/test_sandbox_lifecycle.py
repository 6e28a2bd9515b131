"""Creation, quotas, states and errors of sandboxes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import create_sandbox
from tests.support.server import DAEMON_PORT, Server, eventually, run_in_sandbox, run_server


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"quotas": {"tenants": {"small": {"sandboxes": 2, "snapshots": 1}}}}


@pytest.fixture
def limited_client(server: Server, client: httpx.Client) -> Iterator[httpx.Client]:
    secret = client.post("/v1/keys", json={"name": "small", "tenant": "small"}).json()["secret"]
    with server.client(secret) as http_client:
        yield http_client
        for item in http_client.get("/v1/sandboxes").json()["items"]:
            http_client.delete(f"/v1/sandboxes/{item['id']}")


def test_created_sandbox_is_running(client: httpx.Client) -> None:
    body = {"timeout": None, "metadata": {"a": "1"}, "env": {"A": "2", "B": None}, "resourceLimits": {"cpu": "500m"}}
    response = client.post("/v1/sandboxes", json=body)
    sandbox = response.json()
    assert response.status_code == 202 and sandbox["status"]["state"] == "Running"
    assert sandbox["metadata"] == {"a": "1"} and "expiresAt" not in sandbox
    assert run_in_sandbox(client, sandbox["id"], "echo $A")[0] == "2"
    assert client.get(f"/v1/sandboxes/{sandbox['id']}").json()["id"] == sandbox["id"]
    assert client.delete(f"/v1/sandboxes/{sandbox['id']}").status_code == 204
    assert client.delete(f"/v1/sandboxes/{sandbox['id']}").status_code == 404


@pytest.mark.parametrize("body", [{"user": "root"}, {"extensions": {"paddock.user": "root"}}])
def test_programs_can_run_as_root(client: httpx.Client, body: dict[str, Any]) -> None:
    sandbox = client.post("/v1/sandboxes", json=body).json()
    assert client.get(f"/v1/sandboxes/{sandbox['id']}").json()["extensions"]["paddock.user"] == "root"
    assert run_in_sandbox(client, sandbox["id"], "id -un; touch /etc/mine && stat -c %U /etc/mine")[0] == "root\nroot"
    snapshot = client.post(f"/v1/sandboxes/{sandbox['id']}/snapshots").json()["id"]
    eventually(lambda: client.get(f"/v1/snapshots/{snapshot}").json()["status"]["state"] == "Ready")
    restored = client.post("/v1/sandboxes", json={"snapshotId": snapshot}).json()
    assert run_in_sandbox(client, restored["id"], "id -un; stat -c %U /etc/mine")[0] == "root\nroot"
    for each in (sandbox, restored):
        client.delete(f"/v1/sandboxes/{each['id']}")
    client.delete(f"/v1/snapshots/{snapshot}")


@pytest.mark.parametrize("body", [{"user": "agent"}, {"extensions": {"paddock.user": "agent"}}])
def test_only_root_can_be_chosen_as_user(client: httpx.Client, body: dict[str, Any]) -> None:
    assert client.post("/v1/sandboxes", json=body).status_code in (400, 422)


def test_omitted_timeout_differs_from_null(client: httpx.Client) -> None:
    sandbox = client.post("/v1/sandboxes", json={}).json()
    assert "expiresAt" in sandbox
    client.delete(f"/v1/sandboxes/{sandbox['id']}")


def test_same_idempotency_key_creates_one_sandbox(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": "order-17"}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.post("/v1/sandboxes", json={}, headers=headers), range(8)))
    assert {response.status_code for response in answers} == {202}
    ids = {response.json()["id"] for response in answers}
    assert len(ids) == 1
    assert {response.json()["status"]["state"] for response in answers} == {"Running"}
    again = client.post("/v1/sandboxes", json={"extensions": {"requestKey": "order-17"}}).json()
    assert {again["id"]} == ids
    differing = {"extensions": {"requestKey": "another"}}
    assert client.post("/v1/sandboxes", json=differing, headers=headers).status_code == 400
    client.delete(f"/v1/sandboxes/{again['id']}")


def test_quotas_limit_sandboxes_and_snapshots(limited_client: httpx.Client) -> None:
    sandboxes = [create_sandbox(limited_client), create_sandbox(limited_client)]
    response = limited_client.post("/v1/sandboxes", json={})
    assert (response.status_code, response.json()["code"]) == (429, "QUOTA_EXCEEDED")
    assert int(response.headers["Retry-After"]) > 0
    snapshot = limited_client.post(f"/v1/sandboxes/{sandboxes[0]}/snapshots").json()["id"]
    eventually(lambda: limited_client.get(f"/v1/snapshots/{snapshot}").json()["status"]["state"] == "Ready")
    assert limited_client.post(f"/v1/sandboxes/{sandboxes[0]}/snapshots").status_code == 429
    limited_client.delete(f"/v1/snapshots/{snapshot}")
    limited_client.delete(f"/v1/sandboxes/{sandboxes[0]}")
    create_sandbox(limited_client)


def test_quotas_hold_under_concurrent_requests(limited_client: httpx.Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: limited_client.post("/v1/sandboxes", json={}).status_code, range(8)))
    assert sorted(answers) == [202, 202, *[429] * 6]


def test_pool_serves_sandboxes(client: httpx.Client) -> None:
    template = {"spec": {"containers": [{"image": "host", "resources": {"limits": {"memory": "256Mi"}}}]}}
    capacity = {"bufferMax": 1, "bufferMin": 0, "poolMax": 5, "poolMin": 0}
    body = {"name": "warm", "template": template, "capacitySpec": capacity}
    created = client.post("/v1/pools", json=body)
    assert created.status_code == 201
    assert created.json()["capacitySpec"]["poolMax"] == 5
    assert client.post("/v1/pools", json=body).status_code == 409
    eventually(lambda: client.get("/v1/pools/warm").json()["status"]["available"] == 1)
    sandbox = client.post("/v1/sandboxes", json={"extensions": {"poolRef": "warm"}, "env": {"WHO": "me"}}).json()
    assert client.get(f"/v1/sandboxes/{sandbox['id']}").json()["allocation"]["poolRef"] == "warm"
    assert run_in_sandbox(client, sandbox["id"], "echo $WHO")[0] == "me"
    assert client.get("/v1/pools/warm").json()["status"]["allocated"] == 1
    resized = client.put("/v1/pools/warm", json={"capacitySpec": {**capacity, "bufferMax": 0}})
    assert resized.json()["capacitySpec"]["bufferMax"] == 0
    resized = client.put("/v1/pools/warm", json={"capacitySpec": {"bufferMax": 0}})
    assert resized.json()["capacitySpec"]["poolMax"] == 5
    assert [item["name"] for item in client.get("/v1/pools").json()["items"]] == ["warm"]
    assert client.delete("/v1/pools/warm").status_code == 204
    assert client.get("/v1/pools/warm").status_code == 404
    assert client.post("/v1/sandboxes", json={"extensions": {"poolRef": "warm"}}).status_code == 404
    client.delete(f"/v1/sandboxes/{sandbox['id']}")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Bad Name"},
        {"template": {}},
        {"template": {"spec": {"containers": []}}},
        {"template": {"spec": {"containers": [{"image": ""}]}}},
        {"template": {"spec": {"containers": [{"image": "host", "resources": {"limits": {"gpu": 1}}}]}}},
        {"capacitySpec": {"bufferMax": 1, "bufferMin": 2, "poolMax": 5, "poolMin": 0}},
        {"capacitySpec": {"bufferMax": 100_000}},
    ],
)
def test_invalid_pools_are_rejected(client: httpx.Client, change: dict[str, Any]) -> None:
    good = {"template": {"spec": {"containers": [{"image": "host"}]}}, "capacitySpec": {"bufferMax": 0}}
    response = client.post("/v1/pools", json={"name": "bad", **good, **change})
    assert response.status_code == 400, response.text


def test_metadata_is_patched_and_filtered(client: httpx.Client) -> None:
    sandbox = create_sandbox(client, metadata={"team": "a", "example.org/app": "web"})
    patched = client.patch(f"/v1/sandboxes/{sandbox}/metadata", json={"team": None, "stage": "x"}).json()
    assert patched["metadata"] == {"stage": "x", "example.org/app": "web"}
    found = client.get("/v1/sandboxes", params={"metadata": "example.org%2Fapp=web&stage=x", "state": "Running"})
    assert [item["id"] for item in found.json()["items"]] == [sandbox]
    assert found.json()["pagination"]["totalItems"] == 1
    assert client.get("/v1/sandboxes?state=Nope").json()["items"] == []
    either = client.get("/v1/sandboxes", params={"state": ["Nope", "Running"], "metadata": "stage=x"}).json()
    assert [item["id"] for item in either["items"]] == [sandbox]
    assert client.get("/v1/snapshots?state=Nope").json()["items"] == []
    assert client.get("/v1/sandboxes?metadata=stage%3Dy").json()["items"] == []
    assert client.patch(f"/v1/sandboxes/{sandbox}/metadata", json={"a b": "c"}).status_code == 400
    client.delete(f"/v1/sandboxes/{sandbox}")


def test_actions_in_wrong_states_are_refused(client: httpx.Client) -> None:
    sandbox = create_sandbox(client)
    assert client.post(f"/v1/sandboxes/{sandbox}/resume").status_code == 409
    assert client.post(f"/v1/sandboxes/{sandbox}/pause").status_code == 202
    assert client.post(f"/v1/sandboxes/{sandbox}/pause").status_code == 409
    client.delete(f"/v1/sandboxes/{sandbox}")


def test_endpoints_are_returned(server: Server, client: httpx.Client, sandbox: str) -> None:
    near = client.get(f"/v1/sandboxes/{sandbox}/endpoints/{DAEMON_PORT}").json()
    response = httpx.get(f"http://{near['endpoint']}/ping", headers=near["headers"])
    assert response.status_code == 200
    proxied = client.get(f"/v1/sandboxes/{sandbox}/endpoints/8000?use_server_proxy=true").json()
    assert proxied == {"endpoint": f"{server.domain}/v1/sandboxes/{sandbox}/proxy/8000"}
    assert client.get(f"/v1/sandboxes/{sandbox}/endpoints/8000?expires=5").status_code == 400
    policy = client.get(f"/v1/sandboxes/{sandbox}/endpoints/18080").json()
    assert policy["endpoint"].endswith("/proxy/18080")
    assert httpx.get(f"http://{policy['endpoint']}/policy", headers=policy["headers"]).status_code == 200


def test_images_are_listed_and_opensandbox_stubs_exist(client: httpx.Client, sandbox: str) -> None:
    images = client.get("/v1/images").json()
    assert "host" in images["known"] and "host" in [item["name"] for item in images["items"]]
    assert client.get("/v1/images/host").json()["kind"] == "host"
    assert client.get("/v1/images/docker.io/library/none:1").status_code == 404
    assert client.get("/v1/templates").json()["items"] == []
    assert client.post("/v1/templates", json={"image": "x", "publish": "y"}).json()["code"] == "UNSUPPORTED"
    event = {"eventType": "sandbox.create", "createDurationMs": 5, "success": True}
    assert client.post("/v1/metrics/events", json=event).status_code == 204
    text = client.get(f"/v1/sandboxes/{sandbox}/diagnostics/summary").text
    assert "INSPECT" in text and sandbox in text


def test_full_host_refuses_new_sandboxes(tmp_path: Path) -> None:
    settings = {"sandboxes": {"min_free_disk": "999Ti"}}
    with run_server(tmp_path, settings) as server, server.client() as client:
        response = client.post("/v1/sandboxes", json={})
        assert (response.status_code, response.json()["code"]) == (503, "HOST_FULL")
        assert int(response.headers["Retry-After"]) > 0
