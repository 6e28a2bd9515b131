"""Speed of sandboxes compared with Docker and bubblewrap, in one run.

Needs root: it starts a Docker engine of its own, on a socket and in directories of its own, and ends it again.
Rounds are interleaved, so that a noisy machine is noisy for everybody.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

from paddock.sandbox.images import ImageStore
from peers import Docker, Paddock, run, small_files

MEGABYTE = 10**6
TRANSFER = 256 * 2**20
SMALL_FILES = 10_000
POOL = 20


class Table:
    """Collects figures and prints them with the bar each has to meet."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def add(self, what: str, figure: float, unit: str, *, against: str = "", ratio: float = 0.0, bar: str = "") -> None:
        self.rows.append({"what": what, "figure": figure, "unit": unit, "against": against, "ratio": ratio, "bar": bar})

    def judge(self, what: str, value: float, bound: float, *, at_least: bool = False) -> None:
        row = next(row for row in self.rows if row["what"] == what)
        row["holds"] = value >= bound if at_least else value <= bound

    def show(self) -> None:
        print(f"\n{'what':<46}{'figure':>12}  {'against':<34}{'bar':<26}holds")
        for row in self.rows:
            figure = f"{row['figure']:.1f} {row['unit']}"
            against = f"{row['ratio']:.3f} x {row['against']}" if row["against"] else ""
            holds = {True: "yes", False: "NO", None: ""}[row.get("holds")]  # type: ignore[index]
            print(f"{row['what']:<46}{figure:>12}  {against:<34}{row['bar']:<26}{holds}")

    @property
    def all_hold(self) -> bool:
        return all(row.get("holds") is not False for row in self.rows)

    def finish(self, copy: Path | None) -> int:
        """Print all, write it to a file if one is wanted, and return the exit code."""
        self.show()
        if copy:
            copy.write_text(json.dumps(self.rows, indent=2))
        return 0 if self.all_hold else 1


async def timed(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


def timed_here(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


async def starts(table: Table, paddock: Paddock, docker: Docker, rounds: int) -> None:
    """From nothing to the first command's result."""
    times: dict[str, list[float]] = {name: [] for name in ("bwrap", "docker run", "cold", "pool")}

    async def create_and_run(**request: object) -> None:
        sandbox = await paddock.create(**request)
        await paddock.execute(sandbox, "true")

    for _ in range(rounds):
        times["bwrap"].append(await timed(run("bwrap", "--unshare-all", "--ro-bind", "/", "/", "true")))
        times["docker run"].append(await timed(docker("run", "--rm", "--network=none", docker.image, "true")))
        times["cold"].append(await timed(create_and_run(resourceLimits={"memory": "1Gi"})))
        await paddock.pool_is_full(POOL)
        times["pool"].append(await timed(create_and_run(extensions={"poolRef": "bench"})))
        await paddock.delete_all()
    middle = {name: statistics.median(values) for name, values in times.items()}
    table.add("bwrap true", middle["bwrap"] * 1e3, "ms")
    table.add("docker run true", middle["docker run"] * 1e3, "ms")
    for name, what, bound in (
        ("cold", "create + first command, cold", 0.5),
        ("pool", "create + first command, pool", 0.1),
    ):
        ratio = middle[name] / middle["docker run"]
        table.add(what, middle[name] * 1e3, "ms", against="docker run", ratio=ratio, bar=f"<= {bound} x docker run")
        table.judge(what, ratio, bound)
    ratio = middle["pool"] / middle["bwrap"]
    table.add("  the same", middle["pool"] * 1e3, "ms", against="bwrap true", ratio=ratio, bar="< 5 x bwrap true")
    table.judge("  the same", ratio, 5)


async def round_trips(table: Table, paddock: Paddock, docker: Docker, rounds: int) -> None:
    """One command in a sandbox that is there already."""
    sandbox = await paddock.create()
    container = (await docker("run", "-d", "--network=none", docker.image, "sleep", "3600")).strip()
    times: dict[str, list[float]] = {name: [] for name in ("bash", "docker exec", "api", "socket")}
    await paddock.execute(sandbox, "true")
    handle = await paddock.sandbox_socket(sandbox)
    for _ in range(rounds):
        times["docker exec"].append(await timed(docker("exec", container, "true")))
        for _ in range(5):
            times["bash"].append(timed_here(lambda: subprocess.run(["bash", "-c", "true"], check=True)))
            times["api"].append(await timed(paddock.execute(sandbox, "true")))
            times["socket"].append(timed_here(lambda: handle.execute("true")))
    handle.close()
    await docker("rm", "-f", container)
    middle = {name: statistics.median(values) for name, values in times.items()}
    table.add("bash -c true, no sandbox", middle["bash"] * 1e3, "ms")
    table.add("docker exec true", middle["docker exec"] * 1e3, "ms")
    ratio = middle["api"] / middle["docker exec"]
    what = "exec true through the HTTP API"
    table.add(what, middle["api"] * 1e3, "ms", against="docker exec", ratio=ratio, bar="<= 0.1 x docker exec")
    table.judge(what, ratio, 0.1)
    what = "exec true through the sandbox's socket"
    ratio = middle["socket"] / middle["bash"]
    table.add(what, middle["socket"] * 1e3, "ms", against="bash -c true", ratio=ratio, bar="<= 3 ms or 1.5 x bash")
    # Starting bash is most of it: where that alone takes longer than 2 ms the machine is not quiet.
    table.judge(what, middle["socket"], max(0.003, 1.5 * middle["bash"]))
    await paddock.delete_all()


async def crowd(table: Table, paddock: Paddock) -> None:
    """A hundred at once, and what each costs while it waits."""
    await paddock.pool_is_full(POOL)
    started = time.perf_counter()
    sandboxes = await asyncio.gather(*(paddock.create(extensions={"poolRef": "bench"}) for _ in range(100)))
    wall = time.perf_counter() - started
    what = f"100 creates at once, pool of {POOL}"
    table.add(what, wall, "s", bar="<= 5 s, none fails")
    table.judge(what, wall, 5)
    assert len(set(sandboxes)) == 100
    shares = [paddock.proportional_memory(sandbox) for sandbox in sandboxes]
    what = "memory of an idle sandbox (PSS)"
    table.add(what, statistics.median(shares) / MEGABYTE, "MB", bar="<= 20 MB")
    table.judge(what, statistics.median(shares) / MEGABYTE, 20)
    await paddock.delete_all()


async def transfers(table: Table, paddock: Paddock, docker: Docker, scratch: Path, rounds: int) -> None:
    """Files in and out: one large one, and very many small ones."""
    sandbox = await paddock.create()
    large = scratch / "large"
    large.write_bytes(os.urandom(2**20) * (TRANSFER // 2**20))
    up: list[float] = []
    down: list[float] = []
    for _ in range(rounds):
        up.append(await timed(paddock.upload(sandbox, "/workspace/large", large)))
        down.append(await timed(paddock.download(sandbox, "/workspace/large")))
    for what, times in (("upload 256 MiB", up), ("download 256 MiB", down)):
        speed = TRANSFER / MEGABYTE / min(times)
        table.add(what, speed, "MB/s", bar=">= 300 MB/s")
        table.judge(what, speed, 300, at_least=True)
    tree = small_files(scratch / "tree", SMALL_FILES)
    container = (await docker("run", "-d", "--network=none", docker.image, "sleep", "3600")).strip()
    ours, theirs = [], []
    for turn in range(rounds):
        theirs.append(await timed(docker("cp", str(tree), f"{container}:/tmp/tree{turn}")))
        ours.append(await timed(paddock.put_tree(sandbox, tree, f"/workspace/tree{turn}")))
    ratio = statistics.median(ours) / statistics.median(theirs)
    what = f"{SMALL_FILES} small files in, one archive"
    table.add(what, statistics.median(ours), "s", against="docker cp", ratio=ratio, bar="< 1 x docker cp")
    table.judge(what, ratio, 1)
    ours, theirs = [], []
    for turn in range(rounds):
        theirs.append(await timed(docker("cp", f"{container}:/tmp/tree0", str(scratch / f"docker{turn}"))))
        ours.append(await timed(paddock.get_tree(sandbox, "/workspace/tree0", scratch / f"paddock{turn}")))
    ratio = statistics.median(ours) / statistics.median(theirs)
    what = f"{SMALL_FILES} small files out, one archive"
    table.add(what, statistics.median(ours), "s", against="docker cp", ratio=ratio, bar="< 1 x docker cp")
    table.judge(what, ratio, 1)
    await docker("rm", "-f", container)
    await paddock.delete_all()


async def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--image", default="code")
    arguments.add_argument("--images", type=Path, default=Path("~/.paddock/images").expanduser())
    arguments.add_argument("--json", type=Path, help="write the figures here too")
    options = arguments.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: the comparison starts a Docker engine, which needs root")
    table = Table()
    store = ImageStore(options.images)
    print(f"image {options.image} …", flush=True)
    image = await store.build_async(options.image, lambda step: None)
    async with AsyncExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="paddock-bench-")))
        print("docker engine …", flush=True)
        docker = await running.enter_async_context(Docker.start(scratch / "docker", store, image))
        print("paddock serve …", flush=True)
        paddock = await running.enter_async_context(Paddock.start(scratch / "paddock", options.images, image, POOL))
        print("measuring …", flush=True)
        await starts(table, paddock, docker, options.rounds)
        await round_trips(table, paddock, docker, options.rounds)
        await crowd(table, paddock)
        await transfers(table, paddock, docker, scratch, max(3, options.rounds // 3))
    return table.finish(options.json)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except aiohttp.ClientError as error:
        sys.exit(f"error: {error}")
