"""Speed of sandboxes compared with Docker and bubblewrap, in one run.

Needs root: it starts a Docker engine of its own, on a socket and in directories of its own, and ends it again.
Rounds are interleaved, so that noise of the machine affects all candidates.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

from paddock.sandbox.images import ImageStore
from support.commands import run_command, write_small_files
from support.docker_engine import DockerEngine
from support.paddock_server import PaddockServer
from support.result_table import ResultTable, measure_awaitable, measure_call

MEGABYTE = 10**6
TRANSFER = 256 * 2**20
SMALL_FILES = 10_000
POOL = 20


async def measure_starts(table: ResultTable, paddock: PaddockServer, docker: DockerEngine, rounds: int) -> None:
    """Measure creation up to the result of the first command."""
    times: dict[str, list[float]] = {name: [] for name in ("bwrap", "docker run", "cold", "pool")}

    async def create_and_run(**request: object) -> None:
        sandbox = await paddock.create_sandbox(**request)
        await paddock.run_in_sandbox(sandbox, "true")

    for _ in range(rounds):
        times["bwrap"].append(
            await measure_awaitable(run_command("bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"))
        )
        times["docker run"].append(
            await measure_awaitable(docker("run", "--rm", "--network=none", docker.image, "true"))
        )
        times["cold"].append(await measure_awaitable(create_and_run(resourceLimits={"memory": "1Gi"})))
        await paddock.wait_until_pool_full(POOL)
        times["pool"].append(await measure_awaitable(create_and_run(extensions={"poolRef": "bench"})))
        await paddock.delete_all_sandboxes()
    middle = {name: statistics.median(values) for name, values in times.items()}
    table.add("bwrap true", middle["bwrap"] * 1e3, "ms")
    table.add("docker run true", middle["docker run"] * 1e3, "ms")
    for name, what, bound in (
        ("cold", "create + first command, cold", 0.5),
        ("pool", "create + first command, pool", 0.1),
    ):
        ratio = middle[name] / middle["docker run"]
        table.add(what, middle[name] * 1e3, "ms", against="docker run", ratio=ratio, bar=f"<= {bound} x docker run")
        table.check_bar(what, ratio, bound)
    ratio = middle["pool"] / middle["bwrap"]
    table.add("  the same", middle["pool"] * 1e3, "ms", against="bwrap true", ratio=ratio, bar="< 5 x bwrap true")
    table.check_bar("  the same", ratio, 5)


async def measure_round_trips(table: ResultTable, paddock: PaddockServer, docker: DockerEngine, rounds: int) -> None:
    """Measure one command in a running sandbox."""
    sandbox = await paddock.create_sandbox()
    container = (await docker("run", "-d", "--network=none", docker.image, "sleep", "3600")).strip()
    times: dict[str, list[float]] = {name: [] for name in ("bash", "docker exec", "api", "socket")}
    await paddock.run_in_sandbox(sandbox, "true")
    handle = await paddock.connect_to_daemon(sandbox)
    for _ in range(rounds):
        times["docker exec"].append(await measure_awaitable(docker("exec", container, "true")))
        for _ in range(5):
            times["bash"].append(measure_call(lambda: subprocess.run(["bash", "-c", "true"], check=True)))
            times["api"].append(await measure_awaitable(paddock.run_in_sandbox(sandbox, "true")))
            times["socket"].append(measure_call(lambda: handle.run_command("true")))
    handle.close()
    await docker("rm", "-f", container)
    middle = {name: statistics.median(values) for name, values in times.items()}
    table.add("bash -c true, no sandbox", middle["bash"] * 1e3, "ms")
    table.add("docker exec true", middle["docker exec"] * 1e3, "ms")
    ratio = middle["api"] / middle["docker exec"]
    what = "exec true through the HTTP API"
    table.add(what, middle["api"] * 1e3, "ms", against="docker exec", ratio=ratio, bar="<= 0.1 x docker exec")
    table.check_bar(what, ratio, 0.1)
    what = "exec true through the sandbox's socket"
    ratio = middle["socket"] / middle["bash"]
    table.add(what, middle["socket"] * 1e3, "ms", against="bash -c true", ratio=ratio, bar="<= 3 ms or 1.5 x bash")
    # Starting bash is most of the time: if it alone takes longer than 2 ms, the machine is not quiet.
    table.check_bar(what, middle["socket"], max(0.003, 1.5 * middle["bash"]))
    await paddock.delete_all_sandboxes()


async def measure_many_sandboxes(table: ResultTable, paddock: PaddockServer) -> None:
    """Measure a hundred creations at once and the memory of each idle sandbox."""
    await paddock.wait_until_pool_full(POOL)
    started = time.perf_counter()
    sandboxes = await asyncio.gather(*(paddock.create_sandbox(extensions={"poolRef": "bench"}) for _ in range(100)))
    elapsed = time.perf_counter() - started
    what = f"100 creates at once, pool of {POOL}"
    table.add(what, elapsed, "s", bar="<= 5 s, none fails")
    table.check_bar(what, elapsed, 5)
    assert len(set(sandboxes)) == 100
    memory = [paddock.proportional_memory(sandbox) for sandbox in sandboxes]
    what = "memory of an idle sandbox (PSS)"
    table.add(what, statistics.median(memory) / MEGABYTE, "MB", bar="<= 20 MB")
    table.check_bar(what, statistics.median(memory) / MEGABYTE, 20)
    await paddock.delete_all_sandboxes()


async def measure_transfers(
    table: ResultTable, paddock: PaddockServer, docker: DockerEngine, scratch: Path, rounds: int
) -> None:
    """Measure uploads and downloads of one large file and of many small files."""
    sandbox = await paddock.create_sandbox()
    large = scratch / "large"
    large.write_bytes(os.urandom(2**20) * (TRANSFER // 2**20))
    up: list[float] = []
    down: list[float] = []
    for _ in range(rounds):
        up.append(await measure_awaitable(paddock.upload(sandbox, "/workspace/large", large)))
        down.append(await measure_awaitable(paddock.download(sandbox, "/workspace/large")))
    for what, times in (("upload 256 MiB", up), ("download 256 MiB", down)):
        speed = TRANSFER / MEGABYTE / min(times)
        table.add(what, speed, "MB/s", bar=">= 300 MB/s")
        table.check_bar(what, speed, 300, at_least=True)
    tree = write_small_files(scratch / "tree", SMALL_FILES)
    container = (await docker("run", "-d", "--network=none", docker.image, "sleep", "3600")).strip()
    ours, theirs = [], []
    for turn in range(rounds):
        theirs.append(await measure_awaitable(docker("cp", str(tree), f"{container}:/tmp/tree{turn}")))
        ours.append(await measure_awaitable(paddock.upload_tree(sandbox, tree, f"/workspace/tree{turn}")))
    ratio = statistics.median(ours) / statistics.median(theirs)
    what = f"{SMALL_FILES} small files in, one archive"
    table.add(what, statistics.median(ours), "s", against="docker cp", ratio=ratio, bar="< 1 x docker cp")
    table.check_bar(what, ratio, 1)
    ours, theirs = [], []
    for turn in range(rounds):
        theirs.append(await measure_awaitable(docker("cp", f"{container}:/tmp/tree0", str(scratch / f"docker{turn}"))))
        ours.append(
            await measure_awaitable(paddock.download_tree(sandbox, "/workspace/tree0", scratch / f"paddock{turn}"))
        )
    ratio = statistics.median(ours) / statistics.median(theirs)
    what = f"{SMALL_FILES} small files out, one archive"
    table.add(what, statistics.median(ours), "s", against="docker cp", ratio=ratio, bar="< 1 x docker cp")
    table.check_bar(what, ratio, 1)
    await docker("rm", "-f", container)
    await paddock.delete_all_sandboxes()


async def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--image", default="code")
    arguments.add_argument("--images", type=Path, default=Path("~/.paddock/images").expanduser())
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    options = arguments.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: the comparison starts a Docker engine, which needs root")
    table = ResultTable()
    store = ImageStore(options.images)
    print(f"image {options.image} …", flush=True)
    image = await store.build_async(options.image, lambda step: None)
    async with AsyncExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="paddock-bench-")))
        print("docker engine …", flush=True)
        docker = await running.enter_async_context(DockerEngine.start(scratch / "docker", store, image))
        print("paddock serve …", flush=True)
        paddock = await running.enter_async_context(
            PaddockServer.start(scratch / "paddock", options.images, image, POOL)
        )
        print("measuring …", flush=True)
        await measure_starts(table, paddock, docker, options.rounds)
        await measure_round_trips(table, paddock, docker, options.rounds)
        await measure_many_sandboxes(table, paddock)
        await measure_transfers(table, paddock, docker, scratch, max(3, options.rounds // 3))
    return table.report(options.json)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except aiohttp.ClientError as error:
        sys.exit(f"error: {error}")
