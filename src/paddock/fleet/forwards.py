"""Direct endpoints: ports of sandboxes on the host's loopback, without the server's proxy between."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from paddock.errors import BoxError, QuotaExceeded, Unavailable
from paddock.model.sandbox import Address

EXECD_PORT = 44772
"""Where execd listens in a container; here it names the sandbox's own daemon."""
CHUNK = 256 * 1024
HANDSHAKE = 10.0
CONNECTIONS = 256
"""Most direct connections of one sandbox. Half of what its daemon takes, so that the server always gets in."""
UNUSED = 600.0
"""Seconds without a connection after which an endpoint may be closed in favour of a new one."""
RESERVE = 256
"""File descriptors that direct endpoints leave for everything else, if the process may have that many."""
CROWDED = "the sandbox has too many direct connections; close some, or use the server's proxy"


@dataclass(eq=False)
class _Relay:
    """One connection to a sandbox."""

    task: asyncio.Task[None]
    answered: bool = False


@dataclass(eq=False)
class _Forward:
    """One listening port."""

    tenant: str
    host_port: int
    server: asyncio.Server | None = None
    used: float = field(default_factory=time.monotonic)
    relays: int = 0


class Forwards:
    """Listens on one loopback port for each sandbox and port asked for, as long as the sandbox lives."""

    def __init__(
        self,
        ports: Iterable[int],
        *,
        per_sandbox: int | None = None,
        per_tenant: Callable[[str], int | None] = lambda tenant: None,
        unused: float = UNUSED,
    ) -> None:
        self._free = dict.fromkeys(ports)
        self._per_sandbox = per_sandbox
        self._per_tenant = per_tenant
        self._unused = unused
        self._forwards: dict[tuple[str, int], _Forward] = {}
        self._relays: dict[str, dict[_Relay, None]] = {}
        self._lock = asyncio.Lock()

    async def open(self, tenant: str, sandbox_id: str, port: int, address: Address) -> int:
        """Return the host port that leads to `port` of the sandbox.

        Raises `QuotaExceeded`, and `Unavailable` when ports or file descriptors run out.
        """
        async with self._lock:
            found = self._forwards.get((sandbox_id, port))
            if found is None:
                if port != EXECD_PORT:  # Without the daemon's, clients on this machine cannot use the sandbox at all.
                    self._make_room(tenant, sandbox_id)
                found = await self._listen(tenant, sandbox_id, port, address)
            return found.host_port

    async def close(self, sandbox_id: str | None = None) -> None:
        """Stop listening for one sandbox, or for all, and close what is connected."""
        for key in [key for key in self._forwards if sandbox_id in (None, key[0])]:
            self._stop(key)
        ending = [relay.task for key, relays in self._relays.items() for relay in relays if sandbox_id in (None, key)]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def _make_room(self, tenant: str, sandbox_id: str) -> None:
        """Close unused endpoints of a sandbox or tenant that has all it may have. Raises `QuotaExceeded`."""
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
        self._free[forward.host_port] = None  # Last in line: clients may still remember it for a while.

    async def _listen(self, tenant: str, sandbox_id: str, port: int, address: Address) -> _Forward:
        for host_port in list(self._free):
            forward = _Forward(tenant, host_port)

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, forward: _Forward = forward
            ) -> None:
                forward.relays += 1
                try:
                    await self._serve(sandbox_id, port, address, reader, writer)
                finally:
                    forward.relays -= 1
                    forward.used = time.monotonic()

            del self._free[host_port]
            try:
                forward.server = await asyncio.start_server(serve, "127.0.0.1", host_port, limit=CHUNK)
            except OSError:
                self._free[host_port] = None  # Taken by another program; it goes to the end of the line.
                continue
            if any(listener.fileno() >= _descriptor_bound() for listener in forward.server.sockets):
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
        sandbox_id: str,
        port: int,
        address: Address,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        this = asyncio.current_task()
        assert this is not None
        relay = _Relay(this)
        relays = self._relays.setdefault(sandbox_id, {})
        # Two descriptors each; those that the sandbox has not answered yet make way for new ones.
        crowded = len(relays) >= CONNECTIONS or writer.get_extra_info("socket").fileno() + 1 >= _descriptor_bound()
        oldest = next((each for each in relays if not each.answered), None) if crowded else None
        if crowded and oldest is None:
            _refuse(writer, port)
            return
        if oldest is not None:
            del relays[oldest]
            oldest.task.cancel()
        relays[relay] = None
        try:
            await _carry(relay, reader, writer, port, address)
        finally:
            writer.close()
            relays.pop(relay, None)
            if not relays and self._relays.get(sandbox_id) is relays:
                del self._relays[sandbox_id]


async def _carry(
    relay: _Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, address: Address
) -> None:
    try:
        box_reader, box_writer = await asyncio.wait_for(_dial(port, address), HANDSHAKE)
    except (OSError, TimeoutError, BoxError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        writer.transport.abort()
        return
    try:
        await asyncio.gather(_pump(reader, box_writer), _pump(box_reader, writer, relay))
    finally:
        box_writer.close()


async def _dial(port: int, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.socket is not None:
        reader, writer = await asyncio.open_unix_connection(str(address.socket), limit=CHUNK)
    else:
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=CHUNK)
    try:
        if port != EXECD_PORT:
            await _connect(reader, writer, port, address.token)
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer


async def _connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, token: str) -> None:
    request = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: inside\r\nX-EXECD-ACCESS-TOKEN: {token}\r\n\r\n"
    writer.write(request.encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    if answer.split(b" ", 2)[1:2] != [b"200"]:
        raise BoxError(f"nothing listens on port {port} of the box")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, relay: _Relay | None = None) -> None:
    try:
        while data := await reader.read(CHUNK):
            if relay is not None:
                relay.answered = True
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


def _refuse(writer: asyncio.StreamWriter, port: int) -> None:
    """Hang up; the daemon's port speaks HTTP, so there the reason can be told."""
    if port == EXECD_PORT:
        body = json.dumps({"code": Unavailable.code, "message": CROWDED}).encode()
        head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    writer.close()


def _descriptor_bound() -> int:
    """Return the number from which on file descriptors are kept for other uses: the kernel gives out the lowest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft - min(RESERVE, soft // 4)
