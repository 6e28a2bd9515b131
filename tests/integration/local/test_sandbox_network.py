"""Connections of a sandbox end at its daemon, which passes them to the server, and nowhere else."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from tests.contract.backends.support import LocalBackendHarness, RunningSandbox, eventually, local_backend

from paddock.model.sandbox import Image
from paddock.sandbox.local import host_checks, launcher_client
from paddock.sandbox.local.network_namespace import CONNECTION_PORT

ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as connection:
    connection.sendall(b"ping")
    print(connection.recv(100).decode())
"""
RESOLVE = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"
RESET_CODE = """
import socket, sys, time
started = time.monotonic()
try:
    print(socket.create_connection((sys.argv[1], 443), 10).recv(1))
except ConnectionResetError:
    print("reset", time.monotonic() - started < 1)
"""


class PassedConnectionServer:
    """The server's end of the uplink: answers every passed connection and keeps what was said of its target."""

    def __init__(self, directory: int, backlog: int = 128) -> None:
        self.targets: Queue[dict[str, Any]] = Queue()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = f"/proc/self/fd/{directory}/network.sock"
        self._listener.bind(path)
        os.chmod(path, 0o666)
        self._listener.listen(backlog)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        if self._thread.ident is not None:
            self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                uplink, _ = self._listener.accept()
            except OSError:
                return
            with uplink:
                message, descriptors, _, _ = socket.recv_fds(uplink, 4096, 4)
                assert uplink.recv(1) == b""
            with socket.socket(fileno=descriptors[0]) as passed:
                passed.settimeout(10)
                self.targets.put(json.loads(message))
                if passed.recv(100) == b"ping":
                    passed.sendall(b"pong")


@contextmanager
def uplink_server(
    sandbox: RunningSandbox, *, serving: bool = True, backlog: int = 128
) -> Iterator[PassedConnectionServer]:
    directory = os.open(sandbox.files.uplinks, os.O_PATH | os.O_DIRECTORY)
    server = PassedConnectionServer(directory, backlog)
    try:
        if serving:
            server.start()
        yield server
    finally:
        server.close()
        os.unlink("network.sock", dir_fd=directory)
        os.close(directory)


@pytest.fixture(scope="module")
def redirected(running_sandbox: RunningSandbox) -> RunningSandbox:
    if not running_sandbox.record["redirected"]:
        pytest.skip("the kernel has no nftables with redirection")
    return running_sandbox


@pytest.fixture
def server(redirected: RunningSandbox) -> Iterator[PassedConnectionServer]:
    with uplink_server(redirected) as serving:
        yield serving


def test_connection_by_name_is_passed_with_the_name(redirected: RunningSandbox, server: PassedConnectionServer) -> None:
    assert redirected.python(ASK, "Example.com", "443").stdout == b"pong\n"
    target = server.targets.get(timeout=5)
    assert target.pop("address").startswith("198.1")
    assert target == {"version": 1, "name": "example.com", "port": 443}


@pytest.mark.parametrize(
    ("address", "port"),
    [("1.2.3.4", 80), ("169.254.169.254", 1), ("10.0.0.1", 65535), ("192.0.2.1", CONNECTION_PORT),
     ("2001:db8::1", 443), ("fd00::7", 8080), ("::ffff:1.2.3.4", 22)],
)  # fmt: skip
def test_connection_by_address_is_passed(
    redirected: RunningSandbox, server: PassedConnectionServer, address: str, port: int
) -> None:
    assert redirected.python(ASK, address, str(port)).stdout == b"pong\n"
    expected = {"version": 1, "name": None, "address": address.removeprefix("::ffff:"), "port": port}
    assert server.targets.get(timeout=5) == expected


def test_loopback_is_the_own_of_the_sandbox(redirected: RunningSandbox, server: PassedConnectionServer) -> None:
    serve = (
        "import socket, threading\n"
        "for host in ('127.0.0.1', '127.9.9.9', '::1'):\n"
        "    family = socket.AF_INET6 if ':' in host else socket.AF_INET\n"
        "    with socket.create_server((host, 0), family=family) as listener:\n"
        "        client = socket.create_connection(listener.getsockname()[:2], 5)\n"
        "        accepted, _ = listener.accept()\n"
        "        accepted.sendall(b'own')\n"
        "        print(client.recv(9).decode())\n"
    )
    assert redirected.python(serve).stdout == b"own\n" * 3
    refused = redirected.python("import socket; socket.create_connection(('127.0.0.1', 9), 5)")
    assert b"ConnectionRefusedError" in refused.stderr
    assert server.targets.empty()


def test_programs_may_listen_on_every_port(redirected: RunningSandbox, server: PassedConnectionServer) -> None:
    code = (
        "import socket\n"
        "listeners = [socket.create_server(('0.0.0.0', port)) for port in (53, 80, 443)]\n"
        "udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(('0.0.0.0', 53))\n"
        "for port in (80, 443):\n"
        "    client = socket.create_connection(('127.0.0.1', port), 5)\n"
        "for listener in listeners[1:]:\n"
        "    listener.settimeout(5)\n"
        "    listener.accept()\n"
        "listeners[2].setblocking(False)\n"
        f"{ASK}"
        "try:\n"
        "    listeners[2].accept()\n"
        "except BlockingIOError:\n"
        "    print('untouched')\n"
    )
    assert redirected.python(code, "example.com", "443").stdout == b"pong\nuntouched\n"
    assert server.targets.get(timeout=5)["name"] == "example.com"


def test_own_address_is_loopback(redirected: RunningSandbox) -> None:
    """Programs find it by connecting a datagram socket, and give it to their other processes."""
    code = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.connect((sys.argv[1], 80))\n"
        "print(s.getsockname()[0], socket.gethostbyname(socket.gethostname()))\n"
    )
    assert redirected.python(code, "8.8.8.8").stdout == b"127.0.0.1 127.0.0.1\n"
    assert redirected.python(code, "2001:db8::1").stdout == b"::1 127.0.0.1\n"


def test_names_are_resolved_by_the_c_library(redirected: RunningSandbox) -> None:
    first = redirected.output("getent hosts example.com").split()
    assert first[0].startswith(("198.18.", "198.19."))
    assert first[1] == "example.com"
    assert redirected.output("getent ahostsv4 EXAMPLE.com").split()[0] == first[0]
    only_configured = (
        "import socket; print(socket.getaddrinfo('example.com', 80, family=0, flags=socket.AI_ADDRCONFIG))"
    )
    assert first[0].encode() in redirected.python(only_configured).stdout
    assert first[0].encode() in redirected.python(only_configured.replace("family=0", "family=2")).stdout
    assert redirected.output(f"getent hosts {first[0]}").split() == first
    assert redirected.output("getent ahostsv4 a.localhost").split()[0] == "127.0.0.1"


@pytest.mark.parametrize("server_address", ["8.8.8.8", "127.0.0.1", "2001:4860:4860::8888"])
@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_dns_of_any_server_is_answered(
    redirected: RunningSandbox, server_address: str, kind: socket.SocketKind
) -> None:
    query = b"\x12\x34\1\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1"
    prefix = len(query).to_bytes(2, "big") if kind == socket.SOCK_STREAM else b""
    code = (
        "import socket, sys\n"
        f"s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, {int(kind)})\n"
        "s.settimeout(5)\n"
        "s.connect((sys.argv[1], 53))\n"
        f"s.send({prefix + query!r})\n"
        "print(s.recv(600)[-4:-2] in (bytes([198, 18]), bytes([198, 19])))\n"
    )
    assert redirected.python(code, server_address).stdout == b"True\n"


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888"])
def test_other_datagrams_fail_at_once(redirected: RunningSandbox, address: str) -> None:
    code = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.settimeout(5)\n"
        "s.connect((sys.argv[1], 443))\n"
        "s.send(b'x')\n"
        "s.recv(9)\n"
    )
    assert b"ConnectionRefusedError" in redirected.python(code, address).stderr


def test_connection_is_reset_without_server(redirected: RunningSandbox) -> None:
    for address in ("example.com", "1.2.3.4", "2001:db8::1"):
        eventually(lambda host=address: redirected.python(RESET_CODE, host).stdout == b"reset True\n")  # type: ignore[misc]
    with uplink_server(redirected, serving=False) as server:
        server._listener.shutdown(socket.SHUT_RDWR)  # A server that was killed leaves its socket.
        server._listener.close()
        server._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server._listener.bind(b"\0paddock-test-unused-%d" % os.getpid())
        server._listener.listen()
        assert redirected.python(RESET_CODE, "1.2.3.4").stdout == b"reset True\n"


def test_daemon_itself_is_no_target(redirected: RunningSandbox, server: PassedConnectionServer) -> None:
    code = f"import socket; socket.create_connection(('127.0.0.1', {CONNECTION_PORT}), 5).recv(1)"
    assert b"ConnectionResetError" in redirected.python(code).stderr
    assert server.targets.empty()


def test_connections_wait_for_a_busy_server(redirected: RunningSandbox) -> None:
    with uplink_server(redirected, serving=False, backlog=0) as server:
        redirected.write("/tmp/ask.py", ASK.encode())
        for port in (1, 2, 3, 4):
            redirected.start(f"touch /tmp/asked-{port}; python3 -I /tmp/ask.py 1.2.3.4 {port} >/tmp/asked-{port}")
        connected = "grep -c ' 04030201:000. 01 ' /proc/net/tcp; true"
        eventually(lambda: redirected.output(connected) == "4\n")
        server.start()
        assert {server.targets.get(timeout=10)["port"] for _ in range(4)} == {1, 2, 3, 4}
        eventually(lambda: redirected.output("cat /tmp/asked-*") == "pong\n" * 4)


def test_flood_of_connections_is_reset(redirected: RunningSandbox) -> None:
    """More connections than may wait are reset; waiting connections are passed later."""
    code = (
        "import socket\n"
        "connections = []\n"
        "reset = 0\n"
        "for port in range(1000, 2300):\n"
        "    try:\n"
        "        connections.append(socket.create_connection(('1.2.3.4', port), 5))\n"
        "    except ConnectionResetError:\n"
        "        reset += 1\n"
        "for each in connections:\n"
        "    each.settimeout(0.001)\n"
        "    try:\n"
        "        each.recv(1)\n"
        "    except ConnectionResetError:\n"
        "        reset += 1\n"
        "    except TimeoutError:\n"
        "        pass\n"
        "print(reset)\n"
    )
    with uplink_server(redirected, serving=False, backlog=0) as server:
        reset = int(redirected.python(code).stdout)
        assert 1300 - 1024 - 10 <= reset <= 1300 - 1024
        server.start()
        eventually(lambda: redirected.python(ASK, "example.com", "80").stdout == b"pong\n")


def test_garbage_does_not_stop_the_daemon(redirected: RunningSandbox, server: PassedConnectionServer) -> None:
    code = (
        "import os, random, socket\n"
        "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for n in range(2000):\n"
        "    u.sendto(os.urandom(random.randrange(100)), ('127.0.0.1', 53))\n"
        "clients = []\n"
        "for n in range(200):\n"
        "    clients.append(socket.create_connection(('127.0.0.1', 53), 5))\n"
        "    try:\n"
        "        clients[-1].sendall(random.choice([b'', b'\\xff\\xff', b'\\0\\x20abc', os.urandom(50)]))\n"
        "    except OSError:\n"
        "        pass\n"
        "    if n % 3 == 0:\n"
        "        clients[-1].close()\n"
        "for n in range(300):\n"
        "    socket.create_connection(('1.2.3.4', 80), 5).close()\n"
    )
    assert redirected.python(code).exit_code == 0
    assert redirected.python(ASK, "example.com", "80").stdout == b"pong\n"


def test_ten_thousand_names_keep_their_addresses(redirected: RunningSandbox, server: PassedConnectionServer) -> None:
    """Lookups alone say nothing to the server; a connection names what its program asked for."""
    code = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.settimeout(5)\n"
        "s.connect(('127.0.0.1', 53))\n"
        "found = {}\n"
        "for number in range(10_000):\n"
        "    labels = (f'name-{number}', 'secret-data', 'example', 'com')\n"
        "    question = b''.join(bytes([len(each)]) + each.encode() for each in labels) + b'\\0\\0\\1\\0\\1'\n"
        "    s.send(number.to_bytes(2, 'big') + b'\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + question)\n"
        "    answer = s.recv(600)\n"
        "    assert answer[:2] == number.to_bytes(2, 'big')\n"
        "    found[number] = socket.inet_ntoa(answer[-4:])\n"
        "assert len(set(found.values())) == 10_000\n"
        "for number in (0, 9_999, 1234):\n"
        "    with socket.create_connection((found[number], 443), 10) as connection:\n"
        "        connection.sendall(b'ping')\n"
        "        print(connection.recv(100).decode())\n"
    )
    assert redirected.python(code, timeout=60).stdout == b"pong\n" * 3
    names = [server.targets.get(timeout=5)["name"] for _ in range(3)]
    assert names == [f"name-{number}.secret-data.example.com" for number in (0, 9_999, 1234)]
    assert server.targets.empty()


def test_dns_over_tcp_survives_stalled_and_broken_clients(
    redirected: RunningSandbox, server: PassedConnectionServer
) -> None:
    """Half queries, lengths without queries, EDNS garbage, and clients that never read."""
    code = (
        "import os, socket\n"
        "query = b'\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\1\\7example\\3com\\0\\0\\1\\0\\1'\n"
        "edns = b'\\0\\0\\x29\\4\\xd0\\0\\0\\0\\0'\n"
        "held = []\n"
        "for number in range(150):\n"
        "    client = socket.create_connection(('127.0.0.1', 53), 5)\n"
        "    held.append(client)\n"
        "    client.setblocking(False)\n"
        "    length = len(query).to_bytes(2, 'big')\n"
        "    try:\n"
        "        client.send((length + query[:10], b'\\0', b'\\x0f\\xff', (length + query) * 2000,\n"
        "            (len(query) + 11).to_bytes(2, 'big') + query + edns + os.urandom(2))[number % 5])\n"
        "    except OSError:\n"
        "        pass\n"
        "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "u.settimeout(5)\n"
        "u.connect(('127.0.0.1', 53))\n"
        "for garbage in (query, query + edns + b'\\xff\\xff', query + edns + b'\\0\\4abcd', query + edns * 40):\n"
        "    u.send(garbage)\n"
        "    print(len(u.recv(600)) >= 12)\n"
    )
    assert redirected.python(code, timeout=30).stdout == b"True\n" * 4
    assert redirected.python(ASK, "example.com", "443").stdout == b"pong\n"
    assert server.targets.get(timeout=5)["name"] == "example.com"


def test_table_of_tracked_connections_stays_small(redirected: RunningSandbox) -> None:
    """The kernel charges it to no sandbox, and other sandboxes and the host use it as well."""
    code = (
        "import socket\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for number in range(50_000):\n"
        "    try:\n"
        "        s.sendto(b'x', (f'11.0.{number >> 8}.{number & 255}', 123))\n"
        "    except OSError:\n"
        "        pass\n"
    )
    assert redirected.python(code, timeout=60).exit_code == 0
    assert int(redirected.output("cat /proc/sys/net/netfilter/nf_conntrack_count")) < 30_000
    eventually(lambda: redirected.run("getent hosts example.com").exit_code == 0)
    assert redirected.output("cat /proc/sys/net/netfilter/nf_conntrack_udp_timeout") == "5\n"


def test_loopback_connections_are_not_tracked(redirected: RunningSandbox) -> None:
    code = (
        "import socket\n"
        "def tracked(): return int(open('/proc/sys/net/netfilter/nf_conntrack_count').read())\n"
        "before = tracked()\n"
        "with socket.create_server(('127.0.0.1', 0)) as listener:\n"
        "    for _ in range(300):\n"
        "        client = socket.create_connection(listener.getsockname())\n"
        "        listener.accept()\n"
        "print(tracked() - before)\n"
    )
    assert int(redirected.python(code).stdout) < 50


EPOLL_WAIT_CALLS = ("232", "281", "22")
"""Numbers of `epoll_wait` and `epoll_pwait`: two on x86-64, one on arm64."""


def test_thread_starts_with_the_first_use(harness: LocalBackendHarness) -> None:
    """The thread is found by its wait for many sockets; other threads of the daemon wait for one, or for work."""

    def threads_with_selector(sandbox: RunningSandbox) -> int:
        found = 0
        for task in Path(f"/proc/{sandbox.first_process}/task").iterdir():
            with suppress(OSError):  # The thread may have ended.
                found += (task / "syscall").read_text().split()[0] in EPOLL_WAIT_CALLS
        return found

    with harness.sandbox() as sandbox:
        sandbox.run("true")
        try:
            Path(f"/proc/{sandbox.first_process}/syscall").read_text()
        except PermissionError:
            pytest.skip("this user may not see what threads of the sandbox wait for")
        assert threads_with_selector(sandbox) == 0
        assert sandbox.python(RESOLVE, "example.com").stdout.startswith(b"198.")
        eventually(lambda: threads_with_selector(sandbox) == 1)


CHANGE_NETWORK = """
import os, socket, struct
def change(kind, payload):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.send(struct.pack("=IHHII", 16 + len(payload), kind, 0x405, 0, 0) + payload)
    return -struct.unpack_from("=16xi", s.recv(9999))[0]
print(change(16, struct.pack("=BxHiII", 0, 0, 1, 0, 1)))
print(change(24, struct.pack("=8BI", 2, 0, 0, 0, 255, 3, 254, 2, 0) + struct.pack("=HHI", 8, 4, 1)))
print(change(20, struct.pack("=4BI", 2, 8, 0, 254, 1) + struct.pack("=HH4s", 8, 2, bytes(4))))
try:
    open("/proc/sys/net/ipv4/ip_forward", "w")
except OSError as error:
    print(error.errno)
try:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
except OSError as error:
    print(error.errno)
"""
OPEN_RAW_SOCKETS = """
import socket
for family, kind, protocol in ((2, 3, 1), (2, 3, 6), (2, 3, 255), (10, 3, 58), (17, 3, 3), (17, 2, 3)):
    try:
        print("opened", socket.socket(family, kind, protocol))
    except OSError as error:
        print(error.errno in (1, 97))
"""
OWNER_OF_NAMESPACE = """
import fcntl, os
try:
    print("opened", fcntl.ioctl(os.open("/proc/self/ns/net", os.O_RDONLY), 0xB701))
except OSError as error:
    print(error.errno)
"""
REFUSED = "1\n1\n1\n13\n97\n"


@pytest.mark.parametrize("sandbox", ["running_sandbox", "nested"])
def test_network_cannot_be_changed(sandbox: str, running_sandbox: RunningSandbox, nested: RunningSandbox) -> None:
    target = {"running_sandbox": running_sandbox, "nested": nested}[sandbox]
    assert target.output(["python3", "-I", "-c", CHANGE_NETWORK]) == REFUSED
    assert target.output(["python3", "-I", "-c", OPEN_RAW_SOCKETS]) == "True\n" * 6
    assert target.output(["python3", "-I", "-c", OWNER_OF_NAMESPACE]) == "1\n"
    assert target.run("ip link set lo down").exit_code != 0


def test_root_of_nested_namespace_cannot_change_the_network(nested: RunningSandbox) -> None:
    become_root = ["unshare", "--user", "--map-root-user", "--"]
    assert nested.output([*become_root, "id", "-u"]) == "0\n"
    assert nested.output([*become_root, "python3", "-I", "-c", CHANGE_NETWORK]) == REFUSED
    assert nested.output([*become_root, "python3", "-I", "-c", OPEN_RAW_SOCKETS]) == "True\n" * 6
    assert nested.output([*become_root, "python3", "-I", "-c", OWNER_OF_NAMESPACE]) == "1\n"
    assert nested.run([*become_root, "ip", "link", "set", "lo", "down"]).exit_code != 0
    assert nested.run([*become_root, "nsenter", "--net=/proc/1/ns/net", "true"]).exit_code != 0


def test_nested_network_namespace_leads_nowhere(nested: RunningSandbox) -> None:
    code = "import socket; socket.create_connection(('1.2.3.4', 443), 5)"
    refused = nested.run(["unshare", "--user", "--map-root-user", "--net", "--", "python3", "-I", "-c", code])
    assert b"unreachable" in refused.stderr


def test_ports_80_and_443_work_without_redirection(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a kernel without nftables."""
    program = Path(launcher_client.LAUNCHER_PROGRAM).read_text()
    call = "redirected = configure_network()"
    assert program.count(call) == 1
    refuse = "from paddock.sandbox.local import network_namespace as n; n.NETLINK_NETFILTER = 31; " + call
    older = tmp_path / "launcher_process.py"
    older.write_text(program.replace(call, refuse))
    monkeypatch.setattr(launcher_client, "LAUNCHER_PROGRAM", str(older))
    with local_backend(tmp_path, image) as harness, harness.sandbox() as sandbox:
        assert sandbox.record["redirected"] is False
        with uplink_server(sandbox) as server:
            for host, port in (("example.com", 443), ("1.2.3.4", 80), ("2001:db8::1", 443)):
                assert sandbox.python(ASK, host, str(port)).stdout == b"pong\n"
                assert server.targets.get(timeout=5)["port"] == port
            refused = sandbox.python(ASK, "1.2.3.4", "22")
            assert b"ConnectionRefusedError" in refused.stderr
            assert b"ConnectionResetError" in sandbox.python(ASK, "127.0.0.1", "80").stderr
            assert server.targets.empty()


def test_rules_are_checked_on_the_host(redirected: RunningSandbox) -> None:
    check = host_checks._network_rules()
    assert check.ok
    assert not check.required
