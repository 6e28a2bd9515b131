"""Direct endpoints: forwards loopback ports of the host to sandboxes, bypassing the server's proxy."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from paddock.errors import QuotaExceeded, SandboxError, Unavailable
from paddock.fleet.direct_connections import DirectConnectionLimiter, DirectSandboxConnection
from paddock.model.sandbox import DaemonAddress
from paddock.telemetry.descriptor_reserve import first_reserved_descriptor

EXECD_PORT = 44772
"""Port of execd in a container; here it stands for the sandbox's own daemon."""
CHUNK_SIZE = 256 * 1024
HANDSHAKE_TIMEOUT = 10.0
UNUSED_TIMEOUT = 600.0
"""Seconds without a connection after which an endpoint may be closed for a new one."""
RESERVED_DESCRIPTORS = 256
"""File descriptors reserved for other uses than direct endpoints, if the limit is large enough."""
CROWDED_MESSAGE = "the sandbox has too many direct connections; close some, or use the server's proxy"


@dataclass(eq=False)
class _Forward:
    """One listening port."""

    tenant: str
    host_port: int
    server: asyncio.Server | None = None
    used: float = field(default_factory=time.monotonic)
    relays: int = 0


class PortForwards:
    """Listens on one loopback port per requested sandbox port, for the life of the sandbox."""

    def __init__(
        self,
        ports: Iterable[int],
        *,
        per_sandbox: int | None = None,
        per_tenant: Callable[[str], int | None] = lambda tenant: None,
        unused: float = UNUSED_TIMEOUT,
    ) -> None:
        self._free = dict.fromkeys(ports)
        self._per_sandbox = per_sandbox
        self._per_tenant = per_tenant
        self._unused = unused
        self._forwards: dict[tuple[str, int], _Forward] = {}
        self._connections = DirectConnectionLimiter()
        self._lock = asyncio.Lock()

    async def open(self, tenant: str, sandbox_id: str, port: int, address: DaemonAddress) -> int:
        """Return the host port that leads to `port` of the sandbox.

        Raises `QuotaExceeded`, and `Unavailable` when ports or file descriptors run out.
        """
        async with self._lock:
            found = self._forwards.get((sandbox_id, port))
            if found is None:
                if port != EXECD_PORT:  # The daemon's port is exempt: local clients depend on it.
                    self._close_unused_over_limit(tenant, sandbox_id)
                try:
                    found = await self._listen(tenant, sandbox_id, port, address)
                except Unavailable:
                    # Out of ports or file descriptors: unused endpoints of other tenants are closed too.
                    if not self._stop_unused([key for key in self._forwards if key[1] != EXECD_PORT]):
                        raise
                    await asyncio.sleep(0)  # The listener is closed in the next round of the event loop.
                    found = await self._listen(tenant, sandbox_id, port, address)
            found.used = time.monotonic()  # A client that was just told the port is about to connect.
            return found.host_port

    async def close(self, sandbox_id: str | None = None) -> None:
        """Stop listening for one sandbox, or for all, and close the connections."""
        for key in [key for key in self._forwards if sandbox_id in (None, key[0])]:
            self._stop(key)
        ending = self._connections.tasks_of(sandbox_id)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def _close_unused_over_limit(self, tenant: str, sandbox_id: str) -> None:
        """Close an unused endpoint of a sandbox or tenant at its limit. Raises `QuotaExceeded`."""
        own = [key for key in self._forwards if key[0] == sandbox_id and key[1] != EXECD_PORT]
        if self._per_sandbox is not None and len(own) >= self._per_sandbox and not self._stop_unused(own):
            raise QuotaExceeded(
                f"sandbox {sandbox_id} has its {self._per_sandbox} direct endpoints (sandboxes.max_endpoints); "
                "use the server's proxy for more"
            )
        quota = self._per_tenant(tenant)
        own = [key for key, each in self._forwards.items() if each.tenant == tenant and key[1] != EXECD_PORT]
        if quota is not None and len(own) >= quota and not self._stop_unused(own):
            raise QuotaExceeded(
                f"tenant {tenant} has its {quota} direct endpoints (quotas.endpoints); use the server's proxy for more"
            )

    def _stop_unused(self, keys: list[tuple[str, int]]) -> bool:
        before = time.monotonic() - self._unused
        unused = [key for key in keys if not self._forwards[key].relays and self._forwards[key].used <= before]
        if not unused:
            return False
        self._stop(min(unused, key=lambda key: self._forwards[key].used))
        return True

    def _stop(self, key: tuple[str, int]) -> None:
        forward = self._forwards.pop(key)
        if forward.server is not None:
            forward.server.close()
        self._free[forward.host_port] = None  # Reused last: clients may still remember the port.

    async def _listen(self, tenant: str, sandbox_id: str, port: int, address: DaemonAddress) -> _Forward:
        for host_port in list(self._free):
            forward = _Forward(tenant, host_port)

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, forward: _Forward = forward
            ) -> None:
                forward.relays += 1
                try:
                    await self._serve(tenant, sandbox_id, port, address, reader, writer)
                finally:
                    forward.relays -= 1
                    forward.used = time.monotonic()

            del self._free[host_port]
            try:
                forward.server = await asyncio.start_server(serve, "127.0.0.1", host_port, limit=CHUNK_SIZE)
            except OSError:
                self._free[host_port] = None  # Taken by another program: try this port last.
                continue
            if any(listener.fileno() >= _descriptor_limit() for listener in forward.server.sockets):
                forward.server.close()
                self._free[host_port] = None
                raise Unavailable(
                    "the server has too many open files for another direct endpoint; use its proxy instead"
                )
            self._forwards[sandbox_id, port] = forward
            return forward
        raise Unavailable("every port of sandboxes.port_range is taken; use the server's proxy instead")

    async def _serve(
        self,
        tenant: str,
        sandbox_id: str,
        port: int,
        address: DaemonAddress,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        serving_task = asyncio.current_task()
        assert serving_task is not None
        to_daemon = port == EXECD_PORT
        relay = DirectSandboxConnection(serving_task, tenant, sandbox_id, to_daemon, has_token=not to_daemon)
        # Each needs two descriptors.
        few_descriptors = writer.get_extra_info("socket").fileno() + 1 >= _descriptor_limit()
        if not self._connections.add(relay, few_descriptors=few_descriptors):
            _refuse_connection(writer, port)
            return
        try:
            await _relay_connection(relay, reader, writer, port, address)
        finally:
            writer.close()
            self._connections.remove(relay)


async def _relay_connection(
    relay: DirectSandboxConnection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    port: int,
    address: DaemonAddress,
) -> None:
    try:
        sandbox_reader, sandbox_writer = await asyncio.wait_for(
            _open_sandbox_connection(port, address), HANDSHAKE_TIMEOUT
        )
    except (OSError, TimeoutError, SandboxError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        writer.transport.abort()
        return
    try:
        await asyncio.gather(
            _copy_stream(reader, sandbox_writer, partial(_note_request, relay, address.token.encode())),
            _copy_stream(sandbox_reader, writer, partial(_note_answer, relay)),
        )
    finally:
        sandbox_writer.close()


async def _open_sandbox_connection(
    port: int, address: DaemonAddress
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.socket is not None:
        reader, writer = await asyncio.open_unix_connection(str(address.socket), limit=CHUNK_SIZE)
    else:
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=CHUNK_SIZE)
    try:
        if port != EXECD_PORT:
            await _send_connect_request(reader, writer, port, address.token)
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer


async def _send_connect_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, token: str
) -> None:
    request = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: inside\r\nX-EXECD-ACCESS-TOKEN: {token}\r\n\r\n"
    writer.write(request.encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    if answer.split(b" ", 2)[1:2] != [b"200"]:
        raise SandboxError(f"nothing listens on port {port} of the sandbox")


async def _copy_stream(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes], None]
) -> None:
    try:
        while data := await reader.read(CHUNK_SIZE):
            note(data)
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


def _note_request(relay: DirectSandboxConnection, token: bytes, data: bytes) -> None:
    relay.active = time.monotonic()
    # A token cut in two is not found; the daemon checks it anyway.
    relay.has_token = relay.has_token or token in data


def _note_answer(relay: DirectSandboxConnection, data: bytes) -> None:
    relay.active = time.monotonic()
    relay.answered = True


def _refuse_connection(writer: asyncio.StreamWriter, port: int) -> None:
    """Close the connection; on the daemon's HTTP port, send the reason first."""
    if port == EXECD_PORT:
        body = json.dumps({"code": Unavailable.code, "message": CROWDED_MESSAGE}).encode()
        head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    writer.close()


def _descriptor_limit() -> int:
    return first_reserved_descriptor(RESERVED_DESCRIPTORS, 4)
