"""Signing in at an MCP server through a real server: its API, the pages in the browser, and the commands."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock.config.schema import ServerConfig
from tests.support.fake_sign_in_server import FakeSignInServer, fake_sign_in_server
from tests.support.mcp_edge_client import stateless_headers, stateless_message
from tests.support.server import PADDOCK_COMMAND, Server, run_server

LOGIN = "/v1/mcp/servers/suite/login"
CALLBACK = "/v1/mcp/oauth/callback"


@pytest.fixture(scope="module")
def module_fake() -> Iterator[FakeSignInServer]:
    with fake_sign_in_server() as fake:
        yield fake


@pytest.fixture
def fake(module_fake: FakeSignInServer) -> FakeSignInServer:
    module_fake.reset()
    return module_fake


@pytest.fixture(scope="module")
def server(module_fake: FakeSignInServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    servers = [
        {"name": "suite", "kind": "internet", "url": module_fake.url},
        {"name": "shared", "kind": "internet", "url": module_fake.url, "oauth": {"per": "tenant"}},
        {"name": "plain", "url": module_fake.url},
    ]
    with run_server(tmp_path_factory.mktemp("oauth"), {"mcp": {"allow": ["127.0.0.1"], "servers": servers}}) as server:
        yield server


@pytest.fixture(autouse=True)
def _signed_out(server: Server, fake: FakeSignInServer) -> None:
    with server.client() as client:
        for name in ("suite", "shared"):
            client.delete(f"/v1/mcp/servers/{name}/login").raise_for_status()
    fake.reset()


def browse(url: str, language: str = "en") -> httpx.Response:
    """Open the page of the authorization server, and follow it back, without any key."""
    return httpx.get(url, follow_redirects=True, headers={"Accept-Language": language}, trust_env=False)


def answer_page(server: Server, page: httpx.Response, answer: str = "continue") -> httpx.Response:
    secret = page.text.split('name="confirm" value="')[1].split('"')[0]
    return httpx.post(f"{server.url}{CALLBACK}", data={"confirm": secret, "answer": answer}, trust_env=False)


def call(client: httpx.Client) -> httpx.Response:
    params = {"name": "whoami", "arguments": {}}
    return client.post(
        "/mcp/suite", json=stateless_message("tools/call", params), headers=stateless_headers("tools/call", params)
    )


def test_a_user_signs_in_and_out(server: Server, fake: FakeSignInServer) -> None:
    with server.client() as client:
        refused = call(client)
        assert refused.status_code == 409 and "paddock mcp login suite" in refused.json()["error"]["message"]
        before = client.get(LOGIN).json()
        assert before == {"needed": True, "per": "user", "signedIn": False, "scopes": []} | _nulls(before)
        started = client.post(LOGIN)
        assert started.status_code == 201 and client.get(LOGIN).json()["last"]["state"] == "pending"
        page = browse(started.json()["url"])
        assert page.status_code == 200 and "Connect suite to Paddock?" in page.text and fake.issuer in page.text
        assert not fake.requests_to("/token")  # Not before the person in the browser has confirmed.
        done = answer_page(server, page)
        assert done.status_code == 200 and "Signed in" in done.text
        state = client.get(LOGIN).json()
        assert state["signedIn"] and state["account"] == "ada@example.org" and state["last"]["state"] == "done"
        assert call(client).json()["result"]["content"][0]["text"].startswith("token ")
        assert client.delete(LOGIN).json() == {"revoked": True}
        assert call(client).status_code == 409 and not fake.access_tokens.keys() & fake.refresh_tokens


def _nulls(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is None}


def test_the_key_of_paddock_and_the_tokens_stay_where_they_belong(server: Server, fake: FakeSignInServer) -> None:
    with server.client() as client:
        answer_page(server, browse(client.post(LOGIN).json()["url"]))
        assert call(client).status_code == 200
        shown = client.get("/v1/mcp/calls").text + client.get("/v1/mcp/servers").text + client.get(LOGIN).text
    secrets = [*fake.access_tokens, *fake.refresh_tokens]
    assert secrets and not [each for each in secrets if each in shown + server.log()]
    assert not [each for each in fake.seen if server.key in json.dumps([each.headers, each.fields])]
    assert {each.headers.get("Authorization") for each in fake.requests_to("/mcp")} - {None} == {
        f"Bearer {token}" for token in fake.access_tokens
    }


def test_pages_are_safe_and_in_two_languages(server: Server, fake: FakeSignInServer) -> None:
    with server.client() as client:
        page = browse(client.post(LOGIN).json()["url"], "zh-CN,zh;q=0.9")
        assert "将 suite 连接到 Paddock" in page.text and 'lang="zh-CN"' in page.text
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "script" not in page.text
        assert page.headers["cache-control"] == "no-store" and page.headers["referrer-policy"] == "no-referrer"
        assert "Not signed in" in answer_page(server, page, "cancel").text
        assert client.get(LOGIN).json()["last"]["state"] == "failed" and not fake.requests_to("/token")
        wrong = browse(f"{server.url}{CALLBACK}?state=<script>&code=1&error=<script>alert(1)</script>")
        assert wrong.status_code == 400 and "<script>" not in wrong.text
        twice = browse(f"{server.url}{CALLBACK}?state=a&state=b&code=1")
        assert twice.status_code == 400
        assert browse(f"{server.url}/v1/mcp/oauth/client.json").status_code == 404


def test_who_may_sign_in_for_a_tenant(server: Server, fake: FakeSignInServer) -> None:
    with server.client() as client:
        user = client.post("/v1/keys", json={"name": "user", "scopes": ["mcp:use"]}).json()["secret"]
        assert client.post("/v1/mcp/servers/plain/login").status_code == 409
    with server.client(user) as client:
        assert client.post("/v1/mcp/servers/shared/login").status_code == 403
        assert client.delete("/v1/mcp/servers/shared/login").status_code == 403
        assert client.get("/v1/mcp/servers/shared/login").json()["per"] == "tenant"
        assert client.post(LOGIN).status_code == 201
    with server.client("") as client:
        assert client.post(LOGIN).status_code == 401


def test_a_login_from_the_command_line(server: Server, fake: FakeSignInServer) -> None:
    environment = {"PATH": os.environ["PATH"], "PADDOCK_URL": server.url, "PADDOCK_API_KEY": server.key}
    command = [str(PADDOCK_COMMAND), "mcp"]
    with subprocess.Popen(
        [*command, "login", "suite", "--print"],
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None and running.stdout is not None
        link = next(line.strip() for line in running.stderr if line.startswith("http"))
        answer_page(server, browse(link))
        assert running.wait(20) == 0
        assert "Signed in at suite as ada@example.org" in running.stdout.read()
    for words, shown in (
        (("login", "suite", "--status", "--json"), '"signedIn": true'),
        (("logout", "suite"), "Signed out at suite; the tokens are revoked"),
        (("login", "suite", "--status"), "Not signed in at suite"),
    ):
        done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and shown in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("url", ["ftp://a.example", "a.example", "https://a.example?x=1", "https://"])
def test_public_url_is_an_address(url: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        ServerConfig(public_url=url)


def test_the_client_document_of_a_public_server(tmp_path: Path) -> None:
    settings = {"server": {"public_url": "https://paddock.example.com/"}}
    with run_server(tmp_path, settings) as server:
        document = browse(f"{server.url}/v1/mcp/oauth/client.json").json()
    assert document["client_id"] == "https://paddock.example.com/v1/mcp/oauth/client.json"
    assert document["redirect_uris"] == ["https://paddock.example.com/v1/mcp/oauth/callback"]
    assert document["application_type"] == "web" and document["client_name"] == "Paddock"
