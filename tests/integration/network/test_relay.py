"""The relay of connections, with real sockets; the test plays the daemon and hostile programs."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paddock.config.network import NetworkConfig
from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.model.network import ConnectionRecord, ConnectionRefusal
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.network.addresses import TargetAddresses
from paddock.network.daily_bytes import DailyByteCounts
from paddock.network.package_indexes import PackageIndexes
from paddock.network.sandbox_networks import SandboxNetworks
from paddock.store.byte_count_store import ByteCountStore
from paddock.store.database import Store

pytestmark = pytest.mark.anyio
INDEXES = PackageIndexes(("https://pypi.org/simple",), "https://registry.npmjs.org/")


@dataclass
class Relay:
    """A relay for one sandbox, and what it recorded."""

    networks: SandboxNetworks
    sandbox: Sandbox
    uplinks: Path
    records: list[ConnectionRecord] = field(default_factory=list)
    sockets: ExitStack = field(default_factory=ExitStack)
    """Closes the sockets of programs at the end."""

    async def open(self, name: str | None, port: int, address: str = "198.18.0.1") -> socket.socket:
        """Return the program's end of a connection that was passed to the server."""
        program, passed = tcp_pair()
        await self.send({"version": 1, "name": name, "address": address, "port": port}, [passed.fileno()])
        passed.close()
        program.setblocking(False)
        return self.sockets.enter_context(program)

    async def send(self, message: Any, descriptors: list[int]) -> None:
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(self.uplinks / "network.sock"))
            content = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            socket.send_fds(control, [content], descriptors)

    async def record(self, count: int = 1) -> ConnectionRecord:
        """Return the latest record once there are this many."""
        async with asyncio.timeout(10):
            while len(self.records) < count:
                await asyncio.sleep(0.01)
        return self.records[-1]

    async def change_policy(self, *rules: str) -> int:
        self.sandbox = self.sandbox.model_copy(update={"network": rules})
        return await self.networks.apply_policy(self.sandbox)


@pytest.fixture
async def open_relay(tmp_path: Path) -> Callable[..., Any]:
    @asynccontextmanager
    async def open_one(*rules: str, proxies: OutgoingProxies | None = None, **settings: Any) -> AsyncIterator[Relay]:
        config = NetworkConfig(
            **{"private_targets": ("site.test", "127.0.0.1"), "hosts": {"site.test": "127.0.0.1"}, **settings}
        )
        now = datetime.now(UTC)
        sandbox = Sandbox(
            id="sb-1", tenant="t", subject="key-1", backend="local", image="code", state=SandboxState.RUNNING,
            created_at=now, changed_at=now, network=rules, metadata={"session": "se-1"},
        )  # fmt: skip
        records: list[ConnectionRecord] = []
        addresses = TargetAddresses(config.private_targets)
        async with await Store.open(tmp_path / "paddock.db") as store:
            daily_bytes = DailyByteCounts(config, ByteCountStore(store))
            networks = SandboxNetworks(config, records.append, flush_nothing, addresses, daily_bytes, INDEXES, proxies)
            await networks.on_started(sandbox, tmp_path)
            relay = Relay(networks, sandbox, tmp_path, records)
            with relay.sockets:
                try:
                    yield relay
                finally:
                    await networks.close()

    return open_one


@asynccontextmanager
async def server(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any], **options: Any
) -> AsyncIterator[int]:
    listening = await asyncio.start_server(handle, "127.0.0.1", 0, **options)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 ready\r\n")
    with suppress(ConnectionError):
        await reader.read()
    writer.close()


async def flush_nothing() -> None:
    """The records of these tests are kept at once."""


async def read_all(program: socket.socket, timeout: float = 5) -> bytes:
    received = b""
    async with asyncio.timeout(timeout):
        while True:
            try:
                data = await asyncio.get_running_loop().sock_recv(program, 65536)
            except ConnectionResetError:
                return received + b"<reset>"
            if not data:
                return received
            received += data


async def test_allowed_name_is_relayed_and_recorded(open_relay: Callable[..., Any]) -> None:
    loop = asyncio.get_running_loop()
    async with server(echo) as port, open_relay(f"allow site.test:{port}") as relay:
        program = await relay.open("site.test", port)
        await loop.sock_sendall(program, b"hello")
        assert await loop.sock_recv(program, 100) == b"hello"
        (open_connection,) = relay.networks.open_connections("sb-1")
        assert open_connection.sent == 5 and open_connection.received == 5
        program.shutdown(socket.SHUT_WR)
        assert await read_all(program) == b""
        record = await relay.record()
        assert (record.name, record.address, record.port) == ("site.test", "127.0.0.1", port)
        assert (record.sent, record.received, record.allowed) == (5, 5, True)
        assert record.rule == f"allow site.test:{port}" and record.session == "se-1" and record.refusal is None
        assert relay.networks.open_connections("sb-1") == []


async def test_server_may_speak_first(open_relay: Callable[..., Any]) -> None:
    async with server(greet) as port, open_relay("allow site.test") as relay:
        program = await relay.open("site.test", port)
        assert await asyncio.get_running_loop().sock_recv(program, 100) == b"220 ready\r\n"
        program.close()
        await relay.record()


async def test_large_transfers_are_complete_with_slow_readers(open_relay: Callable[..., Any]) -> None:
    loop = asyncio.get_running_loop()
    size = 32 * 2**20

    async def send_much(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _step in range(size // 2**20):
            writer.write(os.urandom(1) * 2**20)
            await writer.drain()
        writer.close()

    async with server(send_much) as port, open_relay("allow site.test") as relay:
        program = await relay.open("site.test", port)
        received = 0
        await asyncio.sleep(0.2)  # Without a reader, the relay must wait and not buffer.
        while data := await loop.sock_recv(program, 2**20):
            received += len(data)
        assert received == size


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", b"`allow other.test:80`"),
        (b"SSH-2.0-OpenSSH\r\n", b"<reset>"),
        (b"\x16\x03\x01\x00\x05", bytes((0x15, 3, 3, 0, 2, 2, 49))),
    ],
)
async def test_denied_connection_is_told_in_its_protocol(
    open_relay: Callable[..., Any], first: bytes, expected: bytes
) -> None:
    async with open_relay("allow site.test") as relay:
        program = await relay.open("other.test", 80)
        await asyncio.get_running_loop().sock_sendall(program, first)
        assert expected in await read_all(program)
        record = await relay.record()
        assert record.refusal is ConnectionRefusal.NO_RULE and not record.allowed and record.address is None


async def test_denied_names_are_never_looked_up(
    open_relay: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[str] = []
    real = socket.getaddrinfo

    def look_up(name: Any, *arguments: Any, **options: Any) -> Any:
        if name != "127.0.0.1":
            looked_up.append(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    async with open_relay("allow site.test") as relay:
        program = await relay.open("secret-data.attacker.test", 443)
        assert await read_all(program) == b"<reset>"
        await relay.record()
    assert looked_up == []


async def test_name_that_leads_to_private_address_is_refused(open_relay: Callable[..., Any]) -> None:
    hosts = {"rebind.test": "127.0.0.1", "metadata.test": "169.254.169.254"}
    async with server(echo) as port, open_relay("allow open", "allow rebind.test", hosts=hosts) as relay:
        for count, name in enumerate(hosts, 1):
            program = await relay.open(name, port)
            assert await read_all(program) == b"<reset>"
            assert (await relay.record(count)).refusal is ConnectionRefusal.PRIVATE_ADDRESS


@pytest.mark.parametrize("name", ["127.0.0.1", "2130706433", "0x7f.1", "::1", "::ffff:127.0.0.1", "[::1]%lo"])
async def test_addresses_given_as_names_are_checked_as_addresses(open_relay: Callable[..., Any], name: str) -> None:
    async with server(echo) as port, open_relay("allow open", private_targets=()) as relay:
        program = await relay.open(name, port)
        assert await read_all(program) in (b"<reset>", b"")
        assert all(record.refusal is ConnectionRefusal.PRIVATE_ADDRESS for record in relay.records)


async def test_other_tls_server_name_is_refused(open_relay: Callable[..., Any]) -> None:
    received: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(65536))
        writer.close()

    async with server(note) as port, open_relay("allow site.test") as relay:
        for count, (name, expected) in enumerate((("other.test", False), ("site.test", True)), 1):
            program = await relay.open("site.test", port)
            await asyncio.get_running_loop().sock_sendall(program, client_hello(name))
            await read_all(program)
            program.close()
            record = await relay.record(count)
            assert record.server_name == name and record.allowed is expected
        assert len([each for each in received if each]) == 1


async def test_unfinished_hello_is_refused_in_time(
    open_relay: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.network.connection_relay.HELLO_TIMEOUT", 0.2)
    async with server(echo) as port, open_relay("allow site.test") as relay:
        program = await relay.open("site.test", port)
        await asyncio.get_running_loop().sock_sendall(program, client_hello("site.test")[:50])
        await read_all(program)
        assert (await relay.record()).refusal is ConnectionRefusal.SERVER_NAME


async def test_policy_change_closes_connections_that_are_no_longer_allowed(open_relay: Callable[..., Any]) -> None:
    loop = asyncio.get_running_loop()
    async with server(echo) as port, open_relay("allow site.test", "allow 127.0.0.1") as relay:
        by_name, by_address = await relay.open("site.test", port), await relay.open(None, port, "127.0.0.1")
        for program in (by_name, by_address):
            await loop.sock_sendall(program, b"x")
            assert await loop.sock_recv(program, 10) == b"x"
        assert await relay.change_policy("allow 127.0.0.1") == 1
        assert await read_all(by_name) in (b"", b"<reset>")
        assert (await relay.record()).refusal is ConnectionRefusal.POLICY_CHANGED
        await loop.sock_sendall(by_address, b"y")
        assert await loop.sock_recv(by_address, 10) == b"y"
        denied = await relay.open("site.test", port)
        assert await read_all(denied) == b"<reset>"


async def test_unreachable_and_unknown_targets_are_recorded(open_relay: Callable[..., Any]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    async with open_relay("allow site.test", "allow nowhere.invalid") as relay:
        assert await read_all(await relay.open("site.test", port)) == b"<reset>"
        record = await relay.record(1)
        assert record.refusal is ConnectionRefusal.UNREACHABLE and "Connection refused" in (record.message or "")
        assert await read_all(await relay.open("nowhere.invalid", port), 20) == b"<reset>"
        assert (await relay.record(2)).refusal is ConnectionRefusal.UNRESOLVED


async def test_hostile_messages_leave_nothing_open(open_relay: Callable[..., Any]) -> None:
    loop = asyncio.get_running_loop()
    async with server(echo) as port, open_relay("allow site.test") as relay:
        message = {"version": 1, "name": "site.test", "port": port}
        listener = socket.create_server(("127.0.0.1", 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        pair = socket.socketpair()
        tcp = tcp_pair()
        for each in (listener, udp, *pair, *tcp):
            relay.sockets.enter_context(each)
        reader, writer = os.pipe()
        before = len(os.listdir("/proc/self/fd"))
        for descriptors in ([], [listener.fileno()], [udp.fileno()], [pair[0].fileno()], [reader], [writer] * 20):
            await relay.send(message, descriptors)
        for hostile in (
            b"", b"x", b"[]", b"{}", b"9" * 2000, b'{"version":1}', b"\xff\xfe", b"[" * 2000,
            {"version": 2, "name": "site.test", "port": port},
            {"version": 1, "name": "site.test", "port": "80"},
            {"version": 1, "name": "site.test", "port": True},
            {"version": 1, "name": "a b\r\n", "port": 80},
            {"version": 1, "name": "x" * 1500, "port": 80},
        ):  # fmt: skip
            if hostile:
                await relay.send(hostile, [tcp[1].fileno()])
        program = await relay.open("site.test", port)
        await loop.sock_sendall(program, b"still there")
        assert await loop.sock_recv(program, 100) == b"still there"
        program.close()
        async with asyncio.timeout(5):
            while len(os.listdir("/proc/self/fd")) > before:
                await asyncio.sleep(0.05)
        os.close(reader)
        os.close(writer)


async def test_socket_flags_of_the_sandbox_cannot_block_the_relay(open_relay: Callable[..., Any]) -> None:
    """The sandbox keeps the passed socket: it may make it blocking, set a linger time, or read from it."""
    loop = asyncio.get_running_loop()
    async with server(echo) as port, open_relay("allow site.test") as relay:
        program, passed = map(relay.sockets.enter_context, tcp_pair())
        await relay.send({"version": 1, "name": "site.test", "address": "1.1.1.1", "port": port}, [passed.fileno()])
        passed.setblocking(True)
        passed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\xff\x00\x00\x00")
        program.setblocking(False)
        await loop.sock_sendall(program, b"x")
        async with asyncio.timeout(5):
            while not relay.networks.open_connections("sb-1"):
                await asyncio.sleep(0.01)
        other = await relay.open("site.test", port)
        await loop.sock_sendall(other, b"other")
        assert await asyncio.wait_for(loop.sock_recv(other, 10), 5) == b"other"
        passed.close()


async def test_removed_sandbox_and_stopped_server_close_connections(open_relay: Callable[..., Any]) -> None:
    async with server(echo) as port, open_relay("allow site.test") as relay:
        programs = [await relay.open("site.test", port) for _ in range(20)]
        for program in programs:
            await asyncio.get_running_loop().sock_sendall(program, b"x")
            assert await asyncio.get_running_loop().sock_recv(program, 10) == b"x"
        await relay.networks.on_ended("sb-1")
        for program in programs:
            assert await read_all(program) in (b"", b"<reset>")
        assert len(relay.records) == 20


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection inside the sandbox: the program's and the daemon's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = socket.create_connection(listener.getsockname())
        passed, _ = listener.accept()
    return program, passed


def client_hello(name: str) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


async def test_parts_of_an_answer_do_not_wait_for_acknowledgements(open_relay: Callable[..., Any]) -> None:
    """The passed socket has no delay, since a program cannot know that its answer comes in parts."""

    async def answer_in_parts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while await reader.readline():
                for part in (b"head\n", b"body\n"):
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0.001)
        writer.close()

    async with server(answer_in_parts) as port, open_relay("allow site.test") as relay:
        program = await relay.open("site.test", port)
        reader, writer = await asyncio.open_connection(sock=program)
        for _ in range(3):
            writer.write(b"request\n")
            assert [await reader.readline(), await reader.readline()] == [b"head\n", b"body\n"]
        passed = next(iter(relay.networks._sandboxes["sb-1"].relays)).passed.socket
        assert passed.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        writer.close()
