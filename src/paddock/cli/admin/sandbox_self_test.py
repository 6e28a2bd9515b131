"""Self-test of the machine: checks of the sandbox backend, and a sandbox from start to removal.

The tests use a temporary directory: a second backend on a server's data directory would remove control groups that the
server still needs.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.cli.output.errors import CliError

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient
    from paddock.config import Config
    from paddock.sandbox.base import HostCheck, SandboxBackend

Timings = tuple[float, float, float]
_SANDBOX_SECONDS = 60.0


async def check_sandbox_backend(config: Config) -> list[HostCheck]:
    """Return the findings of the configured sandbox backend on this machine."""
    async with _temporary_backend(config) as (backend, directory):
        found = await backend.examine()
    shown = str(config.data)
    return [item.model_copy(update={"detail": item.detail.replace(str(directory), shown)}) for item in found]


async def measure_sandbox_through_server(client: ServerClient) -> Timings:
    """Create a sandbox from the image `host` on the running server, run `true` in it, and remove it."""
    from paddock.cli.sandbox.remote_command import CommandOutputWriter, RemoteCommand

    began = time.monotonic()
    sandbox = await client.post("/v1/sandboxes", {"image": {"uri": "host"}, "timeout": 60})
    try:
        started = time.monotonic()
        ending = await RemoteCommand(client, sandbox["id"], CommandOutputWriter(False)).run_attached({"argv": ["true"]})
        ran = time.monotonic()
    finally:
        await client.delete(f"/v1/sandboxes/{sandbox['id']}")
    _check_exit_code(ending.exit_code)
    return started - began, ran - started, time.monotonic() - ran


async def measure_sandbox_without_server(config: Config) -> Timings:
    """Start a sandbox from the image `host` without a server, run `true` in it, and remove it."""
    from paddock.cli.connection.data_directory import open_image_store
    from paddock.model.sandbox import SandboxSpec
    from paddock.sandbox.daemon.client import DaemonClient

    image = await open_image_store(config).resolve_async("host")
    async with _temporary_backend(config) as (backend, _):
        spec = SandboxSpec(id=f"trial-{secrets.token_hex(4)}", image=image, token=secrets.token_hex(16))
        try:
            async with asyncio.timeout(_SANDBOX_SECONDS):
                began = time.monotonic()
                record = await backend.start(spec)
                started = time.monotonic()
                async with DaemonClient(backend.daemon_address(record)) as inside:
                    result = await inside.run("true")
                ran = time.monotonic()
        finally:
            await backend.remove(spec.id)
        ended = time.monotonic()
    _check_exit_code(result.exit_code)
    return started - began, ran - started, ended - ran


@asynccontextmanager
async def _temporary_backend(config: Config) -> AsyncIterator[tuple[SandboxBackend, Path]]:
    from paddock.app.components import create_sandbox_backend

    directory = Path(tempfile.mkdtemp(prefix=".trial-", dir=config.data))
    try:
        # User ids are assigned from the first on, so the last is free unless all are in use.
        last = {"uid_base": config.local.uid_base + config.local.uid_count - 1, "uid_count": 1}
        own = {"data": directory, "local": config.local.model_copy(update=last)}
        backend = await asyncio.to_thread(create_sandbox_backend, config.model_copy(update=own))
        try:
            yield backend, directory
        finally:
            await backend.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _check_exit_code(exit_code: int) -> None:
    if exit_code != 0:
        raise CliError(f"`true` ended with exit code {exit_code} in the sandbox")
