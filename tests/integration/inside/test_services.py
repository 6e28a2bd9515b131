"""Supervised services of a sandbox."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .daemon import Daemon, alive, eventually, next_event, running_daemon


@contextmanager
def serving(zipapp: Path, directory: Path, *services: dict[str, Any], **settings: Any) -> Iterator[Daemon]:
    with running_daemon(zipapp, directory, services=list(services), **settings) as daemon:
        yield daemon


def listed(daemon: Daemon) -> dict[str, dict[str, Any]]:
    services = daemon.call("GET", "/paddock/services").json()["services"]
    return {service["name"]: service for service in services}


def states(daemon: Daemon) -> dict[str, str]:
    return {name: service["state"] for name, service in listed(daemon).items()}


def wait_for(daemon: Daemon, **wanted: str) -> None:
    eventually(lambda: wanted.items() <= states(daemon).items())


def kill(daemon: Daemon, name: str, number: int = signal.SIGKILL) -> int:
    pid: int = listed(daemon)[name]["pid"]
    os.kill(pid, number)
    return pid


def sleeper(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "command": ["sleep", "300"], **more}


def test_services_start_in_dependency_order(zipapp: Path, directory: Path) -> None:
    mark, gate, trace = directory / "mark", directory / "gate", directory / "trace"
    mark.write_text("left behind by an earlier life")
    os.mkfifo(gate)
    first = {
        "name": "first",
        "command": f"cat {gate}; echo first ready >>{trace}; touch {mark}; exec sleep 300",
        "ready": str(mark),
    }
    second = {"name": "second", "command": f"echo second $GREETING >>{trace}; exec sleep 300", "after": ["first"]}
    with serving(zipapp, directory, {**second, "env": {"GREETING": "hello"}}, first) as daemon:
        wait_for(daemon, first="starting", second="waiting")
        assert not mark.exists()
        gate.write_text("go")
        wait_for(daemon, first="ready", second="ready")
        eventually(lambda: trace.read_text() == "first ready\nsecond hello\n")
        assert listed(daemon)["second"]["ready"] is True
        assert listed(daemon)["first"]["starts"] == 1


def test_ready_is_seen_within_milliseconds(zipapp: Path, directory: Path) -> None:
    mark = directory / "mark"
    with (
        serving(zipapp, directory, sleeper("slow", ready=str(mark))) as daemon,
        daemon.stream("GET", "/paddock/services/watch") as watch,
    ):
        while next_event(watch)["state"] != "starting":
            pass
        took = []
        for _ in range(3):
            made = time.monotonic()
            mark.touch()
            while next_event(watch)["state"] != "ready":
                pass
            took.append(time.monotonic() - made)
            kill(daemon, "slow")
            while next_event(watch)["state"] != "starting":
                pass
        assert min(took) < 0.05


def test_dead_service_restarts_without_touching_others(zipapp: Path, directory: Path) -> None:
    with serving(zipapp, directory, sleeper("display"), sleeper("panel", after=["display"])) as daemon:
        wait_for(daemon, display="ready", panel="ready")
        panel = listed(daemon)["panel"]["pid"]
        dead = kill(daemon, "display")
        eventually(lambda: listed(daemon)["display"]["starts"] == 2 and states(daemon)["display"] == "ready")
        now = listed(daemon)
        assert now["display"]["pid"] != dead
        assert now["display"]["exit_code"] == 128 + signal.SIGKILL
        assert (now["panel"]["pid"], now["panel"]["starts"]) == (panel, 1)


def test_dependent_service_waits_for_the_restarted_one(zipapp: Path, directory: Path) -> None:
    mark, gate = directory / "mark", directory / "gate"
    mark.touch()
    os.mkfifo(gate)
    display = {"name": "display", "command": f"cat {gate}; touch {mark}; exec sleep 300", "ready": str(mark)}
    with serving(zipapp, directory, display, sleeper("panel", after=["display"])) as daemon:
        gate.write_text("go")
        wait_for(daemon, display="ready", panel="ready")
        kill(daemon, "display")
        kill(daemon, "panel")
        wait_for(daemon, display="starting", panel="waiting")
        gate.write_text("go")
        wait_for(daemon, display="ready", panel="ready")
        assert listed(daemon)["panel"]["starts"] == 2


def test_restart_delay_grows(zipapp: Path, directory: Path) -> None:
    service = {"name": "broken", "command": "date +%s.%N; echo cannot >&2; exit 3"}
    with serving(zipapp, directory, service) as daemon:
        eventually(lambda: listed(daemon)["broken"]["log"].count("cannot") == 4)
        found = listed(daemon)["broken"]
        assert found["exit_code"] == 3 and "exit code 3" in found["message"]
        began = [float(line) for line in found["log"] if line != "cannot"]
        pauses = [later - earlier for earlier, later in itertools.pairwise(began)]
        assert pauses[0] >= 0.1 and pauses[1] >= 0.2 and pauses[2] >= 0.4
        daemon.call("POST", "/paddock/services/start", {"timeout": 0})
        eventually(lambda: listed(daemon)["broken"]["starts"] >= 5)


def test_missing_program_is_reported(zipapp: Path, directory: Path) -> None:
    with serving(zipapp, directory, {"name": "lost", "command": ["no-such-program"]}) as daemon:
        wait_for(daemon, lost="failed")
        found = listed(daemon)["lost"]
        assert found["exit_code"] == 127 and "No such file" in found["message"]
        assert "no-such-program: No such file or directory" in found["log"]


def test_stopped_service_stays_stopped(zipapp: Path, directory: Path) -> None:
    stubborn = {"name": "stubborn", "command": "trap '' TERM; sleep 300 & wait"}
    with serving(zipapp, directory, sleeper("one"), sleeper("two", after=["one"]), stubborn) as daemon:
        wait_for(daemon, one="ready", two="ready", stubborn="ready")
        pids = {name: service["pid"] for name, service in listed(daemon).items()}
        answer = daemon.call("POST", "/paddock/services/stop", {"names": ["two"]}).json()
        assert {service["name"]: service["state"] for service in answer["services"]}["two"] == "stopped"
        assert not alive(pids["two"]) and alive(pids["one"])
        kill(daemon, "one")
        eventually(lambda: listed(daemon)["one"]["starts"] == 2)
        assert states(daemon)["two"] == "stopped"

        assert daemon.call("POST", "/paddock/services/stop", {}).status == 200
        assert set(states(daemon).values()) == {"stopped"}
        assert not any(alive(pid) for pid in pids.values())

        answer = daemon.call("POST", "/paddock/services/start", {}).json()
        assert {service["state"] for service in answer["services"]} == {"ready"}


def test_service_runs_after_stop_and_immediate_start(zipapp: Path, directory: Path) -> None:
    with serving(zipapp, directory, sleeper("one")) as daemon:
        for _ in range(5):
            daemon.call("POST", "/paddock/services/stop", {"timeout": 0})
            daemon.call("POST", "/paddock/services/start", {})
        # The one that was stopped last may still be ending.
        eventually(lambda: states(daemon)["one"] == "ready" and alive(listed(daemon)["one"]["pid"]))


@pytest.mark.parametrize(
    ("body", "expected_message"),
    [
        ({"names": ["nope"]}, "unknown service 'nope'"),
        ({"names": "one"}, "'names' must be a list"),
        ({"names": [1]}, "'names' must be a list"),
        ({"timeout": "soon"}, "'timeout' must be a number"),
        ({"timeout": -1}, "'timeout' must be a number"),
    ],
)
def test_invalid_requests_are_refused(
    zipapp: Path, directory: Path, body: dict[str, Any], expected_message: str
) -> None:
    with serving(zipapp, directory, sleeper("one")) as daemon:
        for verb in ("start", "stop"):
            answer = daemon.call("POST", f"/paddock/services/{verb}", body)
            assert answer.status == 400 and expected_message in answer.json()["message"]
        assert daemon.call("GET", "/paddock/services/start").status == 405


def test_sandbox_without_services_has_an_empty_list(daemon: Daemon) -> None:
    assert daemon.call("GET", "/paddock/services").json()["services"] == []
    assert daemon.call("POST", "/paddock/services/start", {}).json()["services"] == []


def test_watch_reports_states_and_changes(zipapp: Path, directory: Path) -> None:
    with serving(zipapp, directory, sleeper("display")) as daemon:
        wait_for(daemon, display="ready")
        with daemon.stream("GET", "/paddock/services/watch") as watch:
            seen = next_event(watch)
            assert (seen["type"], seen["name"], seen["state"]) == ("service", "display", "ready")
            kill(daemon, "display")
            assert [next_event(watch)["state"] for _ in range(3)] == ["failed", "starting", "ready"]
            daemon.call("POST", "/paddock/services/stop", {})
            assert [next_event(watch)["state"] for _ in range(2)] == ["stopping", "stopped"]


def test_services_do_not_count_as_commands_or_use(zipapp: Path, directory: Path) -> None:
    with serving(zipapp, directory, sleeper("display")) as daemon:
        wait_for(daemon, display="ready")
        with daemon.stream("GET", "/paddock/services/watch") as watch:
            next_event(watch)
            state = daemon.call("GET", "/paddock/state").json()
            assert state["running_commands"] == 0
            assert state["idle_seconds"] > 0
            idle = state["idle_seconds"]
            daemon.call("GET", "/paddock/services")
            # Two calls within one step of the clock may return the same.
            eventually(lambda: daemon.call("GET", "/paddock/state").json()["idle_seconds"] > idle)


def test_service_logs_are_bounded(zipapp: Path, directory: Path) -> None:
    service = {"name": "chatty", "command": "seq 200000; echo the end; exec sleep 300"}
    with serving(zipapp, directory, service) as daemon:
        eventually(lambda: listed(daemon)["chatty"]["log"][-1:] == ["the end"])
        assert len(listed(daemon)["chatty"]["log"]) == 20
        assert (directory / "state/services/chatty.log").stat().st_size <= 256 * 1024


def test_services_survive_a_claim(zipapp: Path, directory: Path) -> None:
    with serving(zipapp, directory, sleeper("display")) as daemon:
        wait_for(daemon, display="ready")
        pid = listed(daemon)["display"]["pid"]
        assert daemon.call("POST", "/paddock/claim", {"env": {"OWNER": "me"}}).status == 200
        assert listed(daemon)["display"]["pid"] == pid


def test_shutdown_ends_services(zipapp: Path, directory: Path) -> None:
    with serving(zipapp, directory, sleeper("one"), sleeper("two", after=["one"])) as daemon:
        wait_for(daemon, one="ready", two="ready")
        pids = [service["pid"] for service in listed(daemon).values()]
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize(
    "services",
    [
        '[{"name": "a"}]',
        '[{"name": "a", "command": ""}]',
        '[{"name": "a/b", "command": "x"}]',
        '[{"name": "a", "command": "x", "after": ["b"]}]',
        '[{"name": "a", "command": "x", "after": ["b"]}, {"name": "b", "command": "x", "after": ["a"]}]',
        '[{"name": "a", "command": "x"}, {"name": "a", "command": "y"}]',
    ],
)
def test_invalid_service_settings_are_refused(zipapp: Path, directory: Path, services: str) -> None:
    config = directory / "config.json"
    config.write_text(f'{{"token": "x", "listen": {{"fd": 3}}, "services": {services}}}')
    words = ["/usr/bin/python3", "-I", "-S", str(zipapp), "--config", str(config)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
