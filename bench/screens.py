"""Speed of screens, tools and terminals compared with their building blocks, in one run.

Needs root, to connect websockify to the same display from outside. Rounds are interleaved, so that noise of the machine
affects all candidates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from desks import MOVING, RAW, WITNESS, Sandbox, bare, by_hand, look, new_sandbox, ready_sandbox, websockify
from paddock.sandbox.images import ImageStore
from peers import Paddock
from sandbox import Table
from viewing import Screen, WebStream, own_seconds, tree_seconds, unix

PARTS = ("shots", "clicks", "starts", "kinds", "relay", "viewers", "wall", "terminal")
MEGABYTE = 10**6
WALL = 32
VIEWERS = 20
BIG = 100 * MEGABYTE


def clocked(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


async def shots(table: Table, paddock: Paddock, rounds: int) -> None:
    """A picture of a screen on which something moves, asked for through the API and taken by hand in the sandbox."""
    sandbox = await ready_sandbox(paddock)
    sandbox.program("moving", MOVING)
    sandbox.ask("POST", "/tools/write_file", {"path": "/tmp/raw.py", "content": RAW})
    sandbox.tool("screenshot")
    raw, tool, route = [], [], []
    for _ in range(rounds):
        raw.append(float(sandbox.run("python3 /tmp/raw.py 15")))
        tool.append(statistics.median(clocked(lambda: sandbox.tool("screenshot")) for _ in range(15)))
        route.append(statistics.median(clocked(lambda: sandbox.ask("GET", "/screenshot")) for _ in range(15)))
    by_hand = statistics.median(raw)
    table.add("GetImage and JPEG in one process", by_hand * 1e3, "ms")
    for what, took in (
        ("screenshot by tool call", statistics.median(tool)),
        ("GET screenshot", statistics.median(route)),
    ):
        ratio = took / by_hand
        table.add(what, took * 1e3, "ms", against="GetImage and JPEG", ratio=ratio, bar="<= 4 x GetImage and JPEG")
        table.judge(what, ratio, 4)
    still = await ready_sandbox(paddock)
    still.until(lambda: still.ask("GET", "/screenshot")[0] == 200)
    tag = _etag(still)
    unchanged = [clocked(lambda: _unchanged(still, tag)) for _ in range(5 * rounds)]
    table.add("GET screenshot, unchanged (304)", statistics.median(unchanged) * 1e3, "ms")
    await paddock.delete_all()


def _etag(sandbox: Sandbox) -> str:
    sandbox.tool("wait_for_settled_screen")
    sandbox._link.request("GET", f"{sandbox.path}/screenshot", headers=sandbox.headers)
    answer = sandbox._link.getresponse()
    answer.read()
    return answer.headers["ETag"]


def _unchanged(sandbox: Sandbox, tag: str) -> None:
    sandbox._link.request("GET", f"{sandbox.path}/screenshot", headers={**sandbox.headers, "If-None-Match": tag})
    answer = sandbox._link.getresponse()
    answer.read()


async def clicks(table: Table, paddock: Paddock, rounds: int) -> None:
    """From the request for a click to the moment at which a program in the sandbox has been told of it."""
    sandbox = await ready_sandbox(paddock)
    sandbox.program("witness", WITNESS)
    sandbox.until(lambda: "ready" in sandbox.run("cat /tmp/clicks 2>/dev/null; true"))
    sent: list[int] = []
    for _ in range(10 * rounds):
        sent.append(time.monotonic_ns())
        sandbox.tool("click_mouse", x=500, y=400)
    seen = [int(line) for line in sandbox.run("cat /tmp/clicks").split()[1:]]
    assert len(seen) == len(sent), (len(seen), len(sent))
    took = statistics.median(b - a for a, b in zip(sent, seen, strict=True)) / 1e6
    table.add("click through the API, seen by X", took, "ms", bar="<= 10 ms")
    table.judge("click through the API, seen by X", took, 10)
    await paddock.delete_all()


async def starts(table: Table, paddock: Paddock, rounds: int) -> None:
    """From asking for a desktop to its first frame at a viewer, and to one with a window manager in place."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ("hand", "cold", "pool")}

    async def rest() -> None:
        await paddock.delete_all()
        await paddock.pool_is_full(1)
        await asyncio.sleep(1)  # What has just been started is still busy with itself.

    async def ask(**how: Any) -> tuple[float, float]:
        await rest()
        began = time.perf_counter()
        sandbox = await new_sandbox(paddock, **how)
        return await asyncio.to_thread(look, began, sandbox.shown, lambda: sandbox.first_process)

    with tempfile.TemporaryDirectory() as directory:
        for _ in range(rounds):
            await rest()
            times["hand"].append(by_hand(Path(directory), paddock._image.root))
            # Limits of its own, or the pool would have one for it.
            times["cold"].append(await ask(resourceLimits={"memory": "2900Mi"}))
            times["pool"].append(await ask(extensions={"poolRef": "bench"}))
        await paddock.delete_all()
    first, whole = ({name: statistics.median(v[place] for v in times[name]) for name in times} for place in (0, 1))
    # Before openbox has the screen, what is compared with is an X server and nothing else.
    table.add("Xvnc and openbox in bwrap, first frame", first["hand"] * 1e3, "ms")
    ratio = first["cold"] / first["hand"]
    table.add("desktop, create to first frame, cold", first["cold"] * 1e3, "ms", against="by hand", ratio=ratio)
    table.add("Xvnc and openbox in bwrap, frame with both", whole["hand"] * 1e3, "ms")
    ratio = whole["cold"] / whole["hand"]
    what = "desktop, create to such a frame, cold"
    table.add(what, whole["cold"] * 1e3, "ms", against="by hand", ratio=ratio, bar="<= 1.5 x by hand")
    table.judge(what, ratio, 1.5)
    what = "desktop, create to such a frame, pool"
    table.add(what, whole["pool"] * 1e3, "ms", bar="<= 200 ms")
    table.judge(what, whole["pool"] * 1e3, 200)


async def kinds(table: Table, paddock: Paddock, rounds: int) -> None:
    """From nothing to a browser that has opened a page, and to Notepad's window."""
    for kind, tool, arguments, what, bound in (
        ("browser", "browser_navigate", {"url": "about:blank"}, "browser, create to first page, cold", 3.0),
        ("windows", "start_app", {"app": "notepad"}, "windows (Wine), create to Notepad, cold", 5.0),
    ):
        times = []
        for _ in range(max(2, rounds // 2)):
            began = time.perf_counter()
            sandbox = await new_sandbox(paddock, kind)
            await asyncio.to_thread(sandbox.until, partial(_works, sandbox, tool, arguments))
            times.append(time.perf_counter() - began)
            await paddock.delete_all()
        middle = statistics.median(times)
        table.add(what, middle, "s", bar=f"<= {bound:.0f} s")
        table.judge(what, middle, bound)


def _works(sandbox: Sandbox, tool: str, arguments: Mapping[str, Any]) -> bool:
    status, said = sandbox.ask("POST", f"/tools/{tool}", arguments)
    return status == 200 and not json.loads(said)["isError"]


async def relay(table: Table, paddock: Paddock, rounds: int) -> None:
    """Whole screens, without compression, to one viewer."""
    sandbox = await ready_sandbox(paddock)
    names = ("paddock", "websockify", "bare", "direct")
    rates: dict[str, list[float]] = {name: [] for name in names}
    costs: dict[str, list[float]] = {name: [] for name in names}
    with websockify(sandbox) as (address, process), bare(sandbox) as (bare_address, bare_process):
        ours = Screen(WebStream(f"{sandbox.address}/desktop", sandbox.headers, "binary"))
        theirs = Screen(WebStream(address, protocol="binary"))
        loop = Screen(WebStream(bare_address, protocol="binary"))
        direct = Screen(unix(sandbox.display))
        for screen in (ours, theirs, loop, direct):
            screen.frame()
        for _ in range(rounds):
            for name, screen, used, server in (
                ("paddock", ours, own_seconds, paddock.process),
                ("websockify", theirs, tree_seconds, process),
                ("bare", loop, own_seconds, bare_process),
                ("direct", direct, own_seconds, process),
            ):
                before = used(server)
                size, seconds = await asyncio.to_thread(screen.frames, 1.5)
                costs[name].append((used(server) - before) / (size / MEGABYTE))
                rates[name].append(size / MEGABYTE / seconds)
        for screen in (ours, theirs, loop, direct):
            screen.stream.close()
    rate = {name: statistics.median(values) for name, values in rates.items()}
    cost = {name: statistics.median(values) * 1e3 for name, values in costs.items()}
    limit = rate["direct"] / rate["websockify"]
    table.add("display read with nothing between", rate["direct"], "MB/s", against="websockify", ratio=limit)
    limit = rate["bare"] / rate["websockify"]
    table.add("a bare loop of recv and send", rate["bare"], "MB/s", against="websockify", ratio=limit)
    table.add("websockify, full screens", rate["websockify"], "MB/s")
    ratio = rate["paddock"] / rate["websockify"]
    what = "relay, full screens"
    table.add(what, rate["paddock"], "MB/s", against="websockify", ratio=ratio, bar=">= 2 x websockify")
    table.judge(what, ratio, 2, at_least=True)
    limit = cost["bare"] / cost["websockify"]
    table.add("the bare loop, processor per MB", cost["bare"], "ms", against="websockify", ratio=limit)
    table.add("websockify, processor per MB", cost["websockify"], "ms")
    ratio = cost["paddock"] / cost["websockify"]
    what = "relay, processor per MB"
    table.add(what, cost["paddock"], "ms", against="websockify", ratio=ratio, bar="<= 0.5 x websockify")
    table.judge(what, ratio, 0.5)
    await paddock.delete_all()


async def viewers(table: Table, paddock: Paddock, rounds: int) -> None:
    """Measure many viewers of one sandbox at full speed."""
    sandbox = await ready_sandbox(paddock)
    screens = [sandbox.shown() for _ in range(VIEWERS)]
    counts = [0] * VIEWERS
    stop = time.perf_counter() + 5

    def watch(number: int) -> None:
        while time.perf_counter() < stop:
            screens[number].frame()
            counts[number] += 1

    threads = [threading.Thread(target=watch, args=(number,)) for number in range(VIEWERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    table.add(f"{VIEWERS} viewers of one sandbox, frames/s each", statistics.median(counts) / 5, "")
    what = "  the slowest of them"
    share = min(counts) / max(1.0, statistics.median(counts))
    table.add(what, min(counts) / 5, "", against="the median one", ratio=share, bar=">= 0.5 x the median one")
    table.judge(what, share, 0.5, at_least=True)
    for screen in screens:
        screen.stream.close()
    await paddock.delete_all()


async def wall(table: Table, paddock: Paddock, rounds: int) -> None:
    """Many screens on one page, on which nothing moves: what the server and the sandboxes together spend on them."""
    sandboxes = [await new_sandbox(paddock) for _ in range(WALL)]
    for sandbox in sandboxes:
        await asyncio.to_thread(sandbox.until, sandbox.is_up)
    parts = urlsplit(sandboxes[0].address)
    stream = WebStream(f"ws://{parts.netloc}/v1/screens?width=320&fps=1", sandboxes[0].headers)
    seen: set[bytes] = set()
    came = threading.Event()

    def watch() -> None:
        try:
            while True:
                message = stream.message()
                if stream.kind == 2:
                    seen.add(message[:64])
                    if len(seen) >= WALL:
                        came.set()
        except (OSError, ConnectionError):
            pass

    thread = threading.Thread(target=watch)
    thread.start()
    assert await asyncio.to_thread(came.wait, 60), f"only {len(seen)} pictures came"
    await asyncio.sleep(3)
    firsts = [sandbox.first_process for sandbox in sandboxes]

    def used() -> tuple[float, float]:
        return own_seconds(paddock.process), sum(map(tree_seconds, firsts))

    before, began = used(), time.perf_counter()
    await asyncio.sleep(10)
    after, seconds = used(), time.perf_counter() - began
    server, inside = ((b - a) / seconds * 100 for a, b in zip(before, after, strict=True))
    what = f"wall of {WALL} screens, nothing moves, of a core"
    table.add(what, server, "%", bar="<= 20 % of a core")
    table.judge(what, server, 20)
    table.add("  what is in the sandboxes meanwhile", inside, "%")
    stream.link.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    stream.close()
    await paddock.delete_all()


async def terminal(table: Table, paddock: Paddock, rounds: int) -> None:
    """A key's way to a terminal and back, and as much as it can show."""
    sandbox = await new_sandbox(paddock, "code", image={"uri": "host"})
    with WebStream(f"{sandbox.address}/terminal?cols=80&rows=24&viewer=bench", sandbox.headers) as stream:
        _type(stream, b"stty -opost; echo rea''dy; cat >/dev/null\r")
        _read_until(stream, b"ready")
        took = []
        for _ in range(40 * rounds):
            began = time.perf_counter()
            _type(stream, b"x")
            _read_until(stream, b"x")
            took.append(time.perf_counter() - began)
        table.add("key in a terminal, echoed", statistics.median(took) * 1e3, "ms", bar="<= 3 ms")
        table.judge("key in a terminal, echoed", statistics.median(took) * 1e3, 3)
    sandbox.run(f"yes 'a line of text, as programs write them' | head -c {BIG} > /tmp/big")
    rates = []
    for number in range(max(2, rounds // 2)):
        with WebStream(f"{sandbox.address}/terminal?name=big{number}&viewer=bench", sandbox.headers) as stream:
            _type(stream, b"stty -opost; echo rea''dy; cat /tmp/big; exit\r")
            _read_until(stream, b"ready")
            began, size = time.perf_counter(), 0
            while size < BIG:
                message = stream.message()
                if stream.kind == 2:
                    size += len(message) - 1
            rates.append(size / MEGABYTE / (time.perf_counter() - began))
    what = f"cat of {BIG // MEGABYTE} MB in a terminal"
    table.add(what, statistics.median(rates), "MB/s", bar=">= 30 MB/s")
    table.judge(what, statistics.median(rates), 30, at_least=True)
    await paddock.delete_all()


def _type(stream: WebStream, keys: bytes) -> None:
    stream.send(b"\0" + keys)


def _read_until(stream: WebStream, text: bytes) -> None:
    seen = b""
    while text not in seen:
        message = stream.message()
        if stream.kind == 2:
            seen = (seen + message[1:])[-4096:]


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part, more than once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--images", type=Path, default=Path.home() / ".paddock/images", help="where images are")
    options = parser.parse_args()
    parts: dict[str, Callable[[Table, Paddock, int], Any]] = {
        "shots": shots,
        "clicks": clicks,
        "starts": starts,
        "kinds": kinds,
        "relay": relay,
        "viewers": viewers,
        "wall": wall,
        "terminal": terminal,
    }
    rounds = 3 if options.quick else 7
    table = Table()
    images = ImageStore(options.images, [Path(__file__).parents[1] / "images"])
    for name in ("desktop", "browser", "windows"):
        await images.build_async(name)
    async with AsyncExitStack() as held:
        directory = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="paddock-bench-")))
        desktop = await images.resolve_async("desktop")
        settings: dict[str, Any] = {"live": {"viewers": 64}}
        if "starts" in (options.only or PARTS):
            settings["pools"] = [{"name": "bench", "kind": "linux", "size": 1}]
        paddock = await held.enter_async_context(
            Paddock.start(directory / "paddock", options.images, desktop, **settings)
        )
        for name in options.only or PARTS:
            print(f"measuring {name} …", file=sys.stderr, flush=True)
            await parts[name](table, paddock, rounds)
    return table.finish(options.json)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
