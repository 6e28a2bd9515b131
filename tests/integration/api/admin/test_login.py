"""Browser logins, and attempts to misuse them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.integration.api.conftest import create
from tests.integration.api.sandboxes.test_port_proxy import upload
from tests.support.server import DAEMON_PORT, Server, eventually, run_in_sandbox

ELSEWHERE = "https://console.example"
SIGN = {"X-Paddock-Console": "1"}
"""Says that it is the console; whose it is, only the proof of a login says."""
SAME = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"server": {"cors_origins": [ELSEWHERE]}}


def logged_in(server: Server, **body: str) -> httpx.Client:
    """A browser with the console in it: a cookie, and what the page has in its storage."""
    response = httpx.post(f"{server.url}/v1/login", json=body or {"key": server.key})
    assert response.status_code == 200, response.text
    proof = {"X-Paddock-Console": response.json()["proof"]}
    return httpx.Client(base_url=server.url, cookies=response.cookies, headers=proof, timeout=60.0, trust_env=False)


@pytest.fixture
def browser(server: Server) -> Iterator[httpx.Client]:
    with logged_in(server) as made:
        yield made


def session_of(browser: httpx.Client) -> str:
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


def test_behind_tls_the_cookie_is_for_tls_only(server: Server) -> None:
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
    response = httpx.post(f"{server.url}/v1/login", json=body, headers=SIGN)
    assert response.status_code == status
    assert "Set-Cookie" not in response.headers and "WWW-Authenticate" not in response.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://127.0.0.1:1", **SIGN},
        {"Origin": "null", **SIGN},
        {"Origin": ELSEWHERE, **SIGN},
        {"Sec-Fetch-Site": "same-site", **SIGN},
        {"Sec-Fetch-Site": "cross-site", **SIGN},
        SAME,
    ],
)
def test_pages_of_other_origins_cannot_log_a_user_in(server: Server, headers: dict[str, str]) -> None:
    response = httpx.post(f"{server.url}/v1/login", json={"key": server.key}, headers=headers)
    assert response.status_code == 403 and "Set-Cookie" not in response.headers


def test_the_cookie_counts_with_the_proof_only(browser: httpx.Client) -> None:
    assert browser.get("/v1/me").json()["login"] is True
    assert browser.get("/v1/me", headers=SAME).status_code == 200
    assert browser.post("/v1/tickets").status_code == 201
    for headers in ({"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"}, {"Origin": ELSEWHERE}, SIGN):
        assert browser.get("/v1/me", headers=headers).status_code == 401
    del browser.headers["X-Paddock-Console"]
    for headers in ({}, SAME, {"Origin": str(browser.base_url)}):
        refused = browser.get("/v1/me", headers=headers)
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_stolen_cookie_without_proof_is_refused(server: Server, browser: httpx.Client) -> None:
    with logged_in(server) as thief:
        stolen = {"Cookie": f"paddock_session={session_of(browser)}", **SAME, "Origin": server.url}
        for proof in ({}, SIGN, {"X-Paddock-Console": thief.headers["X-Paddock-Console"]}):
            assert httpx.get(f"{server.url}/v1/me", headers={**stolen, **proof}).status_code == 401


def test_refused_console_request_causes_no_password_prompt(server: Server) -> None:
    response = httpx.get(f"{server.url}/v1/me", headers={**SIGN, "Cookie": "paddock_session=pds_old"})
    assert response.status_code == 401 and "WWW-Authenticate" not in response.headers


def test_key_takes_precedence_over_the_cookie(browser: httpx.Client) -> None:
    headers = {"Authorization": "Bearer pdk_wrong"}
    assert browser.get("/v1/me", headers=headers).status_code == 401


def test_logging_out(browser: httpx.Client) -> None:
    session = session_of(browser)
    response = browser.post("/v1/logout")
    assert response.status_code == 204 and "Max-Age=0" in response.headers["Set-Cookie"]
    stolen = {"X-Paddock-Console": browser.headers["X-Paddock-Console"], "Cookie": f"paddock_session={session}"}
    assert httpx.get(f"{browser.base_url}/v1/me", headers=stolen).status_code == 401


def test_a_login_survives_the_server_and_not_its_key(server: Server, client: httpx.Client) -> None:
    made = client.post("/v1/keys", json={"name": "passing", "scopes": ["sandboxes:read"]}).json()
    with logged_in(server, key=made["secret"]) as browser:
        assert browser.get("/v1/sandboxes").status_code == 200
        assert browser.post("/v1/sandboxes", json={}).status_code == 403
        port = int(server.domain.split(":")[1])
        server.stop()
        server.start(port)
        assert browser.get("/v1/sandboxes").status_code == 200
        client.delete(f"/v1/keys/{made['id']}")
        assert browser.get("/v1/sandboxes").status_code == 401


def test_a_code_logs_in_once(server: Server, client: httpx.Client) -> None:
    code = client.post("/v1/login/codes").json()["code"]
    with logged_in(server, code=code) as browser:
        assert browser.get("/v1/me").json()["name"] == "local"
    again = httpx.post(f"{server.url}/v1/login", json={"code": code})
    assert again.status_code == 401
    assert httpx.post(f"{server.url}/v1/login/codes").status_code == 401
    assert code not in server.log() and server.key not in server.log()


def test_me_identifies_a_key(client: httpx.Client, stranger: httpx.Client) -> None:
    assert client.get("/v1/me").json()["login"] is False
    me = stranger.get("/v1/me").json()
    assert (me["name"], me["tenant"], me["scopes"]) == ("stranger", "other", ["sandboxes:write"])


def socket_to(server: Server, path: str, browser: httpx.Client, origin: str | None) -> Any:
    headers = {"Cookie": f"paddock_session={session_of(browser)}"}
    address = f"{server.url.replace('http', 'ws')}{path}"
    return connect(address, additional_headers=headers, origin=origin)  # type: ignore[arg-type]


def _drain(connection: ClientConnection) -> None:
    while True:
        connection.recv(10)


@pytest.mark.parametrize("origin", [None, "null", "http://127.0.0.1:9", "http://localhost", ELSEWHERE, "own"])
def test_websockets_are_not_opened_by_the_cookie(server: Server, browser: httpx.Client, origin: str | None) -> None:
    origin = server.url if origin == "own" else origin
    with pytest.raises(InvalidStatus) as refused, socket_to(server, "/v1/screens", browser, origin):
        pass
    assert refused.value.response.status_code in (401, 403)


def test_a_websocket_of_the_console_lasts_as_long_as_the_login(
    server: Server, browser: httpx.Client, client: httpx.Client, sandbox: str
) -> None:
    path = f"/v1/sandboxes/{sandbox}/terminal"
    address = f"{server.url.replace('http', 'ws')}{path}"
    ticket, left = (browser.post("/v1/tickets").json()["ticket"] for _ in range(2))
    with connect(f"{address}?ticket={ticket}") as terminal:
        terminal.recv(10)
        browser.post("/v1/logout")
        with pytest.raises(ConnectionClosed) as closed:
            _drain(terminal)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
    with pytest.raises(InvalidStatus), connect(f"{address}?ticket={left}"):
        pass


def test_files_of_a_sandbox_by_cookie(browser: httpx.Client, sandbox: str) -> None:
    """The console's file requests, one by one."""
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
    assert browser.post(f"{daemon}/command", json={"command": "true"}, headers=SIGN).status_code == 401


def test_sockets_into_a_sandbox_are_not_opened_by_the_cookie(
    server: Server, browser: httpx.Client, sandbox: str
) -> None:
    """A page of the sandbox itself would say the same origin as the console."""
    path = f"/v1/sandboxes/{sandbox}/proxy/8000/"
    with pytest.raises(InvalidStatus) as refused, socket_to(server, path, browser, server.url):
        pass
    assert refused.value.response.status_code == 401


LISTENING = r"""
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


def test_a_sandbox_neither_sees_nor_sets_the_cookie(
    server: Server, client: httpx.Client, browser: httpx.Client
) -> None:
    sandbox = create(client)
    upload(client, sandbox, "/tmp/listen.py", LISTENING.encode())
    run_in_sandbox(client, sandbox, "python3 /tmp/listen.py > /tmp/log 2>&1", background=True)
    place = f"/v1/sandboxes/{sandbox}/proxy/8123/"
    eventually(lambda: browser.get(place).status_code == 200)
    seen = browser.get(place)
    assert session_of(browser) not in seen.text and "paddock_session" not in seen.text
    assert "x-paddock-console" not in seen.text.lower() and "Set-Cookie" not in seen.headers
    own = browser.get(place, headers={"Cookie": f"paddock_session={session_of(browser)}; theirs=1"})
    assert "theirs=1" in own.text and "paddock_session" not in own.text
    client.delete(f"/v1/sandboxes/{sandbox}")


def test_model_routes_ignore_the_cookie(browser: httpx.Client) -> None:
    assert browser.get("/v1/models").status_code == 401
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hello."}]}
    assert browser.post("/v1/chat/completions", json=body).status_code == 401


def test_failed_logins_are_rate_limited(server: Server) -> None:
    statuses = [httpx.post(f"{server.url}/v1/login", json={"key": "nonsense"}).status_code for _ in range(12)]
    assert statuses[-1] == 429 and set(statuses) <= {401, 429}
