"""Sandboxes of a real server reach what their network policy allows, by name, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.support.server import Server, eventually, run_in_sandbox, run_server

FETCH = """
import sys, urllib.request, urllib.error
try:
    with urllib.request.urlopen(sys.argv[1], timeout=10) as answer:
        print(answer.status, answer.read().decode()[:300])
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode()[:600])
except Exception as error:
    print("failed", type(error).__name__, error)
"""
STREAM = """
import sys, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1], timeout=30)
    while data := answer.read1(1000):
        print(len(data), flush=True)
    print("ended", flush=True)
except Exception as error:
    print("cut", flush=True)
"""
SOCKETS = """
import socket, sys
def attempt(label, function):
    try:
        print(label, "REACHED", function())
    except OSError as error:
        print(label, type(error).__name__)
def connect(host, port):
    with socket.create_connection((host, port), 3) as connection:
        connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        data = connection.recv(100)
        if b"403" in data[:20]:
            raise PermissionError
        if not data:
            raise ConnectionResetError
        return data
def udp(host, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(1)
        sender.connect((host, port))
        sender.send(b"x")
        return sender.recv(100)
for target in sys.argv[1:]:
    host, _, port = target.rpartition(":")
    attempt(target, lambda: connect(host.strip("[]"), int(port)))
attempt("udp", lambda: udp("8.8.8.8", 123))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
"""


MANY_STREAMS = """
import selectors, socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
waiting = selectors.DefaultSelector()
for _ in range(count):
    connection = socket.create_connection((host, port))
    connection.sendall(b"GET /stream HTTP/1.0\\r\\n\\r\\n")
    waiting.register(connection, selectors.EVENT_READ)
ended = 0
while ended < count:
    for key, _ in waiting.select():
        try:
            data = key.fileobj.recv(65536)
        except OSError:
            data = b""
        if not data:
            waiting.unregister(key.fileobj)
            ended += 1
print(ended)
"""


class Site(BaseHTTPRequestHandler):
    """A web site on this machine."""

    def do_GET(self) -> None:
        if self.path == "/stream":
            self.send_response(200)
            self.end_headers()
            for _ in range(600):
                try:
                    self.wfile.write(b"x" * 100)
                    self.wfile.flush()
                except OSError:
                    return
                time.sleep(0.05)
            return
        body = b"the site"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    site.daemon_threads = True
    threading.Thread(target=site.serve_forever, daemon=True).start()
    yield int(site.server_address[1])
    site.shutdown()
    site.server_close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    network = {
        "private_targets": ["site.test", "other.test"],
        "hosts": {"site.test": "127.0.0.1", "other.test": "127.0.0.1", "rebind.test": "127.0.0.1"},
        "tenant_bounds": {"strict": ["allow site.test"], "closed": []},
    }
    with run_server(tmp_path_factory.mktemp("network"), {"network": network}) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as http_client:
        yield http_client


def create(client: httpx.Client, **body: Any) -> str:
    response = client.post("/v1/sandboxes", json=body)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def fetch(client: httpx.Client, sandbox: str, address: str) -> str:
    return run_in_sandbox(client, sandbox, f"python3 -c '{FETCH}' {address}")[0]


def connections(client: httpx.Client, sandbox: str, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/sandboxes/{sandbox}/connections", params=query).json()["items"]
    return found


def test_site_is_reached_by_name_under_an_allow_rule(client: httpx.Client, port: int) -> None:
    sandbox = create(client, network=[f"allow site.test:{port}"])
    assert fetch(client, sandbox, f"http://site.test:{port}/") == "200 the site"
    (record,) = eventually(lambda: connections(client, sandbox, decision="allowed"))
    assert (record["name"], record["address"], record["port"]) == ("site.test", "127.0.0.1", port)
    assert record["rule"] == f"allow site.test:{port}" and record["receivedBytes"] > 8 and record["sentBytes"] > 8


def test_refusal_names_the_rule_to_add(client: httpx.Client, port: int) -> None:
    sandbox = create(client, network=["allow other.test"])
    answer = fetch(client, sandbox, f"http://site.test:{port}/")
    assert answer.startswith("403") and f"`allow site.test:{port}`" in answer
    (record,) = eventually(lambda: connections(client, sandbox, decision="denied"))
    assert record["refusal"] == "no_rule" and f"`allow site.test:{port}`" in record["message"]
    assert re.search(r'paddock_network_connections_total\{outcome="no_rule"\} [1-9]', client.get("/v1/metrics").text)


def test_sandbox_without_policy_reaches_nothing(client: httpx.Client, port: int) -> None:
    sandbox = create(client)
    assert client.get(f"/v1/sandboxes/{sandbox}/network").json()["policy"] == []
    for address in (f"http://site.test:{port}/", f"http://127.0.0.1:{port}/", "http://93.184.216.34/"):
        assert not fetch(client, sandbox, address).startswith("200")


def test_policy_changes_apply_to_running_sandboxes_at_once(client: httpx.Client, port: int) -> None:
    sandbox = create(client)
    assert fetch(client, sandbox, f"http://site.test:{port}/").startswith("403")
    changed = client.patch(f"/v1/sandboxes/{sandbox}/network", json={"allow": [f"site.test:{port}"]})
    assert changed.json()["policy"] == [f"allow site.test:{port}"]
    assert fetch(client, sandbox, f"http://site.test:{port}/") == "200 the site"

    outputs: list[str] = []
    stream = threading.Thread(
        target=lambda: outputs.append(
            run_in_sandbox(client, sandbox, f"python3 -c '{STREAM}' http://site.test:{port}/stream")[0]
        )
    )
    stream.start()
    eventually(lambda: connections(client, sandbox, open="true"))
    client.put(f"/v1/sandboxes/{sandbox}/network", json={"policy": "none"})
    stream.join(20)
    assert not stream.is_alive() and outputs[0].splitlines()[-1] in ("cut", "ended")
    record = eventually(lambda: [r for r in connections(client, sandbox) if r.get("refusal") == "policy_changed"])[0]
    assert record["receivedBytes"] > 0
    assert fetch(client, sandbox, f"http://site.test:{port}/").startswith("403")


def test_nothing_else_is_reachable(server: Server, client: httpx.Client, port: int) -> None:
    """Not the host, other sandboxes, private networks or metadata services, nor by other protocols than TCP."""
    other = create(client)
    published = client.get(f"/v1/sandboxes/{other}/endpoints/44772").json()["endpoint"].rpartition(":")[2]
    sandbox = create(client, network=["allow open", "allow rebind.test"])
    paddock = server.url.rpartition(":")[2]
    targets = [
        *(
            f"{host}:{port}"
            for host in ("127.0.0.1", "127.0.0.2", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "2130706433")
        ),
        *(f"rebind.test:{number}" for number in (port, paddock, published)),
        *("169.254.169.254:80", "10.0.0.1:80", "192.168.1.1:80", "[fd00::1]:80", "[fe80::1]:80", "localhost:1"),
    ]
    output, _ = run_in_sandbox(client, sandbox, f"python3 -c '{SOCKETS}' {' '.join(targets)}")
    assert "REACHED" not in output and len(output.splitlines()) == len(targets) + 3


def test_bounds_of_a_tenant_limit_its_policies(server: Server, client: httpx.Client, port: int) -> None:
    for tenant, expected in (("strict", 202), ("closed", 400)):
        secret = client.post("/v1/keys", json={"name": "k", "tenant": tenant}).json()["secret"]
        with server.client(secret) as limited:
            response = limited.post("/v1/sandboxes", json={"network": ["allow site.test", "allow other.test"]})
            assert response.status_code == expected, response.text
            if expected == 202:
                sandbox = response.json()["id"]
                assert fetch(limited, sandbox, f"http://site.test:{port}/") == "200 the site"
                refused = fetch(limited, sandbox, f"http://other.test:{port}/")
                assert "outside what this server allows" in refused and "network.tenant_bounds.strict" in refused
                limited.delete(f"/v1/sandboxes/{sandbox}")
            else:
                assert "network.tenant_bounds.closed" in response.json()["message"]


def test_both_bounds_hold_whichever_is_stricter(tmp_path_factory: pytest.TempPathFactory, port: int) -> None:
    """A tenant's bound cannot allow more than the server's, nor a policy more than either."""
    names = ["both.test", "server.test", "tenant.test"]
    network = {
        "hosts": dict.fromkeys(names, "127.0.0.1"),
        "private_targets": names,
        "bound": ["allow both.test", "allow server.test"],
        "tenant_bounds": {"default": ["allow both.test", "allow tenant.test"]},
    }
    with run_server(tmp_path_factory.mktemp("bounds"), {"network": network}) as server, server.client() as client:
        sandbox = create(client, network=[f"allow {name}" for name in names])
        answers = {name: fetch(client, sandbox, f"http://{name}:{port}/") for name in names}
    assert answers["both.test"] == "200 the site"
    assert answers["server.test"].startswith("403") and "network.tenant_bounds.default" in answers["server.test"]
    assert answers["tenant.test"].startswith("403") and "(setting network.bound)" in answers["tenant.test"]


def test_sandbox_from_a_pool_has_the_network_of_its_request(client: httpx.Client, port: int) -> None:
    template = {"spec": {"containers": [{"image": "host"}]}}
    capacity = {"bufferMax": 1, "bufferMin": 1, "poolMax": 2, "poolMin": 0}
    pool = {"name": "warm", "template": template, "capacitySpec": capacity}
    client.post("/v1/pools", json=pool).raise_for_status()
    try:
        eventually(lambda: client.get("/v1/pools/warm").json()["status"]["available"] == 1)
        sandbox = create(client, network=[f"allow site.test:{port}"], extensions={"poolRef": "warm"})
        assert client.get(f"/v1/sandboxes/{sandbox}").json()["allocation"]["poolRef"] == "warm"
        assert fetch(client, sandbox, f"http://site.test:{port}/") == "200 the site"
        assert "`allow other.test:" in fetch(client, sandbox, f"http://other.test:{port}/")
    finally:
        client.delete("/v1/pools/warm")


def test_killed_server_leaves_sandboxes_that_the_next_one_serves(
    tmp_path_factory: pytest.TempPathFactory, port: int
) -> None:
    network = {"private_targets": ["site.test"], "hosts": {"site.test": "127.0.0.1"}}
    with run_server(tmp_path_factory.mktemp("killed"), {"network": network}) as server:
        with server.client() as client:
            sandbox = create(client, network="site.test")
            command = f"python3 -c '{MANY_STREAMS}' site.test {port} 100 > ended"
            client.post(f"/v1/sandboxes/{sandbox}/proxy/44772/command", json={"command": command, "background": True})
            eventually(lambda: client.get(f"/v1/sandboxes/{sandbox}/network").json()["openConnections"] == 100, 60)
        server.stop(signal.SIGKILL)
        server.start()
        with server.client() as client:
            eventually(lambda: run_in_sandbox(client, sandbox, "cat ended")[0] == "100", 60)
            assert fetch(client, sandbox, f"http://site.test:{port}/") == "200 the site"


def test_killed_server_does_not_reset_the_bytes_of_the_day(tmp_path_factory: pytest.TempPathFactory, port: int) -> None:
    network = {"private_targets": ["site.test"], "hosts": {"site.test": "127.0.0.1"}, "max_daily_bytes": "4Ki"}
    with run_server(tmp_path_factory.mktemp("bytes"), {"network": network}) as server:
        with server.client() as client:
            sandbox = create(client, network="site.test")
            run_in_sandbox(client, sandbox, f"python3 -c '{STREAM}' http://site.test:{port}/stream")
            (record,) = eventually(lambda: connections(client, sandbox))
            assert record["refusal"] == "limit" and "network.max_daily_bytes" in record["message"]
        database = f"file:{server.data / 'paddock.db'}?mode=ro"

        def is_stored() -> bool:
            with closing(sqlite3.connect(database, uri=True)) as opened:
                rows = opened.execute("SELECT bytes FROM network_byte_counts WHERE owner = ?", (sandbox,)).fetchall()
            return bool(rows) and rows[0][0] >= 4096

        eventually(is_stored)
        server.stop(signal.SIGKILL)
        server.start()
        with server.client() as client:
            refused = fetch(client, sandbox, f"http://site.test:{port}/")
            assert refused.startswith("429") and "network.max_daily_bytes" in refused


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("program", "command"),
    [
        (
            "pip",
            "python3 -m venv v && v/bin/pip install -q six==1.16.0 && "
            "v/bin/python -c 'import six; print(six.__version__)'",
        ),
        ("npm", "npm install --silent is-number@7.0.0 && node -p \"require('is-number')(7)\""),
    ],
)
def test_package_managers_work_under_the_preset(client: httpx.Client, program: str, command: str) -> None:
    """The indexes come from this machine's own configuration."""
    if shutil.which(program) is None:
        pytest.skip(f"this machine has no {program}")
    if program == "pip":
        check = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "-d",
            "/tmp/paddock-index-check",
            "six==1.16.0",
        ]
    else:
        check = ["npm", "view", "is-number@7.0.0", "version"]
    if subprocess.run(check, capture_output=True, timeout=120).returncode != 0:
        pytest.skip(f"this machine itself reaches no index of {program}")
    sandbox = create(client, network="packages")
    output, code = run_in_sandbox(client, sandbox, command)
    assert code == 0 and output.splitlines()[-1] in ("1.16.0", "true"), output
    used = {item["host"]: item for item in client.get(f"/v1/sandboxes/{sandbox}/connections").json()["totals"]}
    assert used and all(total["denied"] == 0 for total in used.values()), json.dumps(used)
    assert fetch(client, sandbox, "http://example.com/").startswith("403")
