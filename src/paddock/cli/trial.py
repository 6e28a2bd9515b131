"""One real sandbox on the host's own image, from start to end, with the time each part took."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.cli.failure import CliError

if TYPE_CHECKING:
    from paddock.cli.client import Client
    from paddock.config import Config

Timings = tuple[float, float, float]
_PATIENCE = 60.0


async def through_server(client: Client) -> Timings:
    """Ask the running server for it: a second backend on its data directory would be in its way."""
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
    """Start it in a directory of its own, with a user number of its own, which no kept sandbox has."""
    from paddock.app import local_settings, make_image_store
    from paddock.model.sandbox import BoxSpec
    from paddock.sandbox.client import Inside
    from paddock.sandbox.local.backend import LocalBackend

    directory = Path(tempfile.mkdtemp(prefix=".trial-", dir=config.data))
    try:
        own = {"data": directory, "local": config.local.model_copy(update=_last_uid(config))}
        settings = local_settings(config.model_copy(update=own))
        image = await make_image_store(config).resolve_async("host")
        backend = await asyncio.to_thread(LocalBackend, settings)
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
            await backend.close()
        _check(result.exit_code)
        return started - began, ran - started, time.monotonic() - ran
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _last_uid(config: Config) -> dict[str, int]:
    """Boxes are given numbers from the first on, so the last is free unless all are taken."""
    return {"uid_base": config.local.uid_base + config.local.uid_count - 1, "uid_count": 1}


def _check(exit_code: int) -> None:
    if exit_code != 0:
        raise CliError(f"`true` ended with {exit_code} in the sandbox")
