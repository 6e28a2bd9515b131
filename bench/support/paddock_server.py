"""A Paddock server with its own data directory, and cheap clients of it."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp

from paddock.model.sandbox import Image
from support.commands import START_TIMEOUT, run_command, stop_process


class DaemonConnection(http.client.HTTPConnection):
    """A direct connection to the daemon of a sandbox, with little overhead of the client."""

    def __init__(self, path: Path, token: str) -> None:
        super().__init__("inside")
        self._path = path
        self._token = token

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))

    def run_command(self, command: str) -> None:
        self.request("POST", "/command", json.dumps({"command": command}), {"X-EXECD-ACCESS-TOKEN": self._token})
        output = self.getresponse().read()
        assert b"execution_complete" in output, output


class PaddockServer:
    """A Paddock server started for this run, used through its API."""

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
        """Run a server with a pool of `pool` sandboxes and additional settings."""
        data.mkdir(parents=True, exist_ok=True)
        (data / "images").symlink_to(images.resolve())
        settings = data / "paddock.yaml"
        pools = [{"name": "bench", "image": image.name, "size": pool}] if pool else []
        defaults = {
            "llm": {"environment": False},
            "quotas": {"sandboxes": 1000},
        }  # Ignore provider keys of the developer.
        settings.write_text(json.dumps({"data": str(data), "server": {"port": 0}, "pools": pools, **defaults, **more}))
        with (data / "log").open("wb") as log:
            server = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "paddock", "serve", "--config", str(settings)), stdout=log, stderr=log
            )
        paddock = None
        try:
            async with asyncio.timeout(START_TIMEOUT):
                while not (data / "server.json").exists():
                    if server.returncode is not None:
                        raise RuntimeError(f"the server did not start: {(data / 'log').read_text()[-1000:]}")
                    await asyncio.sleep(0.05)
            paddock = cls(data, image, server.pid)
            yield paddock
        finally:
            if paddock is not None:
                await paddock.delete_all_sandboxes()
                await paddock._session.close()
            await stop_process(server)

    async def _call(self, method: str, path: str, **arguments: Any) -> Any:
        async with self._session.request(method, f"{self._url}/v1{path}", **arguments) as response:
            body = await response.read()
            if response.status >= 400:
                raise RuntimeError(f"{method} {path}: {response.status} {body.decode(errors='replace')}")
            return json.loads(body) if response.content_type == "application/json" and body else body

    async def create_sandbox(self, **request: Any) -> str:
        body = {"timeout": 600, "resourceLimits": {}, **request}
        if "extensions" not in request:
            body["image"] = {"uri": self._image.name}
        return str((await self._call("POST", "/sandboxes", json=body))["id"])

    async def bind_credential(self, sandbox: str, host: str, port: int) -> None:
        """Write a credential to the sandbox's vault, and bind it to all requests to a host."""
        path = f"/sandboxes/{sandbox}/vault"
        await self._call("PUT", f"{path}/credentials/bench", json={"value": "value-of-the-benchmark"})
        binding = {"match": {"hosts": [host], "ports": [port]}, "auth": {"type": "bearer", "credential": "bench"}}
        await self._call("PUT", f"{path}/bindings/bench", json=binding)

    async def run_in_sandbox(self, sandbox: str, command: str) -> None:
        output = await self._call("POST", f"/sandboxes/{sandbox}/proxy/44772/command", json={"command": command})
        assert b"execution_complete" in output, output

    async def output_in_sandbox(self, sandbox: str, command: str) -> str:
        """Run a command and return its standard output."""
        output = await self._call("POST", f"/sandboxes/{sandbox}/proxy/44772/command", json={"command": command})
        events = [json.loads(line) for line in output.decode().splitlines() if line]
        return "\n".join(event["text"] for event in events if event["type"] == "stdout")

    async def wait_for_connections(self, sandbox: str, count: int) -> None:
        """Wait until the sandbox has this many open connections to the network."""
        async with asyncio.timeout(START_TIMEOUT):
            while (await self._call("GET", f"/sandboxes/{sandbox}/network"))["openConnections"] < count:
                await asyncio.sleep(0.1)

    async def connect_to_daemon(self, sandbox: str) -> DaemonConnection:
        """Connect to the sandbox's own socket, bypassing the server."""
        endpoint = await self._call("GET", f"/sandboxes/{sandbox}/endpoints/44772")
        return DaemonConnection(self._data / "sockets" / sandbox, endpoint["headers"]["X-EXECD-ACCESS-TOKEN"])

    async def upload(self, sandbox: str, path: str, source: Path) -> None:
        metadata = f"metadata={json.dumps({'path': path})};type=application/json;filename=metadata"
        url = f"{self._url}/v1/sandboxes/{sandbox}/proxy/44772/files/upload"
        await self._curl("-F", metadata, "-F", f"file=@{source}", url)

    async def download(self, sandbox: str, path: str) -> None:
        url = f"{self._url}/v1/sandboxes/{sandbox}/proxy/44772/files/download?path={path}"
        await self._curl("-o", "/dev/null", url)

    async def _curl(self, *words: str) -> None:
        """Run curl, which costs little itself, so that the server dominates the measurement."""
        await run_command("curl", "--fail", "--silent", "--show-error", "-H", self._authorization, *words)

    async def upload_tree(self, sandbox: str, tree: Path, target: str) -> None:
        pack = await asyncio.create_subprocess_exec(
            "tar", "-C", str(tree), "-cf", "-", ".", stdout=asyncio.subprocess.PIPE, limit=2**20
        )
        assert pack.stdout is not None
        await self._call("POST", f"/sandboxes/{sandbox}/proxy/44772/directories", json={target: {"mode": 755}})
        path = f"/sandboxes/{sandbox}/proxy/44772/archive"
        await self._call("PUT", path, params={"path": target}, data=pack.stdout)
        await pack.wait()

    async def download_tree(self, sandbox: str, source: str, target: Path) -> None:
        target.mkdir()
        unpack = await asyncio.create_subprocess_exec(
            "tar", "-C", str(target), "-xf", "-", stdin=asyncio.subprocess.PIPE
        )
        assert unpack.stdin is not None
        url = f"{self._url}/v1/sandboxes/{sandbox}/proxy/44772/archive"
        async with self._session.get(url, params={"path": source}) as response:
            async for chunk in response.content.iter_any():
                unpack.stdin.write(chunk)
                await unpack.stdin.drain()
        unpack.stdin.close()
        assert await unpack.wait() == 0

    async def wait_until_pool_full(self, size: int) -> None:
        async with asyncio.timeout(START_TIMEOUT):
            while (await self._call("GET", "/pools/bench"))["status"]["available"] < size:
                await asyncio.sleep(0.05)

    def proportional_memory(self, sandbox: str) -> int:
        """Return the proportional memory of the sandbox's processes."""
        report = (self._data / "boxes" / sandbox / "report.jsonl").read_text().splitlines()[0]
        text = Path(f"/proc/{json.loads(report)['child-pid']}/smaps_rollup").read_text()
        return 1024 * next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))

    async def delete_all_sandboxes(self) -> None:
        while items := (await self._call("GET", "/sandboxes", params={"pageSize": "100"}))["items"]:
            await asyncio.gather(*(self._call("DELETE", f"/sandboxes/{item['id']}") for item in items))
