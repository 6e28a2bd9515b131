"""File transfer between sandboxes over HTTP."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import create_sandbox
from tests.support.server import Server, eventually, run_in_sandbox


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"sandboxes": {"min_free_disk": 0, "max_move": "32Mi"}, "kinds": {"linux": {"image": "host"}}}


@pytest.fixture(scope="module")
def two_sandboxes(client: httpx.Client) -> Iterator[tuple[str, str]]:
    sandboxes = create_sandbox(client), create_sandbox(client)
    yield sandboxes
    for each in sandboxes:
        client.delete(f"/v1/sandboxes/{each}")


def move_file(client: httpx.Client, source: str, path: Any, goal: str, target: str, **more: Any) -> httpx.Response:
    body = {"from": path, "to": {"sandbox": goal, "path": target}, **more}
    return client.post(f"/v1/sandboxes/{source}/move", json=body)


def test_file_is_copied_and_reported(client: httpx.Client, two_sandboxes: tuple[str, str]) -> None:
    a, b = two_sandboxes
    run_in_sandbox(client, a, "printf 你好 > /workspace/a.txt")
    response = move_file(client, a, "/workspace/a.txt", b, "/workspace/b.txt")
    assert response.status_code == 200, response.text
    assert response.json() == {
        "source": a,
        "sourcePath": "/workspace/a.txt",
        "destination": b,
        "destinationPath": "/workspace/b.txt",
        "type": "file",
        "size": 6,
        "sha256": hashlib.sha256("你好".encode()).hexdigest(),
        "kept": True,
    }
    assert run_in_sandbox(client, b, "cat /workspace/b.txt")[0] == "你好"
    for each in two_sandboxes:
        listed = client.get(f"/v1/sandboxes/{each}/events", headers={"Accept": "application/json"}).json()["items"]
        moved = [event for event in listed if event["type"] == "file.moved"]
        assert moved[-1]["data"]["sha256"] == response.json()["sha256"]


def test_move_without_keep_deletes_the_source(client: httpx.Client, two_sandboxes: tuple[str, str]) -> None:
    a, b = two_sandboxes
    run_in_sandbox(client, a, "mkdir -p /workspace/d && echo 1 > /workspace/d/one")
    assert move_file(client, a, "/workspace/d", b, "/workspace/e", keep=False).json()["kept"] is False
    assert run_in_sandbox(client, a, "test -e /workspace/d")[1] == 1
    assert run_in_sandbox(client, b, "cat /workspace/e/one")[0] == "1"


def test_move_progress_is_streamed(client: httpx.Client, two_sandboxes: tuple[str, str]) -> None:
    a, b = two_sandboxes
    run_in_sandbox(client, a, "truncate -s 20000000 /workspace/large")
    body = {"from": "/workspace/large", "to": {"sandbox": b, "path": "/workspace/large"}}
    headers = {"Accept": "application/x-ndjson"}
    response = client.post(f"/v1/sandboxes/{a}/move", json=body, headers=headers)
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert lines[-1]["done"]["size"] == 20_000_000
    assert all(line.keys() == {"moved", "total"} for line in lines[:-1])
    body["from"] = "/workspace/none"
    failed = client.post(f"/v1/sandboxes/{a}/move", json=body, headers=headers).text.splitlines()
    assert json.loads(failed[-1])["error"]["code"] == "NOT_FOUND"


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        ({}, 400, "from"),
        ({"from": "/a"}, 400, "to"),
        ({"from": "relative", "to": {"sandbox": "B", "path": "/x"}}, 400, "absolute"),
        ({"from": 5, "to": {"sandbox": "B", "path": "/x"}}, 400, "from"),
        ({"from": {"screenshot": False}, "to": {"sandbox": "B", "path": "/x"}}, 400, "from"),
        ({"from": {"screenshot": True}, "to": {"sandbox": "B", "path": "/x"}, "keep": False}, 400, "keep"),
        ({"from": "/etc/hostname", "to": {"sandbox": "B", "path": "/x"}, "maxSize": 2**40}, 400, "max_move"),
        ({"from": "/etc/hostname", "to": {"sandbox": "B", "path": "/x"}, "maxSize": -1}, 400, "maxSize"),
        ({"from": "/etc/hostname", "to": {"sandbox": "B", "path": "/x"}, "maxSize": 2}, 413, "at most 2"),
        ({"from": "/etc/hostname", "to": {"sandbox": "B", "path": "/x"}, "kep": True}, 400, "keep"),
        ({"from": "/etc/hostname", "to": {"sandbox": "none", "path": "/x"}}, 404, "none"),
        ({"from": "/none", "to": {"sandbox": "B", "path": "/x"}}, 404, "there is no"),
        ({"from": r"C:\x", "to": {"sandbox": "B", "path": "/x"}}, 400, "absolute"),
    ],
)
def test_invalid_moves_name_the_fix(
    client: httpx.Client, two_sandboxes: tuple[str, str], body: dict[str, Any], status: int, problem: str
) -> None:
    if body.get("to", {}).get("sandbox") == "B":
        body = {**body, "to": {**body["to"], "sandbox": two_sandboxes[1]}}
    response = client.post(f"/v1/sandboxes/{two_sandboxes[0]}/move", json=body)
    assert response.status_code == status, response.text
    assert problem in response.json()["message"]


def test_move_requires_write_scope_and_one_tenant(
    server: Server, client: httpx.Client, stranger: httpx.Client, two_sandboxes: tuple[str, str]
) -> None:
    body = {"name": "reader", "scopes": ["sandboxes:read"]}
    secret = client.post("/v1/keys", json=body).json()["secret"]
    with server.client(secret) as reader:
        assert move_file(reader, two_sandboxes[0], "/etc/hostname", two_sandboxes[1], "/workspace/x").status_code == 403
    theirs = create_sandbox(stranger)
    assert move_file(stranger, theirs, "/etc/hostname", two_sandboxes[1], "/workspace/x").status_code == 404
    assert move_file(client, two_sandboxes[0], "/etc/hostname", theirs, "/workspace/x").status_code == 404
    stranger.delete(f"/v1/sandboxes/{theirs}")


def test_kinds_are_listed(client: httpx.Client) -> None:
    kinds = {kind["name"]: kind for kind in client.get("/v1/kinds").json()["items"]}
    assert list(kinds) == ["code", "linux", "browser", "windows", "mobile"]
    assert kinds["windows"]["title"] == "Windows (Wine)" and kinds["windows"]["screen"]
    assert (kinds["linux"]["image"], kinds["linux"]["built"]) == ("host", True)
    assert kinds["browser"]["built"] is False


def test_kind_is_requested_by_extension(client: httpx.Client) -> None:
    sandbox = client.post("/v1/sandboxes", json={"extensions": {"paddock.kind": "linux"}}).json()
    assert sandbox["extensions"] == {"paddock.kind": "linux"}
    assert run_in_sandbox(client, sandbox["id"], "echo $PADDOCK_KIND")[0] == "linux"
    client.delete(f"/v1/sandboxes/{sandbox['id']}")
    wrong = client.post("/v1/sandboxes", json={"extensions": {"paddock.kind": "amiga"}})
    assert wrong.status_code == 400 and "known are: code, linux" in wrong.json()["message"]
    unbuilt = client.post("/v1/sandboxes", json={"extensions": {"paddock.kind": "browser"}})
    assert unbuilt.status_code == 404 and "paddock image build browser" in unbuilt.json()["message"]


def test_pool_of_a_kind_needs_no_template(client: httpx.Client) -> None:
    body: dict[str, Any] = {"name": "desks", "kind": "linux", "capacitySpec": {"bufferMax": 1}}
    assert client.post("/v1/pools", json=body).json()["kind"] == "linux"
    eventually(lambda: client.get("/v1/pools/desks").json()["status"]["available"] == 1)
    sandbox = client.post("/v1/sandboxes", json={"extensions": {"poolRef": "desks"}}).json()
    assert sandbox["allocation"]["poolRef"] == "desks" and sandbox["extensions"]["paddock.kind"] == "linux"
    client.delete(f"/v1/sandboxes/{sandbox['id']}")
    assert client.delete("/v1/pools/desks").status_code == 204
    neither = client.post("/v1/pools", json={"name": "none", "capacitySpec": {"bufferMax": 1}})
    assert neither.status_code == 400 and "or a kind" in neither.json()["message"]
