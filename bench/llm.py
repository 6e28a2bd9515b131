"""Speed of the LLM proxy compared with LiteLLM's proxy, nginx and no gateway, in one run.

Each has one worker, and the same provider behind it, compiled and on this machine. Rounds are interleaved, so that a
noisy machine is noisy for everybody. Paddock runs with keys, limits, usage and the archive on.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import endurance
import gateways
from gateways import Gateway, Upstream
from loads import CHAT, CHUNKS, MESSAGES, Client, Table, chat, message, settle

PARTS = ("throughput", "latency", "streams", "cross", "archive", "memory")
NAMES = ("direct", "nginx", "litellm", "paddock")
COLUMNS = (*NAMES, "paddock listen")
STREAMS = 32

THROUGHPUT = "32 connections"
ANTHROPIC = "Anthropic in and out, 32 connections"
CROSS = "Anthropic in, OpenAI out, 32 connections"
LATENCY = "one connection, p50"
FIRST_BYTE = "32 streams at once, first byte p50"
SPREAD = "32 streams in turn, first byte p50"
CPU = "CPU per chunk, gateway alone"
WHOLE_CPU = "CPU per chunk, client and provider too"
UNPACED = "32 streams unpaced"
CROSS_CPU = "Anthropic in, OpenAI out: CPU per chunk"


@dataclass(frozen=True)
class Bench:
    """Compared gateways and the duration of each measurement."""

    table: Table
    client: Client
    provider: Upstream
    gateways: list[Gateway]
    rounds: int
    seconds: float
    pace: float

    def those(self, *, translating: bool) -> list[Gateway]:
        return [each for each in self.gateways if not translating or each.name not in {"direct", "nginx"}]

    async def rate(self, what: str, path: str, body: dict[str, object], *, translating: bool = False) -> None:
        for turn in range(self.rounds + 1):
            for gateway in self.those(translating=translating):
                seconds = self.seconds if turn else self.seconds / 2
                result = await self.client(gateway, path, body, connections=32, seconds=seconds)
                await settle(gateway)
                if turn:  # The first round is for warming up.
                    self.table.add(what, gateway.name, result["rate"], "req/s")

    async def throughput(self) -> None:
        await self.rate(THROUGHPUT, CHAT, chat())
        await self.rate(ANTHROPIC, MESSAGES, message("bench-claude"))

    async def cross(self) -> None:
        """Only translating gateways take part; an untranslated body would show in the received requests."""
        before = self.provider.seen()["messages"]
        await self.rate(CROSS, MESSAGES, message(), translating=True)
        for _ in range(self.rounds):
            for gateway in self.those(translating=True):
                await self._paced(gateway, MESSAGES, message(stream=True), CROSS_CPU)
        if self.provider.seen()["messages"] != before:
            raise RuntimeError("the provider was asked in Anthropic's format, so nothing was translated")

    async def latency(self) -> None:
        for turn in range(self.rounds + 1):
            for gateway in self.gateways:
                result = await self.client(gateway, CHAT, chat(), connections=1, seconds=self.seconds / 2)
                await settle(gateway)
                if turn:
                    self.table.add(LATENCY, gateway.name, result["total_p50"] * 1e3, "ms")

    async def streams(self) -> None:
        """Streams at the pace of a quick model, where each chunk is relayed alone, and as fast as they come."""
        body = chat(stream=True)
        for turn in range(self.rounds + 1):
            for gateway in self.gateways:
                self.provider.pace(0)
                result = await self.client(gateway, CHAT, body, connections=STREAMS, requests=STREAMS)
                await settle(gateway)
                self._all_came(gateway, result["events"], STREAMS)
                if turn:
                    self.table.add(UNPACED, gateway.name, STREAMS * CHUNKS / result["seconds"], "chunks/s")
                    await self._paced(gateway, CHAT, body, CPU)

    async def _paced(self, gateway: Gateway, path: str, body: dict[str, object], what: str) -> None:
        self.provider.pace(self.pace)
        cpu, provider_cpu = gateway.cpu(), self.provider.cpu()
        result = await self.client(gateway, path, body, connections=STREAMS, requests=STREAMS)
        await settle(gateway)
        chunks = STREAMS * CHUNKS
        used = gateway.cpu() - cpu if gateway.process != self.provider.process else 0.0
        if what == CPU:
            whole = used + result["cpu"] + self.provider.cpu() - provider_cpu
            self._all_came(gateway, result["events"], STREAMS)
            self.table.add(FIRST_BYTE, gateway.name, result["first_p50"] * 1e3, "ms")
            # Spread over the time that a stream takes, so that each begins while the others are at every stage.
            stagger = self.pace * CHUNKS / STREAMS
            result = await self.client(gateway, path, body, connections=STREAMS, requests=STREAMS, stagger=stagger)
            await settle(gateway)
            self.table.add(SPREAD, gateway.name, result["first_p50"] * 1e3, "ms")
            self.table.add(WHOLE_CPU, gateway.name, whole / chunks * 1e6, "us")
        if gateway.process != self.provider.process:
            self.table.add(what, gateway.name, used / chunks * 1e6, "us")
        self.provider.pace(0)

    @staticmethod
    def _all_came(gateway: Gateway, events: int, streams: int) -> None:
        # LiteLLM merges some events; all others must forward every event and the end mark.
        if gateway.name != "litellm" and events != streams * (CHUNKS + 1):
            raise RuntimeError(f"{gateway.name}: {events} events of {streams} streams came through")


def judge(table: Table, who: str) -> None:
    """The bars."""

    def inverse(ratio: float | None) -> float | None:
        return 1 / ratio if ratio else None

    table.judge("requests/s / LiteLLM's", table.ratio(THROUGHPUT, who, "litellm"), " x", 60, at_least=True)
    table.judge("requests/s / nginx's", table.ratio(THROUGHPUT, who, "nginx"), " x", 0.15, at_least=True)
    table.judge("latency added at one connection, p50", table.added(LATENCY, who), " ms", 0.6)
    table.judge("time to first byte added, 32 streams under way, p50", table.added(SPREAD, who), " ms", 1.2)
    table.judge("CPU per chunk, client and provider too / nginx's", table.ratio(WHOLE_CPU, who, "nginx"), " x", 2.5)
    table.judge("LiteLLM's CPU per chunk / it", inverse(table.ratio(CPU, who, "litellm")), " x", 8, at_least=True)
    table.judge(
        "Anthropic in, OpenAI out: requests/s / LiteLLM's", table.ratio(CROSS, who, "litellm"), " x", 30, at_least=True
    )


async def answering(candidates: list[Gateway], client: Client) -> list[Gateway]:
    """Return gateways that answer a test request; print why others do not."""
    able = []
    for candidate in candidates:
        try:
            await client(candidate, CHAT, chat(), connections=1, requests=1)
            able.append(candidate)
        except RuntimeError as error:
            print(f"! left out: {error}", flush=True)
    return able


async def start(
    running: AsyncExitStack, scratch: Path, provider: Upstream, client: Client, options: argparse.Namespace
) -> list[Gateway]:
    """Start all compared gateways."""
    listen = None if options.listen < 0 else options.listen or gateways.free_port()
    ways: dict[str, Callable[[Path], AbstractAsyncContextManager[list[Gateway]]]] = {
        "nginx": lambda directory: gateways.nginx(directory, provider),
        "litellm": lambda directory: gateways.litellm(directory, provider),
        "paddock": lambda directory: gateways.paddock(directory, provider, listen),
    }
    found = [Gateway("direct", provider.port, provider.process)] if "direct" in options.gateways else []
    for name in (name for name in ways if name in options.gateways):
        print(f"{name} …", flush=True)
        (scratch / name).mkdir()
        try:
            candidates = await running.enter_async_context(ways[name](scratch / name))
        except RuntimeError as error:
            print(f"! left out: {name}: {error}", flush=True)
            continue
        found += await answering(candidates, client)
    return found


async def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=2.0, help="how long a round of requests lasts")
    arguments.add_argument("--pace", type=float, default=1.0, help="milliseconds between the chunks of a stream")
    arguments.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    arguments.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    arguments.add_argument("--gateways", nargs="+", choices=NAMES, default=NAMES, help="whom to measure")
    arguments.add_argument("--listen", type=int, default=0, help="port of llm.listen; 0 takes a free one, -1 none")
    arguments.add_argument("--candidate", choices=("paddock", "paddock listen"), help="whose figures the bars are for")
    arguments.add_argument("--json", type=Path, help="write the figures here too")
    options = arguments.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    wanted = {"gcc": gateways.program("gcc"), "nginx": gateways.program("nginx"), "litellm": gateways.LITELLM.exists()}
    missing = [name for name, there in wanted.items() if not there and name in ("gcc", *options.gateways)]
    if missing:
        sys.exit(f"error: {', '.join(missing)} is missing; run make setup-bench")
    table = Table()
    async with AsyncExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="paddock-bench-")))
        client = Client(gateways.build("client", scratch))
        provider = await running.enter_async_context(gateways.upstream(scratch))
        everybody = await start(running, scratch, provider, client, options)
        bench = Bench(table, client, provider, everybody, options.rounds, options.seconds, options.pace / 1e3)
        for part in ("throughput", "latency", "streams", "cross"):
            if part in options.only:
                print(f"{part} …", flush=True)
                await getattr(bench, part)()
        candidates = [each for each in everybody if each.data is not None]
        candidate = next(
            (each for each in candidates if each.name == options.candidate), candidates[-1] if candidates else None
        )
        if candidate is not None:
            judge(table, candidate.name)
            await keep(table, client, candidate, options)
    table.show(COLUMNS, less_direct=(LATENCY, FIRST_BYTE, SPREAD))
    if options.json:
        options.json.write_text(table.as_json())
    if candidate is None and "paddock" in options.gateways:
        print("\nPaddock did not answer, so no bar was met.")
        return 1
    if candidate is not None:
        print(f"\nThe bars are for {candidate.name!r}.")
    return 0 if table.all_hold else 1


async def keep(table: Table, client: Client, candidate: Gateway, options: argparse.Namespace) -> None:
    """Measure what the archive keeps, and its size."""
    await endurance.nothing_lost(
        table, candidate, sum(client.asked.get(name, 0) for name in COLUMNS if "paddock" in name)
    )
    if "archive" in options.only:
        print("archive …", flush=True)
        await endurance.conversation(table, candidate, 20 if options.quick else 200)
    if "memory" in options.only:
        print("memory …", flush=True)
        await endurance.memory(table, candidate, client, 10_000 if options.quick else 100_000)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except (RuntimeError, TimeoutError) as error:
        sys.exit(f"error: {error}")
