"""Whatever is killed, and whenever, the rest can be found and removed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.contract.backends.support import Pen, Yard, descends, eventually, kill, running

from paddock.errors import BoxStartError
from paddock.model.sandbox import BoxHealth, BoxSpec
from paddock.sandbox.local import processes
from paddock.sandbox.local.backend import LocalBackend
from paddock.sandbox.local.launcher import PROGRAM

SERVER = """
import asyncio, json, os, sys
from pathlib import Path
from paddock.model.sandbox import BoxSpec
from paddock.sandbox.local.backend import LocalBackend, LocalSettings

async def main():
    data, base, count, spec = json.loads(sys.stdin.readline())
    backend = LocalBackend(LocalSettings(data=Path(data), uid_base=base, uid_count=count))
    print("starting", flush=True)
    record = await backend.start(BoxSpec.model_validate(spec))
    print(json.dumps(dict(record)), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_killing_inside_ends_the_box_and_says_so(place: Yard) -> None:
    with place.box() as pen:
        pen.start("sleep 600")
        kill(pen.first_process)
        status = place.do(place.backend.wait(pen.record))
        assert status.health is BoxHealth.GONE
        eventually(lambda: pen.status().exit_code is not None)
        assert (pen.status().exit_code, pen.status().reason) == (137, "killed")


def test_killing_the_monitor_leaves_the_box_running(place: Yard) -> None:
    pen = place.start()
    monitor, first = pen.monitor, pen.first_process
    assert Path(f"/proc/{monitor}/comm").read_text() == "bwrap\n"
    kill(monitor)
    eventually(lambda: not Path(f"/proc/{monitor}").exists())
    assert pen.status().health is BoxHealth.RUNNING
    assert pen.answers()
    place.remove(pen)
    eventually(lambda: processes.state(first) in processes.ENDED)
    assert pen.status().health is BoxHealth.GONE


def test_a_stopped_monitor_does_not_keep_a_box_from_being_removed(place: Yard) -> None:
    pen = place.start()
    os.kill(pen.monitor, signal.SIGSTOP)
    begin = time.monotonic()
    place.remove(pen)
    assert time.monotonic() - begin < 3


@pytest.mark.parametrize("moment", [0.0, 0.002, 0.005, 0.01, 0.02, 0.04])
def test_a_launcher_killed_on_its_way_fails_the_start(place: Yard, moment: float) -> None:
    """At any moment: nothing is left, or the box has started."""

    async def start_and_kill() -> Pen | None:
        task = asyncio.create_task(place.backend.start(place.spec()))
        while not task.done() and not (launchers := _launchers()):
            await asyncio.sleep(0)
        await asyncio.sleep(moment)
        for pid in launchers:
            try:
                kill(pid)
            except ProcessLookupError:
                pass
        try:
            return Pen(place.backend, place.data, dict(await task))
        except BoxStartError:
            return None

    pen = place.do(start_and_kill())
    if pen is not None:
        assert pen.answers()
        place.remove(pen)
    assert place.do(place.backend.leftovers()) == []
    with place.box() as following:
        assert following.answers()


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.02, 0.04, 0.06, 0.1])
def test_what_a_killed_server_was_starting_can_be_removed(place: Yard, moment: float) -> None:
    spec = place.spec()
    with _server(place, spec) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "starting\n"
        time.sleep(moment)
        server.kill()
    fresh = LocalBackend(place.settings)
    place.do(fresh.remove(spec.id))
    assert place.do(fresh.leftovers()) == []
    place.do(fresh.close())
    eventually(lambda: not _holding(place.data / "boxes" / spec.id))


def test_a_box_outlives_the_server_that_started_it(place: Yard) -> None:
    spec = place.spec()
    with _server(place, spec) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "starting\n"
        record = json.loads(server.stdout.readline())
        server.kill()
    pen = Pen(place.backend, place.data, record)
    assert pen.answers()
    assert pen.status().health is BoxHealth.RUNNING
    place.remove(pen)


def test_a_number_used_again_is_not_taken_for_the_box(place: Yard) -> None:
    """After the box has died another process may have its number; it must be left alone."""
    with place.box() as pen:
        kill(pen.first_process)
        place.do(place.backend.wait(pen.record))
        with subprocess.Popen(["sleep", "60"]) as bystander:
            report = processes.bwrap_report(pen.files.report)
            pen.files.report.write_text(json.dumps({**report, "child-pid": bystander.pid}))
            assert pen.status().health is BoxHealth.GONE
            place.remove(pen)
            assert bystander.poll() is None
            bystander.kill()


def test_a_box_of_before_a_reboot_is_gone(place: Yard) -> None:
    with place.box() as pen:
        facts = pen.files.read_facts()
        pen.files.facts.write_text(json.dumps({**facts, "boot": "another"}))
        assert pen.status().health is BoxHealth.GONE
        pen.files.facts.write_text(json.dumps(facts))
        assert pen.answers()


@pytest.mark.parametrize("damage", ["report", "facts", "log", "sockets"])
def test_a_damaged_box_can_be_removed(place: Yard, damage: str) -> None:
    pen = place.start()
    first = pen.first_process
    victims = {"report": pen.files.report, "facts": pen.files.facts, "log": pen.files.log}
    if damage == "sockets":
        (place.data / "sockets" / pen.id).unlink()
    elif damage == "log":
        victims["log"].unlink()
    else:
        victims[damage].write_text("{ nonsense")
    place.remove(pen)
    assert place.do(place.backend.leftovers()) == []
    eventually(lambda: processes.state(first) in processes.ENDED)
    if damage == "facts" and place.backend._uids is not None:
        place.backend._uids.release(pen.record["uid"])


def test_a_removal_broken_off_is_finished_by_the_next(place: Yard) -> None:
    pen = place.start()
    kill(pen.first_process)
    place.do(place.backend.wait(pen.record))
    pen.files.directory.rename(pen.files.directory.with_name(f".trash-{pen.id}"))
    assert place.do(place.backend.leftovers()) == [pen.id]
    place.remove(pen)
    assert place.do(place.backend.leftovers()) == []


def _server(place: Yard, spec: BoxSpec) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    settings = place.settings
    assert server.stdin is not None
    document = [str(settings.data), settings.uid_base, settings.uid_count, spec.model_dump(mode="json")]
    server.stdin.write(json.dumps(document) + "\n")
    server.stdin.flush()
    return server


def _launchers() -> list[int]:
    """The process that starts boxes for this one, and what it has forked for one of them."""
    return [pid for pid in running(PROGRAM) if descends(pid, os.getpid())]


def _holding(directory: Path) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and str(directory) in Path(f"/proc/{entry}/mountinfo").read_text():
                found.append(int(entry))
        except OSError:
            continue
    return found


def test_a_first_process_that_ends_just_before_it_is_killed_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "60"])
    identity = processes.Identity(child.pid, processes.pid_namespace(child.pid) or 0, processes.boot_id())
    looked = identity.alive

    def alive_when_looked_at(self: processes.Identity) -> bool:
        found = looked()
        child.kill()
        child.wait(10)
        return found

    monkeypatch.setattr(processes.Identity, "alive", alive_when_looked_at)
    processes.kill_first(identity, thaw=lambda: None)
    assert child.returncode == -signal.SIGKILL
