"""Compared systems: a Docker engine and a Paddock server, each with its own directories."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp

from paddock.model.sandbox import Image
from paddock.sandbox.images import ImageStore

START = 60.0


async def run(*words: str, stdin: bytes | None = None) -> str:
    """Run a program to its end and return what it printed; failing is an error."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate(stdin)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)}: {errors.decode(errors='replace')}")
    return output.decode()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), 30)
    except TimeoutError:
        process.kill()
        await process.wait()


def small_files(directory: Path, count: int) -> Path:
    directory.mkdir(parents=True)
    for number in range(count):
        folder = directory / f"{number // 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.txt").write_text(f"file {number}\n" * 8)
    return directory


class Docker:
    """A Docker engine started for this run."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.image = "paddock-bench"

    async def __call__(self, *words: str) -> str:
        return await run("docker", "-H", f"unix://{self._socket}", *words)

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
            async with asyncio.timeout(START):
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
            await _end(engine)


class SandboxSocket(http.client.HTTPConnection):
    """The daemon of a sandbox, spoken to with as little in between as Python has."""

    def __init__(self, path: Path, token: str) -> None:
        super().__init__("inside")
        self._path = path
        self._token = token

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))

    def execute(self, command: str) -> None:
        self.request("POST", "/command", json.dumps({"command": command}), {"X-EXECD-ACCESS-TOKEN": self._token})
        output = self.getresponse().read()
        assert b"execution_complete" in output, output


class Paddock:
    """A Paddock server started for this run, spoken to as any client would."""

    def __init__(self, data: Path, image: Image, process: int) -> None:
        self.process = process
        self._data = data
        self._image = image
        server = json.loads((data / "server.json").read_text())
        self._url = server["url"].rstrip("/")
        key = (data / "local.key").read_text().strip()
        self._authorization = f"Authorization: Bearer {key}"
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {key}"},
            connector=aiohttp.TCPConnector(limit=0),
            read_bufsize=2**20,
        )

    @classmethod
    @asynccontextmanager
    async def start(cls, data: Path, images: Path, image: Image, pool: int = 0, **more: object) -> AsyncIterator[Self]:
        """Start it with a pool of so many sandboxes, and with more settings."""
        data.mkdir(parents=True, exist_ok=True)
        (data / "images").symlink_to(images.resolve())
        settings = data / "paddock.yaml"
        pools = [{"name": "bench", "image": image.name, "size": pool}] if pool else []
        alike = {"llm": {"environment": False}, "quotas": {"sandboxes": 1000}}  # Ignore provider keys of the developer.
        settings.write_text(json.dumps({"data": str(data), "server": {"port": 0}, "pools": pools, **alike, **more}))
        with (data / "log").open("wb") as log:
            server = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "paddock", "serve", "--config", str(settings)), stdout=log, stderr=log
            )
        paddock = None
        try:
            async with asyncio.timeout(START):
                while not (data / "server.json").exists():
                    if server.returncode is not None:
                        raise RuntimeError(f"the server did not start: {(data / 'log').read_text()[-1000:]}")
                    await asyncio.sleep(0.05)
            paddock = cls(data, image, server.pid)
            yield paddock
        finally:
            if paddock is not None:
                await paddock.delete_all()
                await paddock._session.close()
            await _end(server)

    async def _call(self, method: str, path: str, **arguments: Any) -> Any:
        async with self._session.request(method, f"{self._url}/v1{path}", **arguments) as answer:
            body = await answer.read()
            if answer.status >= 400:
                raise RuntimeError(f"{method} {path}: {answer.status} {body.decode(errors='replace')}")
            return json.loads(body) if answer.content_type == "application/json" and body else body

    async def create(self, **request: Any) -> str:
        body = {"timeout": 600, "resourceLimits": {}, **request}
        if "extensions" not in request:
            body["image"] = {"uri": self._image.name}
        return str((await self._call("POST", "/sandboxes", json=body))["id"])

    async def execute(self, sandbox: str, command: str) -> None:
        output = await self._call("POST", f"/sandboxes/{sandbox}/proxy/44772/command", json={"command": command})
        assert b"execution_complete" in output, output

    async def sandbox_socket(self, sandbox: str) -> SandboxSocket:
        """The sandbox's own socket, without the server in between."""
        endpoint = await self._call("GET", f"/sandboxes/{sandbox}/endpoints/44772")
        return SandboxSocket(self._data / "sockets" / sandbox, endpoint["headers"]["X-EXECD-ACCESS-TOKEN"])

    async def upload(self, sandbox: str, path: str, source: Path) -> None:
        metadata = f"metadata={json.dumps({'path': path})};type=application/json;filename=metadata"
        url = f"{self._url}/v1/sandboxes/{sandbox}/proxy/44772/files/upload"
        await self._curl("-F", metadata, "-F", f"file=@{source}", url)

    async def download(self, sandbox: str, path: str) -> None:
        url = f"{self._url}/v1/sandboxes/{sandbox}/proxy/44772/files/download?path={path}"
        await self._curl("-o", "/dev/null", url)

    async def _curl(self, *words: str) -> None:
        """A client that costs little itself, so that it is the server that is measured."""
        await run("curl", "--fail", "--silent", "--show-error", "-H", self._authorization, *words)

    async def put_tree(self, sandbox: str, tree: Path, target: str) -> None:
        pack = await asyncio.create_subprocess_exec(
            "tar", "-C", str(tree), "-cf", "-", ".", stdout=asyncio.subprocess.PIPE, limit=2**20
        )
        assert pack.stdout is not None
        await self._call("POST", f"/sandboxes/{sandbox}/proxy/44772/directories", json={target: {"mode": 755}})
        path = f"/sandboxes/{sandbox}/proxy/44772/archive"
        await self._call("PUT", path, params={"path": target}, data=pack.stdout)
        await pack.wait()

    async def get_tree(self, sandbox: str, source: str, target: Path) -> None:
        target.mkdir()
        unpack = await asyncio.create_subprocess_exec(
            "tar", "-C", str(target), "-xf", "-", stdin=asyncio.subprocess.PIPE
        )
        assert unpack.stdin is not None
        url = f"{self._url}/v1/sandboxes/{sandbox}/proxy/44772/archive"
        async with self._session.get(url, params={"path": source}) as answer:
            async for piece in answer.content.iter_any():
                unpack.stdin.write(piece)
                await unpack.stdin.drain()
        unpack.stdin.close()
        assert await unpack.wait() == 0

    async def pool_is_full(self, size: int) -> None:
        async with asyncio.timeout(START):
            while (await self._call("GET", "/pools/bench"))["status"]["available"] < size:
                await asyncio.sleep(0.05)

    def proportional_memory(self, sandbox: str) -> int:
        """Return the proportional memory of the sandbox's processes."""
        report = (self._data / "boxes" / sandbox / "report.jsonl").read_text().splitlines()[0]
        text = Path(f"/proc/{json.loads(report)['child-pid']}/smaps_rollup").read_text()
        return 1024 * next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))

    async def delete_all(self) -> None:
        while items := (await self._call("GET", "/sandboxes", params={"pageSize": "100"}))["items"]:
            await asyncio.gather(*(self._call("DELETE", f"/sandboxes/{item['id']}") for item in items))
