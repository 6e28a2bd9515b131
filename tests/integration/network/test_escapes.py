"""Programs in sandboxes of every kind and both users try to reach what no rule allows, under the widest policy."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.integration.api.sandboxes.test_hostile_sandbox import resident_memory
from tests.integration.live.screen_sandboxes import sandbox_of, screens_server
from tests.support.server import Server, eventually, run_in_sandbox

from .test_network_policy import Site

KINDS = ("code", "linux", "browser", "mobile")
USERS = (None, "root")
ATTEMPTS = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
found = {}
pool = ThreadPoolExecutor(20)
def attempt(label, function, *arguments):
    found[label] = pool.submit(function, *arguments)
def result(future):
    try:
        return "REACHED " + repr(future.result())
    except OSError as error:
        return type(error).__name__
def answer(connection):
    connection.settimeout(3)
    connection.send(b"GET / HTTP/1.0\\r\\n\\r\\n")
    data = connection.recv(300)
    if not data or b" 403 " in data[:20]:
        raise ConnectionResetError
    return data
def connect(host, port, protocol=0):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM, protocol) as connection:
        connection.settimeout(3)
        connection.connect((host, port))
        return answer(connection)
def send_first(host, port):
    with socket.socket() as connection:
        connection.settimeout(3)
        connection.sendto(b"GET / HTTP/1.0\\r\\n\\r\\n", 0x20000000, (host, port))
        return answer(connection)
def from_source(host, port, source):
    with socket.create_connection((host, port), 3, (source, 0)) as connection:
        return answer(connection)
def datagram(host, port, kind=socket.SOCK_DGRAM, protocol=0):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind, protocol) as sender:
        sender.settimeout(1)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.connect((host, port))
        sender.send(b"x" * 30)
        return sender.recv(100)
targets = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in sys.argv[1:])]
for host, port in targets:
    attempt(f"{host}:{port}", connect, host.strip("[]"), port)
host, port = targets[0]
attempt("multipath", connect, host, port, 262)
attempt("sctp", connect, host, port, 132)
attempt("fast open", send_first, host, port)
attempt("from another source", from_source, host, port, "127.0.0.1")
attempt("from a made-up source", from_source, host, port, host)
attempt("udp", datagram, host, port)
attempt("udp-lite", datagram, host, port, socket.SOCK_DGRAM, 136)
attempt("ping", datagram, host, 0, socket.SOCK_DGRAM, 1)
attempt("ping 6", datagram, "2001:db8::1", 0, socket.SOCK_DGRAM, 58)
attempt("broadcast", datagram, "255.255.255.255", 67)
attempt("multicast", datagram, "224.0.0.251", 5353)
for label, arguments in (
    ("raw icmp", (socket.AF_INET, socket.SOCK_RAW, 1)),
    ("raw tcp", (socket.AF_INET, socket.SOCK_RAW, 6)),
    ("raw ip", (socket.AF_INET, socket.SOCK_RAW, 255)),
    ("raw icmp 6", (socket.AF_INET6, socket.SOCK_RAW, 58)),
    ("packet", (socket.AF_PACKET, socket.SOCK_RAW)),
    ("packet without header", (socket.AF_PACKET, socket.SOCK_DGRAM)),
    ("virtual machine", (socket.AF_VSOCK, socket.SOCK_STREAM)),
    ("bluetooth", (socket.AF_BLUETOOTH, socket.SOCK_RAW, 1)),
    ("can", (socket.AF_CAN, socket.SOCK_RAW, 1)),
    ("express data path", (44, socket.SOCK_RAW)),
    ("kernel connection manager", (41, socket.SOCK_SEQPACKET)),
    ("tipc", (socket.AF_TIPC, socket.SOCK_STREAM)),
):
    attempt(label, socket.socket, *arguments)
print(json.dumps({label: result(future) for label, future in found.items()}))
"""
FLOOD = """
import errno, selectors, socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
opened = refused = 0
held = []
for _ in range(count):
    try:
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex((host, port))
        held.append(connection)
        opened += 1
    except OSError:
        refused += 1
        held.clear()
    if len(held) > 900:
        held.clear()
print(opened + refused)
"""


@pytest.fixture(scope="module")
def site() -> Iterator[int]:
    """A web site on every address of this machine."""
    serving = ThreadingHTTPServer(("0.0.0.0", 0), Site)
    serving.daemon_threads = True
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    yield int(serving.server_address[1])
    serving.shutdown()
    serving.server_close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    network = {
        "private_targets": ["site.test"],
        "hosts": {"site.test": "127.0.0.1", "rebind.test": "127.0.0.1", "metadata.test": "169.254.169.254"},
    }
    kinds = {"code": {"image": "host"}}
    with screens_server(tmp_path_factory.mktemp("paddock"), *KINDS[1:], network=network, kinds=kinds) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as http_client:
        yield http_client


@pytest.fixture(scope="module")
def published(client: httpx.Client) -> Iterator[int]:
    """The port of this machine that leads to another sandbox."""
    with sandbox_of(client, "code") as other:
        endpoint = client.get(f"{other.path}/endpoints/44772").json()["endpoint"]
        yield int(endpoint.rpartition(":")[2])


def own_addresses() -> list[str]:
    """Return addresses of this machine other than loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return []
        return [probe.getsockname()[0]]


@pytest.mark.parametrize("user", USERS, ids=["agent", "root"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_allowed_targets_is_reached(
    server: Server, client: httpx.Client, site: int, published: int, kind: str, user: str | None
) -> None:
    """Neither this machine nor other sandboxes, private networks or metadata services, by any protocol."""
    paddock = server.url.rpartition(":")[2]
    hosts = ("127.0.0.1", "127.0.0.2", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "rebind.test")
    targets = [
        *(f"{address}:{port}" for address in own_addresses() for port in (site, paddock, published)),
        *(f"{host}:{site}" for host in hosts),
        *(f"rebind.test:{port}" for port in (paddock, published)),
        *("169.254.169.254:80", "metadata.test:80", "100.100.100.200:80", "[fd00:ec2::254]:80", "198.18.0.1:44772"),
        *("10.0.0.1:80", "192.168.1.1:80", "172.17.0.1:80", "[fd00::1]:80", "[fe80::1]:80", "localhost:1"),
    ]
    rules = ["allow rebind.test", "allow metadata.test", "allow site.test", "allow open"]
    with sandbox_of(client, kind, network=rules, **({"user": user} if user else {})) as sandbox:
        command = f"python3 -c '{ATTEMPTS}' {' '.join(targets)}"
        output, code = run_in_sandbox(client, sandbox.id, command, timeout=120_000)
        assert code == 0, output
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
        assert len(found) >= len(set(targets)) + 20
        assert [label for label, result in found.items() if "REACHED" in result] == []
        # The same program reaches an allowed target.
        reached = run_in_sandbox(client, sandbox.id, f"python3 -c '{ATTEMPTS}' site.test:{site}", timeout=60_000)[0]
        assert "REACHED" in json.loads(reached.splitlines()[-1])[f"site.test:{site}"]


def test_flood_of_connections_disturbs_no_other_sandbox(server: Server, client: httpx.Client, site: int) -> None:
    """A sandbox that opens 50,000 connections meets limits; the server and its other sandboxes go on."""
    rules = [f"allow site.test:{site}"]
    fetch = f"python3 -c 'import urllib.request as r; print(r.urlopen(\"http://site.test:{site}/\").read())'"
    with sandbox_of(client, "code", network=rules) as hostile, sandbox_of(client, "code", network=rules) as other:
        before = resident_memory(server)
        command = f"python3 -c '{FLOOD}' site.test {site} 50000 > flooded"
        client.post(f"{hostile.path}/proxy/44772/command", json={"command": command, "background": True})
        eventually(lambda: client.get(f"{hostile.path}/connections", params={"limit": 1}).json()["items"])
        for _ in range(5):
            assert "the site" in run_in_sandbox(client, other.id, fetch)[0]
        eventually(lambda: run_in_sandbox(client, hostile.id, "cat flooded")[0] == "50000", 60)
        network = client.get(f"{hostile.path}/network").json()
        assert network["openConnections"] <= 512
        assert resident_memory(server) - before < 150 * 2**20
        eventually(lambda: "the site" in run_in_sandbox(client, hostile.id, fetch)[0], 60)
