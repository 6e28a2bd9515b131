"""Speed of the MCP gateway compared with FastMCP's proxy, ContextForge and no gateway, in one run.

Each has one worker and the same compiled MCP server behind it. Rounds are interleaved, so that noise of the machine
affects all candidates. Paddock runs with keys, access rules, limits, pins and records on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import gateways, mcp_gateways
from support.gateway_table import GatewayTable
from support.gateways import FakeProvider
from support.load_client import LoadClient, wait_until_idle
from support.mcp_gateways import LISTED_SERVERS, LISTED_TOOLS, McpTarget

PARTS = ("calls", "latency", "lists", "grpc")
CANDIDATES = ("direct", "fastmcp", "contextforge", "paddock")
COLUMNS = (*CANDIDATES, "paddock grpc")
CALLS = "calls, 32 connections"
LATENCY = "one call at a time, p50"
LISTS = f"list of {LISTED_SERVERS} servers with {LISTED_TOOLS} tools each, p50"
GRPC_CALLS = "calls, 32 at a time on one stream"
GRPC_LATENCY = "one call at a time on one stream, p50"


@dataclass(frozen=True)
class McpBenchmark:
    """Compared gateways and the duration of each measurement."""

    table: GatewayTable
    client: LoadClient
    targets: list[McpTarget]
    rounds: int
    seconds: float

    async def calls(self) -> None:
        for turn in range(self.rounds + 1):
            for target in self.targets:
                seconds = self.seconds if turn else self.seconds / 2
                result = await self.client(target, target.path, target.call_tool(), connections=32, seconds=seconds)
                await wait_until_idle(target)
                if turn:  # The first round is for warming up.
                    self.table.add(CALLS, target.name, result["rate"], "calls/s")

    async def latency(self) -> None:
        for turn in range(self.rounds + 1):
            for target in self.targets:
                seconds = self.seconds / 2
                result = await self.client(target, target.path, target.call_tool(), connections=1, seconds=seconds)
                await wait_until_idle(target)
                if turn:
                    self.table.add(LATENCY, target.name, result["total_p50"] * 1e3, "ms")

    async def lists(self) -> None:
        """Measure the warm list of many servers; only Paddock has one at this address."""
        for target in (each for each in self.targets if each.name == "paddock"):
            for turn in range(self.rounds + 1):
                result = await self.client(
                    target, "/mcp/sets/listed", target.list_tools(), connections=1, seconds=self.seconds / 2
                )
                if turn:
                    self.table.add(LISTS, target.name, result["total_p50"] * 1e3, "ms")

    async def grpc(self) -> None:
        for target in (each for each in self.targets if each.grpc):
            for turn in range(self.rounds + 1):
                many = await self._run_grpc_client(target, 32)
                single = await self._run_grpc_client(target, 1)
                if turn:
                    self.table.add(GRPC_CALLS, "paddock grpc", many["rate"], "calls/s")
                    self.table.add(GRPC_LATENCY, "paddock grpc", single["p50"] * 1e3, "ms")

    async def _run_grpc_client(self, target: McpTarget, concurrency: int) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "support.grpc_client", str(target.grpc), target.key, "bench"),
            *(str(self.seconds), str(concurrency)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parent,
        )
        output, errors = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"the gRPC client failed: {errors.decode(errors='replace')[-1000:]}")
        return dict(json.loads(output))


def check_bars(table: GatewayTable) -> None:
    table.check_bar("latency added at one call at a time, p50", table.median_overhead(LATENCY, "paddock"), " ms", 1.0)
    for peer, bound in (("fastmcp", 5), ("contextforge", 10)):
        ratio = table.median_ratio(CALLS, "paddock", peer)
        table.check_bar(f"calls/s / {peer}'s", ratio, " x", bound, at_least=True)
    table.check_bar(LISTS, table.median(LISTS, "paddock"), " ms", 5.0)
    table.check_bar(GRPC_CALLS, table.median(GRPC_CALLS, "paddock grpc"), " calls/s", 2500, at_least=True)
    streamed, direct = table.median(GRPC_LATENCY, "paddock grpc"), table.median(LATENCY, "direct")
    if streamed is not None and direct is not None:
        table.check_bar("gRPC: latency added at one call at a time, p50", streamed - direct, " ms", 2.0)


async def start_targets(
    exit_stack: AsyncExitStack, scratch: Path, server: FakeProvider, client: LoadClient, wanted: list[str]
) -> list[McpTarget]:
    starters: dict[str, Callable[[Path, FakeProvider], AbstractAsyncContextManager[list[McpTarget]]]] = {
        "fastmcp": mcp_gateways.run_fastmcp,
        "contextforge": mcp_gateways.run_contextforge,
        "paddock": mcp_gateways.run_paddock_mcp,
    }
    started = [McpTarget("direct", server.port, server.process)] if "direct" in wanted else []
    for name in (name for name in starters if name in wanted):
        print(f"{name} …", flush=True)
        (scratch / name).mkdir()
        (target,) = await exit_stack.enter_async_context(starters[name](scratch / name, server))
        await client(target, target.path, target.call_tool(), connections=1, requests=1)
        started.append(target)
    return started


async def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=2.0, help="duration of a round")
    arguments.add_argument("--quick", action="store_true", help="one short round, as a smoke test")
    arguments.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    arguments.add_argument("--gateways", nargs="+", choices=CANDIDATES, default=CANDIDATES, help="gateways to measure")
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    options = arguments.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    there = {
        "gcc": gateways.find_program("gcc"),
        "fastmcp": mcp_gateways.FASTMCP_ENVIRONMENT.exists(),
        "contextforge": mcp_gateways.CONTEXTFORGE_ENVIRONMENT.exists(),
    }
    missing = [name for name, found in there.items() if not found and name in ("gcc", *options.gateways)]
    if missing:
        sys.exit(f"error: {', '.join(missing)} is missing; run make setup-bench")
    table = GatewayTable()
    async with AsyncExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="paddock-bench-")))
        client = LoadClient(gateways.compile_program("load_client", scratch))
        server = await running.enter_async_context(gateways.run_fake_provider(scratch))
        targets = await start_targets(running, scratch, server, client, list(options.gateways))
        bench = McpBenchmark(table, client, targets, options.rounds, options.seconds)
        for part in (each for each in PARTS if each in options.only):
            print(f"{part} …", flush=True)
            await getattr(bench, part)()
    check_bars(table)
    table.print_table(COLUMNS, less_direct=(LATENCY,))
    if options.json:
        options.json.write_text(table.to_json())
    return 0 if table.all_bars_met else 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except (RuntimeError, TimeoutError) as error:
        sys.exit(f"error: {error}")
