"""A Docker engine with its own directories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from paddock.model.sandbox import Image
from paddock.sandbox.images import ImageStore
from support.commands import START_TIMEOUT, run_command, stop_process


class DockerEngine:
    """A Docker engine started for this run."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.image = "paddock-bench"

    async def __call__(self, *words: str) -> str:
        return await run_command("docker", "-H", f"unix://{self._socket}", *words)

    @classmethod
    @asynccontextmanager
    async def start(cls, directory: Path, store: ImageStore, image: Image) -> AsyncIterator[Self]:
        directory.mkdir(parents=True)
        docker = cls(directory / "docker.sock")
        with (directory / "log").open("wb") as log:
            engine = await asyncio.create_subprocess_exec(
                "dockerd",
                *("--host", f"unix://{directory}/docker.sock", "--data-root", f"{directory}/data"),
                *("--exec-root", f"{directory}/exec", "--pidfile", f"{directory}/pid"),
                *("--bridge=none", "--iptables=false"),
                stdout=log,
                stderr=log,
            )
        try:
            async with asyncio.timeout(START_TIMEOUT):
                while True:
                    try:
                        await docker("version")
                        break
                    except RuntimeError:
                        await asyncio.sleep(0.2)
            archive = directory / "root.tar"
            with archive.open("wb") as file:
                await asyncio.to_thread(store.export_tar, image, file)
            await docker("import", str(archive), docker.image)
            archive.unlink()
            yield docker
        finally:
            await stop_process(engine)
