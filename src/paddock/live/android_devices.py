"""Connects mobile sandboxes to a real Android device or emulator over ADB.

In a sandbox that requests a device, `127.0.0.1:5555` is the device's ADB port. Bytes are relayed unchanged; the
sandbox has full access to the device's data and to the networks that the device can reach.
"""

from __future__ import annotations

import asyncio
import difflib
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from paddock.config.live_view import LiveViewConfig
from paddock.errors import Forbidden, InvalidInput
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.fleet.uplink_sockets import serve_uplink_socket
from paddock.model.sandbox import Sandbox, UplinkService

NAME = "device"
PORT = 5555
ADDRESS = f"127.0.0.1:{PORT}"
EXTENSION = "paddock.device"
"""The sandbox extension that names its device."""
KIND = "mobile"
MAX_CONNECTIONS = 8
"""Concurrent connections of one sandbox; `adb` needs one."""
MIN_CONNECTION_TIME = 0.1
"""Minimum seconds for which a connection occupies its slot, to limit the rate of new connections."""
CONNECT_TIMEOUT = 10.0
STALL_TIMEOUT = 60.0
"""Seconds for which either side may stop reading."""
CHUNK_SIZE = 2**16
_KEEPALIVE_OPTIONS = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
"""Keepalive settings that detect a switched-off device after 25 seconds."""
log = structlog.get_logger()


class AndroidDevices:
    """Lifecycle hook: connect each sandbox to the Android device it requested."""

    def __init__(self, config: LiveViewConfig) -> None:
        self._devices = config.devices
        self._allowed_tenants = frozenset(config.devices_for)
        self._served: dict[str, _AdbRelay] = {}

    @property
    def uplink_services(self) -> tuple[UplinkService, ...]:
        """Empty: port 5555 is reserved only on request, see `device_uplink_services`."""
        return ()

    def check_request(self, request: SandboxRequest) -> None:
        """Raise `InvalidInput` for an unknown device, or for a kind of sandbox that cannot use one."""
        if EXTENSION not in request.extensions:
            return
        name = _requested_device(request.extensions)
        if name not in self._devices:
            raise InvalidInput(f"extensions.{EXTENSION}: {self._unknown_device_message(name)}")
        if request.kind != KIND:
            raise InvalidInput(f"extensions.{EXTENSION}: devices are for sandboxes of kind {KIND}; ask for that kind")

    async def environment(self, sandbox: Sandbox) -> Mapping[str, str]:
        """Return variables that point tools and `adb` to the device. Raises `Forbidden` for other tenants."""
        if EXTENSION not in sandbox.extensions:
            return {}
        if not self._is_allowed(sandbox.tenant):
            raise Forbidden(
                f"extensions.{EXTENSION}: sandboxes of tenant {sandbox.tenant} may not use devices; "
                "add the tenant to live.devices_for"
            )
        return {
            "PADDOCK_ADB": ADDRESS,
            "PADDOCK_DEVICE": _requested_device(sandbox.extensions),
            "ANDROID_SERIAL": ADDRESS,
            # Keeps `adb` from listing the device twice, as an emulator too; it may still, as it reads this late.
            "ADB_LOCAL_TRANSPORT_MAX_PORT": str(PORT - 1),
        }

    async def on_started(self, sandbox: Sandbox, uplinks: Path) -> None:
        """Serve the sandbox's socket, replacing one that an earlier server left behind."""
        if EXTENSION not in sandbox.extensions:
            return
        name = _requested_device(sandbox.extensions)
        address = self._devices.get(name)
        if address is None or not self._is_allowed(
            sandbox.tenant
        ):  # Settings have changed since the sandbox was created.
            log.warning("device access revoked by settings", sandbox=sandbox.id, device=name)
            return
        relay = _AdbRelay(sandbox.id, name, address)
        await serve_uplink_socket(relay, uplinks, NAME)
        earlier = self._served.pop(sandbox.id, None)
        self._served[sandbox.id] = relay
        if earlier is not None:
            await earlier.close()

    async def on_renewed(self, sandbox: Sandbox) -> None:
        """Do nothing: device access has no expiry of its own."""

    async def on_ended(self, sandbox_id: str) -> None:
        """Close the sandbox's socket and all connections to it."""
        relay = self._served.pop(sandbox_id, None)
        if relay is not None:
            await relay.close()

    async def tracked_sandboxes(self) -> Collection[str]:
        return set(self._served)

    async def close(self) -> None:
        """Stop serving. The next server process serves the sandboxes again."""
        while self._served:
            await self._served.popitem()[1].close()

    def _is_allowed(self, tenant: str) -> bool:
        return not self._allowed_tenants.isdisjoint((tenant, "*"))

    def _unknown_device_message(self, name: str) -> str:
        if not self._devices:
            return "no devices are configured; add them to live.devices"
        near = difflib.get_close_matches(name, self._devices, 1)
        hint = f", did you mean {near[0]}?" if near else ";"
        return f"there is no device {name[:80]!r}{hint} known are: {', '.join(self._devices)}"


class _AdbRelay:
    """Relays ADB connections of one sandbox to its device."""

    def __init__(self, sandbox_id: str, name: str, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._log = log.bind(sandbox=sandbox_id, device=name)
        self._unreachable = False
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, bound: socket.socket) -> None:
        self._listener = await asyncio.start_unix_server(self._accept, sock=bound, limit=CHUNK_SIZE)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + MIN_CONNECTION_TIME
        try:
            await self._relay_connection(reader, writer)
        except (OSError, UnicodeError) as error:
            if not self._unreachable:  # Logged once, however often the sandbox tries.
                self._log.info("device unreachable", error=str(error) or type(error).__name__)
            self._unreachable = True
        finally:
            writer.transport.abort()
        await asyncio.sleep(until - loop.time())

    async def _relay_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay both directions until either side closes: ADB does not use half-open connections."""
        async with asyncio.timeout(CONNECT_TIMEOUT):
            from_device, to_device = await asyncio.open_connection(self._host, self._port, limit=CHUNK_SIZE)
        self._unreachable = False
        try:
            _enable_keepalive(to_device.get_extra_info("socket"))
            copies = [
                asyncio.create_task(_copy_stream(reader, to_device)),
                asyncio.create_task(_copy_stream(from_device, writer)),
            ]
            try:
                await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for copy in copies:
                    copy.cancel()
                await asyncio.gather(*copies, return_exceptions=True)
            # Flush the data that arrived before the other side closed.
            await asyncio.gather(_close_writer(to_device), _close_writer(writer))
        finally:
            to_device.transport.abort()


def device_uplink_services(extensions: Mapping[str, str]) -> tuple[UplinkService, ...]:
    """Return the uplink services that these extensions require; pooled sandboxes are started without them."""
    return (UplinkService(name=NAME, port=PORT),) if EXTENSION in extensions else ()


def _requested_device(extensions: Mapping[str, str]) -> str:
    return extensions[EXTENSION].strip()


async def _copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy with back-pressure: read no more before the previous chunk is written."""
    writer.transport.set_write_buffer_limits(high=CHUNK_SIZE)
    while chunk := await reader.read(CHUNK_SIZE):
        writer.write(chunk)
        async with asyncio.timeout(STALL_TIMEOUT):
            await writer.drain()


async def _close_writer(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await writer.wait_closed()


def _enable_keepalive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEPALIVE_OPTIONS:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
