"""Startup of a sandbox with a display: the early service, and late services that wait for the RFB version."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paddock.sandbox.local.process_control import open_two_way_pipe

from .daemon import Daemon, alive, eventually, running_daemon
from .test_services import kill, listed, sleeper, states, wait_for

SCREEN = """
import os, socket, sys
display_socket, gate, ready = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX)
listener.bind(display_socket)
listener.listen()
open(ready, "w").close()
open(gate).read()
while True:
    viewer, _ = listener.accept()
    viewer.sendall(b"RFB 003.008\\n")
    viewer.close()
"""


@contextmanager
def starting_screen(zipapp: Path, directory: Path, *services: dict[str, Any]) -> Iterator[tuple[Daemon, Path]]:
    """Run a daemon with a display that accepts connections at once and sends its version after a write to the gate."""
    display_socket, gate, ready, program = (directory / name for name in ("vnc.sock", "gate", "ready", "screen.py"))
    program.write_text(SCREEN)
    os.mkfifo(gate)
    words = ["/usr/bin/python3", str(program), str(display_socket), str(gate), str(ready)]
    display = {"name": "display", "command": words, "ready": str(ready)}
    env = {"PADDOCK_DISPLAY_SOCKET": str(display_socket)}
    with running_daemon(zipapp, directory, services=[display, *services], env=env) as daemon:
        yield daemon, gate


def tools(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.call("GET", "/paddock/services").json()["tools"]
    return found


def test_late_services_wait_for_the_display_version(zipapp: Path, directory: Path) -> None:
    services = (sleeper("windows", after=["display"]), sleeper("panel", after=["display"], late=True))
    with starting_screen(zipapp, directory, *services) as (daemon, gate):
        wait_for(daemon, display="ready", windows="ready")
        assert states(daemon)["panel"] == "waiting"
        assert not tools(daemon)["running"]
        gate.write_text("speak")
        wait_for(daemon, panel="ready")
        eventually(lambda: tools(daemon)["running"])
        assert listed(daemon)["panel"]["starts"] == 1


def test_late_service_restarts_at_once_after_startup(zipapp: Path, directory: Path) -> None:
    with starting_screen(zipapp, directory, sleeper("panel", late=True)) as (daemon, gate):
        gate.write_text("speak")
        wait_for(daemon, panel="ready")
        kill(daemon, "display")  # The next one sends nothing until the next write.
        kill(daemon, "panel")
        eventually(lambda: listed(daemon)["panel"]["starts"] == 2)


def test_silent_display_delays_late_services_for_limited_time(zipapp: Path, directory: Path) -> None:
    with starting_screen(zipapp, directory, sleeper("panel", late=True)) as (daemon, _):
        wait_for(daemon, display="ready", panel="waiting")
        eventually(lambda: states(daemon)["panel"] == "ready", 15)


def test_late_services_start_at_once_without_a_display(zipapp: Path, directory: Path) -> None:
    with running_daemon(zipapp, directory, services=[sleeper("panel", late=True)]) as daemon:
        wait_for(daemon, panel="ready")


@contextmanager
def early(zipapp: Path, directory: Path, beside: str, **settings: Any) -> Iterator[Daemon]:
    """A daemon with a service that was started before it, and the pipe that takes its output."""
    with (
        open_two_way_pipe() as output,
        running_daemon(
            zipapp,
            directory,
            beside=f"setsid {beside} >&{output} 2>&{output}" if output < 10 else f"setsid {beside}",
            pass_fds=[output],
            services=[sleeper("display"), sleeper("panel", after=["display"])],
            early={"service": "display", "output": output, "marker": "a" * 32},
            **settings,
        ) as daemon,
    ):
        yield daemon


def test_early_service_is_supervised(zipapp: Path, directory: Path) -> None:
    with early(zipapp, directory, "sleep 299") as daemon:
        wait_for(daemon, display="ready", panel="ready")
        first = listed(daemon)["display"]
        eventually(lambda: Path(f"/proc/{first['pid']}/cmdline").read_bytes() == b"sleep\x00299\x00")
        assert first["starts"] == 1
        kill(daemon, "display")
        eventually(lambda: listed(daemon)["display"]["starts"] == 2 and states(daemon)["display"] == "ready")
        now = listed(daemon)["display"]
        assert now["exit_code"] == 128 + signal.SIGKILL
        eventually(lambda: Path(f"/proc/{now['pid']}/cmdline").read_bytes() == b"sleep\x00300\x00")


def test_an_early_service_can_be_stopped(zipapp: Path, directory: Path) -> None:
    with early(zipapp, directory, "sh -c 'sleep 298; :'") as daemon:
        wait_for(daemon, display="ready")
        pid = listed(daemon)["display"]["pid"]
        assert daemon.call("POST", "/paddock/services/stop", {"names": ["display"]}).status == 200
        wait_for(daemon, display="stopped")
        assert not alive(pid)


def test_dead_early_service_is_restarted(zipapp: Path, directory: Path) -> None:
    with early(zipapp, directory, "false") as daemon:
        eventually(lambda: listed(daemon)["display"]["starts"] == 2 and states(daemon)["display"] == "ready")
        assert listed(daemon)["display"]["exit_code"] == 1


def test_early_service_has_the_same_resource_limits(zipapp: Path, directory: Path) -> None:
    with early(zipapp, directory, "sleep 299", rlimits={"DATA": 123 * 2**20}) as daemon:
        wait_for(daemon, display="ready")
        limits = Path(f"/proc/{listed(daemon)['display']['pid']}/limits").read_text()
        line = next(line for line in limits.splitlines() if line.startswith("Max data size"))
        assert line.split()[3:5] == [str(123 * 2**20)] * 2
