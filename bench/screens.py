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

from paddock.sandbox.images import ImageStore
from support.paddock_server import PaddockServer
from support.process_usage import thread_cpu_seconds, tree_cpu_seconds
from support.result_table import ResultTable, measure_call
from support.screen_sandboxes import (
    CLICK_LOGGER_PROGRAM,
    MOVING_WINDOW_PROGRAM,
    SCREENSHOT_PROGRAM,
    ScreenSandbox,
    create_ready_sandbox,
    create_screen_sandbox,
    run_bare_relay,
    run_websockify,
    time_bare_desktop,
    time_first_frames,
)
from support.viewer_clients import RfbViewer, WebSocketStream, connect_unix

PARTS = ("shots", "clicks", "starts", "kinds", "relay", "viewers", "grid", "terminal")
MEGABYTE = 10**6
GRID_SCREENS = 32
VIEWERS = 20
BIG_OUTPUT = 100 * MEGABYTE


async def measure_screenshots(table: ResultTable, paddock: PaddockServer, rounds: int) -> None:
    """Measure screenshots of a moving screen, through the API and by a program in the sandbox."""
    sandbox = await create_ready_sandbox(paddock)
    sandbox.start_program("moving", MOVING_WINDOW_PROGRAM)
    sandbox.request("POST", "/tools/write_file", {"path": "/tmp/raw.py", "content": SCREENSHOT_PROGRAM})
    sandbox.call_tool("screenshot")
    raw, tool, route = [], [], []
    for _ in range(rounds):
        raw.append(float(sandbox.run_command("python3 /tmp/raw.py 15")))
        tool.append(statistics.median(measure_call(lambda: sandbox.call_tool("screenshot")) for _ in range(15)))
        route.append(statistics.median(measure_call(lambda: sandbox.request("GET", "/screenshot")) for _ in range(15)))
    by_hand = statistics.median(raw)
    table.add("GetImage and JPEG in one process", by_hand * 1e3, "ms")
    for what, took in (
        ("screenshot by tool call", statistics.median(tool)),
        ("GET screenshot", statistics.median(route)),
    ):
        ratio = took / by_hand
        table.add(what, took * 1e3, "ms", against="GetImage and JPEG", ratio=ratio, bar="<= 4 x GetImage and JPEG")
        table.check_bar(what, ratio, 4)
    still = await create_ready_sandbox(paddock)
    still.wait_until(lambda: still.request("GET", "/screenshot")[0] == 200)
    tag = _etag(still)
    unchanged = [measure_call(lambda: _unchanged(still, tag)) for _ in range(5 * rounds)]
    table.add("GET screenshot, unchanged (304)", statistics.median(unchanged) * 1e3, "ms")
    await paddock.delete_all_sandboxes()


def _etag(sandbox: ScreenSandbox) -> str:
    sandbox.call_tool("wait_for_settled_screen")
    sandbox._connection.request("GET", f"{sandbox.path}/screenshot", headers=sandbox.headers)
    answer = sandbox._connection.getresponse()
    answer.read()
    return answer.headers["ETag"]


def _unchanged(sandbox: ScreenSandbox, tag: str) -> None:
    sandbox._connection.request("GET", f"{sandbox.path}/screenshot", headers={**sandbox.headers, "If-None-Match": tag})
    answer = sandbox._connection.getresponse()
    answer.read()


async def measure_clicks(table: ResultTable, paddock: PaddockServer, rounds: int) -> None:
    """Measure the time from the request for a click until a program in the sandbox receives it."""
    sandbox = await create_ready_sandbox(paddock)
    sandbox.start_program("witness", CLICK_LOGGER_PROGRAM)
    sandbox.wait_until(lambda: "ready" in sandbox.run_command("cat /tmp/clicks 2>/dev/null; true"))
    sent: list[int] = []
    for _ in range(10 * rounds):
        sent.append(time.monotonic_ns())
        sandbox.call_tool("click_mouse", x=500, y=400)
    seen = [int(line) for line in sandbox.run_command("cat /tmp/clicks").split()[1:]]
    assert len(seen) == len(sent), (len(seen), len(sent))
    took = statistics.median(b - a for a, b in zip(sent, seen, strict=True)) / 1e6
    table.add("click through the API, seen by X", took, "ms", bar="<= 10 ms")
    table.check_bar("click through the API, seen by X", took, 10)
    await paddock.delete_all_sandboxes()


async def measure_desktop_starts(table: ResultTable, paddock: PaddockServer, rounds: int) -> None:
    """Measure the time from the request for a desktop to its first frame, and to one with a window manager."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ("hand", "cold", "pool")}

    async def prepare() -> None:
        await paddock.delete_all_sandboxes()
        await paddock.wait_until_pool_full(1)
        await asyncio.sleep(1)  # The processes just started are still busy.

    async def time_start(**options: Any) -> tuple[float, float]:
        await prepare()
        began = time.perf_counter()
        sandbox = await create_screen_sandbox(paddock, **options)
        return await asyncio.to_thread(time_first_frames, began, sandbox.open_viewer, lambda: sandbox.first_process)

    with tempfile.TemporaryDirectory() as directory:
        for _ in range(rounds):
            await prepare()
            times["hand"].append(time_bare_desktop(Path(directory), paddock._image.root))
            # Different limits, so that no sandbox of the pool fits.
            times["cold"].append(await time_start(resourceLimits={"memory": "2900Mi"}))
            times["pool"].append(await time_start(extensions={"poolRef": "bench"}))
        await paddock.delete_all_sandboxes()
    first_frames, full_frames = (
        {name: statistics.median(v[index] for v in times[name]) for name in times} for index in (0, 1)
    )
    # Until openbox has the screen, the comparison is with a bare X server.
    table.add("Xvnc and openbox in bwrap, first frame", first_frames["hand"] * 1e3, "ms")
    ratio = first_frames["cold"] / first_frames["hand"]
    table.add("desktop, create to first frame, cold", first_frames["cold"] * 1e3, "ms", against="by hand", ratio=ratio)
    table.add("Xvnc and openbox in bwrap, frame with both", full_frames["hand"] * 1e3, "ms")
    ratio = full_frames["cold"] / full_frames["hand"]
    what = "desktop, create to such a frame, cold"
    table.add(what, full_frames["cold"] * 1e3, "ms", against="by hand", ratio=ratio, bar="<= 1.5 x by hand")
    table.check_bar(what, ratio, 1.5)
    what = "desktop, create to such a frame, pool"
    table.add(what, full_frames["pool"] * 1e3, "ms", bar="<= 200 ms")
    table.check_bar(what, full_frames["pool"] * 1e3, 200)


async def measure_kind_starts(table: ResultTable, paddock: PaddockServer, rounds: int) -> None:
    """Measure creation up to a browser's first page, and up to Notepad's window."""
    for kind, tool, arguments, what, bound in (
        ("browser", "browser_navigate", {"url": "about:blank"}, "browser, create to first page, cold", 3.0),
        ("windows", "start_app", {"app": "notepad"}, "windows (Wine), create to Notepad, cold", 5.0),
    ):
        times = []
        for _ in range(max(2, rounds // 2)):
            began = time.perf_counter()
            sandbox = await create_screen_sandbox(paddock, kind)
            await asyncio.to_thread(sandbox.wait_until, partial(_tool_succeeds, sandbox, tool, arguments))
            times.append(time.perf_counter() - began)
            await paddock.delete_all_sandboxes()
        middle = statistics.median(times)
        table.add(what, middle, "s", bar=f"<= {bound:.0f} s")
        table.check_bar(what, middle, bound)


def _tool_succeeds(sandbox: ScreenSandbox, tool: str, arguments: Mapping[str, Any]) -> bool:
    status, response = sandbox.request("POST", f"/tools/{tool}", arguments)
    return status == 200 and not json.loads(response)["isError"]


async def measure_relay(table: ResultTable, paddock: PaddockServer, rounds: int) -> None:
    """Measure the relay of uncompressed full screens to one viewer."""
    sandbox = await create_ready_sandbox(paddock)
    names = ("paddock", "websockify", "bare", "direct")
    rates: dict[str, list[float]] = {name: [] for name in names}
    costs: dict[str, list[float]] = {name: [] for name in names}
    with run_websockify(sandbox) as (address, process), run_bare_relay(sandbox) as (bare_address, bare_process):
        ours = RfbViewer(WebSocketStream(f"{sandbox.address}/desktop", sandbox.headers, "binary"))
        theirs = RfbViewer(WebSocketStream(address, protocol="binary"))
        loop = RfbViewer(WebSocketStream(bare_address, protocol="binary"))
        direct = RfbViewer(connect_unix(sandbox.display_socket))
        for screen in (ours, theirs, loop, direct):
            screen.read_frame()
        for _ in range(rounds):
            for name, screen, used, server in (
                ("paddock", ours, thread_cpu_seconds, paddock.process),
                ("websockify", theirs, tree_cpu_seconds, process),
                ("bare", loop, thread_cpu_seconds, bare_process),
                ("direct", direct, thread_cpu_seconds, process),
            ):
                before = used(server)
                size, seconds = await asyncio.to_thread(screen.read_frames, 1.5)
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
    table.check_bar(what, ratio, 2, at_least=True)
    limit = cost["bare"] / cost["websockify"]
    table.add("the bare loop, processor per MB", cost["bare"], "ms", against="websockify", ratio=limit)
    table.add("websockify, processor per MB", cost["websockify"], "ms")
    ratio = cost["paddock"] / cost["websockify"]
    what = "relay, processor per MB"
    table.add(what, cost["paddock"], "ms", against="websockify", ratio=ratio, bar="<= 0.5 x websockify")
    table.check_bar(what, ratio, 0.5)
    await paddock.delete_all_sandboxes()


async def measure_viewers(table: ResultTable, paddock: PaddockServer, rounds: int) -> None:
    """Measure many viewers of one sandbox at full speed."""
    sandbox = await create_ready_sandbox(paddock)
    screens = [sandbox.open_viewer() for _ in range(VIEWERS)]
    counts = [0] * VIEWERS
    stop = time.perf_counter() + 5

    def watch(number: int) -> None:
        while time.perf_counter() < stop:
            screens[number].read_frame()
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
    table.check_bar(what, share, 0.5, at_least=True)
    for screen in screens:
        screen.stream.close()
    await paddock.delete_all_sandboxes()


async def measure_screen_grid(table: ResultTable, paddock: PaddockServer, rounds: int) -> None:
    """Measure the CPU use of the server and the sandboxes for a grid of still screens."""
    sandboxes = [await create_screen_sandbox(paddock) for _ in range(GRID_SCREENS)]
    for sandbox in sandboxes:
        await asyncio.to_thread(sandbox.wait_until, sandbox.is_up)
    parts = urlsplit(sandboxes[0].address)
    stream = WebSocketStream(f"ws://{parts.netloc}/v1/screens?width=320&fps=1", sandboxes[0].headers)
    seen: set[bytes] = set()
    came = threading.Event()

    def watch() -> None:
        try:
            while True:
                message = stream.read_message()
                if stream.kind == 2:
                    seen.add(message[:64])
                    if len(seen) >= GRID_SCREENS:
                        came.set()
        except (OSError, ConnectionError):
            pass

    thread = threading.Thread(target=watch)
    thread.start()
    assert await asyncio.to_thread(came.wait, 60), f"only {len(seen)} pictures came"
    await asyncio.sleep(3)
    firsts = [sandbox.first_process for sandbox in sandboxes]

    def used() -> tuple[float, float]:
        return thread_cpu_seconds(paddock.process), sum(map(tree_cpu_seconds, firsts))

    before, began = used(), time.perf_counter()
    await asyncio.sleep(10)
    after, seconds = used(), time.perf_counter() - began
    server, inside = ((b - a) / seconds * 100 for a, b in zip(before, after, strict=True))
    what = f"grid of {GRID_SCREENS} screens, nothing moves, of a core"
    table.add(what, server, "%", bar="<= 20 % of a core")
    table.check_bar(what, server, 20)
    table.add("  what is in the sandboxes meanwhile", inside, "%")
    stream.connection.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    stream.close()
    await paddock.delete_all_sandboxes()


async def measure_terminal(table: ResultTable, paddock: PaddockServer, rounds: int) -> None:
    """Measure the echo of a key in a terminal, and its output rate."""
    sandbox = await create_screen_sandbox(paddock, "code", image={"uri": "host"})
    with WebSocketStream(f"{sandbox.address}/terminal?cols=80&rows=24&viewer=bench", sandbox.headers) as stream:
        _type(stream, b"stty -opost; echo rea''dy; cat >/dev/null\r")
        _read_until(stream, b"ready")
        took = []
        for _ in range(40 * rounds):
            began = time.perf_counter()
            _type(stream, b"x")
            _read_until(stream, b"x")
            took.append(time.perf_counter() - began)
        table.add("key in a terminal, echoed", statistics.median(took) * 1e3, "ms", bar="<= 3 ms")
        table.check_bar("key in a terminal, echoed", statistics.median(took) * 1e3, 3)
    sandbox.run_command(f"yes 'a line of text, as programs write them' | head -c {BIG_OUTPUT} > /tmp/big")
    rates = []
    for number in range(max(2, rounds // 2)):
        with WebSocketStream(f"{sandbox.address}/terminal?name=big{number}&viewer=bench", sandbox.headers) as stream:
            _type(stream, b"stty -opost; echo rea''dy; cat /tmp/big; exit\r")
            _read_until(stream, b"ready")
            began, size = time.perf_counter(), 0
            while size < BIG_OUTPUT:
                message = stream.read_message()
                if stream.kind == 2:
                    size += len(message) - 1
            rates.append(size / MEGABYTE / (time.perf_counter() - began))
    what = f"cat of {BIG_OUTPUT // MEGABYTE} MB in a terminal"
    table.add(what, statistics.median(rates), "MB/s", bar=">= 30 MB/s")
    table.check_bar(what, statistics.median(rates), 30, at_least=True)
    await paddock.delete_all_sandboxes()


def _type(stream: WebSocketStream, keys: bytes) -> None:
    stream.send(b"\0" + keys)


def _read_until(stream: WebSocketStream, text: bytes) -> None:
    seen = b""
    while text not in seen:
        message = stream.read_message()
        if stream.kind == 2:
            seen = (seen + message[1:])[-4096:]


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part, more than once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--images", type=Path, default=Path.home() / ".paddock/images", help="where images are")
    options = parser.parse_args()
    parts: dict[str, Callable[[ResultTable, PaddockServer, int], Any]] = {
        "shots": measure_screenshots,
        "clicks": measure_clicks,
        "starts": measure_desktop_starts,
        "kinds": measure_kind_starts,
        "relay": measure_relay,
        "viewers": measure_viewers,
        "grid": measure_screen_grid,
        "terminal": measure_terminal,
    }
    rounds = 3 if options.quick else 7
    table = ResultTable()
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
            PaddockServer.start(directory / "paddock", options.images, desktop, **settings)
        )
        for name in options.only or PARTS:
            print(f"measuring {name} …", file=sys.stderr, flush=True)
            await parts[name](table, paddock, rounds)
    return table.report(options.json)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
