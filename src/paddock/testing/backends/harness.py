# ruff: noqa: ASYNC110, ASYNC240 -- checks look at files and wait for conditions; nothing else shares their loop
"""Harness of the checks: sandboxes that are removed after each check, and waiting for conditions."""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import socket
import unittest
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from paddock.errors import SandboxError, SandboxGone, SandboxStartError
from paddock.model.sandbox import Image, SandboxHealth, SandboxSpec
from paddock.sandbox.base import BackendFeature, Record, SandboxBackend
from paddock.sandbox.daemon.client import CommandResult, DaemonClient, SandboxCommand

MIB = 2**20
CHECK_TIMEOUT = 90.0
"""Timeout of a check."""
SHORT_TIMEOUT = 15.0

T = TypeVar("T")
BackendFactory = Callable[[], SandboxBackend]


@dataclass(frozen=True)
class StartedSandbox:
    """Sandbox started by a check."""

    id: str
    record: Record
    inside: DaemonClient

    async def run(self, command: str | SandboxCommand) -> CommandResult:
        return await asyncio.wait_for(self.inside.run(command), SHORT_TIMEOUT)

    async def text(self, command: str | SandboxCommand) -> str:
        """Return the output of a command that must succeed."""
        result = await self.run(command)
        assert result.exit_code == 0, f"{command}: {result}"
        return result.stdout.decode().strip()

    async def python(self, code: str) -> str:
        return await self.text(SandboxCommand(["python3", "-c", code]))


@dataclass
class BackendHarness:
    """Backend under test; its sandboxes and snapshots are removed after the check."""

    make_backend: BackendFactory
    image: Image
    backend: SandboxBackend = field(init=False)
    prefix: str = field(default_factory=lambda: f"check-{secrets.token_hex(3)}")
    _sandboxes: list[StartedSandbox] = field(default_factory=list)
    _backends: list[SandboxBackend] = field(default_factory=list)
    _snapshots: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.backend = self.another_backend()

    def another_backend(self) -> SandboxBackend:
        """Create another backend on the same data, as after a server restart."""
        made = self.make_backend()
        self._backends.append(made)
        return made

    def needs(self, feature: BackendFeature) -> None:
        if feature not in self.backend.features:
            raise unittest.SkipTest(f"backend {self.backend.name} says it has no {feature.value} on this machine")

    def spec(self, **changes: Any) -> SandboxSpec:
        basic = {"id": self.new_id(), "image": self.image, "token": secrets.token_hex(16)}
        return SandboxSpec(**{**basic, **changes})

    def new_id(self) -> str:
        return f"{self.prefix}-{secrets.token_hex(4)}"

    def new_snapshot_id(self) -> str:
        self._snapshots.append(self.new_id())
        return self._snapshots[-1]

    async def start(self, **changes: Any) -> StartedSandbox:
        spec = self.spec(**changes)
        record = await self.backend.start(spec)
        return self.hold(spec.id, record)

    def hold(self, sandbox_id: str, record: Record) -> StartedSandbox:
        sandbox = StartedSandbox(sandbox_id, record, DaemonClient(self.backend.daemon_address(record)))
        self._sandboxes.append(sandbox)
        return sandbox

    async def own_leftovers(self) -> list[str]:
        return [sandbox_id for sandbox_id in await self.backend.leftovers() if sandbox_id.startswith(self.prefix)]

    async def end(self) -> None:
        for sandbox in self._sandboxes:
            await sandbox.inside.close()
            await self.backend.remove(sandbox.id)
        for snapshot_id in self._snapshots:
            await self.backend.delete_snapshot(snapshot_id)
        left = await self.own_leftovers()
        for backend in self._backends:
            await backend.close()
        assert left == [], "sandboxes are left that were removed"


async def wait_until_true(condition: Callable[[], Awaitable[T]], timeout: float = SHORT_TIMEOUT) -> T:
    """Poll a condition until it is truthy, and return its value."""
    async with asyncio.timeout(timeout):
        while not (found := await condition()):
            await asyncio.sleep(0.01)
    return found


def conformance_check(body: Callable[[Any, BackendHarness], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turn a check into a test function with the fixtures `make_backend` and `image`."""

    def test(self: object, make_backend: BackendFactory, image: Image) -> None:
        async def run_check() -> None:
            harness = BackendHarness(make_backend, image)
            try:
                async with asyncio.timeout(CHECK_TIMEOUT):
                    await body(self, harness)
            finally:
                await harness.end()

        asyncio.run(run_check())

    test.__name__ = body.__name__
    test.__qualname__ = body.__qualname__
    test.__doc__ = inspect.getdoc(body)
    return test


class ConformanceChecks:
    """Base class of the groups of checks."""

    async def fails_to_start(self, harness: BackendHarness, spec: SandboxSpec) -> SandboxError:
        before = await harness.own_leftovers()
        try:
            record = await harness.backend.start(spec)
        except SandboxStartError as error:
            assert await harness.own_leftovers() == before, "a failed start left something"
            return error
        harness.hold(spec.id, record)
        raise AssertionError("the sandbox started")

    async def image_has(self, harness: BackendHarness, path: str) -> None:
        sandbox = await harness.start()
        assert await sandbox.text(f"test -e {path} && echo there") == "there"

    async def bomb(self, harness: BackendHarness, sandbox: StartedSandbox) -> None:
        try:
            result = await sandbox.run(SandboxCommand(["python3", "-c", "bytearray(512 * 2**20)"]))
            assert result.exit_code != 0, "more memory was taken than allowed"
        except SandboxGone:
            pass
        status = await harness.backend.status(sandbox.record)
        assert status.out_of_memory_kills >= 1
        if status.health is SandboxHealth.GONE:
            assert status.reason == "out_of_memory"
        else:
            assert await sandbox.text("echo on") == "on"


@asynccontextmanager
async def tcp_service_port() -> AsyncIterator[int]:
    """A TCP service on the host's loopback."""

    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


@asynccontextmanager
async def serve_http_on_socket(path: Path, answer: str) -> AsyncIterator[None]:
    """An HTTP service on a Unix socket, restarted as services are: the old socket's file is replaced."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = answer.encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(path.parent, os.O_PATH)
    try:
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)
    path.chmod(0o666)
    server = await asyncio.start_unix_server(respond, sock=listener)
    async with server:
        yield
