"""Which keys are accepted, and what each scope allows."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.integration.api.conftest import create_sandbox
from tests.support.server import DAEMON_PORT, Server, eventually, run_in_sandbox

CORS_ORIGIN = "https://console.example"
ROUTES = [
    ("GET", ""),
    ("DELETE", ""),
    ("PATCH", "/metadata"),
    ("POST", "/pause"),
    ("POST", "/resume"),
    ("POST", "/renew-expiration"),
    ("POST", "/snapshots"),
    ("GET", "/endpoints/44772"),
    ("GET", "/diagnostics/logs"),
    ("GET", "/diagnostics/events"),
    ("GET", "/diagnostics/inspect"),
    ("GET", "/diagnostics/summary"),
    ("GET", "/networkpolicy"),
    ("PUT", "/networkpolicy"),
    ("PATCH", "/networkpolicy"),
    ("DELETE", "/networkpolicy"),
    ("GET", "/network"),
    ("PUT", "/network"),
    ("PATCH", "/network"),
    ("GET", "/connections"),
    ("GET", "/events"),
    ("GET", "/proxy/44772/ping"),
    ("POST", "/proxy/44772/command"),
    ("GET", "/proxy/8000/"),
    ("GET", "/proxy/18080/policy"),
]
BODIES = {
    "/metadata": {"a": "b"},
    "/network": {"policy": "none"},
    "/renew-expiration": {"expiresAt": (datetime.now(UTC) + timedelta(hours=1)).isoformat()},
    "/proxy/44772/command": {"command": "true"},
}


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"server": {"allowed_hosts": ["box.example", "*.wild.example"], "cors_origins": [CORS_ORIGIN]}}


def request_body(method: str, path: str) -> object:
    if path == "/networkpolicy" and method in ("PATCH", "DELETE"):
        return []
    if (method, path) == ("PATCH", "/network"):
        return {"deny": ["a.org"]}
    return BODIES.get(path, {})


def send_request(client: httpx.Client, method: str, sandbox: str, path: str) -> httpx.Response:
    json = request_body(method, path) if method != "GET" else None
    return client.request(method, f"/v1/sandboxes/{sandbox}{path}", json=json)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_requests_without_a_key_are_refused(server: Server, sandbox: str, method: str, path: str) -> None:
    with server.client("") as anonymous:
        response = send_request(anonymous, method, sandbox, path)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert response.json()["code"] == "UNAUTHORIZED"


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_sandbox_of_another_tenant_does_not_exist(stranger: httpx.Client, sandbox: str, method: str, path: str) -> None:
    response = send_request(stranger, method, sandbox, path)
    assert response.status_code == 404, response.text
    assert response.json()["code"] == "SANDBOX_NOT_FOUND"


@pytest.mark.parametrize("path", ["proxy/44772/pty/x/ws", "proxy/8000/"])
def test_websockets_need_a_key_of_the_tenant(server: Server, stranger: httpx.Client, sandbox: str, path: str) -> None:
    address = f"{server.url.replace('http', 'ws')}/v1/sandboxes/{sandbox}/{path}"
    with pytest.raises(InvalidStatus) as refused, connect(address):
        pass
    assert refused.value.response.status_code == 401
    secret = stranger.headers["Authorization"].removeprefix("Bearer ")
    with pytest.raises(InvalidStatus) as refused, connect(f"{address}?token={secret}"):
        pass
    assert refused.value.response.status_code == 404


def test_tenants_see_only_their_own_resources(client: httpx.Client, stranger: httpx.Client, sandbox: str) -> None:
    assert stranger.get("/v1/sandboxes").json()["items"] == []
    kept = client.post(f"/v1/sandboxes/{sandbox}/snapshots", json={}).json()["id"]
    eventually(lambda: client.get(f"/v1/snapshots/{kept}").json()["status"]["state"] == "Ready")
    assert stranger.get("/v1/snapshots").json()["items"] == []
    assert stranger.get(f"/v1/snapshots/{kept}").status_code == 404
    assert stranger.delete(f"/v1/snapshots/{kept}").status_code == 404
    assert stranger.post("/v1/sandboxes", json={"snapshotId": kept}).status_code == 404
    assert client.delete(f"/v1/snapshots/{kept}").status_code == 204
    page = stranger.get("/v1/events", headers={"Accept": "application/json"}).json()
    assert page["items"] == []


@pytest.mark.parametrize("secret", ["nonsense", "pdk_" + "0" * 43, "ä"])
def test_wrong_keys_are_refused(server: Server, secret: str) -> None:
    response = httpx.get(f"{server.url}/v1/sandboxes", headers=[(b"Authorization", f"Bearer {secret}".encode())])
    assert response.status_code == 401


def test_both_headers_are_accepted(server: Server) -> None:
    for headers in ({"OPEN-SANDBOX-API-KEY": server.key}, {"authorization": f"bearer {server.key}"}):
        assert httpx.get(f"{server.url}/v1/sandboxes", headers=headers).status_code == 200
    assert httpx.get(f"{server.url}/v1/sandboxes?token={server.key}").status_code == 401


def test_revoked_and_expired_keys_are_refused(server: Server, client: httpx.Client) -> None:
    made = client.post("/v1/keys", json={"name": "short"}).json()
    with server.client(made["secret"]) as short:
        assert short.get("/v1/sandboxes").status_code == 200
        assert client.delete(f"/v1/keys/{made['id']}").status_code == 204
        response = short.get("/v1/sandboxes")
    assert response.status_code == 401 and "revoked" in response.json()["message"]
    soon = (datetime.now(UTC) + timedelta(seconds=0.3)).isoformat()
    made = client.post("/v1/keys", json={"name": "soon", "expiresAt": soon}).json()
    with server.client(made["secret"]) as short:
        eventually(lambda: short.get("/v1/sandboxes").status_code == 401)
        assert "expired" in short.get("/v1/sandboxes").json()["message"]


def test_scopes_limit_keys(server: Server, client: httpx.Client, sandbox: str) -> None:
    secret = client.post("/v1/keys", json={"name": "eyes", "scopes": ["sandboxes:read", "tenant:all"]}).json()["secret"]
    with server.client(secret) as reader:
        assert reader.get(f"/v1/sandboxes/{sandbox}").status_code == 200
        for response in (
            reader.post("/v1/sandboxes", json={}),
            reader.delete(f"/v1/sandboxes/{sandbox}"),
            reader.get(f"/v1/sandboxes/{sandbox}/endpoints/{DAEMON_PORT}"),
            reader.post(f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/command", json={"command": "true"}),
            reader.get("/v1/keys"),
            reader.post("/v1/keys", json={"name": "more"}),
        ):
            assert (response.status_code, response.json()["code"]) == (403, "FORBIDDEN")


def test_keys_cannot_grant_missing_scopes(server: Server, client: httpx.Client) -> None:
    body = {"name": "boss", "tenant": "other", "scopes": ["keys:admin"]}
    key = client.post("/v1/keys", json=body).json()
    assert key["secret"].startswith(key["prefix"])
    with server.client(key["secret"]) as boss:
        assert boss.post("/v1/keys", json={"name": "x", "scopes": ["admin"]}).status_code == 403
        assert boss.post("/v1/keys", json={"name": "x", "tenant": "default"}).status_code == 403
        assert {item["tenant"] for item in boss.get("/v1/keys").json()["items"]} == {"other"}
        foreign = client.get("/v1/keys", params={"tenant": "default"}).json()["items"][0]["id"]
        assert boss.get(f"/v1/keys/{foreign}").status_code == 404
        assert boss.delete(f"/v1/keys/{foreign}").status_code == 404
        own = boss.get(f"/v1/keys/{key['id']}").json()
    assert "secret" not in own and own["name"] == "boss"


def test_daemon_token_opens_only_its_own_daemon(server: Server, client: httpx.Client, sandbox: str) -> None:
    token = client.get(f"/v1/sandboxes/{sandbox}/endpoints/{DAEMON_PORT}").json()["headers"]["X-EXECD-ACCESS-TOKEN"]
    other = create_sandbox(client)
    with server.client("", **{"X-EXECD-ACCESS-TOKEN": token}) as holder:
        assert run_in_sandbox(holder, sandbox, "echo in")[0] == "in"
        # A program in the sandbox that learns the daemon's token cannot change its own network policy.
        assert holder.get(f"/v1/sandboxes/{sandbox}/proxy/18080/policy").status_code == 401
        assert holder.get(f"/v1/sandboxes/{sandbox}/proxy/8000/").status_code == 401
        assert holder.get(f"/v1/sandboxes/{other}/proxy/{DAEMON_PORT}/ping").status_code == 401
        assert holder.get(f"/v1/sandboxes/sb-none/proxy/{DAEMON_PORT}/ping").status_code == 401
        assert holder.get("/v1/sandboxes").status_code == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("127.9.9.9:80", 200),
        ("[::1]:8420", 200),
        ("box.example:8420", 200),
        ("a.wild.example", 200),
        ("wild.example", 421),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
        ("localhost.evil.example", 421),
        ("", 421),
    ],
)
def test_unknown_host_names_are_refused(server: Server, host: str, status: int) -> None:
    """A web page under a host name that resolves to the server (DNS rebinding) is refused."""
    address, port = server.domain.split(":")
    with socket.create_connection((address, int(port))) as raw:
        raw.sendall(f"GET /v1/health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert raw.makefile("rb").readline().split()[1] == str(status).encode()


def test_configured_origins_may_call(server: Server, client: httpx.Client, sandbox: str) -> None:
    preflight = {"Access-Control-Request-Method": "DELETE", "Access-Control-Request-Headers": "authorization"}
    with server.client("") as anonymous:
        for path in (f"/v1/sandboxes/{sandbox}", f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/ping"):
            response = anonymous.options(path, headers={"Origin": CORS_ORIGIN, **preflight})
            assert response.status_code == 200 and response.headers["Access-Control-Allow-Origin"] == CORS_ORIGIN
            refused = anonymous.options(path, headers={"Origin": "https://evil.example", **preflight})
            assert "Access-Control-Allow-Origin" not in refused.headers
    allowed = client.get("/v1/sandboxes", headers={"Origin": CORS_ORIGIN})
    assert allowed.headers["Access-Control-Allow-Origin"] == CORS_ORIGIN
    assert "Access-Control-Allow-Origin" not in client.get("/v1/sandboxes", headers={"Origin": "https://x"}).headers


def test_public_paths_and_security_headers(server: Server) -> None:
    with server.client("") as anonymous:
        for path in ("/health", "/healthz", "/readyz", "/version", "/v1/health", "/v1/version", "/docs"):
            response = anonymous.get(path)
            assert response.status_code == 200, path
            assert response.headers["X-Content-Type-Options"] == "nosniff"
        page = anonymous.get("/docs")
        assert "/v1/sandboxes" in page.text and "<script" not in page.text and "http://" not in page.text
        assert anonymous.get("/version").json()["name"] == "paddock"
        named = anonymous.get("/health", headers={"X-Request-ID": "mine-1"})
        assert named.headers["X-Request-ID"] == "mine-1"
        assert "server" not in named.headers


def test_secrets_are_not_logged(server: Server, client: httpx.Client, sandbox: str) -> None:
    token = client.get(f"/v1/sandboxes/{sandbox}/endpoints/{DAEMON_PORT}").json()["headers"]["X-EXECD-ACCESS-TOKEN"]
    client.get("/v1/sandboxes", params={"token": server.key})
    log = server.log()
    assert '"path": "/v1/sandboxes"' in log
    assert server.key not in log and token not in log
