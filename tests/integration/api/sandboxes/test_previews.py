"""Previews: HTTP, WebSockets and event streams of a sandbox's port, with a link instead of a key."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.integration.api.conftest import create_sandbox
from tests.integration.api.sandboxes.test_port_proxy import ECHO_PORT, ECHO_PROGRAM, upload_file
from tests.support.server import PADDOCK_COMMAND, Server, eventually, run_in_sandbox, run_server

STREAM_PORT = 9100
STREAM_PROGRAM = r"""
import socket, threading, time

def serve(connection):
    stream = connection.makefile("rb")
    while stream.readline().strip():
        pass
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    head += b"WWW-Authenticate: Basic\r\nX-Frame-Options: DENY\r\n\r\n"
    try:
        connection.sendall(head)
        for number in range(1000):
            connection.sendall(b"data: %d\n\n" % number)
            time.sleep(0.05)
    except OSError:
        open("/tmp/stream-gone", "w").close()
    connection.close()

listener = socket.create_server(("::1", 9100), family=socket.AF_INET6)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
LOGIN = "pds_secret"


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> Iterator[str]:
    yield (created := start_programs(client))
    client.delete(f"/v1/sandboxes/{created}")


@pytest.fixture(scope="module")
def visitor(server: Server) -> Iterator[httpx.Client]:
    """A client without a key."""
    with server.client("") as http_client:
        yield http_client


def start_programs(client: httpx.Client) -> str:
    sandbox = create_sandbox(client)
    for name, program in (("echo", ECHO_PROGRAM), ("stream", STREAM_PROGRAM)):
        upload_file(client, sandbox, f"/tmp/{name}.py", program.encode())
        run_in_sandbox(client, sandbox, f"python3 /tmp/{name}.py > /tmp/{name}.log 2>&1", background=True)
    eventually(lambda: {ECHO_PORT, STREAM_PORT} <= set(ports_of(client, sandbox)))
    return sandbox


def ports_of(client: httpx.Client, sandbox: str) -> list[int]:
    items = client.get(f"/v1/sandboxes/{sandbox}/ports").raise_for_status().json()["items"]
    return [item["port"] for item in items]


def expose(client: httpx.Client, sandbox: str, port: int = ECHO_PORT, **terms: Any) -> dict[str, Any]:
    response = client.post(f"/v1/sandboxes/{sandbox}/previews", json={"port": port, **terms})
    assert response.status_code == 201, response.text
    preview: dict[str, Any] = response.json()
    return preview


def preview_events(client: httpx.Client, sandbox: str) -> list[tuple[str, dict[str, Any]]]:
    path, headers = f"/v1/sandboxes/{sandbox}/events", {"Accept": "application/json"}
    items = client.get(path, headers=headers, params={"limit": 1000}).json()["items"]
    return [(item["type"], item["data"]) for item in items if item["type"].startswith("preview.")]


def test_link_reaches_the_port_without_a_key(client: httpx.Client, visitor: httpx.Client, sandbox: str) -> None:
    preview = expose(client, sandbox)
    assert preview["address"] != preview["link"] and not preview["public"]
    seen = visitor.post(f"{preview['link']}a//b?x=%20", content=b"body").json()
    assert seen["line"] == "POST /a//b?x=%20 HTTP/1.1\r\n" and seen["size"] == 4
    prefix = preview["link"].rstrip("/")
    assert dict(seen["headers"])["x-forwarded-prefix"] == prefix
    redirect = visitor.get(f"{prefix}?a=1")
    assert (redirect.status_code, redirect.headers["Location"]) == (303, f"{prefix}/?a=1")


def test_address_alone_suffices_only_for_public_previews(
    client: httpx.Client, visitor: httpx.Client, sandbox: str
) -> None:
    preview = expose(client, sandbox)
    refused = visitor.get(preview["address"])
    assert refused.status_code == 401 and "link" in refused.json()["message"]
    page = visitor.get(preview["address"], headers={"Accept": "text/html"})
    assert page.headers["Location"] == f"/sandboxes/{sandbox}/preview?port={ECHO_PORT}"
    public = expose(client, sandbox, public=True)
    assert public["address"] == public["link"] == preview["address"]
    assert visitor.get(public["address"]).status_code == 203
    expose(client, sandbox, public=False)
    assert visitor.get(preview["address"]).status_code == 401
    assert visitor.get(preview["link"]).status_code == 203


def test_forged_and_unknown_links_are_refused(client: httpx.Client, visitor: httpx.Client, sandbox: str) -> None:
    token = expose(client, sandbox)["link"].split("/")[2]
    forged = [
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        "0" * 32,
        f"{'0' * 32}.{'A' * 43}",
        "",
        "%2e%2e",
        sandbox,
    ]
    assert {visitor.get(f"/preview/{each}/").status_code for each in forged} == {404}
    page = visitor.get(f"/preview/{'0' * 32}/", headers={"Accept": "text/html"})
    assert page.status_code == 404 and "<h1>Not Found</h1>" in page.text
    assert "frame-ancestors 'self'" in page.headers["Content-Security-Policy"]
    assert "X-Frame-Options" not in page.headers


def test_page_has_no_origin_no_cookies_and_only_the_console_as_frame(
    client: httpx.Client, visitor: httpx.Client, sandbox: str
) -> None:
    link = expose(client, sandbox)["link"]
    headers = {"Cookie": f"paddock_session={LOGIN}; own=1", "X-Paddock-Console": "proof", "Referer": "http://x/secret"}
    response = visitor.get(link, headers=headers)
    seen = dict(response.json()["headers"])
    assert not {"cookie", "x-paddock-console", "referer", "authorization"} & set(seen) and LOGIN not in response.text
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox ") and "allow-same-origin" not in policy and "frame-ancestors 'self'" in policy
    assert response.headers["Referrer-Policy"] == "no-referrer"
    dropped = "Set-Cookie Clear-Site-Data Service-Worker-Allowed Strict-Transport-Security Access-Control-Allow-Origin"
    assert [name for name in dropped.split() if name in response.headers] == []
    with visitor.stream("GET", expose(client, sandbox, STREAM_PORT)["link"]) as stream:
        assert "WWW-Authenticate" not in stream.headers and "X-Frame-Options" not in stream.headers


def test_page_without_origin_reads_its_own_responses(client: httpx.Client, visitor: httpx.Client, sandbox: str) -> None:
    link = expose(client, sandbox)["link"]
    response = visitor.get(link, headers={"Origin": "null"})
    assert response.headers["Access-Control-Allow-Origin"] == "null" and response.headers["Vary"] == "Origin"
    assert dict(response.json()["headers"])["origin"] == f"http://127.0.0.1:{ECHO_PORT}"
    preflight = {
        "Origin": "null",
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "content-type",
    }
    answer = visitor.options(link, headers=preflight)
    assert (answer.status_code, answer.headers["Access-Control-Allow-Methods"]) == (204, "PUT")
    assert answer.headers["Access-Control-Allow-Headers"] == "content-type"
    other = visitor.get(link, headers={"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in other.headers


@pytest.mark.parametrize(
    ("site", "kind", "status"),
    [
        ("same-origin", "iframe", 203),
        ("none", "document", 203),
        ("cross-site", "script", 203),
        ("same-origin", "script", 403),
        ("same-origin", "worker", 403),
        ("same-origin", "empty", 403),
        ("same-origin", "serviceworker", 403),
    ],
)
def test_console_loads_previews_in_frames_only(
    client: httpx.Client, visitor: httpx.Client, sandbox: str, site: str, kind: str, status: int
) -> None:
    link = expose(client, sandbox)["link"]
    assert visitor.get(link, headers={"Sec-Fetch-Site": site, "Sec-Fetch-Dest": kind}).status_code == status


def test_websockets_are_proxied_and_end_with_the_preview(client: httpx.Client, server: Server, sandbox: str) -> None:
    link = expose(client, sandbox)["link"]
    address = f"{server.url.replace('http', 'ws')}{link}ws?a=1"
    with connect(address, subprotocols=[Subprotocol("two")], additional_headers={"Origin": "null"}) as ws:
        assert json.loads(ws.recv(10))["target"] == "/ws?a=1" and ws.subprotocol == "two"
        ws.send("go on")
        with pytest.raises(ConnectionClosed) as closed:
            ws.recv(10)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4001
    with connect(address) as ws:
        ws.recv(10)
        client.delete(f"/v1/sandboxes/{sandbox}/previews/{ECHO_PORT}").raise_for_status()
        with pytest.raises(ConnectionClosed):
            ws.recv(10)
    with pytest.raises(InvalidStatus) as refused:
        connect(address)
    assert refused.value.response.status_code == 404


def test_event_streams_arrive_at_once_and_end_with_the_preview(
    client: httpx.Client, visitor: httpx.Client, sandbox: str
) -> None:
    link = expose(client, sandbox, STREAM_PORT)["link"]
    started = time.monotonic()
    with visitor.stream("GET", link) as response:
        lines = response.iter_lines()
        assert next(lines) == "data: 0" and time.monotonic() - started < 5
        client.delete(f"/v1/sandboxes/{sandbox}/previews/{STREAM_PORT}").raise_for_status()
        with pytest.raises(httpx.RemoteProtocolError):
            for _ in lines:
                pass
    eventually(lambda: run_in_sandbox(client, sandbox, "test -e /tmp/stream-gone")[1] == 0)


def test_preview_expires(client: httpx.Client, visitor: httpx.Client, sandbox: str) -> None:
    link = expose(client, sandbox, STREAM_PORT, ttl=1)["link"]
    with visitor.stream("GET", link) as response, pytest.raises(httpx.RemoteProtocolError):
        for _ in response.iter_lines():
            pass
    assert visitor.get(link).status_code == 404
    eventually(lambda: preview_events(client, sandbox)[-1] == ("preview.closed", {"port": 9100, "reason": "expired"}))
    ports = [each["port"] for each in client.get(f"/v1/sandboxes/{sandbox}/previews").json()["items"]]
    assert STREAM_PORT not in ports


def test_revoked_link_stays_invalid(client: httpx.Client, visitor: httpx.Client, sandbox: str) -> None:
    link = expose(client, sandbox)["link"]
    path = f"/v1/sandboxes/{sandbox}/previews"
    assert client.delete(f"{path}/{ECHO_PORT}").status_code == 204
    assert client.delete(f"{path}/{ECHO_PORT}").status_code == 404
    again = expose(client, sandbox)["link"]
    assert again != link and visitor.get(link).status_code == 404 and visitor.get(again).status_code == 203
    events = preview_events(client, sandbox)
    assert events[-2] == ("preview.closed", {"port": ECHO_PORT, "reason": "deleted"})
    assert events[-1][0] == "preview.opened" and events[-1][1]["port"] == ECHO_PORT


def test_other_tenants_and_readers_cannot_open_previews(
    client: httpx.Client, server: Server, stranger: httpx.Client, sandbox: str
) -> None:
    expose(client, sandbox)
    path = f"/v1/sandboxes/{sandbox}"
    assert stranger.get(f"{path}/previews").status_code == stranger.get(f"{path}/ports").status_code == 404
    assert stranger.post(f"{path}/previews", json={"port": 1}).status_code == 404
    assert stranger.delete(f"{path}/previews/{ECHO_PORT}").status_code == 404
    body = {"name": "reader", "scopes": ["sandboxes:read", "tenant:all"]}
    secret = client.post("/v1/keys", json=body).json()["secret"]
    with server.client(secret) as reader:
        assert len(reader.get(f"{path}/previews").json()["items"]) >= 1
        assert reader.post(f"{path}/previews", json={"port": 1}).status_code == 403
        assert reader.delete(f"{path}/previews/{ECHO_PORT}").status_code == 403


@pytest.mark.parametrize(
    "body", [{}, {"port": 0}, {"port": 65536}, {"port": 44772}, {"port": 18080}, {"port": 1, "ttl": 0},
             {"port": 1, "ttl": 10**7}, {"port": 1, "public": "yes"}, {"port": 1, "host": "x"}]
)  # fmt: skip
def test_invalid_previews_are_refused(client: httpx.Client, sandbox: str, body: dict[str, Any]) -> None:
    assert client.post(f"/v1/sandboxes/{sandbox}/previews", json=body).status_code == 400


def test_previews_per_sandbox_are_limited(client: httpx.Client) -> None:
    sandbox = create_sandbox(client)
    for port in range(1, 33):
        expose(client, sandbox, port)
    response = client.post(f"/v1/sandboxes/{sandbox}/previews", json={"port": 33})
    assert response.status_code == 429 and "32 previews" in response.json()["message"]
    expose(client, sandbox, 32, public=True)
    client.delete(f"/v1/sandboxes/{sandbox}")


def test_preview_ends_with_the_sandbox_and_survives_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    with run_server(tmp_path_factory.mktemp("restart")) as server:
        with server.client() as client:
            sandbox = start_programs(client)
            link = expose(client, sandbox)["link"]
            brief = expose(client, sandbox, 1, ttl=1)["link"]
        server.stop()
        time.sleep(1)
        server.start()
        with server.client() as client, server.client("") as visitor:
            assert visitor.get(link).status_code == 203 and visitor.get(brief).status_code == 404
            client.post(f"/v1/sandboxes/{sandbox}/pause").raise_for_status()
            assert visitor.get(link).status_code == 409
            client.post(f"/v1/sandboxes/{sandbox}/resume").raise_for_status()
            client.delete(f"/v1/sandboxes/{sandbox}").raise_for_status()
            assert visitor.get(link).status_code == 404
            closed = ("preview.closed", {"port": ECHO_PORT, "reason": "sandbox_ended"})
            assert preview_events(client, sandbox)[-1] == closed
        with sqlite3.connect(server.data / "paddock.db") as database:
            assert database.execute("SELECT count(*) FROM previews").fetchone() == (0,)
        assert link.split("/")[2] not in server.log()


def test_listening_ports_are_those_of_programs(client: httpx.Client, sandbox: str) -> None:
    ports = ports_of(client, sandbox)
    assert {ECHO_PORT, STREAM_PORT} <= set(ports) and ports == sorted(ports)
    # The daemon's own listeners and uplink services are not programs of the sandbox.
    assert set(ports) == {ECHO_PORT, STREAM_PORT}
    client.post(f"/v1/sandboxes/{sandbox}/pause")
    assert client.get(f"/v1/sandboxes/{sandbox}/ports").status_code == 409
    client.post(f"/v1/sandboxes/{sandbox}/resume")


def test_tools_of_the_browser_are_not_listed(client: httpx.Client) -> None:
    sandbox = create_sandbox(client, env={"PADDOCK_CDP": "http://127.0.0.1:9555"})
    for port in (9555, 9556):
        run_in_sandbox(client, sandbox, f"python3 -m http.server {port}", background=True)
    eventually(lambda: ports_of(client, sandbox) == [9556])
    eventually(lambda: client.get(f"/v1/sandboxes/{sandbox}/proxy/9555/").status_code == 200)
    assert ports_of(client, sandbox) == [9556]
    client.delete(f"/v1/sandboxes/{sandbox}")


def test_commands_expose_list_and_unexpose(client: httpx.Client, server: Server, sandbox: str) -> None:
    def paddock(*words: str) -> str:
        command = [str(PADDOCK_COMMAND), "sandbox", *words, "--server", server.url]
        environment = {"PADDOCK_API_KEY": server.key, "PATH": "/usr/bin:/bin", "HOME": str(server.data)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    link = paddock("expose", sandbox, str(ECHO_PORT), "--ttl", "10m")
    assert link.startswith(f"{server.url}/preview/") and httpx.get(link, trust_env=False).status_code == 203
    public = json.loads(paddock("expose", sandbox, str(ECHO_PORT), "--public", "--json"))
    assert public["link"] == public["address"] and link.startswith(public["link"].rstrip("/"))
    assert public["link"] in paddock("previews", sandbox)
    assert [each["port"] for each in json.loads(paddock("previews", sandbox, "--json"))].count(ECHO_PORT) == 1
    assert "no longer exposed" in paddock("unexpose", sandbox, str(ECHO_PORT))
    assert httpx.get(link, trust_env=False).status_code == 404
