"""A vault for tests of the relay: a sandbox with bindings, an HTTPS server that records requests, and programs."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h11
import trustme

from paddock.config.network import NetworkConfig
from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.model.credential_vault import CredentialAuth, CredentialAuthType, CredentialMatch, CredentialVault
from paddock.model.network import ConnectionRecord
from paddock.model.sandbox import VAULT_EXTENSION, Sandbox, SandboxState
from paddock.network.addresses import TargetAddresses
from paddock.network.daily_bytes import DailyByteCounts
from paddock.network.package_indexes import PackageIndexes
from paddock.network.sandbox_networks import SandboxNetworks
from paddock.network.vault.credential_vaults import CredentialVaults
from paddock.network.vault.vault_changes import NewBinding, NewCredential, VaultPatch
from paddock.network.vault.vault_sealing import VaultSealer
from paddock.store.byte_count_store import ByteCountStore
from paddock.store.database import Store
from paddock.store.vault_store import CredentialVaultStore

HOST = "api.test"
SECRET = "s3cret-token-of-the-api"
INDEXES = PackageIndexes(("https://pypi.org/simple",), "https://registry.npmjs.org/")


@dataclass
class SeenRequest:
    """A request as the server got it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each.lower() == name.lower()]


Answer = Callable[[SeenRequest, h11.Connection, asyncio.StreamReader, asyncio.StreamWriter], Any]


@dataclass
class RecordingServer:
    """Answers requests of any path; `answers` replace the default answer by path."""

    port: int = 0
    requests: list[SeenRequest] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    connections: int = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = h11.Connection(h11.SERVER)
        with suppress(ConnectionError, h11.RemoteProtocolError, ssl.SSLError):
            while await self._serve_request(connection, reader, writer):
                connection.start_next_cycle()
        writer.close()

    async def _serve_request(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        seen: SeenRequest | None = None
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Request):
                headers = [(name.decode(), value.decode()) for name, value in event.headers.raw_items()]
                seen = SeenRequest(event.method.decode(), event.target.decode(), headers)
                self.requests.append(seen)
                if connection.they_are_waiting_for_100_continue and "refuse" not in seen.target:
                    writer.write(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
                if "refuse" in seen.target:
                    break
            elif isinstance(event, h11.Data):
                assert seen is not None
                seen.body += bytes(event.data)
            else:
                break
        if seen is None:
            return False
        answer = self.answers.get(seen.target.partition("?")[0], answer_with_ok)
        await answer(seen, connection, reader, writer)
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE


async def answer_with_ok(
    seen: SeenRequest, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    await send_response(connection, writer, 200, [], [] if seen.method == "HEAD" else [b"ok"])


async def send_response(
    connection: h11.Connection,
    writer: asyncio.StreamWriter,
    status: int,
    headers: Sequence[tuple[str, str]],
    pieces: Sequence[bytes],
    *,
    chunked: bool = False,
) -> None:
    framing = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(sum(map(len, pieces))))
    response = h11.Response(status_code=status, headers=[*headers, framing])
    writer.write(connection.send(response) or b"")
    for piece in pieces:
        writer.write(connection.send(h11.Data(data=piece)) or b"")
        await writer.drain()
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()


@dataclass
class VaultSandbox:
    """A sandbox with a vault, and programs that connect from it."""

    networks: SandboxNetworks
    vaults: CredentialVaults
    sandbox: Sandbox
    uplinks: Path
    authority: trustme.CA
    records: list[ConnectionRecord] = field(default_factory=list)
    sockets: ExitStack = field(default_factory=ExitStack)

    async def bind(
        self,
        port: int,
        name: str = "api",
        *,
        value: str = SECRET,
        auth: CredentialAuth | None = None,
        **match: Any,
    ) -> CredentialVault:
        """Bind a credential of the same name to requests."""
        chosen = auth or CredentialAuth(type=CredentialAuthType.BEARER, credential=name)
        binding = NewBinding(name, CredentialMatch(**{"hosts": (HOST,), "ports": (port,), **match}), chosen)
        patch = VaultPatch(put_credentials=[NewCredential(name, value)], put_bindings=[binding])
        return await self.vaults.put(self.sandbox, patch)

    async def connect(self, port: int, name: str = HOST) -> socket.socket:
        """Return the program's end of a connection that was passed to the server."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            program = socket.create_connection(listener.getsockname())
            passed, _ = listener.accept()
        message = {"version": 1, "name": name, "address": "198.18.0.1", "port": port}
        with passed, socket.socket(socket.AF_UNIX) as control:
            control.connect(str(self.uplinks / "network.sock"))
            socket.send_fds(control, [json.dumps(message).encode() + b"\n"], [passed.fileno()])
        program.setblocking(False)
        return self.sockets.enter_context(program)

    def trust(self, *, upstream: bool = False) -> ssl.SSLContext:
        """Return what programs of the sandbox trust: its own authority, or that of the server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if upstream:
            self.authority.configure_trust(context)
        else:
            vault = self.vaults.active(self.sandbox.id)
            assert vault is not None
            context.load_verify_locations(cadata=vault.authority.certificate_pem)
        return context

    async def connect_tls(
        self, port: int, name: str = HOST, context: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        program = await self.connect(port, name)
        return await asyncio.open_connection(sock=program, ssl=context or self.trust(), server_hostname=name)

    async def exchange(self, port: int, request: bytes) -> bytes:
        """Send bytes over TLS and return everything until the end."""
        reader, writer = await self.connect_tls(port)
        writer.write(request)
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        return answer

    async def get(self, port: int, path: str = "/", *headers: str, method: str = "GET") -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}:{port}", *headers, "Connection: close", "", ""]
        return await self.exchange(port, "\r\n".join(lines).encode())

    async def record(self, count: int = 1) -> ConnectionRecord:
        """Return the latest record once there are this many."""
        async with asyncio.timeout(10):
            while len(self.records) < count:
                await asyncio.sleep(0.01)
        return self.records[-1]


async def flush_nothing() -> None:
    """The records of these tests are kept at once."""


@asynccontextmanager
async def open_vault_sandbox(directory: Path) -> AsyncIterator[VaultSandbox]:
    authority = trustme.CA()
    bundle = directory / "upstream.pem"
    authority.cert_pem.write_to_path(str(bundle))
    config = NetworkConfig(
        private_targets=(HOST, "other.test", "a.wild.test"),
        hosts={HOST: "127.0.0.1", "other.test": "127.0.0.1", "a.wild.test": "127.0.0.1"},
    )
    now = datetime.now(UTC)
    sandbox = Sandbox(
        id="sb-1", tenant="t", subject="key-1", backend="local", image="code", state=SandboxState.RUNNING,
        created_at=now, changed_at=now, network=(f"allow {HOST}", "allow other.test", "allow a.wild.test"),
        extensions={VAULT_EXTENSION: "enabled"},
    )  # fmt: skip
    records: list[ConnectionRecord] = []
    async with await Store.open(directory / "paddock.db") as store:
        sealer = VaultSealer.open(directory / "vault.key")
        vaults = await CredentialVaults.load(CredentialVaultStore(store), sealer)
        networks = SandboxNetworks(
            config,
            records.append,
            flush_nothing,
            TargetAddresses(config.private_targets),
            DailyByteCounts(config, ByteCountStore(store)),
            INDEXES,
            OutgoingProxies(ca_bundle=bundle),
            vaults,
        )
        await networks.on_started(sandbox, directory)
        opened = VaultSandbox(networks, vaults, sandbox, directory, authority, records)
        with opened.sockets:
            try:
                yield opened
            finally:
                await networks.close()


@asynccontextmanager
async def recording_server(authority: trustme.CA | None, *names: str) -> AsyncIterator[RecordingServer]:
    """Run a server; over TLS with a certificate of the authority, if one is given."""
    context: ssl.SSLContext | None = None
    if authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*(names or (HOST, "other.test", "a.wild.test"))).configure_cert(context)
        context.set_alpn_protocols(["h2", "http/1.1"])
    server = RecordingServer()
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
