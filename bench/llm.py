"""Speed of the model proxy compared with LiteLLM's proxy, nginx and no gateway, in one run.

Each has one worker, and the same provider behind it, compiled and on this machine. Rounds are interleaved, so that
noise of the machine affects all candidates. Paddock runs with keys, limits, usage and the archive on.
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

from support import archive_measurements, gateways
from support.gateway_table import GatewayTable
from support.gateways import FakeProvider, Gateway
from support.load_client import (
    CHAT_PATH,
    CHUNKS_PER_STREAM,
    MESSAGES_PATH,
    LoadClient,
    chat_request,
    messages_request,
    wait_until_idle,
)

PARTS = ("throughput", "latency", "streams", "cross", "archive", "memory")
GATEWAYS = ("direct", "nginx", "litellm", "paddock")
COLUMNS = (*GATEWAYS, "paddock listen")
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
class GatewayBenchmark:
    """Compared gateways and the duration of each measurement."""

    table: GatewayTable
    client: LoadClient
    provider: FakeProvider
    gateways: list[Gateway]
    rounds: int
    seconds: float
    pace: float

    def select_gateways(self, *, translating: bool) -> list[Gateway]:
        return [each for each in self.gateways if not translating or each.name not in {"direct", "nginx"}]

    async def measure_rate(
        self, measurement: str, path: str, body: dict[str, object], *, translating: bool = False
    ) -> None:
        for turn in range(self.rounds + 1):
            for gateway in self.select_gateways(translating=translating):
                seconds = self.seconds if turn else self.seconds / 2
                result = await self.client(gateway, path, body, connections=32, seconds=seconds)
                await wait_until_idle(gateway)
                if turn:  # The first round is for warming up.
                    self.table.add(measurement, gateway.name, result["rate"], "req/s")

    async def throughput(self) -> None:
        await self.measure_rate(THROUGHPUT, CHAT_PATH, chat_request())
        await self.measure_rate(ANTHROPIC, MESSAGES_PATH, messages_request("bench-claude"))

    async def cross(self) -> None:
        """Only translating gateways take part; an untranslated body would show in the received requests."""
        before = self.provider.request_counts()["messages"]
        await self.measure_rate(CROSS, MESSAGES_PATH, messages_request(), translating=True)
        for _ in range(self.rounds):
            for gateway in self.select_gateways(translating=True):
                await self._measure_paced_streams(gateway, MESSAGES_PATH, messages_request(stream=True), CROSS_CPU)
        if self.provider.request_counts()["messages"] != before:
            raise RuntimeError("the provider was asked in Anthropic's format, so nothing was translated")

    async def latency(self) -> None:
        for turn in range(self.rounds + 1):
            for gateway in self.gateways:
                result = await self.client(gateway, CHAT_PATH, chat_request(), connections=1, seconds=self.seconds / 2)
                await wait_until_idle(gateway)
                if turn:
                    self.table.add(LATENCY, gateway.name, result["total_p50"] * 1e3, "ms")

    async def streams(self) -> None:
        """Measure streams at the pace of a fast model, where each chunk is relayed alone, and unpaced streams."""
        body = chat_request(stream=True)
        for turn in range(self.rounds + 1):
            for gateway in self.gateways:
                self.provider.set_pace(0)
                result = await self.client(gateway, CHAT_PATH, body, connections=STREAMS, requests=STREAMS)
                await wait_until_idle(gateway)
                self._check_all_events(gateway, result["events"], STREAMS)
                if turn:
                    self.table.add(UNPACED, gateway.name, STREAMS * CHUNKS_PER_STREAM / result["seconds"], "chunks/s")
                    await self._measure_paced_streams(gateway, CHAT_PATH, body, CPU)

    async def _measure_paced_streams(
        self, gateway: Gateway, path: str, body: dict[str, object], measurement: str
    ) -> None:
        self.provider.set_pace(self.pace)
        cpu, provider_cpu = gateway.cpu_seconds(), self.provider.cpu_seconds()
        result = await self.client(gateway, path, body, connections=STREAMS, requests=STREAMS)
        await wait_until_idle(gateway)
        chunks = STREAMS * CHUNKS_PER_STREAM
        used = gateway.cpu_seconds() - cpu if gateway.process != self.provider.process else 0.0
        if measurement == CPU:
            whole = used + result["cpu"] + self.provider.cpu_seconds() - provider_cpu
            self._check_all_events(gateway, result["events"], STREAMS)
            self.table.add(FIRST_BYTE, gateway.name, result["first_p50"] * 1e3, "ms")
            # Spread over the time that a stream takes, so that each begins while the others are at every stage.
            stagger = self.pace * CHUNKS_PER_STREAM / STREAMS
            result = await self.client(gateway, path, body, connections=STREAMS, requests=STREAMS, stagger=stagger)
            await wait_until_idle(gateway)
            self.table.add(SPREAD, gateway.name, result["first_p50"] * 1e3, "ms")
            self.table.add(WHOLE_CPU, gateway.name, whole / chunks * 1e6, "us")
        if gateway.process != self.provider.process:
            self.table.add(measurement, gateway.name, used / chunks * 1e6, "us")
        self.provider.set_pace(0)

    @staticmethod
    def _check_all_events(gateway: Gateway, events: int, streams: int) -> None:
        # LiteLLM merges some events; all others must forward every event and the end mark.
        if gateway.name != "litellm" and events != streams * (CHUNKS_PER_STREAM + 1):
            raise RuntimeError(f"{gateway.name}: {events} events of {streams} streams came through")


def check_bars(table: GatewayTable, candidate: str) -> None:
    """Check the bars of a candidate."""

    def inverse(ratio: float | None) -> float | None:
        return 1 / ratio if ratio else None

    table.check_bar(
        "requests/s / LiteLLM's", table.median_ratio(THROUGHPUT, candidate, "litellm"), " x", 60, at_least=True
    )
    table.check_bar(
        "requests/s / nginx's", table.median_ratio(THROUGHPUT, candidate, "nginx"), " x", 0.15, at_least=True
    )
    table.check_bar("latency added at one connection, p50", table.median_overhead(LATENCY, candidate), " ms", 0.6)
    table.check_bar(
        "time to first byte added, 32 streams under way, p50", table.median_overhead(SPREAD, candidate), " ms", 1.2
    )
    table.check_bar(
        "CPU per chunk, client and provider too / nginx's", table.median_ratio(WHOLE_CPU, candidate, "nginx"), " x", 2.5
    )
    table.check_bar(
        "LiteLLM's CPU per chunk / it", inverse(table.median_ratio(CPU, candidate, "litellm")), " x", 8, at_least=True
    )
    table.check_bar(
        "Anthropic in, OpenAI out: requests/s / LiteLLM's",
        table.median_ratio(CROSS, candidate, "litellm"),
        " x",
        30,
        at_least=True,
    )


async def find_responding_gateways(candidates: list[Gateway], client: LoadClient) -> list[Gateway]:
    """Return gateways that respond to a test request; print the errors of the others."""
    responding = []
    for candidate in candidates:
        try:
            await client(candidate, CHAT_PATH, chat_request(), connections=1, requests=1)
            responding.append(candidate)
        except RuntimeError as error:
            print(f"! left out: {error}", flush=True)
    return responding


async def start_gateways(
    exit_stack: AsyncExitStack, scratch: Path, provider: FakeProvider, client: LoadClient, options: argparse.Namespace
) -> list[Gateway]:
    """Start all compared gateways."""
    listen = None if options.listen < 0 else options.listen or gateways.free_port()
    starters: dict[str, Callable[[Path], AbstractAsyncContextManager[list[Gateway]]]] = {
        "nginx": lambda directory: gateways.run_nginx(directory, provider),
        "litellm": lambda directory: gateways.run_litellm(directory, provider),
        "paddock": lambda directory: gateways.run_paddock(directory, provider, listen),
    }
    started = [Gateway("direct", provider.port, provider.process)] if "direct" in options.gateways else []
    for name in (name for name in starters if name in options.gateways):
        print(f"{name} …", flush=True)
        (scratch / name).mkdir()
        try:
            candidates = await exit_stack.enter_async_context(starters[name](scratch / name))
        except RuntimeError as error:
            print(f"! left out: {name}: {error}", flush=True)
            continue
        started += await find_responding_gateways(candidates, client)
    return started


async def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=2.0, help="duration of a round of requests")
    arguments.add_argument("--pace", type=float, default=1.0, help="milliseconds between the chunks of a stream")
    arguments.add_argument("--quick", action="store_true", help="one short round, as a smoke test")
    arguments.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    arguments.add_argument("--gateways", nargs="+", choices=GATEWAYS, default=GATEWAYS, help="gateways to measure")
    arguments.add_argument("--listen", type=int, default=0, help="port of llm.listen; 0 takes a free one, -1 none")
    arguments.add_argument(
        "--candidate", choices=("paddock", "paddock listen"), help="gateway for which the bars are checked"
    )
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    options = arguments.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    wanted = {
        "gcc": gateways.find_program("gcc"),
        "nginx": gateways.find_program("nginx"),
        "litellm": gateways.LITELLM_ENVIRONMENT.exists(),
    }
    missing = [name for name, there in wanted.items() if not there and name in ("gcc", *options.gateways)]
    if missing:
        sys.exit(f"error: {', '.join(missing)} is missing; run make setup-bench")
    table = GatewayTable()
    async with AsyncExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="paddock-bench-")))
        client = LoadClient(gateways.compile_program("load_client", scratch))
        provider = await running.enter_async_context(gateways.run_fake_provider(scratch))
        running_gateways = await start_gateways(running, scratch, provider, client, options)
        bench = GatewayBenchmark(
            table, client, provider, running_gateways, options.rounds, options.seconds, options.pace / 1e3
        )
        for part in ("throughput", "latency", "streams", "cross"):
            if part in options.only:
                print(f"{part} …", flush=True)
                await getattr(bench, part)()
        candidates = [each for each in running_gateways if each.data is not None]
        candidate = next(
            (each for each in candidates if each.name == options.candidate), candidates[-1] if candidates else None
        )
        if candidate is not None:
            check_bars(table, candidate.name)
            await measure_archive(table, client, candidate, options)
    table.print_table(COLUMNS, less_direct=(LATENCY, FIRST_BYTE, SPREAD))
    if options.json:
        options.json.write_text(table.to_json())
    if candidate is None and "paddock" in options.gateways:
        print("\nPaddock did not answer, so no bar was met.")
        return 1
    if candidate is not None:
        print(f"\nThe bars are for {candidate.name!r}.")
    return 0 if table.all_bars_met else 1


async def measure_archive(
    table: GatewayTable, client: LoadClient, candidate: Gateway, options: argparse.Namespace
) -> None:
    """Measure completeness and size of the archive."""
    await archive_measurements.check_nothing_lost(
        table, candidate, sum(client.response_counts.get(name, 0) for name in COLUMNS if "paddock" in name)
    )
    if "archive" in options.only:
        print("archive …", flush=True)
        await archive_measurements.measure_conversation_size(table, candidate, 20 if options.quick else 200)
    if "memory" in options.only:
        print("memory …", flush=True)
        await archive_measurements.measure_memory(table, candidate, client, 10_000 if options.quick else 100_000)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except (RuntimeError, TimeoutError) as error:
        sys.exit(f"error: {error}")
