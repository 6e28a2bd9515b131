"""Load client of the gRPC transport: calls one tool, one at a time and many at a time.

    grpc_client PORT KEY TARGET SECONDS CONCURRENCY

Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import aclosing

from paddock.mcp.protocol import CallContext
from paddock.mcp.rpc.client import McpRpcClient
from support.mcp_gateways import McpTarget

CONTEXT = CallContext(tenant="bench", caller="bench", origin="grpc")


async def main(port: int, key: str, target: str, seconds: float, concurrency: int) -> None:
    from paddock.mcp.protocol.messages import make_request

    client = McpRpcClient(f"127.0.0.1:{port}", key)
    endpoint = client.endpoint(target)
    body = McpTarget("paddock", port, 0).call_tool()
    request = make_request(1, "tools/call", body["params"])
    durations: list[float] = []

    async def call() -> None:
        started = time.perf_counter()
        async with aclosing(endpoint.exchange(request, CONTEXT)) as messages:
            async for message in messages:
                assert "content" in message.result_object()
        durations.append(time.perf_counter() - started)

    async def call_until(end: float) -> None:
        while time.perf_counter() < end:
            await call()

    await call()
    durations.clear()
    started, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(call_until(started + seconds) for _ in range(concurrency)))
    elapsed = time.perf_counter() - started
    durations.sort()
    result = {
        "rate": len(durations) / elapsed,
        "p50": durations[len(durations) // 2],
        "cpu": time.process_time() - cpu,
        "answers": len(durations),
    }
    print(json.dumps(result))
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5])))
