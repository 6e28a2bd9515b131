"""Hostile sandboxes, viewers, tenants and web pages are contained and do not affect others."""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from tests.integration.live.hostile_daemon import hostile_sandbox, memory, open_files, server_stays_responsive
from tests.integration.live.rfb_client import ClosedByServer, RfbClient, UpgradeRefused, open_desktop_viewer
from tests.integration.live.screen_sandboxes import Sandbox, sandbox_of, screens_server
from tests.integration.live.websocket_clients import TerminalClient
from tests.support.server import Server, eventually, run_in_sandbox

NOTHING = "sb-0123456789abcdef"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("paddock"), "linux", live={"call_timeout": 3}) as running:
        yield running


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> Iterator[Sandbox]:
    with sandbox_of(client, "linux") as made:
        yield made


@pytest.fixture(scope="module")
def hostile(client: httpx.Client) -> Iterator[Sandbox]:
    made = Sandbox(client, hostile_sandbox(client))
    yield made
    client.delete(made.path)


# A sandbox with a lying daemon.


def test_only_valid_tools_of_a_sandbox_are_listed(hostile: Sandbox) -> None:
    tools = hostile.client.get(f"{hostile.path}/tools").json()["items"]
    assert all(tool["name"].replace("_", "").isalpha() for tool in tools)
    assert all(tool["inputSchema"] == {"type": "object"} for tool in tools)


@pytest.mark.parametrize("tool", ["lists", "keys", "digits", "endless", "slowly", "nothing", "picture", "half_length"])
@pytest.mark.parametrize("way", ["tools", "mcp"])
def test_invalid_tool_answers_are_sandbox_errors(server: Server, hostile: Sandbox, way: str, tool: str) -> None:
    before = memory(server)
    with server_stays_responsive(server):
        if way == "tools":
            answer = hostile.post(tool)
        else:
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}}
            answer = hostile.client.post(f"{hostile.path}/mcp", json=body)
    assert answer.status_code in (400, 502, 504), answer.text[:200]
    assert len(answer.content) < 4096
    assert memory(server) - before < 100 * 2**20


def test_non_json_values_are_left_out_of_a_result(hostile: Sandbox) -> None:
    for tool in ("deep", "infinite"):
        answer = hostile.post(tool)
        assert answer.status_code == 200, answer.text[:200]
        assert "structuredContent" not in answer.json()
    answer = hostile.post("halves")
    assert answer.json()["content"] == [{"type": "text", "text": "?"}]


def test_paths_with_newlines_are_data(hostile: Sandbox) -> None:
    answer = hostile.post("newlines")
    assert answer.status_code == 200 and "set-cookie" not in answer.headers
    changed = eventually(lambda: hostile.events("file.changed"))[-1]
    assert sum(map(len, changed["data"]["paths"])) < 2**14


def test_flood_of_files_does_not_fill_the_log(hostile: Sandbox) -> None:
    before, began = len(hostile.events("file.changed")), time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: hostile.post("newlines"), range(200)))
    assert len(hostile.events("file.changed")) - before <= 51 + 10 * (time.monotonic() - began)


def test_mcp_forwards_only_the_response(hostile: Sandbox) -> None:
    for tool in ("text", "deep"):
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}}
        answer = hostile.client.post(f"{hostile.path}/mcp", json=body)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("quality", range(1, 7))
def test_invalid_screenshot_is_refused(server: Server, hostile: Sandbox, quality: int) -> None:
    with server_stays_responsive(server):
        answer = hostile.client.get(f"{hostile.path}/screenshot", params={"quality": quality})
    assert answer.status_code in (400, 502), answer.headers
    assert answer.headers["content-type"] == "application/json"


def test_invalid_services_are_reported_within_bounds(hostile: Sandbox) -> None:
    document = hostile.client.get(f"{hostile.path}/desktop").json()
    assert len(document["services"][0]["state"]) == 64
    assert document["services"][0]["starts"] == 0


def test_pictures_with_false_sizes_end_the_stream(server: Server, hostile: Sandbox) -> None:
    before = memory(server)
    with server_stays_responsive(server):
        answer = hostile.client.post(f"{hostile.path}/recordings", timeout=40)
    assert answer.status_code in (502, 504), answer.text
    assert memory(server) - before < 200 * 2**20


@pytest.mark.parametrize("terminal", ["pings", "nothing", "words", "letters"])
def test_endless_terminal_does_not_delay_other_clients(server: Server, hostile: Sandbox, terminal: str) -> None:
    before, files = memory(server), open_files(server)
    with server_stays_responsive(server):
        with TerminalClient(server, hostile.id, name=terminal) as viewer:
            viewer.wait_for_message("connected")
            time.sleep(0.2)
        # A shared terminal stays for a while after its last viewer has left.
        eventually(lambda: open_files(server) <= files + 2, 60)
    assert memory(server) - before < 100 * 2**20


# A program in a sandbox.


def test_flood_from_a_sandbox_affects_only_itself(server: Server, client: httpx.Client, sandbox: Sandbox) -> None:
    program = (
        "import socket, threading\n"
        "def attack(head, body):\n"
        "    s = socket.create_connection(('127.0.0.1', 8765)); s.settimeout(3)\n"
        "    try:\n"
        "        s.sendall(head)\n"
        "        for _ in range(200): s.sendall(body)\n"
        "        return s.recv(100)\n"
        "    except OSError: pass\n"
        "post = b'POST /mcp HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n'\n"
        "attacks = [(post % 2**40, b'x' * 2**18), (post % 2**24, b'[' * 2**16), (post % 10**6, b'{'),\n"
        "           (b'GET / HTTP/1.1\\r\\nX: ', b'x' * 2**12), (b'\\0' * 100, b'\\xff' * 2**12),\n"
        "           (b'POST /mcp HTTP/1.1\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n', b'1\\r\\n[\\r\\n' * 2**10)]\n"
        "threads = [threading.Thread(target=attack, args=each) for each in attacks * 20]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
    )
    before, files = memory(server), open_files(server)
    with server_stays_responsive(server):
        run_in_sandbox(client, sandbox.id, f"cat > /tmp/flood.py <<'END'\n{program}\nEND\npython3 /tmp/flood.py")
        assert "x" in sandbox.text("run_shell_command", command="echo x")
    assert memory(server) - before < 200 * 2**20
    eventually(lambda: open_files(server) <= files + 5)


@pytest.mark.parametrize(
    "sent_bytes", [b"", b"POST /mcp HTTP/1.1\\r\\nContent-Length: 9\\r\\n\\r\\n{", b"GET /mcp HTTP/1.1\\r\\n\\r\\n"]
)
def test_sandbox_with_open_mcp_connection_is_deleted(client: httpx.Client, sent_bytes: bytes) -> None:
    with sandbox_of(client, "code", image={"uri": "host"}) as sandbox:
        program = (
            "import socket, time; s = socket.create_connection(('127.0.0.1', 8765)); "
            f"s.sendall(b'{sent_bytes.decode()}'); open('/tmp/held', 'w'); time.sleep(100)"
        )
        run_in_sandbox(
            client, sandbox.id, f'python3 -c "{program}" >/dev/null 2>&1 & until [ -e /tmp/held ]; do sleep 0.01; done'
        )
        began = time.monotonic()
        assert client.delete(sandbox.path, timeout=20).status_code == 204
        assert time.monotonic() - began < 10


# Tenants.

ROUTES = [
    ("GET", "/tools", None),
    ("POST", "/tools/read_file", {"path": "/etc/passwd"}),
    ("GET", "/screenshot", None),
    ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ("GET", "/desktop", None),
    ("POST", "/desktop", None),
    ("DELETE", "/desktop", None),
    ("GET", "/input", None),
    ("POST", "/input", {"viewer": "eve", "force": True}),
    ("DELETE", "/input?viewer=eve&force=true", None),
    ("GET", "/terminals", None),
    ("DELETE", "/terminals/main", None),
    ("POST", "/recordings", {}),
    ("POST", "/recordings/{recording}/stop", None),
    ("GET", "/recordings/{recording}", None),
    ("GET", "/recordings/{recording}/file", None),
    ("GET", "/recordings/{recording}/frames", None),
    ("GET", "/recordings/{recording}/frames/0", None),
    ("GET", "/recordings/{recording}/export?format=mkv", None),
    ("DELETE", "/recordings/{recording}", None),
    ("POST", "/move", {"from": "/etc/passwd", "to": {"sandbox": "{own}", "path": "/tmp/x"}}),
]
READS = {"GET"}


@pytest.fixture(scope="module")
def recording(sandbox: Sandbox) -> str:
    answer = sandbox.client.post(f"{sandbox.path}/recordings")
    assert answer.status_code == 201, answer.text
    found = str(answer.json()["id"])
    assert sandbox.client.post(f"{sandbox.path}/recordings/{found}/stop").status_code == 200
    return found


def key(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/keys", json={"name": "eve", "scopes": ["sandboxes:write", "tenant:all"], **body})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def secret_of(made: dict[str, Any]) -> str:
    return str(made["secret"])


def test_other_tenants_have_no_access(server: Server, client: httpx.Client, sandbox: Sandbox, recording: str) -> None:
    with server.client(secret_of(key(client, tenant="other"))) as stranger:
        own = stranger.post("/v1/sandboxes", json={}).json()["id"]
        try:
            for method, path, body in ROUTES:
                text = json.dumps(body).replace("{own}", own) if body is not None else None
                where = path.format(recording=recording)
                answer = stranger.request(
                    method, sandbox.path + where, content=text, headers={"Content-Type": "application/json"}
                )
                assert answer.status_code == 404, (method, path, answer.status_code, answer.text[:200])
                assert "passwd" not in answer.text and "root:" not in answer.text
                if "{recording}" in path:  # Nor through a sandbox of the caller.
                    answer = stranger.request(method, f"/v1/sandboxes/{own}{where}")
                    assert answer.status_code == 404, (method, path, answer.status_code)
            theirs = {"from": "/etc/hostname", "to": {"sandbox": sandbox.id, "path": "/tmp/x"}}
            assert stranger.post(f"/v1/sandboxes/{own}/move", json=theirs).status_code == 404
            assert stranger.get("/v1/recordings").json()["items"] == []
            assert stranger.get(f"{sandbox.path}/recordings").json().get("items", []) == []
            ticket = stranger.post("/v1/tickets").json()["ticket"]
            for path in ("/desktop", "/terminal"):
                with pytest.raises(UpgradeRefused) as refused:
                    RfbClient(server, sandbox.path + path, key="", ticket=ticket)
                assert refused.value.status in (401, 404)
                ticket = stranger.post("/v1/tickets").json()["ticket"]
        finally:
            stranger.delete(f"/v1/sandboxes/{own}")


def test_read_only_keys_change_nothing(server: Server, client: httpx.Client, sandbox: Sandbox, recording: str) -> None:
    with server.client(secret_of(key(client, scopes=["sandboxes:read", "tenant:all"]))) as reader:
        for method, path, body in ROUTES:
            answer = reader.request(method, sandbox.path + path.format(recording=recording), json=body)
            expected = 200 if method in READS else 403
            assert answer.status_code == expected, (method, path, answer.text[:200])
        for path, body in (("/v1/pools", {"name": "x", "size": 1}), ("/v1/sandboxes", {})):
            assert reader.post(path, json=body).status_code in (403, 404, 405)


@pytest.mark.parametrize("path", ["..%2f..%2fx", "rec-0123456789abcdef%00", "rec-0123456789abcdeg", "%2e%2e", "x" * 90])
def test_recording_id_cannot_be_a_path(sandbox: Sandbox, path: str) -> None:
    for rest in ("", "/file", "/frames", "/frames/0", "/export?format=mkv"):
        assert sandbox.client.get(f"{sandbox.path}/recordings/{path}{rest}").status_code == 404
    assert sandbox.client.delete(f"{sandbox.path}/recordings/{path}").status_code == 404


@pytest.mark.parametrize("name", ["..", "a%2f..%2fb", "a%0d%0aX:%20y", "-x", "x" * 64, "A", "main%3ftakeover=1"])
def test_terminal_name_cannot_be_a_path(server: Server, sandbox: Sandbox, name: str) -> None:
    with pytest.raises(UpgradeRefused) as refused:
        RfbClient(server, f"{sandbox.path}/terminal?name={name}")
    assert refused.value.status == 400


@pytest.mark.parametrize("path", ["relative", "/a\0b", "", "/\ud800", "/" + "x" * 5000])
def test_move_path_must_be_valid(sandbox: Sandbox, path: str) -> None:
    for body in (
        {"from": path, "to": {"sandbox": sandbox.id, "path": "/tmp/x"}},
        {"from": "/etc/hostname", "to": {"sandbox": sandbox.id, "path": path}},
    ):
        answer = sandbox.client.post(
            f"{sandbox.path}/move", content=json.dumps(body), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code in (400, 422), answer.text


def test_moved_file_may_have_newlines_in_its_name(sandbox: Sandbox) -> None:
    run_in_sandbox(sandbox.client, sandbox.id, "printf hello > $'/tmp/a\\nb: c'")
    moved = sandbox.move("/tmp/a\nb: c", sandbox, "/tmp/d\r\ne")
    assert moved["size"] == 5
    assert "hello" in sandbox.text("read_file", path="/tmp/d\r\ne")


def test_name_of_the_holder_is_one_line(sandbox: Sandbox) -> None:
    for name in ("a\nb", "\x1b[2J", "\u202e", ""):
        answer = sandbox.client.post(f"{sandbox.path}/input", json={"viewer": "v", "name": name})
        assert answer.status_code in (400, 422), answer.text


def test_huge_lists_are_refused(server: Server, sandbox: Sandbox) -> None:
    body = b'{"path": [' + b"[]," * 4_000_000 + b"[]]}"
    with server_stays_responsive(server):
        for path in ("/tools/read_file", "/mcp", "/input"):
            headers = {"Content-Type": "application/json"}
            assert sandbox.client.post(sandbox.path + path, content=body, headers=headers).status_code == 413


# Web pages.


@pytest.mark.parametrize("path", ["/desktop", "/terminal", "/v1/screens"])
@pytest.mark.parametrize("origin", ["null", "https://evil.example", "http://localhost.evil.example", "http://[::1"])
def test_foreign_pages_cannot_open_a_websocket(server: Server, sandbox: Sandbox, path: str, origin: str) -> None:
    where = path if path.startswith("/v1") else sandbox.path + path
    with pytest.raises(UpgradeRefused) as refused:
        RfbClient(server, where, origin=origin)
    assert refused.value.status == 403


def test_rebound_host_name_is_refused(server: Server, sandbox: Sandbox) -> None:
    host, _, port = server.domain.partition(":")
    for path in (f"{sandbox.path}/desktop", f"{sandbox.path}/terminal", "/v1/screens", f"{sandbox.path}/tools"):
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(
                f"GET {path} HTTP/1.1\r\nHost: evil.example:{port}\r\nOrigin: http://evil.example:{port}\r\n"
                f"Authorization: Bearer {server.key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 421")


# Expired and revoked keys.


def test_revoked_key_closes_its_connections(server: Server, client: httpx.Client, sandbox: Sandbox) -> None:
    made = key(client)
    secret = secret_of(made)
    with (
        RfbClient(server, f"{sandbox.path}/desktop", key=secret) as desktop,
        TerminalClient(server, sandbox.id, key=secret) as terminal,
        open_desktop_viewer(server, sandbox.id) as other,
    ):
        desktop.perform_handshake()
        terminal.wait_for_message("connected")
        assert client.delete(f"/v1/keys/{made['id']}").status_code in (200, 204)
        code, reason = desktop.wait_until_closed()
        assert code == 1008 and "is no longer valid" in reason
        assert terminal.read_until_closed() == 1008
        other.send(b"\x03\0\0\0\0\0\0\1\0\1")
        assert other.read(4)[0] == 0  # Other viewers still receive the screen.


def test_expired_and_revoked_keys_open_nothing(server: Server, client: httpx.Client, sandbox: Sandbox) -> None:
    made = key(client)
    with server.client(secret_of(made)) as brief:
        ticket = brief.post("/v1/tickets").json()["ticket"]
        client.delete(f"/v1/keys/{made['id']}")
        for method, path, body in ROUTES:
            assert brief.request(method, sandbox.path + path.format(recording="x"), json=body).status_code == 401
    for path in (f"{sandbox.path}/desktop", f"{sandbox.path}/terminal", "/v1/screens"):
        for shown in ({"key": "", "ticket": ticket}, {"key": secret_of(made)}, {"key": "", "token": secret_of(made)}):
            with pytest.raises(UpgradeRefused) as refused:
                RfbClient(server, path, **shown)
            assert refused.value.status == 401


def test_used_tickets_are_forgotten(server: Server, client: httpx.Client, sandbox: Sandbox) -> None:
    tickets = [client.post("/v1/tickets").json()["ticket"] for _ in range(500)]
    assert len(set(tickets)) == 500
    for ticket in tickets[:20]:
        with pytest.raises(UpgradeRefused):
            RfbClient(server, f"/v1/sandboxes/{NOTHING}/desktop", key="", ticket=ticket)
        with pytest.raises(UpgradeRefused) as refused:  # The ticket is used up even though it opened nothing.
            RfbClient(server, f"{sandbox.path}/desktop", key="", ticket=ticket)
        assert refused.value.status == 401


# Viewers that disconnect at any moment.


def close_in_handshake(server: Server, sandbox: Sandbox) -> None:
    with RfbClient(server, f"{sandbox.path}/desktop") as viewer:
        viewer.send(b"RFB 003")


def close_silent_viewer(server: Server, sandbox: Sandbox) -> None:
    with RfbClient(server, f"{sandbox.path}/desktop"):
        pass


def close_in_message(server: Server, sandbox: Sandbox) -> None:
    with open_desktop_viewer(server, sandbox.id) as viewer:
        viewer.send(b"\x03\0\0\0\0\0\x05\0\x03\x20")


def close_terminal(server: Server, sandbox: Sandbox) -> None:
    open_websocket_and_close(server, f"{sandbox.path}/terminal")


def close_screen_grid(server: Server, sandbox: Sandbox) -> None:
    open_websocket_and_close(server, "/v1/screens")


def open_websocket_and_close(server: Server, path: str) -> None:
    """Open a WebSocket and close the socket without a close frame."""
    host, _, port = server.domain.partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {server.domain}\r\nAuthorization: Bearer {server.key}\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        assert connection.recv(100)


def close_in_request(server: Server, sandbox: Sandbox) -> None:
    host, _, port = server.domain.partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(f"GET {sandbox.path}/desktop HTTP/1.1\r\nHost: {server.domain}\r\nUpgr".encode())


def close_during_call(server: Server, sandbox: Sandbox) -> None:
    host, _, port = server.domain.partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        body = b'{"command": "sleep 3"}'
        connection.sendall(
            f"POST {sandbox.path}/tools/run_shell_command HTTP/1.1\r\nHost: {server.domain}\r\n"
            f"Authorization: Bearer {server.key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        time.sleep(0.05)


@pytest.mark.parametrize(
    "disconnect",
    [
        close_silent_viewer,
        close_in_handshake,
        close_in_message,
        close_terminal,
        close_screen_grid,
        close_in_request,
        close_during_call,
    ],
)
def test_disconnected_viewers_leave_no_resources(
    server: Server, sandbox: Sandbox, disconnect: Callable[[Server, Sandbox], None]
) -> None:
    def attempt(_: int) -> None:
        try:
            disconnect(server, sandbox)
        except (UpgradeRefused, OSError):
            pass  # Too many at once are refused.

    for count in (10, 200):
        if count == 200:
            files, before = open_files(server), memory(server)
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(attempt, range(count)))
        if count == 10:
            time.sleep(0.2)
    with server_stays_responsive(server):
        eventually(lambda: open_files(server) <= files + 5)
    assert memory(server) - before < 100 * 2**20


def test_deleting_a_sandbox_ends_all_its_streams(server: Server, client: httpx.Client, hostile: Sandbox) -> None:
    def streams() -> None:
        with sandbox_of(client, "linux") as sandbox:
            recorded = client.post(f"{sandbox.path}/recordings").json()["id"]
            with (
                open_desktop_viewer(server, sandbox.id) as desktop,
                TerminalClient(server, sandbox.id) as terminal,
                ThreadPoolExecutor(2) as pool,
            ):
                terminal.wait_for_message("connected")
                calling = pool.submit(sandbox.post, "run_shell_command", {"command": "sleep 30"})
                moving = {"from": "/dev/zero", "to": {"sandbox": sandbox.id, "path": "/tmp/zero"}}
                also = pool.submit(client.post, f"{sandbox.path}/move", json=moving)
                client.delete(sandbox.path)
                with pytest.raises((ClosedByServer, ConnectionError)):
                    desktop.read(2**30)
                assert terminal.read_until_closed() in (1000, 1001)
                assert calling.result().status_code >= 400
                assert also.result().status_code >= 400
            stopped = eventually(lambda: _stopped(client, sandbox, recorded))
            assert stopped is not None and stopped["reason"] == "sandbox"

    streams()
    files = open_files(server)
    streams()
    eventually(lambda: open_files(server) <= files + 5)


def _stopped(client: httpx.Client, sandbox: Sandbox, recording: str) -> dict[str, Any] | None:
    status: dict[str, Any] = client.get(f"{sandbox.path}/recordings/{recording}").json()
    return status if status["state"] == "stopped" else None


# Mouse and keyboard.


def test_only_the_holder_types_while_the_lease_moves(server: Server, client: httpx.Client, sandbox: Sandbox) -> None:
    def take_and_release(number: int) -> None:
        viewer = f"v{number}"
        for turn in range(15):
            answer = client.post(f"{sandbox.path}/input", json={"viewer": viewer, "force": turn % 2 == 0})
            assert answer.status_code in (200, 409), answer.text
            if answer.status_code == 200:
                assert answer.json()["holder"]["viewer"] == viewer
            answer = client.delete(f"{sandbox.path}/input", params={"viewer": viewer, "force": turn % 3 == 0})
            assert answer.status_code in (204, 409), answer.text

    with ThreadPoolExecutor(8) as pool, server_stays_responsive(server):
        list(pool.map(take_and_release, range(8)))
    client.delete(f"{sandbox.path}/input", params={"viewer": "v0", "force": "true"})
    assert client.get(f"{sandbox.path}/input").json()["holder"] is None
    taken_events = [event for event in sandbox.events("input.taken") if event["data"]["viewer"].startswith("v")]
    assert taken_events
    assert not sandbox.call("click_mouse", x=5, y=5)["isError"]


def test_pressed_keys_are_released_when_the_holder_disconnects(
    server: Server, client: httpx.Client, sandbox: Sandbox
) -> None:
    with open_desktop_viewer(server, sandbox.id, viewer="ada") as viewer:
        assert client.post(f"{sandbox.path}/input", json={"viewer": "ada"}).status_code == 200
        viewer.send(b"\x04\1\0\0\0\0\xff\xe1")  # Shift goes down.
        eventually(lambda: _mask(sandbox) & 1)
    eventually(lambda: not _mask(sandbox) & 1)
    client.delete(f"{sandbox.path}/input", params={"viewer": "ada", "force": "true"})


def _mask(sandbox: Sandbox) -> int:
    program = "from Xlib.display import Display; print(Display().screen().root.query_pointer().mask)"
    return int(sandbox.text("run_shell_command", command=f"python3 -c '{program}'").strip().splitlines()[0])


def test_closed_terminal_connection_ends_reading(server: Server, sandbox: Sandbox) -> None:
    with TerminalClient(server, sandbox.id, name="brief") as terminal:
        terminal.wait_for_message("connected")
        terminal.socket.close()
        # Buffered messages are read first.
        with pytest.raises(ConnectionClosed):
            list(itertools.islice(iter(lambda: terminal.socket.recv(timeout=5), None), 100))
