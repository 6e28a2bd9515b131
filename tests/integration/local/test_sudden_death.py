"""After a kill at any moment, leftovers can be found and removed."""

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
from tests.contract.backends.support import LocalBackendHarness, RunningSandbox, descends, eventually, kill, running

from paddock.errors import SandboxStartError
from paddock.model.sandbox import SandboxHealth, SandboxSpec
from paddock.sandbox.local import process_control
from paddock.sandbox.local.backend import LocalBackend
from paddock.sandbox.local.launcher_client import LAUNCHER_PROGRAM

SERVER = """
import asyncio, json, os, sys
from pathlib import Path
from paddock.model.sandbox import SandboxSpec
from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings

async def main():
    data, base, count, spec = json.loads(sys.stdin.readline())
    backend = LocalBackend(LocalBackendSettings(data=Path(data), uid_base=base, uid_count=count))
    print("starting", flush=True)
    record = await backend.start(SandboxSpec.model_validate(spec))
    print(json.dumps(dict(record)), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_killed_daemon_ends_sandbox_with_reason(harness: LocalBackendHarness) -> None:
    with harness.sandbox() as running_sandbox:
        running_sandbox.start("sleep 600")
        kill(running_sandbox.first_process)
        status = harness.do(harness.backend.wait(running_sandbox.record))
        assert status.health is SandboxHealth.GONE
        eventually(lambda: running_sandbox.status().exit_code is not None)
        assert (running_sandbox.status().exit_code, running_sandbox.status().reason) == (137, "killed")


def test_killed_monitor_leaves_sandbox_running(harness: LocalBackendHarness) -> None:
    running_sandbox = harness.start()
    monitor, first = running_sandbox.monitor, running_sandbox.first_process
    assert Path(f"/proc/{monitor}/comm").read_text() == ("monitor\n" if harness.image.root_mode else "bwrap\n")
    kill(monitor)
    eventually(lambda: not Path(f"/proc/{monitor}").exists())
    assert running_sandbox.status().health is SandboxHealth.RUNNING
    assert running_sandbox.answers()
    harness.remove(running_sandbox)
    eventually(lambda: process_control.process_state(first) in process_control.ENDED_STATES)
    assert running_sandbox.status().health is SandboxHealth.GONE


def test_stopped_monitor_does_not_block_removal(harness: LocalBackendHarness) -> None:
    running_sandbox = harness.start()
    os.kill(running_sandbox.monitor, signal.SIGSTOP)
    begin = time.monotonic()
    harness.remove(running_sandbox)
    assert time.monotonic() - begin < 3


@pytest.mark.parametrize("moment", [0.0, 0.002, 0.005, 0.01, 0.02, 0.04])
def test_killed_launcher_fails_the_start(harness: LocalBackendHarness, moment: float) -> None:
    """At any moment: nothing is left, or the sandbox has started."""

    async def start_and_kill() -> RunningSandbox | None:
        task = asyncio.create_task(harness.backend.start(harness.spec()))
        while not task.done() and not (launchers := _launchers()):
            await asyncio.sleep(0)
        await asyncio.sleep(moment)
        for pid in launchers:
            try:
                kill(pid)
            except ProcessLookupError:
                pass
        try:
            return RunningSandbox(harness.backend, harness.data, dict(await task))
        except SandboxStartError:
            return None

    running_sandbox = harness.do(start_and_kill())
    if running_sandbox is not None:
        assert running_sandbox.answers()
        harness.remove(running_sandbox)
    assert harness.do(harness.backend.leftovers()) == []
    with harness.sandbox() as following:
        assert following.answers()


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.02, 0.04, 0.06, 0.1])
def test_sandbox_of_server_killed_during_start_can_be_removed(harness: LocalBackendHarness, moment: float) -> None:
    spec = harness.spec()
    with _server(harness, spec) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "starting\n"
        time.sleep(moment)
        server.kill()
    fresh = LocalBackend(harness.settings)
    harness.do(fresh.remove(spec.id))
    assert harness.do(fresh.leftovers()) == []
    harness.do(fresh.close())
    eventually(lambda: not _holding(harness.data / "boxes" / spec.id))


def test_sandbox_outlives_its_server(harness: LocalBackendHarness) -> None:
    spec = harness.spec()
    with _server(harness, spec) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "starting\n"
        record = json.loads(server.stdout.readline())
        server.kill()
    running_sandbox = RunningSandbox(harness.backend, harness.data, record)
    assert running_sandbox.answers()
    assert running_sandbox.status().health is SandboxHealth.RUNNING
    harness.remove(running_sandbox)


def test_reused_pid_is_not_mistaken_for_sandbox(harness: LocalBackendHarness) -> None:
    """After the sandbox has died another process may have its number; it must be left alone."""
    with harness.sandbox() as running_sandbox:
        kill(running_sandbox.first_process)
        harness.do(harness.backend.wait(running_sandbox.record))
        with subprocess.Popen(["sleep", "60"]) as bystander:
            report = process_control.read_bwrap_report(running_sandbox.files.report)
            running_sandbox.files.report.write_text(json.dumps({**report, "child-pid": bystander.pid}))
            assert running_sandbox.status().health is SandboxHealth.GONE
            harness.remove(running_sandbox)
            assert bystander.poll() is None
            bystander.kill()


def test_sandbox_from_before_reboot_has_ended(harness: LocalBackendHarness) -> None:
    with harness.sandbox() as running_sandbox:
        facts = running_sandbox.files.read_facts()
        running_sandbox.files.facts.write_text(json.dumps({**facts, "boot": "another"}))
        assert running_sandbox.status().health is SandboxHealth.GONE
        running_sandbox.files.facts.write_text(json.dumps(facts))
        assert running_sandbox.answers()


@pytest.mark.parametrize("damage", ["report", "facts", "log", "sockets"])
def test_damaged_sandbox_can_be_removed(harness: LocalBackendHarness, damage: str) -> None:
    running_sandbox = harness.start()
    first = running_sandbox.first_process
    victims = {
        "report": running_sandbox.files.report,
        "facts": running_sandbox.files.facts,
        "log": running_sandbox.files.log,
    }
    if damage == "sockets":
        (harness.data / "sockets" / running_sandbox.id).unlink()
    elif damage == "log":
        victims["log"].unlink()
    else:
        victims[damage].write_text("{ nonsense")
    harness.remove(running_sandbox)
    assert harness.do(harness.backend.leftovers()) == []
    eventually(lambda: process_control.process_state(first) in process_control.ENDED_STATES)
    pool = harness.backend._uid_pool(running_sandbox.root_mode)
    if damage == "facts" and pool is not None:
        pool.release(running_sandbox.record["uid"])


def test_interrupted_removal_is_finished_by_the_next(harness: LocalBackendHarness) -> None:
    running_sandbox = harness.start()
    kill(running_sandbox.first_process)
    harness.do(harness.backend.wait(running_sandbox.record))
    running_sandbox.files.directory.rename(running_sandbox.files.directory.with_name(f".trash-{running_sandbox.id}"))
    assert harness.do(harness.backend.leftovers()) == [running_sandbox.id]
    harness.remove(running_sandbox)
    assert harness.do(harness.backend.leftovers()) == []


def _server(harness: LocalBackendHarness, spec: SandboxSpec) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    settings = harness.settings
    assert server.stdin is not None
    document = [str(settings.data), settings.uid_base, settings.uid_count, spec.model_dump(mode="json")]
    server.stdin.write(json.dumps(document) + "\n")
    server.stdin.flush()
    return server


def _launchers() -> list[int]:
    """The process that starts sandboxes for this one, and what it has forked for one of them."""
    return [pid for pid in running(LAUNCHER_PROGRAM) if descends(pid, os.getpid()) and not _is_monitor(pid)]


def _is_monitor(pid: int) -> bool:
    """Return whether a process is the monitor of a sandbox in root mode, forked by the launcher."""
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "monitor\n"
    except OSError:
        return False


def _holding(directory: Path) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and str(directory) in Path(f"/proc/{entry}/mountinfo").read_text():
                found.append(int(entry))
        except OSError:
            continue
    return found


def test_init_process_ending_before_its_kill_counts_as_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "60"])
    identity = process_control.ProcessIdentity(
        child.pid, process_control.pid_namespace(child.pid) or 0, process_control.boot_id()
    )
    looked = identity.alive

    def alive_when_looked_at(self: process_control.ProcessIdentity) -> bool:
        found = looked()
        child.kill()
        child.wait(10)
        return found

    monkeypatch.setattr(process_control.ProcessIdentity, "alive", alive_when_looked_at)
    process_control.kill_init_process(identity, thaw=lambda: None)
    assert child.returncode == -signal.SIGKILL
