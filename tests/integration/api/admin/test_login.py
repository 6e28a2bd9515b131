"""Browser logins, and attempts to misuse them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.integration.api.conftest import create_sandbox
from tests.integration.api.sandboxes.test_port_proxy import upload_file
from tests.support.server import DAEMON_PORT, Server, eventually, run_in_sandbox

CORS_ORIGIN = "https://console.example"
CONSOLE_HEADER = {"X-Paddock-Console": "1"}
"""Marks a request of the console; only the proof of a login identifies the user."""
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"server": {"cors_origins": [CORS_ORIGIN]}}


def open_logged_in_client(server: Server, **body: str) -> httpx.Client:
    """Sign in and return a client with the session cookie and the proof that the console stores."""
    response = httpx.post(f"{server.url}/v1/login", json=body or {"key": server.key})
    assert response.status_code == 200, response.text
    proof = {"X-Paddock-Console": response.json()["proof"]}
    return httpx.Client(base_url=server.url, cookies=response.cookies, headers=proof, timeout=60.0, trust_env=False)


@pytest.fixture
def browser(server: Server) -> Iterator[httpx.Client]:
    with open_logged_in_client(server) as client:
        yield client


def session_cookie(browser: httpx.Client) -> str:
    return str(browser.cookies["paddock_session"])


def test_login_returns_the_identity(server: Server) -> None:
    response = httpx.post(f"{server.url}/v1/login", json={"key": f" {server.key}\n"})
    assert response.status_code == 200
    me = response.json()
    assert (me["name"], me["tenant"], me["scopes"], me["login"]) == ("local", "default", ["admin"], True)
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith("paddock_session=pds_")
    assert all(word in cookie.split("; ") for word in ("HttpOnly", "SameSite=Strict", "Path=/"))
    assert "Secure" not in cookie and server.key not in cookie and response.headers["Cache-Control"] == "no-store"


def test_cookie_is_secure_behind_tls(server: Server) -> None:
    own = f"https://{server.domain}"
    response = httpx.post(f"{server.url}/v1/login", json={"key": server.key}, headers={"Origin": own})
    assert response.headers["Set-Cookie"].endswith("; Secure")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"key": "pdk_x", "code": "pdc_x"}, 400),
        ({"key": ""}, 400),
        ({"key": "x" * 300}, 400),
        ({"key": "nonsense"}, 401),
        ({"code": "nonsense"}, 401),
        ({"other": "x"}, 400),
    ],
)
def test_invalid_logins_are_refused(server: Server, body: dict[str, str], status: int) -> None:
    response = httpx.post(f"{server.url}/v1/login", json=body, headers=CONSOLE_HEADER)
    assert response.status_code == status
    assert "Set-Cookie" not in response.headers and "WWW-Authenticate" not in response.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://127.0.0.1:1", **CONSOLE_HEADER},
        {"Origin": "null", **CONSOLE_HEADER},
        {"Origin": CORS_ORIGIN, **CONSOLE_HEADER},
        {"Sec-Fetch-Site": "same-site", **CONSOLE_HEADER},
        {"Sec-Fetch-Site": "cross-site", **CONSOLE_HEADER},
        SAME_ORIGIN,
    ],
)
def test_pages_of_other_origins_cannot_log_a_user_in(server: Server, headers: dict[str, str]) -> None:
    response = httpx.post(f"{server.url}/v1/login", json={"key": server.key}, headers=headers)
    assert response.status_code == 403 and "Set-Cookie" not in response.headers


def test_cookie_is_valid_only_with_proof(browser: httpx.Client) -> None:
    assert browser.get("/v1/me").json()["login"] is True
    assert browser.get("/v1/me", headers=SAME_ORIGIN).status_code == 200
    assert browser.post("/v1/tickets").status_code == 201
    for headers in (
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": CORS_ORIGIN},
        CONSOLE_HEADER,
    ):
        assert browser.get("/v1/me", headers=headers).status_code == 401
    del browser.headers["X-Paddock-Console"]
    for headers in ({}, SAME_ORIGIN, {"Origin": str(browser.base_url)}):
        refused = browser.get("/v1/me", headers=headers)
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_stolen_cookie_without_proof_is_refused(server: Server, browser: httpx.Client) -> None:
    with open_logged_in_client(server) as thief:
        stolen = {"Cookie": f"paddock_session={session_cookie(browser)}", **SAME_ORIGIN, "Origin": server.url}
        for proof in ({}, CONSOLE_HEADER, {"X-Paddock-Console": thief.headers["X-Paddock-Console"]}):
            assert httpx.get(f"{server.url}/v1/me", headers={**stolen, **proof}).status_code == 401


def test_refused_console_request_causes_no_password_prompt(server: Server) -> None:
    response = httpx.get(f"{server.url}/v1/me", headers={**CONSOLE_HEADER, "Cookie": "paddock_session=pds_old"})
    assert response.status_code == 401 and "WWW-Authenticate" not in response.headers


def test_key_takes_precedence_over_the_cookie(browser: httpx.Client) -> None:
    headers = {"Authorization": "Bearer pdk_wrong"}
    assert browser.get("/v1/me", headers=headers).status_code == 401


def test_logout_invalidates_the_session(browser: httpx.Client) -> None:
    session = session_cookie(browser)
    response = browser.post("/v1/logout")
    assert response.status_code == 204 and "Max-Age=0" in response.headers["Set-Cookie"]
    stolen = {"X-Paddock-Console": browser.headers["X-Paddock-Console"], "Cookie": f"paddock_session={session}"}
    assert httpx.get(f"{browser.base_url}/v1/me", headers=stolen).status_code == 401


def test_login_survives_a_restart_but_not_key_revocation(server: Server, client: httpx.Client) -> None:
    key = client.post("/v1/keys", json={"name": "passing", "scopes": ["sandboxes:read"]}).json()
    with open_logged_in_client(server, key=key["secret"]) as browser:
        assert browser.get("/v1/sandboxes").status_code == 200
        assert browser.post("/v1/sandboxes", json={}).status_code == 403
        port = int(server.domain.split(":")[1])
        server.stop()
        server.start(port)
        assert browser.get("/v1/sandboxes").status_code == 200
        client.delete(f"/v1/keys/{key['id']}")
        assert browser.get("/v1/sandboxes").status_code == 401


def test_login_code_works_once(server: Server, client: httpx.Client) -> None:
    code = client.post("/v1/login/codes").json()["code"]
    with open_logged_in_client(server, code=code) as browser:
        assert browser.get("/v1/me").json()["name"] == "local"
    again = httpx.post(f"{server.url}/v1/login", json={"code": code})
    assert again.status_code == 401
    assert httpx.post(f"{server.url}/v1/login/codes").status_code == 401
    assert code not in server.log() and server.key not in server.log()


def test_me_identifies_a_key(client: httpx.Client, stranger: httpx.Client) -> None:
    assert client.get("/v1/me").json()["login"] is False
    me = stranger.get("/v1/me").json()
    assert (me["name"], me["tenant"], me["scopes"]) == ("stranger", "other", ["sandboxes:write"])


def connect_with_cookie(server: Server, path: str, browser: httpx.Client, origin: str | None) -> Any:
    headers = {"Cookie": f"paddock_session={session_cookie(browser)}"}
    address = f"{server.url.replace('http', 'ws')}{path}"
    return connect(address, additional_headers=headers, origin=origin)  # type: ignore[arg-type]


def _receive_until_closed(connection: ClientConnection) -> None:
    while True:
        connection.recv(10)


@pytest.mark.parametrize("origin", [None, "null", "http://127.0.0.1:9", "http://localhost", CORS_ORIGIN, "own"])
def test_cookie_opens_no_websocket(server: Server, browser: httpx.Client, origin: str | None) -> None:
    origin = server.url if origin == "own" else origin
    with pytest.raises(InvalidStatus) as refused, connect_with_cookie(server, "/v1/screens", browser, origin):
        pass
    assert refused.value.response.status_code in (401, 403)


def test_console_websocket_closes_at_logout(
    server: Server, browser: httpx.Client, client: httpx.Client, sandbox: str
) -> None:
    path = f"/v1/sandboxes/{sandbox}/terminal"
    address = f"{server.url.replace('http', 'ws')}{path}"
    ticket, left = (browser.post("/v1/tickets").json()["ticket"] for _ in range(2))
    with connect(f"{address}?ticket={ticket}") as terminal:
        terminal.recv(10)
        browser.post("/v1/logout")
        with pytest.raises(ConnectionClosed) as closed:
            _receive_until_closed(terminal)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
    with pytest.raises(InvalidStatus), connect(f"{address}?ticket={left}"):
        pass


def test_cookie_allows_sandbox_file_requests(browser: httpx.Client, sandbox: str) -> None:
    """The cookie allows each file request of the console, and no others."""
    daemon = f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}"
    form: dict[str, tuple[str, str | bytes]] = {
        "metadata": ("metadata", json.dumps({"path": "/tmp/place/ä.txt"})),
        "file": ("file", b"line one\nline two\n"),
    }
    assert browser.post(f"{daemon}/directories", json={"/tmp/place": {"mode": 755}}).status_code == 200
    assert browser.post(f"{daemon}/files/upload", files=form).status_code == 200
    listed = browser.get(f"{daemon}/directories/list", params={"path": "/tmp/place"}).json()
    assert [entry["path"] for entry in listed] == ["/tmp/place/ä.txt"]
    found = browser.get(f"{daemon}/files/search", params={"path": "/tmp/place", "pattern": "*.txt"})
    assert [entry["path"] for entry in found.json()] == ["/tmp/place/ä.txt"]
    got = browser.get(f"{daemon}/files/download", params={"path": "/tmp/place/ä.txt"})
    assert got.content == b"line one\nline two\n" and "sandbox " in got.headers["Content-Security-Policy"]
    part = browser.get(f"{daemon}/files/download", params={"path": "/tmp/place/ä.txt"}, headers={"Range": "bytes=5-7"})
    assert (part.status_code, part.content) == (206, b"one")
    info = browser.get(f"{daemon}/files/info", params={"path": "/tmp/place/ä.txt"}).json()
    assert info["/tmp/place/ä.txt"]["size"] == 18
    moved = [{"src": "/tmp/place/ä.txt", "dest": "/tmp/place/b.txt"}]
    assert browser.post(f"{daemon}/files/mv", json=moved).status_code == 200
    tar = browser.get(f"{daemon}/archive", params={"path": "/tmp/place"})
    assert tar.status_code == 200 and b"b.txt" in tar.content
    assert browser.delete(f"{daemon}/files", params={"path": "/tmp/place/b.txt"}).status_code == 200
    assert browser.get(f"{daemon}/files/info?path=/tmp", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 401
    assert browser.post(f"{daemon}/command", json={"command": "true"}, headers=CONSOLE_HEADER).status_code == 401


def test_cookie_opens_no_websocket_into_a_sandbox(server: Server, browser: httpx.Client, sandbox: str) -> None:
    """A page of the sandbox itself would have the same origin as the console."""
    path = f"/v1/sandboxes/{sandbox}/proxy/8000/"
    with pytest.raises(InvalidStatus) as refused, connect_with_cookie(server, path, browser, server.url):
        pass
    assert refused.value.response.status_code == 401


HEADER_ECHO_PROGRAM = r"""
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(self.headers).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "paddock_session=pds_mine; Path=/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", 8123), Handler).serve_forever()
"""


def test_sandbox_neither_receives_nor_sets_the_cookie(
    server: Server, client: httpx.Client, browser: httpx.Client
) -> None:
    sandbox = create_sandbox(client)
    upload_file(client, sandbox, "/tmp/listen.py", HEADER_ECHO_PROGRAM.encode())
    run_in_sandbox(client, sandbox, "python3 /tmp/listen.py > /tmp/log 2>&1", background=True)
    path = f"/v1/sandboxes/{sandbox}/proxy/8123/"
    eventually(lambda: browser.get(path).status_code == 200)
    seen = browser.get(path)
    assert session_cookie(browser) not in seen.text and "paddock_session" not in seen.text
    assert "x-paddock-console" not in seen.text.lower() and "Set-Cookie" not in seen.headers
    own = browser.get(path, headers={"Cookie": f"paddock_session={session_cookie(browser)}; theirs=1"})
    assert "theirs=1" in own.text and "paddock_session" not in own.text
    client.delete(f"/v1/sandboxes/{sandbox}")


def test_model_routes_ignore_the_cookie(browser: httpx.Client) -> None:
    assert browser.get("/v1/models").status_code == 401
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hello."}]}
    assert browser.post("/v1/chat/completions", json=body).status_code == 401


def test_failed_logins_are_rate_limited(server: Server) -> None:
    statuses = [httpx.post(f"{server.url}/v1/login", json={"key": "nonsense"}).status_code for _ in range(12)]
    assert statuses[-1] == 429 and set(statuses) <= {401, 429}
