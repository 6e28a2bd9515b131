"""Attempts to reach through the relay what no rule allows: names, addresses and handshakes in disguise."""

# ruff: noqa: RUF001  Confusable characters are what these tests are about.

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from paddock.model.network import ConnectionRefusal
from paddock.network import connection_relay, sandbox_networks
from paddock.network.name_lookups import MAX_SANDBOX_LOOKUPS

from .test_relay import Relay, client_hello, echo, open_relay, read_all, server

__all__ = ["open_relay"]
pytestmark = pytest.mark.anyio
PUBLIC = "93.184.216.34"
ENCRYPTED_CLIENT_HELLO = 0xFE0D


@dataclass
class Resolver:
    """Answers of name servers, in order; the last one repeats."""

    answers: dict[str, list[list[str]]]
    lookups: list[str] = field(default_factory=list)
    real: Any = socket.getaddrinfo

    def look_up(self, name: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if name == "127.0.0.1":  # Sockets of the test itself.
            return self.real(name, port, *arguments, **options)
        if name not in self.answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        self.lookups.append(name)
        answers = self.answers[name]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "internal.corp", (each, port))
            for each in found
        ]


@dataclass
class Dialled:
    """Addresses that the relay connected to; all lead to one server on this machine."""

    port: int
    addresses: list[str] = field(default_factory=list)


@pytest.fixture(autouse=True)
def quick_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused programs that say nothing are not waited for as long as usual."""
    monkeypatch.setattr("paddock.network.refusal_reply.FIRST_BYTES_TIMEOUT", 0.1)
    monkeypatch.setattr("paddock.network.refusal_reply.CLOSE_TIMEOUT", 0.1)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    answering = Resolver({})
    monkeypatch.setattr(socket, "getaddrinfo", answering.look_up)
    return answering


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> Dialled:
    """Let the relay's connections to public addresses end at an echo server on this machine."""
    real, found = connection_relay._connect_directly, Dialled(0)

    async def connect(address: Any, port: int) -> socket.socket:
        found.addresses.append(str(address))
        return await real(type(address)("127.0.0.1" if address.version == 4 else "::1"), found.port)

    monkeypatch.setattr(connection_relay, "_connect_directly", connect)
    return found


async def attempt(relay: Relay, name: str | None, port: int, address: str = "198.18.0.1") -> bytes:
    """Return what a program reads that sends a word and waits for the echo."""
    program = await relay.open(name, port, address)
    with suppress(OSError):  # A connection with an invalid name is closed at once.
        await asyncio.get_running_loop().sock_sendall(program, b"word")
        program.shutdown(socket.SHUT_WR)
    return await read_all(program)


async def test_name_that_turns_private_is_refused(
    open_relay: Callable[..., Any], resolver: Resolver, dialled: Dialled
) -> None:
    """DNS rebinding: every connection is resolved once, and goes to the address that was checked."""
    resolver.answers["rebind.test"] = [[PUBLIC], ["127.0.0.1"], [PUBLIC, "127.0.0.1", "::1", "169.254.169.254"]]
    async with server(echo) as dialled.port, open_relay("allow open", "allow rebind.test", hosts={}) as relay:
        assert await attempt(relay, "rebind.test", 443) == b"word"
        assert await attempt(relay, "rebind.test", 443) in (b"", b"<reset>")
        record = await relay.record(2)
        assert (record.refusal, record.address) == (ConnectionRefusal.PRIVATE_ADDRESS, None)
        assert await attempt(relay, "rebind.test", 443) == b"word"
        assert dialled.addresses == [PUBLIC, PUBLIC] and len(resolver.lookups) == 3


async def test_only_public_addresses_of_a_name_are_tried(
    open_relay: Callable[..., Any], resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    async def connect(address: Any, port: int) -> socket.socket:
        tried.append(str(address))
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(connection_relay, "_connect_directly", connect)
    private = ["10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1", "fd00::1", "0.0.0.0"]
    resolver.answers["mixed.test"] = [[*private[:3], PUBLIC, *private[3:]]]
    async with open_relay("allow open") as relay:
        assert await attempt(relay, "mixed.test", 443) in (b"", b"<reset>")
        await relay.record()
    assert tried == [PUBLIC]


async def test_alias_of_a_private_name_is_refused(
    open_relay: Callable[..., Any], resolver: Resolver, dialled: Dialled
) -> None:
    """A CNAME: the operator allows the private name, but programs must ask for it by that name."""
    resolver.answers |= {"alias.test": [["10.0.0.7"]], "internal.corp": [["10.0.0.7"]]}
    rules = ("allow open", "allow alias.test", "allow internal.corp")
    async with server(echo) as dialled.port:
        async with open_relay(*rules, hosts={}, private_targets=("internal.corp",)) as relay:
            assert await attempt(relay, "alias.test", 443) in (b"", b"<reset>")
            assert (await relay.record()).refusal is ConnectionRefusal.PRIVATE_ADDRESS
        # A wildcard before the name's own rule does not name it.
        async with open_relay(*rules[1:], hosts={}, private_targets=("internal.corp",)) as relay:
            assert await attempt(relay, "internal.corp", 443) == b"word"
    assert dialled.addresses == ["10.0.0.7"]


@pytest.mark.parametrize(
    "address",
    [
        *("127.1", "0177.0.0.1", "017700000001", "0x7f000001", "127.0.0.1.", "::ffff:7f00:1", "::ffff:10.0.0.1"),
        *("::1%lo", "fe80::1%eth0", "fe80::1%25lo", "169.254.169.254%1", "0", "0x0", "::"),
        *("１２７.0.0.1", "127。0。0。1", "①②⑦.0.0.1", "[::1]", "::127.0.0.1", "64:ff9b::a9fe:a9fe"),
    ],
)
async def test_no_spelling_of_a_private_address_is_reached(
    open_relay: Callable[..., Any], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spellings that resolvers, C libraries or IDNA would turn into an address; none may count as a name either."""
    dialled: list[Any] = []

    async def connect(*target: Any) -> socket.socket:
        dialled.append(target)
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(connection_relay, "_connect_directly", connect)
    async with open_relay("allow open", "allow *", private_targets=()) as relay:
        for name, literal in ((address, "198.18.0.1"), (None, address)):
            program = await relay.open(name, 443, literal)
            assert await read_all(program) in (b"", b"<reset>")
        assert all(record.name is None and not record.allowed for record in relay.records), relay.records
    assert dialled == []


async def test_network_rules_apply_to_every_spelling(open_relay: Callable[..., Any], dialled: Dialled) -> None:
    """A deny rule of a network holds for addresses that are given as names."""
    async with server(echo) as dialled.port, open_relay("deny 93.184.216.0/24", "allow open") as relay:
        for spelling in (PUBLIC, "1572395042", "0x5db8d822", "９３.184.216.34", "93.184.216.34.", f"::ffff:{PUBLIC}"):
            assert await attempt(relay, spelling, 443) in (b"", b"<reset>"), spelling
        assert {record.refusal for record in relay.records} == {ConnectionRefusal.DENY_RULE}
    assert dialled.addresses == []


@pytest.mark.parametrize(
    ("rule", "name", "reached"),
    [
        ("allow site.test", "site.test.", True),
        ("allow site.test.", "SITE.Test", True),
        ("allow site.test", "site.test..", False),
        ("allow site.test", ".site.test", False),
        ("allow site.test", "site.test.attacker.test", False),
        ("allow *.test", "site.test.", True),
        ("allow xn--bcher-kva.test", "bücher.test", True),
        ("allow bücher.test", "xn--bcher-kva.test", True),
        ("allow bücher.test", "bucher.test", False),
        ("allow site.test", "sіte.test", False),  # A Cyrillic letter.
        ("allow site.test", "ѕіtе.tеst", False),
        ("allow site.test", "site。test", True),  # Resolvers map this full stop, and so does the relay.
        ("allow site.test", "site\u00ad.test", True),
        ("allow site.test", "site\u2024test", False),
        ("deny site.test", "ＳＩＴＥ.test", False),
        ("deny site.test", "site.test.", False),
    ],
)  # fmt: skip
async def test_names_are_compared_in_one_spelling(
    open_relay: Callable[..., Any], resolver: Resolver, dialled: Dialled, rule: str, name: str, reached: bool
) -> None:
    for known in ("site.test", "xn--bcher-kva.test", "bucher.test", "xn--ste-hmc.test"):
        resolver.answers[known] = [[PUBLIC]]
    rules = (rule, "allow web") if rule.startswith("deny") else (rule,)
    async with server(echo) as dialled.port, open_relay(*rules, hosts={}) as relay:
        answer = await attempt(relay, name, 443)
    assert (answer == b"word") is reached
    assert bool(dialled.addresses) is reached
    assert set(resolver.lookups) <= {"site.test", "xn--bcher-kva.test"}


async def test_other_server_name_is_refused_on_every_port(
    open_relay: Callable[..., Any], resolver: Resolver, dialled: Dialled
) -> None:
    resolver.answers["site.test"] = [[PUBLIC]]
    async with server(echo) as dialled.port, open_relay("allow site.test", hosts={}) as relay:
        for count, port in enumerate((443, 80, 22, 853, 8443, 65535), 1):
            program = await relay.open("site.test", port)
            await asyncio.get_running_loop().sock_sendall(program, client_hello("other.test"))
            assert b"<reset>" in (answer := await read_all(program)) or answer[:1] == b"\x15"
            record = await relay.record(count)
            assert (record.refusal, record.sent) == (ConnectionRefusal.SERVER_NAME, 0)


async def test_hello_without_server_name_reaches_the_requested_host(
    open_relay: Callable[..., Any], resolver: Resolver, dialled: Dialled
) -> None:
    """Such a client gets the certificate that the host shows by default; it can ask for no other."""
    resolver.answers["site.test"] = [[PUBLIC]]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    hello = outgoing.read()
    async with server(echo) as dialled.port, open_relay("allow site.test", hosts={}) as relay:
        program = await relay.open("site.test", 443)
        await asyncio.get_running_loop().sock_sendall(program, hello)
        program.shutdown(socket.SHUT_WR)
        assert await read_all(program) == hello
        record = await relay.record()
        assert record.allowed and record.server_name is None


@pytest.mark.parametrize(("outer", "passed"), [("site.test", True), ("public-name.test", False)])
async def test_encrypted_hello_must_show_the_requested_name(
    open_relay: Callable[..., Any], resolver: Resolver, dialled: Dialled, outer: str, passed: bool
) -> None:
    """The outer name of an Encrypted Client Hello is checked; browsers send a meaningless extension to all hosts."""
    resolver.answers["site.test"] = [[PUBLIC]]
    hello = with_extension(client_hello(outer), ENCRYPTED_CLIENT_HELLO, b"\0" * 200)
    async with server(echo) as dialled.port, open_relay("allow site.test", hosts={}) as relay:
        program = await relay.open("site.test", 443)
        await asyncio.get_running_loop().sock_sendall(program, hello)
        program.shutdown(socket.SHUT_WR)
        assert (await read_all(program) == hello) is passed
        record = await relay.record()
        assert (record.server_name, record.allowed) == (outer, passed)


@pytest.mark.parametrize(("name", "passed"), [("site.test", True), ("other.test", False)])
async def test_hello_in_single_bytes_is_read_to_its_end(
    open_relay: Callable[..., Any], resolver: Resolver, dialled: Dialled, name: str, passed: bool
) -> None:
    resolver.answers["site.test"] = [[PUBLIC]]
    hello = client_hello(name)
    async with server(echo) as dialled.port, open_relay("allow site.test", hosts={}) as relay:
        program = await relay.open("site.test", 443)
        program.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for index in range(len(hello)):
            await asyncio.get_running_loop().sock_sendall(program, hello[index : index + 1])
            await asyncio.sleep(0)
        program.shutdown(socket.SHUT_WR)
        assert (await read_all(program) == hello) is passed
        record = await relay.record()
        assert (record.allowed, record.sent > 0) == (passed, passed)


async def test_second_hello_of_a_connection_changes_nothing(
    open_relay: Callable[..., Any], resolver: Resolver, dialled: Dialled
) -> None:
    """A malformed first record must not hide the hello behind it."""
    resolver.answers["site.test"] = [[PUBLIC]]
    async with server(echo) as dialled.port, open_relay("allow site.test", hosts={}) as relay:
        for count, prefix in enumerate(
            (b"\x16\x03\x01\x00\x00", b"\x14\x03\x03\x00\x01\x01", b"\x17\x03\x03\x00\x00"), 1
        ):
            program = await relay.open("site.test", 443)
            await asyncio.get_running_loop().sock_sendall(program, prefix + client_hello("other.test"))
            assert client_hello("other.test")[-32:] not in await read_all(program)
            assert (await relay.record(count)).refusal is ConnectionRefusal.SERVER_NAME


async def test_silent_handshakes_of_the_daemon_expire(
    open_relay: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sandbox that opens its uplink socket and sends nothing delays only itself, and not for long."""
    monkeypatch.setattr(sandbox_networks, "MESSAGE_TIMEOUT", 0.3)
    async with server(echo) as port, open_relay("allow site.test") as relay:
        with ExitStack() as held:
            for _ in range(sandbox_networks.MAX_HANDSHAKES + 20):
                control = held.enter_context(socket.socket(socket.AF_UNIX))
                control.connect(str(relay.uplinks / "network.sock"))
            assert await attempt(relay, "site.test", port) == b"word"


async def test_connections_without_a_word_hold_no_others_up(open_relay: Callable[..., Any]) -> None:
    """Half-open: the program neither sends nor reads, and the site does not even accept."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as silent:
        async with server(echo) as port, open_relay("allow site.test", max_connections=300) as relay:
            for _ in range(299):
                await relay.open("site.test", silent.getsockname()[1])
            async with asyncio.timeout(10):
                while len(relay.networks.open_connections("sb-1")) < 299:
                    await asyncio.sleep(0.01)
            assert await attempt(relay, "site.test", port) == b"word"


async def test_wildcard_lookups_are_limited(open_relay: Callable[..., Any], resolver: Resolver) -> None:
    """Names below an allowed wildcard can carry data to its name servers, but only as fast as connections."""
    names = [f"{number:060x}.tunnel.test" for number in range(200)]
    async with open_relay("allow *.tunnel.test", max_new_per_second=5) as relay:
        resolver.answers |= {name: [["10.0.0.1"]] for name in names}
        for name in names:
            (await relay.open(name, 443)).close()
        await relay.record(200)
        burst = 5 * sandbox_networks.BURST_SECONDS
        assert burst <= len(resolver.lookups) <= burst + 50
        limited = [record for record in relay.records if record.refusal is ConnectionRefusal.LIMIT]
        assert len(limited) == 200 - len(resolver.lookups)


async def test_slow_name_servers_delay_only_the_sandbox_that_asks_them(
    open_relay: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering, asked, real = threading.Event(), [], socket.getaddrinfo

    def look_up(name: Any, *arguments: Any, **options: Any) -> Any:
        if name.endswith(".slow.test"):
            asked.append(name)
            answering.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    rules, private = ("allow *.slow.test", "allow quick.test"), ("quick.test",)
    async with server(echo) as port, open_relay(*rules, private_targets=private, connect_timeout=0.2) as relay:
        others = relay.uplinks / "others"
        others.mkdir()
        other = relay.sandbox.model_copy(update={"id": "sb-2"})
        await relay.networks.on_started(other, others)
        for number in range(50):
            (await relay.open(f"{number}.slow.test", 443)).close()
        await relay.record(50)
        # Lookups that were given up still count, since their threads wait.
        assert len(asked) == MAX_SANDBOX_LOOKUPS
        assert await attempt(replace(relay, uplinks=others), "quick.test", port) == b"word"
        answering.set()
        assert await attempt(relay, "quick.test", port) == b"word"


async def test_names_that_are_none_are_never_looked_up(open_relay: Callable[..., Any], resolver: Resolver) -> None:
    hostile: Sequence[str] = (
        "a b",
        "a/b",
        "a\0b",
        "x" * 64 + "…",
        "-a.test",
        "a..test",
        "*",
        "*.test",
        "a@b",
        "a:1",
        "",
    )
    async with open_relay("allow *") as relay:
        for name in hostile:
            program = await relay.open(name, 443)
            assert await read_all(program) in (b"", b"<reset>")
        assert relay.records == [] and resolver.lookups == []


def with_extension(hello: bytes, kind: int, content: bytes) -> bytes:
    """Return a ClientHello of one record with a further extension."""
    body = bytearray(hello[9:])
    position = 2 + 32
    position += 1 + body[position]
    position += 2 + int.from_bytes(body[position : position + 2], "big")
    position += 1 + body[position]
    extensions = bytes(body[position + 2 :]) + kind.to_bytes(2, "big") + len(content).to_bytes(2, "big") + content
    body[position:] = len(extensions).to_bytes(2, "big") + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + bytes(body)
    return hello[:3] + len(message).to_bytes(2, "big") + message
