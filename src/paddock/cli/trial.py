"""Tries the machine out: what the backend finds, and one real sandbox from start to end.

Everything happens in a directory of its own. A second backend on a server's data directory would be in its way, and
would take away the control groups it still needs.
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

from paddock.cli.failure import CliError

if TYPE_CHECKING:
    from paddock.cli.client import Client
    from paddock.config import Config
    from paddock.sandbox.base import Backend, Finding

Timings = tuple[float, float, float]
_PATIENCE = 60.0


async def examine(config: Config) -> list[Finding]:
    """What the configured backend finds on this machine."""
    async with _backend(config) as (backend, directory):
        found = await backend.examine()
    shown = str(config.data)
    return [item.model_copy(update={"detail": item.detail.replace(str(directory), shown)}) for item in found]


async def through_server(client: Client) -> Timings:
    """Ask the running server for a sandbox on the host's own image, run `true` in it, and remove it."""
    from paddock.cli.execution import Execution, Sink

    began = time.monotonic()
    sandbox = await client.post("/v1/sandboxes", {"image": {"uri": "host"}, "timeout": 60})
    try:
        started = time.monotonic()
        ending = await Execution(client, sandbox["id"], Sink(False)).run_attached({"argv": ["true"]})
        ran = time.monotonic()
    finally:
        await client.delete(f"/v1/sandboxes/{sandbox['id']}")
    _check(ending.exit_code)
    return started - began, ran - started, time.monotonic() - ran


async def without_server(config: Config) -> Timings:
    """Start a box on the host's own image, run `true` in it, and remove it."""
    from paddock.cli.local import image_store
    from paddock.model.sandbox import BoxSpec
    from paddock.sandbox.client import Inside

    image = await image_store(config).resolve_async("host")
    async with _backend(config) as (backend, _):
        spec = BoxSpec(id=f"trial-{secrets.token_hex(4)}", image=image, token=secrets.token_hex(16))
        try:
            async with asyncio.timeout(_PATIENCE):
                began = time.monotonic()
                record = await backend.start(spec)
                started = time.monotonic()
                async with Inside(backend.address(record)) as inside:
                    result = await inside.run("true")
                ran = time.monotonic()
        finally:
            await backend.remove(spec.id)
        ended = time.monotonic()
    _check(result.exit_code)
    return started - began, ran - started, ended - ran


@asynccontextmanager
async def _backend(config: Config) -> AsyncIterator[tuple[Backend, Path]]:
    from paddock.app import make_backend

    directory = Path(tempfile.mkdtemp(prefix=".trial-", dir=config.data))
    try:
        # Boxes are given user numbers from the first on, so the last is free unless all are taken.
        last = {"uid_base": config.local.uid_base + config.local.uid_count - 1, "uid_count": 1}
        own = {"data": directory, "local": config.local.model_copy(update=last)}
        backend = await asyncio.to_thread(make_backend, config.model_copy(update=own))
        try:
            yield backend, directory
        finally:
            await backend.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _check(exit_code: int) -> None:
    if exit_code != 0:
        raise CliError(f"`true` ended with {exit_code} in the sandbox")
