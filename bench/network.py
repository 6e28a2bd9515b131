"""Speed of the network of sandboxes compared with direct connections, slirp4netns and pasta, in one run.

Every candidate connects to the same server on this machine. Rounds are interleaved, so that noise of the machine
affects all candidates. Needs slirp4netns and pasta (`make setup-bench`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from paddock.sandbox.images import ImageStore
from support.commands import stop_process
from support.paddock_server import PaddockServer
from support.process_usage import process_cpu_seconds, process_memory
from support.result_table import ResultTable
from support.vault_rows import BOUND, RELAYED, measure_vault, serve_secure_site, write_authority
from support.wheel_index import serve_index, write_index

CLIENT = Path(__file__).parent / "support/network_client.py"
SITE = "site.test"
BULK = 512 * 2**20
CONNECTS = 300
REQUESTS = 2000
DOWNLOADS = 200
IDLE = 400
REQUEST_CPU = 50.0
"""Most microseconds of the server's CPU time for a relayed request and its response."""
WHEEL = 50 * 10**6
SLIRP_HOST = "10.0.2.2"
"""Address of the host's loopback as slirp4netns shows it."""


async def serve_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send as many bytes as the first line asks for, or answer HTTP requests."""
    block = bytes(256 * 1024)
    try:
        while line := await reader.readline():
            if line.startswith(b"GET"):
                while (await reader.readline()).strip():
                    pass
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
                continue
            left = int(line)
            while left > 0:
                writer.write(block[: min(left, len(block))])
                left -= len(block)
                await writer.drain()
            break
    except (ConnectionError, ValueError):
        pass
    finally:
        writer.close()


async def run_client(*words: str, directory: Path | None = None) -> dict[str, float]:
    """Run a client program and return what it measured."""
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, cwd=directory)
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{words[0]} failed")
    found: dict[str, float] = json.loads(output)
    return found


@asynccontextmanager
async def slirp_namespace() -> AsyncIterator[list[str]]:
    """Create a namespace that slirp4netns connects; yield the words that run a program in it."""
    holder = await asyncio.create_subprocess_exec("unshare", "--user", "--map-root-user", "--net", "sleep", "3600")
    await asyncio.sleep(0.5)
    slirp = await asyncio.create_subprocess_exec(
        *("slirp4netns", "--configure", "--mtu=65520", str(holder.pid), "tap0"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await asyncio.sleep(1)
    try:
        yield ["nsenter", "-t", str(holder.pid), "-U", "-n", "--preserve-credentials"]
    finally:
        await stop_process(slirp)
        await stop_process(holder)


async def gateway_address() -> str:
    """Return the address by which pasta shows the host's loopback."""
    process = await asyncio.create_subprocess_exec(
        "ip", "-4", "route", "show", "default", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return output.split()[2].decode()


class Candidates:
    """Ways to reach the server: directly, from a sandbox, and from the namespaces of peers."""

    def __init__(
        self, paddock: PaddockServer, sandbox: str, port: int, slirp: list[str], gateway: str, directory: Path
    ) -> None:
        self.paddock = paddock
        self.sandbox = sandbox
        self._port = port
        self._slirp = slirp
        self._gateway = gateway
        self._directory = directory
        """Working directory of the client on the host."""

    async def direct(self, mode: str, amount: int, port: int | None = None) -> dict[str, float]:
        words = (sys.executable, str(CLIENT), mode, "127.0.0.1", str(port or self._port), str(amount))
        return await run_client(*words, directory=self._directory)

    async def in_sandbox(self, mode: str, amount: int, port: int | None = None) -> dict[str, float]:
        command = f"python3 network_client.py {mode} {SITE} {port or self._port} {amount}"
        found: dict[str, float] = json.loads(await self.paddock.output_in_sandbox(self.sandbox, command))
        return found

    async def in_slirp(self, mode: str, amount: int) -> dict[str, float]:
        return await run_client(
            *self._slirp, sys.executable, str(CLIENT), mode, SLIRP_HOST, str(self._port), str(amount)
        )

    async def in_pasta(self, mode: str, amount: int) -> dict[str, float]:
        return await run_client(
            *("pasta", "--config-net", "--quiet", "--runas", "0", "--", sys.executable, str(CLIENT)),
            *(mode, self._gateway, str(self._port), str(amount)),
        )


async def measure_bulk(table: ResultTable, candidates: Candidates, rounds: int) -> None:
    seconds: dict[str, list[float]] = {"direct": [], "sandbox": [], "slirp4netns": [], "pasta": []}
    for _ in range(rounds):
        seconds["direct"].append((await candidates.direct("bulk", BULK))["seconds"])
        seconds["sandbox"].append((await candidates.in_sandbox("bulk", BULK))["seconds"])
        seconds["slirp4netns"].append((await candidates.in_slirp("bulk", BULK))["seconds"])
        seconds["pasta"].append((await candidates.in_pasta("bulk", BULK))["seconds"])
    rates = {name: BULK / statistics.median(values) / 1e6 for name, values in seconds.items()}
    for name in ("direct", "slirp4netns", "pasta"):
        table.add(f"bulk, {name}", rates[name], "MB/s")
    peer = min(rates["slirp4netns"], rates["pasta"])
    ratio = rates["sandbox"] / peer
    table.add(
        "bulk, sandbox", rates["sandbox"], "MB/s", against="slower of slirp4netns, pasta", ratio=ratio, bar=">= 0.5 x"
    )
    table.check_bar("bulk, sandbox", ratio, 0.5, at_least=True)
    best = rates["sandbox"] / max(rates["slirp4netns"], rates["pasta"])
    table.add("bulk, sandbox, against the faster peer", rates["sandbox"], "MB/s", against="faster of both", ratio=best)


async def measure_connections(table: ResultTable, candidates: Candidates, rounds: int) -> None:
    medians: dict[str, list[float]] = {"direct": [], "sandbox": [], "slirp4netns": []}
    requests: dict[str, list[float]] = {"direct": [], "sandbox": []}
    cpu_seconds = []
    process = candidates.paddock.process
    for _ in range(rounds):
        medians["direct"].append((await candidates.direct("connect", CONNECTS))["median"])
        medians["sandbox"].append((await candidates.in_sandbox("connect", CONNECTS))["median"])
        medians["slirp4netns"].append((await candidates.in_slirp("connect", CONNECTS))["median"])
        requests["direct"].append((await candidates.direct("requests", REQUESTS))["per_second"])
        started = process_cpu_seconds(process)
        requests["sandbox"].append((await candidates.in_sandbox("requests", REQUESTS))["per_second"])
        cpu_seconds.append(process_cpu_seconds(process) - started)
    milliseconds = {name: statistics.median(values) * 1e3 for name, values in medians.items()}
    table.add("connect and first byte, direct", milliseconds["direct"], "ms")
    table.add("connect and first byte, slirp4netns", milliseconds["slirp4netns"], "ms")
    added = milliseconds["sandbox"] - milliseconds["direct"]
    table.add("added by the sandbox's network", added, "ms", bar="<= 1.5 ms")
    table.check_bar("added by the sandbox's network", added, 1.5)
    per_second = {name: statistics.median(values) for name, values in requests.items()}
    table.add("HTTP keep-alive, direct", per_second["direct"], "/s")
    ratio = per_second["sandbox"] / per_second["direct"]
    table.add("HTTP keep-alive, sandbox", per_second["sandbox"], "/s", against="direct", ratio=ratio, bar=">= 0.5 x")
    table.check_bar("HTTP keep-alive, sandbox", ratio, 0.5, at_least=True)
    # Each relayed request waits for two more wake-ups, so that a busy machine lowers the rate; CPU time
    # tells whether the relay itself became slower.
    cpu = min(cpu_seconds) / REQUESTS * 1e6
    table.add("HTTP keep-alive, CPU of the server", cpu, "µs", bar=f"<= {REQUEST_CPU:g} µs")
    table.check_bar("HTTP keep-alive, CPU of the server", cpu, REQUEST_CPU)


async def measure_wheel(table: ResultTable, candidates: Candidates, port: int, rounds: int) -> None:
    """Install a wheel on the host, in a directory of its own, and in the sandbox."""
    seconds: dict[str, list[float]] = {"direct": [], "sandbox": []}
    for _ in range(rounds):
        seconds["direct"].append((await candidates.direct("install", 1, port))["seconds"])
        seconds["sandbox"].append((await candidates.in_sandbox("install", 1, port))["seconds"])
    direct, sandbox = (statistics.median(seconds[name]) for name in ("direct", "sandbox"))
    what = f"pip install of a wheel of {WHEEL // 10**6} MB"
    table.add(f"{what}, host", direct, "s")
    table.add(f"{what}, sandbox", sandbox, "s", against="host", ratio=sandbox / direct, bar="<= 1.3 x")
    table.check_bar(f"{what}, sandbox", sandbox / direct, 1.3)


async def measure_fairness(table: ResultTable, candidates: Candidates) -> None:
    direct = await candidates.direct("concurrent", DOWNLOADS)
    table.add(f"{DOWNLOADS} downloads, direct", direct["most"] / max(1.0, direct["least"]), "x")
    found = await candidates.in_sandbox("concurrent", DOWNLOADS)
    spread = found["most"] / max(1.0, found["least"])
    table.add(f"{DOWNLOADS} downloads, most by least served", spread, "x", bar="<= 2 x")
    table.check_bar(f"{DOWNLOADS} downloads, most by least served", spread, 2.0)


async def measure_idle(table: ResultTable, candidates: Candidates) -> None:
    process = candidates.paddock.process
    before = process_memory(process)
    holding = asyncio.create_task(candidates.in_sandbox("idle", IDLE))
    await candidates.paddock.wait_for_connections(candidates.sandbox, IDLE)
    await asyncio.sleep(1)
    each = (process_memory(process) - before) / IDLE / 1024
    table.add("memory of an idle connection", each, "KiB", bar="<= 64 KiB")
    table.check_bar("memory of an idle connection", each, 64)
    started = process_cpu_seconds(process)
    await asyncio.sleep(5)
    used = (process_cpu_seconds(process) - started) / 5 * 100
    table.add(f"processor time with {IDLE} idle connections", used, "%", bar="<= 1 %")
    table.check_bar(f"processor time with {IDLE} idle connections", used, 1.0)
    await holding


async def main(arguments: argparse.Namespace) -> int:
    missing = [name for name in ("slirp4netns", "pasta") if shutil.which(name) is None]
    if missing:
        print(f"error: {' and '.join(missing)} missing; run `make setup-bench`", file=sys.stderr)
        return 2
    table = ResultTable()
    async with AsyncExitStack() as held:
        directory = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="paddock-network-")))
        server = await asyncio.start_server(serve_bytes, "127.0.0.1", 0)
        held.callback(server.close)
        port: int = server.sockets[0].getsockname()[1]
        images = directory / "images"
        image = await asyncio.to_thread(lambda: ImageStore(images).resolve("host"))
        network: dict[str, Any] = {
            "private_targets": [SITE, RELAYED, BOUND],
            "hosts": dict.fromkeys((SITE, RELAYED, BOUND), "127.0.0.1"),
            "max_new_per_second": 10_000,
        }
        bundle = directory / "authority.pem"
        authority = write_authority(bundle)
        outgoing = {"ca_bundle": str(bundle)}
        paddock = await held.enter_async_context(
            PaddockServer.start(directory / "data", images, image, network=network, outgoing=outgoing)
        )
        sandbox = await paddock.create_sandbox(network=[f"allow {SITE}"])
        await paddock.upload(sandbox, "/workspace/network_client.py", CLIENT)
        slirp = await held.enter_async_context(slirp_namespace())
        candidates = Candidates(paddock, sandbox, port, slirp, await gateway_address(), directory)
        await measure_bulk(table, candidates, arguments.rounds)
        await measure_connections(table, candidates, arguments.rounds)
        await asyncio.to_thread(write_index, directory / "index", WHEEL)
        wheel_port = await held.enter_async_context(serve_index(directory / "index"))
        await measure_wheel(table, candidates, wheel_port, arguments.rounds)
        secure_site = await held.enter_async_context(serve_secure_site(authority))
        await measure_vault(table, paddock, CLIENT, secure_site, arguments.rounds)
        await measure_fairness(table, candidates)
        await measure_idle(table, candidates)
    return table.report(arguments.json)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    raise SystemExit(asyncio.run(main(parser.parse_args())))
