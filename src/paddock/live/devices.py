"""Lets a phone's box work a real Android device or emulator, and reach nothing else of the network.

In a box that has asked for a device, `127.0.0.1:5555` is that device's ADB. Bytes pass as they are; what is on the
device, and what the device itself can reach, is the box's to use.
"""

from __future__ import annotations

import asyncio
import difflib
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from paddock.config.live import LiveConfig
from paddock.errors import Forbidden, InvalidInput
from paddock.fleet.requests import CreateSandbox
from paddock.fleet.sockets import hole_socket
from paddock.model.sandbox import Hole, Sandbox

NAME = "device"
PORT = 5555
ADDRESS = f"127.0.0.1:{PORT}"
EXTENSION = "paddock.device"
"""The extension of a sandbox that names its device."""
KIND = "mobile"
CONNECTIONS = 8
"""That one box may have open at a time; `adb` needs one."""
SHORTEST = 0.1
"""Seconds that a connection counts at least, so that a box cannot wear a device out with ever new ones."""
CONNECT_WITHIN = 10.0
STALL = 60.0
"""Seconds that either side may leave unread what it is sent."""
PIECE = 2**16
_ALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
"""A device that was switched off says nothing; it is gone after 25 seconds."""
log = structlog.get_logger()


class Devices:
    """The attendant of a fleet that lets its sandboxes reach the device they were given."""

    def __init__(self, settings: LiveConfig) -> None:
        self._devices = settings.devices
        self._tenants = frozenset(settings.devices_for)
        self._served: dict[str, _Relay] = {}

    @property
    def holes(self) -> tuple[Hole, ...]:
        """None in every box, or their programs would find a port taken that many use; see `holes_for`."""
        return ()

    def check(self, request: CreateSandbox) -> None:
        """Raise `InvalidInput` for a device that is not there, or that no tool of the sandbox would work."""
        if EXTENSION not in request.extensions:
            return
        name = _wanted(request.extensions)
        if name not in self._devices:
            raise InvalidInput(f"extensions.{EXTENSION}: {self._unknown(name)}")
        if request.kind != KIND:
            raise InvalidInput(f"extensions.{EXTENSION}: devices are for sandboxes of kind {KIND}; ask for that kind")

    async def prepare(self, sandbox: Sandbox) -> Mapping[str, str]:
        """Say where the device is, to our tools and to `adb` itself. Raises `Forbidden` where it may have none."""
        if EXTENSION not in sandbox.extensions:
            return {}
        if not self._may(sandbox.tenant):
            raise Forbidden(
                f"extensions.{EXTENSION}: sandboxes of tenant {sandbox.tenant} may have no device; "
                "live.devices_for says whose may"
            )
        return {
            "PADDOCK_ADB": ADDRESS,
            "PADDOCK_DEVICE": _wanted(sandbox.extensions),
            "ANDROID_SERIAL": ADDRESS,
            # Or `adb` takes the port for an emulator's, and shows the device twice. It may still: it reads this late.
            "ADB_LOCAL_TRANSPORT_MAX_PORT": str(PORT - 1),
        }

    async def started(self, sandbox: Sandbox, holes: Path) -> None:
        """Serve the sandbox's socket, in place of what an earlier server has left there."""
        if EXTENSION not in sandbox.extensions:
            return
        name = _wanted(sandbox.extensions)
        address = self._devices.get(name)
        if address is None or not self._may(sandbox.tenant):  # Settings have changed since it was made.
            log.warning("a sandbox may not have its device any longer", sandbox=sandbox.id, device=name)
            return
        relay = _Relay(sandbox.id, name, address)
        try:
            async with hole_socket(holes, NAME) as bound:
                await relay.listen(bound)
        except BaseException:
            await relay.close()
            raise
        earlier = self._served.pop(sandbox.id, None)
        self._served[sandbox.id] = relay
        if earlier is not None:
            await earlier.close()

    async def renewed(self, sandbox: Sandbox) -> None:
        """Nothing here ends before the sandbox does."""

    async def ended(self, sandbox_id: str) -> None:
        """Close its socket and every connection that came through it."""
        relay = self._served.pop(sandbox_id, None)
        if relay is not None:
            await relay.close()

    async def attended(self) -> Collection[str]:
        return set(self._served)

    async def close(self) -> None:
        """Stop serving. The next server serves the boxes again."""
        while self._served:
            await self._served.popitem()[1].close()

    def _may(self, tenant: str) -> bool:
        return not self._tenants.isdisjoint((tenant, "*"))

    def _unknown(self, name: str) -> str:
        if not self._devices:
            return "there are no devices here; name them in live.devices"
        near = difflib.get_close_matches(name, self._devices, 1)
        hint = f", did you mean {near[0]}?" if near else ";"
        return f"there is no device {name[:80]!r}{hint} known are: {', '.join(self._devices)}"


class _Relay:
    """The way of one box to its device."""

    def __init__(self, sandbox_id: str, name: str, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._log = log.bind(sandbox=sandbox_id, device=name)
        self._away = False
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, bound: socket.socket) -> None:
        self._listener = await asyncio.start_unix_server(self._accept, sock=bound, limit=PIECE)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS:
            writer.transport.abort()
            return
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + SHORTEST
        try:
            await self._carry(reader, writer)
        except (OSError, UnicodeError) as error:
            if not self._away:  # Said once, however often the box tries.
                self._log.info("a device cannot be reached", error=str(error) or type(error).__name__)
            self._away = True
        finally:
            writer.transport.abort()
        await asyncio.sleep(until - loop.time())

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join the two until either has closed: ADB has no use for half a connection."""
        async with asyncio.timeout(CONNECT_WITHIN):
            from_device, to_device = await asyncio.open_connection(self._host, self._port, limit=PIECE)
        self._away = False
        try:
            _watch_over(to_device.get_extra_info("socket"))
            ways = [asyncio.create_task(_pump(reader, to_device)), asyncio.create_task(_pump(from_device, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
            # What has come from the other one before it closed is still to be read.
            await asyncio.gather(_finish(to_device), _finish(writer))
        finally:
            to_device.transport.abort()


def holes_for(extensions: Mapping[str, str]) -> tuple[Hole, ...]:
    """What a box needs that is asked for with these; one of a pool was started without."""
    return (Hole(name=NAME, port=PORT),) if EXTENSION in extensions else ()


def _wanted(extensions: Mapping[str, str]) -> str:
    return extensions[EXTENSION].strip()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Nothing is read while the other side has not taken what came before."""
    writer.transport.set_write_buffer_limits(high=PIECE)
    while piece := await reader.read(PIECE):
        writer.write(piece)
        async with asyncio.timeout(STALL):
            await writer.drain()


async def _finish(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(CONNECT_WITHIN):
            await writer.wait_closed()


def _watch_over(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _ALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
