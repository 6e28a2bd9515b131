"""Sandboxes reach no network of the host and no foreign sockets."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

import pytest
from tests.contract.backends.support import RunningSandbox, eventually

OPEN = "import socket, sys; socket.socket(*map(int, sys.argv[1:]))"


def test_host_loopback_is_unreachable(running_sandbox: RunningSandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = service.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        for address in ("127.0.0.1", "0.0.0.0", "localhost"):
            refused = running_sandbox.python(f"import socket; socket.create_connection(('{address}', {port}), 2)")
            assert b"ConnectionRefusedError" in refused.stderr
        for address in ("10.0.0.1", "169.254.169.254", "8.8.8.8"):
            refused = running_sandbox.python(
                f"import socket; socket.create_connection(('{address}', {port}), 5).recv(1)"
            )
            assert b"ConnectionResetError" in refused.stderr or b"ConnectionRefusedError" in refused.stderr
        service.settimeout(0)
        service.accept()[0].close()  # The connection from here, and no other.
        with pytest.raises(BlockingIOError):
            service.accept()


def test_foreign_abstract_sockets_are_unreachable(running_sandbox: RunningSandbox, neighbour: RunningSandbox) -> None:
    name = f"paddock-test-{secrets.token_hex(4)}"
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')"
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(f"\0{name}")
        service.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"\0{name}")
        assert b"ConnectionRefusedError" in running_sandbox.python(connect).stderr
    serve = f"import socket,time; s=socket.socket(socket.AF_UNIX); s.bind('\\\\0{name}'); s.listen(); time.sleep(60)"
    neighbour.start(f'exec python3 -c "{serve}"')
    eventually(lambda: neighbour.python(connect).exit_code == 0)
    assert b"ConnectionRefusedError" in running_sandbox.python(connect).stderr


def test_control_sockets_are_not_visible_in_sandboxes(
    running_sandbox: RunningSandbox, neighbour: RunningSandbox
) -> None:
    sockets = running_sandbox.data / "sockets"
    assert {running_sandbox.id, neighbour.id} <= set(os.listdir(sockets))
    for sandbox_id in (running_sandbox.id, neighbour.id):
        assert running_sandbox.run(["test", "-e", str(sockets / sandbox_id)]).exit_code == 1
    assert running_sandbox.output("find / -xdev -type s 2>/dev/null; true") == ""
    assert running_sandbox.output("cat /proc/net/unix | grep -c sockets; true") == "0\n"


def test_uplink_directory_is_read_only_inside(running_sandbox: RunningSandbox) -> None:
    refused = running_sandbox.python("import socket; socket.socket(socket.AF_UNIX).bind('/run/paddock/holes/llm.sock')")
    assert refused.exit_code == 1
    assert os.listdir(running_sandbox.files.uplinks) == []


@pytest.mark.parametrize(
    ("family", "kind", "protocol"),
    [(40, 1, 0), (17, 3, 0), (17, 2, 0), (16, 3, 15), (16, 3, 9), (16, 3, 12), (38, 5, 0), (21, 5, 0), (30, 1, 0),
     (29, 3, 0), (31, 3, 0), (44, 3, 0), (15, 3, 2), (45, 1, 0)],
    ids=["vsock", "packet", "packet-dgram", "uevent", "audit", "netfilter", "alg", "rds", "tipc", "can", "bluetooth",
         "xdp", "key", "mctp"],
)  # fmt: skip
def test_unusual_sockets_are_refused(running_sandbox: RunningSandbox, family: int, kind: int, protocol: int) -> None:
    refused = running_sandbox.python(OPEN, str(family), str(kind), str(protocol))
    assert b"Address family not supported" in refused.stderr


def test_unusual_pairs_of_sockets_are_refused(running_sandbox: RunningSandbox) -> None:
    code = "import socket; socket.socketpair(30, socket.SOCK_STREAM)"
    assert b"Address family not supported" in running_sandbox.python(code).stderr
    assert running_sandbox.python("import socket; socket.socketpair()").exit_code == 0


def test_bits_above_the_family_do_not_pass_the_filter(running_sandbox: RunningSandbox) -> None:
    code = (
        "import ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for family in (40 | 1 << 32, 17 | 1 << 40, 16 | 1 << 33):\n"
        "    print(libc.syscall(ctypes.c_long(41), ctypes.c_long(family), ctypes.c_long(3), ctypes.c_long(0)))\n"
        "print(libc.syscall(ctypes.c_long(41), ctypes.c_long(16), ctypes.c_long(3), ctypes.c_long(15 | 1 << 32)))\n"
    )
    assert running_sandbox.python(code).stdout == b"-1\n" * 4


def test_raw_sockets_and_interfaces_are_refused(running_sandbox: RunningSandbox) -> None:
    assert b"PermissionError" in running_sandbox.python(OPEN, "2", "3", "1").stderr
    assert running_sandbox.run("ip link add dummy0 type dummy").exit_code != 0
    assert running_sandbox.run("ip link set lo down").exit_code != 0


def test_ordinary_sockets_work_inside(running_sandbox: RunningSandbox) -> None:
    code = (
        "import socket\n"
        "with socket.create_server(('127.0.0.1', 0)) as s: socket.create_connection(s.getsockname()).close()\n"
        "socket.socket(socket.AF_INET6).close()\n"
        "print([n for _, n in socket.if_nameindex()])\n"
    )
    assert running_sandbox.python(code).stdout == b"['lo']\n"


def test_host_socket_table_is_hidden(running_sandbox: RunningSandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = f":{service.getsockname()[1]:04X}"
        assert port in Path("/proc/net/tcp").read_text()
        assert port not in running_sandbox.output("cat /proc/net/tcp")
